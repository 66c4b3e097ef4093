"""The default agent on candidates and on Box actions, where one regression is shared by all rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete

import seqdec
from seqdec import agents, policies
from seqdec.core import Acquisition, Environment, Masked, Spaces, TimeStep

N = 6


def numbers(*shape):
    return Box(-np.inf, np.inf, shape, np.float32)


ITEMS = Spaces(Dict({"item": Box(0, 9, (N,), np.int32), "size": numbers(N), "words": numbers(N, 3)}), Discrete(N))
IDS = Spaces(Dict({"item": Box(0, 299, (N,), np.int32), "user": Box(0, 9, (N,), np.int32)}), Discrete(N))
"""Row numbers of more items than have covariances."""
PLAIN = Spaces(Dict({"features": numbers(N, 3)}), Discrete(N))
ARMS = Spaces(numbers(2), Discrete(N))
DOSE = Spaces(numbers(2), Box(np.float32([-1, 0]), np.float32([3, 1]), dtype=np.float32))


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

    agents.auto(spaces, policy=Acquisition(score, None, False, "joint"), capacity=100).act(jax.random.key(6), state, x)
    return found[0]


@pytest.mark.extended
@pytest.mark.sampled(4)
@pytest.mark.parametrize("spaces", [ITEMS, DOSE, ARMS, IDS], ids=["items", "dose", "arms", "ids"])
def test_moments_are_those_of_the_draws(spaces):
    """Of members that count alike."""
    _, state = played(spaces)
    known = state.mixture
    change = known.change._replace(found=jnp.bool_(True))  # otherwise some have no weight
    state = state._replace(mixture=known._replace(log_weights=jnp.zeros_like(known.log_weights), change=change))
    question, candidates = asked(spaces, state, observation(jax.random.key(5), spaces))
    candidates = candidates[:N] if spaces is DOSE else candidates
    draws = jax.jit(jax.vmap(lambda key: question.draw(key)(candidates)))(jax.random.split(jax.random.key(7), 20_000))
    joint, marginals = question.joint(candidates), question.marginals(candidates)
    std = np.sqrt(np.diag(joint.cov))
    np.testing.assert_allclose(draws.mean(0), joint.mean, atol=5 * std.max() / 20_000**0.5)
    np.testing.assert_allclose(np.cov(draws.T) / np.outer(std, std), joint.cov / np.outer(std, std), atol=0.06)
    np.testing.assert_allclose(marginals.mean, joint.mean, rtol=1e-5)
    np.testing.assert_allclose(marginals.variance, np.diag(joint.cov), rtol=1e-3)
    np.testing.assert_allclose(marginals.noise, np.diag(joint.noise), rtol=1e-5)
    np.testing.assert_allclose(question.mean(candidates), joint.mean, rtol=1e-5)


def bandit(means, spaces, name):
    """Rewards of these expectations (observation) -> (n,), with noise of deviation 0.3."""

    def reset(key, params):
        x = observation(key, spaces)
        return x, x

    def step(key, x, action, params):
        paid, seen = jax.random.split(key)
        worth = means(x)
        fresh = observation(seen, spaces)
        reward = worth[action] + 0.3 * jax.random.normal(paid)
        return fresh, TimeStep(fresh, reward, jnp.max(worth) - worth[action], jnp.array(False))

    return Environment(reset, step, (), *spaces, name)


BANDITS = {
    "products": (PLAIN, lambda x: x["features"][:, 0] * x["features"][:, 1] + x["features"][:, 2] ** 2),
    "items": (ITEMS, lambda x: jnp.cos(1.0 + 7.0 * x["item"].astype(float)) + x["size"]),
    "ids": (IDS, lambda x: jnp.cos(1.0 + 7.0 * x["item"].astype(float))),
    "curved": (PLAIN, lambda x: jnp.sin(3 * x["features"][:, 0]) + jnp.abs(x["features"][:, 1])),
}


@pytest.mark.extended
@pytest.mark.parametrize("name", BANDITS)
def test_candidates_are_learned_from_numbers_their_products_rows_and_a_network(name):
    """Four seeds; regret in that of uniform play."""
    spaces, means = BANDITS[name]
    env = bandit(means, spaces, name)
    run = seqdec.run(agents.auto(env), env, 1200, seed=0, num_seeds=4, progress=False)
    uniform = seqdec.run(agents.random(env), env, 300, seed=0, progress=False).regret.mean()
    late = run.regret[:, -300:].mean(1) / uniform
    assert np.all(late < (0.7 if name == "curved" else 0.05)), late


def priced(unit, origin, low, high):
    """A bump in a Box action, at a place that depends on the context."""
    spaces = Spaces(numbers(2), Box(low, high, (1,), np.float32))

    def step(key, x, action, params):
        paid, seen = jax.random.split(key)
        place = 2 * (action[0] - low) / (high - low) - 1
        worth = jnp.exp(-((place - jnp.tanh(x[0])) ** 2) / 0.2)
        fresh = observation(seen, spaces)
        reward = origin + unit * (worth + 0.1 * jax.random.normal(paid))
        return fresh, TimeStep(fresh, reward, 1 - worth, jnp.array(False))

    def reset(key, params):
        x = observation(key, spaces)
        return x, x

    return Environment(reset, step, (), *spaces, "priced")


@pytest.mark.extended
def test_a_box_is_searched_whatever_the_units():
    """Regret of uniform play is about 0.6 a step."""
    env = priced(unit=1e4, origin=1e6, low=100.0, high=1000.0)
    run = seqdec.run(agents.auto(env, num_candidates=64), env, 500, seed=0, num_seeds=2, progress=False)
    assert np.all(run.regret[:, -100:].mean(1) < 0.25), run.regret[:, -100:].mean(1)


@pytest.mark.extended
@pytest.mark.parametrize(
    "box",
    [
        Box(np.array([-0.1, 5]), np.array([0.3, 5]), dtype=np.float64),
        Box(0, 3, (2, 2), np.int16),
        Box(0, 1, (0,), np.float32),
    ],
    ids=["doubles", "integers", "empty"],
)
def test_actions_lie_in_the_box(box):
    agent = agents.auto(Spaces(numbers(2), box), capacity=50, num_candidates=8)
    act, update, state = jax.jit(agent.act), jax.jit(agent.update), agent.init(jax.random.key(0))
    for step in range(20):
        x = jax.random.normal(jax.random.key(step), (2,))
        action = np.asarray(act(jax.random.key(step), state, x).value)
        assert action.shape == box.shape and np.all(box.low <= action) and np.all(action <= box.high)
        assert np.issubdtype(action.dtype, np.integer) == np.issubdtype(box.dtype, np.integer)
        state, info = update(state, x, action, 1.0 * step)
        assert not info.rejected


@pytest.mark.extended
def test_only_allowed_candidates_are_played():
    agent, state = played(ITEMS)
    x, mask = observation(jax.random.key(3), ITEMS), np.arange(N) == 4
    action = agent.act(jax.random.key(0), state, Masked(x, mask))
    assert action.value == 4 and action.propensity == pytest.approx(1)


@pytest.mark.extended
def test_full_information_on_candidates_is_a_row_for_each():
    agent, state = played(PLAIN, 5)
    x, rewards = observation(jax.random.key(3), PLAIN), jnp.arange(N, dtype=jnp.float32)
    fresh, info = jax.jit(agent.update)(state, x, jnp.int32(0), rewards)
    assert info.innovation.shape == (N,) and fresh.memory.seen == 5 + N
    np.testing.assert_allclose(fresh.memory.rows.y[5 : 5 + N, 0] + fresh.rewards.origin, rewards, rtol=1e-5)
    state, info = jax.jit(agent.update)(fresh, x, jnp.int32(0), rewards.at[1].set(jnp.nan))
    assert info.rejected and state.memory.seen == 5 + N


@pytest.mark.extended
def test_row_numbers_of_many_items_have_effects_without_covariances():
    _, state = played(IDS)
    first, last = state.mixture.members  # the last is the network's
    assert first.root.shape == (3, 1, 300 + 10 + 1) and last.root.ndim == 4


@pytest.mark.extended
def test_the_usual_policy_draws_with_half_the_deviation():
    _, state = played(PLAIN)
    question, x = asked(PLAIN, state, observation(jax.random.key(5), PLAIN))
    whole, half = (
        jax.vmap(lambda key, scale=scale: policies.thompson(scale=scale).score(key, question, x, None))(
            jax.random.split(jax.random.key(0), 50)
        )
        for scale in (1.0, 0.5)
    )
    mean = np.asarray(question.mean(x))
    np.testing.assert_allclose(half - mean, 0.5 * (whole - mean), rtol=1e-3, atol=1e-4)
    assert agents.auto(PLAIN).settings["policy"] is None
    with pytest.raises(ValueError, match="scale must lie in"):
        policies.thompson(scale=2.0)
