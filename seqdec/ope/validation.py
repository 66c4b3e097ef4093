"""What a log must be: shapes and values that the estimators can handle."""

from collections.abc import Mapping

import numpy as np

from seqdec import checks
from seqdec.ope.columns import part_column, refuse

MOST_ACTIONS = 2**20


def check_parts(
    *,
    context: np.ndarray,
    action: np.ndarray,
    reward: np.ndarray,
    propensity: np.ndarray,
    mask: np.ndarray,
    timestamp: np.ndarray,
    action_features: np.ndarray | None,
    reward_parts: Mapping[str, np.ndarray],
) -> None:
    """Refuse shapes and values of a log's parts that the estimators cannot handle. Raises ValueError."""
    count, size = len(action), mask.shape[-1]
    shapes: dict[str, tuple[np.ndarray, tuple[int, ...]]] = {
        "context": (context, (count, context.shape[-1])),
        "reward": (reward, (count,)),
        "propensity": (propensity, (count,)),
        "mask": (mask, (count, size)),
        "timestamp": (timestamp, (count,)),
    }
    if action_features is not None:
        shapes["action_features"] = action_features, (count, size, action_features.shape[-1])
    for name, (array, shape) in shapes.items():
        if array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}; got {array.shape}")
    parts = {part_column(name): part for name, part in reward_parts.items()}
    for name, array in {"reward": reward, **parts}.items():
        if array.shape != (count,):
            raise ValueError(f"{name} must have shape {(count,)}; got {array.shape}")
        refuse(name, ~np.isfinite(array), array, "a reward must be known: drop rows without one")
    refuse(
        "propensity",
        ~((propensity > 0) & (propensity <= 1 + checks.TOLERANCE)) & ~np.isnan(propensity).all(),
        propensity,
        "a propensity must lie in (0, 1]: log the probability with which the action was drawn, or drop the row",
    )
    top = size - 1
    refuse("action", action > top, action, f"actions count from 0 to {top}: pass num_actions, or renumber")
    allowed = mask[np.arange(count), action]
    refuse("action", ~allowed, action, "the mask forbids it: allow it in column mask_<action>, or drop the row")
    for name, array in (("context", context), ("action features", action_features)):
        if array is not None:
            wrong = ~np.isfinite(array.reshape(count, -1))
            at = wrong.any(axis=1)
            values = array.reshape(count, -1)[np.arange(count), wrong.argmax(axis=1)] if wrong.size else np.zeros(count)
            refuse(name, at, values, "features must be finite: fill what is missing")
    _check_times(timestamp)


def actions_from(action: np.ndarray) -> np.ndarray:
    """Actions as int64."""
    if action.dtype.kind not in "biuf":
        raise ValueError(f"column action: actions must be integers from 0; got {action.dtype}: number them")
    wrong = ~((action >= 0) & (action < MOST_ACTIONS) & (action == np.floor(action)))
    refuse("action", wrong, action, "actions must be integers from 0: number them")
    return action.astype(np.int64)


def mask_from(mask: np.ndarray) -> np.ndarray:
    """A mask of zeros and ones as bool."""
    wrong = ~np.isin(mask, (0, 1)).reshape(len(mask), -1)
    values = mask.reshape(len(mask), -1)[np.arange(len(mask)), wrong.argmax(axis=1)]
    refuse("mask", wrong.any(axis=1), values, "a mask is true (1) where the action was allowed, else false (0)")
    return mask.astype(bool)


def _check_times(moments: np.ndarray) -> None:
    if moments.dtype.kind not in "iufM":
        raise ValueError(f"column timestamp: times must be dates or numbers; got {moments.dtype}")
    unknown = np.asarray(np.isnat(moments) if moments.dtype.kind == "M" else ~np.isfinite(moments))
    refuse("timestamp", unknown, moments, "fill it in, or drop the row")
    early = np.concatenate([[False], moments[1:] < moments[:-1]])
    refuse("timestamp", early, moments, "it is earlier than the row before: sort the log by time")
