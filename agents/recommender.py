"""Baselines: random play, and popularity for candidates."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec import policies
from seqdec.agents.assembly import agent, means_only
from seqdec.agents.networks import row_count
from seqdec.boundary import checks
from seqdec.boundary.spaces import spaces_of
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Learner


class Info(NamedTuple):
    """Result of an update."""

    rejected: Array
    """() bool: reward not finite or action out of range, nothing learned"""


class Counts(NamedTuple):
    """Rewards and plays of items."""

    totals: Array
    """(items,) sums of rewards"""
    plays: Array
    """(items,)"""


def random(spaces: HasSpaces) -> Agent:
    """Uniform over the allowed actions; learns nothing.

    Args:
        spaces: with observation_space and action_space.

    Raises TypeError or ValueError for a space that does not fit.
    """
    actions = spaces_of(spaces).action_space
    discrete = isinstance(actions, gym_spaces.Discrete)
    count = int(actions.n) if discrete else 1
    posterior = means_only(lambda candidates: jnp.zeros(count))
    learner = Learner(
        lambda key: (),
        lambda state, x, y, observed=None, allowed=None: (state, Info(jnp.bool_(False))),
        lambda state: posterior,
        uncertain=False,
        sparse=True,
    )
    made = agent(
        learner, policies.epsilon_greedy(1.0), spaces, name="random", num_candidates=None if discrete else 1
    )._replace(settings={})
    if made.assess is None:
        return made
    played = made.assess

    def assess(key, state, observation):
        found = played(key, state, observation)
        return found._replace(mean=jnp.full_like(found.mean, jnp.nan))

    return made._replace(assess=assess)


def popularity(
    spaces: HasSpaces, *, item: str = "video", prior_plays: float = 1.0, policy: str | Acquisition = "greedy"
) -> Agent:
    """The candidate with the best running mean reward, the same for all users.

    The mean of an item is (its rewards + prior_plays * m) / (its plays + prior_plays), m the mean of all rewards.

    Args:
        spaces: observations are a Dict with row numbers of items.
        item: name of the row numbers in it.
        prior_plays: number of plays with mean reward m that each item starts with, > 0.
        policy: a policy of `seqdec.policies` that needs only the expected responses.

    Raises TypeError without such row numbers, ValueError for other settings.
    """
    parts = spaces_of(spaces).observation_space
    rows = parts.get(item) if isinstance(parts, gym_spaces.Dict) else None
    if not isinstance(rows, gym_spaces.Box) or not np.issubdtype(rows.dtype, np.integer):
        raise TypeError(f"the observations must be a Dict with row numbers under {item!r}; got {parts}")
    checks.positive("prior_plays", prior_plays)
    size = row_count(item, rows)

    def init(key):
        return Counts(jnp.zeros(size), jnp.zeros(size))

    def posterior(state):
        average = jnp.sum(state.totals) / jnp.maximum(jnp.sum(state.plays), 1)

        def mean(candidates):
            rows = candidates[item]
            return (state.totals[rows] + prior_plays * average) / (state.plays[rows] + prior_plays)

        return means_only(mean)

    def update(state, x, y, observed=None, allowed=None):
        row, good = x[item][observed], jnp.all(jnp.isfinite(y))
        fresh = Counts(state.totals.at[row].add(y.astype(state.totals.dtype)), state.plays.at[row].add(1))
        return jax.tree.map(lambda new, old: jnp.where(good, new, old), fresh, state), Info(~good)

    learner = Learner(init, update, posterior, uncertain=False)
    return agent(learner, policy, spaces, name="popularity", settings={"prior_plays": prior_plays})
