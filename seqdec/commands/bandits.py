"""Experiments that compare agents in one environment."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from flax import linen as nn

from seqdec import agents, envs, policies
from seqdec.boundary.checks import choice, non_negative
from seqdec.commands import contenders
from seqdec.commands.base import Choice, Located, check_choices, check_minimum, check_seeds, split_names
from seqdec.commands.folder import (
    CHECKPOINT,
    described,
    finished_runs,
    load_runs,
    read_manifest,
    read_settings,
    save_run,
    write_manifest,
    write_summary,
)
from seqdec.core import Agent, Environment, Network
from seqdec.introspection import fitted
from seqdec.loop._run import run
from seqdec.results import Run, compare, readable

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Plan(NamedTuple):
    """What the runs need."""

    env: Environment
    agents: Mapping[str, Agent]
    steps: int
    days: "pd.DataFrame | None" = None
    """column `period`: the day of each step, for a log with dates"""


@dataclass(frozen=True, kw_only=True)
class Options(Located):
    """Options of experiments that compare agents."""

    name: ClassVar[str]
    quick_options: ClassVar[Mapping[str, Any]] = {"seeds": 1}
    """Options under --quick, unless given."""
    captions: ClassVar[Mapping[str, str]] = {}
    """What the paper's figures show, by file name."""
    tuned: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings of agents in this experiment."""
    paper: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings of AGENT.published."""
    model: ClassVar[nn.Module | None] = None
    """Network of every agent, or None."""

    choices: ClassVar[Mapping[str, Choice]] = {
        "agents": Choice("agent", agents.REGISTRY, several=True, free=True),
        "policy": Choice("policy", policies.REGISTRY),
    }

    agents: str
    """Agents, separated by commas; `seqdec list` shows the names. hilofi:20+greedy sets rank and policy;
    hilofi.published has the paper's settings; after each update, hilofi.rehearsal takes an AdamW step of 1e-3 on 32 of
    20,000 stored observations.
    """
    policy: str | None = None
    """Policy for agents that support one and do not specify it."""
    steps: int
    """Steps of each run."""
    seeds: int
    """Runs of each agent, with seeds SEED, SEED + 1, ..."""
    seed: int = 0
    """First seed."""
    out: Path
    """Folder for the runs, the table and the figures."""
    logs: bool = False
    """Also write logs for `seqdec ope`, OUT/logs/AGENT-SEED.parquet; otherwise propensities are not computed."""
    checkpoint_every: int | None = None
    """Steps between checkpoints of a run, for --resume OUT; by default only finished runs are kept."""
    quick: bool = False
    """A small run for two cores; its defaults are at the top of this help."""
    rank: int | None = None
    """Rank of the low-rank covariances."""
    process_noise: float | None = None
    """Process noise variance of each parameter and step."""
    settings: Path | None = None
    """A settings.json of `seqdec tune`, which overrides the experiment's settings of agents."""

    def environment(self) -> Environment:
        return envs.make(self.name)

    def check(self) -> Plan:
        names = self.names()
        env = self.environment()
        return Plan(env, {name: self.agent(name, env) for name in names}, self.steps)

    def names(self) -> list[str]:
        """Checked names of the agents. Raises ValueError."""
        check_minimum(self, steps=1, checkpoint_every=1, rank=1)
        check_seeds(self.seed, self.seeds)
        non_negative("process_noise", 0.0 if self.process_noise is None else self.process_noise)
        self.found()
        check_choices(self)
        names = split_names("agent", self.agents)
        for name in names:
            choice("agent", self.kind(name), self.choices["agents"].known)
        return names

    @classmethod
    def kind(cls, name: str) -> str:
        """The agent without rank, policy and variant."""
        return contenders.split(name, cls.choices["agents"].known).kind

    def agent(self, name: str, env: Environment, **other: Any) -> Agent:
        """The agent, with its options and `other` keywords."""
        contender = contenders.split(name, self.choices["agents"].known)
        kind, rank, policy, variant = contender
        if variant == "published":
            settings = self.of_paper(kind, env)
        else:
            settings = {**self.presets(kind), **self.found().get(kind, {}).get("settings", {})}
        if agents.capabilities(kind).model and "model" not in other:
            settings.setdefault("model", self.network_of(kind, env))
        if contenders.has_filter(kind):
            asked = {"rank": self.rank if rank is None else rank, "process_noise": self.process_noise}
            settings |= contenders.filter_settings(kind, settings, **asked) | self.response()
        if policy or (self.policy and agents.capabilities(kind).uncertain):
            settings["policy"] = policy or self.policy
        settings |= contenders.rehearsal(contender)
        agent = contenders.checked(agents.make(kind, env, **{**settings, **other}), name)
        return agent if self.logs else contenders.without_propensities(agent)

    def network_of(self, kind: str, env: Environment) -> nn.Module | Network | None:
        """Network of an agent, or None."""
        del kind, env
        return self.model

    def presets(self, kind: str) -> dict[str, Any]:
        """Default keywords of an agent."""
        return dict(self.tuned.get(kind, {}))

    def of_paper(self, kind: str, env: Environment) -> dict[str, Any]:
        """Keywords of an agent in the paper. Raises ValueError if unknown."""
        del env
        if kind not in self.paper:
            remedy = f"the paper has settings for {', '.join(self.paper)}" if self.paper else f"use {kind}"
            raise ValueError(f"{kind}.published: no published settings in {self.name}; {remedy}")
        return dict(self.paper[kind])

    def found(self) -> dict[str, dict[str, Any]]:
        """Results of `seqdec tune` by kind. Raises OSError or ValueError."""
        return {} if self.settings is None else read_settings(self.settings, self.name)

    def response(self) -> dict[str, Any]:
        """Keywords for the distribution of responses."""
        return {}

    def kept(self, name: str) -> tuple[str, ...]:
        del name
        return ("observation",) if self.logs else ()

    def restore(self) -> list[tuple[str, Run]]:
        return finished_runs(self.out)

    def play(self, plan: Plan, finished: Sequence[tuple[str, Run]]) -> Iterator[tuple[str, Run]]:
        done = {name for name, _ in finished}
        for name, agent in plan.agents.items():
            if name in done:
                continue
            options = {"seed": self.seed, "num_seeds": self.seeds, "diagnostics": self.kept(name)}
            result = run(agent, plan.env, plan.steps, **options, **checkpoints(self))
            if self.logs:
                for seed in result.seeds:
                    log = result.log(seed, num_actions=int(plan.env.action_space.n))  # pyright: ignore (Discrete)
                    log.save(self.out / "logs" / f"{name}-{seed}.parquet")
                # The observations are in the logs.
                rest = {key: value for key, value in result.diagnostics.items() if not key.startswith("observation")}
                result = result.replace(diagnostics=rest)
            yield name, result.replace(state=None)
            if result.interrupted:
                raise KeyboardInterrupt

    def save(self, parts: list[tuple[str, Run]]) -> None:
        save_run(self.out, *parts[-1])
        names = [name for name, _ in parts]
        own = (contenders.split(name, self.choices["agents"].known) for name in names)
        kinds = {contender.kind for contender in own if contender.variant != "published"}
        tuned = {kind: entry for kind, entry in self.found().items() if kind in kinds}
        write_manifest(self.out, self, names, tuned=tuned)

    @classmethod
    def report(cls, folder: Path) -> str:
        runs = load_runs(folder)
        table = fitted(write_report(folder, runs, noted(cls.pictures(runs), cls.captions)))
        tuned = read_manifest(folder).get("tuned")
        return f"{table}\n\nFound by seqdec tune:\n{described(tuned)}" if tuned else table

    @staticmethod
    def pictures(runs: Mapping[str, Run]) -> dict[str, "Figure"]:
        """Figures by file name."""
        return pictures(runs)


