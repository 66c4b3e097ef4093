"""Agents x environments x settings, each with several seeds, on the cores of a machine or of a cluster.

CONFIG.toml:

    steps = 1000
    seeds = 5
    seed = 0

    [environments]
    linear = {}
    noisy = { environment = "linear", noise_std = 0.5 }

    [agents]
    linear = {}
    hilofi = { rank = [10, 50], policy = ["greedy", "epistemic_sampling"] }

A table is named after an environment or an agent of `seqdec list`, or names one in `environment` or `agent`; its other
keys are keywords of that factory. A list stands for one cell with each of its values, several lists for all their
combinations; a value that is a list itself is written as a list in a list.

DIR/cells/KEY.parquet     a finished cell, one row for each seed; KEY is a digest of all that determines the cell
DIR/sweep.parquet         all finished cells, sorted: the same bytes whatever computed them, in whatever order
DIR/summary.csv, DIR/rewards.png
"""

import functools
import hashlib
import itertools
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import tyro

from seqdec import agents, envs, executors
from seqdec.checks import choice
from seqdec.core import Environment
from seqdec.experiments.base import check_minimum
from seqdec.experiments.folder import read_manifest, write_manifest, write_summary
from seqdec.loop.run import run
from seqdec.persistence import read_table, write_table
from seqdec.statistics import mean_and_margin, with_margin

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMAT = "seqdec cell 1"
_CELLS, _TABLE = "cells", "sweep.parquet"
_PLACE = ["environment", "agent", "settings"]
_SHOWN = 20
"""Cells of an environment that the picture shows."""


class Part(NamedTuple):
    """An environment or an agent with its keywords."""

    name: str
    """in the results"""
    kind: str
    """in `seqdec list`"""
    options: dict[str, Any]


class Cell(NamedTuple):
    """One agent with one choice of settings in one environment."""

    environment: Part
    agent: Part
    steps: int
    seed: int
    seeds: int

    def key(self) -> str:
        """A digest of all that determines the result."""
        return hashlib.sha256(json.dumps([_FORMAT, *self], sort_keys=True).encode()).hexdigest()[:20]

    def settings(self) -> str:
        """The agent's keywords as JSON."""
        return json.dumps(self.agent.options, sort_keys=True)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Run agents x environments x settings from a TOML file, on all cores or on a Ray cluster."""

    name: ClassVar[str] = "sweep"

    config: tyro.conf.Positional[Path]
    """TOML file with steps, seeds, environments and agents; its form is in docs/sweeps.md."""
    backend: str = "local"
    """local: processes on this machine; ray: the workers of a Ray cluster (pip install 'seqdec[ray]')."""
    address: str | None = None
    """Address of the Ray cluster, such as auto or ray://head:10001; by default one is started on this machine."""
    workers: int | None = None
    """Processes on this machine; by default one for each core."""
    out: Path = Path("results/sweep")
    """Folder of the results; cells that are finished there are not computed again."""

    def check(self) -> list[Cell]:
        """The cells, each of whose environments and agents has been built once.

        Raises ValueError or TypeError for a wrong option or key, and OSError for a missing file or data.
        """
        choice("backend", self.backend, ("local", "ray"))
        check_minimum(self, workers=1)
        if self.backend == "ray":
            executors.check_ray()
        elif self.address is not None:
            raise ValueError(f"--address belongs to --backend ray; got {self.address!r} with --backend local")
        return read_cells(self.config)

    def restore(self) -> list[tuple[Cell, pd.DataFrame | None]]:
        """Nothing: `play` yields what is finished too."""
        return []

    def play(
        self, plan: list[Cell], finished: Sequence[tuple[Cell, pd.DataFrame | None]]
    ) -> Iterator[tuple[Cell, pd.DataFrame | None]]:
        """Yield (cell, its table, or None where that is saved), the saved ones first.

        Raises RuntimeError after all others are done if cells have failed.
        """
        from tqdm import tqdm

        cells = {cell.key(): cell for cell in plan}
        left = {key: cell for key, cell in cells.items() if not self.file(key).is_file()}
        failed: dict[str, Exception] = {}
        with tqdm(total=len(cells), initial=len(cells) - len(left), unit="cell", disable=None) as bar:
            yield from ((cell, None) for key, cell in cells.items() if key not in left)
            for key, result in executors.completed(self.executor, run_cell, left):
                bar.update()
                if isinstance(result, Exception):
                    failed[key] = result
                else:
                    yield cells[key], result
        if failed:
            key, error = next(iter(failed.items()))
            raise RuntimeError(
                f"{len(failed)} of {len(cells)} cells failed, the first {described(cells[key])}: "
                f"{type(error).__name__}: {error}; the same command tries them again"
            )

    def executor(self) -> Executor:
        """The workers."""
        return executors.Ray(self.address, self.workers) if self.backend == "ray" else executors.local(self.workers)

    def file(self, key: str) -> Path:
        """Where a cell is saved."""
        return self.out / _CELLS / f"{key}.parquet"

    def save(self, parts: list[tuple[Cell, pd.DataFrame | None]]) -> None:
        """Write the last cell and the manifest. Raises OSError where that is impossible."""
        cell, table = parts[-1]
        if table is not None:
            write_table(self.file(cell.key()), table, {"format": _FORMAT})
        write_manifest(self.out, self, cells=[cell.key() for cell, _ in parts])

    @staticmethod
    def report(folder: Path) -> str:
        """Write sweep.parquet, summary.csv and the figure of the cells in `folder`; returns the table as text."""
        keys = read_manifest(folder).get("cells")
        if not keys:
            raise ValueError(f"{folder} holds no finished cell yet")
        tables = [read_table(folder / _CELLS / f"{key}.parquet")[0] for key in keys]
        table = pd.concat(tables, ignore_index=True).sort_values([*_PLACE, "seed"], ignore_index=True)
        write_table(folder / _TABLE, table)
        summary = summarise(table)
        write_summary(folder, summary, {"rewards.png": rewards_figure(summary)})
        return readable(summary).to_string(index=False)


