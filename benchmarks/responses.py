"""`seqdec.minimize` where responses are skewed, noisy, exact or partly outliers, and where calls fail.

    python benchmarks/responses.py values --seeds 10    # a minute on one core
    python benchmarks/responses.py failures             # five

values: mean, median and largest of f(result.x) - minimum over the runs, without noise, and for noisy functions how
often the interval of the recommended point contains its true value, and by how much `fun` is above it.

failures: median and largest f(result.x) - minimum and the mean share of calls that fail, at a border on which the
optimum lies ("touching": where the function is flat), away from it, or at random; a failed call returns NaN, or the
number `--told` instead.
"""

import functools
import math
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import tyro
from harness import command, interval, table

import seqdec
from seqdec.envs import objectives


class Case(NamedTuple):
    """A function without noise, how it is observed, and the number of calls."""

    fun: Callable[[Any], float]
    bounds: Any
    minimum: float
    """where it does not fail"""
    calls: int
    noise_std: float = 0.0
    outliers: float = 0.0
    """share of the values that are 1e12"""
    fails: Callable[[Any], bool] = lambda x: False
    random: float = 0.0
    """probability with which any call fails"""
    repeats: int | None = None


def camel(x: Any) -> float:
    """The six-hump camel function."""
    a, b = x
    return (4 - 2.1 * a**2 + a**4 / 3) * a**2 + a * b + (4 * b**2 - 4) * b**2


def squares(target: Iterable[float], x: Any) -> float:
    """The squared distance to a point."""
    return float(np.sum((np.asarray(x) - np.asarray(target)) ** 2))


def rastrigin(x: Any) -> float:
    """Rastrigin's function."""
    x = np.asarray(x)
    return float(np.sum(x**2 - 10 * np.cos(2 * math.pi * x) + 10))


def griewank(x: Any) -> float:
    """Griewank's function."""
    x = np.asarray(x)
    return float(1 + np.sum(x**2) / 4000 - np.prod(np.cos(x / np.sqrt(np.arange(1, len(x) + 1)))))


def waves(x: Any) -> float:
    """Decreases towards larger x[0], with waves along x[1]."""
    return float(-x[0] - 0.1 * math.cos(9 * (x[1] - 0.4)) + (x[1] - 0.4) ** 2)


def known(objective: objectives.Objective, calls: int, **options: Any) -> Case:
    """The case of an objective whose minimum is known."""
    assert objective.minimum is not None
    return Case(objective, objective.bounds, objective.minimum, calls, **options)


def bowl(target: tuple[float, ...], minimum: float, calls: int, fails: Callable[[Any], bool]) -> Case:
    """That of the squared distance to a point of the unit cube."""
    return Case(functools.partial(squares, target), [(0.0, 1.0)] * len(target), minimum, calls, fails=fails)


