"""Modules of flax.nnx, and modules for batches, wherever a model is accepted."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

import seqdec
from seqdec import models
from seqdec.service.identity import digest


class Net(nnx.Module):
    """A list of layers, dropout that may be off, a head; by position it takes 8 numbers."""

    def __init__(self, rngs: nnx.Rngs, extra: nnx.Module | None = None):
        self.layers = nnx.List([nnx.Linear(8, 6, rngs=rngs), nnx.LayerNorm(6, rngs=rngs)])
        self.extra = extra
        self.head = nnx.Linear(6, 3, rngs=rngs)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        x = nnx.elu(x)
        return self.head(x if self.extra is None else self.extra(x))


class Images(nnx.Module):
    """Written for batches (b, 6, 6, 1)."""

    def __init__(self, rngs: nnx.Rngs):
        self.conv = nnx.Conv(1, 2, (3, 3), strides=2, rngs=rngs)
        self.output = nnx.Linear(18, 3, rngs=rngs)

    def __call__(self, x):
        return self.output(nnx.relu(self.conv(x)).reshape(x.shape[0], -1))


class LinenNorm(nn.Module):
    """BatchNorm in linen."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.BatchNorm(use_running_average=True)(x))


def test_an_nnx_module_is_a_pure_function_of_its_parameters() -> None:
    net, x = Net(nnx.Rngs(0)), jnp.arange(8.0) / 8
    network = models.network(net, jnp.zeros(8))
    params = network.init(jax.random.key(1))
    np.testing.assert_allclose(network.apply(params, x), net(x), rtol=1e-6)
    assert set(params) == {"layers", "head"} and set(params["layers"]) == {"0", "1"}
    last = {
        path for path in [("head", "bias"), ("layers", "0", "bias"), ("layers", "1", "scale")] if network.is_last(path)
    }
    assert last == {("head", "bias")}
    moved = jax.tree.map(lambda leaf: leaf + 1, params)
    assert not np.allclose(jax.jit(network.apply)(moved, x), net(x))
    np.testing.assert_array_equal(network.apply(network.init(jax.random.key(2)), x), network.apply(params, x))
    again = pickle.loads(pickle.dumps(network))
    np.testing.assert_array_equal(again.apply(params, x), network.apply(params, x))
    with pytest.raises(ValueError, match=r"takes an input of shape \(8,\); got \(7,\)"):
        network.apply(params, x[:7])
    with pytest.raises(TypeError, match="params are not those of this network"):
        network.apply({"head": params["head"]}, x)


def test_a_function_of_streams_draws_parameters_from_the_key() -> None:
    network = models.network(Net, jnp.zeros(8))
    one, other = (network.init(jax.random.key(seed))["head"]["kernel"] for seed in (1, 2))
    assert not np.allclose(one, other)
    np.testing.assert_array_equal(one, jax.jit(network.init)(jax.random.key(1))["head"]["kernel"])
    members = jax.vmap(network.init)(jax.random.split(jax.random.key(0), 3))["head"]["kernel"]
    assert members.shape == (3, 6, 3) and np.ptp(np.asarray(members), axis=0).min() > 0


def test_an_agent_learns_with_an_nnx_module() -> None:
    env = seqdec.envs.linear(jnp.eye(3, 8))
    run = seqdec.run(seqdec.agents.replay_adamw(env, model=Net(nnx.Rngs(0))), env, 40, seed=0, progress=False)
    assert run.rejected.sum() == 0 and np.isfinite(run.rewards).all()


def test_a_module_for_batches_is_wrapped_on_request() -> None:
    module = Images(nnx.Rngs(0))
    x = jax.random.normal(jax.random.key(0), (6, 6, 1))
    with pytest.raises(ValueError, match=r"batched=True\) for a module that takes batches"):
        models.network(module, x)
    network = models.network(module, x, batched=True)
    params = network.init(jax.random.key(1))
    assert network.apply(params, x).shape == (3,)
    batch = jnp.stack([x, 2 * x])
    np.testing.assert_allclose(jax.vmap(network.apply, (None, 0))(params, batch), module(batch), rtol=1e-5, atol=1e-6)
    assert network.is_last(("output", "kernel")) and not network.is_last(("conv", "kernel"))
    by_hand = models.network(module, x, batched=True, is_last=lambda path: path[0] != "output")
    assert not by_hand.is_last(("output", "kernel"))
    with pytest.raises(ValueError, match="whose first axis is not the batch's"):
        models.network(Sums(nnx.Rngs(0)), x, batched=True)


class Sums(nnx.Module):
    """Sums over the batch."""

    def __init__(self, rngs: nnx.Rngs):
        self.head = nnx.Linear(1, 3, rngs=rngs)

    def __call__(self, x):
        return self.head(x).sum((0, 1))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            lambda: Net(nnx.Rngs(0), nnx.BatchNorm(6, rngs=nnx.Rngs(0))),
            r"extra\.mean \(BatchStat\).*LayerNorm or GroupN",
        ),
        (
            lambda: Net(nnx.Rngs(0), nnx.Dropout(0.5, rngs=nnx.Rngs(0))),
            r"draws random numbers.*module\.eval\(\) in nnx",
        ),
        (lambda: nnx.Dropout(0.5, deterministic=True), "has no parameters"),
        (
            LinenNorm,
            "has the variables batch_stats besides its parameters.*LayerNorm or GroupNorm in place of BatchNorm",
        ),
        (lambda: nnx.Linear(5, 3, rngs=nnx.Rngs(0)), r"Linear cannot be called: .*one input, here of shape \(8,\)"),
    ],
    ids=["batch-norm", "dropout", "no-parameters", "linen-batch-norm", "other-width"],
)
def test_a_module_that_is_no_function_of_parameters_and_input_is_refused(module, message: str) -> None:
    env = seqdec.envs.linear(jnp.eye(3, 8))
    with pytest.raises(ValueError, match=message):
        seqdec.agents.ekf(env, model=module())


def test_dropout_that_is_off_is_no_obstacle_and_models_are_told_apart() -> None:
    net = Net(nnx.Rngs(0), nnx.Dropout(0.5, rngs=nnx.Rngs(1)))
    net.eval()
    x = jnp.ones(8)
    network = models.network(net, x)
    np.testing.assert_allclose(network.apply(network.init(jax.random.key(0)), x), net(x), rtol=1e-6)
    assert digest(Net(nnx.Rngs(0))) == digest(Net(nnx.Rngs(0))) != digest(Net(nnx.Rngs(1)))
    with pytest.raises(TypeError, match=r"model must be a module of flax\.linen or flax\.nnx, or a seqdec"):
        seqdec.agents.ekf(seqdec.envs.linear(), model=Net)  # pyright: ignore
