"""Cross-fitted reward models."""

from typing import Any

import numpy as np

from seqdec.core import Learner
from seqdec.ope.learning import cross_fit
from seqdec.ope.log import Log, check_log, folds_of, standardized
from seqdec.ope.rowwise import rowwise


def predict_rewards(
    log: Log, *, seed: int, model: Any = None, folds: int = 5, weights: np.ndarray | None = None
) -> np.ndarray:
    """Cross-fitted predicted rewards (n, k), which are refused for other rows.

    Models see standardized contexts and features or one-hot indices of the action; those of `sklearn.linear_model` also
    their products. Learners see rows of `seqdec.ope.inputs`.

    Args:
        log: its propensities are ignored.
        seed: seed for the random folds and a learner.
        model: a `seqdec.core.Learner` with one response per action, or an unfitted regressor, or classifier of rewards
            0 and 1, of scikit-learn. None: `choose_model`.
        folds: number of folds, from 2 to the number of rows.
        weights: (n,) >= 0 weights of rows in a scikit-learn fit; None for equal ones.

    Raises:
        TypeError: no learner, and no methods `fit` and `predict`.
        ValueError: an impossible number of folds, weights that do not fit the log or are for a learner, or a classifier
            of other rewards than 0 and 1.
    """
    check_log(log)
    if isinstance(model, Learner):
        if weights is not None:
            raise ValueError("a Learner weighs all rows equally: leave weights out, or take a model of scikit-learn")
        return rowwise(cross_fit(model, standardized(log), seed=seed, folds=folds), log)
    given, member, low, unit = log, folds_of(log, folds, seed), 0.0, 1.0
    if model is None:  # two rewards other than 0 and 1 have the same models, and a constant added changes nothing
        low, unit = log.reward.min(), float(np.ptp(log.reward)) or 1.0
        log = log.replace(reward=(log.reward - low) / unit)
        model = choose_model(log, seed=seed, folds=folds)
    _check(model, log)
    if weights is None:
        weights = np.ones(len(log.action))
    elif weights.shape != log.reward.shape or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError(f"weights must be {log.reward.shape} finite numbers >= 0; got shape {weights.shape}")
    predicted = np.zeros(log.mask.shape)
    for fold in range(folds):
        own, others = np.flatnonzero(member == fold), np.flatnonzero((member != fold) & (weights > 0))
        predicted[own] = predictions(model, log, others, own, weights[others])
    return rowwise(low + unit * predicted, given)


def choose_model(log: Log, *, seed: int, folds: int = 5) -> Any:
    """An unfitted reward model: a constant, ridge (logistic) regression or boosting, by `held_out_likelihood`.

    Arguments and errors as in `predict_rewards`.
    """
    check_log(log)
    member = folds_of(log, folds, seed)
    options, scores = _candidates(is_binary(log)), []
    for option in options:
        found = np.zeros(len(log.action))
        for fold in range(folds):
            own, others = np.flatnonzero(member == fold), np.flatnonzero(member != fold)
            found[own] = predictions(option, log, others, own, np.ones(len(others)), logged=True)
        scores.append(held_out_likelihood(log, found))
    return options[int(np.argmax(scores))]


def held_out_likelihood(log: Log, predicted: np.ndarray) -> float:
    """Log likelihood per row of the rewards, given out-of-sample predictions.

    Bernoulli for rewards 0 and 1, clipped to [0.001, 0.999], else Gaussian with the variance of the residuals.

    Args:
        log: the rows.
        predicted: (n,) of the logged actions, or (n, k).
    """
    found = predicted if predicted.ndim == 1 else predicted[np.arange(len(log.action)), log.action]
    if is_binary(log):
        p = np.clip(found, 0.001, 0.999)
        return float(np.where(log.reward == 1, np.log(p), np.log1p(-p)).mean())
    variance = max(float(np.mean((log.reward - found) ** 2)), 1e-300)
    return -0.5 * (float(np.log(2 * np.pi * variance)) + 1)


