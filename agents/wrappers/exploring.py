r"""Exploring: an agent that plays uniformly with a probability that falls with time.

    p_t(a) = f_t / n + (1 - f_t) q_t(a),     f_t = share t^(-power)

with q_t the agent's own probabilities of the n allowed actions, and t - 1 the rewards learned so far. Every action has
a propensity of at least f_t / n, so that intervals that hold at all times (`seqdec.ope.compare`, anytime) become narrow
for all actions, for power < 1/4 to a point, while the share of decisions that explore goes to zero. Actions are drawn
from p_t itself: propensities are exact also where q_t is a Monte Carlo estimate.

Source: Liang, Bojinov, "An experimental design for anytime-valid causal inference on multi-armed bandits", 2023.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces

from seqdec.agents.inputs import checked
from seqdec.boundary.checks import number
from seqdec.core import Action, Agent, Array, Masked
from seqdec.policies.common import weight


class Exploring(NamedTuple):
    """State of an agent, and its number of rewards."""

    state: Any
    """of the agent"""
    updates: Array
    """() int, rewards learned"""


def exploring(agent: Agent, *, share: float = 1.0, power: float = 0.24) -> Agent:
    """`agent` with a floor of its propensities that falls with the number of rewards.

    >>> from seqdec import agents, envs
    >>> agents.exploring(agents.linear(envs.linear()), share=0.5).name
    'linear-exploring'

    Args:
        agent: with a finite number of actions, whose probabilities it can tell (`Agent.assess`).
        share: f_1, the share of uniform decisions at first, in [0, 1].
        power: of the fall, at least 0; 0 keeps the share.

    Raises ValueError for a share or power out of range, or an agent without probabilities.
    """
    weight("share", share, 1)
    number("power", power)
    assess = agent.assess
    if assess is None or (agent.spaces is not None and isinstance(agent.spaces.action_space, spaces.Box)):
        raise ValueError(f"exploring needs probabilities of all actions, which {agent.name} does not tell")

    def mixed(state, observation, own):
        """p_t from q_t."""
        allowed = observation.mask if isinstance(observation, Masked) else jnp.ones(own.shape, bool)
        floor = share * (state.updates + 1.0) ** -power
        return (floor * allowed / jnp.maximum(allowed.sum(), 1) + (1 - floor) * own).astype(own.dtype)

    def act(key, state, observation):
        own, draw = jax.random.split(key)
        played = agent.act(own, state.state, observation)
        law = played.probabilities
        if law is None:
            law = assess(own, state.state, observation).probability
        law = mixed(state, observation, jnp.where(jnp.isnan(played.propensity), jnp.nan, law))
        drawn = jax.random.categorical(draw, jnp.log(law)).astype(played.value.dtype)
        value = jnp.where(jnp.isfinite(law).all(), drawn, played.value)
        return Action(value, law[value], law)

    def assessed(key, state, observation):
        found = assess(key, state.state, observation)
        return found._replace(probability=mixed(state, observation, found.probability))

    def init(key):
        return Exploring(agent.init(key), jnp.zeros((), jnp.int32))

    def learned(state, found, count):
        inner, info = found
        return Exploring(inner, state.updates + count - jnp.sum(info.rejected).astype(jnp.int32)), info

    def update(state, observation, action, feedback):
        return learned(state, agent.update(state.state, observation, action, feedback), 1)

    def update_batch(state, observations, actions, rewards):
        assert agent.update_batch is not None
        return learned(state, agent.update_batch(state.state, observations, actions, rewards), len(rewards))

    made = agent._replace(
        init=init,
        act=act,
        update=update,
        name=f"{agent.name}-exploring",
        settings={**agent.settings, "share": share, "power": power},
        exact_propensity=True,
        update_batch=None if agent.update_batch is None else update_batch,
        act_batch=None,
        widened=None,
        assess=assessed,
    )
    return made if agent.spaces is None else checked(made, agent.spaces)
