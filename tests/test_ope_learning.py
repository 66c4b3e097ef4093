"""Policies learned from logs: gradients by finite differences, better than the logging policy, played and served."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

import seqdec
from seqdec import models, ope
from seqdec.core import Agent, Masked, Spaces
from tests.test_ope import PREDICTED, SIX, estimate, six

SLOPES = np.random.default_rng(7).normal(size=(3, 4))


def made(rows: int, seed: int, **changes: Any) -> tuple[ope.Log, np.ndarray]:
    """A log of a policy with three actions that prefers the first, and the chances (n, 3) of a reward of 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)) * [1, 10, 0.1, 1] + [0, 5, 0, 0]
    means = 1 / (1 + np.exp(-3 * (x - [0, 5, 0, 0]) / [1, 10, 0.1, 1] @ SLOPES.T))
    action = rng.choice(3, size=rows, p=[0.6, 0.2, 0.2])
    known = {
        "action": action,
        "reward": (rng.random(rows) < means[np.arange(rows), action]) * 1.0,
        "propensity": np.array([0.6, 0.2, 0.2])[action],
        "context": x,
        "num_actions": 3,
    }
    return ope.make_log(**(known | changes)), means


LOG, _ = made(600, 0)
JUDGE, CHANCES = made(2000, 1)


@pytest.mark.parametrize("name", ope.OBJECTIVES)
def test_gradients_are_finite_differences_of_the_estimator(name: str) -> None:
    """The estimators, of which each is tested by hand on these six rows, are computed in NumPy."""
    scores = np.random.default_rng(0).normal(size=(6, 3))
    log, rows = six(), np.arange(6)
    softmax = lambda z: np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)  # noqa: E731

    def value(z: Any) -> Any:
        law = jax.nn.softmax(z)
        w = law[rows, SIX["action"]] / jnp.asarray(SIX["propensity"])
        own, direct = PREDICTED[rows, SIX["action"]], jnp.sum(law * PREDICTED, axis=1)
        return ope.OBJECTIVES[name](w, jnp.asarray(SIX["reward"]), jnp.asarray(own), direct)

    def numeric(z: np.ndarray) -> float:
        return estimate(name, log, softmax(z), PREDICTED)

    with jax.enable_x64(True):
        found, slope = jax.device_get(jax.value_and_grad(value)(jnp.asarray(scores)))
    assert abs(found - numeric(scores)) < 1e-12
    for place in np.ndindex(6, 3):
        step = np.zeros((6, 3))
        step[place] = 1e-5
        difference = (numeric(scores + step) - numeric(scores - step)) / 2e-5
        assert abs(slope[place] - difference) < 1e-8


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "learned",
    [
        lambda: ope.learn(LOG, seed=0),
        lambda: ope.learn(LOG, seed=0, objective="ips", model=models.MLP(3, ()), optimizer=optax.sgd(0.1)),
        lambda: ope.learn(LOG, seed=0, objective="snips", epsilon=0.1),
        lambda: ope.learn_by_classification(LOG),
        lambda: ope.learn_by_classification(LOG, DecisionTreeClassifier(max_depth=4, random_state=0), epsilon=0.1),
        lambda: ope.learn_by_classification(LOG, RidgeClassifier()),
    ],
)
def test_a_learned_policy_beats_the_logging_policy_and_is_learned_again_with_the_seed(learned: Any) -> None:
    agent = learned()
    target = ope.target_of(agent, JUDGE, seed=0)
    logging, best = (CHANCES @ [0.6, 0.2, 0.2]).mean(), CHANCES.max(axis=1).mean()
    value = (target * CHANCES).sum(axis=1).mean()
    assert value > logging + 0.6 * (best - logging), (logging, value, best)
    row = ope.evaluate(JUDGE, target, seed=0, estimators="snips", level=0.999).loc["snips"]
    assert logging < row["low"] < value < row["high"]
    assert target.min() >= agent.settings["epsilon"] / 3 - 1e-6
    np.testing.assert_array_equal(target, ope.target_of(learned(), JUDGE, seed=1))


def test_held_out_rows_choose_the_parameters_and_teach_none() -> None:
    """Later epochs, which memorize the rows learned from, do not count: patience alone would return the last."""
    shared: dict[str, Any] = {"seed": 0, "objective": "ips", "model": models.MLP(3, (200,)), "held_out": 0.5}

    def law(log: ope.Log, patience: int, epochs: int) -> np.ndarray:
        return ope.target_of(ope.learn(log, patience=patience, max_epochs=epochs, **shared), JUDGE, seed=0)

    np.testing.assert_array_equal(law(LOG, 150, 150), law(LOG, 20, 150))
    held_out = np.isin(np.arange(600), np.random.default_rng(0).permutation(600)[:300])
    other = LOG.replace(reward=np.where(held_out, 1e3, LOG.reward))
    np.testing.assert_array_equal(law(LOG, 20, 1), law(other, 20, 1))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["network", "classifier"])
