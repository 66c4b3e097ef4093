"""The next point to evaluate: the acquisition maximised over the unit cube, in one compiled program.

Candidates are a randomly shifted Sobol sequence in the search region, and perturbations of the best points so far on
several scales. Projected gradient ascent in the continuous columns runs from the best of them in parallel; integers and
categories, which have no gradient, are searched by the candidates alone. Known points are excluded. Of a space with
conditions or constraints the candidates come from the host (see `seqdec.bo.restricted`), and all are returned with
their scores.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seqdec import checks
from seqdec.bo.spaces import Space
from seqdec.bo.surrogates import History, Surrogate
from seqdec.core import Acquisition, Array, Key

_INCUMBENTS = 4
_SCALES = (0.2, 0.05, 0.0125, 0.003)
_MOVED = 20
"""Average number of columns that a perturbation changes, at most."""
SAME = 1e-6
"""Points that differ by less in every column of the cube are equal."""
_FAILURE_RADIUS = 0.1


class Search(NamedTuple):
    """How the acquisition is maximised."""

    raw_samples: int = 512
    """Points of the Sobol sequence, a power of two; half as many perturbations of the best points are added."""
    num_restarts: int = 16
    """Number of best candidates from which an ascent starts; at most `raw_samples`."""
    steps: int = 60
    """Steps of each ascent; 0 for none."""
    grid: bool = False
    """Whether all queries choose from the same Sobol points, scrambled with seed 0, without ascent: setting and
    points of the paper's experiments."""
    repeats: bool = False
    """Whether a point may be suggested again, as in the paper's setting."""


class Plan(NamedTuple):
    """Static arguments of the compiled programs; hashable."""

    space: Space
    surrogate: Surrogate
    acquisition: Callable[[Array], Acquisition]
    """(best response so far) -> acquisition"""
    smooth: bool
    """Whether scores with one key are a smooth function, so that gradient ascent applies."""
    search: Search


class Trials(NamedTuple):
    """All known points in the order answered, pending, failed; padded to N rows."""

    x: Array
    """(N, d)"""
    y: Array
    """(N,) standardised responses of the answered points"""
    answered: Array
    """() int32, their number"""
    pending: Array
    """() int32"""
    failed: Array
    """() int32"""
    noise: Any = None
    """(N,) as in `History`"""


class Region(NamedTuple):
    """The box of the unit cube to search."""

    low: Array
    """(d,)"""
    high: Array
    """(d,)"""


class Pool(NamedTuple):
    """Candidates of a space with conditions or constraints: arrays, of the host or the device."""

    points: Any
    """(n, d)"""
    free: Any
    """(n, d) bool: the continuous columns of active parameters, in which the ascent moves"""
    fit: Any
    """() bool: whether the surrogate is to be fitted first"""


class Ranked(NamedTuple):
    """Scored points: those of the pool, then the ends of the ascents; arrays, of the host or the device."""

    points: Any
    """(n + s, d)"""
    scores: Any
    """(n + s,)"""
    starts: Any
    """(s,) int32: the points of the pool from which the ascents started"""


def check_search(search: Search) -> Search:
    """`search` with Python integers. Raises TypeError or ValueError for what is no integer or out of range."""
    if not isinstance(search, Search):
        raise TypeError(f"search must be a seqdec.bo.Search; got {search!r}")
    raw_samples = checks.count("raw_samples", search.raw_samples)
    search = search._replace(
        raw_samples=raw_samples,
        num_restarts=checks.count("num_restarts", search.num_restarts),
        steps=checks.count("steps", search.steps, 0),
    )
    if raw_samples & (raw_samples - 1):
        raise ValueError(f"raw_samples must be a power of two; got {raw_samples}")
    if search.num_restarts > raw_samples:
        raise ValueError(f"num_restarts must be at most raw_samples={raw_samples}; got {search.num_restarts}")
    return search


@functools.cache
def sobol(count: int, columns: int, scramble: bool = False) -> np.ndarray:
    """(count, columns) points of the unit cube, a Sobol sequence, optionally scrambled with seed 0.

    `count` must be a power of two.
    """
    from scipy.stats import qmc

    by: Any = {"seed": 0}  # the stubs know only `rng`, which uses another generator
    return qmc.Sobol(columns, scramble=scramble, **by).random(count)


