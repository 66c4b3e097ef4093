"""A point of a space with conditions or constraints."""

from typing import Any

import numpy as np

from seqdec.bo.search.candidates import sobol
from seqdec.bo.space import constraints as rules
from seqdec.bo.space.constraints import Linear
from seqdec.bo.space.dimensions import Integer
from seqdec.bo.space.space import Point, Space

_TRIED = 8192
"""Points tried before a space is declared empty, and most listed of a finite one."""


def example(space: Space) -> Point:
    """A point of the space. Raises ValueError if none is found."""
    if (middle := space.point_at(np.full(space.columns, 0.5))) is not None:
        return middle
    units = sobol(_TRIED, space.columns, scramble=True)
    found = next((point for unit in units if (point := space.point_at(unit)) is not None), None)
    if found is None and space.size <= _TRIED:
        found = next(map(space.point, space.points()), None)
    elif found is None:
        found = _by_programming(space)
    if found is not None:
        return found
    tried = [space.decode(unit) for unit in units[:1024]]
    shares = (np.mean([rules.holds(c, x, space.shown) for x in tried]) for c in space.constraints)
    each = (f"{rules.describe(c)} holds at {share:.1%}" for c, share in zip(space.constraints, shares, strict=True))
    raise ValueError(
        f"no point within the bounds was found that satisfies all constraints; of {_TRIED} tried, {', '.join(each)}: "
        "correct or widen a constraint, or narrow the bounds to where all hold"
    )


def _by_programming(space: Space) -> Point | None:
    """The point farthest from linear limits, by mixed-integer programming."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    numbers = {k: d for k, d in zip(space.keys, space.dimensions, strict=True) if d.numeric}
    linear = [c for c in space.constraints if isinstance(c, Linear) and c.weights.keys() <= numbers.keys()]
    if not linear:
        return None
    lows, highs = (np.array([getattr(d, side) for d in numbers.values()], float) for side in ("low", "high"))
    rows = np.array([[c.weights.get(key, 0.0) for key in numbers] for c in linear])
    distances = np.linalg.norm(rows * (highs - lows), axis=1)  # of one unit of the cube; the last variable counts them
    sides: list[tuple[int, Any, Any]] = [(-1, [c.low for c in linear], np.inf), (1, -np.inf, [c.high for c in linear])]
    limits: tuple[Any, Any] = np.append(lows, 0.0), np.append(highs, 1.0)
    solution = milp(
        np.append(np.zeros(len(numbers)), -1.0),
        constraints=[LinearConstraint(np.column_stack([rows, s * distances]), *between) for s, *between in sides],
        bounds=Bounds(*limits),
        integrality=np.array([*(isinstance(d, Integer) for d in numbers.values()), False], int),
    )
    if solution.x is None:
        return None
    values = np.clip(solution.x[:-1], lows, highs)
    x = space.decode(np.full(space.columns, 0.5))
    for (key, dimension), value in zip(numbers.items(), values.tolist(), strict=True):
        if not space.names or key in x:
            x[key] = round(value) if isinstance(dimension, Integer) else value
    return space.point(x) if space.violated(x) is None else None
