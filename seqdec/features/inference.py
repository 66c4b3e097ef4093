"""The kind of a column by its values, and what is suspected of it: the first recognizer that fits."""

import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.features import values

MOSTLY = 0.8
"""Share of the distinct texts that look alike."""
NARROW = 0.3
"""A column is skewed if its middle half spans less than this part of a normal column's of equal deviation."""
_MIDDLE = 1.349
"""Interquartile range of a normal column, in standard deviations."""
_SEVERAL, _MANY = 10, 50
"""Distinct numbers of a skewed column, and rows of one whose identifiers are recognized."""
_CODE = re.compile(r"0\d+")
_NUMBER = re.compile(
    r"[-+(]?\s?[$€£¥₹]?\s?[-+]?(\d+|\d{1,3}([,.' \u00a0\u202f]\d{2,3})+)([.,]\d+)?(e[-+]?\d+)?\s?[%$€£¥₹]?\)?", re.I
)
_TIME = r"([ T,]+\d{1,2}:\d{2}.*)?"
_DAY = re.compile(rf"(\d{{1,2}})([./-])(\d{{1,2}})\2(\d{{4}}|\d{{2}}){_TIME}")
_YEAR_FIRST = re.compile(rf"\d{{4}}([./-])\d{{1,2}}\1\d{{1,2}}{_TIME}")
_MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[.,]?"
_NAMED_DAY = re.compile(
    rf"([a-z]+,? )?(\d{{1,2}}(st|nd|rd|th)?[ -]{_MONTH}|{_MONTH} \d{{1,2}}(st|nd|rd|th)?,?)[ -]\d{{2,4}}\b.*", re.I
)


class Seen:
    """The present values of a column."""

    def __init__(self, column: str, known: list[Any], max_levels: int) -> None:
        self.column, self.known, self.max_levels = column, known, max_levels
        self.families: dict[str | None, Any] = {}
        """of the values, with an example"""
        for value in known:
            self.families.setdefault(_family(value), value)

    @cached_property
    def texts(self) -> set[str]:
        """Distinct texts, without spaces around and without words for a missing number."""
        distinct = {value for value in self.known if isinstance(value, str)}
        return {text.strip() for text in distinct if not values.missing_number(text)}

    @cached_property
    def numbers(self) -> np.ndarray | None:
        """The numbers, also in texts unless there are codes such as "007"; None if others are among them."""
        if not self.families.keys() <= {"numeric", "bool", "text"} or self.families.keys() == {"bool"}:
            return None
        is_number = all(map(values.PLAIN.fullmatch, self.texts)) and not any(map(_CODE.fullmatch, self.texts))
        known = [value for value in self.known if not values.missing_number(value)] if is_number else []
        if not known or ("bool" in self.families and self.texts):
            return None
        with np.errstate(over="ignore"):
            return np.array([values.number(self.column, value) for value in known])

    @cached_property
    def whole(self) -> np.ndarray:
        """The numbers if all are integers, else none of them."""
        found = self.numbers
        return np.zeros(0) if found is None or (found != np.floor(found)).any() else found

    @property
    def source(self) -> str:
        """Where the numbers are."""
        if "text" not in self.families:
            return "numbers"
        absent = sorted({value for value in self.known if isinstance(value, str) and values.missing_number(value)})
        return f"plain numbers in text{f', {absent[0]!r} as missing' if absent else ''}"

    def most(self, *patterns: re.Pattern[str]) -> bool:
        """Whether most distinct texts match one of the patterns."""
        found = sum(any(pattern.fullmatch(text) for pattern in patterns) for text in self.texts)
        return self.families.keys() == {"text"} and found >= MOSTLY * len(self.texts) and found > 0

    @cached_property
    def entries(self) -> set[str]:
        """NumPy's kinds of the lists' entries."""
        return {_entries(value) for value in self.known if len(value)} if self.families.keys() == {"tags"} else set()


class Recognizer(NamedTuple):
    """A kind of column."""

    fits: Callable[[Seen], bool]
    kind: str
    why: str
    suspicion: str | Callable[[Seen], str] = ""
    """what a reader may not expect, and the remedy; formatted with `column`"""


def _is_skewed(seen: Seen) -> bool:
    numbers = seen.numbers
    if numbers is None or len(np.unique(numbers)) < _SEVERAL:
        return False
    low, high = np.quantile(numbers, (0.25, 0.75))
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(high - low < NARROW * _MIDDLE * np.std(numbers))


def _are_days(seen: Seen) -> bool:
    day = seen.whole
    month, year = day // 100 % 100, day // 10_000
    inside = (day % 100 >= 1) & (day % 100 <= 31) & (month >= 1) & (month <= 12) & (year >= 1900) & (year < 2100)
    return len(set(day)) > 1 and bool(inside.all())


def _are_seconds(seen: Seen) -> bool:
    count = seen.whole
    return len(set(count)) > 1 and any(
        count.min() >= 1e9 * unit and count.max() < 2e9 * unit for unit in (1, 1e3, 1e6, 1e9)
    )


def _are_row_numbers(seen: Seen) -> bool:
    count = seen.whole
    return len(count) >= _MANY and count.max() - count.min() == len(count) - 1 and len(set(count)) == len(count)


