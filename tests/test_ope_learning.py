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
        above, below = ope.OBJECTIVES[name](w, jnp.asarray(SIX["reward"]), jnp.asarray(own), direct)
        return jnp.sum(above) / jnp.sum(below)

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


def by(name: str, log: ope.Log, **settings: Any) -> Agent:
    """Learned by an objective, or by classification."""
    if name == "classification":
        return ope.learn_by_classification(log)
    return ope.learn(log, seed=0, objective=name, **settings)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*ope.OBJECTIVES, "classification"])
def test_neither_a_constant_added_to_the_rewards_nor_their_unit_changes_the_policy(name: str) -> None:
    rng = np.random.default_rng(3)
    for log, tolerance in ((LOG, 0), (LOG.replace(reward=LOG.reward * rng.lognormal(size=600)), 1e-3)):
        short = log[:300]
        target = ope.target_of(by(name, short, max_epochs=3), JUDGE[:200], seed=0)
        for factor, added in ((1.0, 10.0), (1e-3, 0.0), (1e3, -7e4)):
            other = by(name, short.replace(reward=factor * short.reward + added), max_epochs=3)
            np.testing.assert_allclose(ope.target_of(other, JUDGE[:200], seed=0), target, atol=tolerance)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*ope.OBJECTIVES, "classification"])
@pytest.mark.parametrize("mean", [100.0, -3.0])
def test_the_best_action_is_played_wherever_the_rewards_lie(name: str, mean: float) -> None:
    rng = np.random.default_rng(5)
    action = rng.integers(3, size=500)
    reward = mean + np.array([0, 0.5, 1])[action] + rng.normal(size=500) / 2
    log = ope.make_log(action=action, reward=reward, propensity=np.full(500, 1 / 3), context=rng.normal(size=(500, 2)))
    fresh = log.replace(context=rng.normal(size=(500, 2)))
    assert ope.target_of(by(name, log, max_epochs=30), fresh, seed=0)[:, 2].mean() > 0.9


def test_examples_of_a_classifier_add_up_to_the_value() -> None:
    """The weight of the examples that a policy follows is unit sum((r - b) / propensity 1[h(x) = a]) + constant."""
    rng, rows = np.random.default_rng(0), np.arange(40)
    mask, action = rng.random((40, 3)) < 0.7, rng.integers(3, size=40)
    mask[rows, action] = True
    log = ope.make_log(action=action, reward=rng.normal(size=40), propensity=rng.uniform(0.2, 1, 40), mask=mask)
    at, label, weight = ope.classification._examples(log)
    assert mask[at, label].all() and (weight > 0).all() and (label == action[at]).any() and (label != action[at]).any()
    equations, followed = [], []
    for _ in range(8):
        played = np.where(mask, rng.random((40, 3)), -1).argmax(axis=1)
        own = (played == action) / log.propensity
        equations.append([1, own @ log.reward, own.sum()])
        followed.append(weight[played[at] == label].sum())
    (_, unit, _), residual, *_ = np.linalg.lstsq(np.array(equations), np.array(followed), rcond=None)
    assert unit > 0 and residual.sum() < 1e-18


def test_pessimism_leaves_rare_high_rewards_and_regularization_keeps_to_the_logging_policy() -> None:
    rng, chance = np.random.default_rng(0), np.array([0.9, 0.05, 0.05])
    action = np.repeat([0, 1, 2], [810, 45, 45])
    reward = np.where(action == 2, np.where(np.arange(900) % 5 == 0, 4.0, 0.0), 0.5)  # a mean of 0.8
    log = ope.make_log(action=action, reward=reward, propensity=chance[action], context=rng.normal(size=(900, 1)))
    fresh = log.replace(context=rng.normal(size=(900, 1)))
    options: dict[str, Any] = {"seed": 0, "objective": "ips", "model": models.MLP(3, ()), "max_epochs": 60}

    def law(**settings: Any) -> np.ndarray:
        agent = ope.learn(log, **options, optimizer=optax.adam(0.05), patience=60, **settings)
        return ope.target_of(agent, fresh, seed=0).mean(axis=0)

    assert law()[2] > 0.7 and law(pessimism=4)[0] > 0.9
    np.testing.assert_allclose(law(regularization=50), chance, atol=0.05)


def test_the_direct_method_learns_without_propensities() -> None:
    given = {"objective": "dm", "predicted": CHANCES, "max_epochs": 20}
    agent = ope.learn(JUDGE.replace(propensity=np.full(2000, np.nan)), seed=0, **given)
    fresh, means = made(500, 8)
    assert (ope.target_of(agent, fresh, seed=0) * means).sum(axis=1).mean() > 0.8 * means.max(axis=1).mean()


@pytest.mark.parametrize(
    "learned",
    [
        lambda log: ope.learn(log, seed=0, objective="ips", max_epochs=1),
        lambda log: ope.learn_by_classification(log, DecisionTreeClassifier(random_state=0), epsilon=0.1),
        lambda log: ope.warm_start(seqdec.agents.linear(Spaces(Box(-99, 99, (4,)), Discrete(3))), log, seed=0),
    ],
)
def test_rows_learned_from_are_refused_as_judges(learned: Any) -> None:
    log = LOG[:200]
    agent = learned(log)
    for rows in (log, log[np.arange(200)[::-1]], LOG, ope.Log.from_pandas(log.to_pandas(), num_actions=3)[150:]):
        other = rows.weighted({}) if rows is LOG else rows  # another reward, or propensity, makes no other row
        for judged in (other, other.replace(propensity=0 * other.propensity + 0.5)):
            with pytest.raises(ValueError, match=r"learned from \d+% of the rows.*cross_fit_policy"):
                ope.target_of(agent, judged, seed=0)
    with pytest.raises(ValueError, match="learned from 100% of the rows"):
        ope.select(log, {"agent": agent, "uniform": np.full((200, 3), 1 / 3)}, seed=0)
    assert ope.target_of(agent, LOG[200:], seed=0).shape == (400, 3)


