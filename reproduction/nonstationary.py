"""A bandit on images whose labels are permuted repeatedly: which agent recovers fastest.

DIR/manifest.json, runs/       options; all steps of each agent
DIR/summary.csv                rewards, and the steps to recover, with 95% intervals over seeds
DIR/recovery.png               reward against steps since a change, averaged over the changes
DIR/comparison.png             the whole runs
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from reproduction.images import Images
from seqdec import envs
from seqdec.commands.base import check_minimum
from seqdec.commands.folder import load_runs, read_manifest, write_summary
from seqdec.core import Environment
from seqdec.introspection import fitted
from seqdec.results import Run, compare, readable
from seqdec.statistics import column_text, summarized

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEVEL = 0.9
"""Share of the reward before a change at which an agent has recovered."""


@dataclass(frozen=True, kw_only=True)
class Nonstationary(Images):
    """Bandit on images whose ten labels are permuted every PERIOD steps: which agent recovers fastest.

    Images other than digits are downloaded if missing. On one core, 1,000 steps take 3 to 11 seconds with most agents.
    Example: seqdec run nonstationary --dataset digits --steps 8000 --period 2000
    """

    name: ClassVar[str] = "nonstationary"
    quick_options: ClassVar[Mapping[str, Any]] = {"dataset": "digits", "steps": 1500, "period": 500, "seeds": 5}

    agents: str = "auto,hilofi,lolofi,lrkf,replay_adamw"
    steps: int = 20_000
    period: int = 5000
    """Steps between changes."""
    seeds: int = 3
    out: Path = Path("results/nonstationary")

    def names(self) -> list[str]:
        check_minimum(self, period=10)
        if self.steps < 2 * self.period:
            raise ValueError(f"steps must be at least two periods of {self.period}; got {self.steps}")
        return super().names()

    def environment(self) -> Environment:
        """The images, whose labels change."""
        return envs.nonstationary(self.plain(), range(self.period, self.steps, self.period))

    @classmethod
    def report(cls, folder: Path) -> str:
        from seqdec import figures

        runs, period = load_runs(folder), read_manifest(folder)["options"]["period"]
        table, found = compare(runs), recovery(runs, period)
        shown = {"comparison.png": figures.comparison(runs), "recovery.png": recovery_figure(runs, period)}
        write_summary(folder, found.join(table), shown)
        titles = {"before": "reward a step before", "after": "in the period after", "recovered": "steps to recover"}
        cells = {title: column_text(found, name) for name, title in titles.items()}
        return fitted(pd.DataFrame(cells, index=found.index).rename_axis(None).join(readable(table)))


def aligned(run: Run, period: int) -> tuple[np.ndarray, np.ndarray]:
    """Rewards before and after each change, (seeds, changes, period) each; a last period that is cut short is left out.

    Raises ValueError for a run that ended before the period after the first change was over.
    """
    whole = run.rewards.shape[1] // period
    if whole < 2:
        raise ValueError(f"{run.agent} has done {run.rewards.shape[1]} steps, less than two periods of {period}")
    periods = run.rewards[:, : whole * period].reshape(len(run.rewards), whole, period)
    return periods[:, :-1], periods[:, 1:]


def recovery(runs: Mapping[str, Run], period: int) -> pd.DataFrame:
    """One row for each agent: means over changes, and over seeds with the 95% half-widths `_95`.

    Columns: before, reward a step in the last quarter of the period before a change; after, in the period after it;
    recovered, steps after the change until the mean of the last twentieth of a period reaches 90% of `before`, the
    whole period where it never does.
    """
    from seqdec import figures

    rows = {}
    for name, run in runs.items():
        earlier, later = aligned(run, period)
        level = earlier[:, :, -max(1, period // 4) :].mean(axis=2)
        length = max(1, period // 20)
        means = figures.rolling(later.reshape(-1, period), length).reshape(*later.shape[:2], -1)
        reached = means >= _LEVEL * level[:, :, None]
        first = np.where(reached.any(axis=2), length + reached.argmax(axis=2), period)
        measures = {"before": level, "after": later.mean(axis=2), "recovered": first}
        rows[name] = summarized({key: values.mean(axis=1, dtype=np.float64) for key, values in measures.items()})
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("agent")


def recovery_figure(runs: Mapping[str, Run], period: int) -> "Figure":
    """Reward against steps since a change, averaged over the changes and a sliding window; 95% band over seeds."""
    from matplotlib.figure import Figure

    from seqdec import figures

    figure = Figure(figsize=(8.2, 4.8), dpi=140, layout="constrained")
    axis, length = figure.subplots(), max(1, period // 20)
    possible = figures.extremes(run.rewards for run in runs.values())
    for style, (name, run) in zip(figures.styles(runs), runs.items(), strict=True):
        rewards = aligned(run, period)[1].mean(axis=1, dtype=np.float64)
        steps = np.arange(1, period + 1)[length - 1 :]
        figures.curve(axis, steps, figures.rolling(rewards, length), name, style, possible)
    title = f"Reward after the labels are permuted, mean of the last {length:,} steps"
    figures.finish_axis(axis, title, "steps since the change", "reward per step")
    figures.legend(figure, [axis], list(runs))
    return figures.titled(figure, figures.title(runs))
