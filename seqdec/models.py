"""Flax networks, and flax modules as a `Network`."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.linen.dtypes import promote_dtype
from jax.core import Tracer

from seqdec import modules
from seqdec.boundary.checks import flag, keyed, refuse_misfit
from seqdec.core import Array, IsLast, Key, Network, PyTree
from seqdec.modules import Model, Module
from seqdec.portable import portable
from seqdec.runtime import computed

__all__ = [
    "MLP",
    "IsLast",
    "LeNet5",
    "Linear",
    "Network",
    "PatchConv",
    "Score",
    "embedded",
    "network",
    "output_layer",
    "per_candidate",
]


def _output(out: int, *, use_bias: bool = True) -> nn.Dense:
    """Initially zero: equal responses, no gradient for hidden units before any data."""
    return nn.Dense(out, use_bias, kernel_init=nn.initializers.zeros_init(), name="output")


@portable
class MLP(nn.Module):
    """Fully connected: the flattened input, hidden layers of the given widths, `out` linear units.

    With `skip` the linear units see (input, last hidden layer). An input without numbers is one constant.
    """

    out: int
    features: tuple[int, ...] = (50, 50)
    activation: Callable[[Array], Array] = nn.elu
    skip: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Responses (out,) to an input of any shape."""
        x = given = jnp.ravel(x) if x.size else jnp.ones(1)
        for index, width in enumerate(self.features):
            x = self.activation(nn.Dense(width, name=f"hidden_{index}")(x))
        return _output(self.out)(jnp.concatenate([given.astype(x.dtype), x]) if self.skip else x)


class PatchConv(nn.Module):
    """k x k convolution of an image (height, width, channels), zero padding, as patches times a matrix.

    Unlike a grouped convolution it is fast with one kernel per seed.
    """

    features: int
    size: int
    stride: int = 1
    padding: int = 0
    use_bias: bool = True

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """The image of features."""
        if self.padding:
            x = jnp.pad(x, ((self.padding, self.padding), (self.padding, self.padding), (0, 0)))
        height, width = x.shape[0] - self.size + 1, x.shape[1] - self.size + 1
        step = self.stride
        # One axis after the other: a reverse pass then adds 2 k shifted images, not k^2.
        x = jnp.stack([x[:, j : j + width : step] for j in range(self.size)], axis=2)
        x = jnp.stack([x[i : i + height : step] for i in range(self.size)], axis=2)
        return nn.Dense(self.features, self.use_bias, name="kernel")(x.reshape(*x.shape[:2], -1))


def _halve(x: Array) -> Array:
    """2 x 2 average pooling of an image (height, width, channels)."""
    return nn.pool(x, 0.0, jax.lax.add, (2, 2), (2, 2), "VALID") / 4


