"""How many of the 95% intervals of `predict` and `recommend` hold after searches on random functions.

    python benchmarks/calibration.py [--noises none normal rising ...] [--calls 25] [--seeds 6]

The functions have two to four columns: sums of cosines over a bowl, the highest of bumps, quadratics, exponentials with
a wave in each column, and sums of absolute values. Noise is not told to the optimizer. In units of the values' standard
deviation that of "low" and "normal" is .1 and .3, that of "rising" from 0 to .5 with the first column, and "outliers"
are low noise and with probability .08 values that are 5 to 50 too large. `predict` is asked at 40 random points of the
box after a search. Its interval holds where it covers the function without noise, and so does that of `recommend` where
its value is predicted. ± is twice the standard error over the searches.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import command, table

from seqdec.bo import BayesianOptimizer

POINTS = 40
Function = Callable[[np.ndarray], np.ndarray]
"""(n, columns) points of the unit cube -> (n,) values"""


def _outliers(x: np.ndarray, rng: np.random.Generator) -> float:
    return rng.uniform(5, 50) if rng.random() < 0.08 else 0.1 * rng.normal()


NOISES: dict[str, Callable[[np.ndarray, np.random.Generator], float]] = {
    "none": lambda x, rng: 0.0,
    "low": lambda x, rng: 0.1 * rng.normal(),
    "normal": lambda x, rng: 0.3 * rng.normal(),
    "rising": lambda x, rng: 0.5 * x[0] * rng.normal(),
    "outliers": _outliers,
}
"""Errors of a value at a point, in units of the values' standard deviation."""


def cosines(rng: np.random.Generator, columns: int) -> Function:
    """Twelve waves over a bowl."""
    waves, phases = rng.normal(size=(12, columns)) * rng.uniform(1, 4), rng.uniform(0, 2 * math.pi, 12)
    heights, center = rng.normal(size=12) / math.sqrt(12), rng.random(columns)
    return lambda x: np.cos(x @ waves.T + phases) @ heights + 2 * np.sum((x - center) ** 2, 1)


def bumps(rng: np.random.Generator, columns: int) -> Function:
    """The highest of fifteen bumps, with edges between them."""
    centers, heights = rng.random((15, columns)), rng.uniform(0.2, 1, 15)
    widths = rng.uniform(0.1, 0.4, 15) * math.sqrt(columns)

    def fun(x: np.ndarray) -> np.ndarray:
        squares = np.sum((x[:, None] - centers) ** 2, 2)
        return -np.max(heights * np.exp(-squares / (2 * widths**2)), 1)

    return fun


def quadratic(rng: np.random.Generator, columns: int) -> Function:
    """A rotated bowl."""
    root, center = rng.normal(size=(columns, columns)), rng.random(columns)
    return lambda x: np.sum(((x - center) @ root.T) ** 2, 1)


def exponential(rng: np.random.Generator, columns: int) -> Function:
    """Values over several orders of magnitude."""
    slopes = 2 * rng.normal(size=columns)
    return lambda x: np.exp(x @ slopes) + np.sin(5 * x).sum(1)


def absolute(rng: np.random.Generator, columns: int) -> Function:
    """A kink in each column."""
    center, slopes = rng.random(columns), rng.uniform(0.3, 3, columns)
    return lambda x: np.abs(x - center) @ slopes


KINDS = (cosines, bumps, quadratic, exponential, absolute)


def covered(make: Any, noise: str, calls: int, seed: int) -> tuple[float, float]:
    """(the share of the intervals of `predict` that hold, whether that of `recommend` does or NaN without one)."""
    columns, rng = 2 + seed % 3, np.random.default_rng(seed)
    fun, points = make(rng, columns), rng.random((POINTS, columns))
    std = np.std(fun(rng.random((1000, columns))))
    optimizer = BayesianOptimizer([(0.0, 1.0)] * columns, seed=seed)
    for _ in range(calls):
        trial = optimizer.ask()
        optimizer.tell(trial, fun(trial.x[None])[0] + std * NOISES[noise](trial.x, rng))
    found = [optimizer.predict(point) for point in points]
    holds = np.mean([one.low <= value <= one.high for one, value in zip(found, fun(points), strict=True)])
    best = optimizer.recommend()
    value = fun(np.asarray(best.x)[None])[0]
    return float(holds), math.nan if best.kind == "observed" else float(best.low <= value <= best.high)


def shown(shares: np.ndarray) -> str:
    """Mean, twice its standard error, and the number."""
    known = shares[np.isfinite(shares)]
    if len(known) < 2:
        return "-"
    return f"{known.mean():.1%} ± {2 * known.std(ddof=1) / math.sqrt(len(known)):.1%} ({len(known)})"


def main(noises: tuple[str, ...] = tuple(NOISES), calls: int = 25, seeds: int = 6) -> None:
    """Print the table."""
    row = table("noise", "function", "predict", "recommend")
    for noise in noises:
        every = []
        for make in KINDS:
            found = [covered(make, noise, calls, seed) for seed in range(seeds)]
            every += found
            row(noise, make.__name__, *map(shown, np.transpose(found)))
        row(noise, "all", *map(shown, np.transpose(every)))


if __name__ == "__main__":
    command(main)
