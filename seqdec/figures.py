"""Figures of runs, without matplotlib's global state, for color-blind readers too."""

import itertools
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, MaxNLocator

from seqdec.statistics import mean_and_margin
from seqdec.ticks import plain_ticks

COLORS: Mapping[str, str] = {
    "hilofi": "#0072B2",
    "lolofi": "#D55E00",
    "lrkf": "#009E73",
    "lofi": "#CC79A7",
    "ekf": "#56B4E9",
    "subspace": "#882255",
    "linear": "#332288",
    "auto": "#000000",
    "vbll": "#44AA99",
    "on_vbll": "#117733",
    "last_layer_laplace": "#999933",
    "neural_linear": "#AA4499",
    "ensemble": "#6699CC",
    "gp": "#661100",
    "replay_adamw": "#E69F00",
    "replay_sgd": "#C4A000",
    "replay_muon": "#CC6677",
    "replay_koala++": "#9B5DE5",
    "adamw": "#A0522D",
    "muon": "#F08080",
    "koala++": "#7B68EE",
    "neural-epsilon-greedy": "#A0522D",
    "neural-greedy": "#E69F00",
    "popularity": "#6E6E6E",
    "random": "#A9A9A9",
    "uniform": "#A9A9A9",
    "evolution": "#C4A000",
}
"""Agent -> color; "hilofi:50+greedy" has that of hilofi."""
# Okabe and Ito's palette without its yellow, which is hard to read on white: for names that are not in COLORS.
_OTHERS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (6, 1.5, 1.5, 1.5)))
TITLE: dict[str, Any] = {"fontsize": 11, "loc": "left"}
OPTIMUM = "optimum"
UNIFORM = ("random", "uniform")
"""Names of runs of uniform play."""
Possible = tuple[float | np.ndarray, float | np.ndarray]
_POINTS = 400
"""Most points in a drawn curve."""
FEW = 2
"""Most seeds that are drawn one by one, without bands and intervals."""
_LONGEST = 20
"""Most characters of a name beside its row."""


class Run(Protocol):
    """What figures read of a `seqdec.Run`."""

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
        """(num_seeds, num_steps) expected reward lost; NaN where unknown."""
        ...

    @property
    def elapsed(self) -> np.ndarray:
        """(num_steps,) seconds by the end of each step, all seeds together."""
        ...


def comparison(runs: Mapping[str, Run]) -> Figure:
    """Recent average reward, reward of whole runs, cumulative regret, and regret against time.

    Reward stands in for unknown regret. Uniform play, of a name in `UNIFORM`, may leave the panel of regret.
    """
    figure = Figure(figsize=(10.5, 7.6), dpi=140, layout="constrained")
    axes = figure.subplots(2, 2)
    average_reward(axes[0, 0], runs)
    whole_reward(axes[0, 1], runs)
    possible_reward(axes[0, 0], runs)
    cumulative_regret(axes[1, 0], runs) if regret_known(runs) else cumulative_reward(axes[1, 0], runs)
    against_time(axes[1, 1], learners(runs))
    limits = axes[1, 1].get_ylim()
    if len(learners(runs)) < len(runs) and axes[1, 0].get_ylim()[1] > 2 * limits[1]:
        axes[1, 0].set_ylim(limits)
    legend(figure, [axes[0, 0]], [*runs, OPTIMUM])
    return titled(figure, title(runs))


def regret(runs: Mapping[str, Run]) -> Figure:
    """Cumulative regret, curves labeled at their ends."""
    return single(runs, cumulative_regret, _cumulative_regret)


def learners(runs: Mapping[str, Run]) -> Mapping[str, Run]:
    """Without uniform play, unless there is nothing else."""
    return {name: run for name, run in runs.items() if name not in UNIFORM} or runs


def regret_known(runs: Mapping[str, Run]) -> bool:
    """Whether any run knows its regret."""
    return any(np.isfinite(run.regret).any() for run in runs.values())


def cumulative_reward(axis: Axes, runs: Mapping[str, Run]) -> None:
    """Reward summed over steps, mean over seeds and 95% band."""
    possible = extremes(run.rewards for run in runs.values())
    for style, (name, run) in zip(styles(runs), runs.items(), strict=True):
        curve(axis, steps(run), _cumulative_reward(run), name, style, summed(possible, steps(run)))
    finish_axis(axis, "Cumulative reward", "step", "reward")


def average_reward(axis: Axes, runs: Mapping[str, Run]) -> None:
    """Reward in a sliding window, mean over seeds and 95% band."""
    possible = extremes(run.rewards for run in runs.values())
    for style, (name, run) in zip(styles(runs), runs.items(), strict=True):
        means = rolling(run.rewards, window(runs))
        curve(axis, steps(run)[-means.shape[1] :], means, name, style, possible)
    finish_axis(axis, f"Average reward, mean of the last {window(runs):,} steps", "step", "reward per step")
    axis.set_xlim(left=0)


