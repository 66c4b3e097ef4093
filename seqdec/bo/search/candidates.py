"""Candidates: a randomly shifted Sobol sequence in the region, and perturbations of the best points."""

import functools
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
SAME = 1e-6
"""Points that differ by less in every column are equal."""


@dataclass(frozen=True)
class Search:
    """How the acquisition is maximized."""

    raw_samples: int = 512
    """Sobol points, a power of two; half as many perturbations are added."""
    num_restarts: int = 16
    """Ascents, from the best candidates; at most `raw_samples`."""
    steps: int = 60
    """Of each ascent; 0 for none."""
    grid: bool = False
    """Whether to suggest from the same Sobol points, without ascent, as in the paper."""
    repeats: bool | None = None
    """Whether to repeat points; None: in an exhausted finite space with noisy values."""

    def checked(self) -> "Search":
        """Itself with Python numbers. Raises TypeError or ValueError."""
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


@functools.cache
def sobol(count: int, columns: int, scramble: bool = False) -> np.ndarray:
    """(count, columns) points, optionally scrambled with seed 0; `count` is a power of two."""
    from scipy.stats import qmc

    by: Any = {"seed": 0}  # the stubs know only `rng`, which uses another generator
    return qmc.Sobol(columns, scramble=scramble, **by).random(count)


def candidates(space: Space, search: Search, region: Region, incumbents: np.ndarray, rng: np.random.Generator) -> Any:
    """(n, d) encodings of points, in the region and around `incumbents` (k, d)."""
    grid = sobol(search.raw_samples, space.columns, search.grid)
    if search.grid:
        return space.snap(np.clip(grid, *region))
    even = region.low + (region.high - region.low) * ((grid + rng.random(space.columns)) % 1)
    near = perturbed(space, region, incumbents[rng.integers(len(incumbents), size=len(grid) // 2)], rng)
    return space.snap(np.concatenate([even, np.clip(near, *region)]))


def perturbed(space: Space, region: Region, centers: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """(n, d): a perturbation of each of `centers` (n, d)."""
    shape = centers.shape
    moved = rng.random(shape) < rng.uniform(1 / shape[1], min(1.0, _MOVED / shape[1]), (shape[0], 1))
    scales = np.resize(_SCALES, (shape[0], 1)) * (region.high - region.low)
    rows = centers + np.where(moved, scales * rng.normal(size=shape), 0)
    for dimension, columns in zip(space.dimensions, space.slices, strict=True):
        if not dimension.continuous and dimension.size > 1:
            redrawn = rng.random(shape[0]) < _REDRAWN
            rows[redrawn, columns] = rng.random((shape[0], columns.stop - columns.start))[redrawn]
    return rows


def is_new(point: np.ndarray, known: np.ndarray) -> bool:
    """Whether a point (d,) is none of `known` (m, d)."""
    return not np.any(np.abs(known - point).max(axis=1, initial=0) < SAME)
