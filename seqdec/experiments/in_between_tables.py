"""The table and the figures of the predictive bands between and outside the data.

`bands` has the columns data, filter, seed, observations, epochs, where, x, y, mean, std (epistemic) and noise (its
variance).
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from seqdec.statistics import mean_and_margin, with_margin

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_STAGE = ["observations", "epochs"]


def kind_of(name: str) -> str:
    """The kind of a filter: hilofi of hilofi:50.published."""
    return name.partition(".")[0].partition(":")[0]


def final(bands: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last stage of each filter."""
    last = bands.groupby("filter")[_STAGE].transform("max")
    return bands.loc[(bands[_STAGE] == last).all(axis=1)]


def summarize(bands: pd.DataFrame) -> pd.DataFrame:
    """One row for each data set and filter, at the last stage: means over seeds and 95% half-widths `_95`.

    Columns: at_data, in_gap, the median deviations there; outside, the smaller of those a third of the data's width
    beyond either end; gap_ratio and outside_ratio to that at the data; coverage, the share of held-out points within
    the 95% band (noise included), and gap_coverage, that of the points in the gap; rmse, root mean squared error of the
    mean at held-out points.
    """
    rows = []
    groups: Any = final(bands).groupby(["data", "filter"], sort=False)
    for (data, name), group in groups:
        seeds = [_measures(run) for _, run in group.groupby("seed")]
        row: dict[str, Any] = {"data": data, "filter": name}
        for key in seeds[0]:
            mean, margin = mean_and_margin(np.array([seed[key] for seed in seeds]))
            row |= {key: float(mean), f"{key}_95": float(margin)}
        rows.append(row)
    return pd.DataFrame(rows).set_index(["data", "filter"])


def _measures(run: pd.DataFrame) -> dict[str, float]:
    """Those of one seed."""
    at: dict[str, Any] = {where: run.loc[run["where"] == where] for where in ("grid", "data", "held out", "gap")}
    low, high = at["data"]["x"].min(), at["data"]["x"].max()
    ends = np.interp([low - (high - low) / 3, high + (high - low) / 3], at["grid"]["x"], at["grid"]["std"])
    known, between, outside = float(at["data"]["std"].median()), float(at["gap"]["std"].median()), float(ends.min())
    with np.errstate(divide="ignore", invalid="ignore"):  # a filter may be certain at the data
        gap_ratio, outside_ratio = np.divide([between, outside], known)
    covered = {
        where: float(np.mean(np.abs(at[where]["y"] - at[where]["mean"]) <= 1.96 * total_std(at[where])))
        for where in ("held out", "gap")
    }
    return {
        "at_data": known,
        "in_gap": between,
        "outside": outside,
        "gap_ratio": float(gap_ratio),
        "outside_ratio": float(outside_ratio),
        "coverage": covered["held out"],
        "gap_coverage": covered["gap"],
        "rmse": float(np.sqrt(np.mean((at["held out"]["y"] - at["held out"]["mean"]) ** 2))),
    }


def total_std(rows: pd.DataFrame) -> np.ndarray:
    """Deviation of an observation: epistemic variance and noise."""
    return np.sqrt(rows["std"].to_numpy() ** 2 + rows["noise"].to_numpy())


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """The table of `summarize` as strings."""
    titles = {
        "at_data": ("std at data", 1),
        "gap_ratio": ("gap / data", 1),
        "outside_ratio": ("outside / data", 1),
        "coverage": ("covered / %", 100),
        "gap_coverage": ("in the gap / %", 100),
        "rmse": ("error", 1),
    }
    cells = {
        title: with_margin(factor * table[name].to_numpy(), factor * table[f"{name}_95"].to_numpy())
        for name, (title, factor) in titles.items()
    }
    return pd.DataFrame(cells, index=table.index)


