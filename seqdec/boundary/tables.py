"""Tables of pandas, polars, pyarrow or a list of dicts as columns of plain values."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import narwhals

AS_DICT = "convert it, as with _asdict(), dataclasses.asdict() or to_dict()"
"""The remedy for a row of another type."""


class Column(NamedTuple):
    """A column."""

    values: list[Any]
    """One per row."""
    kind: str | None = None
    """"categorical", "ordered", or None."""
    levels: tuple[Any, ...] = ()
    """Of an ordered column, ascending."""


def frame(table: Any) -> "narwhals.DataFrame[Any]":
    """A table of pandas, polars, pyarrow, or another library that narwhals reads into memory.

    Raises TypeError for all else, ValueError for a column that occurs twice.
    """
    import narwhals

    if hasattr(table, "to_struct_array"):  # a record batch of pyarrow, or a table
        import pyarrow

        table = pyarrow.Table.from_batches([table]) if isinstance(table, pyarrow.RecordBatch) else table
    names = list(map(str, getattr(table, "column_names", getattr(table, "columns", ()))))
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the column {twice} occurs twice: drop one")
    try:
        return narwhals.from_native(table, eager_only=True)
    except TypeError:
        kind = type(table).__name__
        raise TypeError(f"table must be a pandas, polars or pyarrow table, or a list of dicts; got {kind}") from None


def columns_of(table: Any, wanted: Sequence[str] | None = None) -> tuple[int, dict[str, Column]]:
    """The number of rows, and columns by name.

    Args:
        table: of pandas, polars or pyarrow, or a list of dicts, absent keys None.
        wanted: names; None: all.

    Raises:
        TypeError: no table, or names that are not str.
        ValueError: a column missing, or twice.
    """
    if isinstance(table, list | tuple):
        for place, row in enumerate(table):
            if not isinstance(row, Mapping):
                raise TypeError(f"row {place} must be a dict; got {type(row).__name__}: {AS_DICT}")
        keys = dict.fromkeys(key for row in table for key in row)
        names = _chosen(list(keys), None) if wanted is None else list(wanted)
        for place, row in enumerate(table):
            check_keys(row, names, f"row {place}")
        return len(table), {name: Column([row.get(name) for row in table]) for name in names}
    if isinstance(table, Mapping):
        raise TypeError("table must be a table; got a dict: to encode one row, call the encoder with the dict")
    read = frame(table)
    return len(read), {name: _column(read[name]) for name in _chosen(list(read.columns), wanted)}


def _column(column: Any) -> Column:
    import narwhals

    if isinstance(column.dtype, narwhals.Enum):
        return Column(column.to_list(), "ordered", tuple(column.dtype.categories))
    return Column(column.to_list(), "categorical" if column.dtype == narwhals.Categorical else None)


def _chosen(known: list[Any], wanted: Sequence[str] | None) -> list[str]:
    names = list(known if wanted is None else wanted)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"the names of columns must be str; got {name!r:.80}: rename them, as with map(str, columns)"
            )
        if name not in known:
            close = difflib.get_close_matches(name, [one for one in known if isinstance(one, str)], n=1)
            hint = f"did you mean {close[0]!r}? Else " if close else ""
            raise ValueError(
                f"there is no column {name}; the table has {', '.join(map(str, known[:12])) or 'none'}: "
                f"{hint}add it, filled with None where it is unknown"
            )
    return names


def check_keys(row: Mapping[str, Any], names: Iterable[str], what: str) -> None:
    """Raises ValueError for a row without any of the columns."""
    if not any(name in row for name in names):
        known = ", ".join(map(str, list(row)[:12])) or "nothing"
        raise ValueError(f"{what} has none of the columns {', '.join(list(names)[:12])}; it has {known}")