def unfitted(model: Any) -> Any:
    """An unfitted copy of a model of scikit-learn."""
    from sklearn.base import clone

    return clone(model)


def is_binary(log: Log) -> bool:
    """Whether all rewards are 0 or 1."""
    return bool(np.isin(log.reward, (0, 1)).all())


def design(log: Log, rows: np.ndarray, actions: np.ndarray, x: np.ndarray, *, products: bool) -> Any:
    """(m, p) features of `actions` (m,) in `rows` (m,), given contexts x (m, d); sparse with products."""
    if log.action_features is not None:
        z = log.action_features[rows, actions]
        parts = [x, z, (x[:, :, None] * z[:, None]).reshape(len(x), -1)]
        return np.concatenate(parts if products else parts[:2], axis=1)
    if not products:
        return np.concatenate([x, np.eye(log.num_actions)[actions]], axis=1)
    from scipy.sparse import csr_matrix, hstack

    count, width = len(rows), x.shape[1] + 1
    own = np.concatenate([np.ones((count, 1)), x], axis=1)
    columns = actions[:, None] * width + np.arange(width)
    shape = (count, log.num_actions * width)
    blocks = csr_matrix((own.ravel(), columns.ravel(), np.arange(count + 1) * width), shape)
    return hstack([csr_matrix(x), blocks], format="csr") if x.shape[1] else blocks


def _check(model: Any, log: Log) -> None:
    from sklearn.base import is_classifier

    if not hasattr(model, "fit") or not hasattr(model, "predict"):
        raise TypeError(f"model must be a Learner, or a regressor or classifier of scikit-learn; got {model!r:.80}")
    if is_classifier(model) and not is_binary(log):
        raise ValueError("a classifier predicts rewards that are all 0 or 1: pass a regressor")


def _candidates(binary: bool) -> list[Any]:
    from sklearn.dummy import DummyRegressor
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, Ridge

    boosting = {"max_iter": 50, "min_samples_leaf": 20, "random_state": 0, "early_stopping": False}
    if binary:
        return [DummyRegressor(), LogisticRegression(max_iter=500), HistGradientBoostingClassifier(**boosting)]
    return [DummyRegressor(), Ridge(), HistGradientBoostingRegressor(**boosting)]


def predictions(
    model: Any, log: Log, fitted: np.ndarray, at: np.ndarray, weights: np.ndarray, *, logged: bool = False
) -> np.ndarray:
    """(rows of `at`, k) predictions by a model of other rows, or (rows of `at`,) for logged actions."""
    from sklearn.base import is_classifier
    from threadpoolctl import threadpool_limits

    y = log.reward[fitted]
    if not len(fitted) or (is_classifier(model) and np.ptp(y) == 0):  # nothing to learn from, or to tell apart
        constant = y[0] if len(fitted) else log.reward.mean()
        return np.full(len(at) if logged else (len(at), log.num_actions), constant)
    center, scale = log.context[fitted].mean(axis=0), log.context[fitted].std(axis=0)
    x = (log.context - center) / np.where(scale > 0, scale, 1)
    last = model[-1] if hasattr(model, "steps") else model
    products, made = type(last).__module__.startswith("sklearn.linear_model"), unfitted(model)
    weighted = {} if (weights == 1).all() else {"sample_weight": weights}

    def predict(actions: np.ndarray) -> np.ndarray:
        seen = design(log, at, actions, x[at], products=products)
        return made.predict_proba(seen)[:, -1] if is_classifier(made) else made.predict(seen)

    with threadpool_limits(1):  # on so few rows threads wait for each other longer than they work
        made.fit(design(log, fitted, log.action[fitted], x[fitted], products=products), y, **weighted)
        if logged:
            return predict(log.action[at])
        return np.stack([predict(np.full(len(at), action)) for action in range(log.num_actions)], axis=1)
