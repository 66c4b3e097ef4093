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
_SHOWN = 20
"""Cells of an environment that the figure shows."""


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
    from seqdec import figures

    groups = dict(list(summary.groupby(_labels(summary, "environment", "environment_settings"), sort=False)))
    figure, axes = figures.panels(list(map(str, groups)))
    for axis, (name, group) in zip(axes, groups.items(), strict=True):
        best = group.nlargest(_SHOWN, "reward")
        margins = np.nan_to_num(best["reward_95"].to_numpy())
        figures.intervals(axis, _labels(best, "agent", "settings"), best["reward"].to_numpy(), margins)
        shown = f"{name}: best {_SHOWN} of {len(group)} cells" if len(group) > _SHOWN else str(name)
        axis.set_title(shown, **figures.TITLE)
        axis.set_xlabel(f"reward, mean and 95% interval of {group['seeds'].max()} seeds")
    return figure
