"""Which parameters are matrices, and by which axes, in the names and shapes of several frameworks."""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from flax import nnx
from optax.contrib import MuonDimensionNumbers, muon

from seqdec import optim
from seqdec.optim import common, groups
from tests.toys import of_matrices


class Linen(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(7, 8, name="embed")(tokens)
        x = nn.MultiHeadDotProductAttention(num_heads=2, name="attention")(nn.LayerNorm()(x))
        x = nn.Conv(5, (3,))(x)
        x = nn.Conv(6, (3, 3))(x[..., None])
        return nn.Dense(4, name="head")(nn.Dense(9)(x))


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.embedding = nnx.Embed(7, 8, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(num_heads=2, in_features=8, rngs=rngs, decode=False)
        self.conv = nnx.Conv(3, 6, (2, 2), rngs=rngs)
        self.layers = nnx.List([nnx.Linear(8, 9, rngs=rngs), nnx.LayerNorm(9, rngs=rngs)])
        self.lm_head = nnx.Linear(9, 4, rngs=rngs)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["weight", "bias"], meta_fields=[])
@dataclasses.dataclass
class Layer:
    """A layer as equinox makes them: outputs first, and None for what is no parameter."""

    weight: Any
    bias: Any = None


def linen():
    return jax.eval_shape(Linen().init, jax.random.key(0), jnp.zeros((2, 5), int))["params"]


def haiku():
    return {
        "net/~/embed": {"embeddings": jnp.zeros((7, 8))},
        "net/~/multi_head_attention/query": {"w": jnp.zeros((8, 6)), "b": jnp.zeros(6)},
        "net/~/conv2_d": {"w": jnp.zeros((2, 2, 3, 6)), "b": jnp.zeros((6, 1, 1))},
        "net/~/logits": {"w": jnp.zeros((8, 4))},
    }


def equinox():
    attention = {"query_proj": Layer(jnp.zeros((6, 8))), "output_proj": Layer(jnp.zeros((8, 6)), jnp.zeros(8))}
    return {"attention": attention, "layers": [Layer(jnp.zeros((5, 3, 2, 2)), jnp.zeros((5, 1, 1))), Layer(None)]}


PARAMETERS = {
    "linen": (
        linen,
        {
            "attention/key/kernel": (8, 8),
            "attention/out/kernel": (8, 8),
            "attention/query/kernel": (8, 8),
            "attention/value/kernel": (8, 8),
            "Conv_0/kernel": (24, 5),
            "Conv_1/kernel": (9, 6),
            "Dense_0/kernel": (6, 9),
            "embed/embedding": "embedding",
            "head/kernel": "head",
        },
    ),
    "nnx": (
        lambda: nnx.state(Nnx(nnx.Rngs(0)), nnx.Param),
        {
            "attention/key/kernel": (8, 8),
            "attention/out/kernel": (8, 8),
            "attention/query/kernel": (8, 8),
            "attention/value/kernel": (8, 8),
            "conv/kernel": (12, 6),
            "layers/0/kernel": (8, 9),
            "embedding/embedding": "embedding",
            "lm_head/kernel": "head",
        },
    ),
    "haiku": (
        haiku,
        {
            "net/multi_head_attention/query/w": (8, 6),
            "net/conv2_d/w": (12, 6),
            "net/embed/embeddings": "embedding",
            "net/logits/w": "head",
        },
    ),
    "equinox": (
        equinox,
        {
            "attention/query_proj/weight": (8, 6),
            "attention/output_proj/weight": (6, 8),
            "layers/0/weight": (12, 5),
        },
    ),
}


@pytest.mark.parametrize("framework", PARAMETERS)
def test_matrices_of_each_framework(framework):
    """All parameters that are not listed are vectors, among them the biases (heads, size) of attention."""
    make, wanted = PARAMETERS[framework]
    params = make()
    names, labels = groups.leaf_names(params), jax.tree.leaves(optim.partition(params))
    axes = jax.tree.structure(params).flatten_up_to(optim.matrix_axes(params))
    found = {}
    for name, leaf, label, own in zip(names, jax.tree.leaves(params), labels, axes, strict=True):
        assert (own is not None) == (label == "matrix")
        found[name] = label
        if own is not None:
            found[name] = tuple(int(np.prod([leaf.shape[axis] for axis in part])) for part in own)
    assert found == {**dict.fromkeys(names, "vector"), **wanted}
    assert jax.tree.leaves(optim.hidden_matrices(params)) == [label == "matrix" for label in labels]
    transform = optim.racs(0.1)
    state = jax.eval_shape(transform.init, params)
    shapes = [size for size in wanted.values() if isinstance(size, tuple)]
    rows = jax.tree.leaves(of_matrices(state).matrices.rows)
    assert sorted(leaf.size for leaf in rows) == sorted(min(shape) for shape in shapes)
    updates, _ = jax.eval_shape(transform.update, params, state, params)
    assert jax.tree.structure(updates) == jax.tree.structure(params)
    jax.eval_shape(muon(0.1, muon_weight_dimension_numbers=optim.matrix_axes(params)).init, params)


FISMO = functools.partial(optim.scale_by_fismo, statistics="scale_free", eps=0.1)
MATRIX = jnp.asarray(np.random.default_rng(0).normal(size=(4, 6)), jnp.float32)


def directions(transform, gradient):
    """Of two gradients, the second twice the square of the first."""
    state, update = transform.init(gradient), jax.jit(transform.update)
    first, state = update(gradient, state)
    return first, update(jax.tree.map(lambda leaf: 2 * leaf**2, gradient), state)[0]


def test_a_kernel_moves_as_the_matrix_of_its_layer():
    """FISMO treats inputs and outputs differently, and the trees hold one parameter each."""
    wanted = directions(FISMO(), MATRIX)
    by_rule: list[tuple[Any, Any]] = [
        ({"query": {"kernel": MATRIX.reshape(4, 2, 3)}}, lambda leaf: leaf),
        ({"Conv_0": {"kernel": MATRIX.reshape(2, 2, 6)}}, lambda leaf: leaf),
        ({"linear": Layer(MATRIX.T)}, lambda leaf: leaf.T),
        ({"conv": Layer(MATRIX.reshape(2, 2, 6).transpose(2, 0, 1))}, lambda leaf: leaf.transpose(1, 2, 0)),
    ]
    axes = MuonDimensionNumbers((0, 1), (-2, -1))
    other = ({"other": {"kernel": MATRIX.reshape(2, 2, 2, 3)}}, lambda leaf: leaf)
    cases = [(None, *case) for case in by_rule]
    cases += [({"other": axes}, *other), (lambda params: jax.tree.map(lambda _: axes, params), *other)]
    for matrices, params, back in cases:
        moved = directions(FISMO(matrices=matrices), params)
        for direction, expected in zip(moved, wanted, strict=True):
            (leaf,) = jax.tree.leaves(direction)
            np.testing.assert_allclose(back(leaf).reshape(4, 6), expected, rtol=1e-4, atol=1e-6)


def test_axes_that_are_neither_inputs_nor_outputs_count_matrices():
    """Layers stacked along an axis, as `nn.scan` makes them, move each as it would alone."""
    stacked = jnp.stack([MATRIX, MATRIX**3, -MATRIX])
    options = {"matrices": {"layers": MuonDimensionNumbers(1, 2), "head": False}}
    transform = optim.fismo(0.1, statistics="scale_free", eps=0.1, **options)
    params = {"layers": {"kernel": stacked}, "head": MATRIX}
    single = optim.fismo(0.1, statistics="scale_free", eps=0.1)
    for number, moved in enumerate(directions(transform, params)):
        for layer, direction in zip(stacked, moved["layers"]["kernel"], strict=True):
            wanted = directions(single, {"hidden": layer})[number]["hidden"]
            np.testing.assert_allclose(direction, wanted, rtol=1e-4, atol=1e-6)
    state = of_matrices(transform.init(params)).matrices
    assert state.left["layers"]["kernel"].shape == (3, 4, 4)


@pytest.mark.parametrize(
    ("matrices", "error", "message"),
    [
        (
            {"hidden": MuonDimensionNumbers(0, 0)},
            ValueError,
            "different axes of the parameter 'hidden/kernel' of",
        ),
        ({"hidden": MuonDimensionNumbers(0, 3)}, ValueError, r"\(2, 2, 6\); got MuonDimensionNumbers\(.*=3\)"),
        ({"hidden": MuonDimensionNumbers((), 1)}, ValueError, "reduction_axis and output_axis must be different axes"),
        ({"hidden": "yes"}, TypeError, "True, False, None and MuonDimensionNumbers; got 'yes' at 'hidden'"),
        ({"hiden": True}, ValueError, "does not cover the parameter 'hidden/kernel'; it names: hiden"),
    ],
)
def test_choices_that_do_not_fit_are_refused(matrices, error, message):
    params = {"hidden": {"kernel": jnp.zeros((2, 2, 6))}}
    with pytest.raises(error, match=message):
        optim.racs(0.1, matrices=matrices).init(params)


def test_explanations_of_all_parameters():
    """Rule, rank and decay of every kind of parameter; layers of a stack are matrices of their own."""
    params = {
        "layers": {"kernel": jnp.zeros((3, 4, 6)), "bias": jnp.zeros((3, 6))},
        "query": {"kernel": jnp.zeros((8, 2, 3), jnp.bfloat16)},
        "head": {"kernel": jnp.zeros((6, 2))},
    }
    matrices = {"layers": {"kernel": MuonDimensionNumbers(1, 2), "bias": False}, "query": True, "head": False}
    table = optim.explain(optim.alice, params, rank=5, matrices=matrices, weight_decay=0.1, mask=optim.hidden_matrices)
    wanted = {
        "head/kernel": ((6, 2), "head", "", "Adam", None, None, False, 4 * 25),
        "layers/bias": ((3, 6), "vector", "", "Adam", None, None, False, 4 * 37),
        "layers/kernel": (
            (3, 4, 6),
            "matrix",
            "3 matrices 4 x 6",
            "alice",
            4,
            0.2,
            True,
            4 * 3 * (2 * 24 + 16 + 6 + 16 + 2),
        ),
        "query/kernel": (
            (8, 2, 3),
            "matrix",
            "matrix 8 x 6",
            "alice",
            5,
            0.2,
            True,
            4 * (2 * 8 * 5 + 6 * 5 + 8 + 25 + 2),
        ),
        "(shared)": ((), "", "", "", None, None, False, 12),
    }
    assert {name: tuple(None if cell is pd.NA else cell for cell in row) for name, row in table.T.items()} == wanted
    table = optim.explain("racs", params, rms=None, rest=optax.lion(0.1), matrices=matrices)
    assert table.rule.tolist() == ["rest", "rest", "racs", "racs", ""] and table.rms.isna().all()


@pytest.mark.parametrize("name", ["alice", "koala_plus_plus", "self_tuning_muon"])
def test_explanations_count_every_byte_of_the_state(name):
    params = nnx.state(Nnx(nnx.Rngs(0)), nnx.Param)
    table = optim.explain(name, params)
    state = jax.eval_shape(optim.REGISTRY[name](0.1).init, params)
    assert table.state_bytes.sum() == sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    assert set(table.rule[:-1]) == {name} or table.rule["lm_head/kernel"] == "Adam"


def test_explanations_are_of_optimizers_of_this_package():
    with pytest.raises(ValueError, match="unknown optimizer 'alcie': did you mean 'alice'"):
        optim.explain("alcie", {})
    with pytest.raises(TypeError, match=r"explain\(optim.alice, params, rank=8\); got <function adamw"):
        optim.explain(optax.adamw, {})  # pyright: ignore


def update_of(name, count):
    """A jitted update of so many matrices of one shape and a stack of two, and its arguments."""
    rng = np.random.default_rng(0)
    shapes = {f"layer_{index}": (6, 8) for index in range(count)} | {"experts": (2, 6, 8), "bias": (8,)}
    gradients = {key: jnp.asarray(rng.normal(size=shape), jnp.float32) for key, shape in shapes.items()}
    options = {"rank": 3} if name in ("alice", "apollo") else {}
    transform = optim.REGISTRY[name](0.1, **options, **({} if name == "apollo" else {"interval": 2}))
    return jax.jit(transform.update), gradients, transform.init(gradients)


@pytest.mark.parametrize("name", ["alice", "apollo", "soap"])
def test_equal_matrices_take_turns_in_one_program(name, monkeypatch):
    """The same steps as in a program for each, whose size does not grow with their number."""
    ends = []
    for large in (common._LARGE, 0):
        monkeypatch.setattr(common, "_LARGE", large)
        update, gradients, state = update_of(name, 3)
        for _ in range(3):
            moved, state = update(gradients, state)
        ends.append((moved, state))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *ends)
    monkeypatch.undo()
    products = [
        str(jax.make_jaxpr(update)(*rest)).count("dot_general") for update, *rest in map(update_of, [name] * 2, [3, 7])
    ]
    assert products[0] == products[1] > 0
    with jax.enable_x64(True):
        update, *rest = update_of(name, 2)
        assert jax.eval_shape(update, *rest)[0]["layer_0"].dtype == jnp.float32
