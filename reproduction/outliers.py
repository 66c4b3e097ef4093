"""A bandit on images, some of whose rewards are reported as their opposite: how much that costs each agent.

Every agent plays two streams with the same contexts: a clean one, as the run AGENT.clean, and one with outliers.
Rewards are the reported ones; regret is computed from the true ones in both.

DIR/manifest.json, runs/       options; all steps of each agent on each stream
DIR/summary.csv                true rewards on both streams and their paired difference, with 95% intervals over seeds
DIR/loss.png                   true reward lost to outliers, and regret on both streams
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from reproduction.images import Images
from seqdec import envs
from seqdec.commands.bandits import Plan
from seqdec.commands.folder import load_runs, write_summary
from seqdec.core import Environment
from seqdec.introspection import fitted
from seqdec.results import Run
from seqdec.statistics import column_text, percent, summarized

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CLEAN = ".clean"


@dataclass(frozen=True, kw_only=True)
class Outliers(Images):
    """Bandit on images with and without flipped rewards: how much true reward each agent loses to outliers.

    Images other than digits are downloaded if missing. On one core, 1,000 steps take 3 to 11 seconds with most agents.
    Example: seqdec run outliers --dataset digits --steps 2000
    """

    name: ClassVar[str] = "outliers"
    quick_options: ClassVar[Mapping[str, Any]] = {"dataset": "digits", "steps": 600, "seeds": 5}

    agents: str = "hilofi,hilofi.rehearsal,lrkf,auto,replay_adamw"
    steps: int = 10_000
    seeds: int = 3
    out: Path = Path("results/outliers")
    share: float = 0.05
    """Share of the rewards that are flipped."""

    def environment(self) -> Environment:
        """The images with outliers."""
        return envs.outliers(self.plain(), share=self.share)

    def play(self, plan: Plan, finished: Sequence[tuple[str, Run]]) -> Iterator[tuple[str, Run]]:
        clean = self.plain()
        for name, agent in plan.agents.items():
            yield from super().play(plan._replace(env=clean, agents={name + _CLEAN: agent}), finished)
            yield from super().play(plan._replace(agents={name: agent}), finished)

    @classmethod
    def report(cls, folder: Path) -> str:
        runs = load_runs(folder)
        table = losses(runs)
        write_summary(folder, table, {"loss.png": loss_figure(runs)} if len(table) else {})
        titles = {"clean": "clean reward", "reward": "with outliers", "lost": "lost", "lost_share": "lost / %"}
        cells = {title: column_text(table, name) for name, title in titles.items()}
        return fitted(pd.DataFrame(cells, index=table.index).rename_axis(None))


def pairs(runs: Mapping[str, Run]) -> dict[str, tuple[Run, Run]]:
    """Agent -> its runs on the clean stream and on that with outliers, cut to the seeds and steps that both have."""
    found = {}
    for name in runs:
        if name + _CLEAN in runs:
            both = runs[name + _CLEAN], runs[name]
            seeds, steps = (min(run.regret.shape[axis] for run in both) for axis in (0, 1))
            found[name] = tuple(
                run.replace(
                    seeds=run.seeds[:seeds],
                    rewards=run.rewards[:seeds, :steps],
                    regret=run.regret[:seeds, :steps],
                    elapsed=run.elapsed[:steps],
                )
                for run in both
            )
    return found


def losses(runs: Mapping[str, Run]) -> pd.DataFrame:
    """One row for each agent with both streams, means over seeds with the 95% half-widths `_95`.

    Columns: clean and reward, true rewards without and with outliers (steps - regret: the best reward is 1); lost,
    their difference, paired by seed; lost_share, that in percent of the clean reward.
    """
    rows = {}
    for name, (clean, flipped) in pairs(runs).items():
        best = clean.regret.shape[1]
        without, with_outliers = (best - run.regret.sum(axis=1, dtype=np.float64) for run in (clean, flipped))
        lost = without - with_outliers
        samples = {"clean": without, "reward": with_outliers, "lost": lost, "lost_share": percent(lost, without)}
        rows[name] = summarized(samples)
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("agent")


def loss_figure(runs: Mapping[str, Run]) -> "Figure":
    """True reward lost to outliers so far (paired, 95% band), and regret with outliers; clean regret is pale."""
    from seqdec import figures

    both = pairs(runs)
    figure, (lost, regret) = figures.panels(["lost", "regret"])
    for style, (name, (clean, flipped)) in zip(figures.styles(both), both.items(), strict=True):
        without, with_outliers = (np.cumsum(run.regret, axis=1, dtype=np.float64) for run in (clean, flipped))
        steps = figures.steps(clean)
        figures.curve(lost, steps, with_outliers - without, name, style, (-steps, steps))
        figures.curve(regret, steps, with_outliers, name, style, (0.0, steps))
        figures.curve(regret, steps, without, "", style | {"alpha": 0.35}, None)
    figures.finish_axis(lost, "True reward lost to outliers", "step", "reward")
    figures.finish_axis(regret, "Regret of the true rewards; pale: clean", "step", "regret")
    figures.legend(figure, [lost], list(both))
    return figures.titled(figure, figures.title({name: flipped for name, (_, flipped) in both.items()}))
