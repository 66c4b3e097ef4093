"""The neural-linear posterior against closed-form ridge regression, in double precision."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from seqdec import agents, memory, models
from seqdec.agents._neural import last_layer
from tests.test_agents import ARMS, CONTEXT, NUM_ARMS, NUM_FEATURES, Custom, contexts

SINGLE = models.network(Custom(), jnp.zeros(NUM_FEATURES))
NETWORK = SINGLE._replace(init=lambda key: jax.tree.map(lambda leaf: leaf.astype(float), SINGLE.init(key)))
SETTINGS = {"prior_std": 0.8, "noise_variance": 0.1, "noise_shape": 2.5}
REWARDS = np.random.default_rng(0).normal(size=(40, NUM_ARMS))


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64():
        yield


def taught(network, optimizer, steps, full, every):
    head = agents.neural_linear_head(every=every, **SETTINGS)
    options = {"memory": memory.reservoir(40), "batch_size": 4, "policy": "thompson", "model": network}
    agent = agents.neural(ARMS, optimizer=optimizer, head=head, **options)
    state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
    for step, x in enumerate(contexts(steps)):
        feedback = jnp.asarray(REWARDS[step] if full else REWARDS[step, step % NUM_ARMS])
        state, info = update(state, x, jnp.int32(step % NUM_ARMS), feedback)
        assert not info.rejected
    return state


def ridge(layer, params, steps, full):
    """Mean, covariance factor, shape and rate of each group, by NumPy."""
    found = []
    for group in range(layer.groups):
        arms = {group} if layer.groups > 1 else set(range(NUM_ARMS))
        use = [(i, j) for i in range(steps) for j in (range(NUM_ARMS) if full else [i % NUM_ARMS]) if j in arms]
        features = {i: np.asarray(layer.features(params, contexts(steps)[i])[1]) for i in range(steps)}
        design, y = np.array([features[i][j] for i, j in use]), np.array([REWARDS[i, j] for i, j in use])
        precision = design.T @ design + 0.1 / 0.8**2 * np.eye(layer.size)
        mean = np.linalg.solve(precision, design.T @ y)
        rate = 0.1 * 1.5 + (y @ y - mean @ precision @ mean) / 2
        found.append((mean, np.linalg.inv(precision), 2.5 + len(y) / 2, rate))
    return [np.array(part) for part in zip(*found, strict=True)]


@pytest.mark.parametrize(
    ("learns", "steps", "shared", "full"),
    [
        (True, 12, False, False),
        (False, 11, True, True),
        pytest.param(True, 12, True, True, marks=pytest.mark.extended),
        pytest.param(False, 11, False, False, marks=pytest.mark.extended),
    ],
    ids=lambda value: {12: "recomputed", 11: "recomputed, then one after the other"}.get(value),
)
def test_the_posterior_is_that_of_ridge_regression_on_the_features(learns, steps, shared, full):
    network = NETWORK._replace(example=None) if shared else NETWORK
    layer = last_layer.last_layer(network)
    state = taught(network, optax.sgd(0.1 if learns else 0.0), steps, full, 4)
    mean, cov, shape, rate = ridge(layer, state.params, steps, full)
    np.testing.assert_allclose(state.belief.weights, mean, rtol=1e-6, atol=1e-9)
    covariance = state.belief.columns @ jnp.swapaxes(state.belief.columns, 1, 2)
    np.testing.assert_allclose(covariance, cov, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(state.belief.shape, shape, rtol=1e-12)
    np.testing.assert_allclose(state.belief.rate, rate, rtol=1e-6)


def test_predictions_and_draws_have_the_moments_of_the_posterior():
    head = agents.neural_linear_head(**SETTINGS)(NETWORK)
    state = taught(NETWORK, optax.sgd(0.1), 30, False, 10)
    layer = last_layer.last_layer(NETWORK)
    mean, cov, shape, rate = ridge(layer, state.params, 30, False)
    _, phi = layer.features(state.params, CONTEXT)
    noise = rate / (shape - 1)
    expected = noise * np.einsum("jf,jfk,jk->j", phi, cov, phi)
    question = head.posterior(state.params, state.belief)
    at = question.joint(CONTEXT)
    np.testing.assert_allclose(at.mean, np.sum(phi * mean, 1), rtol=1e-6)
    np.testing.assert_allclose(question.mean(CONTEXT), at.mean, rtol=1e-9)
    np.testing.assert_allclose(at.cov, np.diag(expected), rtol=1e-6)
    np.testing.assert_allclose(at.noise, np.diag(noise), rtol=1e-6)
    draws = jax.jit(jax.vmap(lambda key: question.draw(key)(CONTEXT)))(jax.random.split(jax.random.key(1), 20_000))
    np.testing.assert_allclose(draws.mean(0), at.mean, atol=6 * np.sqrt(expected.max() / 20_000))
    np.testing.assert_allclose(draws.var(0), expected, rtol=0.15)  # tails of Student's t


def test_settings_that_do_not_fit_are_refused():
    for wrong, error, message in (
        ({"prior_std": 0.0}, ValueError, "prior_std must be positive; got 0.0"),
        ({"noise_shape": 1.0}, ValueError, r"noise_shape must lie in \(1, inf\); got 1.0"),
        ({"every": 0}, ValueError, "every must be at least 1; got 0"),
        ({"every": 1.5}, TypeError, "every must be an integer; got 1.5"),
    ):
        with pytest.raises(error, match=message):
            agents.neural_linear_head(**wrong)
