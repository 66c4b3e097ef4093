"""The domain of the function: kinds of dimensions, and their encoding in the unit cube on which surrogates work.

A Real takes one column of the cube, linear or logarithmic; an Integer one column, divided into one interval for each
value; a Categorical one column for each choice, one-hot. Columns are continuous for Real dimensions only: `snap`
rounds all others to values of the dimension.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from seqdec import checks
from seqdec.core import Array

_LARGEST_INTEGER = 2**53
"""Up to here every integer is a double."""


class Real(NamedTuple):
    """A real number from `low` to `high`, searched on a logarithmic scale where `log`."""

    low: float
    high: float
    log: bool = False


class Integer(NamedTuple):
    """An integer from `low` to `high`, both included, searched on a logarithmic scale where `log`."""

    low: int
    high: int
    log: bool = False


class Categorical(NamedTuple):
    """One of `choices`, which have no order."""

    choices: tuple[Any, ...]
    """Hashable values, all different. A study can be saved if they are strings, numbers, booleans, None, numpy scalars
    or tuples of these."""


Dimension = Real | Integer | Categorical


class Point(NamedTuple):
    """A point of a space in both representations."""

    x: Any
    """a read-only numpy array where all dimensions are Real, else a list"""
    unit: np.ndarray
    """(columns,) of the unit cube, read-only"""


class Space(NamedTuple):
    """A product of dimensions. A point is a list with one value for each, or a numpy array where all are Real."""

    dimensions: tuple[Dimension, ...]

    @property
    def columns(self) -> int:
        """Columns of the unit cube."""
        return sum(map(_width, self.dimensions))

    @property
    def all_real(self) -> bool:
        """Whether every dimension is Real."""
        return all(isinstance(dimension, Real) for dimension in self.dimensions)

    @property
    def continuous(self) -> np.ndarray:
        """(columns,) bool: the columns of Real dimensions."""
        return np.concatenate([np.full(_width(d), isinstance(d, Real)) for d in self.dimensions])

    @property
    def size(self) -> float:
        """How many points there are; infinity with a Real dimension."""
        return math.prod(_count(dimension) for dimension in self.dimensions)

    def points(self) -> Iterator[list[Any]]:
        """All points of a finite space, one after the other."""
        return map(list, itertools.product(*map(_values, self.dimensions)))

    def point(self, x: Any) -> Point:
        """A copy of `x`, of plain numbers and the choices given, with its encoding; a Point is returned as it is.

        Raises as `encode`.
        """
        if isinstance(x, Point):
            return x
        values = self.values(x)
        unit = self.encode(values)
        return Point(_read_only(np.array(values)) if self.all_real else values, _read_only(unit))

    def point_at(self, unit: np.ndarray) -> Point:
        """The point at (columns,) of the unit cube, with the encoding of its rounded values."""
        return self.point(self.decode(unit))

    def encode(self, x: Any) -> np.ndarray:
        """(columns,) of the unit cube for a point.

        Raises ValueError if it lies outside the bounds, and TypeError for a value that is not a number where one is
        needed.
        """
        values = self.values(x)
        return np.concatenate([_encode(d, value) for d, value in zip(self.dimensions, values, strict=True)])

    def values(self, x: Any) -> list[Any]:
        """The values of a point: floats, integers and choices. Raises as `encode`."""
        x = np.asarray(x) if isinstance(x, jax.Array) else x
        several = x.ndim > 0 if isinstance(x, np.ndarray) else isinstance(x, Sequence) and not isinstance(x, str)
        values = list(x) if several else [x]
        if len(values) != len(self.dimensions):
            raise ValueError(f"a point has {len(self.dimensions)} values; got {len(values)}: {x!r}")
        return [_value(d, value, i) for i, (d, value) in enumerate(zip(self.dimensions, values, strict=True))]

    def decode(self, unit: np.ndarray) -> Any:
        """The point at (columns,) of the unit cube."""
        ends = np.cumsum([_width(d) for d in self.dimensions])[:-1]
        values = [_decode(d, part) for d, part in zip(self.dimensions, np.split(np.asarray(unit), ends), strict=True)]
        return np.array(values) if self.all_real else values

    def snap(self, unit: Array) -> Array:
        """(..., columns) -> the nearest encodings of points, in the unit cube; traceable by JAX."""
        if self.all_real:
            return unit
        parts, start = [], 0
        for dimension in self.dimensions:
            part = unit[..., start : start + _width(dimension)]
            parts.append(_snap(dimension, part))
            start += _width(dimension)
        return jnp.concatenate(parts, axis=-1)


def space_from(bounds: Any) -> Space:
    """A space from bounds in any of the usual forms.

    Args:
        bounds: a Space; a sequence of (low, high) pairs, Real, Integer and Categorical; a `scipy.optimize.Bounds`; a
            bounded `gymnasium.spaces.Box`; a `gymnasium.spaces.Discrete`.

    Raises:
        ValueError: bounds that are reversed, equal, infinite, too wide for a float or empty, fewer than two choices or
            equal ones; the message names the dimension.
        TypeError: anything else.
    """
    if isinstance(bounds, Space):
        dimensions = bounds.dimensions
    elif isinstance(bounds, gymnasium.spaces.Discrete):
        dimensions = (Integer(int(bounds.start), int(bounds.start + bounds.n - 1)),)
    elif isinstance(bounds, gymnasium.spaces.Box):
        kind = Integer if np.issubdtype(bounds.dtype, np.integer) else Real
        dimensions = tuple(kind(*pair) for pair in zip(bounds.low.ravel(), bounds.high.ravel(), strict=True))
    elif isinstance(bounds, Sequence | np.ndarray) and not isinstance(bounds, str | Dimension):
        dimensions = tuple(_dimension(entry, i) for i, entry in enumerate(bounds))
    else:
        dimensions = _scipy_dimensions(bounds)
    if not dimensions:
        raise ValueError("bounds must have at least one dimension; got none")
    return Space(tuple(_check(dimension, i) for i, dimension in enumerate(dimensions)))


def _scipy_dimensions(bounds: Any) -> tuple[Dimension, ...]:
    """The dimensions of scipy's Bounds. Raises TypeError for anything else."""
    from scipy.optimize import Bounds

    if not isinstance(bounds, Bounds):
        raise TypeError(
            "bounds must be a sequence of (low, high) pairs or of Real, Integer and Categorical, scipy Bounds, or a "
            f"gymnasium Box or Discrete; got {bounds!r}"
        )
    pairs = np.broadcast_arrays(np.atleast_1d(bounds.lb), np.atleast_1d(bounds.ub))
    return tuple(Real(*pair) for pair in zip(*pairs, strict=True))