@dataclass(frozen=True, kw_only=True)
class Bandit(Options):
    """A bandit: feedback is the action's reward."""

    noise_variance: float | None = None
    """Variance of the observation noise, for filter agents."""

    def response(self) -> dict[str, Any]:
        return {} if self.noise_variance is None else {"noise_variance": self.noise_variance}


def checkpoints(options: Any) -> dict[str, Any]:
    """Checkpoint keywords of `seqdec.run`."""
    if options.checkpoint_every is None:
        return {}
    return {"checkpoint": options.out / CHECKPOINT, "checkpoint_every": options.checkpoint_every}


def write_report(folder: Path, runs: Mapping[str, Run], shown: Mapping[str, "Figure"] | None = None) -> "pd.DataFrame":
    """Write summary.csv and figures, by default `pictures`; returns a table."""
    table = compare(runs)
    write_summary(folder, table, pictures(runs) if shown is None else shown)
    return readable(table)


def pictures(runs: Mapping[str, Run]) -> dict[str, "Figure"]:
    """Figures by file name."""
    from seqdec import figures

    return {"comparison.png": figures.comparison(runs), "regret.png": figures.regret(runs)}


def noted(shown: dict[str, "Figure"], captions: Mapping[str, str]) -> dict[str, "Figure"]:
    """The figures, with notes on the published ones."""
    from seqdec import figures

    for name in shown.keys() & captions.keys():
        figures.note(shown[name], captions[name])
    return shown
