"""A bounded memory of past observations: a sample of all, or the last ones.

A reservoir (Vitter, "Random sampling with a reservoir", 1985) or ring of `capacity` rows in fixed arrays; only rows
added or drawn are copied.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec.boundary.checks import count
from seqdec.core import Array, Key, PyTree


class MemoryState(NamedTuple):
    """The rows kept."""

    rows: PyTree
    """(capacity, ...) each; zeros from `filled` on"""
    seen: Array
    """() int32, how many were ever added, at most the largest number"""


class Memory(NamedTuple):
    """Pure functions of a `MemoryState`."""

    init: Callable[[PyTree], MemoryState]
    """(example of a row, or its shapes) -> empty memory"""
    add: Callable[[Key, MemoryState, PyTree, Array | bool], MemoryState]
    """(key, state, row, accept) -> state with the row, unchanged unless `accept` () bool"""
    draw: Callable[[Key, MemoryState, int], PyTree]
    """(key, state, n) -> n uniform rows with replacement; zeros from an empty memory"""
    capacity: int
    """most rows kept"""


def reservoir(capacity: int) -> Memory:
    """A memory with a uniform sample of all rows, at most `capacity` >= 1."""

    def place(key, seen):
        return jnp.where(seen < capacity, seen, jax.random.randint(key, (), 0, seen + 1, seen.dtype))

    return _memory(capacity, place)


def last(capacity: int) -> Memory:
    """A memory of the last `capacity` >= 1 rows."""
    return _memory(capacity, lambda key, seen: seen % capacity)


def filled(state: MemoryState) -> Array:
    """() int32, rows in use."""
    return jnp.minimum(state.seen, len(jax.tree.leaves(state.rows)[0]))


def present(state: MemoryState) -> Array:
    """(capacity,) bool: which rows are in use."""
    return jnp.arange(len(jax.tree.leaves(state.rows)[0]), dtype=jnp.int32) < state.seen


def counted(seen: Array, accept: Array | bool) -> Array:
    """() int32, one more if `accept`, at most the largest number."""
    more = jnp.asarray(accept) & (seen < jnp.iinfo(jnp.int32).max - 1)
    return seen + more.astype(seen.dtype)


def sampled(state: MemoryState, rows: PyTree, uniform: Array, accept: Array | bool) -> MemoryState:
    """A reservoir with rows (k, ...), unchanged unless `accept` () bool.

    `uniform` (2, k) in [0, 1): whether each is kept, once the memory is full, and where.
    """
    capacity = len(jax.tree.leaves(state.rows)[0])
    count = uniform.shape[1]
    seen = jnp.minimum(state.seen, jnp.iinfo(jnp.int32).max - count - 1) + jnp.arange(count, dtype=jnp.int32)
    kept = uniform[0] * (seen + 1) < capacity
    place = jnp.where(kept, jnp.minimum((uniform[1] * capacity).astype(seen.dtype), capacity - 1), capacity)
    place = jnp.where(accept, jnp.where(seen < capacity, seen, place), capacity)
    fresh = jax.tree.map(lambda leaf, new: leaf.at[place].set(new.astype(leaf.dtype), mode="drop"), state.rows, rows)
    return MemoryState(fresh, jnp.where(accept, seen[-1] + 1, state.seen))


def rows_at(state: MemoryState, uniform: Array) -> PyTree:
    """Rows (k, ...) of a memory not empty, with replacement, by numbers (k,) uniform in [0, 1)."""
    place = jnp.minimum((uniform * filled(state)).astype(jnp.int32), filled(state) - 1)
    return jax.tree.map(lambda leaf: leaf[place], state.rows)


def _memory(capacity: int, place: Callable[[Key, Array], Array]) -> Memory:
    capacity = count("capacity", capacity)
    return Memory(functools.partial(_init, capacity), functools.partial(_add, place), _draw, capacity)


def _init(capacity: int, example: PyTree) -> MemoryState:
    def empty(leaf: Any) -> Array:
        return jnp.zeros((capacity, *jnp.shape(leaf)), jnp.result_type(leaf))

    return MemoryState(jax.tree.map(empty, example), jnp.int32(0))


def _add(
    place: Callable[[Key, Array], Array], key: Key, state: MemoryState, row: PyTree, accept: Array | bool
) -> MemoryState:
    capacity = len(jax.tree.leaves(state.rows)[0])
    # An index beyond the end is dropped, so that a rejected row costs no copy of the memory.
    index = jnp.where(accept, place(key, state.seen), capacity)
    rows = jax.tree.map(
        lambda leaf, new: leaf.at[index].set(jnp.asarray(new, leaf.dtype), mode="drop"), state.rows, row
    )
    return MemoryState(rows, counted(state.seen, accept))


def _draw(key: Key, state: MemoryState, n: int) -> PyTree:
    which = jax.random.randint(key, (n,), 0, jnp.maximum(filled(state), 1))
    return jax.tree.map(lambda leaf: leaf[which], state.rows)
