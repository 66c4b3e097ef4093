"""The argument `earlier` of an optimizer."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from seqdec.bo import checkpoint
from seqdec.bo.settings import Settings
from seqdec.bo.space import containers
from seqdec.bo.space.space import Space
from seqdec.bo.surrogates.contract import REFITTED
from seqdec.bo.transfer import Earlier
from seqdec.bo.trials import Outputs
from seqdec.persistence import located

_MOST = 128
"""Values used of a search."""
_TOLD = ("complete", "outside")


def earlier_searches(given: Any, settings: Settings) -> tuple[Earlier, ...]:
    """One search or several. Raises as `seqdec.bo.BayesianOptimizer`."""
    several = isinstance(given, list | tuple)
    searches = [] if given is None else given if several else [given]
    if searches and settings.surrogate not in REFITTED:
        raise ValueError(f"earlier needs one of the surrogates {', '.join(REFITTED)}; got {settings.surrogate!r}")
    return tuple(_read(one, f"earlier[{i}]" if several else "earlier", settings) for i, one in enumerate(searches))


def _read(given: Any, name: str, settings: Settings) -> Earlier:
    space = settings.space
    units, rows, refused = [], [], f"{name} holds no complete trial"
    for x, told in _trials(given, name, space, settings.outputs):
        values = np.array(told, float)
        if not np.isfinite(values).all():
            continue
        try:
            units.append(space.known_point(x, outside=True).unit)
            rows.append(values * settings.signs)
        except ValueError as error:  # another choice, or too far outside
            refused = f"{name}: none of its points fits, the last one because {error}"
    if len(rows) < 2 or np.ptp(np.array(rows)[:, 0]) == 0:
        raise ValueError(refused if not rows else f"{name} must have two different values; got {len(rows)} values")
    return _fewer(Earlier(np.array(units), np.array(rows)))


def _trials(given: Any, name: str, space: Space, outputs: Outputs) -> Iterable[tuple[Any, tuple[float, ...]]]:
    """(point, values and outcomes) of complete trials."""
    if isinstance(given, str | os.PathLike):
        entries = checkpoint.load(located(given), None).entries
        return [(one.point.x, (*one.values, *one.outcomes)) for one in entries if one.status in _TOLD]
    optimizer = getattr(given, "optimizer", given)
    table = optimizer.trials_dataframe() if hasattr(optimizer, "trials_dataframe") else given
    if (found := containers.table(table)) is None:
        raise TypeError(
            f"{name} must be a result of seqdec.minimize, a BayesianOptimizer, a table of trials or the path of a "
            f"saved search; got {given!r}"
        )
    keys = list(space.names) or [f"x_{i}" for i in range(len(space.dimensions))]
    told = [column for column in outputs.columns if column != "feasible"]
    conditional = [key for key, condition in zip(keys, space.conditions, strict=False) if condition is not None]
    missing = [key for key in [*keys, *told] if found and key not in found[0] and key not in conditional]
    if missing:
        raise ValueError(f"{name} has no column {missing[0]!r}; its columns are {[*found[0]]}")
    kept = [row for row in found if row.get("state", "complete") in _TOLD]
    points = [{key: row[key] for key in keys if key in row} for row in kept]
    return [
        (point if space.names else list(point.values()), tuple(row[key] for key in told))
        for point, row in zip(points, kept, strict=True)
    ]


def _fewer(search: Earlier) -> Earlier:
    """A long search shortened: half are the best values, the others evenly spaced."""
    count = len(search.units)
    if count <= _MOST:
        return search
    order = np.argsort(-search.responses[:, 0], kind="stable")
    even = order[_MOST // 2 :][np.linspace(0, count - _MOST // 2 - 1, _MOST // 2).astype(int)]
    rows = np.sort(np.concatenate([order[: _MOST // 2], even]))
    return Earlier(search.units[rows], search.responses[rows])
