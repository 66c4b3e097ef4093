"""The probability of success, where failures depend on the point.

    P(success at x) = Phi(f(x)),    f ~ GP(0, 1 + v k(r)),    r = |x - x'| / (l sqrt d)

with the Matern-5/2 kernel k and the posterior of f by expectation propagation. Length scale l and variance v (large: a
sharp border) are those of a grid with the largest marginal likelihood times the prior log l ~ N(-1/2, 1).

The rival is one rate of success, uniform a priori: s successes among n have the probability s! (n - s)! / (n + 1)!. The
processes of the grid must together be a nat more likely.

The score is the acquisition's plus 3 log P(success). The factor 1 would give the expected improvement of one
evaluation, but a failure does not move the next one (`python benchmarks/responses.py failures`).

Sources: Rasmussen, Williams, "Gaussian processes for machine learning", 2006, section 3.6. Failures as a constraint
with two outcomes: Gelbart, Snoek, Adams, "Bayesian optimization with unknown constraints", 2014.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from seqdec.bo.acquisition.feasibility import log_probability
from seqdec.bo.surrogates import gaussian_process
from seqdec.bo.surrogates.evidence import Hyperparameters, covariances
from seqdec.bo.surrogates.gaussian_process import Process
from seqdec.core import Array

_LENGTH_SCALES = np.array([0.1, 0.2, 0.4, 0.8, 1.6, 3.2])
"""In units of the root of the number of columns."""
_VARIANCES = np.array([10.0, 1e8])
_MOST = 128
"""Most points for length scale and variance."""
_EVIDENCE = 1.0
"""Nats by which the processes must win."""
_CAUTION = 3.0
"""Factor of log P(success) in the score."""
_SWEEPS, _DAMPING, _CONVERGED = 100, 0.7, 1e-3
"""Of expectation propagation: most sweeps, share of a change, last change of the log evidence."""
_LEAST = 1e-10
"""Least precision of a site and of the rest."""


class Posterior(NamedTuple):
    """Of f, given points z: means k(x, z) w and covariances k(x, x) - k(x, z) V' V k(z, x)."""

    evidence: float
    """approximate log marginal likelihood"""
    weights: np.ndarray
    """(n,) w"""
    whiten: np.ndarray
    """(n, n) V"""


def fit(x: np.ndarray, good: np.ndarray, length: int) -> Process | None:
    """The posterior of f given points `x` (n, d), of which those `good` (n,) succeeded, padded to `length` rows.

    None where all succeeded, or one rate explains it.
    """
    if good.all():
        return None
    rows = np.unique(np.linspace(0, len(x) - 1, min(len(x), _MOST)).astype(int))
    grid = [_hyperparameters(x.shape[1], scale, variance) for scale in _LENGTH_SCALES for variance in _VARIANCES]
    prior = np.repeat(-0.5 * (np.log(_LENGTH_SCALES) + 0.5) ** 2, len(_VARIANCES))
    scores = prior - np.logaddexp.reduce(prior) + [_posterior(hyper, x[rows], good[rows]).evidence for hyper in grid]
    if not np.logaddexp.reduce(scores) > _of_one_rate(int(good[rows].sum()), len(rows)) + _EVIDENCE:
        return None
    hyper, count = grid[int(np.argmax(scores))], len(x)
    found = _posterior(hyper, x, good)
    points, weights, whiten = np.zeros((length, x.shape[1])), np.zeros(length), np.eye(length)
    points[:count], weights[:count], whiten[:count, :count] = x, found.weights, found.whiten
    exact = np.zeros(length)
    return Process(hyper, np.int32(count), points, np.arange(length) < count, whiten, weights, exact, exact)


def log_success(state: Process, x: Array) -> Array:
    """Log P(success) at a point (d,)."""
    at = gaussian_process.posterior(state).joint(x[None])
    return log_probability(at.mean[0] / jnp.sqrt(1 + jnp.maximum(at.cov[0, 0], 0)))


def cautious(score: Array, state: Process | None, x: Array) -> Array:
    """The score of a point (d,), lowered where failure is likely."""
    if state is None:
        return score
    return score + (_CAUTION * log_success(state, x.astype(gaussian_process.DTYPE))).astype(score.dtype)


def _hyperparameters(columns: int, scale: float, variance: float) -> Hyperparameters:
    return Hyperparameters(np.full(columns, math.log(scale * math.sqrt(columns))), np.log(variance), np.zeros(()))


def _of_one_rate(good: int, count: int) -> float:
    return math.lgamma(good + 1) + math.lgamma(count - good + 1) - math.lgamma(count + 2)


def _posterior(hyper: Hyperparameters, x: np.ndarray, good: np.ndarray) -> Posterior:
    from scipy.linalg import solve_triangular
    from scipy.special import log_ndtr

    signs, cov = np.where(good, 1.0, -1.0), covariances(hyper, x, x)
    precisions, shifts = np.zeros(len(x)), np.zeros(len(x))  # of the sites exp(shift f - precision f^2 / 2)
    last, sweep = -np.inf, 0
    while True:
        roots = np.sqrt(precisions)
        lower = np.linalg.cholesky(np.eye(len(x)) + roots[:, None] * cov * roots)
        half = solve_triangular(lower, roots[:, None] * cov, lower=True, check_finite=False)
        mean, var = cov @ shifts - half.T @ (half @ shifts), np.maximum(np.diagonal(cov) - np.sum(half**2, 0), _LEAST)
        rest = np.maximum(1 / var - precisions, _LEAST)  # the precision without the own site
        center = (mean / var - shifts) / rest
        z = signs * center / np.sqrt(1 + 1 / rest)
        logs = log_ndtr(z)
        ratio = np.exp(-0.5 * z**2 - 0.5 * math.log(2 * math.pi) - logs)
        evidence = float(
            np.sum(logs + 0.5 * np.log1p(precisions / rest) - np.log(np.diagonal(lower)))
            + 0.5 * (shifts @ mean - np.sum(shifts**2 / (rest + precisions)))
            + 0.5 * np.sum(center * rest / (precisions + rest) * (precisions * center - 2 * shifts))
        )
        if abs(evidence - last) < _CONVERGED or sweep == _SWEEPS:
            break
        last, sweep = evidence, sweep + 1
        slope, shrinkage = signs * ratio / np.sqrt(1 + 1 / rest), ratio * (z + ratio) / (1 + rest)
        target_var = (1 - shrinkage) / rest
        target = center + slope / rest
        precisions += _DAMPING * (np.maximum(1 / target_var - rest, _LEAST) - precisions)
        shifts += _DAMPING * (target / target_var - rest * center - shifts)
    whiten = solve_triangular(lower, np.diag(roots), lower=True, check_finite=False)
    return Posterior(evidence, shifts - whiten.T @ (whiten @ (cov @ shifts)), whiten)
