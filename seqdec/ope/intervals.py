r"""Ratios of sums over rows, and their confidence intervals.

    value = sum_j (sum_i numerator_ij / sum_i denominator_ij)

Each end is that of the rows and an unseen one, which the log might have had: with the weight E[w^2] that a decision of
the target has on average, and at the low end the least reward, at the high end the largest. With value p and variance v
by influence, both with that row,

    bounded     rewards in a known range, here scaled to (0, 1): quantiles of Beta(m p, m (1 - p)), m = p (1 - p) / v;
                the interval of Clopper and Pearson where all weights are equal
    unbounded   p - q sqrt(v), q a quantile of (p* - p) / sqrt(v*) in bootstrap samples, between one and two times that
                of a t distribution; no limit where too few rows, or a heavy tail, leave it open

A tail is heavy if the shape k of a generalized Pareto distribution, fitted to the m largest contributions and shrunk to
(m k + 3) / (m + 10), is within its error of 1/2 (no variance), or above; or if one row has half of the variance at that
end. Rows of a group are summed before.

References:
    Clopper, Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial", 1934;
    Fay, Feuer, "Confidence intervals for directly standardized rates", 1997;
    Korn, Graubard, "Confidence intervals for proportions with small expected number of positive counts", 1998;
    Efron, "The jackknife, the bootstrap and other resampling plans", 1982;
    Zhang, Stephens, "A new and efficient estimation method for the generalized Pareto distribution", 2009.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

_BLOCKS = 2**14
_CHUNK = 2**22
_FEW = 15
"""Least contributions at one end that tell of its tail."""
_HEAVY = 0.5
"""Shape of a tail without variance; share of the variance that one row may have."""
Ends = tuple[float, float]


class Terms(NamedTuple):
    """Contribution of each row to an estimate."""

    numerator: np.ndarray
    """(n,), or (n, j) for a sum of j ratios"""
    denominator: np.ndarray
    """as the numerator"""

    @property
    def columns(self) -> tuple[np.ndarray, np.ndarray]:
        """Both (n, j)."""
        return tuple(part.reshape(len(part), -1) for part in self)  # pyright: ignore[reportReturnType]

    @property
    def value(self) -> float:
        """The estimate; NaN if a denominator sums to zero."""
        numerator, denominator = (part.sum(axis=0) for part in self.columns)
        return float((numerator / denominator).sum()) if denominator.all() else float("nan")

    @property
    def influence(self) -> np.ndarray:
        """(n,) sum_j (numerator - ratio denominator) / mean denominator; NaN if a denominator sums to zero."""
        numerator, denominator = self.columns
        total = denominator.sum(axis=0)
        if not total.all():
            return np.full(len(numerator), np.nan)
        return ((numerator - denominator * (numerator.sum(axis=0) / total)) / total).sum(axis=1) * len(numerator)

    @property
    def std_error(self) -> float:
        """By the influence function; NaN for one row."""
        count = len(self.numerator)
        return float(np.sqrt((self.influence**2).sum() / (count - 1) / count)) if count > 1 else float("nan")

    def grouped(self, groups: np.ndarray) -> "Terms":
        """Sums within groups (n,) of integers from 0."""
        parts = ([np.bincount(groups, column) for column in part.T] for part in self.columns)
        return Terms(*(np.stack(part, axis=1) for part in parts))


def points(terms: Iterable[Terms]) -> list[tuple[float, float]]:
    """Each estimate and its standard error."""
    return [(one.value, one.std_error) for one in terms]


class Interval(NamedTuple):
    """An interval, and why an end is infinite."""

    low: float
    high: float
    words: str = ""


class Tail(NamedTuple):
    """The largest contributions at one end."""

    rows: int
    """contributions at this end"""
    shape: float
    """k of the generalized Pareto distribution, shrunk; -inf without a tail, NaN of too few rows"""
    error: float
    """its standard error"""
    largest: float
    """share of the variance that one row has"""

    @property
    def heavy(self) -> bool:
        """Whether the rows set no limit at this end."""
        return self.rows < _FEW or self.shape + self.error > _HEAVY or self.largest > _HEAVY

    @property
    def light(self) -> bool:
        """Whether the tail clearly has a variance."""
        return self.shape + 2 * self.error < _HEAVY and self.largest < 0.1


def interval(
    terms: Terms,
    unseen: Sequence[Terms] = (),
    *,
    reward_range: Ends | None = None,
    level: float = 0.95,
    seed: int = 0,
    samples: int = 1000,
) -> Interval:
    """The interval of one estimate.

    >>> round(interval(Terms(np.zeros(1000), np.ones(1000)), reward_range=(0, 1)).high, 5)  # no click in 1,000 rows
    0.00368

    Args:
        terms: contributions of rows, or sums over groups.
        unseen: terms of the unseen row at the low and at the high end; none: of weight 1.
        reward_range: (a, b) that holds the value; None if unknown.
        level: confidence level.
        seed: seed for the bootstrap.
        samples: number of bootstrap samples.
    """
    return several([(terms, unseen)], reward_range=reward_range, level=level, seed=seed, samples=samples)[0]


def several(
    estimates: Sequence[tuple[Terms, Sequence[Terms]]],
    *,
    reward_range: Ends | None = None,
    groups: int | None = None,
    limits: bool = True,
    level: float,
    seed: int,
    samples: int,
) -> list[Interval]:
    """Intervals as by `interval`, with common bootstrap samples.

    `groups` is the number of groups, None without; `limits` says whether ends with a heavy tail are infinite.
    """
    longer, known, half = [], [], (1 - level) / 2
    for own, rows in estimates:
        known.append(math.isfinite(own.value))
        for row in (rows or unseen(own, 1.0, reward_range)) if known[-1] else (own, own):
            pairs = zip(own.columns, row.columns, strict=True)
            longer.append(Terms(*(np.concatenate(parts) for parts in pairs)))
    points = [(one.value, one.influence) for one in longer]
    sides, words = (-1, 1) * len(estimates), [""] * len(estimates)
    if reward_range is not None:
        ends = [_beta(*point, reward_range, side, groups, half) for point, side in zip(points, sides, strict=True)]
    else:
        drawn = _studentized([influence for _, influence in points], seed, samples)
        ends = [
            _bootstrap(*point, ratios, side, groups, half)
            for point, ratios, side in zip(points, drawn, sides, strict=True)
        ]
        for place, (own, _) in enumerate(estimates if limits else ()):
            ends[2 * place : 2 * place + 2], words[place] = _limited(own, ends[2 * place : 2 * place + 2])
    found = map(Interval, ends[::2], ends[1::2], words)
    return [one if there else Interval(math.nan, math.nan) for one, there in zip(found, known, strict=True)]


def unseen(own: Terms, weight: float, rewards: Ends | None, *, weighted: bool | None = None) -> list[Terms]:
    """Terms of a row of a weight, and of the rewards at either end; None: of the mean contribution at that end.

    Its influence is weight (reward - value). `weighted`: whether the last denominator sums weights; None: if it varies.
    """
    numerator, denominator = own.columns
    above, below, influence, value = numerator.mean(axis=0), denominator.mean(axis=0), own.influence, own.value
    times = np.ones_like(below)
    if np.ptp(denominator[:, -1]) if weighted is None else weighted:
        times[-1] = weight
    rows = []
    for end, side in enumerate((-1, 1)):
        if rewards is None:
            beyond = side * influence > 0
            effect = influence[beyond].sum() / max(beyond.sum(), 1)
        else:
            effect = weight * (rewards[end] - value)
        row = times * above
        row[-1] += below[-1] * effect
        rows.append(Terms(row[None], (times * below)[None]))
    return rows


def _beta(value: float, influence: np.ndarray, bounds: Ends, side: int, groups: int | None, half: float) -> float:
    from scipy.special import betaincinv, ndtri, stdtrit

    low, high = bounds
    variance = (influence**2).sum() / (len(influence) * (high - low)) ** 2
    if groups is not None:
        variance *= (stdtrit(max(groups - 1, 1), half) / ndtri(half)) ** 2
    inner = math.sqrt(max(1 - 4 * variance, 0.0)) / 2  # where p (1 - p) >= v
    p = min(max((value - low) / (high - low), 0.5 - inner), 0.5 + inner)
    if not 0 < p < 1:
        return high if side > 0 else low
    size = max(p * (1 - p) / variance, 1.0)
    return low + (high - low) * float(betaincinv(size * p, size * (1 - p), 1 - half if side > 0 else half))


def _bootstrap(
    value: float, influence: np.ndarray, ratios: np.ndarray, side: int, groups: int | None, half: float
) -> float:
    from scipy.special import stdtrit

    count, square = len(influence), float((influence**2).sum())
    if not square:
        return value
    freedom = max(np.abs(influence).sum() ** 2 / square - 1, 1.0)  # contributions as if of one size
    least = -stdtrit(freedom if groups is None else min(freedom, max(groups - 1, 1)), half)
    quantile = np.quantile(-side * ratios, 1 - half) if len(ratios) else 2 * least
    return value + side * float(np.clip(quantile, least, 2 * least)) * math.sqrt(square / count / max(count - 1, 1))


def _limited(own: Terms, ends: list[float]) -> tuple[list[float], str]:
    """Ends that are infinite where a tail is heavy, and the words for it."""
    words, found = [], list(ends)
    for place, (name, tail) in enumerate(zip(("lower", "upper"), tails(own), strict=True)):
        if tail.heavy:
            found[place] = -math.inf if place == 0 else math.inf
            words.append(f"no {name} limit: {'heavy tail' if tail.rows >= _FEW else 'too few rows'}")
    return found, "; ".join(words)


def tails(terms: Terms) -> tuple[Tail, Tail]:
    """Of the contributions at the low and at the high end."""
    influence, scale = terms.influence, 1e-9 * np.abs(terms.columns[0]).max(initial=0.0)
    return _tail(-influence, scale), _tail(influence, scale)


def _tail(x: np.ndarray, scale: float) -> Tail:
    x = x[x > scale]
    if len(x) < _FEW:
        return Tail(len(x), math.nan, math.nan, 1.0)
    count = math.ceil(min(0.3 * len(x), 3 * math.sqrt(len(x))))
    largest = np.partition(x, -count - 1)[-count - 1 :]
    excess = np.sort(largest - largest.min())
    excess, share = excess[excess > scale], float(x.max() ** 2 / (x**2).sum())
    if len(excess) < 2:
        return Tail(len(x), -math.inf, 0.0, share)
    shape = (count * _shape(excess) + 3) / (count + 10)
    return Tail(len(x), shape, (1 + max(shape, 0.0)) * math.sqrt(count) / (count + 10), share)


def _shape(x: np.ndarray) -> float:
    """Of a generalized Pareto distribution, from sorted excesses, by Zhang and Stephens."""
    count, grid = len(x), 30 + int(math.sqrt(len(x)))
    rate = 1 / x[-1] + (1 - np.sqrt(grid / (np.arange(grid) + 0.5))) / (3 * x[max(int(count / 4 + 0.5) - 1, 0)])
    k = np.log1p(-rate[:, None] * x).mean(axis=1)
    inverse = np.where(k == 0, 1 / x.mean(), -rate / np.where(k == 0, 1, k))  # of an exponential distribution at 0
    likelihood = count * (np.log(inverse) - k - 1)
    weight = np.exp(likelihood - likelihood.max())
    return float(np.log1p(-(rate * weight).sum() / weight.sum() * x).mean())


def _studentized(influences: Sequence[np.ndarray], seed: int, samples: int) -> list[np.ndarray]:
    """Means of bootstrap samples in their standard errors, with common rows; random blocks of more than 16,384 rows."""
    generator, count = np.random.default_rng(seed), len(influences[0])
    columns = np.stack([part for one in influences for part in (one, one**2)], axis=1)
    if count > _BLOCKS:
        member = generator.permutation(np.arange(count) % _BLOCKS)
        columns = np.stack([np.bincount(member, column) for column in columns.T], axis=1)
    rows, sums = len(columns), []
    for first in range(0, samples, step := max(1, _CHUNK // rows)):
        size = min(step, samples - first)
        drawn = generator.integers(rows, size=(size, rows)) + rows * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * rows).reshape(size, rows)
        sums.append(times.astype(np.float64) @ columns)
    found = []
    for total, square in np.concatenate(sums).T.reshape(len(influences), 2, samples):
        variance = square - total**2 / count
        known = variance > 1e-12 * square.max(initial=0.0)
        found.append(total[known] / np.sqrt(variance[known]))
    return found
