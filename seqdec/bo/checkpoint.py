"""A search as a file: safetensors, with settings and trials as JSON in its header."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from seqdec.bo.acquisition.optimum import Optimum
from seqdec.bo.fidelity import Forecast, Grid
from seqdec.bo.output_warp import Warp
from seqdec.bo.search.candidates import Search
from seqdec.bo.settings import Settings
from seqdec.bo.space.constraints import Linear
from seqdec.bo.space.dimensions import Categorical, Constant, Integer, Ordinal, Real
from seqdec.bo.space.space import Condition, Space
from seqdec.bo.surrogates.trend import Directions
from seqdec.bo.transfer import Earlier
from seqdec.bo.trials import Entry, Outputs, Record
from seqdec.persistence import check_arrays_name, check_format, read_arrays, versions, write_arrays
from seqdec.states import as_array, as_leaf, named_leaves

_FORMAT = "seqdec optimizer 7"
_DIMENSIONS = (Real, Integer, Ordinal, Categorical, Constant)
_PARTS = (Space, Condition, Linear, Search, Optimum, Directions, Grid, Earlier, Warp, Forecast)
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (*_DIMENSIONS, *_PARTS)}
"""Dataclasses and named tuples in a file, by name."""


class Saved(NamedTuple):
    """What determines how a search continues."""

    settings: Settings
    used: dict[str, Any]
    """surrogate and acquisition in use, capacity and notes"""
    entries: list[Entry]
    order: list[int]
    """as in `seqdec.bo.trials.Record`"""
    warps: tuple[Warp, ...]
    """of the outputs"""
    state: list[np.ndarray]
    """arrays of the surrogate's state; empty before the first fit"""


def plain(settings: Settings) -> dict[str, Any]:
    """The settings without the space as JSON. Raises TypeError for an option that a file cannot hold."""
    given = {name: value for name, value in vars(settings).items() if name not in ("space", "outputs")}
    names = {"surrogate": given.pop("surrogate"), "acquisition": given.pop("acquisition")}
    return {name: _encoded(value) for name, value in (given | settings.outputs._asdict()).items()} | names


def save(
    file: Path,
    settings: Settings,
    used: dict[str, Any],
    record: Record,
    state: list[np.ndarray],
    warps: tuple[Warp, ...],
) -> None:
    """Write a search atomically. Raises as `seqdec.bo.BayesianOptimizer.save`."""
    check_arrays_name(file)
    linear: Any = tuple(rule if isinstance(rule, Linear) else None for rule in settings.space.constraints)
    content = {
        "format": _FORMAT,
        "space": _encoded(replace(settings.space, constraints=linear)),
        "settings": plain(replace(settings, acquisition=used["acquisition"])),
        "used": used,
        "trials": [[_encoded_point(e.point.x), e.point.level, *map(_encoded, e[2:])] for e in record.entries],
        "order": record.order,
        "warps": _encoded(warps),
        "versions": versions(),
    }
    write_arrays(file, {f"state_{i}": leaf for i, leaf in enumerate(state)}, content)


def load(file: Path, functions: Sequence[Callable[[Any], bool]] | None = ()) -> Saved:
    """What `save` wrote, with `functions` among the constraints, or without.

    Raises FileNotFoundError or ValueError as `seqdec.bo.BayesianOptimizer.load`.
    """
    tensors, content = read_arrays(file)
    check_format(file, content, _FORMAT)
    with refusing(file):
        space = _constrained(_decoded(content["space"]), functions)
        given = {name: _decoded(value) for name, value in content["settings"].items()}
        outputs = Outputs(given.pop("objectives"), given.pop("outcome_constraints"))
        return Saved(
            Settings(space=space, outputs=outputs, **given),
            content["used"],
            [_decoded_entry(space, number, *one) for number, one in enumerate(content["trials"])],
            content["order"],
            _decoded(content["warps"]),
            [tensors[f"state_{i}"] for i in range(len(tensors))],
        )


@contextlib.contextmanager
def refusing(file: Path) -> Iterator[None]:
    """Makes errors of a file's content ValueErrors that name it."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the optimizer saved in {file} cannot be restored: {error}") from error


def _constrained(space: Space, functions: Sequence[Callable[[Any], bool]] | None) -> Space:
    if functions is None:
        return replace(space, constraints=())
    missing = space.constraints.count(None)
    if len(functions) != missing:
        raise ValueError(
            f"{missing} of its constraints are functions, which a file cannot store; got {len(functions)}: pass them "
            "as load(path, constraints=[...])"
        )
    given = iter(functions)
    return replace(space, constraints=tuple(next(given) if rule is None else rule for rule in space.constraints))


def _encoded_point(x: Any) -> Any:
    return _encoded(x.tolist() if isinstance(x, np.ndarray) else x)


def _decoded_entry(space: Space, number: int, x: Any, level: int, *rest: Any) -> Entry:
    point = space.known_point(_decoded(x), outside=True)._replace(level=level)
    return Entry(number, point, *map(_decoded, rest))


def _encoded(value: Any) -> Any:
    """The JSON that `_decoded` reads. Raises TypeError for a type that a file cannot hold."""
    if type(value) in (str, int, float, bool, type(None)):
        return value
    if type(value) is list:
        return list(map(_encoded, value))
    if type(value) is tuple:
        return {"tuple": list(map(_encoded, value))}
    if type(value) is dict:
        return {"dict": [[_encoded(key), _encoded(part)] for key, part in value.items()]}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, np.generic) and value.dtype.kind in "biufU" and value.dtype != np.longdouble:
        return {"dtype": value.dtype.str, "value": value.item()}
    kind: Any = type(value)
    if _KINDS.get(kind.__name__) is kind:
        names = getattr(kind, "_fields", None) or [field.name for field in fields(kind)]
        return {"kind": kind.__name__, "parts": [_encoded(getattr(value, name)) for name in names]}
    raise TypeError(
        f"a study cannot hold {value!r}, of type {type(value).__name__}, only strings, numbers, booleans, None, numpy "
        "scalars and tuples of these: use a name for it, and look the name up in the function"
    )


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_decoded, value))
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(map(_decoded, value["tuple"]))
    if "dict" in value:
        return {_decoded(key): _decoded(part) for key, part in value["dict"]}
    if "array" in value:
        return np.array(value["array"])
    if "kind" in value:
        return _KINDS[value["kind"]](*map(_decoded, value["parts"]))
    return np.dtype(value["dtype"]).type(value["value"])


def arrays(state: Any) -> list[np.ndarray]:
    """The leaves of a state; random keys as integers."""
    return [as_array(name, leaf) for name, leaf in named_leaves(state)]


def state_of(leaves: list[np.ndarray], like: Any) -> Any:
    """The state of `arrays`, structured as `like`. Raises ValueError for another number of leaves."""
    shapes, structure = jax.tree.flatten(like)
    return structure.unflatten(as_leaf(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True))
