r"""Exact Gaussian process with hyperparameters fitted to the history: the surrogate for few dimensions and queries.

    f ~ GP(0, c + s k(r)),   r^2 = sum_i (x_i - x'_i)^2 / l_i^2,   k(r) = (1 + sqrt5 r + 5 r^2 / 3) exp(-sqrt5 r)
    y = f(x) + e,            Var[e] = v, or as given for the response

Matern-5/2 with one length scale for each dimension; the constant c = 1 is the prior variance of the mean. The
hyperparameters (l, s, v) maximise the marginal likelihood times the priors

    log l_i = a + a_i,   a ~ N(log sqrt d - 1/2, 1/10),   a_i ~ N(0, 1),   log s ~ N(0, 1),   log v ~ N(-10, 9)

with the moments (mean, variance) given, by L-BFGS with the gradient in closed form. The length scales share a because
independent priors alone would fix their mean where there are many columns. The first fit has three starts, the centre
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

from seqdec import checks, kernels
from seqdec.bo.surrogates.contract import History, Surrogate, check_growth
from seqdec.core import Array, Key, Posterior, Predictive
from seqdec.runtime import one_blas_thread

_MEAN_VARIANCE = 1.0
_FEATURES = 1024
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
DTYPE = jnp.float64
GRADIENT = 0.1
"""Gradient norm of the loss, in nats, below which L-BFGS stops."""


class Hyperparameters(NamedTuple):
    """Logarithms of the hyperparameters, in units of the unit cube and of standardised responses."""

    log_length_scales: Any
    """(d,)"""
    log_scale: Any
    """() of the variance s"""
    log_noise: Any
    """() of the variance v"""


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


_SHARED_VARIANCE, _OWN_VARIANCE = 0.1, 1.0
"""Prior variances of what the logarithms of the length scales have in common and of their deviations from it."""
_PRIOR_VARIANCES = Hyperparameters(_SHARED_VARIANCE + _OWN_VARIANCE, 1.0, 9.0)


def gp(*, iterations: int = 30, growth: float = 1.1) -> Surrogate:
    """Exact Gaussian process with Matern-5/2 kernel.

    Args:
        iterations: largest number of L-BFGS iterations from each of three starts after responses were standardised
            again; a quarter of it, from the last hyperparameters, after a response was appended.
        growth: as in `Surrogate`.

    Raises:
        ValueError, TypeError: a setting is out of its range or no number.
    """
    iterations = checks.count("iterations", iterations)
    growth = check_growth(growth)

    def init(key: Key, history: History) -> State:
        del key
        empty = history._replace(filled=0)
        return _condition(prior_mean(np.shape(history.x)[1]), empty)._replace(unfitted=np.array(True))

    def fit(state: State, history: History) -> State:
        return _condition(refitted(state, history, iterations), history)

    def condition_on(state: State, history: History) -> State:
        return _condition(state.hyper, history)

    def noise_variance(state: State) -> Array:
        return np.exp(state.hyper.log_noise)

    return Surrogate(init, fit, condition_on, posterior, growth, "log_expected_improvement", DTYPE, noise_variance)


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


def refitted(state: State, history: History, iterations: int) -> Hyperparameters:
    """The hyperparameters of a state fitted to a history, in a quarter of the iterations unless from the prior."""
    if state.unfitted:
        return fitted(history, iterations)
    end, loss = _descend(state.hyper, calibration_rows(history), max(1, iterations // 4))
    return end if math.isfinite(loss) else state.hyper


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
    smooth = _covariance(hyper, exact, _distances(known.x * np.exp(-hyper.log_length_scales)))
    stds = np.sqrt(np.where(known.noise < 0, math.exp(hyper.log_noise), 0.0))

    def rough(length: float) -> np.ndarray:
        return stds[:, None] * _matern52(_distances(known.x / (length * math.sqrt(known.x.shape[1])))) * stds

    noisy = _loss(smooth + np.diag(stds**2), known.y)
    return min(_loss(smooth + rough(length), known.y) for length in _ROUGH) - noisy > -_ROUGH_EVIDENCE


def _loss(cov: np.ndarray, y: np.ndarray) -> float:
    """The negative log likelihood of responses with a covariance, up to a constant."""
    whiten, log_determinant = _whitener(cov)
    return 0.5 * float(np.sum((whiten @ y) ** 2)) + 0.5 * log_determinant


def calibration_rows(history: History, most: int = _FITTED) -> Known:
    """The rows that hyperparameters are fitted to: at most so many, evenly spaced."""
    known = told(history)
    rows = np.unique(np.linspace(0, len(known.y) - 1, min(len(known.y), most)).astype(int))
    return Known(*(part[rows] for part in known))


def _fit_from_prior(known: Known, iterations: int) -> tuple[Hyperparameters, float]:
    """(hyperparameters, loss there)."""
    centre = prior_mean(known.x.shape[1])
    shorter = centre._replace(log_length_scales=centre.log_length_scales - 1)
    noisy = centre._replace(log_noise=centre.log_noise + 8)
    ends, losses = zip(*(_descend(start, known, iterations) for start in (centre, shorter, noisy)), strict=True)
    penalised = np.add(losses, (0.0, 0.0, _EVIDENCE))
    best = int(np.argmin(np.where(np.isfinite(penalised), penalised, np.inf)))
    return ends[best], losses[best]


@one_blas_thread()
def _descend(start: Hyperparameters, known: Known, iterations: int) -> tuple[Hyperparameters, float]:
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
    centre = prior_mean(dim)
    reach = jax.tree.map(lambda mean, var: np.full_like(mean, _DEVIATIONS * math.sqrt(var)), centre, _PRIOR_VARIANCES)
    low, high = (flatten(jax.tree.map(move, centre, reach)) for move in (np.subtract, np.add))
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
    centred = jax.tree.map(np.subtract, hyper, prior_mean(len(hyper.log_length_scales)))
    lengths = centred.log_length_scales
    slope = jax.tree.map(np.divide, centred, _PRIOR_VARIANCES)
    common = _SHARED_VARIANCE / (_OWN_VARIANCE + len(lengths) * _SHARED_VARIANCE) * lengths.sum()
    slope = slope._replace(log_length_scales=(lengths - common) / _OWN_VARIANCE)
    return 0.5 * float(flatten(centred) @ flatten(slope)), slope


def negative_log_likelihood(hyper: Hyperparameters, known: Known) -> tuple[float, Hyperparameters, np.ndarray]:
    """(negative log marginal likelihood of the responses up to a constant, its gradient, that by the points (n, d)).

    With the covariance M of the responses and w = M^-1 y, a derivative is tr(G dM), where G = (M^-1 - w w') / 2.
    """
    scaled, amplitude = known.x * np.exp(-hyper.log_length_scales), math.exp(hyper.log_scale)
    r = _distances(scaled)
    whiten, log_determinant = _whitener(_covariance(hyper, known, r))
    inverse = whiten.T @ whiten
    weights = inverse @ known.y
    slope = (inverse - np.outer(weights, weights)) / 2
    # By the scaled points: the derivative of the kernel by a squared scaled distance is -5/6 (1 + r) exp(-r).
    by_square = slope * (1 + r) * np.exp(-r)
    by_scaled = -amplitude * 10 / 3 * (by_square.sum(1)[:, None] * scaled - by_square @ scaled)
    estimated = np.where(known.noise < 0, np.diagonal(slope), 0).sum() * math.exp(hyper.log_noise)
    by_lengths = -np.einsum("nd,nd->d", scaled, by_scaled)
    gradient = Hyperparameters(by_lengths, amplitude * np.sum(slope * _matern52(r)), estimated)
    loss = 0.5 * float(known.y @ weights) + 0.5 * log_determinant
    return loss, gradient, by_scaled * np.exp(-hyper.log_length_scales)


def _distances(scaled: np.ndarray) -> np.ndarray:
    """(n, n) sqrt 5 times the distances between rows (n, d)."""
    norms = np.sum(scaled**2, 1)
    squares = np.maximum(norms[:, None] + norms - 2 * scaled @ scaled.T, 0)
    np.fill_diagonal(squares, 0)
    return np.sqrt(5 * squares)


def _matern52(r: np.ndarray) -> np.ndarray:
    """The correlation at sqrt 5 times the scaled distance."""
    return (1 + r + r**2 / 3) * np.exp(-r)


def prior_variance(hyper: Hyperparameters) -> float:
    """Of the function at every point."""
    return _MEAN_VARIANCE + math.exp(hyper.log_scale)


def covariances(hyper: Hyperparameters, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Prior covariances (n, m) of the function at rows `a` (n, d) and `b` (m, d), on the host."""
    scales = np.exp(-hyper.log_length_scales)
    squares = np.sum((a * scales) ** 2, 1)[:, None] + np.sum((b * scales) ** 2, 1) - 2 * (a * scales) @ (b * scales).T
    return _MEAN_VARIANCE + math.exp(hyper.log_scale) * _matern52(np.sqrt(5 * np.maximum(squares, 0)))


def _covariance(hyper: Hyperparameters, known: Known, r: np.ndarray) -> np.ndarray:
    """(n, n) covariance of the responses, given sqrt 5 times the scaled distances."""
    return _MEAN_VARIANCE + math.exp(hyper.log_scale) * _matern52(r) + np.diag(noise_variances(hyper, known))


def _whitener(cov: np.ndarray) -> tuple[np.ndarray, float]:
    """(inverse of the lower Cholesky factor, log determinant) of a positive definite matrix (n, n)."""
    from scipy.linalg import solve_triangular

    root = np.linalg.cholesky(cov)
    whiten = solve_triangular(root, np.eye(len(root)), lower=True, check_finite=False)
    return whiten, 2 * float(np.sum(np.log(np.diagonal(root))))


def kernel(hyper: Hyperparameters, a: Array, b: Array) -> Array:
    """C + s k(a, b): (n, d), (m, d) -> (n, m)."""
    scales = jnp.exp(-hyper.log_length_scales)[None]
    return _MEAN_VARIANCE + jnp.exp(hyper.log_scale) * kernels.matern52(a * scales, b * scales)


def noise_variances(hyper: Hyperparameters, known: Known) -> np.ndarray:
    """(n,) variances of the responses' noise."""
    return np.where(known.noise < 0, math.exp(hyper.log_noise), known.noise) + SMALLEST_NOISE


@one_blas_thread()
def _condition(hyper: Hyperparameters, history: History) -> State:
    rows, length = told(history), len(history.y)
    count = len(rows.y)
    whiten, weights, stds = np.eye(length), np.zeros(length), np.zeros(length)
    if count:
        r = _distances(rows.x * np.exp(-hyper.log_length_scales))
        inner, _ = _whitener(_covariance(hyper, rows, r))
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
    offset = math.sqrt(_MEAN_VARIANCE) * jax.random.normal(constant)
    return (lambda x: offset + jnp.cos(x @ frequencies.T + shifts[None]) @ amplitudes), rest