def _order_of_days(seen: Seen) -> str:
    """The remedy for texts that look like dates."""
    found = [match for text in seen.texts if (match := _DAY.fullmatch(text))]
    pairs = [(int(match[1]), int(match[3])) for match in found]
    fits = [all(pair[day] <= 12 for pair in pairs) for day in (True, False)]
    remedies = [
        f"pandas.to_datetime(table[{seen.column!r}], dayfirst={day})"
        for day, fit in zip((True, False), fits, strict=True)
        if fit and pairs
    ]
    remedy = " or ".join(remedies) or f"pandas.to_datetime(table[{seen.column!r}])"
    doubt = "both orders of day and month fit" if len(remedies) > 1 else "a date is text in ISO 8601"
    return f"its texts look like dates ({min(seen.texts)!r}): {doubt}; convert them with {remedy}"


def _numbers_in_text(seen: Seen) -> str:
    strange = min((text for text in seen.texts if not values.PLAIN.fullmatch(text)), default=min(seen.texts))
    return (
        f"its texts look like numbers ({strange!r}): read the file with pandas.read_csv(..., thousands=',') or "
        f"decimal=',', or convert them, as with "
        f"pandas.to_numeric(table[{seen.column!r}].str.replace('[$%,]', '', regex=True))"
    )


def _are_levels(seen: Seen) -> bool:
    """Whether text has few values, and no word for a missing number among them."""
    distinct = set(seen.known)
    return _of("text")(seen) and len(distinct) <= seen.max_levels and not any(map(values.missing_number, distinct))


def _is_date(text: str) -> bool:
    try:
        return "-" in text and bool(values.moment("", text))
    except (TypeError, ValueError):
        return False


def _of(*families: str) -> Callable[[Seen], bool]:
    return lambda seen: seen.families.keys() == {*families}


RECOGNIZERS = (
    Recognizer(
        _are_days,
        "numeric",
        "{source}",
        "its numbers look like dates, year, month and day: convert them with "
        "pandas.to_datetime(table[{column!r}], format='%Y%m%d')",
    ),
    Recognizer(
        _are_seconds,
        "numeric",
        "{source}",
        "its numbers look like times since 1970: convert them, as with pandas.to_datetime(table[{column!r}], unit='s')",
    ),
    Recognizer(
        _are_row_numbers,
        "numeric",
        "{source} that count the rows",
    ),
    Recognizer(
        lambda seen: seen.numbers is not None and _are_levels(seen),
        "categorical",
        "text with few distinct values",
        "its texts are numbers and are read as levels: kinds={{{column!r}: 'numeric'}} reads numbers",
    ),
    Recognizer(_is_skewed, "quantiles", "{source}, skewed: half of them are close together for their deviation"),
    Recognizer(lambda seen: seen.numbers is not None, "numeric", "{source}"),
    Recognizer(_of("bool"), "bool", "bools"),
    Recognizer(_of("date"), "date", "dates"),
    Recognizer(lambda seen: _of("text")(seen) and all(map(_is_date, seen.known)), "date", "text in ISO 8601"),
    Recognizer(lambda seen: seen.most(_DAY, _YEAR_FIRST, _NAMED_DAY), "categorical", "text", _order_of_days),
    Recognizer(
        lambda seen: seen.most(_NUMBER) and not all(text.isdecimal() for text in seen.texts),
        "categorical",
        "text",
        _numbers_in_text,
    ),
    Recognizer(
        lambda seen: _of("text")(seen) and len(set(seen.known)) <= seen.max_levels,
        "categorical",
        "text with few distinct values",
    ),
    Recognizer(
        lambda seen: _of("text")(seen) and 2 * sum(" " in text.strip() for text in seen.known) > len(seen.known),
        "text",
        "text, mostly of several words",
    ),
    Recognizer(
        lambda seen: _of("text")(seen) and len(seen.known) >= _MANY and len(set(seen.known)) == len(seen.known),
        "hashed",
        "text that differs in all rows, as identifiers do",
    ),
    Recognizer(_of("text"), "hashed", "text with many distinct values"),
    Recognizer(lambda seen: "f" in seen.entries and "U" not in seen.entries, "vector", "lists of numbers"),
    Recognizer(
        lambda seen: (
            bool(seen.entries)
            and seen.entries <= {*"iu"}
            and len({*map(len, seen.known), 1}) == 2
            and 1 not in map(len, seen.known)
        ),
        "tags",
        "lists of integers",
        "its lists of integers have one length and are read as tags: kinds={{{column!r}: 'vector'}} reads numbers",
    ),
    Recognizer(_of("tags"), "tags", "lists"),
)


def recognized(column: str, known: list[Any], max_levels: int) -> tuple[str, str, str]:
    """(kind, why, suspicion) of present values. Raises TypeError for values of no kind, or of several."""
    seen = Seen(column, known, max_levels)
    shown = ", ".join(f"{value!r:.40}" for value in seen.families.values())
    if None in seen.families:
        raise TypeError(
            f"column {column} holds values of no known kind ({shown}): convert them, as with str(), or leave the "
            "column out"
        )
    for one in RECOGNIZERS:
        if one.fits(seen):
            said = one.suspicion(seen) if callable(one.suspicion) else one.suspicion.format(column=column)
            return one.kind, one.why.format(source=seen.source), said
    raise TypeError(
        f"column {column} holds values of several kinds ({shown}): convert them, leave the column out, or name its "
        f"kind: kinds={{{column!r}: 'categorical'}}"
    )


def _family(value: Any) -> str | None:
    """The kind of one value, "text" for str; None if none accepts it."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | np.bool_):
        return "bool"
    if checks.is_number(value) or isinstance(value, Decimal):
        return "numeric"
    if isinstance(value, date | np.datetime64):
        return "date"
    return "tags" if isinstance(value, list | tuple | set | frozenset | np.ndarray) else None


def _entries(value: Any) -> str:
    try:
        return np.asarray(value).dtype.kind
    except ValueError:  # of lists in it
        return "O"
