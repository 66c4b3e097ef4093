"""Policies learned from a log by classifiers.

A row has the score s = (r - b) / propensity. The value of a policy that plays h(x) is, up to a constant, the sum of
s 1[h(x) = a], so a row with s > 0 is an example of its action with weight s, and one with s < 0 an example of every
other allowed action with weight -s (Zhang et al., 2012; Zhou et al., 2017). Of all baselines b, which change no
expectation, the 1/k quantile of the rewards, weighted by 1 / propensity, makes the examples weigh least: 0 for rare
clicks, the median for two actions.

References:
    Zhang, Tsiatis, Davidian, Zhang, Laber, "Estimating optimal treatment regimes from a classification perspective",
    2012;
    Zhou, Mayer-Hamblett, Khan, Kosorok, "Residual weighted learning for estimating individualized treatment rules",
    2017.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.core import Agent, Array, HasSpaces
from seqdec.ope.learned import fixed, spaces_for, standardized_inputs
from seqdec.ope.log import Log, inputs
from seqdec.ope.rewards import unfitted


def learn_by_classification(
    log: Log, classifier: Any = None, *, spaces: HasSpaces | None = None, epsilon: float = 0.0
) -> Agent:
    """The prediction of a classifier fitted to logged actions, weighted by reward less a baseline, over propensity.

    A constant added to all rewards, or their unit, changes nothing. The agent plays the most probable allowed action,
    or with probability epsilon a uniform one. Compiled code calls the classifier on the host.

    Args:
        log: with propensities and at least as many rows as actions.
        classifier: unfitted, of scikit-learn, for flat standardized inputs, with `sample_weight`; without
            `predict_proba`, the first allowed action replaces a masked one. None: logistic regression.
        spaces: as in `learn`.
        epsilon: share of uniform exploration in [0, 1].

    Raises:
        TypeError: not a log, or a classifier of another kind.
        ValueError: no propensities or contexts, too few rows, rewards that speak for one action only, spaces that do
            not fit, or epsilon out of range.
    """
    from sklearn.base import is_classifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.utils.validation import has_fit_parameter

    own = spaces_for("learn_by_classification", log, spaces, epsilon)
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
    scaled, center, scale = standardized_inputs(inputs(log), own)
    if not scaled.size:
        raise ValueError("a classifier needs contexts, but the log has none: use seqdec.ope.learn")
    rows, labels, weights = _examples(log)
    if len(np.unique(labels)) < 2:
        raise ValueError(
            "a classifier needs rewards that favor at least two actions: log more rows, or use seqdec.ope.learn"
        )
    made, row, size = unfitted(classifier), scaled.shape[1:], log.num_actions
    made.fit(scaled.reshape(len(scaled), -1)[rows], labels, sample_weight=weights)

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
    return fixed(asked, own, settings, log, greedy=True)


def _examples(log: Log) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, their labels and weights, in units of the mean |r - b|."""
    order = np.argsort(log.reward, kind="stable")
    below = np.cumsum(1 / log.propensity[order])
    baseline = log.reward[order[np.searchsorted(below, below[-1] * len(log) / log.mask.sum())]]
    gain = log.reward - baseline
    gain /= np.abs(gain)[gain != 0].mean() if gain.any() else 1.0
    good, (bad, others) = np.flatnonzero(gain > 0), np.nonzero(log.mask & (gain < 0)[:, None])
    bad, others = (part[others != log.action[bad]] for part in (bad, others))
    rows = np.concatenate([good, bad])
    return rows, np.concatenate([log.action[good], others]), np.abs(gain / log.propensity)[rows]
