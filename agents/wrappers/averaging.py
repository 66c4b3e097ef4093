r"""Averaging: a learner that answers by the average of its parameters over its last steps.

    theta_bar <- a_t theta_bar + (1 - a_t) theta,     a_t = min(a, t / (t + 100))

with theta the parameters after the t-th update. The horizon is t / 100 steps at first and grows to 1 / (1 - a).
Learning goes on from theta.

Source: Polyak, Juditsky, "Acceleration of stochastic approximation by averaging", 1992.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec.boundary.checks import number
from seqdec.core import Array, Learner, PyTree

_START = 100
"""The 100 in a_t: updates up to which the average hardly differs from the latest parameters."""


class Averaged(NamedTuple):
    """State of a learner and average of its parameters."""

    state: Any
    """of the learner"""
    average: PyTree
    """theta_bar"""
    updates: Array
    """() float, updates without those rejected"""


def averaging(
    learner: Learner, decay: float, get: Callable[[Any], PyTree], put: Callable[[Any, PyTree], Any]
) -> Learner:
    """`learner` with the posterior of its averaged parameters.

    Args:
        learner: learner with parameters.
        decay: a in [0, 1), else ValueError; averages the last 1 / (1 - a) updates or so.
        get: (state of the learner) -> theta.
        put: (state of the learner, theta) -> state with these parameters.
    """
    number("average", decay, 0, 1)

    def init(key):
        state = learner.init(key)
        return Averaged(state, jax.tree.map(jnp.copy, get(state)), jnp.zeros(()))

    def update(state, x, y, observed=None, allowed=None):
        inner, info = learner.update(state.state, x, y, observed, allowed)
        taken = ~jnp.any(info.rejected)
        updates = state.updates + taken.astype(state.updates.dtype)
        average = moved(state.average, get(inner), updates, decay, taken)
        return Averaged(inner, average, updates), info

    return Learner(
        init, update, lambda state: learner.posterior(put(state.state, state.average)), uncertain=learner.uncertain
    )


def moved(average: PyTree, params: PyTree, updates: Array, decay: float, taken: Array | bool = True) -> PyTree:
    """theta_bar after update number `updates`, from 1; unchanged unless `taken`."""
    weight = jnp.where(taken, 1 - jnp.minimum(decay, updates / (updates + _START)), 0)
    return jax.tree.map(lambda old, new: old + weight.astype(old.dtype) * (new - old), average, params)
