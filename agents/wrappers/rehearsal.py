r"""Rehearsal: a filter learns past observations again, from a bounded memory.

After the update with the newest observation, whose row (x, y) enters the memory, each step takes

    theta, Sigma <- one more step of the filter, with k rows drawn from the memory          k = `updates`
    theta <- theta + optimizer(gradient of the mean of |y - f(theta, x)|^2 / 2)             over a minibatch

with f the expected response. The k rows are one joint update, `Filter.update_batch`, or sequential where the filter has
none; process noise arrives once. The minibatch is the newest observation and others drawn.

With k replays a step the belief corresponds to R / (1 + k): standard deviations too small by a factor sqrt(1 + k).
The minibatch step only moves the mean.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from seqdec.agents._neural.experience import Experience, finite, key_numbers, remember, rows_of
from seqdec.boundary.checks import count
from seqdec.core import Array, Filter, HasSpaces, Learner
from seqdec.memory import Memory, MemoryState
from seqdec.optim.common import promoting


class Rehearsal(NamedTuple):
    """Use of past observations at each step: see `seqdec.agents.wrappers.rehearsal`.

    Each replayed update makes the belief more overconfident.
    """

    memory: Memory
    """of observations, from `seqdec.memory`"""
    updates: int = 1
    """k, rows drawn for one more step of the filter"""
    optimizer: optax.GradientTransformation | None = None
    """any optax transformation, for one step of the mean on a minibatch; None: no such step"""
    batch_size: int = 32
    """rows of the minibatch with the newest"""


class RehearsalState(NamedTuple):
    """State of a learner that rehearses."""

    belief: Any
    """of the filter"""
    memory: MemoryState
    """rows `seqdec.agents._neural.experience.Experience`"""
    optimizer: Any
    """its state; None without"""
    key: Array
    """data of the constant key of draws from the memory"""


def rehearsing(learner: Learner, flt: Filter, rehearsal: Rehearsal, spaces: HasSpaces) -> Learner:
    """`learner` with rehearsal after each update; a rejected observation is not stored and triggers no rehearsal.

    Args:
        learner: learner whose state is the belief of `flt`, as from `seqdec.filters.learner`.
        flt: its filter.
        rehearsal: what to rehearse; ValueError or TypeError if the filter cannot.
        spaces: spaces of the environment.
    """
    rehearsal = _checked(flt, rehearsal)
    record, memory = rows_of(spaces), rehearsal.memory
    transform = None if rehearsal.optimizer is None else promoting(rehearsal.optimizer)

    def init(key):
        belief, draws = learner.init(key), key_numbers(jax.random.fold_in(key, 2))
        optimizer = None if transform is None else transform.init(flt.mean(belief))
        return RehearsalState(belief, memory.init(record.example), optimizer, draws)

    def update(state, x, y, observed=None, allowed=None):
        belief, info = learner.update(state.belief, x, y, observed, allowed)
        accept = ~jnp.any(info.rejected)
        newest = record.rows(x, y, observed)
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.memory.seen)
        placing, replaying, batching = jax.random.split(key, 3)
        # Written before it is read, so that XLA need not keep the memory as it was.
        stored = remember(memory, placing, state.memory, newest, accept)
        state = state._replace(belief=belief, memory=stored)
        if rehearsal.updates:
            rows = memory.draw(replaying, stored, rehearsal.updates)
            state = state._replace(belief=_replay(flt, belief, rows, accept, every=observed is None))
        if transform is not None:
            rows = memory.draw(batching, stored, max(rehearsal.batch_size - len(newest.y), 0))
            rows = jax.tree.map(lambda *parts: jnp.concatenate(parts), newest, rows)
            state = _descend(flt, transform, state, rows, accept)
        return state, info

    return Learner(init, update, lambda state: learner.posterior(state.belief))


def _checked(flt: Filter, rehearsal: Rehearsal) -> Rehearsal:
    if not isinstance(rehearsal, Rehearsal):
        raise TypeError(f"rehearsal must be a seqdec.agents.Rehearsal; got {rehearsal!r}")
    if not isinstance(rehearsal.memory, Memory):
        raise TypeError(
            f"rehearsal.memory must be a memory, such as seqdec.memory.reservoir(10_000); got {rehearsal.memory!r}"
        )
    rehearsal = rehearsal._replace(
        updates=count("rehearsal.updates", rehearsal.updates, 0),
        batch_size=count("rehearsal.batch_size", rehearsal.batch_size),
    )
    if not isinstance(rehearsal.optimizer, optax.GradientTransformation | None):
        raise TypeError(f"rehearsal.optimizer must be an optax transformation or None; got {rehearsal.optimizer!r}")
    if rehearsal.optimizer is not None and flt.recenter is None:
        raise ValueError("this filter's belief has no mean to optimize: leave out rehearsal.optimizer")
    return rehearsal


def _replay(flt: Filter, belief: Any, rows: Experience, accept: Array, *, every: bool) -> Any:
    """A step of the filter with rows (k, ...), if `accept` (); `every`: all responses of a row, else one."""
    which = None if every or rows.y.shape[1] == 1 else jnp.argmax(rows.observed, 1)[:, None]
    # The filter leaves out what is not a number.
    y = jnp.where(rows.observed & accept, rows.y, jnp.nan)
    y = y if which is None else jnp.take_along_axis(y, which, 1)
    belief = flt.predict(belief)
    if flt.update_batch is not None:
        return flt.update_batch(belief, rows.x, y, which)[0]
    return jax.lax.scan(lambda belief, row: (flt.update(belief, *row)[0], None), belief, (rows.x, y, which))[0]


def _descend(
    flt: Filter,
    transform: optax.GradientTransformationExtraArgs,
    state: RehearsalState,
    rows: Experience,
    accept: Array,
) -> RehearsalState:
    """A step of the optimizer from the belief's mean, unless not finite."""

    def loss_of(params):
        errors = jnp.where(rows.observed, rows.y - jax.vmap(flt.response, (None, 0))(params, rows.x), 0)
        return 0.5 * jnp.sum(errors**2) / len(rows.y)

    params = flt.mean(state.belief)
    loss, gradients = jax.value_and_grad(loss_of)(params)
    updates, optimizer = transform.update(gradients, state.optimizer, params, value=loss)
    moved = optax.apply_updates(params, updates)
    good = accept & finite(moved)
    new, old = (moved, optimizer), (params, state.optimizer)
    moved, optimizer = jax.tree.map(lambda new, old: jnp.where(good, new, old), new, old)
    assert flt.recenter is not None
    return state._replace(belief=flt.recenter(state.belief, moved), optimizer=optimizer)
