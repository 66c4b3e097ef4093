"""Nested dicts: a parameter of a dict within bounds has the keys on the way to it, joined by dots, as its name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqdec.bo.space import containers

Path = tuple[str, ...]
"""The keys on the way to a parameter."""


def name_of(path: Path) -> str:
    """The name of the parameter there."""
    return ".".join(path)


def entries(declared: Mapping[Any, Any], above: Path = ()) -> dict[Path, Any]:
    """The parameters of nested bounds by their paths.

    Raises:
        ValueError: an empty dict, or two parameters of one name. TypeError: a key that is no name.
    """
    if not declared:
        raise ValueError(f"bounds{''.join(f'[{key!r}]' for key in above)} must have at least one dimension; got none")
    found: dict[Path, Any] = {}
    for key, entry in declared.items():
        if not isinstance(key, str) or not key:
            raise TypeError(f"the names of bounds must be strings, not empty; got {key!r}")
        path = (*above, str(key))
        found |= entries(entry, path) if isinstance(entry, Mapping) else {path: entry}
    names = [name_of(path) for path in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"bounds hold two parameters with the name {twice[0]!r}: rename one of them")
    return found


def resolved(name: str, path: Path, names: Sequence[str]) -> str:
    """What a name means in the dict that holds the parameter at `path`: one there, else one of a dict around it."""
    scopes = (name_of((*path[:depth], name)) for depth in range(len(path) - 1, -1, -1))
    return next((full for full in scopes if full in names), name)


def nested(x: Mapping[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    """A point, by name, as nested dicts; a dict is there, but empty, where none of its parameters is active."""
    found: dict[str, Any] = {}
    for path in paths:
        group = found
        for key in path[:-1]:
            group = group.setdefault(key, {})
        if name_of(path) in x:
            group[path[-1]] = x[name_of(path)]
    return found


def flat(x: Mapping[Any, Any], paths: Sequence[Path]) -> dict[Any, Any]:
    """A point, in nested dicts or by name, by name. Raises ValueError for a parameter that it holds twice."""
    groups = {path[:depth] for path in paths for depth in range(1, len(path))}

    def items(part: Mapping[Any, Any], above: tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
        for key, value in part.items():
            path = (*above, key)
            within = containers.mapping(value) if path in groups else None
            if within is None:
                yield name_of(tuple(map(str, path))) if above else key, value
            else:
                yield from items(within, path)

    found: dict[Any, Any] = {}
    for name, value in items(x, ()):
        if name in found:
            raise ValueError(f"the point {x!r} holds {name!r} twice: leave one of them out")
        found[name] = value
    return found
