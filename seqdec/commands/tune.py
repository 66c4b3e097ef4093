"""Search for an agent's settings on a reshuffled prefix of an experiment's data.

DIR/manifest.json      options
DIR/trials.parquet     settings, mean reward and seconds of every trial, of all agents tuned in this folder
DIR/settings.json      the best settings of each agent, for `seqdec run EXPERIMENT --settings DIR/settings.json`
DIR/tuning.png         reward by trial
"""

import functools
import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import pandas as pd
import tyro

from seqdec import agents, bo, commands
from seqdec.agents.networks import network_of_one
from seqdec.agents.ranges import ranges
from seqdec.boundary import checks
from seqdec.commands.bandits import Bandit
from seqdec.commands.base import Choice, Located, check_minimum, check_seeds
from seqdec.commands.folder import (
    described,
    read_manifest,
    read_settings,
    save_figure,
    save_parts,
    saved_parts,
    write_manifest,
    write_settings,
)
from seqdec.core import Agent, Environment
from seqdec.introspection import fitted
from seqdec.loop.device import play
from seqdec.persistence import read_table
from seqdec.runtime import one_blas_thread, step_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Plan(NamedTuple):
    """What the trials need."""

    kind: str
    """the agent without its policy"""
    start: dict[str, float]
    """settings of the first trial"""
    space: list[bo.Real]
    """their ranges"""
    reward: Callable[[Mapping[str, float]], float]
    """settings -> mean reward"""


