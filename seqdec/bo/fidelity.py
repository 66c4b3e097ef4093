"""Evaluations at several fidelities.

The surrogate has one more column, 0 at full fidelity and 1 at the lowest level:

    c(level) = log(high / level) / log(high / low)

Warped values are z(x, level) = o(level) + g(x, c) with o(high) = 0 and the Gaussian process g. The differences d of o
between neighboring levels are the ridge regression on values at equal points,

    min_{a, d}  sum_i (z_i - a(x_i) - sum_{j below the highest} d_j [level_i is below level j])^2 + w sum_j d_j^2

An observation at a level, with noise v, reduces the variance of the function at full fidelity by

    r(level) = Cov[g(x, c), g(x, 0)]^2 / (Var g(x, c) + v)

and the level of the largest r per cost is asked. A learning curve ends once its last value beats the best known value
with probability below 5%.

Sources: correlation per cost: Huang, Allen, Notz, Miller, "Sequential kriging optimization using multiple-fidelity
evaluations", 2006. Ends of learning curves: Domhan, Springenberg, Hutter, "Speeding up automatic hyperparameter
optimization of deep neural networks by extrapolation of learning curves", 2015.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from seqdec.bo.output_warp import Warp
from seqdec.boundary import checks

_HOPELESS = 0.05
_FACTOR = 3.0
"""Ratio of neighboring levels by default, approximately."""
_RIDGE = 0.1
"""w"""
_LOWER = 1.0
"""Full evaluations that lower levels may cost in a row."""


class Grid(NamedTuple):
    """The levels of a `Fidelity`."""

    levels: tuple[float, ...]
    """from full fidelity to the lowest"""
    costs: tuple[float, ...]
    """of one evaluation at each; the first is 1"""

    @property
    def columns(self) -> np.ndarray:
        """(levels,) column of the surrogate."""
        logs = np.log(self.levels)
        return (logs[0] - logs) / (logs[0] - logs[-1])

    @property
    def counts(self) -> bool:
        """Whether the levels are integers, those of learning curves."""
        return all(isinstance(level, int) for level in self.levels)

    def place(self, level: Any, name: str = "fidelity") -> int:
        """The index of a level. Raises ValueError or TypeError."""
        number = checks.real(name, level)
        if number not in self.levels:
            raise ValueError(
                f"{name} must be one of the levels {', '.join(map(str, self.levels[::-1]))}; got {level!r}"
            )
        return self.levels.index(number)

    def cost(self, amount: float) -> float:
        """Cost of an evaluation up to this amount, in full evaluations; linear between the levels."""
        return float(np.interp(amount, (0.0, *self.levels[::-1]), (0.0, *self.costs[::-1])))

    def reached(self, curve: Sequence[float]) -> list[float]:
        """The values of a learning curve at its levels, the lowest first."""
        return [curve[int(level) - 1] for level in self.levels[::-1] if level <= len(curve)]

    def curve(self, values: Any, name: str = "value") -> tuple[float, int, tuple[float, ...]]:
        """(the value, the index of its level, the values at lower levels) of a learning curve.

        Raises ValueError or TypeError for an invalid curve.
        """
        if not self.counts:
            raise ValueError(
                f"{name} must be a number, because a learning curve needs levels that are integers, such as "
                f"Fidelity(1, 30); the levels are {', '.join(map(str, self.levels[::-1]))}"
            )
        curve = [checks.real(f"{name}[{index}]", one) for index, one in enumerate(values)]
        if bad := [one for one in curve if not math.isfinite(one)]:
            return bad[0], 0, ()
        if not self.levels[-1] <= len(curve) <= self.levels[0]:
            raise ValueError(
                f"{name} must have the first {self.levels[-1]} to {self.levels[0]} values of a learning curve; got "
                f"{len(curve)}"
            )
        *lower, last = self.reached(curve)
        return last, len(self.levels) - 1 - len(lower), tuple(lower)


@dataclass(frozen=True)
class Fidelity:
    """Levels at which a function can be evaluated: epochs of training, or the share of the data."""

    low: float
    """The lowest level, positive."""
    high: float
    """Full fidelity, to be optimized. If `low` and `high` are integers, all levels are."""
    levels: int | None = None
    """Number of levels, equally spaced logarithmically; None: about a factor of three apart."""
    cost: Callable[[float], float] | None = None
    """(level) -> cost, in any unit; None: proportional to the level."""

    @property
    def grid(self) -> Grid:
        """The levels and their costs."""
        low, high = (checks.real(name, value) for name, value in (("low", self.low), ("high", self.high)))
        if not 0 < low < high < math.inf:
            raise ValueError(f"Fidelity needs 0 < low < high; got low={self.low!r} and high={self.high!r}")
        if self.levels is None:
            count = max(2, round(math.log(high / low, _FACTOR)) + 1)
        else:
            count = checks.count("levels of Fidelity", self.levels, 2)
        levels = np.geomspace(high, low, count)
        levels[[0, -1]] = high, low
        whole = all(isinstance(limit, Integral) for limit in (self.low, self.high))
        spaced = list(dict.fromkeys(round(level) for level in levels.tolist())) if whole else levels.tolist()
        cost = self.cost or (lambda level: level)
        costs = [checks.real(f"the cost of level {level}", cost(level)) for level in spaced]
        if not all(0 < one <= costs[0] < math.inf for one in costs):
            raise ValueError(
                f"cost of Fidelity must be above 0 and largest at the level {self.high!r}; got {costs} at {spaced}"
            )
        return Grid(tuple(spaced), tuple(one / costs[0] for one in costs))


class Forecast(NamedTuple):
    """The expected learning curve of a trial, Gaussian in the warped values; picklable."""

    levels: tuple[float, ...]
    """of a `Grid`"""
    means: tuple[float, ...]
    """of the function at the levels"""
    cov: tuple[tuple[float, ...], ...]
    """covariance of the function at the levels"""
    noise: float
    """variance of the values' noise"""
    best: float
    """warped"""
    sign: float
    """1 where large values are wanted, else -1"""
    warp: Warp
    """of the values times `sign`"""

    def chance(self, curve: Sequence[float]) -> float:
        """The probability that a learning curve ends better than the best value known.

        Args:
            curve: values so far, after the units 1, 2, ...; only values at levels count.

        Raises ValueError or TypeError where a value is not a number.
        """
        from scipy.special import ndtr

        found = Grid(self.levels, ()).reached([checks.real("a value of a curve", value) for value in curve])
        z = self.warp.forward(np.maximum(self.sign * np.array(found), self.warp.fence))
        means, cov, noisy = np.array(self.means), np.array(self.cov), self.noise + 1e-9
        known = np.arange(len(means))[::-1][: len(z)]
        weights = np.linalg.solve(cov[np.ix_(known, known)] + noisy * np.eye(len(z)), cov[known, 0])
        mean = means[0] + weights @ (z - means[known])
        variance = max(cov[0, 0] - weights @ cov[known, 0], 0.0) + noisy
        return float(ndtr((mean - self.best) / math.sqrt(variance)))

    def is_hopeless(self, curve: Sequence[float]) -> bool:
        """Whether to end an incomplete learning curve: `chance` is below 5%."""
        return self.levels[-1] <= len(curve) < self.levels[0] and self.chance(curve) < _HOPELESS


