"""Agents that play what was learned from a log."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.boundary import checks
from seqdec.boundary.spaces import check_context, check_feedback, moderate, spaces_of
from seqdec.core import Action, Agent, Array, Assessment, HasSpaces, Key, Masked, PyTree, Spaces
from seqdec.ope.estimators.continuous import ContinuousLog
from seqdec.ope.log import Log, check_log, inputs
from seqdec.ope.unseen import row_hashes


class Info(NamedTuple):
    """Result of an update, which changes nothing."""

    rejected: Array
    """() bool, always False"""


def spaces_for(name: str, log: Log, spaces: HasSpaces | None, epsilon: float, *, weighted: bool = True) -> Spaces:
    """Spaces of the agent, where the log, with propensities if `weighted`, and the settings allow one."""
    if isinstance(log, ContinuousLog):
        raise TypeError(f"{name} is for a Log of Discrete actions: for a ContinuousLog, take learn_continuous")
    check_log(log)
    count, size = log.mask.shape
    if weighted and not log.known_propensities:
        raise ValueError(
            f"{name} needs propensities and the log has none: estimate them with seqdec.ope.estimate_propensities"
        )
    if count < max(size, 2):
        raise ValueError(
            f"a log of {count} rows is too small to learn a choice among {size} actions: it needs {max(size, 2)} rows"
        )
    checks.concrete("epsilon", epsilon)
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon must lie in [0, 1]; got {epsilon}")
    shape = inputs(log[:1]).shape[1:]
    if spaces is None:
        return Spaces(gym_spaces.Box(-np.inf, np.inf, shape, np.float32), gym_spaces.Discrete(size))
    seen, actions = own = spaces_of(spaces)
    if not isinstance(seen, gym_spaces.Box) or not isinstance(actions, gym_spaces.Discrete):
        raise TypeError(f"spaces must have Box observations and Discrete actions; got {seen} and {actions}")
    if math.prod(seen.shape) != math.prod(shape) or actions.n != size:
        raise ValueError(
            f"spaces must have observations of {math.prod(shape)} numbers and {size} actions, as the log; got "
            f"{seen} and {actions}"
        )
    return own


def standardized_inputs(x: np.ndarray, own: Spaces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows x as observations of mean 0 and deviation 1, their means and deviations."""
    x = x.reshape(len(x), *(own.observation_space.shape or ()))
    center, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 0, scale, 1).astype(np.float32)
    return (x - center) / scale, center, scale


def fixed(
    scores: Callable[[Array], Array], own: Spaces, settings: Mapping[str, Any], log: Log, *, greedy: bool
) -> Agent:
    """The agent of (k,) scores, by softmax or the largest, that knows the rows it was learned from."""
    epsilon, size = settings["epsilon"], int(own.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]

    def law(observation: PyTree) -> Array:
        """(k,) probabilities; NaN for an invalid observation."""
        observation = check_context(own, observation)
        x, mask = observation if isinstance(observation, Masked) else (observation, None)
        allowed = jnp.ones(size, bool) if mask is None else jnp.asarray(mask, bool)
        x = jnp.asarray(x, jnp.float32)
        given = jnp.where(allowed, scores(x), -jnp.inf)
        base = jax.nn.one_hot(jnp.argmax(given), size, dtype=given.dtype) if greedy else jax.nn.softmax(given)
        uniform = allowed.astype(given.dtype) / jnp.maximum(jnp.sum(allowed), 1).astype(given.dtype)
        found = (1 - epsilon) * base + epsilon * uniform
        return jnp.where(jnp.all(moderate(x)) & jnp.any(allowed), found, jnp.nan)

    def act(key: Key, state: Any, observation: PyTree) -> Action:
        found = law(observation)
        index = jax.random.categorical(key, jnp.log(found))
        return Action(index, found[index], found)

    def assess(key: Key, state: Any, observation: PyTree) -> Assessment:
        unknown = jnp.full(size, jnp.nan)
        return Assessment(unknown, unknown, law(observation))

    return _agent(act, own, settings, log)._replace(assess=checks.keyed(assess), schema=log.schema)


def deterministic(
    action: Callable[[Array], Array], own: Spaces, settings: Mapping[str, Any], log: ContinuousLog
) -> Agent:
    """The agent that plays the number () of an observation, and knows the rows it was learned from."""

    def act(key: Key, state: Any, observation: PyTree) -> Action:
        observation = check_context(own, observation)
        x = jnp.asarray(observation.observation if isinstance(observation, Masked) else observation, jnp.float32)
        sound = moderate(x)
        value = action(jnp.where(sound, x, 0.0)).reshape(own.action_space.shape)
        return Action(value, jnp.where(jnp.all(sound), 1.0, jnp.nan))

    return _agent(act, own, settings, log)


def _agent(act: Callable[..., Action], own: Spaces, settings: Mapping[str, Any], log: Log | ContinuousLog) -> Agent:
    def update(state: Any, observation: PyTree, action: Any, feedback: Any) -> tuple[Any, Info]:
        check_feedback(own, observation, action, feedback)
        return state, Info(jnp.bool_(False))

    start, known = checks.keyed(lambda key: ()), row_hashes(log).tobytes()
    return Agent(start, checks.keyed(act), update, "learned", settings, spaces=own, learned_from=known)
