"""The table and the figure of the optimizers' curves."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

from seqdec.statistics import mean_and_margin, with_margin

BASELINE = "adamw"
CHUNKS = 40
"""Points of a curve."""
_DIVERGED = 100.0
"""Nats: the loss of a run that ends above it counts as infinite."""


def summary(curves: pd.DataFrame) -> pd.DataFrame:
    """One row for each task and optimizer, over the reported seeds.

    Columns: best_rate, best_decay, edge (the best rate lies at the end of its grid); loss over the last tenth of the
    steps, test_loss, test_accuracy, perplexity, each with the half-width `_95` of its 95% t-interval over seeds;
    ahead_steps and ahead_time, by how much the loss lies below AdamW's (paired over seeds) after as many steps and
    after as much time; ahead_accuracy and ahead_perplexity, by how much these are better than AdamW's at the end;
    ms_per_step and its ratio to AdamW's; state, numbers kept per parameter, and state_bytes of all of them.
    """
    reported = curves.loc[~curves["sweep"]]
    rows = []
    for (task, name), group in reported.groupby(["task", "optimizer"], sort=False):  # pyright: ignore
        base = reported.loc[(reported["task"] == task) & (reported["optimizer"] == BASELINE)]
        runs, base_runs = _by_seed(group), _by_seed(base)
        row: dict[str, Any] = {"task": task, "optimizer": name}
        row |= {key: column(group, key)[0] for key in ("best_rate", "best_decay", "edge", "validation")}
        row["by_perplexity"] = column(group, "perplexity")[0]
        samples = {
            "loss": [end_of(run) for run in runs],
            "test_loss": [_test_loss(run) for run in runs],
            "test_accuracy": [_accuracy(run) for run in runs],
            "perplexity": [np.exp(_test_loss(run)) for run in runs],
            "ahead_steps": [end_of(b) - end_of(run) for run, b in zip(runs, base_runs, strict=True)],
            "ahead_time": [_ahead_in_time(run, b) for run, b in zip(runs, base_runs, strict=True)],
            "ahead_accuracy": [_accuracy(run) - _accuracy(b) for run, b in zip(runs, base_runs, strict=True)],
            "ahead_perplexity": [
                np.exp(_test_loss(b)) - np.exp(_test_loss(run)) for run, b in zip(runs, base_runs, strict=True)
            ],
        }
        for key, values in samples.items():
            with np.errstate(invalid="ignore"):  # of runs that diverged
                mean, margin = mean_and_margin(np.asarray(values, float))
            row |= {key: float(mean), f"{key}_95": float(margin)}
        row["ms_per_step"] = column(group, "ms_per_step").min()
        row["time_ratio"] = row["ms_per_step"] / column(base, "ms_per_step").min()
        row["state"] = column(group, "state")[0] / column(group, "parameters")[0]
        row["state_bytes"] = column(group, "state_bytes")[0]
        rows.append(row)
    return pd.DataFrame(rows)


def column(frame: pd.DataFrame, name: str) -> np.ndarray:
    """The values of one column."""
    return frame[name].to_numpy()


def _by_seed(frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [run for _, run in frame.groupby("seed")]


def _ahead_in_time(run: pd.DataFrame, base: pd.DataFrame) -> float:
    """How much lower the loss is than the baseline's at the moment when the quicker of the two is done."""
    moment = min(column(run, "seconds")[-1], column(base, "seconds")[-1])
    return _loss_at(base, moment) - _loss_at(run, moment)


