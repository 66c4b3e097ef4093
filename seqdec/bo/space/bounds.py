"""Spaces from bounds in any of the usual forms."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from seqdec.bo.space import constraints as rules
from seqdec.bo.space import containers, nesting
from seqdec.bo.space.dimensions import Constant, Dimension, Integer, Real
from seqdec.bo.space.spaces import Condition, Space
from seqdec.registry import spelled_fields, unknown

_COLUMNS = ("number", "state", "value", "reason", "seconds")
"""Columns of the table of trials that are no parameters."""


@spelled_fields
class Conditional(NamedTuple):
    """A parameter of a space with names that is active only where another parameter has given values.

    Where the other parameter is inactive, so is this one.
    """

    dimension: Dimension
    """Dimension of the parameter where it is active."""
    on: str
    """Name of the other parameter, which is an Integer, an Ordinal or a Categorical; in nested dicts one of the same
    dict, else of an enclosing dict."""
    values: tuple[Any, ...]
    """Values of the other parameter for which this one is active."""


def space_from(bounds: Any, constraints: Any = ()) -> Space:
    """A space from bounds in any of the usual forms.

    Args:
        bounds: a Space; a list, an array, a table or an iterator of (low, high) pairs, Real, Integer, Ordinal and
            Categorical; a dict from names to these, to Conditional and to further such dicts; a
            `scipy.optimize.Bounds`; a bounded `gymnasium.spaces.Box`; a `gymnasium.spaces.Discrete`. A dimension of
            one value is a constant, which every point has.
        constraints: Linear, and functions (x) -> bool, all of which hold at every point. Those of a Space stay.

    Raises:
        ValueError: bounds that are reversed, infinite, too wide for a float or empty, no choices or equal ones; the
            message names the dimension. A name that is reserved, a condition on an unknown parameter, on a Real, on
            values it does not have or in a circle; an impossible constraint; two parameters of one name.
        TypeError: anything else.
    """
    space = _space(bounds)
    kept = bounds.constraints if isinstance(bounds, Space) else ()
    return space._replace(constraints=rules.check((*kept, *rules.listed(constraints)), space.keys, space.dimensions))


def _space(bounds: Any) -> Space:
    """The space without its constraints."""
    if isinstance(bounds, Mapping):
        return _nested(bounds)
    if isinstance(bounds, Space) and bounds.names:
        return _named(_declared(bounds))._replace(paths=bounds.paths)
    if isinstance(bounds, Space):
        dimensions = bounds.dimensions
    elif isinstance(bounds, gymnasium.spaces.Discrete):
        dimensions = (Integer(int(bounds.start), int(bounds.start + bounds.n - 1)),)
    elif isinstance(bounds, gymnasium.spaces.Box):
        kind = Integer if np.issubdtype(bounds.dtype, np.integer) else Real
        dimensions = tuple(kind(*pair) for pair in zip(bounds.low.ravel(), bounds.high.ravel(), strict=True))
    elif (entries := _entries(bounds)) is not None:
        dimensions = tuple(_dimension(entry, f"bounds[{i}]") for i, entry in enumerate(entries))
    else:
        dimensions = _scipy_dimensions(bounds)
    if not dimensions:
        raise ValueError("bounds must have at least one dimension; got none")
    return Space(_columned([dimension.checked(f"bounds[{i}]") for i, dimension in enumerate(dimensions)]))


def _columned(dimensions: Sequence[Dimension]) -> tuple[Dimension, ...]:
    """The dimensions, of which a Constant has a column only where no other dimension has."""
    first, *rest = (d._replace(width=0) if isinstance(d, Constant) else d for d in dimensions)
    if isinstance(first, Constant) and not any(d.width for d in rest):
        first = first._replace(width=1)
    return (first, *rest)


def _entries(bounds: Any) -> list[Any] | None:
    """The dimensions of bounds without names, in a container or the rows of a table; None for anything else."""
    if isinstance(bounds, Dimension | Conditional):
        return None
    rows = containers.table(bounds)
    return containers.sequence(bounds) if rows is None else [[*row.values()] for row in rows]


def _nested(bounds: Mapping[Any, Any]) -> Space:
    """The space of parameters in nested dicts, or in one."""
    entries = nesting.entries(bounds)
    names = [nesting.name_of(path) for path in entries]
    declared = {
        name: entry._replace(on=nesting.resolved(entry.on, path, names)) if isinstance(entry, Conditional) else entry
        for name, (path, entry) in zip(names, entries.items(), strict=True)
    }
    return _named(declared)._replace(paths=tuple(entries) if any(len(path) > 1 for path in entries) else ())


def _named(declared: Mapping[str, Any]) -> Space:
    """The space of parameters by name."""
    for name in declared:
        if name in _COLUMNS:
            raise ValueError(name_of_a_column(name))
    names = tuple(declared)
    bare = [entry.dimension if isinstance(entry, Conditional) else entry for entry in declared.values()]
    labels = [f"bounds[{name!r}]" for name in names]
    dimensions = [_dimension(entry, label).checked(label) for entry, label in zip(bare, labels, strict=True)]
    by_name = dict(zip(names, dimensions, strict=True))
    conditions = tuple(
        _condition(entry, label, by_name) if isinstance(entry, Conditional) else None
        for entry, label in zip(declared.values(), labels, strict=True)
    )
    _check_circles(names, conditions)
    return Space(_columned(dimensions), names, conditions)


def name_of_a_column(name: str) -> str:
    """The message for a parameter whose name is that of a column of the table of trials."""
    return f"bounds: the name {name!r} is that of a column of the table of trials: choose another"


def _declared(space: Space) -> dict[str, Any]:
    """The dict from which a space with names is made."""
    if len(space.names) != len(space.dimensions):
        raise ValueError(f"a space has a name for each of its {len(space.dimensions)} dimensions; got {space.names!r}")
    if len(set(space.names)) < len(space.names):
        raise ValueError(f"the names of a space must differ; got {space.names!r}")
    conditions = space.conditions or (None,) * len(space.dimensions)
    return {
        name: dimension if c is None else Conditional(dimension, space.names[c.parent], c.values)
        for name, dimension, c in zip(space.names, space.dimensions, conditions, strict=True)
    }


def _condition(entry: Conditional, label: str, by_name: Mapping[str, Dimension]) -> Condition:
    """The condition of a parameter. Raises ValueError or TypeError."""
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
    """Raises ValueError where a condition leads back to its own parameter."""
    for index in range(len(names)):
        path = [index]
        while condition := conditions[path[-1]]:
            path.append(condition.parent)
            if path.count(condition.parent) > 1:
                circle = " -> ".join(names[i] for i in path)
                raise ValueError(f"the conditions of the bounds form a circle, {circle}: remove one of them")


def _scipy_dimensions(bounds: Any) -> tuple[Dimension, ...]:
    """The dimensions of scipy's Bounds. Raises TypeError for anything else."""
    from scipy.optimize import Bounds

    if not isinstance(bounds, Bounds):
        raise TypeError(
            "bounds must be a sequence of (low, high) pairs or of Real, Integer, Ordinal and Categorical, a dict from "
            f"names to these, scipy Bounds, or a gymnasium Box or Discrete; got {bounds!r}"
        )
    pairs = np.broadcast_arrays(np.atleast_1d(bounds.lb), np.atleast_1d(bounds.ub))
    return tuple(Real(*pair) for pair in zip(*pairs, strict=True))


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
