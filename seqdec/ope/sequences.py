"""Confidence sequences: intervals of running means that hold at all numbers of rows at once, also of adaptive logs.

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

import numpy as np

_RATES = 0.9 * 2.0 ** -np.arange(20)
_NEVER = 1e300
_PRIOR = np.log(np.arange(1, 21) * np.arange(2, 22.0))
"""-log of the weights 1 / (j (j + 1)) of the average"""


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
