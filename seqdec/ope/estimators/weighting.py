"""Estimators by weights alone."""

import math

import numpy as np

from seqdec import checks
from seqdec.ope.contract import Estimator, Evidence, Terms, configured
from seqdec.ope.estimators.tuning import RULES, candidates, check_setting, chosen


@configured
def IPS(*, max_weight: float | str = math.inf) -> Estimator:
    """Inverse propensity scoring: mean of min(w, max_weight) r.

    NaN where no row has a weight.

    Args:
        max_weight: bound of the weights, > 0, or "slope" or "bound": chosen from the log, see
            `seqdec.ope.estimators.tuning`.

    Raises:
        ValueError: a setting out of its range.

    References:
        Horvitz, Thompson, "A generalization of sampling without replacement from a finite universe", 1952;
        Bottou et al., "Counterfactual reasoning and learning systems", 2013.
    """
    check_setting("max_weight", max_weight)

    def terms(evidence: Evidence) -> Terms:
        w, r = evidence.weights, evidence.log.reward
        if isinstance(max_weight, str):
            return chosen(max_weight, candidates(w), np.minimum, w, r, 0.0)
        return mean(np.minimum(w, max_weight) * r, supported=bool(w.any()))

    return Estimator(terms, references=(SNIPS(),))


@configured
def SNIPS(*, max_weight: float = math.inf) -> Estimator:
    """Self-normalized inverse propensity scoring: sum of min(w, max_weight) r over the sum of min(w, max_weight).

    NaN where no row has a weight.

    Raises:
        ValueError: max_weight is not positive.

    References:
        Swaminathan, Joachims, "The self-normalized estimator for counterfactual learning", 2015.
    """
    checks.positive("max_weight", max_weight)

    def terms(evidence: Evidence) -> Terms:
        w = np.minimum(evidence.weights, max_weight)
        return Terms(w * evidence.log.reward, w)

    return Estimator(terms, references=() if math.isinf(max_weight) else (SNIPS(),), extended=True)


@configured
def SubGaussianIPS(*, strength: float | str = "bound") -> Estimator:
    """Inverse propensity scoring with weights w / (1 - strength + strength w), which are at most 1 / strength.

    NaN where no row has a weight.

    Args:
        strength: in [0, 1]; 0 is `IPS`, 1 gives every row with a weight the weight 1. Or "slope" or "bound".

    Raises:
        ValueError: a setting out of its range.

    References:
        Metelli, Russo, Restelli, "Subgaussian and differentiable importance sampling for off-policy evaluation and
        learning", 2021.
    """
    check_strength(strength)

    def terms(evidence: Evidence) -> Terms:
        w, r = evidence.weights, evidence.log.reward
        if isinstance(strength, str):
            return chosen(strength, STRENGTHS, harmonic, w, r, 0.0)
        return mean(harmonic(w, strength) * r, supported=bool(w.any()))

    return Estimator(terms, references=(SNIPS(),))


@configured
def Replay() -> Estimator:
    """Replay: the mean reward of the rows that rejection sampling accepts.

    Row i is accepted with probability w_i / max w, which makes the accepted rows a sample of the target's own
    interaction. With uniform propensities and a deterministic target these are the rows in which both agree.

    References:
        Li, Chu, Langford, Wang, "Unbiased offline evaluation of contextual-bandit-based news article recommendation
        algorithms", 2011.
    """

    def terms(evidence: Evidence) -> Terms:
        w = evidence.weights
        drawn = np.random.default_rng(evidence.seed).random(len(w))
        accepted = (drawn * w.max() < w).astype(np.float64)
        return Terms(accepted * evidence.log.reward, accepted)

    return Estimator(terms, references=(SNIPS(),))


STRENGTHS = (0.0, *np.geomspace(1e-4, 1.0, 25))
"""Those among which a rule chooses, from the least biased on."""


def check_strength(strength: float | str) -> None:
    """Raises ValueError for a strength that is neither in [0, 1] nor a rule."""
    if isinstance(strength, str):
        checks.choice("strength", strength, RULES)
    else:
        checks.number("strength", strength, 0, math.nextafter(1, 2))


def harmonic(w: np.ndarray, strength: float) -> np.ndarray:
    """Weighted harmonic mean of the weights and 1; 0 stays 0."""
    return w / np.where(w > 0, 1 - strength + strength * w, 1.0)


def mean(terms: np.ndarray, *, supported: bool = True) -> Terms:
    """The mean of `terms`; NaN if not `supported`: the log then says nothing about the target."""
    return Terms(terms, np.broadcast_to(float(supported), terms.shape))
