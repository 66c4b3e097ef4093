"""Logs of decisions.

Columns of a log as a table, optional from the contexts on:

    timestamp                  dates or numbers, never decreasing
    action                     index from 0, or name
    reward                     observed reward
    propensity                 logging probability of the action; empty in all rows if unknown
    estimated_propensity       instead of propensity: an estimate
    context_0, context_1, ...  features known before the decision
    mask_0, mask_1, ...        whether each action was allowed
    action_0_feature_0, ...    features of each action
    logging_0, logging_1, ...  logging probabilities of all actions
    key                        identity of the decision
    reward[NAME]               a named part of the reward

Names, if any, replace the numbers, in brackets: context[age], mask[banner], action[banner]_feature_0,
logging[banner]. `Log.from_pandas` reads the first four under other names.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from seqdec.boundary import checks
from seqdec.boundary.tables import frame
from seqdec.core import Schema
from seqdec.features import Encoder
from seqdec.findings import Report
from seqdec.introspection import counted, described, html, ranged
from seqdec.ope.columns import (
    ESTIMATED,
    NAMES,
    PART,
    actions_in,
    context_of,
    group,
    grouped,
    named,
    numbers,
    part_column,
    required,
    times,
)
from seqdec.ope.labels import Label, by_action, labeled
from seqdec.ope.report import report_of
from seqdec.ope.validity import check_rows
from seqdec.persistence import check_table_name, located, read_any_table, write_table
from seqdec.registry import unknown
from seqdec.rows import Rows, is_view, refuse, row_index

if TYPE_CHECKING:
    import pandas as pd

MOST_ACTIONS = 2**20
_FINEST = ("ps", "fs", "as")
"""Units of time that no table has."""


@dataclass(frozen=True, eq=False, repr=False)
class Log(Rows):
    """Decisions in the order of time; `len`, slices and masks are of rows."""

    context: np.ndarray
    """(n, d) float64"""
    action: np.ndarray
    """(n,) int64 from 0"""
    reward: np.ndarray
    """(n,) float64"""
    propensity: np.ndarray
    """(n,) float64 in (0, 1]; all NaN if unknown"""
    mask: np.ndarray
    """(n, k) bool, True where allowed"""
    timestamp: np.ndarray
    """(n,) datetime64 or numbers, never decreasing"""
    action_features: np.ndarray | None = None
    """(n, k, p)"""
    action_names: tuple[Label, ...] | None = None
    """of the k actions; None for indices from 0"""
    estimated: bool = False
    """whether propensities are estimates"""
    reward_parts: Mapping[str, np.ndarray] | None = None
    """named rewards (n,) float64, whose weighted sum is `reward`; None for none"""
    context_names: tuple[str, ...] | None = None
    """of the d columns of the context; None if unknown"""
    encoder: str | None = None
    """`Encoder.digest` of the context's encoder, "" for columns as they are; None if unknown"""
    key: np.ndarray | None = None
    """(n,) identity of each decision; None if unknown"""
    logging: np.ndarray | None = None
    """(n, k) probabilities of all actions under the logging policy, NaN in rows where unknown; None for none"""

    def __repr__(self) -> str:
        rows, actions = self.mask.shape
        allowed = num_allowed(self).mean() / actions if rows else 1
        span = f", {self.timestamp[0]} to {self.timestamp[-1]}" if rows else ""
        features = "" if self.action_features is None else counted(self.action_features.shape[2], "feature")
        return described(
            f"Log of {counted(rows, 'decision')} among {counted(actions, 'action')}{span}",
            f"actions: {', '.join(map(str, self.action_names))}" if self.action_names else "",
            f"contexts of {counted(self.context.shape[1], 'number')}"
            f"{features and f'; {features} of each action'}"
            f"{'' if allowed == 1 else f'; {allowed:.1%} of the actions allowed'}",
            f"reward: {ranged(self.reward)}",
            "; ".join(f"{part_column(name)}: {ranged(part)}" for name, part in (self.reward_parts or {}).items()),
            f"propensity{' (estimated)' if self.estimated else ''}: {ranged(self.propensity)}",
        )

    def _repr_html_(self) -> str:
        return html(repr(self), self[:5].to_pandas().iloc[:, :12])

    def __getitem__(self, rows: Any) -> "Log":
        """As of `Rows`; keys, each of one decision, are left out where a row is taken twice, as by a bootstrap."""
        taken = super().__getitem__(rows)
        if taken.key is None or isinstance(rows, slice):
            return taken
        places = np.arange(len(self))[row_index(rows, len(self))]
        return taken if len(np.unique(places)) == len(places) else taken.replace(key=None)

    @property
    def schema(self) -> Schema:
        """Names of actions and columns, and the encoder."""
        return Schema(self.action_names, self.context_names, self.encoder)

    @property
    def report(self) -> Report:
        """Contents of the log: actions with their shares, rewards, propensities, contexts, times, and suspicions."""
        return report_of(self)

    @property
    def num_actions(self) -> int:
        """Number of actions k."""
        return self.mask.shape[1]

    @property
    def known_propensities(self) -> bool:
        """Whether the propensities are known or estimated."""
        return not np.isnan(self.propensity).all()

    def weighted(self, weights: Mapping[str, float]) -> "Log":
        """The log with a weighted sum of named rewards, such as {"click": 1.0, "revenue": 0.1}, as its reward.

        Other names count 0. Raises TypeError or ValueError for anything but numbers by name.
        """
        if not isinstance(weights, Mapping):
            raise TypeError(f"weights must be a dict of numbers by name; got {weights!r:.80}")
        parts = self.reward_parts or {}
        for name in weights:
            if name not in parts:
                raise ValueError(f"{unknown('reward', name, parts)}; a service has them with reward_weights")
        known = {name: checks.real(f"the weight of {name!r}", weight) for name, weight in weights.items()}
        return self.replace(reward=sum((w * parts[name] for name, w in known.items()), np.zeros(len(self.reward))))

    def name(self, action: int) -> str:
        """The name of an action, or its number."""
        return str(action if self.action_names is None else self.action_names[action])

    def to_pandas(self) -> "pd.DataFrame":
        """The table described in `seqdec.ope.log`; named actions are categorical."""
        import pandas as pd

        columns: dict[str, Any] = {"timestamp": self.timestamp, "action": self.action, "reward": self.reward}
        if self.key is not None:
            columns["key"] = self.key
        if self.action_names is not None:
            columns["action"] = pd.Categorical.from_codes(self.action, list(self.action_names))
        columns |= {part_column(name): part for name, part in (self.reward_parts or {}).items()}
        columns[ESTIMATED if self.estimated else "propensity"] = self.propensity
        columns |= grouped("context", self.context, self.context_names)
        for kind, array in (("mask", self.mask), ("features", self.action_features), ("logging", self.logging)):
            columns |= {} if array is None else grouped(kind, array, self.action_names)
        return pd.DataFrame(columns)

    @classmethod
    def from_pandas(
        cls,
        table: "pd.DataFrame",
        *,
        context: Encoder | Sequence[str] | None = None,
        action: str = "action",
        reward: str = "reward",
        reward_default: float | None = None,
        propensity: str | None = "propensity",
        time: str | None = None,
        key: str | None = None,
        action_names: Sequence[Label] | None = None,
        num_actions: int | None = None,
    ) -> "Log":
        """The log in a table, by default with the columns of `seqdec.ope.log`.

        >>> import pandas as pd
        >>> table = pd.DataFrame({"offer": ["a", "b"], "clicked": [0, 1], "chance": [0.5, 0.5]})
        >>> Log.from_pandas(table, action="offer", reward="clicked", propensity="chance").action_names
        ('a', 'b')

        Args:
            table: a pandas, polars or pyarrow table, in order of time.
            context: an encoder, or names of columns of numbers; None for context[NAME], ..., or context_0, ...
            action: column of names, which may be integers, or of indices from 0.
            reward: column of the rewards.
            reward_default: reward of rows without one, such as 0.0 if only clicks are logged; None: an error.
            propensity: column of the propensities; None if unknown, see `seqdec.ope.estimate_propensities`.
            time: column of numbers or dates, also ISO 8601 text; None for timestamp, else row numbers.
            key: column of unique identities of decisions; None for key, if there is one.
            action_names: names in the order of indices; None for the categories, or the names that occur, sorted.
                Integers are names, unless they are exactly 0 to k - 1, or smaller than a given k.
            num_actions: k; needed only for numbered actions without masks and features.

        Raises:
            TypeError: not a table, or a context that is neither an encoder nor names.
            ValueError: naming column, row (from 0), value and remedy.
        """
        import pandas as pd

        table = named(frame(table).to_pandas())
        estimated = propensity == "propensity" and "propensity" not in table and ESTIMATED in table
        chosen = ESTIMATED if estimated else propensity
        if reward_default is not None:
            checks.number("reward_default", reward_default, -np.inf, exclusive=True)
            given = required(table, "reward", reward)
            table = table.assign(**{reward: given.where(given.notna(), float(reward_default))})
        rewards = {match[1]: name for name in table if name != reward and (match := PART.fullmatch(str(name)))}
        remedy = ", or say that it is unknown, propensity=None (seqdec ope --propensity none, or estimated)"
        known = None if chosen is None else numbers(chosen, required(table, "propensity", chosen, remedy))
        seen = context_of(table, context, {action: "action", reward: "reward", chosen: "propensity"})
        numbered, bracketed = actions_in(table)
        column = required(table, "action", action)
        if action_names is None and not isinstance(column.dtype, pd.CategoricalDtype):
            action_names = bracketed
        places, labels = labeled(column, action_names, numbered if num_actions is None else num_actions)
        groups = {kind: group(table, kind) for kind in ("mask", "features", "logging")}
        arrays = {kind: None if found is None else found.of(labels) for kind, found in groups.items()}
        weighted = f", or add one, a weighted sum of {', '.join(rewards.values())}" if rewards else ""
        if time is None and "timestamp" in table:
            time = "timestamp"
        if key is None and "key" in table:
            key = "key"
        return make_log(
            action=pd.Categorical.from_codes(places, labels),
            context=seen.features,
            reward=numbers(
                reward,
                required(table, "reward", reward, weighted),
                f": convert it, as with table[{reward!r}].map({{'yes': 1, 'no': 0}})",
            ),
            propensity=known,
            mask=arrays["mask"],
            timestamp=None if time is None else times(required(table, "time", time)),
            action_features=arrays["features"],
            num_actions=num_actions,
            estimated=estimated,
            reward_parts={part: numbers(name, table[name]) for part, name in rewards.items()},
            context_names=seen.names,
            encoder=seen.encoder,
            key=None if key is None else required(table, "key", key),
            logging=arrays["logging"],
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table as parquet, with the schema. Raises ValueError for another suffix, or an invalid log."""
        file = located(path)
        check_rows(self)
        check_table_name(file, "write another kind with pandas, as log.to_pandas().to_csv(path, index=False)")
        table = self.to_pandas()
        kinds = set(map(type, self.action_names or ()))
        if int in kinds:  # categories of a parquet file are texts
            names = list(map(self.name, self.action))
            table["action"] = names if str in kinds else list(map(int, names))
        write_table(file, table, {"action_names": self.action_names, "encoder": self.encoder})

    @classmethod
    def load(cls, path: str | os.PathLike[str], **columns: Any) -> "Log":
        """The log in parquet or CSV: .csv, .txt, also compressed, as .csv.gz.

        Keywords as in `from_pandas`. Raises FileNotFoundError, and ValueError for an invalid log.
        """
        path = located(path)
        if not path.exists():
            raise FileNotFoundError(f"there is no log {path}; give a parquet or CSV file with the columns {NAMES}")
        table, facts = read_any_table(path)
        try:
            if columns.keys().isdisjoint(("action", "action_names", "num_actions")):
                columns["action_names"] = facts.get("action_names")
            log = cls.from_pandas(table, **columns)
            return log if log.encoder is not None else log.replace(encoder=facts.get("encoder"))
        except Exception as error:  # of pandas or of the checks
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
    action_names: Sequence[Label] | None = None,
    num_actions: int | None = None,
    estimated: bool = False,
    reward_parts: Mapping[str, Any] | None = None,
    context_names: Sequence[str] | None = None,
    encoder: str | None = None,
    key: Any = None,
    logging: Any = None,
) -> Log:
    """A validated log from arrays.

    Args:
        action: (n,) names, which may be integers, or indices from 0, as in `Log.from_pandas`.
        reward: (n,) finite.
        propensity: (n,) in (0, 1], tolerance 0.00001; None for that of `logging`; without, or all NaN, unknown.
        timestamp: (n,) never decreasing; None numbers the rows.
        context: (n, d) finite, or None.
        mask: (n, k) bool, columns matched by name where they are names of actions; None allows all.
        action_features: (n, k, p), or (k, p) for all rows, or None.
        action_names: (k,); None for the categories, or those that occur, sorted.
        num_actions: k; None: from names, mask, features or logging, else as many as occur.
        estimated: whether propensities are estimates.
        reward_parts: name -> (n,) finite; None for none.
        context_names: (d,) names of columns, by which logs and policies match; None if unknown.
        encoder: `Encoder.digest` of the encoder of the context, "" for columns as they are; None if unknown.
        key: (n,) identity of each decision, none twice; None if unknown.
        logging: (n, k) probabilities of all actions under the logging policy, columns matched by name where they are
            names of actions, NaN in rows where unknown; None if unknown.

    Raises:
        ValueError: naming column, row (from 0), value and remedy.
        TypeError: `num_actions` is no integer; names or times with a mask.
    """
    by_column = {"mask": mask, "logging": logging}
    counts = [_array(name, part, 2).shape[1] for name, part in by_column.items() if part is not None]
    counts += [] if action_features is None else [_array("action_features", action_features, 2, 3).shape[-2]]
    counts += [] if num_actions is None else [checks.count("num_actions", num_actions)]
    places, labels = labeled(_column(action), action_names, *counts[:1])
    count, size = len(places), len(labels)
    if set(counts) - {size}:
        raise ValueError(
            "num_actions, action_names, mask, action_features and logging count different numbers of actions: "
            f"{sorted({*counts, size})}"
        )
    if size > MOST_ACTIONS:
        raise ValueError(f"num_actions must be at most {MOST_ACTIONS}; got {size}: number the actions")
    allowed, law = (
        None if part is None else _array(name, by_action(name, part, labels), 2) for name, part in by_column.items()
    )
    if hasattr(action_features, "iloc"):  # a table of pandas with a row for each action
        transposed: Any = action_features
        action_features = by_action("the transposed action_features", transposed.T, labels).T
    features = None if action_features is None else _floats("action_features", action_features, 2, 3)
    if features is not None and features.ndim == 2:
        features = np.broadcast_to(features, (count, *features.shape))
    if law is not None and propensity is None and len(law) == count:
        propensity = law[np.arange(count), places]
    if reward_parts is not None and not hasattr(reward_parts, "keys"):
        raise TypeError(f"reward_parts must be a dict from names to rewards, or a table; got {reward_parts!r:.200}")
    parts = {} if reward_parts is None else dict(reward_parts)
    features_of = None if context_names is None else tuple(checks.ordered("context_names", context_names, "texts"))
    log = Log(
        context=np.zeros((count, 0)) if context is None else _floats("context", context, 2),
        action=places,
        reward=_floats("reward", reward, 1),
        propensity=np.full(count, np.nan) if propensity is None else _floats("propensity", propensity, 1),
        mask=np.broadcast_to(True, (count, size)) if allowed is None else _mask(allowed),
        timestamp=np.arange(count) if timestamp is None else _moments(timestamp),
        action_features=features,
        action_names=None if isinstance(labels, range) else tuple(labels),
        estimated=checks.flag("estimated", estimated),
        reward_parts={name: _floats(part_column(name), part, 1) for name, part in parts.items()} or None,
        context_names=features_of,
        encoder=encoder,
        key=None if key is None else checks.entries("column key", key),
        logging=None if law is None else law.astype(np.float64),
    )
    check_rows(log)
    return log.replace(propensity=np.minimum(log.propensity, 1.0))


def _column(action: Any) -> Any:
    """(n,) numbers or texts; a Series of what is of pandas or Arrow."""
    if hasattr(action, "to_pandas"):
        action = action.to_pandas()
    if (hasattr(action, "iloc") and not hasattr(action, "columns")) or hasattr(action, "categories"):
        import pandas as pd

        return pd.Series(action)
    if not isinstance(action, jax.Array | np.ndarray) or action.dtype.kind in "OUT":
        values = checks.entries("column action", action, object)
        if values.ndim == 1 and any(isinstance(value, str) for value in values):
            return values
    return _array("action", action, 1)


def _mask(mask: np.ndarray) -> np.ndarray:
    wrong = ~np.isin(mask, (0, 1))
    values = mask[np.arange(len(mask)), wrong.argmax(axis=1)] if mask.size else mask
    refuse("mask", wrong.any(axis=1), values, "a mask is true (1) where the action was allowed, else false (0)")
    return mask.astype(bool)


def _floats(name: str, values: Any, *axes: int) -> np.ndarray:
    return _array(name, values, *axes).astype(np.float64)


def _array(name: str, values: Any, *axes: int) -> np.ndarray:
    try:
        array = np.asarray(checks.as_array(name, values))
    except jax.errors.TracerArrayConversionError:
        raise TypeError(f"column {name} is traced: a log holds NumPy arrays, so make it outside of jax.jit") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"column {error}") from None
    if array.ndim not in axes:
        raise ValueError(f"column {name} must have {' or '.join(map(str, axes))} axes; got shape {array.shape}")
    return array


def _moments(values: Any) -> np.ndarray:
    array = checks.entries("column timestamp", values)
    if array.ndim != 1 or array.dtype.kind not in "MOU":
        return _array("timestamp", values, 1)
    if array.dtype.kind == "M":
        return array.astype("datetime64[ns]") if np.datetime_data(array.dtype)[0] in _FINEST else array
    import pandas as pd

    return times(pd.Series(array))


def inputs(log: Log) -> np.ndarray:
    """Inputs of a learner, float32: contexts (n, d), or with action features (n, k, d + p)."""
    if log.action_features is None:
        return log.context.astype(np.float32)
    count, size, _ = log.action_features.shape
    context = np.broadcast_to(log.context[:, None], (count, size, log.context.shape[1]))
    return np.concatenate([context, log.action_features], axis=2, dtype=np.float32)


def num_allowed(log: Log) -> np.ndarray:
    """(n,) allowed actions of each row."""
    if is_view(log.mask):
        return np.full(len(log.mask), np.count_nonzero(log.mask[0]))
    return np.count_nonzero(log.mask, axis=1)


def standardized(log: Log) -> Log:
    """The log with context columns of mean 0 and standard deviation 1, or constant 0."""
    std = log.context.std(axis=0)
    return log.replace(context=(log.context - log.context.mean(axis=0)) / np.where(std > 0, std, 1))


def folds_of(log: Rows, folds: int, seed: int) -> np.ndarray:
    """(n,) random folds. Raises ValueError for an impossible number."""
    count = len(log)
    if not 2 <= checks.count("folds", folds) <= count:
        raise ValueError(f"folds must lie between 2 and the number of rows, {count}; got {folds}")
    return np.random.default_rng(checks.seed("seed", seed)).permutation(np.arange(count) % folds)


def check_log(log: Any) -> None:
    """Raise TypeError unless it is a log."""
    if not isinstance(log, Log):
        raise TypeError(
            f"log must be a seqdec.ope.Log; got {type(log).__name__}: make it with Log.from_pandas, Log.load or "
            "make_log"
        )
