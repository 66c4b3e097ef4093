"""Greedy play of the expected response, with or without uniform exploration."""

import jax
import jax.numpy as jnp

from seqdec.boundary.checks import keyed
from seqdec.core import Acquisition
from seqdec.policies import common


def greedy() -> Acquisition:
    """Play the largest expected response, the first of equal ones."""

    def score(key, posterior, candidates, mask):
        del key
        return common.masked(posterior.mean(candidates), mask)

    return Acquisition(score, "mean")


def epsilon_greedy(epsilon=0.05) -> Acquisition:
    """Greedy, but with probability epsilon an allowed candidate chosen uniformly.

    >>> import seqdec
    >>> env = seqdec.envs.linear()
    >>> agent = seqdec.agents.linear(env, policy=seqdec.policies.epsilon_greedy(0.1))

    Probabilities are epsilon / n, plus 1 - epsilon for the greedy action.

    Args:
        epsilon: probability of a uniform choice, in [0, 1], else ValueError; may be traced.
    """
    common.weight("epsilon", epsilon, 1)

    def best(posterior, candidates, mask):
        return common.masked(posterior.mean(candidates), mask)

    @keyed
    def score(key, posterior, candidates, mask):
        explore, tickets = jax.random.split(key)
        means = best(posterior, candidates, mask)
        uniform = common.masked(jax.random.uniform(tickets, means.shape, means.dtype), mask)
        return jnp.where(jax.random.bernoulli(explore, epsilon), uniform, means)

    @keyed
    def law(key, posterior, candidates, mask):
        means = best(posterior, candidates, mask)
        return common.drawn(key, epsilon * common.uniform(means, mask) + (1 - epsilon) * common.chosen(means))

    return Acquisition(score, "mean", law)
