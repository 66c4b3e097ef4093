"""Flax modules that are not functions of parameters and one input: refused, with a remedy that works."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from seqdec import agents, models
from seqdec.core import Spaces

IMAGES = Spaces(spaces.Box(0, 1, (8, 8, 1), np.float32), spaces.Discrete(3))


class Module(nn.Module):
    """Two layers, and what `kind` says between them or of them."""

    kind: str

    @nn.compact
    def __call__(self, x):
        if self.kind == "no parameters":
            return jnp.ravel(x)[:3]
        if self.kind == "a batch":  # as in flax's examples: (batch, height, width, channels)
            x = nn.relu(nn.Conv(2, (3, 3), strides=4)(x))
            return nn.Dense(3, name="output")(x.reshape((x.shape[0], -1)))
        hidden = nn.Dense(4)(jnp.ravel(x))
        between = {
            "running means": lambda: nn.BatchNorm(use_running_average=False)(hidden),
            "fixed running means": lambda: nn.BatchNorm(use_running_average=True)(hidden),
            "dropout": lambda: nn.Dropout(0.5, deterministic=False)(hidden),
            "no dropout": lambda: nn.Dropout(0.5, deterministic=True)(hidden),
            "layers": lambda: nn.LayerNorm()(hidden),
            "two results": lambda: hidden,
        }
        out = nn.Dense(3)(between[self.kind]())
        return (out, x) if self.kind == "two results" else out


class Unpacked(nn.Module):
    """A batch whose axes are named."""

    @nn.compact
    def __call__(self, x):
        rows, _, _, _ = x.shape
        return nn.Dense(3)(x.reshape((rows, -1)))


class Single(nn.Module):
    """The remedy for a module of batches."""

    @nn.compact
    def __call__(self, x):
        return Module("a batch", name="inner")(x[None])[0]


REFUSED = {
    "running means": r"batch_stats .* LayerNorm or GroupNorm in place of BatchNorm",
    "fixed running means": r"batch_stats .* LayerNorm or GroupNorm in place of BatchNorm",
    "dropout": r"Module draws random numbers .*deterministic=True",
    "a batch": r"Module returned \(2, 3\); .*batched=True",
    "unpacked": r"Unpacked cannot be called: not enough values .*batched=True",
    "no parameters": "Module has no parameters",
    "two results": r"Module returned \(\(3,\), \(8, 8, 1\)\)",
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_module_that_is_not_a_function_of_one_input_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[kind]):
        models.network(Unpacked() if kind == "unpacked" else Module(kind), jnp.zeros((8, 8, 1)))


@pytest.mark.parametrize("name", ["adamw", "auto", "ensemble", "hilofi"])
def test_agents_with_a_model_refuse_it(name: str) -> None:
    with pytest.raises(ValueError, match=REFUSED["running means"]):
        agents.make(name, IMAGES, model=Module("running means"))


@pytest.mark.parametrize("module", [Single(), Module("layers"), Module("no dropout")], ids=["one", "layers", "fixed"])
def test_the_remedies_work(module: nn.Module) -> None:
    network = models.network(module, jnp.zeros((8, 8, 1)))
    params = network.init(jax.random.key(0))
    assert network.apply(params, jnp.ones((8, 8, 1))).shape == (3,)
