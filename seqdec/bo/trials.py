"""The trials of a search."""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from seqdec.bo.fidelity import Forecast, Grid
from seqdec.bo.space.space import Point, Space, identity
from seqdec.boundary import checks

if TYPE_CHECKING:
    import pandas as pd

Status = Literal["complete", "failed", "pending", "outside", "partial", "stopped"]
"""Of a trial; "outside": not in the space; "partial": below full fidelity; "stopped": a learning curve ended early."""


class Exhausted(RuntimeError):
    """Every point of a finite space has been suggested."""


class Trial(NamedTuple):
    """A point to evaluate, or evaluated."""

    number: int
    """From 0, in the order of asking."""
    x: Any
    """A read-only numpy array if all dimensions are Real, else a list; with names a dict."""
    fidelity: Any = None
    """The level to evaluate, or a learning curve's last; None without several levels."""
    forecast: Forecast | None = None
    """The expected learning curve; None without several levels, and before the surrogate is used."""


class Outputs(NamedTuple):
    """Numbers of objectives and outcome constraints, which are feasible if at most 0."""

    objectives: int = 1
    outcome_constraints: int = 0

    @property
    def plain(self) -> bool:
        """Whether there is one objective and no constraint."""
        return self == (1, 0)

    @property
    def failed(self) -> tuple[float, ...]:
        """The values of a failed trial."""
        return (math.nan,) * self.objectives

    @property
    def columns(self) -> tuple[str, ...]:
        """Of the table of trials: value, or value_0, ...; outcome_0, ... and feasible."""
        values = ["value"] if self.objectives == 1 else [f"value_{i}" for i in range(self.objectives)]
        outcomes = [f"outcome_{i}" for i in range(self.outcome_constraints)]
        return (*values, *outcomes, *(["feasible"] if outcomes else []))

    def values(self, value: Any, name: str = "value") -> tuple[float, ...]:
        """One number, or one for each objective. Raises TypeError or ValueError for anything else."""
        if self.objectives == 1:
            return (checks.real(name, value),)
        return _sequence(name, value, self.objectives, "objective")

    def outcomes(self, outcomes: Any) -> tuple[float, ...]:
        """One number for each constraint. Raises as `values`."""
        if self.outcome_constraints == 1 and np.ndim(outcomes) == 0 and not isinstance(outcomes, str | None):
            outcomes = [outcomes]
        return _sequence("outcomes", () if outcomes is None else outcomes, self.outcome_constraints, "constraint")

    def described(self, values: tuple[float, ...], outcomes: tuple[float, ...]) -> str:
        """Why a trial failed."""
        value = f"value {values[0] if len(values) == 1 else values}"
        return value if not outcomes else f"{value}, outcomes {outcomes}"

    def split(self, returned: Any) -> tuple[Any, Any]:
        """(value, outcomes) of what a function returned. Raises as `values`."""
        if not self.outcome_constraints:
            return returned, None
        if not isinstance(returned, tuple | list) or len(returned) != 2:
            raise ValueError(
                f"with outcome_constraints={self.outcome_constraints} fun must return a pair, (value, outcomes); got "
                f"{returned!r}"
            )
        return returned[0], returned[1]


def _sequence(name: str, given: Any, count: int, of: str) -> tuple[float, ...]:
    is_text = isinstance(given, str | bytes)
    is_list = isinstance(given, Sequence) or np.ndim(given) > 0
    parts = list(given) if is_list and not is_text else None
    if parts is None or len(parts) != count:
        expected = f"a sequence of {count} numbers, one for each {of}" if count else f"left out, without {of}s"
        error = TypeError if is_text else ValueError
        raise error(f"{name} must be {expected}; got {given!r}")
    return tuple(checks.real(f"{name}[{index}]", part) for index, part in enumerate(parts))


class Observations(NamedTuple):
    """Known points and values of the function."""

    told: list[Point]
    """with values, in the order of telling; a learning curve once for each level"""
    responses: np.ndarray
    """(n, m) values, then outcomes; larger is better"""
    noise_std: list[float | None]
    """n, as in `seqdec.bo.model.Model`"""
    pending: list[Point]
    failed: list[Point]
    trials: int
    """their number"""
    taken: list[Point]
    """points asked again only where repeats are allowed: all but those of lower levels"""

    @property
    def inside(self) -> np.ndarray:
        """(n,) bool: the told points of the space."""
        return np.array([point.inside for point in self.told], bool)


class Entry(NamedTuple):
    """The record of a trial."""

    number: int
    point: Point
    """its level is to be evaluated, or was reached"""
    status: Status
    values: tuple[float, ...]
    """of the objectives; NaN unless the trial is complete"""
    reason: str = ""
    noise_std: float | None = None
    outcomes: tuple[float, ...] = ()
    """empty unless the trial is complete"""
    seconds: float | None = None
    """of the evaluation; None: unknown"""
    curve: tuple[float, ...] = ()
    """values at lower levels, the lowest first"""
    forecast: Forecast | None = None
    """of a pending trial"""

    @property
    def feasible(self) -> bool:
        """Whether complete, at full fidelity, with all outcomes at most 0."""
        return self.status == "complete" and all(outcome <= 0 for outcome in self.outcomes)


