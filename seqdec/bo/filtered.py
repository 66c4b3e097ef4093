"""Surrogates from the filters: a recursive belief over a neural network, whose cost per query does not grow.

The network is the paper's, three hidden layers of 180 ELU units, on the unit cube scaled to [-a, a]. Responses enter in
chunks, one Kalman update for each, so that the covariance factor is read once a chunk. A fit appends the new rows; when
the responses are standardised anew, the optimiser starts again from the prior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec import filters, models
from seqdec.bo.surrogates import History, Surrogate
from seqdec.core import Array, Filter, Key, Posterior

_CHUNK = 8


class State(NamedTuple):
    """A belief and what it has seen."""

    key: Key
    """makes the belief before any data, again and again the same"""
    belief: Any
    seen: Array
    """() int32 rows of the history absorbed"""


def filtered(make: Callable[..., Filter], network: models.Network, *, scale: float, growth: float) -> Surrogate:
    """The surrogate of a filter.

    Args:
        make: (apply, is_last) -> filter of a network with several outputs.
        network: of one output on (d,) inputs.
        scale: a; inputs reach it at the walls of the cube.
        growth: as in `Surrogate`.
    """
    is_last = network.is_last
    scaled = network._replace(apply=lambda params, x: network.apply(params, scale * (2 * x - 1)))
    rows = models.per_candidate(scaled).apply

    # Rows beyond the history are multiplied by zero: no gradient, no innovation, no effect.
    learner = make(lambda params, x: jnp.where(x[1], rows(params, x[0]), 0.0), is_last)

    def prior(key: Key) -> Any:
        weights, covariance = jax.random.split(key)
        return make(rows, is_last).init(covariance, network.init(weights))

    def init(key: Key, history: History) -> State:
        return State(key, prior(key), jnp.int32(0))

    def condition_on(state: State, history: History) -> State:
        def absorb(size: int, count: Array, belief: Any) -> Any:
            def step(chunk, belief):
                at = state.seen + size * chunk + jnp.arange(size)
                keep, at = at < history.filled, jnp.minimum(at, len(history.x) - 1)
                y = jnp.where(keep, history.y[at], 0.0)
                return learner.update(learner.predict(belief), (history.x[at], keep), y)[0]

            return jax.lax.fori_loop(0, count, step, belief)

        # One row, which is the rule, goes without the rest of a chunk. A loop of no trips costs nothing.
        new = history.filled - state.seen
        belief = absorb(1, jnp.where(new == 1, 1, 0), state.belief)
        belief = absorb(_CHUNK, jnp.where(new == 1, 0, (new + _CHUNK - 1) // _CHUNK), belief)
        return State(state.key, belief, history.filled)

    def posterior(state: State) -> Posterior:
        return filters.posterior(make(rows, is_last), state.belief)

    return Surrogate(init, condition_on, condition_on, posterior, growth, "thompson", jnp.float32)
