"""`seqdec.minimize` where calls fail: at a border on which the optimum lies, away from the optimum, or at random.

    python benchmarks/failures.py [NAME ...] [--runs 8] [--told 10] [--cache DIR]

Prints a line for each function: the median and the largest f(result.x) - minimum over the runs and the mean share of
calls that fail, where a failed call returns NaN, and where it returns the number `told` instead.
"""

import functools
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro

import seqdec
from seqdec.envs import objectives


class Case(NamedTuple):
    """A function, where it fails, and the number of calls."""

    fun: Callable[[Any], float]
    bounds: Any
    minimum: float
    """where it does not fail"""
    calls: int
    fails: Callable[[Any], bool] = lambda x: False
    random: float = 0.0
    """probability with which any call fails"""


def squares(target: Iterable[float], x: Any) -> float:
    """The squared distance to a point."""
    return float(np.sum((np.asarray(x) - np.asarray(target)) ** 2))


def waves(x: Any) -> float:
    """Decreases towards larger x[0], with waves along x[1]."""
    return float(-x[0] - 0.1 * math.cos(9 * (x[1] - 0.4)) + (x[1] - 0.4) ** 2)


def known(objective: objectives.Objective, calls: int, **options: Any) -> Case:
    """The case of an objective whose minimum is known."""
    assert objective.minimum is not None
    return Case(objective, objective.bounds, objective.minimum, calls, **options)


def quadratic(target: tuple[float, ...], minimum: float, calls: int, fails: Callable[[Any], bool]) -> Case:
    """That of the squared distance to a point of the unit cube."""
    return Case(functools.partial(squares, target), [(0.0, 1.0)] * len(target), minimum, calls, fails)


CASES = {
    "square": quadratic((0.8, 0.4), 0.02, 40, lambda x: x[0] + x[1] > 1),
    "wall": Case(waves, [(0.0, 1.0)] * 2, -0.6, 40, lambda x: x[0] > 0.5),
    "corner": quadratic((0.9, 0.8), 0.5**2 + 0.2**2, 40, lambda x: x[0] > 0.4 or x[1] > 0.6),
    "circle": quadratic((0.9, 0.9), (math.sqrt(0.32) - 0.4) ** 2, 40, lambda x: math.dist(x, (0.5, 0.5)) > 0.4),
    "simplex4": quadratic((0.9, 0.7, 0.5, 0.8), 1.05**2 / 4, 60, lambda x: sum(x) > 1.85),
    "wall6": quadratic((0.8, 0.7, 0.5, 0.8, 0.3, 0.4), 0.3**2, 60, lambda x: x[0] > 0.5),
    "touching": quadratic((0.5, 0.4), 0.0, 40, lambda x: x[0] > 0.5),
    "touching4": quadratic((0.6, 0.4, 0.3, 0.55), 0.0, 60, lambda x: sum(x) > 1.85),
    "disc": quadratic((0.3, 0.4), 0.0, 40, lambda x: math.dist(x, (0.7, 0.6)) < 0.25),
    "random-branin": known(objectives.branin(), 40, random=0.1),
    "random-hartmann6": known(objectives.hartmann6(), 60, random=0.1),
    "branin": known(objectives.branin(), 40),
}


def search(case: Case, seed: int, told: float) -> tuple[float, float]:
    """(regret, share of failed calls) of a run in which a failed call returns `told`."""
    generator, failed = np.random.default_rng(seed), 0

    def fun(x: Any) -> float:
        nonlocal failed
        fails = bool(generator.random() < case.random) or case.fails(x)
        failed += fails
        return told if fails else case.fun(x)

    result = seqdec.minimize(fun, case.bounds, n_calls=case.calls, seed=seed, progress=False, max_failures=case.calls)
    return (math.inf if result.x is None else case.fun(result.x) - case.minimum), failed / case.calls


def main(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = tuple(CASES),
    runs: int = 8,
    told: float = 10.0,
    cache: Path | None = None,
) -> None:
    """The table, one line as soon as a function is done."""
    if cache is not None:
        seqdec.compilation_cache(cache)
    ways = {"NaN": math.nan, f"{told:g}": told}
    columns = f"{'median':>9} {'largest':>9} failed"
    print(f"{'':16} {'  '.join(f'{way:>6}: {columns}' for way in ways)}", flush=True)
    for name in names:
        cells = []
        for value in ways.values():
            regrets, shares = zip(*(search(CASES[name], seed, value) for seed in range(runs)), strict=True)
            cells.append(f"{'':7} {np.median(regrets):9.1e} {max(regrets):9.1e} {np.mean(shares):6.0%}")
        print(f"{name:16} {'  '.join(cells)}", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
