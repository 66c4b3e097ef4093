"""Recommender logs with known rewards of all candidates."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from seqdec.boundary.checks import as_array, count, entries


class RewardUnit(NamedTuple):
    """The unit of reported results."""

    name: str
    """in tables and figures"""
    to_reward: Callable[[np.ndarray], np.ndarray]
    """values -> rewards, elementwise and increasing"""
    from_reward: Callable[[np.ndarray], np.ndarray]
    """its inverse"""

    def convert(self, rewards: np.ndarray, regret: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rewards, regret) -> (values, differences to the best values)."""
        values = self.from_reward(rewards)
        return values, self.from_reward(rewards + regret) - values


def _identity(values: np.ndarray) -> np.ndarray:
    return values


REWARD = RewardUnit("reward", _identity, _identity)
"""No conversion."""


class RecommenderLog(NamedTuple):
    """Blocks of candidates in the order of replay."""

    rewards: np.ndarray
    """(blocks, n) float32, ignored without a candidate"""
    candidates: np.ndarray
    """(blocks, n) bool; short blocks lack the last ones"""
    ids: Mapping[str, np.ndarray]
    """name ("user", "video") -> (blocks, n) int32, from 0 without gaps"""
    labels: Mapping[str, np.ndarray]
    """name -> published ids by number"""
    features: np.ndarray | None
    """(m, f) float32, or None"""
    feature_rows: np.ndarray | None
    """(blocks, n) int32 rows of `features`"""
    days: np.ndarray | None
    """(blocks,) int32 day of the first row, yyyymmdd; None if unknown"""
    name: str
    """in tables and figures"""
    dropped: Mapping[str, int]
    """reason -> number of rows left out"""
    unit: RewardUnit = REWARD
    """of the reward"""


def check_log(log: RecommenderLog) -> RecommenderLog:
    """`log` with numpy arrays. Raises ValueError, naming block and remedy, for an invalid one."""
    names = ("rewards", "candidates", "features", "feature_rows", "days")
    plain = {name: _array(name, getattr(log, name)) for name in names}
    nested = {
        part: {name: _array(f"{part}[{name!r}]", rows) for name, rows in getattr(log, part).items()}
        for part in ("ids", "labels")
    }
    log = log._replace(**{**plain, "candidates": plain["candidates"].astype(bool)}, **nested)
    shape = log.rewards.shape
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"rewards must be (blocks, candidates) with at least one of each; got shape {shape}")
    arrays = {"candidates": log.candidates, **{f"ids[{name!r}]": rows for name, rows in log.ids.items()}}
    if log.features is not None:
        if log.feature_rows is None or log.features.ndim != 2:
            raise ValueError(f"features must be (m, f), with feature_rows; got shape {log.features.shape}")
        arrays["feature_rows"] = log.feature_rows
    for name, array in arrays.items():
        if array.shape != shape:
            raise ValueError(f"{name} must have the shape {shape} of the rewards; got {array.shape}")
    _refuse(~log.candidates.any(1), "has no candidate: leave it out")
    _refuse(
        (log.candidates & ~np.isfinite(log.rewards)).any(1), "has a reward that is not a finite number: leave it out"
    )
    limits = {name: len(log.labels[name]) for name in log.ids}
    for name, rows in log.ids.items():
        wrong = log.candidates & ((rows < 0) | (rows >= limits[name]))
        _refuse(wrong.any(1), f"has an unknown {name}: ids must lie in 0 to {limits[name] - 1}")
    if log.features is not None and log.feature_rows is not None:
        wrong = log.candidates & ((log.feature_rows < 0) | (log.feature_rows >= len(log.features)))
        _refuse(wrong.any(1), f"has an invalid feature row: feature_rows must lie in 0 to {len(log.features) - 1}")
    if log.days is not None:
        if log.days.shape != shape[:1]:
            raise ValueError(f"days must be one for each of {shape[0]} blocks; got shape {log.days.shape}")
        _refuse(
            np.concatenate([[False], np.diff(log.days) < 0]), "is older than the one before it: sort the log by time"
        )
    return log


def _array(name: str, values: Any) -> Any:
    if values is None:
        return None
    array = entries(name, values)
    try:
        return np.asarray(as_array(name, array))
    except TypeError:  # text, dates, or missing entries
        return array


def _refuse(wrong: Any, why: str) -> None:
    if wrong.any():
        raise ValueError(f"block {int(np.argmax(wrong))} {why} ({int(wrong.sum())} such)")


