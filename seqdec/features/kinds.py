"""Kinds of columns. Levels are compared as text: 3, 3.0 and "3" are one level."""

import abc
import bisect
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, ClassVar, Self

import numpy as np

from seqdec.boundary import checks
from seqdec.features import values
from seqdec.features.inference import recognized
from seqdec.registry import unknown

CUT = 5.0
"""Standard deviations at which numbers are clipped."""
_MOST = 2**20
_ROUNDING = 1e-12
"""Standard deviation of equal numbers, in units of their mean."""
_SCORES = np.linspace(-3, 3, 25)
_DAY, _YEAR = 86_400.0, 365.25
_WORD = re.compile(r"(?u)\b\w\w+\b")


@dataclass(frozen=True)
class Kind(abc.ABC):
    """How a column becomes features; fields are settings.

    All but hashed kinds have `fit(column, known)`, which raises TypeError for values of another kind.
    """

    bounds: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """of each feature"""
    missing = staticmethod(values.missing)
    """(value) -> whether it is missing"""

    def checked(self, column: str) -> "Kind":
        """With normalized settings. Raises ValueError or TypeError for invalid ones."""
        return self

    def features(self, column: str) -> list[str]:
        """Names of the features."""
        return [column]

    @property
    def fitted_to(self) -> str:
        """The range of a number or date outside of which its encoding does not grow, in words."""
        return ""

    @abc.abstractmethod
    def writer(self, column: str, at: int) -> values.Write:
        """The encoding, with the first feature at `at`."""


@dataclass(frozen=True)
class Numeric(Kind):
    """clip((x - mean) / std, -5, 5) of a number x, also as plain text; 0 where missing, as "?" and "NA" are, too."""

    mean: float
    """subtracted"""
    std: float
    """divides; above zero"""

    bounds = (-CUT, CUT)
    missing = staticmethod(values.missing_number)

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> Self:
        """Mean and standard deviation, 1 for equal values."""
        numbers = [cls.number(column, value) for value in known]
        with np.errstate(over="ignore", invalid="ignore"):
            mean, std = float(np.mean(numbers)), float(np.std(numbers))
        if not (math.isfinite(mean) and math.isfinite(std)):
            raise ValueError(f"column {column}: the standard deviation of its numbers overflows: rescale or clip them")
        return cls(mean, std if std > _ROUNDING * abs(mean) else 1.0)

    number = staticmethod(values.number)
    """(column, value) -> what is standardized"""

    def checked(self, column: str) -> "Numeric":
        mean, std = (checks.real(f"{name} of column {column}", getattr(self, name)) for name in ("mean", "std"))
        if not (math.isfinite(mean) and math.isfinite(std) and std > 0):
            raise ValueError(f"column {column} needs a finite mean and a finite std above zero; got {self}")
        return type(self)(mean, std)

    def writer(self, column: str, at: int) -> values.Write:
        mean, std = self.mean, self.std

        def write(row: np.ndarray, value: Any) -> bool:
            if type(value) is not float or not math.isfinite(value):
                value = values.number(column, value)
            scaled = (value - mean) / std
            row[at] = _clipped(scaled)
            return not -CUT <= scaled <= CUT

        return write

    @property
    def fitted_to(self) -> str:
        return f"{self.mean - CUT * self.std:.4g} to {self.mean + CUT * self.std:.4g}"


@dataclass(frozen=True)
class Days(Numeric):
    """A date in UTC as a number of days since the year 1, as `Numeric`: for past dates, such as a birth.

    The current time leaves the range in which it was learned: use `Date` for its cycles.
    """

    @staticmethod
    def number(column: str, value: Any) -> float:
        return _day(values.moment(column, value))

    def writer(self, column: str, at: int) -> values.Write:
        def write(row: np.ndarray, value: Any) -> bool:
            scaled = (self.number(column, value) - self.mean) / self.std
            row[at] = _clipped(scaled)
            return not -CUT <= scaled <= CUT

        return write

    @property
    def fitted_to(self) -> str:
        ends = (self.mean + side * CUT * self.std for side in (-1, 1))
        return " to ".join(str(date.fromordinal(int(min(max(end, 1), date.max.toordinal())))) for end in ends)


