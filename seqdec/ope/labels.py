"""Labels of actions: what joins a column, a mask or a policy to the actions of a log."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqdec.boundary import checks
from seqdec.boundary.tables import frame
from seqdec.rows import refuse

_NUMERAL = re.compile(r"(0|-?[1-9][0-9]*)(\.0)?")
_EXACT = 2**53
Label = str | int
"""Name of an action."""


def by_action(name: str, table: Any, labels: Sequence[Label]) -> Any:
    """`table` with columns in the order of the actions' labels by name, or as they are where they are numbered from 0.

    Raises ValueError for columns of other names.
    """
    if not hasattr(table, "columns"):
        return table
    columns = frame(table).to_pandas()
    found, wanted = list(map(str, columns.columns)), list(map(str, labels))
    if sorted(found) == sorted(wanted):
        places = {label: place for place, label in enumerate(found)}
        return columns.iloc[:, [places[label] for label in wanted]]
    if found != list(map(str, range(len(wanted)))) or not set(found).isdisjoint(wanted):
        raise ValueError(
            f"{name} must have a column for each action, {shown(labels)}; got {shown(found)}: name the columns or the "
            "actions alike, or pass numbers without names in that order, as by to_numpy()"
        )
    return columns


def labeled(values: Any, names: Sequence[Label] | None, count: int | None = None) -> tuple[np.ndarray, Sequence[Label]]:
    """(n,) places of actions among their labels, and the labels (k,), a range for indices.

    Labels are the given ones, else the categories, else what occurs, sorted. Integers are labels, unless they are 0 to
    n - 1, or lie below a `count` of actions that something else numbers.
    """
    if not len(values):
        raise ValueError("column action: a log needs at least one row; got none")
    try:
        codes, found = _factorized(values)
    except TypeError as error:
        raise ValueError(f"column action: some values are neither text nor integers ({error})") from error
    cells = [_label(cell) for cell in found]

    def check(right: list[bool], remedy: str) -> None:
        refuse("action", ~np.array([*right, False])[codes], np.asarray(values), remedy)

    texts, known = [isinstance(cell, str) for cell in cells], checked_names(names)
    if known is None and hasattr(values, "cat"):
        known = checked_names([_label(level) for level in values.cat.categories])
    if known is None and any(texts):
        check(texts, "it is not the name of an action, as others are")
        cells = as_integers(cells)
        known = None if isinstance(cells[0], int) else tuple(sorted(cells))
    if known is None:
        check(
            [isinstance(cell, int) for cell in cells],
            "actions must be integers, or names: number them, or drop the row",
        )
        known = tuple(sorted(set(cells)))
        if count is not None and (known[0] == 0 or known[-1] < count):
            outside = f"actions count from 0 to {count - 1}: pass num_actions, or renumber"
            check([0 <= cell < count for cell in cells], outside)
            known = range(count)
    if tuple(known) == tuple(range(len(known))):
        known = range(len(known))
    places = {str(label): place for place, label in enumerate(known)}
    if not any(str(cell) in places for cell in cells):  # indices of the names
        cells = [
            known[cell] if isinstance(cell, int) and 0 <= cell < len(known) else cell for cell in as_integers(cells)
        ]
    at = [places.get(str(cell), -1) for cell in cells]
    check([place >= 0 for place in at], f"it is not an action; they are {', '.join(map(str, known[:12]))}")
    return np.array(at, np.int64)[codes], known


def _factorized(values: Any) -> tuple[np.ndarray, list[Any]]:
    """(n,) places of the cells of an array or Series among those that differ, and these."""
    if not isinstance(values, np.ndarray):
        import pandas as pd

        codes, found = pd.factorize(values)
        return codes, found.tolist()
    if values.dtype == object:
        places: dict[Any, int] = {}
        return np.array([places.setdefault(cell, len(places)) for cell in values]), list(places)
    found, codes = np.unique(values, return_inverse=True)
    return codes, found.tolist()


def _label(cell: Any) -> Any:
    """Text, or an integer where the cell is a whole number."""
    if isinstance(cell, str):
        return str(cell)
    try:
        number = int(cell)
    except (TypeError, ValueError, OverflowError):
        return cell
    return number if number == cell and (not isinstance(cell, float) or abs(cell) < _EXACT) else cell


def as_integers(labels: Sequence[Any]) -> Sequence[Any]:
    """Integers, if all are integers or numerals of them."""
    matches = [_NUMERAL.fullmatch(str(label)) for label in labels]
    return [int(match[1]) for match in matches if match] if all(matches) else labels


def checked_names(names: Sequence[Label] | None) -> tuple[Label, ...] | None:
    """Labels of actions: texts and integers that differ."""
    if names is None:
        return None
    kind = "a list of texts or integers"
    given = checks.ordered("action_names", names, kind)
    known = tuple(map(_label, given))
    if not known or not all(isinstance(name, str | int) for name in known):
        raise TypeError(f"action_names must be {kind}; got {names!r:.80}")
    if len(set(map(str, known))) < len(known):
        raise ValueError(f"action_names must differ, also as text; got {names!r:.200}")
    return known


def shown(names: Sequence[Any]) -> str:
    """A list of names, shortened."""
    return ", ".join(map(repr, names[:12])) + f" and {len(names) - 12} more" * (len(names) > 12)
