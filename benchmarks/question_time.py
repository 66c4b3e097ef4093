"""CPU seconds of a question of each surrogate when many values have been told, and of spaces of several kinds.

    python benchmarks/question_time.py [--surrogates gp sparse_gp hilofi] [--told 100 1000 4000 10000]
    python benchmarks/question_time.py --surrogates auto --told 40 --spaces hartmann6 levels6 branches ruled
    python benchmarks/question_time.py --surrogates auto --told 40 --spaces outcomes-{4,10} objectives-{2,3,4}
    python benchmarks/question_time.py --surrogates gp --told 100 500 1000 --columns 5
    python benchmarks/question_time.py --methods seqdec botorch optuna-gp --told 50 100 500 1000 --spaces ripple levels6
        branches --columns 5 --further 3

One line for each space, surrogate and number of values: the first question after random points were told, which
compiles and fits the surrogate to all of them, and median and mean of 10 further questions with the tell after each.
`--methods` are seqdec, botorch and the samplers of Optuna of `bayesian_optimization.py`, after designs of their own.
The space "ripple" is a function of numbers, "ruled" the same under a linear and a coded constraint, "outcomes-4" with
four outcome constraints, "objectives-3" with three objectives; others are those of `black_boxes.py`. The capacity holds
all values, so that no further question compiles. "gp" is left out above 1,000 values, for its cost is cubic. All
threads count.
"""

import statistics
from typing import Any

import numpy as np
from bayesian_optimization import METHODS
from black_boxes import Task, task
from harness import command, cpu, table

from seqdec import bo

MOST_EXACT = 1000
RULES: Any = [bo.Linear({"x0": 1.0, "x1": 1.0}, high=2.0), lambda x: x["x2"] < x["x3"] + 2]
"""Of "ruled"; each holds at most random points."""


def ripple(x: Any) -> float:
    """A sum of squares and a ripple."""
    at = np.array(list(x.values()))
    return float(np.sum((at - 0.3) ** 2) + 0.1 * np.sum(np.cos(8 * at)))


def named(name: str, columns: int) -> Task:
    """The task of a space."""
    if name in ("ripple", "ruled") or name.startswith(("outcomes-", "objectives-")):
        return Task(ripple, {f"x{i}": bo.Real(-1.0, 2.0) for i in range(columns)}, 0.0, 0)
    return task(name)


def measure_method(name: str, method: str, told: int, columns: int, further: int) -> list[float]:
    """CPU seconds of questions after a design of `told` points."""
    played = named(name, columns)._replace(calls=told + further + 1)
    player = METHODS[method](played, 0, told)

    def question() -> None:
        asked = player.ask()
        asked.tell(played.fun(asked.x))

    for _ in range(told):
        question()
    return [cpu(question)[1] for _ in range(1 + further)]


def measure(name: str, surrogate: str, told: int, columns: int, further: int) -> list[float]:
    """CPU seconds of questions after random points were told."""
    played, rules = named(name, columns), RULES if name == "ruled" else []
    kind, _, count = name.partition("-")
    more = int(count) if kind in ("outcomes", "objectives") else 0
    several: Any = {"outcomes": {"outcome_constraints": more}, "objectives": {"objectives": more}}.get(kind, {})
    optimizer = bo.BayesianOptimizer(
        played.space, constraints=rules, seed=0, surrogate=surrogate, capacity=told + 16, initial=2, **several
    )
    generator, space = np.random.default_rng(0), optimizer.space

    def tell(trial: Any, x: Any) -> None:
        moved = [played.fun({key: value - 0.1 * j for key, value in x.items()}) for j in range(1, more + 1)]
        if kind == "objectives":
            optimizer.tell(trial, moved)
        else:
            optimizer.tell(trial, played.fun(x), outcomes=[value - 0.2 * columns for value in moved] or None)

    while len(optimizer.trials) < told:
        if (point := space.point_at(generator.random(space.columns))) is not None:
            tell(point.x, point.x)

    def question() -> None:
        trial = optimizer.ask()
        tell(trial, trial.x)

    return [cpu(question)[1] for _ in range(1 + further)]


def main(
    surrogates: tuple[str, ...] = ("gp", "sparse_gp", "hilofi"),
    told: tuple[int, ...] = (100, 1000, 4000, 10000),
    spaces: tuple[str, ...] = ("ripple",),
    methods: tuple[str, ...] = (),
    columns: int = 10,
    further: int = 10,
) -> None:
    """The table, one line for each space, surrogate and number of values; `columns`: of "ripple" and its like."""
    row = table("space", "method" if methods else "surrogate", "told", "first", "next", "mean of next")
    for name in spaces:
        for asked in methods or surrogates:
            for number in told:
                if asked == "gp" and number > MOST_EXACT:
                    continue
                measured = measure_method if methods else measure
                first, *others = measured(name, asked, number, columns, further)
                middle, mean = statistics.median(others), statistics.mean(others)
                row(name, asked, number, f"{first:.3f}", f"{middle:.4f}", f"{mean:.4f}")


if __name__ == "__main__":
    command(main)
