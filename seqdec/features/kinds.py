"""Kinds of columns. Levels are compared as text: 3, 3.0 and "3" are one level."""

import abc
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Self

import numpy as np

from seqdec.boundary import checks
from seqdec.features import values
from seqdec.registry import unknown

CUT = 5.0
"""Standard deviations at which numbers are clipped."""
_MOST = 2**20
_CYCLES = ("hour", "weekday", "yearday")
_DAY, _YEAR = 86_400.0, 365.25
_WORD = re.compile(r"(?u)\b\w\w+\b")


@dataclass(frozen=True)
class Kind(abc.ABC):
    """How a column becomes features; fields are settings.

    All but hashed kinds have `fit(column, known)`, which raises TypeError for values of another kind.
    """

    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """of each feature"""

    def checked(self, column: str) -> "Kind":
        """With normalized settings. Raises ValueError or TypeError for invalid ones."""
        return self

    def features(self, column: str) -> list[str]:
        """Names of the features."""
        return [column]

    @abc.abstractmethod
    def writer(self, column: str, at: int) -> values.Write:
        """The encoding, with the first feature at `at`."""


@dataclass(frozen=True)
class Numeric(Kind):
    """clip((x - mean) / std, -5, 5) of a number x; 0 where missing."""

    mean: float
    """subtracted"""
    std: float
    """divides; above zero"""

    bounds = (-CUT, CUT)

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> Self:
        """Mean and standard deviation, 1 for equal values."""
        numbers = [cls.number(column, value) for value in known]
        with np.errstate(over="ignore", invalid="ignore"):
            mean, std = float(np.mean(numbers)), float(np.std(numbers))
        if not (math.isfinite(mean) and math.isfinite(std)):
            raise ValueError(f"column {column}: the standard deviation of its numbers overflows: rescale or clip them")
        return cls(mean, std if std > 0 else 1.0)

    number = staticmethod(values.number)
    """(column, value) -> what is standardized"""

    def checked(self, column: str) -> "Numeric":
        mean, std = (checks.real(f"{name} of column {column}", getattr(self, name)) for name in ("mean", "std"))
        if not (math.isfinite(mean) and math.isfinite(std) and std > 0):
            raise ValueError(f"column {column} needs a finite mean and a finite std above zero; got {self}")
        return type(self)(mean, std)

    def writer(self, column: str, at: int) -> values.Write:
        mean, std = self.mean, self.std

        def write(row: np.ndarray, value: Any) -> None:
            if type(value) is not float or not math.isfinite(value):
                value = values.number(column, value)
            row[at] = _clipped((value - mean) / std)

        return write


@dataclass(frozen=True)
class Date(Numeric):
    """A date in UTC: sine and cosine of its cycles, and trend.

    With t days since the year 1, f = t mod 1, weekday w from Monday and day y of the year, from 0, angles are 2 pi f,
    2 pi (w + f) / 7 and 2 pi (y + f) / 365.25; the trend is clip((t - mean) / std, -5, 5), mean and std in days.
    """

    @staticmethod
    def number(column: str, value: Any) -> float:
        return _day(values.moment(column, value))

    def features(self, column: str) -> list[str]:
        return [*(f"{column} {cycle} {part}" for cycle in _CYCLES for part in ("sin", "cos")), f"{column} trend"]

    def writer(self, column: str, at: int) -> values.Write:
        mean, std = self.mean, self.std

        def write(row: np.ndarray, value: Any) -> None:
            when = values.moment(column, value)
            part, first = _part(when), datetime(when.year, 1, 1).toordinal()
            turns = (part, (when.weekday() + part) / 7, (when.toordinal() - first + part) / _YEAR)
            for place, turn in enumerate(turns):
                row[at + 2 * place], row[at + 2 * place + 1] = math.sin(math.tau * turn), math.cos(math.tau * turn)
            row[at + 2 * len(turns)] = _clipped((_day(when) - mean) / std)

        return write


@dataclass(frozen=True)
class Bool(Kind):
    """True or 1 as 1, False, 0 and a missing value as 0."""

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> Self:
        for value in known:
            values.flag(column, value)
        return cls()

    def writer(self, column: str, at: int) -> values.Write:
        def write(row: np.ndarray, value: Any) -> None:
            row[at] = values.flag(column, value)

        return write


