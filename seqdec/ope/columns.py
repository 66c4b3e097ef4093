"""Columns of a table as the parts of a log: indices and names of actions, numbers, times, groups of columns."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec import checks
from seqdec.features import Encoder

if TYPE_CHECKING:
    import pandas as pd

ESTIMATED = "estimated_propensity"
"""The column of propensities that are estimates."""
_PART = r"reward\[(.+)\]"
NAMES = "timestamp, action, reward, propensity, context_0, ..., mask_0, ..., action_0_feature_0, ..."
_INDEX = "(0|[1-9][0-9]*)"
_GROUPS = {"context": f"context_{_INDEX}", "mask": f"mask_{_INDEX}", "features": f"action_{_INDEX}_feature_{_INDEX}"}


def refuse(name: str, wrong: Any, values: np.ndarray, remedy: str) -> None:
    """Raise ValueError for the first row in which `wrong` (n,) is true."""
    if wrong.any():
        row = int(np.argmax(wrong))
        more = f" (and {int(wrong.sum()) - 1} more rows)" if wrong.sum() > 1 else ""
        raise ValueError(f"column {name}, row {row}: {values[row]}{more}: {remedy}")


def by_action(name: str, table: Any, names: Sequence[Any]) -> Any:
    """`table` with a column for each action, by their names where it has them; anything else as it is.

    Raises ValueError for the names of some actions but not of all.
    """
    labels = getattr(table, "column_names", getattr(table, "columns", None))  # those of Arrow; of pandas and Polars
    if labels is None or list(labels) == list(names):
        return table
    if sorted(map(str, labels)) == sorted(map(str, names)) and set(labels) == set(names):
        return table.select(list(names)) if hasattr(table, "select") else table[list(names)]
    if any(isinstance(label, str) and label in names for label in labels):
        raise ValueError(f"{name} must have a column for each action, {list(names)}; got {list(labels)}")
    return table


def part_column(name: str) -> str:
    """The column of a named reward."""
    return f"reward[{name}]"


class Columns:
    """The columns of a table by name."""

    def __init__(self, table: "pd.DataFrame"):
        """Raises TypeError for a table of another library, ValueError where the separator of a file was wrong."""
        import pandas as pd

        if not isinstance(table, pd.DataFrame):
            kind = type(table).__name__
            raise TypeError(
                f"table must be a pandas.DataFrame; got {kind}: convert it, as with to_pandas() or DataFrame()"
            )
        self.table = table
        self.names = [str(name) for name in table.columns]
        if len(self.names) == 1 and (found := re.search("[;\t|]", self.names[0])):
            separator = found.group()
            raise ValueError(
                f"the only column is {self.names[0][:60]!r}: the separator seems to be {separator!r}; write the file "
                f"with commas, or read it with pandas.read_csv(..., sep={separator!r}) and pass it to Log.from_pandas"
            )

    def __getitem__(self, name: str) -> Any:
        """The column of that name. Raises ValueError where it is not there, or twice."""
        if name not in self.names:
            raise ValueError(f"there is no column {name}; the table has {', '.join(self.names[:12]) or 'none'}")
        if self.names.count(name) > 1:
            raise ValueError(f"the column {name} occurs twice: drop one")
        return self.table.iloc[:, self.names.index(name)]

    def required(self, role: str, name: str, remedy: str = "") -> Any:
        """The column that has a role in the log. Raises ValueError with the remedy where it is not there."""
        if name not in self.names:
            raise ValueError(
                f"there is no column {name}; the table has {', '.join(self.names[:12]) or 'none'}: name the column of "
                f"the {role}, {role}=...{remedy}"
            )
        return self[name]

    def parts(self, reward: str) -> dict[str, np.ndarray]:
        """Named rewards by name, besides the column that is the reward."""
        found = {name: match.group(1) for name in self.names if name != reward and (match := re.fullmatch(_PART, name))}
        return {part: numbers(name, self[name]) for name, part in found.items()}

    def group(self, group: str) -> np.ndarray | None:
        """The numbers of a group of numbered columns, (n, *shape of the group); None for an empty group."""
        matches = [re.fullmatch(_GROUPS[group], name) for name in self.names]
        places = _complete(group, [tuple(int(part) for part in match.groups()) for match in matches if match])
        if not places:
            return None
        columns = [numbers(name, self[name]) for name in (_name(group, place) for place in places)]
        return np.stack(columns, axis=1).reshape(len(self.table), *_shape(places))


def has_actions(names: Iterable[str]) -> bool:
    """Whether columns of these names count the actions: masks, or features of each action."""
    return any(re.fullmatch(_GROUPS[group], name) for name in names for group in ("mask", "features"))


def context_of(columns: Columns, context: Encoder | Sequence[str] | None, outcomes: Mapping[str, str]) -> Any:
    """The features of each row (n, d): encoded, or the numbers in the named columns, or those in context_0, ...

    Raises:
        TypeError: neither an encoder nor names.
        ValueError: a column that is not there, does not hold finite numbers, or is among the `outcomes` (name -> role),
            which are not known before the decision.
    """
    if context is None:
        return columns.group("context")
    names = context.columns if isinstance(context, Encoder) else context
    names = checks.ordered("context", names, "an Encoder or a list of columns")
    for name in names:
        if name in outcomes:
            raise ValueError(
                f"the column {name} of the context is the {outcomes[name]}, which is not known before the decision: "
                "leave it out, as with Encoder.fit(table, ['age', 'city'])"
            )
    if isinstance(context, Encoder):
        return context.transform(columns.table)
    return np.stack([_plain(name, columns[name]) for name in names], axis=1) if names else None


def _plain(name: str, values: Any) -> np.ndarray:
    """A column of finite numbers."""
    remedy = "encode the columns, context=Encoder.fit(table, [...]) of seqdec.features"
    try:
        found = np.asarray(numbers(name, values), np.float64)
    except ValueError as error:
        raise ValueError(f"{error}: {remedy}") from None
    refuse(name, ~np.isfinite(found), found, f"fill it, or {remedy}")
    return found


def actions_of(values: Any, names: Sequence[str] | None) -> tuple[Any, tuple[str, ...] | None]:
    """Indices of the actions and their names; None where actions are numbers without names.

    Text that is not all numbers, and a categorical column of text, are names: those given, else the categories, else
    what occurs, sorted.

    Raises ValueError for a missing action, an unknown name, or names beside numbers.
    """
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


def _numbered(column: Any) -> Any:
    import pandas as pd

    return pd.to_numeric(column, errors="coerce")


def checked_names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Raises TypeError for what is not a list of texts, ValueError for one that occurs twice."""
    if names is None:
        return None
    known = tuple(checks.ordered("action_names", names, "a list of texts"))
    if not known or not all(isinstance(name, str) for name in known):
        raise TypeError(f"action_names must be a list of texts; got {names!r:.80}")
    if len(set(known)) < len(known):
        raise ValueError(f"action_names must differ; got {names!r:.200}")
    return known


def _complete(group: str, places: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The indices in order. Raises ValueError if one is missing."""
    if not places:
        return []
    shape, known = _shape(places), set(places)
    if len(known) < len(places):
        raise ValueError(f"a column of the group {_name(group, places[0])}, ... occurs twice: drop one")
    # One more than there are: what is missing is among them, however large the largest index.
    expected = [_place(number, shape) for number in range(min(math.prod(shape), len(places) + 1))]
    for place in expected:
        if place not in known:
            raise ValueError(f"there is no column {_name(group, place)}, but there is {_name(group, max(places))}")
    return expected


def _shape(places: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(max(indices) + 1 for indices in zip(*places, strict=True))


def _place(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The indices at a place in C order."""
    indices = []
    for size in reversed(shape):
        number, index = divmod(number, size)
        indices.append(index)
    return tuple(reversed(indices))


def _name(group: str, place: tuple[int, ...]) -> str:
    return _GROUPS[group].replace(_INDEX, "{}").format(*place)


def numbers(name: str, values: Any) -> np.ndarray:
    """A column of numbers."""
    import pandas as pd

    try:
        found: Any = pd.to_numeric(values, errors="coerce")
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {name}: it holds what is not a number ({error})") from error
    wrong = (found.isna() & ~values.isna()).to_numpy()
    refuse(name, wrong, values.to_numpy(), "it is not a number")
    return found.to_numpy()


def times(values: Any) -> np.ndarray:
    """Numbers as they are, also as text, and dates in UTC."""
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
