"""The record of an optimisation: its trials, in the order of asking or telling."""

import functools
import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from seqdec import checks
from seqdec.bo.outputs import Outputs
from seqdec.bo.spaces import Point, Space, identity
from seqdec.runtime import apart, check_process

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["pending", "complete", "failed"]
F = TypeVar("F", bound=Callable[..., Any])


class Trial(NamedTuple):
    """A point to be evaluated, or evaluated."""

    number: int
    """From 0, in the order of asking."""
    x: Any
    """A read-only numpy array where all dimensions are Real, else a list of its own; with names a dict of its own."""


class Exhausted(RuntimeError):
    """Every point of a finite space has been suggested."""


class Entry(NamedTuple):
    """The record of a trial."""

    number: int
    x: Any
    unit: np.ndarray
    status: Status
    values: tuple[float, ...]
    """of the objectives; NaN unless the trial is complete"""
    reason: str
    noise_std: float | None = None
    outcomes: tuple[float, ...] = ()
    """empty unless the trial is complete"""
    seconds: float | None = None
    """that the evaluation took; None if it is not known"""

    @property
    def feasible(self) -> bool:
        """Whether the trial is complete and all its outcomes are at most 0."""
        return self.status == "complete" and all(outcome <= 0 for outcome in self.outcomes)

    @property
    def trial(self) -> Trial:
        """What is handed out; changing it does not change the record."""
        return Trial(self.number, self.x if isinstance(self.x, np.ndarray) else self.x.copy())


def one_at_a_time(method: F) -> F:
    """The method, which one thread at a time runs."""

    @functools.wraps(method)
    def locked(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_process()
        with self._lock, apart():
            return method(self, *args, **kwargs)

    return locked  # pyright: ignore[reportReturnType] (of the same signature)


class Record:
    """The trials of an optimiser; several threads may share it."""

    space: Space
    outputs: Outputs
    _signs: np.ndarray
    """(m,) 1 for objectives to be maximised, -1 for others and for outcomes"""

    def __init__(self) -> None:
        check_process()
        self._lock = threading.RLock()
        self._entries: list[Entry] = []
        self._order: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())
        for array in (array for entry in self._entries for array in (entry.x, entry.unit)):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False  # which copies are not

    @property
    @one_at_a_time
    def trials(self) -> tuple[Trial, ...]:
        """All trials, in the order of asking or telling."""
        return tuple(entry.trial for entry in self._entries)

    @one_at_a_time
    def evaluations(self) -> tuple[list[Any], np.ndarray]:
        """Points and values of all trials that were told, in the order of their numbers; NaN for failures.

        The values are (n,), with several objectives (n, objectives).
        """
        told = [entry for entry in self._entries if entry.status != "pending"]
        values = np.reshape([entry.values for entry in told], (len(told), self.outputs.objectives))
        return [entry.x.copy() for entry in told], values[:, 0] if self.outputs.objectives == 1 else values

    @one_at_a_time
    def feasibility(self) -> np.ndarray:
        """(n,) bool for each of `evaluations`: whether it is complete and all its outcomes are at most 0."""
        return np.array([entry.feasible for entry in self._entries if entry.status != "pending"], bool)

    @one_at_a_time
    def durations(self) -> np.ndarray:
        """(n,) seconds that each of `evaluations` took; NaN where `tell` was not given them."""
        told = [entry.seconds for entry in self._entries if entry.status != "pending"]
        return np.array(told, float)  # of None it makes NaN

    @one_at_a_time
    def trials_dataframe(self) -> "pd.DataFrame":
        """One row for each trial: number, state, value (NaN unless complete), the point, reason of a failure, seconds.

        The columns of the point are x_0, x_1, ..., or the names; where a parameter is inactive, its value is missing.
        With several objectives the values are value_0, value_1, ...; with outcome constraints outcome_0, ... and
        feasible, which is False for trials that are not complete, follow them. seconds is what the evaluation took, NaN
        where `tell` was not given it.
        """
        import pandas as pd

        names = self.space.names or [f"x_{i}" for i in range(len(self.space.dimensions))]
        constraints, told = self.outputs.outcome_constraints, self.outputs.columns
        rows = [
            {"number": e.number, "state": e.status}
            | dict(zip(told, (*e.values, *(e.outcomes or [math.nan] * constraints), e.feasible), strict=False))
            | (e.x if self.space.names else dict(zip(names, e.x, strict=True)))
            | {"reason": e.reason, "seconds": e.seconds}
            for e in self._entries
        ]
        columns = ["number", "state", *told, *names, "reason", "seconds"]
        return pd.DataFrame(rows, columns=columns).astype({"seconds": float})

    def _number(self, trial: Any) -> int | None:
        """The number of a pending trial; None for a point."""
        if not isinstance(trial, Trial):
            return None
        known = 0 <= checks.count("the number of a trial", trial.number, 0) < len(self._entries)
        if not known or identity(self._entries[trial.number].x) != identity(self.space.values(trial.x)):
            raise ValueError(
                f"trial {trial.number} was not asked from this optimizer at {trial.x!r}; tell a point instead of a "
                "trial to add it"
            )
        if self._entries[trial.number].status != "pending":
            raise ValueError(f"trial {trial.number} has been told before: it is {self._entries[trial.number].status}")
        return trial.number

    def _add(self, point: Point) -> Entry:
        """A new pending trial."""
        x = point.x if isinstance(point.x, np.ndarray) else point.x.copy()
        entry = Entry(len(self._entries), x, point.unit, "pending", self.outputs.failed, "")
        self._entries.append(entry)
        self._fitted = None
        return entry

    def _responses(self) -> np.ndarray:
        """(n, m) values, then outcomes, of the complete trials, larger is better, in the order of telling."""
        rows = [(*self._entries[number].values, *self._entries[number].outcomes) for number in self._order]
        return np.reshape(np.array(rows, float), (-1, len(self._signs))) * self._signs
