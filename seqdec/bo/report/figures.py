"""Figures of a search: each panel is a function (figure, study)."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, Normalize, SymLogNorm
from matplotlib.figure import Figure, FigureBase
from matplotlib.ticker import MaxNLocator

from seqdec.bo import model
from seqdec.bo.report import importance
from seqdec.bo.search.candidates import sobol
from seqdec.bo.space.dimensions import Categorical, Dimension, Integer, Ordinal, Real
from seqdec.bo.space.space import Space
from seqdec.bo.trials import Outputs
from seqdec.figures import TITLE, finish_axis
from seqdec.figures import optimum as draw_optimum
from seqdec.registry import unknown
from seqdec.ticks import plain_ticks

if TYPE_CHECKING:
    from seqdec.bo.optimizer import BayesianOptimizer

_LONGEST = 16
"""Characters shown of a name."""
_WIDE = 100.0
"""Largest over smallest value from which an axis is logarithmic."""
BELIEF, DOT, BEST, REST = "#0072B2", "#555555", "#D55E00", "#A9A9A9"
"""Colors of the belief, values, the best point and the rest."""
LEFT: dict[str, Any] = {"fontsize": 11, "x": 0.01, "ha": "left"}
"""Of a title."""
INACTIVE = object()
"""An inactive parameter's value."""
_SLICES = 6
"""Most parameters shown in slices."""
_HUGE = 1e200
"""Larger values are drawn as this."""
_RANDOM = 1 << 11
"""Points of the random search that `progress` shows."""
_FEWEST = 100
"""The fewest of them that must satisfy all constraints."""
_PAIRS = 6
"""Most pairs of objectives shown."""
_BARS = 15
"""Most importances shown."""
_GRID = 101
_SIDE = 49
"""Values of each real parameter of a plane."""
_TICKS = 16
"""Most names of choices on an axis."""
_COORDINATES = 12
"""Most parameters shown in parallel coordinates."""
_BELOW = -0.13
"""Height of inactive parameters; a coordinate has length 1."""


class Study(NamedTuple):
    """Data of the panels."""

    space: Space
    outputs: Outputs
    maximize: bool | tuple[bool, ...]
    parts: list[str]
    """names of surrogate and acquisition"""
    points: list[Any]
    """evaluated, in order"""
    values: np.ndarray
    """(n,) or (n, m objectives); NaN for failures"""
    feasible: np.ndarray
    """(n,) bool"""
    front: np.ndarray
    """(k, m) values of the front"""
    optimum: float | None
    """the best possible value, if known"""
    importances: dict[Any, float]
    """the largest first; empty below two values"""
    recommended: Any
    """None without a value"""
    predict: Callable[[np.ndarray], np.ndarray]
    """units (n, columns) -> (n, 3) means and 95% intervals"""
    pair: tuple[Any, ...] = ()
    """the parameters of the plane"""

    @property
    def done(self) -> np.ndarray:
        """(n,) bool: did not fail."""
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
        """The most important parameters active at the recommended point."""
        return [key for key in self.importances if not self.space.names or key in self.recommended][:_SLICES]

    def column(self, key: Any) -> list[Any]:
        """A parameter's values in all evaluations, or `INACTIVE`."""
        return [x.get(key, INACTIVE) if isinstance(x, dict) else x[key] for x in self.points]


def study_of(optimizer: "BayesianOptimizer", optimum: float | None) -> Study:
    """The study of a search. Raises ValueError where no trial was told."""
    points, values = optimizer.evaluations()
    if not points:
        raise ValueError("nothing to draw yet: tell the value of a trial first")
    feasible, several = optimizer.feasibility(), optimizer.outputs.objectives > 1
    found: dict[Any, float] = {}
    best, front = None, np.empty((0, optimizer.outputs.objectives))
    if several:
        front = optimizer.front().values if feasible.any() else front
    else:
        told = np.isfinite(values).sum()
        values = np.clip(np.where(feasible, values, np.nan), -_HUGE, _HUGE)
        found = importance.importances(optimizer) if told > 1 and feasible.any() else {}
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


