"""Saving and loading a search in progress: one safetensors file, settings and trials as JSON in its header."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
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
from seqdec.persistence import check_arrays_name, check_format, located, read_arrays, versions, write_arrays
from seqdec.states import as_array, as_leaf, named_leaves

_FORMAT = "seqdec optimizer 4"
_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (Real, Integer, Ordinal, Categorical, Constant)}


class Saved(NamedTuple):
    """Everything that determines how a search continues."""

    settings: Settings
    used: dict[str, Any]
    """surrogate and acquisition in use, capacity and notes"""
    entries: list[Entry]
    order: list[int]
    """as in `seqdec.bo.trials.Record`"""
    warps: tuple[Warp, ...]
    """of the outputs"""
    state: list[np.ndarray]
    """arrays of the surrogate's state, see `arrays`; empty before the first fit"""


def plain(settings: Settings) -> dict[str, Any]:
    """The settings but for the space as JSON. Raises TypeError for an option that a file cannot hold."""
    reference, optimum, monotone = settings.reference_point, settings.optimum, settings.monotone
    return {name: value for name, value in vars(settings).items() if name not in ("space", "outputs")} | {
        **settings.outputs._asdict(),
        "surrogate_options": {name: _encoded(value) for name, value in settings.surrogate_options.items()},
        "reference_point": None if reference is None else reference.tolist(),
        "search": vars(settings.search),
        "optimum": None if optimum is None else optimum.logs,
        "monotone": None if monotone is None else monotone.signs,
        "earlier": [[one.units.tolist(), one.responses.tolist()] for one in settings.earlier],
    }


def _settings(space: Space, given: dict[str, Any], acquisition: str) -> Settings:
    """The settings of `plain`, with the acquisition in use."""
    optimum, monotone, grid = given["optimum"], given["monotone"], given["fidelity"]
    maximize, reference = given["maximize"], given["reference_point"]
    outputs = Outputs(given.pop("objectives"), given.pop("outcome_constraints"))
    return Settings(
        space=space,
        outputs=outputs,
        **given
        | {
            "maximize": tuple(maximize) if isinstance(maximize, list) else maximize,
            "reference_point": None if reference is None else np.array(reference),
            "surrogate_options": {name: _decoded(value) for name, value in given["surrogate_options"].items()},
            "acquisition": acquisition,
            "search": Search(**given["search"]),
            "optimum": None
            if optimum is None
            else Optimum(tuple(None if one is None else tuple(one) for one in optimum)),
            "monotone": None if monotone is None else Directions(tuple(map(tuple, monotone))),
            "fidelity": None if grid is None else Grid(*map(tuple, grid)),
            "earlier": tuple(Earlier(*map(np.array, one)) for one in given["earlier"]),
        },
    )


def save(
    path: str | os.PathLike[str],
    settings: Settings,
    used: dict[str, Any],
    record: Record,
    state: list[np.ndarray],
    warps: tuple[Warp, ...],
) -> None:
    """Write a search atomically. Raises as `seqdec.bo.BayesianOptimizer.save`."""
    file = located(path)
    check_arrays_name(file)
    content = {
        "format": _FORMAT,
        **_encoded_space(settings.space),
        "settings": plain(settings) | {"acquisition": used["acquisition"]},
        "used": used,
        "trials": [[_encoded_point(e.point.x), e.point.level, *e[2:]] for e in record.entries],
        "order": record.order,
        "warps": warps,
        "versions": versions(),
    }
    write_arrays(file, {f"state_{i}": leaf for i, leaf in enumerate(state)}, content)


def load(path: str | os.PathLike[str], functions: Sequence[Callable[[Any], bool]] | None = ()) -> Saved:
    """What `save` wrote, `functions` in place of those among its constraints; None: without any.

    Raises FileNotFoundError or ValueError as `seqdec.bo.BayesianOptimizer.load`.
    """
    file = located(path)
    tensors, content = read_arrays(file)
    check_format(file, content, _FORMAT)
    with refusing(path):
        space = _decoded_space(content, functions)
        return Saved(
            _settings(space, content["settings"], content["used"]["acquisition"]),
            content["used"],
            [_decoded_entry(space, number, *one) for number, one in enumerate(content["trials"])],
            content["order"],
            tuple(Warp(*warp) for warp in content["warps"]),
            [tensors[f"state_{i}"] for i in range(len(tensors))],
        )


@contextlib.contextmanager
def refusing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Errors of what a file holds as ValueError, naming it."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the optimizer saved in {path} cannot be restored: {error}") from error


def _encoded_space(space: Space) -> dict[str, Any]:
    """The space as JSON. Constraints that are functions are only counted."""
    return {
        "space": [[type(dimension).__name__, *map(_encoded, dimension.settings())] for dimension in space.dimensions],
        "names": space.names,
        "conditions": [None if c is None else [c.parent, _encoded(c.values)] for c in space.conditions],
        "constraints": [
            [[*c.weights.items()], c.low, c.high] if isinstance(c, Linear) else None for c in space.constraints
        ],
        "paths": space.paths,
    }


def _decoded_space(content: dict[str, Any], functions: Sequence[Callable[[Any], bool]] | None) -> Space:
    constraints = content["constraints"]
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
        tuple(content["names"]),
        tuple(None if c is None else Condition(c[0], _decoded(c[1])) for c in content["conditions"]),
        tuple(next(given) if c is None else Linear(dict(c[0]), *c[1:]) for c in constraints),
        tuple(map(tuple, content["paths"])),
    )


def _encoded_point(x: Any) -> Any:
    values = x.tolist() if isinstance(x, np.ndarray) else x
    return {n: _encoded(value) for n, value in values.items()} if isinstance(x, dict) else list(map(_encoded, values))


def _decoded_entry(
    space: Space, number: int, x: Any, level: int, status: Any, values: list[float], *rest: Any
) -> Entry:
    x = {name: _decoded(value) for name, value in x.items()} if isinstance(x, dict) else list(map(_decoded, x))
    reason, noise_std, outcomes, seconds, curve, forecast = rest
    point = space.known_point(x, outside=True)._replace(level=level)
    known = None if forecast is None else Forecast.decoded(forecast)
    return Entry(number, point, status, tuple(values), reason, noise_std, tuple(outcomes), seconds, tuple(curve), known)


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
