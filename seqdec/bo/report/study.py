"""What the figures of a search draw."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from seqdec.bo import model
from seqdec.bo.outputs import Outputs
from seqdec.bo.report.importance import importances
from seqdec.bo.report.searched import Searched
from seqdec.bo.space.spaces import Space

INACTIVE = object()
"""Stands for the value of an inactive parameter, because None may be a choice."""
_SLICES = 6
"""Parameters that slices show at most, the most important ones."""
_HUGE = 1e200
"""Larger values are drawn as this, since axes overflow."""


class Study(NamedTuple):
    """What the panels draw."""

    space: Space
    outputs: Outputs
    maximize: bool | tuple[bool, ...]
    parts: list[str]
    """names of surrogate and acquisition"""
    points: list[Any]
    """of the evaluations, in order"""
    values: np.ndarray
    """(n,) NaN for failures; with m objectives (n, m)"""
    feasible: np.ndarray
    """(n,) bool"""
    front: np.ndarray
    """(k, m) values of the front of several objectives"""
    optimum: float | None
    """the best value that is possible, if it is known"""
    importances: dict[Any, float]
    """of the parameters that are not constant, the largest first; empty with fewer than two values"""
    recommended: Any
    """the recommended point; None without a value"""
    predict: Callable[[np.ndarray], np.ndarray]
    """units (n, columns) -> (n, 3) means and the ends of the 95% intervals"""

    @property
    def done(self) -> np.ndarray:
        """(n,) bool: the evaluations that did not fail."""
        return np.isfinite(self.values)

    @property
    def names(self) -> dict[Any, str]:
        """The parameters' names, by key."""
        return {key: str(key) if self.space.names else f"x[{key}]" for key in self.space.keys}

    @property
    def varied(self) -> list[Any]:
        """The parameters that are not constant."""
        return [key for key, d in zip(self.space.keys, self.space.dimensions, strict=True) if d.size > 1]

    @property
    def known(self) -> bool:
        """Whether the surrogate can predict."""
        return bool(self.importances)

    @property
    def sliced(self) -> list[Any]:
        """The most important ones of the parameters that are active at the recommended point."""
        return [key for key in self.importances if not self.space.names or key in self.recommended][:_SLICES]

    def column(self, key: Any) -> list[Any]:
        """The values of a parameter in all evaluations, `INACTIVE` where it is that."""
        return [x.get(key, INACTIVE) if isinstance(x, dict) else x[key] for x in self.points]


def study_of(optimizer: Searched, optimum: float | None) -> Study:
    """The study of a search. Raises ValueError where no trial was told."""
    points, values = optimizer.evaluations()
    if not points:
        raise ValueError("there is nothing to draw yet: tell the value of a trial first")
    feasible, several = optimizer.feasibility(), optimizer.outputs.objectives > 1
    found: dict[Any, float] = {}
    best, front = None, np.empty((0, optimizer.outputs.objectives))
    if several:
        front = optimizer.front().values if feasible.any() else front
    else:
        told = np.isfinite(values).sum()
        values = np.clip(np.where(feasible, values, np.nan), -_HUGE, _HUGE)
        found = importances(optimizer) if told > 1 and feasible.any() else {}
        best = optimizer.space.flat(optimizer.recommend().x) if feasible.any() else None
    study = Study(
        space=optimizer.space,
        outputs=optimizer.outputs,
        maximize=optimizer.maximize,
        parts=[name for name in (optimizer.surrogate, optimizer.acquisition) if isinstance(name, str)],
        points=[optimizer.space.flat(x) for x in points],
        values=values,
        feasible=feasible,
        front=front,
        optimum=optimum,
        importances={},
        recommended=best,
        predict=lambda units: np.clip(model.predictions(*optimizer.fitted(), units)[:, 0], -_HUGE, _HUGE),
    )
    ranked = sorted(study.varied if found else [], key=lambda key: -found[key])
    return study._replace(importances={key: found[key] for key in ranked})
