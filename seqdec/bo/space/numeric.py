"""Dimensions of numbers: each takes one column of the unit cube, linear or logarithmic.

A Real is continuous; the column of an Integer is divided into one interval for each value.
"""

import math
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqdec import checks
from seqdec.bo.space.constant import Constant
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

    @property
    def continuous(self) -> bool:
        """Whether gradients apply."""
        return True

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers, at their place on an axis."""
        return True

    @property
    def width(self) -> int:
        """Columns of the unit cube."""
        return 1

    @property
    def size(self) -> float:
        """Number of values."""
        return math.inf

    @property
    def neutral(self) -> np.ndarray:
        """(width,) columns of the unit cube that stand for no value: their mean over the cube."""
        return np.full(1, 0.5)

    @property
    def widened(self) -> "Real":
        """Itself without limits."""
        return Real(sys.float_info.min if self.log else -math.inf, math.inf, self.log)

    def checked(self, name: str) -> "Real | Constant":
        """Itself with Python numbers, a Constant if it has one value.

        Raises ValueError or TypeError, naming it, for invalid limits or choices.
        """
        low, high, log = _limits(self, name)
        return Real(low, high, log) if low < high else Constant(low, real=True)

    def values(self) -> Sequence[Any]:
        """All values. Raises ValueError for a Real."""
        raise ValueError("a space with a Real dimension has no list of points")

    def value(self, given: Any, name: str) -> Any:
        """`given` as one of the values. Raises ValueError or TypeError, naming it."""
        return _inside(self, given, name)

    def encode(self, value: Any) -> np.ndarray:
        """(width,) columns of the unit cube for one of the values."""
        return _to_cube(value, self.low, self.high, self.log)

    def decode(self, part: np.ndarray) -> Any:
        """The value nearest to (width,) columns of the unit cube."""
        return min(max(_from_cube(part, self.low, self.high, self.log), self.low), self.high)

    def snap(self, part: np.ndarray) -> np.ndarray:
        """(n, width) columns -> the nearest encodings of values."""
        return part

    def uniform(self, u: np.ndarray) -> np.ndarray:
        """(n,) uniform numbers -> (n, width) encodings of values that are uniform on the scale of search."""
        return u[:, None]


@spelled_fields
class Integer(NamedTuple):
    """An integer from `low` to `high`, both included, searched on a logarithmic scale where `log`."""

    low: int
    """Smallest value, included."""
    high: int
    """Largest value, included."""
    log: bool = False
    """Whether the scale is logarithmic."""

    @property
    def continuous(self) -> bool:
        """As in `Real`."""
        return False

    @property
    def numeric(self) -> bool:
        """As in `Real`."""
        return True

    @property
    def width(self) -> int:
        """As in `Real`."""
        return 1

    @property
    def size(self) -> float:
        """As in `Real`."""
        return len(self.values())

    @property
    def neutral(self) -> np.ndarray:
        """As in `Real`."""
        return np.full(1, 0.5)

    @property
    def widened(self) -> "Integer":
        """As in `Real`."""
        return Integer(1 if self.log else -_LARGEST_INTEGER, _LARGEST_INTEGER, self.log)

    def checked(self, name: str) -> "Integer | Constant":
        """As in `Real`."""
        low, high, log = _limits(self, name)
        if not (low.is_integer() and high.is_integer()):
            raise ValueError(f"{name} must be whole numbers for an Integer; got ({low}, {high})")
        if max(-low, high) > _LARGEST_INTEGER:
            raise ValueError(f"{name} of an Integer must lie within +-2**53; got ({low}, {high}): use a Real")
        return Integer(int(low), int(high), log) if low < high else Constant(int(low))

    def values(self) -> Sequence[Any]:
        """As in `Real`."""
        return range(self.low, self.high + 1)

    def value(self, given: Any, name: str) -> Any:
        """As in `Real`."""
        number = _inside(self, given, name)
        if not number.is_integer():
            raise ValueError(f"{name} = {given!r} must be a whole number")
        return int(number)

    def encode(self, value: Any) -> np.ndarray:
        """As in `Real`; the interval of a value extends half a unit to each side."""
        return _to_cube(value, self.low - 0.5, self.high + 0.5, self.log)

    def decode(self, part: np.ndarray) -> Any:
        """As in `Real`."""
        number = _from_cube(part, self.low - 0.5, self.high + 0.5, self.log)
        return round(min(max(number, self.low), self.high))

    def snap(self, part: np.ndarray) -> np.ndarray:
        """As in `Real`."""
        low, high = self.low - 0.5, self.high + 0.5
        ratio = math.log(high / low) if self.log else 0.0
        number = low * np.exp(ratio * part) if self.log else low + (high - low) * part
        whole = np.clip(np.round(number), self.low, self.high)
        return np.log(whole / low) / ratio if self.log else (whole - low) / (high - low)

    def uniform(self, u: np.ndarray) -> np.ndarray:
        """As in `Real`."""
        return self.snap(u[:, None])


def _limits(dimension: Real | Integer, name: str) -> tuple[float, float, bool]:
    """(low, high, log), checked."""
    if any(isinstance(limit, bool | np.bool_) for limit in (dimension.low, dimension.high)):
        raise TypeError(f"{name} must be numbers; got {dimension.low!r} and {dimension.high!r}: use a Categorical")
    try:
        low, high = (checks.real(name, limit) for limit in (dimension.low, dimension.high))
    except TypeError:
        raise TypeError(f"{name} must be numbers; got {dimension.low!r} and {dimension.high!r}") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"{name} must be finite; got ({low}, {high}): give the range worth searching")
    if low > high:
        raise ValueError(f"{name} must have low <= high; got ({low}, {high}): exchange them")
    log = checks.flag(f"log of {name}", dimension.log)
    if log and low <= 0:
        raise ValueError(f"{name} must be positive for a logarithmic scale; got ({low}, {high})")
    if math.isinf(high / low if log else high - low):
        raise ValueError(f"{name} span more than a float can hold; got ({low}, {high}): narrow them")
    return low, high, log


def _inside(dimension: Real | Integer, given: Any, name: str) -> float:
    """`given` as a number between the limits."""
    number = checks.real(name, given)
    if not dimension.low <= number <= dimension.high:
        raise ValueError(f"{name} = {given!r} lies outside the bounds [{dimension.low}, {dimension.high}]")
    return number


def _to_cube(value: float, low: float, high: float, log: bool) -> np.ndarray:
    """(1,) where a number lies between `low` and `high`."""
    return np.array([math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)])


def _from_cube(part: np.ndarray, low: float, high: float, log: bool) -> float:
    """The number at (1,) between `low` and `high`."""
    unit = min(max(float(part[0]), 0.0), 1.0)
    return low * (high / low) ** unit if log else low + (high - low) * unit
