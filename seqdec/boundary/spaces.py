"""Observations and actions, checked by shape, and by value on the host.

In compiled code a context without sense gets a propensity of NaN (`seqdec.core.Action`), and its update is rejected.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces
from jax.core import Tracer

from seqdec.boundary.checks import as_array, is_sparse, numbers, one_array, only_row
from seqdec.boundary.sparse import SparseBox
from seqdec.core import Action, Agent, Array, HasSpaces, Masked, PyTree, Spaces
from seqdec.runtime import check_process

LARGEST = float(np.float32(1e15))
"""Rejected from here on: a million squares fit into float32."""


def moderate(values: Array) -> Array:
    """Bools: finite and below `LARGEST`."""
    values = jnp.asarray(values)
    return jnp.abs(values.astype(jnp.result_type(jnp.float32, values.dtype))) < LARGEST


# Spaces


def spaces_of(spaces: HasSpaces) -> Spaces:
    """The spaces of an environment or the like. TypeError: none."""
    observations, actions = (getattr(spaces, name, None) for name in Spaces._fields)
    if any(isinstance(getattr(one, "space", None), gym_spaces.Space) for one in (spaces, observations)):
        raise TypeError(
            "an encoder is not a space: use its space, as in Spaces(encoder.space, "
            "gymnasium.spaces.Discrete(3)), and pass OnlineAgent the encoder too, encoder=encoder"
        )
    if not isinstance(observations, gym_spaces.Space) or not isinstance(actions, gym_spaces.Space):
        raise TypeError(
            "an agent is built for an environment, or for anything else with an observation_space and an action_space "
            f"of gymnasium; got {spaces!r}: make it first, as with seqdec.envs.make(name) or gymnasium.make(id)"
        )
    return Spaces(observations, actions)


def refused_observations(space: gym_spaces.Space) -> str:
    """The remedy for observations that agents do not take."""
    words = f"observations must be Box, Discrete or a Dict of candidates; got {space}. "
    if space.is_np_flattenable:
        return words + "Flatten those of a gymnasium.Env with gymnasium.wrappers.FlattenObservation(env)"
    return words + (
        "Make a fixed number of features of those of a gymnasium.Env, with "
        "gymnasium.wrappers.TransformObservation(env, function, box)"
    )


def refused_actions(space: gym_spaces.Space) -> str:
    """The remedy for actions that agents do not take."""
    words = f"actions must be Discrete or Box, and bounded; got {space}. "
    wrapper = "gymnasium.wrappers.TransformAction(env, lambda action: {}, gymnasium.spaces.{})"
    if isinstance(space, gym_spaces.Box):
        return words + f"Bound those of a gymnasium.Env with {wrapper.format('action', 'Box(low, high)')}"
    listed = "the list of actions to choose from"
    if isinstance(space, gym_spaces.MultiDiscrete):
        listed = f"numpy.argwhere(numpy.ones({space.nvec.tolist()})) + {space.start.tolist()}"
    elif isinstance(space, gym_spaces.MultiBinary):
        listed = f"numpy.argwhere(numpy.ones({[2] * int(np.prod(space.shape))})).reshape(-1, *{space.shape})"
    numbered = wrapper.format("choices[action]", "Discrete(len(choices))")
    return words + f"Number those of a gymnasium.Env with {numbered}, where choices = {listed}"


def check_environment(agent: Agent, env: HasSpaces) -> None:
    """Refuse an environment with other spaces than the agent's (ValueError); bounds may differ."""
    if agent.spaces is None:
        return
    for name, own, other in zip(Spaces._fields, agent.spaces, spaces_of(env), strict=True):
        if not _same(own, other):
            raise ValueError(
                f"{agent.name} was built for another environment: its {name} is {own}, that of the environment is "
                f"{other}; build the agent from the environment in which it runs"
            )


def _same(own: gym_spaces.Space, other: gym_spaces.Space) -> bool:
    if isinstance(own, gym_spaces.Dict) and isinstance(other, gym_spaces.Dict):
        return set(own) == set(other) and all(_same(own[name], other[name]) for name in own)
    if isinstance(own, gym_spaces.Discrete) and isinstance(other, gym_spaces.Discrete):
        return own.n == other.n
    if isinstance(own, SparseBox) and isinstance(other, SparseBox):
        return own == other
    return type(own) is type(other) and own.shape == other.shape


def dtype_of(space: gym_spaces.Space) -> np.dtype:
    """JAX's dtype for members of a Box or a Discrete space. TypeError: another space."""
    if isinstance(space, gym_spaces.Discrete):
        return np.dtype(np.int32)
    if isinstance(space, gym_spaces.Box):
        return np.dtype(jax.dtypes.canonicalize_dtype(space.dtype))
    raise TypeError(refused_observations(space))


# Shapes