def plot(optimizer: "BayesianOptimizer", panel: Any, minimum: float | None, maximum: float | None) -> Figure:
    """All panels, the one of that name, or the plane of two parameters, with the best possible value if known.

    Raises ValueError for an unknown one, without trials, or for the wrong one of `minimum` and `maximum`.
    """
    layout = _LAYOUT if optimizer.outputs.objectives == 1 else (("front",),)
    names = (*itertools.chain(*layout), *(["plane"] if layout is _LAYOUT else []))
    pair, panel = (tuple(panel), "plane") if isinstance(panel, list | tuple) else ((), panel)
    if panel is not None and panel not in names:
        raise ValueError(unknown("panel", panel, names))
    study = study_of(optimizer, _optimum(optimizer, minimum, maximum))
    if panel == "plane":
        study = study._replace(pair=_pair(study, pair))
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


def _optimum(optimizer: "BayesianOptimizer", minimum: float | None, maximum: float | None) -> float | None:
    if optimizer.outputs.objectives > 1 and not minimum is maximum is None:
        raise ValueError("minimum and maximum are for one objective; leave them out with several")
    known, other = (maximum, minimum) if optimizer.maximize else (minimum, maximum)
    if other is not None:
        right, wrong = ("maximum", "minimum") if optimizer.maximize else ("minimum", "maximum")
        raise ValueError(f"values are {right[:-2]}ized, so {wrong}={other} has no effect: pass {right}")
    return known


def _pair(study: Study, asked: tuple[Any, ...]) -> tuple[Any, ...]:
    """The parameters asked for, or the two most important."""
    pair = asked or (*study.importances, *study.varied)[:2]
    if len(pair) != 2 or len({*pair} & {*study.varied}) < 2:
        raise ValueError(f"a plane needs two of the parameters that vary, {study.varied}; got {list(pair)}")
    return pair


def _title(study: Study) -> str:
    failed = int(len(study.values) - study.done.sum())
    goal = "Maximization" if study.maximize is True else "Minimization"
    if study.outputs.objectives > 1:
        goal, failed = f"{study.outputs.objectives} objectives", int(np.isnan(study.values[:, 0]).sum())
    count = f"{len(study.values)} evaluation{'s' * (len(study.values) > 1)}" + (
        f", {failed} {lost(study)}" if failed else ""
    )
    return " · ".join([goal, count, *(name.replace("_", " ") for name in study.parts)])


def progress(figure: FigureBase, study: Study) -> None:
    """Values, the best so far, and the expected best of n uniform points by posterior mean.

    Distances from the known optimum, on a logarithmic axis, where no value is better. A linear axis ends at what a
    tenth of the evaluations finds, or at the worst quarter; evaluations beyond are triangles at its end.
    """
    axis, numbers = figure.subplots(), np.arange(1, len(study.values) + 1)
    sign, random = 1 if study.maximize else -1, _random_search(study, len(numbers))
    title, label = f"{'Largest' if sign > 0 else 'Smallest'} value so far", "value"
    if study.optimum is not None and np.nanmax(sign * (study.values - study.optimum), initial=-np.inf) <= 0:
        title, label = "Distance from the optimum", f"distance from {study.optimum:.4g}"
        distances = [np.abs(part - study.optimum) for part in (study.values, random)]
        least = distances[0][distances[0] > 0].min(initial=np.inf)
        values, random = (np.maximum(part, 0.5 * least if np.isfinite(least) else 1.0) for part in distances)
        sign, study = -1, study._replace(values=values, optimum=None)
        axis.set_yscale("log")
    best = sign * np.fmax.accumulate(sign * study.values)
    if study.done.any():
        axis.plot(numbers, study.values, "o", ms=4, color=DOT, alpha=0.6, mew=0, label="evaluation")
        axis.plot(numbers, best, drawstyle="steps-post", color=BELIEF, lw=1.8, label="best so far")
    if len(random):
        axis.plot(numbers, random, color=REST, lw=1.5, label="random search, expected\nunder the surrogate's mean")
    limit = [] if study.optimum is None else [study.optimum]
    for value in limit:
        draw_optimum(axis, value)
    finish_axis(axis, title, "evaluation", label, "no value yet")
    shown, tenth = study.done, 0
    if study.done.any() and axis.get_yscale() == scale_of(study) == "linear":
        shown, tenth = sign * study.values >= np.nanquantile(sign * study.values, 0.25), len(numbers) // 10
    _fit_progress(axis, study, np.concatenate([study.values[shown], best[tenth:], random[tenth:], limit]))
    inside: dict[str, Any] = {"transform": axis.get_xaxis_transform()}
    low, high = axis.get_ylim()
    for beyond, mark, at in ((study.values > high, "^", 0.97), (study.values < low, "v", 0.03)):
        axis.plot(numbers[beyond], np.full(beyond.sum(), at), mark, ms=4, color=DOT, alpha=0.6, mew=0, **inside)
    failed = numbers[~study.done]
    if len(failed):
        axis.plot(failed, np.full(len(failed), 0.03), "x", ms=5, color=BEST, label=lost(study), **inside)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=8)


