"""An optimizer: copy to seqdec/optim/_sign.py.

Registry, imports of seqdec/optim/__init__.py:

    from seqdec.optim._sign import sign as sign

Case, RATES of tests/contracts/test_optimizers.py:

    "sign": 0.03,
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from optax import ScalarOrSchedule

from seqdec.optim.chains import add_decay, scale_by_rate
from seqdec.optim.common import Mask


def sign(
    learning_rate: ScalarOrSchedule, *, weight_decay: Any = 0.0, mask: Mask | None = None
) -> optax.GradientTransformationExtraArgs:
    """Sign descent: every parameter moves by the learning rate.

    Args:
        learning_rate: a number or a schedule.
        weight_decay: decoupled: this share of the parameters, times the learning rate, is subtracted in every step.
        mask: which parameters decay, as in `optax.adamw`; None: all.
    """
    direction = optax.stateless(lambda updates, params: jax.tree.map(jnp.sign, updates))
    return optax.chain(direction, add_decay(weight_decay, mask), scale_by_rate(learning_rate))
