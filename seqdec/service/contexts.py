"""Contexts as checked arrays of fixed dtypes and shapes, and as bytes of the log."""

import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.agents.regression.units import Units
from seqdec.boundary import checks
from seqdec.boundary.spaces import LARGEST, check_values, dtype_of, entries, shaped
from seqdec.core import PyTree, Schema
from seqdec.features import Encoder
from seqdec.features.encoder import Outside
from seqdec.ope.log import Log

WHOLE, ITEM, USER = "context", "item", "user"
"""Fields of a record: the only one of a space other than a Dict; those of a catalog."""
_LONG, _SPARSE = 512, 8
"""A record of at least `_LONG` bytes is compressed if fewer than one byte in `_SPARSE` is nonzero."""


_FAR, _LEARNED = 2.0, 100
"""Largest distances from the mean, from where on a number is far from what was learned; least number of contexts."""
_TOLD: set[str] = set()
"""Columns with a warning in this process."""


class Rows(NamedTuple):
    """Checked contexts."""

    x: Any
    """(n, ...) observations: an array, or a dict of arrays"""
    packed: list[bytes]
    """each as in the log"""
    clipped: int
    """number of rows beyond the bounds"""
    outside: int = 0
    """number of rows with a number far outside of what the encoder was fitted to"""
    is_near: bool = False
    """whether all lie within `Contexts.near`"""

    def some(self, places: Sequence[int]) -> "Rows":
        """Those at some places, of which `clipped` and `outside` are at most what they say."""
        x = {name: part[places] for name, part in self.x.items()} if isinstance(self.x, Mapping) else self.x[places]
        most = len(places)
        return Rows(x, [self.packed[place] for place in places], min(self.clipped, most), min(self.outside, most))