@functools.partial(jax.jit, static_argnums=0)
def start(plan: Plan, key: Key, history: History) -> Any:
    """The surrogate's state before any data."""
    return plan.surrogate.init(key, history)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def suggest(plan: Plan, key: Key, state: Any, trials: Trials, region: Region, grid: Array) -> tuple[Any, Array, Array]:
    """(state, next point (d,), whether it is a new one): fit, then maximise."""
    state = plan.surrogate.fit(state, History(trials.x, trials.y, trials.answered, trials.noise))
    ranked = _maximise(plan, key, _with_pending(plan, state, trials), trials, region, grid)
    point, new = _best_new(ranked.points, ranked.scores, trials, plan.search.repeats)
    return state, point, new


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def rank(plan: Plan, key: Key, state: Any, trials: Trials, region: Region, pool: Pool) -> tuple[Any, Ranked]:
    """(state, scored points): fit, then score and improve the candidates of the host."""
    known = History(trials.x, trials.y, trials.answered, trials.noise)
    state = jax.lax.cond(pool.fit, plan.surrogate.fit, lambda state, _: state, state, known)
    return state, _maximise(plan, key, _with_pending(plan, state, trials), trials, region, pool)


def _with_pending(plan: Plan, state: Any, trials: Trials) -> Any:
    """The state conditioned on the pending trials, with their expected values, as well."""
    surrogate = plan.surrogate

    def with_expected(state: Any) -> Any:
        expected = surrogate.posterior(state).mean(trials.x)
        rows = jnp.arange(len(trials.y))
        responses = jnp.where(rows < trials.answered, trials.y, expected)
        history = History(trials.x, responses, trials.answered + trials.pending, trials.noise)
        return surrogate.condition_on(state, history)

    return jax.lax.cond(trials.pending > 0, with_expected, lambda state: state, state)


@functools.partial(jax.jit, static_argnums=0)
def marginals(surrogate: Surrogate, state: Any, x: Array) -> tuple[Array, Array]:
    """((n,) means, (n,) standard deviations) of the function at rows `x` (n, d), in warped units."""
    posterior = surrogate.posterior(state)
    at = jax.vmap(lambda row: posterior.joint(row[None]))(x)
    return at.mean[:, 0], jnp.sqrt(jnp.maximum(at.cov[:, 0, 0], 0))


def _maximise(plan: Plan, key: Key, state: Any, trials: Trials, region: Region, grid: Array | Pool) -> Ranked:
    posterior, (shift, perturb, acquire) = plan.surrogate.posterior(state), jax.random.split(key, 3)
    keep = jnp.arange(len(trials.x)) < trials.answered + trials.pending
    means = jnp.where(keep, posterior.mean(trials.x), -jnp.inf)
    acquisition = plan.acquisition(jnp.max(means))
    if acquisition.needs == "draw":
        drawn = posterior.draw(acquire)  # once for all candidates: a draw reads the whole belief
        posterior = posterior._replace(draw=lambda key: drawn)

    def score(key: Key, x: Array) -> Array:
        value = acquisition.score(key, posterior, x[None], None)[0]
        return value + _log_feasibility(x, trials)

    free = jnp.asarray(plan.space.continuous)
    if isinstance(grid, Pool):
        pool, free = grid.points, grid.free
    elif plan.search.grid:
        pool = plan.space.snap(grid)
    else:
        pool = _candidates(plan.space, shift, perturb, trials, means, region, grid)
    if plan.smooth:  # the key is not batched, so that a function is drawn once
        scores = jax.vmap(score, (None, 0))(acquire, pool)
    else:
        scores = jax.vmap(score)(jax.random.split(acquire, len(pool)), pool)
    first = jnp.zeros(0, jnp.int32)
    if plan.smooth and plan.search.steps and not plan.search.grid:
        _, first = jax.lax.top_k(scores, plan.search.num_restarts)
        free = free[first] if free.ndim == 2 else free
        climbed = _climb(lambda x: score(acquire, x), pool[first], free, region, plan.search.steps)
        pool = jnp.concatenate([pool, climbed])
        scores = jnp.concatenate([scores, jax.vmap(score, (None, 0))(acquire, climbed)])
    return Ranked(pool, jnp.where(jnp.isfinite(scores), scores, -jnp.inf), first)


