"""The difference of two estimates from the same rows, and its interval.

    difference = estimate of the target - estimate of the baseline

Its error is that of the difference of the two influence functions: the noise that both share cancels.
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from seqdec.boundary.checks import TOLERANCE
from seqdec.ope import intervals
from seqdec.ope.contract import Estimator, Evidence
from seqdec.ope.diagnostics import ENOUGH, extremes, reach
from seqdec.ope.estimators.slates import SlateEvidence
from seqdec.ope.evaluation import weight_of
from seqdec.ope.intervals import Ends, Terms


class Pair(NamedTuple):
    """A target and its baseline."""

    given: Any
    """evidence of the target"""
    other: Any
    """evidence of the baseline; None for the policy that wrote the log"""

    @property
    def equal(self) -> bool:
        """Whether both are the same policy in all rows."""
        if self.other is None:
            return _as_logged(self.given)
        left_out = ("log", "predicted", "seed")
        fields = [name for name in self.given._fields if name not in left_out]
        return all(_close(getattr(self.given, name), getattr(self.other, name)) for name in fields)

    def terms(self, estimator: Estimator) -> Terms:
        """Of the difference."""
        return _minus(*self._sides(estimator))

    def ends(self, estimator: Estimator, known: Ends | None, member: np.ndarray | None, settings: Any) -> Ends:
        """The interval of the difference: its ends count a row that the log might have had.

        The low end has one that is bad for the target and good for the baseline, the high end the opposite. The row's
        weight is that of an average decision of the policy. The log's own policy has weight 1, and the target then a
        weight of a deviation above or below 1, whichever moves (w - 1) r more.
        """
        sides, reward = self._sides(estimator), rewards(self.given.log)
        worst = extremes(reward, known)
        own, usual = sides[0], weight_of(sides[0], reach(self.given), reward)
        if self.other is None:
            before = intervals.unseen(sides[1], 1.0, worst)
            rows = against_log(lambda w: intervals.unseen(own, w, worst), before, usual, reward.mean(), worst)
        else:
            before = intervals.unseen(sides[1], weight_of(sides[1], reach(self.other), reward), worst)
            rows = list(itertools.starmap(_minus, zip(intervals.unseen(own, usual, worst), before[::-1], strict=True)))
        return ends(_minus(*sides), rows, member, settings)

    def beyond(self, found: Ends, values: Ends, known: Ends | None) -> Ends:
        """Ends in which the decisions that no row stands for have any reward of the range, around two estimates."""
        low, high = found
        for given, value, side in zip(self, values, (1, -1), strict=True):
            if given is not None and known is not None and np.isfinite(value):
                share = reach(given).missing
                less, more = share * (value - known[0]), share * (known[1] - value)
                low, high = (low - less, high + more) if side > 0 else (low - more, high + less)
        return low, high

    def _sides(self, estimator: Estimator) -> tuple[Terms, Terms]:
        own = estimator.terms(self.given)
        return own, mean_reward(self.given.log) if self.other is None else estimator.terms(self.other)


def against_log(
    unseen: Callable[[float], list[Terms]], before: list[Terms], usual: float, mean: float, worst: Ends
) -> list[Terms]:
    """Rows of the difference to the log that are worst for the target, and best; `unseen`: of a weight, by end."""
    spread = max(usual - 1, 0.0) ** 0.5
    options = [(w, end) for w in (max(usual, 1 + spread), max(1 - spread, 0.0)) for end in (0, 1)]
    moved = [(w - 1) * (worst[end] - mean) for w, end in options]
    chosen = [options[int(np.argmin(moved))], options[int(np.argmax(moved))]]
    return [_minus(unseen(w)[end], before[end]) for w, end in chosen]


def rewards(log: Any) -> np.ndarray:
    """(n,) rewards of the rows, of slates and sessions their sums."""
    return log.reward.reshape(len(log), -1).sum(axis=1)


def mean_reward(log: Any) -> Terms:
    """Terms of the mean reward of a log."""
    return Terms(rewards(log), np.ones(len(log)))


def ends(terms: Terms, rows: list[Terms], member: np.ndarray | None, settings: Any) -> Ends:
    """The interval of one estimate by `intervals.several`, of rows in groups."""
    count = None
    if member is not None:
        member = np.unique(member, return_inverse=True)[1]
        count = int(member.max()) + 1
        size = len(member) / count
        terms, rows = terms.grouped(member), [Terms(*(size * part for part in row)) for row in rows]
    found = intervals.several([(terms, rows)], groups=count, **settings)[0]
    return found.low, found.high


def _minus(above: Terms, below: Terms) -> Terms:
    (gain, weights), (loss, others) = above.columns, below.columns
    return Terms(np.concatenate([gain, -loss], axis=1), np.concatenate([weights, others], axis=1))


def _as_logged(given: Any) -> bool:
    """By the whole logging law if it is known, else by the weights of so many rows that another law would show."""
    if isinstance(given, Evidence) and given.log.logging is not None and len(given.target.probabilities):
        return _close(given.target.probabilities, given.log.logging)
    weights = given.conditional if isinstance(given, SlateEvidence) else getattr(given, "weights", np.nan)
    return len(given.log) >= ENOUGH and _close(weights, 1.0)


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return all(map(_close, one, other))
    return bool(np.allclose(one, other, rtol=0, atol=TOLERANCE, equal_nan=True))
