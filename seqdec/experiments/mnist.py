"""The bandit on the images of MNIST."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from seqdec.experiments.bandits import Bandit, pictures
from seqdec.results import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class MNIST(Bandit):
    """Bandit on the 60,000 images of MNIST with LeNet5: ten arms, reward 1 for the right one."""

    name: ClassVar[str] = "mnist"
    quick_options: ClassVar[Mapping[str, Any]] = {"steps": 500, "seeds": 1}
    published: ClassVar[Mapping[str, str]] = {
        "comparison.png": "Paper, Table 2, rewards in 40,000 steps: HiLoFi 31,168, LoLoFi 30,038, LRKF 28,355, LoFi "
        "23,185, last-layer Laplace 13,922. Figures 8 and 9, regret against time: LRKF is faster than LoLoFi, LoLoFi "
        "than HiLoFi; epsilon-greedy is faster than sampling; AdamW and Muon have the most regret.",
        "average.png": "Paper, Figure 2: HiLoFi, LoLoFi and LRKF, in this order, earn most.",
    }
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        # HiLoFi: found by `seqdec tune`, rounded. A tight prior on the last layer keeps its weights small, and with
        # them the gradients that train the layers below; a wide prior on the hidden layers explores at the start.
        "hilofi": {
            "noise_variance": 0.0015,
            "initial_std_hidden": 2.1,
            "initial_std_last": 0.0065,
            "process_noise_hidden": 6e-4,
            "process_noise_last": 0.0,
            "average": 0.99,
        },
        "lolofi": {
            "policy": "epistemic_sampling",
            "initial_std_last": 0.1,
            "process_noise_hidden": 3e-4,
            "average": 0.99,
        },
        "lrkf": {"policy": "epistemic_sampling", "process_noise": 3e-4, "average": 0.99},
        # Features of pixels up to 255 are large: with a prior of 1, twenty images leave every choice to chance.
        "last_layer_laplace": {"prior_std": 0.01},
    }

    agents: str = "auto,hilofi,lolofi,lrkf,lofi,last_layer_laplace,replay_adamw"
    steps: int = 5000
    seeds: int = 1
    out: Path = Path("results/mnist")

    @staticmethod
    def pictures(runs: Mapping[str, Run]) -> dict[str, "Figure"]:
        """Those of every bandit, and the average reward since the start."""
        return {**pictures(runs), "average.png": average_figure(runs)}


@dataclass(frozen=True, kw_only=True)
class FashionMNIST(MNIST):
    """Bandit on the 60,000 images of Fashion-MNIST with LeNet5, with the settings of `mnist`."""

    name: ClassVar[str] = "fashion-mnist"
    published: ClassVar[Mapping[str, str]] = {}

    steps: int = 20_000
    out: Path = Path("results/fashion-mnist")


def average_figure(runs: Mapping[str, Run]) -> "Figure":
    """Average reward of all steps so far (mean, 95% band), every curve labelled at its end."""
    from seqdec import figures

    def average(run: figures.Run) -> np.ndarray:
        return np.cumsum(run.rewards, axis=1, dtype=np.float64) / np.arange(1, run.rewards.shape[1] + 1)

    def draw(axis, runs):
        possible = figures.extremes(run.rewards for run in runs.values())
        for style, (name, run) in zip(figures.styles(runs), runs.items(), strict=True):
            start = min(20, run.rewards.shape[1] - 1)  # means of a few rewards are too noisy to show
            figures.curve(axis, figures.steps(run)[start:], average(run)[:, start:], name, style, possible)
        figures.finish_axis(axis, "Average reward since the first step", "step", "reward per step")

    return figures.single(runs, draw, average)
