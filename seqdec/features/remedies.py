"""Columns that may have been misread, and the pandas code that reads them correctly."""

import ast
import re

from seqdec.features import values
from seqdec.features.seen import Seen

_SPACES = "' \u00a0\u202f"
NUMBER = re.compile(
    r"[-+(]?\s?[$€£¥₹]?\s?[-+]?(\d+|\d{1,3}([,.' \u00a0\u202f]\d{2,3})+)([.,]\d+)?(e[-+]?\d+)?\s?[%$€£¥₹]?\)?", re.I
)
NOT_WHOLE = re.compile(rf"(?=.*\D){NUMBER.pattern}", re.I)
_SIGNS = "%$€£¥₹"
_DECIMAL = {
    sign: re.compile(
        rf"[-+]*(\d*|\d{{1,3}}([{other}{_SPACES}]\d{{2,3}})*[{other}{_SPACES}]\d{{3}})([{sign}]\d*)?(e[-+]?\d+)?", re.I
    )
    for sign, other in (".,", ",.")
}
"""Numbers with this decimal sign, perhaps in groups of digits."""
BRACKETS = re.compile(r"\[.*\]|\(.*,\s.*\)", re.S)
_TIME = r"([ T,]+\d{1,2}:\d{2}.*)?"
_DAY = re.compile(rf"(\d{{1,2}})([./-])(\d{{1,2}})\2(\d{{4}}|\d{{2}}){_TIME}")
_YEAR_FIRST = re.compile(rf"\d{{4}}([./-])\d{{1,2}}\1\d{{1,2}}{_TIME}")
_MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*[.,]?"
_NAMED_DAY = re.compile(
    rf"([a-z]+,? )?(\d{{1,2}}(st|nd|rd|th)?[ -]{_MONTH}|{_MONTH} \d{{1,2}}(st|nd|rd|th)?,?)[ -]\d{{2,4}}\b.*", re.I
)
DATES = (_DAY, _YEAR_FIRST, _NAMED_DAY)


def unit_of(seen: Seen) -> str:
    """The unit in which numbers look like times since 1970, or none."""
    count = seen.whole
    units = {"s": 1e9, "ms": 1e12, "us": 1e15, "ns": 1e18}
    fits = [
        unit for unit, start in units.items() if len(set(count)) > 1 and start <= count.min() <= count.max() < 2 * start
    ]
    return fits[0] if fits else ""


def seconds(seen: Seen) -> str:
    """The remedy for numbers with a `unit_of` time."""
    numbers = _numbers(seen) if "text" in seen.families else seen.table
    remedy = f"pandas.to_datetime({numbers}, unit={unit_of(seen)!r})"
    return f"its numbers look like times since 1970: convert them with {remedy}"


def days(seen: Seen) -> str:
    """The remedy for numbers such as 20240501."""
    return (
        "its numbers look like dates, year, month and day: convert them with "
        f"pandas.to_datetime({_numbers(seen)}.astype('Int64').astype('string'), format='%Y%m%d')"
    )


def _numbers(seen: Seen) -> str:
    """Code for plain numbers, perhaps in text."""
    return f"pandas.to_numeric({seen.table}{seen.coerced(seen.like(values.PLAIN))})"


def dates_in_text(seen: Seen) -> str:
    """Which order of day and month fits, and the remedy."""
    pairs = [(int(match[1]), int(match[3])) for text in seen.texts if (match := _DAY.fullmatch(text))]
    orders = [day for day in (True, False) if pairs and all(pair[not day] <= 31 and pair[day] <= 12 for pair in pairs)]
    alike = seen.like(*DATES)
    remedies = [
        f"pandas.to_datetime({seen.table}, format='mixed'{order}, utc=True{seen.coerced(alike)})"
        for order in ([f", dayfirst={day}" for day in orders] or [""])
    ]
    doubt = "both orders of day and month fit" if len(orders) > 1 else "a date is text in ISO 8601"
    return f"its texts look like dates ({min(alike)!r}): {doubt}; convert them with {' or '.join(remedies)}"


def numbers_in_text(seen: Seen) -> str:
    """Which decimal signs fit, and the remedy."""
    alike = seen.like(NUMBER, values.PLAIN)
    strange = min((text for text in seen.texts if not values.PLAIN.fullmatch(text)), default=min(seen.texts))
    said = f"its texts look like numbers ({strange!r})"
    cores = [re.sub(rf"[{_SIGNS})]", "", text).replace("(", "-").strip() for text in alike]
    signs = [sign for sign, pattern in _DECIMAL.items() if all(map(pattern.fullmatch, cores))]
    if len({*_SIGNS} & {*"".join(alike)}) > 1 or not signs:
        return f"{said}, with several {'units' if signs else 'decimal signs'}: convert them to numbers of one kind"
    if not any({*core} & {*",."} for core in cores):
        del signs[1:]
    remedies = [f"pandas.to_numeric({_stripped(seen.table, alike, sign)}{seen.coerced(alike)})" for sign in signs]
    doubt = "a comma or point may stand before decimals or thousands; " if len(signs) > 1 else ""
    return f"{said}: {doubt}convert them with {' or '.join(remedies)}"


def _stripped(column: str, texts: list[str], sign: str) -> str:
    """Code for the texts of a column with nothing but plain numbers."""
    characters = {*"".join(texts)}
    negative = ".str.replace('(', '-')" if "(" in characters else ""
    others = "".join(sorted(characters - {*f"0123456789eE+-({sign}"}))
    removed = f".str.replace({f'[{others}]'!r}, '', regex=True)" if others else ""
    point = ".str.replace(',', '.')" if sign == "," else ""
    return f"{column}{negative}{removed}{point}"


def lists_in_text(seen: Seen) -> str:
    """The remedy for texts in brackets."""
    alike = seen.like(BRACKETS)
    said = f"its texts look like lists ({min(alike)!r:.60})"
    lists = seen.table
    if seen.coerced(alike):
        lists += f".where({seen.table}.str.startswith(('[', '('), na=False))"
    if all(map(values.LIST.fullmatch, alike)):
        if len({len(values.vector(seen.column, text)) for text in alike}) > 1:
            return f"{said} of several lengths: convert them to lists of one length"
        if lists == seen.table:
            return f"{said}: kinds={{{seen.column!r}: 'vector'}} reads numbers"
        return f"{said}: convert them with {lists}"
    if all(map(_is_literal, alike)):
        return f"{said}: convert them with {lists}.map(ast.literal_eval, na_action='ignore')"
    return f"{said}: convert them to lists"


def _is_literal(text: str) -> bool:
    try:
        return isinstance(ast.literal_eval(text), list | tuple)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