def _dimension(entry: Any, index: int) -> Dimension:
    if isinstance(entry, Dimension):
        return entry
    pair = list(entry) if isinstance(entry, Sequence | np.ndarray) and not isinstance(entry, str) else []
    if len(pair) != 2:
        raise TypeError(
            f"bounds[{index}] must be a pair (low, high), a Real, an Integer or a Categorical; got {entry!r}"
        )
    return Real(pair[0], pair[1])


def _check(dimension: Dimension, index: int) -> Dimension:
    """The dimension with Python numbers. Raises ValueError or TypeError, naming it, for invalid limits or choices."""
    if isinstance(dimension, Categorical):
        return Categorical(_check_choices(dimension.choices, f"bounds[{index}]"))
    try:
        low, high = (checks.real(f"bounds[{index}]", limit) for limit in (dimension.low, dimension.high))
    except TypeError:
        raise TypeError(f"bounds[{index}] must be numbers; got {dimension.low!r} and {dimension.high!r}") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"bounds[{index}] must be finite; got ({low}, {high}): give the range worth searching")
    if not low < high:
        hint = "exchange them" if low > high else "leave a fixed value out of the bounds and put it into the function"
        raise ValueError(f"bounds[{index}] must have low < high; got ({low}, {high}): {hint}")
    if dimension.log and low <= 0:
        raise ValueError(f"bounds[{index}] must be positive for a logarithmic scale; got ({low}, {high})")
    if math.isinf(high / low if dimension.log else high - low):
        raise ValueError(f"bounds[{index}] span more than a float can hold; got ({low}, {high}): narrow them")
    if isinstance(dimension, Real):
        return Real(low, high, bool(dimension.log))
    if not (low.is_integer() and high.is_integer()):
        raise ValueError(f"bounds[{index}] must be whole numbers for an Integer; got ({low}, {high})")
    if max(-low, high) > _LARGEST_INTEGER:
        raise ValueError(f"bounds[{index}] of an Integer must lie within +-2**53; got ({low}, {high}): use a Real")
    return Integer(int(low), int(high), bool(dimension.log))


