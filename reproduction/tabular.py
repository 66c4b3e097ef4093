"""Tables as bandits: regret of neural and linear agents in percent of the regret of uniform play.

DIR/manifest.json          options
DIR/TABLE/...              runs, summary.csv and figures of one table, as for any bandit
DIR/summary.parquet, .csv  regret in percent of uniform play's on the same contexts, with 95% intervals over seeds
DIR/regret.png             the same as a figure
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from seqdec import agents, envs, filters, likelihoods, models, policies
from seqdec.commands import bandits
from seqdec.commands.base import Choice, Located, check_choices, check_minimum, check_seeds, split_names
from seqdec.commands.folder import (
    finished_runs,
    load_runs,
    read_manifest,
    save_run,
    started,
    write_manifest,
    write_summary,
)
from seqdec.core import Action, Agent, Array, Environment
from seqdec.introspection import fitted
from seqdec.loop._run import run
from seqdec.persistence import write_table
from seqdec.results import Run
from seqdec.statistics import column_text, percent, summarized

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
"""Agents of this experiment -> names in `seqdec.agents`."""
_ALL: dict[str, dict[str, Any]] = {
    "hilofi": {"rank": 10, "per_output": True, "standardize": False},
    "lolofi": {"rank_hidden": 10, "standardize": False},
    "lrkf": {"rank": 20, "standardize": False},
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
"""Settings by table and agent: the best of a grid, on other seeds than are reported."""


@dataclass(frozen=True, kw_only=True)
class Tabular(Located):
    """Tables as bandits: mushroom, statlog, adult, financial and others; regret in percent of uniform play's.

    Tables are downloaded if missing. On one core, 1,000 steps take up to 2 seconds with auto, 0.03 with linear.
    Example: seqdec run tabular --tables statlog,mushroom --agents auto,linear
    """

    name: ClassVar[str] = "tabular"
    choices: ClassVar[Mapping[str, Choice]] = {
        "tables": Choice("table", TUNED, several=True),
        "agents": Choice("agent", ("auto", "linear", *_KINDS), several=True),
    }

    tables: str = "statlog,mushroom,financial,adult"
    """Tables, separated by commas; also census, covertype and jester."""
    agents: str = "auto,hilofi,linear,neural-epsilon-greedy,neural-greedy"
    """Agents, separated by commas; also lolofi and lrkf."""
    steps: int | None = None
    """Steps of each run; default: one pass of at most 50,000 steps, 50,000 for mushroom."""
    seeds: int = 5
    """Runs of each agent, with seeds SEED, SEED + 1, ..."""
    seed: int = 0
    """First seed."""
    out: Path = Path("results/tabular")
    """Folder for the runs, the tables and the figures."""
    checkpoint_every: int | None = None
    """Steps between checkpoints of a run, for --resume OUT; by default only finished runs are kept."""
    quick: bool = False
    """A small run for two cores; its defaults are at the top of this help."""
    quick_options: ClassVar[Mapping[str, Any]] = {"tables": "statlog,mushroom", "steps": 1000, "seeds": 2}

    def check(self) -> None:
        check_minimum(self, steps=1, checkpoint_every=1)
        check_seeds(self.seed, self.seeds)
        check_choices(self)

    def restore(self) -> list[tuple[str, str, Run]]:
        begun = [name for name in split_names("table", self.tables) if started(self.out / name) == started(self.out)]
        return [(table, name, run) for table in begun for name, run in finished_runs(self.out / table)]

    def play(self, plan: None, finished: Sequence[tuple[str, str, Run]]) -> Iterator[tuple[str, str, Run]]:
        """Yield (table, agent, run), uniform play first in each table; a run that Ctrl-C cut short is the last."""
        done = {(table, name) for table, name, _ in finished}
        for table in split_names("table", self.tables):
            env = envs.make(table)
            team = {UNIFORM: uniform(env)}
            team |= {name: agent(name, env, **TUNED[table].get(name, {})) for name in split_names("agent", self.agents)}
            for name, member in team.items():
                if (table, name) in done:
                    continue
                options = {"seed": self.seed, "num_seeds": self.seeds}
                result = run(member, env, steps_of(self, env), **options, **bandits.checkpoints(self))
                yield table, name, result.replace(state=None)
                if result.interrupted:
                    raise KeyboardInterrupt

    def save(self, parts: list[tuple[str, str, Run]]) -> None:
        table, name, result = parts[-1]
        save_run(self.out / table, name, result)
        names = [name for other, name, _ in parts if other == table]
        write_manifest(self.out / table, self, names, command=started(self.out))
        write_manifest(self.out, self)

    @staticmethod
    def report(folder: Path) -> str:
        if read_manifest(folder)["runs"]:
            return fitted(bandits.write_report(folder, load_runs(folder)))
        tables = [table for table in TUNED if (folder / table / "manifest.json").is_file()]
        runs = {table: load_runs(folder / table) for table in tables}
        for table, team in runs.items():
            bandits.write_report(folder / table, team)
        return write_comparison(folder, summarize(runs))


def module(env: Environment) -> models.MLP:
    """The network of all neural agents in `env`."""
    return models.MLP(int(env.action_space.n), features=_FEATURES.get(env.name, (50, 50)))  # pyright: ignore (Discrete)


def agent(name: str, env: Environment, **settings: Any) -> Agent:
    """The agent of this experiment called `name`, with settings of its own."""
    if name == "linear":
        return linear(env, **settings)
    if name == "auto":  # without settings, with its own network
        return agents.auto(env)
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
    return agents.agent(
        filters.learner(filters.independent(flt, count), init),
        policies.epistemic_sampling(),
        env,
        name="linear",
        settings={"noise": noise, "initial_std": initial_std},
    )


def uniform(env: Environment) -> Agent:
    """Uniform play, which learns nothing."""
    count = int(env.action_space.n)  # pyright: ignore[reportAttributeAccessIssue] (Discrete)

    def act(key: Array, state: None, observation: Array) -> Action:
        return Action(jax.random.randint(key, (), 0, count), jnp.float32(1 / count))

    return Agent(lambda key: None, act, lambda state, *_: (state, None), UNIFORM, {})


def steps_of(options: Tabular, env: Environment) -> int:
    """Steps of a run in `env`."""
    if options.steps is not None:
        return options.steps
    return _LONGEST if env.name == "mushroom" else min(_LONGEST, len(env.params.features))


def summarize(runs: Mapping[str, Mapping[str, Run]]) -> pd.DataFrame:
    """One row for each table and agent.

    Columns: `regret`, cumulative regret in percent of that of uniform play with the same seed, over the steps that both
    have done, and the half-width `regret_95` of its 95% t-interval over seeds; seeds, steps; seconds_per_1000_steps of
    a seed.
    """
    rows = []
    for table, team in runs.items():
        for name, done in team.items():
            steps = min(done.regret.shape[1], team[UNIFORM].regret.shape[1])
            own, even = (one.regret[: len(done.seeds), :steps].sum(axis=1) for one in (done, team[UNIFORM]))
            facts = {"seeds": len(done.seeds), "steps": steps}
            facts["seconds_per_1000_steps"] = 1000 * done.run_seconds / done.rewards.size
            rows.append({"table": table, "agent": name, **summarized({"regret": percent(own, even)}), **facts})
    return pd.DataFrame(rows).set_index(["table", "agent"])


def write_comparison(folder: Path, summary: pd.DataFrame) -> str:
    """Write the table of `summarize` and its figure; returns it as text, agents by tables."""
    write_table(folder / "summary.parquet", summary)
    write_summary(folder, summary, {"regret.png": regret_figure(summary)})
    return fitted(_readable(summary))


def _readable(summary: pd.DataFrame) -> pd.DataFrame:
    """Agents by tables, "mean ± half-width"."""
    cells = pd.Series(column_text(summary, "regret"), index=summary.index).unstack("table", sort=False)
    return cells.rename_axis(index=None, columns="regret / % of uniform")


def regret_figure(summary: pd.DataFrame) -> "Figure":
    """Regret in percent of that of uniform play (mean, 95% interval), a panel for each table; left is better.

    `summary` is indexed by table and agent, with the columns regret, regret_95 and seeds.
    """
    from seqdec import figures

    tables = list(dict.fromkeys(summary.index.get_level_values("table")))
    agents = list(dict.fromkeys(summary.index.get_level_values("agent")))
    title = f"Regret, less is better · {figures.mean_and_interval(int(summary['seeds'].to_numpy().max()))}"
    figure, axes = figures.panels(tables)
    for table, axis in zip(tables, axes, strict=True):
        rows = summary.xs(table, level="table")
        regret, margin = rows["regret"].to_numpy(), np.nan_to_num(rows["regret_95"].to_numpy())
        figures.intervals(axis, list(rows.index), regret, np.stack([np.minimum(margin, regret), margin]), agents)
        for place, value in enumerate(regret):
            axis.annotate(f"{value:.1f}", (value, place), (2, 7), textcoords="offset points", fontsize=9)
        axis.set_title(table, **figures.TITLE)
        axis.set_xlabel("cumulative regret / % of uniform play")
        axis.set_xlim(0, 1.2 * axis.get_xlim()[1])
    return figures.titled(figure, title)
