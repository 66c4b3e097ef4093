"""The network of an agent, from the spaces of its environment."""

import math
from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from gymnasium import spaces as gym_spaces

from seqdec import models
from seqdec.agents.inputs import refused_actions, refused_observations, spaces_of
from seqdec.core import HasSpaces


def network_for(spaces: HasSpaces, model: nn.Module | models.Network | None = None) -> models.Network:
    """One response per Discrete action, or one response per row of observation and action for Box actions.

    Where the observation is a Dict, its arrays describe the n Discrete actions, row by row: the network takes one row
    of each and has one output.

    Args:
        spaces: anything with observation_space and action_space.
        model: a flax module or a `models.Network`. For n Discrete actions it takes the observation and has n outputs;
            for Box actions it takes the flattened observation and the action, concatenated, and has one; for candidates
            it takes the dict of one candidate and has one. None is LeNet5 for 28 x 28 images and Discrete actions,
            `scorer` for candidates, and an MLP with two hidden layers of 50 units for anything else.

    Raises:
        TypeError: the model is neither; or the observation space is of a kind that networks here do not take.
        ValueError: the model has another number of outputs.
    """
    spaces = spaces_of(spaces)
    actions = spaces.action_space
    if isinstance(spaces.observation_space, gym_spaces.Dict):
        check_candidates(spaces)
        parts = spaces.observation_space.items()
        example = {name: jnp.zeros((part.shape or ())[1:], part.dtype) for name, part in parts}
        return _checked(scorer(spaces) if model is None else model, example, 1, actions, per_row=True)
    shape = _observation_shape(spaces.observation_space)
    discrete = isinstance(actions, gym_spaces.Discrete)
    if discrete:
        example, outputs = jnp.zeros(shape), int(actions.n)
    else:
        example, outputs = jnp.zeros(math.prod(shape) + math.prod(actions.shape or ())), 1
    if model is None:
        model = models.LeNet5(outputs) if discrete and shape[:2] == (28, 28) else models.MLP(outputs)
    return _checked(model, example, outputs, actions, per_row=not discrete)


def scorer(
    spaces: HasSpaces,
    module: nn.Module | None = None,
    *,
    tables: Collection[str] | None = None,
    width: int = 4,
    std: float = 0.02,
) -> models.Network:
    """The network of a bandit with candidates: embeddings of their integer entries, and a module on top.

    Args:
        spaces: anything whose observation_space is a Dict with one row for each candidate; integers are row numbers of
            a table, counted from 0.
        module: flax module that takes the dict of a candidate, embeddings and features, and has one output; None is
            `models.Score` with intercepts, the product of the embeddings, a direct path of the features, and one hidden
            layer of 20 units: it contains the mean of each item, the linear model and matrix factorisation.
        tables: names of the entries with embeddings; None is all integers. Other integers are left out.
        width: numbers in an embedding.
        std: of the initial embeddings; intercepts start at zero. Small, so that a filter first learns the intercepts:
            the variance of a product of two embeddings grows with their means.

    Raises TypeError for observations of another kind.
    """
    parts = spaces_of(spaces).observation_space
    if not isinstance(parts, gym_spaces.Dict):
        raise TypeError(f"the observations must be a Dict of candidates; got {parts}")
    example = {name: jnp.zeros((part.shape or ())[1:], part.dtype) for name, part in parts.items()}
    sizes = {
        name: int(part.high.max()) + 1
        for name, part in parts.items()
        if isinstance(part, gym_spaces.Box)
        and np.issubdtype(part.dtype, np.integer)
        and (tables is None or name in tables)
    }
    if module is None:
        module = models.Score(hidden=(20,), intercepts=True, product=True, linear=True)
    if not isinstance(module, models.Score):
        return models.embedded(module, example, sizes, width, std)
    spread = jnp.full(width, std).at[: int(module.intercepts)].set(0)
    return models.embedded(module, example, sizes, width, spread, lambda path: path[-2] == "output")


def check_candidates(spaces: HasSpaces) -> None:
    """Raises TypeError unless the observation is a Dict of arrays with one row for each Discrete action."""
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


def _checked(model, example, outputs: int, actions: gym_spaces.Space, *, per_row: bool) -> models.Network:
    """The network of a model, with the number of outputs that it must have."""
    if not isinstance(model, models.Network | nn.Module):
        raise TypeError(f"model must be a flax.linen Module or a seqdec.models.Network; got {type(model).__name__}")
    network = models.network(model, example) if isinstance(model, nn.Module) else model
    found = jax.eval_shape(lambda: network.apply(network.init(jax.random.key(0)), example)).shape
    if found != (outputs,):
        raise ValueError(f"the model's output has shape {found}; for {actions} it must be ({outputs},)")
    return models.per_candidate(network) if per_row else network


def _observation_shape(space: gym_spaces.Space) -> tuple[int, ...]:
    if isinstance(space, gym_spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gym_spaces.Box):
        return space.shape
    raise TypeError(refused_observations(space))
