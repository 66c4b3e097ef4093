"""Replay of a recommender's log: choose one of a user's next ten videos; agents compared by watch ratio, day by day.

Agents learn from log(1 + watch_ratio); tables and figures show watch ratios. Without data the log is SYNTHETIC, and
manifest, tables and figures say so.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from seqdec import agents, envs, models
from seqdec.commands import contenders
from seqdec.commands.bandits import Bandit, Plan, pictures
from seqdec.commands.base import Choice, check_path
from seqdec.commands.folder import load_runs, save_table, write_summary
from seqdec.core import Environment, Network
from seqdec.data import WATCH_RATIO, RecommenderLog, load_kuairec, load_random_exposures, synthetic_kuairec
from seqdec.introspection import fitted
from seqdec.persistence import read_table, write_table
from seqdec.results import Run, compare, readable
from seqdec.statistics import mean_and_margin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DAYS = "days.parquet"
_PERIODS = 50
_STATIC = {"process_noise_hidden": 0.0, "process_noise_last": 0.0}
_BELIEF = {
    "policy": "ucb",
    "noise_variance": 0.065,
    "rank": 20,
    "initial_std_table": {"user": (0.1, 0.3, 0.3, 0.3), "video": (0.2, 0.3, 0.3, 0.3)},
}
_TUNED: Mapping[str, Mapping[str, Any]] = {
    "adamw": {"learning_rate": 1e-3, "inner_steps": 1, "policy": "greedy"},
    "hilofi": {"initial_std_hidden": 1.0, "initial_std_last": 0.1, **_STATIC, **_BELIEF},
    "linear": {
        "policy": "greedy",
        "noise_variance": 0.03,
        "initial_std": 0.1,
        "initial_std_table": 0.1,
        "standardize": False,
    },
    "lrkf": {"initial_std": 0.3, "process_noise": 0.0, **_BELIEF},
    "popularity": {"prior_plays": 3.0},
}
"""Settings from a grid of each agent, on a log that is not reported.

Those of the filters serve both logs: R is near the variance of log(1 + watch ratio) within a video, and the first
number of an embedding is the intercept, whose prior deviation is that of the means of users or videos.
"""
_TUNED_EXPOSURES: Mapping[str, Mapping[str, Any]] = {
    **_TUNED,
    "linear": {
        "policy": "ucb",
        "noise_variance": 0.05,
        "initial_std": 1.0,
        "initial_std_table": 0.2,
        "standardize": False,
    },
    "popularity": {"prior_plays": 10.0},
}
"""Baselines that do better with other settings on the random exposures, on a seed that is not reported."""

_TS = {"policy": "thompson"}
_PAPER: Mapping[str, Mapping[str, Any]] = {
    "hilofi": {
        "noise_variance": 1e-4, "rank": 20, "initial_std_hidden": 1.0, "initial_std_last": 1.0, **_STATIC, **_TS,
    },
    "last_layer_laplace": {"learning_rate": 1e-4, "buffer": 10, "inner_steps": 50, **_TS},
    "lofi": {"noise_variance": 0.1, "rank": 20, **_TS},
    "lrkf": {"noise_variance": 1e-2, "rank": 20, "process_noise": 0.0, "initial_std": 1.0, **_TS},
    "on_vbll": {"buffer": 10, "inner_steps": 50, "regularization": 1.0, **_TS},
    "vbll": {"capacity": 1000, "inner_steps": 100, "batch_size": None, **_TS},
}  # fmt: skip
"""Settings of the paper: rank 20, identity covariances, Thompson sampling, embeddings among the hidden layers. It does
not state R, which is that of its code.

