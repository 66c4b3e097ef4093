"""The hyperparameters of a Gaussian process by its marginal likelihood, on the host.

The process, its priors and the search for their maximum are those of `seqdec.bo.surrogates.gaussian_process`.
"""

import math
from typing import Any, NamedTuple

import jax
import numpy as np

from seqdec.bo.surrogates.contract import History
from seqdec.kernels import matern52_at
from seqdec.runtime import one_blas_thread

MEAN_VARIANCE = 1.0
"""Prior variance c of the mean."""
SMALLEST_NOISE = 1e-8
_EVIDENCE = 5.0
"""Nats by which the end of the start with a larger noise must be better than the others."""
_NOISE_EVIDENCE, _ROUGH_EVIDENCE = 10.0, 2.0
"""Nats of `shows_noise`."""
_ROUGH = (0.005, 0.01)
"""Length scales of rough functions, as shares of the diagonal of the cube."""
_DEVIATIONS = 4.0
"""Prior standard deviations from the mean within which hyperparameters are sought, so that the covariance is far enough
from singular."""
_FITTED = 512
"""Responses that the hyperparameters are fitted to, at most."""
GRADIENT = 0.1
"""Gradient norm of the loss, in nats, below which L-BFGS stops."""


class Hyperparameters(NamedTuple):
    """Logarithms of the hyperparameters, in units of the unit cube and of standardized responses."""

    log_length_scales: Any
    """(d,)"""
    log_scale: Any
    """() of the variance s"""
    log_noise: Any
    """() of the variance v"""


_SHARED_VARIANCE, _OWN_VARIANCE = 0.1, 1.0
"""Prior variances of what the logarithms of the length scales have in common and of their deviations from it."""
_PRIOR_VARIANCES = Hyperparameters(_SHARED_VARIANCE + _OWN_VARIANCE, 1.0, 9.0)
SMALLEST_CURVATURE = 1 / max(_PRIOR_VARIANCES)
"""Of the negative logarithm of the widest prior."""


class Known(NamedTuple):
    """The rows of a history that hold a point, on the host."""

    x: np.ndarray
    """(n, d)"""
    y: np.ndarray
    """(n,)"""
    noise: np.ndarray
    """(n,) known variances of the responses' noise, negative where it is estimated"""


def told(history: History) -> Known:
    """The rows that hold a point."""
    count = int(history.filled)
    noise = np.full(count, -1.0) if history.noise is None else np.asarray(history.noise, float)[:count]
    return Known(np.asarray(history.x, float)[:count], np.asarray(history.y, float)[:count], noise)


def prior_mean(dim: int) -> Hyperparameters:
    """The means of the hyperparameters' priors, for `dim` columns."""
    return Hyperparameters(np.full(dim, 0.5 * math.log(dim) - 0.5), np.zeros(()), np.full((), -10.0))


def fitted(history: History, iterations: int, most: int = _FITTED) -> Hyperparameters:
    """Hyperparameters fitted from the prior to the history, or to `most` rows of it."""
    return _fit_from_prior(calibration_rows(history, most), iterations)[0]


def shows_noise(history: History, iterations: int = 30, most: int = 256) -> bool:
    """Whether noise of an estimated variance explains the history, or `most` rows of it, and no noise does not.

    The marginal likelihood times the priors must have a maximum with noise that is 10 nats better than the one without.
    And with a rough function in place of the noise, of the same variance and short length scales, the likelihood must
    not be 2 nats better: the residuals of such a function look like noise except where points lie close together.
    """
    known = calibration_rows(history, most)
    exact = known._replace(noise=np.maximum(known.noise, 0.0))
    (hyper, loss), (_, without) = _fit_from_prior(known, iterations), _fit_from_prior(exact, iterations)
    if not without - loss > _NOISE_EVIDENCE:
        return False
    smooth = covariance(hyper, exact, distances(known.x * np.exp(-hyper.log_length_scales)))
    stds = np.sqrt(np.where(known.noise < 0, math.exp(hyper.log_noise), 0.0))

    def rough(length: float) -> np.ndarray:
        return stds[:, None] * matern52_at(distances(known.x / (length * math.sqrt(known.x.shape[1])))) * stds

    noisy = _loss(smooth + np.diag(stds**2), known.y)
    return min(_loss(smooth + rough(length), known.y) for length in _ROUGH) - noisy > -_ROUGH_EVIDENCE


