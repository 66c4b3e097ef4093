"""Estimators by a reward model."""

import math
from dataclasses import dataclass

import numpy as np

from seqdec.ope.contract import Estimator, Evidence
from seqdec.ope.estimators.tuning import caps, check_setting, chosen
from seqdec.ope.estimators.weighting import harmonic, mean, strengths
from seqdec.ope.intervals import Terms


@dataclass(frozen=True, kw_only=True)
class DM(Estimator):
    """Direct method: mean of sum_a pi(a | x) q(x, a)."""

    needs = ("predicted",)

    def terms(self, evidence: Evidence) -> Terms:
        return mean(evidence.direct)

    def references(self, evidence: Evidence) -> tuple[Estimator, ...]:
        return (SNDR(),)


@dataclass(frozen=True, kw_only=True)
class DR(Estimator):
    """Doubly robust, with optimistic shrinkage: mean of direct + v (r - q), v = shrinkage w / (w^2 + shrinkage).

    References:
        Dudik, Langford, Li, "Doubly robust policy evaluation and learning", 2011;
        Su, Dimakopoulou, Krishnamurthy, Dudik, "Doubly robust off-policy evaluation with shrinkage", 2020.
    """

    shrinkage: float | str = math.inf
    """above 0: infinity keeps the weights; or a rule, as in `IPS`"""

    needs = ("propensities", "predicted")

    def __post_init__(self) -> None:
        check_setting("shrinkage", self.shrinkage)

    def terms(self, evidence: Evidence) -> Terms:
        def grid(w: np.ndarray) -> tuple[float, ...]:
            positive = w[w > 0] ** 2
            low, high = np.quantile(positive, [0.05, 0.95]) if positive.size else (1.0, 1.0)
            return (math.inf, *np.geomspace(100 * high, 0.01 * low, 25))

        def shrunk(w: np.ndarray, shrinkage: float) -> np.ndarray:
            return w / (w**2 / shrinkage + 1)

        w, residual, direct = evidence.weights, evidence.residual, evidence.direct
        return mean(direct + shrunk(w, chosen(self.shrinkage, grid, shrunk, w, residual, direct)) * residual)

    def references(self, evidence: Evidence) -> tuple[Estimator, ...]:
        return () if self.shrinkage == math.inf else (DR(),)


@dataclass(frozen=True, kw_only=True)
class SNDR(Estimator):
    """Self-normalized doubly robust: mean of direct, plus sum of w (r - q) / sum of w; `DM` without weights.

    References:
        Thomas, Brunskill, "Data-efficient off-policy policy evaluation for reinforcement learning", 2016.
    """

    needs = ("propensities", "predicted")

    def terms(self, evidence: Evidence) -> Terms:
        w, ones = evidence.weights, np.ones(len(evidence.weights))
        numerator = np.stack([evidence.direct, w * evidence.residual], axis=1)
        return Terms(numerator, np.stack([ones, w if w.any() else ones], axis=1))


@dataclass(frozen=True, kw_only=True)
class SwitchDR(Estimator):
    """Doubly robust where w <= threshold, the direct method elsewhere.

    References:
        Wang, Agarwal, Dudik, "Optimal and adaptive off-policy evaluation in contextual bandits", 2017.
    """

    threshold: float | str = 10.0
    """Above 0; or a rule, as in `IPS`."""

    needs = ("propensities", "predicted")

    def __post_init__(self) -> None:
        check_setting("threshold", self.threshold)

    def terms(self, evidence: Evidence) -> Terms:
        def kept(w: np.ndarray, threshold: float) -> np.ndarray:
            return np.where(w <= threshold, w, 0.0)

        w, residual, direct = evidence.weights, evidence.residual, evidence.direct
        return mean(direct + kept(w, chosen(self.threshold, caps, kept, w, residual, direct)) * residual)

    def references(self, evidence: Evidence) -> tuple[Estimator, ...]:
        return (DR(),)


@dataclass(frozen=True, kw_only=True)
class SubGaussianDR(Estimator):
    """Doubly robust with the weights of `SubGaussianIPS`."""

    strength: float | str = "bound"
    """In [0, 1], or a rule."""

    needs = ("propensities", "predicted")

    def __post_init__(self) -> None:
        check_setting("strength", self.strength, top=1)

    def terms(self, evidence: Evidence) -> Terms:
        w, residual, direct = evidence.weights, evidence.residual, evidence.direct
        strength = chosen(self.strength, strengths, harmonic, w, residual, direct)
        return mean(direct + harmonic(w, strength) * residual)

    def references(self, evidence: Evidence) -> tuple[Estimator, ...]:
        return (DR(),)
