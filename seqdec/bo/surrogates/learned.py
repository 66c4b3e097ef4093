"""Learners as surrogates.

An update is shown the appended rows, after a new standardization all, from the prior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec.bo.surrogates.contract import History, Surrogate
from seqdec.core import Array, Key, Learner


class State(NamedTuple):
    """A learner's state and the number of rows shown."""

    learned: Any
    absorbed: Array
    """() int32"""


def learned(
    learner: Learner,
    *,
    growth: float,
    chunk: int = 1,
    padded: Callable[[Array, Array], Any] = lambda rows, known: rows,
) -> Surrogate:
    """The surrogate of a learner of one response for each of n rows (n, d) of the unit cube.

    Args:
        learner: its posterior is that of rows (n, d).
        growth: as in `Surrogate`.
        chunk: responses of an update.
        padded: (rows (n, d), known (n,) bool) -> input of an update; unknown rows teach nothing.
    """

    def init(key: Key, history: History) -> State:
        return State(learner.init(key), jnp.int32(0))

    def condition_on(state: State, history: History) -> State:
        def update(learned: Any, index: Array, known: Array) -> Any:
            y = jnp.where(known, history.y[index], 0.0)
            return learner.update(learned, padded(history.x[index], known), y)[0]

        return State(shown(update, state.learned, state.absorbed, history, chunk), history.filled)

    fit, extend = jax.jit(condition_on, donate_argnums=0), jax.jit(condition_on)
    return Surrogate(
        jax.jit(init), fit, extend, lambda state: learner.posterior(state.learned), growth, "thompson", jnp.float32
    )


def shown(
    update: Callable[[Any, Array, Array], Any], learned: Any, absorbed: Array, history: History, chunk: int
) -> Any:
    """`learned` after the rows of the history from `absorbed` () on, `chunk` an update.

    `update`: (learned, indices (n,), known (n,) bool) -> learned; unknown rows pad the last chunk.
    """
    new, last = history.filled - absorbed, len(history.x) - 1

    def updates(size: int, count: Array, learned: Any) -> Any:
        def step(number: Any, learned: Any) -> Any:
            index = absorbed + jnp.asarray(size * number, jnp.int32) + jnp.arange(size, dtype=jnp.int32)
            return update(learned, jnp.minimum(index, last), index < jnp.asarray(history.filled, jnp.int32))

        return jax.lax.fori_loop(0, count, step, learned)

    if chunk == 1:
        return updates(1, new, learned)
    # A single new row, the usual case, is not padded to a chunk. Zero iterations are free.
    learned = updates(1, jnp.where(new == 1, 1, 0), learned)
    return updates(chunk, jnp.where(new == 1, 0, (new + chunk - 1) // chunk), learned)