class LeNet5(nn.Module):
    """LeNet-5 with ELU on an image (28, 28) or (28, 28, 1): 43,902 parameters with ten outputs.

    Two unpadded 5 x 5 convolutions (6 and 16 channels), each with 2 x 2 average pooling, then 120, 80 and `out` units.
    """

    out: int = 10

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Responses (out,) to an image."""
        if x.shape[:2] != (28, 28):
            raise ValueError(
                f"LeNet5 takes an image of shape (28, 28) or (28, 28, 1), not {x.shape}; resize it or use models.MLP"
            )
        x = x.reshape(28, 28, -1)
        x = _halve(nn.elu(PatchConv(6, 5, name="conv_0")(x)))
        x = _halve(nn.elu(PatchConv(16, 5, name="conv_1")(x)))
        x = nn.elu(nn.Dense(120, name="hidden_0")(jnp.ravel(x)))
        x = nn.elu(nn.Dense(80, name="hidden_1")(x))
        return _output(self.out)(x)


def network(
    module: Module | Callable[..., Any], example: PyTree, *, batched: bool = False, is_last: IsLast | None = None
) -> Network:
    """A flax module, from one input to a vector (out,), as a Network.

    Args:
        module: a flax.linen module; a flax.nnx module, always with its initial parameters; or (nnx.Rngs) -> nnx module.
        example: an input, without a batch axis.
        batched: the module takes (b, ...) and returns (b, out).
        is_last: (path) -> bool, true in the output layer; None: `output_layer`.

    Raises:
        ValueError: the module cannot take the input, returns no vector, draws random numbers, or has variables besides
            parameters.
        TypeError: neither a module nor a function that makes one.
    """
    own = modules.batched(modules.pure(module)) if flag("batched", batched) else modules.pure(module)

    def apply(params: PyTree, x: PyTree) -> Array:
        cause = None
        wanted, found = (jax.tree.map(jnp.shape, tree) for tree in (shapes, x))
        if jax.tree.structure(x) == jax.tree.structure(shapes):
            try:
                return jnp.asarray(own.apply(params, x))
            except Exception as error:
                wrong = "params are not those of this network"
                refuse_misfit(error, params, own_shapes, wrong, "pass what its init returned")
                if found == wanted or not isinstance(error, own.misfits):
                    raise
                cause = error
        raise ValueError(
            f"the network takes an input of shape {wanted}; got {found}: pass inputs of the shape that it was built for"
        ) from cause

    @keyed
    def init(key: Key) -> PyTree:
        return own.init(key, jax.tree.map(jnp.asarray, example))

    def own_shapes() -> PyTree:
        return jax.eval_shape(init, jax.random.key(0))

    # Without arrays and shapes that belong to the mesh that is set while they are made.
    given = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, example))
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), given)
    example = jax.tree.map(lambda leaf: leaf if isinstance(leaf, Tracer) else np.asarray(leaf), example)
    modules.check(own, shapes)
    return Network(init, apply, _output_layer(own, example) if is_last is None else is_last, example=shapes)


def of(model: Model, example: PyTree) -> Network:
    """A Network, itself or made of a flax module for inputs of the shape of `example`.

    Raises TypeError for anything else, and as `network`.
    """
    if isinstance(model, Network):
        return model
    if not modules.is_module(model):
        raise TypeError(
            f"model must be a module of flax.linen or flax.nnx, or a seqdec.models.Network; got {type(model).__name__}"
        )
    return network(model, example)


def per_candidate(scalar: Network) -> Network:
    """A scalar network for each row of features, (n, features) -> (n,)."""

    def apply(params, rows):
        return jax.vmap(lambda row: scalar.apply(params, row))(rows)[:, 0]

    return scalar._replace(apply=apply, example=None)


def _alike(candidate: dict[str, Array]) -> dict[str, Array]:
    parts = {"features": jnp.zeros(0), **candidate}
    return dict(zip(parts, promote_dtype(*parts.values()), strict=True))


class Score(nn.Module):
    """Expected reward of a candidate: an MLP of its embeddings and a dense layer of its features, concatenated.

    The candidate is a dict of "features" x (f,), optional, and embeddings (width,), such as (a_u, p_u) of a user and
    (b_v, g_v) of a video. With all options; without, the paper's reward model:

        reward = MLP(p_u, g_v, D x) + a_u + b_v + p_u . g_v + w . (x, level)
    """

    dense: int = 10
    hidden: tuple[int, ...] = (50, 50, 50)
    intercepts: bool = False
    """the first number of each embedding is added to the output"""
    product: bool = False
    """the inner product of the embeddings is added to the output: matrix factorization"""
    linear: bool = False
    """features and a constant are inputs of the last layer too: the linear model"""
    level: float = 10.0
    """the constant: the mean reward has `level` times the prior deviation of a weight"""

    @nn.compact
    def __call__(self, candidate: dict[str, Array]) -> Array:
        """The expected reward, (1,)."""
        candidate = _alike(candidate)
        embeddings = [candidate[name] for name in sorted(candidate) if name != "features"]
        first = int(self.intercepts)
        parts = [embedding[first:] for embedding in embeddings]
        direct = [embedding[:first] for embedding in embeddings if self.intercepts]
        if self.product and parts:
            direct.append(jnp.sum(math.prod(parts[1:], start=parts[0]), keepdims=True))
        if candidate["features"].size:
            parts.append(nn.Dense(self.dense, name="dense")(candidate["features"]))
        if self.linear:
            direct.append(_output(1, use_bias=False)(jnp.append(candidate["features"], self.level)))
        return sum(direct, MLP(1, self.hidden, name="score")(jnp.concatenate([*parts, candidate["features"][:0]])))


class Linear(nn.Module):
    """Expected reward of a candidate: weights . features + c, plus its embeddings of width 1."""

    @nn.compact
    def __call__(self, candidate: dict[str, Array]) -> Array:
        """The expected reward, (1,)."""
        candidate = _alike(candidate)
        weighted = _output(1)(candidate["features"])
        return sum((candidate[name] for name in sorted(candidate) if name != "features"), weighted)


def embedded(
    module: Module,
    example: dict[str, Array],
    sizes: Mapping[str, int],
    width: int,
    std: Array | float = 1.0,
    is_last: IsLast | None = None,
) -> Network:
    """A network that looks up the embeddings in the input of a flax module.

    Row numbers in the input under the name of a table become rows (width,), "features" stay, and other row numbers are
    left out. Parameters: {"network": of the module, "tables": {name: (rows, width)}}, tables initially N(0, std^2).

    Args:
        module: a dict -> (out,).
        example: an input, without a batch axis.
        sizes: name of a table -> number of rows.
        width: numbers in an embedding.
        std: standard deviation of the initial embeddings, () or (width,).
        is_last: (path of the module's parameters) -> bool, true in the output layer; None: `output_layer`.

    Raises ValueError for a table that is not in the input.
    """
    missing = set(sizes) - set(example)
    if missing:
        raise ValueError(f"tables {sorted(missing)} are not in the input, which holds {sorted(example)}")
    plain = [name for name, entry in example.items() if jnp.issubdtype(entry.dtype, jnp.floating)]
    inner = network(module, {**{name: example[name] for name in plain}, **{name: jnp.zeros(width) for name in sizes}})

    @keyed
    def init(key: Key) -> PyTree:
        keys = jax.random.split(key, len(sizes) + 1)
        tables = {
            name: jnp.reshape(std, (1, -1)) * jax.random.normal(k, (rows, width))
            for k, (name, rows) in zip(keys[1:], sorted(sizes.items()), strict=True)
        }
        return {"network": inner.init(keys[0]), "tables": tables}

    def apply(params: PyTree, x: dict[str, Array]) -> Array:
        if not isinstance(x, Mapping) or not set(example) <= set(x):
            found = sorted(x) if isinstance(x, Mapping) else type(x).__name__
            raise ValueError(f"an input must be a dict with the entries {sorted(example)}; got {found}")
        rows = {name: params["tables"][name][x[name]] for name in sizes}
        return inner.apply(params["network"], {**{name: x[name] for name in plain}, **rows})

    output = inner.is_last if is_last is None else is_last
    return Network(init, apply, lambda path: path[0] == "network" and output(path[1:]), tuple(sorted(sizes)))


def output_layer(module: Module, example: PyTree) -> IsLast:
    """(path) -> bool, true in the output layer of a flax module.

    It is the innermost submodule that returns what the module returns, up to shape. Without one, as for a final
    activation, always false: write `lambda path: path[0] == "head"` by hand.
    """
    return _output_layer(modules.pure(module), example)


def _output_layer(own: modules.Pure, example: PyTree) -> IsLast:
    example = jax.tree.map(lambda leaf: np.ones(jnp.shape(leaf), jnp.result_type(leaf)), example)
    shapes = jax.eval_shape(lambda: own.init(jax.random.key(0), example))
    # Random numbers in every array, because layers of zeros would return the same by accident.
    random = np.random.default_rng(0)
    params = jax.tree.map(lambda leaf: random.standard_normal(leaf.shape, np.float32), shapes)
    paths: list[modules.Path] = []

    def call(params, example):
        out, made = own.calls(params, example)
        paths.extend(path for path, value in made if isinstance(value, jax.Array))
        return out, [value for _, value in made if isinstance(value, jax.Array)]

    out, values = jax.device_get(computed(call, params, example))
    same = [path for path, value in zip(paths, values, strict=True) if np.array_equal(np.ravel(value), np.ravel(out))]
    prefix = max(same, key=len, default=())
    return lambda path: bool(prefix) and path[: len(prefix)] == prefix
