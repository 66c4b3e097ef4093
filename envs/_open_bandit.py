"""The Open Bandit log as an environment: replay.

Impressions come in the order of time. If the agent picks the item of the log, the reward is its click; otherwise the
reward is unknown, NaN, and agents do not learn from it. With the log of the uniform policy, the mean of the known
rewards is an unbiased estimate of the agent's mean reward in as many steps as are known.

Source: Li, Chu, Langford, Wang, Unbiased offline evaluation of contextual-bandit-based news article recommendation
algorithms, 2011.
"""

import os
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete

from seqdec import data
from seqdec.boundary.checks import keyed
from seqdec.core import Array, Environment, Key, TimeStep
from seqdec.envs.outcomes import in_range


class Impressions(NamedTuple):
    """Contexts, shown items and clicks."""

    context: Array
    """(n, d) float32"""
    item: Array
    """(n,) int32"""
    click: Array
    """(n,) float32"""


def open_bandit(*, root: str | os.PathLike[str] | None = None) -> Environment:
    """The Open Bandit log of the uniform policy, replayed: 80 items, reward 1 for a click, NaN for items not shown.

    An episode is one pass through the log; regret is unknown. `root` as in `seqdec.data.load_open_bandit`, which also
    says what is raised.
    """
    log = data.load_open_bandit("random", root)
    count, num_items = log.item_features.shape[:2]

    @keyed
    def reset(key: Key, params: Impressions) -> tuple[Array, Array]:
        return jnp.int32(0), params.context[0]

    @keyed
    def step(key: Key, state: Array, action: Array, params: Impressions) -> tuple[Array, TimeStep]:
        agrees = (in_range(action, num_items) == action) & (action == params.item[state])
        reward = jnp.where(agrees, params.click[state], jnp.nan)
        done = state + 1 >= count
        state = jnp.where(done, 0, state + 1)
        return state, TimeStep(params.context[state], reward, jnp.full_like(reward, jnp.nan), done)

    params = Impressions(
        jnp.asarray(log.context), jnp.asarray(log.item, jnp.int32), jnp.asarray(log.click, jnp.float32)
    )
    space = Box(0.0, 1.0, log.context.shape[1:], np.float32)
    return Environment(reset, step, params, space, Discrete(num_items), "open-bandit")
