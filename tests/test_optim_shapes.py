"""How layers of every kind are read: stacked, boxed, experts, convolutions, attention, vocabularies, LSTMs."""

import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import PartitionSpec

from seqdec import optim
from seqdec.optim import groups
from tests.toys import of_matrices


class Block(nn.Module):
    """A layer of a transformer, as the body of a scan."""

    heads: int = 2
    bias: bool = True

    @nn.compact
    def __call__(self, x, _=None):
        width = x.shape[-1]
        y = nn.MultiHeadDotProductAttention(self.heads, use_bias=self.bias, name="attention")(nn.LayerNorm()(x))
        y = x + y
        z = nn.gelu(nn.Dense(4 * width, use_bias=self.bias)(nn.RMSNorm()(y)))
        return y + nn.Dense(width, use_bias=self.bias)(z), None


class Model(nn.Module):
    """Tokens to logits, by layers one by one or under `nn.scan`."""

    vocabulary: int = 11
    width: int = 8
    depth: int = 3
    heads: int = 2
    scanned: bool = True
    axis: int = 0
    bias: bool = True

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(self.vocabulary, self.width, name="tokens_emb")(tokens)
        if self.scanned:
            options: dict[str, Any] = {"variable_axes": {"params": self.axis}, "split_rngs": {"params": True}}
            x, _ = nn.scan(Block, length=self.depth, **options)(self.heads, self.bias)(x, None)
        else:
            for index in range(self.depth):
                x, _ = Block(self.heads, self.bias, name=f"block_{index}")(x)
        return nn.Dense(self.vocabulary)(x)


class Boxed(nn.Module):
    @nn.compact
    def __call__(self, x):
        init = nn.initializers.lecun_normal()
        x = nn.Conv(8, (3, 3), kernel_init=nn.with_partitioning(init, (None, None, "in", "out")))(x)
        x = nn.Dense(6, kernel_init=nn.with_partitioning(init, ("in", "out")), name="inner")(x)
        return nn.Dense(5, name="head")(x)


