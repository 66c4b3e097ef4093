"""Whether a policy was learned from rows of a log, which would make its estimate too good.

A row is known by its key; in a log without keys, by time, context, action and the action's features; in a log of
numbers as actions, by context, action and reward.
"""

from typing import Any

import numpy as np

from seqdec.core import Agent
from seqdec.ope.estimators.continuous import ContinuousLog
from seqdec.ope.log import Log

_NEGLIGIBLE = 0.01
"""Share of rows that may be shared."""


def row_hashes(log: Log | ContinuousLog) -> np.ndarray:
    """(n,) sorted uint64 of what the rows are known by."""
    return np.sort(_hashes(log)[0])


def check_unseen(agent: Agent, log: Log | ContinuousLog) -> None:
    """Raise ValueError for more rows that the agent was learned from than chance makes alike."""
    if not agent.learned_from:
        return
    known, (own, alike) = np.frombuffer(agent.learned_from, np.uint64), _hashes(log)
    shared = np.isin(own, known).mean()
    if isinstance(log, ContinuousLog):  # Good and Turing: rows seen once tell the chance of a row not seen before
        alike = 1 - (np.unique(known, return_counts=True)[1] == 1).sum() / len(known)
    if shared > alike + 4 * np.sqrt(alike * (1 - alike) / len(log)) + _NEGLIGIBLE:
        discrete = (
            ", or take the probabilities of seqdec.ope.cross_fit_policy; a log of other decisions needs times or keys "
            "of its own"
        )
        other = "" if isinstance(log, ContinuousLog) else discrete
        raise ValueError(
            f"{agent.name} was learned from {shared:.0%} of the rows of this log, which makes it look too good: "
            f"learn from one part, log[::2], and evaluate on the rest, log[1::2]{other}"
        )


def _hashes(log: Log | ContinuousLog) -> tuple[np.ndarray, float]:
    """Hashes (n,), and the share of other decisions that would have the same by chance.

    Times may be row numbers, so this is how often a row's context and action are those of the next row.
    """
    from pandas import DataFrame, util

    hashing: Any = util

    if isinstance(log, ContinuousLog):
        content = np.column_stack([log.context, log.action, log.reward]).astype(np.float32) + 0.0
        return hashing.hash_pandas_object(DataFrame(content), index=False).to_numpy(), 0.0
    if log.key is not None:
        return hashing.hash_array(np.asarray(log.key), categorize=False), 0.0
    parts = [log.context, log.action[:, None]]
    if log.action_features is not None:
        parts.append(log.action_features[np.arange(len(log)), log.action])
    content = np.concatenate(parts, axis=1, dtype=np.float32) + 0.0  # -0.0 is 0.0
    found = hashing.hash_pandas_object(DataFrame(content), index=False).to_numpy()
    time = log.timestamp.astype("datetime64[ns]" if log.timestamp.dtype.kind == "M" else np.float64)
    return found * np.uint64(3) + hashing.hash_array(time), float((found[1:] == found[:-1]).mean()) if len(
        log
    ) > 1 else 0.0
