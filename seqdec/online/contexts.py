"""Contexts from outside: checked, as arrays of fixed dtypes and shapes, and as records of a fixed number of bytes."""

from typing import Any

import jax
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.agents.inputs import LARGEST

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
        ValueError: another shape or other entries than the space has, a number that is not finite or does not fit its
            dtype, or an index outside a Discrete space.
    """
    lead = () if rows is None else (rows,)
    filled = np.empty(lead, record)
    if isinstance(space, gym_spaces.Dict):
        names = set(value) if hasattr(value, "keys") else None
        if names is None:
            raise TypeError(f"the context must be a dict with {', '.join(space)}; got {type(value).__name__}")
        if names != set(space):
            raise ValueError(f"the context must have the entries {sorted(space)}; got {sorted(names)}")
        for name, part in space.items():
            filled[name] = _numbers(f"context[{name!r}]", part, value[name], lead)
    else:
        filled[WHOLE] = _numbers("the context", space, value, lead)
    return filled


def tree_of(records: np.ndarray) -> Any:
    """Records as what an agent observes: an array, or a dict of arrays."""
    names = records.dtype.names or ()
    return np.array(records[WHOLE]) if names == (WHOLE,) else {name: np.array(records[name]) for name in names}


def _described(space: gym_spaces.Space) -> tuple[np.dtype, tuple[int, ...]]:
    if isinstance(space, gym_spaces.Discrete):
        return np.dtype(np.int32), ()
    if isinstance(space, gym_spaces.Box):
        return np.dtype(jax.dtypes.canonicalize_dtype(space.dtype)), space.shape
    raise TypeError(f"observations must be Box, Discrete or a Dict of them; got {space}")


def _numbers(name: str, space: gym_spaces.Space, value: Any, lead: tuple[int, ...]) -> np.ndarray:
    dtype, shape = _described(space)
    try:
        given = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} must be an array of shape {(*lead, *shape)}: {error}") from error
    if given.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be numbers; got {given.dtype} {value!r:.60}")
    if given.shape != (*lead, *shape):
        raise ValueError(f"{name} must have shape {(*lead, *shape)}; got {given.shape}")
    if dtype.kind == "f":
        wrong = ~(np.abs(given) < LARGEST)
    else:
        low, high = _range(space)
        wrong = ~((given >= low) & (given <= high) & (given == np.floor(given)))
    if wrong.any():
        first = given[wrong].flat[0]
        need = f"finite numbers below {LARGEST:g}" if dtype.kind == "f" else f"integers that {space} contains"
        raise ValueError(f"{name} must be {need}; got {first} ({int(wrong.sum())} of {given.size} entries)")
    return given.astype(dtype)


def _range(space: Any) -> tuple[Any, Any]:
    """The least and the largest integers of a space."""
    if isinstance(space, gym_spaces.Discrete):
        return int(space.start), int(space.start + space.n) - 1
    return space.low, space.high
