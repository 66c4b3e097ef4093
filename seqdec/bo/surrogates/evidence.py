r"""Hyperparameters of Gaussian processes: priors and evidence, on the host.

    log l_i = a + a_i,   a ~ N(log sqrt d - 1/2, 1/10),   a_i ~ N(0, 1),   log s ~ N(0, 1),   log v ~ N(-10, 9)
    b_i = 0 or b_i ~ N(0, 4)

with (mean, variance), for d parameters of the process of `seqdec.bo.surrogates.gaussian_process`. The columns of a
parameter share its length scale and b_i: at one-hot columns the kernel depends on whether the choices are equal. The
most likely ones minimize the loss L, minus the log of the marginal likelihood times the priors, by L-BFGS on at most
512 responses. The first fit starts at the priors' center, at shorter length scales and at a larger noise, and keeps the
best end, that of the larger noise only if better by five nats, and of noise with slopes b only if by three more; later
fits, when a 32nd more responses are known, start from the last hyperparameters. Without a, independent priors would fix
the mean length scale of many parameters. Draws about the most likely t* are

    t_k = t* + H^{-1/2} z_k,    H = d^2 L / dt^2 at t*,

for a scrambled Sobol sequence of normal z_k, with the weights exp(-L(t_k)) over the density of the draw, cut off at e^2
times the median. H is from differences of the gradient, with eigenvalues of at least that of the widest prior.

Sources: Rasmussen, Williams, "Gaussian processes for machine learning", 2006. Length scales that grow as sqrt d:
Hvarfner, Hellsten, Nardi, "Vanilla Bayesian optimization performs great in high dimensions", 2024.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from seqdec import kernels
from seqdec.bo.surrogates.contract import History

ITERATIONS = 30
"""Most steps of L-BFGS from each of three starts, a quarter after an appended response."""
MEAN_VARIANCE = 1.0
"""Prior variance c of the mean."""
SMALLEST_NOISE = 1e-8
_SHARED_VARIANCE, _OWN_VARIANCE = 0.1, 1.0
"""Prior variances of a and a_i."""
VARIANCES = (_SHARED_VARIANCE + _OWN_VARIANCE, 1.0, 9.0)
"""Prior variances of log l, log s and log v."""
_SLOPE_VARIANCE = 4.0
"""Prior variance of b_i."""
_DEVIATIONS = 4.0
"""Range of the search, in prior standard deviations."""
_EVIDENCE, _SLOPE_EVIDENCE = 5.0, 3.0
"""Nats by which the start with a larger noise must win, and slopes against constant noise."""
_NOISE = math.log(1e-3)
"""Log v above which there is noise."""
_NOISE_EVIDENCE, _ROUGH_EVIDENCE = 10.0, 2.0
"""Nats by which `shows_noise` wants noise to win against none, and a rough function not to win against noise."""
_ALLOWED = 3.0
"""Nats by which noise may lose in `allows_noise`."""
_ROUGH = (0.005, 0.01)
"""Length scales of rough functions, in diagonals of the cube."""
_GRADIENT = 0.1
"""Gradient norm, in nats, to stop at."""
_FITTED, _WEIGHTED = 512, 256
"""Most responses used for the fit, and for the weights of draws."""
_STEP = 1e-3
"""Step in log hyperparameters for differences of the gradient."""
_CUT = 2.0
"""Log of the largest weight relative to the median."""


class Hyperparameters(NamedTuple):
    """Logarithms, in units of the unit cube and of standardized responses."""

    log_length_scales: Any
    """(d,)"""
    log_scale: Any
    """() of the variance s"""
    log_noise: Any
    """() of the variance v"""
    noise_slopes: Any = 0.0
    """(d,) b; 0 where the noise is constant"""


class Known(NamedTuple):
    """The rows of a history with a point, on the host."""

    x: np.ndarray
    """(n, d)"""
    y: np.ndarray
    """(n,)"""
    noise: np.ndarray
    """(n,) known noise variances, negative where estimated"""
    places: np.ndarray
    """(d,) as in `History`"""


def told(history: History) -> Known:
    """The rows with a point."""
    count = int(history.filled)
    noise = np.full(count, -1.0) if history.noise is None else np.asarray(history.noise, float)[:count]
    return Known(np.asarray(history.x, float)[:count], np.asarray(history.y, float)[:count], noise, places_of(history))


def places_of(history: History) -> np.ndarray:
    """(d,) the parameter of each column."""
    return np.arange(np.shape(history.x)[1]) if history.places is None else np.asarray(history.places)


def calibration_rows(history: History, most: int = _FITTED) -> Known:
    """At most `most` rows, evenly spaced."""
    known = told(history)
    rows = np.unique(np.linspace(0, len(known.y) - 1, min(len(known.y), most)).astype(int))
    return Known(known.x[rows], known.y[rows], known.noise[rows], known.places)


def prior_mean(places: np.ndarray) -> Hyperparameters:
    """The prior means for columns of the parameters `places` (d,)."""
    center = 0.5 * math.log(places.max() + 1) - 0.5
    return Hyperparameters(np.full(len(places), center), np.zeros(()), np.full((), -10.0), np.zeros(len(places)))


@functools.cache
def bounds(dim: int, size: int) -> list[tuple[float, float]]:
    """Limits of the flat hyperparameters (size,) of `dim` parameters."""
    center = _center(dim, size)
    reach = _DEVIATIONS * np.sqrt(_flat_variances(dim, size))
    return list(zip(center - reach, center + reach, strict=True))


@functools.cache
def _flat_variances(dim: int, size: int) -> np.ndarray:
    return np.array([VARIANCES[0]] * dim + [*VARIANCES[1:]] + [_SLOPE_VARIANCE] * dim)[:size]


@functools.cache
def _center(dim: int, size: int) -> np.ndarray:
    places = np.arange(dim)
    return np.concatenate([flatten(prior_mean(places), places), np.zeros(size - dim - 2)])


def flatten(hyper: Hyperparameters, places: np.ndarray) -> np.ndarray:
    """As one vector: (parameters + 2,), or with the slopes, unless they are zero, (2 parameters + 2,)."""
    first = np.unique(places, return_index=True)[1]
    slopes = hyper.noise_slopes[first] if np.any(hyper.noise_slopes) else []
    return np.concatenate([hyper.log_length_scales[first], [hyper.log_scale, hyper.log_noise], slopes])


def unflatten(flat: np.ndarray, places: np.ndarray) -> Hyperparameters:
    """The inverse of `flatten`."""
    dim = places.max() + 1
    slopes = flat[dim + 2 :] if len(flat) > dim + 2 else np.zeros(dim)
    return Hyperparameters(flat[:dim][places], flat[dim], flat[dim + 1], slopes[places])


def fitted(history: History, most: int = _FITTED) -> Hyperparameters:
    """Hyperparameters fitted from the prior to the history, or `most` rows."""
    return fit_from_prior(calibration_rows(history, most))[0]


def fit_from_prior(known: Known, slopes: bool = False) -> tuple[Hyperparameters, float]:
    """The most likely hyperparameters, of constant noise or where `slopes` win, and their loss."""
    center = prior_mean(known.places)
    shorter = center._replace(log_length_scales=center.log_length_scales - 1)
    noisy = center._replace(log_noise=center.log_noise + 8)
    ends, losses = zip(*(descend(start, known) for start in (center, shorter, noisy)), strict=True)
    penalized = np.add(losses, (0.0, 0.0, _EVIDENCE))
    best = int(np.argmin(np.where(np.isfinite(penalized), penalized, np.inf)))
    end, least = ends[best], losses[best]
    if slopes and (noisy := ends[2]).log_noise > _NOISE:
        flat = flatten(noisy, known.places)
        sloped, with_slopes = _descend(np.concatenate([flat, np.zeros(len(flat) - 2)]), known, ITERATIONS)
        if with_slopes + _SLOPE_EVIDENCE + (0 if end.log_noise > _NOISE else _EVIDENCE) < least:
            return sloped, with_slopes
    return end, least


def descend(start: Hyperparameters, known: Known, iterations: int = ITERATIONS) -> tuple[Hyperparameters, float]:
    """L-BFGS from `start`, within four prior deviations -> (end, loss there)."""
    return _descend(flatten(start, known.places), known, iterations)


def _descend(first: np.ndarray, known: Known, iterations: int) -> tuple[Hyperparameters, float]:
    from scipy.optimize import minimize

    options = {"maxiter": iterations, "gtol": _GRADIENT, "maxcor": 8}
    limits = bounds(known.places.max() + 1, len(first))
    found = minimize(lambda flat: loss(flat, known), first, jac=True, method="L-BFGS-B", bounds=limits, options=options)
    return unflatten(found.x, known.places), float(found.fun)


def loss(flat: np.ndarray, known: Known) -> tuple[float, np.ndarray]:
    """(L up to a constant, its gradient like `flat`)."""
    fit, by_likelihood = negative_log_likelihood(flat, known)
    penalty, by_prior = negative_log_prior(flat, known.places.max() + 1)
    return fit + penalty, by_likelihood + by_prior


def negative_log_prior(flat: np.ndarray, dim: int) -> tuple[float, np.ndarray]:
    """(negative log prior density up to a constant, gradient).

    The precision of log l is (I - b 1 1') / t, b = s / (t + d s), for variances s shared and t own.
    """
    centered = flat - _center(dim, len(flat))
    slope, lengths = centered / _flat_variances(dim, len(flat)), centered[:dim]
    common = _SHARED_VARIANCE / (_OWN_VARIANCE + dim * _SHARED_VARIANCE) * lengths.sum()
    slope[:dim] = (lengths - common) / _OWN_VARIANCE
    return 0.5 * float(centered @ slope), slope


def negative_log_likelihood(flat: np.ndarray, known: Known) -> tuple[float, np.ndarray]:
    """(negative log marginal likelihood up to a constant, gradient like `flat`).

    With the covariance M and w = M^-1 y, a derivative is tr(G dM), where G = (M^-1 - w w') / 2.
    """
    hyper = unflatten(flat, known.places)
    scales, amplitude = np.exp(-hyper.log_length_scales), math.exp(hyper.log_scale)
    scaled = known.x * scales
    r = distances(scaled)
    decay = np.exp(-r)
    correlations = (1 + r + r**2 / 3) * decay
    cov = MEAN_VARIANCE + amplitude * correlations
    noise = noise_variances(hyper, known)
    np.einsum("ii->i", cov)[:] += noise
    inverse, log_determinant = _inverse(cov)
    weights = inverse @ known.y
    slope = (inverse - np.outer(weights, weights)) / 2
    # By the scaled points: the derivative of the kernel by a squared scaled distance is -5/6 (1 + r) exp(-r).
    by_square = slope * (1 + r) * decay
    by_scaled = -amplitude * 10 / 3 * (by_square.sum(1)[:, None] * scaled - by_square @ scaled)
    by_noise = np.where(known.noise < 0, np.diagonal(slope) * (noise - SMALLEST_NOISE), 0)
    by_lengths = np.bincount(known.places, -np.einsum("nd,nd->d", scaled, by_scaled))
    by_slopes = np.bincount(known.places, by_noise @ (known.x - 0.5)) if len(flat) > len(by_lengths) + 2 else []
    gradient = np.concatenate([by_lengths, [amplitude * np.vdot(slope, correlations), by_noise.sum()], by_slopes])
    return 0.5 * float(known.y @ weights) + 0.5 * log_determinant, gradient


def drawn(hyper: Hyperparameters, history: History, count: int) -> tuple[list[Hyperparameters], np.ndarray]:
    """(t_k, log weights (count,)); all the most likely ones where the likelihood is not finite."""
    alike = [hyper] * count, np.full(count, -math.log(count))
    if count == 1:
        return alike
    known = calibration_rows(history, _WEIGHTED)
    center = flatten(hyper, known.places)
    slopes = [loss(center + _STEP * unit, known)[1] for unit in np.eye(len(center))]
    curvature = (np.array(slopes) - loss(center, known)[1]) / _STEP
    if not np.isfinite(curvature).all():
        return alike
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    z = _normals(count, len(center))
    spread = z / np.sqrt(np.maximum(values, 1 / max(VARIANCES)))
    points = np.clip(center + spread @ vectors.T, *np.transpose(bounds(known.places.max() + 1, len(center))))
    losses = np.array([loss(point, known)[0] for point in points])
    if not np.isfinite(losses).all():
        return alike
    log_weights = 0.5 * np.sum(z**2, 1) - losses
    log_weights = np.minimum(log_weights, np.median(log_weights) + _CUT)
    return [unflatten(point, known.places) for point in points], log_weights - np.logaddexp.reduce(log_weights)


@functools.cache
def _normals(count: int, columns: int) -> np.ndarray:
    """(count, columns) normal numbers of a Sobol sequence, scrambled with seed 0."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    size = 1 << (count - 1).bit_length()
    return ndtri(qmc.Sobol(columns, rng=np.random.default_rng(0)).random(size)[:count])


def solved(hyper: Hyperparameters, history: History) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """(whitener W (N, N), weights W'W y (N,), noise deviations (N,), number n of rows), padded as the history."""
    rows, length = told(history), len(history.y)
    count = len(rows.y)
    whiten, weights, stds = np.eye(length), np.zeros(length), np.zeros(length)
    if count:
        inner, _ = whitener(covariance(hyper, rows))
        whiten[:count, :count], weights[:count] = inner, inner.T @ (inner @ rows.y)
        stds[:count] = np.sqrt(noise_variances(hyper, rows))
    return whiten, weights, stds, count


def shows_noise(history: History, most: int = 256) -> bool:
    """Whether noise, and nothing else, explains the history, or `most` rows of it.

    It must be 10 nats better than none, and a rough function of the same variance, with short length scales, must not
    be 2 nats better.
    """
    known = calibration_rows(history, most)
    exact = known._replace(noise=np.maximum(known.noise, 0.0))
    (hyper, least), (_, without) = fit_from_prior(known), fit_from_prior(exact)
    if not without - least > _NOISE_EVIDENCE:
        return False
    smooth = covariance(hyper, exact)
    stds = np.sqrt(np.where(known.noise < 0, math.exp(hyper.log_noise), 0.0))

    def rough(length: float) -> np.ndarray:
        r = distances(known.x / (length * math.sqrt(known.x.shape[1])))
        return stds[:, None] * kernels.matern52_at(r) * stds

    def misfit(cov: np.ndarray) -> float:
        whiten, log_determinant = whitener(cov)
        return 0.5 * float(np.sum((whiten @ known.y) ** 2)) + 0.5 * log_determinant

    noisy = misfit(smooth + np.diag(stds**2))
    return min(misfit(smooth + rough(length)) for length in _ROUGH) - noisy > -_ROUGH_EVIDENCE


def allows_noise(history: History, variance: float) -> bool:
    """Whether noise of this variance is at most 3 nats less likely than that of the best fit."""
    known = calibration_rows(history)
    given = known._replace(noise=np.where(known.noise < 0, variance, known.noise))
    return fit_from_prior(given)[1] - fit_from_prior(known)[1] < _ALLOWED


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
    """Prior covariances (n, m) at rows `a` (n, d) and `b` (m, d)."""
    scales = np.exp(-hyper.log_length_scales)
    squares = np.sum((a * scales) ** 2, 1)[:, None] + np.sum((b * scales) ** 2, 1) - 2 * (a * scales) @ (b * scales).T
    return MEAN_VARIANCE + math.exp(hyper.log_scale) * kernels.matern52_at(np.sqrt(5 * np.maximum(squares, 0)))


def covariance(hyper: Hyperparameters, known: Known) -> np.ndarray:
    """(n, n) of the responses."""
    r = distances(known.x * np.exp(-hyper.log_length_scales))
    cov = MEAN_VARIANCE + math.exp(hyper.log_scale) * ((1 + r + r**2 / 3) * np.exp(-r))
    np.einsum("ii->i", cov)[:] += noise_variances(hyper, known)
    return cov


def noise_variances(hyper: Hyperparameters, known: Known) -> np.ndarray:
    """(n,) of the responses."""
    estimated = np.exp(hyper.log_noise + (known.x - 0.5) @ np.broadcast_to(hyper.noise_slopes, known.x.shape[1]))
    return np.where(known.noise < 0, estimated, known.noise) + SMALLEST_NOISE


def whitener(cov: np.ndarray) -> tuple[np.ndarray, float]:
    """(inverse of the lower Cholesky factor, log determinant) of a positive definite matrix (n, n)."""
    from scipy.linalg.lapack import dtrtri  # pyright: ignore[reportAttributeAccessIssue]

    root = np.linalg.cholesky(cov)
    whiten, _ = dtrtri(root.T, lower=0)  # whose order is that of Fortran
    return whiten.T, 2 * float(np.sum(np.log(np.diagonal(root))))


def _inverse(cov: np.ndarray) -> tuple[np.ndarray, float]:
    """(inverse (n, n), log determinant)."""
    from scipy.linalg.lapack import dpotri  # pyright: ignore[reportAttributeAccessIssue]

    root = np.linalg.cholesky(cov)
    log_determinant = 2 * float(np.sum(np.log(np.diagonal(root))))
    upper, _ = dpotri(root.T, overwrite_c=True)
    return np.triu(upper) + np.triu(upper, 1).T, log_determinant