VBLL's regularization, 1e-3 for a memory of 1,000 rows there, is divided by the number of observations here.
"""


@dataclass(frozen=True, kw_only=True)
class KuaiRec(Bandit):
    """Recommender's log: choose one of a user's next ten videos; without --data the log is SYNTHETIC.

    KuaiRec must be fetched by hand. On one core, 1,000 steps take about 0.1 seconds with hilofi, plus compilation.
    Example: seqdec run kuairec --agents hilofi,popularity
    """

    name: ClassVar[str] = "kuairec"
    quick_options: ClassVar[Mapping[str, Any]] = {"steps": 1000, "seeds": 2}
    paper: ClassVar[Mapping[str, Mapping[str, Any]]] = _PAPER
    published_options: ClassVar[Mapping[str, Any]] = {
        "agents": "hilofi,hilofi.published,lrkf,lrkf.published,lofi.published,last_layer_laplace.published,"
        "on_vbll.published,vbll.published,random",
        "steps": 200_000,
        "seeds": 1,
    }
    choices: ClassVar[Mapping[str, Choice]] = {
        **Bandit.choices,
        "matrix": Choice("matrix", ("small", "big")),
        "order": Choice("order", ("chronological", "shuffled")),
    }

    data: Path | None = None
    """Folder with the official CSV files."""
    matrix: str = "small"
    """File in that folder: small for small_matrix.csv, big for big_matrix.csv."""
    exposures: bool = False
    """Replay the real slice random_exposures.txt from $SEQDEC_DATA/kuairec, without features and times."""
    order: str | None = None
    """chronological or shuffled (one order for each seed); default: chronological if times are known, else shuffled."""
    published: bool = False
    """As in the paper and its code: add agents with its settings, shuffle the blocks, do not standardize counts of the
    next day."""
    agents: str = "hilofi,lrkf,adamw,linear,popularity,random"
    steps: int = 20_000
    """Steps of each run, at most the number of blocks in the log."""
    seeds: int = 5
    out: Path = Path("results/kuairec")

    def check(self) -> Plan:
        names = self.names()
        if self.exposures and (self.data is not None or self.published):
            raise ValueError("--exposures has a log of its own; leave out --data and --published")
        if self.data is not None:
            check_path("data", self.data)
        log = _log(self)
        timed = log.days is not None and not self.published
        order = self.order or ("chronological" if timed else "shuffled")
        steps = min(len(log.rewards), self.steps)
        env = envs.recommender_log(log, order=order, standardize=not self.published)
        return Plan(env, {name: self.agent(name, env) for name in names}, steps, _days(log, order, steps))

    def network_of(self, kind: str, env: Environment) -> Network:
        """Users and videos, with a belief for each row and direct paths."""
        if contenders.has_filter(kind):
            return agents.scorer(env)
        return agents.scorer(env, models.Score(intercepts=True, product=True), width=4, std=0.1)

    def presets(self, kind: str) -> dict[str, Any]:
        """Those tuned for the kind of log."""
        return dict((_TUNED_EXPOSURES if self.exposures else _TUNED).get(kind, {}))

    def of_paper(self, kind: str, env: Environment) -> dict[str, Any]:
        """Those of the paper, with its reward model and dense Jacobians."""
        model = agents.scorer(env, models.Score(), tables=("video",), width=10, std=10**-0.5)
        return {"model": model._replace(tables=()), **super().of_paper(kind, env)}

    def play(self, plan: Plan, finished: Sequence[tuple[str, Run]]) -> Iterator[tuple[str, Run]]:
        days = plan.days
        assert days is not None
        write_table(self.out / DAYS, days)
        yield from super().play(plan, finished)

    @classmethod
    def report(cls, folder: Path) -> str:
        runs = {name: in_watch_ratios(run) for name, run in load_runs(folder).items()}
        table, days = compare(runs), daily(runs, read_table(folder / DAYS)[0])
        save_table(folder / "daily.csv", days, index=False)
        summary, shown = tables(runs, table, readable(table))
        picture = daily_figure(days, table, next(iter(runs.values())).env)
        write_summary(folder, summary, {**pictures(runs), "daily.png": picture})
        return fitted(shown)


def _log(options: KuaiRec) -> RecommenderLog:
    """The log that the options ask for."""
    if options.exposures:
        return load_random_exposures()
    if options.data is None:
        return synthetic_kuairec()
    return load_kuairec(options.data, matrix=f"{options.matrix}_matrix.csv", feature_lag=-1 if options.published else 1)


def _days(log: RecommenderLog, order: str, steps: int) -> pd.DataFrame:
    """The day of every step; where the order is not that of time, one of fifty equal periods."""
    if order == "chronological" and log.days is not None:
        return pd.DataFrame({"period": pd.to_datetime(log.days[:steps].astype(str), format="%Y%m%d")})
    return pd.DataFrame({"period": np.arange(steps) * min(_PERIODS, steps) // steps + 1})


def in_watch_ratios(run: Run) -> Run:
    """The run with reward and regret in watch ratio, not in its logarithm."""
    watched, below_best = WATCH_RATIO.convert(run.rewards, run.regret)
    return run.replace(rewards=watched, regret=below_best)


def daily(runs: Mapping[str, Run], days: pd.DataFrame) -> pd.DataFrame:
    """One row for each agent and day: steps, mean and cumulative watch ratio, with 95% half-widths over seeds."""
    parts = []
    for name, run in runs.items():
        periods, starts = np.unique(days["period"].to_numpy()[: run.rewards.shape[1]], return_index=True)
        sums = np.add.reduceat(run.rewards.astype(np.float64), starts, axis=1)
        steps = np.diff(np.append(starts, run.rewards.shape[1]))
        (mean, mean_95), (total, total_95) = mean_and_margin(sums / steps), mean_and_margin(np.cumsum(sums, axis=1))
        columns = {"mean": mean, "mean_95": mean_95, "cumulative": total, "cumulative_95": total_95}
        parts.append(pd.DataFrame({"agent": name, "period": periods, "steps": steps, **columns}))
    return pd.concat(parts, ignore_index=True)


def tables(runs: Mapping[str, Run], table: pd.DataFrame, shown: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The tables of `compare` and `readable` with the watch ratio per step, and what was replayed as their corner."""
    mean, margin = (table[name].to_numpy() / table["steps"].to_numpy() for name in ("reward", "reward_95"))
    log = next(iter(runs.values())).env
    titles = {"reward": "watch ratio", "regret": "below the best"}
    shown = shown.rename(columns=titles).rename_axis(log)
    shown.insert(
        0, "per step", [f"{m:.4f}" + ("" if np.isnan(e) else f" ± {e:.4f}") for m, e in zip(mean, margin, strict=True)]
    )
    return table.assign(per_step=mean, per_step_95=margin, log=log), shown.rename_axis(columns=log, index=None)


