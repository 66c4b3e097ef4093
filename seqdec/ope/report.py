"""What a log holds, part by part."""

from typing import Any

import numpy as np

from seqdec.findings import Finding, Report, examples_of
from seqdec.introspection import counted, ranged

_SHOWN = 8
_RARE = 0.01
_HEAVY = 0.5
"""Share of the total of the rewards in the largest hundredth of the rows."""


def report_of(log: Any) -> Report:
    """As `seqdec.ope.Log.report`."""
    rows, size = log.mask.shape
    if not rows:
        return Report([Finding("rows", "none", "the log has none")])
    moments = f"{log.timestamp[0]} to {log.timestamp[-1]}"
    timed = "times" if log.timestamp.dtype.kind == "M" else "numbers, of rows unless a time column was given"
    rewards = {"reward": log.reward, **{f"reward[{name}]": part for name, part in (log.reward_parts or {}).items()}}
    features = log.action_features
    return Report(
        [
            Finding("rows", counted(rows, "decision"), "in the order of time"),
            Finding("timestamp", moments, timed),
            _actions(log),
            *(_reward(name, values) for name, values in rewards.items()),
            _propensity(log),
            _context(log),
            *(
                []
                if log.mask.all()
                else [Finding("mask", f"{log.mask.mean():.1%} of {counted(size, 'action')}", "allowed")]
            ),
            *([] if features is None else [Finding("action features", str(features.shape[2]), "of each action")]),
        ]
    )


def _actions(log: Any) -> Finding:
    shares = np.bincount(log.action, minlength=log.num_actions) / len(log.action)
    order = np.argsort(-shares, kind="stable")[:_SHOWN]
    shown = ", ".join(f"{log.name(int(place))} {shares[place]:.1%}" for place in order)
    more = f", and {log.num_actions - _SHOWN:,} more" if log.num_actions > _SHOWN else ""
    never = int((shares == 0).sum())
    why = "indices from 0" if log.action_names is None else "by name"
    why += f"; {never:,} never played" if never else ""
    return Finding("action", f"{counted(log.num_actions, 'action')}: {shown}{more}", why)


def _reward(name: str, reward: np.ndarray) -> Finding:
    distinct, zeros = np.unique(reward), float(np.mean(reward == 0))
    if set(distinct) <= {0.0, 1.0}:
        return Finding(name, f"0 or 1, {reward.mean():.4g} of them 1", "no other values")
    total, largest = np.abs(reward).sum(), np.sort(np.abs(reward))[-max(1, round(_RARE * len(reward))) :].sum()
    said = ""
    if len(reward) >= 1 / _RARE and largest > _HEAVY * total:
        said = f"{largest / total:.0%} of the sum of |{name}| is in {_RARE:.0%} of the rows: intervals are uncertain"
    return Finding(name, ranged(reward), f"{zeros:.1%} zeros", examples=examples_of(distinct), suspicion=said)


def _propensity(log: Any) -> Finding:
    known = "estimated" if log.estimated else "known" if log.known_propensities else "unknown"
    law = "; probabilities of all actions are known, too" if log.logging is not None else ""
    said = ""
    if log.known_propensities and (log.propensity == 1).all() and log.num_actions > 1:
        said = "all are 1: a policy that never explores shows nothing about other actions"
    return Finding("propensity", ranged(log.propensity), f"{known}{law}", suspicion=said)


def _context(log: Any) -> Finding:
    width = log.context.shape[1]
    names = log.context_names or ()
    shown = ", ".join(map(str, names[:_SHOWN])) + (", ..." if len(names) > _SHOWN else "")
    by = f"by the encoder {log.encoder[:12]}" if log.encoder else "columns as they are" if names else "without names"
    return Finding("context", f"{counted(width, 'number')}{shown and f': {shown}'}", by)
