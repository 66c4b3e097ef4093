"""Dimensions and their columns of the unit cube.

A Real or an Integer takes one column, linear or logarithmic, that of an Integer in equal intervals. An Ordinal takes
one column, a Categorical one-hot columns.
"""

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seqdec.bo.space import containers
from seqdec.boundary import checks

_LARGEST_INTEGER = 2**53
"""Up to here integers are doubles."""


@dataclass(frozen=True)
class Dimension(ABC):
    """The values of a parameter."""

    continuous = False
    """Whether gradients apply."""

    @property
    def numeric(self) -> bool:
        """Whether values are numbers on an axis."""
        return False

    @property
    def width(self) -> int:
        """Columns of the unit cube."""
        return 1

    @property
    def size(self) -> float:
        """Number of values."""
        return len(self.values())

    @property
    def neutral(self) -> np.ndarray:
        """(width,) columns of no value: their mean."""
        return np.full(self.width, 0.5)

    @property
    def widened(self) -> "Dimension":
        """The dimension without limits."""
        return self

    @property
    def moves(self) -> int:
        """Number of possible steps of `moved`."""
        return 0

    @abstractmethod
    def checked(self, name: str) -> "Dimension":
        """The dimension with Python numbers, or a Constant for one value. Raises ValueError or TypeError, naming it."""

    @abstractmethod
    def values(self) -> Sequence[Any]:
        """All values. Raises ValueError for a Real."""

    @abstractmethod
    def value(self, given: Any, name: str) -> Any:
        """`given` as one of the values. Raises ValueError or TypeError, naming it."""

    @abstractmethod
    def encode(self, value: Any) -> np.ndarray:
        """(width,) columns of a value."""

    @abstractmethod
    def decode(self, part: np.ndarray) -> list[Any]:
        """The values nearest to (n, width) columns."""

    @abstractmethod
    def snap(self, part: np.ndarray) -> np.ndarray:
        """(..., width) columns -> the nearest encodings of values."""

    def uniform(self, u: np.ndarray) -> np.ndarray:
        """(n,) uniform numbers -> (n, width) values uniform on the scale of search."""
        return self.snap(u[:, None])

    def moved(self, part: np.ndarray, step: np.ndarray) -> np.ndarray:
        """(n, width) encodings after the steps (n,): to each choice of a Categorical, else down and up by one value."""
        return part


@dataclass(frozen=True)
class _Number(Dimension):
    """From `low` to `high`; the column has `margin` on each side."""

    low: Any
    """Smallest value, included."""
    high: Any
    """Largest value, included."""
    log: bool = False
    """Whether the scale of search is logarithmic."""

    margin = 0.0

    @property
    def numeric(self):
        return True

    def value(self, given, name):
        number = checks.real(name, given)
        if not self.low <= number <= self.high:
            raise ValueError(f"{name} = {given!r} lies outside the bounds [{self.low}, {self.high}]")
        return number

    def encode(self, value):
        low, high = self.low - self.margin, self.high + self.margin
        unit = math.log(value / low) / math.log(high / low) if self.log else (value - low) / (high - low)
        return np.array([unit])

    def decode(self, part):
        low, high, unit = self.low - self.margin, self.high + self.margin, np.clip(part[:, 0].astype(float), 0, 1)
        number = low * (high / low) ** unit if self.log else low + (high - low) * unit
        return np.clip(number, self.low, self.high).tolist()

    def _limits(self, name: str) -> tuple[float, float, bool]:
        if any(isinstance(limit, bool | np.bool_) for limit in (self.low, self.high)):
            raise TypeError(f"{name} must be numbers; got {self.low!r} and {self.high!r}: use a Categorical")
        try:
            low, high = (checks.real(name, limit) for limit in (self.low, self.high))
        except TypeError:
            choices = isinstance(self.low, str) and isinstance(self.high, str)
            remedy = f": use Categorical(({self.low!r}, {self.high!r}))" * choices
            raise TypeError(f"{name} must be numbers; got {self.low!r} and {self.high!r}{remedy}") from None
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ValueError(f"{name} must be finite; got ({low}, {high}): give the range worth searching")
        if low > high:
            raise ValueError(f"{name} must have low <= high; got ({low}, {high}): exchange them")
        log = checks.flag(f"log of {name}", self.log)
        if log and low <= 0:
            raise ValueError(f"{name} must be positive for a logarithmic scale; got ({low}, {high})")
        if math.isinf(high / low if log else high - low):
            raise ValueError(f"{name} span more than a float can hold; got ({low}, {high}): narrow them")
        return low, high, log


@dataclass(frozen=True)
class Real(_Number):
    """A real number from `low` to `high`, searched logarithmically where `log`."""

    continuous = True

    @property
    def size(self):
        return math.inf

    @property
    def widened(self):
        return Real(sys.float_info.min if self.log else -math.inf, math.inf, self.log)

    def checked(self, name):
        low, high, log = self._limits(name)
        return Real(low, high, log) if low < high else Constant(low, real=True)

    def values(self):
        raise ValueError("a space with a Real dimension has no list of points")

    def snap(self, part):
        return part


