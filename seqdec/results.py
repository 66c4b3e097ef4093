"""Results of runs: tables, logs, files and comparisons."""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec import ope
from seqdec.introspection import counted, described, html, listed, ranged
from seqdec.persistence import check_folder_name, check_format, is_temporary, located, read_table, write_table
from seqdec.rows import row_index
from seqdec.statistics import mean_and_margin, with_margin

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

COLUMNS = ("seed", "step", "action", "reward", "regret", "propensity", "elapsed")
"""Of every run's table; no names for diagnostics."""

_FORMAT = "seqdec run 2"
_TABLE = "steps.parquet"


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """All steps of one agent in one environment, for several seeds, as NumPy arrays; `len` and slices are of steps."""

    agent: str
    """Name of the agent."""
    env: str
    """Name of the environment."""
    seeds: tuple[int, ...]
    """Of the rows."""
    actions: np.ndarray
    """(num_seeds, num_steps) indices, or (num_seeds, num_steps, *shape) points of a box."""
    rewards: np.ndarray
    """(num_seeds, num_steps); NaN where the action was not allowed."""
    regret: np.ndarray
    """(num_seeds, num_steps) expected reward lost; NaN where unknown."""
    propensities: np.ndarray
    """(num_seeds, num_steps) probability by which the action was drawn; NaN where unknown."""
    diagnostics: dict[str, np.ndarray]
    """(num_seeds, num_steps, ...) each."""
    rejected: np.ndarray
    """(num_seeds,) rejected updates."""
    elapsed: np.ndarray
    """(num_steps,) seconds by the end of each step, all seeds together; interpolated in chunks."""
    compile_seconds: float
    """Seconds of compilation."""
    interrupted: bool
    """Ctrl-C ended the run early."""
    settings: dict[str, Any]
    """Settings of the agent, as JSON values."""
    versions: dict[str, str]
    """Versions of packages, Python, platform and device."""
    state: Any = None
    """`seqdec.loop.record.RunState` after the last step, to continue by `seqdec.run(..., state=)`; its `agent` is the
    agent's state, (num_seeds, ...). Not saved; None after an interruption and for a gymnasium.Env."""

    def __repr__(self) -> str:
        seeds, steps = self.rewards.shape
        rejected = int(np.sum(self.rejected))
        return described(
            f"Run of {self.agent} in {self.env}: {counted(seeds, 'seed')}, {counted(steps, 'step')}"
            f"{', interrupted' if self.interrupted else ''}",
            f"reward per step: {ranged(self.rewards)}; regret: {ranged(self.regret)}",
            f"{counted(rejected, 'update')} rejected; diagnostics: {', '.join(self.diagnostics) or 'none'}",
            f"settings: {listed(self.settings)}" if self.settings else "no settings",
            f"{self.compile_seconds:.3g} s of compilation, {self.run_seconds:.3g} s of running",
        )

    def __len__(self) -> int:
        return self.rewards.shape[1]

    def __getitem__(self, steps: Any) -> "Run":
        """Steps of all seeds by a slice, bools, indices, or one index, without `state`. Raises IndexError."""
        at = row_index(steps, len(self))
        names = ("actions", "rewards", "regret", "propensities")
        return self.replace(
            **{name: getattr(self, name)[:, at] for name in names},
            diagnostics={name: part[:, at] for name, part in self.diagnostics.items()},
            elapsed=self.elapsed[at],
            state=None,
        )

    def replace(self, **fields: Any) -> "Run":
        """The same with other values of these fields, which are not checked."""
        return dataclasses.replace(self, **fields)

    def _repr_html_(self) -> str:
        import pandas as pd

        table = pd.DataFrame(
            {
                "seed": self.seeds,
                "steps": self.rewards.shape[1],
                "total reward": np.nansum(self.rewards, axis=1),
                "total regret": self.regret.sum(axis=1),
                "rejected updates": self.rejected,
            }
        )
        return html(repr(self), table)

    @property
    def run_seconds(self) -> float:
        """Seconds of running, all seeds, without compilation."""
        return float(self.elapsed[-1])

    def to_pandas(self) -> "pd.DataFrame":
        """A row for each seed and step; a column for each entry of actions and diagnostics."""
        import pandas as pd

        num_seeds, num_steps = self.rewards.shape
        columns = {
            "seed": np.repeat(np.asarray(self.seeds, np.int64), num_steps),
            "step": np.tile(np.arange(num_steps), num_seeds),
            **_flatten("action", self.actions),
            "reward": self.rewards.ravel(),
            "regret": self.regret.ravel(),
            "propensity": self.propensities.ravel(),
            "elapsed": np.tile(self.elapsed, num_seeds),
        }
        for name, values in self.diagnostics.items():
            columns |= _flatten(name, values)
        return pd.DataFrame(columns)

    def log(self, seed: int, *, num_actions: int | None = None) -> ope.Log:
        """The steps of one of `seeds` for off-policy evaluation; time is the number of the step.

        Needs `seqdec.run(..., diagnostics=("observation",))` and, without masks, the number of actions; "probabilities"
        among the diagnostics become `Log.logging`. Raises ValueError without observations, propensities, known rewards
        or indices as actions, and for another seed.
        """
        observed = {name: part for name, part in self.diagnostics.items() if name.split(".")[0] == "observation"}
        if seed not in self.seeds or not observed or self.actions.ndim > 2:
            raise ValueError(
                f"a log needs one of the seeds {self.seeds}, actions that are indices and a run with "
                f'diagnostics=("observation",); got seed {seed}, actions of shape {self.actions.shape[2:]} and '
                f"diagnostics {tuple(self.diagnostics)}"
            )
        row = self.seeds.index(seed)
        mask = observed.pop("observation.mask", None)
        steps, law = self.rewards.shape[1], self.diagnostics.get("probabilities")
        return ope.make_log(
            action=self.actions[row],
            reward=self.rewards[row],
            propensity=self.propensities[row],
            context=np.concatenate([part[row].reshape(steps, -1) for part in observed.values()], axis=1),
            mask=None if mask is None else mask[row],
            num_actions=int(self.actions[row].max()) + 1 if num_actions is None and mask is None else num_actions,
            logging=None if law is None else law[row],
        )

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write `directory`/steps.parquet, settings and versions in its metadata, in place of an earlier run.

        Raises FileExistsError when the directory holds anything else, ValueError where it is named as a file, OSError.
        """
        folder = located(directory)
        check_folder_name(folder)
        if folder.exists() and not (
            folder.is_dir() and all(item.name == _TABLE or is_temporary(item) for item in folder.iterdir())
        ):
            raise FileExistsError(f"{folder} exists and is not a saved run; choose another folder")
        manifest = {
            "format": _FORMAT,
            "agent": self.agent,
            "env": self.env,
            "seeds": list(self.seeds),
            "num_steps": self.rewards.shape[1],
            "action_shape": list(self.actions.shape[2:]),
            "diagnostic_shapes": {name: list(values.shape[2:]) for name, values in self.diagnostics.items()},
            "rejected": self.rejected.tolist(),
            "compile_seconds": self.compile_seconds,
            "run_seconds": self.run_seconds,
            "interrupted": self.interrupted,
            "settings": self.settings,
            "versions": self.versions,
        }
        write_table(folder / _TABLE, self.to_pandas(), manifest)

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> "Run":
        """Read what `save` wrote. Raises FileNotFoundError without a run, ValueError for a damaged one."""
        path = located(directory) / _TABLE
        if not path.is_file():
            raise FileNotFoundError(f"{path.parent} has no saved run: {_TABLE} is missing")
        table, manifest = read_table(path)
        check_format(path, manifest, _FORMAT)
        return _restore(table, manifest)

    def plot(self) -> "Figure":
        """Average reward, reward of each seed, cumulative regret, regret against time; 95% bands of three seeds on."""
        return plot_comparison({self.agent: self})


def compare(runs: Mapping[str, Run], baseline: str | None = None) -> "pd.DataFrame":
    """One row for each run: sums over its steps, averaged over its seeds.

    Intervals of two agents may overlap although one is better with every seed: `baseline` is a name in `runs`, from
    whose reward with the same seed each reward differs by `ahead`, with the half-width `ahead_95`.

    Columns: steps, seeds; reward and regret with the half-widths `reward_95`, `regret_95` of their 95% t-intervals over
    seeds (NaN for one seed); `optimum_share`, reward / (reward + regret), if positive; `seconds_per_1000_steps` of one
    seed; `compile_seconds`; `rejected` updates of all seeds.

    Raises ValueError for a baseline that is not in `runs`, or has other seeds or steps.
    """
    import pandas as pd

    rows = {name: _summary(run) for name, run in _named(runs).items()}
    if baseline is not None:
        if baseline not in rows:
            raise ValueError(f"baseline must be one of {', '.join(map(repr, rows))}; got {baseline!r}")
        for name, run in runs.items():
            rows[name] |= _ahead(name, run, runs[baseline])
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("agent")


def readable(table: "pd.DataFrame") -> "pd.DataFrame":
    """The table of `compare` as strings: "mean ± half-width", "-" for unknown values.

    "% of optimum" is 100 reward / (reward + regret).
    """
    import pandas as pd

    share = table["optimum_share"].to_numpy()
    rows = {
        "reward": with_margin(table["reward"].to_numpy(), table["reward_95"].to_numpy()),
        "regret": with_margin(table["regret"].to_numpy(), table["regret_95"].to_numpy()),
        **({"ahead": with_margin(table["ahead"].to_numpy(), table["ahead_95"].to_numpy())} if "ahead" in table else {}),
        "% of optimum": with_margin(100 * share, np.full_like(share, np.nan)),
        "s / 1,000 steps": [f"{seconds:.2f}" for seconds in table["seconds_per_1000_steps"]],
        "compile s": [f"{seconds:.1f}" for seconds in table["compile_seconds"]],
        "rejected": [f"{count:,}" for count in table["rejected"]],
    }
    return pd.DataFrame(rows, index=table.index).rename_axis(None)


def plot_comparison(runs: Mapping[str, Run]) -> "Figure":
    """`Run.plot` of several runs."""
    from seqdec import figures  # here, because matplotlib is slow to import

    return figures.comparison(_named(runs))


def _named(runs: Any) -> Mapping[str, Run]:
    if not isinstance(runs, Mapping):
        raise TypeError(f"runs must be a dict from names to runs; got {type(runs).__name__}: {{run.agent: run, ...}}")
    return runs


def _flatten(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """(num_seeds, num_steps, ...) -> columns `name`, or `name_0`, `name_1`, ... in C order."""
    if values.ndim == 2:
        return {name: values.ravel()}
    flat = values.reshape(values.shape[0] * values.shape[1], -1)
    return {f"{name}_{i}": flat[:, i] for i in range(flat.shape[1])}


def _gather(table: "pd.DataFrame", name: str, shape: tuple[int, ...], entry: tuple[int, ...]) -> np.ndarray:
    """Inverse of `_flatten`: columns -> (*shape, *entry)."""
    if not entry:
        return table[name].to_numpy().reshape(shape)
    columns = [table[f"{name}_{i}"].to_numpy() for i in range(int(np.prod(entry)))]
    return np.stack(columns, axis=-1).reshape(*shape, *entry)


def _restore(table: "pd.DataFrame", manifest: dict[str, Any]) -> Run:
    seeds, num_steps = tuple(manifest["seeds"]), manifest["num_steps"]
    shape = (len(seeds), num_steps)
    entries = {name: tuple(entry) for name, entry in manifest["diagnostic_shapes"].items()}
    return Run(
        agent=manifest["agent"],
        env=manifest["env"],
        seeds=seeds,
        actions=_gather(table, "action", shape, tuple(manifest["action_shape"])),
        rewards=_gather(table, "reward", shape, ()),
        regret=_gather(table, "regret", shape, ()),
        propensities=_gather(table, "propensity", shape, ()),
        diagnostics={name: _gather(table, name, shape, entry) for name, entry in entries.items()},
        rejected=np.asarray(manifest["rejected"], np.int64),
        elapsed=_gather(table, "elapsed", shape, ())[0],
        compile_seconds=manifest["compile_seconds"],
        interrupted=manifest["interrupted"],
        settings=manifest["settings"],
        versions=manifest["versions"],
    )


def _ahead(name: str, run: Run, base: Run) -> dict[str, float]:
    """The difference of the rewards of two runs, paired over seeds."""
    if (run.seeds, len(run)) != (base.seeds, len(base)):
        raise ValueError(
            f"run {name!r} must have the seeds and steps of the baseline, {base.seeds} and {len(base)}; got "
            f"{run.seeds} and {len(run)}"
        )
    ahead, margin = mean_and_margin((run.rewards - base.rewards).sum(axis=1, dtype=np.float64))
    return {"ahead": float(ahead), "ahead_95": float(margin)}


def _summary(run: Run) -> dict[str, float]:
    num_seeds, num_steps = run.rewards.shape
    reward, reward_margin = mean_and_margin(run.rewards.sum(axis=1, dtype=np.float64))
    regret, regret_margin = mean_and_margin(run.regret.sum(axis=1, dtype=np.float64))
    return {
        "steps": num_steps,
        "seeds": num_seeds,
        "reward": float(reward),
        "reward_95": float(reward_margin),
        "regret": float(regret),
        "regret_95": float(regret_margin),
        "optimum_share": float(reward / (reward + regret)) if reward + regret > 0 else np.nan,
        "seconds_per_1000_steps": 1000 * run.run_seconds / (num_seeds * num_steps),
        "compile_seconds": run.compile_seconds,
        "rejected": int(run.rejected.sum()),
    }
