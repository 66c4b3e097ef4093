"""The network of an agent, from the spaces it lives in."""

import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from gymnasium import spaces as gym_spaces

from seqdec import models
from seqdec.core import HasSpaces


def network_for(spaces: HasSpaces, model: nn.Module | models.Network | None = None) -> models.Network:
    """One response per Discrete action, or one response per row of observation and action for Box actions.

    Args:
        spaces: anything with observation_space and action_space.
        model: a flax module or a `models.Network`. For n Discrete actions it takes the observation and has n outputs;
            for Box actions it takes the flattened observation and the action side by side and has one. None is LeNet5
            for 28 x 28 images and Discrete actions, and an MLP with two hidden layers of 50 units for anything else.

    Raises:
        TypeError: the model is neither; or the observation space is of a kind that networks here do not take.
        ValueError: the model has another number of outputs.
    """
    shape, actions = _observation_shape(spaces.observation_space), spaces.action_space
    discrete = isinstance(actions, gym_spaces.Discrete)
    if discrete:
        example, outputs = jnp.zeros(shape), int(actions.n)
    else:
        example, outputs = jnp.zeros(math.prod(shape) + math.prod(actions.shape or ())), 1
    if model is None:
        model = models.LeNet5(outputs) if discrete and shape[:2] == (28, 28) else models.MLP(outputs)
    if not isinstance(model, models.Network | nn.Module):
        raise TypeError(f"model must be a flax.linen Module or a seqdec.models.Network; got {type(model).__name__}")
    network = models.network(model, example) if isinstance(model, nn.Module) else model
    found = jax.eval_shape(lambda: network.apply(network.init(jax.random.key(0)), example)).shape
    if found != (outputs,):
        raise ValueError(f"the model's output has shape {found}; for {actions} it must be ({outputs},)")
    return network if discrete else models.per_candidate(network)


def _observation_shape(space: gym_spaces.Space) -> tuple[int, ...]:
    if isinstance(space, gym_spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, gym_spaces.Box):
        return space.shape
    raise TypeError(f"observations must be Box or Discrete; got {space}. Use gymnasium.wrappers.FlattenObservation")
