"""Averages of parameters that act."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest

from seqdec import agents, memory, models
from tests.toys import NUM_ARMS, toy_env

NETWORK = models.network(models.MLP(NUM_ARMS, (4,)), jnp.zeros(2))
CONTEXT = jnp.array([0.3, -0.8])
REHEARSALS = {"plain": None, "rehearsing": agents.Rehearsal(memory.last(5), optimizer=optax.sgd(0.1), batch_size=2)}


def make(average, rehearsal=None):
    options = {"rank": 3, "policy": "greedy", "standardize": False}
    return agents.lrkf(toy_env(), model=NETWORK, average=average, rehearsal=rehearsal, **options)


@pytest.mark.parametrize("case", REHEARSALS)
def test_the_average_is_that_of_the_means_and_learning_goes_on_from_the_latest(case):
    decay, agent, alone = 0.02, make(0.02, REHEARSALS[case]), make(0.0, REHEARSALS[case])
    state, plain = (jax.jit(a.init)(jax.random.key(0)) for a in (agent, alone))
    mean = lambda state: (state if case == "plain" else state.belief).params  # noqa: E731
    average = mean(plain)
    step, plain_step = jax.jit(agent.update), jax.jit(alone.update)
    for t, reward in enumerate([0.5, np.nan, 1.0, -0.4]):
        state, info = step(state, CONTEXT, jnp.int32(t % NUM_ARMS), jnp.float32(reward))
        plain, _ = plain_step(plain, CONTEXT, jnp.int32(t % NUM_ARMS), jnp.float32(reward))
        assert info.rejected == np.isnan(reward)
        count = t + 1 - (t > 0)  # the second reward is rejected
        weight = 0 if np.isnan(reward) else 1 - min(decay, count / (count + 100))
        average = jax.tree.map(lambda old, new, w=weight: old + w * (new - old), average, mean(plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), mean(state.state), mean(plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), state.average, average)


@pytest.mark.parametrize("case", REHEARSALS)
def test_the_average_acts(case):
    agent = make(0.9, REHEARSALS[case])
    state = jax.jit(agent.init)(jax.random.key(0))
    for arm in range(NUM_ARMS):
        params = jax.tree.map(jnp.copy, state.average)
        params["output"]["bias"] = params["output"]["bias"].at[arm].set(10)
        assert agent.act(jax.random.key(0), state._replace(average=params), CONTEXT).value == arm


@pytest.mark.parametrize(("average", "error"), [(1.0, ValueError), (-0.1, ValueError), (pd.NA, TypeError)])
def test_wrong_decays_are_refused(average, error):
    with pytest.raises(error, match=r"average must"):
        make(average)
