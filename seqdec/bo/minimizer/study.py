"""The file from which a search goes on: that of its optimizer, with the progress of the search as a note."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqdec.bo.minimizer.stops import Progress
from seqdec.bo.optimizer import BayesianOptimizer
from seqdec.bo.record import Trial
from seqdec.bo.space.constraints import Linear
from seqdec.bo.space.spaces import Point, Space, identity

_NOTE = "minimize"


class Study(NamedTuple):
    """A search in progress."""

    optimizer: BayesianOptimizer
    progress: Progress

    @property
    def pending(self) -> list[Trial]:
        """The trials that were asked, but not told."""
        states = self.optimizer.trials_dataframe()["state"]
        return [trial for trial, state in zip(self.optimizer.trials, states, strict=True) if state == "pending"]


def write(path: Path | None, optimizer: BayesianOptimizer, progress: Progress) -> None:
    """Replace the file, if there is a path. Raises as `BayesianOptimizer.save`."""
    if path is not None:
        optimizer.notes = {_NOTE: progress._asdict()}
        optimizer.save(path)


def read(path: Path | None, space: Space) -> Study | None:
    """What `write` wrote for a search in this space; None without a path or a file.

    Raises ValueError for a damaged file, and for one that `seqdec.minimize` did not write.
    """
    if path is None or not path.exists():
        return None
    optimizer = BayesianOptimizer.load(path, [rule for rule in space.constraints if not isinstance(rule, Linear)])
    if _NOTE not in optimizer.notes:
        raise ValueError(
            f"checkpoint {path} is a study that BayesianOptimizer.save wrote: pass its evaluations as x0 and y0, and "
            "another path"
        )
    noted = optimizer.notes[_NOTE]
    return Study(optimizer, Progress(**{"cost": noted["calls"]} | noted))  # those of earlier versions have no cost


def check(path: Path | None, study: Study, other: BayesianOptimizer, points: list[Point]) -> None:
    """Raises ValueError unless `other` with its values, and the points to start from, are what the study began with."""
    optimizer = study.optimizer
    told, asked = len(other.trials), min(len(points), len(optimizer.trials))
    kept, given = _settings(optimizer), _settings(other)
    differing = [] if optimizer.space == other.space else ["the bounds or constraints are others"]
    differing += [
        f"{name} is {kept[name]!r} there and {given[name]!r} here" for name in kept if kept[name] != given[name]
    ]
    if not differing:
        known = [identity(optimizer.space.flat(trial.x)) for trial in optimizer.trials[:asked]]
        if known != [identity(point.x) for point in points[:asked]]:
            differing.append("x0 is another")
        elif not np.array_equal(_values(optimizer)[:told], _values(other), equal_nan=True):
            differing.append("y0 is another")
    if differing:
        raise ValueError(
            f"checkpoint {path} is of another search: {'; '.join(differing)}. Give the arguments with which it began, "
            "or another path"
        )


def _values(optimizer: BayesianOptimizer) -> np.ndarray:
    """(n, columns) what was told of each trial."""
    return optimizer.trials_dataframe()[list(optimizer.outputs.columns)].to_numpy(float)


def _settings(optimizer: BayesianOptimizer) -> dict[str, Any]:
    """The keywords by name, with the acquisition in use."""
    settings = {**optimizer.settings._asdict(), **optimizer.outputs._asdict(), "acquisition": optimizer.acquisition}
    reference = optimizer.settings.reference_point
    settings |= {"reference_point": None if reference is None else reference.tolist()}
    settings |= {"earlier": [one.plain() for one in optimizer.settings.earlier]}
    return {name: value for name, value in settings.items() if name not in ("space", "outputs")}
