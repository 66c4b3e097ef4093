"""The default network of an agent, from the spaces it lives in."""

import math
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from gymnasium import spaces as gym_spaces

from seqdec import models
from seqdec.core import HasSpaces


def network_for(spaces: HasSpaces, model: Any = None) -> models.Network:
    """One response per Discrete action, or one response per row of observation and action for Box actions.

    Args:
        spaces: anything with observation_space and action_space.
        model: a flax module with one output per Discrete action (one output for Box actions), or a ready
            `models.Network`; None takes LeNet5 for 28 x 28 images and an MLP with two hidden layers of 50 units for
            anything else.

    Raises:
        TypeError: the model is neither; or there is no default for the observation space.
    """
    if isinstance(model, models.Network):
        return model
    if model is not None and not isinstance(model, nn.Module):
        raise TypeError(f"model must be a flax.linen Module or a seqdec.models.Network; got {type(model).__name__}")
    shape = _observation_shape(spaces.observation_space)
    actions = spaces.action_space
    if isinstance(actions, gym_spaces.Discrete):
        default = models.LeNet5 if shape[:2] == (28, 28) else models.MLP
        return models.network(default(int(actions.n)) if model is None else model, jnp.zeros(shape))
    size = math.prod(shape) + math.prod(actions.shape or ())
    return models.per_candidate(models.network(models.MLP(1) if model is None else model, jnp.zeros(size)))


def _observation_shape(space: gym_spaces.Space) -> tuple[int, ...]:
    if isinstance(space, gym_spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gym_spaces.Box):
        return space.shape
    raise TypeError(f"observations must be Box or Discrete; got {space}. Use gymnasium.wrappers.FlattenObservation")
