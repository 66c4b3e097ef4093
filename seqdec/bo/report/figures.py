"""Figures of a search: progress, slices of the belief, parallel coordinates and importances.

Each panel is a function (figure, study), where the figure may be a part of a larger one; `PANELS` names them.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure, FigureBase

from seqdec.bo.report import parallel, progress, slices
from seqdec.bo.report.axes import lost
from seqdec.bo.report.searched import Searched
from seqdec.bo.report.study import Study, study_of
from seqdec.registry import unknown


def plot(optimizer: Searched, panel: str | None, minimum: float | None, maximum: float | None) -> Figure:
    """All panels, or the one of that name, with the best value that is possible if it is known.

    Raises ValueError for an unknown one, if no trial was told, or for the wrong one of `minimum` and `maximum`.
    """
    layout = _LAYOUT if optimizer.outputs.objectives == 1 else (("front",),)
    names = tuple(itertools.chain(*layout))
    if panel is not None and panel not in names:
        raise ValueError(unknown("panel", panel, names))
    study = study_of(optimizer, _optimum(optimizer, minimum, maximum))
    rows = layout if panel is None else ((panel,),)
    heights = [max(PANELS[name].height(study) for name in row) for row in rows]
    width = sum(PANELS[name].width for name in rows[0])
    figure = Figure(figsize=(width, sum(heights) + 0.4), dpi=140, layout="constrained")
    figure.suptitle(_title(study), fontsize=12, fontweight="bold", x=0.01, ha="left")
    bands: Any = figure.subfigures(len(rows), 1, squeeze=False, height_ratios=heights)
    for band, row in zip(bands.ravel(), rows, strict=True):
        parts = band.subfigures(1, len(row), squeeze=False, width_ratios=[PANELS[name].width for name in row])
        for part, name in zip(parts.ravel(), row, strict=True):
            PANELS[name].draw(part, study)
    return figure


def _optimum(optimizer: Searched, minimum: float | None, maximum: float | None) -> float | None:
    """The best value that is possible, if it is known."""
    if optimizer.outputs.objectives > 1 and not minimum is maximum is None:
        raise ValueError("minimum and maximum are of one objective; leave them out with several")
    known, other = (maximum, minimum) if optimizer.maximize else (minimum, maximum)
    if other is not None:
        right, wrong = ("maximum", "minimum") if optimizer.maximize else ("minimum", "maximum")
        raise ValueError(f"values are {right[:-2]}ized here, so that {wrong}={other} is not drawn: give {right}")
    return known


def _title(study: Study) -> str:
    failed = int(len(study.values) - study.done.sum())
    goal = "Maximization" if study.maximize is True else "Minimization"
    if study.outputs.objectives > 1:
        goal, failed = f"{study.outputs.objectives} objectives", int(np.isnan(study.values[:, 0]).sum())
    count = f"{len(study.values)} evaluation{'s' * (len(study.values) > 1)}" + (
        f", {failed} {lost(study)}" if failed else ""
    )
    return " · ".join([goal, count, *(name.replace("_", " ") for name in study.parts)])


class Panel(NamedTuple):
    """How a panel is drawn."""

    draw: Callable[[FigureBase, Study], None]
    width: float
    """in inches, or relative to that of another in its row"""
    height: Callable[[Study], float]
    """in inches"""


PANELS: Mapping[str, Panel] = {
    "front": Panel(progress.front, 6.6, lambda study: 4.4 if study.outputs.objectives == 2 else 3.6),
    "progress": Panel(progress.progress, 6.6, lambda study: 3.6),
    "importances": Panel(slices.importances, 4.4, lambda study: 3.6),
    "slices": Panel(slices.slices, 11.0, lambda study: 0.6 + 2.4 * max(1, -(-len(study.sliced) // 3))),
    "parallel": Panel(parallel.parallel, 11.0, lambda study: 3.6),
}
_LAYOUT = (("progress", "importances"), ("slices",), ("parallel",))