def test_rows_are_known_by_their_keys_and_not_by_what_chance_makes_alike() -> None:
    rng = np.random.default_rng(0)
    for contexts in (1, 4, 10**9):
        x, action = rng.integers(contexts, size=(2, 500, 1)).astype(float), rng.integers(2, size=(2, 500))
        train, judge = (
            ope.make_log(action=a, reward=rng.random(500), propensity=np.full(500, 0.5), context=c, num_actions=2)
            for a, c in zip(action, x, strict=True)
        )
        agent = ope.learn_by_classification(train)
        assert ope.target_of(agent, judge, seed=0).shape == (500, 2)
        with pytest.raises(ValueError, match="learned from"):
            ope.target_of(agent, train, seed=0)
    keys = np.array([f"decision {row}" for row in range(1000)], object)
    agent = ope.learn_by_classification(train.replace(key=keys[:500]))
    ope.target_of(agent, judge.replace(key=keys[500:]), seed=0)
    with pytest.raises(ValueError, match="learned from 2% of the rows"):
        ope.target_of(agent, judge.replace(key=keys[490:990]), seed=0)


def test_a_cross_fitted_policy_is_played_in_rows_it_was_not_learned_from() -> None:
    """A tree that remembers each row is worth, on these rows, what it is worth on others."""
    log = LOG.replace(reward=np.random.default_rng(0).integers(2, size=600) * 1.0)  # nothing to learn
    seen = []

    def learned(rows: ope.Log) -> Agent:
        seen.append(len(rows))
        return ope.learn_by_classification(rows, DecisionTreeClassifier(random_state=0))

    target = ope.cross_fit_policy(learned, log, seed=0, folds=3)
    assert seen == [400] * 3
    row = ope.evaluate(log, target, seed=0, estimators="snips").loc["snips"]
    assert row["low"] < 0.5 < row["high"]


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
        (log, _), (fresh, _) = made(600, 0, **changes), made(600, 2, **(changes | {"mask": None}))
        agents = [ope.learn(log, seed=0, objective="ips", max_epochs=2, epsilon=0.2)]
        agents += [] if "context" in changes else [ope.learn_by_classification(log, epsilon=0.2)]
        for agent in agents:
            fresh = fresh.replace(mask=log.mask)
            target = ope.target_of(agent, fresh, seed=0)
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
    ({"pessimism": -1.0}, ValueError, "pessimism"),
    ({"regularization": -1.0}, ValueError, "regularization"),
    ({"spaces": FIVE}, ValueError, "observations of 4 numbers and 3 actions"),
    ({"spaces": NAMED}, TypeError, "Box observations and Discrete actions"),
]


@pytest.mark.parametrize(("given", "error", "message"), WRONG_SETTINGS)
def test_settings_that_do_not_fit_are_refused_before_any_work(
    given: dict[str, Any], error: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ope.gradients, "predict_rewards", None)
    with pytest.raises(error, match=message):
        ope.learn(LOG, seed=0, **given)


def test_a_diverging_objective_is_told() -> None:
    with pytest.raises(ValueError, match="smaller learning rate"):
        ope.learn(LOG, seed=0, objective="ips", optimizer=optax.sgd(1e38))


NOTHING = LOG.replace(reward=0 * LOG.reward)
UNKNOWN = LOG.replace(propensity=np.full(600, np.nan))
OTHER: Any = seqdec.agents.random(FIVE)


@pytest.mark.parametrize(
    ("method", "given", "error", "message"),
    [
        (ope.learn, (UNKNOWN,), ValueError, r"learn needs propensities.*estimate_propensities"),
        (ope.learn, (LOG[np.arange(2)],), ValueError, "2 rows is too small to learn a choice among 3 actions"),
        (ope.learn, (LOG.context,), TypeError, r"must be a seqdec\.ope\.Log"),
        (ope.learn_by_classification, (UNKNOWN,), ValueError, r"needs propensities.*estimate_propensities"),
        (ope.learn_by_classification, (LOG, KNeighborsClassifier()), TypeError, "takes sample_weight"),
        (ope.learn_by_classification, (NOTHING,), ValueError, "two actions"),
        (ope.learn_by_classification, (made(100, 0, context=None)[0],), ValueError, "needs contexts"),
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


def test_missing_rewards_of_a_table_are_those_told() -> None:
    table = LOG[:4].to_pandas().assign(reward=[1.0, np.nan, 2.0, None])
    read = ope.Log.from_pandas(table, reward_default=-0.5, num_actions=3)
    assert read.reward.tolist() == [1.0, -0.5, 2.0, -0.5]
    with pytest.raises(ValueError, match=r"column reward is nan in row 1.*reward_default"):
        ope.Log.from_pandas(table, num_actions=3)
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match="reward_default must lie in"):
            ope.Log.from_pandas(table, reward_default=wrong, num_actions=3)