def form_blocks(
    user: Any,
    item: Any,
    reward: Any,
    *,
    time: Any = None,
    day: Any = None,
    features: Any = None,
    feature_row: Any = None,
    size: int = 10,
    keep_short: bool = False,
    name: str = "log",
    unit: RewardUnit = REWARD,
    dropped: Mapping[str, int] | None = None,
) -> RecommenderLog:
    """Rows (one user, one item, one reward each) as blocks of a user's next `size` items.

    A user's rows are in order of time, or as given; blocks in order of their first row's time, or of their number
    within the user.

    Args:
        user, item: (rows,) integers or text.
        reward: (rows,) reward of each row.
        time: (rows,) seconds or dates.
        day: (rows,) yyyymmdd.
        features: (m, f) feature vectors.
        feature_row: (rows,) indices into `features`.
        size: candidates in a block.
        keep_short: keep a user's last, shorter block.
        name: name in tables and figures.
        unit: unit of the reward.
        dropped: reason -> rows left out before.

    Raises:
        TypeError: an array of the wrong kind.
        ValueError: no rows, different lengths, a missing id or time, or no block.
    """
    size = count("size", size)
    user, item, reward, time, day, feature_row = _columns(
        user=user, item=item, reward=reward, time=time, day=day, feature_row=feature_row
    )
    users, user = _contiguous(user)
    items, item = _contiguous(item)
    order = np.argsort(user, kind="stable") if time is None else np.lexsort((time, user))
    starts = np.flatnonzero(np.diff(user[order], prepend=-1))
    counts = np.diff(np.append(starts, len(user)))
    place = np.arange(len(user)) - np.repeat(starts, counts)
    whole = np.repeat(counts // size * size, counts)
    kept = np.ones(len(user), bool) if keep_short else place < whole
    if not kept.any():
        raise ValueError(f"{name}: no block of {size} candidates is left of {len(user)} rows; no user has that many")
    order, place = order[kept], place[kept]

    heads = np.flatnonzero(place % size == 0)
    block = np.cumsum(place % size == 0) - 1
    rank = place[heads] // size if time is None else time[order[heads]]
    turn = np.argsort(rank, kind="stable")
    where = np.empty_like(turn)
    where[turn] = np.arange(len(turn))
    at = (where[block], place % size)

    def spread(values: np.ndarray, dtype) -> np.ndarray:
        table = np.zeros((len(heads), size), dtype)
        table[at] = values[order]
        return table

    missed = {} if keep_short else {"in blocks that are not full": int((~kept).sum())}
    return check_log(
        RecommenderLog(
            spread(reward, np.float32),
            spread(np.ones(len(user), bool), bool),
            {"user": np.repeat(spread(user, np.int32)[:, :1], size, axis=1), "video": spread(item, np.int32)},
            {"user": users, "video": items},
            None if features is None else np.asarray(as_array("features", features)),
            None if feature_row is None else spread(feature_row, np.int32),
            None if day is None else day[order[heads[turn]]].astype(np.int32),
            name,
            {**(dropped or {}), **missed},
            unit,
        )
    )


_KINDS = {
    "user": ("biufUSO", "integers or text"),
    "item": ("biufUSO", "integers or text"),
    "reward": ("biuf", "numbers"),
    "time": ("iufM", "numbers of seconds or dates without a time zone"),
    "day": ("iu", "integers yyyymmdd"),
    "feature_row": ("iu", "integers, the rows of features"),
}


def _columns(**given: Any) -> Iterator[Any]:
    """The columns of `_KINDS` as numpy arrays of one length, or None."""
    import pandas as pd

    arrays = {name: _array(name, values) for name, values in given.items()}
    for name, array in arrays.items():
        if array is not None:
            kinds, words = _KINDS[name]
            if array.dtype.kind not in kinds and array.size:
                raise TypeError(f"{name} must hold {words}; got {array.dtype}: convert it, as with astype")
            if array.ndim != 1 or not len(array) or len(array) != len(arrays["user"]):
                shapes = ", ".join(f"{key} {other.shape}" for key, other in arrays.items() if other is not None)
                raise ValueError(f"all columns must have one entry for each row, and at least one row; got {shapes}")
            missing = pd.isna(array)
            if name != "reward" and missing.any():
                raise ValueError(f"{name}, row {int(np.argmax(missing))}: it is missing; fill it in, or drop the row")
        yield array


def _contiguous(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    labels, numbers = np.unique(ids, return_inverse=True)
    return labels, numbers.astype(np.int32)
