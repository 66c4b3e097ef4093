"""The belief of `pooled` is that of one regression over common weights and the deviations of all actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from seqdec import agents
from seqdec.agents.regression import pooled
from seqdec.core import Spaces

ARMS, STEPS = 4, 40
SITE = Spaces(spaces.Discrete(3), spaces.Discrete(ARMS))


def rows(steps=STEPS, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(steps, 3)), rng.integers(ARMS, size=steps), rng.normal(size=steps)


@pytest.mark.parametrize("r", [0.1, 10.0])
def test_belief_is_that_of_one_regression_on_all_weights(r):
    features, index, y = rows()
    with jax.enable_x64(True):

        def step(pool, at):
            return pool.observed(r, *at, jnp.bool_(True))[0], None

        pool = jax.jit(lambda pool, at: jax.lax.scan(step, pool, at)[0])(pooled.prior(ARMS, 3), (features, y, index))
        asked = jnp.asarray(rows(1, seed=1)[0][0])
        mean, p, t = pool.parts(asked)
        weights = jax.vmap(lambda key: pool.drawn(r, *_normal(key)))(jax.random.split(jax.random.key(0), 20_000))
        drawn = np.asarray(weights @ asked / jnp.sqrt(pool.noise.variance))
        mean, p, t, asked, std = map(np.asarray, (mean, p, t, asked, jnp.sqrt(pool.noise.variance)))

    def dense(phi, arm):
        return np.concatenate([phi, r * np.kron(np.eye(ARMS)[arm], phi)])

    design = np.stack([dense(*one) for one in zip(features, index, strict=True)])
    cov = np.linalg.inv(np.eye(design.shape[1]) + design.T @ design)
    at = np.stack([dense(asked, arm) for arm in range(ARMS)])
    expected = at @ cov @ at.T
    np.testing.assert_allclose(mean, at @ cov @ design.T @ y, rtol=1e-9)
    np.testing.assert_allclose(t @ t.T + np.diag(r**2 * np.sum(p**2, 1)), expected, rtol=1e-9)
    np.testing.assert_allclose(np.cov(drawn.T), expected, atol=0.05 * expected.max())
    np.testing.assert_allclose(drawn.mean(0), mean / std, atol=0.05 * expected.max() ** 0.5)


def _normal(key):
    common, own = jax.random.split(key)
    return jax.random.normal(common, (3,)), jax.random.normal(own, (ARMS, 3))


def test_an_action_never_played_has_what_others_have_in_common_and_so_has_one_added_later():
    few = agents.pooled(Spaces(SITE.observation_space, spaces.Discrete(ARMS - 1)))
    many = agents.pooled(SITE)
    _, index, _ = rows(200)
    context = np.arange(200) % 3

    def learned(agent):
        def step(state, at):
            x, action, reward = at
            return agent.update(state, x, action, reward)[0], None

        given = context, index % (ARMS - 1), np.float32(context + 0.1 * index)
        return jax.jit(lambda key: jax.lax.scan(step, agent.init(key), given)[0])(jax.random.key(0))

    both = [learned(many), many.widened(learned(few))]
    for x in range(3):
        one, other = (many.assess(jax.random.key(0), state, x) for state in both)
        assert abs(one.mean[-1] - x) < 0.3
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-4)
        np.testing.assert_allclose(one.variance, other.variance, rtol=1e-3)


def test_auto_is_pooled_for_many_actions_and_refuses_settings_of_its_network():
    site = Spaces(SITE.observation_space, spaces.Discrete(301))
    agent = agents.auto(site)
    assert agent.name == "auto"
    assert isinstance(jax.eval_shape(agent.init, jax.random.key(0)), pooled.PooledState)
    with pytest.raises(TypeError, match=r"capacity=10 has no effect for 301 actions"):
        agents.auto(site, capacity=10)