@dataclass(frozen=True)
class Categorical(Kind):
    """A known level as 1 in its feature, others in "other"."""

    levels: Sequence[Any]
    """known ones, in the order of features"""

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> Self:
        """All levels, sorted as text."""
        return cls(tuple(sorted({level for value in known for level in cls.of(column, value)})))

    of = staticmethod(values.levels)
    """(column, value) -> the levels in a cell"""

    def checked(self, column: str) -> "Categorical":
        return type(self)(_checked_levels(column, self.levels))

    def features(self, column: str) -> list[str]:
        return [*(f"{column}={level}" for level in self.levels), f"{column} other"]

    def writer(self, column: str, at: int) -> values.Write:
        places = {level: at + index for index, level in enumerate(self.levels)}
        other, levels_of = at + len(places), self.of

        def write(row: np.ndarray, value: Any) -> None:
            for level in levels_of(column, value):
                row[places.get(level, other)] = 1.0

        return write


@dataclass(frozen=True)
class Tags(Categorical):
    """A list of levels, each 1 in its feature, others in "other"."""

    of = staticmethod(values.tags)


@dataclass(frozen=True)
class Ordered(Kind):
    """Level i of k, from 0, as 2 i / (k - 1) - 1; an unknown one as 0 and 1 in "other"."""

    levels: Sequence[Any]
    """from the lowest to the highest"""

    bounds = (-1.0, 1.0)

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> Self:
        """Levels in numeric order."""
        try:
            numbers = {values.level(column, value): values.number(column, value) for value in known}
        except TypeError:
            raise TypeError(
                f"column {column}: the order of its levels is unknown; declare it: Ordered(('low', ..., 'high'))"
            ) from None
        return cls(tuple(sorted(numbers, key=numbers.__getitem__)))

    def checked(self, column: str) -> "Ordered":
        return Ordered(_checked_levels(column, self.levels))

    def features(self, column: str) -> list[str]:
        return [column, f"{column} other"]

    def writer(self, column: str, at: int) -> values.Write:
        ranks = {level: 2 * index / max(len(self.levels) - 1, 1) - 1 for index, level in enumerate(self.levels)}

        def write(row: np.ndarray, value: Any) -> None:
            rank = ranks.get(values.level(column, value))
            row[at + (rank is None)] = 1.0 if rank is None else rank

        return write


@dataclass(frozen=True)
class Hashed(Kind):
    """A level as 1 in the bucket of its MurmurHash3."""

    buckets: int
    """features"""

    of = staticmethod(values.levels)
    """(column, value) -> the levels in a cell"""

    def checked(self, column: str) -> "Hashed":
        count = checks.count(f"buckets of column {column}", self.buckets)
        if count > _MOST:
            raise ValueError(f"buckets of column {column} must be at most {_MOST}; got {count}")
        return type(self)(count)

    def features(self, column: str) -> list[str]:
        return [f"{column}#{bucket}" for bucket in range(self.buckets)]

    def writer(self, column: str, at: int) -> values.Write:
        place, levels_of = values.hasher(self.buckets), self.of

        def write(row: np.ndarray, value: Any) -> None:
            for level in levels_of(column, value):
                row[at + place(level)[0]] = 1.0

        return write


@dataclass(frozen=True)
class HashedTags(Hashed):
    """A list of levels, each 1 in its bucket, as in `Hashed`."""

    of = staticmethod(values.tags)


@dataclass(frozen=True)
class Text(Hashed):
    """Lowercase words w of two letters or more, counted in buckets of their MurmurHash3.

    With c_b = sum_w s(w) [b(w) = b], signs s(w) = +-1 and buckets b(w), feature b is c_b / |c|, or 0, as in
    scikit-learn's HashingVectorizer.
    """

    bounds = (-1.0, 1.0)

    def writer(self, column: str, at: int) -> values.Write:
        place = values.hasher(self.buckets)

        def write(row: np.ndarray, value: Any) -> None:
            if not isinstance(value, str):
                raise TypeError(f"column {column}: {value!r:.80} is not a text: convert it, as with str()")
            counts: dict[int, int] = {}
            for word in _WORD.findall(value.lower()):
                bucket, negative = place(word)
                counts[bucket] = counts.get(bucket, 0) + (-1 if negative else 1)
            norm = math.sqrt(sum(count * count for count in counts.values()))
            for bucket, count in counts.items():
                if count:
                    row[at + bucket] = count / norm

        return write


