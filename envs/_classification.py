"""Classification as a bandit: the context is an image, an action a class, the reward 1 if it is the label, else 0.

`params` holds the data set as uint8, once for all seeds; a step converts one image to float32.
"""

import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete

from seqdec.boundary import checks
from seqdec.boundary.checks import keyed
from seqdec.core import Array, Environment, Key, TimeStep
from seqdec.data import Dataset, load_digits, load_fashion_mnist, load_idx_folder, load_mnist
from seqdec.envs.outcomes import in_range, reward_and_regret


class Examples(NamedTuple):
    """Labeled images."""

    images: Array
    """(n, ...) uint8"""
    labels: Array
    """(n,) int32"""


class State(NamedTuple):
    shown: Array
    """() int32 example shown."""
    step: Array
    """() int32 steps done in this episode."""
    order: Array | None
    """(n,) int32 for order="shuffle": examples already shown in this pass, then others."""


def classification(
    images: np.ndarray,
    labels: np.ndarray,
    *,
    num_classes: int | None = None,
    peak: int = 255,
    order: str = "shuffle",
    pixels: str = "unsigned",
    horizon: int | None = None,
    full_information: bool = False,
    name: str = "classification",
) -> Environment:
    """Images (n, ...) uint8 with labels (n,) as a contextual bandit over `num_classes` classes (default: all present).

    Observation: pixels / `peak`, float32. Reward 1 if the action is the label, else 0; regret 1 - reward. With
    `full_information` the time step's `outcomes` (num_classes,) hold every action's reward.

    `order`: "shuffle", in random order, renewed after each pass; "sequential", that of the data; "replacement",
    independent draws. An episode is `horizon` steps, by default n, and begins a new pass. `pixels`: "signed" reads
    pixels above 127 as negative, an error in published experiments.

    Raises ValueError or TypeError for arrays that do not fit together or an unknown option.
    """
    images, labels = _check_examples(images, labels, peak)
    largest = int(labels.max())
    num_classes = largest + 1 if num_classes is None else checks.count("num_classes", num_classes, largest + 1)
    checks.choice("order", order, ("shuffle", "sequential", "replacement"))
    checks.choice("pixels", pixels, ("unsigned", "signed"))
    count = len(images)
    scale = np.float32(1 / peak)  # a factor, so that the bounds of the space are rounded like the observations
    horizon = count if horizon is None else checks.count("horizon", horizon, 1)

    def show(state: State, params: Examples) -> Array:
        image = params.images[state.shown]
        image = jax.lax.bitcast_convert_type(image, jnp.int8) if pixels == "signed" else image
        return image.astype(jnp.float32) * scale

    @keyed
    def reset(key: Key, params: Examples) -> tuple[State, Array]:
        start = jnp.arange(count, dtype=jnp.int32) if order == "shuffle" else None
        state = choose(key, jnp.int32(0), start, count, order)
        return state, show(state, params)

    @keyed
    def step(key: Key, state: State, action: Array, params: Examples) -> tuple[State, TimeStep]:
        rewards = jax.nn.one_hot(params.labels[state.shown], num_classes, dtype=jnp.float32)
        reward, regret = reward_and_regret(action, rewards, rewards[in_range(action, num_classes)])
        done = state.step + 1 >= horizon
        state = choose(key, jnp.where(done, 0, state.step + 1), state.order, count, order)
        outcomes = rewards if full_information else None
        return state, TimeStep(show(state, params), reward, regret, done, outcomes)

    low, high = (-128, 127) if pixels == "signed" else (0, peak)
    space = Box(float(low * scale), float(high * scale), images.shape[1:], np.float32)
    params = Examples(jnp.asarray(images), jnp.asarray(labels))
    return Environment(reset, step, params, space, Discrete(num_classes), name)


