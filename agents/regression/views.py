r"""What regressions see of a step: rows of the network's input, the numbers in them, and members by their features.

    contexts      one row, a response for each action
    candidates    a row for each action, one response
    boxes         a row (context, action) for each action that is tried, one response

z are the numbers of a row in standard units (`seqdec.agents.regression.units`), Box actions by their bounds as u in
[-1, 1]. Contexts of more than 256 numbers stay as they are. Those with one axis, such as hashed words, have the
features 3 x / |x| of a member without covariances, images none.

Features of rows, where they are at most 256: z and u; 0.3 times these and all products of two of them; of candidates
also (z, a one for the row of each table); of boxes also (1, z, u) times Gaussian bumps in u on a grid, whose width is
the step of the grid. Row numbers alone have a one for the row of each table, of larger tables in a member without
covariances.
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
from seqdec.agents.regression import nig, units
from seqdec.core import Array, PyTree, Spaces

_MOST = 256
"""Features of a member of rows."""
_PRODUCTS_STD = 0.3
"""Prior standard deviation of the weights of the member with products, in units of the noise's: few of many matter."""
_BUMPS = 16
"""Of a grid in one dimension, about as many in several."""


class View(NamedTuple):
    """The rows of a step, and what is seen of them."""

    rows: Callable[[PyTree], PyTree]
    """(candidates of a `Choices`) -> (b, ...) inputs of the network"""
    numbers: Callable[[PyTree], Array]
    """(input) -> the numbers that are seen in standard units"""
    replaced: Callable[[PyTree, Array], PyTree]
    """(input, numbers) -> the input with other numbers"""
    scaled: Callable[[PyTree], PyTree]
    """(input in standard units) -> the input with Box actions by their bounds"""
    features: tuple[Callable[[PyTree], Array], ...]
    """(scaled input) -> (F - 1,), of each kind of features"""
    wide: Callable[[PyTree], Array] | None = None
    """(scaled input) -> (F - 1,) of so many features that their covariance is left out"""
    shown: Callable[[PyTree], Array] | None = None
    """(observation) -> (m, ...) numbers that the units are measured on, one for each allowed action; None: the
    numbers of the rows"""


def _same(x: PyTree) -> PyTree:
    return x


def of_contexts(shape: tuple[int, ...]) -> View:
    """The view of contexts of this shape."""

    def rows(context):
        return context[None]

    if units.few(shape):
        return View(rows, _same, lambda x, numbers: numbers, _same, (jnp.ravel,))
    wide = _of_length_three if len(shape) == 1 else None
    return View(rows, lambda x: jnp.zeros(0), lambda x, numbers: x, _same, (), wide)


def _of_length_three(x: Array) -> Array:
    """The context at the length of the constant: the prior is as wide for many words as for one of 1,000 levels."""
    x = x.astype(float)
    x = x / jnp.maximum(jnp.max(jnp.abs(x)), jnp.finfo(x.dtype).tiny)
    return nig.CONSTANT * x / jnp.maximum(jnp.linalg.norm(x), jnp.finfo(x.dtype).tiny)


def of_candidates(spaces: Spaces) -> View:
    """The view of a Dict of candidates."""
    parts = spaces.observation_space
    assert isinstance(parts, gym_spaces.Dict)
    plain = sorted(name for name, part in parts.items() if np.issubdtype(part.dtype, np.floating))
    tables = {name: row_count(name, part) for name, part in parts.items() if name not in plain}
    shapes = {name: (parts[name].shape or ())[1:] for name in plain}
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    size = int(ends[-1]) if plain else 0
    raw = units.few((size,))

    def rows(candidates):
        return jax.tree.map(lambda leaf: leaf[:, None], candidates)

    def joined(x):
        return jnp.concatenate([jnp.zeros(0), *(jnp.ravel(x[name]).astype(float) for name in plain)])

    def replaced(x, numbers):
        split = jnp.split(numbers, ends[:-1]) if plain else ()
        return {**x, **{name: part.reshape(1, *shapes[name]) for name, part in zip(plain, split, strict=True)}}

    def coded(x):
        codes = [jax.nn.one_hot(x[name][0], count) for name, count in tables.items()]
        return jnp.concatenate([joined(x), *codes])

    def shown(observation):
        count = len(jax.tree.leaves(observation)[0])
        return jax.vmap(joined)(rows({name: observation[name] for name in plain})) if plain else jnp.zeros((count, 0))

    if not raw:
        return View(rows, lambda x: jnp.zeros(0), lambda x, numbers: x, _same, ())
    few = size + sum(tables.values()) <= _MOST
    numbers = [joined, *_products(joined, size)] if size else []
    features = (*numbers, coded) if tables and few else tuple(numbers)
    wide = coded if not size and not few else None
    return View(rows, joined, replaced, _same, features, wide, shown)


def of_boxes(spaces: Spaces, size: int) -> View:
    """The view of rows of `size` numbers in a context and a Box action."""
    actions = spaces.action_space
    assert isinstance(actions, gym_spaces.Box)
    low, high = (np.asarray(bound, float).ravel() / 2 for bound in (actions.low, actions.high))
    middle, half = low + high, np.where(high > low, high - low, 1)
    raw = units.few((size,))

    def rows(candidates):
        return candidates[:, None]

    def replaced(x, numbers):
        return jnp.concatenate([numbers, x[0, size:].astype(numbers.dtype)])[None]

    def scaled(x):
        unit = (x[:, size:] - middle[None].astype(x.dtype)) / half[None].astype(x.dtype)
        return jnp.concatenate([x[:, :size], unit], axis=1)

    if not raw:
        return View(rows, lambda x: jnp.zeros(0), lambda x, numbers: x, scaled, ())
    width = len(low)
    features = [jnp.ravel, *_products(jnp.ravel, size + width)]
    steps = max(2, round(_BUMPS ** (1 / width))) if width else 0
    if width and steps**width * (1 + size + width) <= _MOST:
        grid = np.array(list(itertools.product(np.linspace(-1, 1, steps), repeat=width)))

        def bumps(x):
            z, u = jnp.ravel(x), x[0, size:]
            near = jnp.exp(-0.5 * jnp.sum(((u[None] - grid.astype(x.dtype)) * (steps - 1) / 2) ** 2, axis=1))
            return jnp.outer(near, jnp.append(z, 1)).ravel()

        features.append(bumps)
    return View(rows, lambda x: x[0, :size], replaced, scaled, tuple(features))


def _products(numbers: Callable[[PyTree], Array], size: int) -> list[Callable[[PyTree], Array]]:
    """All numbers and the products of two of them, if these are not too many."""
    first, second = np.triu_indices(size)
    if not 1 <= size + len(first) <= _MOST:
        return []

    def products(x):
        z = numbers(x)
        return _PRODUCTS_STD * jnp.append(z, z[first] * z[second])

    return [products]
