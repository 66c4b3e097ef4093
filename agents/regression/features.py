r"""Rows of an input, the numbers in them, and features of these.

    contexts      one row, a response for each action
    candidates    a row for each action, one response
    boxes         a row (context, action) for each action tried, one response; actions u by their bounds

z are the numbers of a row in standard units (`seqdec.agents.regression.units`), at most 256. Longer contexts with one
axis have the features 3 z / |z| of a regression without covariances, and z of a sparse one, images none. Rows have up
to three kinds of features, of at most 256 numbers each: z; 0.3 times these and all products of two; and of candidates
(z, a one for the row of each table), of boxes 5 sqrt(2 / 64) cos(W v + b), v = (z, u), 64 fixed draws for a Gaussian
kernel of lengths 2 sqrt(d) in d numbers of the context and sqrt(k) / 2 in k of the action. Row numbers alone of more
rows are features of a regression without covariances.

Source: Rahimi, Recht, "Random features for large-scale kernel machines", NeurIPS 2007.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.agents.networks import row_count
from seqdec.agents.regression import sparse, units
from seqdec.agents.regression.conjugate import CONSTANT
from seqdec.core import Array, PyTree, Spaces

_MOST = 256
"""Features of a regression of rows."""
_PRODUCTS_STD = 0.3
"""Prior standard deviation of the weights of numbers and their products, in that of the noise."""
_WAVES, _WAVES_STD = 64, 5.0
"""Random Fourier features; prior standard deviation of their sum, in that of the noise."""
_FAR, _NEAR = 2.0, 0.5
"""Lengths of their kernel in contexts and in actions, in roots of the dimension."""


class Inputs(NamedTuple):
    """Rows of an input, and their features."""

    responses: int
    """n, of a row"""
    rows: Callable[[PyTree], PyTree]
    """(input) -> (b, ...) rows for the network"""
    numbers: Callable[[PyTree], Array]
    """(row) -> (d,) seen in standard units"""
    replaced: Callable[[PyTree, Array], PyTree]
    """(row, numbers) -> the row with other numbers"""
    features: tuple[Callable[[PyTree], Array], ...] = ()
    """(row in standard units) -> (F - 1,), of each kind"""
    wide: Callable[[PyTree], Array] | None = None
    """(row) -> (F - 1,) for a regression without covariance"""
    sparse: Callable[[PyTree], Array] | None = None
    """(row in standard units) -> (F - 1,) for a regression on few of them"""


def inputs_of(spaces: Spaces) -> Inputs:
    """Inputs in spaces that `seqdec.agents.choices.choices_for` takes."""
    observations, actions = spaces.observation_space, spaces.action_space
    if isinstance(observations, gym_spaces.Dict):
        return _candidates(observations)
    shape = (int(observations.n),) if isinstance(observations, gym_spaces.Discrete) else observations.shape or ()
    if isinstance(actions, gym_spaces.Box):
        return _points(math.prod(shape), actions)
    return _contexts(shape, int(actions.n))  # pyright: ignore[reportAttributeAccessIssue] (Discrete)


def _as_it_is(responses: int, rows: Callable[[PyTree], PyTree], wide: Callable[[PyTree], Array] | None) -> Inputs:
    return Inputs(responses, rows, lambda row: jnp.zeros(0), lambda row, numbers: row, wide=wide)


def _contexts(shape: tuple[int, ...], actions: int) -> Inputs:
    def rows(x):
        return x[None]

    def directed(x):
        """Scaled to the length of the constant."""
        x = x.astype(float)
        x = x / jnp.maximum(jnp.max(jnp.abs(x)), jnp.finfo(x.dtype).tiny)
        return CONSTANT * x / jnp.maximum(jnp.linalg.norm(x), jnp.finfo(x.dtype).tiny)

    if not units.few(shape) and len(shape) > 1:
        return _as_it_is(actions, rows, None)
    known = Inputs(actions, rows, jnp.ravel, lambda row, numbers: numbers.reshape(shape))
    if units.few(shape):
        return known._replace(features=(jnp.ravel,))
    return known._replace(wide=directed, sparse=jnp.ravel if sparse.suits(actions, math.prod(shape) + 1) else None)


def _candidates(parts: gym_spaces.Dict) -> Inputs:
    plain = sorted(name for name, part in parts.items() if np.issubdtype(part.dtype, np.floating))
    tables = {name: row_count(name, part) for name, part in parts.items() if name not in plain}
    shapes = {name: (parts[name].shape or ())[1:] for name in plain}
    ends = np.cumsum([0, *(math.prod(shape) for shape in shapes.values())])
    size = int(ends[-1])

    def numbers(row):
        return jnp.concatenate([jnp.zeros(0), *(jnp.ravel(row[name]).astype(float) for name in plain)])

    def replaced(row, z):
        fresh = {name: z[a:b].reshape(shapes[name]) for name, a, b in zip(plain, ends, ends[1:], strict=False)}
        return {**row, **fresh}

    def coded(row):
        return jnp.concatenate([numbers(row), *(jax.nn.one_hot(row[name], count) for name, count in tables.items())])

    if not units.few((size,)):
        return _as_it_is(1, lambda x: x, None)
    few = size + sum(tables.values()) <= _MOST
    features = [numbers, *_products(numbers, size)] if size else []
    features += [coded] if tables and few else []
    return Inputs(1, lambda x: x, numbers, replaced, tuple(features), None if size or few else coded)


def _points(size: int, actions: gym_spaces.Box) -> Inputs:
    low, high = (np.asarray(bound, float).ravel() / 2 for bound in (actions.low, actions.high))
    middle, half, width = low + high, np.where(high > low, high - low, 1), len(low)

    def rows(x):
        unit = (x[:, size:] - middle[None].astype(x.dtype)) / half[None].astype(x.dtype)
        return jnp.concatenate([x[:, :size], unit], axis=1)

    def replaced(row, z):
        return jnp.concatenate([z, row[size:].astype(z.dtype)])

    if not units.few((size,)):
        return _as_it_is(1, rows, None)
    features = [jnp.ravel, *_products(jnp.ravel, size + width)]
    if width:
        features.append(
            _waves(jnp.ravel, np.append(np.full(size, _FAR * size**0.5), np.full(width, _NEAR * width**0.5)))
        )
    return Inputs(1, rows, lambda row: row[:size], replaced, tuple(features))


def _products(numbers: Callable[[PyTree], Array], size: int) -> list[Callable[[PyTree], Array]]:
    first, second = np.triu_indices(size)

    def products(row):
        z = numbers(row)
        return _PRODUCTS_STD * jnp.append(z, z[first] * z[second])

    return [products] if 1 <= size + len(first) <= _MOST else []


def _waves(numbers: Callable[[PyTree], Array], lengths: np.ndarray) -> Callable[[PyTree], Array]:
    """Random Fourier features of a Gaussian kernel with a length (d,) for each number."""
    rng = np.random.default_rng(0)
    frequencies, phases = rng.normal(size=(_WAVES, len(lengths))) / lengths[None], rng.uniform(0, 2 * np.pi, _WAVES)

    def waves(row):
        z = numbers(row)
        return _WAVES_STD * (2 / _WAVES) ** 0.5 * jnp.cos(frequencies.astype(z.dtype) @ z + phases.astype(z.dtype))

    return waves
