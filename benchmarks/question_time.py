"""CPU seconds of a question of each surrogate when many values have been told.

    python benchmarks/question_time.py [--surrogates gp sparse_gp hilofi] [--told 100 1000 4000 10000]

One line for each surrogate and number of values: the first question after random points of a function of 10 columns
were told, which compiles and fits the surrogate to all of them, and the median of 5 further questions with the tell
after each. The capacity holds all values, so that none of the 5 compiles. "gp" is left out above 1,000 values, for its
cost is cubic. All threads count.
"""

import statistics

import numpy as np
from harness import command, cpu, table

from seqdec import bo

COLUMNS, FURTHER, MOST_EXACT = 10, 5, 1000


def ripple(x: np.ndarray) -> float:
    """A sum of squares and a ripple."""
    return float(np.sum((x - 0.3) ** 2) + 0.1 * np.sum(np.cos(8 * x)))


def measure(surrogate: str, told: int) -> tuple[float, float]:
    """CPU seconds of the first question, and the median of those of the further ones."""
    box = [(-1.0, 2.0)] * COLUMNS
    optimizer = bo.BayesianOptimizer(box, seed=0, surrogate=surrogate, capacity=told + 16)
    for x in np.random.default_rng(0).uniform(-1.0, 2.0, (told, COLUMNS)):
        optimizer.tell(list(x), ripple(x))

    def question() -> None:
        trial = optimizer.ask()
        optimizer.tell(trial, ripple(np.array(trial.x)))

    first, *further = (cpu(question)[1] for _ in range(1 + FURTHER))
    return first, statistics.median(further)


def main(
    surrogates: tuple[str, ...] = ("gp", "sparse_gp", "hilofi"), told: tuple[int, ...] = (100, 1000, 4000, 10000)
) -> None:
    """The table, one line for each surrogate and number of values."""
    row = table("surrogate", "told", "first", "next")
    for surrogate in surrogates:
        for number in told:
            if surrogate == "gp" and number > MOST_EXACT:
                continue
            first, further = measure(surrogate, number)
            row(surrogate, number, f"{first:.3f}", f"{further:.3f}")


if __name__ == "__main__":
    command(main)
