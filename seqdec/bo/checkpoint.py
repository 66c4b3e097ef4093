"""Saving and loading an optimization in progress: one safetensors file, settings and trials as JSON in its header."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from seqdec.bo.fidelity import Forecast
from seqdec.bo.record import Record
from seqdec.bo.settings import Settings
from seqdec.bo.space.constraints import Linear
from seqdec.bo.space.dimensions import Categorical, Constant, Dimension, Integer, Ordinal, Real
from seqdec.bo.space.spaces import Condition, Space
from seqdec.persistence import check_arrays_name, check_format, located, read_arrays, versions, write_arrays
from seqdec.states import as_array, as_leaf, named_leaves

T = TypeVar("T")
_FORMAT = "seqdec optimizer 3"
_KINDS: dict[str, type[Dimension]] = {kind.__name__: kind for kind in (Real, Integer, Ordinal, Categorical, Constant)}


class Study(NamedTuple):
    """Everything that determines how an optimization continues."""

    space: Space
    settings: dict[str, Any]
    """keywords of the optimizer"""
    trials: list[tuple[Any, ...]]
    """(point, status, values, ...), as `seqdec.bo.record.Entry`, in the order of their numbers"""
    order: list[int]
    """numbers of the trials with values in the order in which these were told"""
    warps: tuple[Any, ...]
    """of the outputs, see `seqdec.bo.output_warp.Warp`; empty in studies of earlier versions"""
    state: list[np.ndarray]
    """arrays of the surrogate's state, see `arrays`; empty before the first fit, and in studies of earlier versions"""


def study(
    settings: Settings,
    surrogate: str,
    acquisition: str,
    capacity: int,
    notes: dict[str, Any],
    record: Record,
    state: list[np.ndarray],
    warps: tuple[Any, ...],
) -> Study:
    """The study of an optimizer with the surrogate and the acquisition in use."""
    kept = {name: value for name, value in settings._asdict().items() if name not in ("space", "outputs")}
    reference = settings.reference_point
    kept |= {
        **settings.outputs._asdict(),
        "used": surrogate,
        "acquisition": acquisition,
        "capacity": capacity,
        "notes": notes,
        "reference_point": None if reference is None else reference.tolist(),
        "search": settings.search._asdict(),
        "optimum": None if settings.optimum is None else settings.optimum.logs,
        "monotone": None if settings.monotone is None else settings.monotone.signs,
        "earlier": [one.plain() for one in settings.earlier],
    }
    trials = [
        (e.x.tolist() if isinstance(e.x, np.ndarray) else e.x, *e[3:])  # status, values, ... in the order of Entry
        for e in record.entries
    ]
    return Study(settings.space, kept, trials, record.order, warps, state)


def save(path: str | os.PathLike[str], study: Study) -> None:
    """Write a study atomically.

    Raises:
        TypeError: a setting or a choice is not made of strings, numbers, booleans, None, numpy scalars and tuples.
        ValueError: the path has the suffix of another kind of file.
        OSError: the file cannot be written.
    """
    file = located(path)
    check_arrays_name(file)
    options = study.settings["surrogate_options"].items()
    content = {
        "format": _FORMAT,
        **_encoded_space(study.space),
        "settings": study.settings | {"surrogate_options": {name: _encoded(value) for name, value in options}},
        "trials": [[_encoded_point(x), *rest] for x, *rest in study.trials],
        "order": study.order,
        "warp": study.warps,
        "versions": versions(),
    }
    write_arrays(file, {f"state_{i}": leaf for i, leaf in enumerate(study.state)}, content)


def load(
    path: str | os.PathLike[str], restore: Callable[[Study], T], functions: Sequence[Callable[[Any], bool]] | None = ()
) -> T:
    """`restore` of the study that `save` wrote, `functions` in place of those among its constraints; None: without any.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or does not hold a study.
    """
    file = located(path)
    tensors, content = read_arrays(file)
    check_format(file, content, _FORMAT)
    try:
        settings = content["settings"]
        options, earlier = settings["surrogate_options"].items(), "used" not in settings
        if earlier and settings["surrogate"] == "hilofi":
            settings["surrogate"] = "hilofi_mlp"
        warps = _decoded_warps(content.get("warp", []))
        study = Study(
            space=_decoded_space(content, functions),
            settings=settings | {"surrogate_options": {name: _decoded(value) for name, value in options}},
            trials=[_decoded_trial(*trial) for trial in content["trials"]],
            order=content["order"],
            warps=warps,
            state=[] if earlier or not warps else [tensors[f"state_{i}"] for i in range(len(tensors))],
        )
        return restore(study)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the optimizer saved in {path} cannot be restored: {error}") from error


