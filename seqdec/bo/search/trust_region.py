"""Trust region: the search is confined to a box around the best point.

The box's edge is 0.8 at the start, doubles (up to 1.6) after three successes in a row and halves after as many failures
in a row as there are columns, at least four and at most ten; below 2^-7 it is reset to 0.8. A success exceeds the best
response so far by more than a thousandth of the responses' standard deviation.

Source: Eriksson, Pearce, Gardner, Turner, Poloczek, "Scalable global optimization via local Bayesian optimization",
2019, with a larger failure tolerance there.
"""

import numpy as np

_INITIAL_EDGE, _LARGEST_EDGE, _SMALLEST_EDGE = 0.8, 1.6, 2**-7
_SUCCESS_TOLERANCE = 3
_MARGIN = 1e-3


def edge(values: np.ndarray, initial: int, columns: int) -> float:
    """The box's edge after responses `values` (n,), larger is better, of which the first `initial` do not count."""
    length, successes, failures = _INITIAL_EDGE, 0, 0
    failure_tolerance = min(max(4, columns), 10)
    for i in range(initial, len(values)):
        if values[i] > values[:i].max() + _MARGIN * values[:i].std():
            successes, failures = successes + 1, 0
        else:
            successes, failures = 0, failures + 1
        if successes == _SUCCESS_TOLERANCE:
            length, successes = min(_LARGEST_EDGE, 2 * length), 0
        elif failures == failure_tolerance:
            length, failures = length / 2, 0
        if length < _SMALLEST_EDGE:
            length = _INITIAL_EDGE
    return length


def box(centre: np.ndarray, edge: float, continuous: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(low, high), each (columns,): the box of that edge around `centre`, clipped to the unit cube.

    Columns that are not `continuous` (columns,) are not confined.
    """
    low = np.where(continuous, np.clip(centre - edge / 2, 0, 1), 0.0)
    high = np.where(continuous, np.clip(centre + edge / 2, 0, 1), 1.0)
    return low, high
