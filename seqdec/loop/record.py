"""Records, keys and checks of both loops.

`jax.random.key(seed + i)` is split into a key of the environment and one of the agent: different agents meet the same
environment. Each is split into a key for the start and one into which the step number is folded.
"""

from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete

from seqdec.boundary.spaces import refused_actions
from seqdec.core import Action, Array, Key, PyTree
from seqdec.registry import unknown
from seqdec.states import described, named_leaves


class Record(NamedTuple):
    """Record of one step, later stacked to (seeds, steps, ...)."""

    action: Array | np.ndarray
    """An index from 0, or a point of a Box."""
    reward: Array | np.ndarray
    """() NaN where the action was not allowed."""
    regret: Array | np.ndarray
    """() NaN where unknown."""
    propensity: Array | np.ndarray
    """() NaN where unknown."""
    rejected: Array | np.ndarray
    """() bool: update rejected."""
    diagnostics: dict[str, Any]
    """Selected fields of the info and observation."""


class RunState(NamedTuple):
    """State of a run between two steps; with several seeds every leaf is (seeds, ...)."""

    step: Array
    """() steps done"""
    env_key: Key
    """Of the environment's random numbers."""
    agent_key: Key
    """Of the agent's random numbers."""
    env: PyTree
    """state of the environment"""
    observation: PyTree
    """For the next action."""
    agent: PyTree
    """state of the agent"""


class Outcome(NamedTuple):
    """Records, timings and last state of a run."""

    record: Record
    """Every field (seeds, steps, ...)."""
    clock: list[tuple[int, float]]
    """(steps done, seconds of running), increasing."""
    compile_seconds: float
    """Seconds of compilation."""
    interrupted: bool
    """Whether Ctrl-C ended the run early."""
    state: RunState | None = None
    """After the last step; None if interrupted or on the host."""


def split_key(key: Key) -> tuple[tuple[Key, Key], tuple[Key, Key]]:
    """Key of a seed -> ((environment's first key, its step key), (agent's first key, its step key))."""
    env_key, agent_key = jax.random.split(key)
    (reset_key, step_key), (init_key, act_key) = jax.random.split(env_key), jax.random.split(agent_key)
    return (reset_key, step_key), (init_key, act_key)


def rejected(info: Any) -> Array:
    """() bool: whether the update was rejected; False without such a field."""
    return jnp.asarray(getattr(info, "rejected", False), bool)


def select(info: Any, observation: PyTree, action: Action, names: tuple[str, ...]) -> dict[str, Array]:
    """Named fields of an agent's info, "observation" or "probabilities"; an entry per leaf of a nested field."""
    fields = {name: getattr(info, name) for name in getattr(info, "_fields", ()) if getattr(info, name) is not None}
    available = {**fields, "observation": observation}
    if action.probabilities is not None:
        available["probabilities"] = action.probabilities
    for name in names:
        if name not in available:
            raise ValueError(unknown(f"diagnostic of the agent's {type(info).__name__}", name, available))
    leaves = jax.tree_util.tree_leaves_with_path({name: available[name] for name in names})
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def check_action(action: Action, space: gymnasium.Space) -> None:
    """Raise, while tracing, for an action that does not fit the space."""
    value = action.value
    if isinstance(space, Discrete):
        if value.shape != () or not jnp.issubdtype(value.dtype, jnp.integer):
            raise ValueError(f"{space} wants a () integer action; the agent plays {value.dtype} of shape {value.shape}")
    elif isinstance(space, Box):
        if value.shape != space.shape:
            raise ValueError(f"{space} wants an action of shape {space.shape}; the agent plays shape {value.shape}")
        if jnp.issubdtype(value.dtype, jnp.floating) and not np.issubdtype(space.dtype, np.floating):
            raise ValueError(f"{space} wants integers; the agent plays {value.dtype}: round them in its act")
    else:
        raise TypeError(refused_actions(space))


def check_state(state: RunState, like: RunState) -> None:
    """TypeError or ValueError for a state of another run; `like` has the shapes."""
    if not isinstance(state, RunState):
        raise TypeError(f"state must be the `state` of an earlier run; got {type(state).__name__}")
    expected, found = dict(named_leaves(like)), dict(named_leaves(state))
    for name in {**expected, **found}:
        shapes = [described(leaves[name]) if name in leaves else None for leaves in (found, expected)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"state is not of this agent, environment and number of seeds: its {name} is {shapes[0]}, where "
                f"{shapes[1]} is expected; continue with those that it comes from"
            )
