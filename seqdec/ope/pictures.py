"""Figures of off-policy evaluation."""

import textwrap
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def estimates_figure(
    table: "pd.DataFrame", logged: tuple[float, float], known: tuple[float, float] | None, title: str
) -> "Figure":
    """Figure of estimates with intervals, beside known or observed means.

    `table` is indexed by estimator, with columns value, low, high; `logged` and `known` are (mean, standard error),
    with 95% intervals.
    """
    from matplotlib.figure import Figure

    from seqdec import figures

    figure = Figure(figsize=(8.2, 4.6), dpi=140, layout="constrained")
    axis = figure.subplots()
    values, low, high = (table[name].to_numpy() for name in ("value", "low", "high"))
    again = table.duplicated(["low", "high"]).to_numpy()  # shared intervals are drawn once
    _intervals(axis, list(table.index), values, np.where(again, values, low), np.where(again, values, high))
    for name, color, line in (("the log itself", "0.35", logged), ("the policy itself", "#D55E00", known)):
        if line is not None:
            axis.axvline(line[0], color=color, lw=1.4, label=name)
            axis.axvspan(line[0] - 1.96 * line[1], line[0] + 1.96 * line[1], color=color, alpha=0.12, lw=0)
    shared = "; points without one share the one above" if again.any() else ""
    axis.set_xlabel(f"mean reward per decision, 95% intervals{shared}")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figures.titled(figure, title)


def difference_figure(
    difference: tuple[float, float, float],
    windows: "pd.DataFrame",
    sequence: "pd.DataFrame | None" = None,
    title: str = "Difference of the policies",
) -> "Figure":
    """Figure of a difference (value, low, high) of `compare`, in all rows and by window, with the sequence's ends."""
    from matplotlib.figure import Figure

    from seqdec import figures

    figure = Figure(figsize=(8.2, 4.2), dpi=140, layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, 1 if sequence is None else 2))
    last = windows.index + windows["rows"]
    rows = [f"{first + 1:,} to {stop:,}" for first, stop in zip(windows.index, last, strict=True)]
    values = np.array([difference, *windows[["difference", "low", "high"]].to_numpy()])
    _intervals(axes[0], ["all rows", *rows], *values.T)
    axes[0].axvline(0, color="0.35", lw=1.2)
    axes[0].set_xlabel("difference in reward per decision")
    if sequence is not None:
        shown = sequence[sequence.index >= sequence.index[-1] / 100]
        axes[1].fill_between(shown.index, shown["low"], shown["high"], color="#0072B2", alpha=0.25, lw=0)
        axes[1].axhline(0, color="0.35", lw=1.2)
        axes[1].set_xscale("log")
        axes[1].set_xlabel("rows read")
        axes[1].set_title("interval at all times", fontsize=9)
        axes[1].spines[["top", "right"]].set_visible(False)
    return figures.titled(figure, textwrap.fill(title, 90))


def _intervals(axis: "Axes", names: list[str], values: np.ndarray, low: np.ndarray, high: np.ndarray) -> None:
    """Values with their intervals; infinite ones go to the edge."""
    from seqdec import figures

    margins, ends = np.maximum([values - low, high - values], 0), np.concatenate([values, low, high])
    ends = ends[np.isfinite(ends)]
    span = float(np.ptp(ends)) if ends.size and np.ptp(ends) else 1.0
    figures.intervals(axis, names, values, np.nan_to_num(np.minimum(margins, 2 * span)))
    if np.isinf(margins).any() and ends.size:
        axis.set_xlim(ends.min() - 0.1 * span, ends.max() + 0.1 * span)


def weights_figure(weights: np.ndarray, title: str = "Weights of the rows") -> "Figure":
    """Figure of the distribution of weights (n,) of `check_target`, and the share of the largest ones."""
    from matplotlib.figure import Figure

    from seqdec import figures
    from seqdec.ticks import plain_ticks

    figure = Figure(figsize=(8.2, 3.6), dpi=140, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.hist(weights, bins=40, color="#0072B2")
    left.set_yscale("log")
    left.set_ylim(bottom=0.8, top=2.0 * len(weights))
    plain_ticks(left.yaxis)
    left.set_xlabel("weight")
    left.set_ylabel("number of rows")
    order = np.sort(weights)[::-1].cumsum()
    right.plot(np.arange(1, len(weights) + 1) / len(weights), order / (order[-1] or 1), color="#0072B2", lw=1.6)
    right.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--", label="equal weights")
    right.legend(frameon=False, fontsize=8, loc="lower right")
    right.set_xlabel("share of the rows, heaviest first")
    right.set_ylabel("share of all weight")
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    return figures.titled(figure, title)
