"""The acquisition maximized: the best candidates climb in the continuous columns."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seqdec.bo.acquisition import failures, optimum
from seqdec.bo.model import Trials, program
from seqdec.bo.search.candidates import Region, Search, is_new
from seqdec.bo.surrogates.contract import Surrogate
from seqdec.core import Acquisition, Array, Key
from seqdec.optim.common import promoting


class Plan(NamedTuple):
    """Static, hashable arguments of the compiled programs."""

    surrogate: Surrogate
    acquisition: Callable[[Any], Acquisition]
    """(`acquisition.feasibility.Incumbent`, with several outputs `Target` there) -> acquisition"""
    smooth: bool
    """Whether scores with one key are smooth, for gradient ascent."""
    search: Search


class Ranked(NamedTuple):
    """Candidates, then the ends of the ascents."""

    points: np.ndarray
    """(n + s, d)"""
    scores: np.ndarray
    """(n + s,)"""
    starts: np.ndarray
    """(s,) candidates where ascents started"""


def rank(
    plan: Plan, key: Key, state: Any, target: Any, trials: Trials, region: Region, points: np.ndarray, free: np.ndarray
) -> Ranked:
    """Score candidates `points` (n, d) and ascend from the best in the columns `free` (n, d).

    `target`: see `Plan`.
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
    return np.where(np.isfinite(scores), scores, -np.inf)


def best_new(ranked: Ranked, known: np.ndarray) -> np.ndarray | None:
    """The best point that is none of `known` (m, d); None where all are."""
    for index in np.argsort(-ranked.scores, kind="stable"):
        if is_new(ranked.points[index], known):
            return ranked.points[index].astype(float)
    return None


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
    """(points (s, d), scores (s,)): the best on each path of projected Adam in the `free` columns (s, d)."""
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
    posterior, acquisition = plan.surrogate.posterior(state), plan.acquisition(target)
    if acquisition.needs == "draw":
        drawn = posterior.draw(key)  # once for all candidates: a draw reads the whole belief
        posterior = posterior._replace(draw=lambda key: drawn)

    def one(key: Key, x: Array) -> Array:
        score = failures.cautious(acquisition.score(key, posterior, x[None], None)[0], trials.success, x)
        return optimum.preferred(score, trials.optimum, x)

    return one
