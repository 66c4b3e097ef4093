"""Spaces from bounds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np

from seqdec.bo.space import constraints as rules
from seqdec.bo.space import containers
from seqdec.bo.space.dimensions import Constant, Dimension, Integer, Real
from seqdec.bo.space.space import Condition, Path, Space
from seqdec.registry import unknown

_COLUMNS = ("number", "state", "value", "reason", "seconds")
"""Columns of the trials' table but the parameters."""


@dataclass(frozen=True)
class Conditional:
    """A named parameter, active only where another, active one has given values."""

    dimension: Dimension
    """The dimension of the parameter where it is active."""
    on: str
    """Name of the other parameter, an Integer, an Ordinal or a Categorical; in nested dicts of the same or an enclosing
    dict.
    """
    values: tuple[Any, ...]
    """Values of the other parameter for which this one is active."""


def space_from(bounds: Any, constraints: Any = ()) -> Space:
    """A space from bounds in any of the usual forms.

        >>> from seqdec.bo import Integer, space_from
        >>> space_from({"rate": (1e-4, 1.0), "width": Integer(1, 9)}).names
        ('rate', 'width')

    Args:
        bounds: a Space; a list, an array or a table of (low, high) pairs, Real, Integer, Ordinal and Categorical; a
            dict from names to these, to Conditional and to further such dicts; a `scipy.optimize.Bounds`; a bounded
            gymnasium Box or Discrete. One value is a constant.
        constraints: Linear, and functions (x) -> bool, all of which hold at every point.

    Raises:
        ValueError, TypeError: bounds or constraints do not fit; the message names the dimension.
    """
    space = _space(bounds)
    found = rules.checked(constraints, space.keys, space.dimensions)
    return replace(space, constraints=(bounds.constraints if isinstance(bounds, Space) else ()) + found)


def _space(bounds: Any) -> Space:
    if isinstance(bounds, Space):
        labels = [f"bounds[{key!r}]" for key in bounds.keys]
        checked = (one.checked(label) for one, label in zip(bounds.dimensions, labels, strict=True))
        return replace(bounds, dimensions=_columned([*checked]), constraints=())
    if isinstance(bounds, Mapping):
        return _nested(bounds)
    if isinstance(bounds, gymnasium.spaces.Discrete):
        dimensions = [Integer(int(bounds.start), int(bounds.start + bounds.n - 1))]
    elif isinstance(bounds, gymnasium.spaces.Box):
        kind = Integer if np.issubdtype(bounds.dtype, np.integer) else Real
        dimensions = [kind(*pair) for pair in zip(bounds.low.ravel(), bounds.high.ravel(), strict=True)]
    elif (entries := _entries(bounds)) is not None:
        dimensions = [_dimension(entry, f"bounds[{i}]") for i, entry in enumerate(entries)]
    else:
        dimensions = _scipy_dimensions(bounds)
    if not dimensions:
        raise ValueError("bounds must have at least one dimension; got none")
    return Space(_columned([dimension.checked(f"bounds[{i}]") for i, dimension in enumerate(dimensions)]))


