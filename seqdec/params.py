"""Leaves of a parameter tree: by layer, as one vector, as pieces."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from seqdec.core import Array, IsLast, PyTree


def at_least_float32(*dtypes: Any) -> Any:
    """Dtypes promoted with float32."""
    return jnp.result_type(jnp.float32, *dtypes)


def path_names(path) -> tuple[str, ...]:
    """Names along a path of `jax.tree_util`."""
    return tuple(str(getattr(entry, "key", getattr(entry, "idx", getattr(entry, "name", entry)))) for entry in path)


def split(tree: PyTree, is_last: IsLast) -> tuple[list[Array], list[Array]]:
    """Leaves as (hidden, last), each in the order of `jax.tree.leaves`.

    Raises ValueError, with the paths, where nothing or everything is in the last layer.
    """
    leaves, structure = jax.tree.flatten(tree)
    places = _places(structure, is_last)
    hidden, last = ([leaf for leaf, own in zip(leaves, places, strict=True) if own == wanted] for wanted in (0, 1))
    return hidden, last


def join(like: PyTree, is_last: IsLast, hidden: list[Array], last: list[Array]) -> PyTree:
    """Inverse of `split`: a tree shaped like `like`."""
    structure = jax.tree.structure(like)
    sources = iter(hidden), iter(last)
    return structure.unflatten([next(sources[own]) for own in _places(structure, is_last)])


@functools.lru_cache(maxsize=256)
def _places(structure: Any, is_last: IsLast) -> tuple[bool, ...]:
    leaves = jax.tree_util.tree_flatten_with_path(structure.unflatten(range(structure.num_leaves)))[0]
    paths = [path_names(path) for path, _ in leaves]
    places = tuple(bool(is_last(path)) for path in paths)
    if all(places) or not any(places):
        listed = ", ".join("/".join(path) for path in paths)
        raise ValueError(
            f"is_last matches {'everything' if any(places) else 'nothing'} among the parameters {listed}; "
            "pass a predicate on paths that is true in the output layer only, or use a filter of one block (lrkf)"
        )
    return places


def ravel(leaves: list[Array], batch_axes: int = 0) -> Array:
    """Leaves as one vector (D,), or rows (..., D) along leading batch axes."""
    return jnp.concatenate([leaf.reshape(*leaf.shape[:batch_axes], -1) for leaf in leaves], axis=-1)


def unravel(vectors: Array, like: list[Array]) -> list[Array]:
    """Inverse of `ravel`: parts of (..., D) with the shapes and dtypes of `like`."""
    ends = [0]
    for leaf in like:
        ends.append(ends[-1] + leaf.size)
    return [
        vectors[..., a:b].reshape(*vectors.shape[:-1], *leaf.shape).astype(leaf.dtype)
        for a, b, leaf in zip(ends, ends[1:], like, strict=False)
    ]


_LARGE = 512
"""Entries of the least leaf with a piece of its own."""


def pieces(leaves: list[Array], batch_axes: int = 0) -> tuple[Array, ...]:
    """Leaves as vectors (D_p,) or rows (..., D_p), small ones concatenated as the last."""
    large, small = by_size(leaves, batch_axes)
    flat = [leaf.reshape(*leaf.shape[:batch_axes], -1) for leaf in large]
    return (*flat, ravel(small, batch_axes)) if small else tuple(flat)


def unpieces(parts: tuple[Array, ...], like: list[Array]) -> list[Array]:
    """Inverse of `pieces`: leaves with the shapes and dtypes of `like`."""
    large, small = by_size(like, 0)
    whole = [part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, large, strict=False)]
    sources = iter(whole), iter(unravel(parts[-1], small) if small else [])
    return [next(sources[leaf.size < _LARGE]) for leaf in like]


def by_size(leaves: list[Any], batch_axes: int) -> tuple[list[Any], list[Any]]:
    """(large, small), in order; anything with a shape is a leaf."""
    sizes = [math.prod(leaf.shape[batch_axes:]) for leaf in leaves]
    large = [leaf for leaf, size in zip(leaves, sizes, strict=True) if size >= _LARGE]
    return large, [leaf for leaf, size in zip(leaves, sizes, strict=True) if size < _LARGE]