def possible_reward(axis: Axes, runs: Mapping[str, Run]) -> None:
    """The expected reward of the best actions in the window of `average_reward`, labeled `OPTIMUM`, if known."""
    best = _best(runs)
    means, style = rolling(best, window(runs)), {"color": "0.2", "ls": "--", "zorder": 1}
    if np.isfinite(means).any():
        curve(axis, np.arange(1, best.shape[1] + 1)[-means.shape[1] :], means, OPTIMUM, style, None)


def whole_reward(axis: Axes, runs: Mapping[str, Run]) -> None:
    """Reward per step in whole runs: each seed, mean and 95% interval; the optimum, if known."""
    means = [run.rewards.mean(axis=1, dtype=np.float64) for run in runs.values()]
    low, high = extremes(run.rewards for run in runs.values())
    middle, margin = np.transpose([mean_and_margin(each) for each in means])
    margin = np.where([len(each) > FEW for each in means], margin, 0)
    intervals(axis, list(runs), middle, np.minimum(margin, np.maximum([middle - low, high - middle], 0)))
    axis.set_yticks(range(len(runs)), [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in runs])
    for row, (style, each) in enumerate(zip(styles(runs), means, strict=True)):
        axis.plot(each, np.full(len(each), row + 0.22), "|", color=style["color"], ms=7)
    optimum(axis, float(_best(runs).mean()), vertical=True)
    axis.set_title("Reward of whole runs; ticks: seeds", **TITLE)
    axis.set_xlabel("reward per step")


def cumulative_regret(axis: Axes, runs: Mapping[str, Run]) -> None:
    """Regret summed over steps, mean over seeds and 95% band."""
    possible = extremes(run.regret for run in runs.values())
    for style, (name, run) in zip(styles(runs), runs.items(), strict=True):
        curve(axis, steps(run), _cumulative_regret(run), name, style, summed(possible, steps(run)))
    finish_axis(axis, "Cumulative regret", "step", "regret")


def accuracy_axis(axis: Axes, title: str) -> None:
    """Title and labels; shares from 0 to 1 in percent."""
    axis.set_title(title, **TITLE)
    axis.set_ylabel("accuracy / %")
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}"))


def against_time(axis: Axes, runs: Mapping[str, Run]) -> None:
    """Final regret, or reward where that is unknown, with its 95% interval against run time per seed."""
    known = regret_known(runs)
    what, of = ("regret", _cumulative_regret) if known else ("reward", _cumulative_reward)
    low, high = extremes(run.regret if known else run.rewards for run in runs.values())
    for style, (name, run) in zip(styles(runs), runs.items(), strict=True):
        seconds, sums = run.elapsed / len(run.seeds), of(run)
        curve(axis, seconds, sums, name, style | {"alpha": 0.35}, None)
        mean, margin = mean_and_margin(sums[:, -1])
        room = np.maximum([[mean - low * len(seconds)], [high * len(seconds) - mean]], 0)
        error = np.nan_to_num(np.minimum(margin if len(sums) > FEW else 0.0, room))
        axis.errorbar(seconds[-1], mean, yerr=error, fmt="o", capsize=3, color=style["color"])
    finish_axis(axis, f"Cumulative {what} against run time", "run time per seed, without compilation / s", what)
    axis.set_xlim(left=0)


def panels(names: list[str]) -> tuple[Figure, list[Axes]]:
    """A panel for each name, at most four in a row; wide enough for a title of 70 letters."""
    columns = min(4, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(max(7.0, 1.2 + 3.7 * columns), 1.0 + 3.2 * rows), dpi=140, layout="constrained")
    axes = list(np.atleast_1d(figure.subplots(rows, columns)).ravel())
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    return figure, axes[: len(names)]


def legend(figure: Figure, axes: list[Axes], names: list[str]) -> None:
    """One legend below all panels."""
    entries = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    shown = [name for name in names if name in entries]
    size = 10.0
    widths = [TextPath((0, 0), name, size=size).get_extents().width for name in shown]

    def width(columns: int) -> float:
        texts = sum(part.max() for part in np.array_split(widths, columns))
        return texts + size * (2.8 * columns + 2 * (columns - 1) + 2)

    fitting = [columns for columns in range(2, len(shown) + 1) if width(columns) <= 72 * figure.get_figwidth()]
    figure.legend(
        [entries[name] for name in shown],
        shown,
        loc="outside lower center",
        ncols=max(fitting, default=1),
        frameon=False,
        fontsize=size,
    )


