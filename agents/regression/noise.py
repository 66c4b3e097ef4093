r"""Observation noise that is estimated: a normal-inverse-gamma belief for each response.

Given the noise variance sigma_j^2 of response j, the belief over the weights is N(w, sigma_j^2 C): a filter that is
built with noise variance 1 computes w and C without knowing sigma_j^2. With its prediction y_hat, v = phi^T C phi, the
innovation e = y - y_hat and s = 1 + v,

    b_j += e^2 / s        n_j += 1        m = (sum_i b_i) / (sum_i n_i)

    sigma_j^2 ~ max(m, (n_0 m + b_j) / (n_0 + n_j))

so that each response starts at the mean over all of them, which counts as n_0 observations, and never falls below it:
an action whose few rewards were equal, such as 0, is not thereby known. For a linear model b_j is the residual sum of
squares plus that of the weights around their prior, and y given the past is Student-t with n_0 + n_j degrees of freedom
and scale^2 sigma_j^2 s. Nothing depends on the unit of y.

Source: Bernardo, Smith, "Bayesian Theory", 1994, section 5.2; the prior from the other responses is ours.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import gammaln

from seqdec.core import Array

PRIOR_COUNT = 4.0
"""n_0"""
_SMALLEST = 1e-30
"""Variance while all rewards were as predicted, such as 0: then all actions are tried, and none is kept for ever."""


class Noise(NamedTuple):
    """What is known of the noise of n responses."""

    squares: Array
    """(n,) b"""
    counts: Array
    """(n,)"""


def unknown(responses: int) -> Noise:
    """No observations yet."""
    return Noise(jnp.zeros(responses), jnp.zeros(responses))


def variance(noise: Noise, prior_count: float = PRIOR_COUNT) -> Array:
    """(n,) sigma^2; where nothing was surprising, too small to matter in any unit, but not 0: draws still differ."""
    shared = jnp.sum(noise.squares) / jnp.maximum(jnp.sum(noise.counts), 1)
    own = (prior_count * shared + noise.squares) / (prior_count + noise.counts)
    return jnp.maximum(jnp.maximum(own, shared), _SMALLEST)


def log_density(noise: Noise, innovation: Array, scale: Array, index: Array, prior_count: float = PRIOR_COUNT) -> Array:
    """() log density of an innovation of response `index`, with s = `scale`, before it is learned."""
    freedom = prior_count + noise.counts[index]
    square = jnp.maximum(variance(noise, prior_count)[index] * scale, jnp.finfo(scale.dtype).tiny ** 0.5)
    normalizer = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * jnp.log(freedom * jnp.pi * square)
    return normalizer - (freedom + 1) / 2 * jnp.log1p(innovation**2 / (freedom * square))


def learned(noise: Noise, innovation: Array, scale: Array, index: Array, accept: Array | bool = True) -> Noise:
    """The noise after an innovation of response `index` with s = `scale`; unchanged unless `accept`."""
    square = jnp.where(accept, innovation**2 / scale, 0)
    counts = noise.counts.at[index].add(jnp.where(accept, 1.0, 0.0))
    return Noise(noise.squares.at[index].add(square), counts)
