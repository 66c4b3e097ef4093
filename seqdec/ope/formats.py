"""Logs of Open Bandit Pipeline."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.log import Log, make_log


def from_bandit_feedback(feedback: Mapping[str, Any]) -> Log:
    """The log in a `BanditFeedback` of Open Bandit Pipeline.

    Reads "action", "reward", "n_actions", and optionally "pscore", "context", "position" (one-hot, appended to the
    context) and "action_context" (unless it is one-hot).

    Raises:
        TypeError: not a dict.
        ValueError: a missing key, or what `make_log` refuses.
    """
    if not isinstance(feedback, Mapping):
        raise TypeError(f"feedback must be a dict of arrays; got {type(feedback).__name__}")
    for key in ("action", "reward", "n_actions"):
        if feedback.get(key) is None:
            raise ValueError(f"feedback has no {key!r}; it has {', '.join(map(str, feedback)) or 'nothing'}")
    size, parts = checks.count("n_actions", feedback["n_actions"]), []
    if feedback.get("context") is not None:
        parts.append(np.asarray(checks.as_array("context", feedback["context"]), np.float64))
    if feedback.get("position") is not None:
        _, place = np.unique(checks.entries("position", feedback["position"]), return_inverse=True)
        parts.append(np.eye(int(place.max()) + 1)[place])
    features = feedback.get("action_context")
    if features is not None and np.array_equal(np.asarray(features), np.eye(size)):
        features = None
    return make_log(
        action=feedback["action"],
        reward=feedback["reward"],
        propensity=feedback.get("pscore"),
        context=np.concatenate(parts, axis=1) if parts else None,
        action_features=features,
        num_actions=size,
    )
