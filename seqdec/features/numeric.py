"""Columns of one number each: numbers and bools."""

import math
from typing import Any, NamedTuple

import numpy as np

from seqdec import checks
from seqdec.features import values
from seqdec.registry import spelled_fields

CUT = 5.0
"""Standard deviations from the mean at which a number is clipped, so that one outlier does not dominate."""


def clipped(scaled: float) -> float:
    """A number of standard deviations, at most `CUT` on either side."""
    return min(max(scaled, -CUT), CUT)


def spread(column: str, numbers: list[float], remedy: str) -> tuple[float, float]:
    """Mean and standard deviation; 1 for equal numbers. Raises ValueError without numbers or where they overflow."""
    if not numbers:
        raise ValueError(f"column {column} has only missing values: leave it out, or declare it as {remedy}")
    with np.errstate(over="ignore", invalid="ignore"):
        mean, std = float(np.mean(numbers)), float(np.std(numbers))
    if not (math.isfinite(mean) and math.isfinite(std)):
        raise ValueError(f"column {column}: the standard deviation of its numbers overflows: rescale or clip them")
    return mean, std if std > 0 else 1.0


@spelled_fields
class Numeric(NamedTuple):
    """A number x as clip((x - mean) / std, -5, 5); 0, the mean, where it is missing."""

    mean: float
    """Subtracted."""
    std: float
    """Divides; above zero."""

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> "Numeric":
        """Mean and standard deviation of the values that are not missing; equal values have the deviation 1."""
        numbers = [values.number(column, value) for value in known]
        return cls(*spread(column, numbers, "Numeric(mean, std)"))

    def checked(self, column: str) -> "Numeric":
        """With floats. Raises ValueError or TypeError for invalid settings."""
        mean, std = (checks.real(f"{name} of column {column}", getattr(self, name)) for name in self._fields)
        if not (math.isfinite(mean) and math.isfinite(std) and std > 0):
            raise ValueError(f"column {column} needs a finite mean and a finite std above zero; got {self}")
        return Numeric(mean, std)

    def features(self, column: str) -> list[str]:
        """The column's name."""
        return [column]

    def bounds(self) -> tuple[float, float]:
        """Of each feature."""
        return -CUT, CUT

    def writer(self, column: str, at: int) -> values.Write:
        """The encoding, with the first feature at index `at`."""
        mean, std = self

        def write(row: np.ndarray, value: Any) -> bool | None:
            if type(value) is not float or not math.isfinite(value):
                if values.missing(value):
                    return True
                value = values.number(column, value)
            row[at] = clipped((value - mean) / std)

        return write


@spelled_fields
class Bool(NamedTuple):
    """True as 1, False and a missing value as 0; numbers that equal 1 or 0 are accepted."""

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> "Bool":
        """Raises TypeError for a value that is not a bool."""
        for value in known:
            values.flag(column, value)
        return cls()

    def checked(self, column: str) -> "Bool":
        """Itself: it has no settings."""
        return self

    def features(self, column: str) -> list[str]:
        """The column's name."""
        return [column]

    def bounds(self) -> tuple[float, float]:
        """Of each feature."""
        return 0.0, 1.0

    def writer(self, column: str, at: int) -> values.Write:
        """The encoding, with the first feature at index `at`."""

        def write(row: np.ndarray, value: Any) -> bool | None:
            if value is True:
                row[at] = 1.0
            elif value is not False:
                if values.missing(value):
                    return True
                row[at] = values.flag(column, value)

        return write
