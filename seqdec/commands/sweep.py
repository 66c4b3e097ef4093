"""Agents x environments x settings x seeds.

DIR/config.toml           the configuration, see docs/sweeps.md
DIR/cells/KEY.parquet     a finished cell, a row for each seed; KEY is a digest of all that determines it
DIR/sweep.parquet         all finished cells, sorted; the same bytes in whatever order and wherever they were computed
DIR/summary.csv, DIR/rewards.png
"""

import functools
import hashlib
import itertools
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import tyro

from seqdec import agents, envs, policies
from seqdec.boundary.checks import choice, seeds
from seqdec.commands.base import Choice, Distributed, check_choices
from seqdec.commands.folder import read_manifest, write_manifest, write_summary
from seqdec.core import Environment
from seqdec.introspection import fitted
from seqdec.loop._run import run
from seqdec.persistence import read_table, read_text, versions, write_file, write_table
from seqdec.plugins import named_by
from seqdec.registry import Registry, unknown
from seqdec.statistics import column_text, summarized

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FORMAT = "seqdec cell 1"
_NUMBERS: Mapping[str, tuple[int, int | None]] = {"steps": (1, None), "seeds": (1, 1)}
_GROUPS: Mapping[str, tuple[str, Registry[Any]]] = {
    "environments": ("environment", envs.REGISTRY),
    "agents": ("agent", agents.REGISTRY),
}
_NAMED: Mapping[str, Registry[Any]] = {"policy": policies.REGISTRY, "env": envs.REGISTRY}
"""Keywords of environments and agents that take a name of a registry."""


class Part(NamedTuple):
    """An environment or an agent with its keywords."""

    name: str
    """in the results"""
    kind: str
    """in `seqdec list`"""
    options: dict[str, Any]

    def settings(self) -> str:
        """The keywords as JSON."""
        return json.dumps(self.options, sort_keys=True)


class Cell(NamedTuple):
    """An agent with settings in an environment, for several seeds."""

    environment: Part
    agent: Part
    steps: int
    seeds: int
    seed: int

    def key(self) -> str:
        """Digest of settings, versions and files of external factories."""
        named = [(envs.REGISTRY, self.environment.kind), (agents.REGISTRY, self.agent.kind)]
        named += [
            (_NAMED[key], value)
            for part in self[:2]
            for key, value in part.options.items()
            if key in _NAMED and isinstance(value, str)
        ]
        files = (registry.digest(name) for registry, name in named)
        content = [_FORMAT, *self, _present(), *(file for file in files if file is not None)]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:20]

    def __str__(self) -> str:
        place, agent = (f"{part.name} {short(part.settings())}".strip() for part in self[:2])
        return f"{agent} in {place}"


@dataclass(frozen=True, kw_only=True)
class Sweep(Distributed):
    """Run agents x environments x settings of a TOML file, on all cores or a Ray cluster.

    The same command, or --resume, keeps finished cells in the folder and computes the others.
    """

    name: ClassVar[str] = "sweep"
    choices: ClassVar[Mapping[str, Choice]] = {"backend": Choice("backend", ("local", "ray"))}

    config: tyro.conf.Positional[Path]
    """TOML file with steps, seeds, environments and agents, see docs/sweeps.md."""
    out: Path = Path("results/sweep")
    """Folder of the results."""

    def check(self) -> list[Cell]:
        check_choices(self)
        self.check_backend()
        with named_by(self.config):
            return read_cells(self.config)

    def play(self, plan: list[Cell], finished: Sequence[Any]) -> Iterator[tuple[str, pd.DataFrame | None]]:
        # Finished cells are found by their files, whatever command computed them.
        from seqdec.progress import bar

        cells = {cell.key(): cell for cell in plan}
        kept = self.out / "config.toml"
        content = self.config.read_bytes()
        write_file(kept, lambda path: path.write_bytes(content))
        write_manifest(self.out, replace(self, config=kept), cells=list(cells))
        saved = [key for key in cells if _file(self.out, key).is_file()]
        failed: dict[str, BaseException] = {}
        with bar(len(cells), "sweep", "cell", initial=len(saved)) as progress:
            yield from ((key, None) for key in saved)
            for key, outcome in self._completed({key: cells[key] for key in cells if key not in saved}):
                progress.update()
                if isinstance(outcome, BaseException):
                    failed[key] = outcome
                else:
                    yield key, outcome
        if failed:
            key, error = next((key, failed[key]) for key in cells if key in failed)
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise RuntimeError(f"{len(failed)} of {len(cells)} cells failed, among them {cells[key]}: {reason}")

    def _completed(self, cells: Mapping[str, Cell]) -> Iterator[tuple[str, pd.DataFrame | BaseException]]:
        """(key, table) or (key, error) of each completed cell. Closing it ends all workers."""
        if not cells:
            return
        executor = self.executor()
        try:
            futures = {executor.submit(run_cell, cell, key): key for key, cell in cells.items()}
            for future in as_completed(futures):
                yield futures[future], future.exception() or future.result()
        finally:
            executor.shutdown(cancel_futures=True)

    def save(self, parts: list[tuple[str, pd.DataFrame | None]]) -> None:
        key, table = parts[-1]
        if table is not None:
            write_table(_file(self.out, key), table, {"format": _FORMAT})

    @staticmethod
    def report(folder: Path) -> str:
        planned = read_manifest(folder).get("cells", [])
        files = [path for path in (_file(folder, key) for key in planned) if path.is_file()]
        if not files:
            raise ValueError(f"{folder} has no finished cell yet")
        table = pd.concat([read_table(path)[0] for path in files])
        table = table.sort_values([*CELL, "seed"], ignore_index=True)
        write_table(folder / "sweep.parquet", table)
        summary = summarize(table)
        words = {name: summary[name].map(short) for name in CELL if name.endswith("settings")}
        write_summary(folder, summary.assign(**words), {"rewards.png": rewards_figure(summary)})
        missing = len(planned) - len(files)
        text = fitted(readable(summary), index=False)
        return f"{text}\n\n{missing} of {len(planned)} cells are not finished." if missing else text


