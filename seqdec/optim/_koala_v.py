"""KOALA-V: the Kalman filter of the loss with a scalar covariance; see `seqdec.optim._koala`."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from seqdec.core import Array
from seqdec.optim import _koala
from seqdec.optim._koala import check_settings, innovation, observe, scaled, state_scalar, tracked_noise, unflatten_like
from seqdec.optim.alias import with_learning_rate
from seqdec.optim.common import Mask
from seqdec.optim.injection import injectable


class ScaleByKoalaVState(NamedTuple):
    """Two numbers."""

    variance: Array
    """() p"""
    noise: Array
    """() R"""


@injectable
def scale_by_koala_v(
    *,
    initial_variance: Any = 0.1,
    process_noise: Any = 1.0,
    noise: Any = None,
    noise_decay: Any = 0.9,
    initial_noise: Any = 1.0,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    per_tensor: bool = True,
) -> optax.GradientTransformationExtraArgs:
    r"""KOALA with a scalar covariance p I.

        p' = p + q      S_l = p' |H_l|^2 + R      u_l = L p' H_l / S_l      p <- p' min_l(R / S_l)

    over the tensors l. Memory: 2 numbers. Work: one pass over the gradient for the norms and one for the step. The
    returned direction is not negated.

    Args:
        initial_variance: p_0.
        process_noise: q, variance that every parameter gains per step.
        noise: R, observation variance of the loss; None tracks it.
        noise_decay: decay of the moving average that tracks R.
        initial_noise: initial value of that average.
        weight_decay: coupled; see `seqdec.optim._koala`.
        mask: which parameters decay, as in `optax.adamw`: a tree of bools like the parameters, or a function that
            returns such a tree; None: all, including biases and norms.
        per_tensor: compute the scalars of each parameter array from that array; see `seqdec.optim._koala`.

    Raises:
        ValueError: a setting is out of its range; in `update`, `value=` is missing or not a scalar.
    """
    check_settings(initial_variance, process_noise, noise, noise_decay, initial_noise, weight_decay)

    def init(params):
        return ScaleByKoalaVState(state_scalar(initial_variance, params), state_scalar(initial_noise, params))

    def update(updates, state, params=None, *, value=None, value_variance=None, **extra):
        del extra
        observed = observe(per_tensor, updates, params, value, weight_decay, mask)
        noise_variance = tracked_noise(state.noise, noise, noise_decay, value, value_variance)
        predicted = state.variance + process_noise
        ratios = innovation(observed.norm, predicted, noise_variance)
        gain = jnp.where(observed.nonzero, predicted * ratios.gain, 0)
        variance = predicted * jnp.min(jnp.where(observed.nonzero, ratios.remaining, 1), initial=1)
        kept = ScaleByKoalaVState(variance.astype(state.variance.dtype), noise_variance)
        return unflatten_like(updates, scaled(observed.loss * gain, observed.rows)), kept

    return optax.GradientTransformationExtraArgs(init, update)


koala_v = with_learning_rate(
    scale_by_koala_v,
    """KOALA-V: a Kalman filter with covariance p I; the authors' learning rates are 0.1 and 1.

Call `update(grads, state, params, value=loss)`.""",
    family=_koala.__doc__,
)
