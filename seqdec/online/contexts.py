"""Contexts from outside: checked, as arrays of fixed dtypes and shapes, and as records of a fixed number of bytes."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec import checks
from seqdec.agents.inputs import LARGEST, refused_observations

WHOLE = "context"
"""Name of the only field of a record, where the space is no Dict."""


def record_of(space: gym_spaces.Space) -> np.dtype:
    """The record of one observation: a field for each entry of a Dict by name, else one field.

    Raises TypeError for another space than Box, Discrete or a Dict of them.
    """
    parts = dict(space.items()) if isinstance(space, gym_spaces.Dict) else {WHOLE: space}
    return np.dtype([(name, *_described(part)) for name, part in sorted(parts.items())])


def shape_of(record: Any, name: str) -> tuple[int, ...]:
    """Shape of one field of a record."""
    return record.fields[name][0].shape


def checked(space: gym_spaces.Space, record: np.dtype, value: Any, rows: int | None = None) -> np.ndarray:
    """An observation as a record (), or with `rows` that many observations, stacked, as records (rows,).

    Raises:
        TypeError: not numbers, or no mapping where the space is a Dict.
        ValueError: another shape or other entries than the space has, a number that is not finite, or an integer that
            the space does not contain.
    """
    lead = () if rows is None else (rows,)
    filled = np.empty(lead, record)
    if isinstance(space, gym_spaces.Dict):
        if not isinstance(value, Mapping):
            raise TypeError(f"the context must be a dict with {', '.join(space)}; got {type(value).__name__}")
        if set(value) != set(space):
            raise ValueError(f"the context must have the entries {sorted(space)}; got {sorted(value)}")
        for name, part in space.items():
            filled[name] = _numbers(f"context[{name!r}]", part, value[name], lead)
    else:
        filled[WHOLE] = _numbers("the context", space, value, lead)
    return filled


def clipped(space: gym_spaces.Space, records: np.ndarray) -> tuple[np.ndarray, int]:
    """Records (rows,) with numbers beyond the bounds of a Box of floats moved to them, and how many records had such.

    A number that is beyond a bound by no more than rounding stays.
    """
    outside = np.zeros(len(records), bool)
    parts = dict(space.items()) if isinstance(space, gym_spaces.Dict) else {WHOLE: space}
    for name, part in parts.items():
        kind = records.dtype[name].base
        if not jnp.issubdtype(kind, jnp.floating):
            continue
        known, low, high = (np.asarray(values, np.float64) for values in (records[name], *_range(part)))
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


def unpacked(content: bytes, record: np.dtype, rows: int) -> np.ndarray:
    """The records (rows,) of which `content` holds the bytes; those of an empty space have none."""
    return np.ndarray((rows,), record, content)


def _described(space: gym_spaces.Space) -> tuple[np.dtype, tuple[int, ...]]:
    if isinstance(space, gym_spaces.Discrete):
        return np.dtype(np.int32), ()
    if isinstance(space, gym_spaces.Box):
        return np.dtype(jax.dtypes.canonicalize_dtype(space.dtype)), space.shape
    raise TypeError(refused_observations(space))


def _numbers(name: str, space: gym_spaces.Space, value: Any, lead: tuple[int, ...]) -> np.ndarray:
    dtype, shape = _described(space)
    try:
        given = np.asarray(checks.as_array(name, value))
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} must be an array of shape {(*lead, *shape)}: {error}") from error
    if given.shape != (*lead, *shape):
        raise ValueError(f"{name} must have shape {(*lead, *shape)}; got {given.shape}")
    with np.errstate(over="ignore", invalid="ignore"):
        cast = given.astype(dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        _refuse(name, given, ~(np.abs(cast.astype(np.float64)) < LARGEST), f"finite numbers below {LARGEST:g}")
    else:
        low, high = _range(space)
        inside = (given >= low) & (given <= high) & (cast == given)
        _refuse(name, given, ~inside, f"integers that {space} contains")
    return cast


def _refuse(name: str, given: np.ndarray, wrong: np.ndarray, need: str) -> None:
    """Raises ValueError with the first number that is wrong, if any is."""
    if wrong.any():
        count = f"{int(wrong.sum())} of {given.size} entries"
        raise ValueError(f"{name} must be {need}; got {given[wrong].flat[0]} ({count})")


def _range(space: Any) -> tuple[Any, Any]:
    """The least and the largest numbers of a space."""
    if isinstance(space, gym_spaces.Discrete):
        return int(space.start), int(space.start + space.n) - 1
    return space.low, space.high
