r"""Gaussian processes with hyperparameters drawn from their posterior: the surrogate for few dimensions and queries.

Each member is the process of `seqdec.bo.surrogates.gaussian_process` with one draw of the hyperparameters, in
logarithms t, from the Laplace approximation

    t_k = t* + H^{-1/2} z_k,    H = d^2 L / dt^2 at the minimum t* of the loss L,

with a scrambled Sobol sequence of normal z_k, within the limits of the search for t*. H is made of differences of the
gradient, with eigenvalues of at least that of the widest prior. The weight of a member is exp(-L(t_k)) over the density
that it was drawn from, cut off at e^2 times the median. The moments of the mixture are those of its members,

    mean = sum_k w_k mean_k,    cov = sum_k w_k (cov_k + (mean_k - mean)(mean_k - mean)')

so that what is not known of length scales and noise widens the intervals, and with it exploration. A longer history
determines the hyperparameters, and costs more: with N padded rows there are at most 512 / N members, and a single one
has t*.

Source: averages over hyperparameters: Snoek, Larochelle, Adams, "Practical Bayesian optimization of machine learning
algorithms", 2012.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import checks
from seqdec.bo.surrogates import evidence, gaussian_process
from seqdec.bo.surrogates.contract import History, Surrogate, check_growth
from seqdec.bo.surrogates.evidence import Hyperparameters, Known
from seqdec.core import Array, Key, Posterior, Predictive
from seqdec.runtime import one_blas_thread

_ROWS = 512
"""Of all members, at most."""
_CALIBRATED = 256
"""Responses that the draws are weighted by, at most."""
_STEP = 1e-3
"""Difference of logarithms of hyperparameters."""
_CUT = 2.0
"""Logarithm of the largest weight relative to the median."""


class State(NamedTuple):
    """The members, and the process with the most likely hyperparameters."""

    best: gaussian_process.State
    members: gaussian_process.State
    """(K, ...) of each"""
    log_weights: Any
    """(K,)"""


def gp(*, iterations: int = 30, growth: float = 1.1, draws: int = 8) -> Surrogate:
    """Exact Gaussian process with Matern-5/2 kernel.

    Args:
        iterations: largest number of L-BFGS iterations from each of three starts after responses were standardized
            again; a quarter of it, from the last hyperparameters, after a response was appended.
        growth: as in `Surrogate`.
        draws: largest number of draws of the hyperparameters; 1: the most likely hyperparameters.

    Raises:
        ValueError, TypeError: a setting is out of its range or not a number.
    """
    iterations, draws = checks.count("iterations", iterations), checks.count("draws", draws)

    def members(history: History) -> int:
        return max(1, min(draws, _ROWS // len(history.y)))

    def init(key: Key, history: History) -> State:
        del key
        hyper = evidence.prior_mean(np.shape(history.x)[1])
        best = gaussian_process.condition(hyper, history._replace(filled=0))._replace(unfitted=np.array(True))
        count = members(history)
        return State(best, _stacked([best] * count), np.zeros(count))

    def fit(state: State, history: History) -> State:
        hyper = gaussian_process.refitted(state.best, history, iterations)
        drawn, log_weights = _drawn(hyper, evidence.calibration_rows(history, _CALIBRATED), members(history))
        return _conditioned(hyper, drawn, log_weights, history)

    def condition_on(state: State, history: History) -> State:
        drawn = [jax.tree.map(lambda leaf: leaf[k], state.members.hyper) for k in range(len(state.log_weights))]  # noqa: B023
        return _conditioned(state.best.hyper, drawn, state.log_weights, history)

    def noise_variance(state: State) -> Array:
        return np.exp(state.best.hyper.log_noise)

    return Surrogate(
        init,
        fit,
        condition_on,
        posterior,
        check_growth(growth),
        "log_expected_improvement",
        gaussian_process.DTYPE,
        noise_variance,
        _without_posterior,
    )


def _without_posterior(state: State) -> State:
    """The state with empty arrays, from which the next fit gives the same."""
    best = gaussian_process.without_posterior(state.best)
    return State(best, best, np.zeros(0))


def _stacked(states: list[gaussian_process.State]) -> gaussian_process.State:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *states)


def _conditioned(hyper: Hyperparameters, drawn: list[Hyperparameters], log_weights: Any, history: History) -> State:
    members = [gaussian_process.condition(one, history) for one in drawn]
    best = members[0] if len(drawn) == 1 else gaussian_process.condition(hyper, history)
    return State(best, _stacked(members), log_weights)


@one_blas_thread()
def _drawn(hyper: Hyperparameters, known: Known, count: int) -> tuple[list[Hyperparameters], np.ndarray]:
    """(draws, logarithms of their weights), given the most likely hyperparameters.

    Where the likelihood is not finite, as of responses whose squares overflow, all draws are these.
    """
    alike = [hyper] * count, np.full(count, -math.log(count))
    if count == 1:
        return alike
    center = evidence.flatten(hyper)
    slopes = [_loss(center + _STEP * unit, known)[1] for unit in np.eye(len(center))]
    curvature = (np.array(slopes) - _loss(center, known)[1]) / _STEP
    if not np.isfinite(curvature).all():
        return alike
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    z = _normals(count, len(center))
    spread = z / np.sqrt(np.maximum(values, evidence.SMALLEST_CURVATURE))
    points = np.clip(center + spread @ vectors.T, *np.transpose(evidence.bounds(known.x.shape[1])))
    losses = np.array([_loss(point, known)[0] for point in points])
    if not np.isfinite(losses).all():
        return alike
    log_weights = 0.5 * np.sum(z**2, 1) - losses
    log_weights = np.minimum(log_weights, np.median(log_weights) + _CUT)
    return [evidence.unflatten(point) for point in points], log_weights - np.logaddexp.reduce(log_weights)


def _loss(flat: np.ndarray, known: Known) -> tuple[float, np.ndarray]:
    """(negative log posterior of the hyperparameters up to a constant, its gradient)."""
    hyper = evidence.unflatten(flat)
    loss, slope, _ = evidence.negative_log_likelihood(hyper, known)
    prior, by_prior = evidence.negative_log_prior(hyper)
    return loss + prior, evidence.flatten(slope) + evidence.flatten(by_prior)


@functools.cache
def _normals(count: int, columns: int) -> np.ndarray:
    """(count, columns) standard normal numbers of a Sobol sequence, scrambled with seed 0."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    size = 1 << (count - 1).bit_length()
    return ndtri(qmc.Sobol(columns, rng=np.random.default_rng(0)).random(size)[:count])


def posterior(state: State) -> Posterior:
    """Posterior over the responses at rows (n, d) of the unit cube; draws are those of a member drawn by its weight."""
    weights = jnp.exp(state.log_weights)

    def each(function: Any) -> Any:
        return jax.vmap(lambda member: function(gaussian_process.posterior(member)))(state.members)

    def mean(candidates):
        return weights @ each(lambda at: at.mean(candidates))

    def joint(candidates):
        parts = each(lambda at: at.joint(candidates))
        center = weights @ parts.mean
        apart = parts.mean - center[None]
        cov, noise = (jnp.einsum("k,kij->ij", weights, part) for part in (parts.cov, parts.noise))
        return Predictive(center, cov + jnp.einsum("k,ki,kj->ij", weights, apart, apart), noise)

    def draw(key):
        which, rest = jax.random.split(key)
        index = jax.random.categorical(which, state.log_weights)
        return gaussian_process.posterior(jax.tree.map(lambda leaf: jnp.asarray(leaf)[index], state.members)).draw(rest)

    return Posterior(mean, joint, draw)
