"""The kind of a column by its values, and possible misreadings: the first recognizer that fits."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from seqdec.features import values
from seqdec.features.remedies import (
    BRACKETS,
    DATES,
    NOT_WHOLE,
    NUMBER,
    dates_in_text,
    days,
    lists_in_text,
    numbers_in_text,
    seconds,
    unit_of,
)
from seqdec.features.seen import Seen

_MOSTLY = 0.8
"""Share of the distinct texts that are numbers, if they may be codes."""
NARROW = 0.3
"""A column is skewed if its middle half spans less than this part of a normal column's of equal deviation."""
_MIDDLE = 1.349
"""Interquartile range of a normal column, in standard deviations."""
_SEVERAL, _MANY = 10, 50
"""Distinct numbers of a skewed column, and rows of one whose identifiers are recognized."""


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


def _are_row_numbers(seen: Seen) -> bool:
    count = seen.whole
    return len(count) >= _MANY and count.max() - count.min() == len(count) - 1 and len(set(count)) == len(count)


def _are_levels(seen: Seen) -> bool:
    """Whether text has few values, and no word for a missing number among them."""
    distinct = set(seen.known)
    return _of("text")(seen) and len(distinct) <= seen.max_levels and not any(map(values.missing_number, distinct))


def _is_date(text: str) -> bool:
    try:
        return values.missing_number(text) or ("-" in text and bool(values.moment("", text)))
    except (TypeError, ValueError):
        return False


def _of(*families: str) -> Callable[[Seen], bool]:
    return lambda seen: seen.families.keys() == {*families}


RECOGNIZERS = (
    Recognizer(
        _are_days,
        "numeric",
        "{source}",
        days,
    ),
    Recognizer(
        lambda seen: bool(unit_of(seen)),
        "numeric",
        "{source}",
        seconds,
    ),
    Recognizer(
        _are_row_numbers,
        "numeric",
        "{source} that count the rows",
    ),
    Recognizer(
        lambda seen: len(seen.whole) > 0 and f"_{seen.column}".lower().replace(" ", "_").endswith("_id"),
        "numeric",
        "{source}",
        "its name says that its numbers are identifiers: leave it out, or read them as levels by "
        "kinds={{{column!r}: 'categorical'}}, or 'hashed' if they are many",
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
    Recognizer(
        lambda seen: _of("text")(seen) and bool(seen.texts) and all(map(_is_date, seen.known)),
        "date",
        "text in ISO 8601{absent}",
    ),
    Recognizer(lambda seen: seen.most(*DATES), "categorical", "text", dates_in_text),
    Recognizer(
        lambda seen: len({*map(len, seen.lists)}) == 1 and any("." in text for text in seen.texts),
        "vector",
        "lists of numbers in text{absent}",
    ),
    Recognizer(
        lambda seen: (
            (seen.most(NUMBER, share=_MOSTLY) and not all(text.isdecimal() for text in seen.texts))
            or seen.most(NOT_WHOLE)
        ),
        "categorical",
        "text",
        numbers_in_text,
    ),
    Recognizer(lambda seen: seen.most(BRACKETS), "categorical", "text", lists_in_text),
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
            f"column {column} has values of no known kind ({shown}): convert them, as with str(), or leave the "
            "column out"
        )
    for one in RECOGNIZERS:
        if one.fits(seen):
            said = one.suspicion(seen) if callable(one.suspicion) else one.suspicion.format(column=column)
            return one.kind, one.why.format(source=seen.source, absent=seen.absent), said
    raise TypeError(
        f"column {column} has values of several kinds ({shown}): convert them, leave the column out, or name its "
        f"kind: kinds={{{column!r}: 'categorical'}}"
    )
