"""KOALA-V (see `seqdec.optim._koala`)."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from seqdec.core import Array
from seqdec.optim._koala import check_settings, innovation, observe, scaled, state_scalar, tracked_noise, unflatten_like
from seqdec.optim.chains import Rate, scale_by_rate
from seqdec.optim.common import Mask, placing


def koala_v(
    learning_rate: Rate,
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
    """KOALA-V: a Kalman filter of the loss with covariance p I. Call `update(grads, state, params, value=loss)`.

        p' = p + q      S_l = p' |H_l|^2 + R      u_l = L p' H_l / S_l      p <- p' min_l(R / S_l)

    over the tensors l. Memory: 2 numbers. Work: two passes over the gradient.

    Args:
        learning_rate: the authors' are 0.1 and 1.
        initial_variance, process_noise, noise, noise_decay, initial_noise, weight_decay, mask, per_tensor: see
            `seqdec.optim._koala`.

    Source: Davtyan et al. 2022 (`seqdec.optim._koala`).
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

    direction = optax.GradientTransformationExtraArgs(init, update)
    return placing(optax.chain(direction, scale_by_rate(learning_rate)))


scale_by_koala_v = functools.partial(koala_v, None)


class ScaleByKoalaVState(NamedTuple):
    """State of `scale_by_koala_v`."""

    variance: Array
    """() p"""
    noise: Array
    """() R"""
