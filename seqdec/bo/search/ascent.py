"""The next point to evaluate: the acquisition maximised over the unit cube.

Candidates are a randomly shifted Sobol sequence in the search region, and perturbations of the best points so far on
several scales. Projected gradient ascent in the continuous columns runs from the best of them in parallel; integers and
categories, which have no gradient, are searched by the candidates alone. Known points are excluded. The host chooses
the candidates, so that the compiled programs depend on the number of columns only, not on the space. For a space with
conditions or constraints see `seqdec.bo.search.restricted`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seqdec import checks
from seqdec.bo.acquisition import failures
from seqdec.bo.space.spaces import Space
from seqdec.bo.surrogates.contract import History, Surrogate
from seqdec.core import Acquisition, Array, Key
from seqdec.optim.common import promoting
from seqdec.registry import spelled_fields
from seqdec.runtime import UNFUSED

INCUMBENTS = 4
"""Best points so far that are perturbed."""
_SCALES = (0.2, 0.05, 0.0125, 0.003)
_MOVED = 20
"""Average number of columns that a perturbation changes, at most."""
_REDRAWN = 0.2
"""Probability that a perturbation draws a dimension that is not continuous anew."""
SAME = 1e-6
"""Points that differ by less in every column of the cube are equal."""

_program = functools.partial(jax.jit, static_argnums=0, compiler_options=UNFUSED)


@spelled_fields
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
    repeats: bool | None = None
    """Whether a point may be suggested again, as in the paper's setting; None: where all points of a finite space have
    been suggested, if the values are noisy, see `seqdec.bo.BayesianOptimizer.recommend`."""


class Plan(NamedTuple):
    """Static arguments of the compiled programs; hashable."""

    surrogate: Surrogate
    acquisition: Callable[[Any], Acquisition]
    """(`seqdec.bo.acquisition.feasibility.Incumbent`) -> acquisition; with several outputs (`Target` there) -> acquisition"""
    smooth: bool
    """Whether scores with one key are a smooth function, so that gradient ascent applies."""
    search: Search


class Trials(NamedTuple):
    """All known points in the order answered, pending, failed; padded to N rows."""

    x: Any
    """(N, d)"""
    y: Any
    """(N,) standardised responses of the answered points; with m outputs (N, m), here and below"""
    answered: Any
    """() int32, their number"""
    pending: Any
    """() int32"""
    failed: Any
    """() int32"""
    noise: Any = None
    """(N,) as in `History`"""
    success: Any = None
    """posterior of `seqdec.bo.acquisition.failures`; None where failures do not depend on the point as far as is known"""


class Region(NamedTuple):
    """The box of the unit cube to search."""

    low: np.ndarray
    """(d,)"""
    high: np.ndarray
    """(d,)"""


class Belief(NamedTuple):
    """What candidates are scored by."""

    state: Any
    """of the surrogate, pending points included"""
    means: np.ndarray
    """(n,) at the answered and pending points"""


class Ranked(NamedTuple):
    """Scored points: candidates, then the ends of the ascents."""

    points: np.ndarray
    """(n + s, d)"""
    scores: np.ndarray
    """(n + s,)"""
    starts: np.ndarray
    """(s,) the candidates from which the ascents started"""


def check_search(search: Search) -> Search:
    """`search` with Python numbers. Raises TypeError or ValueError for what is of another type or out of range."""
    if not isinstance(search, Search):
        raise TypeError(f"search must be a seqdec.bo.Search; got {search!r}")
    raw_samples = checks.count("raw_samples", search.raw_samples)
    search = search._replace(
        raw_samples=raw_samples,
        num_restarts=checks.count("num_restarts", search.num_restarts),
        steps=checks.count("steps", search.steps, 0),
        grid=checks.flag("grid", search.grid),
        repeats=None if search.repeats is None else checks.flag("repeats", search.repeats),
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


def fit(surrogate: Surrogate, key: Key, state: Any, trials: Trials) -> Any:
    """The state fitted to the answered points; from the prior, with the key, if `state` is None."""
    history = History(trials.x, trials.y, trials.answered, trials.noise)
    return surrogate.fit(surrogate.init(key, history) if state is None else state, history)


def believe(surrogate: Surrogate, state: Any, trials: Trials) -> Belief:
    """The belief of a fitted state, conditioned on the pending points, with their expected values, as well."""
    expected, count = np.asarray(means(surrogate, state, trials.x)), int(trials.answered + trials.pending)
    if not trials.pending:
        return Belief(state, expected[:count])
    y = np.concatenate([trials.y[: trials.answered], expected[trials.answered :]])
    state = surrogate.condition_on(state, History(trials.x, y, np.int32(count), trials.noise))
    return Belief(state, np.asarray(means(surrogate, state, trials.x))[:count])


def candidates(space: Space, search: Search, region: Region, incumbents: np.ndarray, rng: np.random.Generator) -> Any:
    """(n, d) encodings of points of a space, in the region and around `incumbents` (k, d)."""
    grid = sobol(search.raw_samples, space.columns, search.grid)
    if search.grid:
        return space.snap(np.clip(grid, *region))
    even = region.low + (region.high - region.low) * ((grid + rng.random(space.columns)) % 1)
    near = perturbed(space, region, incumbents[rng.integers(len(incumbents), size=len(grid) // 2)], rng)
    return space.snap(np.concatenate([even, np.clip(near, *region)]))


def perturbed(space: Space, region: Region, centres: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n, d): a perturbation of each of the points `centres` (n, d), on one of several scales."""
    shape = centres.shape
    moved = rng.random(shape) < rng.uniform(1 / shape[1], min(1.0, _MOVED / shape[1]), (shape[0], 1))
    scales = np.resize(_SCALES, (shape[0], 1)) * (region.high - region.low)
    rows = centres + np.where(moved, scales * rng.normal(size=shape), 0)
    for dimension, columns in zip(space.dimensions, space.slices, strict=True):
        if not dimension.continuous:
            redrawn = rng.random(shape[0]) < _REDRAWN
            rows[redrawn, columns] = rng.random((shape[0], columns.stop - columns.start))[redrawn]
    return rows


