"""Logs as Open Bandit Pipeline holds them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.log import Log, make_log

_NEEDED = ("action", "reward", "n_actions")


def from_bandit_feedback(feedback: Mapping[str, Any]) -> Log:
    """The log in a `BanditFeedback`, the dict that data sets of Open Bandit Pipeline return.

    Reads "action", "reward", "pscore", "context" and "n_actions"; a "position" is appended to the context, one column
    for each position. Features of the actions ("action_context") are taken unless they are only indicators of them.

    Args:
        feedback: the dict; without "pscore", or with None there, propensities are unknown.

    Raises:
        TypeError: not a dict.
        ValueError: a key that is missing, or what `make_log` refuses.
    """
    if not isinstance(feedback, Mapping):
        raise TypeError(f"feedback must be a dict of arrays; got {type(feedback).__name__}")
    for key in _NEEDED:
        if feedback.get(key) is None:
            raise ValueError(f"feedback has no {key!r}; it has {', '.join(map(str, feedback)) or 'nothing'}")
    action, size = np.asarray(feedback["action"]), checks.count("n_actions", feedback["n_actions"])
    parts = []
    if feedback.get("context") is not None:
        parts.append(np.asarray(feedback["context"], np.float64))
    if feedback.get("position") is not None:
        _, place = np.unique(np.asarray(feedback["position"]), return_inverse=True)
        parts.append(np.eye(int(place.max()) + 1)[place])
    features = feedback.get("action_context")
    if features is not None and np.array_equal(np.asarray(features), np.eye(size)):
        features = None
    return make_log(
        action=action,
        reward=feedback["reward"],
        propensity=feedback.get("pscore"),
        context=np.concatenate(parts, axis=1) if parts else None,
        action_features=features,
        num_actions=size,
    )
