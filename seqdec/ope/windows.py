"""Parts of a log in time, and whether their means differ by more than chance."""

import datetime
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.intervals import Ends, Terms

if TYPE_CHECKING:
    import pandas as pd

_WINDOWS, _LEAST, _MOST = 5, 10, 200
"""Windows by default, least rows of one, and most windows."""
_CHANCE = 0.01
"""Probability of a change over time that chance may explain."""


def check_window(window: Any) -> int | np.timedelta64:
    """A length of windows: a number of rows, or a time, also as text.

    Raises TypeError or ValueError.
    """
    if not isinstance(window, str | datetime.timedelta | np.timedelta64):
        return checks.count("window", window)
    import pandas as pd

    if isinstance(window, str) and window.isdecimal():
        return checks.count("window", int(window))
    try:
        length: Any = pd.Timedelta(window)
    except ValueError:
        length = pd.NaT
    if not length > pd.Timedelta(0):
        raise ValueError(f'window must be a number of rows, or a time above 0, such as "7D"; got {window!r}')
    return length.to_timedelta64()


def starts_of(times: np.ndarray, window: Any) -> np.ndarray:
    """First row of each window, of the times (n,) of the rows."""
    count = len(times)
    if window is None:
        return np.linspace(0, count, max(1, min(_WINDOWS, count // _LEAST)), endpoint=False).astype(int)
    length = check_window(window)
    if isinstance(length, int):
        starts = np.arange(0, count, length)
    elif times.dtype.kind == "M":
        starts = np.unique((times - times[0]) // length, return_index=True)[1]
    else:
        raise ValueError(f"window must be a number of rows, because the times of the log are not dates; got {window!r}")
    if len(starts) > _MOST:
        raise ValueError(f"window must divide the log into at most {_MOST} parts; {window!r} makes {len(starts):,}")
    return starts


def in_windows(
    times: np.ndarray,
    reward: np.ndarray,
    terms: Terms,
    starts: np.ndarray,
    interval: Callable[[Terms, slice], Ends],
) -> "pd.DataFrame":
    """For each window, indexed by its first row: start, rows, mean reward, difference, low, high."""
    import pandas as pd

    rows = []
    for start, stop in itertools.pairwise([*starts, len(reward)]):
        at = slice(start, stop)
        part = Terms(terms.numerator[at], terms.denominator[at])
        rows.append((times[start], stop - start, reward[at].mean(), part.value, *interval(part, at)))
    columns = ["start", "rows", "reward", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=columns, index=pd.Index(starts, name="row"))


def changes(influence: np.ndarray, starts: np.ndarray, member: np.ndarray | None) -> bool:
    """Whether means in windows differ more than by chance: sum_w n_w (mean_w - mean)^2 / s^2 against chi-squared.

    The variance s^2 is that of sums over the rows of a group in a window.
    """
    from scipy.special import chdtrc

    x, sizes = influence - influence.mean(), np.diff([*starts, len(influence)])
    window = np.repeat(np.arange(len(starts)), sizes)
    cells = np.arange(len(x)) if member is None else np.unique(member * len(starts) + window, return_inverse=True)[1]
    variance = (np.bincount(cells, x) ** 2).sum() / len(x)
    if len(starts) < 2 or not variance > 1e-20 * (influence**2).mean():
        return False
    distance = (np.bincount(window, x) ** 2 / sizes).sum() / variance
    return bool(chdtrc(len(starts) - 1, distance) < _CHANCE)
