r"""Continuous actions, by kernels.

A kernel K of width h mixes the rewards of actions near the target's: the bias is of order h^2, at the ends of the
logged range of order h. SLOPE takes the widest h whose bias does not show: it is about as large as the error, and an
interval of this estimate does not hold. The bandwidth "slope" is therefore half of that h, and its weights are
K(u) p(u) / (h density), u = (action - target) / h, with a polynomial p of degree 2 for which

    int K(u) p(u) (1, u, u^2) du = (1, 0, 0)

over the logged range. Their bias is of order h^4, h^3 at the ends, and vanishes faster than the error.

References:
    Gasser, Mueller, "Kernel estimation of regression functions", 1979 (boundary kernels);
    Calonico, Cattaneo, Farrell, "On the effect of bias estimation on coverage accuracy in nonparametric inference",
    2018.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.contract import Estimator, evidence, refuse_agent
from seqdec.ope.diagnostics import Reach, by_weights, reach
from seqdec.ope.estimators.tuning import slope
from seqdec.ope.intervals import Terms, points
from seqdec.rows import Rows


@dataclass(frozen=True, eq=False)
class ContinuousLog(Rows):
    """Decisions with a number or a point as action, from `make_continuous_log`."""

    context: np.ndarray
    """(n, d)"""
    action: np.ndarray
    """(n,) float64; (n, k) of points of k numbers"""
    reward: np.ndarray
    """(n,) float64"""
    density: np.ndarray
    """(n,) > 0, of the logging policy at the action, per unit of volume; of integers the probability"""

    known_propensities: ClassVar[bool] = True
    estimated: ClassVar[bool] = False


class ContinuousEvidence(NamedTuple):
    """A log and a target: one action for each row, or a density."""

    log: ContinuousLog
    action: Any
    """(n,) of the target; NaN for a density"""
    predicted: Any
    """(n,) predicted reward of the target's action, or None"""
    seed: int
    weights: Any = np.nan
    """(n,) the target's density at the logged action over that of the log; NaN for a target of one action"""


def make_continuous_log(*, action: Any, reward: Any, density: Any, context: Any = None) -> ContinuousLog:
    """A validated log of numbers or points as actions.

    All arrays are finite.

    Args:
        action: (n,) numbers or (n, k) points.
        reward: (n,) rewards.
        density: (n,) > 0, density of the logging policy at the action, per unit of volume.
        context: (n, d) features, or None.

    Raises:
        TypeError: not numbers.
        ValueError: other shapes or ranges.
    """
    given = np.asarray(checks.as_array("action", action))
    if not given.size:
        raise ValueError("action must hold at least one number; got none")
    shape = given.shape[:1] if given.ndim == 2 else (given.size,)
    action = finite("action", given, given.shape if given.ndim == 2 else shape)
    reward, density = (finite(name, part, shape) for name, part in (("reward", reward), ("density", density)))
    if not (density > 0).all():
        raise ValueError(f"density must be positive; got {density.min()}")
    x = np.zeros((*shape, 0)) if context is None else np.asarray(checks.as_array("context", context), np.float64)
    return ContinuousLog(finite("context", x, (*shape, x.shape[-1])), action, reward, density)


@evidence.register
def _of_numbers(log: ContinuousLog, target: Any, predicted: Any = None, *, seed: int) -> ContinuousEvidence:
    """`target` (n,) actions, `predicted` (n,) their rewards or None; or `target` (log) -> (n,) densities."""
    refuse_agent("target", target)
    number = checks.seed("seed", seed)
    if callable(target):
        if predicted is not None:
            raise ValueError("predicted holds rewards of one action a row, and the target is a density: leave it out")
        density = finite("the densities of the target", target(log), log.reward.shape)
        if (density < 0).any():
            raise ValueError(f"the densities of the target must be at least 0; got {density.min()}")
        return ContinuousEvidence(log, np.nan, None, number, density / log.density)
    if log.action.ndim > 1:
        raise ValueError(
            f"an action of the log has {log.action.shape[1]} numbers, and kernels are for one: give the target's "
            "density at the logged actions, as a function (log) -> (n,)"
        )
    action = finite("target", target, log.action.shape)
    known = None if predicted is None else finite("predicted", predicted, log.action.shape)
    return ContinuousEvidence(log, action, known, number)


