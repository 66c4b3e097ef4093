"""A share of what a control arm would have earned."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from seqdec import agents, testing
from seqdec.agents.wrappers.conservative import _plus
from seqdec.core import Action, Agent, Assessment, Masked, Spaces
from seqdec.ope.sequences import lower

ARMS = Spaces(spaces.Box(-1, 1, (2,)), spaces.Discrete(3))
KEY, X = jax.random.key(0), jnp.zeros(2)
OWN = np.array([0.1, 0.2, 0.7], np.float32)


class Info(NamedTuple):
    rejected: jax.Array


def careful(own=OWN, **options):
    """Of an agent that learns nothing."""

    def act(key, state, x):
        return Action(jnp.int32(0), jnp.float32(own[0]), jnp.asarray(own))

    def update(state, x, action, reward):
        return state, Info(~jnp.isfinite(reward))

    def assess(key, state, x):
        return Assessment(*[jnp.asarray(own)] * 3)

    fixed = Agent(lambda key: (), act, update, "fixed", {}, update, assess=assess)
    return agents.conservative(fixed, **options)


def taught(agent, actions, chances, rewards, mask=None):
    """The state after lessons."""
    learn = jax.jit(lambda state, row: (agent.update(state, X, Action(*row[:2]), row[2])[0], None))
    rows = jnp.asarray(actions, jnp.int32), jnp.asarray(chances, jnp.float32), jnp.asarray(rewards, jnp.float32)
    return jax.lax.scan(learn, agent.init(KEY), rows)[0]


def test_it_keeps_the_contract_of_agents() -> None:
    testing.check_agent(lambda where: agents.conservative(agents.linear(where, policy="greedy")), spaces=ARMS)


def test_control_keeps_what_no_budget_pays_for() -> None:
    agent = careful(control=1, loss=0.2, share=0.3, late=9)
    win, usual, loss = (2, 0.5, 1.0), (1, 0.5, 1.0), (2, 0.5, 0.0)
    part = 0.8 - (25 - _cost(25, 0.8 / 0.3 - 1)) / 20
    assert 0.3 < part < 0.8
    for lessons, held in (
        ([loss], 0.8),
        ([win] * 25, part),
        ([win] * 600, 0.3),
        ([win] * 600 + [usual] * 100, 0.3),
        ([win] * 600 + [usual] + [loss] * 700, 0.8),
    ):
        state = taught(agent, *zip(*lessons, strict=True))
        expected = (1 - held) * OWN + held * np.eye(3)[1]
        played = agent.act(KEY, state, X)
        np.testing.assert_allclose(played.probabilities, expected, rtol=1e-4)
        np.testing.assert_allclose(played.propensity, expected[int(played.value)], rtol=1e-4)
    masked = agent.act(KEY, state, Masked(X, jnp.array([True, False, True])))
    np.testing.assert_allclose(masked.probabilities, OWN, rtol=1e-5)  # where control may not be played


def _cost(squares, bound):
    """What a confidence sequence takes off, at one of its rates."""
    rates, places = 0.9 * 2.0 ** -np.arange(20), np.arange(1, 21)
    psi = -np.log1p(-rates) - rates
    return np.min((bound * np.log(places * (places + 1) / 0.05) + squares * psi / bound) / rates)


def test_the_account_is_that_of_a_confidence_sequence_and_ignores_other_lessons() -> None:
    rng, agent = np.random.default_rng(0), careful(loss=0.1, share=0.2, largest_reward=2.0)
    action = rng.choice(3, 3000, p=[0.6, 0.2, 0.2])
    reward = rng.random(3000) * np.array([1.0, 1.2, 0.4])[action]
    chances = np.where(action == 0, 0.6, 0.2)
    usual, plays, z = 0.0, 0, []
    for a, r in zip(action, reward / 2, strict=True):
        z.append(r - 0.9 * (usual + (r - usual) / 0.6 * (a == 0)))
        plays += a == 0
        usual += (r - usual) / plays if a == 0 else 0
    account = taught(agent, action, chances, reward).account
    np.testing.assert_allclose(account.total[0], np.sum(z), rtol=1e-4)
    np.testing.assert_allclose(account.squares[0], np.sum(np.square(z)), rtol=1e-4)
    assert int(account.plays) == plays
    bound = 0.9 / 0.2 - 1
    end = 3000 * bound * lower(np.array(z) / bound, -1.0, 0.05)[-1]
    assert end - 5 < np.sum(z) - _cost(np.sum(np.square(z)), bound) < end
    learn = jax.jit(agent.update)
    state = agent.init(KEY)
    for lesson, reward in (
        (jnp.int32(1), 1.0),
        (Action(jnp.int32(0), jnp.nan), 1.0),
        (Action(jnp.int32(1), 0.5), np.nan),
    ):
        state, _ = learn(state, X, lesson, jnp.float32(reward))
    assert not state.account.total[0] and not state.account.plays


def test_small_terms_count_after_many() -> None:
    total = jax.lax.fori_loop(
        0, 10_000, lambda _, pair: _plus(pair, jnp.float32(0.01)), (jnp.float32(1e8), jnp.zeros(()))
    )
    assert float(total[0]) == pytest.approx(1e8 + 100, abs=8)


def test_lessons_together_are_counted_as_one_by_one() -> None:
    agent = careful()
    actions = Action(jnp.array([0, 1, 0, 2]), jnp.array([0.9, 0.1, 0.9, 0.1]))
    rewards = jnp.array([1.0, 0.5, jnp.nan, 1.0])
    assert agent.update_batch is not None
    together, _ = agent.update_batch(agent.init(KEY), jnp.zeros((4, 2)), actions, rewards)
    one_by_one = taught(agent, *actions[:2], rewards).account
    np.testing.assert_allclose(together.account.total[0], one_by_one.total[0], rtol=1e-6)
    assert int(together.account.plays) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": 0.0}, "loss must"),
        ({"loss": 0.5, "share": 0.5}, "share must"),
        ({"level": 1.0}, "level must"),
        ({"control": 3}, "control=3 must be one of the 3 actions"),
        ({"late": -1}, "late must be at least 0"),
        ({"largest_reward": 0.0}, "largest_reward must"),
    ],
)
def test_bad_settings_are_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        agents.conservative(agents.linear(ARMS), **options)


def test_no_wrapper_changes_its_law() -> None:
    with pytest.raises(ValueError, match="whose probabilities may not change: wrap the inner agent"):
        agents.guarded(agents.conservative(agents.linear(ARMS)), floor=0.05)
