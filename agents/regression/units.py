"""Standard units: contexts and rewards by their running means and standard deviations.

A value ten times as far from the mean as any before is cut off there first. Rewards are counted from the first one, to
save digits.

Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
"""

import math
from typing import NamedTuple

import jax.numpy as jnp

from seqdec.core import Array

FEW = 256
"""Numbers in a context up to which it is standardized."""
_FURTHEST, _TIMES, _ROUNDING = 5.0, 10.0, 1e-6
"""Cutoff of contexts in standard deviations; of values, by the largest before; deviation / mean of rounding."""


class Units(NamedTuple):
    """Running mean and sum of squared deviations."""

    seen: Array
    """() values"""
    mean: Array
    squares: Array
    furthest: Array
    """largest distance from the mean"""


def few(shape: tuple[int, ...]) -> bool:
    """Whether contexts of this shape are standardized."""
    return math.prod(shape) <= FEW


def unknown(shape: tuple[int, ...]) -> Units:
    """Before any value of this shape."""
    return Units(jnp.zeros(()), jnp.zeros(shape), jnp.zeros(shape), jnp.zeros(shape))


def cut(units: Units, values: Array) -> Array:
    """Values (..., *shape), those too far moved to the furthest allowed, except among the first two."""
    furthest = jnp.where(units.furthest > 0, _TIMES * units.furthest, jnp.inf)
    limits = units.mean - furthest, units.mean + furthest
    return jnp.clip(values.astype(units.mean.dtype), *(jnp.broadcast_to(limit, values.shape) for limit in limits))


def measured(units: Units, values: Array, present: Array) -> Units:
    """The units after values (k, ...), those `present` (k,) bool."""
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


def varying(units: Units) -> Array:
    """() how many differ."""
    return jnp.sum(_deviations(units)[1].astype(float))


def standard(units: Units, values: Array) -> Array:
    """(values - mean) / standard deviation; 0 where nothing varies yet."""
    std, varies = _deviations(units)
    return jnp.where(varies, (values.astype(std.dtype) - units.mean) / jnp.where(varies, std, 1), 0)


def _deviations(units: Units) -> tuple[Array, Array]:
    """Standard deviations, and where they are more than rounding."""
    variance = jnp.maximum(units.squares, 0) / jnp.maximum(units.seen, 1)
    std = jnp.sqrt(jnp.where(variance > 0, variance, 1))  # the root of zero has no derivative
    return std, (variance > 0) & (std > _ROUNDING * jnp.abs(units.mean))


def bounded(units: Units, values: Array) -> Array:
    """`standard`, cut off at five standard deviations."""
    return jnp.clip(standard(units, values), -_FURTHEST, _FURTHEST)


class Rewards(NamedTuple):
    """Unit and origin of rewards."""

    units: Units
    origin: Array
    """() the first reward"""

    @property
    def location(self) -> Array:
        """() mean reward from the origin."""
        return self.units.mean - self.origin

    @property
    def variance(self) -> Array:
        """() of the rewards."""
        return self.units.squares / jnp.maximum(self.units.seen, 1)

    def standard(self, y: Array) -> Array:
        """Rewards from the origin in standard units."""
        return standard(self.units._replace(mean=self.location), y)


def no_rewards() -> Rewards:
    """Before any reward."""
    return Rewards(unknown(()), jnp.zeros(()))


def counted(rewards: Rewards, y: Array, good: Array) -> tuple[Rewards, Array]:
    """Units after rewards y (...,), unless not `good` () bool, and these from the origin, or zeros."""
    y = cut(rewards.units, jnp.where(good, y, 0))
    origin = jnp.where((rewards.units.seen == 0) & good, y.ravel()[0], rewards.origin)
    fresh = measured(rewards.units, y.ravel(), jnp.broadcast_to(good, y.size))
    return Rewards(fresh, origin), jnp.where(good, y - origin, 0)
