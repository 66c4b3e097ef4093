"""Logs of decisions: context, action, propensity and reward of each, in one format.

As a table, a log has the columns

    timestamp                  time of the decision, increasing: dates, or any numbers
    action                     index of the action, from 0
    reward                     observed reward
    propensity                 probability with which the logging policy chose the action
    context_0, context_1, ...  features known before the decision (no column: no context)
    mask_0, mask_1, ...        whether each action was allowed (no column: all were)
    action_0_feature_0, ...    features of each action in this row (no column: actions have an index only)
"""

import math
import os
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from seqdec import checks
from seqdec.introspection import described, html, ranged
from seqdec.persistence import is_text_table, located, read_any_table, write_table

if TYPE_CHECKING:
    import pandas as pd

_SCALARS = ("timestamp", "action", "reward", "propensity")
_INDEX = "(0|[1-9][0-9]*)"
_GROUPS = {"context": f"context_{_INDEX}", "mask": f"mask_{_INDEX}", "features": f"action_{_INDEX}_feature_{_INDEX}"}
_MOST_ACTIONS = 2**20
_NAMES = "timestamp, action, reward, propensity, context_0, ..., mask_0, ..., action_0_feature_0, ..."


class Log(NamedTuple):
    """Decisions in the order of time, as numpy arrays; logs from `make_log` and the readers are validated."""

    context: np.ndarray
    """(n, d) float64"""
    action: np.ndarray
    """(n,) int64 from 0"""
    reward: np.ndarray
    """(n,) float64"""
    propensity: np.ndarray
    """(n,) float64 in (0, 1]"""
    mask: np.ndarray
    """(n, k) bool, True where allowed"""
    timestamp: np.ndarray
    """(n,) datetime64 or numbers, increasing"""
    action_features: np.ndarray | None = None
    """(n, k, p)"""

    def __repr__(self) -> str:
        rows, actions = self.mask.shape
        times = f", {self.timestamp[0]} to {self.timestamp[-1]}" if rows else ""
        features = self.action_features
        return described(
            f"Log of {rows:,} decisions among {actions} actions{times}",
            f"contexts of {self.context.shape[1]} numbers"
            f"{'' if features is None else f'; {features.shape[2]} features of each action'}"
            f"{'' if self.mask.all() else f'; {self.mask.mean():.1%} of the actions allowed'}",
            f"reward: {ranged(self.reward)}",
            f"propensity: {ranged(self.propensity)}",
        )

    def _repr_html_(self) -> str:
        rows = min(len(self.action), 5)
        first = Log._make(None if part is None else part[:rows] for part in self)
        return html(repr(self), first.to_pandas().iloc[:, :12])

    @property
    def num_actions(self) -> int:
        """k, the number of actions."""
        return self.mask.shape[1]

    def to_pandas(self) -> "pd.DataFrame":
        """The log as a table with the columns listed in this module's docstring."""
        import pandas as pd

        groups: list[tuple[str, np.ndarray]] = [("context_{}", self.context), ("mask_{}", self.mask)]
        if self.action_features is not None:
            groups.append(("action_{}_feature_{}", self.action_features))
        columns: dict[str, Any] = {name: getattr(self, name) for name in _SCALARS}
        for pattern, array in groups:
            for place in np.ndindex(array.shape[1:]):
                columns[pattern.format(*place)] = array[(slice(None), *place)]
        return pd.DataFrame(columns)

    @classmethod
    def from_pandas(cls, table: "pd.DataFrame", *, num_actions: int | None = None) -> "Log":
        """The log in a table. `num_actions` is needed if there are neither masks nor action features.

        Raises ValueError naming column, row (from 0), value and remedy, and TypeError for a table of another library.
        """
        groups = _group(table)
        context, mask, features = (_numbers(table, group, places) for group, places in groups.items())
        action, reward, propensity = (_column(name, table[name]) for name in ("action", "reward", "propensity"))
        return make_log(
            context=context,
            action=action,
            reward=reward,
            propensity=propensity,
            mask=mask,
            timestamp=_times(table["timestamp"]),
            action_features=features,
            num_actions=num_actions,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table as parquet.

        Raises ValueError for the name of a text file, and OSError if the file cannot be written.
        """
        file = located(path)
        if is_text_table(file):
            raise ValueError(
                f"{path} would be a parquet file with the name of a text file: call it .parquet, or write text with "
                "log.to_pandas().to_csv(path, index=False)"
            )
        write_table(file, self.to_pandas())

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, num_actions: int | None = None) -> "Log":
        """Read a log from a parquet file, or from text with commas: .csv, .txt, or one of them compressed, as .csv.gz.

        `num_actions` as in `from_pandas`. The log of an `OnlineAgent` is read by `seqdec.online.read_log`. Raises
        FileNotFoundError, and ValueError naming the file if it does not hold a valid log.
        """
        path = located(path)
        if not path.exists():
            raise FileNotFoundError(f"there is no log {path}; give a parquet or CSV file with the columns {_NAMES}")
        try:
            return cls.from_pandas(read_any_table(path), num_actions=num_actions)
        except Exception as error:  # of pyarrow, pandas or of the checks
            raise ValueError(f"{path}: {error}") from error


def make_log(
    *,
    action: Any,
    reward: Any,
    propensity: Any,
    timestamp: Any = None,
    context: Any = None,
    mask: Any = None,
    action_features: Any = None,
    num_actions: int | None = None,
) -> Log:
    """A validated log from arrays.

    Args:
        action: (n,) integers from 0.
        reward: (n,) finite.
        propensity: (n,) in (0, 1]; up to 1.00001, as float32 rounds, counts as 1.
        timestamp: (n,) increasing; None numbers the rows.
        context: (n, d) finite; None for no context.
        mask: (n, k) bool; None allows all actions.
        action_features: (n, k, p), or (k, p) for features that are the same in all rows; None for no features.
        num_actions: k; None takes it from mask or features, else from the largest action in the log.

    Raises:
        ValueError: naming column, row (from 0), value and remedy.
        TypeError: `num_actions` is no integer.
    """
    action = _array("action", action, 1)
    if not len(action):
        raise ValueError(f"column action: a log needs at least one row; got shape {action.shape}")
    count = len(action)
    actions = _check_actions(action)
    features = None if action_features is None else _array("action_features", action_features, 2, 3).astype(np.float64)
    if features is not None and features.ndim == 2:
        features = np.broadcast_to(features, (count, *features.shape))
    allowed = None if mask is None else _array("mask", mask, 2)
    known = [None if num_actions is None else checks.count("num_actions", num_actions)]
    known += [None if array is None else array.shape[1] for array in (allowed, features)]
    sizes = {size for size in known if size is not None} or {int(actions.max()) + 1}
    if len(sizes) > 1:
        raise ValueError(f"num_actions, mask and action_features count different numbers of actions: {sorted(sizes)}")
    size = sizes.pop()
    if size > _MOST_ACTIONS:
        raise ValueError(f"num_actions must be at most {_MOST_ACTIONS}; got {size}: number the actions")
    log = Log(
        context=np.zeros((count, 0)) if context is None else _array("context", context, 2).astype(np.float64),
        action=actions,
        reward=_array("reward", reward, 1).astype(np.float64),
        propensity=_array("propensity", propensity, 1).astype(np.float64),
        mask=np.ones((count, size), bool) if allowed is None else _check_mask(allowed),
        timestamp=np.arange(count) if timestamp is None else _times_array(timestamp),
        action_features=features,
    )
    _check(log)
    return log._replace(propensity=np.minimum(log.propensity, 1.0))


def _array(name: str, values: Any, *axes: int) -> np.ndarray:
    """Numbers with one of so many axes. Raises ValueError for anything else."""
    try:
        array = np.asarray(checks.as_array(name, values))
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {error}") from None
    if array.ndim not in axes:
        raise ValueError(f"column {name} must have {' or '.join(map(str, axes))} axes; got shape {array.shape}")
    return array


def _times_array(values: Any) -> np.ndarray:
    """Dates, also as text or Python's, or numbers with one axis. Raises ValueError for anything else."""
    import pandas as pd

    values = list(values) if isinstance(values, Iterator) else values
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "MOU":
        return _array("timestamp", values, 1)
    if array.dtype.kind == "M":
        return array
    try:
        return _array("timestamp", array, 1)
    except ValueError:
        return _times(pd.Series(array))


def inputs(log: Log) -> np.ndarray:
    """Inputs of a reward model, float32: contexts (n, d), or (n, k, d + p) if actions have features."""
    if log.action_features is None:
        return log.context.astype(np.float32)
    count, size, _ = log.action_features.shape
    context = np.broadcast_to(log.context[:, None], (count, size, log.context.shape[1]))
    return np.concatenate([context, log.action_features], axis=2, dtype=np.float32)


def standardised(log: Log) -> Log:
    """The log with every column of its context at mean 0 and standard deviation 1; constant columns become 0."""
    std = log.context.std(axis=0)
    return log._replace(context=(log.context - log.context.mean(axis=0)) / np.where(std > 0, std, 1))


def _check(log: Log) -> None:
    """Refuse shapes and values that the estimators cannot handle. Raises ValueError."""
    count = len(log.action)
    shapes: dict[str, tuple[int, ...]] = {
        "context": (count, log.context.shape[-1]),
        "mask": (count, log.mask.shape[-1]),
    }
    if log.action_features is not None:
        shapes["action_features"] = (count, log.num_actions, log.action_features.shape[-1])
    for name in log._fields:
        array = getattr(log, name)
        if array is not None and array.shape != shapes.get(name, (count,)):
            raise ValueError(f"{name} must have shape {shapes.get(name, (count,))}; got {array.shape}")
    _refuse("reward", ~np.isfinite(log.reward), log.reward, "a reward must be known: drop rows without one")
    _refuse(
        "propensity",
        ~((log.propensity > 0) & (log.propensity <= 1 + checks.TOLERANCE)),
        log.propensity,
        "a propensity must lie in (0, 1]: log the probability with which the action was drawn, or drop the row",
    )
    top = log.num_actions - 1
    _refuse("action", log.action > top, log.action, f"actions count from 0 to {top}: pass num_actions, or renumber")
    allowed = log.mask[np.arange(count), log.action]
    _refuse("action", ~allowed, log.action, "the mask forbids it: allow it in column mask_<action>, or drop the row")
    for name, array in (("context", log.context), ("action features", log.action_features)):
        if array is not None:
            wrong = ~np.isfinite(array.reshape(count, -1))
            at = wrong.any(axis=1)
            values = array.reshape(count, -1)[np.arange(count), wrong.argmax(axis=1)] if wrong.size else np.zeros(count)
            _refuse(name, at, values, "features must be finite: fill what is missing")
    _check_times(log.timestamp)


def _check_actions(action: np.ndarray) -> np.ndarray:
    """Actions as int64."""
    if action.dtype.kind not in "iuf":
        raise ValueError(f"column action: actions must be integers from 0; got {action.dtype}: number them")
    wrong = ~((action >= 0) & (action < _MOST_ACTIONS) & (action == np.floor(action)))
    _refuse("action", wrong, action, "actions must be integers from 0: number them")
    return action.astype(np.int64)


def _check_mask(mask: np.ndarray) -> np.ndarray:
    """A mask of zeros and ones as bool."""
    wrong = ~np.isin(mask, (0, 1)).reshape(len(mask), -1)
    values = mask.reshape(len(mask), -1)[np.arange(len(mask)), wrong.argmax(axis=1)]
    _refuse("mask", wrong.any(axis=1), values, "a mask is true (1) where the action was allowed, else false (0)")
    return mask.astype(bool)


def _check_times(times: np.ndarray) -> None:
    if times.dtype.kind not in "iufM":
        raise ValueError(f"column timestamp: times must be dates or numbers; got {times.dtype}")
    unknown = np.asarray(np.isnat(times) if times.dtype.kind == "M" else ~np.isfinite(times))
    _refuse("timestamp", unknown, times, "fill it in, or drop the row")
    early, same = (np.concatenate([[False], found]) for found in (times[1:] < times[:-1], times[1:] == times[:-1]))
    _refuse("timestamp", early, times, "it is earlier than the row before: sort the log by time")
    _refuse("timestamp", same, times, "it is the time of the row before, too: drop the copy, or number the decisions")


def _refuse(name: str, wrong: Any, values: np.ndarray, remedy: str) -> None:
    """Raise ValueError for the first row in which `wrong` (n,) is true."""
    if wrong.any():
        row = int(np.argmax(wrong))
        more = f" (and {int(wrong.sum()) - 1} more rows)" if wrong.sum() > 1 else ""
        raise ValueError(f"column {name}, row {row}: {values[row]}{more}: {remedy}")


def _group(table: "pd.DataFrame") -> dict[str, list[tuple[int, ...]]]:
    """Indices of the numbered columns, by group; every other column must be one of the four scalars."""
    import pandas as pd

    if not isinstance(table, pd.DataFrame):
        kind = type(table).__name__
        raise TypeError(f"table must be a pandas.DataFrame; got {kind}: convert it, as with to_pandas() or DataFrame()")
    names = [str(name) for name in table.columns]
    if len(names) == 1 and (found := re.search("[;\t|]", names[0])):
        separator = found.group()
        raise ValueError(
            f"the only column is {names[0][:60]!r}: the separator seems to be {separator!r}; write the file with "
            f"commas, or read it with pandas.read_csv(..., sep={separator!r}) and pass it to Log.from_pandas"
        )
    for name in _SCALARS:
        if name not in names:
            raise ValueError(f"there is no column {name}; the columns must be {_NAMES}; got {', '.join(names[:12])}")
    groups: dict[str, list[tuple[int, ...]]] = {group: [] for group in _GROUPS}
    for name in names:
        matches = {group: match for group, pattern in _GROUPS.items() if (match := re.fullmatch(pattern, name))}
        for group, match in matches.items():
            groups[group].append(tuple(int(part) for part in match.groups()))
        if not matches and name not in _SCALARS:
            raise ValueError(f"column {name} has no meaning in a log: drop it, or call it context_0, context_1, ...")
        if name in _SCALARS and names.count(name) > 1:
            raise ValueError(f"the column {name} occurs twice: drop one")
    return {group: _complete(group, places) for group, places in groups.items()}


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


def _numbers(table: "pd.DataFrame", group: str, places: list[tuple[int, ...]]) -> np.ndarray | None:
    """The numbers of one group of columns, (n, *shape of the group); None for an empty group."""
    if not places:
        return None
    names = [_name(group, place) for place in places]
    columns = np.stack([_column(name, table[name]) for name in names], axis=1)
    return columns.reshape(len(table), *_shape(places))


def _column(name: str, values: Any) -> np.ndarray:
    """A column of numbers."""
    import pandas as pd

    try:
        numbers: Any = pd.to_numeric(values, errors="coerce")
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {name}: it holds what is not a number ({error})") from error
    wrong = (numbers.isna() & ~values.isna()).to_numpy()
    _refuse(name, wrong, values.to_numpy(), "it is not a number")
    return numbers.to_numpy()


def _times(values: Any) -> np.ndarray:
    """Numbers as they are, dates in UTC."""
    import pandas as pd

    if values.dtype == object or isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(object).infer_objects()
    if pd.api.types.is_numeric_dtype(values):
        return values.to_numpy()
    values = values.astype(str) if values.dtype == object else values  # dates and numbers side by side
    dates: Any = pd.to_datetime(values, utc=True, errors="coerce", format="ISO8601")
    _refuse("timestamp", dates.isna().to_numpy(), values.to_numpy(), "it is neither a number nor an ISO 8601 date")
    return dates.dt.tz_localize(None).to_numpy()