def _check_choices(choices: Any, name: str) -> tuple[Any, ...]:
    """The choices as a tuple. Raises ValueError or TypeError."""
    if isinstance(choices, str) or not isinstance(choices, Sequence | np.ndarray):
        raise TypeError(f"{name}: the choices of a Categorical must be a tuple or list; got {choices!r}")
    for choice in choices:
        try:
            hash(choice)
        except TypeError:
            raise TypeError(f"{name}: a choice must be hashable; got {choice!r}: write a list as a tuple") from None
    if len(choices) < 2 or len(set(choices)) < len(choices):
        raise ValueError(f"{name} must have two or more different choices; got {tuple(choices)!r}")
    return tuple(choices)


def _width(dimension: Dimension) -> int:
    return len(dimension.choices) if isinstance(dimension, Categorical) else 1


def _count(dimension: Dimension) -> float:
    if isinstance(dimension, Integer):
        return dimension.high - dimension.low + 1
    return len(dimension.choices) if isinstance(dimension, Categorical) else math.inf


def _values(dimension: Dimension) -> Sequence[Any]:
    if isinstance(dimension, Integer):
        return range(dimension.low, dimension.high + 1)
    if isinstance(dimension, Categorical):
        return dimension.choices
    raise ValueError("a space with a Real dimension has no list of points")


def _edges(dimension: Real | Integer) -> tuple[float, float]:
    """The numbers at 0 and 1 of the column; an integer's interval extends half a unit to each side."""
    half = 0.5 if isinstance(dimension, Integer) else 0.0
    return dimension.low - half, dimension.high + half


def _value(dimension: Dimension, value: Any, index: int) -> Any:
    """A value of a point as a float, an integer or one of the choices. Raises ValueError or TypeError."""
    if isinstance(dimension, Categorical):
        try:
            return dimension.choices[_place(dimension, value)]
        except (KeyError, TypeError):  # TypeError: it has no hash
            raise ValueError(f"x[{index}] = {value!r} is none of {dimension.choices!r}") from None
    number = checks.real(f"x[{index}]", value)
    if not dimension.low <= number <= dimension.high:
        raise ValueError(f"x[{index}] = {value!r} lies outside the bounds [{dimension.low}, {dimension.high}]")
    if isinstance(dimension, Integer) and not number.is_integer():
        raise ValueError(f"x[{index}] = {value!r} must be a whole number")
    return int(number) if isinstance(dimension, Integer) else number


def _place(dimension: Categorical, value: Any) -> int:
    """The index of a choice, by hash, because a tuple and a numpy scalar cannot be compared."""
    return {choice: i for i, choice in enumerate(dimension.choices)}[value]


def _encode(dimension: Dimension, value: Any) -> np.ndarray:
    if isinstance(dimension, Categorical):
        return np.eye(len(dimension.choices))[_place(dimension, value)]
    low, high = _edges(dimension)
    if dimension.log:
        return np.array([math.log(value / low) / math.log(high / low)])
    return np.array([(value - low) / (high - low)])


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def _decode(dimension: Dimension, part: np.ndarray) -> Any:
    if isinstance(dimension, Categorical):
        return dimension.choices[int(np.argmax(part))]
    low, high = _edges(dimension)
    unit = float(np.clip(part[0], 0, 1))
    number = low * (high / low) ** unit if dimension.log else low + (high - low) * unit
    number = min(max(number, dimension.low), dimension.high)
    return round(number) if isinstance(dimension, Integer) else number


def _snap(dimension: Dimension, part: Array) -> Array:
    if isinstance(dimension, Real):
        return part
    if isinstance(dimension, Categorical):
        return jax.nn.one_hot(jnp.argmax(part, axis=-1), len(dimension.choices), dtype=part.dtype)
    low, high = _edges(dimension)
    ratio = math.log(high / low) if dimension.log else 0.0
    number = low * jnp.exp(ratio * part) if dimension.log else low + (high - low) * part
    whole = jnp.clip(jnp.round(number), dimension.low, dimension.high)
    return jnp.log(whole / low) / ratio if dimension.log else (whole - low) / (high - low)
