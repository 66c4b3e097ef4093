"""Gaussian process on the last responses, with fixed hyperparameters: a baseline of constant cost.

The process is that of `seqdec.bo.surrogates.gaussian_process`, given the last B responses only, with one length scale
for all dimensions and a noise variance that are not fitted.
"""

import math
from typing import Any

import numpy as np

from seqdec.bo.surrogates import gaussian_process as exact
from seqdec.bo.surrogates.contract import History, Surrogate, check_growth
from seqdec.bo.surrogates.gaussian_process import Hyperparameters, Process
from seqdec.boundary import checks
from seqdec.core import Key


def buffered_gp(
    dim: int,
    *,
    buffer: int = 20,
    length_scale: float = 0.1,
    variance: float = 1.0,
    noise_variance: float = 1e-4,
    growth: float = 1.1,
) -> Surrogate:
    """Gaussian process with a Matern-5/2 kernel on the last responses, whose hyperparameters are given.

    Args:
        dim: columns of the unit cube.
        buffer: B, number of responses that are kept.
        length_scale: l, in units of the unit cube.
        variance: s, prior variance of the function around its mean, whose prior variance is 1.
        noise_variance: noise variance of the responses; 1e-8 is added.
        growth: as in `Surrogate`.

    Raises ValueError or TypeError for a setting that is out of its range or not a number.
    """
    dim, buffer = checks.count("dim", dim), checks.count("buffer", buffer)
    checks.number("length_scale", length_scale, exclusive=True)
    checks.number("variance", variance, exclusive=True)
    checks.number("noise_variance", noise_variance)
    log_noise = math.log(noise_variance) if noise_variance else -math.inf
    hyper = Hyperparameters(
        np.full(dim, math.log(length_scale)), np.full((), math.log(variance)), np.full((), log_noise)
    )

    def init(key: Key, history: History) -> Process:
        return exact.condition(hyper, _last(history._replace(filled=0), buffer))

    def condition_on(state: Any, history: History) -> Process:
        return exact.condition(hyper, _last(history, buffer))

    return Surrogate(
        init, condition_on, condition_on, exact.posterior, check_growth(growth), "thompson",
        exact.DTYPE, stored=lambda state: state.stored,
    )  # fmt: skip


def _last(history: History, count: int) -> History:
    """The last responses of a history, `count` at most, in arrays of as many rows."""
    end = int(history.filled)
    rows = slice(max(0, end - count), max(0, end - count) + count)
    x, y = (np.asarray(part)[rows] for part in (history.x, history.y))
    missing = count - len(y)
    return History(np.pad(x, ((0, missing), (0, 0))), np.pad(y, (0, missing)), np.int32(min(end, count)))