def _best_new(pool: Array, scores: Array, trials: Trials, repeats: bool) -> tuple[Array, Array]:
    """(point with the largest score among the unknown ones, whether it is unknown); with `repeats` among all."""

    def is_taken(scores: Array) -> Array:
        best = jnp.argmax(scores)
        return (scores[best] > -jnp.inf) & ~_is_new(pool[best], trials)

    # Checked one at a time from the best: nearly always the first is new, and checking all is as costly as scoring.
    if not repeats:
        scores = jax.lax.while_loop(is_taken, lambda scores: scores.at[jnp.argmax(scores)].set(-jnp.inf), scores)
    point = pool[jnp.argmax(scores)]
    return point, _is_new(point, trials)


def _candidates(space, shift, perturb, trials, means, region, grid) -> Array:
    """(n, d) encodings of points of the space."""
    dim = grid.shape[1]
    width = region.high - region.low
    even = region.low + width * ((grid + jax.random.uniform(shift, (dim,), grid.dtype)) % 1)
    _, best = jax.lax.top_k(means, min(_INCUMBENTS, len(means)))
    centres = jnp.repeat(trials.x[best], len(grid) // (2 * len(best)), axis=0)
    scales = jnp.resize(jnp.asarray(_SCALES, grid.dtype), (len(centres), 1))
    which, far = jax.random.split(perturb)
    moved = jax.random.bernoulli(which, min(1.0, _MOVED / dim), centres.shape)
    near = centres + jnp.where(moved, scales * width * jax.random.normal(far, centres.shape, grid.dtype), 0)
    near = jnp.clip(near, region.low, region.high)
    return space.snap(jnp.concatenate([even, near]))


def _climb(score: Callable[[Array], Array], points: Array, free: Array, region: Region, steps: int) -> Array:
    """(s, d) points after `steps` of Adam in the `free` columns, (d,) or (s, d), each projected onto the region."""
    solver = optax.chain(
        optax.scale_by_adam(b1=0.8, b2=0.95),
        optax.scale_by_schedule(optax.cosine_decay_schedule(0.05, steps)),
    )
    width = region.high - region.low
    ascent = jax.vmap(jax.grad(score))

    def step(_, carry):
        points, state = carry
        gradient = jnp.where(free, ascent(points) * width, 0)
        updates, state = solver.update(jnp.where(jnp.isfinite(gradient), gradient, 0), state)
        moved = points + width * jnp.asarray(updates)
        points = optax.projections.projection_box(moved, region.low, region.high)
        return points, state

    return jax.lax.fori_loop(0, steps, step, (points, solver.init(points)))[0]


def _log_feasibility(x: Array, trials: Trials) -> Array:
    """Log of the smoothed share of answered queries around x, which lowers scores near failed ones."""
    rows = jnp.arange(len(trials.x))
    answered = rows < trials.answered
    failed = (rows >= trials.answered + trials.pending) & (rows < trials.answered + trials.pending + trials.failed)

    def log_share(x: Array) -> Array:
        weights = jnp.exp(-0.5 * jnp.mean((trials.x - x) ** 2, axis=1) / _FAILURE_RADIUS**2)
        bad = jnp.sum(jnp.where(failed, weights, 0))
        return jnp.log1p(-bad / (bad + jnp.sum(jnp.where(answered, weights, 0)) + 0.1))

    # Zero without failures; the distances cost more than a forward pass.
    return jax.lax.cond(trials.failed > 0, log_share, lambda x: jnp.zeros((), x.dtype), x)


def _is_new(x: Array, trials: Trials) -> Array:
    known = jnp.arange(len(trials.x)) < trials.answered + trials.pending + trials.failed
    return ~jnp.any(known & (jnp.max(jnp.abs(trials.x - x), axis=1) < SAME))
