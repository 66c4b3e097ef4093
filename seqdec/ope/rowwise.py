"""Arrays that know their rows, so that probabilities and predicted rewards are matched to a log row by row.

Rows are known by their keys; without keys by time, context and action.
"""

import hashlib
from typing import Any

import numpy as np

from seqdec.ope.labels import Label, shown
from seqdec.ope.log import Log


class Rowwise(np.ndarray):
    """Numbers (n, k) of all actions in the rows of a log; results of computations are plain arrays."""

    rows: bytes | None = None
    """digest of the rows; None if unknown"""
    action_names: tuple[Label, ...] | None = None
    """as of the log"""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if return_scalar else np.asarray(array)


def rowwise(numbers: np.ndarray, log: Log) -> Rowwise:
    """The numbers as those of the rows of a log."""
    found = np.array(numbers).view(Rowwise)
    found.rows, found.action_names = _digest(log), log.action_names
    return found


def in_rows_of(log: Log, name: str, given: Any) -> Any:
    """`given` with columns in the order of the log's actions. Raises ValueError for those of other rows or actions."""
    if not isinstance(given, Rowwise) or given.rows is None:
        return given
    remedy = f"compute them from this log; if the rows and actions are the same, say so with numpy.array({name})"
    if given.rows != _digest(log):
        raise ValueError(f"{name} has numbers of the rows of another log: {remedy}")
    own, wanted = (one.action_names or tuple(range(given.shape[1])) for one in (given, log))
    if (given.action_names is None) != (log.action_names is None) or {*own} != {*wanted}:
        raise ValueError(f"{name} has numbers of the actions {shown(own)}; the log has {shown(wanted)}: {remedy}")
    return np.asarray(given) if own == wanted else np.asarray(given)[:, [own.index(label) for label in wanted]]


def _digest(log: Log) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    if log.key is not None:
        digest.update(repr(log.key.tolist()).encode())
        return digest.digest()
    times = log.timestamp.astype("datetime64[us]" if log.timestamp.dtype.kind == "M" else np.float64)
    names = sorted(map(str, log.action_names or ()))
    places = np.array([names.index(str(name)) for name in log.action_names or ()] or range(log.num_actions))
    for part in (times, places[log.action], log.context):
        digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return digest.digest()
