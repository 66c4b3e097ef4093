"""Labelled images one by one: contextual bandits (digits, MNIST) and online classification with full information."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import gymnasium
import jax
from flax import linen as nn

from seqdec import agents, envs, likelihoods, models, policies
from seqdec.core import Agent, Environment
from seqdec.loop.run import run
from seqdec.results import Run

_FILTERING = ("ekf", "hilofi", "lolofi", "lrkf")
"""Agents that take a policy by name and the numbers of `Options`."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every experiment of this file can be asked for; None leaves a number to each agent's preset."""

    name: ClassVar[str]
    tuned: ClassVar[dict[str, dict[str, Any]]] = {}
    """Settings of agents that do better here than those of their presets."""
    model: ClassVar[nn.Module | None] = None
    """Network of every agent; None leaves it to them."""

    agents: str
    """Agents, separated by commas; hilofi+greedy is hilofi with a policy of its own. Names: seqdec list."""
    policy: str | None = None
    """Policy of the filtering agents that name none themselves."""
    steps: int
    """Steps of each run."""
    seeds: int
    """Runs of each agent, with seeds SEED, SEED + 1, ..."""
    seed: int = 0
    """First seed."""
    out: Path
    """Folder for the runs, the table and the pictures."""
    logs: bool = False
    """Also write what each agent saw and did, as logs for `seqdec ope`: OUT/logs/AGENT-SEED.parquet."""
    rank: int | None = None
    """Rank of the low-rank covariances."""
    process_noise: float | None = None
    """Process noise variance of each parameter and step."""


@dataclass(frozen=True, kw_only=True)
class Bandit(Options):
    """What the bandits can be asked for besides."""

    noise: float | None = None
    """Observation noise variance."""


@dataclass(frozen=True, kw_only=True)
class Digits(Bandit):
    """Bandit on scikit-learn's 1,797 handwritten digits: ten arms, reward 1 for the right one."""

    name: ClassVar[str] = "digits"
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        "adamw": {"learning_rate": 3e-3, "inner_steps": 1},
        "lolofi": {"process_noise_hidden": 1e-2, "initial_std_last": 0.3, "rank_last": 50},
        "lrkf": {"process_noise": 1e-2},
    }
    model: ClassVar[nn.Module | None] = models.MLP(10, features=(32, 32))

    agents: str = "hilofi,lolofi,lrkf,hilofi+epsilon_greedy,adamw"
    steps: int = 1500
    seeds: int = 5
    out: Path = Path("results/digits")
    rank: int | None = 10


@dataclass(frozen=True, kw_only=True)
class MNIST(Bandit):
    """Bandit on the 60,000 images of MNIST with LeNet5: ten arms, reward 1 for the right one."""

    name: ClassVar[str] = "mnist"
    tuned: ClassVar[dict[str, dict[str, Any]]] = {
        # A tight prior on the last layer keeps its weights small, and with them the gradients that train the layers
        # below; a wide prior or a fast one on the hidden layers explores at the start.
        "hilofi": {
            "initial_std_hidden": 3.0,
            "initial_std_last": 0.01,
            "process_noise_hidden": 1e-3,
            "process_noise_last": 0.0,
        },
        "lolofi": {"policy": "epistemic_sampling", "initial_std_last": 0.1, "process_noise_hidden": 3e-4},
        "lrkf": {"policy": "epistemic_sampling", "process_noise": 3e-4},
    }

    agents: str = "hilofi,lolofi,lrkf"
    steps: int = 5000
    seeds: int = 1
    out: Path = Path("results/mnist")


@dataclass(frozen=True, kw_only=True)
class Classify(Options):
    """Online classification: each label is shown once the agent has guessed it; reports one-step-ahead accuracy."""

    name: ClassVar[str] = "classify"

    dataset: Literal["digits", "mnist", "fashion-mnist"] = "digits"
    """Images to classify."""
    agents: str = "hilofi,lolofi,lrkf"
    policy: str | None = "greedy"
    steps: int = 1797
    seeds: int = 3
    out: Path = Path("results/classify")


