"""Filters, agents and optimizers within `jax.shard_map`, whose default checks which arrays differ between devices."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec

import seqdec
from seqdec import filters, likelihoods, optim

ALL, EACH = PartitionSpec(), PartitionSpec("devices")
ENV = seqdec.envs.linear()
NETWORK = seqdec.models.network(seqdec.models.MLP(2, (3,)), np.zeros(2))
RANKS = {"ekf": (), "hilofi": ("rank",), "lofi": ("rank",), "lolofi": ("rank_hidden", "rank_last"), "lrkf": ("rank",)}
XS, YS, SEEDS = jnp.ones((2, 2)), jnp.ones((2, 2)), jnp.arange(2)


def check(function, *arguments):
    """The first argument is the same on two devices, of the others each has a row; nothing is summed over devices."""

    def one(same, *rows):
        return jax.tree.map(lambda leaf: leaf[None], function(same, *(row[0] for row in rows)))

    mesh = AbstractMesh((2,), ("devices",), (AxisType.Auto,))
    specs = (ALL, *(EACH for _ in arguments[1:]))
    sharded = jax.shard_map(one, mesh=mesh, in_specs=specs, out_specs=EACH)
    assert "psum" not in str(jax.make_jaxpr(sharded)(*arguments))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", RANKS)
def test_filters(name):
    flt = getattr(filters, name)(NETWORK, likelihoods.gaussian(0.1), **dict.fromkeys(RANKS[name], 2))
    params = NETWORK.init(jax.random.key(0))
    belief = flt.init(jax.random.key(0), params)

    def stream(belief, x, y):
        for _ in range(2):
            belief, info = flt.update(flt.predict(belief), x, y)
        return belief, info

    check(stream, belief, XS, YS)
    check(lambda params, x, y: stream(flt.init(jax.random.key(0), params), x, y), params, XS, YS)
    check(lambda belief, x, y: stream(flt.init(jax.random.key(x[0].astype(int)), params), x, y), belief, XS, YS)
    check(lambda belief, x, y: flt.update_batch(belief, x[None], y[None]), belief, XS, YS)
    check(lambda belief, x, y: jax.vmap(flt.update, (None, 0, 0))(belief, x[None], y[None]), belief, XS, YS)
    check(lambda belief, x: (flt.moments(belief, x), flt.marginals(belief)(x)), belief, XS)
    check(lambda belief, seed: flt.sample(jax.random.key(seed), belief), belief, SEEDS)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", sorted(set(seqdec.agents.REGISTRY) - {"popularity"}))
def test_agents(name):
    agent = seqdec.agents.make(name, ENV)
    state = jax.eval_shape(agent.init, jax.random.key(0))

    def step(state, x, seed):
        state, info = agent.update(state, x, seed % 2, jnp.sum(x))
        action = agent.act(jax.random.key(seed), state, x)
        return state, info, action

    check(step, state, XS, SEEDS)
    check(lambda _, x, seed: step(agent.init(jax.random.key(seed)), x, seed), (), XS, SEEDS)
    if agent.update_batch is not None:
        check(lambda state, x, seed: agent.update_batch(state, x[None], seed[None] % 2, x[:1]), state, XS, SEEDS)


@pytest.mark.parametrize("name", ["alice", "fismo", "koala_m", "racs", "shampoo"])
def test_optimizers(name):
    transform = optax.with_extra_args_support(getattr(optim, name)(0.1))
    params = {"w": jnp.ones((3, 3))}

    def step(state, gradient):
        return transform.update({"w": gradient}, state, params, value=jnp.sum(gradient))[0]

    check(step, transform.init(params), jnp.ones((2, 3, 3)))


@pytest.mark.extended
def test_each_device_learns_what_one_alone_would():
    flt, agent = filters.lrkf(NETWORK, likelihoods.gaussian(0.1), rank=2), seqdec.agents.make("adamw", ENV)

    def one(belief, state, x):
        row = x[0]
        belief, _ = flt.update(flt.predict(belief), row, row)
        state, _ = agent.update(state, row, 1, row[0])
        learned = flt.moments(belief, row), agent.act(jax.random.key(0), state, row), state.params
        return jax.tree.map(lambda leaf: leaf[None], learned)

    mesh = jax.make_mesh((2,), ("devices",), (AxisType.Auto,))
    key = jax.random.key(0)
    given = flt.init(key, NETWORK.init(key)), agent.init(key), jnp.array([[0.5, -0.2], [0.1, 0.9]])
    found = jax.jit(jax.shard_map(one, mesh=mesh, in_specs=(ALL, ALL, EACH), out_specs=EACH))(*given)
    alone = [jax.jit(one)(*given[:2], given[2][i : i + 1]) for i in range(2)]
    wanted = jax.tree.map(lambda *parts: np.concatenate(parts), *alone)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), found, wanted)


DEVICES = """
import jax, jax.numpy as jnp, numpy as np, optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from seqdec import optim

mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("data", "model"))
specs = {"a": ("data", "model"), "b": (None, "model"), "norm": ("model",), "blocks": (None, "data", None)}
shapes = {"a": (8, 16), "b": (16, 16), "norm": (16,), "blocks": (3, 16, 8)}
specs |= {"like_a": specs["a"], "otherwise": ("model",)}
shapes |= dict.fromkeys(("like_a", "otherwise"), shapes["a"])
rng = np.random.default_rng(0)
alone = {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
shared = {name: jax.device_put(alone[name], NamedSharding(mesh, PartitionSpec(*specs[name]))) for name in specs}
for name in ("alice", "fismo", "koala_m", "racs", "self_tuning_adamw", "soap"):
    transform = optax.with_extra_args_support(optim.REGISTRY[name](0.01))
    ends = []
    for given in (alone, shared):
        state = transform.init(given)
        lengths = {len(leaf.sharding.device_set) for leaf in jax.tree.leaves(state)}
        assert lengths == {len(given["a"].sharding.device_set)}, (name, lengths)

        def step(params, state):
            gradient = jax.tree.map(lambda leaf: jnp.sin(3 * leaf), params)
            update, state = transform.update(gradient, state, params, value=jnp.float32(1))
            return optax.apply_updates(params, update), state

        step = jax.jit(step, out_shardings=jax.tree.map(lambda leaf: leaf.sharding, (given, state)))
        ends.append(step(given, state))
        if given is shared:
            step(*ends[-1])
            assert step._cache_size() == 1, name
    for key in specs:
        np.testing.assert_allclose(ends[0][0][key], ends[1][0][key], atol=1e-5, err_msg=f"{name} {key}")
"""


def eight_devices() -> dict[str, str]:
    """Variables of a process that has them."""
    flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=8"
    return os.environ | {"XLA_FLAGS": flags}


@pytest.mark.slow
def test_optimizers_on_eight_devices():
    """State lies where sharded parameters lie, the second step compiles nothing, and the steps are those of one."""
    subprocess.run([sys.executable, "-c", DEVICES], env=eight_devices(), check=True, timeout=300)


RESTORED = """
import sys, orbax.checkpoint

transform = optim.alice(0.01, rank=4, interval=2)

def step(params, state):
    update, state = transform.update(jax.tree.map(lambda leaf: jnp.sin(3 * leaf), params), state)
    return optax.apply_updates(params, update), state

both = shared, transform.init(shared)
step = jax.jit(step, out_shardings=jax.tree.map(lambda leaf: leaf.sharding, both))
both = step(*both)
with orbax.checkpoint.StandardCheckpointer() as checkpointer:
    checkpointer.save(sys.argv[1], both)
    checkpointer.wait_until_finished()
    restored = checkpointer.restore(sys.argv[1], jax.tree.map(orbax.checkpoint.utils.to_shape_dtype_struct, both))
jax.tree.map(np.testing.assert_array_equal, step(*both), step(*restored))
assert step._cache_size() == 1
"""


@pytest.mark.slow
def test_orbax_restores_sharded_states(tmp_path):
    """The next step is the same to the bit, and compiles nothing."""
    pytest.importorskip("orbax.checkpoint")
    program = DEVICES.split("\nfor name in")[0] + RESTORED
    arguments = [sys.executable, "-c", program, str(tmp_path / "state")]
    subprocess.run(arguments, env=eight_devices(), check=True, timeout=300)