def test_the_agent_plays_and_serves(kind: str, tmp_path: Path) -> None:
    env = seqdec.envs.make("digits")
    run = seqdec.run(seqdec.agents.random(env), env, 400, seed=0, diagnostics=("observation",))
    log = run.log(0, num_actions=10)

    def learned(spaces: Any) -> Agent:
        if kind == "network":
            return ope.learn(log, seed=0, objective="ips", spaces=spaces, epsilon=0.1, max_epochs=5)
        return ope.learn_by_classification(log, spaces=spaces, epsilon=0.1)

    played = seqdec.run(learned(env), env, 60, seed=3, num_seeds=2, diagnostics=("observation",))
    again = played.log(3, num_actions=10)
    target = ope.target_of(learned(env), again, seed=0)
    np.testing.assert_allclose(target[np.arange(60), again.action], again.propensity, atol=1e-5)
    x = np.asarray(again.context[0], np.float32).reshape(env.observation_space.shape)
    for _ in range(2):  # the folder is taken up again by the same policy, learned again
        with seqdec.OnlineAgent(learned, env, seed=0, folder=tmp_path) as service:
            decision = service.decide(x)
            assert abs(decision.propensity - target[0, decision.action]) < 1e-5
            service.learn(decision.token, 1.0)


def test_masks_action_features_and_logs_without_contexts() -> None:
    mask = np.ones((600, 3), bool)
    mask[:, 2] = LOG.action == 2
    features = np.random.default_rng(0).normal(size=(600, 3, 2))
    for changes in ({"mask": mask}, {"action_features": features}, {"context": None}):
        log, _ = made(600, 0, **changes)
        agents = [ope.learn(log, seed=0, objective="ips", max_epochs=2, epsilon=0.2)]
        agents += [] if "context" in changes else [ope.learn_by_classification(log, epsilon=0.2)]
        for agent in agents:
            target = ope.target_of(agent, log, seed=0)
            assert (target[~log.mask] == 0).all() and np.allclose(target.sum(axis=1), 1)
    agent = ope.learn_by_classification(LOG)
    action = agent.act(jax.random.key(0), (), Masked(LOG.context[0], np.array([False, True, False])))
    assert int(action.value) == 1 and action.propensity == 1


def test_in_compiled_code_a_context_without_meaning_has_no_propensity() -> None:
    for agent in (ope.learn(LOG, seed=0, objective="ips", max_epochs=1), ope.learn_by_classification(LOG)):
        action = jax.jit(agent.act)(jax.random.key(0), (), jnp.full(4, jnp.nan))
        assert np.isnan(action.propensity) and 0 <= action.value < 3


def test_the_lower_bound_selects() -> None:
    """The candidate with the highest estimate lost: its weights are large and its interval is wide."""
    steady, bold = np.tile([0.5, 0.3, 0.2], (300, 1)), np.tile([0.0, 0.0, 1.0], (300, 1))
    action = np.repeat([0, 1, 2], [270, 15, 15])
    reward = np.where(action == 2, np.where(np.arange(300) == 299, 10.0, 0.4), 0.5)
    log = ope.make_log(action=action, reward=reward, propensity=np.array([0.9, 0.05, 0.05])[action])
    found = ope.select(log, {"bold": bold, "steady": steady}, seed=0)
    assert found.chosen == "steady" == found.table.index[0] and found.table["value"].idxmax() == "bold"
    alone = ope.evaluate(log, bold, seed=0, estimators="snips", level=0.975).loc["snips"]
    assert found.table.loc["bold", "low"] == alone["low"]  # for two candidates at 0.95 together
    learned = ope.learn_by_classification(LOG)
    both = {"learned": learned, "uniform": np.full((2000, 3), 1 / 3)}
    assert ope.select(JUDGE, both, seed=0, predicted=np.full((2000, 3), 0.5)).chosen == "learned"


FIVE = Spaces(Box(0, 1, (5,)), Discrete(3))
NAMED = Spaces(Dict({"a": Box(0, 1, (4,))}), Discrete(3))
WRONG_SETTINGS: list[tuple[dict[str, Any], Any, str]] = [
    ({"model": models.MLP(4)}, ValueError, r"output has shape \(4,\); it must be \(3,\)"),
    ({"model": LogisticRegression()}, TypeError, "model must be a module of flax"),
    ({"optimizer": 0.1}, TypeError, "optimizer must be one of optax"),
    ({"objective": "mse"}, ValueError, "objective"),
    ({"predicted": np.zeros((5, 3))}, ValueError, r"\(600, 3\); got \(5, 3\)"),
    ({"objective": "ips", "predicted": np.zeros((600, 3))}, ValueError, "no effect"),
    ({"epsilon": 1.5}, ValueError, r"epsilon must lie in \[0, 1\]"),
    ({"held_out": 1.0}, ValueError, "held_out"),
    ({"batch_size": 0}, ValueError, "batch_size"),
    ({"spaces": FIVE}, ValueError, "observations of 4 numbers and 3 actions"),
    ({"spaces": NAMED}, TypeError, "Box observations and Discrete actions"),
]


