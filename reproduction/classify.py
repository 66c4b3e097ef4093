"""Online classification of images with full information.

Accuracy is one-step-ahead: the agent guesses each label before it is shown.

DIR/manifest.json, runs/       options; all steps of each agent
DIR/summary.csv                accuracy over all steps and over the last ones, with 95% intervals, and times
DIR/accuracy.png               rolling accuracy
DIR/ranks.png                  accuracy and time against rank, where agents have several ranks
DIR/bounds.png                 the terms of the filters' error bounds over time, with --error-bounds
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from seqdec import agents, envs, likelihoods
from seqdec.agents._neural.loop import Head, mean_of_rows, point
from seqdec.commands import contenders
from seqdec.commands.bandits import Options, noted
from seqdec.commands.base import Choice, split_names
from seqdec.commands.folder import load_runs, write_summary
from seqdec.core import Environment, Network
from seqdec.filters import Numerics
from seqdec.introspection import fitted
from seqdec.results import Run, compare, readable
from seqdec.statistics import column_text, mean_and_margin, summarized

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DATASETS = ("digits", "mnist", "fashion-mnist")
_FIRST = {"initial_span": "first"}
_LAYERS = {"process_noise_hidden": 0.01, "process_noise_last": 0.01, "initial_std_hidden": 1.0, "initial_std_last": 1.0}
_TERMS = {
    "error_bound.process_noise": "process noise",
    "error_bound.truncation": "eigenvalues beyond the rank",
    "error_bound.coupling": "coupling of the layers",
}


@dataclass(frozen=True, kw_only=True)
class Classification(Options):
    """Options of online classification: the feedback is the label."""

    name: ClassVar[str] = "classification"

    policy: str | None = "greedy"
    ranks: str = ""
    """Ranks, separated by commas, for each filter without a rank in its name."""
    error_bounds: bool = False
    """Also record the terms of the filters' error bounds at every step."""

    def names(self) -> list[str]:
        names = super().names()
        if not self.ranks:
            return names
        ranks = split_names("rank", self.ranks)
        every = [_ranked(name, ranks) for name in names]
        found = split_names("agent", ",".join(name for group in every for name in group))
        for name in found:
            self.kind(name)  # refuses what is no rank
        return found

    def presets(self, kind: str) -> dict[str, Any]:
        """Outputs are logits, unless the settings have a likelihood; trained networks minimize the cross-entropy."""
        if agents.capabilities(kind).kind == "network":
            return {**super().presets(kind), "head": cross_entropy, "policy": "greedy"}
        logits = {"likelihood": likelihoods.categorical()} if contenders.has_filter(kind) else {}
        return logits | super().presets(kind)

    def of_paper(self, kind: str, env: Environment) -> dict[str, Any]:
        """Those of the paper, with a softmax for the outputs of every filter and network."""
        stated = super().of_paper(kind, env)
        if agents.capabilities(kind).kind == "network":
            return {**stated, "head": cross_entropy, "policy": "greedy"}
        return {"likelihood": likelihoods.categorical(), **stated}

    def response(self) -> dict[str, Any]:
        return {"numerics": Numerics(error_bounds=True)} if self.error_bounds else {}

    def kept(self, name: str) -> tuple[str, ...]:
        bounded = self.error_bounds and contenders.has_filter(self.kind(name))
        return super().kept(name) + (("error_bound",) if bounded else ())

    @classmethod
    def report(cls, folder: Path) -> str:
        runs = load_runs(folder)
        return write_accuracies(folder, runs, noted(cls.pictures(runs), cls.captions))

    @staticmethod
    def pictures(runs: Mapping[str, Run]) -> dict[str, "Figure"]:
        from seqdec import figures

        drawn = {"comparison.png": figures.comparison(runs), "accuracy.png": accuracy_figure(runs)}
        if len(_by_rank(runs)) > 0:
            drawn["ranks.png"] = ranks_figure(runs)
        if any(name in run.diagnostics for name in _TERMS for run in runs.values()):
            drawn["bounds.png"] = bounds_figure(runs)
        return drawn


