"""The results of `seqdec sweep`: a table with one row for each cell, and a figure."""

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from seqdec.statistics import mean_and_margin, with_margin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CELL = ["environment", "environment_settings", "agent", "settings"]
"""The columns that tell one cell from another."""
_MEASURES = {"reward": "reward", "last_reward": "reward a step, last tenth", "regret": "regret"}
_CELLS, _ENVIRONMENTS = 20, 30
"""The largest number of cells of an environment, and of environments, that the figure shows."""


def summarize(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell: means over seeds with the 95% half-widths `_95`."""
    rows = []
    cell: Any
    for cell, group in table.groupby(CELL, sort=False):
        row: dict[str, Any] = {**dict(zip(CELL, cell, strict=True)), "seeds": len(group)}
        for name in _MEASURES:
            mean, margin = mean_and_margin(group[name].to_numpy())
            row |= {name: float(mean), f"{name}_95": float(margin)}
        rows.append(row | {"rejected": int(group["rejected"].to_numpy().sum())})
    return pd.DataFrame(rows)


def readable(summary: pd.DataFrame) -> pd.DataFrame:
    """The table of `summarize` as strings, the highest reward of each environment first."""
    place = ["environment", "environment_settings"]
    ordered = summary.sort_values([*place, "reward"], ascending=[True, True, False], kind="stable", ignore_index=True)
    columns: dict[str, Any] = {
        "environment": _labels(ordered, *place),
        "agent": ordered["agent"],
        "settings": [short(settings) for settings in ordered["settings"]],
    }
    for name, title in _MEASURES.items():
        columns[title] = with_margin(ordered[name].to_numpy(), ordered[f"{name}_95"].to_numpy())
    return pd.DataFrame({**columns, "rejected": ordered["rejected"]})


def short(settings: str) -> str:
    """Settings in words, such as rank=10, policy=greedy."""
    return ", ".join(f"{name}={value}" for name, value in json.loads(settings).items())


def _labels(table: pd.DataFrame, name: str, settings: str) -> list[str]:
    """Names with their settings."""
    return [f"{one} {short(more)}".strip() for one, more in zip(table[name], table[settings], strict=True)]


def rewards_figure(summary: pd.DataFrame) -> "Figure":
    """Reward of each cell (mean, 95% interval), a panel for each environment, the best cells from the top."""
    from matplotlib.figure import Figure

    from seqdec import figures

    labels = _labels(summary, "environment", "environment_settings")
    groups = list(summary.groupby(labels, sort=False))
    sizes = [min(_CELLS, len(group)) for _, group in groups[:_ENVIRONMENTS]]
    height = 0.8 + sum(0.9 + 0.24 * size for size in sizes)
    figure = Figure(figsize=(8.2, height), dpi=140, layout="constrained")
    axes = figure.subplots(len(sizes), squeeze=False, height_ratios=[2 + size for size in sizes])[:, 0]
    everywhere = list(dict.fromkeys(_labels(summary, "agent", "settings")))
    for axis, (name, group) in zip(axes, groups, strict=False):
        best = group.nlargest(_CELLS, "reward")
        margins = np.nan_to_num(best["reward_95"].to_numpy())
        figures.intervals(axis, _labels(best, "agent", "settings"), best["reward"].to_numpy(), margins, everywhere)
        shown = f"{name}: best {_CELLS} of {len(group)} cells" if len(group) > _CELLS else str(name)
        axis.set_title(shown, **figures.TITLE)
        axis.set_xlabel("reward of all steps")
    title = f"Sweep · {figures.mean_and_interval(int(summary['seeds'].to_numpy().max()))}"
    title += f" · {_ENVIRONMENTS} of {len(groups)} environments" if len(groups) > _ENVIRONMENTS else ""
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    return figure