def _fit_progress(axis: Axes, study: Study, drawn: np.ndarray) -> None:
    drawn = drawn[np.isfinite(drawn)]
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.set_xlim(0.5, len(study.values) + 0.5)
    axis.tick_params(left=bool(len(drawn)), labelleft=bool(len(drawn)))
    scale_values(axis, study)
    if len(drawn):
        drawn = positive(study, drawn)
        set_limits(axis, *axis.yaxis.get_transform().transform(np.array([drawn.min(), drawn.max()])))


def _random_search(study: Study, count: int) -> np.ndarray:
    """(count,) expected best of 1, 2, ... uniform points; or empty."""
    if not study.known or study.outputs.outcome_constraints:
        return np.empty(0)
    space = study.space
    units = importance.units(space, sobol(_RANDOM, space.parameters, scramble=True))
    units = units[space.settled(units, {})[2]]
    if len(units) < _FEWEST:
        return np.empty(0)
    means = np.sort(study.predict(units)[:, 0])
    worse = np.arange(len(means), -1, -1) / len(means)  # share of the points that are not better than the k best
    shares = -np.diff(worse ** np.arange(1, count + 1)[:, None], axis=1)
    return shares @ (means[::-1] if study.maximize else means)


def front(figure: FigureBase, study: Study) -> None:
    """Every pair of objectives, the front marked."""
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


