"""Diagnostics of a log for `GET /v1/{deployment}/diagnostics` and the page, as JSON values."""

import contextlib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from seqdec.service import OnlineAgent, diagnostics
from seqdec.service.logs import read_latest
from seqdec.service.report import Answer, Report
from seqdec.service.summary import summary

_LATEST = 5_000
"""Decisions that are read."""
_SHOWN = 20
_COMPARED = (
    "Rewards are weighted by propensities: what an arm would earn in all decisions, with 95% intervals for one look. "
    "Which arm is best, and whether that is decided, the report says at any time."
)
_PLAIN = (
    "Propensities are not known: rewards are plain means of the decisions of each arm, and no test of one arm against "
    "another."
)
_ENDS = (("value", "difference"), ("low", "low"), ("high", "high"))
_NOTHING: dict[str, Any] = {"latest": 0, "alarms": [], "facts": [], "comparison": "", "arms": [], "decisions": []}


def of_agent(folder: Any, agent: OnlineAgent) -> dict[str, Any]:
    """The report of an agent and its folder. Raises OSError or ValueError."""
    found, off = report(read_latest(folder, _LATEST)), ()
    with contextlib.suppress(TypeError, ValueError):  # of actions without expectations, or without rewards yet
        off = diagnostics.uncalibrated(agent.calibration())
    return found | {"alarms": [*_told(diagnostics.lagging(agent.lag)), *found["alarms"], *_told(off)]}


def report(history: pd.DataFrame) -> dict[str, Any]:
    """Alarms, facts, arms and the last decisions of a table of `read_history`."""
    history = diagnostics.played(history)
    if history.empty:
        return _NOTHING
    found = summary(history)
    known = bool(history["propensity"].notna().all())
    table: Any = found.arms
    arms = [] if table is None else table.reset_index().to_dict("records")
    arms.sort(key=lambda one: -one["decisions"])
    return {
        "latest": len(history),
        "alarms": _told(diagnostics.alarms(history)),
        "facts": list(found.facts),
        "comparison": "" if table is None else _COMPARED if known else _PLAIN,
        "arms": [_arm(one) for one in arms],
        "decisions": [_decision(one) for one in history.tail(_SHOWN).to_dict("records")[::-1]],
    }


def _told(alarms: Iterable[diagnostics.Alarm]) -> list[dict[str, Any]]:
    return [alarm._asdict() for alarm in alarms]


def answered(found: Report) -> dict[str, Any]:
    """A report of all decisions."""
    return {name: None if one is None else _answer(one) for name, one in found._asdict().items()}


def _answer(one: Answer) -> dict[str, Any]:
    ends = {name: part and part._asdict() for name, part in (("difference", one.difference), ("total", one.total))}
    segments: Any = one.segments
    by = [] if segments is None else [(name, part.droplevel(0)) for name, part in segments.groupby(level=0, sort=False)]
    tables = [{"segment": name, "arms": _compared(part)} for name, part in by]
    told = {name: getattr(one, name) for name in ("question", "verdict", "decided", "rows")}
    return {**told, **ends, "arms": [] if one.arms is None else _compared(one.arms), "segments": tables}


def _compared(table: Any) -> list[dict[str, Any]]:
    """A table of `seqdec.ope.compare_arms`."""
    return [
        {
            "arm": _action(one["arm"]),
            "decisions": int(one["decisions"]),
            **{name: _number(one[name]) for name in ("share", "reward", "std_error", "best", "loss")},
            "difference": {name: float(one[key]) for name, key in _ENDS},
        }
        for one in table.reset_index().to_dict("records")
    ]


def _arm(one: dict[Any, Any]) -> dict[str, Any]:
    numbers = {name: _number(one[name]) for name in ("reward", "low", "high")}
    least = _number(one["least propensity"])
    own = {"arm": _action(one["arm"]), "decisions": int(one["decisions"]), "share": _number(one["last share"])}
    return {**own, **numbers, "least_propensity": least}


def _decision(one: dict[Any, Any]) -> dict[str, Any]:
    point = [float(one[name]) for name in one if str(name).startswith("action_")]
    return {
        "number": str(one["number"]),  # beyond what a number of JSON holds everywhere
        "time": f"{one['time']:%Y-%m-%d %H:%M:%S}",
        "action": _action(one["action"]) if "action" in one else point,
        "propensity": _number(one["propensity"]),
        "reward": _number(one["reward"]),
        "source": None if pd.isna(one["source"]) else one["source"],
    }


def _action(action: Any) -> Any:
    return int(action) if isinstance(action, int | np.integer) else action


def _number(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
