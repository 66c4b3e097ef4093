"""Agents that play a fixed policy and learn nothing, for policies learned from a log."""

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
from seqdec.ope.log import Log, check_log, inputs


class Info(NamedTuple):
    """Result of an update, which changes nothing."""

    rejected: Array
    """() bool, always False"""


def space_for(name: str, log: Log, spaces: HasSpaces | None, epsilon: float) -> Spaces:
    """The spaces of an agent that `name` learns from a log.

    Raises:
        TypeError: not a log, or other spaces than a Box of observations and Discrete actions.
        ValueError: a log without propensities or with fewer rows than actions, spaces that do not fit it, or an epsilon
            outside [0, 1].
    """
    check_log(log)
    count, size = log.mask.shape
    if not log.known_propensities:
        raise ValueError(
            f"{name} needs propensities and the log has none: estimate them with seqdec.ope.estimate_propensities"
        )
    if count < max(size, 2):
        raise ValueError(f"a log of {count} rows teaches no choice among {size} actions: it needs {max(size, 2)} rows")
    checks.concrete("epsilon", epsilon)
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon must lie in [0, 1]; got {epsilon}")
    shape = inputs(log.rows(np.array([0]))).shape[1:]
    if spaces is None:
        return Spaces(gym_spaces.Box(-np.inf, np.inf, shape, np.float32), gym_spaces.Discrete(size))
    own = spaces_of(spaces)
    seen, actions = own
    if not isinstance(seen, gym_spaces.Box) or not isinstance(actions, gym_spaces.Discrete):
        raise TypeError(f"spaces must have Box observations and Discrete actions; got {seen} and {actions}")
    if math.prod(seen.shape) != math.prod(shape) or actions.n != size:
        raise ValueError(
            f"spaces must have observations of {math.prod(shape)} numbers and {size} actions, as the log; got "
            f"{seen} and {actions}"
        )
    return own


def standardized_inputs(log: Log, own: Spaces) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs (n, ...) with mean 0 and standard deviation 1, those means and deviations; constant inputs become 0."""
    x = inputs(log).reshape(len(log.action), *(own.observation_space.shape or ()))
    center, scale = x.mean(axis=0), x.std(axis=0)
    scale = np.where(scale > 0, scale, 1).astype(np.float32)
    return (x - center) / scale, center, scale


def fixed_agent(scores: Callable[[Array], Array], own: Spaces, settings: Mapping[str, Any], *, greedy: bool) -> Agent:
    """The agent that plays the softmax of the scores (k,) of an input, or the largest, and learns nothing."""
    epsilon, size = settings["epsilon"], int(own.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]

    def law(observation: PyTree) -> Array:
        """(k,) probabilities; NaN where no decision can be based on the observation."""
        observation = check_context(own, observation)
        x, mask = observation if isinstance(observation, Masked) else (observation, None)
        allowed = jnp.ones(size, bool) if mask is None else jnp.asarray(mask, bool)
        x = jnp.asarray(x, jnp.float32)
        given = scores(x)
        given = jnp.where(allowed, given, -jnp.inf)
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

    def update(state: Any, observation: PyTree, action: Any, feedback: Any) -> tuple[Any, Info]:
        check_feedback(own, observation, action, feedback)
        return state, Info(jnp.bool_(False))

    start = checks.keyed(lambda key: ())
    return Agent(start, checks.keyed(act), update, "learned", True, settings, spaces=own, assess=checks.keyed(assess))
