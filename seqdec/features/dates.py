"""Columns of dates, with or without a time."""

import math
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from seqdec.features import values
from seqdec.features.numeric import CUT, Numeric, clipped, spread
from seqdec.registry import spelled_fields

_CYCLES = ("hour", "weekday", "yearday")
_DAY = 86_400.0
_YEAR = 365.25


@spelled_fields
class Date(NamedTuple):
    """The cycles of a date in UTC as sine and cosine, and its trend.

    With the day t since the year 1, fractions included, its part f = t mod 1, the day of the week w from Monday and
    of the year y, both from 0, the angles are 2 pi f, 2 pi (w + f) / 7 and 2 pi (y + f) / 365.25, and the trend is
    clip((t - mean) / std, -5, 5).
    """

    mean: float
    """Of t, in days."""
    std: float
    """Of t, in days; above zero."""

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> "Date":
        """Mean and standard deviation of the dates that are not missing; equal dates have the deviation 1."""
        days = [_day(values.moment(column, value)) for value in known]
        return cls(*spread(column, days, "Date(mean, std), in days since the year 1"))

    def checked(self, column: str) -> "Date":
        """With floats. Raises ValueError or TypeError for invalid settings."""
        return Date(*Numeric(*self).checked(column))

    def features(self, column: str) -> list[str]:
        """Sine and cosine of each cycle, and the trend."""
        return [*(f"{column} {cycle} {part}" for cycle in _CYCLES for part in ("sin", "cos")), f"{column} trend"]

    def bounds(self) -> tuple[float, float]:
        """Of each feature."""
        return -CUT, CUT

    def writer(self, column: str, at: int) -> values.Write:
        """The encoding, with the first feature at index `at`."""
        mean, std = self

        def write(row: np.ndarray, value: Any) -> bool | None:
            if values.missing(value):
                return True
            when = values.moment(column, value)
            day = _day(when)
            part, first = _part(when), datetime(when.year, 1, 1).toordinal()
            turns = (part, (when.weekday() + part) / 7, (when.toordinal() - first + part) / _YEAR)
            place = at
            for turn in turns:
                row[place], row[place + 1] = math.sin(math.tau * turn), math.cos(math.tau * turn)
                place += 2
            row[place] = clipped((day - mean) / std)

        return write


def _part(when: datetime) -> float:
    """The fraction of the day that has passed."""
    return (when.hour * 3600 + when.minute * 60 + when.second + when.microsecond / 1e6) / _DAY


def _day(when: datetime) -> float:
    """Days since the year 1, fractions included."""
    return when.toordinal() + _part(when)
