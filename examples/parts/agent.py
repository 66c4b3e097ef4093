"""An agent: copy to agents/_running_means.py.

Registry, AGENTS of agents/registry.py:

    "running_means": Entry(
        "seqdec.agents._running_means:running_means",
        Capabilities("baseline", frozenset({"contexts"}), policy=False),
    ),

Case, SMALL of tests/test_agents.py:

    "running_means": {"epsilon": 0.2},
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seqdec import policies
from seqdec.agents.assembly import agent
from seqdec.core import Agent, Array, HasSpaces, Learner, Posterior


class Totals(NamedTuple):
    """Rewards and plays of the actions so far."""

    rewards: Array
    """(n,) sums"""
    plays: Array
    """(n,)"""


class TotalsInfo(NamedTuple):
    """Result of an update."""

    rejected: Array
    """() bool: the reward was not finite or the action out of range, and nothing was learned"""


def running_means(spaces: HasSpaces, *, epsilon: float = 0.1) -> Agent:
    """The action with the best mean reward so far, whatever the context, or with probability epsilon any action.

    Args:
        spaces: anything with observation_space and action_space, of Discrete actions.
        epsilon: in [0, 1].
    """
    count = int(spaces.action_space.n)  # pyright: ignore[reportAttributeAccessIssue] (Discrete)

    def unknown(_):
        raise TypeError("running_means has no uncertainty")

    def init(key):
        return Totals(jnp.zeros(count), jnp.zeros(count))

    def update(state, x, y, observed=None, allowed=None):
        good = jnp.all(jnp.isfinite(y))
        fresh = Totals(state.rewards.at[observed].add(y.astype(state.rewards.dtype)), state.plays.at[observed].add(1))
        return jax.tree.map(lambda new, old: jnp.where(good, new, old), fresh, state), TotalsInfo(~good)

    def posterior(state):
        return Posterior(lambda x: state.rewards / jnp.maximum(state.plays, 1), unknown, unknown)

    learner = Learner(init, update, posterior, uncertain=False)
    return agent(learner, policies.epsilon_greedy(epsilon), spaces, name="running_means", settings={"epsilon": epsilon})