class Perceptron(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (7, 9):
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(4)(x)


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.RNN(nn.OptimizedLSTMCell(6))(x)


class Ensemble(nn.Module):
    @nn.compact
    def __call__(self, x):
        members = nn.vmap(nn.Dense, variable_axes={"params": 0}, split_rngs={"params": True}, axis_size=5, in_axes=None)
        return members(6, use_bias=False)(x)


TOKENS = jnp.zeros((2, 5), jnp.int32)


def shapes(module, *inputs):
    return jax.eval_shape(module.init, jax.random.key(0), *inputs)["params"]


def arrays(**named):
    """Nested by dots."""
    tree: dict[str, Any] = {}
    for path, shape in named.items():
        *parts, last = path.split("__")
        node = tree
        for part in parts:
            node = node.setdefault(part, {})
        node[last] = jax.ShapeDtypeStruct(shape, jnp.float32)
    return tree


def layers(stack, order=lambda shape: shape, prefix=""):
    """Of `Block` with this prefix of the names."""
    attention = dict.fromkeys(("query", "key", "value"), (stack, 8, 8)) | {"out": (stack, 8, 8)}
    wanted = {f"attention/{part}/kernel": shape for part, shape in attention.items()}
    wanted |= {"Dense_0/kernel": (stack, 8, 32), "Dense_1/kernel": (stack, 32, 8)}
    return {f"{prefix}/{name}": shape for name, shape in wanted.items()}


def ensemble_of_nnx():
    @nnx.vmap(in_axes=0, out_axes=0)
    def make(rngs):
        return nnx.Linear(4, 6, rngs=rngs)

    return nnx.state(make(nnx.Rngs(0).split(3)), nnx.Param)


EMBEDDING, HEAD = "embedding", "head"
ENDS = {"tokens_emb/embedding": EMBEDDING, "Dense_0/kernel": HEAD}
# (number of matrices, inputs, outputs) or the group, of all parameters that are no vectors.
READINGS = {
    "scan": (lambda: shapes(Model(), TOKENS), ENDS | layers(3, prefix="ScanBlock_0")),
    "scan along axis 1": (lambda: shapes(Model(axis=1), TOKENS), ENDS | layers(3, prefix="ScanBlock_0")),
    "scan without biases": (lambda: shapes(Model(bias=False), TOKENS), ENDS | layers(3, prefix="ScanBlock_0")),
    "one by one": (
        lambda: shapes(Model(depth=1, scanned=False), TOKENS),
        ENDS | layers(1, prefix="block_0"),
    ),
    "boxed": (
        lambda: shapes(Boxed(), jnp.zeros((1, 5, 5, 4))),
        {"Conv_0/kernel": (1, 36, 8), "inner/kernel": (1, 8, 6), "head/kernel": HEAD},
    ),
    "vmap": (lambda: shapes(Ensemble(), jnp.zeros((2, 4))), {"VmapDense_0/kernel": (5, 4, 6)}),
    "nnx.vmap": (ensemble_of_nnx, {"kernel": (3, 4, 6)}),
    "perceptron": (
        lambda: shapes(Perceptron(), jnp.zeros(3)),
        {"Dense_0/kernel": (1, 3, 7), "Dense_1/kernel": (1, 7, 9), "Dense_2/kernel": HEAD},
    ),
    "lstm": (
        lambda: shapes(Recurrent(), jnp.zeros((2, 5, 4))),
        {f"OptimizedLSTMCell_0/{one}/kernel": (1, 4 if one[0] == "i" else 6, 6) for one in ("hf", "hg", "hi", "ho")}
        | {f"OptimizedLSTMCell_0/{one}/kernel": (1, 4, 6) for one in ("if", "ig", "ii", "io")},
    ),
    "lstm of equinox": (
        lambda: arrays(cell__weight_ih=(24, 4), cell__weight_hh=(24, 6), cell__bias=(24,)),
        {"cell/weight_ih": (1, 4, 24), "cell/weight_hh": (1, 6, 24)},
    ),
    "layers of equinox": (
        lambda: arrays(
            blocks__conv__weight=(3, 5, 4, 2, 2),
            blocks__conv__bias=(3, 5, 1, 1),
            blocks__norm__weight=(3, 5),
            blocks__norm__bias=(3, 5),
            blocks__linear__weight=(3, 7, 5),
        ),
        {"blocks/conv/weight": (3, 16, 5), "blocks/linear/weight": (3, 5, 7)},
    ),
    "haiku": (
        lambda: {
            "net/conv2_d": arrays(w=(3, 3, 4, 8), b=(8, 1, 1)),
            "net/mlp/~/linear_0": arrays(w=(8, 9), b=(9,)),
            "net/mlp/~/linear_1": arrays(w=(9, 5), b=(5,)),
        },
        {"net/conv2_d/w": (1, 36, 8), "net/mlp/linear_0/w": (1, 8, 9), "net/mlp/linear_1/w": HEAD},
    ),
    "experts": (
        lambda: arrays(moe__experts__wi=(8, 64, 256), moe__experts__wo=(8, 256, 64), moe__router__kernel=(64, 8)),
        {"moe/experts/wi": (8, 64, 256), "moe/experts/wo": (8, 256, 64), "moe/router/kernel": (1, 64, 8)},
    ),
    "scanned experts": (
        lambda: arrays(
            layers__experts__wi=(3, 8, 64, 256), layers__norm__scale=(3, 64), layers__query__kernel=(3, 64, 2, 32)
        ),
        {"layers/experts/wi": (24, 64, 256), "layers/query/kernel": (3, 64, 64)},
    ),
    "heads of einsums": (
        lambda: arrays(q_einsum__w=(4, 64, 16), attn_vec_einsum__w=(4, 16, 64)),
        {"q_einsum/w": (4, 64, 16), "attn_vec_einsum/w": (4, 16, 64)},
    ),
    "vocabulary of 50,257": (
        lambda: arrays(
            vocab__table=(50_257, 768),
            pos=(1024, 768),
            up__kernel=(768, 3072),
            down__kernel=(3072, 768),
            unknown__kernel=(768, 50_257),
        ),
        {
            "vocab/table": EMBEDDING,
            "pos": EMBEDDING,
            "up/kernel": (1, 768, 3072),
            "down/kernel": (1, 3072, 768),
            "unknown/kernel": HEAD,
        },
    ),
    "names of heads": (
        lambda: arrays(
            body__kernel=(6, 5),
            fc__kernel=(5, 3),
            logits_dense__kernel=(5, 3),
            decoder__kernel=(5, 4),
            fc1__kernel=(5, 6),
            value_head__kernel=(5, 2),
        ),
        {"body/kernel": (1, 6, 5), "fc1/kernel": (1, 5, 6)}
        | {f"{name}/kernel": HEAD for name in ("fc", "logits_dense", "decoder", "value_head")},
    ),
    "names of hidden layers": (
        lambda: arrays(decoder__up__kernel=(5, 6), fc__kernel=(6, 5), multi_head__kernel=(5, 5)),
        {"decoder/up/kernel": (1, 5, 6), "fc/kernel": (1, 6, 5), "multi_head/kernel": (1, 5, 5)},
    ),
}


def found(params, matrices=None):
    names, structure = groups.leaf_names(params), jax.tree.structure(params)
    axes = structure.flatten_up_to(groups.resolved(params, matrices))
    labels, leaves = jax.tree.leaves(optim.partition(params)), jax.tree.leaves(params)
    result = {}
    for name, leaf, label, own in zip(names, leaves, labels, axes, strict=True):
        if own is not None:
            result[name] = groups.axes_of(leaf, own)[0].sizes(leaf.shape)
        elif label != "vector":
            result[name] = label
    return result


@pytest.mark.parametrize("kind", READINGS)
def test_readings(kind):
    make, wanted = READINGS[kind]
    params = make()
    assert found(params) == wanted
    sides = [size for size in wanted.values() if isinstance(size, tuple)]
    state = of_matrices(jax.eval_shape(optim.soap(0.1).init, params)).matrices
    numbers = sum(stack * 2 * (m * n + m * m + n * n) for stack, m, n in sides)
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) == numbers


