"""An environment: copy to envs/_coin.py.

Registry, REGISTRY of envs/registry.py:

    "coin": "seqdec.envs._coin:coin",

Case, BUILDERS of tests/test_envs.py:

    "coin": lambda: envs.make("coin", horizon=7),
"""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from seqdec.core import Environment, TimeStep
from seqdec.envs.outcomes import reward_and_regret


def coin(bias: float = 0.8, *, horizon: int = 100) -> Environment:
    """Guess the side of a coin that shows 1 with probability `bias`; an episode is `horizon` guesses."""
    context = jnp.ones(1, jnp.float32)

    def reset(key, params):
        return jnp.int32(0), context

    def step(key, state, action, params):
        side = jax.random.bernoulli(key, params).astype(jnp.int32)
        reward, regret = reward_and_regret(
            action, jnp.stack([1 - params, params]), (action == side).astype(jnp.float32)
        )
        return (state + 1) % horizon, TimeStep(context, reward, regret, state + 1 == horizon)

    box = spaces.Box(0, 1, (1,), np.float32)
    return Environment(reset, step, jnp.float32(bias), box, spaces.Discrete(2), "coin")
