"""Policies learned from a log by weighted classification (Zhang et al., 2012)."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.core import Agent, Array, HasSpaces
from seqdec.ope.fixed import fixed_agent, space_for, standardized_inputs
from seqdec.ope.log import Log
from seqdec.ope.rewards import unfitted


def learn_by_classification(
    log: Log, classifier: Any = None, *, spaces: HasSpaces | None = None, epsilon: float = 0.0
) -> Agent:
    """The action that a classifier predicts, fitted to the logged actions with weights reward / propensity.

    A classifier that maximizes its weighted accuracy maximizes the IPS estimate (Zhang et al., 2012). The agent plays
    the allowed action with the highest probability, or with probability epsilon one chosen uniformly; compiled code
    calls the classifier on the host.

    Args:
        log: with propensities, rewards >= 0, and at least as many rows as actions.
        classifier: of scikit-learn, not fitted, whose `fit` takes `sample_weight`; None is logistic regression. It sees
            flat standardized inputs. Without `predict_proba`, an action that is predicted but masked out is replaced
            by the first allowed one.
        spaces: as in `learn`.
        epsilon: share of uniform exploration in [0, 1].

    Raises:
        TypeError: not a log, or a classifier of another kind.
        ValueError: a log without propensities, with too few rows, with a negative reward, or in which only one action
            has rewards, or without contexts; spaces that do not fit it; an epsilon out of range.
    """
    from sklearn.base import is_classifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.utils.validation import has_fit_parameter

    own = space_for("learn_by_classification", log, spaces, epsilon)
    classifier = LogisticRegression(max_iter=1000) if classifier is None else classifier
    if (
        isinstance(classifier, type)
        or not is_classifier(classifier)
        or not has_fit_parameter(classifier, "sample_weight")
    ):
        raise TypeError(
            f"classifier must be one of scikit-learn whose fit takes sample_weight; got {classifier!r:.80}: such as "
            "sklearn.linear_model.LogisticRegression()"
        )
    if log.reward.min() < 0:
        raise ValueError(
            f"rewards are weights here and must be >= 0; got {log.reward.min():g} in row {int(log.reward.argmin())}: "
            "pass log._replace(reward=log.reward - log.reward.min()), or use seqdec.ope.learn"
        )
    scaled, center, scale = standardized_inputs(log, own)
    if not scaled.size:
        raise ValueError("the log has no contexts, by which a classifier could tell actions: use seqdec.ope.learn")
    counted = log.reward > 0
    if len(np.unique(log.action[counted])) < 2:
        raise ValueError(
            "a classifier needs rewards > 0 of two actions at least: log more rows, or use seqdec.ope.learn"
        )
    made, row, size = unfitted(classifier), scaled.shape[1:], log.num_actions
    flat = scaled.reshape(len(scaled), -1)
    made.fit(flat[counted], log.action[counted], sample_weight=(log.reward / log.propensity)[counted])

    def scores(x: Any) -> np.ndarray:
        x = (np.asarray(x) - center) / scale
        several = x.shape[: x.ndim - len(row)]
        x = np.where(np.isfinite(x), x, 0.0).reshape(math.prod(several), -1)  # no decision is based on others
        found = np.zeros((len(x), size), np.float32)
        if hasattr(made, "predict_proba"):
            found[:, made.classes_] = made.predict_proba(x)
        else:
            found[np.arange(len(x)), made.predict(x)] = 1.0
        return found.reshape(*several, size)

    def asked(x: Array) -> Array:
        return jax.pure_callback(scores, jax.ShapeDtypeStruct((size,), jnp.float32), x, vmap_method="expand_dims")

    settings = {"classifier": type(classifier).__name__, "rows": len(log.action), "epsilon": float(epsilon)}
    return fixed_agent(asked, own, settings, greedy=True)
