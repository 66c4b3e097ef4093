r"""Exact Gaussian process with hyperparameters fitted to the history: the surrogate for few dimensions and queries.

    f ~ GP(0, c + s k(r)),   r^2 = sum_i (x_i - x'_i)^2 / l_i^2,   k(r) = (1 + sqrt5 r + 5 r^2 / 3) exp(-sqrt5 r)
    y = f(x) + e,            Var[e] = v, or as given for the response

Matern-5/2 with one length scale for each dimension; the constant c = 1 is the prior variance of the mean. The
hyperparameters (l, s, v) maximise the marginal likelihood times the priors

    log l_i ~ N(log sqrt d - 1/2, 1),    log s ~ N(0, 1),    log v ~ N(-10, 9)

with the moments (mean, variance) given. The first fit runs L-BFGS from three starts, the centre of the priors, shorter
length scales and a larger noise, and keeps the best end, that of the larger noise only if it is better by five nats;
later fits start from the last hyperparameters. Everything is in double precision, because the kernel matrix is close to
singular where many points lie near an optimum.
Fitting costs O(N^3) per iteration and a prediction O(N^2), for a history padded to N.

Sources: Rasmussen, Williams, "Gaussian processes for machine learning", 2006. Length scales that grow as sqrt d:
Hvarfner, Hellsten, Nardi, "Vanilla Bayesian optimization performs great in high dimensions", 2024. Function draws by
Matheron's rule on random features: Wilson et al., "Efficiently sampling functions from Gaussian process posteriors",
2020.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.scipy.linalg import cholesky, solve_triangular

from seqdec import checks, kernels
from seqdec.bo.surrogates import History, Surrogate, check_growth
from seqdec.core import Array, Key, Posterior, Predictive

_MEAN_VARIANCE = 1.0
_FEATURES = 1024
_SMALLEST_NOISE = 1e-8
_EVIDENCE = 5.0
"""Nats by which the end of the start with a larger noise must be better than the others."""
_GRADIENT = 0.1
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
    unfitted: Array
    """() bool: the hyperparameters have not been fitted"""
    x: Array
    """(N, d)"""
    keep: Array
    """(N,) bool"""
    whiten: Array
    """(N, N) inverse of the lower Cholesky factor of the responses' covariance, so that predictions are products; one
    on the diagonal of padded rows"""
    weights: Array
    """(N,) inverse covariance times the responses"""
    noise: Array
    """(N,) variances of the responses' noise"""


