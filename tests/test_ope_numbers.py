"""Policies of numbers learned from logs: near the best action, played and served, and judged by rows not seen."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium.spaces import Box, Discrete

import seqdec
from seqdec import models, ope
from seqdec.core import Spaces


def made(rows: int, seed: int, shift: float = 0.0, unit: float = 1.0) -> ope.ContinuousLog:
    """The best action is the first context; actions are standard normal."""
    rng = np.random.default_rng(seed)
    x, a = rng.normal(size=(rows, 2)), rng.normal(size=rows)
    reward = -((a - x[:, 0]) ** 2) + 0.3 * rng.normal(size=rows)
    density = np.exp(-(a**2) / 2) / np.sqrt(2 * np.pi)
    return ope.make_continuous_log(action=a, reward=shift + unit * reward, density=density, context=x)


LOG, JUDGE = made(600, 0), made(500, 1)


def peaks(rows: int) -> ope.ContinuousLog:
    """Rewards of 1 within .7 of 1.5 times the sign of the context: no quadratic function of the action."""
    rng = np.random.default_rng(3)
    x, a = rng.normal(size=(rows, 1)), rng.uniform(-3, 3, size=rows)
    reward = (np.abs(a - 1.5 * np.sign(x[:, 0])) < 0.7) * 1.0
    return ope.make_continuous_log(action=a, reward=reward, density=np.full(rows, 1 / 6), context=x)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("objective", ope.OBJECTIVES)
def test_the_policy_is_near_the_best_within_the_logged_range_and_the_same_for_other_units(objective: str) -> None:
    target = ope.target_of(ope.learn_continuous(LOG, seed=0, objective=objective), JUDGE, seed=0)
    regret = ((target - JUDGE.context[:, 0]) ** 2).mean()
    assert regret < 0.25, regret  # the logging policy's is 2, that of the best constant 1
    assert LOG.action.min() <= target.min() and target.max() <= LOG.action.max()
    other = ope.learn_continuous(made(600, 0, 100.0, 5.0), seed=0, objective=objective)
    np.testing.assert_allclose(ope.target_of(other, JUDGE, seed=1), target, atol=1e-2)


def test_actions_in_another_unit_and_a_wrong_reward_model() -> None:
    """DR does not need its quadratic model to be right; the bandwidth is in units of the action."""
    log = peaks(1500)
    cents = log.replace(action=100 * log.action + 500, density=log.density / 100)
    x = np.linspace(-2, 2, 40)

    def played(log: ope.ContinuousLog, **settings: Any) -> np.ndarray:
        agent = ope.learn_continuous(log, seed=0, **settings)
        act = jax.vmap(lambda x: agent.act(jax.random.key(0), (), x).value[0])
        return np.asarray(act(jnp.asarray(x[:, None])), np.float64)

    found = played(log, bandwidth=0.4)
    value = [(np.abs(one - 1.5 * np.sign(x)) < 0.7).mean() for one in (found, played(log, objective="dm"))]
    assert value[0] > 0.8 > value[1] + 0.2, value
    np.testing.assert_allclose((played(cents, bandwidth=40.0) - 500) / 100, found, atol=0.05)


def test_rows_learned_from_do_not_judge() -> None:
    agent = ope.learn_continuous(LOG, seed=0, objective="ips", max_epochs=1)
    for judged in (LOG, LOG[::2], LOG[np.random.default_rng(0).permutation(600)]):
        with pytest.raises(ValueError, match=r"learned from 100% of the rows .*log\[1::2\]$"):
            ope.target_of(agent, judged, seed=0)
    rng = np.random.default_rng(0)  # few prices and no contexts: rows are alike by chance
    price, sold = rng.integers(5, size=(2, 400)) * 1.0, rng.integers(2, size=(2, 400)) * 1.0
    one, two = (ope.make_continuous_log(action=price[i], reward=sold[i], density=np.full(400, 0.2)) for i in (0, 1))
    assert ope.target_of(ope.learn_continuous(one, seed=0, max_epochs=1), two, seed=0).shape == (400,)


def test_the_agent_serves_and_has_no_action_for_a_context_without_meaning(tmp_path: Path) -> None:
    spaces = Spaces(Box(-9, 9, (2,)), Box(-9, 9, (1,)))

    def learned(spaces: Any) -> Any:
        return ope.learn_continuous(LOG, seed=0, objective="ips", spaces=spaces, model=models.MLP(1, ()), max_epochs=5)

    target = ope.target_of(learned(spaces), JUDGE, seed=0)
    for _ in range(2):  # the folder is taken up again by the same policy, learned again
        with seqdec.OnlineAgent(learned, spaces, seed=0, folder=tmp_path) as service:
            decision = service.decide(JUDGE.context[0].astype(np.float32))
            np.testing.assert_allclose(decision.action, target[:1], rtol=1e-5)
            service.learn(decision.token, 1.0)
    action = jax.jit(learned(spaces).act)(jax.random.key(0), (), jnp.full(2, jnp.nan))
    assert np.isnan(action.propensity) and LOG.action.min() <= action.value[0] <= LOG.action.max()


def test_an_agent_that_draws_numbers_has_a_target_too() -> None:
    spaces = Spaces(Box(-9, 9, (2,)), Box(-1, 1, (1,)))
    target = ope.target_of(seqdec.agents.random(spaces), JUDGE, seed=0)
    assert target.shape == (500,) and 0.5 < target.std() < 0.65


DISCRETE = Spaces(Box(-9, 9, (2,)), Discrete(3))
REFUSED: list[tuple[dict[str, Any], Any, str]] = [
    ({"log": LOG.context}, TypeError, "ContinuousLog, of make_continuous_log; got ndarray"),
    ({"log": LOG.replace(action=np.ones(600))}, ValueError, "all 1: nothing can be learned from them"),
    ({"log": LOG[:1]}, ValueError, "nothing can be learned"),
    ({"objective": "mse"}, ValueError, "objective"),
    ({"bandwidth": 0.0}, ValueError, "bandwidth"),
    ({"model": models.MLP(3)}, ValueError, r"output has shape \(3,\); it must be \(1,\)"),
    ({"optimizer": 0.1}, TypeError, "optimizer must be one of optax"),
    ({"held_out": 1.0}, ValueError, "held_out"),
    ({"spaces": DISCRETE}, TypeError, "Box observations and Box actions"),
    ({"spaces": Spaces(Box(-9, 9, (3,)), Box(-9, 9, (1,)))}, ValueError, "observations of 2 numbers"),
    ({"spaces": Spaces(Box(-9, 9, (2,)), Box(-9, 9, (2,)))}, ValueError, "one real number"),
    ({"spaces": Spaces(Box(-9, 9, (2,)), Box(0, 1, (1,)))}, ValueError, "beyond"),
    ({"objective": "ips", "optimizer": optax.sgd(float("nan"))}, ValueError, "became nan"),
]


@pytest.mark.parametrize(("given", "error", "message"), REFUSED)
def test_what_does_not_fit_is_refused(given: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        ope.learn_continuous(**{"log": LOG, "seed": 0, **given})


def test_other_logs_and_agents_are_refused() -> None:
    for learn in (lambda: ope.learn(LOG, seed=0), lambda: ope.learn_by_classification(LOG)):  # pyright: ignore
        with pytest.raises(TypeError, match="take learn_continuous"):
            learn()
    with pytest.raises(TypeError, match="a Box of one number as action"):
        ope.target_of(seqdec.agents.random(DISCRETE), LOG, seed=0)
    wide = Spaces(Box(-9, 9, (3,)), Box(-1, 1, (1,)))
    with pytest.raises(ValueError, match="the log has 2 features"):
        ope.target_of(seqdec.agents.random(wide), LOG, seed=0)
    with pytest.raises(TypeError, match="agent must be"):
        ope.target_of(None, LOG, seed=0)  # pyright: ignore[reportArgumentType]
