"""Where the dimensions of a space are in the unit cube."""

import functools
import itertools
from typing import NamedTuple

import numpy as np

from seqdec.bo.space.dimensions import Constant, Dimension


class Layout(NamedTuple):
    """Where the dimensions are in the unit cube."""

    columns: int
    all_real: bool
    continuous: np.ndarray
    """(columns,) bool, read-only"""
    slices: tuple[slice, ...]


@functools.lru_cache
def layout(kinds: tuple[type, ...], dimensions: tuple[Dimension, ...]) -> Layout:
    """Of these dimensions; their kinds are given because a Real and an Integer of equal limits are equal as tuples."""
    del kinds
    ends = list(itertools.accumulate(d.width for d in dimensions))
    continuous = np.concatenate([np.full(d.width, d.continuous) for d in dimensions])
    slices = tuple(slice(*limits) for limits in zip([0, *ends], ends, strict=False))
    all_real = all(d.real if isinstance(d, Constant) else d.continuous for d in dimensions)
    continuous.flags.writeable = False
    return Layout(ends[-1], all_real, continuous, slices)
