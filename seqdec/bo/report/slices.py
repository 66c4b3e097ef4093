"""Panels of the belief: slices along parameters, and their importances."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import MaxNLocator

from seqdec.bo.report import importance
from seqdec.bo.report.axes import (
    BELIEF,
    BEST,
    DOT,
    LEFT,
    dimension_of,
    name_ticks,
    nothing,
    place_of,
    positive,
    scale_values,
    set_limits,
    short,
)
from seqdec.bo.report.study import INACTIVE, Study
from seqdec.bo.space.dimensions import Categorical, Integer, Ordinal, Real
from seqdec.bo.space.spaces import Space
from seqdec.figures import finish_axis
from seqdec.ticks import plain_ticks

_BARS = 15
"""Importances that are shown at most, the largest ones."""
_GRID = 101
"""Points of a slice."""


def slices(figure: FigureBase, study: Study) -> None:
    """Posterior mean and 95% band along the most important parameters, the others as at the recommended point."""
    if not study.known:
        return nothing(figure, "Belief along each parameter", study)
    best, keys = study.recommended, study.sliced
    unit = study.space.point(best).unit
    parts = [_along(study.space, unit, key) for key in keys]
    predictions = study.predict(np.concatenate([units for _, units in parts]))
    bands = np.split(predictions, np.cumsum([len(units) for _, units in parts])[:-1])
    columns = min(3, len(keys))
    axes = np.ravel(figure.subplots(-(-len(keys) // columns), columns, sharey=True, squeeze=False))
    for key, axis, (values, _), band in zip(keys, axes, parts, bands, strict=False):
        _slice(axis, study, key, values, band, best[key])
    set_limits(axes[0], *_limits(axes[0], study, predictions))  # shared by all
    for place, axis in enumerate(axes):
        axis.set_visible(place < len(keys))
        axis.set_ylabel("" if place % columns else "value")
    rest = ", the other parameters as at the recommended point" if len(study.importances) > 1 else ""
    figure.suptitle(f"Posterior mean and 95% band{rest}", **LEFT)


def _along(space: Space, unit: np.ndarray, key: Any) -> tuple[list[Any], np.ndarray]:
    """Values of a parameter, and the encodings of `unit` with these."""
    index = list(space.keys).index(key)
    dimension = space.dimensions[index]
    grid = [dimension.decode(np.array([u])) for u in np.linspace(0, 1, _GRID)]
    if dimension.size <= _GRID:
        grid = list(dimension.values())
    values = list(dict.fromkeys(grid))
    units = np.repeat(unit[None], len(values), axis=0)
    units[:, space.slices[index]] = [dimension.encode(value) for value in values]
    return values, importance.deactivated(space, units)


def _slice(axis: Axes, study: Study, key: Any, values: list[Any], band: np.ndarray, best: Any) -> None:
    dimension, (mean, low, high) = dimension_of(study.space, key), band.T
    x = [place_of(dimension, value) for value in values]
    if isinstance(dimension, Ordinal | Categorical):
        axis.errorbar(x, mean, [mean - low, high - mean], fmt="_", ms=12, capsize=4, color=BELIEF)
    else:
        axis.fill_between(x, low, high, color=BELIEF, alpha=0.16, lw=0)
        axis.plot(x, mean, color=BELIEF, lw=1.8)
    pairs = zip(study.column(key), study.values, strict=True)
    told = [(place_of(dimension, x), y) for x, y in pairs if x is not INACTIVE]
    axis.plot(*np.reshape(told, (-1, 2)).T, "o", ms=3, color=DOT, alpha=0.5, mew=0)
    axis.axvline(place_of(dimension, best), color=BEST, ls=":", lw=1.2)
    finish_axis(axis, "", study.names[key], "")
    scale_values(axis, study)
    axis.margins(x=0.03)
    if isinstance(dimension, Ordinal | Categorical):
        axis.set_xlim(-0.5, len(x) - 0.5)
        name_ticks(axis, x, dimension.choices, 26)
    elif isinstance(dimension, Real | Integer) and dimension.log:
        axis.set_xscale("log")
        plain_ticks(axis.xaxis)
    elif isinstance(dimension, Integer):
        axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _limits(axis: Axes, study: Study, predictions: np.ndarray) -> tuple[float, float]:
    """Of the slices, in units of the axis: the best three quarters of the evaluations, and all means among them."""
    values, sign = study.values[study.done], 1 if study.maximize else -1
    scale = axis.yaxis.get_transform()
    drawn = (values, *positive(study, predictions).T)
    values, means, *bounds = (sign * scale.transform(part) for part in drawn)
    worst = max(values.min(), min(np.quantile(values, 0.25), means.min()))
    best = max(values.max(), min(np.max(bounds), means.max() + np.ptp(means)))
    return min(sign * worst, sign * best), max(sign * worst, sign * best)


def importances(figure: FigureBase, study: Study) -> None:
    """The total-effect index of each parameter, see `seqdec.bo.report.importance`."""
    if not study.known:
        return nothing(figure, "Importance", study)
    axis, shown = figure.subplots(), list(study.importances.items())[:_BARS]
    rows = np.arange(len(shown))
    axis.barh(rows, [value for _, value in shown], height=0.65, color=BELIEF)
    for row, (_, value) in zip(rows, shown, strict=True):
        axis.annotate(f"{value:.2f}", (value, row), xytext=(3, 0), textcoords="offset points", va="center", fontsize=8)
    rest = len(study.importances) - len(shown)
    finish_axis(axis, "Importance", "total effect on the posterior mean", "")
    axis.grid(visible=False)
    axis.set_yticks(rows, [short(study.names[key]) for key, _ in shown])
    axis.set_ylim(max(len(shown), 3) - 0.4, -0.6)
    axis.set_xlim(0, 1.15 * max(1e-3, *(value for _, value in shown)))
    if rest:
        axis.text(1, 0.02, f"and {rest} less important", transform=axis.transAxes, ha="right", fontsize=8, color="0.4")