def as_observation(space: gym_spaces.Space, value: PyTree, name: str = "context") -> PyTree:
    """An observation in any containers as arrays of the shape of the space; of other spaces, `numbers`.

    Raises:
        TypeError: not numbers, or not a dict for a Dict.
        ValueError: another shape, or ragged rows.
    """
    if isinstance(space, gym_spaces.Dict):
        parts = entries(space, value, name)
        return {entry: as_observation(space[entry], part, f"{name}[{entry!r}]") for entry, part in parts.items()}
    if not isinstance(space, gym_spaces.Box | gym_spaces.Discrete):
        return numbers(name, value)
    array = shaped(space, value, name)
    numbers(name, array)
    if isinstance(space, gym_spaces.Discrete) and not jnp.issubdtype(array.dtype, jnp.integer):
        raise TypeError(f"{name} must be an integer, a member of {space}; got {value!r}")
    return array


def entries(space: gym_spaces.Dict, value: Any, name: str = "context") -> dict[str, Any]:
    """The entries of an observation in the order of its space. TypeError: any others."""
    if not isinstance(value, Mapping) or set(value) != set(space):
        found = sorted(value) if isinstance(value, Mapping) else f"{value!r:.200}"
        raise TypeError(f"the {name} must be a dict with the entries {sorted(space)}; got {found}")
    return {entry: value[entry] for entry in space}


def shaped(
    space: gym_spaces.Box | gym_spaces.Discrete, value: Any, name: str = "context", rows: int | None = None
) -> Any:
    """Numbers as an array of the shape of the space, or of `rows` members; errors of `as_observation`."""
    shape, what = (space.shape or (), "as") if rows is None else ((rows, *(space.shape or ())), f"{rows} of")
    value = only_row(value) if len(shape) == 1 else value
    if is_sparse(value) and value.shape != shape:  # before it takes the memory of a dense one
        raise ValueError(f"{name} must have shape {shape}, {what} {space}; got a sparse array of shape {value.shape}")
    try:
        array = as_array(name, value)
    except ValueError:
        raise ValueError(
            f"{name} must have shape {shape}, {what} {space}; got rows of different lengths: {value!r:.200}"
        ) from None
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, {what} {space}; got shape {array.shape}")
    return array


def typed(space: gym_spaces.Space, arrays: PyTree) -> PyTree:
    """Arrays in the dtype of their space, or a wider one: integers in a Box of floats become floats."""
    if isinstance(space, gym_spaces.Dict):
        return {entry: typed(space[entry], part) for entry, part in arrays.items()}
    if not isinstance(space, gym_spaces.Box | gym_spaces.Discrete):
        return arrays
    dtype = jax.dtypes.canonicalize_dtype(jnp.promote_types(arrays.dtype, space.dtype))
    with np.errstate(over="ignore"):  # infinite numbers are dealt with as such
        return arrays.astype(dtype, copy=False)


def stacked(spaces: Spaces, observations: PyTree) -> PyTree:
    """Several observations, stacked, as arrays of unchecked shapes."""
    if isinstance(observations, Masked):
        context, mask = observations
        return Masked(stacked(spaces, context), as_array("mask", mask))
    space = spaces.observation_space
    if isinstance(space, gym_spaces.Dict):
        return typed(space, {entry: as_array(f"contexts[{entry!r}]", observations[entry]) for entry in space})
    return typed(space, as_array("contexts", observations))


# What an agent is called with


def check_context(spaces: Spaces, observation: PyTree) -> PyTree:
    """The observation as arrays, if an action can be chosen for it.

    Raises:
        TypeError: not numbers, or not a dict for a Dict.
        ValueError: another shape; a mask of another size or without allowed action; or known values not finite, too
            large, or outside a Discrete space or a table.
        RuntimeError: JAX does not work in this process (`seqdec.runtime.check_process`).
    """
    check_process()
    context, mask = observation if isinstance(observation, Masked) else (observation, None)
    if mask is not None:
        mask = _check_mask(spaces, mask)
    context = as_observation(spaces.observation_space, context)
    check_values(spaces.observation_space, context)
    context = typed(spaces.observation_space, context)
    return observation._replace(observation=context, mask=mask) if isinstance(observation, Masked) else context


