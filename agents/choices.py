"""Actions as candidates of a posterior, and feedback as evidence of a learner."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.agents.networks import check_candidates
from seqdec.boundary.checks import count
from seqdec.boundary.spaces import is_sound, moderate, refused_actions, refused_observations, spaces_of
from seqdec.core import Array, HasSpaces, Key, Posterior, PyTree
from seqdec.params import at_least_float32

_WHOLE = 2**24
"""Largest integer up to which float32 represents all."""
_POINTS = 256
"""Default number of points of a box per decision."""
_NEAR = (0.1, 0.01)
"""Standard deviations of further points around the best, in edges of the box."""
_AROUND, _RESOLVED = (0.01, 0.1), 64
"""Least and largest distance of an action from the point chosen, in edges of the box; the least one in roundings."""


class Choices(NamedTuple):
    """Conversion between actions of a space and candidates."""

    candidates: Callable[[Key, PyTree], PyTree]
    """(key, observation) -> inputs of the model, one response per candidate"""
    action: Callable[[PyTree, Array], Array]
    """(candidates, index) -> action"""
    evidence: Callable[[PyTree, Array, Array], tuple[PyTree, Array, Array | None]]
    """(observation, action, feedback) -> x, y, observed of `seqdec.core.Learner.update`"""
    sound: Callable[[PyTree], Array]
    """(observation) -> () bool: numbers are finite and not too large, integers in range"""
    spread: Callable[[Key, PyTree, Array, Array], tuple[Array, Array]] | None = None
    """(key, candidates, law (n,), index drawn from it) -> action near that point, and its density; None: candidates
    are all actions in their order"""


def choices_for(spaces: HasSpaces, num_candidates: int | None = None) -> Choices:
    """`Choices` for Discrete or bounded Box actions, and Box or Discrete observations or a Dict of candidates.

    Raises:
        TypeError: another kind of space, or num_candidates is not an integer.
        ValueError: the action box is unbounded, num_candidates < 1, or it is given for Discrete actions.
    """
    spaces = spaces_of(spaces)
    actions, sound = spaces.action_space, functools.partial(is_sound, spaces.observation_space)
    if num_candidates is not None:
        num_candidates = count("num_candidates", num_candidates)
        if isinstance(actions, gym_spaces.Discrete):
            raise ValueError(
                f"num_candidates={num_candidates} has no effect on {actions}, which are all scored: leave it out"
            )
    if isinstance(spaces.observation_space, gym_spaces.Dict) and isinstance(actions, gym_spaces.Discrete):
        check_candidates(spaces)
        return _of_discrete(lambda observation: jax.tree.map(_wide, observation), sound, int(actions.n))
    observe = _observer(spaces.observation_space)
    if isinstance(actions, gym_spaces.Discrete):
        return _of_discrete(observe, sound, int(actions.n))
    if not isinstance(actions, gym_spaces.Box):
        raise TypeError(refused_actions(actions))
    if not actions.is_bounded():
        raise ValueError(refused_actions(actions))
    whole = actions.low.size and not np.issubdtype(actions.dtype, np.floating)
    if whole and max(-int(actions.low.min()), int(actions.high.max())) > _WHOLE:
        raise ValueError(f"a Box of integers must lie within -{_WHOLE} and {_WHOLE}, for float32; got {actions}")
    return _of_box(observe, sound, actions, _POINTS if num_candidates is None else num_candidates)


def _of_discrete(observe: Callable[[PyTree], Array], sound: Callable[[PyTree], Array], num_actions: int) -> Choices:
    def evidence(observation, action, feedback):
        # JAX would clamp an index out of range silently; with a NaN reward the learner rejects the update.
        feedback = _as_floats(feedback)
        played = sound(observation) & moderate(feedback)
        if feedback.ndim == 1:
            return observe(observation), jnp.where(played, feedback, jnp.nan), None
        index = jnp.asarray(action)
        played &= (index >= 0) & (index < num_actions)
        return observe(observation), jnp.where(played, feedback, jnp.nan), jnp.clip(index, 0, num_actions - 1)

    return Choices(lambda key, observation: observe(observation), lambda candidates, index: index, evidence, sound)


def _of_box(
    observe: Callable[[PyTree], Array], sound: Callable[[PyTree], Array], space: gym_spaces.Box, num_candidates: int
) -> Choices:
    """Uniform points of the box in its dtype; the input is observation and point, concatenated.

    With p_i the law of the n points, u the least p_i, V the volume of the box, and K_i uniform in the box within a
    standard deviation, of the points under p_i - u, around point i, the action a is drawn from

        sum_i (p_i - u) K_i(a) + n u / V

    Of integers, K_i is the point alone, and V the number of points. An edge of no length has no part in volumes.
    """
    dtype = jax.dtypes.canonicalize_dtype(space.dtype)
    whole = not jnp.issubdtype(dtype, jnp.floating)
    low, high = (bound.ravel() for bound in (map(jnp.int32, (space.low, space.high)) if whole else limits(space)))

    def join(observation, points):
        context = jnp.broadcast_to(jnp.ravel(observe(observation)), (len(points), observe(observation).size))
        wide = at_least_float32(context.dtype, points.dtype)
        return jnp.concatenate([context.astype(wide), points.astype(wide)], axis=1)

    def candidates(key, observation):
        shape = (num_candidates, low.size)
        if whole:
            bounds = (jnp.broadcast_to(bound, shape) for bound in (low, high + 1))
            return join(observation, jax.random.randint(key, shape, *bounds))
        return join(observation, jax.random.uniform(key, shape, minval=low, maxval=high).astype(dtype))

    def evidence(observation, action, feedback):
        response = jnp.atleast_1d(_as_floats(feedback))
        response = jnp.where(sound(observation) & moderate(response), response, jnp.nan)
        return join(observation, jnp.ravel(action)[None]), response, None

    def of(point):
        return point.reshape(space.shape).astype(dtype)

    def action(rows, index):
        return of(rows[index, rows.shape[1] - low.size :])

    least, most = np.asarray(low, float), np.asarray(high, float)
    edges = np.ones(low.size) if whole else np.where(most > least, most - least, 1)
    volume, nearest = float(np.prod(most - least + 1 if whole else edges)), _AROUND[0] * edges
    rounding = 0.0 if whole else _RESOLVED * float(jnp.finfo(dtype).eps) * np.maximum(np.abs(least), np.abs(most))
    known = 1.0 if np.all((rounding <= nearest) | (least == most)) else np.nan

    def spread(key, rows, law, index):
        explore, far, close = jax.random.split(key, 3)
        points, floor = rows[:, rows.shape[1] - low.size :].astype(jnp.float32), jnp.min(law)
        ends = [jnp.broadcast_to(bound, points.shape).astype(jnp.float32) for bound in (low, high)]
        share = (law - floor) / jnp.maximum(jnp.sum(law - floor), 1e-30)
        std = jnp.sqrt(share @ (points - (share @ points)[None]) ** 2)
        half = jnp.fmin(jnp.fmax(std, nearest), _AROUND[1] * edges) * (not whole)  # also where the law is NaN
        lows, highs = (jnp.clip(points + side[None], *ends) for side in (-half, half))
        lengths = jnp.where((highs > lows) & (not whole), highs - lows, 1)
        draw = jax.random.randint if whole else jax.random.uniform
        other = draw(far, low.shape, minval=low, maxval=high + whole)
        near = jax.random.uniform(close, low.shape, minval=lows[index], maxval=highs[index])
        point = jnp.where(jax.random.bernoulli(explore, floor / law[index]), other, near)
        inside = jnp.all((lows <= point[None]) & (point[None] <= highs), axis=1)
        density = jnp.sum(jnp.where(inside, (law - floor) / jnp.prod(lengths, axis=1), 0)) + len(law) * floor / volume
        return of(point), known * density

    return Choices(candidates, action, evidence, sound, spread)


def near_best(choices: Choices, question: Posterior, space: gym_spaces.Box) -> Choices:
    """`choices` with as many points again near the best mean, within a tenth, then a hundredth of the box."""
    low, high = (bound.ravel()[None] for bound in limits(space))
    whole, size = not np.issubdtype(space.dtype, np.floating), low.size
    if not size:
        return choices

    def candidates(key, observation):
        offer, *keys = jax.random.split(key, 3)
        rows = choices.candidates(offer, observation)
        count = len(rows) // len(keys)
        for key, share in zip(keys, _NEAR, strict=True):
            best = rows[jnp.argmax(question.mean(rows))]
            step = jnp.maximum(share * (high - low), 1.0 if whole else 0.0).astype(rows.dtype)
            points = best[None, -size:] + step * jax.random.normal(key, (count, size), rows.dtype)
            points = jnp.round(points) if whole else points
            points = jnp.clip(points, low.astype(rows.dtype), high.astype(rows.dtype))
            context = jnp.broadcast_to(best[None, :-size], (count, len(best) - size))
            rows = jnp.concatenate([rows, jnp.concatenate([context, points], axis=1)])
        return rows

    return choices._replace(candidates=candidates)


def limits(space: gym_spaces.Box) -> tuple[Array, Array]:
    """Least and largest points of a box of floats in float32."""
    low, high = (bound.astype(np.float32) for bound in (space.low, space.high))
    inner = np.where(low < space.low, np.nextafter(low, np.float32(np.inf)), low)
    outer = np.where(high > space.high, np.nextafter(high, np.float32(-np.inf)), high)
    return jnp.asarray(inner), jnp.asarray(np.maximum(inner, outer))


def _as_floats(feedback: Any) -> Array:
    return jnp.asarray(feedback).astype(float)


def _wide(values: Any) -> Array:
    """Floats with at least 32 bits, for linear algebra; integers unchanged."""
    values = jnp.asarray(values)
    narrow = jnp.issubdtype(values.dtype, jnp.floating) and values.dtype.itemsize < 4
    return values.astype(jnp.float32) if narrow else values


def _observer(space: gym_spaces.Space) -> Callable[[PyTree], Array]:
    if isinstance(space, gym_spaces.Discrete):
        return lambda observation: jax.nn.one_hot(jnp.asarray(observation) - int(space.start), int(space.n))
    if isinstance(space, gym_spaces.Box):
        floating = np.issubdtype(space.dtype, np.floating)
        return _wide if floating else lambda observation: jnp.asarray(observation, jnp.float32)
    raise TypeError(refused_observations(space))
