"""Points in containers of pandas, Polars, Arrow, NumPy and Python."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np


def table(given: Any) -> list[dict[Any, Any]] | None:
    """The rows of a table, by column name; or None."""
    if hasattr(given, "iloc") and given.ndim == 2:  # of pandas
        _check_names(given.columns)
        return [dict(zip(given.columns, row, strict=True)) for row in given.itertuples(index=False, name=None)]
    if hasattr(given, "to_dicts"):  # of Polars
        return given.to_dicts()
    if hasattr(given, "column_names") and hasattr(given, "to_pylist"):  # of Arrow
        _check_names(given.column_names)
        return given.to_pylist()
    if isinstance(given, np.ndarray) and given.dtype.names and given.ndim:
        return [dict(zip(given.dtype.names, row.tolist(), strict=True)) for row in given.ravel()]
    return None


def rows(columns: Mapping[Any, Any]) -> list[dict[Any, Any]]:
    """The rows of columns of equal length."""
    lengths = {name: len(sequence(column) or ()) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of points must have one length; got {lengths}")
    return [dict(zip(columns, row, strict=True)) for row in zip(*map(sequence, columns.values()), strict=True)]


def sequence(given: Any) -> list[Any] | None:
    """The items of an ordered container; or None."""
    if hasattr(given, "to_pylist"):  # a column of Arrow, whose items are objects of its own
        return given.to_pylist()
    if isinstance(given, np.ndarray | jax.Array):  # the items of a masked array may be masked
        return list(given if isinstance(given, np.ma.MaskedArray) else np.asarray(given)) if given.ndim else None
    ordered = isinstance(given, Sequence) or hasattr(given, "to_list")
    return list(given) if ordered and not isinstance(given, str | bytes) else None


def mapping(given: Any) -> Mapping[Any, Any] | None:
    """The values by name of a row, a dict or a named tuple; or None."""
    if hasattr(given, "iloc") and given.ndim == 1:  # a row of pandas
        _check_names(given.index)
        return dict(given.items())
    if hasattr(given, "_asdict"):
        return given._asdict()
    if hasattr(given, "as_py"):  # of Arrow
        return mapping(given.as_py())
    if isinstance(given, Mapping):
        return given
    if isinstance(given, np.ndarray | np.void) and given.dtype.names and not given.ndim:
        return dict(zip(given.dtype.names, given.tolist(), strict=True))
    rows = table(given)
    return rows[0] if rows is not None and len(rows) == 1 else None


def _check_names(names: Iterable[Any]) -> None:
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise ValueError(f"the name {twice[0]!r} occurs twice: rename or drop one of its columns")


def copied(x: Any) -> Any:
    """A copy of a point, nested dicts included."""
    if isinstance(x, dict):
        return {key: copied(value) if isinstance(value, dict) else value for key, value in x.items()}
    return x.copy()


def among(choices: tuple[Any, ...], given: Any, name: str) -> Any:
    """`given` as one of the choices. Raises ValueError, naming it."""
    try:
        return choices[place(choices, given)]
    except (KeyError, TypeError):  # TypeError: it has no hash
        raise ValueError(f"{name} = {given!r} is not one of {choices!r}") from None


def place(choices: tuple[Any, ...], value: Any) -> int:
    """The index of a choice, by hash."""
    return {choice: i for i, choice in enumerate(choices)}[value]


def is_missing(value: Any) -> bool:
    """Whether a value is missing."""
    import pandas as pd

    return np.ndim(value) == 0 and bool(pd.isna(value))
