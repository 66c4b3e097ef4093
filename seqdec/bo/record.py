"""The record of an optimization: its trials, in the order of asking or telling."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from seqdec import checks
from seqdec.bo.fidelity import Forecast, Grid
from seqdec.bo.model import Observations
from seqdec.bo.outputs import Outputs
from seqdec.bo.space.spaces import Point, Space, identity

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["complete", "failed", "pending", "outside", "partial", "stopped"]
"""Of a trial; "outside": a value told of a point that is not in the space; "partial": below full fidelity; "stopped":
a learning curve that ended before the level asked for."""


class Trial(NamedTuple):
    """A point that is to be evaluated, or has been."""

    number: int
    """Counted from 0, in the order of asking."""
    x: Any
    """A read-only numpy array if all dimensions are Real, else a list of its own; with names a dict of its own."""
    fidelity: Any = None
    """The level at which to evaluate, or the last one reached by a learning curve; None without several levels."""
    forecast: Forecast | None = None
    """The expected learning curve, which says when to end the evaluation; None without several levels, and before the
    surrogate is used."""


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
    level: int = 0
    """of the grid: to be evaluated, or reached"""
    curve: tuple[float, ...] = ()
    """values of a learning curve at lower levels, the lowest first"""
    forecast: Forecast | None = None
    """of a pending trial"""

    @property
    def feasible(self) -> bool:
        """Whether the trial is complete, at full fidelity, and all its outcomes are at most 0."""
        return self.status == "complete" and all(outcome <= 0 for outcome in self.outcomes)

    @property
    def point(self) -> Point:
        """In both representations."""
        return Point(self.x, self.unit, self.status != "outside", self.level)


class Record:
    """The trials of an optimizer; not for several threads at once."""

    def __init__(self, space: Space, outputs: Outputs, grid: Grid | None = None) -> None:
        self.space, self.outputs, self.grid = space, outputs, grid
        self.entries: list[Entry] = []
        self.order: list[int] = []
        """numbers of the trials with values in the order in which these were told"""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for array in (array for entry in self.entries for array in (entry.x, entry.unit)):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False  # which copies are not

    def add(self, point: Point, forecast: Forecast | None = None) -> Entry:
        """A new pending trial."""
        x = point.x if isinstance(point.x, np.ndarray) else point.x.copy()
        failed = self.outputs.failed
        entry = Entry(len(self.entries), x, point.unit, "pending", failed, "", level=point.level, forecast=forecast)
        self.entries.append(entry)
        return entry

    def trial(self, entry: Entry) -> Trial:
        """What is handed out; changing it does not change the record."""
        x = entry.x if isinstance(entry.x, np.ndarray) else self.point(entry)
        return Trial(entry.number, x, None if self.grid is None else self.grid.levels[entry.level], entry.forecast)

    def point(self, entry: Entry) -> Any:
        """A copy of the point of a trial, for users."""
        return self.space.shown(entry.x).copy()

    def end(self, number: int, status: Status, **told: Any) -> None:
        """Record a pending trial, which is so no more, and fields of its `Entry`."""
        self.entries[number] = self.entries[number]._replace(status=status, forecast=None, **told)
        if status != "failed":
            self.order.append(number)

    def lower_cost(self) -> float:
        """Cost of the trials at lower levels since the last one at full fidelity, in evaluations there."""
        costs, total = () if self.grid is None else self.grid.costs, 0.0
        for entry in reversed(self.entries):
            if not entry.level:
                break
            total += costs[entry.level]
        return total

    @property
    def more(self) -> int:
        """Number of values beside one for each trial: those of learning curves at lower levels."""
        return sum(len(entry.curve) for entry in self.entries)

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
        told = [one for number in self.order for one in self._levels(self.entries[number])]
        rows = [(*entry.values, *entry.outcomes) for entry in told]
        pending, failed = ([e.point for e in self.entries if e.status == status] for status in ("pending", "failed"))
        return Observations(
            [entry.point for entry in told],
            np.reshape(np.array(rows, float), (-1, len(signs))) * signs,
            [entry.noise_std for entry in told],
            pending,
            failed,
            len(self.entries),
            [entry.point for entry in self.entries if entry.status != "partial"],
        )

    def _levels(self, entry: Entry) -> Iterator[Entry]:
        """The trial as if evaluated at each level of its learning curve, the lowest first; else itself."""
        for place, value in enumerate(entry.curve):
            yield entry._replace(level=entry.level + len(entry.curve) - place, values=(value,))
        yield entry

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
            {
                "number": e.number,
                "state": e.status,
                **({} if self.grid is None else {"fidelity": self.grid.levels[e.level]}),
            }
            | dict(zip(told, (*e.values, *(e.outcomes or [math.nan] * constraints), e.feasible), strict=False))
            | (e.x if self.space.names else dict(zip(names, e.x, strict=True)))
            | {"reason": e.reason, "seconds": e.seconds}
            for e in self.entries
        ]
        columns = ["number", "state", *([] if self.grid is None else ["fidelity"]), *told, *names, "reason", "seconds"]
        return pd.DataFrame(rows, columns=columns).astype({"seconds": float})
