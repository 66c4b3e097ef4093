"""The acquisition maximized: the best candidates go on by steps, then climb in the continuous columns."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.bo.acquisition import failures, optimum
from seqdec.bo.model import Trials, program
from seqdec.bo.search.candidates import Box, Region, Search, is_new, stepped
from seqdec.bo.space.space import Point, Space
from seqdec.bo.surrogates.contract import Surrogate
from seqdec.core import Acquisition, Array, Key

_STEPS = 6
"""Most steps of discrete parameters."""
_BLOCKS = 3
"""Blocks in which the candidates are scored; a step tries one."""
_ASCENTS = 2
"""Ascents, where the first leave the space."""
_HALVINGS = 20
_CLIMBING = 4
"""Points that climb at a time, and to the top."""
_FIRST = 10
"""Most steps before these are chosen."""
_RATES = 0.05, 0.02
"""Of the first steps and of further ones."""


class Plan(NamedTuple):
    """Static, hashable arguments of the compiled programs."""

    surrogate: Surrogate
    acquisition: Callable[[Any], Acquisition]
    """(`acquisition.feasibility.Incumbent`, with several outputs `Target` there) -> acquisition"""
    smooth: bool
    """Whether scores with one key are smooth, for gradient ascent."""
    search: Search


class Climber(NamedTuple):
    """The acquisition as a function on the host."""

    score: Callable[[np.ndarray], np.ndarray]
    """points (n, columns) -> (n,); compiled for each n"""
    climb: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]] | None
    """(points (n, columns), columns that may move (n, columns)) -> (ends (n, columns), scores (n,)); None: it has no
    gradient
    """


def maximize(
    by: Climber, space: Space, search: Search, box: Box, pool: np.ndarray, known: np.ndarray, rng: np.random.Generator
) -> Point | None:
    """The best point found that is none of `known` (m, columns), from `pool` (n, columns); None where all are known.

    The best points go on by steps of one discrete parameter while these improve, then climb in the continuous columns;
    an ascent that leaves the space is cut off there.
    """
    block = -(-len(pool) // _BLOCKS)
    points, scores, seen = pool[:0], np.zeros(0), set[bytes]()

    def scored(more: np.ndarray) -> np.ndarray:
        rows = np.resize(more, (-(-len(more) // block) * block, space.columns))
        parts = np.split(rows, range(block, len(rows), block)) if len(rows) else []
        return np.concatenate([np.zeros(0), *map(by.score, parts)])[: len(more)]

    def add(more: np.ndarray, values: np.ndarray | None = None) -> None:
        nonlocal points, scores
        if len(space.moves):  # elsewhere points hardly repeat
            keys = [row.tobytes() for row in more]
            fresh = [i for i, key in enumerate(keys) if key not in seen and not seen.add(key)]
            more, values = more[fresh], None if values is None else values[fresh]
        values = scored(more) if values is None else values
        points, scores = np.concatenate([points, more]), np.concatenate([scores, values])

    def order() -> np.ndarray:
        return np.argsort(-scores, kind="stable")

    add(pool)
    for _ in range(0 if search.grid or not len(space.moves) else _STEPS):
        best = scores.max()
        add(stepped(space, box, points[order()], block, rng))
        if scores.max() <= best:
            break
    for _ in range(_ASCENTS):
        if by.climb is None:
            break
        starts = points[order()[: search.num_restarts]]
        ends, values = by.climb(starts, space.active(starts)[:, space.owners] & space.continuous)
        settled, _, good = space.settled(ends, box.fixed)
        add(settled[good], values[good])
        if not np.any(values[~good] > scores.max()):
            break
        add(_last_inside(space, box, starts[~good], ends[~good]))
    for index in order():
        if is_new(points[index], known) and (point := space.point_at(points[index], box.fixed)) is not None:
            return point
    return None


def _last_inside(space: Space, box: Box, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """(n, columns) the last points of the space on the ways from `starts`, which are, to `ends`; by bisection."""
    low, high, last = np.zeros((len(starts), 1)), np.ones((len(starts), 1)), starts
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        at, _, inside = space.settled(starts + middle * (ends - starts), box.fixed)
        good = inside[:, None]
        low, high, last = np.where(good, middle, low), np.where(good, high, middle), np.where(good, at, last)
    return last


def climber(
    plan: Plan, numbers: tuple[int, ...], state: Any, target: Any, trials: Trials, region: Region, columns: int
) -> Climber:
    """The acquisition of a state; `columns`: of the points, to which the surrogate's others are added as zeros.

    `numbers`: from which all that is random follows; `target`: see `Plan`.
    """
    dtype, more, calls = trials.x.dtype, trials.x.shape[1] - columns, itertools.count()

    def rows(points: np.ndarray) -> np.ndarray:
        return np.pad(points, [(0, 0)] * (points.ndim - 1) + [(0, more)]).astype(dtype)

    def scored(points: np.ndarray) -> np.ndarray:
        own = _key(*numbers) if plan.smooth else _key(*numbers, next(calls))
        return _finite(score(plan, own, state, target, trials, rows(points)))

    def climbed(points: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        limits, free = Region(*map(rows, region)), np.pad(free, ((0, 0), (0, more)))
        ends, scores = climb(plan, _key(*numbers), state, target, trials, limits, rows(points), free)
        return np.asarray(ends, float)[:, :columns], _finite(scores)

    can = plan.smooth and plan.search.steps and not plan.search.grid
    return Climber(scored, climbed if can else None)


def _key(*numbers: int) -> Key:
    """Of numbers, without a program that would be compiled."""
    data: Any = np.random.SeedSequence(numbers).generate_state(2)
    return jax.random.wrap_key_data(data, impl="threefry2x32")


def _finite(scores: Any) -> np.ndarray:
    return np.where(np.isfinite(scores), scores, -np.inf)


@program
def score(plan: Plan, key: Key, state: Any, target: Any, trials: Trials, points: Array) -> Array:
    """(n,) scores of `points` (n, d), given what to exceed."""
    one = _scorer(plan, key, state, target, trials)
    if plan.smooth:  # the key is not batched, so that a function is drawn once
        return jax.vmap(one, (None, 0))(key, points)
    return jax.vmap(one)(jax.random.split(key, len(points)), points)


@program
def climb(
    plan: Plan, key: Key, state: Any, target: Any, trials: Trials, region: Region, points: Array, free: Array
) -> tuple[Array, Array]:
    """(points (s, d), scores (s,)): the best on each path in the `free` columns (s, d), those of `points` included.

    All take a few steps of projected Adam, then the best ones the steps of `Search`, a few points at a time.
    """
    width, count = region.high - region.low, min(_CLIMBING, len(points))
    ascent = jax.vmap(jax.value_and_grad(functools.partial(_scorer(plan, key, state, target, trials), key)))

    def turn(turn, ends):
        points, scores = ends
        is_last = turn == -(-len(points) // count)
        rows = jnp.where(is_last, jax.lax.top_k(scores, count)[1], (turn * count + jnp.arange(count)) % len(points))
        steps = jnp.where(is_last, plan.search.steps, min(_FIRST, plan.search.steps))
        rate = jnp.where(is_last, _RATES[1], _RATES[0]).astype(points.dtype)

        def step(number, carry):
            at, mean, square, top, best = carry
            values, gradient = ascent(at)
            higher = values > best
            top, best = jnp.where(higher[:, None], at, top), jnp.where(higher, values, best)
            gradient = jnp.where(free[rows] & jnp.isfinite(gradient), gradient * width[None], 0)
            mean, square = 0.8 * mean + 0.2 * gradient, 0.95 * square + 0.05 * gradient**2
            part = jnp.astype(number, at.dtype)
            size = rate / 2 * (1 + jnp.cos(math.pi * part / steps)) * jnp.sqrt(1 - 0.95 ** (part + 1))
            change = size / (1 - 0.8 ** (part + 1)) * mean / (jnp.sqrt(square) + 1e-8)
            return jnp.clip(at + width[None] * change, region.low[None], region.high[None]), mean, square, top, best

        at, zeros = points[rows], jnp.zeros((count, points.shape[1]), points.dtype)
        start = at, zeros, zeros, at, jnp.full(count, -jnp.inf, points.dtype)
        *_, top, best = jax.lax.fori_loop(0, steps + 1, step, start)
        return points.at[rows].set(top), scores.at[rows].set(best)

    turns = 1 + -(-len(points) // count)
    return jax.lax.fori_loop(0, turns, turn, (points, jnp.full(len(points), -jnp.inf, points.dtype)))


def _scorer(plan: Plan, key: Key, state: Any, target: Any, trials: Trials) -> Callable[[Key, Array], Array]:
    posterior, acquisition = plan.surrogate.posterior(state), plan.acquisition(target)
    if acquisition.needs == "draw":
        drawn = posterior.draw(key)  # once for all candidates: a draw reads the whole belief
        posterior = posterior._replace(draw=lambda key: drawn)

    def one(key: Key, x: Array) -> Array:
        score = failures.cautious(acquisition.score(key, posterior, x[None], None)[0], trials.success, x)
        return optimum.preferred(score, trials.optimum, x)

    return one
