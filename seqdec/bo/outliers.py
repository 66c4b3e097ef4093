r"""Outliers among responses: values far worse than the others predict.

A standardized response z_i is an outlier with probability p = 1/20, and is then below its prediction m_i by e with the
density q(e) = 1 / ((1 + e) (1 + log(1 + e))^2); else it is that of the Gaussian process. With the prediction of the
others, N(m_i, s_i^2), noise included, it is suspected where

    p q(m_i - z_i) > (1 - p) N(z_i; m_i, s_i^2),        z_i < m_i - 1/4

and those suspected are left out, at most a quarter. Warp, hyperparameters and predictions are then found anew, until
the suspects are the same; the first time without any, and without the worst quarter. Of all sets on these ways the most
likely is taken, the empty one unless another is better by ten nats. A better value is never an outlier: it is what the
search is for.

Source: Ament et al., "Robust Gaussian processes via relevance pursuit", 2024, with variances 0 or large.
"""

import math
from collections.abc import Callable

import numpy as np

from seqdec.bo.surrogates import evidence
from seqdec.bo.surrogates.evidence import Hyperparameters, Known

_PROBABILITY, _MOST, _EVIDENCE = 0.05, 0.25, 10.0
"""Prior probability; largest share; nats by which outliers must win."""
_FEWEST, _LEAST = 16, 0.25
"""Responses below which none is an outlier; by how much outliers are worse than foretold, at least."""
_FAR = 100.0
"""How far below the mean values may lie for predictions, in deviations."""
_ROUNDS, _ROWS = 6, 128
"""Most sets tried; rows that fit and predict each other."""
_LOG_ROOT = 0.5 * math.log(2 * math.pi)
_FIRST = 10
"""Iterations of the fits that decide whether to look for outliers."""
_LARGE = 1e6
"""Noise variance of what is left out."""


def inliers(
    x: np.ndarray, y: np.ndarray, places: np.ndarray, warp: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """(n,) bool: which responses `y` (n,) at unit points `x` (n, d) are not outliers.

    `warp` (kept (n,) bool) -> standardized warps of all responses, fitted to those kept, and log slopes there.
    """
    places, every = np.asarray(places), np.ones(len(y), bool)
    if len(y) < _FEWEST:
        return every
    starts, likelihoods = (every, y >= np.quantile(y, _MOST)), {}

    def first(rows: Known) -> tuple[Hyperparameters, float]:
        return evidence.descend(evidence.prior_mean(places), rows, _FIRST)

    (whole, same), (part, _) = (_examined(x, *warp(kept), kept, places, first) for kept in starts)
    if same.all() and part < whole:
        return every
    for kept in starts:
        for _ in range(_ROUNDS):
            if (place := kept.tobytes()) in likelihoods or not kept.any():
                break
            likelihoods[place], kept = _examined(x, *warp(kept), kept, places, evidence.fit_from_prior)
    likelihoods[every.tobytes()] += _EVIDENCE
    return np.frombuffer(max(likelihoods, key=lambda place: likelihoods[place]), bool)


def _examined(
    x: np.ndarray,
    z: np.ndarray,
    log_slopes: np.ndarray,
    kept: np.ndarray,
    places: np.ndarray,
    fit: Callable[[Known], tuple[Hyperparameters, float]],
) -> tuple[float, np.ndarray]:
    """(log likelihood, those that are not suspected) where the others are left out."""
    rows = _rows(x, z, kept, places)
    hyper, loss = fit(rows)
    mean, std = _predicted(hyper, Known(x, np.maximum(z, -_FAR), np.full(len(z), -1.0), places), ~kept)
    right = math.log(1 - _PROBABILITY) - 0.5 * ((z - mean) / std) ** 2 - np.log(std) - _LOG_ROOT
    below = np.log1p(np.maximum(mean - z, 0))
    wrong = math.log(_PROBABILITY) - below - 2 * np.log1p(below)
    likelihood = (math.log(1 - _PROBABILITY) - _LOG_ROOT - loss / len(rows.y)) * kept.sum()
    gains = np.where(z < mean - _LEAST, wrong - right, -np.inf)
    least = max(np.sort(gains)[::-1][int(_MOST * len(gains))], 0.0)
    return float(likelihood + wrong[~kept].sum() + log_slopes.sum()), gains <= least


def _rows(x: np.ndarray, z: np.ndarray, kept: np.ndarray, places: np.ndarray) -> Known:
    """At most `_ROWS` of those kept."""
    rows = np.flatnonzero(kept)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _ROWS)).astype(int))]
    return Known(x[rows], z[rows], np.full(len(rows), -1.0), places)


def _predicted(hyper: Hyperparameters, known: Known, left_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation (n,) of each response given the others of its block that are not left out."""
    mean, variance = np.zeros((2, len(known.y)))
    blocks = math.ceil(len(known.y) / _ROWS)
    for block in (slice(first, None, blocks) for first in range(blocks)):
        part = Known(known.x[block], known.y[block], known.noise[block], known.places)
        large = _LARGE * left_out[block]
        inverse = np.linalg.inv(evidence.covariance(hyper, part) + np.diag(large))
        own = 1 / np.diagonal(inverse)
        mean[block], variance[block] = part.y - own * (inverse @ part.y), own - large
    return mean, np.sqrt(np.maximum(variance, evidence.SMALLEST_NOISE))