def slices(figure: FigureBase, study: Study) -> None:
    """Posterior mean and 95% band through the recommended point."""
    if not study.known:
        return nothing(figure, "Belief along each parameter", study)
    best, keys = study.recommended, study.sliced
    unit = study.space.point(best).unit
    parts = [_along(study.space, unit, key, count=_GRID) for key in keys]
    predictions = study.predict(np.concatenate([units for _, units in parts]))
    bands = np.split(predictions, np.cumsum([len(units) for _, units in parts])[:-1])
    columns = min(3, len(keys))
    axes = np.ravel(figure.subplots(-(-len(keys) // columns), columns, sharey=True, squeeze=False))
    for key, axis, ([values], _), band in zip(keys, axes, parts, bands, strict=False):
        _slice(axis, study, key, values, band, best[key])
    set_limits(axes[0], *_limits(axes[0], study, predictions))  # shared by all
    for place, axis in enumerate(axes):
        axis.set_visible(place < len(keys))
        axis.set_ylabel("" if place % columns else "value")
    rest = ", the other parameters as at the recommended point" if len(study.importances) > 1 else ""
    figure.suptitle(f"Posterior mean and 95% band{rest}", **LEFT)


def _along(space: Space, unit: np.ndarray, *keys: Any, count: int) -> tuple[list[list[Any]], np.ndarray]:
    """Values of parameters, and the encodings in `unit` of all their combinations."""
    indices = [list(space.keys).index(key) for key in keys]
    values = [_spread(space.dimensions[index], count) for index in indices]
    units = np.repeat(unit[None], math.prod(map(len, values)), axis=0)
    for index, column in zip(indices, zip(*itertools.product(*values), strict=True), strict=True):
        units[:, space.slices[index]] = [space.dimensions[index].encode(value) for value in column]
    return values, space.neutralized(units)[0]


def _spread(dimension: Dimension, count: int) -> list[Any]:
    """All values, or about so many numbers."""
    if isinstance(dimension, Ordinal | Categorical) or dimension.size <= count:
        return list(dimension.values())
    return list(dict.fromkeys(dimension.decode(np.linspace(0, 1, count)[:, None])))


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
    _fit_parameter(axis, "x", dimension, 26)


def _fit_parameter(axis: Axes, side: str, dimension: Dimension, room: float) -> None:
    """Scale and ticks of the values of a parameter along "x" or "y"."""
    line = getattr(axis, f"{side}axis")
    if isinstance(dimension, Ordinal | Categorical):
        getattr(axis, f"set_{side}lim")(-0.5, len(dimension.choices) - 0.5)
        name_ticks(line, range(len(dimension.choices)), dimension.choices, room)
    elif isinstance(dimension, Real | Integer) and dimension.log:
        getattr(axis, f"set_{side}scale")("log")
        plain_ticks(line)
    elif isinstance(dimension, Integer):
        line.set_major_locator(MaxNLocator(6, integer=True))


def _limits(axis: Axes, study: Study, predictions: np.ndarray) -> tuple[float, float]:
    """Of the best three quarters of the evaluations, and all means."""
    values, sign = study.values[study.done], 1 if study.maximize else -1
    scale = axis.yaxis.get_transform()
    drawn = (values, *positive(study, predictions).T)
    values, means, *bounds = (sign * scale.transform(part) for part in drawn)
    worst = max(values.min(), min(np.quantile(values, 0.25), means.min()))
    best = max(values.max(), min(np.max(bounds), means.max() + np.ptp(means)))
    return min(sign * worst, sign * best), max(sign * worst, sign * best)


def plane(figure: FigureBase, study: Study) -> None:
    """Posterior mean, and half the width of the 95% interval, over two parameters."""
    if not study.known:
        return nothing(figure, "Belief over two parameters", study)
    (best, name), pair = _with_both(study), study.pair
    dimensions = [dimension_of(study.space, key) for key in pair]
    count, unit = _SIDE if _is_smooth(study) else _GRID, study.space.point(best).unit
    values, units = _along(study.space, unit, *pair, count=count)
    x, y = ([place_of(d, value) for value in part] for d, part in zip(dimensions, values, strict=True))
    mean, low, high = study.predict(units).reshape(len(x), len(y), 3).T
    mean, half, better = positive(study, mean), (high - low) / 2, "viridis_r" if study.maximize else "viridis"
    star = [place_of(d, best[key]) for d, key in zip(dimensions, pair, strict=True)]
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for axis, shown, colors in zip(axes, (mean, half), (better, "Blues"), strict=True):
        _colored(figure, axis, study, x, y, shown, colors)
        _evaluations(axis, study, dimensions)
        axis.plot(*star, "*", ms=15, color=BEST, mec="white", label=name, clip_on=False)
        title = "Mean, the better the darker" if shown is mean else "Half the width of the 95% interval"
        finish_axis(axis, "", study.names[pair[0]], study.names[pair[1]] if shown is mean else "")
        axis.set_title(title, **TITLE, pad=10)
        axis.grid(visible=False)
        for side, dimension, room in zip("xy", dimensions, (40, math.inf), strict=True):
            _fit_parameter(axis, side, dimension, room)
    rest = f", the other parameters as at the {name}" if len(study.varied) > 2 else ""
    figure.suptitle(f"Belief over two parameters{rest}", **LEFT)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)


def _with_both(study: Study) -> tuple[Any, str]:
    """The recommended point or, failing that, the best that has both parameters, and its name."""

    def has_both(x: Any) -> bool:
        return not study.space.names or all(key in x for key in study.pair)

    if has_both(study.recommended):
        return study.recommended, "recommended point"
    ranked = np.argsort(study.values * (-1 if study.maximize else 1))
    for place in ranked[: study.done.sum()]:
        if has_both(study.points[place]):
            return study.points[place], "best point that has both"
    raise ValueError(f"no evaluation with a value has both {study.pair[0]!r} and {study.pair[1]!r}: choose others")


def _is_smooth(study: Study) -> bool:
    return all(isinstance(dimension_of(study.space, key), Real) for key in study.pair)


def _colored(
    figure: FigureBase, axis: Axes, study: Study, x: list[float], y: list[float], shown: np.ndarray, colors: str
) -> None:
    """Colors, smooth and with contours over real numbers, on the scale of the values."""
    scale, smallest = scale_of(study), np.abs(study.values[study.done]).min()
    norm = Normalize()
    if scale == "log" or (scale == "symlog" and shown.min() > 0):
        shown, norm = np.maximum(shown, 1e-6 * shown.max()), LogNorm()
    elif scale == "symlog":
        norm = SymLogNorm(max(smallest, 1e-30 * np.abs(shown).max()))
    shading = "gouraud" if _is_smooth(study) else "nearest"
    mesh = axis.pcolormesh(x, y, shown, shading=shading, norm=norm, cmap=colors)
    if _is_smooth(study) and np.ptp(shown):
        axis.contour(
            x, y, shown, norm.inverse(np.linspace(0, 1, 11)[1:-1]), colors="0.5", linewidths=0.5, linestyles="solid"
        )
    plain_ticks(figure.colorbar(mesh, ax=axis).ax.yaxis)


def _evaluations(axis: Axes, study: Study, dimensions: Sequence[Dimension]) -> None:
    """Dots in the plane; those of a choice are spread around its place."""
    columns = zip(*map(study.column, study.pair), strict=True)
    found: dict[bool, list[list[float]]] = {True: [], False: []}
    for number, (values, done) in enumerate(zip(columns, study.done, strict=True)):
        if not any(value is INACTIVE for value in values):
            places = [
                place_of(d, value) + isinstance(d, Ordinal | Categorical) * (number * ratio % 1 - 0.5) / 2
                for d, value, ratio in zip(dimensions, values, (0.6180, 0.7549), strict=True)
            ]
            found[bool(done)].append(places)
    for done, mark, color, label in ((True, "o", "white", "evaluation"), (False, "X", REST, lost(study))):
        if found[done]:
            axis.plot(
                *np.transpose(found[done]), mark, ms=5, color=color, mec="0.2", mew=0.6, label=label, clip_on=False
            )


def importances(figure: FigureBase, study: Study) -> None:
    """Total-effect indices, see `seqdec.bo.report.importance`."""
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


def parallel(figure: FigureBase, study: Study) -> None:
    """Every evaluation as a line, colored by rank."""
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
    name_ticks(axis.xaxis, range(len(keys) + 1), [*(study.names[key] for key in keys), "value"], 110)
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    axis.set_xlim(-0.35, len(keys) + 0.5)
    axis.set_ylim(_BELOW - 0.05 if inactive else -0.06, 1.06)
    shown = "" if len(keys) == len(study.varied) else f" · the {len(keys)} most important parameters"
    axis.set_title(f"Evaluations, the better the darker{shown}", **TITLE)


def _lines(study: Study, heights: np.ndarray) -> LineCollection:
    """Lines of heights (n, coordinates), the best on top."""
    done, failed = int(study.done.sum()), int((~study.done).sum())
    order = np.argsort(np.where(study.done, study.values, -np.inf) * (1 if study.maximize else -1))
    order = order[np.argsort(study.done[order], kind="stable")]
    shades = colormaps["viridis_r"](np.linspace(0, 1, done) if done > 1 else np.ones(done))
    lines = [np.stack([np.arange(heights.shape[1]), row], 1) for row in heights[order]]
    widths = np.linspace(0.8, 1.8, len(lines))
    return LineCollection(lines, colors=[*[(0.7, 0.7, 0.7, 0.5)] * failed, *shades], linewidths=widths, alpha=0.8)


def _heights(dimension: Dimension, values: list[Any]) -> np.ndarray:
    """(n,) on a coordinate of length 1."""

    def height(value: Any) -> float:
        if value is INACTIVE:
            return _BELOW
        if isinstance(dimension, Ordinal | Categorical):
            return place_of(dimension, value) / (len(dimension.choices) - 1)
        return _share(dimension, value)

    return np.array([height(value) for value in values])


def _value_heights(study: Study) -> np.ndarray:
    """(n,) of the values; NaN for failures, 0.5 if all are equal."""
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


def _labels(dimension: Any, length: int) -> dict[float, str]:
    if isinstance(dimension, Ordinal | Categorical):
        last = len(dimension.choices) - 1
        shown = range(last + 1) if last < 10 else (0, last)
        return {place / last: short(dimension.choices[place], length) for place in shown}
    return {_share(dimension, limit): f"{limit:.4g}" for limit in (dimension.low, dimension.high)}


def _share(dimension: Dimension, value: Any) -> float:
    return float(dimension.encode(value)[0])


def scale_of(study: Study) -> str:
    """Logarithmic for values of one sign and very different size, with 0 where needed."""
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
    """On a logarithmic axis at least half of the smallest value."""
    return np.maximum(drawn, 0.5 * study.values[study.done].min()) if scale_of(study) == "log" else drawn


def set_limits(axis: Axes, low: float, high: float) -> None:
    """With a margin, in units of the axis."""
    room = 0.06 * (high - low) or 1.0
    axis.set_ylim(*axis.yaxis.get_transform().inverted().transform(np.array([low - room, high + room])))


def dimension_of(space: Space, key: Any) -> Dimension:
    """The dimension with that key."""
    return space.dimensions[list(space.keys).index(key)]


def place_of(dimension: Dimension, value: Any) -> float:
    """A value on its axis: a number, or a choice's index."""
    return dimension.place(value) if isinstance(dimension, Ordinal | Categorical) else value


def short(name: Any, length: int = _LONGEST) -> str:
    """A name of at most `length` characters, else its ends."""
    text, kept = str(name), length - 1
    return text if len(text) <= length else f"{text[: kept - kept // 2]}…{text[-(kept // 2) :]}"


def name_ticks(axis: Axis, places: Sequence[float], names: Sequence[Any], room: float) -> None:
    """Ticks with names, at most `_TICKS`, slanted where wider than `room` characters."""
    step = -(-len(names) // _TICKS)
    places, labels = places[::step], [short(name) for name in names[::step]]
    slanted: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor", "fontsize": 8}
    axis.set_ticks(places, labels, **(slanted if len(labels) * max(map(len, labels)) > room else {}))


def nothing(figure: FigureBase, title: str, study: Study) -> None:
    """An empty panel that says why."""
    axis = figure.subplots()
    finish_axis(axis, title, "", "", "needs two values or more" if study.varied else "no parameter varies")
    axis.set_axis_off()


def lost(study: Study) -> str:
    """Evaluations without a value."""
    return "failed or infeasible" if study.outputs.outcome_constraints else "failed"


class Panel(NamedTuple):
    """Drawing function and size of a panel."""

    draw: Callable[[FigureBase, Study], None]
    width: float
    """inches, or relative in its row"""
    height: Callable[[Study], float]
    """in inches"""


PANELS: Mapping[str, Panel] = {
    "front": Panel(front, 6.6, lambda study: 4.4 if study.outputs.objectives == 2 else 3.6),
    "progress": Panel(progress, 6.6, lambda study: 3.6),
    "importances": Panel(importances, 4.4, lambda study: 3.6),
    "slices": Panel(slices, 11.0, lambda study: 0.6 + 2.4 * max(1, -(-len(study.sliced) // 3))),
    "plane": Panel(plane, 11.0, lambda study: 4.4),
    "parallel": Panel(parallel, 11.0, lambda study: 3.6),
}
_LAYOUT = (("progress", "importances"), ("slices",), ("parallel",))
