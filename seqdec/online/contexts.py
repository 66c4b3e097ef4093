"""Contexts from outside: checked, as arrays of fixed dtypes and shapes, and as records of a fixed number of bytes."""

import zlib
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.spaces import check_values, dtype_of, entries, shaped

WHOLE = "context"
"""Name of the only field of a record, where the space is no Dict."""
_LONG, _SPARSE = 512, 8
"""Bytes of a record from which on it is compressed, if at most one in so many is not zero: then it gets shorter."""


def record_of(space: gym_spaces.Space) -> np.dtype:
    """The record of one observation: a field for each entry of a Dict by name, else one field.

    Raises TypeError for another space than Box, Discrete or a Dict of them.
    """
    return np.dtype([(entry, dtype_of(part), part.shape or ()) for entry, (part, _) in sorted(_parts(space).items())])


def shape_of(record: Any, name: str) -> tuple[int, ...]:
    """Shape of one field of a record."""
    return record.fields[name][0].shape


def checked(space: gym_spaces.Space, record: np.dtype, value: Any, rows: int | None = None) -> np.ndarray:
    """An observation as a record (), or with `rows` that many observations, stacked, as records (rows,).

    Raises:
        TypeError: not numbers, or not a dict with the entries of a Dict.
        ValueError: another shape than the space has, a number that is not finite, or an integer that the space does not
            contain.
    """
    filled = np.empty(() if rows is None else rows, record)
    given = entries(space, value) if isinstance(space, gym_spaces.Dict) else {WHOLE: value}
    for entry, (part, name) in _parts(space).items():
        array = np.asarray(shaped(part, given[entry], name, rows))
        check_values(part, array, name, kept=True)
        filled[entry] = array
    return filled


def clipped(space: gym_spaces.Space, records: np.ndarray) -> tuple[np.ndarray, int]:
    """Records (rows,) with numbers beyond the bounds of a Box of floats moved to them, and how many records had such.

    A number that is beyond a bound by no more than rounding stays.
    """
    outside = np.zeros(len(records), bool)
    for name, (part, _) in _parts(space).items():
        kind = records.dtype[name].base
        if not jnp.issubdtype(kind, jnp.floating):
            continue
        known, low, high = (np.asarray(values, np.float64) for values in (records[name], part.low, part.high))
        rounding = 8 * float(jnp.finfo(kind).eps)
        below, above = (rounding * np.maximum(np.abs(bound), 1) for bound in (low, high))
        beyond = (known < low - below) | (known > high + above)
        if beyond.any():
            records = records.copy()
            records[name] = np.where(beyond, np.clip(known, low, high), known)
            outside |= beyond.reshape(len(records), -1).any(1)
    return records, int(outside.sum())


def tree_of(records: np.ndarray) -> Any:
    """Records as what an agent observes: an array, or a dict of arrays."""
    names = records.dtype.names or ()
    return np.array(records[WHOLE]) if names == (WHOLE,) else {name: np.array(records[name]) for name in names}


def packed(records: np.ndarray) -> list[bytes]:
    """Records (rows,) as the log has them: their bytes, compressed where nearly all of them are zero."""
    size = records.dtype.itemsize
    content = records.tobytes()
    parts = [content[size * row : size * (row + 1)] for row in range(len(records))]
    if size < _LONG:
        return parts
    filled = np.count_nonzero(np.frombuffer(content, np.uint8).reshape(len(records), size), axis=1)
    return [
        zlib.compress(part, 1) if _SPARSE * number < size else part for part, number in zip(parts, filled, strict=True)
    ]


def unpacked(contents: Sequence[bytes], record: np.dtype) -> np.ndarray:
    """The records (rows,) that were packed; those of an empty space have no bytes."""
    size = record.itemsize
    whole = [content if len(content) == size else zlib.decompress(content) for content in contents]
    return np.ndarray((len(whole),), record, b"".join(whole))


def _parts(space: gym_spaces.Space) -> dict[str, tuple[Any, str]]:
    """The Box and Discrete spaces of a record's fields, and what messages call them."""
    if isinstance(space, gym_spaces.Dict):
        return {entry: (part, f"context[{entry!r}]") for entry, part in space.items()}
    return {WHOLE: (space, "context")}
