r"""Bayesian linear regression for many features, with a variance for each weight and no covariances.

As `seqdec.agents.regression.nig`, with sigma_j^2 diag(v_j) in place of sigma_j^2 C_j. One observation (x, y) of
response j, with s = 1 + sum_f v_jf phi_f^2 and e = y - w_j^T phi, gives

    w_jf += v_jf phi_f e / s        v_jf <- v_jf / (1 + v_jf phi_f^2)

in O(F): the gain of the Kalman filter, and the diagonal of the posterior precision. For one-hot contexts this is the
posterior but for what levels share with the constant. Of the prior mean m the constant keeps m v_jF / 3.

Source: Crammer, Kulesza, Dredze, "Adaptive regularization of weight vectors", NeurIPS 2009, for diagonal confidence.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seqdec.agents._neural.experience import Experience
from seqdec.agents.regression import nig
from seqdec.agents.regression import noise as noises
from seqdec.agents.regression.nig import CONSTANT, Answer
from seqdec.agents.regression.noise import Noise
from seqdec.core import Array, Key


class Diagonal(NamedTuple):
    """Belief over the weights of n responses of F features."""

    weights: Array
    """(n, F) w, of the prior mean 0"""
    variances: Array
    """(n, F) v"""
    noise: Noise


def prior(responses: int, features: int) -> Diagonal:
    """Before any observation."""
    return Diagonal(jnp.zeros((responses, features)), jnp.ones((responses, features)), noises.unknown(responses))


def answer(belief: Diagonal, phi: Array, location: Array) -> Answer:
    """Predictions at features (F,), with the prior mean m = `location`."""
    mean = belief.weights @ phi + location / CONSTANT * belief.variances[:, -1] * phi[-1]
    noise = noises.variance(belief.noise)
    return Answer(mean, noise * (belief.variances @ phi**2), noise)


def expected(belief: Diagonal, location: Array) -> Array:
    """Weights (n, F) in the mean, with the prior mean m = `location`."""
    return belief.weights.at[:, -1].add(location / CONSTANT * belief.variances[:, -1])


def drawn(key: Key, belief: Diagonal, location: Array) -> Array:
    """Weights (n, F) drawn from the belief, its noise taken as it is estimated."""
    std = jnp.sqrt(noises.variance(belief.noise)[:, None] * belief.variances)
    return expected(belief, location) + std * jax.random.normal(key, std.shape, std.dtype)


def root(belief: Diagonal, phis: Array) -> Array:
    """(b, F), as `seqdec.agents.regression.nig.root`."""
    return phis * jnp.sqrt(belief.variances[0])[None]


def learn(
    belief: Diagonal, phi: Array, row: Experience, location: Array, single: bool, accept: Array
) -> tuple[Diagonal, Array]:
    """The belief after one step, as `seqdec.agents.regression.nig.learn`."""
    return nig.learn(belief, phi, row, location, single, accept, observe)


def observe(
    belief: Diagonal, phi: Array, y: Array, location: Array, index: Array, accept: Array
) -> tuple[Diagonal, Array]:
    """The belief after response `index` was y at features (F,), unchanged unless `accept`; and y's log density."""
    variances = belief.variances[index]
    gain = jnp.where(accept, variances * phi, 0)
    scale = 1 + gain @ phi
    error = jnp.where(accept, y - belief.weights[index] @ phi, 0)
    innovation = error - location / CONSTANT * gain[-1]
    density = noises.log_density(belief.noise, innovation, scale, index)
    fresh = Diagonal(
        weights=belief.weights.at[index].add(gain * (error / scale)),
        variances=belief.variances.at[index].set(variances / (1 + gain * phi)),
        noise=noises.learned(belief.noise, innovation, scale, index, accept),
    )
    return fresh, jnp.where(accept, density, 0)


def forgotten(belief: Diagonal, half_life: float, steps: Array, accept: Array) -> Diagonal:
    """The belief in which an observation counts half as much after `half_life` steps, as that of a regression.

    With g = 2^(-period / half_life), v' = v / (g + (1 - g) v) and w' = w - (1 - g) v' w.
    """
    period = nig.period(half_life)
    keep = jnp.where(accept & (steps % period == 0), 0.5 ** (period / half_life), 1.0).astype(belief.weights.dtype)
    variances = belief.variances / (keep + (1 - keep) * belief.variances)
    return belief._replace(weights=belief.weights * (1 - (1 - keep) * variances), variances=variances)
