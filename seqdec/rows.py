"""Rows of NumPy arrays."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """A frozen dataclass whose arrays, also those in dicts, have a first axis of rows."""

    def __len__(self) -> int:
        return len(next(value for value in vars(self).values() if isinstance(value, np.ndarray)))

    def __getitem__(self, rows: Any) -> Self:
        """Rows by a slice, bools (n,), indices, or one index.

        Raises IndexError for other shapes, and rows that do not exist.
        """
        at = row_index(rows, len(self))
        parts = {name: _taken(part, at) for name, part in vars(self).items()}
        return self.replace(**parts)

    def replace(self, **fields: Any) -> Self:
        """The same with other values of these fields, which are not checked."""
        return dataclasses.replace(self, **fields)


def row_index(rows: Any, count: int) -> Any:
    """An index of `count` rows whose result has rows. Raises IndexError for anything else."""
    try:
        if isinstance(rows, slice):
            rows.indices(count)
            return rows
        at = np.atleast_1d(np.asarray(rows)) if np.size(rows) else np.zeros(0, int)
        if np.arange(count)[at].ndim == 1:
            return at
    except (IndexError, TypeError, ValueError):
        pass
    raise IndexError(
        f"rows are given by a slice, {count:,} bools, or whole numbers from {-count} to {count - 1}; got {rows!r:.80}"
    )


def _taken(part: Any, rows: Any) -> Any:
    if isinstance(part, Mapping):
        return {name: _taken(one, rows) for name, one in part.items()}
    if not isinstance(part, np.ndarray):
        return part
    if part.ndim > 1 and is_view(part):
        return np.broadcast_to(part[0], (len(np.arange(len(part))[rows]), *part.shape[1:]))
    return part[rows]


def is_view(array: np.ndarray) -> bool:
    """Whether all rows are one row in memory, as of `np.broadcast_to`."""
    return len(array) > 0 and array.strides[0] == 0


def refuse(name: str, wrong: Any, values: np.ndarray, remedy: str) -> None:
    """Raise ValueError for the first row where `wrong` (n,)."""
    if wrong.any():
        row = int(np.argmax(wrong))
        more = f" and {int(wrong.sum()) - 1:,} other rows" if wrong.sum() > 1 else ""
        raise ValueError(f"column {name} is {values[row]} in row {row}{more}: {remedy}")