def read_cells(path: Path) -> list[Cell]:
    """The cells of a configuration. Raises ValueError, TypeError or OSError naming the key, the value and the remedy."""
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no configuration {path}") from error
    except ValueError as error:
        raise ValueError(f"{path} is no TOML: {error}") from error
    for key in config:
        choice(f"key in {path}", key, ("steps", "seeds", "seed", "environments", "agents"))
    numbers = {name: _integer(path, config, name, least) for name, least in (("steps", 1), ("seeds", 1), ("seed", 0))}
    settings, contestants = (
        _parts(path, config, group, word, names)
        for group, word, names in (
            ("environments", "environment", envs.names()),
            ("agents", "agent", agents.names()),
        )
    )
    cells = []
    for place in settings:
        env = _built(path, f"environments.{place.name}", place, lambda place=place: build(place))
        for agent in contestants:
            _built(path, f"agents.{agent.name}", agent, lambda env=env, a=agent: agents.make(a.kind, env, **a.options))
            cells.append(Cell(place, agent, **numbers))
    return cells


def _integer(path: Path, config: Mapping[str, Any], name: str, least: int) -> int:
    """A number of the configuration; `steps` has no default."""
    value = config.get(name, {"seeds": 1, "seed": 0}.get(name))
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{path}: {name} must be an integer of at least {least}; got {value!r}")
    return value


def _parts(path: Path, config: Mapping[str, Any], group: str, word: str, known: Sequence[str]) -> list[Part]:
    """The environments or the agents, one for each combination of the values in lists."""
    tables = config.get(group)
    if not isinstance(tables, dict) or not tables:
        raise ValueError(f"{path}: [{group}] must name at least one {word}, such as linear = {{}}; got {tables!r}")
    found = []
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ValueError(f"{path}: {group}.{name} must be a table of keywords, such as {{}}; got {table!r}")
        kind = table.get(word, name)
        choice(f"{word} in {path}", kind, known)
        options = {key: value if isinstance(value, list) else [value] for key, value in table.items() if key != word}
        for values in itertools.product(*options.values()):
            found.append(Part(name, kind, dict(zip(options, values, strict=True))))
    return found


