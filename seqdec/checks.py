"""Validation of arguments, with errors that name the argument, its value and what would be accepted."""

import math
import operator
from collections.abc import Collection
from numbers import Real
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from seqdec.registry import unknown


def count(name: str, value: Any, minimum: int = 1) -> int:
    """`value` as a Python int of at least `minimum`.

    Raises:
        TypeError: not an integer. JAX arrays are refused too, because counts determine shapes.
        ValueError: below `minimum`.
    """
    if isinstance(value, jax.Array):
        raise TypeError(
            f"{name} must be a Python integer, because it determines shapes; got {value!r} "
            f"(with optax.inject_hyperparams, name {name!r} among its static_args)"
        )
    if isinstance(value, bool | np.bool_) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    if operator.index(value) < minimum:
        raise ValueError(f"{name} must be at least {minimum}; got {value}")
    return operator.index(value)


def number(name: str, value: Any, low: float = 0.0, high: float = math.inf, *, exclusive: bool = False) -> None:
    """Refuse a number outside [low, high), or (low, high) if `exclusive`; arrays and traced values pass.

    Raises:
        ValueError: out of range or NaN.
    """
    if not isinstance(value, int | float):
        return
    if not (low < value if exclusive else low <= value) or not value < high:
        bracket = "(" if exclusive else "["
        raise ValueError(f"{name} must lie in {bracket}{low:g}, {high:g}); got {value!r}")


def real(name: str, value: Any) -> float:
    """`value`, a number or an array that holds one, as a Python float.

    Raises:
        TypeError: not one real number. Text is refused, also that of a number.
        ValueError: an integer that no float can hold.
    """
    if not isinstance(value, Real):
        try:
            array = np.asarray(value)
        except ValueError:  # nested sequences of different lengths
            array = np.array(None)
        if array.size != 1 or not is_real(array.dtype):
            raise TypeError(f"{name} must be a number; got {value!r}")
        value = array.reshape(())
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be a number that a float can hold; got an integer above 1e308") from None


def positive(name: str, value: float) -> None:
    """Refuse a number that is not above zero; infinity and traced values pass.

    Raises:
        ValueError: zero, negative or NaN.
    """
    if not isinstance(value, Tracer) and not value > 0:
        raise ValueError(f"{name} must be positive; got {value!r}")


def non_negative(name: str, values: Any, *, max_ndim: int = 0) -> None:
    """Refuse negative or non-finite numbers, and arrays of more than `max_ndim` axes; traced values pass.

    Raises:
        ValueError: not finite, negative or of another shape.
    """
    if isinstance(values, Tracer):
        return
    array = np.asarray(values)
    if array.ndim > max_ndim or not np.all(np.isfinite(array) & (array >= 0)):
        shapes = "a finite number >= 0" if max_ndim == 0 else f"finite numbers >= 0 in at most {max_ndim} axes"
        raise ValueError(f"{name} must be {shapes}; got {values!r}")


def flag(name: str, value: Any) -> bool:
    """`value` as a bool.

    Raises:
        TypeError: not True or False.
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False; got {value!r}")
    return bool(value)


def choice(name: str, value: Any, known: Collection[str]) -> None:
    """Refuse a value that is not among `known`.

    Raises:
        ValueError: with the closest known value as a suggestion.
    """
    if value not in known:
        raise ValueError(unknown(name, value, known))


def numbers(name: str, values: Any) -> Any:
    """`values`, a tree of numbers whose leaves may be arrays or traced values; lists of numbers become arrays.

    Raises:
        TypeError: a leaf holds strings or anything else that is no real number; or there is no leaf.
        ValueError: a list is ragged, or an integer does not fit JAX's default integers.
    """
    values = jax.tree.map(lambda leaf: _as_array(name, leaf), values, is_leaf=_is_list)
    leaves = jax.tree.leaves(values)
    if not leaves:
        raise TypeError(f"{name} must hold numbers; got {values!r}")
    for leaf in leaves:
        known = leaf if hasattr(leaf, "dtype") else np.asarray(leaf)
        if not is_real(known.dtype):
            raise TypeError(
                f"{name} must hold real numbers; got {leaf!r}: convert it, as with float() or astype(float)"
            )
        if not isinstance(known, jax.Array) and known.dtype.kind in "iu" and known.dtype.itemsize > 4 and known.size:
            limits = jnp.iinfo(jax.dtypes.canonicalize_dtype(int))
            if known.min() < limits.min or known.max() > limits.max:
                raise ValueError(f"{name} must hold integers of at most {limits.bits} bits; got {leaf!r}: pass floats")
    return values


def _is_list(value: Any) -> bool:
    """Whether a value is a list of real numbers, which may be nested."""
    if not isinstance(value, list):
        return False
    leaves = [leaf if hasattr(leaf, "dtype") else np.asarray(leaf) for leaf in jax.tree.leaves(value)]
    return all(np.ndim(leaf) == 0 and is_real(leaf.dtype) for leaf in leaves)


def _as_array(name: str, value: Any) -> Any:
    if not _is_list(value):
        return value
    traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))
    try:
        return jnp.asarray(value) if traced else np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must hold lists of equal lengths; got {value!r}") from None


def is_real(dtype: Any) -> bool:
    """Whether a dtype is that of real numbers, integers or bools."""
    return any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_))


def integers(name: str, values: Any) -> jax.Array:
    """`values` as an integer array. Raises TypeError for numbers of another kind, ValueError for too large ones."""
    given = values if hasattr(values, "dtype") else np.asarray(values)
    if not jnp.issubdtype(given.dtype, jnp.integer):
        raise TypeError(f"{name} must hold integers, which count from 0; got {values!r}")
    return jnp.asarray(numbers(name, given))


def indices(name: str, values: Any, size: int, of: str) -> None:
    """Refuse indices outside [0, size) of things that `of` calls by name; traced values pass.

    Raises:
        ValueError: with the first of them.
    """
    if isinstance(values, Tracer):
        return
    known = np.asarray(values)
    outside = known[(known < 0) | (known >= size)]
    if outside.size:
        raise ValueError(f"{name} must hold indices of the {size} {of}, from 0 to {size - 1}; got {outside.ravel()[0]}")


def array(name: str, values: Any, ndim: int, low: float = -math.inf, high: float = math.inf) -> jax.Array:
    """`values` as a float32 array.

    Raises:
        ValueError: empty, without `ndim` axes, not finite, or outside [low, high].
    """
    numbers = np.asarray(values, np.float32)
    if numbers.ndim != ndim or numbers.size == 0:
        raise ValueError(f"{name} must be a non-empty array with {ndim} axes; got shape {numbers.shape}")
    if not np.all(np.isfinite(numbers) & (numbers >= low) & (numbers <= high)):
        raise ValueError(f"{name} must be finite numbers from {low} to {high}; got {numbers.tolist()}")
    return jnp.asarray(numbers)
