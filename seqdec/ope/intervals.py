"""Ratios of sums over rows, and their confidence intervals.

    value = sum_j (sum_i numerator_ij / sum_i denominator_ij)

    "cautious"     the default: studentized bootstrap of the rows and an unseen one, for rare rewards and nearly
                   deterministic logging. The unseen row has the weight mean(w^2), or that if unlogged actions share the
                   remaining probability equally, whichever is larger, and the mean reward of those below (low end) or
                   above (high end) their mean. Quantiles at level 95% are kept between 1.96 and 4.
    "studentized"  quantiles of (estimate* - estimate) / error* in bootstrap samples (Efron, 1982)
    "bca"          bias-corrected, accelerated percentiles (Efron, 1987)
    "percentile"   percentiles
    "bernstein"    empirical Bernstein bound (Maurer, Pontil, 2009), for every number of rows
    "betting"      confidence sequence by betting (Waudby-Smith, Ramdas, 2024), at all numbers of rows at once

The last two need a mean of bounded contributions.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqdec.boundary import checks

_BLOCKS = 2**14
_CHUNK = 2**22
_WIDEST = 4.0 / 1.96
INTERVALS = ("cautious", "studentized", "bca", "percentile", "bernstein", "betting")
BOUNDED = ("bernstein", "betting")
Ends = tuple[float, float]
_UNKNOWN = (float("nan"), float("nan"))


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
    def point(self) -> tuple[float, float]:
        """The estimate and its standard error."""
        return self.value, self.std_error

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


def plain(
    kind: str, terms: Sequence[Terms], *, bounds: Ends | None, seed: int, level: float, samples: int
) -> list[Ends]:
    """Intervals other than "cautious"; bounds of None are those of the rows."""
    if kind in BOUNDED:
        return [_bounded(kind, one, bounds or (one.numerator.min(), one.numerator.max()), level) for one in terms]
    drawn, errors = _resample(terms, seed, samples)
    if kind == "studentized":
        return [studentized(one.point, drawn[:, i], errors[:, i], level) for i, one in enumerate(terms)]
    if kind == "percentile":
        return [percentile(one, level) for one in drawn.T]
    return [bca(one, drawn[:, i], level) for i, one in enumerate(terms)]


def cautious(
    estimates: Sequence[tuple[Terms, Sequence[Terms]]], *, seed: int, level: float, samples: int
) -> list[Ends]:
    """Default intervals, from terms of the rows and of a further row, or None, for either end."""
    longer = []
    for own, rows in estimates:
        columns = own.columns
        nothing = Terms(*(np.zeros((1, part.shape[1])) for part in columns))  # a row of zeros changes nothing
        added = [row.columns for row in rows] if len(rows) and columns[1].sum(axis=0).all() else [nothing] * 2
        longer += [Terms(*(np.concatenate(parts) for parts in zip(columns, more, strict=True))) for more in added]
    drawn, errors = _resample(longer, seed, samples)
    points = [one.point for one in longer]
    ends = [studentized(point, drawn[:, i], errors[:, i], level, cautious=True) for i, point in enumerate(points)]
    return [(low[0], high[1]) for low, high in zip(ends[::2], ends[1::2], strict=True)]


def studentized(point: Ends, drawn: np.ndarray, errors: np.ndarray, level: float, *, cautious: bool = False) -> Ends:
    """Interval of an estimate and its error from (samples,) of both."""
    value, std_error = point
    known = np.isfinite(drawn) & (errors > 0)
    if known.sum() < 2:
        return _UNKNOWN if std_error else (value, value)
    low, high = np.quantile((drawn[known] - value) / errors[known], [(1 - level) / 2, (1 + level) / 2])
    if cautious:
        least = _quantile((1 + level) / 2)
        low, high = np.clip(low, -_WIDEST * least, -least), np.clip(high, least, _WIDEST * least)
    return float(value - high * std_error), float(value - low * std_error)


def percentile(drawn: np.ndarray, level: float) -> Ends:
    """Quantiles of the finite bootstrap samples."""
    known = drawn[np.isfinite(drawn)]
    if len(known) < 2:
        return _UNKNOWN
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def bca(one: Terms, drawn: np.ndarray, level: float) -> Ends:
    """Bias-corrected and accelerated percentiles; the acceleration by the influence function."""
    known = drawn[np.isfinite(drawn)]
    if len(known) < 2:
        return _UNKNOWN
    influence = one.influence
    spread = (influence**2).sum() ** 1.5
    acceleration = (influence**3).sum() / (6 * spread) if spread else 0.0
    below = np.clip((known < one.value).mean(), 0.5 / len(known), 1 - 0.5 / len(known))
    shift = _quantile(float(below))
    moved = [shift + _quantile(tail) for tail in ((1 - level) / 2, (1 + level) / 2)]
    from scipy.special import ndtr

    tails = [float(ndtr(shift + z / max(1 - acceleration * z, 1e-3))) for z in moved]
    low, high = np.quantile(known, tails)
    return float(low), float(high)


def _bounded(kind: str, one: Terms, bounds: Ends, level: float) -> Ends:
    if bounds[0] >= bounds[1]:
        return one.value, one.value
    return (bernstein if kind == "bernstein" else betting)(one, bounds, level)


def bernstein(one: Terms, bounds: Ends, level: float) -> Ends:
    """Empirical Bernstein interval of a mean of numbers within `bounds`.

    Half width sqrt(2 s^2 log(4 / delta) / n) + 7 range log(4 / delta) / (3 (n - 1)), delta = 1 - level.
    """
    x = _means(one, bounds)
    count, width = len(x), math.log(4 / (1 - level))
    if count < 2:
        return bounds
    half = math.sqrt(2 * x.var(ddof=1) * width / count) + 7 * (bounds[1] - bounds[0]) * width / (3 * (count - 1))
    return max(bounds[0], x.mean() - half), min(bounds[1], x.mean() + half)


def betting(one: Terms, bounds: Ends, level: float) -> Ends:
    """Confidence sequence of a mean of numbers within `bounds`, intersected over all rows.

    A mean m is left out once half the capital of two gamblers, prod_t (1 +- b_t (x_t - m)), exceeds 1 / (1 - level).
    Predictable bets b_t are proportional to sqrt(2 log(2 / delta) / (v t log(1 + t))), v the variance of earlier rows,
    and at most half of the largest.
    """
    low, high = bounds
    x = (_means(one, bounds) - low) / (high - low)
    count, delta = len(x), 1 - level
    t = np.arange(1, count + 1)
    mean = (0.5 + np.cumsum(x)) / (t + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1)
    before = np.concatenate([[0.25], variance[:-1]])
    bets = np.sqrt(2 * math.log(2 / delta) / (before * t * np.log1p(t)))
    grid = np.append(np.linspace(0, 1, 101), mean[-1])
    best, ends = float(grid[np.argmin([_richest(x, bets, float(m)) for m in grid])]), []
    for outside, inside in ((0.0, best), (1.0, best)):  # by bisection from the mean against which nobody got rich
        if _richest(x, bets, outside) <= -math.log(delta):
            ends.append(outside)
            continue
        for _ in range(40):
            middle = (outside + inside) / 2
            if _richest(x, bets, middle) > -math.log(delta):
                outside = middle
            else:
                inside = middle
        ends.append(outside)
    return low + (high - low) * ends[0], low + (high - low) * ends[1]


def _richest(x: np.ndarray, bets: np.ndarray, m: float) -> float:
    up, down = np.minimum(bets, 0.5 / max(m, 1e-12)), np.minimum(bets, 0.5 / max(1 - m, 1e-12))
    capital = np.logaddexp(np.log1p(up * (x - m)).cumsum(), np.log1p(-down * (x - m)).cumsum()) - math.log(2)
    return float(capital.max())


def _means(one: Terms, bounds: Ends) -> np.ndarray:
    """(n,) bounded numbers whose mean is the estimate."""
    numerator, denominator = one.columns
    if numerator.shape[1] > 1 or not (denominator == 1).all():
        raise ValueError("the intervals bernstein and betting are for means, such as IPS, DR and DM, not for ratios")
    x = numerator[:, 0]
    if not (x >= bounds[0]).all() or not (x <= bounds[1]).all():
        raise ValueError(
            f"bounds must include every row's contribution, which range from {x.min():.6g} to {x.max():.6g}; got "
            f"{bounds}: they follow from the range of the rewards and the largest weight that is possible"
        )
    return x


def _quantile(probability: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(probability))


def bootstrap(terms: Sequence[Terms], *, seed: int, samples: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Estimates and standard errors in bootstrap samples with common rows: twice (samples, m).

    Above 16,384 rows, random blocks of rows are drawn. Standard errors are by the influence function; NaN without a
    denominator.
    """
    return _resample(terms, checks.seed("seed", seed), samples)