def _file(folder: Path, key: str) -> Path:
    return folder / "cells" / f"{key}.parquet"


def run_cell(cell: Cell, key: str) -> pd.DataFrame:
    """A row for each seed. Raises RuntimeError where versions differ from the key's."""
    if cell.key() != key:
        raise RuntimeError(f"a worker has other versions than this machine: {_present()}")
    env = build(cell.environment)
    agent = agents.make(cell.agent.kind, env, **cell.agent.options)
    result = run(agent, env, cell.steps, seed=cell.seed, num_seeds=cell.seeds, progress=False)
    rewards = result.rewards.astype(np.float64)
    values = (cell.environment.name, cell.environment.settings(), cell.agent.name, cell.agent.settings())
    return pd.DataFrame(
        {
            **dict(zip(CELL, values, strict=True)),
            "seed": np.asarray(result.seeds, np.int64),
            "steps": cell.steps,
            "reward": rewards.sum(axis=1),
            "last_reward": rewards[:, -max(1, cell.steps // 10) :].mean(axis=1),
            "regret": result.regret.sum(axis=1, dtype=np.float64),
            "rejected": result.rejected.astype(np.int64),
        }
    )


@functools.cache
def _present() -> str:
    known = versions()
    return ", ".join(f"{package} {known[package]}" for package in ("seqdec", "jax", "jaxlib"))


def build(part: Part) -> Environment:
    """The environment, built once in a process."""
    return _build(part.kind, part.settings())


@functools.lru_cache(maxsize=4)
def _build(kind: str, settings: str) -> Environment:
    return envs.make(kind, **json.loads(settings))


def read_cells(path: Path) -> list[Cell]:
    """The cells of a configuration. Raises ValueError or OSError naming key, value and remedy."""
    try:
        text = read_text(path)
    except FileNotFoundError as error:
        raise ValueError(f"no such file: {path}") from error
    try:
        config = tomllib.loads(text)
    except ValueError as error:
        raise ValueError(f"{path} is not TOML: {error}") from error
    for key in config:
        choice(f"key of {path}", key, (*_NUMBERS, "seed", *_GROUPS))
    numbers = {name: _integer(path, config, name) for name in _NUMBERS}
    try:
        numbers["seed"] = seeds(config.get("seed", 0), numbers["seeds"]).start
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    places, contestants = (_parts(path, config, group) for group in _GROUPS)
    cells = []
    for place in places:
        env = _built(path, "environments", place, functools.partial(build, place))
        for agent in contestants:
            make = functools.partial(agents.make, agent.kind, env, **agent.options)
            _built(path, "agents", agent, make)
            cells.append(Cell(place, agent, **numbers))
    return cells


def _integer(path: Path, config: Mapping[str, Any], name: str) -> int:
    least, default = _NUMBERS[name]
    value = config.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{path}: {name} must be an integer of at least {least}; got {value!r}")
    return value


def _parts(path: Path, config: Mapping[str, Any], group: str) -> list[Part]:
    word, registry = _GROUPS[group]
    tables = config.get(group)
    if not isinstance(tables, dict) or not tables:
        raise ValueError(f"{path}: [{group}] must name at least one {word}, such as linear = {{}}; got {tables!r}")
    found = []
    for name, table in tables.items():
        key = f"{path}: {group}.{name}"
        if not isinstance(table, dict):
            raise ValueError(f"{key} must be a table of keywords, such as {{}}; got {table!r}")
        kind = table.get(word, name)
        if kind not in registry:
            raise ValueError(f"{key}: {unknown(word, kind, registry.names())}")
        options = {one: value if isinstance(value, list) else [value] for one, value in table.items() if one != word}
        for one, values in options.items():
            if not values or any(value in values[:index] for index, value in enumerate(values)):
                raise ValueError(f"{key}.{one} must list at least one value, and none twice; got {values!r}")
        for values in itertools.product(*options.values()):
            found.append(Part(name, kind, dict(zip(options, values, strict=True))))
    return found


def _built(path: Path, group: str, part: Part, make: Callable[[], Any]) -> Any:
    """What `make` returns. Raises ValueError naming the key."""
    try:
        part.settings()  # TOML has dates, JSON and keywords have not
        return make()
    except OSError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"{path}: {group}.{part.name} with {part.options}: {reason}") from error


CELL = ["environment", "environment_settings", "agent", "settings"]
"""Columns that identify a cell."""
_MEASURES = {"reward": "reward", "last_reward": "reward a step, last tenth", "regret": "regret"}
_CELLS, _ENVIRONMENTS = 20, 30


def summarize(table: pd.DataFrame) -> pd.DataFrame:
    """A row for each cell: means over seeds, 95% half-widths `_95`."""
    rows = []
    cell: Any
    for cell, group in table.groupby(CELL, sort=False):
        row = {
            **dict(zip(CELL, cell, strict=True)),
            "seeds": len(group),
            **summarized({one: group[one] for one in _MEASURES}),
        }
        rows.append(row | {"rejected": int(group["rejected"].to_numpy().sum())})
    return pd.DataFrame(rows)


def readable(summary: pd.DataFrame) -> pd.DataFrame:
    """The summary as strings, by falling reward in each environment."""
    place = ["environment", "environment_settings"]
    ordered = summary.sort_values([*place, "reward"], ascending=[True, True, False], kind="stable", ignore_index=True)
    columns: dict[str, Any] = {
        "environment": _labels(ordered, *place),
        "agent": ordered["agent"],
        "settings": [short(settings) for settings in ordered["settings"]],
    }
    columns |= {title: column_text(ordered, name) for name, title in _MEASURES.items()}
    return pd.DataFrame({**columns, "rejected": ordered["rejected"]})


def short(settings: str) -> str:
    """Settings in words, such as rank=10, policy=greedy."""
    return ", ".join(f"{name}={value}" for name, value in json.loads(settings).items())


def _labels(table: pd.DataFrame, name: str, settings: str) -> list[str]:
    return [f"{one} {short(more)}".strip() for one, more in zip(table[name], table[settings], strict=True)]


def rewards_figure(summary: pd.DataFrame) -> "Figure":
    """Reward of each cell (mean, 95% interval), by environment, the best on top."""
    from matplotlib.figure import Figure

    from seqdec import figures

    labels = _labels(summary, "environment", "environment_settings")
    groups = list(summary.groupby(labels, sort=False))
    sizes = [min(_CELLS, len(group)) for _, group in groups[:_ENVIRONMENTS]]
    height = 0.8 + sum(0.9 + 0.24 * size for size in sizes)
    figure = Figure(figsize=(8.2, height), dpi=140, layout="constrained")
    axes = figure.subplots(len(sizes), squeeze=False, height_ratios=[2 + size for size in sizes])[:, 0]
    everywhere = list(dict.fromkeys(_labels(summary, "agent", "settings")))
    for axis, (name, group) in zip(axes, groups, strict=False):
        best = group.nlargest(_CELLS, "reward")
        margins = np.nan_to_num(best["reward_95"].to_numpy())
        figures.intervals(axis, _labels(best, "agent", "settings"), best["reward"].to_numpy(), margins, everywhere)
        shown = f"{name}: best {_CELLS} of {len(group)} cells" if len(group) > _CELLS else str(name)
        axis.set_title(shown, **figures.TITLE)
        axis.set_xlabel("reward of all steps")
    title = f"Sweep · {figures.mean_and_interval(int(summary['seeds'].to_numpy().max()))}"
    title += f" · {_ENVIRONMENTS} of {len(groups)} environments" if len(groups) > _ENVIRONMENTS else ""
    return figures.titled(figure, title)
