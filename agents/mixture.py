r"""Regressions that differ in their prior and in how fast they forget, weighted by what they foretold.

A kind with scale r and half-life H is a regression (`seqdec.agents.regression`) on the features (r z, 3), whose
observations count half as much after H steps. A large r is for rewards that are nearly free of noise, a finite H for a
world that changes.

Weights. With p_k the predictive density of a reward under member k, before it is learnt,

    log weight_k <- (1 - 1 / horizon) log weight_k + log p_k(reward) - price_k        sum_k weight_k = 1

so that what was foretold long ago is forgotten: the member that is better now need not be the one that was better at
first. A member that forgets explores for ever, so that it has to be worth it: its price is 0.2 nats a step, that of the
others 0. Its log weight is kept above that of the best less 6, from where it returns in a few steps. Mean, variance and
noise of an action's reward are weighted means of the members'.

Source: Raftery, Karny, Ettler, "Online prediction under model uncertainty via dynamic model averaging", 2010; the price
is ours.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seqdec.agents import regression
from seqdec.agents.experience import Experience
from seqdec.agents.regression import Answer, Regression
from seqdec.core import Array, Key

_PRICE = 0.2
"""Nats a step that a member which forgets has to foretell better by."""
_LEAST = -6.0
"""Its log weight at least, where the largest is 0."""


class Kind(NamedTuple):
    """How a member differs."""

    scale: float = 1.0
    """r"""
    half_life: float | None = None
    """H, in steps; None is infinity"""


def prior(kinds: tuple[Kind, ...], responses: int, size: int) -> Regression:
    """Members with `size` features, before any observation: with a leading axis (K,)."""
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * len(kinds)), regression.prior(responses, size))


def features(kinds: tuple[Kind, ...], z: Array) -> Array:
    """(K, F) features of the members, from what they share (F - 1,)."""
    scaled = jnp.array([kind.scale for kind in kinds], z.dtype)[:, None] * jnp.ravel(z)[None]
    return jnp.concatenate([scaled, jnp.full((len(kinds), 1), regression.CONSTANT, z.dtype)], 1)


def answers(members: Regression, phis: Array, location: Array, neglect: float) -> Answer:
    """The members' predictions, (K, n) each."""
    return jax.vmap(regression.answer, (0, 0, None, None))(members, phis, location, neglect)


def drawn(key: Key, members: Regression, location: Array) -> Array:
    """(K, n, F) weights, drawn from each member's belief."""
    keys = jax.random.split(key, len(members.weights))
    return jax.vmap(regression.drawn, (0, 0, None))(keys, members, location)


def learn(
    members: Regression, phis: Array, row: Experience, location: Array, single: bool, accept: Array
) -> tuple[Regression, Array]:
    """The members after one step, as `seqdec.agents.regression.learn`, and the log densities (K,)."""
    return jax.vmap(lambda belief, phi: regression.learn(belief, phi, row, location, single, accept))(members, phis)


def forgotten(kinds: tuple[Kind, ...], members: Regression, steps: Array, accept: Array) -> Regression:
    """The members after step number `steps` () int32, with what those that forget have forgotten."""
    for place, (_, half_life) in enumerate(kinds):
        if half_life is not None:
            own = jax.tree.map(lambda leaf, at=place: leaf[at], members)
            own = regression.forgotten(own, half_life, steps, accept)
            members = jax.tree.map(lambda leaf, new, at=place: leaf.at[at].set(new), members, own)
    return members


def log_weights(kinds: tuple[Kind, ...]) -> Array:
    """(K,) of all members before any observation."""
    return jnp.array([0.0 if kind.half_life is None else _LEAST for kind in kinds])


def reweighted(kinds: tuple[Kind, ...], log_weights: Array, densities: Array, horizon: float) -> Array:
    """The log weights (K,) of all members after a step; the largest is 0."""
    forgets = jnp.array([kind.half_life is not None for kind in kinds])
    fresh = (1 - 1 / horizon) * log_weights + densities - jnp.where(forgets, _PRICE, 0.0)
    fresh = fresh - jnp.max(fresh)
    return jnp.where(forgets, jnp.maximum(fresh, _LEAST), fresh)
