"""Where a search ends."""

import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from seqdec.bo.trials import Outputs
from seqdec.boundary import checks

_ROUNDING = 1e-9
"""Rounding error allowed in sums of costs."""
(
    DONE,
    FAILED,
    STOPPED,
    INTERRUPTED,
    EXHAUSTED,
    BROKEN,
    CALLBACK,
    INFEASIBLE,
    RAISED,
    TIME,
    TARGET,
    PATIENCE,
) = range(12)

SUCCESSES = (DONE, EXHAUSTED, TIME, TARGET, PATIENCE)
"""Ends that succeed, if a call was feasible."""


class Limits(NamedTuple):
    """Limits of a search."""

    n_calls: int
    """with several fidelities their cost, in full evaluations"""
    max_failures: int
    time_limit: float | None
    """seconds"""
    deadline: float
    """by `time.time`: no call begins later"""
    target: np.ndarray | None
    """(objectives,) larger is better"""
    patience: int | None
    repeats: int | None = 0
    """last calls at the best point; None: where values may be noisy, three, but at most a tenth of all"""


class Progress(NamedTuple):
    """State of a search beside its trials, as JSON values."""

    n_calls: int
    """asked for"""
    calls: int = 0
    cost: float = 0
    """of the calls, in full evaluations"""
    failures: int = 0
    """in a row, at the end"""
    last: str = ""
    """reason of the last failure, empty after a success"""
    improved: float | None = None
    """cost up to the last improvement; None without a feasible value"""
    reported: int = 0
    """calls after which the callback returned"""
    stopped: str = ""
    """how the callback ended the search, or empty"""
    traceback: str | None = None
    """of the first caught exception"""
    held: Mapping[str, str] = {}
    """in a shared search, workers of the trials under evaluation by number"""


def prolonged(progress: Progress, n_calls: int) -> Progress:
    """The progress of a search up to `n_calls`; more of them lift a callback's stop."""
    stopped = "" if n_calls > progress.n_calls else progress.stopped
    return progress._replace(n_calls=n_calls, stopped=stopped)


def limits_of(
    n_calls: int, max_failures: Any, time_limit: Any, target: Any, patience: Any, signs: np.ndarray
) -> Limits:
    """The limits as arguments of `seqdec.minimize`, from now on. Raises ValueError or TypeError."""
    if time_limit is not None:
        checks.positive("time_limit", time_limit)
    if target is not None:
        target = np.array(Outputs(len(signs)).values(target, "target"))
        if not np.isfinite(target).all():
            raise ValueError(f"target must be finite; got {target.tolist()}: leave it out for none")
        target = target * signs
    return Limits(
        n_calls,
        checks.count("max_failures", max_failures),
        time_limit,
        math.inf if time_limit is None else time.time() + float(time_limit),
        target,
        None if patience is None else checks.count("patience", patience),
    )


def fits(limits: Limits, cost: float, further: float = 0.0) -> bool:
    """Whether a full evaluation is within the limit after this cost and a further call."""
    return cost + further + 1 <= limits.n_calls + _ROUNDING


def made(progress: Progress) -> str:
    """How many calls were made, and at which other cost."""
    cost = "" if progress.cost == progress.calls else f", which cost as much as {progress.cost:.4g} at full fidelity"
    return f"{progress.calls} calls made{cost}"


def end(limits: Limits, progress: Progress, front: np.ndarray) -> tuple[int, str] | None:
    """(status, message) at a limit other than time, or None."""
    calls = made(progress)
    if progress.stopped:
        return STOPPED, progress.stopped
    if limits.target is not None and (front >= limits.target).all(1).any():
        return TARGET, f"target reached: {calls}"
    if progress.failures >= limits.max_failures:
        return FAILED, f"{progress.failures} calls in a row failed, the last with: {progress.last}"
    if not fits(limits, progress.cost):
        return DONE, calls
    idle = 0 if progress.improved is None else progress.cost - progress.improved
    if limits.patience is not None and idle >= limits.patience:
        return PATIENCE, f"{idle:g} calls without an improvement (patience={limits.patience}): {calls}"
    return None
