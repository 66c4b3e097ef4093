"""Exact Gaussian processes with hyperparameters drawn from their posterior: the surrogate of up to a thousand values.

    f ~ GP(0, c + s k(r)),   r^2 = sum_i (x_i - x'_i)^2 / l_i^2,   k(r) = (1 + sqrt5 r + 5 r^2 / 3) exp(-sqrt5 r)
    y = f(x) + e,            Var[e] = v, or as given for the response

Matern-5/2 with one length scale for each dimension; the constant c = 1 is the prior variance of the mean.

Evidence. The most likely hyperparameters t* = (log l, log s, log v) minimize the loss L, the negative logarithm of the
marginal likelihood times the priors

    log l_i = a + a_i,   a ~ N(log sqrt d - 1/2, 1/10),   a_i ~ N(0, 1),   log s ~ N(0, 1),   log v ~ N(-10, 9)

with the moments (mean, variance) given, by L-BFGS with the gradient in closed form, on at most 512 responses. The first
fit starts at the center of the priors, at shorter length scales and at a larger noise, and keeps the best end, that of
the larger noise only if it is better by five nats; later fits start from the last hyperparameters.

Draws. The surrogate is a mixture of processes with the hyperparameters

    t_k = t* + H^{-1/2} z_k,    H = d^2 L / dt^2 at t*,

for a scrambled Sobol sequence of normal z_k, with the weights exp(-L(t_k)) over the density of the draw, cut off at e^2
times the median. H is made of differences of the gradient, with eigenvalues of at least that of the widest prior. The
moments of the mixture are

    mean = sum_k w_k mean_k,    cov = sum_k w_k (cov_k + (mean_k - mean)(mean_k - mean)')

With N padded rows there are at most 512 / N members, and a single one has t*. Everything is in double precision, since
the covariance is close to singular where many points lie near an optimum. Given n points a question costs O(n^3), on
the host without compilation, and a prediction O(N^2).

Sources: Rasmussen, Williams, "Gaussian processes for machine learning", 2006. Length scales that grow as sqrt d:
Hvarfner, Hellsten, Nardi, "Vanilla Bayesian optimization performs great in high dimensions", 2024. Averages over
hyperparameters: Snoek, Larochelle, Adams, "Practical Bayesian optimization of machine learning algorithms", 2012.
Function draws by Matheron's rule: Wilson et al., "Efficiently sampling functions from Gaussian process posteriors",
2020.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import kernels
from seqdec.bo.surrogates.contract import History, Surrogate
from seqdec.boundary import checks
from seqdec.core import Array, Key, Posterior, Predictive

DTYPE = jnp.float64
GROWTH = 1.1
"""Of the Gaussian processes, see `Surrogate`."""
_ITERATIONS = 30
"""Of L-BFGS, at most, from each of three starts after responses were standardized again; a quarter of it, from the last
hyperparameters, after one was appended."""
MEAN_VARIANCE = 1.0
"""Prior variance c of the mean."""
SMALLEST_NOISE = 1e-8
_SHARED_VARIANCE, _OWN_VARIANCE = 0.1, 1.0
"""Prior variances of what the logarithms of the length scales have in common and of their deviations from it."""
_VARIANCES = (_SHARED_VARIANCE + _OWN_VARIANCE, 1.0, 9.0)
"""Prior variances of log l, log s and log v."""
_DEVIATIONS = 4.0
"""Prior standard deviations from the mean within which hyperparameters are sought."""
_EVIDENCE = 5.0
"""Nats by which the end of the start with a larger noise must be better than the others."""
_NOISE_EVIDENCE, _ROUGH_EVIDENCE = 10.0, 2.0
"""Nats of `shows_noise`."""
_ROUGH = (0.005, 0.01)
"""Length scales of rough functions, as shares of the diagonal of the cube."""
_FITTED, _WEIGHTED = 512, 256
"""Responses that the hyperparameters are fitted to, and that their draws are weighted by, at most."""
_GRADIENT = 0.1
"""Gradient norm of the loss, in nats, below which L-BFGS stops."""
_ROWS = 512
"""Of all members, at most."""
_STEP = 1e-3
"""Difference of logarithms of hyperparameters."""
_CUT = 2.0
"""Logarithm of the largest weight relative to the median."""
_FEATURES = 1024
"""Of a draw from the prior."""


class Hyperparameters(NamedTuple):
    """Logarithms of the hyperparameters, in units of the unit cube and of standardized responses."""

    log_length_scales: Any
    """(d,)"""
    log_scale: Any
    """() of the variance s"""
    log_noise: Any
    """() of the variance v"""


class Known(NamedTuple):
    """The rows of a history that hold a point, on the host."""

    x: np.ndarray
    """(n, d)"""
    y: np.ndarray
    """(n,)"""
    noise: np.ndarray
    """(n,) known variances of the responses' noise, negative where it is estimated"""