def optimum(axis: Axes, value: float, *, vertical: bool = False) -> None:
    """A dashed line at the best possible value, labeled `OPTIMUM`, if finite."""
    if np.isfinite(value):
        (axis.axvline if vertical else axis.axhline)(value, color="0.2", ls="--", lw=1, label=OPTIMUM, zorder=1)


def intervals(
    axis: Axes, names: list[str], values: np.ndarray, errors: np.ndarray, everywhere: Sequence[str] = ()
) -> None:
    """A dot and its interval for each name, from the top; `errors` are (n,) or (2, n).

    `everywhere`: names in all panels of a figure, if rows differ.
    """
    rows, below_above = np.arange(len(names)), np.broadcast_to(errors, (2, len(names)))
    colors = {
        name: style["color"] for name, style in zip(everywhere or names, styles(everywhere or names), strict=True)
    }
    for name, row in zip(names, rows, strict=True):
        axis.errorbar(values[row], row, xerr=below_above[:, row, None], fmt="o", capsize=3, color=colors[name])
    axis.set_yticks(rows, names)
    axis.invert_yaxis()
    axis.margins(y=0.12)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="x", color="0.9", lw=0.8)
    axis.set_axisbelow(True)


def window(runs: Mapping[str, Run]) -> int:
    """Length of the window of the average reward: a tenth of the longest run, at most 1,000 steps."""
    return max(1, min(1000, max(run.rewards.shape[1] for run in runs.values()) // 10))


def rolling(values: np.ndarray, length: int) -> np.ndarray:
    """(n, steps) -> (n, steps - length + 1) means of `length` values in a row, or of all if fewer."""
    length = min(length, values.shape[1])
    total = np.cumsum(np.pad(values, ((0, 0), (1, 0))), axis=1, dtype=np.float64)
    return (total[:, length:] - total[:, :-length]) / length


def _best(runs: Mapping[str, Run]) -> np.ndarray:
    """(n, steps) what the best actions earned on average in the longest runs; NaN where unknown."""
    longest = max(run.rewards.shape[1] for run in runs.values())
    return np.concatenate([run.rewards + run.regret for run in runs.values() if run.rewards.shape[1] == longest])


def _cumulative_reward(run: Run) -> np.ndarray:
    return np.cumsum(run.rewards, axis=1, dtype=np.float64)


def _cumulative_regret(run: Run) -> np.ndarray:
    return np.cumsum(run.regret, axis=1, dtype=np.float64)


def steps(run: Run) -> np.ndarray:
    """(num_steps,) from 1."""
    return np.arange(1, run.rewards.shape[1] + 1)


def styles(names: Iterable[str]) -> list[dict[str, Any]]:
    """Color and dash of each agent: of `COLORS`, others in order; equal colors differ in dash, then shade."""
    names = list(names)
    kinds = [max((kind for kind in COLORS if _is_kind(name, kind)), key=len, default="") for name in names]
    used = {COLORS[kind] for kind in kinds if kind}
    others = itertools.cycle([color for color in _OTHERS if color not in used] or _OTHERS)
    colors = [COLORS[kind] if kind else next(others) for kind in kinds]
    cycles = [divmod(colors[:place].count(color), len(_DASHES)) for place, color in enumerate(colors)]
    return [
        {"color": _lighter(color, times), "ls": _DASHES[dash]}
        for color, (times, dash) in zip(colors, cycles, strict=True)
    ]


def _lighter(color: str, times: int) -> str:
    red, green, blue = (1 - (1 - part) * 0.5**times for part in to_rgb(color))
    return to_hex((red, green, blue)).upper()


def _is_kind(name: str, kind: str) -> bool:
    """Whether `name` is `kind`, or "kind:rank+policy" or "kind.variant"."""
    return name == kind or name.startswith((f"{kind}+", f"{kind}:", f"{kind}."))


def curve(
    axis: Axes,
    x: np.ndarray,
    samples: np.ndarray,
    name: str,
    style: dict[str, Any],
    possible: Possible | None = (-np.inf, np.inf),
) -> None:
    """Mean of `samples` (seeds, steps) over `x` (steps,) and its 95% band, in `_POINTS` points at most.

    Fewer than three seeds have no band: two are thin lines. The band is clipped to the least and largest `possible`
    values, () or (steps,); None: no band.
    """
    keep = np.unique(np.linspace(0, len(x) - 1, min(len(x), _POINTS)).round().astype(int))
    mean, margin = mean_and_margin(samples[:, keep])
    axis.plot(x[keep], mean, label=name, lw=1.8, **style)
    if possible is not None and len(samples) == FEW:
        axis.plot(x[keep], samples[:, keep].T, lw=0.7, alpha=0.6, **style)
    elif possible is not None and len(samples) > FEW:
        low, high = (np.broadcast_to(bound, x.shape)[keep] for bound in possible)
        band = np.clip(mean - margin, low, high), np.clip(mean + margin, low, high)
        axis.fill_between(x[keep], *band, color=style["color"], alpha=0.16, lw=0)


def extremes(values: Iterable[np.ndarray]) -> Possible:
    """Least and largest finite values, bounds of their means."""
    finite = [part[np.isfinite(part)] for part in map(np.asarray, values)]
    return (
        float(min((part.min() for part in finite if part.size), default=-np.inf)),
        float(max((part.max() for part in finite if part.size), default=np.inf)),
    )


def summed(possible: Possible, steps: np.ndarray) -> Possible:
    """The same for sums of `steps` values."""
    return possible[0] * steps, possible[1] * steps


def finish_axis(
    axis: Axes, title: str, x_label: str, y_label: str, empty: str = "not known in this environment"
) -> None:
    """Title, labels, integers for a whole x; the note `empty` without data."""
    axis.set_title(title, **TITLE)
    axis.set_xlabel(x_label)
    axis.set_ylabel(y_label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", color="0.9", lw=0.8)
    axis.set_axisbelow(True)
    axis.margins(x=0.01)
    places = [np.asarray(line.get_xdata(), float) for line in axis.lines if line.get_transform() == axis.transData]
    whole = bool(places) and all(np.array_equal(place, np.round(place)) for place in places)
    axis.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10], integer=whole))
    for direction in (axis.xaxis, axis.yaxis):
        plain_ticks(direction)
    if not axis.patches and not any(np.isfinite(np.asarray(line.get_ydata(), float)).any() for line in axis.lines):
        axis.text(0.5, 0.5, empty, transform=axis.transAxes, ha="center", color="0.4")