_PRIOR_VARIANCES = Hyperparameters(1.0, 1.0, 9.0)


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
        empty = history._replace(filled=jnp.int32(0))
        return _condition(_centre(history.x), empty)._replace(unfitted=jnp.asarray(True))

    def fit_from_prior(_: Hyperparameters, history: History) -> Hyperparameters:
        centre = _centre(history.x)
        shorter = centre._replace(log_length_scales=centre.log_length_scales - 1)
        noisy = centre._replace(log_noise=centre.log_noise + 8)
        starts = jax.tree.map(lambda *leaves: jnp.stack(leaves), centre, shorter, noisy)
        ends, losses = jax.lax.map(lambda start: _descend(start, history, iterations), starts)
        losses = losses + jnp.array([0.0, 0.0, _EVIDENCE], losses.dtype)
        best = jnp.argmin(jnp.where(jnp.isfinite(losses), losses, jnp.inf))
        return jax.tree.map(lambda leaf: leaf[best], ends)

    def fit_from_last(hyper: Hyperparameters, history: History) -> Hyperparameters:
        end, loss = _descend(hyper, history, max(1, iterations // 4))
        return jax.tree.map(lambda new, old: jnp.where(jnp.isfinite(loss), new, old), end, hyper)

    def fit(state: State, history: History) -> State:
        return _condition(jax.lax.cond(state.unfitted, fit_from_prior, fit_from_last, state.hyper, history), history)

    def condition_on(state: State, history: History) -> State:
        return _condition(state.hyper, history)

    def noise_variance(state: State) -> Array:
        return jnp.exp(state.hyper.log_noise)

    return Surrogate(
        init, fit, condition_on, posterior, growth, "log_expected_improvement", jnp.float64, noise_variance
    )


def _centre(x: Array) -> Hyperparameters:
    """The means of the priors, for points `x` (N, d)."""
    dim, dtype = x.shape[1], x.dtype
    scale = 0.5 * math.log(dim) - 0.5
    return Hyperparameters(jnp.full(dim, scale, dtype), jnp.zeros((), dtype), jnp.full((), -10.0, dtype))


def negative_log_prior(hyper: Hyperparameters) -> Array:
    """Negative log prior density, up to a constant."""

    def part(value: Array, mean: Array, variance: float) -> Array:
        return jnp.sum((value - mean) ** 2) / (2 * variance)

    parts = jax.tree.map(part, hyper, _centre(hyper.log_length_scales[None]), _PRIOR_VARIANCES)
    return sum(parts, jnp.zeros(()))


def negative_log_likelihood(hyper: Hyperparameters, history: History) -> Array:
    """Negative log marginal likelihood of the responses, up to a constant."""
    root = _root(hyper, history)
    y = jnp.where(history.keep, history.y, 0)
    return 0.5 * jnp.sum(solve_triangular(root, y, lower=True) ** 2) + jnp.sum(jnp.log(jnp.diagonal(root)))


def _descend(start: Hyperparameters, history: History, iterations: int) -> tuple[Hyperparameters, Array]:
    """L-BFGS from `start` -> (end, loss there)."""

    def loss(hyper):
        return negative_log_likelihood(hyper, history) + negative_log_prior(hyper)

    solver = optax.lbfgs(memory_size=8, linesearch=optax.scale_by_zoom_linesearch(max_linesearch_steps=6))
    value_and_grad = optax.value_and_grad_from_state(loss)

    def step(carry):
        count, hyper, state, _ = carry
        value, gradient = value_and_grad(hyper, state=state)
        updates, state = solver.update(gradient, state, hyper, value=value, grad=gradient, value_fn=loss)
        moved = jax.tree.map(jnp.add, hyper, updates)
        return count + 1, moved, state, optax.tree.norm(gradient)

    def unfinished(carry):
        return (carry[0] < iterations) & (carry[3] > _GRADIENT)

    start_carry = (0, start, solver.init(start), jnp.full((), jnp.inf, start.log_scale.dtype))
    _, end, state, _ = jax.lax.while_loop(unfinished, step, start_carry)
    return end, optax.tree.get(state, "value")


def kernel(hyper: Hyperparameters, a: Array, b: Array) -> Array:
    """C + s k(a, b): (n, d), (m, d) -> (n, m)."""
    scales = jnp.exp(-hyper.log_length_scales)
    return _MEAN_VARIANCE + jnp.exp(hyper.log_scale) * kernels.matern52(a * scales, b * scales)


def _noise(hyper: Hyperparameters, history: History) -> Array:
    """(N,) variances of the responses' noise."""
    estimated = jnp.full(len(history.y), jnp.exp(hyper.log_noise))
    known = estimated if history.noise is None else jnp.where(history.noise < 0, estimated, history.noise)
    return known + _SMALLEST_NOISE


def _root(hyper: Hyperparameters, history: History) -> Array:
    cov = kernels.padded(kernel(hyper, history.x, history.x), history.keep, _noise(hyper, history))
    return cholesky(cov, lower=True)


def _condition(hyper: Hyperparameters, history: History) -> State:
    root = _root(hyper, history)
    whiten = solve_triangular(root, jnp.eye(len(root), dtype=root.dtype), lower=True)
    weights = whiten.T @ (whiten @ jnp.where(history.keep, history.y, 0))
    return State(hyper, jnp.asarray(False), history.x, history.keep, whiten, weights, _noise(hyper, history))


def posterior(state: State) -> Posterior:
    """Posterior over the responses at rows (n, d) of the unit cube."""
    hyper = state.hyper

    def cross(candidates):
        return jnp.where(state.keep, kernel(hyper, candidates, state.x), 0)

    def mean(candidates):
        return cross(candidates) @ state.weights

    def joint(candidates):
        known = cross(candidates)
        part = state.whiten @ known.T
        noise = (jnp.exp(hyper.log_noise) + _SMALLEST_NOISE) * jnp.eye(len(candidates), dtype=known.dtype)
        return Predictive(known @ state.weights, kernel(hyper, candidates, candidates) - part.T @ part, noise)

    def draw(key):
        prior, noisy = _prior_draw(key, hyper, state.x.shape[1])
        error = jnp.sqrt(state.noise) * jax.random.normal(noisy, state.keep.shape)
        change = state.whiten.T @ (state.whiten @ jnp.where(state.keep, prior(state.x) + error, 0))
        return lambda candidates: prior(candidates) + cross(candidates) @ (state.weights - change)

    return Posterior(mean, joint, draw)


def _prior_draw(key: Key, hyper: Hyperparameters, dim: int):
    """(a function drawn from the prior, an unused key), by random Fourier features with Student-t frequencies."""
    normals, chi, phases, weights, constant, rest = jax.random.split(key, 6)
    spread = jnp.sqrt(5 / (2 * jax.random.gamma(chi, 2.5, (_FEATURES, 1))))
    frequencies = jax.random.normal(normals, (_FEATURES, dim)) * spread * jnp.exp(-hyper.log_length_scales)
    shifts = 2 * math.pi * jax.random.uniform(phases, (_FEATURES,))
    amplitudes = jnp.sqrt(2 / _FEATURES * jnp.exp(hyper.log_scale)) * jax.random.normal(weights, (_FEATURES,))
    offset = math.sqrt(_MEAN_VARIANCE) * jax.random.normal(constant)
    return (lambda x: offset + jnp.cos(x @ frequencies.T + shifts) @ amplitudes), rest
