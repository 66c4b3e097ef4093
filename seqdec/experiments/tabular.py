"""Tables as bandits: regret of neural and linear agents in percent of that of uniform play.

DIR/manifest.json          what was asked for
DIR/TABLE/...              runs, summary.csv and pictures of one table, as every bandit leaves them
DIR/summary.parquet, .csv  regret in percent of uniform play's on the same contexts, with 95% intervals over seeds
DIR/regret.png             the same as a picture
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import pandas as pd

from seqdec import agents, envs, figures, filters, likelihoods, models, policies
from seqdec.core import Action, Agent, Array, Environment
from seqdec.experiments import report
from seqdec.loop.run import run
from seqdec.persistence import as_json, versions, write_file, write_json
from seqdec.results import Run, mean_and_margin, with_margin

UNIFORM = "uniform"
_LONGEST = 50_000
"""Steps of a table that is larger, as in the Deep Bayesian Bandits Showdown."""
_KINDS = {
    "hilofi": "hilofi",
    "lolofi": "lolofi",
    "lrkf": "lrkf",
    "neural-epsilon-greedy": "adamw",
    "neural-greedy": "adamw",
}
"""What the agents of this experiment are made of."""
_ALL: dict[str, dict[str, Any]] = {
    "hilofi": {"rank": 10, "per_output": True},
    "lolofi": {"rank_hidden": 10},
    "lrkf": {"rank": 20},
    "neural-epsilon-greedy": {"policy": "epsilon_greedy"},
    "neural-greedy": {"policy": "greedy"},
}
_FEATURES = {"adult": (200,)}
"""Hidden units of all neural agents, where they are not two layers of 50: 93 columns are too many for 50 units."""


def _noise(variance: float) -> dict[str, float]:
    """The same process noise for hidden layers and last layer."""
    return {"process_noise_hidden": variance, "process_noise_last": variance}


TUNED: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in envs.tables()} | {
    "statlog": {
        "hilofi": {"noise_variance": 1e-3, "initial_std_last": 0.1, **_noise(1e-6)},
        "linear": {"noise": 1e-3, "initial_std": 0.1},
        "neural-epsilon-greedy": {"learning_rate": 3e-4},
        "neural-greedy": {"learning_rate": 3e-4},
    },
    "mushroom": {
        "hilofi": {"noise_variance": 1.0, "initial_std_last": 0.1, **_noise(1e-4)},
        "linear": {"noise": 1.0, "initial_std": 0.1},
        "neural-epsilon-greedy": {"learning_rate": 3e-4},
        "neural-greedy": {"learning_rate": 3e-4},
    },
    "adult": {
        "hilofi": {"noise_variance": 0.01, "initial_std_last": 0.007, **_noise(1e-6), "process_noise_last": 0},
        "linear": {"noise": 0.03, "initial_std": 0.01},
        "neural-epsilon-greedy": {"learning_rate": 1e-5},
        "neural-greedy": {"learning_rate": 1e-4},
    },
    "financial": {
        "hilofi": {"noise_variance": 1e-3, "initial_std_last": 0.1, **_noise(1e-4)},
        "linear": {"noise": 1e-4, "initial_std": 0.1},
        "neural-epsilon-greedy": {"learning_rate": 3e-4},
        "neural-greedy": {"learning_rate": 3e-4},
    },
}
"""Settings by table and agent: the best of `benchmarks/tabular.py`, which uses other seeds than are reported."""


@dataclass(frozen=True, kw_only=True)
class Tabular:
    """Tables as bandits: mushroom, statlog, adult, financial and others; regret in percent of uniform play's."""

    name: ClassVar[str] = "tabular"

    tables: str = "statlog,mushroom,financial,adult"
    """Tables, separated by commas; also census, covertype and jester."""
    agents: str = "hilofi,linear,neural-epsilon-greedy,neural-greedy"
    """Agents, separated by commas; also lolofi and lrkf."""
    steps: int | None = None
    """Steps of each run; None is one pass, 50,000 for mushroom, and at most 50,000."""
    seeds: int = 5
    """Runs of each agent, with seeds SEED, SEED + 1, ..."""
    seed: int = 0
    """First seed."""
    out: Path = Path("results/tabular")
    """Folder for the runs, the tables and the pictures."""


def check(options: Tabular) -> None:
    """Raises ValueError for options that make no sense."""
    for name, value, minimum in (("steps", options.steps, 1), ("seeds", options.seeds, 1), ("seed", options.seed, 0)):
        if value is not None and value < minimum:
            raise ValueError(f"{name} must be at least {minimum}; got {value}")
    for kind, text, known in (("table", options.tables, tuple(TUNED)), ("agent", options.agents, ("linear", *_KINDS))):
        unknown = [name for name in _names(text) if name not in known]
        if unknown:
            raise ValueError(f"unknown {kind} {unknown[0]!r}; known: {', '.join(known)}")


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def module(env: Environment) -> models.MLP:
    """The network of all neural agents in `env`."""
    return models.MLP(int(env.action_space.n), features=_FEATURES.get(env.name, (50, 50)))  # pyright: ignore (Discrete)


