"""The present values of a column, before its kind is known."""

import re
from datetime import date
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np

from seqdec.boundary import checks
from seqdec.features import values

_CODE = re.compile(r"0\d+")


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
        return "numbers" if "text" not in self.families else f"plain numbers in text{self.absent}"

    @property
    def absent(self) -> str:
        """What stands for a missing value."""
        found = sorted({value for value in self.known if isinstance(value, str) and values.missing_number(value)})
        return f", {found[0]!r} as missing" if found else ""

    @cached_property
    def lists(self) -> list[np.ndarray]:
        """The lists of numbers in texts; none if others are among them."""
        is_list = self.families.keys() == {"text"} and all(map(values.LIST.fullmatch, self.texts))
        return [values.vector(self.column, text) for text in self.texts] if is_list else []

    @property
    def table(self) -> str:
        """The column, in code."""
        return f"table[{self.column!r}]"

    def like(self, *patterns: re.Pattern[str]) -> list[str]:
        """The distinct texts that match one of the patterns."""
        return [text for text in self.texts if any(pattern.fullmatch(text) for pattern in patterns)]

    def most(self, *patterns: re.Pattern[str], share: float = 0.5) -> bool:
        """Whether more than a share of the distinct texts match one of the patterns."""
        return self.families.keys() == {"text"} and len(self.like(*patterns)) > share * len(self.texts)

    def coerced(self, alike: list[str]) -> str:
        """What lets pandas take other cells for missing ones, if there are any."""
        others = {value.strip() for value in self.known if isinstance(value, str)} - {*alike}
        return ", errors='coerce'" if others else ""

    @cached_property
    def entries(self) -> set[str]:
        """NumPy's kinds of the lists' entries."""
        return {_entries(value) for value in self.known if len(value)} if self.families.keys() == {"tags"} else set()


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
