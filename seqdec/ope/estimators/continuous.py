"""Actions that are numbers, such as prices and doses, by kernels around the target's action."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from seqdec import checks
from seqdec.ope.contract import Estimator, Terms, configured, evidence
from seqdec.ope.estimators.tuning import slope


class ContinuousLog(NamedTuple):
    """Decisions whose action is a number; made by `make_continuous_log`."""

    context: np.ndarray
    """(n, d)"""
    action: np.ndarray
    """(n,) float64"""
    reward: np.ndarray
    """(n,) float64"""
    density: np.ndarray
    """(n,) > 0, of the logging policy at the action"""
    estimated: bool = False
    """Whether the densities are estimates"""

    @property
    def known_propensities(self) -> bool:
        """Always, of these logs."""
        return True


class ContinuousEvidence(NamedTuple):
    """A log and a deterministic policy to be evaluated."""

    log: ContinuousLog
    action: np.ndarray
    """(n,) that the target would play"""
    predicted: np.ndarray | None
    """(n,) predicted reward of the target's action"""
    seed: int


def make_continuous_log(*, action: Any, reward: Any, density: Any, context: Any = None) -> ContinuousLog:
    """A validated log of numbers as actions.

    Args:
        action: (n,) finite.
        reward: (n,) finite.
        density: (n,) > 0.
        context: (n, d) finite; None for no context.

    Raises:
        TypeError: not numbers.
        ValueError: other shapes or ranges.
    """
    parts = {"action": action, "reward": reward, "density": density}
    found = {name: np.asarray(checks.as_array(name, part), np.float64) for name, part in parts.items()}
    count = len(found["action"]) if found["action"].ndim == 1 else 0
    for name, part in found.items():
        if part.shape != (count,) or not count or not np.isfinite(part).all():
            raise ValueError(f"{name} must hold {(count,)} finite numbers; got shape {part.shape}")
    if not (found["density"] > 0).all():
        raise ValueError(f"density must be positive; got {found['density'].min()}")
    x = np.zeros((count, 0)) if context is None else np.asarray(checks.as_array("context", context), np.float64)
    if x.ndim != 2 or len(x) != count or not np.isfinite(x).all():
        raise ValueError(f"context must hold ({count}, d) finite numbers; got shape {x.shape}")
    return ContinuousLog(x, found["action"], found["reward"], found["density"])


@evidence.register
def _of_numbers(log: ContinuousLog, target: Any, predicted: Any = None, *, seed: int) -> ContinuousEvidence:
    """Evidence of actions that are numbers: `target` (n,) actions, `predicted` (n,) rewards of them or None."""
    action = _column("target", target, log.action.shape)
    known = None if predicted is None else _column("predicted", predicted, log.action.shape)
    return ContinuousEvidence(log, action, known, checks.seed("seed", seed))


def _column(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
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
"""Densities that a row's distance from the target's action, in bandwidths, is weighted with."""


@configured
def KernelIPS(*, bandwidth: float | str = "slope", kernel: str = "epanechnikov", normalized: bool = False) -> Estimator:
    """Inverse propensity scoring with weights w = K((target - action) / h) / (h density): mean of w r.

    Args:
        bandwidth: h > 0, in units of the action; or "slope", which chooses among fractions of the standard deviation
            of the logged actions: a wide one is biased, a narrow one varies.
        kernel: one of `KERNELS`.
        normalized: divides by the sum of the weights in place of n.

    Raises:
        ValueError: an unknown kernel, or a bandwidth out of its range.

    References:
        Kallus, Zhou, "Policy evaluation and optimization with continuous treatments", 2018.
    """
    checks.flag("normalized", normalized)

    def build(evidence: ContinuousEvidence, w: np.ndarray) -> Terms:
        r = evidence.log.reward
        return Terms(w * r, w if normalized else np.full_like(r, float(w.any())))

    return _kernel(bandwidth, kernel, build, ("propensities",))


@configured
def KernelDR(*, bandwidth: float | str = "slope", kernel: str = "epanechnikov") -> Estimator:
    """Doubly robust with the weights of `KernelIPS`: mean of q + w (r - q), q predicted for the target's action.

    Settings, errors and source as in `KernelIPS`.
    """

    def build(evidence: ContinuousEvidence, w: np.ndarray) -> Terms:
        assert evidence.predicted is not None, "checked by check_needs"
        value = evidence.predicted + w * (evidence.log.reward - evidence.predicted)
        return Terms(value, np.ones_like(value))

    return _kernel(bandwidth, kernel, build, ("propensities", "predicted"))


def _kernel(bandwidth: float | str, kernel: str, build: Callable, needs: tuple[str, ...]) -> Estimator:
    checks.choice("kernel", kernel, KERNELS)
    if isinstance(bandwidth, str):
        checks.choice("bandwidth", bandwidth, ("slope",))
    else:
        checks.positive("bandwidth", bandwidth)

    def at(evidence: ContinuousEvidence, h: float) -> Terms:
        u = (evidence.action - evidence.log.action) / h
        return build(evidence, KERNELS[kernel](u) / (h * evidence.log.density))

    def terms(evidence: ContinuousEvidence) -> Terms:
        if not isinstance(bandwidth, str):
            return at(evidence, bandwidth)
        spread = float(evidence.log.action.std()) or 1.0
        every = [at(evidence, h) for h in np.geomspace(0.02 * spread, 2 * spread, 20)]
        first = next((place for place, one in enumerate(every) if np.isfinite(one.value)), 0)
        every = every[first:]
        return every[slope([one.value for one in every], [one.std_error for one in every])]

    return Estimator(terms, needs, log=ContinuousLog)
