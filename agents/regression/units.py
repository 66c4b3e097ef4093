"""Standard units: contexts and rewards by their running means and standard deviations.

A value that is ten times as far from the mean as any before it is cut off there first (`cut`), so that a single absurd
one does little, while a unit that does grow is followed in a few steps.

Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp

from seqdec.core import Array

FEW = 256
"""Numbers in a context up to which it is seen in standard units; larger ones, such as images, stay as they are."""
_FURTHEST = 5.0
"""Standard deviations at which contexts are cut off: rare values, and all while the deviation is hardly known."""
_TIMES = 10.0
"""How many times as far from the mean as all before a value may be."""
_ROUNDING = 1e-6
"""Of the mean: a standard deviation that is not larger is rounding, and the values do not vary."""


class Units(NamedTuple):
    """Running mean and sum of squared deviations."""

    seen: Array
    """() how many values"""
    mean: Array
    squares: Array
    furthest: Array
    """largest distance from the mean so far"""


def few(shape: tuple[int, ...]) -> bool:
    """Whether contexts of this shape are seen in standard units."""
    return math.prod(shape) <= FEW


def unknown(shape: tuple[int, ...]) -> Units:
    """Before any value of this shape."""
    return Units(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape), jnp.zeros(shape))


def cut(units: Units, values: Array) -> Array:
    """Values (..., *shape), those too far away moved to the furthest allowed; the first two are never."""
    furthest = jnp.where(units.furthest > 0, _TIMES * units.furthest, jnp.inf)
    limits = units.mean - furthest, units.mean + furthest
    return jnp.clip(values.astype(units.mean.dtype), *(jnp.broadcast_to(limit, values.shape) for limit in limits))


def measured(units: Units, values: Array, present: Array) -> Units:
    """The units after more values (k, ...), those that are present (k,) bool."""
    mask = jnp.reshape(present, (-1, *(1,) * units.mean.ndim))
    values = jnp.where(mask, values, 0).astype(units.mean.dtype)  # a product with the mask would keep NaN
    weights = mask.astype(values.dtype)
    new, seen = jnp.sum(weights), units.seen + jnp.sum(weights)
    center = jnp.sum(values, 0) / jnp.maximum(new, 1)
    squares = jnp.sum(weights * (values - center[None]) ** 2, 0)
    step, share = center - units.mean, new / jnp.maximum(seen, 1)
    center = jnp.where(units.seen > 0, units.mean, center)
    furthest = jnp.maximum(units.furthest, jnp.max(weights * jnp.abs(values - center[None]), 0, initial=0))
    return Units(seen, units.mean + step * share, units.squares + squares + step**2 * share * units.seen, furthest)


def standard(units: Units, values: Array) -> Array:
    """(values - mean) / standard deviation; 0 where nothing varies yet."""
    variance = jnp.maximum(units.squares, 0) / jnp.maximum(units.seen, 1)
    std = jnp.sqrt(jnp.where(variance > 0, variance, 1))  # the root of zero has no derivative
    varies = (variance > 0) & (std > _ROUNDING * jnp.abs(units.mean))
    return jnp.where(varies, (values.astype(std.dtype) - units.mean) / jnp.where(varies, std, 1), 0)


def bounded(units: Units, values: Array) -> Array:
    """`standard`, cut off at five standard deviations."""
    return jnp.clip(standard(units, values), -_FURTHEST, _FURTHEST)
