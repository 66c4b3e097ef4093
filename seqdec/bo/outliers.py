r"""Outliers among responses: values far worse than the others foretell.

A response z_i is an outlier with prior probability p = 1/20, and is then below its prediction m_i by a half-Cauchy
distance of scale one standard deviation of the responses; else it is that of the Gaussian process. With the others'
prediction N(m_i, s_i^2), noise included, it is suspected where

    p C(m_i - z_i) > (1 - p) N(z_i; m_i, s_i^2),        z_i < m_i

and those suspected are left out, of the worst at most a quarter. Warp, hyperparameters and predictions are then found
anew, until the suspects are the same. Of all sets on this way the most likely is taken, and none unless it is more
likely than none by five nats. Only values that are worse are suspected: a better one is what the search is for.

Source: Ament et al., "Robust Gaussian processes via relevance pursuit", 2024, whose noise variances are here 0 or large.
"""

import math
from collections.abc import Callable

import numpy as np

from seqdec.bo.surrogates import evidence
from seqdec.bo.surrogates.evidence import Hyperparameters, Known

_PROBABILITY, _MOST, _EVIDENCE = 0.05, 0.25, 5.0
"""Prior probability; largest share; nats by which outliers must win."""
_ROUNDS, _ROWS = 6, 256
"""Most sets tried; rows that fit and predict each other."""
_LOG_ROOT = 0.5 * math.log(2 * math.pi)
_LARGE = 1e6
"""Noise variance of what is left out."""


def inliers(
    x: np.ndarray, y: np.ndarray, places: np.ndarray, warp: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """(n,) bool: which responses `y` (n,) at unit points `x` (n, d) are no outliers.

    `warp` (kept (n,) bool) -> standardized warps of all responses, fitted to those kept, and log slopes there.
    """
    places, kept, found = np.asarray(places), np.ones(len(y), bool), []
    z, _ = warp(kept)
    hyper, _ = evidence.descend(evidence.prior_mean(places), _rows(x, z, kept, places))
    if _suspected(*_densities(hyper, x, z, kept, places)).any():
        while kept.any() and len(found) < _ROUNDS and not any(np.array_equal(kept, one) for _, one in found):
            z, log_slopes = warp(kept)
            rows = _rows(x, z, kept, places)
            hyper, loss = evidence.fit_from_prior(rows)
            wrong, right = _densities(hyper, x, z, kept, places)
            fit = (math.log(1 - _PROBABILITY) - _LOG_ROOT - loss / len(rows.y)) * kept.sum()
            found.append((fit + wrong[~kept].sum() + log_slopes.sum(), kept))
            kept = ~_suspected(wrong, right)
        likely, kept = max(found, key=lambda one: one[0])
        if likely > found[0][0] + _EVIDENCE:
            return kept
    return np.ones(len(y), bool)


def _rows(x: np.ndarray, z: np.ndarray, kept: np.ndarray, places: np.ndarray) -> Known:
    """At most `_ROWS` of those kept."""
    rows = np.flatnonzero(kept)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _ROWS)).astype(int))]
    return Known(x[rows], z[rows], np.full(len(rows), -1.0), places)


def _suspected(wrong: np.ndarray, right: np.ndarray) -> np.ndarray:
    gains = wrong - right
    return gains > max(np.sort(gains)[::-1][int(_MOST * len(gains))], 0.0)


def _densities(
    hyper: Hyperparameters, x: np.ndarray, z: np.ndarray, kept: np.ndarray, places: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(n,) log densities of the responses as outliers, and as others."""
    mean, std = _predicted(hyper, Known(x, z, np.full(len(z), -1.0), places), ~kept)
    right = math.log(1 - _PROBABILITY) - 0.5 * ((z - mean) / std) ** 2 - np.log(std) - _LOG_ROOT
    wrong = math.log(_PROBABILITY * 2 / math.pi) - np.log1p((z - mean) ** 2)
    return np.where(z < mean, wrong, -np.inf), right


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
