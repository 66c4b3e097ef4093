"""Figures of runs, by matplotlib without its global state, in a palette for colour-blind readers."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import DateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FuncFormatter, MaxNLocator
from scipy.optimize import isotonic_regression

from seqdec.statistics import mean_and_margin

# Okabe and Ito's palette without its yellow, which is hard to read on white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))
_TITLE: dict[str, Any] = {"fontsize": 11, "loc": "left"}
_POINTS = 400
"""Points in a drawn curve: more cannot be distinguished and only make the file larger."""


class Run(Protocol):
    """What the figures read of a `seqdec.Run`."""

    @property
    def env(self) -> str:
        """Name of the environment."""
        ...

    @property
    def seeds(self) -> tuple[int, ...]:
        """(num_seeds,) seeds."""
        ...

    @property
    def rewards(self) -> np.ndarray:
        """(num_seeds, num_steps) rewards."""
        ...

    @property
    def regret(self) -> np.ndarray:
        """(num_seeds, num_steps) expected reward lost by each action; NaN where unknown."""
        ...

    @property
    def elapsed(self) -> np.ndarray:
        """(num_steps,) seconds of running by the end of each step, all seeds together."""
        ...


def comparison(runs: Mapping[str, Run]) -> Figure:
    """Cumulative reward, recent average reward, cumulative regret, and regret against time; shared legend below."""
    figure = Figure(figsize=(10.5, 7.6), dpi=140, layout="constrained")
    axes = figure.subplots(2, 2)
    cumulative_reward(axes[0, 0], runs)
    average_reward(axes[0, 1], runs)
    cumulative_regret(axes[1, 0], runs)
    regret_against_time(axes[1, 1], runs)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), frameon=False, fontsize=10)
    figure.suptitle(_title(runs), fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure


def regret(runs: Mapping[str, Run]) -> Figure:
    """Cumulative regret alone, every curve labelled at its end."""
    return _single(runs, cumulative_regret, _cumulative_regret)


def accuracy(runs: Mapping[str, Run]) -> Figure:
    """Rolling one-step-ahead accuracy of online classifiers, every curve labelled at its end."""

    def draw(axis: Axes, runs: Mapping[str, Run]) -> None:
        average_reward(axis, runs)
        axis.set_title(f"One-step-ahead accuracy, mean of the last {window(runs):,} steps", **_TITLE)
        axis.set_ylabel("accuracy / %")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}"))

    return _single(runs, draw, lambda run: rolling(run.rewards, window(runs)))


def cumulative_reward(axis: Axes, runs: Mapping[str, Run]) -> None:
    """Reward summed over steps, mean over seeds and 95% band."""
    for style, (name, run) in zip(_styles(runs), runs.items(), strict=True):
        _curve(axis, _steps(run), np.cumsum(run.rewards, axis=1, dtype=np.float64), name, style)
    _finish_axis(axis, "Cumulative reward", "step", "reward")


def average_reward(axis: Axes, runs: Mapping[str, Run]) -> None:
    """Reward per step over a sliding window, mean over seeds and 95% band."""
    for style, (name, run) in zip(_styles(runs), runs.items(), strict=True):
        start = min(window(runs) // 4, run.rewards.shape[1] - 1)  # means of a few rewards are too noisy to show
        _curve(axis, _steps(run)[start:], rolling(run.rewards, window(runs))[:, start:], name, style)
    _finish_axis(axis, f"Average reward, mean of the last {window(runs):,} steps", "step", "reward per step")
    axis.set_xlim(left=0)


def cumulative_regret(axis: Axes, runs: Mapping[str, Run]) -> None:
    """Regret summed over steps, mean over seeds and 95% band."""
    for style, (name, run) in zip(_styles(runs), runs.items(), strict=True):
        _curve(axis, _steps(run), _cumulative_regret(run), name, style)
    _finish_axis(axis, "Cumulative regret", "step", "regret")


def regret_against_time(axis: Axes, runs: Mapping[str, Run]) -> None:
    """Final regret (mean, 95% interval) against run time per seed; lower left is better."""
    for style, (name, run) in zip(_styles(runs), runs.items(), strict=True):
        seconds, (mean, margin) = run.elapsed / len(run.seeds), mean_and_margin(_cumulative_regret(run))
        _curve(axis, seconds, _cumulative_regret(run), name, style | {"alpha": 0.35}, band=False)
        axis.errorbar(seconds[-1], mean[-1], yerr=np.nan_to_num(margin[-1]), fmt="o", capsize=3, color=style["color"])
    _finish_axis(axis, "Cumulative regret against run time", "run time per seed, without compilation / s", "regret")
    axis.set_xlim(left=0)


def daily(days: pd.DataFrame, table: pd.DataFrame, log: str) -> Figure:
    """Watch ratio day by day: mean of each day, sum so far (both with 95% bands over seeds), and time per 1,000 steps.

    `days` has the columns agent, period, mean, mean_95, cumulative, cumulative_95; `table`, indexed by agent,
    seconds_per_1000_steps.
    """
    names = list(table.index)
    figure = Figure(figsize=(12.6, 4.6), dpi=140, layout="constrained")
    mean, total, clock = figure.subplots(1, 3, width_ratios=(1, 1, 0.62))
    for style, name in zip(_looks(len(names)), names, strict=True):
        rows: Any = days.loc[days["agent"] == name]
        for axis, column in ((mean, "mean"), (total, "cumulative")):
            middle, margin = rows[column].to_numpy(), rows[f"{column}_95"].to_numpy()
            axis.plot(rows["period"], middle, label=name, lw=1.8, marker="o" if len(rows) == 1 else None, **style)
            axis.fill_between(rows["period"], middle - margin, middle + margin, color=style["color"], alpha=0.16, lw=0)
    seconds = table["seconds_per_1000_steps"].to_numpy()
    bars = clock.barh(range(len(names)), seconds, color=[style["color"] for style in _looks(len(names))], height=0.6)
    clock.bar_label(bars, fmt="%.2f", padding=3)
    clock.set_yticks(range(len(names)), names)
    clock.invert_yaxis()
    dated = pd.api.types.is_datetime64_any_dtype(days["period"])
    unit = "day" if dated else "fiftieth of the run"
    _finish_axis(mean, f"Mean watch ratio of each {unit}", unit, "watch ratio per step")
    _finish_axis(total, "Watch ratio, summed", unit, "watch ratio")
    _finish_axis(clock, "Running time", "seconds per 1,000 steps of a seed", "")
    clock.margins(x=0.15)
    clock.grid(visible=False)
    every = days["period"].unique()
    for axis in (mean, total) if dated else ():
        axis.set_xticks(every[:: math.ceil(len(every) / 5)])
        axis.xaxis.set_major_formatter(DateFormatter("%d %b"))
    clock.yaxis.set_major_formatter(FixedFormatter(names))
    _legend(figure, [mean, total], names)
    figure.suptitle(log, fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure


def progress(trials: pd.DataFrame) -> Figure:
    """Best value so far against evaluations, a panel for each function: mean over runs and 95% band.

    `trials` has the columns function, method, run, evaluation, best and initial. Functions are minimised, and the
    curves start where the initial points end.
    """
    names, methods = list(dict.fromkeys(trials["function"])), list(dict.fromkeys(trials["method"]))
    figure, axes = _panels(names)
    for name, axis in zip(names, axes, strict=True):
        here = trials.query("function == @name")
        first = int(here.loc[here["initial"], "evaluation"].to_numpy().max(initial=1))
        for style, method in zip(_looks(len(methods)), methods, strict=True):
            curves = here.query("method == @method").pivot(index="run", columns="evaluation", values="best").to_numpy()
            if len(curves):
                _curve(axis, np.arange(curves.shape[1])[first - 1 :] - first + 1, curves[:, first - 1 :], method, style)
        _finish_axis(axis, name, "evaluations after the initial points", "best value so far")
    _legend(figure, axes, methods)
    figure.suptitle("Best value so far, smaller is better", fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure


def time_to_best(table: pd.DataFrame) -> Figure:
    """Best value at the end (mean, 95% interval) against the time to choose all points; lower left is better.

    `table` is indexed by function and method, with the columns best, best_95 and seconds.
    """
    names = list(dict.fromkeys(table.index.get_level_values("function")))
    methods = list(dict.fromkeys(table.index.get_level_values("method")))
    figure, axes = _panels(names)
    for name, axis in zip(names, axes, strict=True):
        for style, method in zip(_looks(len(methods)), methods, strict=True):
            if (name, method) in table.index:
                row: Any = table.loc[(name, method)]
                error = np.nan_to_num(row["best_95"])
                axis.errorbar(
                    row["seconds"], row["best"], yerr=error, fmt="o", capsize=3, color=style["color"], label=method
                )
        _finish_axis(axis, name, "time to choose all points of a run / s", "best value at the end")
        axis.margins(x=0.08)
    _legend(figure, axes, methods)
    figure.suptitle("Best value against time, smaller is better", fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure


def _panels(names: list[str]) -> tuple[Figure, list[Axes]]:
    """A figure with a panel for each name, at most four in a row."""
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(1.2 + 3.7 * columns, 1.0 + 3.2 * rows), dpi=140, layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(rows, columns)).ravel())
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    return figure, axes[: len(names)]


def _legend(figure: Figure, axes: list[Axes], names: list[str]) -> None:
    """One legend below all panels."""
    entries = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    shown = [name for name in names if name in entries]
    figure.legend(
        [entries[name] for name in shown], shown, loc="outside lower center", ncols=min(len(shown), 6), frameon=False
    )


def relative_regret(summary: pd.DataFrame) -> Figure:
    """Regret in percent of that of uniform play (mean, 95% interval), a panel for each table; left is better.

    `summary` is indexed by table and agent, with the columns regret and regret_95.
    """
    tables = list(dict.fromkeys(summary.index.get_level_values("table")))
    figure, axes = _panels(tables)
    for table, axis in zip(tables, axes, strict=True):
        rows = summary.xs(table, level="table")
        _intervals(axis, list(rows.index), rows["regret"].to_numpy(), np.nan_to_num(rows["regret_95"].to_numpy()))
        for place, regret in enumerate(rows["regret"]):
            axis.annotate(f"{regret:.1f}", (regret, place), (2, 7), textcoords="offset points", fontsize=9)
        axis.set_title(table, **_TITLE)
        axis.set_xlabel("cumulative regret / % of uniform")
        axis.set_xlim(0, 1.2 * axis.get_xlim()[1])
    figure.suptitle("Regret, less is better", fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure


def estimates(
    table: pd.DataFrame, logged: tuple[float, float], known: tuple[float, float] | None, title: str
) -> Figure:
    """Off-policy estimates with their intervals, beside mean rewards that are known or observed.

    `table` is indexed by estimator, with the columns value, low and high; `logged` and `known` are a mean and its
    standard error, shown with their 95% intervals.
    """
    figure = Figure(figsize=(8.2, 4.6), dpi=140, layout="constrained")
    axis = figure.subplots()
    values, low, high = (table[name].to_numpy() for name in ("value", "low", "high"))
    _intervals(axis, list(table.index), values, np.nan_to_num(np.maximum([values - low, high - values], 0)))
    for name, colour, line in (("the log itself", "0.35", logged), ("the policy itself", _COLOURS[1], known)):
        if line is not None:
            axis.axvline(line[0], color=colour, lw=1.4, label=name)
            axis.axvspan(line[0] - 1.96 * line[1], line[0] + 1.96 * line[1], color=colour, alpha=0.12, lw=0)
    axis.set_xlabel("mean reward per decision, 95% intervals")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure


def _intervals(axis: Axes, names: list[str], values: np.ndarray, errors: np.ndarray) -> None:
    """One row for each name, from the top: a dot and its interval."""
    rows = np.arange(len(names))
    axis.errorbar(values, rows, xerr=errors, fmt="o", capsize=3, color=_COLOURS[0])
    axis.set_yticks(rows, names)
    axis.invert_yaxis()
    axis.margins(y=0.12)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="x", color="0.9", lw=0.8)
    axis.set_axisbelow(True)


def window(runs: Mapping[str, Run]) -> int:
    """Length of the sliding window of the average reward: a tenth of the longest run, at most 5,000 steps."""
    return max(1, min(5000, max(run.rewards.shape[1] for run in runs.values()) // 10))


def rolling(values: np.ndarray, length: int) -> np.ndarray:
    """(n, steps) -> (n, steps) mean of the last `length` values, of fewer at the start."""
    total = np.cumsum(values, axis=1, dtype=np.float64)
    total[:, length:] = total[:, length:] - total[:, :-length]
    return total / np.minimum(np.arange(1, values.shape[1] + 1), length)


def _cumulative_regret(run: Run) -> np.ndarray:
    return np.cumsum(run.regret, axis=1, dtype=np.float64)


def _steps(run: Run) -> np.ndarray:
    return np.arange(1, run.rewards.shape[1] + 1)


def _styles(runs: Mapping[str, Run]) -> list[dict[str, Any]]:
    """Colour and dash of each run."""
    return _looks(len(runs))


def _looks(count: int) -> list[dict[str, Any]]:
    """Colours and dashes of `count` lines; the combinations repeat after 28."""
    colours, dashes = len(_COLOURS), len(_DASHES)
    return [{"color": _COLOURS[i % colours], "ls": _DASHES[i // colours % dashes]} for i in range(count)]


def _curve(axis: Axes, x: np.ndarray, samples: np.ndarray, name: str, style: dict[str, Any], band: bool = True) -> None:
    """Mean of `samples` (seeds, steps) over `x` (steps,) and its 95% band, thinned to `_POINTS` points."""
    keep = np.unique(np.linspace(0, len(x) - 1, min(len(x), _POINTS)).round().astype(int))
    mean, margin = mean_and_margin(samples[:, keep])
    axis.plot(x[keep], mean, label=name, lw=1.8, **style)
    if band:
        axis.fill_between(x[keep], mean - margin, mean + margin, color=style["color"], alpha=0.16, lw=0)


def _finish_axis(axis: Axes, title: str, x_label: str, y_label: str) -> None:
    """Title, axis labels and a plain style; a note if there is nothing to draw."""
    axis.set_title(title, **_TITLE)
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="0.9", lw=0.8)
    axis.set_axisbelow(True)
    axis.margins(x=0.01)
    axis.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    for direction in (axis.xaxis, axis.yaxis):
        direction.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if not axis.patches and not any(np.isfinite(np.asarray(line.get_ydata(), float)).any() for line in axis.lines):
        axis.text(0.5, 0.5, "not known in this environment", transform=axis.transAxes, ha="center", color="0.4")


def _single(
    runs: Mapping[str, Run], draw: Callable[[Axes, Mapping[str, Run]], None], curves: Callable[[Run], np.ndarray]
) -> Figure:
    """One panel with direct labels at the ends of the curves."""
    figure = Figure(figsize=(8.2, 4.8), dpi=140, layout="constrained")
    axis = figure.subplots()
    draw(axis, runs)
    ends = {name: float(curves(run)[:, -1].mean()) for name, run in runs.items()}
    bottom, top = axis.get_ylim()
    places = _spread(np.array(list(ends.values())), 0.055 * (top - bottom))
    for style, (name, run), place in zip(_styles(runs), runs.items(), places, strict=True):
        if np.isfinite(place):
            axis.annotate(
                name,
                (run.rewards.shape[1], ends[name]),
                xytext=(1.02, (place - bottom) / (top - bottom)),
                textcoords="axes fraction",
                color=style["color"],
                fontsize=10,
                va="center",
                arrowprops={"arrowstyle": "-", "color": style["color"], "lw": 0.6, "alpha": 0.6},
            )
    figure.suptitle(_title(runs), fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure


def _spread(values: np.ndarray, gap: float) -> np.ndarray:
    """Positions nearest to `values` in least squares, in the same order and at least `gap` apart; NaN stays NaN."""
    order = np.argsort(values)[: np.isfinite(values).sum()]
    offsets = gap * np.arange(len(order))
    places = np.full_like(values, np.nan)
    if len(order):
        places[order] = isotonic_regression(values[order] - offsets).x + offsets
    return places


def _title(runs: Mapping[str, Run]) -> str:
    """Environments, and the largest number of steps and of seeds."""
    environments = sorted({run.env for run in runs.values()})
    steps = max(run.rewards.shape[1] for run in runs.values())
    seeds = max(len(run.seeds) for run in runs.values())
    bands = f"{seeds} seeds, mean and 95% band" if seeds > 1 else "1 seed"
    return f"{', '.join(environments)} · {steps:,} steps · {bands}"
