"""What the environments with a finite set of actions share: checks of arguments, and the verdict on an action."""

import operator
from typing import Any

import jax.numpy as jnp
import numpy as np

from seqdec.core import Array


def verdict(action: Array, expected: Array, reward: Array, mask: Array | None = None) -> tuple[Array, Array]:
    """(reward, regret) of `action` (); regret = best allowed of `expected` (n,) - expected[action].

    `reward` () is what the action pays if it is allowed. Both are NaN for an action that is out of range or, where
    there is a `mask` (n,) bool, masked out.
    """
    allowed = jnp.ones_like(expected, bool) if mask is None else mask
    index = in_range(action, expected.shape[0])
    valid = (index == action) & allowed[index]
    best = jnp.max(jnp.where(allowed, expected, -jnp.inf))
    return jnp.where(valid, reward, jnp.nan), jnp.where(valid, best - expected[index], jnp.nan)


def in_range(action: Array, num_actions: int) -> Array:
    """The nearest valid index, with which arrays may be read whatever the action is.

    Raises TypeError for an action that is not a single integer.
    """
    action = jnp.asarray(action)
    if action.shape != () or not jnp.issubdtype(action.dtype, jnp.integer):
        raise TypeError(f"an action must be a () integer array; got {action.dtype} of shape {action.shape}")
    return jnp.clip(action, 0, num_actions - 1)


def check_whole(name: str, value: Any, minimum: int) -> int:
    """`value` as an int; TypeError when it is not a whole number, ValueError when it is below `minimum`."""
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if operator.index(value) < minimum:
        raise ValueError(f"{name} must be at least {minimum}; got {value}")
    return operator.index(value)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """ValueError when `value` is none of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}")


def check_numbers(name: str, values: Any, ndim: int, low: float = -np.inf, high: float = np.inf) -> Array:
    """`values` as a float32 array; ValueError unless it has `ndim` axes, is filled, and is finite within the bounds."""
    array = np.asarray(values, np.float32)
    if array.ndim != ndim or array.size == 0:
        raise ValueError(f"{name} must be a filled array with {ndim} axes; got shape {array.shape}")
    if not np.all(np.isfinite(array) & (array >= low) & (array <= high)):
        raise ValueError(f"{name} must be finite numbers from {low} to {high}; got {array.tolist()}")
    return jnp.asarray(array)
