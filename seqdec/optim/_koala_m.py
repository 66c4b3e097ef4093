"""KOALA-M (see `seqdec.optim._koala`)."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from seqdec.boundary import checks
from seqdec.core import Array, PyTree
from seqdec.optim._koala import check_settings, innovation, observe, scaled, state_scalar, tracked_noise, unflatten_like
from seqdec.optim.chains import Rate, scale_by_rate
from seqdec.optim.common import Mask, placing, zeros_like_state


def koala_m(
    learning_rate: Rate,
    *,
    b1: Any = 0.9,
    initial_variance: Any = 0.1,
    process_noise: Any = 0.01,
    velocity_noise: Any = 0.01,
    noise: Any = None,
    noise_decay: Any = 0.9,
    initial_noise: Any = 1.0,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    per_tensor: bool = True,
) -> optax.GradientTransformationExtraArgs:
    """KOALA-M: a Kalman filter of the loss over position and velocity. Call `update(grads, state, params, value=loss)`.

    theta' = theta + p, p' = kappa p, covariance (2 x 2) (x) I. Each step corrects and then predicts. With F = [[1, 1],
    [0, kappa]]

        P <- F P F^T + diag(q_theta, q_p)       S_l = P_11 |H_l|^2 + R
        w_l <- kappa w_l + L P_21 H_l / S_l     u_l = L P_11 H_l / S_l + w_l
        P <- P - max_l(|H_l|^2 / S_l) P e_1 e_1^T P

    where w is minus the velocity over the learning rate, whose changes scale the velocity. `params` are predicted;
    corrected ones are params + learning_rate * state.velocity. Memory: one copy of the parameters.

    Args:
        learning_rate: the authors' is 1.
        b1: kappa, decay of the velocity.
        velocity_noise: q_p per step; `process_noise` is q_theta, which the authors' code estimates.
        initial_variance, process_noise, noise, noise_decay, initial_noise, weight_decay, mask, per_tensor: see
            `seqdec.optim._koala`.

    Source: Davtyan et al. 2022 (`seqdec.optim._koala`).
    """
    check_settings(initial_variance, process_noise, noise, noise_decay, initial_noise, weight_decay)
    checks.number("velocity_noise", velocity_noise)
    checks.number("b1", b1, 0, 1)

    def init(params):
        variance = state_scalar(initial_variance, params)
        return ScaleByKoalaMState(
            zeros_like_state(params), variance * jnp.eye(2, dtype=variance.dtype), state_scalar(initial_noise, params)
        )

    def update(updates, state, params=None, *, value=None, value_variance=None, **extra):
        del extra
        observed = observe(per_tensor, updates, params, value, weight_decay, mask)
        noise_variance = tracked_noise(state.noise, noise, noise_decay, value, value_variance)
        (p_tt, p_tv), (_, p_vv) = state.covariance
        predicted = [p_tt + 2 * p_tv + p_vv + process_noise, b1 * (p_tv + p_vv), b1**2 * p_vv + velocity_noise]
        covariance = jnp.stack(predicted)[jnp.array([[0, 1], [1, 2]])]
        ratios = innovation(observed.norm, covariance[0, 0], noise_variance)
        gains = jnp.where(observed.nonzero, observed.loss * ratios.gain, 0)
        velocity = [
            b1 * w + push
            for w, push in zip(
                jax.tree.leaves(state.velocity), scaled(covariance[1, 0] * gains, observed.rows), strict=True
            )
        ]
        steps = scaled(covariance[0, 0] * gains, observed.rows)
        information = jnp.max(jnp.where(observed.nonzero, ratios.information, 0), initial=0)
        covariance = covariance - information * jnp.outer(covariance[:, 0], covariance[0])
        moved = [step + w for step, w in zip(steps, velocity, strict=True)]
        structure = jax.tree.structure(state.velocity)
        kept = ScaleByKoalaMState(
            structure.unflatten(velocity), covariance.astype(state.covariance.dtype), noise_variance
        )
        return unflatten_like(updates, moved), kept

    direction = optax.GradientTransformationExtraArgs(init, update)
    return placing(optax.chain(direction, scale_by_rate(learning_rate)))


scale_by_koala_m = functools.partial(koala_m, None)


class ScaleByKoalaMState(NamedTuple):
    """State of `scale_by_koala_m`."""

    velocity: PyTree
    """minus the velocity over the learning rate"""
    covariance: Array
    """(2, 2) of position and velocity"""
    noise: Array
    """() R"""
