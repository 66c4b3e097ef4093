"""Trust region: the search is confined to a box around the best point, and restarts when the box has shrunk.

The edge, 0.8 at first, doubles (up to 1.6) after three successes in a row and halves after as many failures as there
are columns, from four to ten. A success exceeds the best response by more than a thousandth of the responses' standard
deviation. Below 2^-7 a new region begins, with first points over the whole space. The surrogate knows all values.

Source: Eriksson, Pearce, Gardner, Turner, Poloczek, "Scalable global optimization via local Bayesian optimization",
2019.
"""

from typing import NamedTuple

import numpy as np

_INITIAL_EDGE, _LARGEST_EDGE, _SMALLEST_EDGE = 0.8, 1.6, 2**-7
_SUCCESS_TOLERANCE = 3
_MARGIN = 1e-3


class Stage(NamedTuple):
    """State of the trust region."""

    start: int
    """index of the region's first response"""
    edge: float
    """of its box"""


def stage(values: np.ndarray, initial: int, columns: int) -> Stage:
    """The region after `values` (n,), larger is better; the first `initial` of each do not count."""
    start, length, successes, failures = 0, _INITIAL_EDGE, 0, 0
    failure_tolerance = min(max(4, columns), 10)
    for i in range(len(values)):
        if i < start + initial:
            continue
        known = values[start:i]
        if values[i] > known.max() + _MARGIN * known.std():
            successes, failures = successes + 1, 0
        else:
            successes, failures = 0, failures + 1
        if successes == _SUCCESS_TOLERANCE:
            length, successes = min(_LARGEST_EDGE, 2 * length), 0
        elif failures == failure_tolerance:
            length, failures = length / 2, 0
        if length < _SMALLEST_EDGE:
            start, length, successes, failures = i + 1, _INITIAL_EDGE, 0, 0
    return Stage(start, length)


def box(center: np.ndarray, edge: float, continuous: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(low, high), each (columns,), around `center` in the `continuous` columns."""
    low = np.where(continuous, np.clip(center - edge / 2, 0, 1), 0.0)
    high = np.where(continuous, np.clip(center + edge / 2, 0, 1), 1.0)
    return low, high
