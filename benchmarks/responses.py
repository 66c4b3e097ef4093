"""`seqdec.minimize` where responses are skewed, noisy, exact or partly outliers: true value of the point returned.

    python benchmarks/responses.py [NAME ...] [--runs 5] [--cache DIR] [--options '{"warp": false}']

Prints one line for each function: mean, median and largest of f(result.x) - minimum over the runs, without noise, and
for noisy functions how often the interval of the recommended point contains its true value.
"""

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

import seqdec
from seqdec.envs import objectives


class Case(NamedTuple):
    """A function without noise, how it is observed, and the number of calls."""

    fun: Callable[[Any], float]
    bounds: Any
    minimum: float
    calls: int
    noise_std: float = 0.0
    outliers: float = 0.0
    """share of the values that are 1e12"""


def camel(x: Any) -> float:
    """The six-hump camel function."""
    a, b = x
    return (4 - 2.1 * a**2 + a**4 / 3) * a**2 + a * b + (4 * b**2 - 4) * b**2


def quadratic(x: Any) -> float:
    """The squared distance to a point."""
    return float(np.sum((np.asarray(x) - [1.3, -0.7]) ** 2))


def rastrigin(x: Any) -> float:
    """Rastrigin's function."""
    x = np.asarray(x)
    return float(np.sum(x**2 - 10 * np.cos(2 * math.pi * x) + 10))


def griewank(x: Any) -> float:
    """Griewank's function."""
    x = np.asarray(x)
    return float(1 + np.sum(x**2) / 4000 - np.prod(np.cos(x / np.sqrt(np.arange(1, len(x) + 1)))))


def case(objective: objectives.Objective, calls: int, **options: Any) -> Case:
    """The case of an objective whose minimum is known."""
    assert objective.minimum is not None
    return Case(objective, objective.bounds, objective.minimum, calls, **options)


CASES = {
    "rosenbrock4": case(objectives.rosenbrock(4), 50),
    "outliers": Case(quadratic, [(-5, 5)] * 2, 0.0, 50, outliers=0.1),
    "quadratic": Case(quadratic, [(-5, 5)] * 2, 0.0, 40),
    "branin": case(objectives.branin(), 50),
    "camel": Case(camel, [(-3, 3), (-2, 2)], -1.031628453489877, 50),
    "noisy-hartmann6": case(objectives.hartmann6(), 60, noise_std=0.1),
    "noisy-branin": case(objectives.branin(), 40, noise_std=5.0),
    "hartmann6": case(objectives.hartmann6(), 50),
    "ackley2": case(objectives.ackley(2), 42),
    "ackley5": case(objectives.ackley(5), 80),
    "levy4": case(objectives.levy(4), 50),
    "rastrigin4": Case(rastrigin, [(-5.12, 5.12)] * 4, 0.0, 80),
    "griewank6": Case(griewank, [(-60, 60)] * 6, 0.0, 50),
}


def observed(case: Case, seed: int) -> Callable[[Any], float]:
    """The function with the noise and the outliers of a run."""
    generator = np.random.default_rng(seed)

    def fun(x: Any) -> float:
        noise, outlier = generator.standard_normal(), generator.random() < case.outliers
        return 1e12 if outlier else case.fun(x) + case.noise_std * noise

    return fun


def main(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = tuple(CASES),
    runs: int = 5,
    seed: int = 0,
    cache: Path | None = None,
    options: str = "{}",
) -> None:
    """The table, one line as soon as a function is done."""
    if cache is not None:
        seqdec.compilation_cache(cache)
    print(f"{'':16} {'mean':>10} {'median':>10} {'largest':>10} {'covered':>8} {'CPU s':>6}  of each run", flush=True)
    for name in names:
        case, regrets, covered, began = CASES[name], [], [], time.process_time()
        for run in range(seed, seed + runs):
            result = seqdec.minimize(
                observed(case, run), case.bounds, n_calls=case.calls, seed=run, progress=False, **json.loads(options)
            )
            true = case.fun(result.x)
            regrets.append(true - case.minimum)
            low, high = getattr(result, "fun_interval", (math.nan, math.nan))
            covered.append(low <= true <= high)
        share = f"{sum(covered)}/{runs}" if case.noise_std else ""
        row = [f"{value:10.2e}" for value in (np.mean(regrets), np.median(regrets), max(regrets))]
        each = " ".join(f"{value:.1e}" for value in regrets)
        print(f"{name:16} {' '.join(row)} {share:>8} {time.process_time() - began:6.0f}  {each}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
