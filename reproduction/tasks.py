"""Training tasks on real data, small enough for a CPU: digits (MNIST), objects (CIFAR-10) and source code."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from reproduction.data import load_cifar10
from seqdec import models
from seqdec.core import Array, Key, PyTree
from seqdec.data import load_mnist

_TEST = 1000
"""Test images of a batch, of which there are at most four, and ten times the windows of text."""
_WINDOW = 64


class Task(NamedTuple):
    """A training task: data, initial parameters and a loss."""

    name: str
    init: Callable[[Key], PyTree]
    """(key) -> params"""
    data: PyTree
    """training data, passed to `loss`"""
    held_out: PyTree
    """batches of data that are not trained on, stacked, an even number: the first half chooses settings"""
    draw: Callable[[Key, PyTree, int], PyTree]
    """(key, data, size) -> a batch, drawn with replacement"""
    loss: Callable[[PyTree, PyTree], tuple[Array, Array]]
    """(params, batch) -> mean cross-entropy in nats, accuracy"""
    batch: int
    steps: int
    """steps of a run"""
    perplexity: bool = False
    """what held-out data are judged by: exp(loss); False: accuracy"""


def names() -> tuple[str, ...]:
    """The names that `make` knows."""
    return tuple(_MAKERS)


def make(name: str) -> Task:
    """The task called `name`. Raises FileNotFoundError if its data are missing and cannot be downloaded."""
    return _MAKERS[name]()


def _classification(
    name: str,
    module: nn.Module,
    train,
    test,
    scale: Callable[[Array], Array],
    *,
    batch: int,
    steps: int,
) -> Task:
    """A task of labeled images."""
    example = scale(jnp.asarray(train.images[:1]))[0]

    def loss(params, batch):
        images, labels = batch
        logits = jax.vmap(lambda x: module.apply({"params": params}, x))(scale(images))
        return _cross_entropy(jnp.asarray(logits), labels)

    def draw(key, data, size):
        return tuple(part[jax.random.randint(key, (size,), 0, len(data[1]))] for part in data)

    data = jnp.asarray(train.images), jnp.asarray(train.labels)
    size = min(_TEST, len(test.labels) // 2)
    whole = min(len(test.labels) // size // 2 * 2, 4) * size
    held_out = tuple(
        jnp.asarray(part[:whole]).reshape(-1, size, *part.shape[1:]) for part in (test.images, test.labels)
    )
    return Task(name, lambda key: module.init(key, example)["params"], data, held_out, draw, loss, batch, steps)


def _cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Mean loss, and accuracy: the share of labels whose logit is the largest."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return jnp.mean(losses), jnp.mean(jnp.argmax(logits, -1) == labels)


def _mnist() -> Task:
    """LeNet5 on MNIST."""
    data = load_mnist()
    return _classification("mnist", models.LeNet5(10), *data, lambda x: x / 255.0, batch=64, steps=600)


class ResNet(nn.Module):
    """Residual network with group norms on one image (32, 32, 3): three stages of one block, 16, 24 and 32 channels.

    The first convolution halves the height and width of the image, for a quarter of the cost.

    Source: He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", 2016; group norms: Wu, He, 2018.
    """

    out: int = 10
    widths: tuple[int, ...] = (16, 24, 32)

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Responses (out,) to one image."""
        x = models.PatchConv(self.widths[0], 3, 2, 1, use_bias=False, name="stem")(x)
        for index, width in enumerate(self.widths):
            stride = 1 if index == 0 else 2
            y = nn.relu(nn.GroupNorm(8, name=f"norm_{index}_0")(x))
            short = x if stride == 1 else models.PatchConv(width, 1, stride, use_bias=False, name=f"short_{index}")(y)
            y = models.PatchConv(width, 3, stride, 1, use_bias=False, name=f"conv_{index}_0")(y)
            y = nn.relu(nn.GroupNorm(8, name=f"norm_{index}_1")(y))
            x = short + models.PatchConv(width, 3, 1, 1, use_bias=False, name=f"conv_{index}_1")(y)
        x = nn.relu(nn.GroupNorm(8, name="norm")(x)).mean((0, 1))
        return nn.Dense(self.out, name="output")(x)


def _cifar() -> Task:
    """A small residual network on CIFAR-10, or on the excerpt at hand."""
    data = load_cifar10()
    return _classification("cifar", ResNet(), *data, lambda x: x / 127.5 - 1, batch=32, steps=300)


