"""Saving and loading an optimisation in progress: one safetensors file, settings and trials as JSON in its header."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np

from seqdec.bo.spaces import Categorical, Dimension, Integer, Real, Space
from seqdec.persistence import check_format, read_arrays, versions, write_arrays
from seqdec.states import as_array, as_leaf, named_leaves

T = TypeVar("T")
_FORMAT = "seqdec optimizer 3"
_KINDS: dict[str, type[Dimension]] = {"Real": Real, "Integer": Integer, "Categorical": Categorical}


class Study(NamedTuple):
    """Everything that determines how an optimisation continues."""

    space: Space
    settings: dict[str, Any]
    """keywords of the optimiser, as JSON holds them"""
    trials: list[tuple[list[Any], str, float, str]]
    """(point, status, value, reason) in the order of their numbers"""
    order: list[int]
    """numbers of the complete trials in the order in which their values were told"""
    standard: tuple[float, float, int]
    """mean and scale of the responses, and how many there were when these were computed"""
    state: list[np.ndarray]
    """arrays of the surrogate's state, see `arrays`; empty before the first fit"""


def save(path: str | Path, study: Study) -> None:
    """Write a study atomically.

    Raises:
        TypeError: a setting or a choice is neither a string nor a number.
        OSError: the file cannot be written.
    """
    space = [[type(dimension).__name__, *dimension] for dimension in study.space.dimensions]
    content = {"format": _FORMAT, **study._asdict(), "space": space}
    del content["state"]
    tensors = {f"state_{i}": leaf for i, leaf in enumerate(study.state)}
    write_arrays(Path(path), tensors, {**content, "versions": versions()})


def load(path: str | Path, restore: Callable[[Study], T]) -> T:
    """`restore` of the study that `save` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or does not hold a study.
    """
    tensors, content = read_arrays(Path(path))
    check_format(Path(path), content, _FORMAT)
    content = {name: value for name, value in content.items() if name in Study._fields}
    space = Space(tuple(_KINDS[kind](*numbers) for kind, *numbers in content.pop("space")))
    standard = tuple(content.pop("standard"))
    state = [tensors[f"state_{i}"] for i in range(len(tensors))]
    try:
        return restore(Study(space=space, standard=standard, state=state, **content))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the optimizer saved in {path} cannot be restored: {error}") from error


def arrays(state: Any) -> list[np.ndarray]:
    """The leaves of a state; random keys as their integers."""
    return [as_array(name, leaf) for name, leaf in named_leaves(state)]


def state_of(leaves: list[np.ndarray], like: Any) -> Any:
    """The state with these `arrays`; `like` has its structure. Raises ValueError for another number of leaves."""
    shapes, structure = jax.tree.flatten(like)
    return structure.unflatten(as_leaf(leaf, shape) for leaf, shape in zip(leaves, shapes, strict=True))
