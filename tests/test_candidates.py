"""Agents whose candidates are rows of users, videos and features: the presets, and what they are compared with."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec import agents, envs, models
from seqdec.core import Environment
from seqdec.data import RecommenderLog, form_blocks

USERS, ITEMS, STEPS = 5, 12, 300


def make_log() -> RecommenderLog:
    """Rewards linear in an item's worth and one of two features, with a little noise; blocks of three, some short."""
    generator = np.random.default_rng(0)
    count = 1004
    user, item = generator.integers(USERS, size=count), generator.integers(ITEMS, size=count)
    numbers = generator.normal(size=(50, 2)).astype(np.float32)
    row = generator.integers(50, size=count)
    reward = np.linspace(-1, 1, ITEMS)[item] + 0.1 * generator.normal(size=count)
    reward += 0.8 * numbers[row, 0]
    return form_blocks(user, item, reward, size=3, keep_short=True, features=numbers, feature_row=row)


LOG = make_log()
ENV = envs.recommender_log(LOG, standardize=False)
SCORE = models.Score(dense=3, hidden=(6,), intercepts=True)


def make(name: str, env: Environment = ENV, **options: Any) -> Any:
    if name in ("auto", "linear", "popularity", "random"):
        return getattr(agents, name)(env, **options)
    if name == "adamw":
        return agents.make(name, env, model=agents.scorer(env, SCORE, width=3), learning_rate=1e-2, **options)
    if name != "ekf":
        options = {"rank": 6, **options}
    return agents.make(name, env, model=agents.scorer(env, SCORE, width=3, std=0.3), **options)


