"""The panel of parallel coordinates."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import FigureBase

from seqdec.bo.report.axes import (
    dimension_of,
    name_ticks,
    place_of,
    scale_of,
    short,
)
from seqdec.bo.report.study import INACTIVE, Study
from seqdec.bo.space.dimensions import Categorical, Constant, Dimension, Integer, Ordinal, Real
from seqdec.figures import TITLE

_COORDINATES = 12
"""Parameters that are shown at most, the most important ones."""
_BELOW = -0.13
"""Height of inactive parameters below their coordinate, which has length 1."""


def parallel(figure: FigureBase, study: Study) -> None:
    """Every evaluation as a line through its parameters and its value, in the color of its rank."""
    axis = figure.subplots()
    keys = sorted(list(study.importances or study.varied)[:_COORDINATES], key=list(study.space.keys).index)
    columns = [_heights(dimension_of(study.space, key), study.column(key)) for key in keys]
    heights = np.stack([*columns, _value_heights(study)], axis=1)
    axis.add_collection(_lines(study, heights))
    for place, key in enumerate(keys):
        _coordinate(axis, place, _labels(dimension_of(study.space, key), 90 // len(keys)))
    values = zip(heights[study.done, -1], study.values[study.done], strict=True)
    ends = {height: f"{value:.4g}" for height, value in values}
    _coordinate(axis, len(keys), {height: ends[height] for height in ends.keys() & {0.0, 0.5, 1.0}})
    inactive = bool(np.any(heights == _BELOW))
    if inactive:
        axis.text(-0.06, _BELOW, "inactive", ha="right", va="center", fontsize=8, color="0.4")
    name_ticks(axis, range(len(keys) + 1), [*(study.names[key] for key in keys), "value"], 110)
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    axis.set_xlim(-0.35, len(keys) + 0.5)
    axis.set_ylim(_BELOW - 0.05 if inactive else -0.06, 1.06)
    shown = "" if len(keys) == len(study.varied) else f" · the {len(keys)} most important parameters"
    axis.set_title(f"Evaluations, the better the darker{shown}", **TITLE)


def _lines(study: Study, heights: np.ndarray) -> LineCollection:
    """A line for each row of heights (n, coordinates): failures in gray below all others, the best on top."""
    done, failed = int(study.done.sum()), int((~study.done).sum())
    order = np.argsort(np.where(study.done, study.values, -np.inf) * (1 if study.maximize else -1))
    order = order[np.argsort(study.done[order], kind="stable")]
    shades = colormaps["viridis_r"](np.linspace(0, 1, done) if done > 1 else np.ones(done))
    lines = [np.stack([np.arange(heights.shape[1]), row], 1) for row in heights[order]]
    widths = np.linspace(0.8, 1.8, len(lines))
    return LineCollection(lines, colors=[*[(0.7, 0.7, 0.7, 0.5)] * failed, *shades], linewidths=widths, alpha=0.8)


def _heights(dimension: Dimension, values: list[Any]) -> np.ndarray:
    """(n,) of the values on a coordinate of length 1."""

    def height(value: Any) -> float:
        if value is INACTIVE:
            return _BELOW
        if isinstance(dimension, Ordinal | Categorical):
            return place_of(dimension, value) / (len(dimension.choices) - 1)
        return _share(dimension, value)

    return np.array([height(value) for value in values])


def _value_heights(study: Study) -> np.ndarray:
    """(n,) of the values, as if on the scale of the other panels; NaN for failures, and 0.5 if all are equal."""
    wide = scale_of(study) != "linear"
    values = np.sign(study.values) * np.log(np.abs(study.values)) if wide else study.values
    low, high = (np.nanmin(values), np.nanmax(values)) if study.done.any() else (0.0, 0.0)
    return (values - low) / (high - low) if high > low else np.where(study.done, 0.5, np.nan)


def _coordinate(axis: Axes, place: int, labels: Mapping[float, str]) -> None:
    axis.plot([place, place], [0, 1], color="0.3", lw=1, zorder=3)
    for height, label in labels.items():
        axis.annotate(
            label,
            (place, height),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            zorder=4,
            bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.75},
        )


def _labels(dimension: Dimension, length: int) -> dict[float, str]:
    """Labels of a coordinate by height, the choices or the limits, of so many characters at most."""
    if isinstance(dimension, Ordinal | Categorical):
        last = len(dimension.choices) - 1
        shown = range(last + 1) if last < 10 else (0, last)
        return {place / last: short(dimension.choices[place], length) for place in shown}
    return {_share(dimension, limit): f"{limit:.4g}" for limit in (dimension.low, dimension.high)}


def _share(dimension: Real | Integer | Constant, value: Any) -> float:
    """Where a number lies in the column of the unit cube."""
    return float(dimension.encode(value)[0])