def check_feedback(spaces: Spaces, observation: PyTree, action: Any, feedback: Any) -> tuple[PyTree, Any, Any]:
    """(observation, action, feedback) as arrays of fitting shapes; the agent rejects values without sense.

    Raises:
        TypeError: not numbers, or an index that is no integer.
        ValueError: another shape.
        RuntimeError: JAX does not work in this process (`seqdec.runtime.check_process`).
    """
    check_process()
    context, mask = observation if isinstance(observation, Masked) else (observation, None)
    context = typed(spaces.observation_space, as_observation(spaces.observation_space, context))
    if isinstance(observation, Masked):
        context = observation._replace(observation=context, mask=None if mask is None else as_array("mask", mask))
    feedback = one_array("reward", feedback)
    actions, shape = spaces.action_space, np.shape(feedback)
    responses = int(actions.n) if isinstance(actions, gym_spaces.Discrete) else 1
    if shape not in ((), (responses,)):
        raise ValueError(
            f"reward must be one number, or the ({responses},) responses of every action; got shape {shape}"
        )
    if action is None and shape:
        return context, action, feedback
    if isinstance(action, Action):
        chance = one_array("propensity", action.propensity)
        context, value, feedback = check_feedback(spaces, observation, action.value, feedback)
        return context, Action(value, chance), feedback
    action = one_array("action", action)
    wanted: Any = () if isinstance(actions, gym_spaces.Discrete) else actions.shape
    if (found := np.shape(action)) != wanted:
        raise ValueError(
            f"action must have shape {wanted} for {actions}; got shape {found}: update once for each action"
        )
    if isinstance(actions, gym_spaces.Discrete) and not jnp.issubdtype(jax.dtypes.result_type(action), jnp.integer):
        raise TypeError(f"action must be an integer, the index of an action of {actions}; got {action!r}")
    return context, action, feedback


def _check_mask(spaces: Spaces, mask: Any) -> Any:
    mask, actions = as_array("mask", mask), spaces.action_space
    if not isinstance(actions, gym_spaces.Discrete):
        raise ValueError(f"a mask requires Discrete actions; the actions are {actions}")
    if mask.shape != (actions.n,):
        raise ValueError(f"the mask must have shape ({actions.n},) for {actions}; got shape {mask.shape}")
    if not (jnp.issubdtype(mask.dtype, jnp.bool_) or jnp.issubdtype(mask.dtype, jnp.integer)):
        raise TypeError(f"the mask must be bools, True where an action is allowed; got {mask.dtype}")
    if not isinstance(mask, Tracer) and not np.any(np.asarray(mask)):
        raise ValueError("the mask is False everywhere: allow at least one action")
    return mask


def check_values(space: gym_spaces.Space, values: Any, name: str = "context", *, kept: bool = False) -> None:
    """Refuse numbers without sense in the space, naming the first (ValueError); traced values pass.

    Args:
        space: a Box, a Discrete space or a Dict of them; of others only sizes are checked.
        values: arrays of the shape of the space, or several, stacked.
        name: for messages.
        kept: in the dtype of the space, where floats are no integers.
    """
    if isinstance(space, gym_spaces.Dict):
        for entry in space:
            check_values(space[entry], values[entry], f"{name}[{entry!r}]", kept=kept)
        return
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(values)):
        return
    given = np.asarray(values)
    with np.errstate(over="ignore", invalid="ignore"):
        known = given.astype(dtype_of(space)) if kept else given
    whole = isinstance(space, gym_spaces.Box) and not jnp.issubdtype(space.dtype, jnp.floating)
    if isinstance(space, gym_spaces.Discrete) or (whole and (kept or given.dtype.kind in "iu")):
        low, high = _bounds(space)
        wrong, need = ~((given >= low) & (given <= high) & (known == given)), f"integers of {space}"
    elif isinstance(space, SparseBox):
        wrong, need = ~(np.abs(known.astype(float)) < LARGEST), f"indices and finite numbers of {space}"
        wrong[..., 0] |= (known[..., 0] < 0) | (known[..., 0] >= space.size)
    elif kept or given.dtype.kind not in "biu":
        wrong, need = ~(np.abs(known.astype(float)) < LARGEST), f"finite numbers below {LARGEST:g}"
    else:
        return
    if wrong.any():
        raise ValueError(
            f"{name} must hold {need}; got {given[wrong].flat[0]} ({int(wrong.sum())} of {given.size} entries), so no "
            "action can be chosen: repair the context, or use a default action"
        )


def _bounds(space: Any) -> tuple[Any, Any]:
    if isinstance(space, gym_spaces.Discrete):
        return int(space.start), int(space.start + space.n) - 1
    return space.low, space.high


def is_sound(space: gym_spaces.Space, observation: PyTree) -> Array:
    """() bool, also in compiled code: no number NaN, infinite or too large, integers within the space."""
    if isinstance(space, gym_spaces.Dict):
        return jnp.all(jnp.stack([is_sound(part, observation[name]) for name, part in space.items()]))
    values = jnp.asarray(observation)
    if isinstance(space, gym_spaces.Discrete):
        return (values >= int(space.start)) & (values < int(space.start + space.n))
    if isinstance(space, gym_spaces.Box) and np.issubdtype(space.dtype, np.integer) and values.size:
        low, high = int(space.low.min()), int(space.high.max())
        if jnp.issubdtype(values.dtype, jnp.floating):
            return jnp.all((values >= float(low)) & (values <= float(high)))
        limits = jnp.iinfo(values.dtype)  # 32 bits, where the space may have more
        return jnp.all((values >= max(low, int(limits.min))) & (values <= min(high, int(limits.max))))
    inside = (values[..., 0] >= 0) & (values[..., 0] < space.size) if isinstance(space, SparseBox) else True
    return jnp.all(moderate(values)) & jnp.all(inside)