def single(
    runs: Mapping[str, Run], draw: Callable[[Axes, Mapping[str, Run]], None], curves: Callable[[Run], np.ndarray]
) -> Figure:
    """One panel, curves labeled at their ends."""
    figure = Figure(figsize=(8.2, 4.8), dpi=140, layout="constrained")
    axis = figure.subplots()
    draw(axis, runs)
    ends = {name: float(curves(run)[:, -1].mean()) for name, run in runs.items()}
    bottom, top = axis.get_ylim()
    places = _spread(np.array(list(ends.values())), 0.055 * (top - bottom))
    for style, (name, run), place in zip(styles(runs), runs.items(), places, strict=True):
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
    return titled(figure, title(runs))


def note(figure: Figure, text: str) -> None:
    """Text below everything else; the figure grows by it."""
    figure.draw_without_rendering()
    # The layout leaves no room for legends at a place of their own.
    legends = max((entry.get_window_extent().height / figure.dpi + 0.08 for entry in figure.legends), default=0.0)
    width, height = figure.get_size_inches()
    lines = textwrap.wrap(text, int(13 * width))
    space = 0.17 * len(lines) + 0.12
    figure.set_size_inches(width, height + space)
    share, taken = space / (height + space), (space + legends) / (height + space)
    figure.set_layout_engine("constrained", rect=(0, taken, 1, 1 - taken))
    for entry in figure.legends:
        entry.set_bbox_to_anchor((0, share, 1, 1 - share), transform=figure.transFigure)
    figure.text(0.01, 0.3 * share / len(lines), "\n".join(lines), fontsize=9, color="0.35", va="bottom")


def _spread(values: np.ndarray, gap: float) -> np.ndarray:
    """Positions nearest to `values` in least squares, ordered, at least `gap` apart; NaN stays NaN."""
    from scipy.optimize import isotonic_regression

    order = np.argsort(values)[: np.isfinite(values).sum()]
    offsets = gap * np.arange(len(order))
    places = np.full_like(values, np.nan)
    if len(order):
        places[order] = isotonic_regression(values[order] - offsets).x + offsets
    return places


def bands(count: int, what: str = "seed") -> str:
    """What curves of `count` repetitions show."""
    if count > FEW:
        return f"{count} {what}s, mean and 95% band"
    return f"{count} {what}s, mean and each, too few for a band" if count > 1 else f"1 {what}, no band"


def mean_and_interval(count: int) -> str:
    """What a dot and interval of `count` seeds show."""
    return f"{count} seeds, mean and 95% interval" if count > 1 else "1 seed"


def title(runs: Mapping[str, Run], shown: Callable[[int], str] = bands) -> str:
    """Environments, most steps, and what is `shown` of most seeds."""
    environments = sorted({run.env for run in runs.values()})
    steps = max(run.rewards.shape[1] for run in runs.values())
    seeds = max(len(run.seeds) for run in runs.values())
    return f"{', '.join(environments)} · {steps:,} steps · {shown(seeds)}"


def titled(figure: Figure, text: str) -> Figure:
    """The figure with its headline."""
    figure.suptitle(text, fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure
