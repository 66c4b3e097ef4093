r"""Observation models: mean and covariance of the response y given the network's output f.

Filters linearise the mean and take the covariance at the current estimate (moment matching, as in Ollivier, "Online
natural gradient as a Kalman filter", 2018), so these two functions are all they need. Any subset of the outputs may be
observed: the filter then takes the rows of the mean and the block of the covariance that belong to it.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from seqdec.core import Array


class Likelihood(NamedTuple):
    """First two moments of the response given the network's output."""

    mean: Callable[[Array], Array]
    """(f (out,)) -> (out,) expected response"""
    cov: Callable[[Array], Array]
    """(f (out,)) -> (out, out) covariance R of the response"""


def _check_variance(name: str, value: Array | float) -> None:
    """Raises ValueError for a variance, a vector of them or a covariance that is negative or not finite."""
    if isinstance(value, Tracer):
        return
    array = np.asarray(value)
    diagonal = np.diagonal(array) if array.ndim == 2 else array
    if array.ndim > 2 or not np.all(np.isfinite(array)) or np.any(diagonal < 0):
        raise ValueError(
            f"{name} must be finite and not negative (a variance, not a standard deviation); got {value!r}"
        )


def gaussian(noise_variance: Array | float) -> Likelihood:
    """Real responses, y = f + e with Var[e] = noise_variance.

    Args:
        noise_variance: R in squared units of y: a scalar, one per output (out,), or a covariance (out, out). 0 is
            allowed.

    Raises:
        ValueError: the variance is negative or not finite.
    """
    _check_variance("noise_variance", noise_variance)

    def cov(f):
        value = jnp.asarray(noise_variance, f.dtype)
        return value if value.ndim == 2 else jnp.diag(jnp.broadcast_to(value, f.shape))

    return Likelihood(lambda f: f, cov)


def bernoulli(jitter: float = 1e-4) -> Likelihood:
    """Independent 0/1 responses with log odds f: mean sigmoid(f), variance p (1 - p) + jitter."""
    _check_variance("jitter", jitter)

    def cov(f):
        p = jax.nn.sigmoid(f)
        return jnp.diag(p * (1 - p) + jitter)

    return Likelihood(jax.nn.sigmoid, cov)


def categorical(jitter: float = 1e-4) -> Likelihood:
    """One-hot responses with logits f: mean m = softmax(f), covariance diag(m) - m m^T + jitter I."""
    _check_variance("jitter", jitter)

    def cov(f):
        m = jax.nn.softmax(f)
        return jnp.diag(m + jitter) - jnp.outer(m, m)

    return Likelihood(jax.nn.softmax, cov)


def poisson(jitter: float = 1e-4) -> Likelihood:
    """Independent counts with log rates f: mean and variance exp(f), plus jitter on the variance."""
    _check_variance("jitter", jitter)
    return Likelihood(jnp.exp, lambda f: jnp.diag(jnp.exp(f) + jitter))