def _built(path: Path, key: str, part: Part, make: Callable[[], Any]) -> Any:
    """What `make` returns; ValueError and TypeError name the key."""
    try:
        return make()
    except (ValueError, TypeError) as error:
        raise type(error)(f"{path}: {key} with {part.options}: {error}") from error


def build(part: Part) -> Environment:
    """The environment; equal ones are built once in a process."""
    return _build(part.kind, json.dumps(part.options, sort_keys=True), os.environ.get("SEQDEC_DATA"))


@functools.lru_cache(maxsize=4)
def _build(kind: str, options: str, data: str | None) -> Environment:
    del data  # a part of the key
    return envs.make(kind, **json.loads(options))


def run_cell(cell: Cell) -> pd.DataFrame:
    """One row for each seed: rewards and regret of all steps, mean reward of the last tenth, rejected updates."""
    env = build(cell.environment)
    agent = agents.make(cell.agent.kind, env, **cell.agent.options)
    result = run(agent, env, cell.steps, seed=cell.seed, num_seeds=cell.seeds, progress=False)
    rewards = result.rewards.astype(np.float64)
    return pd.DataFrame(
        {
            "environment": cell.environment.name,
            "agent": cell.agent.name,
            "settings": cell.settings(),
            "seed": np.asarray(result.seeds, np.int64),
            "steps": cell.steps,
            "reward": rewards.sum(axis=1),
            "last_reward": rewards[:, -max(1, cell.steps // 10) :].mean(axis=1),
            "regret": result.regret.sum(axis=1, dtype=np.float64),
            "rejected": result.rejected.astype(np.int64),
        }
    )


def described(cell: Cell) -> str:
    """A cell in words."""
    return f"{cell.agent.name} {cell.settings()} in {cell.environment.name}"


def summarise(table: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell: means over seeds with the 95% half-widths `_95`."""
    rows = []
    for place, group in table.groupby(_PLACE, sort=False):
        row: dict[str, Any] = {**dict(zip(_PLACE, place, strict=True)), "seeds": len(group)}
        for name in ("reward", "last_reward", "regret"):
            mean, margin = mean_and_margin(group[name].to_numpy())
            row |= {name: float(mean), f"{name}_95": float(margin)}
        rows.append(row | {"rejected": int(group["rejected"].sum())})
    return pd.DataFrame(rows)


def readable(summary: pd.DataFrame) -> pd.DataFrame:
    """The table of `summarise` as strings, the highest reward of each environment first."""
    ordered = summary.sort_values(["environment", "reward"], ascending=[True, False], kind="stable", ignore_index=True)
    cells: dict[str, Any] = {name: ordered[name] for name in ("environment", "agent")}
    cells["settings"] = [_short(settings) for settings in ordered["settings"]]
    for name, title in (("reward", "reward"), ("last_reward", "reward a step, last tenth"), ("regret", "regret")):
        cells[title] = with_margin(ordered[name].to_numpy(), ordered[f"{name}_95"].to_numpy())
    return pd.DataFrame({**cells, "rejected": ordered["rejected"]})


def _short(settings: str) -> str:
    """rank=10, policy=greedy"""
    return ", ".join(f"{name}={value}" for name, value in json.loads(settings).items())


def rewards_figure(summary: pd.DataFrame) -> "Figure":
    """Reward of each cell (mean, 95% interval), a panel for each environment, the best cells of each from above."""
    from seqdec import figures

    groups = dict(list(summary.groupby("environment", sort=False)))
    figure, axes = figures.panels(list(groups))
    for axis, (name, group) in zip(axes, groups.items(), strict=False):
        best = group.nlargest(_SHOWN, "reward").iloc[::-1]
        labels = [
            f"{agent}  {_short(settings)}" for agent, settings in zip(best["agent"], best["settings"], strict=True)
        ]
        axis.errorbar(best["reward"], np.arange(len(best)), xerr=best["reward_95"].fillna(0), fmt="o", ms=4, capsize=2)
        axis.set_yticks(np.arange(len(best)), labels, fontsize=8)
        shown = f"{name}: best {_SHOWN} of {len(group)} cells" if len(group) > _SHOWN else str(name)
        figures.finish_axis(axis, shown, "reward", "")
    return figure
