"""Propensities estimated by a classifier of the action."""

from typing import Any

import numpy as np

from seqdec.ope.log import Log, check_log, folds_of
from seqdec.ope.rowwise import rowwise

_CALIBRATION = 3
"""Folds of the calibration; least rows of an action."""


def estimate_propensities(log: Log, *, seed: int, folds: int = 5, classifier: Any = None) -> Log:
    """The log with propensities estimated by `estimated_policy`, marked `Log.estimated`.

    Arguments and errors as there.
    """
    policy = estimated_policy(log, seed=seed, folds=folds, classifier=classifier)
    return log.replace(propensity=policy[np.arange(len(log.action)), log.action], estimated=True)


def estimated_policy(log: Log, *, seed: int, folds: int = 5, classifier: Any = None) -> np.ndarray:
    """(n, k) cross-fitted probabilities of the logging policy.

    A classifier of the action, given the context and varying features of actions, calibrated by cross-validation
    (Platt's sigmoids). Actions with fewer than three rows get their share of the rows. With m rows, probabilities p
    become (m p + 1) / (m + k), then zero where masked. Unobserved confounders bias estimates by these weights.

    Args:
        log: its propensities are ignored.
        seed: seed for the random folds.
        folds: number of folds, from 2 to the number of rows.
        classifier: unfitted, of scikit-learn, with `predict_proba`; None: standardized logistic regression.

    Raises:
        TypeError: no method `predict_proba`.
        ValueError: an impossible number of folds.
    """
    check_log(log)
    member = folds_of(log, folds, seed)
    if classifier is not None and not hasattr(classifier, "predict_proba"):
        raise TypeError(f"classifier must have a method predict_proba; got {classifier!r:.80}")
    parts = [log.context]
    if log.action_features is not None:
        parts.append(log.action_features.reshape(len(log.action), -1))
    features = np.concatenate(parts, axis=1)
    features, policy = features[:, np.ptp(features, axis=0) > 0], np.zeros(log.mask.shape)
    for fold in range(folds):
        own, others = member == fold, member != fold
        policy[own] = _predicted(features[others], log.action[others], features[own], log.num_actions, classifier)
    policy *= log.mask
    return rowwise(policy / policy.sum(axis=1, keepdims=True), log)


def _predicted(x: np.ndarray, action: np.ndarray, at: np.ndarray, size: int, classifier: Any) -> np.ndarray:
    """(rows of `at`, size) probabilities, fitted to the rows `x`."""
    from sklearn.base import clone
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    times = np.bincount(action, minlength=size)
    chances = np.tile(times / len(action), (len(at), 1))
    common = np.flatnonzero(times >= _CALIBRATION)
    if len(common) > 1 and x.shape[1]:
        base = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)) if classifier is None else classifier
        model = CalibratedClassifierCV(clone(base), method="sigmoid", cv=_CALIBRATION)
        rows = np.isin(action, common)
        model.fit(x[rows], action[rows])
        chances[:, common] = model.predict_proba(at) * rows.mean()
    return (len(action) * chances + 1) / (len(action) + size)
