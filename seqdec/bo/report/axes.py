"""Axes of panels: scales of values, places of parameters, ticks and limits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase

from seqdec.bo.report.study import Study
from seqdec.bo.space.choices import Categorical, Ordinal
from seqdec.bo.space.dimensions import Dimension
from seqdec.bo.space.spaces import Space
from seqdec.figures import finish_axis
from seqdec.ticks import plain_ticks

_LONGEST = 16
"""Characters of a name that are shown."""
_WIDE = 100.0
"""Ratio of the largest and the smallest value above which positive values are drawn on a logarithmic scale."""
BELIEF, DOT, BEST, REST = "#0072B2", "#555555", "#D55E00", "#A9A9A9"
"""Colors of what the surrogate believes, of values, of the best point, and of the rest."""
LEFT: dict[str, Any] = {"fontsize": 11, "x": 0.01, "ha": "left"}
"""Of a title."""


def scale_of(study: Study) -> str:
    """The scale of values: logarithmic for values of one sign and of very different size, with 0 where it is needed."""
    values = study.values[study.done]
    sizes = np.abs(values)
    if not len(values) or np.ptp(np.sign(values)) or sizes.max() <= _WIDE * sizes.min():
        return "linear"
    return "log" if values[0] > 0 and (study.optimum is None or study.optimum > 0) else "symlog"


def scale_values(axis: Axes, study: Study) -> None:
    """Set the scale of values."""
    scale, sizes = scale_of(study), np.abs(study.values[study.done])
    if scale != "linear":
        axis.set_yscale(scale, **({} if scale == "log" else {"linthresh": max(sizes.min(), 1e-30 * sizes.max())}))
        plain_ticks(axis.yaxis)


def positive(study: Study, drawn: np.ndarray) -> np.ndarray:
    """On a logarithmic axis, no prediction below half of the smallest value."""
    return np.maximum(drawn, 0.5 * study.values[study.done].min()) if scale_of(study) == "log" else drawn


def set_limits(axis: Axes, low: float, high: float) -> None:
    """Limits of the values, with some room, given in units of the axis."""
    room = 0.06 * (high - low) or 1.0
    axis.set_ylim(*axis.yaxis.get_transform().inverted().transform(np.array([low - room, high + room])))


def dimension_of(space: Space, key: Any) -> Dimension:
    """The dimension with that key."""
    return space.dimensions[list(space.keys).index(key)]


def place_of(dimension: Dimension, value: Any) -> float:
    """Where a value lies on its axis: a number at itself, a choice at its index."""
    return dimension.place(value) if isinstance(dimension, Ordinal | Categorical) else value


def short(name: Any, length: int = _LONGEST) -> str:
    """A name of `length` characters at most, of a longer one the ends."""
    text, kept = str(name), length - 1
    return text if len(text) <= length else f"{text[: kept - kept // 2]}…{text[-(kept // 2) :]}"


def name_ticks(axis: Axes, places: Sequence[float], names: Sequence[Any], room: int) -> None:
    """Ticks with names, slanted where they are wider than `room` characters together."""
    labels = [short(name) for name in names]
    slanted: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor", "fontsize": 8}
    axis.set_xticks(places, labels, **(slanted if len(labels) * max(map(len, labels)) > room else {}))


def nothing(figure: FigureBase, title: str, study: Study) -> None:
    """An empty panel that says why."""
    axis = figure.subplots()
    finish_axis(axis, title, "", "", "needs two values or more" if study.varied else "no parameter varies")
    axis.set_axis_off()


def lost(study: Study) -> str:
    """What evaluations without a value are."""
    return "failed or infeasible" if study.outputs.outcome_constraints else "failed"
