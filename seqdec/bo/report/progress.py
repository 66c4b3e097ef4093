"""Panels of values: the progress of a search, and the front of several objectives."""

import itertools

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import FigureBase
from matplotlib.ticker import MaxNLocator

from seqdec.bo.report import importance
from seqdec.bo.report.axes import (
    BELIEF,
    BEST,
    DOT,
    REST,
    lost,
    positive,
    scale_values,
    set_limits,
)
from seqdec.bo.report.study import Study
from seqdec.bo.search.candidates import sobol
from seqdec.figures import finish_axis, optimum

_RANDOM = 1 << 11
"""Random points from which the progress of random search is computed."""
_FEWEST = 100
"""Of them, those that satisfy all constraints, for it to be drawn."""
_PAIRS = 6
"""Pairs of objectives that are drawn, at most."""


def progress(figure: FigureBase, study: Study) -> None:
    """Every value, the best so far, and what random search would be expected to find.

    The expectation of the best of n points is that of n independent uniform points under the posterior mean.
    """
    axis, numbers = figure.subplots(), np.arange(1, len(study.values) + 1)
    sign = 1 if study.maximize else -1
    best = sign * np.fmax.accumulate(sign * study.values)
    if study.done.any():
        axis.plot(numbers, study.values, "o", ms=4, color=DOT, alpha=0.6, mew=0, label="evaluation")
        axis.plot(numbers, best, drawstyle="steps-post", color=BELIEF, lw=1.8, label="best so far")
    random = _random_search(study, len(numbers))
    if len(random):
        axis.plot(numbers, random, color=REST, lw=1.5, label="random search, expected\nunder the surrogate's mean")
    limit = [] if study.optimum is None else [study.optimum]
    for value in limit:
        optimum(axis, value)
    finish_axis(axis, f"{'Largest' if sign > 0 else 'Smallest'} value so far", "evaluation", "value", "no value yet")
    _fit_progress(axis, study, np.concatenate([study.values[study.done], random, limit]))
    failed = numbers[~study.done]
    if len(failed):
        at = np.full(len(failed), 0.03)
        axis.plot(failed, at, "x", ms=5, color=BEST, transform=axis.get_xaxis_transform(), label=lost(study))
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=8)


def _fit_progress(axis: Axes, study: Study, drawn: np.ndarray) -> None:
    """Scales, limits and ticks for the values that are drawn."""
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.set_xlim(0.5, len(study.values) + 0.5)
    axis.tick_params(left=bool(len(drawn)), labelleft=bool(len(drawn)))
    scale_values(axis, study)
    if len(drawn):
        drawn = positive(study, drawn)
        set_limits(axis, *axis.yaxis.get_transform().transform(np.array([drawn.min(), drawn.max()])))


def _random_search(study: Study, count: int) -> np.ndarray:
    """(count,) expected best of 1, 2, ... uniform points under the posterior mean.

    Empty if it is not known, and with outcome constraints.
    """
    if not study.known or study.outputs.outcome_constraints:
        return np.empty(0)
    space = study.space
    units = importance.units(space, sobol(_RANDOM, len(space.dimensions), scramble=True))
    if space.constraints:
        units = np.array([u for u in units if space.violated(space.decode(u)) is None])
    if len(units) < _FEWEST:
        return np.empty(0)
    means = np.sort(study.predict(units)[:, 0])
    worse = np.arange(len(means), -1, -1) / len(means)  # share of the points that are not better than the k best
    shares = -np.diff(worse ** np.arange(1, count + 1)[:, None], axis=1)
    return shares @ (means[::-1] if study.maximize else means)


def front(figure: FigureBase, study: Study) -> None:
    """The values of every pair of objectives; those of the front that `BayesianOptimizer.front` returns marked."""
    count, feasible, best = study.outputs.objectives, study.feasible, study.front
    pairs = list(itertools.combinations(range(count), 2))[:_PAIRS]
    columns = min(3, len(pairs))
    axes = np.ravel(figure.subplots(-(-len(pairs) // columns), columns, squeeze=False))
    for axis, (i, j) in zip(axes, pairs, strict=False):
        for these, color, label in ((feasible, DOT, "evaluation"), (~feasible, REST, "infeasible")):
            shown = study.values[these & np.isfinite(study.values[:, 0])][:, [i, j]]
            if len(shown):
                axis.plot(*shown.T, "o", ms=4, color=color, alpha=0.6, mew=0, label=label)
        style = "--" if count == 2 else ""
        axis.plot(*best[:, [i, j]].T, "o", ls=style, ms=5.5, lw=1.2, color=BELIEF, label="front")
        finish_axis(axis, "" if len(pairs) > 1 else "Values of the objectives", f"objective {i}", f"objective {j}")
    for axis in axes[len(pairs) :]:
        axis.set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
