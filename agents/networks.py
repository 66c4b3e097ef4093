"""The network of an agent, from the spaces of its environment."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec import models
from seqdec.boundary.spaces import refused_actions, refused_observations, spaces_of
from seqdec.core import Array, HasSpaces
from seqdec.modules import Model, Module


def network_for(spaces: HasSpaces, model: Model | None = None) -> models.Network:
    """One response per Discrete action, or per row of observation and action for Box actions.

    For a Dict of n candidates the network takes one row of each array and has one output.

    Args:
        spaces: with observation_space and action_space.
        model: a flax module or a `models.Network`: of the observation, with n outputs for n Discrete actions; of the
            flattened observation and Box action, concatenated, with one; of the dict of a candidate, with one. None as
            in `seqdec.agents.hilofi`.

    Raises TypeError for another model or observation space, ValueError for another number of outputs.
    """
    network = network_of_one(spaces, model)
    rows = spaces_of(spaces)
    if isinstance(rows.observation_space, gym_spaces.Dict) or not isinstance(rows.action_space, gym_spaces.Discrete):
        return models.per_candidate(network)
    return network


def network_of_one(spaces: HasSpaces, model: Model | None = None) -> models.Network:
    """`network_for` of one candidate, or of one observation and Box action; it can be the model of an agent."""
    spaces = spaces_of(spaces)
    actions = spaces.action_space
    if isinstance(spaces.observation_space, gym_spaces.Dict):
        check_candidates(spaces)
        return _checked(scorer(spaces) if model is None else model, _candidate(spaces.observation_space), 1, actions)
    shape = _observation_shape(spaces.observation_space)
    discrete = isinstance(actions, gym_spaces.Discrete)
    if discrete:
        example, outputs = jnp.zeros(shape), int(actions.n)
    else:
        example, outputs = jnp.zeros(math.prod(shape) + math.prod(actions.shape or ())), 1
    if model is None:
        model = models.LeNet5(outputs) if discrete and shape[:2] == (28, 28) else models.MLP(outputs)
    return _checked(model, example, outputs, actions)


def scorer(
    spaces: HasSpaces,
    module: Module | None = None,
    *,
    tables: Collection[str] | None = None,
    width: int = 4,
    std: float = 0.02,
) -> models.Network:
    """The network of a bandit with candidates: embeddings of their integer entries, and a module on top.

    Args:
        spaces: observation_space is a Dict with a row per candidate; integers are row numbers of a table, from 0.
        module: flax module of the dict of a candidate, embeddings and features, with one output. A `models.Score` or
            `models.Linear` gets all floats as one vector, "features". None is `models.Score` with intercepts, the
            product of the embeddings, a direct path of the features, and a hidden layer of 20 units.
        tables: names of the entries with embeddings; None is all integers. Other integers are left out.
        width: numbers in an embedding.
        std: standard deviation of the initial embeddings; intercepts start at zero.

    Raises TypeError for other observations, or a table whose entry is not a row number per candidate.
    """
    parts = spaces_of(spaces).observation_space
    if not isinstance(parts, gym_spaces.Dict):
        raise TypeError(f"the observations must be a Dict of candidates; got {parts}")
    example = _candidate(parts)
    sizes = {name: row_count(name, part) for name, part in parts.items() if _has_table(part, name, tables)}
    if module is None:
        module = models.Score(hidden=(20,), intercepts=True, product=True, linear=True)
    if not isinstance(module, models.Score | models.Linear):
        return models.embedded(module, example, sizes, width, std)
    if isinstance(module, models.Linear):
        network = models.embedded(module, _joined(example), sizes, width, std)
    else:
        spread = jnp.full(width, std).at[: int(module.intercepts)].set(0)
        network = models.embedded(module, _joined(example), sizes, width, spread, lambda path: path[-2] == "output")
    return network._replace(apply=lambda params, x: network.apply(params, _joined(x)))


def _joined(candidate: Mapping[str, Array]) -> dict[str, Array]:
    plain = [name for name, entry in candidate.items() if jnp.issubdtype(jnp.result_type(entry), jnp.floating)]
    rows = {name: entry for name, entry in candidate.items() if name not in plain}
    if not plain:
        return rows
    return {**rows, "features": jnp.concatenate([jnp.ravel(candidate[name]) for name in sorted(plain)])}


def _has_table(part: gym_spaces.Space, name: str, tables: Collection[str] | None) -> bool:
    integers = isinstance(part, gym_spaces.Box) and np.issubdtype(part.dtype, np.integer)
    return integers and (tables is None or name in tables)


def row_count(name: str, part: Any) -> int:
    """Rows of the table of an entry; TypeError unless it holds one row number per candidate."""
    if len(part.shape) != 1:
        raise TypeError(
            f"integers of candidates are row numbers of a table, one for each candidate; {name} is {part}: make one "
            "entry of each of its columns, or floats of them if they are numbers"
        )
    if part.low.min() < 0:
        raise TypeError(
            f"integers of candidates are row numbers of a table, counted from 0; {name} is {part}: add "
            f"{-int(part.low.min())} to them, or make floats of them if they are numbers"
        )
    if part.high.max() >= np.iinfo(np.int32).max:
        raise TypeError(
            f"integers of candidates are row numbers of a table, counted from 0; {name} is {part}: number those that "
            "occur, say with numpy.unique(..., return_inverse=True), and declare how many there are"
        )
    return int(part.high.max()) + 1


def check_candidates(spaces: HasSpaces) -> None:
    """TypeError unless the observation is a Dict of arrays with one row per Discrete action."""
    parts, actions = spaces_of(spaces)
    if not isinstance(parts, gym_spaces.Dict) or not isinstance(actions, gym_spaces.Discrete):
        if not isinstance(actions, gym_spaces.Discrete | gym_spaces.Box):
            raise TypeError(refused_actions(actions))
        raise TypeError(
            f"candidates are a Dict that describes Discrete actions; got {actions}: {refused_observations(parts)}"
        )
    for name, part in parts.items():
        if not isinstance(part, gym_spaces.Box) or part.shape[:1] != (actions.n,):
            raise TypeError(
                f"a Dict of candidates must hold Boxes with one row for each of {actions.n} actions; {name} is {part}: "
                + refused_observations(parts)
            )


def _candidate(parts: gym_spaces.Dict) -> dict[str, Array]:
    return {
        name: jnp.zeros((part.shape or ())[1:], jax.dtypes.canonicalize_dtype(part.dtype))
        for name, part in parts.items()
    }


def _checked(model, example, outputs: int, actions: gym_spaces.Space) -> models.Network:
    network = models.of(model, example)
    found = jax.eval_shape(lambda: network.apply(network.init(jax.random.key(0)), example)).shape
    if found != (outputs,):
        raise ValueError(f"the model's output has shape {found}; for {actions} it must be ({outputs},)")
    return network


def _observation_shape(space: gym_spaces.Space) -> tuple[int, ...]:
    if isinstance(space, gym_spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gym_spaces.Box):
        return space.shape
    raise TypeError(refused_observations(space))
