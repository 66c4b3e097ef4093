"""Flax modules that are not functions of parameters and one input: refused, with a remedy that works."""

from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from gymnasium import spaces

from seqdec import agents, models


class Spaces(NamedTuple):
    """What an agent is told of its environment."""

    observation_space: gymnasium.Space
    action_space: gymnasium.Space


IMAGES = Spaces(spaces.Box(0, 1, (8, 8, 1), np.float32), spaces.Discrete(3))


class Normalized(nn.Module):
    """Running means, in training or not."""

    training: bool

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.BatchNorm(use_running_average=not self.training)(nn.Dense(4)(jnp.ravel(x))))


class Dropping(nn.Module):
    """Random numbers in every call."""

    deterministic: bool = False

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.Dropout(0.5, deterministic=self.deterministic)(nn.Dense(4)(jnp.ravel(x))))


class Batched(nn.Module):
    """A convolutional network as in flax's examples: (batch, height, width, channels) -> (batch, 3)."""

    strict: bool = False

    @nn.compact
    def __call__(self, x):
        if self.strict:
            _, _, _, _ = x.shape
        x = nn.relu(nn.Conv(2, (3, 3), strides=4)(x))
        return nn.Dense(3, name="output")(x.reshape((x.shape[0], -1)))


class Single(nn.Module):
    """The remedy."""

    @nn.compact
    def __call__(self, x):
        return Batched(name="inner")(x[None])[0]


class Layered(nn.Module):
    """The other remedy."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.LayerNorm()(nn.Dense(4)(jnp.ravel(x))))


class Empty(nn.Module):
    """Nothing to learn."""

    @nn.compact
    def __call__(self, x):
        return jnp.ravel(x)[:3]


class Two(nn.Module):
    """A tuple."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(jnp.ravel(x)), x


REFUSED = {
    "running means": (Normalized(True), r"batch_stats .* LayerNorm or GroupNorm in place of BatchNorm"),
    "fixed running means": (Normalized(False), r"batch_stats .* LayerNorm or GroupNorm in place of BatchNorm"),
    "dropout": (Dropping(), r"Dropping draws random numbers .*deterministic=True"),
    "a batch": (Batched(), r"Batched returned \(2, 3\); .*batched=True"),
    "a batch, unpacked": (Batched(strict=True), r"Batched cannot be called: not enough values .*batched=True"),
    "no parameters": (Empty(), "Empty has no parameters"),
    "two results": (Two(), r"Two returned \(\(3,\), \(8, 8, 1\)\)"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_module_that_is_not_a_function_of_one_input_is_refused(what: str) -> None:
    module, message = REFUSED[what]
    with pytest.raises(ValueError, match=message):
        models.network(module, jnp.zeros((8, 8, 1)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name in agents.names() if agents.capabilities(name).model])
def test_every_agent_with_a_model_refuses_it(name: str) -> None:
    for what in ("running means", "dropout", "a batch"):
        module, message = REFUSED[what]
        with pytest.raises(ValueError, match=message):
            agents.make(name, IMAGES, model=module)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("module", [Single(), Layered(), Dropping(deterministic=True)])
def test_the_remedies_work(module: nn.Module) -> None:
    network = models.network(module, jnp.zeros((8, 8, 1)))
    params = network.init(jax.random.key(0))
    assert network.apply(params, jnp.ones((8, 8, 1))).shape == (3,)
    agent = agents.lrkf(IMAGES, model=module, rank=2)
    state = agent.init(jax.random.key(0))
    _, info = jax.jit(agent.update)(state, jnp.ones((8, 8, 1)), 1, 1.0)
    assert not info.rejected
