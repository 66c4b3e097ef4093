"""Figures of off-policy evaluation."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


def estimates_figure(
    table: "pd.DataFrame", logged: tuple[float, float], known: tuple[float, float] | None, title: str
) -> "Figure":
    """Estimates with intervals, beside known or observed means.

    `table` is indexed by estimator, with columns value, low, high; `logged` and `known` are (mean, standard error),
    with 95% intervals.
    """
    from matplotlib.figure import Figure

    from seqdec import figures

    figure = Figure(figsize=(8.2, 4.6), dpi=140, layout="constrained")
    axis = figure.subplots()
    values, low, high = (table[name].to_numpy() for name in ("value", "low", "high"))
    figures.intervals(axis, list(table.index), values, np.nan_to_num(np.maximum([values - low, high - values], 0)))
    for name, color, line in (("the log itself", "0.35", logged), ("the policy itself", "#D55E00", known)):
        if line is not None:
            axis.axvline(line[0], color=color, lw=1.4, label=name)
            axis.axvspan(line[0] - 1.96 * line[1], line[0] + 1.96 * line[1], color=color, alpha=0.12, lw=0)
    axis.set_xlabel("mean reward per decision, 95% intervals")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figures.titled(figure, title)


def weights_figure(weights: np.ndarray, title: str = "Weights of the rows") -> "Figure":
    """Distribution of weights (n,) of `check_target`, and the heaviest rows' share."""
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
