"""Candidates of spaces with conditions or constraints: Sobol points, and a random walk.

An ascent that leaves the space is cut off there.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqdec.bo.search.ascent import Ranked
from seqdec.bo.search.candidates import Region, Search, is_new, perturbed, sobol
from seqdec.bo.space import constraints as rules
from seqdec.bo.space.constraints import Linear
from seqdec.bo.space.dimensions import Integer
from seqdec.bo.space.space import Point, Space

_TRIED = 8192
"""Points tried before a space is declared empty, and most listed of a finite one."""
_ROUNDS = 32
"""Rounds of perturbations."""
_HALVINGS = 20


class Box(NamedTuple):
    """Where candidates are sought."""

    low: np.ndarray
    """(columns,)"""
    high: np.ndarray
    """(columns,)"""
    fixed: Mapping[Any, Any]
    """values of dimensions, by key, where `low` equals `high`"""


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


def candidates(
    space: Space, search: Search, box: Box, starts: Sequence[Point], rng: np.random.Generator
) -> list[Point]:
    """Points of a box, as many as `search` wants, repeated where fewer are found."""
    grid, columns = sobol(search.raw_samples, space.columns, search.grid), space.columns
    if search.grid:
        number, found = len(grid), inside(space, box, grid)
    else:
        even = box.low + (box.high - box.low) * ((grid + rng.random(columns)) % 1)
        number, found = len(grid) * 3 // 2, inside(space, box, even)
    for more in () if search.grid else walk(space, box, starts, len(grid) // 2, rng):
        found += more
        if len(found) >= number:
            break
    return list(itertools.islice(itertools.cycle(found), number))


def walk(
    space: Space, box: Box, starts: Sequence[Point], count: int, rng: np.random.Generator
) -> Iterator[list[Point]]:
    """Points of a box near `starts`, then near those, in rounds of at most `count`."""
    centers = list(starts)
    for _ in range(_ROUNDS):
        found = inside(
            space, box, _perturbed(space, box, [centers[i] for i in rng.integers(len(centers), size=count)], rng)
        )
        yield found
        centers += found


def inside(space: Space, box: Box, units: np.ndarray) -> list[Point]:
    """The points of the space at `units` (n, columns), moved into the box."""
    points = (space.point_at(unit, box.fixed) for unit in np.clip(units, box.low, box.high))
    return [point for point in points if point is not None]


def _perturbed(space: Space, box: Box, centers: Sequence[Point], rng: np.random.Generator) -> np.ndarray:
    units, active = np.array([point.unit for point in centers]), np.array([space.active(p.x) for p in centers])
    rows = np.where(active, units, rng.random(units.shape))
    return perturbed(space, Region(box.low, box.high), rows, rng)


def maximize(
    rank: Callable[[np.ndarray, np.ndarray], Ranked], space: Space, box: Box, pool: list[Point], known: np.ndarray
) -> Point | None:
    """The best point that is none of `known` (m, columns); None where all are.

    `rank`: (candidates (n, columns), columns that may move (n, columns)) -> them and the ascents, scored; `pool` is not
    empty.
    """
    ranked = rank(*_arrays(space, pool))
    best, left = _best_inside(space, box, pool, ranked, known)
    if left:
        ends = [_last_inside(space, box, pool[ranked.starts[i]].unit, ranked.points[len(pool) + i]) for i in left]
        worst = np.argsort(ranked.scores[: len(pool)], kind="stable")
        for index, point in zip(worst, filter(None, ends), strict=False):
            pool[index] = point
        best, _ = _best_inside(space, box, pool, rank(*_arrays(space, pool)), known)
    return best


def _arrays(space: Space, pool: Sequence[Point]) -> tuple[np.ndarray, np.ndarray]:
    """(encodings, active continuous columns), each (n, columns)."""
    active = np.array([space.active(point.x) for point in pool])
    return np.array([point.unit for point in pool]), active & space.continuous


def _best_inside(
    space: Space, box: Box, pool: Sequence[Point], ranked: Ranked, known: np.ndarray
) -> tuple[Point | None, list[int]]:
    """The best new point of the space, and better ascents outside."""
    left = []
    for index in np.argsort(-ranked.scores, kind="stable"):
        if index < len(pool):
            point = pool[index]
        elif (point := space.point_at(ranked.points[index].astype(float), box.fixed)) is None:
            left.append(int(index) - len(pool))
            continue
        if is_new(point.unit, known):
            return point, left
    return None, left


def _last_inside(space: Space, box: Box, start: np.ndarray, end: np.ndarray) -> Point | None:
    """By bisection."""
    low, high, last = 0.0, 1.0, None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        point = space.point_at(start + middle * (end - start), box.fixed)
        low, high, last = (low, middle, last) if point is None else (middle, high, point)
    return last