def _loss(cov: np.ndarray, y: np.ndarray) -> float:
    """The negative log likelihood of responses with a covariance, up to a constant."""
    whiten, log_determinant = whitener(cov)
    return 0.5 * float(np.sum((whiten @ y) ** 2)) + 0.5 * log_determinant


def calibration_rows(history: History, most: int = _FITTED) -> Known:
    """The rows that hyperparameters are fitted to: at most so many, evenly spaced."""
    known = told(history)
    rows = np.unique(np.linspace(0, len(known.y) - 1, min(len(known.y), most)).astype(int))
    return Known(*(part[rows] for part in known))


def _fit_from_prior(known: Known, iterations: int) -> tuple[Hyperparameters, float]:
    """(hyperparameters, loss there)."""
    center = prior_mean(known.x.shape[1])
    shorter = center._replace(log_length_scales=center.log_length_scales - 1)
    noisy = center._replace(log_noise=center.log_noise + 8)
    ends, losses = zip(*(descend(start, known, iterations) for start in (center, shorter, noisy)), strict=True)
    penalized = np.add(losses, (0.0, 0.0, _EVIDENCE))
    best = int(np.argmin(np.where(np.isfinite(penalized), penalized, np.inf)))
    return ends[best], losses[best]


@one_blas_thread()
def descend(start: Hyperparameters, known: Known, iterations: int) -> tuple[Hyperparameters, float]:
    """L-BFGS from `start`, within four deviations of the prior's mean -> (end, loss there)."""
    from scipy.optimize import minimize

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        fit, by_likelihood, _ = negative_log_likelihood(unflatten(flat), known)
        prior, by_prior = negative_log_prior(unflatten(flat))
        return fit + prior, flatten(by_likelihood) + flatten(by_prior)

    options = {"maxiter": iterations, "gtol": GRADIENT, "maxcor": 8}
    limits = bounds(known.x.shape[1])
    found = minimize(loss, flatten(start), jac=True, method="L-BFGS-B", bounds=limits, options=options)
    return unflatten(found.x), float(found.fun)


def bounds(dim: int) -> list[tuple[float, float]]:
    """Of the flat hyperparameters: so many deviations around the priors' means."""
    center = prior_mean(dim)
    reach = jax.tree.map(lambda mean, var: np.full_like(mean, _DEVIATIONS * math.sqrt(var)), center, _PRIOR_VARIANCES)
    low, high = (flatten(jax.tree.map(move, center, reach)) for move in (np.subtract, np.add))
    return list(zip(low, high, strict=True))


def flatten(hyper: Hyperparameters) -> np.ndarray:
    """The logarithms as one vector (d + 2,)."""
    return np.concatenate([hyper.log_length_scales, [hyper.log_scale, hyper.log_noise]])


def unflatten(flat: np.ndarray) -> Hyperparameters:
    """The inverse of `flatten`."""
    return Hyperparameters(flat[:-2], flat[-2], flat[-1])


def negative_log_prior(hyper: Hyperparameters) -> tuple[float, Hyperparameters]:
    """(negative log prior density up to a constant, its gradient).

    The precision of the log length scales is (I - b 1 1') / t, with b = s / (t + d s) for the variance s shared and t.
    """
    centered = jax.tree.map(np.subtract, hyper, prior_mean(len(hyper.log_length_scales)))
    lengths = centered.log_length_scales
    slope = jax.tree.map(np.divide, centered, _PRIOR_VARIANCES)
    common = _SHARED_VARIANCE / (_OWN_VARIANCE + len(lengths) * _SHARED_VARIANCE) * lengths.sum()
    slope = slope._replace(log_length_scales=(lengths - common) / _OWN_VARIANCE)
    return 0.5 * float(flatten(centered) @ flatten(slope)), slope


