"""Saving and loading an optimisation in progress: one safetensors file, settings and trials as JSON in its header."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from seqdec.bo.spaces import Categorical, Dimension, Integer, Real, Space
from seqdec.persistence import write_file

T = TypeVar("T")
_FORMAT = "seqdec optimizer 2"
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
    metadata = {"seqdec": json.dumps(content)}
    write_file(Path(path), lambda temporary: save_file(tensors, temporary, metadata))


def load(path: str | Path, restore: Callable[[Study], T]) -> T:
    """`restore` of the study that `save` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged, or does not hold a study.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        with safe_open(path, "numpy") as file:
            content = json.loads((file.metadata() or {}).get("seqdec", "{}"))
            state = [file.get_tensor(f"state_{i}") for i in range(len(file.keys()))]
        if (found := content.pop("format", None)) != _FORMAT:
            raise ValueError(f"its format is {found!r}, not {_FORMAT!r}")
        space = Space(tuple(_KINDS[kind](*numbers) for kind, *numbers in content.pop("space")))
        standard = tuple(content.pop("standard"))
        return restore(Study(space=space, standard=standard, state=state, **content))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged or no saved optimizer: {error}") from error


def arrays(state: Any) -> list[np.ndarray]:
    """The leaves of a state; random keys as their integers."""
    return [np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf) for leaf in jax.tree.leaves(state)]


def state_of(leaves: list[np.ndarray], like: Any) -> Any:
    """The state with these `arrays`; `like` has its structure. Raises ValueError for another number of leaves."""
    shapes, structure = jax.tree.flatten(like)
    return structure.unflatten(
        jax.random.wrap_key_data(jnp.asarray(leaf)) if _is_key(shape) else jnp.asarray(leaf)
        for leaf, shape in zip(leaves, shapes, strict=True)
    )


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