def _encoded_space(space: Space) -> dict[str, Any]:
    """The space as JSON. Constraints that are functions are only counted."""
    linear = [[list(c.weights.items()), c.low, c.high] if isinstance(c, Linear) else None for c in space.constraints]
    return {
        "space": [[type(dimension).__name__, *map(_encoded, dimension)] for dimension in space.dimensions],
        "names": space.names,
        "conditions": [None if c is None else [c.parent, _encoded(c.values)] for c in space.conditions],
        "constraints": linear,
        "paths": space.paths,
    }


def _decoded_space(content: dict[str, Any], functions: Sequence[Callable[[Any], bool]] | None) -> Space:
    """The space that `_encoded_space` wrote; files from before names have no entries beside "space"."""
    conditions, constraints = content.get("conditions", []), content.get("constraints", [])
    if functions is None:
        functions, constraints = (), []
    if len(functions) != constraints.count(None):
        raise ValueError(
            f"{constraints.count(None)} of its constraints are functions, which a file does not hold; got "
            f"{len(functions)}: pass them as load(path, constraints=[...])"
        )
    given = iter(functions)
    return Space(
        tuple(_KINDS[kind](*map(_decoded, values)) for kind, *values in content["space"]),
        tuple(content.get("names", [])),
        tuple(None if c is None else Condition(c[0], _decoded(c[1])) for c in conditions),
        tuple(next(given) if c is None else Linear(dict(c[0]), *c[1:]) for c in constraints),
        tuple(map(tuple, content.get("paths", []))),
    )


def _encoded_point(x: Any) -> Any:
    return {name: _encoded(value) for name, value in x.items()} if isinstance(x, dict) else list(map(_encoded, x))


def _decoded_point(x: Any) -> Any:
    return {name: _decoded(value) for name, value in x.items()} if isinstance(x, dict) else list(map(_decoded, x))


def _decoded_warps(warps: list[Any]) -> tuple[Any, ...]:
    """The warps; in files from before several objectives there is one, without a list around it."""
    return tuple(warps) if warps and isinstance(warps[0], list) else tuple([warps] if warps else ())


def _decoded_trial(
    x: Any,
    status: str,
    values: Any,
    reason: str,
    noise: Any = None,
    outcomes: Any = (),
    seconds: float | None = None,
    level: int = 0,
    curve: Any = (),
    forecast: Any = None,
) -> Any:
    """A trial; in files from before several objectives `values` is one number, and later entries may be missing."""
    told = tuple(values) if isinstance(values, list) else (values,)
    known = None if forecast is None else Forecast.decoded(forecast)
    return _decoded_point(x), status, told, reason, noise, tuple(outcomes), seconds, level, tuple(curve), known


def _encoded(value: Any) -> Any:
    """A value as JSON, from which `_decoded` makes one of the same type. Raises TypeError for other types."""
    if type(value) in (str, int, float, bool, type(None)):
        return value
    if type(value) is tuple:
        return {"tuple": [_encoded(part) for part in value]}
    if isinstance(value, np.generic) and value.dtype.kind in "biufU" and value.dtype != np.longdouble:
        return {"dtype": value.dtype.str, "value": value.item()}
    raise TypeError(
        f"a study cannot hold {value!r}, of type {type(value).__name__}, only strings, numbers, booleans, None, numpy "
        "scalars and tuples of these: use a name for it, and look the name up in the function"
    )


def _decoded(value: Any) -> Any:
    """The inverse of `_encoded`."""
    if not isinstance(value, dict):
        return value
    if "tuple" in value:
        return tuple(map(_decoded, value["tuple"]))
    return np.dtype(value["dtype"]).type(value["value"])


def arrays(state: Any) -> list[np.ndarray]:
    """The leaves of a state; random keys as their integers."""
    return [as_array(name, leaf) for name, leaf in named_leaves(state)]


def state_of(leaves: list[np.ndarray], like: Any) -> Any:
    """The state with these `arrays`; `like` has its structure. Raises ValueError for another number of leaves."""
    shapes, structure = jax.tree.flatten(like)
    return structure.unflatten(as_leaf(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True))
