"""Confidence sequences: intervals of running means that hold at all numbers of rows at once, also for adaptive logs.

For rows x_t >= least_t, with guesses c_t >= least_t that earlier rows fix, and B = max_t (c_t - least_t),

    exp(lambda sum_t (x_t - E_t x_t) - psi(lambda B) / B^2 sum_t (x_t - c_t)^2),   psi(u) = -log(1 - u) - u

is a supermartingale for each lambda < 1 / B (Fan, Grama, Liu, 2015), and so is its average over a grid of lambda. It
exceeds 1 / delta with probability at most delta, at any t (Ville), which bounds the mean of E_t x_t from below.

References:
    Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", 2021;
    Waudby-Smith, Wu, Ramdas, Karampatziakis, Mineiro, "Anytime-valid off-policy inference for contextual
    bandits", 2022.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec.ope.contract import Evidence
from seqdec.ope.intervals import Ends

if TYPE_CHECKING:
    import pandas as pd

_RATES = 0.9 * 2.0 ** -np.arange(20)
_NEVER = 1e300
_PRIOR = np.log(np.arange(1, 21) * np.arange(2, 22.0))
"""-log of the weights 1 / (j (j + 1)) of the average"""
_LOOKS = 200
"""Numbers of rows at which the ends of a difference are told, at most."""


def lower(
    x: np.ndarray,
    least: np.ndarray | float,
    delta: float,
    *,
    guess: np.ndarray | float = 0.0,
    at: np.ndarray | None = None,
) -> np.ndarray:
    """Lower ends, together at level 1 - delta, of the means of E_t x_t over the rows up to each in `at`, or in all.

    `least` and `guess`, numbers or (n,), depend on earlier rows only; least <= x, guess.
    """
    at = np.arange(len(x)) if at is None else at
    bound = np.maximum.accumulate(np.broadcast_to(np.asarray(guess - least, np.float64), x.shape))[at, None]
    squares, share = np.cumsum((x - guess) ** 2)[at, None], bound * _RATES
    known = np.clip(share, 1e-3, 1 - 1e-3)  # psi is increasing, and for smaller shares at most share^2 (1 + share) / 2
    psi = np.where(share > 1e-3, (-np.log1p(-known) - known) / known**2, (1 + share) / 2) * _RATES**2
    cost = np.where(share < 1 - 1e-3, _PRIOR - math.log(delta) + psi * squares, _NEVER)
    excess = (cost / _RATES).min(axis=1)
    for _ in range(4):  # steps of Newton's method from above the root of a convex function stay above it
        gains = np.exp(_RATES * excess[:, None] - cost)
        total = gains.sum(axis=1)
        excess -= np.log(total) * total / (gains * _RATES).sum(axis=1)
    return (np.cumsum(x)[at] - excess) / (at + 1)


def before(x: np.ndarray, first: float, most: int | None = None) -> np.ndarray:
    """Mean of `first` and the rows before each, or `most` of them."""
    sums, rows = sums_before(x, most)
    return (sums + first) / (rows + 1)


def sums_before(x: np.ndarray, most: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(n,) sums of the rows before each, or of `most` of them, and their number."""
    sums = np.cumsum(x) - x
    if most is None:
        return sums, np.arange(len(x))
    return sums - np.concatenate([np.zeros(most), sums])[: len(x)], np.minimum(np.arange(len(x)), most)


def check_anytime(given: Any, logged: bool, known: Ends | None, groups: Any) -> None:
    """Raises ValueError for a comparison without confidence sequence."""
    if not isinstance(given, Evidence):
        raise ValueError(
            f"anytime=True is for a Log of discrete actions; got a {type(given.log).__name__}: leave it out"
        )
    if not given.log.known_propensities or given.log.estimated:
        raise ValueError("anytime=True needs exact propensities: log the probability with which each action was drawn")
    if not logged:
        raise ValueError(
            'anytime=True compares with the policy that wrote the log: leave out baseline, or pass "logged"'
        )
    if known is None:
        raise ValueError("anytime=True needs the range of possible rewards: pass reward_range=(low, high)")
    if groups is not None:
        raise ValueError("anytime=True does not use groups: leave them out")


def of_difference(given: Evidence, bounds: Ends, level: float) -> "pd.DataFrame":
    """Ends for the mean of V_t(target) - V_t(logged) over the first rows of the log.

    (w - 1) r and (w - 1) (1 - r), r scaled to [0, 1], are at least -1, with means of at most the difference and minus
    the difference, equal where the logging policy supports the target. If it is known, so is the largest weight, which
    bounds (w - 1) (r - c) too, c the mean of the rewards before; of the two lower ends the higher one is taken.
    """
    import pandas as pd

    log, w, (least, most) = given.log, given.weights, bounds
    r = (log.reward - least) / (most - least)
    at = np.unique(np.geomspace(1, len(log), min(len(log), _LOOKS)).round().astype(int)) - 1
    gain, loss, delta = (w - 1) * r, (w - 1) * (1 - r), (1 - level) / 2
    if log.logging is None or not len(given.target.probabilities):
        low, high = (lower(x, -1.0, delta, at=at) for x in (gain, loss))
    else:
        law, played = given.target.probabilities, log.logging > 0
        top = np.divide(law, log.logging, out=np.zeros_like(law), where=played).max(axis=1)
        never, c = np.where(played, 0.0, law).sum(axis=1), before(r, 0.5)
        x, more = (w - 1) * (r - c), np.maximum(top - 1, 0)
        low, high = (
            np.maximum(
                lower(plain, -1.0, delta / 2, at=at),
                lower(centered - c * never, -np.maximum(1 - c, more * c) - c * never, delta / 2, at=at),
            )
            for plain, centered, c in ((gain, x, c), (loss, -x, 1 - c))
        )
    ends = {"low": np.maximum(low, -1), "high": np.minimum(-high, 1)}
    return pd.DataFrame(ends, index=pd.Index(at + 1, name="rows")) * (most - least)