def _resample(terms: Sequence[Terms], seed: int, samples: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    places, features, member = [], [], None
    for one in terms:
        every = [column for part in one.columns for column in part.T]
        if member is None and len(every[0]) > _BLOCKS:
            member = generator.permutation(np.arange(len(every[0])) % _BLOCKS)
        places.append((len(features), len(every) // 2))
        products = (every[i] * every[j] for i, j in zip(*np.triu_indices(len(every)), strict=True))
        for column in itertools.chain(every, products):
            features.append(column if member is None else np.bincount(member, column, minlength=_BLOCKS))
    columns = np.stack(features, axis=1)
    rows, sums = len(columns), []
    for first in range(0, samples, step := max(1, _CHUNK // rows)):
        size = min(step, samples - first)
        drawn = generator.integers(rows, size=(size, rows)) + rows * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * rows).reshape(size, rows)
        sums.append(times.astype(np.float64) @ columns)
    total = np.concatenate(sums)
    found = [_estimates(total[:, start:], width) for start, width in places]
    return tuple(np.stack(part, axis=1) for part in zip(*found, strict=True))  # pyright: ignore[reportReturnType]


def _estimates(total: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(invalid="ignore", divide="ignore"):
        above, below = total[:, :width], total[:, width : 2 * width]
        ratio = above / below
        slopes = np.concatenate([1 / below, -ratio / below], axis=1)  # of the estimate by the sums
        variance = np.zeros(len(total))
        for place, (i, j) in enumerate(zip(*np.triu_indices(2 * width), strict=True)):
            times = 1 if i == j else 2
            variance += times * slopes[:, i] * slopes[:, j] * total[:, 2 * width + place]
        return ratio.sum(axis=1), np.sqrt(np.maximum(variance, 0))