@dataclass(frozen=True)
class Integer(_Number):
    """An integer from `low` to `high`, both included, searched logarithmically where `log`."""

    margin = 0.5

    @property
    def widened(self):
        return Integer(1 if self.log else -_LARGEST_INTEGER, _LARGEST_INTEGER, self.log)

    def checked(self, name):
        low, high, log = self._limits(name)
        if not (low.is_integer() and high.is_integer()):
            raise ValueError(f"{name} must be whole numbers for an Integer; got ({low}, {high})")
        if max(-low, high) > _LARGEST_INTEGER:
            raise ValueError(f"{name} of an Integer must lie within +-2**53; got ({low}, {high}): use a Real")
        return Integer(int(low), int(high), log) if low < high else Constant(int(low))

    def values(self):
        return range(self.low, self.high + 1)

    def value(self, given, name):
        number = super().value(given, name)
        if not number.is_integer():
            raise ValueError(f"{name} = {given!r} must be a whole number")
        return int(number)

    @property
    def moves(self):
        return 2

    def decode(self, part):
        return list(map(round, super().decode(part)))

    def snap(self, part):
        return self.moved(part, np.full(part.shape[:-1], 0.5))

    def moved(self, part, step):
        low, high = self.low - self.margin, self.high + self.margin
        ratio = math.log(high / low) if self.log else 0.0
        number = low * np.exp(ratio * part) if self.log else low + (high - low) * part
        whole = np.clip(np.round(number) + (2 * step - 1)[..., None], self.low, self.high)
        return np.log(whole / low) / ratio if self.log else (whole - low) / (high - low)


@dataclass(frozen=True)
class _Choice(Dimension):
    choices: tuple[Any, ...]
    """Hashable, all different."""

    def checked(self, name):
        if (choices := containers.sequence(self.choices)) is None:
            kind = "an Ordinal" if isinstance(self, Ordinal) else "a Categorical"
            raise TypeError(f"{name}: the choices of {kind} must be a tuple or list; got {self.choices!r}")
        for choice in choices:
            try:
                hash(choice)
            except TypeError:
                raise TypeError(
                    f"{name}: a choice must be hashable; got {choice!r}: write a list as a tuple, and for anything "
                    "else a name, by which the function finds it"
                ) from None
        if not choices or len(set(choices)) < len(choices):
            raise ValueError(f"{name} must have choices, all of them different; got {tuple(choices)!r}")
        return replace(self, choices=tuple(choices)) if len(choices) > 1 else Constant(*choices)

    def values(self):
        return self.choices

    def value(self, given, name):
        return containers.among(self.choices, given, name)

    def place(self, value: Any) -> int:
        return containers.place(self.choices, value)


@dataclass(frozen=True)
class Ordinal(_Choice):
    """One of `choices` in order, such as (16, 32, 64) or ("low", "high"), searched as equally spaced."""

    @property
    def _places(self) -> Integer:
        return Integer(0, len(self.choices) - 1)

    def encode(self, value):
        return self._places.encode(self.place(value))

    @property
    def moves(self):
        return 2

    def decode(self, part):
        return [self.choices[place] for place in self._places.decode(part)]

    def snap(self, part):
        return self._places.snap(part)

    def moved(self, part, step):
        return self._places.moved(part, step)


@dataclass(frozen=True)
class Categorical(_Choice):
    """One of `choices` without order."""

    @property
    def width(self):
        return len(self.choices)

    @property
    def neutral(self):
        return np.full(self.width, 1 / self.width)

    def encode(self, value):
        return np.eye(self.width)[self.place(value)]

    @property
    def moves(self):
        return self.width

    def decode(self, part):
        return [self.choices[place] for place in np.argmax(part, axis=1)]

    def snap(self, part):
        return np.eye(self.width)[np.argmax(part, axis=-1)]

    def uniform(self, u):
        return np.eye(self.width)[np.minimum((u * self.width).astype(int), self.width - 1)]

    def moved(self, part, step):
        return np.eye(self.width)[step]


@dataclass(frozen=True)
class Constant(Dimension):
    """A dimension of one value, in every point but not in the search."""

    only: Any
    real: bool = False
    """Whether of a Real."""
    columns: int = 0
    """None, or one where no dimension varies."""

    def __repr__(self) -> str:
        return f"Constant({self.only!r})"

    @property
    def width(self):
        return self.columns

    @property
    def numeric(self):
        return checks.is_number(self.only)

    @property
    def low(self) -> Any:
        """The value."""
        return self.only

    @property
    def high(self) -> Any:
        """The value."""
        return self.only

    def checked(self, name):
        return self

    def values(self):
        return (self.only,)

    def value(self, given, name):
        return containers.among((self.only,), checks.real(name, given) if self.numeric else given, name)

    def encode(self, value):
        return self.neutral

    def decode(self, part):
        return [self.only] * len(part)

    def snap(self, part):
        return np.full_like(part, 0.5)

    def uniform(self, u):
        return np.full((len(u), self.width), 0.5)
