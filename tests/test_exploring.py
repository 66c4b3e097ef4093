"""A floor of the propensities that falls with the number of rewards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from seqdec import agents, testing
from seqdec.core import Agent, Masked, Spaces

ARMS = Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(3))


def explored(where: Spaces, **options: float) -> Agent:
    return agents.exploring(agents.linear(where, policy="greedy"), **options)


def test_it_keeps_the_contract_of_agents() -> None:
    testing.check_agent(explored, spaces=ARMS)


def test_the_floor_falls_with_the_rewards_and_is_of_allowed_actions() -> None:
    agent, x = explored(ARMS, share=0.6, power=0.5), jnp.array([0.5, -0.5])
    state, mask = agent.init(jax.random.key(0)), jnp.array([True, False, True])
    for rewards in range(1, 4):
        law = np.asarray(agent.act(jax.random.key(1), state, x).probabilities)
        floor = 0.6 * rewards**-0.5
        np.testing.assert_allclose(np.sort(law), [floor / 3, floor / 3, 1 - 2 * floor / 3], rtol=1e-5)
        masked = np.asarray(agent.act(jax.random.key(1), state, Masked(x, mask)).probabilities)
        np.testing.assert_allclose([masked.min(), masked.max()], [0, 1 - floor / 2], rtol=1e-5)
        for reward in (1.0, np.nan):
            state, _ = agent.update(state, x, jnp.int32(2), jnp.float32(reward))
    assert state.updates == 3


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda: agents.linear(ARMS), {"share": 1.1}, "share must lie in"),
        (lambda: agents.linear(ARMS), {"power": -1.0}, "power must lie in"),
        (lambda: agents.linear(Spaces(ARMS.observation_space, spaces.Box(0, 1, (1,)))), {}, "needs probabilities"),
    ],
)
def test_what_cannot_explore_is_refused(make, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        agents.exploring(make(), **options)