@dataclass(frozen=True)
class Date(Kind):
    """A date in UTC: sine and cosine of its cycles, of the day, the week and, if `yearly`, the year.

    With f the part of the day, weekday w from Monday and day y of the year, from 0, angles are 2 pi f, 2 pi (w + f) / 7
    and 2 pi (y + f) / 365.25. `fit` takes the year from tables of a year or more.
    """

    yearly: bool = False
    """whether the day of the year is one of them"""

    bounds = (-1.0, 1.0)
    missing = staticmethod(values.missing_number)

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> Self:
        """The year if the dates are a year apart."""
        days = [Days.number(column, value) for value in known]
        return cls(max(days) - min(days) >= _YEAR)

    def checked(self, column: str) -> "Date":
        return Date(checks.flag(f"yearly of column {column}", self.yearly))

    def features(self, column: str) -> list[str]:
        cycles = ("hour", "weekday", "yearday")[: 2 + self.yearly]
        return [f"{column} {cycle} {part}" for cycle in cycles for part in ("sin", "cos")]

    def writer(self, column: str, at: int) -> values.Write:
        used = 2 + self.yearly

        def write(row: np.ndarray, value: Any) -> None:
            when = values.moment(column, value)
            part, first = _part(when), datetime(when.year, 1, 1).toordinal()
            turns = (part, (when.weekday() + part) / 7, (when.toordinal() - first + part) / _YEAR)
            for place, turn in enumerate(turns[:used]):
                row[at + 2 * place], row[at + 2 * place + 1] = math.sin(math.tau * turn), math.cos(math.tau * turn)

        return write


@dataclass(frozen=True)
class Quantiles(Kind):
    """Normal scores of a skewed number x: linear between z_j at x = q_j, constant beyond the ends; 0 where missing.

    q_j is the quantile Phi(z_j) of the column, z_j = -3, -2.75, ..., 3 as far as the rows resolve them; equal quantiles
    have the mean of their z_j. Outliers and the unit of x do not matter.
    """

    quantiles: Sequence[float]
    """ascending"""
    scores: Sequence[float]
    """ascending, in [-5, 5]"""

    bounds = (-CUT, CUT)
    missing = staticmethod(values.missing_number)

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> Self:
        """Quantiles of the numbers, at least one."""
        from scipy.special import ndtr

        chances = ndtr(_SCORES)
        resolved = np.minimum(chances, 1 - chances) >= 0.5 / len(known)
        resolved |= _SCORES == 0
        numbers = [values.number(column, value) for value in known]
        found, places = np.unique(np.quantile(numbers, chances[resolved]), return_inverse=True)
        scores = np.bincount(places, _SCORES[resolved]) / np.bincount(places)
        return cls(tuple(found.tolist()), tuple(scores.tolist()))

    def checked(self, column: str) -> "Quantiles":
        lists = [checks.ordered(f"{name} of column {column}", getattr(self, name), "a list") for name in vars(self)]
        x, z = (values.vector(column, given) for given in lists)
        ascending = all((one[:-1] < one[1:]).all() for one in (x, z))
        if not len(x) or len(x) != len(z) or not ascending or (np.abs(z) > CUT).any():
            raise ValueError(
                f"column {column} needs ascending quantiles, each with a score in [-5, 5]; got {self!r:.200}"
            )
        return type(self)(tuple(x.tolist()), tuple(z.tolist()))

    def writer(self, column: str, at: int) -> values.Write:
        x, z = self.quantiles, self.scores
        last = len(x) - 1
        far = CUT * (x[-1] - x[0]) or math.inf

        def write(row: np.ndarray, value: Any) -> bool:
            number = values.number(column, value)
            place = bisect.bisect_right(x, number) - 1
            if place < 0 or place == last:
                row[at] = z[max(place, 0)]
                return not x[0] - far <= number <= x[-1] + far
            share = (number / 2 - x[place] / 2) / (x[place + 1] / 2 - x[place] / 2)  # without overflow
            row[at] = z[place] + share * (z[place + 1] - z[place])
            return False

        return write

    @property
    def fitted_to(self) -> str:
        return f"{self.quantiles[0]:.4g} to {self.quantiles[-1]:.4g}"


