"""Single values as plain Python, the same from NumPy, pandas, Arrow, a dict or JSON.

Functions take the column's name for errors: TypeError for another type, ValueError for no result.
"""

import functools
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from seqdec.boundary import checks

_EXACT = 2**53
"""Largest range of exact integers in doubles."""
_YEAR = re.compile(r"\d{4}")
_LOWEST = -(2**31)
_KNOWN = frozenset({str, int, bool, datetime, date, list, tuple})
"""Types without missing values."""
_WORDS = 2**14
PLAIN = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
"""A number as text, without spaces around."""
LIST = re.compile(
    rf"\[\s*{PLAIN.pattern}((\s*,\s*|\s+){PLAIN.pattern})*\s*\]|\(\s*{PLAIN.pattern}(,\s+{PLAIN.pattern})+\s*\)"
)
"""A list of numbers as text, as files of text have it."""
_ABSENT = frozenset({"", "?", "-", "--", ".", "na", "n/a", "#n/a", "nan", "<na>", "null", "none", "missing", "unknown"})
"""Words for a missing number, in lower case."""

Write = Callable[[np.ndarray, Any], bool | None]
"""(row (F,) of zeros, value) -> whether the value lies far outside of `Kind.fitted_to`, filling the row"""


def missing(value: Any) -> bool:
    """Whether a value is None, NaN, NaT or pandas.NA."""
    if value is None:
        return True
    if type(value) in _KNOWN:
        return False
    if isinstance(value, float | np.floating):
        return bool(value != value)
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    if isinstance(value, Decimal):
        return value.is_nan()
    return type(value).__name__ in ("NAType", "NaTType")


def missing_number(value: Any) -> bool:
    """Whether a value is missing, or a word for a missing number, such as "?" and "NA"."""
    return value.strip().lower() in _ABSENT if isinstance(value, str) else missing(value)


def number(column: str, value: Any) -> float:
    """A finite real number, also as plain text such as "1.5", as a float."""
    if isinstance(value, str) and PLAIN.fullmatch(value.strip()):
        value = float(value)
    if not (checks.is_number(value) or isinstance(value, Decimal)):
        raise TypeError(f"column {column}: {value!r:.80} is not a number: convert it, as with pandas.to_numeric")
    try:
        plain = float(value)
    except OverflowError:
        plain = math.inf
    if not math.isfinite(plain):
        raise ValueError(f"column {column}: {value!r:.80} is not a finite number: leave it out, or give None")
    return plain


def flag(column: str, value: Any) -> float:
    """True or 1 as 1.0, False or 0 as 0.0."""
    if (checks.is_number(value) or isinstance(value, Decimal)) and value in (0, 1):
        return float(value)
    raise TypeError(f"column {column}: {value!r:.80} is not True or False")


def level(column: str, value: Any) -> str:
    """Text, or a number or bool as text: 3.0 as "3"."""
    if isinstance(value, str):
        return str.__str__(value)  # of a member of an Enum its value
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, int | np.integer) and checks.is_number(value):
        return str(int(value))
    if isinstance(value, float | np.floating) and not missing(value):
        plain = float(value)
        return str(int(plain)) if plain.is_integer() and abs(plain) < _EXACT else repr(plain)
    raise TypeError(
        f"column {column}: a level must be a str, a number or a bool; got {value!r:.80}: convert it, as with str()"
    )


def levels(column: str, value: Any) -> list[str]:
    """The level in a cell, as a list."""
    return [level(column, value)]


def tags(column: str, value: Any) -> list[str]:
    """The levels in a list, tuple, set or array, without missing ones."""
    if isinstance(value, np.ndarray) and value.ndim == 1:
        value = value.tolist()
    if not isinstance(value, list | tuple | set | frozenset):
        raise TypeError(f"column {column}: {value!r:.80} is not a list of tags: convert it, as with list() or split()")
    return [level(column, tag) for tag in value if not missing(tag)]


def vector(column: str, value: Any) -> np.ndarray:
    """(n,) finite numbers of a list or array, also as text such as "[0.5, 2]"."""
    try:
        is_text = isinstance(value, str) and LIST.fullmatch(value.strip())
        found = np.array(re.sub(r"[][(),]", " ", value).split(), float) if is_text else np.asarray(value)
    except ValueError:  # lists of several lengths
        found = np.array(None)
    if found.ndim != 1 or found.dtype.kind not in "iuf":
        raise TypeError(f"column {column}: {value!r:.80} is not a list of numbers: give None where it is missing")
    if not np.isfinite(found).all():
        raise ValueError(f"column {column}: {value!r:.80} has an entry that is not finite: fill it in, or give None")
    return found.astype(np.float64)


def moment(column: str, value: Any) -> datetime:
    """A date or time of Python, NumPy, pandas or ISO 8601 text, as naive UTC, the default time zone."""
    found = value
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = _parsed(column, value)
    elif isinstance(value, np.datetime64):
        found = value.astype("datetime64[us]").item()
    if isinstance(found, datetime):
        to_plain = getattr(found, "to_pydatetime", None)  # of pandas, which has nanoseconds
        plain = found if to_plain is None else to_plain(warn=False)
        try:
            return plain if plain.tzinfo is None else plain.astimezone(UTC).replace(tzinfo=None)
        except OverflowError:
            found = None
    elif isinstance(found, date):
        return datetime(found.year, found.month, found.day)
    if isinstance(value, np.datetime64 | date):
        raise ValueError(f"column {column}: {value!r:.80} is not in the years 1 to 9999")
    raise TypeError(
        f"column {column}: {value!r:.80} is not a date: give a datetime or text in ISO 8601, such as "
        "'2024-05-01T10:00:00'; seconds since 1970 with datetime.fromtimestamp"
    )


def _parsed(column: str, text: str) -> Any:
    """ISO 8601 that Python does not read, such as "2024-05"."""
    import pandas as pd

    try:
        if _YEAR.match(text):
            return pd.to_datetime(text, utc=True, format="ISO8601")
    except (ValueError, OverflowError):
        pass
    raise ValueError(
        f"column {column}: {text!r:.80} is not a date in ISO 8601, such as '2024-05-01' or '2024-05-01T10:00:00+02:00'"
    )


def hasher(buckets: int) -> Callable[[str], tuple[int, bool]]:
    """Text -> (bucket below `buckets`, whether its sign is negative), by MurmurHash3 as in scikit-learn."""
    from sklearn.utils import murmurhash3_32

    @functools.lru_cache(_WORDS)
    def place(text: str) -> tuple[int, bool]:
        code = int(murmurhash3_32(text.encode("utf-8", "surrogatepass"), 0))
        if code == _LOWEST:  # as scikit-learn, whose integers have 32 bits
            return (2**31 - buckets) % buckets, True
        return abs(code) % buckets, code < 0

    return place
