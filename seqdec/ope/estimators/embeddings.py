"""Marginalized weights over embeddings of actions, for many actions."""

from typing import Any

import numpy as np

from seqdec import checks
from seqdec.ope.contract import Estimator, Evidence, Terms, configured
from seqdec.ope.estimators.weighting import mean
from seqdec.ope.propensities import estimated_policy


@configured
def MIPS(*, embedding: Any = None, law: Any = None, logging: Any = None, normalized: bool = False) -> Estimator:
    """Inverse propensity scoring by marginal weights w(x, e), mean of w(x, e) r.

    With the law p(e | a) of the embedding e of an action,

        w(x, e) = sum_a pi(a | x) p(e | a) / sum_a logging(a | x) p(e | a)

    which varies less than w if many actions share an embedding. It is unbiased if the action has no effect on the
    reward but through e.

    Args:
        embedding: (n,) category of the logged action's embedding in each row, from 0. None: actions whose
            features (`Log.action_features`) are equal share one.
        law: (k, m) p(e | a), rows sum to 1; None estimates it by the shares in the log, where an embedding is given.
        logging: (n, k) probabilities of the logging policy; None estimates them, see `seqdec.ope.estimated_policy`.
        normalized: divides by the sum of the weights in place of n.

    Raises:
        ValueError: shapes that do not fit the log, or neither an embedding nor features of the actions.

    References:
        Saito, Joachims, "Off-policy evaluation for large action spaces via embeddings", 2022.
    """
    checks.flag("normalized", normalized)

    def terms(evidence: Evidence) -> Terms:
        log, target = evidence.log, evidence.target.probabilities
        known = estimated_policy(log, seed=evidence.seed) if logging is None else logging
        behavior = _fitting("logging", known, target)
        chance = _chances(evidence, embedding, law)  # (n, k) p(e_i | a)
        above, below = (target * chance).sum(axis=1), (behavior * chance).sum(axis=1)
        w = np.where(below > 0, above / np.where(below > 0, below, 1), 0.0)
        return Terms(w * log.reward, w) if normalized else mean(w * log.reward, supported=bool(w.any()))

    return Estimator(terms, needs=("contexts",))


def _fitting(name: str, values: Any, like: np.ndarray) -> np.ndarray:
    array = np.asarray(checks.as_array(name, values), np.float64)
    if array.shape != like.shape:
        raise ValueError(f"{name} must have shape {like.shape}; got {array.shape}")
    return array


def _chances(evidence: Evidence, embedding: Any, law: Any) -> np.ndarray:
    """(n, k) probability of the row's embedding if each action were played."""
    log = evidence.log
    rows = np.arange(len(log.action))
    if embedding is None:
        if log.action_features is None:
            raise ValueError("MIPS needs embeddings: pass embedding= and law=, or a log with features of the actions")
        own = log.action_features[rows, log.action]
        return (log.action_features == own[:, None]).all(axis=2).astype(np.float64)
    place = np.asarray(checks.as_array("embedding", embedding))
    if place.shape != log.action.shape or place.dtype.kind not in "iu" or place.min() < 0:
        raise ValueError(f"embedding must be {log.action.shape} integers from 0; got {place.dtype} {place.shape}")
    if law is None:
        times = np.zeros((log.num_actions, int(place.max()) + 1))
        np.add.at(times, (log.action, place), 1.0)
        known = times / np.maximum(times.sum(axis=1, keepdims=True), 1)
    else:
        known = np.asarray(checks.as_array("law", law), np.float64)
        if known.ndim != 2 or known.shape[0] != log.num_actions or known.shape[1] <= place.max():
            raise ValueError(
                f"law must have shape ({log.num_actions}, m) with m > {place.max()}; got {known.shape}: the chance of "
                "every embedding under every action"
            )
    return known.T[place]
