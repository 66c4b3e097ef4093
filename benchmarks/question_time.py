"""CPU seconds of a question of each surrogate when many values have been told, and of spaces of several kinds.

    python benchmarks/question_time.py [--surrogates gp sparse_gp hilofi] [--told 100 1000 4000 10000]
    python benchmarks/question_time.py --surrogates auto --told 40 --spaces hartmann6 levels6 branches ruled

One line for each space, surrogate and number of values: the first question after random points were told, which
compiles and fits the surrogate to all of them, and the median of 5 further questions with the tell after each. The
space "ripple" is a function of 10 numbers, "ruled" the same under a linear and a coded constraint, others are those of
`black_boxes.py`. The capacity holds all values, so that none of the 5 compiles. "gp" is left out above 1,000 values,
for its cost is cubic. All threads count.
"""

import statistics
from typing import Any

import numpy as np
from black_boxes import Task, task
from harness import command, cpu, table

from seqdec import bo

COLUMNS, FURTHER, MOST_EXACT = 10, 5, 1000
RULES: Any = [bo.Linear({"x0": 1.0, "x1": 1.0}, high=2.0), lambda x: x["x2"] < x["x3"] + 2]
"""Of "ruled"; each holds at most random points."""


def ripple(x: Any) -> float:
    """A sum of squares and a ripple."""
    at = np.array(list(x.values()))
    return float(np.sum((at - 0.3) ** 2) + 0.1 * np.sum(np.cos(8 * at)))


def named(name: str) -> Task:
    """The task of a space."""
    if name in ("ripple", "ruled"):
        return Task(ripple, {f"x{i}": bo.Real(-1.0, 2.0) for i in range(COLUMNS)}, 0.0, 0)
    return task(name)


def measure(name: str, surrogate: str, told: int) -> tuple[float, float]:
    """CPU seconds of the first question, and the median of those of the further ones."""
    played, rules = named(name), RULES if name == "ruled" else []
    optimizer = bo.BayesianOptimizer(
        played.space, constraints=rules, seed=0, surrogate=surrogate, capacity=told + 16, initial=2
    )
    generator, space = np.random.default_rng(0), optimizer.space
    while len(optimizer.trials) < told:
        if (point := space.point_at(generator.random(space.columns))) is not None:
            optimizer.tell(point.x, played.fun(point.x))

    def question() -> None:
        trial = optimizer.ask()
        optimizer.tell(trial, played.fun(trial.x))

    first, *further = (cpu(question)[1] for _ in range(1 + FURTHER))
    return first, statistics.median(further)


def main(
    surrogates: tuple[str, ...] = ("gp", "sparse_gp", "hilofi"),
    told: tuple[int, ...] = (100, 1000, 4000, 10000),
    spaces: tuple[str, ...] = ("ripple",),
) -> None:
    """The table, one line for each space, surrogate and number of values."""
    row = table("space", "surrogate", "told", "first", "next")
    for name in spaces:
        for surrogate in surrogates:
            for number in told:
                if surrogate == "gp" and number > MOST_EXACT:
                    continue
                first, further = measure(name, surrogate, number)
                row(name, surrogate, number, f"{first:.3f}", f"{further:.3f}")


if __name__ == "__main__":
    command(main)
