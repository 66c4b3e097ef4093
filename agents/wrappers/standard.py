r"""Standard units: an agent that sees numbers by their means and standard deviations, whatever their units.

    contexts, vectors or single numbers     (x - mean) / std, running (`seqdec.agents.regression.units`), cut off at 5
    numbers of candidates, likewise         each column over all candidates allowed
    Box actions                             (a - middle) / std of a uniform point of the box

Images, that is arrays of two and more axes or of more than 256 numbers, Discrete observations and row numbers of tables
stay as they are. The units are those of all contexts learned from, the newest included. What was learned stays in the
units of its time: they move as 1 / n.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.agents._filtering import choices_for
from seqdec.agents.inputs import checked
from seqdec.agents.regression import units
from seqdec.agents.regression.units import Units
from seqdec.core import Agent, Array, HasSpaces, Masked, Network, PyTree, Spaces
from seqdec.spaces import moderate, spaces_of

_CONTEXT = "context"
"""Name of the units of a context that is not a Dict."""


class Standardized(NamedTuple):
    """The state of an agent that sees contexts in standard units."""

    state: Any
    """of the agent"""
    contexts: dict[str, Units]
    """by name of the entry of a Dict, or of "context\""""

    @property
    def params(self) -> PyTree:
        """Those of the agent."""
        return self.state.params


def standard_spaces(spaces: HasSpaces) -> Spaces:
    """The spaces with contexts in standard units, for which the agent inside is built."""
    observations, actions = spaces_of(spaces)
    if isinstance(observations, gym_spaces.Dict):
        fresh = {name: _free(part) if _is_numeric(part, 1) else part for name, part in observations.items()}
        return Spaces(gym_spaces.Dict(fresh), actions)
    return Spaces(_free(observations) if _is_numeric(observations, 0) else observations, actions)


def standardizing(agent: Agent, spaces: HasSpaces) -> Agent:
    """`agent`, which was built for `standard_spaces(spaces)`, in an environment with these spaces.

    It is the agent itself where all contexts stay as they are.
    """
    own, sound = spaces_of(spaces), choices_for(spaces).sound
    by_row, shapes = isinstance(own.observation_space, gym_spaces.Dict), _shapes(own.observation_space)
    if not shapes:
        return agent

    def rows(context):
        """Numbers of a context by name, (1, ...), or of candidates, (n, ...)."""
        parts = context if by_row else {_CONTEXT: jnp.asarray(context)[None]}
        return {name: jnp.asarray(parts[name], float) for name in shapes}

    def lesson(observation, feedback):
        """What the units are measured on: rows, and which of them count."""
        context, mask = observation if isinstance(observation, Masked) else (observation, None)
        parts = rows(context)
        count = len(next(iter(parts.values())))
        allowed = jnp.ones(count, bool) if mask is None or not by_row else jnp.asarray(mask, bool)
        return parts, allowed & sound(context) & jnp.all(moderate(feedback))

    def measured(contexts, parts, counted):
        return {name: units.measured(contexts[name], parts[name], counted) for name in shapes}

    def seen(contexts, observation):
        context = observation.observation if isinstance(observation, Masked) else observation
        good = sound(context)  # those that are not stay so, whatever they are cut off at
        parts = {name: jax.vmap(units.bounded, (None, 0))(contexts[name], part) for name, part in rows(context).items()}
        parts = {name: jnp.where(good, part, jnp.nan) for name, part in parts.items()}
        context = {**context, **parts} if by_row else parts[_CONTEXT][0]
        return observation._replace(observation=context) if isinstance(observation, Masked) else context

    def init(key):
        return Standardized(agent.init(key), {name: units.unknown(shape) for name, shape in shapes.items()})

    def act(key, state, observation):
        return agent.act(key, state.state, seen(state.contexts, observation))

    def update(state, observation, action, feedback):
        contexts = measured(state.contexts, *lesson(observation, feedback))
        inner, info = agent.update(state.state, seen(contexts, observation), action, feedback)
        return Standardized(inner, _unless(info.rejected, contexts, state.contexts)), info

    def update_batch(state, observations, actions, rewards):
        assert agent.update_batch is not None
        parts, counted = jax.vmap(lesson)(observations, rewards)
        parts = jax.tree.map(lambda part: part.reshape(-1, *part.shape[2:]), parts)
        contexts = measured(state.contexts, parts, counted.ravel())
        shown = jax.vmap(seen, (None, 0))(contexts, observations)
        inner, info = agent.update_batch(state.state, shown, actions, rewards)
        return Standardized(inner, _unless(info.rejected, contexts, state.contexts)), info

    def act_batch(keys, state, observations):
        assert agent.act_batch is not None
        return agent.act_batch(keys, state.state, jax.vmap(seen, (None, 0))(state.contexts, observations))

    def assess(key, state, observation):
        assert agent.assess is not None
        return agent.assess(key, state.state, seen(state.contexts, observation))

    fresh = agent._replace(
        init=init,
        act=act,
        update=update,
        update_batch=None if agent.update_batch is None else update_batch,
        act_batch=None if agent.act_batch is None else act_batch,
        assess=None if agent.assess is None else assess,
    )
    return checked(fresh, own)


def standard_actions(network: Network, spaces: HasSpaces) -> Network:
    """The network of rows of observation and action, with Box actions in standard units; any other as it is."""
    actions = spaces_of(spaces).action_space
    if not isinstance(actions, gym_spaces.Box) or not actions.is_bounded():
        return network
    low, high = (np.asarray(bound, float).ravel() / 2 for bound in (actions.low, actions.high))
    width = high - low + np.issubdtype(actions.dtype, np.integer) / 2
    middle, std = low + high, np.where(width > 0, width, math.sqrt(3)) / math.sqrt(3)

    def apply(params, x):
        before = np.zeros(x.shape[-1] - len(low))
        told = np.append(before, middle), np.append(before + 1, std)
        shift, scale = (jnp.broadcast_to(jnp.asarray(part, x.dtype), x.shape) for part in told)
        return network.apply(params, (x - shift) / scale)

    return network._replace(apply=apply)


def _is_numeric(space: gym_spaces.Space, leading: int) -> bool:
    """Whether a Box holds vectors or numbers, after `leading` axes; integers of candidates are row numbers."""
    if not isinstance(space, gym_spaces.Box) or 0 in space.shape:
        return False
    shape = space.shape[leading:]
    return len(shape) <= 1 and units.few(shape) and (leading == 0 or np.issubdtype(space.dtype, np.floating))


def _free(space: gym_spaces.Space) -> gym_spaces.Box:
    """A Box of any numbers."""
    return gym_spaces.Box(-np.inf, np.inf, space.shape, np.float32)


def _shapes(observations: gym_spaces.Space) -> dict[str, tuple[int, ...]]:
    """Shapes of what is standardized, by name: of a context or of a candidate."""
    if isinstance(observations, gym_spaces.Dict):
        return {name: (part.shape or ())[1:] for name, part in observations.items() if _is_numeric(part, 1)}
    return {_CONTEXT: observations.shape or ()} if _is_numeric(observations, 0) else {}


def _unless(rejected: Array, new: PyTree, old: PyTree) -> PyTree:
    """The new values, the old ones if all was rejected."""
    return jax.tree.map(lambda *pair: jnp.where(jnp.all(rejected), pair[1], pair[0]), new, old)