def daily_figure(days: pd.DataFrame, table: pd.DataFrame, log: str) -> "Figure":
    """Watch ratio day by day: mean of each day, sum so far (both with 95% bands over seeds), and time per 1,000 steps.

    `days` has the columns agent, period, mean, mean_95, cumulative, cumulative_95; `table`, indexed by agent,
    seconds_per_1000_steps and seeds.
    """
    from matplotlib.dates import DateFormatter
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedFormatter

    from seqdec import figures

    names = list(table.index)
    looks = figures.styles(names)
    figure = Figure(figsize=(12.6, 4.6), dpi=140, layout="constrained")
    mean, total, clock = figure.subplots(1, 3, width_ratios=(1, 1, 0.62))
    for style, name in zip(looks, names, strict=True):
        rows: Any = days.loc[days["agent"] == name]
        for axis, column in ((mean, "mean"), (total, "cumulative")):
            middle, margin = rows[column].to_numpy(), rows[f"{column}_95"].to_numpy()
            axis.plot(rows["period"], middle, label=name, lw=1.8, marker="o" if len(rows) == 1 else None, **style)
            band = np.maximum(middle - margin, 0), middle + margin
            axis.fill_between(rows["period"], *band, color=style["color"], alpha=0.16, lw=0)
    seconds = table["seconds_per_1000_steps"].to_numpy()
    bars = clock.barh(range(len(names)), seconds, color=[style["color"] for style in looks], height=0.6)
    clock.bar_label(bars, fmt="%.2f", padding=3)
    clock.set_yticks(range(len(names)), names)
    clock.invert_yaxis()
    dated = pd.api.types.is_datetime64_any_dtype(days["period"])
    unit = "day" if dated else "fiftieth of the run"
    figures.finish_axis(mean, f"Mean watch ratio of each {unit}", unit, "watch ratio per step")
    figures.finish_axis(total, "Watch ratio, summed", unit, "watch ratio")
    figures.finish_axis(clock, "Running time", "s per 1,000 steps", "")
    clock.margins(x=0.15)
    clock.grid(visible=False)
    every = days["period"].unique()
    for axis in (mean, total) if dated else ():
        axis.set_xticks(every[:: math.ceil(len(every) / 5)])
        axis.xaxis.set_major_formatter(DateFormatter("%d %b"))
    clock.yaxis.set_major_formatter(FixedFormatter(names))
    figures.legend(figure, [mean, total], names)
    title = f"{log} · {figures.bands(int(table['seeds'].to_numpy().max()))}"
    return figures.titled(figure, title)
