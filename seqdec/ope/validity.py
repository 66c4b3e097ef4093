"""What holds for every log."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.columns import check_names, part_column
from seqdec.rows import is_view, refuse

if TYPE_CHECKING:
    from seqdec.ope.log import Log


def check_rows(log: "Log") -> None:
    """Raise ValueError naming column, row, value and remedy."""
    count, size, rows = len(log.action), log.num_actions, np.arange(len(log.action))
    if not count:
        raise ValueError("a log needs at least one row; got none")
    rewards = {"reward": log.reward, **{part_column(name): part for name, part in (log.reward_parts or {}).items()}}
    shapes: dict[str, tuple[Any, tuple[int, ...]]] = {name: (part, (count,)) for name, part in rewards.items()}
    shapes |= {name: (getattr(log, name), (count,)) for name in ("propensity", "timestamp", "key")}
    shapes |= {"context": (log.context, (count, log.context.shape[1]))}
    shapes |= {name: (getattr(log, name), (count, size)) for name in ("mask", "logging")}
    if log.action_features is not None:
        shapes["action_features"] = log.action_features, (count, size, log.action_features.shape[2])
    for name, (array, shape) in shapes.items():
        if array is not None and array.shape != shape:
            raise ValueError(f"{name} must have shape {shape}; got {array.shape}")
    if log.context_names is not None:
        check_names("context_names", log.context_names, log.context.shape[1])
    for name, array in rewards.items():
        remedy = (
            "drop rows whose reward is not known yet; if no report means none, pass reward_default=0.0 "
            "(--reward-default 0.0)"
        )
        refuse(name, ~np.isfinite(array), array, remedy)
    chance, moments = log.propensity, log.timestamp
    if log.logging is not None:
        _check_law(log, log.logging)
    refuse(
        "propensity",
        ~((chance > 0) & (chance <= 1 + checks.TOLERANCE)) & ~np.isnan(chance).all(),
        chance,
        f"a propensity must lie in (0, 1]; {_remedy(chance)}",
    )
    forbidden = "the mask forbids it; allow it in column mask_<action>, or drop the row"
    refuse("action", ~log.mask[rows, log.action], log.action, forbidden)
    for name, array in (("context", log.context), ("action features", log.action_features)):
        if array is not None and array.size:
            flat = (array[:1] if is_view(array) else array).reshape(-1, math.prod(array.shape[1:]))
            wrong = ~np.isfinite(flat)
            values = flat[np.arange(len(flat)), wrong.argmax(axis=1)]
            refuse(name, wrong.any(axis=1), values, "features must be finite; fill in missing values")
    if log.key is not None:
        check_keys(log.key)
    unknown_times = np.asarray(np.isnat(moments) if moments.dtype.kind == "M" else ~np.isfinite(moments))
    refuse("timestamp", unknown_times, moments, "fill it in, or drop the row")
    early = np.concatenate([[False], moments[1:] < moments[:-1]])
    refuse(
        "timestamp",
        early,
        moments,
        "it is earlier than the row before; sort the log by time, as log[numpy.argsort(log.timestamp)]",
    )


def _check_law(log: "Log", law: np.ndarray) -> None:
    own, sums, known = law[np.arange(len(law)), log.action], law.sum(axis=1), ~np.isnan(law).all(axis=1)
    refuse("logging", known & ~(law >= -checks.TOLERANCE).all(axis=1), law, "a probability must be >= 0")
    refuse("logging", known & ~(np.abs(sums - 1) <= checks.TOLERANCE), sums, "the sum of the probabilities must be 1")
    above = np.abs(law * ~log.mask).max(axis=1)
    refuse("logging", above > checks.TOLERANCE, above, "an action that is masked out must have probability 0")
    if log.known_propensities and not log.estimated:
        remedy = "the probability of the logged action must equal its propensity; both are of the policy that drew it"
        refuse("logging", known & ~(np.abs(own - log.propensity) <= checks.TOLERANCE), own, remedy)


def check_keys(key: np.ndarray) -> None:
    """Raise ValueError for a missing key, or one that occurs before, also as text."""
    listed, rows = key.tolist(), {}
    if not all(isinstance(one, str | int) for one in listed):
        import pandas as pd

        refuse("key", np.asarray(pd.isna(key)), key, "a decision has no key; fill it in, or drop the row")
    twice = np.array([rows.setdefault(str(one), row) != row for row, one in enumerate(listed)], bool)
    refuse(
        "key",
        twice,
        key,
        "an earlier row has this key, which must name a decision, not a user; leave "
        "the key out, or keep one row of each decision, as drop_duplicates does",
    )


def _remedy(propensity: np.ndarray) -> str:
    if (propensity <= 0).all():
        return "convert logarithms of probabilities with numpy.exp"
    if (propensity > 1).any() and (propensity > 0).all() and propensity.max() <= 100:
        return "divide percentages by 100"
    return "log the probability with which the action was drawn, or drop the row"
