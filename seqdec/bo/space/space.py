"""The function's domain, encoded in the unit cube.

A point is a list or an array, with names a dict without inactive parameters, whose columns are constant. Names of
nested parameters are keys joined by dots.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from seqdec.bo.space import constraints as rules
from seqdec.bo.space import containers
from seqdec.bo.space.constraints import Constraint
from seqdec.bo.space.dimensions import Constant, Dimension
from seqdec.registry import unknown

_NEAR = 1e-9
"""Encodings that differ by less are those of one value."""
_FARTHEST = 1.5
"""Distance of outside points from the middle of the cube, in a column."""
Path = tuple[str, ...]
"""The keys on the way to a parameter."""


class Condition(NamedTuple):
    """A checked condition."""

    parent: int
    """index of the deciding parameter"""
    values: tuple[Any, ...]
    """where the parameter is active"""


class Point(NamedTuple):
    """A point as values and in the unit cube."""

    x: Any
    """as `seqdec.bo.trials.Trial.x`"""
    unit: np.ndarray
    """(columns,) of the unit cube, read-only; outside points beyond it"""
    inside: bool = True
    """whether it is of the space"""
    level: int = 0
    """of `seqdec.bo.fidelity.Grid`, 0 at full fidelity"""


@dataclass(frozen=True)
class Space:
    """A product of dimensions, restricted."""

    dimensions: tuple[Dimension, ...]
    """In the order of a point's values."""
    names: tuple[str, ...] = ()
    """empty where points are lists"""
    conditions: tuple[Condition | None, ...] = ()
    """for each named dimension, what makes it active"""
    constraints: tuple[Constraint, ...] = ()
    """what holds at every point"""
    paths: tuple[Path, ...] = ()
    """of nested dicts; else empty"""

    def __post_init__(self) -> None:
        if self.names and len(self.names) != len(self.dimensions):
            raise ValueError(
                f"a space has a name for each of its {len(self.dimensions)} dimensions; got {self.names!r}"
            )
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"the names of a space must differ; got {self.names!r}")

    @cached_property
    def restricted(self) -> bool:
        """Whether some points of the product are excluded."""
        return bool(self.constraints) or any(self.conditions)

    @property
    def keys(self) -> Sequence[Any]:
        """Name, else index, of each dimension."""
        return self.names or range(len(self.dimensions))

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Columns of the cube for each dimension."""
        ends = list(itertools.accumulate(d.width for d in self.dimensions))
        return tuple(slice(*limits) for limits in zip([0, *ends], ends, strict=False))

    @cached_property
    def columns(self) -> int:
        """Number of columns of the unit cube."""
        return self.slices[-1].stop

    @cached_property
    def owners(self) -> np.ndarray:
        """(columns,) index of each column's dimension."""
        return _read_only(np.repeat(np.arange(len(self.dimensions)), [d.width for d in self.dimensions]))

    @cached_property
    def places(self) -> np.ndarray:
        """(columns,) index of each column's parameter, a dimension with columns."""
        return _read_only(np.unique(self.owners, return_inverse=True)[1])

    @cached_property
    def parameters(self) -> int:
        """Dimensions of the search."""
        return int(self.places.max()) + 1

    @cached_property
    def groups(self) -> int:
        """Number of parameters, those with the same condition counted once."""
        found = {index: self.conditions[index] if self.conditions else None for index in self.owners.tolist()}
        return len({(c.parent, frozenset(c.values)) if c else index for index, c in found.items()})

    @cached_property
    def moves(self) -> np.ndarray:
        """(moves, 2) dimensions and their steps, see `Dimension.moved`."""
        steps = [(i, step) for i, dimension in enumerate(self.dimensions) for step in range(dimension.moves)]
        return np.reshape(steps, (-1, 2)).astype(int)

    @cached_property
    def neutral(self) -> np.ndarray:
        """(columns,) values of inactive parameters."""
        return _read_only(np.concatenate([d.neutral for d in self.dimensions]))

    @cached_property
    def all_real(self) -> bool:
        """Whether every dimension is Real."""
        return all(d.real if isinstance(d, Constant) else d.continuous for d in self.dimensions)

    @cached_property
    def continuous(self) -> np.ndarray:
        """(columns,) bool: of Real dimensions."""
        return _read_only(np.concatenate([np.full(d.width, d.continuous) for d in self.dimensions]))

    def cube(self, fixed: Mapping[Any, Any]) -> tuple[np.ndarray, np.ndarray]:
        """(low, high), each (columns,): the unit cube at `fixed` values, by key."""
        low, high = np.zeros(self.columns), np.ones(self.columns)
        for key, dimension, columns in zip(self.keys, self.dimensions, self.slices, strict=True):
            if key in fixed:
                low[columns] = high[columns] = dimension.encode(fixed[key])
        return low, high

    @property
    def size(self) -> float:
        """Largest number of points; infinity with a Real dimension."""
        return math.prod(dimension.size for dimension in self.dimensions)

    def active(self, units: np.ndarray) -> np.ndarray:
        """(n, columns) encodings of the product -> (n, dimensions) bool: which parameters are active."""
        known: dict[Condition | None, np.ndarray] = {None: np.ones(len(units), bool)}

        def holds(condition: Condition | None) -> np.ndarray:
            if condition is not None and condition not in known:
                at, parent = units[:, self.slices[condition.parent]], self.dimensions[condition.parent]
                near = [np.abs(at - parent.encode(value)).max(1, initial=0) < _NEAR for value in condition.values]
                known[condition] = holds(self.conditions[condition.parent]) & np.any(near, axis=0)
            return known[condition]

        return np.stack([holds(one) for one in self.conditions or [None] * len(self.dimensions)], axis=1)

    def neutralized(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(n, columns) encodings of the product -> (those of points, their active dimensions as `active`)."""
        active = self.active(units)
        return units if active.all() else np.where(active[:, self.owners], units, self.neutral), active

    def settled(self, units: np.ndarray, fixed: Mapping[Any, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The points nearest to (n, columns) -> (encodings, active dimensions (n, k), which are of the space (n,)).

        `fixed` values, by key, are those of the given columns. Raises as `constraints.holds`.
        """
        units, active = self.neutralized(self.snap(units))
        good = np.all([active[:, index] for index, key in enumerate(self.keys) if key in fixed], axis=0)
        good = np.broadcast_to(good, len(units)).copy()
        if self.constraints:
            parts = zip(self.keys, self.dimensions, self.slices, strict=True)
            values = {k: [fixed[k]] * len(units) if k in fixed else d.decode(units[:, part]) for k, d, part in parts}
            for constraint in self.constraints:
                if isinstance(constraint, rules.Linear):
                    terms = [
                        weight * np.where(active[:, self.keys.index(key)], np.array(values[key], float), 0)
                        for key, weight in constraint.weights.items()
                    ]
                    total = sum(terms)
                    good &= (constraint.low <= total) & (total <= constraint.high)
                else:
                    for row in np.flatnonzero(good):
                        x = self._assembled([column[row] for column in values.values()])
                        good[row] = rules.holds(constraint, x, self.shown)
        return units, active, good

    def uniform(self, u: np.ndarray) -> np.ndarray:
        """(n, parameters) uniform numbers -> (n, columns) values of the product, uniform on the scales of search."""
        varying = [d for d in self.dimensions if d.width]
        return np.concatenate([d.uniform(column) for d, column in zip(varying, u.T, strict=True)], axis=1)

    def moved(self, units: np.ndarray, moves: np.ndarray) -> np.ndarray:
        """(n, columns) encodings, each after the step of `moves` (n, 2), a row of `self.moves`."""
        result = units.copy()
        for index, (dimension, part) in enumerate(zip(self.dimensions, self.slices, strict=True)):
            rows = moves[:, 0] == index
            if rows.any():
                result[rows, part] = dimension.moved(units[rows, part], moves[rows, 1])
        return result

    def violated(self, x: Any) -> Constraint | None:
        """The first constraint violated at a point. Raises as `constraints.holds`."""
        return next((one for one in self.constraints if not rules.holds(one, x, self.shown)), None)

    def shown(self, x: Any) -> Any:
        """A point as users get it."""
        if not self.paths:
            return x
        found: dict[str, Any] = {}
        for path in self.paths:
            group = found
            for key in path[:-1]:
                group = group.setdefault(key, {})
            if ".".join(path) in x:
                group[path[-1]] = x[".".join(path)]
        return found

    def flat(self, x: Any) -> Any:
        """A point, a dict where parameters have names. Raises ValueError for a repeated name."""
        if not self.paths or not isinstance(x, Mapping):
            return x
        groups = {path[:depth] for path in self.paths for depth in range(1, len(path))}

        def items(part: Mapping[Any, Any], above: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
            for key, value in part.items():
                path = (*above, key)
                within = containers.mapping(value) if path in groups else None
                if within is None:
                    yield ".".join(map(str, path)) if above else key, value
                else:
                    yield from items(within, path)

        found: dict[Any, Any] = {}
        for name, value in items(x, ()):
            if name in found:
                raise ValueError(f"the point {x!r} has {name!r} twice: leave one of them out")
            found[name] = value
        return found

    def points(self) -> Iterator[Any]:
        """All points of a finite space."""
        seen = set()
        for values in itertools.product(*(d.values() for d in self.dimensions)):
            x = self._assembled(values)
            if not self.restricted or (identity(x) not in seen and self.violated(x) is None):
                seen.add(identity(x))
                yield x

    def point(self, x: Any) -> Point:
        """A checked copy of `x`, encoded; a Point as it is. Raises ValueError or TypeError."""
        if isinstance(x, Point):
            return x
        point = self._point(self.values(x))
        if (constraint := self.violated(point.x)) is not None:
            raise ValueError(f"{point.x!r} violates the constraint {rules.describe(constraint)}")
        return point

    def known_point(self, x: Any, outside: bool) -> Point:
        """As `point`; with `outside` it may violate constraints, and bounds by the width of the range."""
        try:
            return self.point(x)
        except ValueError as raised:
            error = raised
        wide = replace(self, dimensions=tuple(d.widened for d in self.dimensions), constraints=())
        values = wide.values(x)
        found = self._point(values)
        if not np.all(np.abs(found.unit - 0.5) <= _FARTHEST):
            raise ValueError(f"{error}, by more than their range: leave it out")
        if not outside:
            raise ValueError(f"{error}: BayesianOptimizer.tell(..., outside=True) accepts it")
        return found._replace(inside=False)

    def _point(self, values: Any) -> Point:
        known = values if self.names else dict(enumerate(values))
        parts = zip(self.keys, self.dimensions, strict=True)
        unit = np.concatenate([d.encode(known[key]) if key in known else d.neutral for key, d in parts])
        as_array = self.all_real and not self.names
        return Point(_read_only(np.array(values)) if as_array else values, _read_only(unit))

    def point_at(self, unit: np.ndarray, fixed: Mapping[Any, Any] | None = None) -> Point | None:
        """The point at (columns,) with the values `fixed`; None if not in the space."""
        x = self.decode(unit)
        if fixed and self.names and not fixed.keys() <= x.keys():
            return None
        for key, value in (fixed or {}).items():
            x[key] = value
        return self._point(self.values(x)) if self.violated(x) is None else None

    def values(self, x: Any) -> Any:
        """A point's values: a list or a dict. Raises as `point`."""
        if self.names:
            return self._named_values(x)
        if isinstance(x, Mapping) and not hasattr(x, "as_py"):
            raise TypeError(f"a point of this space, which has no names, is a list of values; got {x!r}")
        values = containers.sequence(x)
        if values is None:
            row = containers.mapping(x)
            values = [x] if row is None else [*row.values()]
        if len(values) != len(self.dimensions):
            several = "" if len(self.dimensions) > 1 else "; several points are lists of one value, as x[:, None]"
            raise ValueError(f"a point has {len(self.dimensions)} values; got {len(values)}: {x!r:.200}{several}")
        return [d.value(value, f"x[{i}]") for i, (d, value) in enumerate(zip(self.dimensions, values, strict=True))]

    def listed(self, given: Any) -> list[Any] | None:
        """The points, unchecked, in a table, a list or a dict of columns; None for a point."""
        if (rows := containers.table(given)) is not None:
            return rows if self.names else [[*row.values()] for row in rows]
        by_name = isinstance(given, Mapping)
        items = [*given.values()] if by_name else containers.sequence(given)
        if items is None or not all(
            containers.sequence(item) is not None or (not by_name and containers.mapping(item) is not None)
            for item in items
        ):
            return None
        try:
            return None if items and self.values(given) is not None else items  # a point whose values are tuples
        except (TypeError, ValueError):
            return containers.rows(given) if by_name else items

    def _named_values(self, given: Any) -> dict[str, Any]:
        if (x := containers.mapping(given)) is None:
            raise TypeError(f"a point of this space is a dict of {', '.join(self.names)}; got {given!r}")
        x = self.flat(x)
        for name in x:
            if name not in self.names:
                raise ValueError(unknown("parameter", name, self.names))

        def value(index: int) -> Any:
            name = self.names[index]
            if name not in x:
                raise ValueError(f"the point {x!r} has no value of {name!r}, which is active there: add it")
            return self.dimensions[index].value(x[name], f"x[{name!r}]")

        values = {}
        for index, name in enumerate(self.names):
            if self._is_active(index, value):
                values[name] = value(index)
            elif name in x and not containers.is_missing(x[name]):
                on = self.names[self.conditions[index].parent]  # pyright: ignore[reportOptionalMemberAccess]
                raise ValueError(f"x[{name!r}] = {x[name]!r} is inactive at {on!r} = {x.get(on)!r}: leave it out")
        return values

    def _is_active(self, index: int, value: Callable[[int], Any]) -> bool:
        condition = self.conditions[index] if self.conditions else None
        if condition is None:
            return True
        return self._is_active(condition.parent, value) and value(condition.parent) in {*condition.values}

    def decode(self, unit: np.ndarray) -> Any:
        """The point at (columns,) of the unit cube."""
        rows, parts = np.asarray(unit)[None], zip(self.dimensions, self.slices, strict=True)
        return self._assembled([d.decode(rows[:, part])[0] for d, part in parts])

    def _assembled(self, values: Sequence[Any]) -> Any:
        if not self.names:
            return np.array(values) if self.all_real else list(values)
        return {name: values[i] for i, name in enumerate(self.names) if self._is_active(i, values.__getitem__)}

    def snap(self, units: np.ndarray) -> np.ndarray:
        """(..., columns) -> the nearest encodings in the product."""
        if self.continuous.all():
            return units
        parts = [d.snap(units[..., columns]) for d, columns in zip(self.dimensions, self.slices, strict=True)]
        return np.concatenate(parts, axis=-1)

    def fixed(self, given: Mapping[Any, Any] | None) -> dict[Any, Any]:
        """Checked values by key. Raises ValueError or TypeError."""
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise TypeError(f"fixed must be a dict from names, or indices, to values; got {given!r}")
        indices = {key: index for index, key in enumerate(self.keys)}
        given = {rules.check_key("fixed", key, indices): value for key, value in self.flat(given).items()}
        fixed = {key: self.dimensions[indices[key]].value(value, f"fixed[{key!r}]") for key, value in given.items()}
        for key in fixed if any(self.conditions) else ():
            index = indices[key]
            while (condition := self.conditions[index]) is not None:
                name, on, index = self.names[index], self.names[condition.parent], condition.parent
                if on in fixed and fixed[on] not in {*condition.values}:
                    raise ValueError(f"fixed: {name!r} is inactive at {on!r} = {fixed[on]!r}: leave one of them out")
        return fixed


def identity(x: Any) -> tuple[Any, ...]:
    """A hashable equivalent of a point."""
    return tuple(x.items() if isinstance(x, dict) else x.tolist() if isinstance(x, np.ndarray) else x)


def _read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
