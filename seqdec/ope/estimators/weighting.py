"""Estimators by weights alone."""

import math
from dataclasses import dataclass

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.contract import Estimator, Evidence
from seqdec.ope.estimators.tuning import caps, check_setting, chosen
from seqdec.ope.intervals import Terms


@dataclass(frozen=True, kw_only=True)
class IPS(Estimator):
    """Inverse propensity scoring: mean of min(w, max_weight) r; NaN without weights.

    References:
        Horvitz, Thompson, "A generalization of sampling without replacement from a finite universe", 1952;
        Bottou et al., "Counterfactual reasoning and learning systems", 2013.
    """

    max_weight: float | str = math.inf
    """above 0; or a rule, "slope" or "bound": `seqdec.ope.estimators.tuning`"""

    def __post_init__(self) -> None:
        check_setting("max_weight", self.max_weight)

    def terms(self, evidence: Evidence) -> Terms:
        w, r = evidence.weights, evidence.log.reward
        return mean(np.minimum(w, chosen(self.max_weight, caps, np.minimum, w, r)) * r, supported=bool(w.any()))

    def references(self, evidence: Evidence) -> tuple[Estimator, ...]:
        return _UNBIASED


@dataclass(frozen=True, kw_only=True)
class SNIPS(Estimator):
    """Self-normalized inverse propensity scoring: sum of min(w, max_weight) r over the sum of min(w, max_weight).

    NaN without weights.

    References:
        Swaminathan, Joachims, "The self-normalized estimator for counterfactual learning", 2015.
    """

    max_weight: float = math.inf
    """Above 0."""

    def __post_init__(self) -> None:
        checks.positive("max_weight", self.max_weight)

    def terms(self, evidence: Evidence) -> Terms:
        w = np.minimum(evidence.weights, self.max_weight)
        return Terms(w * evidence.log.reward, w)

    def references(self, evidence: Evidence) -> tuple[Estimator, ...]:
        return () if math.isinf(self.max_weight) else _UNBIASED


@dataclass(frozen=True, kw_only=True)
class SubGaussianIPS(Estimator):
    """Inverse propensity scoring with weights w / (1 - strength + strength w), at most 1 / strength.

    NaN without weights.

    References:
        Metelli, Russo, Restelli, "Subgaussian and differentiable importance sampling for off-policy evaluation and
        learning", 2021.
    """

    strength: float | str = "bound"
    """in [0, 1]: 0 is `IPS`, 1 makes all weights 1; or a rule, as in `IPS`"""

    def __post_init__(self) -> None:
        check_setting("strength", self.strength, top=1)

    def terms(self, evidence: Evidence) -> Terms:
        w, r = evidence.weights, evidence.log.reward
        strength = chosen(self.strength, strengths, harmonic, w, r)
        return mean(harmonic(w, strength) * r, supported=bool(w.any()))

    def references(self, evidence: Evidence) -> tuple[Estimator, ...]:
        return _UNBIASED


@dataclass(frozen=True, kw_only=True)
class Replay(Estimator):
    """Mean reward of rows accepted with probability w_i / max w.

    References:
        Li, Chu, Langford, Wang, "Unbiased offline evaluation of contextual-bandit-based news article recommendation
        algorithms", 2011.
    """

    def terms(self, evidence: Evidence) -> Terms:
        w = evidence.weights
        drawn = np.random.default_rng(evidence.seed).random(len(w))
        accepted = (drawn * w.max() < w).astype(np.float64)
        return Terms(accepted * evidence.log.reward, accepted)

    def references(self, evidence: Evidence) -> tuple[Estimator, ...]:
        return _UNBIASED


_UNBIASED = (SNIPS(),)


def strengths(w: np.ndarray) -> tuple[float, ...]:
    """Candidates of a rule, the least biased first."""
    return (0.0, *np.geomspace(1e-4, 1.0, 25))


def harmonic(w: np.ndarray, strength: float) -> np.ndarray:
    """Weighted harmonic mean of the weights and 1; 0 stays 0."""
    return w / np.where(w > 0, 1 - strength + strength * w, 1.0)


def mean(terms: np.ndarray, *, supported: bool = True) -> Terms:
    """Mean of `terms`; NaN if not `supported`."""
    return Terms(terms, np.broadcast_to(float(supported), terms.shape))
