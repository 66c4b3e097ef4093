"""Continuous actions, by kernels."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.contract import Estimator, evidence
from seqdec.ope.estimators.tuning import slope
from seqdec.ope.intervals import Terms
from seqdec.rows import Rows


@dataclass(frozen=True, eq=False)
class ContinuousLog(Rows):
    """Decisions with a number as action, from `make_continuous_log`."""

    context: np.ndarray
    """(n, d)"""
    action: np.ndarray
    """(n,) float64"""
    reward: np.ndarray
    """(n,) float64"""
    density: np.ndarray
    """(n,) > 0, of the logging policy at the action"""

    known_propensities: ClassVar[bool] = True
    estimated: ClassVar[bool] = False


class ContinuousEvidence(NamedTuple):
    """A log and a deterministic target."""

    log: ContinuousLog
    action: np.ndarray
    """(n,) of the target"""
    predicted: Any
    """(n,) predicted reward of the target's action, or None"""
    seed: int


def make_continuous_log(*, action: Any, reward: Any, density: Any, context: Any = None) -> ContinuousLog:
    """A validated log of numbers as actions.

    All are (n,) and finite, densities > 0; contexts are (n, d) or None.

    Raises:
        TypeError: not numbers.
        ValueError: other shapes or ranges.
    """
    shape = (np.size(np.asarray(checks.as_array("action", action))),)
    if not shape[0]:
        raise ValueError("action must hold at least one number; got none")
    action, reward, density = (
        finite(name, part, shape) for name, part in (("action", action), ("reward", reward), ("density", density))
    )
    if not (density > 0).all():
        raise ValueError(f"density must be positive; got {density.min()}")
    x = np.zeros((*shape, 0)) if context is None else np.asarray(checks.as_array("context", context), np.float64)
    return ContinuousLog(finite("context", x, (*shape, x.shape[-1])), action, reward, density)


@evidence.register
def _of_numbers(log: ContinuousLog, target: Any, predicted: Any = None, *, seed: int) -> ContinuousEvidence:
    """`target` (n,) actions, `predicted` (n,) their rewards or None."""
    action = finite("target", target, log.action.shape)
    known = None if predicted is None else finite("predicted", predicted, log.action.shape)
    return ContinuousEvidence(log, action, known, checks.seed("seed", seed))


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


@dataclass(frozen=True, kw_only=True)
class KernelIPS(Estimator):
    """Inverse propensity scoring with weights w = K((target - action) / h) / (h density): mean of w r.

    References:
        Kallus, Zhou, "Policy evaluation and optimization with continuous treatments", 2018.
    """

    bandwidth: float | str = "slope"
    """h > 0, in units of the action; or "slope": among fractions of the logged actions' standard deviation"""
    kernel: str = "epanechnikov"
    """One of `KERNELS`."""
    normalized: bool = False
    """divides by the weights' sum, not n"""

    log = ContinuousLog

    def __post_init__(self) -> None:
        _check_kernel(self.bandwidth, self.kernel)
        checks.flag("normalized", self.normalized)

    def terms(self, evidence: ContinuousEvidence) -> Terms:
        def build(w: np.ndarray) -> Terms:
            r = evidence.log.reward
            return Terms(w * r, w if self.normalized else np.full_like(r, float(w.any())))

        return _smoothed(evidence, self.bandwidth, KERNELS[self.kernel], build)


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
        def build(w: np.ndarray) -> Terms:
            value = evidence.predicted + w * (evidence.log.reward - evidence.predicted)
            return Terms(value, np.ones_like(value))

        return _smoothed(evidence, self.bandwidth, KERNELS[self.kernel], build)


def _check_kernel(bandwidth: float | str, kernel: str) -> None:
    checks.choice("kernel", kernel, KERNELS)
    if isinstance(bandwidth, str):
        checks.choice("bandwidth", bandwidth, ("slope",))
    else:
        checks.positive("bandwidth", bandwidth)


def _smoothed(
    evidence: ContinuousEvidence, bandwidth: float | str, kernel: Callable, build: Callable[[np.ndarray], Terms]
) -> Terms:
    def at(h: float) -> Terms:
        u = (evidence.action - evidence.log.action) / h
        return build(kernel(u) / (h * evidence.log.density))

    if not isinstance(bandwidth, str):
        return at(bandwidth)
    spread = float(evidence.log.action.std()) or 1.0
    every = [at(h) for h in np.geomspace(0.02 * spread, 2 * spread, 20)]
    every = every[next((place for place, one in enumerate(every) if np.isfinite(one.value)), 0) :]
    return every[slope([one.value for one in every], [one.std_error for one in every])]
