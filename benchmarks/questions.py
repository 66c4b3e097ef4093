"""Which questions of a search a change of the optimizer changed, and what differed first.

    python benchmarks/questions.py --write before.parquet         # with the code before
    python benchmarks/questions.py --against before.parquet       # with the code after it
    python benchmarks/questions.py --tasks hartmann6 pipeline --seeds 5 --against before.parquet

One line for each task: the questions that differ, of all; the runs that are equal throughout; for the others the median
number of the first question that differs, and how often each part was the first to differ before it: the initial
design, the warp of the values, the hyperparameters with the noise, or with all of these equal the search; and the mean
of the best value's logarithmic ratio, after by before, where the minimum is known: negative is better. `noise` is
Hartmann6 with normal noise of deviation .1; its ratio is that of the true value where the search recommends.
"""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from black_boxes import task
from harness import command, table

from seqdec.bo import BayesianOptimizer
from seqdec.persistence import read_table, write_table

PARTS = ("warp", "hyperparameters", "point")
"""Columns that are compared, the first that differs is the cause."""
_DIGITS, _FLOOR = 4, 1e-9


def played(name: str, seed: int, most: int) -> list[dict[str, Any]]:
    """The questions of a search, one row each."""
    noise = 0.1 if name == "noise" else 0.0
    given, generator = task("hartmann6" if noise else name), np.random.default_rng(seed)
    optimizer, rows = BayesianOptimizer(given.space, seed=seed), []
    for number in range(min(most, given.calls)):
        trial = optimizer.ask()
        value = given.fun(trial.x)
        rows.append({"task": name, "seed": seed, "number": number, "value": value, "point": _digits(trial.x)})
        if (asked := optimizer._asked) is not None:
            fitted = asked[1]
            rows[-1] |= {"warp": _digits(fitted.warps), "hyperparameters": _digits(fitted.state.hyper)}
        optimizer.tell(trial, value + noise * generator.standard_normal())
    best = given.fun(optimizer.recommend().x) - given.minimum
    return [row | {"error": best} for row in rows]


def _digits(tree: Any) -> str:
    """The leaves of a tree, numbers to four digits, without zeros."""
    every = [number for leaf in jax.tree.leaves(tree) for number in np.ravel(leaf).tolist()]
    return " ".join(number if isinstance(number, str) else f"{number:.{_DIGITS}g}" for number in every if number)


def compared(after: pd.DataFrame, before: pd.DataFrame) -> list[str]:
    """The cells of a task."""
    both = after.merge(before, on=["task", "seed", "number"], suffixes=("", "_before"))
    differs = both.point != both.point_before
    firsts, causes, ratios = [], [], []
    for _, run in both.groupby("seed"):
        ratios.append(np.log((run.error.iloc[0] + _FLOOR) / (run.error_before.iloc[0] + _FLOOR)))
        changed = run[run.point != run.point_before]
        if len(changed):
            first = changed.iloc[0]
            unequal = [part for part in PARTS if first[part] != first[f"{part}_before"] and pd.notna(first[part])]
            firsts.append(first.number)
            causes.append({"point": "search"}.get(unequal[0], unequal[0]) if pd.notna(first.warp) else "design")
    counts = pd.Series(causes, dtype=str).value_counts()
    why = ", ".join(f"{cause} {count}" for cause, count in counts.items()) or "-"
    middle = f"{np.median(firsts):.0f}" if firsts else "-"
    equal = both.seed.nunique() - len(firsts)
    return [f"{differs.sum()} of {len(both)}", str(equal), middle, why, f"{np.mean(ratios):+.2f}"]


def main(
    tasks: tuple[str, ...] = ("branin", "hartmann6", "rastrigin4", "levels6", "branches", "noise"),
    seeds: int = 3,
    calls: int = 40,
    write: Path | None = None,
    against: Path | None = None,
) -> None:
    """Play, then write or compare; at most so many `calls` of each task."""
    before = None if against is None else read_table(against)[0]
    row, every = table("task", "differ", "runs equal", "first", "what differed first", "log ratio of errors"), []
    for name in tasks:
        every += (rows := [row for seed in range(seeds) for row in played(name, seed, calls)])
        if before is not None:
            row(name, *compared(pd.DataFrame(rows), before[before.task == name]))
    if write is not None:
        write_table(write, pd.DataFrame(every))


if __name__ == "__main__":
    command(main)
