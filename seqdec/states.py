"""Files of states, trees of arrays, checked when loaded.

A safetensors file with a manifest (format, name and settings of the agent, path, shape and dtype of every leaf,
versions) and a checksum in its metadata. Nothing in it is executed.
"""

import math
import os
from collections import Counter
from collections.abc import Mapping
from inspect import unwrap
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.core import Agent, PyTree
from seqdec.persistence import as_json, check_arrays_name, check_format, located, read_arrays, versions, write_arrays

_FORMAT = "seqdec state 1"
_DTYPES = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64",
}  # fmt: skip
_RESERVED = "__metadata__"


def save(path: str | os.PathLike[str], state: PyTree, agent: Agent | None = None) -> None:
    """Write a tree of arrays as one file, atomically; it replaces a file of that name.

    Args:
        path: ".safetensors" by convention.
        state: a tree of arrays, random keys and numbers, such as the state of an agent, a filter or an optimizer.
        agent: the agent whose state it is; its name and settings are recorded.

    Raises:
        TypeError: a leaf is not an array, or has a dtype that the file cannot hold.
        ValueError: two leaves of one path, or the suffix of another kind of file.
        OSError: the file cannot be written.
    """
    file, leaves = located(path), dict(named_leaves(state))
    check_arrays_name(file)
    arrays = {name: as_array(name, leaf) for name, leaf in leaves.items()}
    manifest = {
        "format": _FORMAT,
        "agent": None if agent is None else agent.name,
        "settings": {} if agent is None else as_json(dict(agent.settings)),
        "leaves": {name: described(leaf) for name, leaf in leaves.items()},
        "versions": versions(),
    }
    write_arrays(file, arrays, manifest)


def load(path: str | os.PathLike[str], like: Agent | PyTree) -> PyTree:
    """The state in a file of `save`, to the bit, on JAX's default device.

    Args:
        path: path of the file.
        like: the agent whose state it is, or a tree of the same structure, such as shapes of `jax.eval_shape`.

    Raises:
        FileNotFoundError: no such file.
        TypeError: `like` is neither an agent nor a tree of arrays.
        ValueError: the file is damaged, or differs from `like` in path, shape or dtype of a leaf.
    """
    file = located(path)
    arrays, manifest = read_arrays(file)
    check_format(file, manifest, _FORMAT)
    if isinstance(like, Agent):
        like = jax.eval_shape(unwrap(like.init), jax.random.key(0))
    wanted = dict(named_leaves(like))
    for name, leaf in wanted.items():
        if not hasattr(leaf, "dtype") and not isinstance(leaf, int | float | complex):
            raise TypeError(
                f"like must be an agent, as a factory makes it of an environment, or a tree of arrays; its leaf {name} "
                f"is {leaf!r:.80}"
            )
    expected, found = {name: described(leaf) for name, leaf in wanted.items()}, manifest["leaves"]
    if expected != found:
        raise ValueError(f"{file} holds another state: {_difference(found, expected)}. {_origin(manifest)}")
    structure = jax.tree.structure(like)
    return structure.unflatten(as_leaf(arrays[name], leaf) for name, leaf in wanted.items())


