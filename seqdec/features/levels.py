"""Columns of levels, one or several in each row. Levels are compared as text: 3, 3.0 and "3" are one level."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqdec import checks
from seqdec.features import values
from seqdec.registry import spelled_fields

_MOST = 2**20
"""Buckets."""


def checked_levels(column: str, levels: Iterable[Any]) -> tuple[str, ...]:
    """Levels as text.

    Raises:
        TypeError: a str or a set instead of a list of levels, or a level that is not a str, a number or a bool.
        ValueError: none, or one twice.
    """
    known = tuple(
        values.level(column, level)
        for level in checks.ordered(f"the levels of column {column}", levels, "a list of levels")
    )
    if not known:
        raise ValueError(f"column {column} needs at least one level")
    twice = {level for level in known if known.count(level) > 1} if len(set(known)) < len(known) else ()
    if twice:
        raise ValueError(f"column {column} has a level twice: {sorted(twice)[0]!r} (levels are compared as text)")
    return known


def checked_buckets(column: str, buckets: Any) -> int:
    """A number of buckets as an int. Raises TypeError or ValueError for anything else."""
    count = checks.count(f"buckets of column {column}", buckets)
    if count > _MOST:
        raise ValueError(f"buckets of column {column} must be at most {_MOST}; got {count}")
    return count


def numbered(column: str, buckets: int) -> list[str]:
    """Names of buckets."""
    return [f"{column}#{bucket}" for bucket in range(buckets)]


@spelled_fields
class Categorical(NamedTuple):
    """A level as 1 in its own feature, and any level that is not known as 1 in the feature "other"."""

    levels: Sequence[Any]
    """Those that are known, in the order of their features."""

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> "Categorical":
        """All levels, sorted as text."""
        return cls(tuple(sorted({values.level(column, value) for value in known})))

    def checked(self, column: str) -> "Categorical":
        """With text. Raises ValueError or TypeError for invalid levels."""
        return Categorical(checked_levels(column, self.levels))

    def features(self, column: str) -> list[str]:
        """One for each level, and "other"."""
        return [*(f"{column}={level}" for level in self.levels), f"{column} other"]

    def bounds(self) -> tuple[float, float]:
        """Of each feature."""
        return 0.0, 1.0

    def writer(self, column: str, at: int) -> values.Write:
        """The encoding, with the first feature at index `at`."""
        places = {level: at + index for index, level in enumerate(self.levels)}
        other = at + len(places)

        def write(row: np.ndarray, value: Any) -> bool | None:
            if type(value) is not str:
                if values.missing(value):
                    return True
                value = values.level(column, value)
            row[places.get(value, other)] = 1.0

        return write


@spelled_fields
class Hashed(NamedTuple):
    """A level as 1 in the bucket of its MurmurHash3; levels may share a bucket, and none has to be known."""

    buckets: int
    """Features."""

    def checked(self, column: str) -> "Hashed":
        """With an int. Raises ValueError or TypeError for another number of buckets."""
        return Hashed(checked_buckets(column, self.buckets))

    def features(self, column: str) -> list[str]:
        """One for each bucket."""
        return numbered(column, self.buckets)

    def bounds(self) -> tuple[float, float]:
        """Of each feature."""
        return 0.0, 1.0

    def writer(self, column: str, at: int) -> values.Write:
        """The encoding, with the first feature at index `at`."""
        place = values.hasher(self.buckets)

        def write(row: np.ndarray, value: Any) -> bool | None:
            if values.missing(value):
                return True
            row[at + place(values.level(column, value))[0]] = 1.0

        return write


@spelled_fields
class Ordered(NamedTuple):
    """Level i of k, counted from 0, as 2 i / (k - 1) - 1; a level that is not known as 0 and 1 in "other"."""

    levels: Sequence[Any]
    """From the lowest to the highest."""

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> "Ordered":
        """The levels in the order of their numbers. Raises TypeError for levels that are not numbers."""
        try:
            numbers = {values.level(column, value): values.number(column, value) for value in known}
        except TypeError:
            raise TypeError(
                f"column {column}: the order of its levels is unknown; declare it: Ordered(('low', ..., 'high'))"
            ) from None
        return cls(tuple(sorted(numbers, key=numbers.__getitem__)))

    def checked(self, column: str) -> "Ordered":
        """With text. Raises ValueError or TypeError for invalid levels."""
        return Ordered(checked_levels(column, self.levels))

    def features(self, column: str) -> list[str]:
        """The column's name, and "other"."""
        return [column, f"{column} other"]

    def bounds(self) -> tuple[float, float]:
        """Of each feature."""
        return -1.0, 1.0

    def writer(self, column: str, at: int) -> values.Write:
        """The encoding, with the first feature at index `at`."""
        ranks = {level: 2 * index / max(len(self.levels) - 1, 1) - 1 for index, level in enumerate(self.levels)}

        def write(row: np.ndarray, value: Any) -> bool | None:
            if values.missing(value):
                return True
            rank = ranks.get(values.level(column, value))
            if rank is None:
                row[at + 1] = 1.0
            else:
                row[at] = rank

        return write


@spelled_fields
class Tags(NamedTuple):
    """A list of levels as 1 in the feature of each, and any that are not known as 1 in the feature "other"."""

    levels: Sequence[Any]
    """Those that are known, in the order of their features."""

    @classmethod
    def fit(cls, column: str, known: list[Any]) -> "Tags":
        """All tags, sorted as text."""
        return cls(tuple(sorted({tag for value in known for tag in values.tags(column, value)})))

    def checked(self, column: str) -> "Tags":
        """With text. Raises ValueError or TypeError for invalid levels."""
        return Tags(checked_levels(column, self.levels))

    def features(self, column: str) -> list[str]:
        """One for each level, and "other"."""
        return Categorical(self.levels).features(column)

    def bounds(self) -> tuple[float, float]:
        """Of each feature."""
        return 0.0, 1.0

    def writer(self, column: str, at: int) -> values.Write:
        """The encoding, with the first feature at index `at`."""
        places = {level: at + index for index, level in enumerate(self.levels)}
        other = at + len(places)

        def write(row: np.ndarray, value: Any) -> bool | None:
            if values.missing(value):
                return True
            for tag in values.tags(column, value):
                row[places.get(tag, other)] = 1.0

        return write


@spelled_fields
class HashedTags(NamedTuple):
    """A list of levels as 1 in the bucket of each, as in `Hashed`."""

    buckets: int
    """Features."""

    def checked(self, column: str) -> "HashedTags":
        """With an int. Raises ValueError or TypeError for another number of buckets."""
        return HashedTags(checked_buckets(column, self.buckets))

    def features(self, column: str) -> list[str]:
        """One for each bucket."""
        return numbered(column, self.buckets)

    def bounds(self) -> tuple[float, float]:
        """Of each feature."""
        return 0.0, 1.0

    def writer(self, column: str, at: int) -> values.Write:
        """The encoding, with the first feature at index `at`."""
        place = values.hasher(self.buckets)

        def write(row: np.ndarray, value: Any) -> bool | None:
            if values.missing(value):
                return True
            for tag in values.tags(column, value):
                row[at + place(tag)[0]] = 1.0

        return write
