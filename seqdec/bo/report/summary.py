"""What a search is, in a few lines."""

from collections import Counter
from typing import Any, get_args

import numpy as np

from seqdec.bo.fits import Fits
from seqdec.bo.record import Record, Status
from seqdec.bo.settings import Settings
from seqdec.introspection import brief, counted, described


def summary(settings: Settings, fits: Fits, record: Record, best: tuple[Any, float] | None) -> str:
    """Goals, parameters, surrogate, counts, and the best point with its value if there is one."""
    space, outputs, told = settings.space, settings.outputs, Counter(entry.status for entry in record.entries)
    counts = ", ".join(f"{told[status]} {status}" for status in get_args(Status) if told[status])
    goals = ", ".join("maximum" if up else "minimum" for up in np.atleast_1d(settings.maximize))
    outcomes = f"outcome constraints: {outputs.outcome_constraints}, " if outputs.outcome_constraints else ""
    names = space.names or [""] * len(space.dimensions)
    parts = (f"{name} {brief(kind)}".strip() for name, kind in zip(names, space.dimensions, strict=True))
    return described(
        f"BayesianOptimizer, {outcomes}objectives: {goals}",
        f"{counted(len(space.dimensions), 'parameter')}: {', '.join(parts)}",
        f"surrogate {_called(fits.surrogate)} ({fits.reason}), acquisition {_called(fits.acquisition)}, "
        f"seed {settings.seed}",
        f"{counted(len(record.entries), 'trial')}{f': {counts}' if counts else ''}",
        "" if best is None else f"best value {best[1]:.6g} at {brief(best[0])}",
    )


def _called(part: Any) -> str:
    """The name of a surrogate or an acquisition, or its kind."""
    return part if isinstance(part, str) else f"of your own ({type(part).__name__})"
