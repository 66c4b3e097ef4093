"""The next point to evaluate: the acquisition maximised over the unit cube, in one compiled program.

Candidates are a Sobol sequence, freshly shifted, in the region of search, and perturbations of the best points so far
on several scales. The best of them start a projected gradient ascent in the continuous columns, side by side; what has
no gradient, integers and categories, is searched by the candidates alone. Points known already are out.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seqdec.bo.spaces import Space
from seqdec.bo.surrogates import History, Surrogate
from seqdec.core import Acquisition, Array, Key

_INCUMBENTS = 4
_SCALES = (0.2, 0.05, 0.0125, 0.003)
_MOVED = 20
"""Columns that a perturbation moves, on average, where there are more."""
_SAME = 1e-6
"""Two points nearer than this in every column of the cube are the same."""
_FAILURE_RADIUS = 0.1


class Search(NamedTuple):
    """How the acquisition is maximised."""

    raw_samples: int = 512
    """Points of the Sobol sequence, a power of two; half as many perturbations of the best points join them."""
    num_restarts: int = 16
    """Candidates from which an ascent starts; at most `raw_samples`."""
    steps: int = 60
    """Steps of each ascent; 0 for none."""
    grid: bool = False
    """Only the Sobol points, scrambled with seed 0, for every query, from the first on and without ascent: the paper's
    setting, and the very points of its experiments."""
    repeats: bool = False
    """Whether a point may be suggested again, as in the paper's setting."""


class Plan(NamedTuple):
    """What a program is compiled for; hashable."""

    space: Space
    surrogate: Surrogate
    acquisition: Callable[[Array], Acquisition]
    """(best response so far) -> acquisition"""
    smooth: bool
    """Whether one key makes one function of the score, which can be climbed."""
    search: Search


class Trials(NamedTuple):
    """All points known, one after the other: answered, pending, failed; padded to N rows."""

    x: Array
    """(N, d)"""
    y: Array
    """(N,) standardised responses of the answered ones"""
    answered: Array
    """() int32, how many"""
    pending: Array
    """() int32"""
    failed: Array
    """() int32"""


class Region(NamedTuple):
    """The box of the cube to search."""

    low: Array
    """(d,)"""
    high: Array
    """(d,)"""


@functools.cache
def sobol(count: int, columns: int, scramble: bool = False) -> np.ndarray:
    """(count, columns) points of the unit cube, as even as they get; `count` a power of two. Scrambled: by seed 0."""
    from scipy.stats import qmc

    by: Any = {"seed": 0}  # the stubs know only `rng`, of which the generator is another
    return qmc.Sobol(columns, scramble=scramble, **by).random(count)


@functools.partial(jax.jit, static_argnums=0)
def start(plan: Plan, key: Key, history: History) -> Any:
    """The surrogate before it has seen anything."""
    return plan.surrogate.init(key, history)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def suggest(plan: Plan, key: Key, state: Any, trials: Trials, region: Region, grid: Array) -> tuple[Any, Array, Array]:
    """(state, next point (d,), whether it is a new one): fit, then maximise."""
    surrogate, known = plan.surrogate, History(trials.x, trials.y, trials.answered)
    state = surrogate.fit(state, known)

    def believe(state: Any) -> Any:
        expected = surrogate.posterior(state).mean(trials.x)
        rows = jnp.arange(len(trials.y))
        history = History(
            trials.x, jnp.where(rows < trials.answered, trials.y, expected), trials.answered + trials.pending
        )
        return surrogate.condition_on(state, history)

    imagined = jax.lax.cond(trials.pending > 0, believe, lambda state: state, state)
    point, new = _maximise(plan, key, imagined, trials, region, grid)
    return state, point, new