class Record:
    """The trials of an optimizer; not thread-safe."""

    def __init__(self, space: Space, outputs: Outputs, grid: Grid | None) -> None:
        self.space, self.outputs, self.grid = space, outputs, grid
        self.entries: list[Entry] = []
        self.order: list[int] = []
        """numbers of the trials with values, in the order of telling"""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for array in (array for entry in self.entries for array in entry.point[:2]):
            if isinstance(array, np.ndarray):
                array.flags.writeable = False  # which copies are not

    def add(self, point: Point, forecast: Forecast | None = None) -> Entry:
        """A new pending trial."""
        x = point.x if isinstance(point.x, np.ndarray) else point.x.copy()
        entry = Entry(len(self.entries), point._replace(x=x), "pending", self.outputs.failed, forecast=forecast)
        self.entries.append(entry)
        return entry

    def trial(self, number: int) -> Trial:
        """A copy of a trial, for callers."""
        entry = self.entries[number]
        x, level = entry.point.x, None if self.grid is None else self.grid.levels[entry.point.level]
        return Trial(number, x if isinstance(x, np.ndarray) else self.shown(entry), level, entry.forecast)

    def shown(self, entry: Entry) -> Any:
        """A copy of a trial's point."""
        return self.space.shown(entry.point.x).copy()

    def end(self, number: int, status: Status, **fields: Any) -> None:
        """Close a pending trial with its outcome."""
        self.entries[number] = self.entries[number]._replace(status=status, forecast=None, **fields)
        if status != "failed":
            self.order.append(number)

    def lower_cost(self) -> float:
        """Cost of lower levels since the last full evaluation, in those."""
        costs, total = () if self.grid is None else self.grid.costs, 0.0
        for entry in reversed(self.entries):
            if not entry.point.level:
                break
            total += costs[entry.point.level]
        return total

    @property
    def values(self) -> int:
        """Number of values told, including learning curves."""
        return len(self.order) + self.more

    @property
    def more(self) -> int:
        """Number of values beside one for each trial."""
        return 0 if self.grid is None else sum(len(entry.curve) for entry in self.entries)

    def number(self, trial: Any) -> int | None:
        """The number of a pending trial; None for a point. Raises ValueError otherwise."""
        if isinstance(trial, Trial):
            number = checks.count("the number of a trial", trial.number, 0)
        elif isinstance(trial, int | np.integer) and not isinstance(trial, bool):
            number = int(trial)
        else:
            return None
        known = 0 <= number < len(self.entries)
        if isinstance(trial, Trial) and not (
            known and identity(self.entries[number].point.x) == identity(self.space.values(trial.x))
        ):
            raise ValueError(
                f"trial {number} at {trial.x!r} is not from this optimizer; tell the point instead, to add it"
            )
        if not known:
            raise ValueError(
                f"there is no trial {number} among {len(self.entries)}, counted from 0: an integer is the number of a "
                f"trial, the point is [{number}]"
            )
        if self.entries[number].status != "pending":
            raise ValueError(f"trial {number} was told before: it is {self.entries[number].status}")
        return number

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
        """Data of the model; `signs` (m,)."""
        told = [one for number in self.order for one in _levels(self.entries[number])]
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

    def evaluated(self) -> list[Entry]:
        """The told trials of the space."""
        return [entry for entry in self.entries if entry.status in ("complete", "failed")]

    def told(self) -> np.ndarray:
        """As `seqdec.bo.BayesianOptimizer.told`."""
        missing = [math.nan] * self.outputs.outcome_constraints
        rows = [(*entry.values, *(entry.outcomes or missing), entry.feasible) for entry in self.entries]
        columns = self.outputs.columns
        return np.array([row[: len(columns)] for row in rows], float).reshape(-1, len(columns))

    def dataframe(self) -> "pd.DataFrame":
        """As `seqdec.bo.BayesianOptimizer.trials_dataframe`."""
        import pandas as pd

        names = self.space.names or [f"x_{i}" for i in range(len(self.space.dimensions))]
        constraints, told = self.outputs.outcome_constraints, self.outputs.columns
        rows = [
            {"number": e.number, "state": e.status}
            | ({} if self.grid is None else {"fidelity": self.grid.levels[e.point.level]})
            | dict(zip(told, (*e.values, *(e.outcomes or [math.nan] * constraints), e.feasible), strict=False))
            | (e.point.x if self.space.names else dict(zip(names, e.point.x, strict=True)))
            | {"reason": e.reason, "seconds": e.seconds}
            for e in self.entries
        ]
        columns = ["number", "state", *([] if self.grid is None else ["fidelity"]), *told, *names, "reason", "seconds"]
        return pd.DataFrame(rows, columns=columns).astype({"seconds": float})


def _levels(entry: Entry) -> Iterator[Entry]:
    """The trial at each level of its learning curve, the lowest first."""
    for place, value in enumerate(entry.curve):
        level = entry.point.level + len(entry.curve) - place
        yield entry._replace(point=entry.point._replace(level=level), values=(value,))
    yield entry