def _loss_at(run: pd.DataFrame, moment: float) -> float:
    """Mean loss over the tenth of the run that ends at a moment."""
    done = max(1, int(np.searchsorted(column(run, "seconds"), moment, side="right")))
    return settled(column(run, "loss")[max(0, done - CHUNKS // 10) : done])


def end_of(frame: pd.DataFrame) -> float:
    """Training loss over the last tenth of a run; infinite where it diverged."""
    return settled(column(frame, "loss")[-CHUNKS // 10 :])


def cost_of(frame: pd.DataFrame, perplexity: bool) -> float:
    """What a run with validation is chosen by: the loss, or one minus the accuracy, on held-out data at its end."""
    return _test_loss(frame) if perplexity else 1 - _accuracy(frame)


def _test_loss(frame: pd.DataFrame) -> float:
    return settled(column(frame, "test_loss")[-1:])


def _accuracy(frame: pd.DataFrame) -> float:
    return float(column(frame, "test_accuracy")[-1])


def settled(losses: np.ndarray) -> float:
    """Their mean; infinite where the run diverged."""
    loss = float(losses.mean())
    return loss if loss < _DIVERGED else np.inf


def markdown(task: str, table: pd.DataFrame) -> str:
    """The rows of one task for people, the best first."""
    order = _order(table)
    table = table.sort_values(order, ascending=order != "test_accuracy")
    rates = [f"{rate:.2g}" + " (edge)" * edge for rate, edge in zip(table["best_rate"], table["edge"], strict=True)]
    cells = {"optimizer": table["optimizer"], "rate": rates}
    if order != "loss":
        ahead = {"test_accuracy": "ahead_accuracy", "perplexity": "ahead_perplexity"}[order]
        cells["decay"] = [f"{decay:.2g}" for decay in table["best_decay"]]
        title, unit = ("perplexity", 1) if order == "perplexity" else ("test accuracy / %", 100)
        cells[title] = with_margin(unit * table[order].to_numpy(), unit * table[f"{order}_95"].to_numpy())
        cells["ahead of AdamW"] = with_margin(unit * table[ahead].to_numpy(), unit * table[f"{ahead}_95"].to_numpy())
        cells["train loss"] = with_margin(table["loss"].to_numpy(), table["loss_95"].to_numpy())
        return _rows(task, cells | _costs(table))
    cells |= {
        "train loss": with_margin(table["loss"].to_numpy(), table["loss_95"].to_numpy()),
        "test loss": with_margin(table["test_loss"].to_numpy(), table["test_loss_95"].to_numpy()),
        "test accuracy": with_margin(table["test_accuracy"].to_numpy(), table["test_accuracy_95"].to_numpy()),
        "ahead of AdamW, steps": with_margin(table["ahead_steps"].to_numpy(), table["ahead_steps_95"].to_numpy()),
        "ahead, time": with_margin(table["ahead_time"].to_numpy(), table["ahead_time_95"].to_numpy()),
    }
    return _rows(task, cells | _costs(table))


def _order(table: pd.DataFrame) -> str:
    """The column by which the rows of one task are compared."""
    if not table["validation"].iloc[0]:
        return "loss"
    return "perplexity" if table["by_perplexity"].iloc[0] else "test_accuracy"


def _costs(table: pd.DataFrame) -> dict[str, Any]:
    return {
        "ms / step": [f"{ms:.1f}" for ms in table["ms_per_step"]],
        "of AdamW's": [f"{ratio:.2f}" for ratio in table["time_ratio"]],
        "state / kB": [f"{size / 1e3:,.1f}" for size in table["state_bytes"]],
        "state / parameters": [f"{state:.2f}" for state in table["state"]],
    }


def _rows(task: str, cells: dict[str, Any]) -> str:
    columns = list(cells)
    lines = [f"**{task}**", "", "| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in zip(*cells.values(), strict=True)]
    return "\n".join(lines)


_COLORS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


def picture(curves: pd.DataFrame, table: pd.DataFrame) -> "Figure":
    """Training loss, or with validation the error rate or perplexity on held-out data, of AdamW and the six best.

    Against step and against time; and the end of all optimizers' sweeps against the learning rate, with its best decay.
    """
    table = table.sort_values(_order(table), ascending=_order(table) != "test_accuracy")
    best = [name for name in table["optimizer"] if name != BASELINE][: len(_COLORS) - 1]
    colors = dict(zip([BASELINE, *best], _COLORS, strict=False))
    from matplotlib.figure import Figure

    from seqdec import figures
    from seqdec.ticks import plain_ticks

    figure = Figure(figsize=(14, 4.6), dpi=140, layout="constrained")
    by_step, by_time, by_rate = figure.subplots(1, 3)
    for name, color in colors.items():
        runs = [_drawn(run) for run in _by_seed(curves.loc[(curves["optimizer"] == name) & ~curves["sweep"]])]
        mean, margin = mean_and_margin(np.stack([column(run, "drawn") for run in runs]))
        seconds = np.mean([column(run, "seconds") for run in runs], axis=0)
        for axes, x in ((by_step, column(runs[0], "step")), (by_time, seconds)):
            axes.plot(x, mean, color=color, label=name, lw=1.6)
            axes.fill_between(x, mean - margin, mean + margin, color=color, alpha=0.13, lw=0)
    for name in dict.fromkeys(curves["optimizer"]):
        sweep = curves.loc[(curves["optimizer"] == name) & curves["sweep"]]
        rates = np.unique(column(sweep, "rate"))
        ends = [
            min(column(_drawn(run), "drawn")[-1] for _, run in sweep.loc[sweep["rate"] == rate].groupby("decay"))
            for rate in rates
        ]
        by_rate.plot(rates / rates[len(rates) // 2], ends, "o-", color=colors.get(name, "0.8"), lw=1.2, ms=3)
    what, unit = _LABELS[_order(table)]
    limits = _range(_drawn(curves), unit)
    for axes, x, title in (
        (by_step, "step", f"{what} against step"),
        (by_time, "run time without compilation / s", f"{what} against time"),
        (by_rate, "learning rate over the middle of its grid", "End of the sweep's runs; others gray"),
    ):
        axes.set_title(title, fontsize=11, loc="left")
        axes.set(xlabel=x, ylabel=unit, **({"yscale": "log", "ylim": limits} if limits else {}))
        axes.grid(axis="y", which="both", color="0.92", lw=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    by_rate.set_xscale("log")
    for axes in (by_step, by_time, by_rate):
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis)
    figures.legend(figure, [by_step], list(colors))
    task = str(curves["task"].iloc[0])
    seeds = curves.loc[~curves["sweep"], "seed"].nunique()
    figure.suptitle(f"{task} · {figures.mean_and_interval(seeds)}", fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure


_LABELS = {
    "loss": ("Training loss", "cross-entropy / nats"),
    "test_accuracy": ("Held-out data", "error rate"),
    "perplexity": ("Held-out data", "perplexity"),
}


def _drawn(curves: pd.DataFrame) -> pd.DataFrame:
    """The points of curves that a picture shows, with the column `drawn`, of which less is better."""
    if not column(curves, "validation")[0]:
        smooth = [_smooth(column(run, "loss")) for _, run in curves.groupby(_RUN, sort=False)]
        return curves.assign(drawn=np.concatenate(smooth))
    judged = curves.loc[curves["judged"]]
    if column(curves, "perplexity")[0]:
        return judged.assign(drawn=np.exp(np.minimum(judged["test_loss"], _DIVERGED)))
    return judged.assign(drawn=1 - judged["test_accuracy"])


_RUN = ["optimizer", "sweep", "rate", "decay", "seed"]


def _smooth(losses: np.ndarray) -> np.ndarray:
    """Mean of the last tenth of the run's points, at every point."""
    return np.array([losses[max(0, i + 1 - CHUNKS // 10) : i + 1].mean() for i in range(len(losses))])


def _range(drawn: pd.DataFrame, unit: str) -> tuple[float, float] | None:
    """Limits of a logarithmic axis: from the least to a little above where the runs begin; None without any above 0."""
    values, steps = column(drawn, "drawn"), column(drawn, "step")
    shown = np.isfinite(values) & (values > 0)
    if not shown.any():
        return None
    first = steps[shown] == steps[shown].min()
    low, high = 0.8 * max(float(values[shown].min()), 1e-4), 1.5 * float(np.median(values[shown][first]))
    return low, max(2 * low, min(high, 1.0) if unit == "error rate" else high)
