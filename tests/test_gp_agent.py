"""The agent with a Gaussian process against scikit-learn, in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

from seqdec import agents
from seqdec.agents._gp import Kernel, _posterior
from tests.test_agents import ARMS, CONTEXT, NUM_ARMS, NUM_FEATURES, Spaces, contexts

KERNEL = Kernel(0.8, 1.0, 0.05)
POINTS = np.random.default_rng(0).uniform(-1, 1, (30, 2))


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64():
        yield


def oracle(x, y):
    """The posterior by scikit-learn, whose `alpha` is the noise variance."""
    return GaussianProcessRegressor(Matern(0.8, nu=2.5), alpha=0.05, optimizer=None).fit(x, y)


def taught(where, observations, actions, rewards, buffer):
    agent = agents.make("gp", where, buffer=buffer, length_scale=0.8, noise_variance=0.05)
    state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
    for observation, action, reward in zip(observations, actions, rewards, strict=True):
        state, info = update(state, observation, action, reward)
        assert not info.rejected
    return state, info


@pytest.mark.parametrize(("full", "buffer"), [(False, 7), (True, 40)], ids=["one reward", "every reward"])
def test_the_arms_have_the_posteriors_of_scikit_learn(full, buffer):
    xs, rewards = np.asarray(contexts(20), float), np.random.default_rng(1).normal(size=(20, NUM_ARMS))
    arms = np.arange(20) % NUM_ARMS
    feedback = rewards if full else rewards[np.arange(20), arms]
    where = Spaces(spaces.Box(-1, 1, (NUM_FEATURES,), np.float64), spaces.Discrete(NUM_ARMS))
    state, _ = taught(where, xs, arms, feedback, buffer)
    at = _posterior(KERNEL, state, by_row=False).joint(CONTEXT)
    recent = np.arange(20) >= 20 - buffer
    for arm in range(NUM_ARMS):
        use = recent if full else recent & (arms == arm)
        mean, std = oracle(xs[use], rewards[use, arm]).predict(np.asarray(CONTEXT)[None], return_std=True)
        np.testing.assert_allclose(at.mean[arm], mean[0], rtol=1e-5)
        np.testing.assert_allclose(at.cov[arm, arm], std[0] ** 2, rtol=1e-5)
    np.testing.assert_allclose(at.noise, 0.05 * np.eye(NUM_ARMS))
    assert np.count_nonzero(at.cov - np.diag(np.diag(at.cov))) == 0


def test_points_of_a_box_have_the_joint_posterior_of_scikit_learn():
    where = Spaces(spaces.Box(-1, 1, (1,), np.float64), spaces.Box(-1, 1, (1,), np.float64))
    y = np.sin(3 * POINTS[:, 0]) * POINTS[:, 1]
    state, info = taught(where, POINTS[:, :1], POINTS[:, 1:], y, 50)
    candidates = jnp.asarray(np.random.default_rng(2).uniform(-1, 1, (5, 2)))
    model = oracle(POINTS, y)
    mean, cov = model.predict(candidates, return_cov=True)
    question = _posterior(KERNEL, state, by_row=True)
    at = question.joint(candidates)
    np.testing.assert_allclose(at.mean, mean, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(at.cov, cov, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(info.innovation, y[-1:] - oracle(POINTS[:-1], y[:-1]).predict(POINTS[-1:]), rtol=1e-4)
    draws = jax.vmap(lambda key: question.draw(key)(candidates))(jax.random.split(jax.random.key(0), 20_000))
    np.testing.assert_allclose(np.cov(draws.T), cov, atol=6 * np.max(np.diag(cov)) * np.sqrt(2 / 20_000))


def candidates(dtype=np.float32):
    return spaces.Dict(features=spaces.Box(-1, 1, (4, 2), np.float32), extra=spaces.Box(0, 9, (4,), dtype))


def test_candidates_are_rows_of_one_process():
    where, random = Spaces(candidates(), spaces.Discrete(4)), np.random.default_rng(0)
    offers = [{"extra": random.normal(size=4), "features": random.normal(size=(4, 2))} for _ in range(3)]
    arms, rewards = random.integers(0, 4, 3), random.normal(size=3)
    rows = np.array([np.append(o["extra"][a], o["features"][a]) for o, a in zip(offers, arms, strict=True)], np.float32)
    offers = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), offers)
    state, _ = taught(where, offers, arms, rewards, 3)
    asked = np.column_stack([offers[0]["extra"], offers[0]["features"]])
    at = _posterior(KERNEL, state, by_row=True).joint(offers[0])
    np.testing.assert_allclose(at.mean, oracle(rows, rewards).predict(asked), rtol=1e-4, atol=1e-7)


def test_what_does_not_fit_is_refused():
    with pytest.raises(TypeError, match="no distance between row numbers, and the candidates' 'extra' is int64"):
        agents.make("gp", Spaces(candidates(np.int64), spaces.Discrete(4)))
    for wrong in ({"length_scale": 0.0}, {"scale": -1.0}, {"noise_variance": 0.0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be positive"):
            agents.make("gp", ARMS, **wrong)
    with pytest.raises(ValueError, match="buffer must be at least 1; got 0"):
        agents.make("gp", ARMS, buffer=0)
