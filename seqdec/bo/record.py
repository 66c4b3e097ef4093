"""The record of an optimization: its trials, in the order of asking or telling."""

import math
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from seqdec import checks
from seqdec.bo.model import Observations
from seqdec.bo.outputs import Outputs
from seqdec.bo.space.spaces import Point, Space, identity

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["pending", "complete", "failed", "outside"]
"""Of a trial; "outside": a value told of a point that is none of the space."""


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
    def point(self) -> Point:
        """In both representations."""
        return Point(self.x, self.unit, self.status != "outside")


class Record:
    """The trials of an optimizer; not for several threads at once."""

    def __init__(self, space: Space, outputs: Outputs) -> None:
        self.space, self.outputs = space, outputs
        self.entries: list[Entry] = []
        self.order: list[int] = []
        """numbers of the complete trials in the order in which their values were told"""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for array in (array for entry in self.entries for array in (entry.x, entry.unit)):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False  # which copies are not

    def add(self, point: Point) -> Entry:
        """A new pending trial."""
        x = point.x if isinstance(point.x, np.ndarray) else point.x.copy()
        entry = Entry(len(self.entries), x, point.unit, "pending", self.outputs.failed, "")
        self.entries.append(entry)
        return entry

    def trial(self, entry: Entry) -> Trial:
        """What is handed out; changing it does not change the record."""
        return Trial(entry.number, entry.x if isinstance(entry.x, np.ndarray) else self.point(entry))

    def point(self, entry: Entry) -> Any:
        """A copy of the point of a trial, for users."""
        return self.space.shown(entry.x).copy()

    def complete(
        self,
        number: int,
        values: tuple[float, ...],
        outcomes: tuple[float, ...],
        noise_std: float | None,
        seconds: float | None,
        status: Status,
    ) -> None:
        """Record the values of a pending trial, which is now "complete" or "outside"."""
        self.entries[number] = self.entries[number]._replace(
            status=status, values=values, outcomes=outcomes, noise_std=noise_std, seconds=seconds
        )
        self.order.append(number)

    def fail(self, number: int, reason: str, noise_std: float | None, seconds: float | None) -> None:
        """Record that a pending trial failed."""
        self.entries[number] = self.entries[number]._replace(
            status="failed", reason=reason, noise_std=noise_std, seconds=seconds
        )

    def number(self, trial: Any) -> int | None:
        """The number of a pending trial; None for a point. Raises ValueError for another trial."""
        if not isinstance(trial, Trial):
            return None
        known = 0 <= checks.count("the number of a trial", trial.number, 0) < len(self.entries)
        if not known or identity(self.entries[trial.number].x) != identity(self.space.values(trial.x)):
            raise ValueError(
                f"trial {trial.number} was not asked from this optimizer at {trial.x!r}; tell a point instead of a "
                "trial to add it"
            )
        if self.entries[trial.number].status != "pending":
            raise ValueError(f"trial {trial.number} has been told before: it is {self.entries[trial.number].status}")
        return trial.number

    def feasible(self) -> list[Entry]:
        """The feasible trials. Raises ValueError if there is none."""
        found = [entry for entry in self.entries if entry.feasible]
        complete = sum(entry.status == "complete" for entry in self.entries)
        if not complete:
            raise ValueError("no trial is complete yet: tell a finite value first")
        if not found:
            raise ValueError(
                f"no trial is feasible yet: each of the {complete} complete ones has an outcome above 0; ask "
                "and tell further ones, or look at trials_dataframe()"
            )
        return found

    def observations(self, signs: np.ndarray) -> Observations:
        """What the model is fitted to; `signs` (m,) as in `seqdec.bo.model.Model`."""
        complete = [self.entries[number] for number in self.order]
        rows = [(*entry.values, *entry.outcomes) for entry in complete]
        pending, failed = ([e.point for e in self.entries if e.status == status] for status in ("pending", "failed"))
        return Observations(
            [entry.point for entry in complete],
            np.reshape(np.array(rows, float), (-1, len(signs))) * signs,
            [entry.noise_std for entry in complete],
            pending,
            failed,
        )

    def evaluated(self) -> list[Entry]:
        """The trials of the space that were told."""
        return [entry for entry in self.entries if entry.status in ("complete", "failed")]

    def evaluations(self) -> tuple[list[Any], np.ndarray]:
        """As `seqdec.bo.BayesianOptimizer.evaluations`."""
        told = self.evaluated()
        values = np.reshape([entry.values for entry in told], (len(told), self.outputs.objectives))
        return [self.point(entry) for entry in told], values[:, 0] if self.outputs.objectives == 1 else values

    def dataframe(self) -> "pd.DataFrame":
        """As `seqdec.bo.BayesianOptimizer.trials_dataframe`."""
        import pandas as pd

        names = self.space.names or [f"x_{i}" for i in range(len(self.space.dimensions))]
        constraints, told = self.outputs.outcome_constraints, self.outputs.columns
        rows = [
            {"number": e.number, "state": e.status}
            | dict(zip(told, (*e.values, *(e.outcomes or [math.nan] * constraints), e.feasible), strict=False))
            | (e.x if self.space.names else dict(zip(names, e.x, strict=True)))
            | {"reason": e.reason, "seconds": e.seconds}
            for e in self.entries
        ]
        columns = ["number", "state", *told, *names, "reason", "seconds"]
        return pd.DataFrame(rows, columns=columns).astype({"seconds": float})
