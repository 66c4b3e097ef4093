r"""Settings chosen from the log itself, for estimators whose weights v replace w to trade bias for variance.

Candidates are ordered from the least biased, which has the largest variance, on. With the estimate t_j and the standard
error s_j of candidate j, the rules are

    "slope"  the last candidate i with |t_i - t_j| <= 1.96 (s_i + (sqrt(6) - 1) s_j) for all j < i, which holds for all
             candidates before it too
    "bound"  the least s_j^2 + max(0, b_j^2 - e_j^2), where b_j is the mean of (w - v_j) (r - q), an estimate of the
             bias, and e_j its standard error

References:
    Su, Srinath, Krishnamurthy, "Adaptive estimator selection for off-policy evaluation", 2020 (SLOPE);
    Su, Dimakopoulou, Krishnamurthy, Dudik, "Doubly robust off-policy evaluation with shrinkage", 2020.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from seqdec import checks
from seqdec.ope.contract import Terms

RULES = ("slope", "bound")
_C = math.sqrt(6) - 1
_CANDIDATES = 25


def check_setting(name: str, value: float | str) -> None:
    """Raises ValueError for what is neither positive nor the name of a rule."""
    if isinstance(value, str):
        checks.choice(name, value, RULES)
    else:
        checks.positive(name, value)


def candidates(w: np.ndarray) -> list[float]:
    """Bounds of weights, from none on: geometric between the largest weight and the fifth percentile of those > 0."""
    positive = w[w > 0]
    if not positive.size:
        return [math.inf]
    return [math.inf, *np.geomspace(positive.max(), np.quantile(positive, 0.05), _CANDIDATES)]


def chosen(
    rule: str,
    settings: Sequence[float],
    weigh: Callable[[np.ndarray, float], np.ndarray],
    w: np.ndarray,
    residual: np.ndarray,
    direct: np.ndarray | float,
) -> Terms:
    """Terms of the mean of direct + v residual with v = weigh(w, setting), for the setting that the rule chooses.

    NaN where no row has a weight and there is no direct part.
    """
    supported = np.broadcast_to(float(bool(w.any()) or isinstance(direct, np.ndarray)), len(w))

    def terms(setting: float) -> Terms:
        return Terms(direct + weigh(w, setting) * residual, supported)

    if rule == "slope":
        points = [(one.value, one.std_error) for one in map(terms, settings)]
        return terms(settings[slope(*zip(*points, strict=True))])

    def error(setting: float) -> float:
        bias = Terms((w - weigh(w, setting)) * residual, supported)
        return terms(setting).std_error ** 2 + max(0.0, bias.value**2 - bias.std_error**2)

    return terms(settings[int(np.argmin([error(setting) for setting in settings]))])


def slope(values: Sequence[float], errors: Sequence[float]) -> int:
    """The place of the candidate that the rule "slope" chooses; the first where estimates are unknown."""
    t, s = np.asarray(values), 1.96 * np.asarray(errors)
    for i in range(1, len(t)):
        if not (np.abs(t[i] - t[:i]) <= s[i] + _C * s[:i]).all():
            return i - 1
    return len(t) - 1 if np.isfinite(t).all() else 0