QUADRATIC = functools.partial(squares, (1.3, -0.7))
VALUES = {
    "rosenbrock4": known(objectives.rosenbrock(4), 50),
    "outliers": Case(QUADRATIC, [(-5, 5)] * 2, 0.0, 50, outliers=0.1),
    "quadratic": Case(QUADRATIC, [(-5, 5)] * 2, 0.0, 40),
    "branin": known(objectives.branin(), 50),
    "camel": Case(camel, [(-3, 3), (-2, 2)], -1.031628453489877, 50),
    "noisy-hartmann6": known(objectives.hartmann6(), 60, noise_std=0.1),
    "noisy-branin": known(objectives.branin(), 40, noise_std=5.0),
    "noisy-bowl": Case(QUADRATIC, [(-5, 5)] * 2, 0.0, 20, noise_std=0.5),
    "hartmann6": known(objectives.hartmann6(), 50),
    "ackley2": known(objectives.ackley(2), 42),
    "ackley5": known(objectives.ackley(5), 80),
    "levy4": known(objectives.levy(4), 50),
    "rastrigin4": Case(rastrigin, [(-5.12, 5.12)] * 4, 0.0, 80),
    "griewank6": Case(griewank, [(-60, 60)] * 6, 0.0, 50),
}
FAILURES = {
    "square": bowl((0.8, 0.4), 0.02, 40, lambda x: x[0] + x[1] > 1),
    "wall": Case(waves, [(0.0, 1.0)] * 2, -0.6, 40, fails=lambda x: x[0] > 0.5),
    "corner": bowl((0.9, 0.8), 0.5**2 + 0.2**2, 40, lambda x: x[0] > 0.4 or x[1] > 0.6),
    "circle": bowl((0.9, 0.9), (math.sqrt(0.32) - 0.4) ** 2, 40, lambda x: math.dist(x, (0.5, 0.5)) > 0.4),
    "simplex4": bowl((0.9, 0.7, 0.5, 0.8), 1.05**2 / 4, 60, lambda x: sum(x) > 1.85),
    "wall6": bowl((0.8, 0.7, 0.5, 0.8, 0.3, 0.4), 0.3**2, 60, lambda x: x[0] > 0.5),
    "touching": bowl((0.5, 0.4), 0.0, 40, lambda x: x[0] > 0.5),
    "touching4": bowl((0.6, 0.4, 0.3, 0.55), 0.0, 60, lambda x: sum(x) > 1.85),
    "disc": bowl((0.3, 0.4), 0.0, 40, lambda x: math.dist(x, (0.7, 0.6)) < 0.25),
    "random-branin": known(objectives.branin(), 40, random=0.1),
    "random-hartmann6": known(objectives.hartmann6(), 60, random=0.1),
    "branin": known(objectives.branin(), 40),
}


def search(case: Case, seed: int, told: float = math.nan) -> tuple[float, float, bool, float]:
    """(regret, share of failed calls, whether the interval covers the true value, value said less it) of a run."""
    generator, failed = np.random.default_rng(seed), 0

    def fun(x: Any) -> float:
        nonlocal failed
        noise, outlier = case.noise_std * generator.standard_normal(), generator.random() < case.outliers
        fails = bool(generator.random() < case.random) or case.fails(x)
        failed += fails
        return told if fails else 1e12 if outlier else case.fun(x) + noise

    options = {"n_calls": case.calls, "repeats": case.repeats, "max_failures": case.calls}
    result = seqdec.minimize(fun, case.bounds, seed=seed, progress=False, **options)
    true = math.inf if result.x is None else case.fun(result.x)
    low, high = getattr(result, "fun_interval", (math.nan, math.nan))
    return true - case.minimum, failed / case.calls, bool(low <= true <= high), result.fun - true


def main(
    what: Annotated[Literal["values", "failures"], tyro.conf.Positional],
    names: tuple[str, ...] = (),
    seeds: int = 8,
    told: float = 10.0,
    repeats: int | None = None,
) -> None:
    """Print a line for each function, all or some."""
    if what == "values":
        row = table("function", "calls", "mean", "median", "largest", "covered", "fun - true")
        for name in names or VALUES:
            case = VALUES[name]._replace(repeats=repeats)
            regrets, _, covered, excess = zip(*(search(case, seed) for seed in range(seeds)), strict=True)
            found = [f"{value:.2g}" for value in (np.mean(regrets), np.median(regrets), max(regrets))]
            noisy = (f"{sum(covered)} of {seeds}", interval(excess)) if case.noise_std else ("", "")
            row(name, case.calls, *found, *noisy)
        return
    ways = {"NaN": math.nan, f"{told:g}": told}
    row = table("function", *(f"{way}: {what}" for way in ways for what in ("median", "largest", "failed")))
    for name in names or FAILURES:
        cells = []
        for value in ways.values():
            regrets, shares, *_ = zip(*(search(FAILURES[name], seed, value) for seed in range(seeds)), strict=True)
            cells += [f"{np.median(regrets):.2g}", f"{max(regrets):.2g}", f"{np.mean(shares):.0%}"]
        row(name, *cells)


if __name__ == "__main__":
    command(main)