def test_scanned_axes_that_no_name_tells_are_given():
    params = arrays(tower__w=(3, 8, 6), tower__u=(8, 3, 6), other__w=(4, 5))
    assert found(params) == {"tower/w": (1, 24, 6), "tower/u": (1, 24, 6), "other/w": (1, 4, 5)}
    given = functools.partial(optim.matrix_axes, scanned={"w": 0, "u": 1})
    assert found(params["tower"], given) == {"w": (3, 8, 6), "u": (3, 8, 6)}
    with pytest.raises(ValueError, match=r"scanned names axis 3 of 'tower/u', whose shape is \(8, 3, 6\)"):
        optim.matrix_axes(params, scanned={"tower": 3})


def test_boxes_of_the_state_name_the_axes_that_they_have():
    """Moments those of the matrix, if each side is one axis; factors none. A step keeps the structure."""
    params = Boxed().init(jax.random.key(0), jnp.zeros((1, 5, 5, 4)))["params"]
    transform = optim.soap(0.1)
    start = transform.init(params)
    updates, state = jax.jit(transform.update)(params, start)
    assert jax.tree.structure(updates) == jax.tree.structure(params)
    assert jax.tree.structure(state) == jax.tree.structure(start)
    specs = nn.get_partition_spec(of_matrices(state).matrices)
    assert specs.moment["inner"]["kernel"] == PartitionSpec("out", "in")  # 6 x 8, the short side first
    assert specs.moment["Conv_0"]["kernel"] == PartitionSpec("out", None)
    for factors in (specs.left, specs.right, specs.left_basis, specs.right_basis):
        assert {factors[layer]["kernel"] for layer in ("Conv_0", "inner")} == {PartitionSpec(None, None)}


@pytest.mark.parametrize("name", optim.REGISTRY.names())
def test_boxes_name_no_more_axes_than_there_are(name):
    """Before a step and after it."""
    params = Boxed().init(jax.random.key(0), jnp.zeros((1, 5, 5, 4)))["params"]
    transform = optim.REGISTRY[name](0.1, weight_decay=0.1)
    start = transform.init(params)
    updates, state = jax.eval_shape(functools.partial(transform.update, value=jnp.ones(())), params, start, params)
    assert jax.tree.structure(updates) == jax.tree.structure(params)
    assert jax.tree.structure(state) == jax.tree.structure(start)
    boxes = [node for node in jax.tree.leaves(state, is_leaf=groups.is_box) if groups.is_box(node)]
    assert all(len(box.names) == leaf.ndim for box in boxes for leaf in jax.tree.leaves(box))


TRANSFORMS = {
    "soap": optim.soap(1e-3, interval=1),
    "fismo": optim.fismo(1e-3, interval=1),
    "shampoo": optim.shampoo(1e-3),
    "racs": optim.racs(1e-3),
    "alice": optim.alice(1e-3, rank=4, leading=4, interval=1),
    "self_tuning_muon": optim.self_tuning_muon(1e-3),
}