@dataclass(frozen=True)
class Vector(Kind):
    """Entries of a list of numbers, also as text, each standardized and clipped as in `Numeric`; 0 where missing."""

    means: Sequence[float]
    """subtracted"""
    stds: Sequence[float]
    """divide; above zero"""

    bounds = (-CUT, CUT)
    missing = staticmethod(values.missing_number)

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> Self:
        """Mean and standard deviation of each entry."""
        vectors = [values.vector(column, value) for value in known]
        if len(lengths := sorted({*map(len, vectors)})) > 1 or not lengths[0]:
            raise ValueError(
                f"column {column} holds lists of {' and '.join(map(str, lengths[:3]))} numbers: vectors have one "
                f"length, and None where they are missing; as tags, kinds={{{column!r}: 'tags'}}"
            )
        table = np.stack(vectors)
        means, stds = table.mean(axis=0), table.std(axis=0)
        return cls(tuple(means.tolist()), tuple(np.where(stds > _ROUNDING * np.abs(means), stds, 1.0).tolist()))

    def checked(self, column: str) -> "Vector":
        means, stds = (values.vector(column, list(part)) for part in (self.means, self.stds))
        if len(means) != len(stds) or not len(means) or not (stds > 0).all():
            raise ValueError(f"column {column} needs a mean and a std above zero for each entry; got {self!r:.200}")
        return type(self)(tuple(means.tolist()), tuple(stds.tolist()))

    def features(self, column: str) -> list[str]:
        return [f"{column} {entry}" for entry in range(len(self.means))]

    def writer(self, column: str, at: int) -> values.Write:
        means, stds = np.array(self.means), np.array(self.stds)

        def write(row: np.ndarray, value: Any) -> None:
            found = values.vector(column, value)
            if len(found) != len(means):
                raise ValueError(f"column {column}: a vector has {len(means)} numbers; got {len(found)}")
            row[at : at + len(means)] = np.clip((found - means) / stds, -CUT, CUT)

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
    "quantiles": Quantiles,
    "vector": Vector,
    "bool": Bool,
    "date": Date,
    "days": Days,
    "categorical": Categorical,
    "hashed": Hashed,
    "ordered": Ordered,
    "text": Text,
    "tags": Tags,
    "hashed_tags": HashedTags,
}
"""Names in `Encoder.fit` and JSON."""

NAMES = {kind: name for name, kind in KINDS.items()}


def fitted(column: str, kind: str | None, cells: list[Any], *, max_levels: int, buckets: int) -> tuple[Kind, str, str]:
    """A kind fitted to the present ones of the cells, or chosen for None, why, and what is suspected.

    Many levels are hashed.
    """
    if kind is not None and not (isinstance(kind, str) and kind in KINDS):
        raise ValueError(unknown(f"kind of column {column}", kind, KINDS))
    known, why, suspicion = [cell for cell in cells if not values.missing(cell)], "declared", ""
    if kind is None and known:
        kind, why, suspicion = recognized(column, known, max_levels)
    chosen: Any = KINDS[kind or "numeric"]
    if issubclass(chosen, Hashed):
        return chosen(buckets), why, suspicion
    known = [cell for cell in known if not chosen.missing(cell)]
    if not known and chosen is not Bool:
        raise ValueError(
            f"column {column} has only missing values: leave it out, or declare it, as with Numeric(mean=0, std=1)"
        )
    found = chosen.fit(column, known)
    if isinstance(found, Categorical) and not 0 < len(found.levels) <= max_levels:
        found = HashedTags(buckets) if isinstance(found, Tags) else Hashed(buckets)
    return found, why, suspicion


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
