"""Columns of free text."""

import math
import re
from typing import Any, NamedTuple

import numpy as np

from seqdec.features import values
from seqdec.features.levels import checked_buckets, numbered
from seqdec.registry import spelled_fields

_WORD = re.compile(r"(?u)\b\w\w+\b")


@spelled_fields
class Text(NamedTuple):
    """Words w, in lower case and of two letters or more, counted in the buckets of their MurmurHash3.

    With c_b = sum_w s(w) [b(w) = b], the signs s(w) = +-1 of the hashes and their buckets b(w), feature b is
    c_b / |c|: what scikit-learn's HashingVectorizer computes by default. Without words all features are 0.
    """

    buckets: int
    """Features."""

    def checked(self, column: str) -> "Text":
        """With an int. Raises ValueError or TypeError for another number of buckets."""
        return Text(checked_buckets(column, self.buckets))

    def features(self, column: str) -> list[str]:
        """One for each bucket."""
        return numbered(column, self.buckets)

    def bounds(self) -> tuple[float, float]:
        """Of each feature."""
        return -1.0, 1.0

    def writer(self, column: str, at: int) -> values.Write:
        """The encoding, with the first feature at index `at`."""
        place = values.hasher(self.buckets)

        def write(row: np.ndarray, value: Any) -> bool | None:
            if not isinstance(value, str):
                if values.missing(value):
                    return True
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
