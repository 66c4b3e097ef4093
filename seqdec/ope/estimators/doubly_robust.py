"""Estimators by a reward model, alone or corrected by weighted residuals."""

import math

import numpy as np

from seqdec.ope.contract import Estimator, Evidence, Terms, configured
from seqdec.ope.estimators.tuning import candidates, check_setting, chosen
from seqdec.ope.estimators.weighting import STRENGTHS, check_strength, harmonic, mean

_BOTH = ("propensities", "predicted")


@configured
def DM() -> Estimator:
    """Direct method: the expected predicted reward under the target, mean of sum_a pi(a | x) q(x, a)."""
    return Estimator(lambda evidence: mean(evidence.direct), ("predicted",), references=(SNDR(),))


@configured
def DR(*, shrinkage: float | str = math.inf) -> Estimator:
    """Doubly robust, with optimistic shrinkage: mean of direct + v (r - q), v = shrinkage w / (w^2 + shrinkage).

    Args:
        shrinkage: > 0; infinity leaves the weights as they are, and 0 would be the direct method. Or "slope" or
            "bound": chosen from the log, see `seqdec.ope.estimators.tuning`.

    Raises:
        ValueError: a setting out of its range.

    References:
        Dudik, Langford, Li, "Doubly robust policy evaluation and learning", 2011;
        Su, Dimakopoulou, Krishnamurthy, Dudik, "Doubly robust off-policy evaluation with shrinkage", 2020.
    """
    check_setting("shrinkage", shrinkage)

    def shrunk(w: np.ndarray, shrinkage: float) -> np.ndarray:
        return w / (w**2 / shrinkage + 1)

    def terms(evidence: Evidence) -> Terms:
        w, residual, direct = evidence.weights, evidence.residual, evidence.direct
        if isinstance(shrinkage, str):
            positive = w[w > 0] ** 2
            low, high = np.quantile(positive, [0.05, 0.95]) if positive.size else (1.0, 1.0)
            grid = (math.inf, *np.geomspace(100 * high, 0.01 * low, 25))
            return chosen(shrinkage, grid, shrunk, w, residual, direct)
        return mean(direct + shrunk(w, shrinkage) * residual)

    return Estimator(terms, _BOTH, references=() if shrinkage == math.inf else (DR(),), extended=True)


@configured
def SNDR() -> Estimator:
    """Self-normalized doubly robust: mean of direct, plus the sum of w (r - q) over the sum of w.

    The direct method where no row has a weight.

    References:
        Thomas, Brunskill, "Data-efficient off-policy policy evaluation for reinforcement learning", 2016.
    """

    def terms(evidence: Evidence) -> Terms:
        w, ones = evidence.weights, np.ones(len(evidence.weights))
        numerator = np.stack([evidence.direct, w * evidence.residual], axis=1)
        return Terms(numerator, np.stack([ones, w if w.any() else ones], axis=1))

    return Estimator(terms, _BOTH, extended=True)


@configured
def SwitchDR(*, threshold: float | str = 10.0) -> Estimator:
    """Doubly robust in rows whose weight is at most the threshold, the direct method in all others.

    Args:
        threshold: > 0, or "slope" or "bound".

    Raises:
        ValueError: a setting out of its range.

    References:
        Wang, Agarwal, Dudik, "Optimal and adaptive off-policy evaluation in contextual bandits", 2017.
    """
    check_setting("threshold", threshold)

    def kept(w: np.ndarray, threshold: float) -> np.ndarray:
        return np.where(w <= threshold, w, 0.0)

    def terms(evidence: Evidence) -> Terms:
        w, residual, direct = evidence.weights, evidence.residual, evidence.direct
        if isinstance(threshold, str):
            return chosen(threshold, candidates(w), kept, w, residual, direct)
        return mean(direct + kept(w, threshold) * residual)

    return Estimator(terms, _BOTH, references=(DR(),))


@configured
def SubGaussianDR(*, strength: float | str = "bound") -> Estimator:
    """Doubly robust with the weights of `SubGaussianIPS`, whose setting and source it shares.

    Raises:
        ValueError: a setting out of its range.
    """
    check_strength(strength)

    def terms(evidence: Evidence) -> Terms:
        w, residual, direct = evidence.weights, evidence.residual, evidence.direct
        if isinstance(strength, str):
            return chosen(strength, STRENGTHS, harmonic, w, residual, direct)
        return mean(direct + harmonic(w, strength) * residual)

    return Estimator(terms, _BOTH, references=(DR(),))
