"""Every optimizer in the loops, wrappers and parameter trees of other libraries; mostly traced, not run."""

import dataclasses
import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint
import pytest
from flax import nnx
from flax.core import FrozenDict
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from optax import contrib

from seqdec import optim

NAMES = optim.REGISTRY.names()
RANDOM = np.random.default_rng(0)
PARAMS = {
    layer: {"bias": jnp.zeros(shape[1]), "kernel": jnp.asarray(RANDOM.normal(size=shape), jnp.float32)}
    for layer, shape in {"hidden": (5, 4), "output": (4, 2)}.items()
}
GRADS = jax.tree.map(lambda leaf: jnp.asarray(RANDOM.normal(size=leaf.shape), jnp.float32), PARAMS)


def make(name, learning_rate: Any = 0.1):
    return getattr(optim, name)(learning_rate)


WRAPPERS = {
    "partitioned": lambda name: optax.partition(
        {"matrix": make(name), "head": optax.sgd(0.1), "vector": optax.set_to_zero()},  # pyright: ignore
        optim.partition,
    ),
    "schedule_free": lambda name: contrib.schedule_free(make(name), 0.1),
    "reduced_on_plateau": lambda name: optax.chain(make(name), contrib.reduce_on_plateau()),
}


def kinds(tree):
    """Structure, and shape and dtype of each leaf."""
    return jax.tree.structure(tree), [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", NAMES)
def test_wrappers_keep_the_kinds_of_updates_and_state(name, wrapper):
    transform = WRAPPERS[wrapper](name)
    state = jax.eval_shape(transform.init, PARAMS)
    step = functools.partial(transform.update, value=jnp.float32(1.0))
    updates, after = jax.eval_shape(step, GRADS, state, PARAMS)
    assert kinds(updates) == kinds(PARAMS)
    assert kinds(after) == kinds(state)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["absent", "bias", "kernel"], meta_fields=["size"])
@dataclasses.dataclass
class Layer:
    """A module as equinox filters it: None for what is no array, a field that is no leaf, and it can be called."""

    bias: Any
    kernel: Any
    absent: Any = None
    size: int = 4

    def __call__(self, x):
        return x @ self.kernel + self.bias


def variables(tree):
    """Variables of nnx, as in `nnx.state(model, nnx.Param)`."""
    return nnx.State(jax.tree.map(nnx.Param, tree))


TREES = {
    "linen, frozen": FrozenDict,
    "nnx": variables,
    "equinox": lambda tree: [Layer(**layer) for layer in tree.values()],
    "haiku": lambda tree: {f"net/~/{name}": layer for name, layer in tree.items()},
}


def program(transform, params, gradients):
    """What a step computes, without the trees that it takes and returns, and without addresses of functions."""
    state = jax.eval_shape(transform.init, params)
    leaves, structure = jax.tree.flatten((gradients, state, params))

    def step(*leaves):
        gradients, state, params = structure.unflatten(leaves)
        return jax.tree.leaves(transform.update(gradients, state, params, value=jnp.float32(1.0)))

    return re.sub(r"0x[0-9a-f]+", "", str(jax.make_jaxpr(step)(*leaves)))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", NAMES)
def test_the_program_of_a_step_is_the_same_in_every_framework(name):
    """The output layer of the list has no name that tells, so that `matrices` does."""
    wanted = program(make(name), PARAMS, GRADS)
    for framework, convert in TREES.items():
        params, gradients = convert(PARAMS), convert(GRADS)
        transform = make(name)
        if framework == "equinox" and hasattr(transform.init(PARAMS)[0], "inner_states"):
            hidden, output = Layer(False, True), Layer(False, False)
            transform = getattr(optim, name)(0.1, matrices=[hidden, output])
        assert program(transform, params, gradients) == wanted, framework


class Net(nnx.Module):
    def __init__(self, rngs):
        self.hidden = nnx.Linear(5, 4, rngs=rngs)
        self.output = nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        return self.output(nnx.tanh(self.hidden(x)))


def loss_of(model):
    return jnp.mean((model(jnp.ones((3, 5))) - 1) ** 2)


@pytest.mark.parametrize(("name", "rate"), [("alice", 0.02), ("koala_plus_plus", 1.0)])
def test_nnx_trains_a_model(name, rate):
    @nnx.jit
    def step(model, optimizer):
        loss, gradients = nnx.value_and_grad(loss_of)(model)
        optimizer.update(model, gradients, value=loss)
        return loss

    model = Net(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, make(name, rate), wrt=nnx.Param)
    losses = [step(model, optimizer) for _ in range(20)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("name", NAMES)
def test_train_states_of_flax_take_all_but_the_filters_of_the_loss(name):
    """`apply_gradients` has no arguments for the transformation, and KOALA needs the loss."""
    state = jax.eval_shape(lambda: TrainState.create(apply_fn=len, params=PARAMS, tx=make(name)))

    def step(state):
        return state.apply_gradients(grads=GRADS)

    if name.startswith("koala"):
        with pytest.raises(ValueError, match="KOALA filters the loss, but did not get it"):
            jax.eval_shape(step, state)
    else:
        assert kinds(jax.eval_shape(step, state)) == kinds(state)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_needed_for_weight_decay_only(name):
    """As `optax.adam`, and unlike `optax.adamw`, of which a decay of zero needs them too."""
    transform = make(name)
    state = jax.eval_shape(transform.init, PARAMS)
    step = functools.partial(transform.update, value=jnp.float32(1.0))
    assert kinds(jax.eval_shape(step, GRADS, state)[0]) == kinds(PARAMS)
    decaying = getattr(optim, name)(0.1, weight_decay=0.1)
    with pytest.raises(ValueError, match="params"):
        jax.eval_shape(functools.partial(decaying.update, value=jnp.float32(1.0)), GRADS, state)


def test_state_is_sharded_as_its_parameters():
    """Arrays of their shape, the stacked momenta of the self-tuning methods, and the transposes of tall matrices."""
    mesh = Mesh(np.asarray(jax.devices()[:2]), ("model",))
    places = [
        NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((None, "model"), ("model", None), (None, None, "model"))
    ]
    wanted = {(4, 6): places[0], (4, 8): places[1], (4, 2): places[0], (2, 4, 6): places[2], (2, 8, 4): places[2]}
    shapes = {"hidden": (4, 6), "tall": (8, 4), "output": (4, 2)}
    params = {name: jax.device_put(jnp.ones(shape), places[0]) for name, shape in shapes.items()}
    for name in NAMES:
        for leaf in jax.tree.leaves(make(name).init(params)):
            if leaf.shape in wanted:
                assert leaf.sharding.is_equivalent_to(wanted[leaf.shape], leaf.ndim), (name, leaf.shape)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["alice", "koala_plus_plus"])
def test_state_survives_orbax(name, tmp_path):
    transform = make(name)
    _, state = transform.update(GRADS, transform.init(PARAMS), PARAMS, value=jnp.float32(1.0))
    with orbax.checkpoint.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "state", state)
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(tmp_path / "state", transform.init(PARAMS))
    assert kinds(restored) == kinds(state)
    for one, other in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(one, other)
