"""Rewards as a regression is told them: absurd ones cut off, counted from the first."""

from typing import NamedTuple

import jax.numpy as jnp

from seqdec.agents.regression import units
from seqdec.agents.regression.units import Units
from seqdec.core import Array


class Rewards(NamedTuple):
    """What is known of the rewards' unit and origin."""

    units: Units
    origin: Array
    """() the first reward: a regression has no digits to spare for a far mean"""


def unknown() -> Rewards:
    """Before any reward."""
    return Rewards(units.unknown(()), jnp.zeros(()))


def measured(rewards: Rewards, y: Array, present: Array) -> tuple[Rewards, Array]:
    """The units after a step, and its rewards (n,) counted from the origin, those that are present (n,) bool."""
    y = units.cut(rewards.units, jnp.where(present, y, 0))
    begins = (rewards.units.seen == 0) & jnp.any(present)
    origin = jnp.where(begins, y[jnp.argmax(present)], rewards.origin)
    return Rewards(units.measured(rewards.units, y, present), origin), jnp.where(present, y - origin, 0)


def location(rewards: Rewards) -> Array:
    """() mean of the rewards, counted from the origin."""
    return rewards.units.mean - rewards.origin


def standard(rewards: Rewards, y: Array) -> Array:
    """Rewards counted from the origin, in standard units."""
    return units.standard(rewards.units._replace(mean=location(rewards)), y)