def agent(name: str, env: Environment, **settings: Any) -> Agent:
    """The agent of this experiment called `name`, with settings of its own."""
    if name == "linear":
        return linear(env, **settings)
    return agents.make(_KINDS[name], env, **{"model": module(env), **_ALL.get(name, {}), **settings})._replace(
        name=name
    )


def linear(env: Environment, *, noise: float = 0.01, initial_std: float = 0.3) -> Agent:
    """A Kalman filter for each arm's weights and constant, which acts on a draw of each arm's expected reward."""
    count, width = int(env.action_space.n), len(env.params.features[0])  # pyright: ignore (Discrete)

    def apply(params, x):
        weights, constant = params
        return (weights @ x + constant)[None]

    def init(key):
        return jnp.zeros((count, width)), jnp.zeros(count)

    network = models.Network(init, apply, lambda path: False)
    flt = filters.ekf(network, likelihoods.gaussian(noise), initial_std=initial_std)
    return agents.filtering(
        filters.independent(flt, count),
        policies.epistemic_sampling(),
        init,
        env,
        name="linear",
        settings={"noise": noise, "initial_std": initial_std},
    )


def uniform(env: Environment) -> Agent:
    """Uniform play, which learns nothing."""
    count = int(env.action_space.n)  # pyright: ignore[reportAttributeAccessIssue] (Discrete)

    def act(key: Array, state: None, observation: Array) -> Action:
        return Action(jax.random.randint(key, (), 0, count), jnp.float32(1 / count))

    return Agent(lambda key: None, act, lambda state, *_: (state, None), UNIFORM, True, {})


def steps_of(options: Tabular, env: Environment) -> int:
    """Steps of a run in `env`."""
    if options.steps is not None:
        return options.steps
    return _LONGEST if env.name == "mushroom" else min(_LONGEST, len(env.params.features))


def play(options: Tabular, progress: bool | None) -> Iterator[tuple[str, str, Run]]:
    """(table, agent, run) as they are done, uniform play first; stops after a run that Ctrl-C ended."""
    for table in _names(options.tables):
        env = envs.make(table)
        team = {name: agent(name, env, **TUNED[table].get(name, {})) for name in _names(options.agents)}
        for name, member in {UNIFORM: uniform(env), **team}.items():
            steps = steps_of(options, env)
            result = run(member, env, steps, seed=options.seed, num_seeds=options.seeds, progress=progress)
            yield table, name, result
            if result.interrupted:
                return


def summarise(runs: Mapping[str, Mapping[str, Run]]) -> pd.DataFrame:
    """One row for each table and agent.

    Columns: `regret`, cumulative regret in percent of that of uniform play with the same seed, over the steps that both
    have done, and the half-width `regret_95` of its 95% t-interval over seeds; steps; seconds_per_1000_steps of a seed.
    """
    rows = []
    for table, team in runs.items():
        for name, done in team.items():
            steps = min(done.regret.shape[1], team[UNIFORM].regret.shape[1])
            own, even = (one.regret[: len(done.seeds), :steps].sum(axis=1) for one in (done, team[UNIFORM]))
            mean, margin = mean_and_margin(100 * own / even)
            seconds = 1000 * done.run_seconds / done.rewards.size
            rows.append((table, name, float(mean), float(margin), steps, seconds))
    names = ("table", "agent", "regret", "regret_95", "steps", "seconds_per_1000_steps")
    return pd.DataFrame(rows, columns=pd.Index(names)).set_index(["table", "agent"])


def save(options: Tabular, table: str, name: str, done: Run, before: list[str]) -> None:
    """Save one run after those `before` it in its table, and the experiment's manifest."""
    report.save_run(options.out / table, name, done, table, asdict(options), before)
    manifest = {"format": report.FORMAT, "experiment": options.name, "options": as_json(asdict(options)), "runs": []}
    write_json(options.out / "manifest.json", manifest | {"versions": versions()})


def write_report(folder: Path) -> str:
    """Write tables and pictures from the runs in `folder`; returns the table as text. Raises as `report.load_runs`."""
    runs = {table: report.load_runs(folder / table) for table in TUNED if (folder / table / "manifest.json").is_file()}
    for table, team in runs.items():
        report.write_report(folder / table, team, table)
    summary = summarise(runs)
    write_file(folder / "summary.parquet", lambda path: summary.to_parquet(path))
    write_file(folder / "summary.csv", lambda path: summary.to_csv(path))
    report.save_picture(folder / "regret.png", figures.relative_regret(summary))
    return _readable(summary).to_string()


def _readable(summary: pd.DataFrame) -> pd.DataFrame:
    """Agents by tables, "mean ± half-width"."""
    cells = with_margin(summary["regret"].to_numpy(), summary["regret_95"].to_numpy())
    shown = pd.Series(cells, index=summary.index).unstack("table", sort=False)
    return shown.rename_axis(index=None, columns="regret / % of uniform")
