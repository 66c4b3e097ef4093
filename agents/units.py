"""Standard units: contexts and rewards by their running means and standard deviations (Welford)."""

from typing import NamedTuple

import jax.numpy as jnp

from seqdec.core import Array

_FURTHEST = 5.0
"""Standard deviations at which contexts are cut off: rare values, and all while the deviation is hardly known."""


class Units(NamedTuple):
    """Running mean and sum of squared deviations."""

    seen: Array
    """() how many values"""
    mean: Array
    squares: Array


def unknown(shape: tuple[int, ...]) -> Units:
    """Before any value of this shape."""
    return Units(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape))


def measured(units: Units, values: Array, present: Array) -> Units:
    """The units after more values (k, ...), those that are present (k,) bool."""
    mask = jnp.reshape(present, (-1, *(1,) * units.mean.ndim))
    values = jnp.where(mask, values, 0)  # a product with the mask would keep NaN
    seen = units.seen + jnp.sum(present)
    mean = units.mean + jnp.sum(mask * (values - units.mean), 0) / jnp.maximum(seen, 1)
    return Units(seen, mean, units.squares + jnp.sum(mask * (values - units.mean) * (values - mean), 0))


def standard(units: Units, values: Array) -> Array:
    """(values - mean) / standard deviation; 0 where nothing varies yet."""
    std = jnp.sqrt(jnp.maximum(units.squares, 0) / jnp.maximum(units.seen, 1))
    varies = std > 1e-6 * jnp.abs(units.mean)
    return jnp.where(varies, (values - units.mean) / jnp.where(varies, std, 1), 0)


def bounded(units: Units, values: Array) -> Array:
    """`standard`, cut off at five standard deviations."""
    return jnp.clip(standard(units, values), -_FURTHEST, _FURTHEST)
