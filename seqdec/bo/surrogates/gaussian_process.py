"""Exact Gaussian processes, with the most likely hyperparameters or averaged over draws from their posterior.

    f ~ GP(0, c + s k(r)),   r^2 = sum_i (x_i - x'_i)^2 / l_i^2,   k(r) = (1 + sqrt5 r + 5 r^2 / 3) exp(-sqrt5 r)
    y = f(x) + e,            Var[e] = v exp(sum_i b_i (x_i - 1/2)), or as given for the response

The kernel is Matern-5/2, with a length scale for each parameter; c = 1 is the prior variance of the mean.

The process has the most likely hyperparameters t* = (log l, log s, log v, b). Averaged, it is a mixture of processes
with the t_k and weights w_k of `seqdec.bo.surrogates.evidence`, whose moments are

    mean = sum_k w_k mean_k,    cov = sum_k w_k (cov_k + (mean_k - mean)(mean_k - mean)')

With N padded rows and K members asked for there are at most 64 K / N; instead of a single one that of t*. Computations
are in double precision. Given n points a question costs O(n^3), on the host without compilation, and a prediction
O(N^2).

Sources: averages over hyperparameters: Snoek, Larochelle, Adams, "Practical Bayesian optimization of machine learning
algorithms", 2012. Function draws by Matheron's rule: Wilson et al., "Efficiently sampling functions from Gaussian
process posteriors", 2020.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import kernels
from seqdec.bo.surrogates import evidence
from seqdec.bo.surrogates.contract import History, Surrogate
from seqdec.bo.surrogates.evidence import Hyperparameters
from seqdec.boundary import checks
from seqdec.core import Array, Key, Posterior, Predictive

DTYPE = jnp.float64
GROWTH = 1.1
"""See `Surrogate`."""
_REFIT = 1 + 1 / 32
"""Growth of the history that refits the hyperparameters."""
_ROWS = 64
"""Most rows of all members together, for each of those asked for."""
_FEATURES = 1024
"""Random features of a prior draw."""


class Process(NamedTuple):
    """Hyperparameters, and the posterior given the history."""

    hyper: Hyperparameters
    fitted: Any
    """() int32 responses to which the hyperparameters are fitted; 0: those of the prior"""
    x: Any
    """(N, d)"""
    keep: Any
    """(N,) bool"""
    whiten: Any
    """(N, N) inverse lower Cholesky factor of the covariance; one on the diagonal of padded rows"""
    weights: Any
    """(N,) inverse covariance times the responses"""
    errors: Any
    """(N,) noise standard deviations of the responses"""
    spreads: Any
    """(N,) those of further, whitened noise, see `posterior`; zero if exact"""

    @property
    def stored(self) -> "Process":
        """With empty arrays; the next fit gives the same."""
        return Process(self.hyper, self.fitted, *[np.zeros(0)] * 6)


class Mixture(NamedTuple):
    """Processes about the most likely one."""

    hyper: Hyperparameters
    """the most likely ones"""
    members: Process
    """(K, ...) of each"""
    log_weights: Any
    """(K,)"""


def gp(*, draws: int = 64) -> Surrogate:
    """Exact Gaussian process with Matern-5/2 kernel.

    Args:
        draws: largest number of draws of the hyperparameters; 1: the most likely ones.

    Raises ValueError or TypeError for a setting that does not fit.
    """
    draws = checks.count("draws", draws)

    def fit(state: Process, history: History) -> Process:
        hyper, count = refitted(state, history)
        return condition(hyper, history)._replace(fitted=count)

    def condition_on(state: Process | Mixture, history: History) -> Process | Mixture:
        if isinstance(state, Process):
            return condition(state.hyper, history)
        drawn = [Hyperparameters(*one) for one in zip(*state.members.hyper, strict=True)]
        return state._replace(members=_conditioned(drawn, history))

    def averaged(state: Process, history: History, most: int) -> Process | Mixture:
        if (count := min(draws, most, _ROWS * most // len(history.y))) < 2:
            return state
        drawn, log_weights = evidence.drawn(state.hyper, history, count)
        return Mixture(state.hyper, _conditioned(drawn, history), log_weights)

    return Surrogate(
        lambda key, history: prior(history),
        fit,
        condition_on,
        lambda state: posterior(state) if isinstance(state, Process) else mixture_posterior(state),
        GROWTH,
        "log_expected_improvement",
        DTYPE,
        lambda state: np.exp(state.hyper.log_noise),
        lambda state: state.stored,
        averaged,
    )


def _conditioned(drawn: list[Hyperparameters], history: History) -> Process:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *(condition(one, history) for one in drawn))


def mixture_posterior(state: Mixture) -> Posterior:
    """Posterior at rows (n, d); draws are of a member drawn by weight."""
    weights = jnp.exp(state.log_weights)

    def each(function: Any) -> Any:
        return jax.vmap(lambda member: function(posterior(member)))(state.members)

    def mean(candidates):
        return weights @ each(lambda at: at.mean(candidates))

    def joint(candidates):
        parts = each(lambda at: at.joint(candidates))
        center = weights @ parts.mean
        offsets = parts.mean - center[None]
        cov, noise = (jnp.einsum("k,kij->ij", weights, part) for part in (parts.cov, parts.noise))
        return Predictive(center, cov + jnp.einsum("k,ki,kj->ij", weights, offsets, offsets), noise)

    def draw(key):
        which, rest = jax.random.split(key)
        index = jax.random.categorical(which, state.log_weights)
        return posterior(jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], state.members)).draw(rest)

    return Posterior(mean, joint, draw)


def prior(history: History) -> Process:
    """The process before any response."""
    return condition(evidence.prior_mean(evidence.places_of(history)), history._replace(filled=0))


def refitted(state: Process, history: History) -> tuple[Hyperparameters, np.int32]:
    """(the hyperparameters, the responses to which they are fitted).

    Unless from the prior, in a quarter of the iterations, and only if a 32nd more responses are known.
    """
    count = np.int32(history.filled)
    if not state.fitted:
        return evidence.fit_from_prior(evidence.calibration_rows(history), slopes=True)[0], count
    if count < state.fitted * _REFIT:
        return state.hyper, state.fitted
    end, least = evidence.descend(state.hyper, evidence.calibration_rows(history), evidence.ITERATIONS // 4)
    return end if math.isfinite(least) else state.hyper, count


def condition(hyper: Hyperparameters, history: History) -> Process:
    """The process given the history, to which its hyperparameters count as fitted."""
    whiten, weights, stds, count = evidence.solved(hyper, history)
    length = len(weights)
    keep, x = np.arange(length) < count, np.asarray(history.x, float)
    return Process(hyper, np.int32(count), x, keep, whiten, weights, stds, np.zeros(length))


def kernel(hyper: Hyperparameters, a: Array, b: Array) -> Array:
    """C + s k(a, b): (n, d), (m, d) -> (n, m)."""
    scales = jnp.exp(-hyper.log_length_scales)[None]
    return evidence.MEAN_VARIANCE + jnp.exp(hyper.log_scale) * kernels.matern52(a * scales, b * scales)


def posterior(state: Process) -> Posterior:
    """Posterior over the responses at rows (n, d), given a state (whiten V, weights w, points z).

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
        slopes = jnp.sum(hyper.noise_slopes * (candidates - 0.5), axis=1)
        noise = jnp.diag(jnp.exp(hyper.log_noise + slopes) + evidence.SMALLEST_NOISE)
        return Predictive(known @ state.weights, kernel(hyper, candidates, candidates) - part.T @ part, noise)

    def draw(key):
        function, noisy = _prior_draw(key, hyper, state.x.shape[1])
        error, rest = jax.random.normal(noisy, (2, *state.keep.shape))
        whitened = state.whiten @ jnp.where(state.keep, function(state.x) + state.errors * error, 0)
        change = state.whiten.T @ (whitened + state.spreads * rest)
        return lambda candidates: function(candidates) + cross(candidates) @ (state.weights - change)

    return Posterior(mean, joint, draw)


def _prior_draw(key: Key, hyper: Hyperparameters, dim: int):
    """(a random function of the prior, an unused key)."""
    normals, chi, phases, weights, constant, rest = jax.random.split(key, 6)
    spread = jnp.sqrt(5 / (2 * jax.random.gamma(chi, 2.5, (_FEATURES, 1))))
    frequencies = jax.random.normal(normals, (_FEATURES, dim)) * spread * jnp.exp(-hyper.log_length_scales)[None]
    shifts = 2 * math.pi * jax.random.uniform(phases, (_FEATURES,))
    amplitudes = jnp.sqrt(2 / _FEATURES * jnp.exp(hyper.log_scale)) * jax.random.normal(weights, (_FEATURES,))
    offset = math.sqrt(evidence.MEAN_VARIANCE) * jax.random.normal(constant)
    return (lambda x: offset + jnp.cos(x @ frequencies.T + shifts[None]) @ amplitudes), rest
