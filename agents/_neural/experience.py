"""Observations as rows of a `seqdec.memory.Memory`: inputs of the network and observed responses.

    Discrete actions                    x the context, y (n,) one response per action
    Box actions, and Dict candidates    x (1, ...) the chosen row, y (1,)

Rows of the first kind have a mask: one entry for a scalar reward, all under full information. Full information on a
Dict of n candidates is n rows of the second kind.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec import memory as memories
from seqdec.agents.choices import choices_for
from seqdec.boundary.spaces import moderate
from seqdec.core import Array, HasSpaces, Key, PyTree
from seqdec.memory import Memory, MemoryState
from seqdec.runtime import scan


class Experience(NamedTuple):
    """One row, or several with a leading axis."""

    x: PyTree
    """input of the network"""
    y: Array
    """(n,) responses, zero where not observed"""
    observed: Array
    """(n,) bool"""
    weights: Array | None = None
    """(members,) for an ensemble"""
    step: Array | None = None
    """() int32 number of the observation"""


class Recorder(NamedTuple):
    example: Experience
    """shapes of one row"""
    rows: Callable[..., Experience]
    """(x, y, observed) -> (k, ...) rows; k = n under full information on a Dict, else 1"""


def rows_of(spaces: HasSpaces) -> Recorder:
    choices = choices_for(spaces)
    by_row = isinstance(spaces.observation_space, gym_spaces.Dict)
    outputs = int(spaces.action_space.n) if isinstance(spaces.action_space, gym_spaces.Discrete) else 1

    def rows(x, y, observed):
        if by_row:
            x = jax.tree.map(lambda leaf: leaf[:, None] if observed is None else leaf[observed][None, None], x)
            y = jnp.reshape(y, (-1, 1))
            return Experience(x, y, jnp.ones(y.shape, bool))
        seen = jnp.ones(outputs, bool) if observed is None else jnp.arange(outputs) == observed.astype(int)
        return jax.tree.map(lambda leaf: leaf[None], Experience(x, jnp.where(seen, y, 0), seen))

    def zeros():
        return first(
            rows(*choices.evidence(_zeros(spaces.observation_space), _zeros(spaces.action_space), jnp.zeros(())))
        )

    example = jax.eval_shape(zeros)

    def alike(x, y, observed):
        return jax.tree.map(lambda leaf, kept: leaf.astype(kept.dtype), rows(x, y, observed), example)

    return Recorder(example, alike)


def _zeros(space: gym_spaces.Space) -> PyTree:
    if isinstance(space, gym_spaces.Dict):
        return {name: _zeros(part) for name, part in space.items()}
    return np.zeros(space.shape or (), space.dtype)


def first(rows: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[0], rows)


def finite(rows: PyTree) -> Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(rows)]))


def usable(rows: PyTree) -> Array:
    """() bool: all entries are finite, and sums of their squares in float32."""
    return jnp.all(jnp.stack([jnp.all(moderate(leaf)) for leaf in jax.tree.leaves(rows)]))


def remember(memory: Memory, key: Key, state: MemoryState, rows: PyTree, accept: Array) -> MemoryState:
    """The memory with the rows (k, ...) added in order, unchanged unless `accept` () bool."""
    keys = jax.random.split(key, len(jax.tree.leaves(rows)[0]))

    def add(state, at):
        return memory.add(at[0], state, at[1], accept), None

    return scan(add, state, (keys, rows))[0]


class Batch(NamedTuple):
    rows: PyTree
    """(b, ...) the newest first"""
    weights: Array
    """(b,) 1, or 0 for an absent row"""


def minibatch(memory: Memory, key: Key, state: MemoryState, newest: PyTree, size: int | None) -> Batch:
    """The newest rows (k, ...), filled up to b = `size` with draws from the newest and the memory without them.

    `size` None: the newest and the whole memory.
    """
    new = len(jax.tree.leaves(newest)[0])
    if size is None:
        rows, present = state.rows, memories.present(state)
    else:
        rows, present = _drawn(memory, key, state, newest, max(size - new, 0)), jnp.ones(max(size - new, 0), bool)
    return Batch(
        jax.tree.map(lambda *parts: jnp.concatenate(parts), newest, rows),
        jnp.concatenate([jnp.ones(new), present.astype(float)]),
    )


def key_numbers(key: Key) -> Array:
    """Data of a key of JAX's default generator; other keys are mapped to it."""
    default = jax.eval_shape(jax.random.key, 0).dtype
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.dtype != default:
        key = jax.random.key(jax.random.bits(key))
    return jax.random.key_data(key)


def _drawn(memory: Memory, key: Key, state: MemoryState, newest: PyTree, count: int) -> PyTree:
    new = len(jax.tree.leaves(newest)[0])
    old, draw = jax.random.split(key)
    which = jax.random.randint(draw, (count,), 0, new + memories.filled(state))

    def choose(old, newest):
        fresh = jnp.expand_dims(which < new, range(1, old.ndim))
        return jnp.where(fresh, newest[jnp.minimum(which, new - 1)], old)

    return jax.tree.map(choose, memory.draw(old, state, count), newest)
