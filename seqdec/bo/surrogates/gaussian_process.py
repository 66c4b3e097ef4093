r"""Exact Gaussian process with the most likely hyperparameters; `seqdec.bo.surrogates.mixture` draws them.

    f ~ GP(0, c + s k(r)),   r^2 = sum_i (x_i - x'_i)^2 / l_i^2,   k(r) = (1 + sqrt5 r + 5 r^2 / 3) exp(-sqrt5 r)
    y = f(x) + e,            Var[e] = v, or as given for the response

Matern-5/2 with one length scale for each dimension; the constant c = 1 is the prior variance of the mean. The
hyperparameters (l, s, v) maximize the marginal likelihood times the priors

    log l_i = a + a_i,   a ~ N(log sqrt d - 1/2, 1/10),   a_i ~ N(0, 1),   log s ~ N(0, 1),   log v ~ N(-10, 9)

with the moments (mean, variance) given, by L-BFGS with the gradient in closed form. The length scales share a because
independent priors alone would fix their mean where there are many columns. The first fit has three starts, the center
of the priors, shorter length scales and a larger noise, and keeps the best end, that of the larger noise only if it is
better by five nats; later fits start from the last hyperparameters. At most 512 responses, evenly spaced, are used for
it. Everything is in double precision, because the kernel matrix is close to singular where many points lie near an
optimum. The process itself is exact: given n points it costs O(n^3) for each question, on the host without compilation,
and a prediction O(N^2), for a history padded to N.

Sources: Rasmussen, Williams, "Gaussian processes for machine learning", 2006. Length scales that grow as sqrt d:
Hvarfner, Hellsten, Nardi, "Vanilla Bayesian optimization performs great in high dimensions", 2024. Function draws by
Matheron's rule on random features: Wilson et al., "Efficiently sampling functions from Gaussian process posteriors",
2020.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import kernels
from seqdec.bo.surrogates.contract import History
from seqdec.bo.surrogates.evidence import (
    MEAN_VARIANCE,
    SMALLEST_NOISE,
    Hyperparameters,
    calibration_rows,
    covariance,
    descend,
    distances,
    fitted,
    noise_variances,
    told,
    whitener,
)
from seqdec.core import Array, Key, Posterior, Predictive
from seqdec.runtime import one_blas_thread

_FEATURES = 1024
DTYPE = jnp.float64


class State(NamedTuple):
    """Hyperparameters, and the posterior given the history."""

    hyper: Hyperparameters
    unfitted: Any
    """() bool: the hyperparameters have not been fitted"""
    x: Any
    """(N, d)"""
    keep: Any
    """(N,) bool"""
    whiten: Any
    """(N, N) inverse of the lower Cholesky factor of the responses' covariance, so that predictions are products; one
    on the diagonal of padded rows"""
    weights: Any
    """(N,) inverse covariance times the responses"""
    errors: Any
    """(N,) standard deviations of the responses' noise"""
    spreads: Any
    """(N,) those of further, whitened noise, see `posterior`; zero for the exact process"""


def without_posterior(state: State) -> State:
    """The state with empty arrays, from which the next fit gives the same."""
    return State(state.hyper, state.unfitted, *[np.zeros(0)] * (len(state) - 2))


def refitted(state: State, history: History, iterations: int) -> Hyperparameters:
    """The hyperparameters of a state fitted to a history, in a quarter of the iterations unless from the prior."""
    if state.unfitted:
        return fitted(history, iterations)
    end, loss = descend(state.hyper, calibration_rows(history), max(1, iterations // 4))
    return end if math.isfinite(loss) else state.hyper


def kernel(hyper: Hyperparameters, a: Array, b: Array) -> Array:
    """C + s k(a, b): (n, d), (m, d) -> (n, m)."""
    scales = jnp.exp(-hyper.log_length_scales)[None]
    return MEAN_VARIANCE + jnp.exp(hyper.log_scale) * kernels.matern52(a * scales, b * scales)


@one_blas_thread()
def condition(hyper: Hyperparameters, history: History) -> State:
    """The process with these hyperparameters given the history."""
    rows, length = told(history), len(history.y)
    count = len(rows.y)
    whiten, weights, stds = np.eye(length), np.zeros(length), np.zeros(length)
    if count:
        r = distances(rows.x * np.exp(-hyper.log_length_scales))
        inner, _ = whitener(covariance(hyper, rows, r))
        whiten[:count, :count], weights[:count] = inner, inner.T @ (inner @ rows.y)
        stds[:count] = np.sqrt(noise_variances(hyper, rows))
    keep = np.arange(length) < count
    x = np.asarray(history.x, float)
    return State(hyper, np.array(False), x, keep, whiten, weights, stds, np.zeros(length))


def posterior(state: State) -> Posterior:
    """Posterior over the responses at rows (n, d) of the unit cube, given a state (whiten V, weights w, points z).

        mean = k(x, z) w,    cov = k(x, x) - k(x, z) V' V k(z, x)

    and its draws f(x) + k(x, z) (w - V' (V (f(z) + errors * e) + spreads * e')) for f from the prior, normal e and e'.
    """
    hyper = state.hyper

    def cross(candidates):
        return jnp.where(state.keep, kernel(hyper, candidates, state.x), 0)

    def mean(candidates):
        return cross(candidates) @ state.weights

    def joint(candidates):
        known = cross(candidates)
        part = state.whiten @ known.T
        noise = (jnp.exp(hyper.log_noise) + SMALLEST_NOISE) * jnp.eye(len(candidates), dtype=known.dtype)
        return Predictive(known @ state.weights, kernel(hyper, candidates, candidates) - part.T @ part, noise)

    def draw(key):
        prior, noisy = _prior_draw(key, hyper, state.x.shape[1])
        error, rest = jax.random.normal(noisy, (2, *state.keep.shape))
        whitened = state.whiten @ jnp.where(state.keep, prior(state.x) + state.errors * error, 0)
        change = state.whiten.T @ (whitened + state.spreads * rest)
        return lambda candidates: prior(candidates) + cross(candidates) @ (state.weights - change)

    return Posterior(mean, joint, draw)


def _prior_draw(key: Key, hyper: Hyperparameters, dim: int):
    """(a function drawn from the prior, an unused key), by random Fourier features with Student-t frequencies."""
    normals, chi, phases, weights, constant, rest = jax.random.split(key, 6)
    spread = jnp.sqrt(5 / (2 * jax.random.gamma(chi, 2.5, (_FEATURES, 1))))
    frequencies = jax.random.normal(normals, (_FEATURES, dim)) * spread * jnp.exp(-hyper.log_length_scales)[None]
    shifts = 2 * math.pi * jax.random.uniform(phases, (_FEATURES,))
    amplitudes = jnp.sqrt(2 / _FEATURES * jnp.exp(hyper.log_scale)) * jax.random.normal(weights, (_FEATURES,))
    offset = math.sqrt(MEAN_VARIANCE) * jax.random.normal(constant)
    return (lambda x: offset + jnp.cos(x @ frequencies.T + shifts[None]) @ amplitudes), rest