class Process(NamedTuple):
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

    @property
    def stored(self) -> "Process":
        """With empty arrays, from which the next fit gives the same."""
        return Process(self.hyper, self.unfitted, *[np.zeros(0)] * 6)


class Mixture(NamedTuple):
    """The members, and the process with the most likely hyperparameters."""

    best: Process
    members: Process
    """(K, ...) of each"""
    log_weights: Any
    """(K,)"""


def gp(*, draws: int = 8) -> Surrogate:
    """Exact Gaussian process with Matern-5/2 kernel.

    Args:
        draws: largest number of draws of the hyperparameters; 1: the most likely hyperparameters.

    Raises ValueError or TypeError for a setting that is out of its range or not a number.
    """
    draws = checks.count("draws", draws)

    def members(history: History) -> int:
        return max(1, min(draws, _ROWS // len(history.y)))

    def init(key: Key, history: History) -> Mixture:
        best = prior(history)
        count = members(history)
        return Mixture(best, _stacked([best] * count), np.zeros(count))

    def fit(state: Mixture, history: History) -> Mixture:
        hyper = refitted(state.best, history)
        drawn, log_weights = _drawn(hyper, calibration_rows(history, _WEIGHTED), members(history))
        return _conditioned(hyper, drawn, log_weights, history)

    def condition_on(state: Mixture, history: History) -> Mixture:
        scales, scale, noise = state.members.hyper
        drawn = [Hyperparameters(*one) for one in zip(scales, scale, noise, strict=True)]
        return _conditioned(state.best.hyper, drawn, state.log_weights, history)

    def stored(state: Mixture) -> Mixture:
        return Mixture(state.best.stored, state.best.stored, np.zeros(0))

    return Surrogate(
        init,
        fit,
        condition_on,
        mixture_posterior,
        GROWTH,
        "log_expected_improvement",
        DTYPE,
        lambda state: np.exp(state.best.hyper.log_noise),
        stored,
    )


def _stacked(states: list[Process]) -> Process:
    hyper = Hyperparameters(*map(np.stack, zip(*(state.hyper for state in states), strict=True)))
    rest = zip(*(state[1:] for state in states), strict=True)
    return Process(hyper, *map(np.stack, rest))


def _conditioned(hyper: Hyperparameters, drawn: list[Hyperparameters], log_weights: Any, history: History) -> Mixture:
    members = [condition(one, history) for one in drawn]
    best = members[0] if len(drawn) == 1 else condition(hyper, history)
    return Mixture(best, _stacked(members), log_weights)


def _drawn(hyper: Hyperparameters, known: Known, count: int) -> tuple[list[Hyperparameters], np.ndarray]:
    """(draws, logarithms of their weights); all draws are the most likely ones where the likelihood is not finite."""
    alike = [hyper] * count, np.full(count, -math.log(count))
    if count == 1:
        return alike
    center = flatten(hyper)
    slopes = [loss(center + _STEP * unit, known)[1] for unit in np.eye(len(center))]
    curvature = (np.array(slopes) - loss(center, known)[1]) / _STEP
    if not np.isfinite(curvature).all():
        return alike
    values, vectors = np.linalg.eigh((curvature + curvature.T) / 2)
    z = _normals(count, len(center))
    spread = z / np.sqrt(np.maximum(values, 1 / max(_VARIANCES)))
    points = np.clip(center + spread @ vectors.T, *np.transpose(bounds(known.x.shape[1])))
    losses = np.array([loss(point, known)[0] for point in points])
    if not np.isfinite(losses).all():
        return alike
    log_weights = 0.5 * np.sum(z**2, 1) - losses
    log_weights = np.minimum(log_weights, np.median(log_weights) + _CUT)
    return [unflatten(point) for point in points], log_weights - np.logaddexp.reduce(log_weights)


@functools.cache
def _normals(count: int, columns: int) -> np.ndarray:
    """(count, columns) standard normal numbers of a Sobol sequence, scrambled with seed 0."""
    from scipy.special import ndtri
    from scipy.stats import qmc

    size = 1 << (count - 1).bit_length()
    return ndtri(qmc.Sobol(columns, rng=np.random.default_rng(0)).random(size)[:count])


def mixture_posterior(state: Mixture) -> Posterior:
    """Posterior over the responses at rows (n, d); draws are those of a member drawn by its weight."""
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
    process = condition(prior_mean(np.shape(history.x)[1]), history._replace(filled=0))
    return process._replace(unfitted=np.array(True))


def refitted(state: Process, history: History) -> Hyperparameters:
    """The hyperparameters of a state fitted to a history, in a quarter of the iterations unless from the prior."""
    if state.unfitted:
        return fitted(history)
    end, least = descend(state.hyper, calibration_rows(history), _ITERATIONS // 4)
    return end if math.isfinite(least) else state.hyper


def condition(hyper: Hyperparameters, history: History) -> Process:
    """The process with these hyperparameters given the history."""
    rows, length = told(history), len(history.y)
    count = len(rows.y)
    whiten, weights, stds = np.eye(length), np.zeros(length), np.zeros(length)
    if count:
        inner, _ = whitener(covariance(hyper, rows))
        whiten[:count, :count], weights[:count] = inner, inner.T @ (inner @ rows.y)
        stds[:count] = np.sqrt(noise_variances(hyper, rows))
    keep, x = np.arange(length) < count, np.asarray(history.x, float)
    return Process(hyper, np.array(False), x, keep, whiten, weights, stds, np.zeros(length))


def kernel(hyper: Hyperparameters, a: Array, b: Array) -> Array:
    """C + s k(a, b): (n, d), (m, d) -> (n, m)."""
    scales = jnp.exp(-hyper.log_length_scales)[None]
    return MEAN_VARIANCE + jnp.exp(hyper.log_scale) * kernels.matern52(a * scales, b * scales)


def posterior(state: Process) -> Posterior:
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
        function, noisy = _prior_draw(key, hyper, state.x.shape[1])
        error, rest = jax.random.normal(noisy, (2, *state.keep.shape))
        whitened = state.whiten @ jnp.where(state.keep, function(state.x) + state.errors * error, 0)
        change = state.whiten.T @ (whitened + state.spreads * rest)
        return lambda candidates: function(candidates) + cross(candidates) @ (state.weights - change)

    return Posterior(mean, joint, draw)


def _prior_draw(key: Key, hyper: Hyperparameters, dim: int):
    """(a function drawn from the prior, an unused key), by random Fourier features."""
    normals, chi, phases, weights, constant, rest = jax.random.split(key, 6)
    spread = jnp.sqrt(5 / (2 * jax.random.gamma(chi, 2.5, (_FEATURES, 1))))
    frequencies = jax.random.normal(normals, (_FEATURES, dim)) * spread * jnp.exp(-hyper.log_length_scales)[None]
    shifts = 2 * math.pi * jax.random.uniform(phases, (_FEATURES,))
    amplitudes = jnp.sqrt(2 / _FEATURES * jnp.exp(hyper.log_scale)) * jax.random.normal(weights, (_FEATURES,))
    offset = math.sqrt(MEAN_VARIANCE) * jax.random.normal(constant)
    return (lambda x: offset + jnp.cos(x @ frequencies.T + shifts[None]) @ amplitudes), rest


# Evidence: on the host, in NumPy.


def told(history: History) -> Known:
    """The rows that hold a point."""
    count = int(history.filled)
    noise = np.full(count, -1.0) if history.noise is None else np.asarray(history.noise, float)[:count]
    return Known(np.asarray(history.x, float)[:count], np.asarray(history.y, float)[:count], noise)


def calibration_rows(history: History, most: int = _FITTED) -> Known:
    """The rows that hyperparameters are fitted to: at most so many, evenly spaced."""
    known = told(history)
    rows = np.unique(np.linspace(0, len(known.y) - 1, min(len(known.y), most)).astype(int))
    return Known(*(part[rows] for part in known))


def prior_mean(dim: int) -> Hyperparameters:
    """The means of the hyperparameters' priors, for `dim` columns."""
    return Hyperparameters(np.full(dim, 0.5 * math.log(dim) - 0.5), np.zeros(()), np.full((), -10.0))


@functools.cache
def bounds(dim: int) -> list[tuple[float, float]]:
    """Limits of the flat hyperparameters."""
    center = flatten(prior_mean(dim))
    reach = _DEVIATIONS * np.sqrt(_flat_variances(dim))
    return list(zip(center - reach, center + reach, strict=True))


def _flat_variances(dim: int) -> np.ndarray:
    return np.array([_VARIANCES[0]] * dim + [*_VARIANCES[1:]])


def flatten(hyper: Hyperparameters) -> np.ndarray:
    """The logarithms as one vector (d + 2,)."""
    return np.concatenate([hyper.log_length_scales, [hyper.log_scale, hyper.log_noise]])


def unflatten(flat: np.ndarray) -> Hyperparameters:
    """The inverse of `flatten`."""
    return Hyperparameters(flat[:-2], flat[-2], flat[-1])


def fitted(history: History, most: int = _FITTED) -> Hyperparameters:
    """Hyperparameters fitted from the prior to the history, or to `most` rows of it."""
    return _fit_from_prior(calibration_rows(history, most))[0]


def _fit_from_prior(known: Known) -> tuple[Hyperparameters, float]:
    center = prior_mean(known.x.shape[1])
    shorter = center._replace(log_length_scales=center.log_length_scales - 1)
    noisy = center._replace(log_noise=center.log_noise + 8)
    ends, losses = zip(*(descend(start, known) for start in (center, shorter, noisy)), strict=True)
    penalized = np.add(losses, (0.0, 0.0, _EVIDENCE))
    best = int(np.argmin(np.where(np.isfinite(penalized), penalized, np.inf)))
    return ends[best], losses[best]


def descend(start: Hyperparameters, known: Known, iterations: int = _ITERATIONS) -> tuple[Hyperparameters, float]:
    """L-BFGS from `start`, within four deviations of the prior's mean -> (end, loss there)."""
    from scipy.optimize import minimize

    options = {"maxiter": iterations, "gtol": _GRADIENT, "maxcor": 8}
    limits = bounds(known.x.shape[1])
    found = minimize(
        lambda flat: loss(flat, known), flatten(start), jac=True, method="L-BFGS-B", bounds=limits, options=options
    )
    return unflatten(found.x), float(found.fun)


def loss(flat: np.ndarray, known: Known) -> tuple[float, np.ndarray]:
    """(L at flat hyperparameters up to a constant, its gradient (d + 2,))."""
    fit, by_likelihood = negative_log_likelihood(flat, known)
    penalty, by_prior = negative_log_prior(flat)
    return fit + penalty, by_likelihood + by_prior


def negative_log_prior(flat: np.ndarray) -> tuple[float, np.ndarray]:
    """(negative log prior density up to a constant, its gradient).

    The precision of the log length scales is (I - b 1 1') / t, with b = s / (t + d s) for the variance s shared and t.
    """
    dim = len(flat) - 2
    centered = flat - flatten(prior_mean(dim))
    slope, lengths = centered / _flat_variances(dim), centered[:-2]
    common = _SHARED_VARIANCE / (_OWN_VARIANCE + dim * _SHARED_VARIANCE) * lengths.sum()
    slope[:-2] = (lengths - common) / _OWN_VARIANCE
    return 0.5 * float(centered @ slope), slope


def negative_log_likelihood(flat: np.ndarray, known: Known) -> tuple[float, np.ndarray]:
    """(negative log marginal likelihood of the responses up to a constant, its gradient).

    With the covariance M and w = M^-1 y, a derivative is tr(G dM), where G = (M^-1 - w w') / 2.
    """
    hyper = unflatten(flat)
    scales, amplitude = np.exp(-hyper.log_length_scales), math.exp(hyper.log_scale)
    scaled = known.x * scales
    r = distances(scaled)
    decay = np.exp(-r)
    correlations = (1 + r + r**2 / 3) * decay
    cov = MEAN_VARIANCE + amplitude * correlations
    np.einsum("ii->i", cov)[:] += noise_variances(hyper, known)
    inverse, log_determinant = _inverse(cov)
    weights = inverse @ known.y
    slope = (inverse - np.outer(weights, weights)) / 2
    # By the scaled points: the derivative of the kernel by a squared scaled distance is -5/6 (1 + r) exp(-r).
    by_square = slope * (1 + r) * decay
    by_scaled = -amplitude * 10 / 3 * (by_square.sum(1)[:, None] * scaled - by_square @ scaled)
    estimated = np.where(known.noise < 0, np.diagonal(slope), 0).sum() * math.exp(hyper.log_noise)
    by_lengths = -np.einsum("nd,nd->d", scaled, by_scaled)
    gradient = np.concatenate([by_lengths, [amplitude * np.vdot(slope, correlations), estimated]])
    return 0.5 * float(known.y @ weights) + 0.5 * log_determinant, gradient


def shows_noise(history: History, most: int = 256) -> bool:
    """Whether noise of an estimated variance explains the history, or `most` rows of it, and nothing else does.

    Noise must be 10 nats better than none, and a rough function of the same variance and of short length scales in its
    place, whose residuals look like noise except where points lie close together, must not be 2 nats better.
    """
    known = calibration_rows(history, most)
    exact = known._replace(noise=np.maximum(known.noise, 0.0))
    (hyper, least), (_, without) = _fit_from_prior(known), _fit_from_prior(exact)
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
    return MEAN_VARIANCE + math.exp(hyper.log_scale) * kernels.matern52_at(np.sqrt(5 * np.maximum(squares, 0)))


def covariance(hyper: Hyperparameters, known: Known) -> np.ndarray:
    """(n, n) of the responses."""
    r = distances(known.x * np.exp(-hyper.log_length_scales))
    cov = MEAN_VARIANCE + math.exp(hyper.log_scale) * ((1 + r + r**2 / 3) * np.exp(-r))
    np.einsum("ii->i", cov)[:] += noise_variances(hyper, known)
    return cov


def noise_variances(hyper: Hyperparameters, known: Known) -> np.ndarray:
    """(n,) variances of the responses' noise."""
    return np.where(known.noise < 0, math.exp(hyper.log_noise), known.noise) + SMALLEST_NOISE


def whitener(cov: np.ndarray) -> tuple[np.ndarray, float]:
    """(inverse of the lower Cholesky factor, log determinant) of a positive definite matrix (n, n)."""
    from scipy.linalg import solve_triangular

    root = np.linalg.cholesky(cov)
    whiten = solve_triangular(root, np.eye(len(root)), lower=True, check_finite=False)
    return whiten, 2 * float(np.sum(np.log(np.diagonal(root))))


def _inverse(cov: np.ndarray) -> tuple[np.ndarray, float]:
    """(inverse, log determinant) of a positive definite matrix (n, n), faster than by `whitener`."""
    from scipy.linalg.lapack import dpotri  # pyright: ignore[reportAttributeAccessIssue]

    root = np.linalg.cholesky(cov)
    log_determinant = 2 * float(np.sum(np.log(np.diagonal(root))))
    upper, _ = dpotri(root.T, overwrite_c=True)
    return np.triu(upper) + np.triu(upper, 1).T, log_determinant
