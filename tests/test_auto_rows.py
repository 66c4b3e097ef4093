"""The default agent on candidates and on Box actions, where one regression is shared by all rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

from seqdec import agents, policies
from seqdec.agents.regression.features import inputs_of
from seqdec.core import Acquisition, Spaces

N = 6


def numbers(*shape):
    return Box(-np.inf, np.inf, shape, np.float32)


ITEMS = Spaces(Dict({"item": Box(0, 9, (N,), np.int32), "size": numbers(N), "words": numbers(N, 3)}), Discrete(N))
IDS = Spaces(Dict({"item": Box(0, 299, (N,), np.int32), "user": Box(0, 9, (N,), np.int32)}), Discrete(N))
"""Row numbers of more items than have covariances."""
PLAIN = Spaces(Dict({"features": numbers(N, 3)}), Discrete(N))
DOSE = Spaces(numbers(2), Box(np.float32([-1, 0]), np.float32([3, 1]), dtype=np.float32))


# Features of rows


def test_a_candidate_has_its_numbers_their_products_and_a_one_for_its_row():
    inputs = inputs_of(ITEMS)
    row = {"item": jnp.int32(4), "size": jnp.float32(9.0), "words": jnp.zeros(3)}
    row, z = inputs.replaced(row, jnp.array([2.0, 0.5, -1.0, 3.0])), np.array([2.0, 0.5, -1.0, 3.0])
    np.testing.assert_array_equal(inputs.numbers(row), z)
    own, products, coded = (features(row) for features in inputs.features)
    np.testing.assert_array_equal(own, z)
    pairs = [z[i] * z[j] for i in range(4) for j in range(i, 4)]
    np.testing.assert_allclose(products, 0.3 * np.append(z, pairs), rtol=1e-6)
    np.testing.assert_array_equal(coded, [*z, *(np.arange(10) == 4)])
    assert inputs.responses == 1 and inputs.wide is None


def test_row_numbers_of_many_items_have_effects_without_covariances():
    inputs = inputs_of(IDS)
    assert inputs.features == () and inputs.wide is not None
    effects = inputs.wide({"item": jnp.int32(7), "user": jnp.int32(3)})
    assert np.flatnonzero(effects).tolist() == [7, 303] and effects.shape == (310,)


def test_a_point_of_a_box_is_seen_by_its_bounds_and_by_a_kernel():
    inputs = inputs_of(DOSE)
    (row,) = inputs.rows(jnp.array([[0.5, -2.0, 2.0, 0.25]]))
    np.testing.assert_allclose(row, [0.5, -2.0, 0.5, -0.5], rtol=1e-6)
    np.testing.assert_allclose(inputs.replaced(row, jnp.array([7.0, 8.0])), [7, 8, 0.5, -0.5])
    others = row[None] + jax.random.normal(jax.random.key(0), (200, 4))
    kernel = jax.vmap(inputs.features[-1])(others) @ inputs.features[-1](row)
    lengths = 2**0.5 * np.array([2, 2, 0.5, 0.5])
    expected = np.exp(-0.5 * np.sum(((others - row[None]) / lengths[None]) ** 2, 1))
    np.testing.assert_allclose(kernel / 25, expected, atol=0.5)  # of 64 waves, with deviation 1 / 8
    assert np.sqrt(np.mean((kernel / 25 - expected) ** 2)) < 0.2


def test_long_vectors_have_units_and_members_without_covariances_and_of_few_columns_and_images_none():
    def of(shape):
        return inputs_of(Spaces(Box(0, 1, shape, np.float32), Discrete(N)))

    assert of((20, 20, 1)).wide is None and of((20,)).wide is None and len(of((20,)).features) == 1
    wide, few = of((300,)).wide, of((300,)).sparse
    assert wide is not None and few is not None and of((300,)).numbers(jnp.zeros(300)).shape == (300,)
    assert of((2000,)).sparse is None  # the sums over rows are too large
    x = jnp.zeros(300).at[jnp.array([3, 7])].set(1.0)
    for scale in (1e-30, 1.0, 1e30):
        np.testing.assert_allclose(wide(scale * x), 3 * x / np.sqrt(2), rtol=1e-5)
    assert np.all(wide(0 * x) == 0)


# The agent


def observation(key, spaces):
    if not isinstance(spaces.observation_space, Dict):
        return jax.random.normal(key, spaces.observation_space.shape)
    parts = {}
    for name, part in spaces.observation_space.items():
        integers = np.issubdtype(part.dtype, np.integer)
        key, own = jax.random.split(key)
        parts[name] = (
            jax.random.randint(own, part.shape, 0, 10, jnp.int32) if integers else jax.random.normal(own, part.shape)
        )
    return parts


def played(spaces, steps=40):
    """An agent that has learned a while, and its state."""
    agent = agents.auto(spaces, capacity=100)

    def step(state, key):
        seen, acted, noisy = jax.random.split(key, 3)
        x = observation(seen, spaces)
        action = agent.act(acted, state, x).value
        reward = jnp.sum(jnp.asarray(action, jnp.float32)) + 0.1 * jax.random.normal(noisy)
        return agent.update(state, x, action, reward)[0], None

    keys = jax.random.split(jax.random.key(0), steps)
    return agent, jax.jit(lambda: jax.lax.scan(step, agent.init(jax.random.key(1)), keys)[0])()


def asked(spaces, state, x):
    """The posterior of a state that a policy is asked with, and the candidates."""
    found = []

    def score(key, posterior, candidates, mask):
        found.append((posterior, candidates))
        return jnp.zeros(len(jax.tree.leaves(candidates)[0]))

    agents.auto(spaces, policy=Acquisition(score, "joint"), capacity=100).act(jax.random.key(6), state, x)
    return found[0]


@pytest.mark.parametrize(
    "spaces", [PLAIN, *(pytest.param(each, marks=pytest.mark.extended) for each in (ITEMS, DOSE, IDS))]
)
def test_moments_are_those_of_the_draws(spaces):
    """Of members that count alike; the usual policy draws with half the deviation."""
    _, state = played(spaces)
    known = state.mixture
    state = state._replace(mixture=known._replace(shares=jnp.full_like(known.shares, 1 / known.shares[0].size)))
    question, candidates = asked(spaces, state, observation(jax.random.key(5), spaces))
    candidates = candidates[:N] if spaces is DOSE else candidates
    keys = jax.random.split(jax.random.key(7), 20_000)
    draws, half = jax.jit(
        jax.vmap(
            lambda key: (
                question.draw(key)(candidates),
                policies.thompson(scale=0.5).score(key, question, candidates, None),
            )
        )
    )(keys)
    joint, marginals = question.joint(candidates), question.marginals(candidates)
    std = np.sqrt(np.diag(joint.cov))
    np.testing.assert_allclose(draws.mean(0), joint.mean, atol=5 * std.max() / 20_000**0.5)
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(std, std), joint.cov / np.outer(std, std), atol=0.06)
    np.testing.assert_allclose(marginals.mean, joint.mean, rtol=1e-5)
    np.testing.assert_allclose(marginals.variance, np.diag(joint.cov), rtol=1e-3)
    np.testing.assert_allclose(marginals.noise, np.diag(joint.noise), rtol=1e-5)
    np.testing.assert_allclose(question.mean(candidates), joint.mean, rtol=1e-5)
    np.testing.assert_allclose(half - joint.mean, 0.5 * (draws - joint.mean), rtol=1e-3, atol=1e-4)


def test_full_information_on_candidates_is_a_row_for_each():
    agent = agents.auto(PLAIN, capacity=100)
    x, rewards = observation(jax.random.key(3), PLAIN), jnp.arange(N, dtype=jnp.float32)
    update = jax.jit(agent.update)
    fresh, info = update(agent.init(jax.random.key(0)), x, jnp.int32(0), rewards)
    assert info.innovation.shape == (N,) and fresh.memory.seen == N
    np.testing.assert_allclose(fresh.memory.rows.y[:N, 0] + fresh.rewards.origin, rewards, rtol=1e-5)
    state, info = update(fresh, x, jnp.int32(0), rewards.at[1].set(jnp.nan))
    assert info.rejected and state.memory.seen == N
