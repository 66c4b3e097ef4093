"""Agents whose actions are drawn from a function of their own probabilities, and logged with that law."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces

from seqdec.core import Action, Agent, Array, Masked

Law = Callable[[Any, Array, Array], Array]
"""(state, allowed (n,) bool, own probabilities (n,)) -> probabilities (n,)"""


def redrawn(agent: Agent, law: Law, called: str, inner: Callable[[Any], Any] = lambda state: state) -> Agent:
    """`agent`, drawing actions from `law`; `inner(state)` is its own state.

    Raises ValueError for an agent without probabilities of finitely many actions, or that depends on its own law.
    """
    assess = agent.assess
    if agent.weighted:
        raise ValueError(
            f"{called} must be applied before {agent.name}, whose probabilities may not change: wrap the inner agent"
        )
    if assess is None or (agent.spaces is not None and isinstance(agent.spaces.action_space, spaces.Box)):
        raise ValueError(f"{called} needs probabilities of all actions, which {agent.name} does not compute")

    def lawful(state, observation, own):
        allowed = observation.mask if isinstance(observation, Masked) else jnp.ones(own.shape, bool)
        return law(state, allowed, own).astype(own.dtype)

    def act(key, state, observation):
        own, draw = jax.random.split(key)
        played = agent.act(own, inner(state), observation)
        chances = played.probabilities
        if chances is None:
            chances = assess(own, inner(state), observation).probability
        chances = lawful(state, observation, jnp.where(jnp.isnan(played.propensity), jnp.nan, chances))
        drawn = jax.random.categorical(draw, jnp.log(chances)).astype(played.value.dtype)
        value = jnp.where(jnp.isfinite(chances).all(), drawn, played.value)
        return Action(value, chances[value], chances)

    def assessed(key, state, observation):
        found = assess(key, inner(state), observation)
        return found._replace(probability=lawful(state, observation, found.probability))

    return agent._replace(act=act, name=f"{agent.name}-{called}", act_batch=None, widened=None, assess=assessed)