@dataclass(frozen=True, kw_only=True)
class Tune(Located):
    """Tune an agent for an experiment: Bayesian optimization of its numeric settings on a reshuffled prefix."""

    name: ClassVar[str] = "tune"
    choices: ClassVar[Mapping[str, Choice]] = {
        "experiment": Choice("experiment", commands.REGISTRY, free=True),
        "agent": Choice("agent", agents.REGISTRY, free=True),
    }

    experiment: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="EXPERIMENT")]
    """An experiment of `seqdec list` that is a bandit."""
    agent: str
    """Agent, such as hilofi or hilofi+greedy, as in the experiment's --agents."""
    budget: int = 20
    """Number of trials; the first has the current settings."""
    steps: int = 1000
    """Steps of each trial."""
    seed: int = 1000
    """Seed for shuffling the data; must exceed the experiment's seeds."""
    seeds: int = 1
    """Runs of each trial, with seeds SEED, SEED + 1, ...; the mean counts."""
    out: Path = Path("results/tune")
    """Folder for settings, trials and the figure, shared by several agents."""

    def check(self) -> Plan:
        check_minimum(self, budget=1, steps=1)
        check_seeds(self.seed, self.seeds)
        chosen = _experiment(self.experiment)
        if Bandit not in chosen.__mro__:
            raise ValueError(f"{self.experiment!r} is not a bandit, so its agents cannot be tuned")
        options = chosen(agents=self.agent)
        if self.seed < options.seed + options.seeds:
            raise ValueError(f"seed must be larger than the experiment's seeds; got {self.seed}")
        names = options.names()
        if len(names) > 1:
            raise ValueError(f"tune takes one agent at a time; got {self.agent!r}")
        name = names[0]
        if name.endswith(".published"):
            raise ValueError(f"{name} has fixed settings, the paper's; tune {name.removesuffix('.published')}")
        kind = options.kind(name)
        present = {key: one.default for key, one in inspect.signature(agents.REGISTRY[kind]).parameters.items()}
        present |= options.presets(kind) | options.found().get(kind, {}).get("settings", {})
        env, fixed = options.environment(), {}
        if agents.capabilities(kind).model:
            # Modules are made networks by small programs of their own, which cannot be part of another.
            fixed["model"] = network_of_one(env, options.network_of(kind, env))
        make = functools.partial(agents.make, kind, env, **fixed)
        limits = {key: limit for key, limit in ranges(kind, present).items() if _takes(make, key, limit)}
        if not limits:
            raise ValueError(f"{kind} has no settings to tune; seqdec.agents.ranges lists those of each agent")
        start = {key: min(max(float(present[key]), low), high) for key, (low, high) in limits.items()}
        reward = _objective(functools.partial(options.agent, name, env, **fixed), env, self)
        return Plan(kind, start, [bo.Real(*limit, log=True) for limit in limits.values()], reward)

    def restore(self) -> list[pd.DataFrame]:
        parts = saved_parts(self.out / _TRIALS, ["agent", "trial"])
        return [part.dropna(axis=1, how="all") for part in parts if part["agent"].iloc[0] == self.agent]

    def play(self, plan: Plan, finished: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        from seqdec import progress

        optimizer = bo.BayesianOptimizer(
            plan.space, seed=self.seed, maximize=True, initial=max(2, self.budget // 4), capacity=self.budget
        )
        with progress.bar(self.budget, f"tune {self.agent}", "trial") as bar:
            progress.compiling(bar)
            for number in range(self.budget):
                trial = optimizer.ask() if number else optimizer.propose(list(plan.start.values()))
                settings = dict(zip(plan.start, map(float, trial.x), strict=True))
                if number < len(finished):
                    optimizer.tell(trial, float(finished[number]["reward"].iloc[0]))
                    bar.update()
                    continue
                began = time.perf_counter()
                value = plan.reward(settings)
                seconds = time.perf_counter() - began
                optimizer.tell(trial, value)
                progress.advance(bar)
                bar.set_postfix(best=f"{optimizer.best[1]:.4f}")
                row = {"agent": self.agent, "kind": plan.kind, "trial": number, "reward": value, "seconds": seconds}
                yield pd.DataFrame([row | settings])

    def save(self, parts: list[pd.DataFrame]) -> None:
        own, path = pd.concat(parts, ignore_index=True), self.out / _TRIALS
        others = read_table(path)[0].query("agent != @self.agent") if path.is_file() else None
        trials = own if others is None or others.empty else pd.concat([others, own], ignore_index=True)
        best = own.loc[own["reward"].idxmax()]
        keywords = [name for name in own.columns if name not in _FIXED]
        entry = {
            "settings": {name: float(best[name]) for name in keywords},
            "reward": float(best["reward"]),
            "budget": len(own),
            "steps": self.steps,
            "seed": self.seed,
            "seeds": self.seeds,
        }
        file = self.out / "settings.json"
        name = _experiment(self.experiment).name
        found = read_settings(file, name) if file.is_file() else {}
        write_manifest(self.out, self)
        write_settings(file, name, {**found, own["kind"].iloc[0]: entry})
        save_parts(path, trials)  # last, because a resumed command repeats only trials that are not saved

    @staticmethod
    def report(folder: Path) -> str:
        trials, options = read_table(folder / _TRIALS)[0], read_manifest(folder)["options"]
        save_figure(folder / "tuning.png", _picture(trials, options))
        groups = trials.groupby("agent", sort=False)
        table = pd.DataFrame(
            {
                "trials": groups.size(),
                "first": groups["reward"].first(),
                "best": groups["reward"].max(),
                "s / trial": groups["seconds"].median(),
                "first s": groups["seconds"].first(),
            }
        )
        chosen = _experiment(options["experiment"])
        found = read_settings(folder / "settings.json", chosen.name)
        return f"{fitted(table)}\n\n{described(found)}"


_TRIALS = "trials.parquet"
_FIXED = ("agent", "kind", "trial", "reward", "seconds")


def _experiment(name: str) -> Any:
    return commands.REGISTRY[name]


def _takes(make: Callable[..., Agent], keyword: str, limits: tuple[float, float]) -> bool:
    """Whether the agent takes a keyword: TypeError refuses one without effect in its environment."""
    try:
        for value in limits:
            make(**{keyword: value})
    except TypeError:
        return False
    return True


def _objective(make: Callable[..., Agent], env: Environment, asked: Tune) -> Callable[[Mapping[str, float]], float]:
    def mean_reward(settings, key, params):
        return play(make(**settings), env, asked.steps, key, params).reward.mean()

    compiled = jax.jit(mean_reward, compiler_options=step_options())
    params = jax.device_put(env.params)
    keys = [jax.random.key(checks.seed_bits(seed)) for seed in checks.seeds(asked.seed, asked.seeds)]

    def reward(settings: Mapping[str, float]) -> float:
        numbers = {keyword: jnp.float32(value) for keyword, value in settings.items()}
        with one_blas_thread():
            return float(sum(float(compiled(numbers, key, params)) for key in keys)) / len(keys)

    return reward


def _picture(trials: pd.DataFrame, options: Mapping[str, Any]) -> "Figure":
    from matplotlib.figure import Figure

    from seqdec import figures

    figure = Figure(figsize=(8.2, 4.8), dpi=140, layout="constrained")
    axis = figure.subplots()
    groups = {str(name): own for name, own in trials.groupby("agent", sort=False)}
    for style, (name, own) in zip(figures.styles(groups), groups.items(), strict=True):
        axis.step(own["trial"], own["reward"].cummax(), where="post", label=name, **style)
        axis.plot(own["trial"], own["reward"], "o", markersize=3, alpha=0.6, color=style["color"])
    title = "Reward of each trial (dots) and the best so far (line)"
    figures.finish_axis(axis, title, "trial", "reward per step, mean over the seeds of a trial")
    figures.legend(figure, [axis], list(groups))
    seeds = f"{options['seeds']} seed{'' if options['seeds'] == 1 else 's'}"
    title = f"{options['experiment']} · {options['steps']:,} steps · {seeds}"
    return figures.titled(figure, title)
