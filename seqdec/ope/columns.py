"""Columns of a table as parts of a log."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.boundary.tables import frame
from seqdec.features import Encoder

if TYPE_CHECKING:
    import pandas as pd

ESTIMATED = "estimated_propensity"
NAMES = "timestamp, action, reward, propensity, context_0, ..., mask_0, ..., action_0_feature_0, ..."
PART = re.compile(r"reward\[(.+)\]")
_NAMED = re.compile(r"context\[(.+)\]")
_INDEX = "(0|[1-9][0-9]*)"
_GROUPS = {"context": f"context_{_INDEX}", "mask": f"mask_{_INDEX}", "features": f"action_{_INDEX}_feature_{_INDEX}"}


def refuse(name: str, wrong: Any, values: np.ndarray, remedy: str) -> None:
    """Raise ValueError for the first row where `wrong` (n,)."""
    if wrong.any():
        row = int(np.argmax(wrong))
        more = f" (and {int(wrong.sum()) - 1} more rows)" if wrong.sum() > 1 else ""
        raise ValueError(f"column {name}, row {row}: {values[row]}{more}: {remedy}")


def by_action(name: str, table: Any, names: Sequence[Any]) -> Any:
    """`table` with columns in the order of the actions, if named so."""
    if not hasattr(table, "columns"):
        return table
    columns = frame(table).to_pandas()
    labels, wanted = list(columns.columns), list(names)
    if labels == wanted:
        return table
    if len(labels) == len(wanted) and set(labels) == set(wanted):
        return columns[wanted]
    if any(isinstance(label, str) and label in wanted for label in labels):
        raise ValueError(f"{name} must have a column for each action, {wanted}; got {labels}")
    return table


def part_column(name: str) -> str:
    """The column of a named reward."""
    return f"reward[{name}]"


def named(table: "pd.DataFrame") -> "pd.DataFrame":
    """The table with str as column names. Raises ValueError for the wrong separator of a file."""
    if not all(isinstance(name, str) for name in table.columns):
        table = table.set_axis(list(map(str, table.columns)), axis=1)
    if len(table.columns) == 1 and (found := re.search("[;\t|]", table.columns[0])):
        raise ValueError(
            f"the only column is {table.columns[0][:60]!r}: the separator seems to be {found[0]!r}; write the file "
            f"with commas, or read it with pandas.read_csv(..., sep={found[0]!r}) and pass it to Log.from_pandas"
        )
    return table


def required(table: "pd.DataFrame", role: str, name: str, remedy: str = "") -> Any:
    """The column of a role."""
    if name not in table:
        has = ", ".join(map(str, table.columns[:12])) or "none"
        if role:
            remedy = f": name the column of the {role}, {role}=...{remedy}"
        raise ValueError(f"there is no column {name}; the table has {has}{remedy}")
    return table[name]


def has_actions(names: Iterable[str]) -> bool:
    """Whether columns of these names count the actions."""
    return any(re.fullmatch(_GROUPS[kind], name) for name in names for kind in ("mask", "features"))


def group(table: "pd.DataFrame", kind: str) -> np.ndarray | None:
    """(n, *shape) numbers of a kind of columns, or None."""
    matches = [re.fullmatch(_GROUPS[kind], name) for name in table]
    found = {tuple(map(int, match.groups())): match[0] for match in matches if match}
    if not found:
        return None
    shape, columns = tuple(max(axis) + 1 for axis in zip(*found, strict=True)), []
    for place in np.ndindex(*shape):
        if place not in found:
            absent = _GROUPS[kind].replace(_INDEX, "{}").format(*place)
            raise ValueError(f"there is no column {absent}, but there is {found[max(found)]}")
        columns.append(numbers(found[place], table[found[place]]))
    return np.stack(columns, axis=1).reshape(len(table), *shape)


class Context(NamedTuple):
    """Features, and what their columns are."""

    features: Any
    """(n, d), or None"""
    names: tuple[str, ...] | None = None
    """(d,) of the columns; None if unknown"""
    encoder: str | None = None
    """digest of their encoder, "" for columns as they are; None if unknown"""


def context_column(name: str) -> str:
    """The column of a named feature of contexts."""
    return f"context[{name}]"


def context_of(table: "pd.DataFrame", context: Any, outcomes: dict[Any, str]) -> Context:
    """Encoded features, named columns, or the columns context[NAME], else context_0, ...

    Raises ValueError for `outcomes` (column -> role) in the context.
    """
    if context is None:
        found, known = group(table, "context"), {name: match[1] for name in table if (match := _NAMED.fullmatch(name))}
        if not known:
            return Context(found)
        if found is not None:
            raise ValueError(f"there are columns context_0 and {next(iter(known))}: leave out one kind")
        columns = [numbers(name, table[name]) for name in known]
        return Context(np.stack(columns, axis=1), tuple(known.values()))
    encodes = isinstance(context, Encoder)
    names = checks.ordered("context", context.columns if encodes else context, "an Encoder or a list of columns")
    for name in names:
        if name in outcomes:
            raise ValueError(
                f"the column {name} of the context is the {outcomes[name]}, which is not known before the decision: "
                "leave it out, as with Encoder.fit(table, ['age', 'city'])"
            )
    if encodes:
        unique = len(set(context.names)) == len(context.names)
        return Context(context.transform(table), context.names if unique else None, context.digest)
    columns, remedy = [], "encode the columns, context=Encoder.fit(table, [...]) of seqdec.features"
    for name in names:
        column = required(table, "", name)
        try:
            columns.append(found := np.asarray(numbers(name, column), np.float64))
        except ValueError as error:
            raise ValueError(f"{error}: {remedy}") from None
        refuse(name, ~np.isfinite(found), found, f"fill it, or {remedy}")
    return Context(np.stack(columns, axis=1) if columns else None, tuple(names), "")


def actions_of(values: Any, names: Sequence[str] | None) -> tuple[Any, tuple[str, ...] | None]:
    """Indices and names of the actions (given, else categories, else sorted); for numbers, the given names or None."""
    import pandas as pd

    column = values if isinstance(values, pd.Series) else pd.Series(values, dtype=object)
    cells, known = column.tolist(), checked_names(names)
    if known is None and isinstance(column.dtype, pd.CategoricalDtype):
        categories = column.cat.categories
        known = tuple(categories) if all(isinstance(category, str) for category in categories) else None
    is_text = np.array([isinstance(cell, str) for cell in cells], bool)
    if not is_text.any() or (known is None and not _numbered(column).isna().any()):
        return numbers("action", column), known
    refuse("action", ~is_text, column.to_numpy(), "it is not the name of an action, as others are")
    known = known or tuple(sorted(set(cells)))
    places = {name: place for place, name in enumerate(known)}
    indices = np.array([places.get(cell, -1) for cell in cells])
    refuse("action", indices < 0, column.to_numpy(), f"it is not an action; they are {', '.join(known[:12])}")
    return indices, known


def checked_names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of actions: texts that differ."""
    if names is None:
        return None
    known = tuple(checks.ordered("action_names", names, "a list of texts"))
    if not known or not all(isinstance(name, str) for name in known):
        raise TypeError(f"action_names must be a list of texts; got {names!r:.80}")
    if len(set(known)) < len(known):
        raise ValueError(f"action_names must differ; got {names!r:.200}")
    return known