def negative_log_likelihood(hyper: Hyperparameters, known: Known) -> tuple[float, Hyperparameters, np.ndarray]:
    """(negative log marginal likelihood of the responses up to a constant, its gradient, that by the points (n, d)).

    With the covariance M of the responses and w = M^-1 y, a derivative is tr(G dM), where G = (M^-1 - w w') / 2.
    """
    scaled, amplitude = known.x * np.exp(-hyper.log_length_scales), math.exp(hyper.log_scale)
    r = distances(scaled)
    correlations = matern52_at(r)
    inverse, log_determinant = _inverse(_covariance(hyper, known, correlations))
    weights = inverse @ known.y
    slope = (inverse - np.outer(weights, weights)) / 2
    # By the scaled points: the derivative of the kernel by a squared scaled distance is -5/6 (1 + r) exp(-r).
    by_square = slope * (1 + r) * np.exp(-r)
    by_scaled = -amplitude * 10 / 3 * (by_square.sum(1)[:, None] * scaled - by_square @ scaled)
    estimated = np.where(known.noise < 0, np.diagonal(slope), 0).sum() * math.exp(hyper.log_noise)
    by_lengths = -np.einsum("nd,nd->d", scaled, by_scaled)
    gradient = Hyperparameters(by_lengths, amplitude * np.vdot(slope, correlations), estimated)
    loss = 0.5 * float(known.y @ weights) + 0.5 * log_determinant
    return loss, gradient, by_scaled * np.exp(-hyper.log_length_scales)


def distances(scaled: np.ndarray) -> np.ndarray:
    """(n, n) sqrt 5 times the distances between rows (n, d)."""
    norms = np.sum(scaled**2, 1)
    squares = np.maximum(norms[:, None] + norms - 2 * scaled @ scaled.T, 0)
    np.fill_diagonal(squares, 0)
    return np.sqrt(5 * squares)


def prior_variance(hyper: Hyperparameters) -> float:
    """Of the function at every point."""
    return MEAN_VARIANCE + math.exp(hyper.log_scale)


def covariances(hyper: Hyperparameters, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Prior covariances (n, m) of the function at rows `a` (n, d) and `b` (m, d), on the host."""
    scales = np.exp(-hyper.log_length_scales)
    squares = np.sum((a * scales) ** 2, 1)[:, None] + np.sum((b * scales) ** 2, 1) - 2 * (a * scales) @ (b * scales).T
    return MEAN_VARIANCE + math.exp(hyper.log_scale) * matern52_at(np.sqrt(5 * np.maximum(squares, 0)))


def covariance(hyper: Hyperparameters, known: Known, r: np.ndarray) -> np.ndarray:
    """(n, n) covariance of the responses, given sqrt 5 times the scaled distances."""
    return _covariance(hyper, known, matern52_at(r))


def _covariance(hyper: Hyperparameters, known: Known, correlations: np.ndarray) -> np.ndarray:
    cov = MEAN_VARIANCE + math.exp(hyper.log_scale) * correlations
    np.einsum("ii->i", cov)[:] += noise_variances(hyper, known)
    return cov


def whitener(cov: np.ndarray) -> tuple[np.ndarray, float]:
    """(inverse of the lower Cholesky factor, log determinant) of a positive definite matrix (n, n)."""
    from scipy.linalg import solve_triangular

    root = np.linalg.cholesky(cov)
    whiten = solve_triangular(root, np.eye(len(root)), lower=True, check_finite=False)
    return whiten, 2 * float(np.sum(np.log(np.diagonal(root))))


def _inverse(cov: np.ndarray) -> tuple[np.ndarray, float]:
    """(inverse, log determinant) of a positive definite matrix (n, n), in a third of the operations of `whitener`."""
    from scipy.linalg import get_lapack_funcs

    root = np.linalg.cholesky(cov)
    (potri,) = get_lapack_funcs(("potri",), (root,))
    log_determinant = 2 * float(np.sum(np.log(np.diagonal(root))))
    upper, _ = potri(root.T, overwrite_c=True)
    return np.triu(upper) + np.triu(upper, 1).T, log_determinant


def noise_variances(hyper: Hyperparameters, known: Known) -> np.ndarray:
    """(n,) variances of the responses' noise."""
    return np.where(known.noise < 0, math.exp(hyper.log_noise), known.noise) + SMALLEST_NOISE
