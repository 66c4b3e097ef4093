"""Logs for off-policy evaluation, by what a command line calls them: files of several kinds, and data sets."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from seqdec import data, ope
from seqdec.features import Encoder
from seqdec.online.reading import is_database, read_log
from seqdec.ope import Log
from seqdec.persistence import read_any_table

CAMPAIGNS: Mapping[str, str] = MappingProxyType(
    {"open-bandit": "all", "open-bandit-men": "men", "open-bandit-women": "women"}
)
"""Campaigns of the Open Bandit Dataset by the name of their log"""


def is_table(log: str) -> bool:
    """Whether a log is a table with named columns."""
    return log not in CAMPAIGNS and not _is_vowpal_wabbit(log) and not is_database(log)


def read_decisions(
    path: str,
    *,
    context: list[str] | None,
    action: str,
    reward: str,
    propensity: str | None,
    time: str | None,
    num_actions: int | None,
) -> Log:
    """The log in a file, or of an `OnlineAgent`: its folder or the database in it.

    Names of columns are for tables; `context` is encoded. Raises ValueError that names the file.
    """
    if _is_vowpal_wabbit(path):
        return ope.load_vowpal_wabbit(path, num_actions=num_actions)
    if is_database(path):
        log = read_log(path)
        if num_actions not in (None, log.num_actions):
            raise ValueError(f"actions: {path} has {log.num_actions} actions; got {num_actions}: leave the option out")
        return log
    table = read_any_table(Path(path))
    try:
        return Log.from_pandas(
            table,
            context=None if context is None else Encoder.fit(table, context),
            action=action,
            reward=reward,
            propensity=propensity,
            time=time,
            num_actions=num_actions,
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def as_log(shown: data.OpenBandit) -> Log:
    """The Open Bandit log as a `seqdec.ope.Log`: the context is place and user, the features are those of the items."""
    return ope.make_log(
        action=shown.item,
        reward=shown.click,
        propensity=shown.propensity,
        timestamp=shown.timestamp,
        context=shown.context,
        action_features=shown.item_features,
    )


def read_policy(path: str, log: Log) -> np.ndarray:
    """Probabilities (n, k) from the columns probability_0, probability_1, ... of a file, or probability_<name>, ..."""
    table = read_any_table(Path(path))
    names = [f"probability_{i}" for i in range(table.shape[1])]
    if log.action_names is not None and not set(names) <= set(table.columns):
        names = [f"probability_{name}" for name in log.action_names]
    if set(names) != set(table.columns):
        raise ValueError(f"{path} must have the columns {names[0]} to {names[-1]}; got {', '.join(table.columns[:6])}")
    try:
        return table[names].to_numpy(np.float64)
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers: {error}") from error


def _is_vowpal_wabbit(path: str) -> bool:
    return path.lower().endswith(".vw")
