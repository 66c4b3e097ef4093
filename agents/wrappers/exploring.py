r"""Exploring: an agent that plays uniformly with a probability that falls with time.

    p_t(a) = f_t / n + (1 - f_t) q_t(a),     f_t = share t^(-power)

with q_t the agent's own probabilities of the n allowed actions, and t - 1 the rewards learned so far. Every action has
a propensity of at least f_t / n, so that intervals that hold at all times (`seqdec.ope.compare`, anytime) become narrow
for all actions, for power < 1/4 to a point, while the share of decisions that explore goes to zero. Actions are drawn
from p_t itself: propensities are exact also where q_t is a Monte Carlo estimate.

Source: Liang, Bojinov, "An experimental design for anytime-valid causal inference on multi-armed bandits", 2023.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp

from seqdec.agents.inputs import checked
from seqdec.agents.wrappers.laws import redrawn
from seqdec.boundary.checks import number
from seqdec.core import Agent, Array
from seqdec.policies.common import weight


class Exploring(NamedTuple):
    """State of an agent, and its number of rewards."""

    state: Any
    """of the agent"""
    updates: Array
    """() int, rewards learned"""


def exploring(agent: Agent, *, share: float = 1.0, power: float = 0.24) -> Agent:
    """`agent` with a propensity floor that falls with the number of rewards.

    >>> from seqdec import agents, envs
    >>> agents.exploring(agents.linear(envs.linear()), share=0.5).name
    'linear-exploring'

    Args:
        agent: agent with finitely many actions and `Agent.assess`.
        share: f_1, initial share of uniform decisions, in [0, 1].
        power: exponent of the decrease, at least 0; 0 keeps the share.

    Raises ValueError for a share or power out of range, or an agent without probabilities.
    """
    weight("share", share, 1)
    number("power", power)

    def law(state, allowed, own):
        """p_t from q_t."""
        floor = share * (state.updates + 1.0) ** -power
        return floor * allowed / jnp.maximum(allowed.sum(), 1) + (1 - floor) * own

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

    made = redrawn(agent, law, "exploring", lambda state: state.state)._replace(
        init=init,
        update=update,
        settings={**agent.settings, "share": share, "power": power},
        update_batch=None if agent.update_batch is None else update_batch,
    )
    return made if agent.spaces is None else checked(made, agent.spaces)
