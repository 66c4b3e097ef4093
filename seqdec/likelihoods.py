"""Observation models: mean and covariance of the response y given the network's output f.

Filters linearize the mean and take the covariance at the current estimate (moment matching, as in Ollivier, "Online
natural gradient as a Kalman filter", 2018); of observed outputs, their rows and block.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from seqdec.boundary.checks import as_array, concrete
from seqdec.core import Array
from seqdec.portable import portable


@portable
class Likelihood(NamedTuple):
    """Mean and covariance of the response given the network's output."""

    mean: Callable[[Array], Array]
    """(f (out,)) -> (out,) expected response"""
    cov: Callable[[Array], Array]
    """(f (out,)) -> (out, out) covariance R of the response"""
    mode: Callable[[Array], tuple[Array, Array]] | None = None
    """(y (o,)) -> mean and variance (o,) of a Gaussian approximation in f of the likelihood of y, where filters
    linearize surprising responses (`seqdec.filters.trust`). For unbounded means, of one output each, whose derivative
    is the variance of the response; None: linearize at the belief's mean"""


def _covariance(name: str, value: Any, max_ndim: int = 2) -> Any:
    """A variance, vector of variances or covariance as an array; if traced, only its shape is checked.

    Raises TypeError or ValueError.
    """
    given = as_array(name, value)
    array, shape = concrete(name, given, 2), given.shape
    if len(shape) > max_ndim or (len(shape) == 2 and shape[0] != shape[1]):
        kinds = ("a scalar", "one variance per output", "or a square covariance")[: max_ndim + 1]
        raise ValueError(f"{name} must be {', '.join(kinds)}; got shape {shape}")
    if 0 in shape:
        raise ValueError(f"{name} has no variance; got {value!r}")
    if array is None:
        return given
    if not np.all(np.isfinite(array)) or np.any((np.diagonal(array) if array.ndim == 2 else array) < 0):
        raise ValueError(
            f"{name} must be finite and not negative (a variance, not a standard deviation); got {value!r}"
        )
    if array.ndim == 2:
        rounding = 1e-5 * np.max(np.abs(array))
        if np.max(np.abs(array - array.T)) > rounding:
            raise ValueError(f"{name} must be symmetric, as a covariance is; got {value!r}")
        smallest = np.linalg.eigvalsh(array)[0]
        if smallest < -rounding:
            raise ValueError(
                f"{name} must be positive semi-definite, as a covariance is; got {value!r}, whose smallest eigenvalue "
                f"is {smallest:g}"
            )
    return array


def gaussian(noise_variance: Array | float) -> Likelihood:
    """Real responses, y = f + e with Var[e] = noise_variance.

    Args:
        noise_variance: R >= 0 in squared units of y: a scalar, one per output (out,), or a covariance (out, out).

    Raises:
        TypeError: not real numbers.
        ValueError: no variance or covariance; or, at first use, not of the number of outputs or too large for their
            dtype.
    """
    given = _covariance("noise_variance", noise_variance)

    def cov(f):
        if not isinstance(given, Tracer) and np.max(given) > jnp.finfo(f.dtype).max:
            raise ValueError(f"noise_variance is infinite in {f.dtype}; got {noise_variance!r}")
        value = jnp.asarray(given, f.dtype)
        if value.ndim and value.shape[0] != f.shape[0]:
            raise ValueError(f"noise_variance has shape {value.shape}, but the network has {f.shape[0]} outputs")
        return value if value.ndim == 2 else jnp.diag(jnp.broadcast_to(value, f.shape))

    return Likelihood(lambda f: f, cov)


def bernoulli(jitter: float = 1e-4) -> Likelihood:
    """Independent 0/1 responses with log odds f: mean p = sigmoid(f), variance p (1 - p) + jitter (>= 0)."""
    jitter = _covariance("jitter", jitter, 0)

    def cov(f):
        p = jax.nn.sigmoid(f)
        return jnp.diag(p * (1 - p) + jitter)

    return Likelihood(jax.nn.sigmoid, cov)


def categorical(jitter: float = 1e-4) -> Likelihood:
    """One-hot responses with logits f (out,): mean m = softmax(f), covariance diag(m) - m m^T + jitter I."""
    jitter = _covariance("jitter", jitter, 0)

    def cov(f):
        m = jax.nn.softmax(f)
        return jnp.diag(m + jitter) - jnp.outer(m, m)

    return Likelihood(jax.nn.softmax, cov)


def poisson(jitter: float = 1e-4) -> Likelihood:
    """Independent counts with log rates f: mean and variance exp(f), plus jitter on the variance.

    Beyond e^c, with c a third of the logarithm of the largest float (7e12 in single precision), the rate is e^c (1 + f
    - c): its squares stay finite. A surprising count y is learned as a log rate log(1 + y) of variance 1 / (1 + y)
    (`seqdec.filters.trust`).
    """
    jitter = _covariance("jitter", jitter, 0)

    def mean(f):
        inside = jnp.minimum(f, _largest(f))
        return jnp.exp(inside) * (1 + (f - inside))

    def mode(y):
        log_rate = jnp.minimum(jnp.log1p(jnp.maximum(y, 0)), _largest(y))
        return log_rate, jnp.exp(-log_rate)

    return Likelihood(mean, lambda f: jnp.diag(mean(f) + jitter), mode)


def _largest(values: Array) -> float:
    return float(np.log(float(jnp.finfo(values.dtype).max))) / 3
