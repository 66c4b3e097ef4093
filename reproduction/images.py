"""Bandits on images: MNIST, Fashion-MNIST, and options of experiments with several data sets."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

from seqdec import agents, envs
from seqdec.commands.bandits import Bandit, pictures
from seqdec.commands.base import Choice
from seqdec.commands.digits import Digits
from seqdec.core import Agent, Environment
from seqdec.likelihoods import Likelihood
from seqdec.results import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RESPONSE = Likelihood(jax.nn.sigmoid, lambda f: 1e-4 * jnp.eye(len(f), dtype=f.dtype))
_FILTER = {"likelihood": _RESPONSE, "policy": "predictive_sampling"}
_LAYERS = {
    "initial_std_hidden": 0.1, "initial_std_last": 0.1, "process_noise_hidden": 1e-6, "process_noise_last": 1e-6,
}  # fmt: skip
"""Standard deviations and process noise of HiLoFi and LoLoFi in the paper's code."""
LAPLACE_MUON = "reproduction.images:laplace_muon"
PAPER: Mapping[str, Mapping[str, Any]] = {
    "hilofi": {"rank": 50, "initial_span": "first", **_LAYERS, **_FILTER},
    "lolofi": {"rank_hidden": 50, "rank_last": 100, "initial_span": "first", **_LAYERS, **_FILTER},
    "lrkf": {"rank": 50, "initial_std": 1.0, "process_noise": 1e-6, "initial_span": "first", **_FILTER},
    "lofi": {"rank": 50, "initial_std": math.exp(-4.0), "process_noise": 0.0, **_FILTER},
    "last_layer_laplace": {"learning_rate": 1e-4, "inner_steps": 5, "buffer": 1, "policy": "predictive_sampling"},
    LAPLACE_MUON: {"learning_rate": 1e-4, "inner_steps": 1, "buffer": 1, "policy": "predictive_sampling"},
    "adamw": {"learning_rate": 1e-4, "inner_steps": 5},
    "muon": {"learning_rate": 1e-4, "inner_steps": 1},
}
"""Settings of the paper's bandit on MNIST, and of its code where the paper states none (R, link, first directions) or
another: 0.1 is the standard deviation there, and the covariance in the paper."""
TUNED: Mapping[str, Mapping[str, Any]] = {
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
"""Settings that serve all images of 28 x 28 pixels."""
_FOUND: Mapping[str, Mapping[str, Any]] = {
    "replay_adamw": {"learning_rate": 0.0008248901915298038},
    "replay_muon": {"learning_rate": 0.0029909068817800554},
    "replay_sgd": {"learning_rate": 0.09993138407787698},
    "replay_koala++": {"learning_rate": 0.44802944620860374},
    "lofi": {"noise_variance": 0.000122, "initial_std": 0.0205},
    "subspace": {"noise_variance": 0.00799, "initial_std": 5.57},
    "gp": {"noise_variance": 0.000223, "length_scale": 110.0},
    "neural_linear": {"noise_variance": 1.0, "prior_std": 0.5680518096928859, "learning_rate": 0.0005275148711074191},
    "vbll": {"learning_rate": 0.00028494679341742985},
    "on_vbll": {"learning_rate": 6.391803694731712e-05},
    "ensemble": {"noise_variance": 0.003619005419252374, "learning_rate": 0.0008331559616470197},
    "last_layer_laplace": {
        "noise_variance": 0.0001,
        "prior_std": 0.004942253643666325,
        "learning_rate": 3.573394226823201e-05,
    },
}
"""Found by `seqdec tune` on 5,000 images of MNIST (Laplace: 2,000): best of 12 trials, seed 1000."""


def laplace_muon(
    spaces: Any,
    *,
    policy: str = "epistemic_sampling",
    model: Any = None,
    learning_rate: float = 1e-4,
    inner_steps: int = 50,
    buffer: int = 20,
) -> Agent:
    """`seqdec.agents.last_layer_laplace`, its network trained by Muon."""
    muon = optax.contrib.muon(learning_rate)
    agent = agents.last_layer_laplace(
        spaces, policy=policy, model=model, optimizer=muon, inner_steps=inner_steps, buffer=buffer
    )
    return agent._replace(settings={**agent.settings, "learning_rate": learning_rate})


@dataclass(frozen=True, kw_only=True)
class MNIST(Bandit):
    """Bandit on the 60,000 images of MNIST with LeNet5: ten arms, reward 1 for the right one.

    MNIST is downloaded if missing. On one core, 1,000 steps take 3 to 11 seconds with most agents, 30 with lofi,
    100 with last_layer_laplace.
    Example: seqdec run mnist --agents auto,hilofi,replay_adamw --steps 10000 --seeds 3
    """

    name: ClassVar[str] = "mnist"
    quick_options: ClassVar[Mapping[str, Any]] = {"steps": 500, "seeds": 1}
    captions: ClassVar[Mapping[str, str]] = {
        "comparison.png": "Paper, Table 2, rewards in 40,000 steps: HiLoFi 31,168, LoLoFi 30,038, LRKF 28,355, LoFi "
        "23,185, last-layer Laplace 13,922. Figures 8 and 9, regret against time: LRKF is faster than LoLoFi, LoLoFi "
        "than HiLoFi; epsilon-greedy is faster than sampling; AdamW and Muon have the most regret.",
        "average.png": "Paper, Figure 2: HiLoFi, LoLoFi and LRKF, in this order, earn most.",
    }
    tuned: ClassVar[Mapping[str, Mapping[str, Any]]] = {**TUNED, **_FOUND}

    paper: ClassVar[Mapping[str, Mapping[str, Any]]] = PAPER
    published_options: ClassVar[Mapping[str, Any]] = {
        "agents": "hilofi,hilofi.published,lolofi,lolofi.published,lrkf,lrkf.published,lofi.published,"
        "last_layer_laplace.published,adamw.published,muon.published",
        "steps": 40_000,
        "seeds": 10,
    }

    agents: str = "auto,hilofi,lolofi,lrkf,lofi,last_layer_laplace,replay_adamw"
    published: bool = False
    """As in the paper and its code: add agents with its settings, draw images at random, read pixels as signed
    bytes."""
    steps: int = 5000
    seeds: int = 1
    out: Path = Path("results/mnist")

    def environment(self) -> Environment:
        """The images, each once in random order or, with --published, as in the paper."""
        return envs.make(self.name, order="replacement", pixels="signed") if self.published else super().environment()

    @staticmethod
    def pictures(runs: Mapping[str, Run]) -> dict[str, "Figure"]:
        return {**pictures(runs), "average.png": average_figure(runs)}


@dataclass(frozen=True, kw_only=True)
class FashionMNIST(Bandit):
    """Bandit on the 60,000 images of Fashion-MNIST with LeNet5, with the settings of `mnist`.

    Fashion-MNIST is downloaded if missing. On one core, 1,000 steps take 3 to 11 seconds with most agents.
    Example: seqdec run fashion-mnist --agents auto,hilofi
    """

    name: ClassVar[str] = "fashion-mnist"
    quick_options: ClassVar[Mapping[str, Any]] = MNIST.quick_options
    tuned: ClassVar[Mapping[str, Mapping[str, Any]]] = TUNED
    paper: ClassVar[Mapping[str, Mapping[str, Any]]] = PAPER

    agents: str = MNIST.agents
    steps: int = 20_000
    seeds: int = 1
    out: Path = Path("results/fashion-mnist")

    @staticmethod
    def pictures(runs: Mapping[str, Run]) -> dict[str, "Figure"]:
        return MNIST.pictures(runs)


DATASETS = ("digits", "mnist", "fashion-mnist")


@dataclass(frozen=True, kw_only=True)
class Images(Bandit):
    """Options of bandits on one of several data sets."""

    name: ClassVar[str] = "images"
    choices: ClassVar[Mapping[str, Choice]] = {**Bandit.choices, "dataset": Choice("dataset", DATASETS)}

    dataset: str = "mnist"
    """Data set: digits, mnist or fashion-mnist."""

    def plain(self) -> Environment:
        """The bandit on the images."""
        return envs.make(self.dataset)

    def network_of(self, kind: str, env: Environment) -> nn.Module | None:
        """Digits have one of their own."""
        del kind, env
        return Digits.model if self.dataset == "digits" else None

    def presets(self, kind: str) -> dict[str, Any]:
        """Those of the digits, or of larger images."""
        return dict((Digits.tuned if self.dataset == "digits" else TUNED).get(kind, {}))


def average_figure(runs: Mapping[str, Run]) -> "Figure":
    """Average reward of all steps so far (mean, 95% band), every curve labeled at its end."""
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