class Block(nn.Module):
    """Causal attention and an MLP on (t, width) features, each after a layer norm and added to its input."""

    width: int
    heads: int

    @nn.compact
    def __call__(self, x: Array, _: None = None) -> tuple[Array, None]:
        """The features of the next layer, as `flax.linen.scan` takes them."""
        size = len(x)
        y = nn.LayerNorm(name="norm_attention")(x)
        split = [nn.Dense(self.width, name=part)(y) for part in ("query", "key", "value")]
        query, key, value = (part.reshape(1, size, self.heads, -1) for part in split)
        y = jax.nn.dot_product_attention(query, key, value, is_causal=True)[0]
        x = x + nn.Dense(self.width, name="merge")(y.reshape(size, -1))
        y = nn.gelu(nn.Dense(4 * self.width, name="up")(nn.LayerNorm(name="norm_mlp")(x)))
        return x + nn.Dense(self.width, name="down")(y), None


class Transformer(nn.Module):
    """Causal transformer over characters: (t,) integers -> (t, vocabulary) logits; learned positions, no dropout."""

    vocabulary: int
    width: int = 64
    depth: int = 2
    heads: int = 4
    length: int = _WINDOW
    scanned: bool = False
    """one layer, compiled once, with the parameters of all stacked"""

    @nn.compact
    def __call__(self, tokens: Array) -> Array:
        """Logits of every position's next character."""
        positions = self.param("position_embedding", nn.initializers.normal(0.02), (self.length, self.width))
        x = nn.Embed(self.vocabulary, self.width, name="embed")(tokens) + jnp.asarray(positions)[: len(tokens)]
        if self.scanned:
            stack = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.depth)
            x, _ = stack(self.width, self.heads, name="layers")(x, None)
        else:
            for index in range(self.depth):
                x, _ = Block(self.width, self.heads, name=f"layer_{index}")(x)
        return nn.Dense(self.vocabulary, name="output")(nn.LayerNorm(name="norm")(x))


class Recurrent(nn.Module):
    """LSTM over characters: (t,) integers -> (t, vocabulary) logits."""

    vocabulary: int
    width: int = 96

    @nn.compact
    def __call__(self, tokens: Array) -> Array:
        """Logits of every position's next character."""
        x = nn.Embed(self.vocabulary, 32, name="embed")(tokens)
        x = nn.RNN(nn.OptimizedLSTMCell(self.width), name="lstm")(x)
        return nn.Dense(self.vocabulary, name="output")(x)


def library_sources() -> str:
    """The Python files at the top of this Python's standard library, one after the other, in ASCII."""
    folder = Path(os.__file__).parent
    return (
        "".join(path.read_text("utf-8", "replace") for path in sorted(folder.glob("*.py")))
        .encode("ascii", "replace")
        .decode("ascii")
    )


def characters(name: str, module: Callable[[int], nn.Module], steps: int) -> Task:
    """A network (vocabulary) of the next character of the standard library's sources; the last tenth is held out."""
    text = np.frombuffer(library_sources().encode("ascii"), np.uint8)
    alphabet, tokens = np.unique(text, return_inverse=True)
    tokens = tokens.astype(np.int32)
    split = len(tokens) * 9 // 10
    network = module(len(alphabet))
    starts = np.linspace(split, len(tokens) - _WINDOW - 1, _TEST // 10).astype(int)
    # The windows of both halves lie in the same files.
    starts = starts.reshape(-1, 2).T
    held_out = jnp.asarray(tokens[starts[..., None] + np.arange(_WINDOW + 1)])

    def loss(params, windows):
        logits = jax.vmap(lambda x: network.apply({"params": params}, x))(windows[:, :-1])
        return _cross_entropy(jnp.asarray(logits), windows[:, 1:])

    def draw(key, data, size):
        starts = jax.random.randint(key, (size, 1), 0, len(data) - _WINDOW - 1)
        return data[starts + jnp.arange(_WINDOW + 1)]

    def init(key):
        return network.init(key, jnp.zeros(_WINDOW, jnp.int32))["params"]

    data = jnp.asarray(tokens[:split])
    return Task(name, init, data, held_out, draw, loss, batch=4, steps=steps, perplexity=True)


_MAKERS: dict[str, Callable[[], Any]] = {
    "mnist": _mnist,
    "cifar": _cifar,
    "text": lambda: characters("text", Transformer, 2000),
    "scanned": lambda: characters("scanned", lambda size: Transformer(size, 48, 6, scanned=True), 400),
    "lstm": lambda: characters("lstm", Recurrent, 800),
}
"""A transformer of three layers; one of six, stacked; an LSTM."""