def digits(
    *,
    order: str = "shuffle",
    pixels: str = "unsigned",
    horizon: int | None = None,
    full_information: bool = False,
) -> Environment:
    """1,797 handwritten digits of 8 x 8 pixels from scikit-learn, as (64,) features in [0, 1]; ten classes.

    Keywords as in `classification`.
    """
    shown = Shown(order, pixels, horizon, full_information)
    return classification(*load_digits(), peak=16, name="digits", **shown._asdict())


def mnist(
    *,
    root: str | os.PathLike[str] | None = None,
    split: str = "train",
    order: str = "shuffle",
    pixels: str = "unsigned",
    horizon: int | None = None,
    full_information: bool = False,
) -> Environment:
    """MNIST: (28, 28) in [0, 1], ten classes. `split` is "train" (60,000) or "test" (10,000).

    `root` as in `seqdec.data.load_mnist`; other keywords as in `classification`.
    """
    shown = Shown(order, pixels, horizon, full_information)
    return _from_dataset("mnist", load_mnist(root), split, shown)


def fashion_mnist(
    *,
    root: str | os.PathLike[str] | None = None,
    split: str = "train",
    order: str = "shuffle",
    pixels: str = "unsigned",
    horizon: int | None = None,
    full_information: bool = False,
) -> Environment:
    """Fashion-MNIST; as `mnist`, with `seqdec.data.load_fashion_mnist`."""
    shown = Shown(order, pixels, horizon, full_information)
    return _from_dataset("fashion-mnist", load_fashion_mnist(root), split, shown)


def idx(
    path: str | os.PathLike[str],
    *,
    split: str = "train",
    order: str = "shuffle",
    pixels: str = "unsigned",
    horizon: int | None = None,
    full_information: bool = False,
) -> Environment:
    """The data set in the idx files of a folder; pixels / 255; classes are the labels of both halves.

    `path` as in `seqdec.data.load_idx_folder`; other keywords as in `mnist`.
    """
    shown = Shown(order, pixels, horizon, full_information)
    return _from_dataset("idx", load_idx_folder(path), split, shown)


class Shown(NamedTuple):
    order: str
    pixels: str
    horizon: int | None
    full_information: bool


def _from_dataset(name: str, data: Dataset, split: str, shown: Shown) -> Environment:
    checks.choice("split", split, Dataset._fields)
    num_classes = 1 + max(data.train.labels.max(), data.test.labels.max())
    return classification(*getattr(data, split), num_classes=num_classes, name=name, **shown._asdict())


def choose(key: Key, step: Array, order: Array | None, count: int, how: str) -> State:
    """The state that shows the example of `step`; "shuffle" is Fisher-Yates, one exchange per step."""
    position = step % count
    if order is None:
        drawn = jax.random.randint(key, (), 0, count, jnp.int32)
        return State(position if how == "sequential" else drawn, step, None)
    place = jax.random.randint(key, (), position, count, jnp.int32)
    here, there = order[position], order[place]
    order = order.at[jnp.stack([position, place])].set(jnp.stack([there, here]))
    return State(there, step, order)


def _check_examples(images: np.ndarray, labels: np.ndarray, peak: int) -> tuple[np.ndarray, np.ndarray]:
    """The arrays on the host; ValueError for wrong types or shapes."""
    images, labels = (np.asarray(checks.as_array(*one)) for one in (("images", images), ("labels", labels)))
    if images.dtype != np.uint8 or images.ndim < 2 or images.size == 0:
        raise ValueError(f"images must be uint8 (n, ...) with n > 0; got {images.dtype} of shape {images.shape}")
    if labels.dtype.kind not in "iu" or labels.shape != images.shape[:1]:
        raise ValueError(f"labels must be {images.shape[0]} integers; got {labels.dtype} of shape {labels.shape}")
    if labels.min() < 0:
        raise ValueError(f"labels must count from 0; the least is {labels.min()}")
    if images.max() > checks.count("peak", peak, 1):
        raise ValueError(f"peak={peak} must be the largest possible pixel; there is one of {images.max()}")
    return images, labels.astype(np.int32)
