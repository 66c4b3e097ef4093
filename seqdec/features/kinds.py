"""The kinds of columns by name, and which one the values of a column have."""

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np

from seqdec import checks
from seqdec.features import values
from seqdec.features.dates import Date
from seqdec.features.levels import Categorical, Hashed, HashedTags, Ordered, Tags
from seqdec.features.numeric import Bool, Numeric
from seqdec.features.text import Text
from seqdec.registry import unknown

Kind = Numeric | Bool | Date | Categorical | Hashed | Ordered | Text | Tags | HashedTags

KINDS: dict[str, type[Kind]] = {
    "numeric": Numeric,
    "bool": Bool,
    "date": Date,
    "categorical": Categorical,
    "hashed": Hashed,
    "ordered": Ordered,
    "text": Text,
    "tags": Tags,
    "hashed_tags": HashedTags,
}
"""By the names that `Encoder.fit` and JSON use."""

NAMES = {kind: name for name, kind in KINDS.items()}


def fitted(column: str, kind: str | None, known: list[Any], *, max_levels: int, buckets: int) -> Kind:
    """A kind fitted to the values of a column that are not missing; None chooses it.

    Levels beyond `max_levels` are hashed.

    Raises:
        TypeError: values of another kind.
        ValueError: an unknown kind, or no values for a kind that needs some.
    """
    if kind is not None and not (isinstance(kind, str) and kind in KINDS):
        raise ValueError(unknown(f"kind of column {column}", kind, KINDS))
    if not known and kind not in ("bool", "hashed", "text", "hashed_tags"):
        raise ValueError(
            f"column {column} has only missing values: leave it out, or declare it, as with Numeric(mean=0, std=1)"
        )
    chosen = KINDS[kind or _kind_of(column, known, max_levels)]
    if issubclass(chosen, Hashed | HashedTags | Text):
        return chosen(buckets)
    found = chosen.fit(column, known)
    if isinstance(found, Categorical | Tags) and not 0 < len(found.levels) <= max_levels:
        return Hashed(buckets) if isinstance(found, Categorical) else HashedTags(buckets)
    return found


def _kind_of(column: str, known: list[Any], max_levels: int) -> str:
    """The kind that all values have. Raises TypeError where they have several, or none."""
    found = {_family(value) for value in known}
    if found == {"bool", "numeric"}:
        found = {"numeric"}
    if len(found) > 1 or None in found:
        first = {}
        for value in known:
            first.setdefault(_family(value), value)
        shown = ", ".join(f"{value!r:.40}" for value in first.values())
        if None in found:
            raise TypeError(
                f"column {column} holds values of no known kind ({shown}): convert them, as with str(), or leave the "
                "column out"
            )
        raise TypeError(
            f"column {column} holds values of several kinds ({shown}): convert them, leave the column out, or name its "
            f"kind: kinds={{{column!r}: 'categorical'}}"
        )
    (family,) = found
    if family != "text":
        return str(family)
    if all(_is_date(text) for text in known):
        return "date"
    if len({str(text) for text in known}) <= max_levels:
        return "categorical"
    return "text" if 2 * sum(" " in text.strip() for text in known) > len(known) else "hashed"


def _family(value: Any) -> str | None:
    """The kind of one value, "text" for every str; None for what no kind accepts."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, bool | np.bool_):
        return "bool"
    if checks.is_number(value) or isinstance(value, Decimal):
        return "numeric"
    if isinstance(value, date | np.datetime64):
        return "date"
    return "tags" if isinstance(value, list | tuple | set | frozenset | np.ndarray) else None


def _is_date(text: str) -> bool:
    """Whether a text is a date with a dash: digits alone are more often a number."""
    try:
        return "-" in text and bool(values.moment("", text))
    except (TypeError, ValueError):
        return False