def value(run: Any) -> float:
    return float(run.rewards[:, STEPS // 3 :].mean())


@pytest.mark.parametrize(
    "name",
    ["adamw", *(pytest.param(name, marks=pytest.mark.extended) for name in ("auto", "hilofi", "linear", "popularity"))],
)
def test_learns_which_candidates_are_good(name: str) -> None:
    run = seqdec.run(make(name), ENV, STEPS, seed=0, num_seeds=2)
    chance = value(seqdec.run(make("random"), ENV, STEPS, seed=0, num_seeds=2))
    best = float(np.where(LOG.candidates, LOG.rewards, -np.inf).max(1)[STEPS // 3 : STEPS].mean())
    assert np.isfinite(run.rewards).all() and run.rejected.sum() == 0  # no place without a candidate was played
    assert value(run) > chance + (0.3 if name == "popularity" else 0.5) * (best - chance)


def test_popularity_is_the_shrunken_running_mean() -> None:
    run = seqdec.run(make("popularity", prior_plays=2.0), ENV, 60, seed=0)
    totals, plays = np.zeros(ITEMS), np.zeros(ITEMS)
    for step in range(60):
        items, allowed = LOG.ids["video"][step], LOG.candidates[step]
        average = totals.sum() / max(plays.sum(), 1)
        means = np.where(allowed, (totals[items] + 2 * average) / (plays[items] + 2), -np.inf)
        action = run.actions[0, step]
        assert means[action] > means.max() - 1e-5
        assert run.rewards[0, step] == LOG.rewards[step, action]
        totals[items[action]] += LOG.rewards[step, action]
        plays[items[action]] += 1


def test_linear_without_intercepts_is_bayesian_linear_regression() -> None:
    agent = make("linear", intercepts=False, noise_variance=0.05, initial_std=0.7, standardize=False)
    state = agent.init(jax.random.key(0))
    generator = np.random.default_rng(1)
    rows, rewards = [], []
    update = jax.jit(agent.update)
    for _ in range(20):
        x = {name: jnp.asarray(ids[generator.integers(len(ids))]) for name, ids in LOG.ids.items()}
        x["features"] = jnp.asarray(generator.normal(size=(3, 2)), jnp.float32)
        action, reward = int(generator.integers(3)), generator.normal()
        state, _ = update(state, x, jnp.int32(action), jnp.float32(reward))
        rows.append([*np.asarray(x["features"])[action], 1.0])
        rewards.append(reward)
    design = np.array(rows)
    mean = np.linalg.solve(design.T @ design + 0.05 / 0.49 * np.eye(3), design.T @ np.array(rewards))
    output = state.params["network"]["output"]
    np.testing.assert_allclose([*output["kernel"][:, 0], output["bias"][0]], mean, atol=1e-4)


def test_a_bad_reward_is_rejected() -> None:
    agent = make("popularity")
    _, first = ENV.reset(jax.random.key(0), ENV.params)
    for action, reward in ((0, np.nan), (7, 1.0)):
        state, info = agent.update(agent.init(jax.random.key(0)), first, jnp.int32(action), jnp.float32(reward))
        assert info.rejected and state.plays.sum() == 0


def test_misuse_is_refused() -> None:
    plain = envs.make("bernoulli")
    with pytest.raises(TypeError, match="Dict with row numbers under 'video'"):
        agents.popularity(plain)
    with pytest.raises(ValueError, match="prior_plays must be positive"):
        agents.popularity(ENV, prior_plays=0.0)
    with pytest.raises(ValueError, match="popularity has no uncertainty"):
        agents.popularity(ENV, policy="thompson")
    with pytest.raises(TypeError, match="must be a Dict of candidates"):
        agents.scorer(plain)
    odd = plain._replace(observation_space=spaces.Dict({"a": spaces.Box(0, 1, (4, 2), np.float32)}))
    with pytest.raises(TypeError, match="one row for each of 10 actions; a is"):
        agents.hilofi(odd._replace(action_space=spaces.Discrete(10)))


def test_a_belief_over_intercepts_alone_is_the_shrunken_mean_of_popularity() -> None:
    std, noise = 0.4, 0.32  # R / std^2 = 2 prior plays of reward 0
    model = agents.scorer(ENV, tables=("video",), std=0.0)
    still = dict.fromkeys(("initial_std_hidden", "initial_std_last", "process_noise_hidden", "process_noise_last"), 0.0)
    options = {"rank": 3, "noise_variance": noise, "policy": "greedy", "standardize": False, **still}
    agent = agents.hilofi(ENV, model=model, initial_std_table=(std, 0.0, 0.0, 0.0), **options)
    state = agent.init(jax.random.key(0))
    update = jax.jit(agent.update)
    generator = np.random.default_rng(2)
    totals, plays = np.zeros(ITEMS), np.zeros(ITEMS)
    for block in range(60):
        x = {name: jnp.asarray(ids[block]) for name, ids in LOG.ids.items()}
        x["features"] = jnp.asarray(generator.normal(size=(3, 2)), jnp.float32)
        reward = generator.normal()
        state, _ = update(state, x, jnp.int32(block % 3), jnp.float32(reward))
        item = LOG.ids["video"][block, block % 3]
        totals[item] += reward
        plays[item] += 1
    learned = state.params["tables"]["video"]
    np.testing.assert_allclose(learned[:, 0], totals / (plays + noise / std**2), atol=1e-5)
    np.testing.assert_array_equal(learned[:, 1:], 0)
    deviation = np.abs(state.blocks[-1].columns[:, 0, 0])
    np.testing.assert_allclose(deviation**2, 1 / (1 / std**2 + plays / noise), rtol=1e-4)


def test_the_default_network_contains_means_features_and_tastes() -> None:
    network = agents.scorer(ENV)
    params = network.init(jax.random.key(0))
    row = {"user": jnp.int32(1), "video": jnp.int32(2), "features": jnp.array([0.5, -1.0])}
    tastes = params["tables"]["user"][1, 1:] @ params["tables"]["video"][2, 1:]
    assert network.apply(params, row)[0] == pytest.approx(tastes)
    params["network"]["output"]["kernel"] = jnp.array([[2.0], [3.0], [0.4]])
    params["tables"]["user"] = params["tables"]["user"].at[1].set(jnp.array([0.1, 1.0, 2.0, 0.0]))
    params["tables"]["video"] = params["tables"]["video"].at[2].set(jnp.array([0.2, 3.0, -1.0, 5.0]))
    assert network.apply(params, row)[0] == pytest.approx(0.1 + 0.2 + (3 - 2 + 0) + (2 * 0.5 - 3) + 10 * 0.4)
    paths, _ = jax.tree_util.tree_flatten_with_path(params)
    last = {names for path, _ in paths if network.is_last(names := tuple(part.key for part in path))}
    score = ("network", "score", "output")
    assert last == {("network", "output", "kernel"), (*score, "kernel"), (*score, "bias")}
