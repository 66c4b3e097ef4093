"""The domain of the function: dimensions, with or without names, and their encoding in the unit cube of the surrogates.

A point of dimensions without names is a list or an array, of those with names a dict. A parameter with a name may be
active at some points only: elsewhere it is absent from the dict, and its columns of the cube are constant.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from seqdec.bo import constraints as rules
from seqdec.bo import containers
from seqdec.bo import dimensions as kinds
from seqdec.bo.constraints import Constraint
from seqdec.bo.dimensions import Dimension, Integer, Real
from seqdec.registry import spelled_fields, unknown

_COLUMNS = ("number", "state", "value", "reason", "seconds")
"""Columns of the table of trials that are no parameters."""


@spelled_fields
class Conditional(NamedTuple):
    """A parameter of a space with names that is active only where another has one of some values.

    Where that parameter is inactive itself, so is this one.
    """

    dimension: Dimension
    """Of the parameter, where it is active."""
    on: str
    """name of the other parameter, which is an Integer, an Ordinal or a Categorical"""
    values: tuple[Any, ...]
    """Of the other parameter, for which this one is active."""


class Condition(NamedTuple):
    """A checked condition."""

    parent: int
    """index of the parameter that decides"""
    values: tuple[Any, ...]
    """its values where the parameter is active"""


class Point(NamedTuple):
    """A point of a space in both representations."""

    x: Any
    """a read-only numpy array where all dimensions are Real and without names, else a list, or a dict with names"""
    unit: np.ndarray
    """(columns,) of the unit cube, read-only"""


class Space(NamedTuple):
    """A product of dimensions, and what restricts it.

    A point has one value for each dimension: it is a list, or a numpy array where all are Real. With names it is a dict
    of the active parameters.
    """

    dimensions: tuple[Dimension, ...]
    """In the order of the values of a point."""
    names: tuple[str, ...] = ()
    """of the dimensions; empty where points are lists"""
    conditions: tuple[Condition | None, ...] = ()
    """for each dimension with a name, what makes it active"""
    constraints: tuple[Constraint, ...] = ()
    """what holds at every point"""

    def __eq__(self, other: object) -> bool:
        """Whether all is equal, kinds included: a Real and an Integer of equal limits are equal as tuples."""
        return isinstance(other, Space) and tuple(self) == tuple(other) and self._kinds == other._kinds

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self._kinds, self.dimensions, self.names))

    @property
    def _kinds(self) -> tuple[type, ...]:
        return tuple(map(type, self.dimensions))

    @property
    def restricted(self) -> bool:
        """Whether not every point of the product is one of the space."""
        return bool(self.constraints) or any(self.conditions)

    @property
    def keys(self) -> Sequence[Any]:
        """What a dimension is called: its name, else its index."""
        return self.names or range(len(self.dimensions))

    @property
    def columns(self) -> int:
        """Columns of the unit cube."""
        return sum(map(kinds.width, self.dimensions))

    @property
    def all_real(self) -> bool:
        """Whether every dimension is Real."""
        return all(isinstance(dimension, Real) for dimension in self.dimensions)

    @property
    def continuous(self) -> np.ndarray:
        """(columns,) bool: the columns of Real dimensions."""
        return np.concatenate([np.full(kinds.width(d), isinstance(d, Real)) for d in self.dimensions])

    @property
    def slices(self) -> list[slice]:
        """The columns of each dimension."""
        ends = list(itertools.accumulate(map(kinds.width, self.dimensions)))
        return [slice(*ends) for ends in zip([0, *ends], ends, strict=False)]

    def cube(self, fixed: Mapping[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
        """(low, high), each (columns,): the unit cube where dimensions with `fixed` values, by key, have only these."""
        low, high = np.zeros(self.columns), np.ones(self.columns)
        for key, dimension, columns in zip(self.keys, self.dimensions, self.slices, strict=True):
            if key in fixed:
                low[columns] = high[columns] = kinds.encode(dimension, fixed[key])
        return low, high

    @property
    def size(self) -> float:
        """How many points there are, at most; infinity with a Real dimension."""
        return math.prod(kinds.count(dimension) for dimension in self.dimensions)

    def active(self, x: Any) -> np.ndarray:
        """(columns,) bool: the columns of the parameters that are active at a point of the space."""
        present = [not self.names or key in x for key in self.keys]
        return np.concatenate([np.full(kinds.width(d), p) for d, p in zip(self.dimensions, present, strict=True)])

    def points(self) -> Iterator[Any]:
        """All points of a finite space, one after the other."""
        seen = set()
        for values in itertools.product(*map(kinds.values, self.dimensions)):
            x = self._assembled(values)
            if not self.restricted or (identity(x) not in seen and rules.violated(self.constraints, x) is None):
                seen.add(identity(x))
                yield x

    def point(self, x: Any) -> Point:
        """A copy of `x`, of plain numbers and the choices given, with its encoding; a Point is returned as it is.

        Raises as `encode`, and ValueError if `x` violates a constraint.
        """
        if isinstance(x, Point):
            return x
        point = self._point(self.values(x))
        if (constraint := rules.violated(self.constraints, point.x)) is not None:
            raise ValueError(f"{point.x!r} violates the constraint {rules.describe(constraint)}")
        return point

    def _point(self, values: Any) -> Point:
        unit = self.encode(values)
        return Point(_read_only(np.array(values)) if self._as_array else values, _read_only(unit))

    def point_at(self, unit: np.ndarray, fixed: Mapping[Any, Any] | None = None) -> Point | None:
        """The point at (columns,) of the unit cube, with the encoding of its rounded values.

        `fixed` are values, by key, that some dimensions have instead. None where such a one is inactive or a constraint
        is violated.
        """
        x = self.decode(unit)
        if fixed and self.names and not fixed.keys() <= x.keys():
            return None
        for key, value in (fixed or {}).items():
            x[key] = value
        return self._point(self.values(x)) if rules.violated(self.constraints, x) is None else None

    def encode(self, x: Any) -> np.ndarray:
        """(columns,) of the unit cube for a point.

        Raises ValueError if it lies outside the bounds, and TypeError for a value that is not a number where one is
        needed.
        """
        values = self.values(x)
        known = values if self.names else dict(enumerate(values))
        return np.concatenate(
            [
                kinds.encode(d, known[key]) if key in known else kinds.neutral(d)
                for key, d in zip(self.keys, self.dimensions, strict=True)
            ]
        )

    def values(self, x: Any) -> Any:
        """The values of a point, floats, integers and choices: a list, or with names a dict. Raises as `encode`."""
        if self.names:
            return self._named_values(x)
        if isinstance(x, Mapping) and not hasattr(x, "as_py"):
            raise TypeError(f"a point of this space, which has no names, is a list of values; got {x!r}")
        values = containers.sequence(x)
        if values is None:
            row = containers.mapping(x)
            values = [x] if row is None else [*row.values()]
        if len(values) != len(self.dimensions):
            raise ValueError(f"a point has {len(self.dimensions)} values; got {len(values)}: {x!r}")
        return [
            kinds.value(d, value, f"x[{i}]") for i, (d, value) in enumerate(zip(self.dimensions, values, strict=True))
        ]

    def listed(self, given: Any) -> list[Any]:
        """Points as a list: one point, or several in a list, an array, a table or an iterator.

        They are not checked, see `point`.
        """
        if (rows := containers.table(given)) is not None:
            return rows if self.names else [[*row.values()] for row in rows]
        if (items := containers.sequence(given)) is None:
            return [given]
        point = items if isinstance(given, Iterator) else given
        items = [list(item) if isinstance(item, Iterator) else item for item in items]
        if not all(containers.mapping(item) is not None or containers.sequence(item) is not None for item in items):
            return [point]
        try:
            return [self.values(point)] if items else []  # a point whose values are tuples
        except (TypeError, ValueError):
            return items

    def _named_values(self, given: Any) -> dict[str, Any]:
        if (x := containers.mapping(given)) is None:
            raise TypeError(f"a point of this space is a dict of {', '.join(self.names)}; got {given!r}")
        for name in x:
            if name not in self.names:
                raise ValueError(unknown("parameter", name, self.names))

        def value(index: int) -> Any:
            name = self.names[index]
            if name not in x:
                raise ValueError(f"the point {x!r} has no value of {name!r}, which is active there: add it")
            return kinds.value(self.dimensions[index], x[name], f"x[{name!r}]")

        values = {}
        for index, name in enumerate(self.names):
            if self._is_active(index, value):
                values[name] = value(index)
            elif name in x and not containers.is_missing(x[name]):
                on = self.names[self.conditions[index].parent]  # pyright: ignore[reportOptionalMemberAccess]
                raise ValueError(f"x[{name!r}] = {x[name]!r} is inactive at {on!r} = {x.get(on)!r}: leave it out")
        return values

    def _is_active(self, index: int, value: Callable[[int], Any]) -> bool:
        """Whether a parameter is active, given the values of those that are."""
        condition = self.conditions[index]
        if condition is None:
            return True
        return self._is_active(condition.parent, value) and value(condition.parent) in {*condition.values}

    def decode(self, unit: np.ndarray) -> Any:
        """The point at (columns,) of the unit cube."""
        parts = [np.asarray(unit)[columns] for columns in self.slices]
        return self._assembled([kinds.decode(d, part) for d, part in zip(self.dimensions, parts, strict=True)])

    def _assembled(self, values: Sequence[Any]) -> Any:
        """The point with one value for each dimension, of which those of inactive ones are dropped."""
        if not self.names:
            return np.array(values) if self.all_real else list(values)
        return {name: values[i] for i, name in enumerate(self.names) if self._is_active(i, values.__getitem__)}

    @property
    def _as_array(self) -> bool:
        return self.all_real and not self.names

    def snap(self, units: np.ndarray) -> np.ndarray:
        """(..., columns) of the unit cube -> the nearest encodings of points of the product of the dimensions."""
        if self.all_real:
            return units
        parts = [kinds.snap(d, units[..., columns]) for d, columns in zip(self.dimensions, self.slices, strict=True)]
        return np.concatenate(parts, axis=-1)

    def fixed(self, given: Mapping[Any, Any] | None) -> dict[Any, Any]:
        """Values by key, checked.

        Raises:
            ValueError: an unknown key, a value outside, or a parameter that is inactive where the others are fixed.
            TypeError: no mapping.
        """
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise TypeError(f"fixed must be a dict from names, or indices, to values; got {given!r}")
        indices = {key: index for index, key in enumerate(self.keys)}
        given = {rules.check_key("fixed", key, indices): value for key, value in given.items()}
        fixed = {
            key: kinds.value(self.dimensions[indices[key]], value, f"fixed[{key!r}]") for key, value in given.items()
        }
        for key in fixed if any(self.conditions) else ():
            self._check_reachable(indices[key], fixed)
        return fixed

    def _check_reachable(self, index: int, fixed: Mapping[Any, Any]) -> None:
        condition, name = self.conditions[index], self.names[index]
        if condition is None:
            return
        on = self.names[condition.parent]
        if on in fixed and fixed[on] not in {*condition.values}:
            raise ValueError(f"fixed: {name!r} is inactive at {on!r} = {fixed[on]!r}: leave one of them out")
        self._check_reachable(condition.parent, fixed)


def identity(x: Any) -> tuple[Any, ...]:
    """A hashable equivalent of a point."""
    return tuple(x.items() if isinstance(x, dict) else x.tolist() if isinstance(x, np.ndarray) else x)


def space_from(bounds: Any, constraints: Any = ()) -> Space:
    """A space from bounds in any of the usual forms.

    Args:
        bounds: a Space; a list, an array, a table or an iterator of (low, high) pairs, Real, Integer, Ordinal and
            Categorical; a dict from names to these and to Conditional; a `scipy.optimize.Bounds`; a bounded
            `gymnasium.spaces.Box`; a `gymnasium.spaces.Discrete`.
        constraints: Linear, and functions (x) -> bool, all of which hold at every point. Those of a Space stay.

    Raises:
        ValueError: bounds that are reversed, equal, infinite, too wide for a float or empty, fewer than two choices or
            equal ones; the message names the dimension. A name that is reserved, a condition on an unknown parameter,
            on a Real, on values it does not have or in a circle; an impossible constraint.
        TypeError: anything else.
    """
    space = _space(bounds)
    kept = bounds.constraints if isinstance(bounds, Space) else ()
    return space._replace(constraints=rules.check((*kept, *rules.listed(constraints)), space.keys, space.dimensions))


def _space(bounds: Any) -> Space:
    """The space without its constraints."""
    if isinstance(bounds, Mapping) or (isinstance(bounds, Space) and bounds.names):
        return _named(dict(bounds) if isinstance(bounds, Mapping) else _declared(bounds))
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
    return Space(tuple(kinds.check(dimension, f"bounds[{i}]") for i, dimension in enumerate(dimensions)))


def _entries(bounds: Any) -> list[Any] | None:
    """The dimensions of bounds without names, in a container or the rows of a table; None for anything else."""
    if isinstance(bounds, Dimension | Conditional):
        return None
    rows = containers.table(bounds)
    return containers.sequence(bounds) if rows is None else [[*row.values()] for row in rows]


def _named(declared: Mapping[Any, Any]) -> Space:
    """The space of parameters by name."""
    if not declared:
        raise ValueError("bounds must have at least one dimension; got none")
    for name in declared:
        if not isinstance(name, str) or not name:
            raise TypeError(f"the names of bounds must be strings, not empty; got {name!r}")
        if name in _COLUMNS:
            raise ValueError(name_of_a_column(name))
    names = tuple(map(str, declared))
    bare = [entry.dimension if isinstance(entry, Conditional) else entry for entry in declared.values()]
    labels = [f"bounds[{name!r}]" for name in names]
    dimensions = [kinds.check(_dimension(entry, label), label) for entry, label in zip(bare, labels, strict=True)]
    by_name = dict(zip(names, dimensions, strict=True))
    conditions = tuple(
        _condition(entry, label, by_name) if isinstance(entry, Conditional) else None
        for entry, label in zip(declared.values(), labels, strict=True)
    )
    _check_circles(names, conditions)
    return Space(tuple(dimensions), names, conditions)


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
    if isinstance(parent, Real):
        raise ValueError(f"{label}: the condition is on {entry.on!r}, a Real; use an Integer, Ordinal or Categorical")
    if not (given := containers.sequence(entry.values)):
        raise TypeError(f"{label}: the values of the condition must be a tuple, not empty; got {entry.values!r}")
    values = (kinds.value(parent, value, f"{label}: {entry.on!r}") for value in given)
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


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