def _maximise(plan: Plan, key: Key, state: Any, trials: Trials, region: Region, grid: Array) -> tuple[Array, Array]:
    ask, shift, perturb, acquire = plan.surrogate.posterior(state), *jax.random.split(key, 3)
    keep = jnp.arange(len(trials.x)) < trials.answered + trials.pending
    means = jnp.where(keep, ask.mean(trials.x), -jnp.inf)
    acquisition = plan.acquisition(jnp.max(means))
    if acquisition.needs == "draw":
        drawn = ask.draw(acquire)  # here once, for a draw passes over the whole belief
        ask = ask._replace(draw=lambda key: drawn)

    def score(key: Key, x: Array) -> Array:
        value = acquisition.score(key, ask, x[None], None)[0]
        return value + _log_feasibility(x, trials)

    if plan.search.grid:
        pool = plan.space.snap(grid)
    else:
        pool = _candidates(plan.space, shift, perturb, trials, means, region, grid)
    if plan.smooth:  # one key, not copies of it: a function drawn once, not once for each candidate
        scores = jax.vmap(score, (None, 0))(acquire, pool)
    else:
        scores = jax.vmap(score)(jax.random.split(acquire, len(pool)), pool)
    if plan.smooth and plan.search.steps and not plan.search.grid:
        _, first = jax.lax.top_k(scores, plan.search.num_restarts)
        climbed = _climb(lambda x: score(acquire, x), pool[first], region, plan)
        pool = jnp.concatenate([pool, climbed])
        scores = jnp.concatenate([scores, jax.vmap(score, (None, 0))(acquire, climbed)])
    return _best_new(pool, jnp.where(jnp.isfinite(scores), scores, -jnp.inf), trials, plan.search.repeats)


def _best_new(pool: Array, scores: Array, trials: Trials, repeats: bool) -> tuple[Array, Array]:
    """The point with the largest score that is not known, and whether there is one; with `repeats`, known or not."""

    def is_taken(scores: Array) -> Array:
        best = jnp.argmax(scores)
        return (scores[best] > -jnp.inf) & ~_is_new(pool[best], trials)

    # Nearly always the first look is the last one; to look at all points would cost as much as their scores.
    if not repeats:
        scores = jax.lax.while_loop(is_taken, lambda scores: scores.at[jnp.argmax(scores)].set(-jnp.inf), scores)
    point = pool[jnp.argmax(scores)]
    return point, _is_new(point, trials)


def _candidates(space, shift, perturb, trials, means, region, grid) -> Array:
    """(n, d) points that exist."""
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


def _climb(score: Callable[[Array], Array], points: Array, region: Region, plan: Plan) -> Array:
    """(s, d) points after `steps` of Adam, each projected on the region."""
    free = jnp.asarray(plan.space.continuous)
    solver = optax.chain(
        optax.scale_by_adam(b1=0.8, b2=0.95),
        optax.scale_by_schedule(optax.cosine_decay_schedule(0.05, plan.search.steps)),
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

    return jax.lax.fori_loop(0, plan.search.steps, step, (points, solver.init(points)))[0]


def _log_feasibility(x: Array, trials: Trials) -> Array:
    """Log of the share of answered queries around x, smoothed: keeps away from where queries failed."""
    rows = jnp.arange(len(trials.x))
    answered = rows < trials.answered
    failed = (rows >= trials.answered + trials.pending) & (rows < trials.answered + trials.pending + trials.failed)

    def log_share(x: Array) -> Array:
        weights = jnp.exp(-0.5 * jnp.mean((trials.x - x) ** 2, axis=1) / _FAILURE_RADIUS**2)
        bad = jnp.sum(jnp.where(failed, weights, 0))
        return jnp.log1p(-bad / (bad + jnp.sum(jnp.where(answered, weights, 0)) + 0.1))

    # Without failures it is zero; the distances would cost more than a network's response.
    return jax.lax.cond(trials.failed > 0, log_share, lambda x: jnp.zeros((), x.dtype), x)


def _is_new(x: Array, trials: Trials) -> Array:
    known = jnp.arange(len(trials.x)) < trials.answered + trials.pending + trials.failed
    return ~jnp.any(known & (jnp.max(jnp.abs(trials.x - x), axis=1) < _SAME))
