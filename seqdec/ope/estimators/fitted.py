"""Estimators that fit a model of rewards or weights."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from seqdec.ope.contract import Estimator, Evidence
from seqdec.ope.estimators.weighting import mean
from seqdec.ope.intervals import Terms
from seqdec.ope.log import folds_of
from seqdec.ope.rewards import design, predict_rewards, unfitted


@dataclass(frozen=True, kw_only=True, eq=False)
class MRDR(Estimator):
    """More robust doubly robust: `DR` with a model fitted with weights w (1 - p) / p.

    The weights minimize the variance for a deterministic target.

    References:
        Farajtabar, Chow, Ghavamzadeh, "More robust doubly robust off-policy evaluation", 2018.
    """

    model: Any = None
    """unfitted, of scikit-learn; None: `seqdec.ope.choose_model`"""
    folds: int = 5
    """of the cross-fitting"""

    needs = ("propensities", "contexts")

    def terms(self, evidence: Evidence) -> Terms:
        log, w = evidence.log, evidence.weights
        rows = w * (1 - log.propensity) / log.propensity
        predicted = predict_rewards(log, seed=evidence.seed, model=self.model, folds=self.folds, weights=rows)
        direct = (evidence.target.probabilities * np.where(log.mask, predicted, 0.0)).sum(axis=1)
        residual = log.reward - predicted[np.arange(len(log.action)), log.action]
        return mean(direct + w * residual)


@dataclass(frozen=True, kw_only=True, eq=False)
class BalancedIPW(Estimator):
    """Self-normalized inverse propensity scoring with estimated weights.

    They are the odds of a cross-fitted classifier of logged actions (0) and the target's (1).

    References:
        Sondhi, Arbour, Dimmery, "Balanced off-policy evaluation in general action spaces", 2020.
    """

    classifier: Any = None
    """unfitted, of scikit-learn, with `predict_proba`; None: logistic regression"""
    folds: int = 5
    """of the cross-fitting"""

    needs = ("contexts",)

    def __post_init__(self) -> None:
        if self.classifier is not None and not hasattr(self.classifier, "predict_proba"):
            raise TypeError(f"classifier must have a method predict_proba; got {self.classifier!r:.80}")

    def terms(self, evidence: Evidence) -> Terms:
        from sklearn.linear_model import LogisticRegression

        log, count = evidence.log, len(evidence.log.action)
        generator = np.random.default_rng(evidence.seed)
        cumulated = evidence.target.probabilities.cumsum(axis=1)
        drawn = (generator.random((count, 1)) * cumulated[:, -1:] >= cumulated).sum(axis=1)
        scale = log.context.std(axis=0)
        x = (log.context - log.context.mean(axis=0)) / np.where(scale > 0, scale, 1)
        member, w = folds_of(log, self.folds, evidence.seed), np.zeros(count)
        for fold in range(self.folds):
            own, others = np.flatnonzero(member == fold), np.flatnonzero(member != fold)
            twice, label = np.tile(others, 2), np.repeat([0, 1], len(others))
            actions = np.concatenate([log.action[others], drawn[others]])
            made = LogisticRegression(max_iter=500) if self.classifier is None else unfitted(self.classifier)
            made.fit(design(log, twice, actions, x[twice], products=True), label)
            chance = made.predict_proba(design(log, own, log.action[own], x[own], products=True))[:, 1]
            w[own] = chance / np.maximum(1 - chance, 1e-9)
        return Terms(w * log.reward, w)
