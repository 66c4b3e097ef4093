"""Kinds of dimensions, and their encoding in columns of the unit cube.

A Real takes one column, linear or logarithmic; an Integer one column, divided into one interval for each value; an
Ordinal likewise, one for each choice; a Categorical one column for each choice, one-hot. Columns are continuous for
Real dimensions only: `snap` rounds all others to values of the dimension.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqdec import checks
from seqdec.bo import containers
from seqdec.registry import spelled_fields

_LARGEST_INTEGER = 2**53
"""Up to here every integer is a double."""


@spelled_fields
class Real(NamedTuple):
    """A real number from `low` to `high`, searched on a logarithmic scale where `log`."""

    low: float
    """Smallest value, included."""
    high: float
    """Largest value, included."""
    log: bool = False
    """Whether the scale is logarithmic."""


@spelled_fields
class Integer(NamedTuple):
    """An integer from `low` to `high`, both included, searched on a logarithmic scale where `log`."""

    low: int
    """Smallest value, included."""
    high: int
    """Largest value, included."""
    log: bool = False
    """Whether the scale is logarithmic."""


@spelled_fields
class Ordinal(NamedTuple):
    """One of `choices`, which are in order, such as (16, 32, 64) or ("low", "high"), searched as equally spaced."""

    choices: tuple[Any, ...]
    """As in `Categorical`."""


@spelled_fields
class Categorical(NamedTuple):
    """One of `choices`, which have no order."""

    choices: tuple[Any, ...]
    """Hashable values, all different. A study can be saved if they are strings, numbers, booleans, None, numpy scalars
    or tuples of these."""


Dimension = Real | Integer | Ordinal | Categorical


def check(dimension: Dimension, name: str) -> Dimension:
    """The dimension with Python numbers. Raises ValueError or TypeError, naming it, for invalid limits or choices."""
    if isinstance(dimension, Ordinal | Categorical):
        return type(dimension)(_check_choices(dimension, name))
    if any(isinstance(limit, bool | np.bool_) for limit in (dimension.low, dimension.high)):
        raise TypeError(f"{name} must be numbers; got {dimension.low!r} and {dimension.high!r}: use a Categorical")
    try:
        low, high = (checks.real(name, limit) for limit in (dimension.low, dimension.high))
    except TypeError:
        raise TypeError(f"{name} must be numbers; got {dimension.low!r} and {dimension.high!r}") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"{name} must be finite; got ({low}, {high}): give the range worth searching")
    if not low < high:
        hint = "exchange them" if low > high else "leave a fixed value out of the bounds and put it into the function"
        raise ValueError(f"{name} must have low < high; got ({low}, {high}): {hint}")
    log = checks.flag(f"log of {name}", dimension.log)
    if log and low <= 0:
        raise ValueError(f"{name} must be positive for a logarithmic scale; got ({low}, {high})")
    if math.isinf(high / low if log else high - low):
        raise ValueError(f"{name} span more than a float can hold; got ({low}, {high}): narrow them")
    if isinstance(dimension, Real):
        return Real(low, high, log)
    if not (low.is_integer() and high.is_integer()):
        raise ValueError(f"{name} must be whole numbers for an Integer; got ({low}, {high})")
    if max(-low, high) > _LARGEST_INTEGER:
        raise ValueError(f"{name} of an Integer must lie within +-2**53; got ({low}, {high}): use a Real")
    return Integer(int(low), int(high), log)


def _check_choices(dimension: Ordinal | Categorical, name: str) -> tuple[Any, ...]:
    """The choices as a tuple. Raises ValueError or TypeError."""
    if (choices := containers.sequence(dimension.choices)) is None:
        kind = "an Ordinal" if isinstance(dimension, Ordinal) else "a Categorical"
        raise TypeError(f"{name}: the choices of {kind} must be a tuple or list; got {dimension.choices!r}")
    for choice in choices:
        try:
            hash(choice)
        except TypeError:
            raise TypeError(
                f"{name}: a choice must be hashable; got {choice!r}: write a list as a tuple, and for anything else a "
                "name, by which the function finds it"
            ) from None
    if len(choices) < 2 or len(set(choices)) < len(choices):
        raise ValueError(f"{name} must have two or more different choices; got {tuple(choices)!r}")
    return tuple(choices)


def width(dimension: Dimension) -> int:
    """Columns of the unit cube."""
    return len(dimension.choices) if isinstance(dimension, Categorical) else 1


def count(dimension: Dimension) -> float:
    """Number of values; infinity for a Real."""
    return math.inf if isinstance(dimension, Real) else len(values(dimension))


def values(dimension: Dimension) -> Sequence[Any]:
    """All values. Raises ValueError for a Real."""
    if isinstance(dimension, Integer):
        return range(dimension.low, dimension.high + 1)
    if isinstance(dimension, Real):
        raise ValueError("a space with a Real dimension has no list of points")
    return dimension.choices


def value(dimension: Dimension, given: Any, name: str) -> Any:
    """`given` as a float, an integer or one of the choices. Raises ValueError or TypeError, naming it."""
    if isinstance(dimension, Ordinal | Categorical):
        try:
            return dimension.choices[place(dimension, given)]
        except (KeyError, TypeError):  # TypeError: it has no hash
            raise ValueError(f"{name} = {given!r} is none of {dimension.choices!r}") from None
    number = checks.real(name, given)
    if not dimension.low <= number <= dimension.high:
        raise ValueError(f"{name} = {given!r} lies outside the bounds [{dimension.low}, {dimension.high}]")
    if isinstance(dimension, Integer) and not number.is_integer():
        raise ValueError(f"{name} = {given!r} must be a whole number")
    return int(number) if isinstance(dimension, Integer) else number


def encode(dimension: Dimension, value: Any) -> np.ndarray:
    """(width,) columns of the unit cube for one of its values."""
    if isinstance(dimension, Ordinal):
        return encode(_places(dimension), place(dimension, value))
    if isinstance(dimension, Categorical):
        return np.eye(len(dimension.choices))[place(dimension, value)]
    low, high = _edges(dimension)
    if dimension.log:
        return np.array([math.log(value / low) / math.log(high / low)])
    return np.array([(value - low) / (high - low)])


def neutral(dimension: Dimension) -> np.ndarray:
    """(width,) columns of the unit cube that stand for no value: their mean over the cube."""
    return np.full(width(dimension), 1 / len(dimension.choices) if isinstance(dimension, Categorical) else 0.5)


def decode(dimension: Dimension, part: np.ndarray) -> Any:
    """The value nearest to (width,) columns of the unit cube."""
    if isinstance(dimension, Ordinal):
        return dimension.choices[decode(_places(dimension), part)]
    if isinstance(dimension, Categorical):
        return dimension.choices[int(np.argmax(part))]
    low, high = _edges(dimension)
    unit = min(max(float(part[0]), 0.0), 1.0)
    number = low * (high / low) ** unit if dimension.log else low + (high - low) * unit
    number = min(max(number, dimension.low), dimension.high)
    return round(number) if isinstance(dimension, Integer) else number


def snap(dimension: Dimension, part: np.ndarray) -> np.ndarray:
    """(n, width) columns -> the nearest encodings of values."""
    if isinstance(dimension, Real):
        return part
    if isinstance(dimension, Ordinal):
        return snap(_places(dimension), part)
    if isinstance(dimension, Categorical):
        return np.eye(len(dimension.choices))[np.argmax(part, axis=-1)]
    low, high = _edges(dimension)
    ratio = math.log(high / low) if dimension.log else 0.0
    number = low * np.exp(ratio * part) if dimension.log else low + (high - low) * part
    whole = np.clip(np.round(number), dimension.low, dimension.high)
    return np.log(whole / low) / ratio if dimension.log else (whole - low) / (high - low)


def _edges(dimension: Real | Integer) -> tuple[float, float]:
    """The numbers at 0 and 1 of the column; an integer's interval extends half a unit to each side."""
    half = 0.5 if isinstance(dimension, Integer) else 0.0
    return dimension.low - half, dimension.high + half


def _places(dimension: Ordinal) -> Integer:
    """The indices of the choices."""
    return Integer(0, len(dimension.choices) - 1)


def place(dimension: Ordinal | Categorical, value: Any) -> int:
    """The index of a choice, by hash, because a tuple and a numpy scalar cannot be compared."""
    return {choice: i for i, choice in enumerate(dimension.choices)}[value]
