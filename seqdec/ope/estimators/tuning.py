r"""Settings chosen from the log, for weights v that trade bias for variance.

Candidates are ordered, the least biased first. With estimates t_j, means of direct + v_j residual, and standard errors
s_j,

    "slope"  the last i for which it and all candidates before have |t_i - t_j| <= 1.96 (s_i + (sqrt(6) - 1) s_j) for
             all j < i
    "bound"  the least s_j^2 + max(0, b_j^2 - e_j^2), b_j the mean of (w - v_j) residual and e_j its standard error

References:
    Su, Srinath, Krishnamurthy, "Adaptive estimator selection for off-policy evaluation", 2020 (SLOPE);
    Su, Dimakopoulou, Krishnamurthy, Dudik, "Doubly robust off-policy evaluation with shrinkage", 2020.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from seqdec.boundary import checks

RULES = ("slope", "bound")
_C = math.sqrt(6) - 1
_CANDIDATES = 25


def check_setting(name: str, value: float | str, top: float = math.inf) -> None:
    """Raises ValueError for neither a rule nor a number > 0 or in [0, top]."""
    if isinstance(value, str):
        checks.choice(name, value, RULES)
    elif math.isinf(top):
        checks.positive(name, value)
    else:
        checks.number(name, value, 0, math.nextafter(top, math.inf))


def caps(w: np.ndarray) -> list[float]:
    """No bound, then geometric ones from the largest to the fifth percentile of weights > 0."""
    positive = w[w > 0]
    if not positive.size:
        return [math.inf]
    return [math.inf, *np.geomspace(positive.max(), np.quantile(positive, 0.05), _CANDIDATES)]


def chosen(
    setting: float | str,
    candidates: Callable[[np.ndarray], Sequence[float]],
    weigh: Callable[[np.ndarray, float], np.ndarray],
    w: np.ndarray,
    residual: np.ndarray,
    direct: np.ndarray | float = 0.0,
) -> float:
    """The setting, or the rule's choice of `candidates(w)`, v = weigh(w, setting)."""
    if not isinstance(setting, str):
        return setting
    settings = candidates(w)
    estimates = [_mean_and_error(direct + weigh(w, one) * residual) for one in settings]
    if setting == "slope":
        return settings[slope(*zip(*estimates, strict=True))]
    biases = [_mean_and_error((w - weigh(w, one)) * residual) for one in settings]
    errors = [s**2 + max(0.0, b**2 - e**2) for (_, s), (b, e) in zip(estimates, biases, strict=True)]
    return settings[int(np.argmin(errors))]


def slope(values: Sequence[float], errors: Sequence[float]) -> int:
    """Index chosen by "slope"; the first where estimates are unknown."""
    t, s = np.asarray(values), 1.96 * np.asarray(errors)
    for i in range(1, len(t)):
        if not (np.abs(t[i] - t[:i]) <= s[i] + _C * s[:i]).all():
            return i - 1
    return len(t) - 1 if np.isfinite(t).all() else 0


def _mean_and_error(x: np.ndarray) -> tuple[float, float]:
    count = len(x)
    return float(x.mean()), float(x.std(ddof=1) / math.sqrt(count)) if count > 1 else math.nan