def level_of(grid: Grid, cov: np.ndarray, noise: float, lower: float) -> int:
    """The index of the level to ask for, given the function's covariance `cov` (levels, levels).

    `lower`: cost of lower levels since the last full evaluation.
    """
    if lower >= _LOWER:
        return 0
    reduction = cov[:, 0] ** 2 / (np.diagonal(cov) + noise)
    return int(np.argmax(reduction / np.array(grid.costs)))


def offsets(count: int, levels: np.ndarray, units: np.ndarray, z: np.ndarray) -> np.ndarray:
    """(count, m) offsets o for values `z` (n, m) at `levels` (n,) of `units` (n, columns)."""
    _, cells, sizes = np.unique(units, axis=0, return_inverse=True, return_counts=True)
    cells = np.ravel(cells)

    def apart(columns: np.ndarray) -> np.ndarray:
        """`columns` (n, k) less their means at the same point."""
        sums = np.zeros((len(sizes), columns.shape[1]))
        np.add.at(sums, cells, columns)
        return columns - (sums / sizes[:, None])[cells]

    steps = apart((levels[:, None] > np.arange(count - 1)).astype(float))
    found = np.linalg.solve(steps.T @ steps + _RIDGE * np.eye(count - 1), steps.T @ apart(z))
    return np.concatenate([np.zeros((1, z.shape[1])), np.cumsum(found, 0)])
