"""Marginalized weights over embeddings of actions."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.contract import Estimator, Evidence
from seqdec.ope.estimators.weighting import mean
from seqdec.ope.intervals import Terms
from seqdec.ope.propensities import estimated_policy


@dataclass(frozen=True, kw_only=True, eq=False)
class MIPS(Estimator):
    """Inverse propensity scoring by marginal weights over embeddings e: mean of w(x, e) r.

        w(x, e) = sum_a pi(a | x) p(e | a) / sum_a logging(a | x) p(e | a)

    Unbiased if actions affect rewards through e only. ValueError for arrays that do not fit the log.

    References:
        Saito, Joachims, "Off-policy evaluation for large action spaces via embeddings", 2022.
    """

    embedding: Any = None
    """(n,) category of each logged action, from 0; None: actions with equal `Log.action_features` share one"""
    law: Any = None
    """(k, m) p(e | a), rows sum to 1; None: shares in the log"""
    logging: Any = None
    """(n, k) probabilities of the logging policy; None: `Log.logging`, else `seqdec.ope.estimated_policy`"""
    normalized: bool = False
    """divides by the sum of weights, not n"""

    needs = ("contexts",)

    def __post_init__(self) -> None:
        checks.flag("normalized", self.normalized)

    def terms(self, evidence: Evidence) -> Terms:
        log, target = evidence.log, evidence.target.probabilities
        known = log.logging if self.logging is None else self.logging
        known = estimated_policy(log, seed=evidence.seed) if known is None else known
        behavior = np.asarray(checks.as_array("logging", known), np.float64)
        if behavior.shape != target.shape:
            raise ValueError(f"logging must have shape {target.shape}; got {behavior.shape}")
        chance = self._chances(evidence)
        above, below = (target * chance).sum(axis=1), (behavior * chance).sum(axis=1)
        w = np.where(below > 0, above / np.where(below > 0, below, 1), 0.0)
        return Terms(w * log.reward, w) if self.normalized else mean(w * log.reward, supported=bool(w.any()))

    def _chances(self, evidence: Evidence) -> np.ndarray:
        """(n, k) p(e_i | a), the probability of each row's embedding given each action."""
        log = evidence.log
        if self.embedding is None:
            if log.action_features is None:
                raise ValueError(
                    "MIPS needs embeddings: pass embedding= and law=, or a log with features of the actions"
                )
            own = log.action_features[np.arange(len(log.action)), log.action]
            return (log.action_features == own[:, None]).all(axis=2).astype(np.float64)
        place = np.asarray(checks.as_array("embedding", self.embedding))
        if place.shape != log.action.shape or place.dtype.kind not in "iu" or place.min() < 0:
            raise ValueError(f"embedding must be {log.action.shape} integers from 0; got {place.dtype} {place.shape}")
        if self.law is None:
            times = np.zeros((log.num_actions, int(place.max()) + 1))
            np.add.at(times, (log.action, place), 1.0)
            known = times / np.maximum(times.sum(axis=1, keepdims=True), 1)
        else:
            known = np.asarray(checks.as_array("law", self.law), np.float64)
            if known.ndim != 2 or known.shape[0] != log.num_actions or known.shape[1] <= place.max():
                raise ValueError(
                    f"law must have shape ({log.num_actions}, m) with m > {place.max()}, the chance of every embedding "
                    f"under every action; got {known.shape}"
                )
        return known.T[place]
