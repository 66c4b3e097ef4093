"""The black-box functions against published optima, and as environments."""

import gymnasium
import jax
import numpy as np
import pytest
from scipy.optimize import minimize

from seqdec import envs
from seqdec.envs import objectives

KNOWN = {
    "ackley2": (objectives.ackley(2), 0.0),
    "ackley50": (objectives.ackley(50), 0.0),
    "branin": (objectives.branin(), 0.39788735773),
    "failing_branin": (objectives.failing_branin(), 0.39788735773),
    "hartmann6": (objectives.hartmann6(), -3.32236801),
    "levy5": (objectives.levy(5), 0.0),
    "rosenbrock4": (objectives.rosenbrock(4), 0.0),
}


@pytest.mark.parametrize("name", KNOWN)
def test_published_optimum(name: str) -> None:
    objective, published = KNOWN[name]
    assert objective.name == name and objective.minimum == pytest.approx(published, abs=1e-6)
    for x in objective.minimizers:
        assert np.all((x >= objective.bounds[:, 0]) & (x <= objective.bounds[:, 1]))
        assert objective(x) == pytest.approx(published, abs=1e-6)


@pytest.mark.parametrize("name", ["branin", "hartmann6", "levy5", "rosenbrock4"])
def test_the_minimum_is_where_a_local_search_ends(name: str) -> None:
    objective, published = KNOWN[name]
    start = objective.minimizers[0] + 0.02
    found = minimize(objective, np.clip(start, *objective.bounds.T), bounds=objective.bounds, tol=1e-12)
    assert found.fun == pytest.approx(published, abs=1e-6)


def test_values_worked_out_by_hand() -> None:
    assert objectives.hartmann6()([0.5] * 6) == pytest.approx(-0.50531499)
    assert objectives.branin()([0.0, 0.0]) == pytest.approx(36 + 20 - 10 / (8 * np.pi))
    assert objectives.ackley(1)([1.0]) == pytest.approx(20 - 20 * np.exp(-0.2))
    assert objectives.rosenbrock(2)([0.0, 2.0]) == pytest.approx(401.0)
    assert objectives.levy(1)([3.0]) == pytest.approx(1 + 0.25 * 1)
    assert np.isnan(objectives.failing_branin()([0.0, 13.0]))


def test_drawnn_is_a_relu_network_with_standard_normal_parameters() -> None:
    objective = objectives.drawnn(200)
    layers = [jax.tree.map(np.asarray, objective.params["params"][f"Dense_{i}"]) for i in range(3)]
    assert [layer["kernel"].shape for layer in layers] == [(200, 50), (50, 50), (50, 1)]
    every = np.concatenate([leaf.ravel() for layer in layers for leaf in layer.values()])
    assert abs(every.mean()) < 6 / np.sqrt(every.size) and abs(every.var() - 1) < 6 * np.sqrt(2 / every.size)
    x = np.random.default_rng(0).random(200)
    value = x
    for layer in layers[:2]:
        value = np.maximum(value @ layer["kernel"] + layer["bias"], 0)
    assert objective(x) == pytest.approx(-(value @ layers[2]["kernel"] + layers[2]["bias"])[0], rel=1e-9)
    assert objectives.drawnn(200)(x) == objective(x) != objectives.drawnn(200, seed=1)(x)
    assert objective.minimum is None and np.isnan(objective.regret(1.0))


def test_noise_comes_from_the_seed() -> None:
    objective, x = objectives.noisy_branin(0.5), [1.0, 2.0]
    first, second, other = objective.black_box(0), objective.black_box(0), objective.black_box(1)
    draws = np.array([first(x) for _ in range(400)])
    assert draws.tolist() == [second(x) for _ in range(400)] and draws[0] != other(x)
    assert abs(draws.mean() - objective(x)) < 6 * 0.5 / 20 and abs(draws.std() - 0.5) < 6 * 0.5 / np.sqrt(800)


@pytest.mark.parametrize("name", ["drawnn", "failing-branin", "noisy-branin", "rosenbrock"])
def test_a_step_is_a_query(name: str) -> None:
    env = envs.make(name, horizon=3)
    x = np.asarray(env.action_space.low + 0.3 * (env.action_space.high - env.action_space.low), np.float32)
    state, observation = env.reset(jax.random.key(0), env.params)
    assert env.observation_space.contains(np.asarray(observation))
    value = getattr(objectives, name.replace("-", "_"))()(x)
    step, done = jax.jit(env.step), []
    for i in range(4):
        state, seen = step(jax.random.key(i), state, x, env.params)
        done.append(bool(seen.done))
        slack = 6.0 if name == "noisy-branin" else 1e-4 * max(1, abs(value))
        assert float(seen.reward) == pytest.approx(-value, abs=slack)
    assert done == [False, False, True, False]
    if name == "drawnn":
        assert np.isnan(seen.regret)
    else:
        assert float(seen.regret) == pytest.approx(value - float(env.params.minimum), rel=1e-3)
    _, outside = step(jax.random.key(0), state, env.action_space.high + 1, env.params)
    assert np.isnan(outside.reward) and np.isnan(outside.regret)


def test_a_failing_query_has_no_reward() -> None:
    env = envs.make("failing-branin")
    state, _ = env.reset(jax.random.key(0), env.params)
    _, seen = env.step(jax.random.key(0), state, np.float32([0, 13]), env.params)
    assert np.isnan(seen.reward) and np.isnan(seen.regret)


def test_actions_of_another_shape_are_refused_while_tracing() -> None:
    env = envs.make("branin")
    state, _ = env.reset(jax.random.key(0), env.params)
    for action in (np.zeros(3, np.float32), np.int32(1)):
        with pytest.raises(TypeError, match=r"an action must be a \(2,\) float array; got .* of shape"):
            jax.eval_shape(env.step, jax.random.key(0), state, action, env.params)


def test_gymnasium_ids_have_box_actions() -> None:
    env = gymnasium.make("seqdec/Ackley-v0", horizon=4, dim=3)
    assert isinstance(env.action_space, gymnasium.spaces.Box) and env.action_space.shape == (3,)
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step(np.zeros(3, np.float32))
    assert (reward, info["regret"]) == pytest.approx((0.0, 0.0), abs=1e-5) and not terminated


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: objectives.ackley(0), ValueError, "dim must be at least 1; got 0"),
        (lambda: objectives.rosenbrock(1), ValueError, "dim must be at least 2; got 1"),
        (lambda: objectives.drawnn(5, seed=-1), ValueError, "seed must be an integer from 0 to .*; got -1"),
        (lambda: objectives.noisy_branin(-1.0), ValueError, "noise_std must be finite numbers from 0.0"),
        (lambda: objectives.branin()([1.0]), ValueError, r"x must have shape \(2,\); got \(1,\)"),
        (lambda: envs.query(objectives.branin(), horizon=0), ValueError, "horizon must be at least 1; got 0"),
    ],
)
def test_bad_input_is_refused(build, error, message) -> None:
    with pytest.raises(error, match=message):
        build()