@dataclass(frozen=True, kw_only=True)
class Classify(Classification):
    """Online classification: each label is shown after the agent has guessed it; reports one-step-ahead accuracy.

    MNIST and Fashion-MNIST are downloaded if missing. With rank 50, 10,000 images take 2 minutes with hilofi and 6
    with lofi, on one core.
    Example: seqdec run classify --agents hilofi,lrkf --steps 10000
    """

    name: ClassVar[str] = "classify"
    choices: ClassVar[Mapping[str, Choice]] = {**Classification.choices, "dataset": Choice("dataset", DATASETS)}
    quick_options: ClassVar[Mapping[str, Any]] = {"steps": 500, "seeds": 1}
    captions: ClassVar[Mapping[str, str]] = {
        "accuracy.png": "Paper, Figure 5 (MNIST): no clear difference between the methods.",
        "ranks.png": "Paper, Figure 6 (MNIST): all methods gain a little with the rank, HiLoFi most; the time of LoFi "
        "grows fastest with it, and HiLoFi takes longest.",
        "bounds.png": "Paper, Figure 7 (MNIST): both terms of LRKF's bound fall over time as its accuracy rises.",
    }

    # Squared errors of the one-hot label, with the settings of the bandit: logits learn slower.
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        "hilofi": {
            "likelihood": None,
            "noise_variance": 0.01,
            "initial_std_hidden": 3.0,
            "initial_std_last": 0.01,
            "process_noise_hidden": 1e-3,
            "process_noise_last": 0.0,
        },
        "lolofi": {
            "likelihood": None, "noise_variance": 0.01, "initial_std_last": 0.1, "process_noise_hidden": 3e-4,
        },
        "lrkf": {"likelihood": None, "noise_variance": 0.01, "process_noise": 3e-4},
    }  # fmt: skip

    paper: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "hilofi": {"rank": 50, **_LAYERS, **_FIRST},
        "lolofi": {"rank_hidden": 100, "rank_last": 50, **_LAYERS, **_FIRST},
        "lrkf": {
            "rank": 50, "initial_std": 1.0, "process_noise": 0.01, "likelihood": likelihoods.categorical(0.1), **_FIRST,
        },
        "lofi": {
            "rank": 50, "initial_std": math.exp(-4.0), "process_noise": 0.0,
            "likelihood": likelihoods.categorical(0.01),
        },
        "adamw": {"learning_rate": 1e-4, "inner_steps": 1},
    }  # fmt: skip
    """The ranks are the paper's, covariances, process noise and jitter as in its code, and AdamW's rate as in the
    bandit."""
    published_options: ClassVar[Mapping[str, Any]] = {
        "agents": "hilofi,hilofi.published,lolofi,lolofi.published,lrkf,lrkf.published,lofi.published,adamw.published"
    }

    dataset: str = "mnist"
    """Images to classify: digits, mnist or fashion-mnist."""
    published: bool = False
    """Add agents with the paper's settings: moments of the softmax for every filter."""
    agents: str = "hilofi,hilofi.rehearsal,lolofi,lrkf,lofi,replay_adamw"
    steps: int = 60_000
    seeds: int = 1
    out: Path = Path("results/classify")

    def environment(self) -> Environment:
        """The images with their labels as feedback."""
        return envs.make(self.dataset, full_information=True)


def cross_entropy(network: Network) -> Head:
    """Head of a network whose outputs are logits: no uncertainty, and the loss -sum_k y_k log softmax(f(x))_k."""

    def loss(params, belief, batch, seen):
        logits = jax.vmap(network.apply, (None, 0))(params, batch.rows.x)
        each = -batch.rows.y * jax.nn.log_softmax(logits)
        return mean_of_rows(each, batch), (jax.nn.softmax(logits), ())

    return point(network)._replace(loss=loss)


def write_accuracies(folder: Path, runs: Mapping[str, Run], pictures: Mapping[str, "Figure"]) -> str:
    """Write summary.csv and the figures of `runs`; returns the accuracies as text."""
    import pandas as pd

    table, last = compare(runs), recent(runs)
    rewards = [run.rewards.astype(np.float64) for run in runs.values()]
    samples = [{"accuracy": one.mean(axis=1), "recent_accuracy": one[:, -last:].mean(axis=1)} for one in rewards]
    accuracies = pd.DataFrame([summarized(one) for one in samples], index=table.index)
    write_summary(folder, accuracies.join(table), pictures)
    titles = {"accuracy": "accuracy / %", "recent_accuracy": f"last {last:,} steps / %"}
    cells = {title: column_text(accuracies, name, 100) for name, title in titles.items()}
    readable_cells = pd.DataFrame(cells, index=table.index).rename_axis(None)
    return fitted(readable_cells.join(readable(table)[["s / 1,000 steps", "compile s", "rejected"]]))