class Contexts:
    """The contexts of a Box, a Discrete space or a Dict of them. Raises TypeError for another space.

    A record of the log has a field for each entry of a Dict. Numbers beyond the bounds of a Box of floats, by more than
    rounding, are clipped. An `encoder` makes observations of callers' rows.
    """

    def __init__(self, space: gym_spaces.Space, encoder: Encoder | None = None, called: str = "context") -> None:
        self.space, self.encoder = space, encoder
        self.is_whole = not isinstance(space, gym_spaces.Dict)
        self._parts: dict[str, tuple[Any, str]] = {WHOLE: (space, called)}
        if isinstance(space, gym_spaces.Dict):
            self._parts = {name: (part, f"{called}[{name!r}]") for name, part in space.items()}
        kinds = {name: (dtype_of(part), part.shape or ()) for name, (part, _) in sorted(self._parts.items())}
        self.record = np.dtype([(name, *kind) for name, kind in kinds.items()])
        self._bounds = {name: _bounds_of(part) for name, (part, _) in self._parts.items() if _is_of_floats(part)}
        self._shape, self._dtype = self.shape_of(next(iter(self._parts))), self.record[0].base
        self.near = None
        """bounds; of a vector without encoder narrowed to what was learned (`looked`)"""
        self._batch, self._next, self._range = -1, 0, None
        if self.is_whole and self._bounds:
            low, high, *_ = self._bounds[WHOLE]
            most = min(float(np.nextafter(LARGEST, 0)), float(jnp.finfo(self._dtype).max))
            self.near = self._within = np.maximum(low, -most), np.minimum(high, most)

    def shape_of(self, name: str) -> tuple[int, ...]:
        fields: Any = self.record.fields
        return fields[name][0].shape

    def one(self, value: Any) -> Rows:
        """An observation, or a row for the encoder. Raises TypeError or ValueError."""
        outside = 0
        if self.encoder is not None:
            value, found = self.encoder.read(value)
            outside = told(found) if found else 0
        if self.near is not None and type(value) is np.ndarray and value.shape == self._shape:
            low, high = self.near  # the usual case needs no more than this
            if value.dtype.kind in "fiu" and ((low <= value) & (value <= high)).all():
                x = value.astype(self._dtype)[None]
                return Rows(x, self.pack(x), 0, outside, is_near=True)
        return self.clipped(self.checked(value))._replace(outside=outside)

    def many(self, stacked: Any) -> Rows:
        """Several, stacked. Raises TypeError or ValueError."""
        found: Any = ()
        if self.encoder is not None:
            stacked, found = self.encoder.read_table(stacked)
        stacked, rows = sized(stacked)
        if not rows:
            return Rows(self._tree(np.empty(0, self.record)), [], 0)
        return self.clipped(self.checked(stacked, rows))._replace(outside=told(found))

    def looked(self, rows: Rows, batch: int, state: PyTree) -> int:
        """Number of rows with a number far outside of what was learned, which warn: of the encoder, or of the agent.

        In an agent's standard units, "far" is twice the largest distance from the mean; the range is read anew after
        twice as many batches, or where a row is not within it. Of vectors, once 100 were learned.
        """
        if self.encoder is not None or self.near is None:
            return rows.outside
        low, high = self.near
        if batch < self._next and (rows.is_near or self._range is None or ((low <= rows.x) & (rows.x <= high)).all()):
            return 0
        if batch != self._batch:
            self._batch, self._next = batch, 2 * batch + 1
            self._range = learned(state, self.record.itemsize // self._dtype.itemsize)
        if self._range is None:
            return 0
        middle, furthest = (part.reshape(self._shape) for part in self._range)
        low, high = middle - _FAR * furthest, middle + _FAR * furthest
        self.near = np.maximum(self._within[0], low), np.minimum(self._within[1], high)
        least, most = ((middle + side * furthest).ravel() for side in (-1, 1))
        beyond = ((rows.x < low) | (rows.x > high)).reshape(len(rows.x), -1)
        return told(
            Outside(
                row,
                f"context_{at}",
                float(rows.x[row].flat[at]),
                f"{least[at]:.4g} to {most[at]:.4g}, between which lies all that was learned",
            )
            for row, at in np.argwhere(beyond).tolist()
        )

    def schema(self, learned: Schema) -> Schema:
        """Required columns of a log: features of the encoder, else columns of earlier logs."""
        return learned if self.encoder is None else Schema(None, self.encoder.names, self.encoder.digest)

    def of_log(self, log: Log) -> np.ndarray:
        """Contexts of another log as records (n,). Raises ValueError where they do not fit."""
        names = list(self.record.names or ())
        shape = self.shape_of(names[0])
        features = log.context if log.action_features is None else log.action_features
        if len(names) > 1 or features[0].size != np.prod(shape, dtype=int):
            raise ValueError(f"a row of the log has {features[0].shape} numbers; an observation has {self.record}")
        stacked = features.reshape(len(features), *shape)
        return self.checked(stacked if self.is_whole else {names[0]: stacked}, len(features))

    def pack(self, x: Any) -> list[bytes]:
        """Observations (n, ...) as bytes, compressed where nearly all are zero."""
        if self.is_whole:
            return _packed(x.tobytes(), len(x), self.record.itemsize)
        records = np.empty(len(next(iter(x.values()))), self.record)
        for name, part in x.items():
            records[name] = part
        return _packed(records.tobytes(), len(records), self.record.itemsize)

    def unpack(self, contents: Sequence[bytes]) -> Any:
        return self._tree(self.records(contents))

    def records(self, contents: Sequence[bytes]) -> np.ndarray:
        """(n,) of logged contexts."""
        return unpacked(contents, self.record)

    def checked(self, value: Any, rows: int | None = None) -> np.ndarray:
        """An observation as records (1,), or stacked ones as (rows,), not yet clipped."""
        records = np.empty(1 if rows is None else rows, self.record)
        given = {WHOLE: value} if self.is_whole else entries(self.space, value)  # pyright: ignore[reportArgumentType]
        for entry, (part, name) in self._parts.items():
            array = np.asarray(shaped(part, given[entry], name, rows))
            check_values(part, array, name, kept=True)
            records[entry] = array
        return records

    def clipped(self, records: np.ndarray) -> Rows:
        outside = np.zeros(len(records), bool)
        for name, (low, high, lowest, highest) in self._bounds.items():
            known = records[name].astype(np.float64)
            beyond = (known < lowest) | (known > highest)
            if beyond.any():
                records = records.copy()
                records[name] = np.where(beyond, np.clip(known, low, high), known)
                outside |= beyond.reshape(len(records), -1).any(1)
        packed = _packed(records.tobytes(), len(records), self.record.itemsize)
        return Rows(self._tree(records), packed, int(outside.sum()))

    def zeros(self) -> Any:
        """(1, ...) zeros, clipped to the bounds."""
        return self.clipped(np.zeros(1, self.record)).x

    def _tree(self, records: np.ndarray) -> Any:
        if self.is_whole:
            return np.array(records[WHOLE])
        return {name: np.array(records[name]) for name in self.record.names or ()}


def learned(state: PyTree, size: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Means (size,) of the contexts that an agent has learned, and the largest distances from them; None if unknown.

    A number that never varied may have any distance, because agents in standard units do not see it.
    """
    for units in jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, Units)):
        if isinstance(units, Units) and units.mean.ndim and units.mean.size == size and float(units.seen) >= _LEARNED:
            furthest = np.ravel(np.asarray(units.furthest, float))
            return np.ravel(np.asarray(units.mean, float)), np.where(furthest > 0, furthest, np.inf)
    return None


def told(found: Iterable[Outside]) -> int:
    """Number of rows; the first value of a column in a process is a warning."""
    rows = set()
    for row, column, value, known in found:
        rows.add(row)
        if column not in _TOLD:
            _TOLD.add(column)
            shown = f"{value:.6g}" if isinstance(value, float) else f"{value!s:.40}"
            warnings.warn(
                f"{column} = {shown} lies outside of {known}: look at its unit, and leave out what "
                "grows, such as a date or a row number; an encoder may have to be fitted anew",
                stacklevel=3,
            )
    return len(rows)


def unpacked(contents: Sequence[bytes], record: np.dtype) -> np.ndarray:
    """Packed records (n,), perhaps of no bytes."""
    size = record.itemsize
    whole = [content if len(content) == size else zlib.decompress(content) for content in contents]
    return np.ndarray((len(whole),), record, b"".join(whole))


def record_from(described: Any) -> np.dtype:
    """The inverse of `described_record`."""
    return np.dtype([(name, kind, tuple(shape)) for name, kind, shape in described])


def described_record(record: np.dtype) -> list[Any]:
    """A record as JSON values."""
    fields: Any = record.fields
    return [[name, kind.base.str, list(kind.shape)] for name, (kind, *_) in fields.items()]


def sized(stacked: Any) -> tuple[Any, int]:
    """Stacked contexts as arrays, and their number. Raises ValueError without an axis to count."""
    parts = stacked if isinstance(stacked, Mapping) else {"contexts": stacked}
    arrays = {name: checks.as_array(name, part) for name, part in parts.items()}
    shapes = [array.shape for array in arrays.values()]
    sizes = {shape[:1] for shape in shapes}
    if len(sizes) != 1 or () in sizes:
        raise ValueError(f"contexts must be stacked along a first axis; got shapes {shapes}")
    return arrays if isinstance(stacked, Mapping) else arrays["contexts"], sizes.pop()[0]


def split(content: bytes, count: int) -> list[bytes]:
    """So many equal parts."""
    size = len(content) // max(count, 1)
    return [content[size * place : size * (place + 1)] for place in range(count)]


def _packed(content: bytes, count: int, size: int) -> list[bytes]:
    parts = split(content, count)
    if size < _LONG:
        return parts
    filled = np.count_nonzero(np.frombuffer(content, np.uint8).reshape(count, size), axis=1)
    return [
        zlib.compress(part, 1) if _SPARSE * number < size else part for part, number in zip(parts, filled, strict=True)
    ]


def _is_of_floats(part: Any) -> bool:
    return isinstance(part, gym_spaces.Box) and jnp.issubdtype(dtype_of(part), jnp.floating)


def _bounds_of(part: gym_spaces.Box) -> tuple[np.ndarray, ...]:
    """Bounds, and both with room for rounding."""
    low, high = (np.asarray(bound, np.float64) for bound in (part.low, part.high))
    rounding = 8 * float(jnp.finfo(dtype_of(part)).eps)
    below, above = (rounding * np.maximum(np.abs(bound), 1) for bound in (low, high))
    return low, high, low - below, high + above
