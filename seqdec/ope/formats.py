"""Logs of Open Bandit Pipeline."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.log import Log, make_log


def from_bandit_feedback(feedback: Mapping[str, Any]) -> Log:
    """The log in a `BanditFeedback` of Open Bandit Pipeline.

    Reads "action", "reward", "n_actions", and optionally "pscore", "context", "position" (one-hot, appended to the
    context), "action_context" (unless it is one-hot) and "pi_b" (`Log.logging`; with several positions, of each row's).

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
    law = None if feedback.get("pi_b") is None else np.asarray(checks.as_array("pi_b", feedback["pi_b"]), np.float64)
    if law is not None and law.ndim == 3:
        law = _at_position(law, feedback.get("position"))
    return make_log(
        action=feedback["action"],
        reward=feedback["reward"],
        propensity=feedback.get("pscore"),
        logging=law,
        context=np.concatenate(parts, axis=1) if parts else None,
        action_features=features,
        num_actions=size,
    )


def _at_position(law: np.ndarray, position: Any) -> np.ndarray:
    """(n, k) of (n, k, positions)."""
    count, _, positions = law.shape
    if positions == 1:
        return law[:, :, 0]
    place = np.full(count, -1) if position is None else np.asarray(checks.as_array("position", position))
    if place.shape != (count,) or not np.isin(place, range(positions)).all():
        raise ValueError(
            f"pi_b is of {positions} positions, so that position must be {count} integers from 0 to {positions - 1}; "
            f"got {position!r:.80}"
        )
    return law[np.arange(count), :, place.astype(int)]