def finite(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Finite float64 of a shape. Raises TypeError or ValueError."""
    array = np.asarray(checks.as_array(name, values), np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"{name} must hold {shape} finite numbers; got shape {array.shape}")
    return array


KERNELS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "gaussian": lambda u: np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi),
    "epanechnikov": lambda u: 0.75 * np.maximum(1 - u**2, 0.0),
    "triangular": lambda u: np.maximum(1 - np.abs(u), 0.0),
    "cosine": lambda u: np.pi / 4 * np.cos(np.pi / 2 * np.clip(u, -1, 1)),
}
"""Densities of the distance from the target's action, in bandwidths."""


_GRID = np.linspace(-6, 6, 4801)
_LEAST = 20
"""Effective rows of the narrowest bandwidth that is tried."""


@dataclass(frozen=True, kw_only=True)
class KernelIPS(Estimator):
    """Inverse propensity scoring with weights w = K((action - target) / h) / (h density): mean of w r.

    For a target with a density, w is its quotient by that of the log, without a kernel.

    References:
        Kallus, Zhou, "Policy evaluation and optimization with continuous treatments", 2018.
    """

    bandwidth: float | str = "slope"
    """h > 0, in units of the action; or "slope", see `seqdec.ope.estimators.continuous`"""
    kernel: str = "epanechnikov"
    """One of `KERNELS`."""
    normalized: bool = False
    """divides by the weights' sum, not n"""

    log = ContinuousLog

    def __post_init__(self) -> None:
        _check_kernel(self.bandwidth, self.kernel)
        checks.flag("normalized", self.normalized)

    def terms(self, evidence: ContinuousEvidence) -> Terms:
        w, r = weights(evidence, self.bandwidth, self.kernel), evidence.log.reward
        return Terms(w * r, w if self.normalized else np.full_like(r, float(w.any())))

    def references(self, evidence: ContinuousEvidence) -> tuple[Estimator, ...]:
        own = self.normalized and isinstance(self.bandwidth, str)
        return () if own else (KernelIPS(kernel=self.kernel, normalized=True),)


@dataclass(frozen=True, kw_only=True)
class KernelDR(Estimator):
    """Doubly robust with the weights of `KernelIPS`: mean of q + w (r - q), q of the target's action."""

    bandwidth: float | str = "slope"
    """As in `KernelIPS`."""
    kernel: str = "epanechnikov"
    """One of `KERNELS`."""

    needs = ("propensities", "predicted")
    log = ContinuousLog

    def __post_init__(self) -> None:
        _check_kernel(self.bandwidth, self.kernel)

    def terms(self, evidence: ContinuousEvidence) -> Terms:
        w, q = weights(evidence, self.bandwidth, self.kernel), evidence.predicted
        return Terms(q + w * (evidence.log.reward - q), np.ones_like(q))

    def references(self, evidence: ContinuousEvidence) -> tuple[Estimator, ...]:
        return () if isinstance(self.bandwidth, str) else (KernelDR(kernel=self.kernel),)


def _check_kernel(bandwidth: float | str, kernel: str) -> None:
    checks.choice("kernel", kernel, KERNELS)
    if isinstance(bandwidth, str):
        checks.choice("bandwidth", bandwidth, ("slope",))
    else:
        checks.positive("bandwidth", bandwidth)


def weights(evidence: ContinuousEvidence, bandwidth: float | str, kernel: str) -> np.ndarray:
    """(n,) weights of a bandwidth or of "slope"; of a target's density."""
    if np.ndim(evidence.weights):
        return evidence.weights
    if isinstance(bandwidth, str):
        h = narrow(evidence, kernel)
        return _plain(evidence, h, kernel) * _correction(evidence, h, kernel)
    return _plain(evidence, bandwidth, kernel)


def _plain(evidence: ContinuousEvidence, h: float, kernel: str) -> np.ndarray:
    return KERNELS[kernel]((evidence.log.action - evidence.action) / h) / (h * evidence.log.density)


def narrow(evidence: ContinuousEvidence, kernel: str) -> float:
    """Half the bandwidth that SLOPE takes for the self-normalized mean of the reward, less its prediction if known."""
    log = evidence.log
    residual = log.reward if evidence.predicted is None else log.reward - evidence.predicted
    spread, tried = float(log.action.std()) or 1.0, []
    for h in np.geomspace(2 * spread, 0.02 * spread, 20):
        w = _plain(evidence, h, kernel)
        if tried and w.sum() ** 2 < _LEAST * (w**2).sum():
            break
        tried.append((h, Terms(w * residual, w)))
    widths, terms = zip(*reversed(tried), strict=True)
    values, errors = zip(*points(terms), strict=True)
    return float(widths[slope(values, errors)]) / 2


def _correction(evidence: ContinuousEvidence, h: float, kernel: str) -> np.ndarray:
    """(n,) p(u), for each target's action, or the logged one nearest to it if that is out of their range."""
    action = evidence.log.action
    low, high = action.min(), action.max()
    nearest = evidence.action.clip(low, high)
    ends = ((low - nearest) / h, (high - nearest) / h) if low < high else (nearest - math.inf, nearest + math.inf)
    densities = KERNELS[kernel](_GRID) * _GRID ** np.arange(5)[:, None]
    sums = (densities.cumsum(axis=1) - densities / 2) * (_GRID[1] - _GRID[0])
    moments = np.stack([np.subtract(*(np.interp(end, _GRID, one) for end in ends[::-1])) for one in sums], axis=-1)
    gram = moments[:, np.add.outer(np.arange(3), np.arange(3))]
    p = np.linalg.solve(gram, np.broadcast_to(np.eye(3)[:, :1], (len(action), 3, 1)))[:, :, 0]
    return (p * np.vander((action - evidence.action) / h, 3, increasing=True)).sum(axis=1)


@reach.register
def _reach(evidence: ContinuousEvidence) -> Reach:
    """Weights of the default estimators, and the share of the target's actions without a logged one nearby."""
    if np.ndim(evidence.weights):
        return by_weights(evidence.weights, 0.0)
    kernel = KernelIPS().kernel
    h, sorted_actions = narrow(evidence, kernel), np.sort(evidence.log.action)
    first, last = (np.searchsorted(sorted_actions, evidence.action + side * h) for side in (-1, 1))
    outside = (evidence.action < sorted_actions[0]) | (evidence.action > sorted_actions[-1]) | (first == last)
    return by_weights(_plain(evidence, h, kernel) * _correction(evidence, h, kernel), float(outside.mean()))