def recent(runs: Mapping[str, Run]) -> int:
    """How many of the last steps the table reports: a sixth of the longest run, at most 10,000."""
    return max(1, min(10_000, max(run.rewards.shape[1] for run in runs.values()) // 6))


def _ranked(name: str, ranks: list[str]) -> list[str]:
    """The agent with each of the ranks, if it is one that has ranks and names none; else itself."""
    kind, rank = contenders.split(name, agents.names())[:2]
    if rank is not None or not contenders.has_rank(kind):
        return [name]
    return [f"{kind}:{rank}{name[len(kind) :]}" for rank in ranks]


def _by_rank(runs: Mapping[str, Run]) -> dict[str, list[tuple[int, Run]]]:
    """Agents that have several ranks, by their name without it: (rank, run), from the smallest rank on."""
    groups: dict[str, list[tuple[int, Run]]] = {}
    for name, run in runs.items():
        rank = contenders.split(name, agents.names()).rank
        if rank is not None:
            groups.setdefault(name.replace(f":{rank}", "", 1), []).append((rank, run))
    return {name: sorted(group, key=lambda pair: pair[0]) for name, group in groups.items() if len(group) > 1}


def accuracy_figure(runs: Mapping[str, Run]) -> "Figure":
    """Rolling one-step-ahead accuracy, every curve labeled at its end."""
    from seqdec import figures

    def draw(axis, runs):
        figures.average_reward(axis, runs)
        figures.accuracy_axis(axis, f"One-step-ahead accuracy, mean of the last {figures.window(runs):,} steps")

    return figures.single(runs, draw, lambda run: figures.rolling(run.rewards, figures.window(runs)))


def ranks_figure(runs: Mapping[str, Run]) -> "Figure":
    """Accuracy of the recent steps (mean, 95% interval) and time of a run against the rank, a line for each agent."""
    from seqdec import figures

    groups = _by_rank(runs)
    figure, (accuracy, clock) = figures.panels(["accuracy", "time"])
    for style, (name, group) in zip(figures.styles(groups), groups.items(), strict=True):
        ranks = [rank for rank, _ in group]
        samples = np.stack([run.rewards[:, -recent(runs) :].mean(axis=1, dtype=np.float64) for _, run in group], axis=1)
        mean, margin = mean_and_margin(samples)
        error = np.nan_to_num([np.minimum(margin, mean), np.minimum(margin, 1 - mean)])
        accuracy.errorbar(ranks, mean, yerr=error, marker="o", ms=4, capsize=3, label=name, **style)
        seconds = [run.run_seconds / len(run.seeds) for _, run in group]
        clock.plot(ranks, seconds, marker="o", ms=4, label=name, **style)
    figures.finish_axis(accuracy, "", "rank", "")
    figures.accuracy_axis(accuracy, f"Accuracy of the last {recent(runs):,} steps")
    figures.finish_axis(clock, "Time of a run", "rank", "seconds, without compilation")
    clock.set_ylim(0, 1.1 * clock.dataLim.y1)
    for axis in (accuracy, clock):
        axis.margins(x=0.05)
    figures.legend(figure, [accuracy], list(groups))
    title = figures.title(runs, figures.mean_and_interval)
    return figures.titled(figure, title)


def bounds_figure(runs: Mapping[str, Run]) -> "Figure":
    """The terms of the error bounds over time, mean of the last steps, and the accuracy; a line for each filter."""
    from seqdec import figures

    bounded = {name: run for name, run in runs.items() if any(term in run.diagnostics for term in _TERMS)}
    terms = [term for term in _TERMS if any(np.any(run.diagnostics[term] > 0) for run in bounded.values())]
    length = figures.window(bounded)
    figure, axes = figures.panels([*terms, "accuracy"])
    for style, (name, run) in zip(figures.styles(bounded), bounded.items(), strict=True):
        for axis, term in zip(axes, terms, strict=False):
            values = figures.rolling(run.diagnostics[term].astype(np.float64), length)
            if np.any(values > 0):
                figures.curve(axis, figures.steps(run)[-values.shape[1] :], values, name, style, (0.0, np.inf))
        means = figures.rolling(run.rewards, length)
        figures.curve(axes[-1], figures.steps(run)[-means.shape[1] :], means, name, style, (0.0, 1.0))
    for axis, term in zip(axes, terms, strict=False):
        axis.set_yscale("log")
        figures.finish_axis(axis, f"Bound: {_TERMS[term]}", "step", "Frobenius norm")
    figures.finish_axis(axes[-1], "", "step", "")
    figures.accuracy_axis(axes[-1], f"Accuracy, mean of the last {length:,} steps")
    figures.legend(figure, axes, list(bounded))
    return figures.titled(figure, figures.title(bounded))