def check_names(name: str, names: Sequence[str], count: int) -> None:
    """Raise TypeError or ValueError for anything but `count` texts that differ."""
    if not all(isinstance(one, str) for one in names):
        raise TypeError(f"{name} must be a list of texts; got {names!r:.80}")
    if len(names) != count or len(set(names)) < count:
        raise ValueError(f"{name} must be {count} texts that differ; got {names!r:.200}")


def numbers(name: str, values: Any, remedy: str = "") -> np.ndarray:
    """A column of numbers."""
    try:
        found: Any = _numbered(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {name}: it holds what is not a number ({error})") from error
    refuse(name, (found.isna() & ~values.isna()).to_numpy(), values.to_numpy(), f"it is not a number{remedy}")
    return found.to_numpy()


def times(values: Any) -> np.ndarray:
    """Numbers, also as text, or dates in UTC."""
    import pandas as pd

    if values.dtype == object or isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object).infer_objects()
    if pd.api.types.is_numeric_dtype(values):
        return values.to_numpy()
    values = values.astype(str) if values.dtype == object else values  # dates and numbers side by side
    if pd.api.types.is_string_dtype(values) and not (found := _numbered(values)).isna().any():
        return found.to_numpy()
    dates: Any = pd.to_datetime(values, utc=True, errors="coerce", format="ISO8601")
    refuse("timestamp", dates.isna().to_numpy(), values.to_numpy(), "it is neither a number nor an ISO 8601 date")
    return dates.dt.tz_localize(None).to_numpy()


def _numbered(column: Any) -> Any:
    import pandas as pd

    # Of Arrow's texts pandas makes NaN that is not missing.
    of_arrow = isinstance(getattr(column, "dtype", None), pd.ArrowDtype)
    return pd.to_numeric(column.astype(object) if of_arrow else column, errors="coerce")