KINDS: dict[str, type[Kind]] = {
    "numeric": Numeric,
    "bool": Bool,
    "date": Date,
    "categorical": Categorical,
    "hashed": Hashed,
    "ordered": Ordered,
    "text": Text,
    "tags": Tags,
    "hashed_tags": HashedTags,
}
"""Names in `Encoder.fit` and JSON."""

NAMES = {kind: name for name, kind in KINDS.items()}


def fitted(column: str, kind: str | None, known: list[Any], *, max_levels: int, buckets: int) -> Kind:
    """A kind fitted to present values, or chosen for None. Many levels are hashed."""
    if kind is not None and not (isinstance(kind, str) and kind in KINDS):
        raise ValueError(unknown(f"kind of column {column}", kind, KINDS))
    if not known and kind not in ("bool", "hashed", "text", "hashed_tags"):
        raise ValueError(
            f"column {column} has only missing values: leave it out, or declare it, as with Numeric(mean=0, std=1)"
        )
    chosen = KINDS[kind or _kind_of(column, known, max_levels)]
    if issubclass(chosen, Hashed):
        return chosen(buckets)
    fit: Any = chosen
    found = fit.fit(column, known)
    if isinstance(found, Categorical) and not 0 < len(found.levels) <= max_levels:
        return HashedTags(buckets) if isinstance(found, Tags) else Hashed(buckets)
    return found


def _kind_of(column: str, known: list[Any], max_levels: int) -> str:
    first = {}
    for value in known:
        first.setdefault(_family(value), value)
    if first.keys() == {"bool", "numeric"}:
        return "numeric"
    shown = ", ".join(f"{value!r:.40}" for value in first.values())
    if None in first:
        raise TypeError(
            f"column {column} holds values of no known kind ({shown}): convert them, as with str(), or leave the "
            "column out"
        )
    if len(first) > 1:
        raise TypeError(
            f"column {column} holds values of several kinds ({shown}): convert them, leave the column out, or name its "
            f"kind: kinds={{{column!r}: 'categorical'}}"
        )
    (family,) = first
    if family != "text":
        return str(family)
    if all(_is_date(text) for text in known):
        return "date"
    if len({str(text) for text in known}) <= max_levels:
        return "categorical"
    return "text" if 2 * sum(" " in text.strip() for text in known) > len(known) else "hashed"


def _family(value: Any) -> str | None:
    """The kind of one value, "text" for str; None if none accepts it."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | np.bool_):
        return "bool"
    if checks.is_number(value) or isinstance(value, Decimal):
        return "numeric"
    if isinstance(value, date | np.datetime64):
        return "date"
    return "tags" if isinstance(value, list | tuple | set | frozenset | np.ndarray) else None


def _is_date(text: str) -> bool:
    try:
        return "-" in text and bool(values.moment("", text))
    except (TypeError, ValueError):
        return False


def _checked_levels(column: str, levels: Iterable[Any]) -> tuple[str, ...]:
    given = checks.ordered(f"the levels of column {column}", levels, "a list of levels")
    known = tuple(values.level(column, level) for level in given)
    if not known:
        raise ValueError(f"column {column} needs at least one level")
    if len(set(known)) < len(known):
        twice = min(level for level in known if known.count(level) > 1)
        raise ValueError(f"column {column} has a level twice: {twice!r} (levels are compared as text)")
    return known


def _clipped(scaled: float) -> float:
    return min(max(scaled, -CUT), CUT)


def _part(when: datetime) -> float:
    return (when.hour * 3600 + when.minute * 60 + when.second + when.microsecond / 1e6) / _DAY


def _day(when: datetime) -> float:
    return when.toordinal() + _part(when)
