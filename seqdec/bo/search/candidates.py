"""Candidates: a randomly shifted Sobol sequence in the region, perturbations of the best points, and steps of them.

Columns of inactive parameters are drawn before a perturbation or a step, which may activate them.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from seqdec.bo.space.space import Space
from seqdec.boundary import checks

INCUMBENTS = 4
"""Best points that are perturbed."""
_SCALES = (0.2, 0.05, 0.0125, 0.003)
_MOVED = 20
"""Most columns a perturbation changes, on average."""
_REDRAWN = 0.2
"""Probability of redrawing a discrete dimension."""
_ROUNDS = 32
"""Rounds of perturbations where points are excluded."""
SAME = 1e-6
"""Points that differ by less in every column are equal."""


@dataclass(frozen=True)
class Search:
    """How the acquisition is maximized."""

    raw_samples: int = 512
    """Sobol points, a power of two; half as many perturbations are added."""
    num_restarts: int = 16
    """Ascents, from the best candidates; at most `raw_samples`."""
    steps: int = 30
    """Steps of the best four ascents, after ten of each; 0: no ascent."""
    grid: bool = False
    """Whether to suggest from the same Sobol points, without ascent, as in the paper."""
    repeats: bool | None = None
    """Whether to repeat points; None: in an exhausted finite space with noisy values."""
    trust_region: bool | None = None
    """Whether to search a box around the best point; None: with more than 20 parameters, those of one condition counted
    once, and one objective."""

    def checked(self) -> "Search":
        """The search with Python numbers. Raises TypeError or ValueError."""
        if not isinstance(self, Search):
            raise TypeError(f"search must be a seqdec.bo.Search; got {self!r}")
        raw_samples = checks.count("raw_samples", self.raw_samples)
        if raw_samples & (raw_samples - 1):
            raise ValueError(f"raw_samples must be a power of two; got {raw_samples}")
        search = Search(
            raw_samples,
            checks.count("num_restarts", self.num_restarts),
            checks.count("steps", self.steps, 0),
            checks.flag("grid", self.grid),
            None if self.repeats is None else checks.flag("repeats", self.repeats),
            None if self.trust_region is None else checks.flag("trust_region", self.trust_region),
        )
        if search.num_restarts > raw_samples:
            raise ValueError(f"num_restarts must be at most raw_samples={raw_samples}; got {search.num_restarts}")
        return search


class Region(NamedTuple):
    """The box of the unit cube to search."""

    low: np.ndarray
    """(d,)"""
    high: np.ndarray
    """(d,)"""


class Box(NamedTuple):
    """The box in which candidates are searched."""

    low: np.ndarray
    """(columns,)"""
    high: np.ndarray
    """(columns,)"""
    fixed: Mapping[Any, Any]
    """values of dimensions, by key, where `low` equals `high`"""


@functools.cache
def sobol(count: int, columns: int, scramble: bool = False) -> np.ndarray:
    """(count, columns) points, optionally scrambled with seed 0; `count` is a power of two."""
    from scipy.stats import qmc

    by: Any = {"seed": 0}  # the stubs know only `rng`, which uses another generator
    return qmc.Sobol(columns, scramble=scramble, **by).random(count)


def candidates(space: Space, search: Search, box: Box, starts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n, columns) points of a box, as many as `search` wants, repeated where fewer are found; none: (0, columns).

    They are spread evenly, and around `starts` (k, columns), points of the space.
    """
    grid = sobol(search.raw_samples, space.parameters, search.grid)
    shift = 0 if search.grid else rng.random(space.parameters)
    found = [inside(space, box, box.low + (box.high - box.low) * space.uniform((grid + shift) % 1))]
    number = len(grid) if search.grid else len(grid) * 3 // 2
    for near in () if search.grid or not len(starts) else walk(space, box, starts, len(grid) // 2, rng):
        found.append(near)
        if sum(map(len, found)) >= number:
            break
    points = np.concatenate(found)
    return np.resize(points, (number, space.columns)) if len(points) else points


def walk(space: Space, box: Box, starts: np.ndarray, count: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """(k, columns) points of a box near `starts` (n, columns), then near those, in rounds of at most `count`."""
    centers = starts
    for _ in range(_ROUNDS):
        rows = _completed(space, centers[rng.integers(len(centers), size=count)], rng)
        found = inside(space, box, perturbed(space, box, rows, rng))
        yield found
        centers = np.concatenate([centers, found])


def inside(space: Space, box: Box, units: np.ndarray) -> np.ndarray:
    """(k, columns) the points of the space at `units` (n, columns), moved into the box."""
    points, _, good = space.settled(np.clip(units, box.low, box.high), box.fixed)
    return points[good]


def stepped(space: Space, box: Box, centers: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """(k, columns) points of a box: the first `count` steps of one parameter from the first of `centers` on."""
    moves = rng.permutation(space.moves)
    rows = np.arange(min(count, len(centers) * len(moves)))
    near = space.moved(_completed(space, centers[rows // len(moves)], rng), moves[rows % len(moves)])
    return inside(space, box, near)


def _completed(space: Space, points: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """`points` (n, columns) with random values of inactive parameters."""
    active = space.active(points)
    if active.all():
        return points
    return np.where(active[:, space.owners], points, space.uniform(rng.random((len(points), space.parameters))))


def perturbed(space: Space, box: Box, centers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n, columns): a perturbation of each of `centers` (n, columns)."""
    count, parameters = len(centers), space.parameters
    moved = rng.random((count, parameters)) < rng.uniform(1 / parameters, min(1.0, _MOVED / parameters), (count, 1))
    scales = np.resize(_SCALES, (count, 1)) * (box.high - box.low)
    rows = centers + np.where(moved[:, space.places], scales * rng.normal(size=centers.shape), 0)
    for dimension, columns in zip(space.dimensions, space.slices, strict=True):
        if not dimension.continuous and dimension.size > 1:
            redrawn = rng.random(count) < _REDRAWN
            rows[redrawn, columns] = dimension.uniform(rng.random(count))[redrawn]
    return rows


def is_new(point: np.ndarray, known: np.ndarray) -> bool:
    """Whether a point (d,) is none of `known` (m, d)."""
    return not np.any(np.abs(known - point).max(axis=1, initial=0) < SAME)