@pytest.mark.parametrize(("given", "error", "message"), WRONG_SETTINGS)
def test_settings_that_do_not_fit_are_refused_before_any_work(
    given: dict[str, Any], error: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ope.learned, "predict_rewards", None)
    with pytest.raises(error, match=message):
        ope.learn(LOG, seed=0, **given)


def test_a_diverging_objective_is_told() -> None:
    with pytest.raises(ValueError, match="smaller learning rate"):
        ope.learn(LOG, seed=0, objective="ips", optimizer=optax.sgd(1e38))


SHIFTED, NOTHING = LOG.replace(reward=LOG.reward - 1), LOG.replace(reward=0 * LOG.reward)
UNKNOWN = LOG.replace(propensity=np.full(600, np.nan))
OTHER: Any = seqdec.agents.random(FIVE)


@pytest.mark.parametrize(
    ("method", "given", "error", "message"),
    [
        (ope.learn, (UNKNOWN,), ValueError, r"learn needs propensities.*estimate_propensities"),
        (ope.learn, (LOG[np.arange(2)],), ValueError, "2 rows teaches no choice among 3 actions"),
        (ope.learn, (LOG.context,), TypeError, r"must be a seqdec\.ope\.Log"),
        (ope.learn_by_classification, (UNKNOWN,), ValueError, r"needs propensities.*estimate_propensities"),
        (ope.learn_by_classification, (LOG, KNeighborsClassifier()), TypeError, "takes sample_weight"),
        (ope.learn_by_classification, (SHIFTED,), ValueError, r"be >= 0; got -1 in row \d+: pass log\.replace"),
        (ope.learn_by_classification, (NOTHING,), ValueError, "two actions"),
        (ope.learn_by_classification, (made(100, 0, context=None)[0],), ValueError, "no contexts"),
        (ope.select, (LOG, {}), ValueError, "at least one policy"),
        (ope.select, (LOG, [np.ones((600, 3)) / 3]), TypeError, "must be a dict"),
        (ope.select, (LOG, {"a": np.ones((5, 3))}), ValueError, r"\(600, 3\); got \(5, 3\)"),
        (ope.target_of, (np.ones(3), LOG), TypeError, "must be a seqdec.core.Agent"),
        (ope.target_of, (OTHER, LOG), ValueError, "the log has 4 features, 3 actions"),
        (ope.warm_start, (OTHER, LOG), ValueError, "the log has 4 features, 3 actions"),
    ],
)
def test_logs_and_candidates_that_do_not_fit_are_refused(method: Any, given: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        method(*given, **({} if method is ope.learn_by_classification else {"seed": 0}))


def test_any_agent_that_knows_its_policy_is_a_target() -> None:
    spaces = Spaces(Box(-100, 100, (4,)), Discrete(3))
    agent: Agent = seqdec.agents.make("linear", spaces, policy="epsilon_greedy")
    state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
    for _ in range(20):
        for action in range(3):
            state, _ = update(state, LOG.context[0], action, float(action))
    target = ope.target_of(agent, LOG, seed=0, state=state)
    np.testing.assert_allclose(target[0], [0.05 / 3, 0.05 / 3, 1 - 0.1 / 3], atol=1e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["linear", "auto", "hilofi"])
def test_an_agent_that_has_learned_a_log_begins_with_what_it_knows(name: str, tmp_path: Path) -> None:
    spaces = Spaces(Box(-np.inf, np.inf, (4,), np.float32), Discrete(3))
    log = LOG[:300]
    fresh = seqdec.agents.make(name, spaces)
    agent = ope.warm_start(fresh, log, seed=0)
    state, update = fresh.init(jax.random.key(0)), jax.jit(fresh.update)
    for x, action, reward in zip(ope.inputs(log), log.action, log.reward.astype(np.float32), strict=True):
        state, _ = update(state, x, action, reward)
    for one, wanted in zip(*map(jax.tree.leaves, (agent.init(jax.random.key(7)), state)), strict=True):
        if jnp.issubdtype(one.dtype, jnp.floating):
            np.testing.assert_allclose(one, wanted, rtol=1e-3, atol=1e-4)
    assert agent.settings["warm_start"] == 300
    if name == "linear":
        env = seqdec.envs.linear(np.zeros((3, 4)))
        assert len(seqdec.run(agent, env, 20, seed=0, num_seeds=2).rewards) == 2
        warmed = lambda spaces: ope.warm_start(seqdec.agents.linear(spaces), log, seed=0)  # noqa: E731
        with seqdec.OnlineAgent(warmed, spaces, seed=0, folder=tmp_path / "service") as service:
            assert service.decide(np.zeros(4)).action in range(3)
    value = np.sum(ope.target_of(agent, JUDGE, seed=0) * CHANCES, axis=1).mean()
    before = np.sum(ope.target_of(fresh, JUDGE, seed=0) * CHANCES, axis=1).mean()
    assert value > before + 0.1
