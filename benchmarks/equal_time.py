"""What surrogates find in equal CPU time of their questions, where an evaluation costs next to nothing.

    python benchmarks/equal_time.py [--functions drawnn200 ackley50 ...] [--surrogates auto sparse_gp hilofi]
        [--seconds 120] [--runs 3]

One line for each function and surrogate: the mean of the best value over the runs with the half-width of its 95%
t-interval, and the mean number of evaluations. `ask` and `tell` count, with all threads and the compilation for each
capacity; the function does not.
"""

import time

import numpy as np
import tyro

from seqdec.bo import BayesianOptimizer
from seqdec.envs import objectives
from seqdec.statistics import mean_and_margin

FUNCTIONS = {
    "drawnn200": objectives.drawnn(200),
    "drawnn50": objectives.drawnn(50),
    "ackley50": objectives.ackley(50),
    "levy20": objectives.levy(20),
    "rosenbrock20": objectives.rosenbrock(20),
    "hartmann6": objectives.hartmann6(),
}


def search(objective: objectives.Objective, surrogate: str, seconds: float, seed: int) -> tuple[float, int]:
    """(best value, number of evaluations) once the optimizer has used so many CPU seconds."""
    optimizer = BayesianOptimizer([(low, high) for low, high in objective.bounds], seed=seed, surrogate=surrogate)
    spent = 0.0
    while spent < seconds:
        began = time.process_time()
        trial = optimizer.ask()
        spent += time.process_time() - began
        value = float(objective(np.array(trial.x)))
        began = time.process_time()
        optimizer.tell(trial, value)
        spent += time.process_time() - began
    return optimizer.best[1], len(optimizer.trials)


def main(
    functions: tuple[str, ...] = tuple(FUNCTIONS),
    surrogates: tuple[str, ...] = ("auto", "sparse_gp", "hilofi"),
    seconds: float = 120.0,
    runs: int = 3,
) -> None:
    """The table, one line as soon as it is measured."""
    print(f"{'function':14}{'surrogate':12}{'best':>12}{'±':>9}{'evaluations':>13}", flush=True)
    for function in functions:
        for surrogate in surrogates:
            found = [search(FUNCTIONS[function], surrogate, seconds, seed) for seed in range(runs)]
            best, margin = mean_and_margin(np.array([value for value, _ in found]))
            count = np.mean([number for _, number in found])
            print(f"{function:14}{surrogate:12}{best:12.4g}{margin:9.2g}{count:13.0f}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
