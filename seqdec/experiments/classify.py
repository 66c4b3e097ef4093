"""Online classification of images with full information."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from seqdec import envs, likelihoods
from seqdec.checks import choice
from seqdec.core import Environment
from seqdec.experiments.bandits import Options
from seqdec.experiments.folder import load_runs, write_summary
from seqdec.results import Run, compare, readable
from seqdec.statistics import mean_and_margin, with_margin

DATASETS = ("digits", "mnist", "fashion-mnist")


@dataclass(frozen=True, kw_only=True)
class Classify(Options):
    """Online classification: each label is shown once the agent has guessed it; reports one-step-ahead accuracy."""

    name: ClassVar[str] = "classify"

    dataset: str = "digits"
    """Images to classify: digits, mnist or fashion-mnist."""
    agents: str = "hilofi,lolofi,lrkf"
    policy: str | None = "greedy"
    steps: int = 1797
    seeds: int = 3
    out: Path = Path("results/classify")

    def environment(self) -> Environment:
        """The images with their labels as feedback."""
        choice("dataset", self.dataset, DATASETS)
        return envs.make(self.dataset, full_information=True)

    def response(self) -> dict[str, Any]:
        """Responses are the logits of a categorical distribution."""
        return {"likelihood": likelihoods.categorical()}

    @staticmethod
    def report(folder: Path) -> str:
        """Write summary.csv and the figures of the runs in `folder`; returns the accuracies as text."""
        import pandas as pd

        from seqdec import figures

        runs = load_runs(folder)
        table, accuracies = compare(runs), _accuracies(runs)
        accuracy = pd.DataFrame(accuracies, index=table.index)
        pictures = {"comparison.png": figures.comparison(runs), "accuracy.png": figures.accuracy(runs)}
        write_summary(folder, accuracy.join(table), pictures)
        titles = {"accuracy": "accuracy / %", "recent_accuracy": f"last {figures.window(runs):,} steps / %"}
        cells = {
            title: with_margin(100 * accuracies[name], 100 * accuracies[f"{name}_95"]) for name, title in titles.items()
        }
        shown = pd.DataFrame(cells, index=table.index).rename_axis(None)
        return shown.join(readable(table)[["s / 1,000 steps", "compile s", "rejected"]]).to_string()


def _accuracies(runs: Mapping[str, Run]) -> dict[str, np.ndarray]:
    """One-step-ahead accuracy of each run over all steps and over the last window, with 95% half-widths over seeds."""
    from seqdec import figures

    columns = {}
    for name, start in (("accuracy", 0), ("recent_accuracy", -figures.window(runs))):
        rows = [mean_and_margin(run.rewards[:, start:].mean(axis=1, dtype=np.float64)) for run in runs.values()]
        columns |= {name: np.array([row[0] for row in rows]), f"{name}_95": np.array([row[1] for row in rows])}
    return columns