def inspect(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of a file of `save`: format, agent, settings, leaves and versions.

    `seqdec.agents.make(manifest["agent"], env, **manifest["settings"])` builds the agent again if its settings are
    numbers and names. Raises as `load`.
    """
    file = located(path)
    _, manifest = read_arrays(file)
    check_format(file, manifest, _FORMAT)
    return manifest


def named_leaves(tree: PyTree) -> list[tuple[str, Any]]:
    """Leaves with their paths: "belief.mean", or "['belief'].mean" where short names are ambiguous.

    Raises:
        ValueError: two leaves of one path, or keys of a dict that cannot be sorted.
    """
    try:
        leaves = jax.tree_util.tree_leaves_with_path(tree)
    except ValueError as error:
        raise ValueError(f"a dict of the tree has keys that cannot be sorted ({error}); make all of them str") from None
    names = [jax.tree_util.keystr(path, simple=True, separator=".") or "state" for path, _ in leaves]
    if len({*names, _RESERVED}) <= len(names) or not _is_unicode("".join(names)):
        names = [jax.tree_util.keystr(path) for path, _ in leaves]
    for name, times in Counter(names).items():
        if times > 1:
            raise ValueError(
                f"{times} leaves of the tree have the same path {name}: give them keys with different names"
            )
    return list(zip(names, (leaf for _, leaf in leaves), strict=True))


def _is_unicode(text: str) -> bool:
    """Whether a text can be encoded: no half of a surrogate pair."""
    return text.encode("utf-8", "ignore").decode() == text


def packed(tree: PyTree) -> bytes:
    """A tree as bytes, without its structure."""
    return b"".join([as_array(name, leaf).tobytes() for name, leaf in named_leaves(tree)])


def unpacked(content: bytes, like: PyTree) -> PyTree:
    """Inverse of `packed`, for a tree of the same shapes."""
    leaves, start = [], 0
    for leaf in jax.tree.leaves(like):
        kind: Any = jax.eval_shape(jax.random.key_data if _is_key(leaf) else jnp.asarray, leaf)
        array = np.frombuffer(content, kind.dtype, math.prod(kind.shape), start).reshape(kind.shape)
        leaves.append(as_leaf(array, leaf))
        start += array.nbytes
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def described(leaf: Any) -> dict[str, Any]:
    """Shape and dtype of a leaf, or the generator of a random key."""
    leaf = leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)
    dtype = leaf.dtype.newbyteorder("=") if isinstance(leaf.dtype, np.dtype) else leaf.dtype
    return {"shape": list(leaf.shape), "dtype": str(dtype)}


def as_array(name: str, leaf: Any) -> np.ndarray:
    """A leaf as a NumPy array, a random key as integers. Raises TypeError for what a file cannot hold."""
    if _is_key(leaf):
        return np.asarray(jax.random.key_data(leaf))
    if not isinstance(leaf, np.ndarray | np.generic | jax.Array | int | float | complex):
        raise TypeError(
            f"the leaf {name} must be an array, a random key or a number; got {type(leaf).__name__}: convert it, as "
            "with numpy.asarray() or dict()"
        )
    if isinstance(leaf, np.ma.MaskedArray):
        raise TypeError(f"the leaf {name} is a masked array, whose mask a file cannot hold: fill it, as with filled()")
    if isinstance(leaf, int) and leaf.bit_length() > 31:
        raise TypeError(f"the leaf {name} is an integer of more than 32 bits; got {leaf}: save it as an array")
    array = np.asarray(leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf))
    if array.dtype.name not in _DTYPES:
        raise TypeError(
            f"the leaf {name} has the dtype {array.dtype}, which a file cannot hold; convert it to one of "
            f"{', '.join(sorted(_DTYPES))}"
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_leaf(array: np.ndarray, like: Any) -> Any:
    """Inverse of `as_array`; `like`: a random key, or on the host."""
    if isinstance(like, np.ndarray | np.generic):
        return array
    if not _is_key(like):
        return jnp.asarray(array)
    generator = jax.random.key_impl(jnp.empty((), like.dtype))  # a shape has no generator
    return jax.random.wrap_key_data(jnp.asarray(array), impl=generator)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _difference(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    for name in (*expected, *found):
        if name not in found:
            return f"it has no leaf {name}"
        if name not in expected:
            return f"it has a leaf {name}, which is not expected"
        if found[name] != expected[name]:
            (old, new) = (f"{leaf['dtype']} of shape {tuple(leaf['shape'])}" for leaf in (found[name], expected[name]))
            modes = {"float32": "off", "float64": "on"}
            was, wanted = found[name]["dtype"], expected[name]["dtype"]
            saved = f"; it was saved with jax_enable_x64 {modes[was]}" if {was, wanted} == set(modes) else ""
            return f"its leaf {name} is {old}, where {new} is expected{saved}"
    return "its leaves have another order"


def _origin(manifest: Mapping[str, Any]) -> str:
    """A sentence on the agent that the file is of, and the remedy."""
    if manifest["agent"] is None:
        return "Load it with a tree of the structure that was saved"
    return f"Build the agent as it was saved: {manifest['agent']} with the settings {manifest['settings']}"