def build(options: Options) -> tuple[Environment, dict[str, Agent]]:
    """The environment and the agents of an experiment, by the names they were asked for.

    Raises ValueError or TypeError for a name or a number that does not exist, and OSError for missing data.
    """
    names = check(options)
    if isinstance(options, Classify):
        env = envs.make(options.dataset, full_information=True)
    else:
        env = envs.make(options.name)
    return env, {name: _agent(name, env, options) for name in names}


def check(options: Options) -> list[str]:
    """The names of the agents asked for.

    Raises ValueError for a number out of its range or an agent named twice.
    """
    for field, minimum in (("steps", 1), ("seeds", 1), ("seed", 0)):
        if getattr(options, field) < minimum:
            raise ValueError(f"{field} must be at least {minimum}; got {getattr(options, field)}")
    names = [name.strip() for name in options.agents.split(",")]
    if len(set(names)) < len(names):
        raise ValueError(f"agents must differ from each other; got {options.agents!r}")
    return names


def play(
    options: Options, env: Environment, team: dict[str, Agent], progress: bool | None
) -> Iterator[tuple[str, Run]]:
    """Run one agent after the other, handing out each run as it is done; stops after one that Ctrl-C ended."""
    for name, agent in team.items():
        kept = ("observation",) if options.logs else ()
        result = run(
            agent,
            env,
            options.steps,
            seed=options.seed,
            num_seeds=options.seeds,
            diagnostics=kept,
            progress=progress,
        )
        if options.logs:
            for seed in result.seeds:
                log = result.log(seed, num_actions=int(env.action_space.n))  # pyright: ignore (Discrete)
                log.save(options.out / "logs" / f"{name}-{seed}.parquet")
            result = result._replace(diagnostics={})  # the logs hold them
        yield name, result
        if result.interrupted:
            return


def _agent(name: str, env: Environment, options: Options) -> Agent:
    """The agent that "kind" or "kind+policy" stands for, with those of the options that it knows."""
    known = [known for known in agents.names() if f"{name}+".startswith(f"{known}+")]  # koala++ has pluses of its own
    kind = known[0] if known else name.partition("+")[0]
    policy = name[len(kind) + 1 :]
    settings = {"model": options.model, **options.tuned.get(kind, {})}
    if kind in _FILTERING:
        chosen: dict[str, Any] = {"policy": policy or options.policy}
        if isinstance(options, Bandit):
            chosen["noise_variance"] = options.noise
        else:
            chosen["likelihood"] = likelihoods.categorical()
        settings |= {key: value for key, value in chosen.items() if value is not None}
        settings |= filter_settings(kind, settings, rank=options.rank, process_noise=options.process_noise)
    elif policy:
        settings["policy"] = policies.make(policy)
    agent = agents.make(kind, env, **settings)
    jax.eval_shape(agent.init, jax.random.key(0))  # what does not fit the network is found before anything runs
    return agent._replace(name=name)


def filter_settings(
    kind: str, tuned: Mapping[str, Any], *, rank: int | None, process_noise: float | None
) -> dict[str, Any]:
    """Rank and process noise as keywords of the agent called `kind`: of the hidden layers, where they are apart.

    HiLoFi's last layer gets the same process noise unless `tuned` gives it another.
    """
    known = agents.REGISTRY.parameters(kind)
    asked = {
        "rank": rank,
        "rank_hidden": rank,
        "process_noise": process_noise,
        "process_noise_hidden": process_noise,
        "process_noise_last": tuned.get("process_noise_last", process_noise) if kind == "hilofi" else None,
    }
    return {key: value for key, value in asked.items() if value is not None and key in known}


def catalogue() -> dict[str, dict[str, str]]:
    """Everything that has a name: kind -> name -> one line on it."""
    environments = {name: _first_line(getattr(envs, name.replace("-", "_"))) for name in envs.names()}
    ids = [spec for spec in gymnasium.registry.values() if spec.id.startswith("seqdec/")]
    return {
        "agents": {name: agents.REGISTRY.describe(name) for name in agents.names()},
        "policies": {name: _first_line(getattr(policies, name)) for name in policies.names()},
        "environments": environments,
        "gymnasium ids": {spec.id: environments[spec.kwargs["name"]] for spec in ids},
    }


def _first_line(thing: Any) -> str:
    """The first line of a docstring."""
    return (thing.__doc__ or "").strip().split("\n")[0]
