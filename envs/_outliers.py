"""Outliers: a bandit whose rewards in [0, 1] are sometimes reported as their opposite; regret is that of the truth."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec.boundary import checks
from seqdec.boundary.checks import keyed
from seqdec.core import Array, Environment, Key, PyTree, TimeStep
from seqdec.envs.registry import resolve


class Corrupted(NamedTuple):
    """An environment's params, and how often a reward is an outlier."""

    params: PyTree
    share: Array
    """() probability of an outlier."""


def outliers(env: Environment | str = "digits", *, share: float = 0.05, **options: Any) -> Environment:
    """A bandit with 0/1 rewards, a share of which is flipped: with that probability, a step reports 1 - reward.

    Outliers are independent of the context, the action and each other. The agent sees the reported reward, and so does
    a sum of rewards; regret is that of the true rewards. Under full information all outcomes of such a step are
    flipped. The stream of contexts and true rewards is that of `env` with the same key.

    Args:
        env: an environment with rewards in [0, 1], such as a classification bandit, or the name of one.
        share: probability of an outlier, from 0 to 1.
        **options: of the environment, if `env` is a name.

    Raises:
        ValueError, TypeError: `share` is out of range; the name is unknown; or options do not fit.
    """
    env = resolve(env, options)
    params = Corrupted(env.params, checks.array("share", share, 0, 0.0, 1.0))

    @keyed
    def reset(key: Key, params: Corrupted) -> tuple[Any, PyTree]:
        return env.reset(key, params.params)

    @keyed
    def step(key: Key, state: Any, action: Array, params: Corrupted) -> tuple[Any, TimeStep]:
        state, timestep = env.step(key, state, action, params.params)
        flipped = jax.random.uniform(jax.random.fold_in(key, 1), dtype=jnp.float32) < params.share
        reported = timestep._replace(
            reward=1 - timestep.reward, outcomes=None if timestep.outcomes is None else 1 - timestep.outcomes
        )
        return state, jax.tree.map(lambda new, old: jnp.where(flipped, new, old), reported, timestep)

    return env._replace(reset=reset, step=step, params=params, name=f"{env.name}-outliers")
