"""Logs and policies in the files that `seqdec ope` reads."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from pyarrow.parquet import ParquetFile

from seqdec import data, ope
from seqdec.commands.base import split_names
from seqdec.features import Encoder
from seqdec.ope import Log
from seqdec.persistence import read_any_table, unpacked_name
from seqdec.service.logs import is_database, read_log

ESTIMATED, NONE = "estimated", "none"
"""Propensities that are not read from a column."""
CAMPAIGNS: Mapping[str, str] = MappingProxyType(
    {"open-bandit": "all", "open-bandit-men": "men", "open-bandit-women": "women"}
)
"""Campaigns of the Open Bandit Dataset by log name."""


def read(options: Any) -> Log:
    """The log of a table, of Vowpal Wabbit or of an OnlineAgent, by the options of `seqdec ope`. Raises ValueError."""
    path, size = options.log, options.actions
    if is_vowpal_wabbit(path):
        return ope.load_vowpal_wabbit(path, num_actions=size)
    if is_database(path):
        log = read_log(path)
        if not isinstance(log, Log):
            raise ValueError(
                f"the actions of {path} are points of a Box; evaluate the density of a policy in Python, "
                "seqdec.ope.evaluate(seqdec.service.read_log(folder), density, seed=0)"
            )
        if size not in (None, log.num_actions):
            raise ValueError(f"actions: {path} has {log.num_actions} actions; got {size}; leave the option out")
        return log
    table, _ = read_any_table(Path(path))
    try:
        return Log.from_pandas(
            table,
            context=options.context and Encoder.fit(table, split_names("column", options.context)),
            action=options.action,
            reward=options.reward,
            propensity=None if options.propensity in (ESTIMATED, NONE) else options.propensity,
            time=options.time,
            num_actions=size,
            reward_default=options.reward_default,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def as_log(shown: data.OpenBandit) -> Log:
    """The Open Bandit log as a `seqdec.ope.Log`: contexts are place and user."""
    return ope.make_log(
        action=shown.item,
        reward=shown.click,
        propensity=shown.propensity,
        timestamp=shown.timestamp,
        context=shown.context,
        action_features=shown.item_features,
    )


def is_folder(path: str) -> bool:
    """Whether `path` is a folder with parquet files, but not of an OnlineAgent."""
    here = path not in CAMPAIGNS and Path(path).is_dir() and not is_database(path)
    return here and next(Path(path).rglob("*.parquet"), None) is not None


def policy_columns(file: ope.LogFile) -> tuple[list[str], list[str] | None]:
    """Columns probability_0, ..., and predicted_0, ... or None, of a log's file; also probability_NAME."""
    known = {*ParquetFile(file.file).schema_arrow.names}
    labels = file.options.get("action_names") or range(file.num_actions)
    for names in ([str(name) for name in labels], [str(index) for index in range(file.num_actions)]):
        law, predicted = ([f"{kind}_{name}" for name in names] for kind in ("probability", "predicted"))
        if known.issuperset(law):
            return law, predicted if known.issuperset(predicted) else None
    raise ValueError(f"{file.file} must have the columns {law[0]} to {law[-1]}; it has {', '.join(sorted(known)[:12])}")


def read_policy(path: str, log: Log) -> tuple[np.ndarray, np.ndarray | None]:
    """(n, k) columns probability_0, ..., and predicted_0, ... or None, of a file; also probability_NAME."""
    table, _ = read_any_table(Path(path))
    names = [str(name) for name in (log.action_names or ())]
    if not {f"probability_{name}" for name in names} & {*table}:
        names = [str(index) for index in range(log.num_actions)]
    groups = [[f"{kind}_{name}" for name in names] for kind in ("probability", "predicted")]
    if {*table} not in ({*groups[0]}, {*groups[0], *groups[1]}):
        raise ValueError(
            f"{path} must have the columns {groups[0][0]} to {groups[0][-1]}, and may have {groups[1][0]} to "
            f"{groups[1][-1]}; got {', '.join(map(str, table.columns[:6]))}"
        )
    try:
        found = [table[group].to_numpy(np.float64) for group in groups if group[0] in table]
    except ValueError as error:
        raise ValueError(f"the columns of {path} must be numbers: {error}") from error
    return found[0], found[1] if len(found) > 1 else None


def is_vowpal_wabbit(path: str) -> bool:
    """Whether the file's name is one of Vowpal Wabbit."""
    return unpacked_name(Path(path)).endswith((".vw", ".dsjson"))