def restacked(params, depth):
    """Of a scanned model, its layers one by one."""
    rest = {name: part for name, part in params.items() if name != "ScanBlock_0"}
    blocks = (jax.tree.map(lambda leaf, i=i: leaf[i], params["ScanBlock_0"]) for i in range(depth))
    return rest | {f"block_{index}": block for index, block in enumerate(blocks)}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_losses_are_the_same_scanned_and_one_by_one(name):
    """With intervals of 1; else matrices take turns, and a stack is one of them.

    In float64: eigenvectors of nearly equal eigenvalues enlarge rounding, which differs between processors.
    """
    scanned, single = Model(), Model(scanned=False)
    params = scanned.init(jax.random.key(0), TOKENS)["params"]
    tokens = jnp.asarray(np.random.default_rng(0).integers(11, size=(4, 9)))

    def losses(module, params):
        def loss_of(params):
            logits = module.apply({"params": params}, tokens[:, :-1])
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        def step(carry, _):
            params, state = carry
            loss, gradients = jax.value_and_grad(loss_of)(params)
            updates, state = TRANSFORMS[name].update(gradients, state, params)
            return (optax.apply_updates(params, updates), state), loss

        return jax.jit(lambda p: jax.lax.scan(step, (p, TRANSFORMS[name].init(p)), length=8)[1])(params)

    with jax.enable_x64(True):
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), params)
        found, wanted = losses(scanned, params), losses(single, restacked(params, 3))
        assert found.dtype == jnp.float64
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert found[-1] < found[0]


def state_bytes(transform, params):
    state = jax.eval_shape(transform.init, params)
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))


@pytest.mark.parametrize("name", ["soap", "fismo", "shampoo"])
def test_state_of_a_scanned_transformer_is_that_of_its_layers(name):
    make = functools.partial(Model, vocabulary=512, width=256, depth=8, heads=8)
    sizes = [state_bytes(optim.REGISTRY[name](0.1), shapes(make(scanned=own), TOKENS)) for own in (True, False)]
    assert max(sizes) < 1e9
    assert sizes[0] == pytest.approx(sizes[1], rel=1e-5)  # biases of a stack share one norm


def moves(transform, gradients):
    """The last direction."""
    state, update = transform.init(gradients[0]), jax.jit(transform.update)
    for gradient in gradients:
        direction, state = update(gradient, state)
    return direction


NUMBERS = {
    "soap": 2 * 150_000 + 2 * 9,
    "eigen_adam": 2 * 150_000 + 2 * 9,
    "fismo": 150_000 + 2 * 9 + 2 * 50_000 + 2,
    "shampoo": 9 + 50_000,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_side_beyond_the_largest_has_a_diagonal_or_no_factor(name):
    """Gradients of one entry in each row and column, largest first, have diagonal factors, where all forms agree."""
    state = jax.eval_shape(optim.REGISTRY[name](0.1).init, {"hidden": jnp.zeros((3, 50_000))})
    assert sum(leaf.size for leaf in jax.tree.leaves(of_matrices(state).matrices)) == NUMBERS[name]
    sizes = np.random.default_rng(0).uniform(1, 2, (4, 3)) * [9, 3, 1]
    gradients = [jnp.asarray(np.eye(3, 5)[::-1] * size[:, None], jnp.float32) for size in sizes]
    options = {"polar": "exact", "interval": 1} if name == "fismo" else {"interval": 1}
    whole, left, neither = (getattr(optim, f"scale_by_{name}")(max_side=side, **options) for side in (5, 3, 2))
    wanted = moves(whole, gradients)
    assert jnp.linalg.norm(wanted) > 0
    for transform in (left, neither):
        np.testing.assert_allclose(moves(transform, gradients), wanted, rtol=2e-5, atol=1e-6)


def test_explanations_warn_of_states_beyond_four_times_that_of_adamw():
    params = arrays(tower__w=(8, 64, 32), body__kernel=(32, 32))
    with pytest.warns(
        UserWarning, match=r"1 parameters, above all 'tower/w', read as matrix 512 x 32, with 17.1 times"
    ):
        table = optim.explain("soap", params)
    assert table.reading["tower/w"] == "matrix 512 x 32"
    matrices = functools.partial(optim.matrix_axes, scanned={"tower": 0})
    for settings in ({"matrices": matrices}, {"max_side": 64}):
        assert optim.explain("soap", params, **settings).rule["tower/w"] == "soap"
