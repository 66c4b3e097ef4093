"""Columns of a table as parts of a log."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.features import Encoder
from seqdec.ope.labels import Label, as_integers, shown
from seqdec.rows import refuse

if TYPE_CHECKING:
    import pandas as pd

ESTIMATED = "estimated_propensity"
NAMES = "timestamp, action, reward, propensity, context_0, ..., mask_0, ..., action_0_feature_0, ..."
PART = re.compile(r"reward\[(.+)\]")
_INDEX = "(0|[1-9][0-9]*)"
_FORMS = {"context": "context{}", "mask": "mask{}", "features": "action{}_feature_{}", "logging": "logging{}"}
_PATTERNS = {
    kind: re.compile(form.replace("{}", rf"(?:_{_INDEX}|\[(.+)\])", 1).replace("{}", _INDEX))
    for kind, form in _FORMS.items()
}


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


class Group(NamedTuple):
    """Columns of a kind."""

    values: np.ndarray
    """(n, k, ...) numbers"""
    names: tuple[str, ...] | None
    """(k,) in brackets; None for indices"""

    def of(self, labels: Sequence[Label]) -> np.ndarray:
        """The values in the order of the actions' labels."""
        if self.names is None:
            return self.values
        if set(self.names) != set(map(str, labels)):
            raise ValueError(f"the columns are of the actions {shown(self.names)}; the actions are {shown(labels)}")
        return self.values[:, [self.names.index(str(label)) for label in labels]]


def actions_in(names: Iterable[str]) -> tuple[int | None, Sequence[Label] | None]:
    """How many actions these columns number, and the labels that they name; None for none."""
    kinds = ("mask", "features", "logging")
    matches = [match for name in names for kind in kinds if (match := _PATTERNS[kind].fullmatch(name))]
    labels = dict.fromkeys(match[2] for match in matches if match[2])
    numbered = max((int(match[1]) + 1 for match in matches if match[1]), default=None)
    return numbered, as_integers(tuple(labels)) or None


def group(table: "pd.DataFrame", kind: str) -> Group | None:
    """A kind of columns, or None."""
    matches = [match for name in table if (match := _PATTERNS[kind].fullmatch(name))]
    if not matches:
        return None
    named = tuple(dict.fromkeys(match[2] for match in matches if match[2]))
    found: dict[tuple[Any, ...], str] = {
        (match[2] or int(match[1]), *map(int, match.groups()[2:])): match[0] for match in matches
    }
    if named and any(match[1] for match in matches):
        raise ValueError(f"there are columns {matches[0][0]} and {matches[-1][0]}: use numbers or names in all")
    axes = [range(max(axis) + 1) for axis in list(zip(*found, strict=True))[1 if named else 0 :]]
    columns = []
    for place in itertools.product(*([named] if named else []), *axes):
        if place not in found:
            raise ValueError(f"there is no column {_column(kind, place)}, but there is {found[max(found)]}")
        columns.append(numbers(found[place], table[found[place]]))
    shape = (len(table), *([len(named)] if named else []), *map(len, axes))
    return Group(np.stack(columns, axis=1).reshape(shape), named or None)


def grouped(kind: str, array: np.ndarray, names: Sequence[Label] | None) -> dict[str, np.ndarray]:
    """The columns that `group` reads."""
    return {
        _column(kind, place if names is None else (str(names[place[0]]), *place[1:])): array[(slice(None), *place)]
        for place in np.ndindex(array.shape[1:])
    }


def _column(kind: str, place: tuple[Any, ...]) -> str:
    first = f"[{place[0]}]" if isinstance(place[0], str) else f"_{place[0]}"
    return _FORMS[kind].format(first, *place[1:])


class Context(NamedTuple):
    """Features, and what their columns are."""

    features: Any
    """(n, d), or None"""
    names: tuple[str, ...] | None = None
    """(d,) of the columns; None if unknown"""
    encoder: str | None = None
    """digest of their encoder, "" for columns as they are; None if unknown"""


def context_of(table: "pd.DataFrame", context: Any, outcomes: dict[Any, str]) -> Context:
    """Encoded features, named columns, or the columns context[NAME], else context_0, ...

    Raises ValueError for `outcomes` (column -> role) in the context.
    """
    if context is None:
        found = group(table, "context")
        return Context(None) if found is None else Context(found.values, found.names)
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
        raise ValueError(f"column {name}: some values are not numbers ({error})") from error
    refuse(name, (found.isna() & ~values.isna()).to_numpy(), values.to_numpy(), f"it is not a number{remedy}")
    return found.to_numpy()


def times(values: Any) -> np.ndarray:
    """Numbers, also as text, or dates in UTC."""
    import pandas as pd

    if values.dtype == object or isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object).infer_objects()
    if pd.api.types.is_numeric_dtype(values):
        return values.to_numpy()
    missing = values.isna()
    values = values.astype(str) if values.dtype == object else values  # dates and numbers side by side
    if pd.api.types.is_string_dtype(values) and not (found := _numbered(values)).isna().any():
        return found.to_numpy()
    dates: Any = pd.to_datetime(values, utc=True, errors="coerce", format="ISO8601")
    malformed = "it is neither a number nor an ISO 8601 date"
    refuse("timestamp", (dates.isna() & ~missing).to_numpy(), values.to_numpy(), malformed)
    without = "a time is missing; drop such rows, or leave the times out, so that rows are taken to be in order"
    refuse("timestamp", dates.isna().to_numpy(), values.to_numpy(), without)
    return dates.dt.tz_localize(None).to_numpy()


def _numbered(column: Any) -> Any:
    import pandas as pd

    # Of Arrow's texts pandas makes NaN that is not missing.
    of_arrow = isinstance(getattr(column, "dtype", None), pd.ArrowDtype)
    return pd.to_numeric(column.astype(object) if of_arrow else column, errors="coerce")
