"""The columns of a table of any library as lists of plain values."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow


AS_DICT = "convert it, as with _asdict(), dataclasses.asdict() or to_dict()"
"""The remedy for a row of another type."""


class Column(NamedTuple):
    """A column of a table."""

    values: list[Any]
    """One for each row."""
    kind: str | None = None
    """"categorical" or "ordered" for a column of that type; else None."""
    levels: tuple[Any, ...] = ()
    """Those of an ordered column, from the lowest to the highest."""


def columns_of(table: Any, wanted: Sequence[str] | None = None) -> tuple[int, dict[str, Column]]:
    """The number of rows, and the columns by name: those that are wanted, or all.

    Args:
        table: a table of pandas or Arrow, of any library that exports Arrow's C stream or the dataframe interchange
            protocol, as Polars does both, or a list or an iterator of dicts, whose absent keys are None.
        wanted: names; None for all.

    Raises:
        TypeError: not a table, or names that are not str.
        ValueError: a column that is not there, or twice.
    """
    if hasattr(table, "iloc") and hasattr(table, "columns"):
        known = list(table.columns)
        names = _chosen(known, wanted)
        places = {name: known.index(name) for name in names}
        return len(table), {name: _of_pandas(table.iloc[:, place]) for name, place in places.items()}
    if isinstance(table, list | tuple):
        return _of_rows(table, wanted)
    arrow = _as_arrow(table)
    if arrow is None and isinstance(table, Sequence | Iterator | ValuesView) and not isinstance(table, str | bytes):
        return _of_rows(list(table), wanted)
    if arrow is None:
        remedy = ": for one row, call the encoder with the dict" if isinstance(table, Mapping) else ""
        raise TypeError(
            f"table must be a pandas, pyarrow or polars table, or a list of dicts; got {type(table).__name__}{remedy}"
        )
    names = _chosen(arrow.column_names, wanted)
    return arrow.num_rows, {name: _of_arrow(arrow.column(arrow.column_names.index(name))) for name in names}


def _hint(name: str, known: list[Any]) -> str:
    """What else the name may mean."""
    close = difflib.get_close_matches(name, [one for one in known if isinstance(one, str)], n=1)
    return f"did you mean {close[0]!r}? Else " if close else ""


def _chosen(known: list[Any], wanted: Sequence[str] | None) -> list[str]:
    """The wanted columns, each of which must be there once."""
    names = list(known if wanted is None else wanted)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"the names of columns must be str; got {name!r:.80}: rename them, as with map(str, columns)"
            )
        if name not in known:
            raise ValueError(
                f"there is no column {name}; the table has {', '.join(map(str, known[:12])) or 'none'}: "
                f"{_hint(name, known)}add it, filled with None where it is unknown"
            )
        if known.count(name) > 1:
            raise ValueError(f"the column {name} occurs twice: drop one")
    return names


def _of_rows(rows: Sequence[Any], wanted: Sequence[str] | None) -> tuple[int, dict[str, Column]]:
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"row {place} must be a dict; got {type(row).__name__}: {AS_DICT}")
    names = _chosen(list(dict.fromkeys(key for row in rows for key in row)), None) if wanted is None else wanted
    for place, row in enumerate(rows):
        check_keys(row, names, f"row {place}")
    return len(rows), {name: Column([row.get(name) for row in rows]) for name in names}


def check_keys(row: Mapping[str, Any], names: Iterable[str], what: str) -> None:
    """Refuse a row that has none of the columns, which is a mistake. Raises ValueError."""
    if not any(name in row for name in names):
        known = ", ".join(map(str, list(row)[:12])) or "nothing"
        raise ValueError(f"{what} has none of the columns {', '.join(list(names)[:12])}; it has {known}")


def _of_pandas(column: Any) -> Column:
    values, dtype = column.tolist(), column.dtype
    if not hasattr(dtype, "categories"):
        return Column(values)
    return Column(values, "ordered", tuple(dtype.categories)) if dtype.ordered else Column(values, "categorical")


def _as_arrow(table: Any) -> "pyarrow.Table | None":
    """The table as one of Arrow; None for what is not a table."""
    import pyarrow

    if isinstance(table, pyarrow.Table):
        return table
    if isinstance(table, pyarrow.RecordBatch):
        return pyarrow.Table.from_batches([table])
    if hasattr(table, "__arrow_c_stream__"):
        try:
            return pyarrow.table(table)
        except (TypeError, ValueError, pyarrow.ArrowException):  # a column
            return None
    if hasattr(table, "__dataframe__"):
        from pyarrow.interchange import from_dataframe

        return from_dataframe(table)
    return None


def _of_arrow(column: Any) -> Column:
    import pyarrow

    values = column.to_pylist()
    if not pyarrow.types.is_dictionary(column.type):
        return Column(values)
    if not (column.type.ordered and column.num_chunks):
        return Column(values, "categorical")
    return Column(values, "ordered", tuple(column.unify_dictionaries().chunk(0).dictionary.to_pylist()))
