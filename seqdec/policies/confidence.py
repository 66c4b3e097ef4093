"""Upper confidence bounds."""

import jax.numpy as jnp

from seqdec.core import Acquisition
from seqdec.policies import common


def ucb(width=1.0) -> Acquisition:
    """Play the largest mean_a + width * std_a, std_a epistemic; the first of equal ones.

    Args:
        width: standard deviations >= 0, else ValueError; may be traced.
    """
    common.weight("width", width)

    def score(key, posterior, candidates, mask):
        del key
        at = common.marginals(posterior, candidates)
        return common.masked(at.mean + width * jnp.sqrt(jnp.maximum(at.variance, 0)), mask)

    return Acquisition(score, "joint")
