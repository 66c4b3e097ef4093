r"""Rows of an input, the numbers in them, and features of these.

    contexts      one row, a response for each action
    candidates    a row for each action, one response
    boxes         a row (context, action) for each action tried, one response; actions u by their bounds

z are the numbers of a row in standard units (`seqdec.agents.regression.units`), at most 256. Longer contexts with one
axis have the features 3 x / |x| of a regression without covariances, images none. Rows have up to three kinds of
features, of at most 256 numbers each: z; 0.3 times these and all products of two; and of candidates (z, a one for the
row of each table), of boxes (1, z) times Gaussian bumps in the action on a grid, as wide as its step. Row numbers alone
of more rows are features of a regression without covariances.
"""

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.agents.networks import row_count
from seqdec.agents.regression import units
from seqdec.agents.regression.conjugate import CONSTANT
from seqdec.core import Array, PyTree, Spaces

_MOST = 256
"""Features of a regression of rows."""
_PRODUCTS_STD = 0.3
"""Prior standard deviation of the weights of numbers and their products, in that of the noise."""
_BUMPS = 16
"""Of a grid, in any dimension about as many."""


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

    if not units.few(shape):
        return _as_it_is(actions, rows, directed if len(shape) == 1 else None)
    return Inputs(actions, rows, jnp.ravel, lambda row, numbers: numbers.reshape(shape), (jnp.ravel,))


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
    steps = max(2, round(_BUMPS ** (1 / width))) if width else 0
    if width and steps**width * (1 + size + width) <= _MOST:
        grid = np.array(list(itertools.product(np.linspace(-1, 1, steps), repeat=width)))

        def bumps(row):
            u = row[size:]
            near = jnp.exp(-0.5 * jnp.sum(((u[None] - grid.astype(row.dtype)) * (steps - 1) / 2) ** 2, axis=1))
            return jnp.outer(near, jnp.append(row, 1)).ravel()

        features.append(bumps)
    return Inputs(1, rows, lambda row: row[:size], replaced, tuple(features))


def _products(numbers: Callable[[PyTree], Array], size: int) -> list[Callable[[PyTree], Array]]:
    first, second = np.triu_indices(size)

    def products(row):
        z = numbers(row)
        return _PRODUCTS_STD * jnp.append(z, z[first] * z[second])

    return [products] if 1 <= size + len(first) <= _MOST else []