def _columned(dimensions: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """If all are constant, the first has a column."""
    first, *rest = dimensions
    if isinstance(first, Constant) and all(isinstance(d, Constant) for d in rest):
        first = replace(first, columns=1)
    return (first, *rest)


def _entries(bounds: Any) -> list[Any] | None:
    """Without names; None for anything else."""
    rows = containers.table(bounds)
    return containers.sequence(bounds) if rows is None else [[*row.values()] for row in rows]


def _nested(bounds: Mapping[Any, Any]) -> Space:
    by_path = _by_path(bounds)
    declared = {".".join(path): entry for path, entry in by_path.items()}
    if twice := [name for name in declared if [".".join(path) for path in by_path].count(name) > 1]:
        raise ValueError(f"bounds hold two parameters with the name {twice[0]!r}: rename one of them")
    names = tuple(declared)
    for path, name in zip(by_path, names, strict=True):
        if name in _COLUMNS:
            raise ValueError(name_of_a_column(name))
        if isinstance(entry := declared[name], Conditional):  # the condition is on a name there, else in a dict around
            scopes = (".".join((*path[:depth], entry.on)) for depth in range(len(path) - 1, -1, -1))
            declared[name] = replace(entry, on=next((full for full in scopes if full in names), entry.on))
    by_name = {
        name: _dimension(getattr(entry, "dimension", entry), label).checked(label)
        for name, entry in declared.items()
        if (label := f"bounds[{name!r}]")
    }
    conditions = tuple(
        _condition(entry, f"bounds[{name!r}]", by_name) if isinstance(entry, Conditional) else None
        for name, entry in declared.items()
    )
    _check_circles(names, conditions)
    paths = tuple(by_path) if any(len(path) > 1 for path in by_path) else ()
    return Space(_columned([*by_name.values()]), names, conditions, paths=paths)


def _by_path(declared: Mapping[Any, Any], above: Path = ()) -> dict[Path, Any]:
    if not declared:
        raise ValueError(f"bounds{''.join(f'[{key!r}]' for key in above)} must have at least one dimension; got none")
    found: dict[Path, Any] = {}
    for key, entry in declared.items():
        if not isinstance(key, str) or not key:
            raise TypeError(f"the names of bounds must be strings, not empty; got {key!r}")
        path = (*above, str(key))
        found |= _by_path(entry, path) if isinstance(entry, Mapping) else {path: entry}
    return found


def name_of_a_column(name: str) -> str:
    """The message for a parameter named as a column of the table."""
    return f"bounds: the name {name!r} is a column of the table of trials: choose another"


def _condition(entry: Conditional, label: str, by_name: Mapping[str, Dimension]) -> Condition:
    if entry.on not in by_name:
        raise ValueError(f"{label}: the condition is on {unknown('parameter', entry.on, by_name)}")
    parent = by_name[entry.on]
    if parent.continuous:
        raise ValueError(f"{label}: the condition is on {entry.on!r}, a Real; use an Integer, Ordinal or Categorical")
    if not (given := containers.sequence(entry.values)):
        raise TypeError(f"{label}: the values of the condition must be a tuple, not empty; got {entry.values!r}")
    values = (parent.value(value, f"{label}: {entry.on!r}") for value in given)
    return Condition(list(by_name).index(entry.on), tuple(values))


def _check_circles(names: Sequence[str], conditions: Sequence[Condition | None]) -> None:
    for index in range(len(names)):
        path = [index]
        while condition := conditions[path[-1]]:
            path.append(condition.parent)
            if path.count(condition.parent) > 1:
                circle = " -> ".join(names[i] for i in path)
                raise ValueError(f"the conditions of the bounds form a cycle, {circle}: remove one of them")


def _scipy_dimensions(bounds: Any) -> list[Dimension]:
    from scipy.optimize import Bounds

    if not isinstance(bounds, Bounds):
        raise TypeError(
            "bounds must be a sequence of (low, high) pairs or of Real, Integer, Ordinal and Categorical, a dict from "
            f"names to these, scipy Bounds, or a gymnasium Box or Discrete; got {bounds!r}"
        )
    pairs = np.broadcast_arrays(np.atleast_1d(bounds.lb), np.atleast_1d(bounds.ub))
    return [Real(*pair) for pair in zip(*pairs, strict=True)]


def _dimension(entry: Any, label: str) -> Dimension:
    if isinstance(entry, Dimension):
        return entry
    if isinstance(entry, Conditional):
        raise TypeError(f"{label} is a Conditional: conditions need names, so give the bounds as a dict")
    pair = containers.sequence(entry) or []
    if len(pair) != 2:
        raise TypeError(
            f"{label} must be a pair (low, high), a Real, an Integer, an Ordinal or a Categorical; got {entry!r}"
        )
    return Real(pair[0], pair[1])