def rank(
    plan: Plan, key: Key, state: Any, target: Any, trials: Trials, region: Region, points: np.ndarray, free: np.ndarray
) -> Ranked:
    """Score candidates `points` (n, d) and ascend from the best of them in the columns `free` (n, d).

    `target` is what the acquisition is to exceed, see `Plan`.
    """
    points = points.astype(trials.x.dtype)
    scores = _finite(score(plan, key, state, target, trials, points))
    if not (plan.smooth and plan.search.steps) or plan.search.grid:
        return Ranked(points, scores, np.zeros(0, int))
    starts = np.argsort(-scores, kind="stable")[: plan.search.num_restarts]
    limits = Region(*(side.astype(points.dtype) for side in region))
    ends, higher = climb(plan, jax.random.clone(key), state, target, trials, limits, points[starts], free[starts])
    return Ranked(np.concatenate([points, ends]), np.concatenate([scores, _finite(higher)]), starts)


def _finite(scores: Any) -> np.ndarray:
    """The scores, the lowest possible ones where they are not finite."""
    return np.where(np.isfinite(scores), scores, -np.inf)


def best_new(ranked: Ranked, known: np.ndarray) -> np.ndarray | None:
    """The point with the best score that is none of `known` (m, d); None where all are."""
    for index in np.argsort(-ranked.scores, kind="stable"):
        if is_new(ranked.points[index], known):
            return ranked.points[index].astype(float)
    return None


def is_new(point: np.ndarray, known: np.ndarray) -> bool:
    """Whether a point (d,) is none of `known` (m, d)."""
    return not np.any(np.abs(known - point).max(axis=1, initial=0) < SAME)


@_program
def means(surrogate: Surrogate, state: Any, x: Array) -> Array:
    """(n,) means of the function at rows `x` (n, d), in warped units."""
    return surrogate.posterior(state).mean(x)


@_program
def marginals(surrogate: Surrogate, state: Any, x: Array) -> tuple[Array, Array]:
    """((n,) means, (n,) standard deviations) of the function at rows `x` (n, d), in warped units."""
    posterior = surrogate.posterior(state)
    at = jax.vmap(lambda row: posterior.joint(row[None]))(x)
    return at.mean[:, 0], jnp.sqrt(jnp.maximum(at.cov[:, 0, 0], 0))


@_program
def score(plan: Plan, key: Key, state: Any, target: Any, trials: Trials, points: Array) -> Array:
    """(n,) scores of `points` (n, d), given what the acquisition is to exceed."""
    one = _scorer(plan, key, state, target, trials)
    if plan.smooth:  # the key is not batched, so that a function is drawn once
        return jax.vmap(one, (None, 0))(key, points)
    return jax.vmap(one)(jax.random.split(key, len(points)), points)


@_program
def climb(
    plan: Plan, key: Key, state: Any, target: Any, trials: Trials, region: Region, points: Array, free: Array
) -> tuple[Array, Array]:
    """(points (s, d), scores (s,)): the best on each path of Adam from `points`, in the `free` columns (s, d).

    Each step is projected onto the region.
    """
    steps = plan.search.steps
    adam, rate = optax.scale_by_adam(b1=0.8, b2=0.95), optax.cosine_decay_schedule(0.05, steps)
    solver = promoting(optax.chain(adam, optax.scale_by_schedule(rate)))
    width = region.high - region.low
    ascent = jax.vmap(jax.value_and_grad(functools.partial(_scorer(plan, key, state, target, trials), key)))

    def step(_, carry):
        points, state, top, scores = carry
        values, gradient = ascent(points)
        higher = values > scores
        top, scores = jnp.where(higher[:, None], points, top), jnp.where(higher, values, scores)
        gradient = jnp.where(free & jnp.isfinite(gradient), gradient * width[None], 0)
        updates, state = solver.update(gradient, state)
        points = points + width[None] * jnp.asarray(updates)
        return jnp.clip(points, region.low[None], region.high[None]), state, top, scores

    lowest = jnp.full(len(points), -jnp.inf, points.dtype)
    _, _, top, scores = jax.lax.fori_loop(0, steps + 1, step, (points, solver.init(points), points, lowest))
    return top, scores


def _scorer(plan: Plan, key: Key, state: Any, target: Any, trials: Trials) -> Callable[[Key, Array], Array]:
    """(key, point (d,)) -> score."""
    posterior, acquisition = plan.surrogate.posterior(state), plan.acquisition(target)
    if acquisition.needs == "draw":
        drawn = posterior.draw(key)  # once for all candidates: a draw reads the whole belief
        posterior = posterior._replace(draw=lambda key: drawn)

    def one(key: Key, x: Array) -> Array:
        return failures.cautious(acquisition.score(key, posterior, x[None], None)[0], trials.success, x)

    return one