def bands_figure(bands: pd.DataFrame, data: str, kind: str) -> "Figure":
    """Mean and 95% bands of the first seed, epistemic and with noise: a row for each filter, a column by stage."""
    from matplotlib.figure import Figure

    from seqdec import figures

    first = bands.loc[(bands["data"] == data) & (bands["seed"] == bands["seed"].min())]
    names = [name for name in dict.fromkeys(first["filter"]) if kind_of(name) == kind]
    own = first.loc[first["filter"].isin(names)]
    stages = sorted(set(own[_STAGE].itertuples(index=False, name=None)))
    figure = Figure(figsize=(1.0 + 3.6 * len(stages), 1.0 + 2.3 * len(names)), dpi=140, layout="constrained")
    axes = figure.subplots(len(names), len(stages), sharex=True, sharey=True, squeeze=False)
    color = figures.styles([kind])[0]["color"]
    for row, name in zip(axes, names, strict=True):
        for axis, (observations, epochs) in zip(row, stages, strict=True):
            at_stage = (own["observations"] == observations) & (own["epochs"] == epochs)
            here = own.loc[at_stage & (own["filter"] == name)]
            grid, seen = here.loc[here["where"] == "grid"], here.loc[here["where"] == "data"].iloc[:observations]
            for deviation, alpha in ((grid["std"].to_numpy(), 0.3), (total_std(grid), 0.15)):
                low, high = grid["mean"] - 1.96 * deviation, grid["mean"] + 1.96 * deviation
                axis.fill_between(grid["x"], low, high, color=color, alpha=alpha, lw=0)
            axis.plot(grid["x"], grid["mean"], color=color, lw=1.6)
            axis.plot(seen["x"], seen["y"], "k.", ms=3)
            which = name.removeprefix(kind).lstrip(":.").replace(".", ", ")
            parts = [f"rank {which}" if ":" in name else which, f"{observations} observations"]
            parts += [f"{epochs:,} epochs"] if epochs > 1 else []
            figures.finish_axis(axis, ", ".join(filter(None, parts)), "", "")
    for axis in axes[-1]:
        axis.set_xlabel("input")
    for axis in axes[:, 0]:
        axis.set_ylabel("response")
    reach = 3 * float(np.abs(first.loc[first["where"] == "data", "y"]).max())
    axes[0, 0].set_ylim(-reach, reach)
    title = f"{data} · {kind} · first seed, mean, 95% bands of the mean and of an observation"
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    figures.note(figure, _PUBLISHED[kind])
    return figure


_PUBLISHED = {
    "hilofi": "Paper, Figures 1, 15 and 16 (R = 0): the band covers -10 to 10 at first, narrows at the data by 30 "
    "observations, and by 120 is wide only away from the data. Rank 1 shows nothing between them, rank 50 does.",
    "lrkf": "Paper, Figures 17 and 18 (R = 0): LRKF needs a rank of 200 for what HiLoFi shows with 50; rank 10 has no "
    "band.",
    "vbll": "Paper, Figure 19: VBLL, trained on all observations at once, takes about 10,000 epochs to converge.",
}


def deviation_figure(bands: pd.DataFrame) -> "Figure":
    """Epistemic deviation against input at the last stage, mean over seeds, a panel for each data set."""
    from seqdec import figures

    last = final(bands)
    last = last.loc[last["where"] == "grid"]
    names = list(dict.fromkeys(last["data"]))
    figure, axes = figures.panels(names)
    filters_shown = list(dict.fromkeys(last["filter"]))
    for data, axis in zip(names, axes, strict=True):
        for style, name in zip(figures.styles(filters_shown), filters_shown, strict=True):
            here = last.loc[(last["data"] == data) & (last["filter"] == name)]
            runs: Any = [run for _, run in here.groupby("seed")]
            inputs = np.mean([run["x"] for run in runs], axis=0)
            figures.curve(axis, inputs, np.stack([run["std"] for run in runs]), name, style, (0.0, np.inf))
        points = bands.loc[(bands["data"] == data) & (bands["where"] == "data"), "x"].unique()
        axis.plot(points, np.zeros_like(points), "|", color="0.4", ms=8, zorder=0, clip_on=False)
        figures.finish_axis(axis, data, "input; ticks: data", "epistemic deviation")
        axis.set_ylim(bottom=0)
    figures.legend(figure, axes, filters_shown)
    title = f"Deviation of the expected response · {figures.bands(last['seed'].nunique())}"
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure
