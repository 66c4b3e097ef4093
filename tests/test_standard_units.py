"""Agents of filters on raw tables: contexts and Box actions of any unit, as in standard units."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from seqdec import agents, models
from seqdec.agents.regression import units
from seqdec.agents.wrappers.standard import standard_spaces
from seqdec.core import Masked, Spaces

ROWS = np.random.default_rng(0).uniform(size=(40, 4)).astype(np.float32)
ROWS[:, 3] = 0.5  # a constant column
LOW = np.array([1e-6, 3e1, -2e9, 7], np.float32)
WIDE = np.array([1e-6, 4e1, 1e9, 0], np.float32)
RAW = LOW + WIDE * ROWS
ARMS = spaces.Discrete(3)
FREE = Spaces(spaces.Box(-np.inf, np.inf, (4,), np.float32), ARMS)
BOUNDED = Spaces(spaces.Box(LOW, LOW + WIDE), ARMS)


def make(where: Spaces = FREE, **options: Any) -> Any:
    return agents.hilofi(where, **{"model": models.MLP(3, (3,)), "rank": 2, **options})


@functools.cache
def program(bounded: bool = False) -> tuple[Any, Any, Any]:
    """An agent, and its compiled functions."""
    agent = make(BOUNDED if bounded else FREE)
    return agent, jax.jit(agent.act), jax.jit(agent.update)


@functools.cache
def played(raw: bool, bounded: bool = False) -> tuple[list[int], Any]:
    """Actions, and the last state; rewards depend on the second column in standard units."""
    agent, act, update = program(bounded)
    state, chosen = agent.init(jax.random.key(0)), []
    for step, (x, unit) in enumerate(zip(RAW if raw else ROWS, ROWS, strict=True)):
        action = act(jax.random.key(step), state, x).value
        state, _ = update(state, x, action, jnp.float32((action == 0) * unit[1]))
        chosen.append(int(action))
    return chosen, state


def test_a_raw_table_is_played_as_one_in_standard_units_whatever_its_bounds() -> None:
    (raw, state), (scaled, reference) = played(True), played(False)
    assert raw == scaled == played(True, bounded=True)[0]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.02), state.params, reference.params)
    seen, std = state.contexts["context"], RAW[:, :3].std(0)
    np.testing.assert_allclose(seen.mean, RAW.mean(0), rtol=1e-4)
    np.testing.assert_allclose((seen.squares / seen.seen)[:3], std**2, rtol=1e-3)
    flat = units.bounded(seen, jnp.asarray(RAW[0]))
    np.testing.assert_allclose(flat, [*np.clip((RAW[0] - RAW.mean(0))[:3] / std, -5, 5), 0], atol=1e-3)


def test_what_is_rejected_does_not_move_the_units() -> None:
    (_, act, update), (_, state) = program(), played(True)
    for x, reward in (([np.nan, 1, 1, 1], 1.0), ([1e16, 1, 1, 1], 1.0), (RAW[0], np.nan), (RAW[0], np.inf)):
        after, info = update(state, np.asarray(x, np.float32), jnp.int32(0), jnp.float32(reward))
        assert info.rejected
        jax.tree.map(np.testing.assert_array_equal, after.contexts, state.contexts)
    action = act(jax.random.key(0), state, np.array([np.inf, 1, 1, 1], np.float32))
    assert np.isnan(action.propensity)


def test_a_batch_is_measured_as_its_rows_one_by_one() -> None:
    agent, _, update = program()
    state = agent.init(jax.random.key(0))
    rewards, actions = jnp.ones(8).at[3].set(jnp.nan), jnp.arange(8) % 3
    batch, _ = jax.jit(agent.update_batch)(state, RAW[:8], actions, rewards)
    for x, action, reward in zip(RAW[:8], actions, rewards, strict=True):
        state, _ = update(state, x, action, reward)
    shown = (units.bounded(known.contexts["context"], jnp.asarray(RAW[:8])) for known in (batch, state))
    np.testing.assert_allclose(*shown, rtol=1e-3, atol=1e-5)


def test_images_ids_and_what_is_told_so_stay_as_they_are() -> None:
    image = Spaces(spaces.Box(0, 1, (4, 4), np.float32), ARMS)
    wide, number = Spaces(spaces.Box(0, 1, (257,), np.float32), ARMS), Spaces(spaces.Discrete(4), ARMS)
    ids = Spaces(spaces.Dict({"item": spaces.Box(0, 9, (3,), np.int32)}), ARMS)
    for where in (image, wide, number, ids):
        assert standard_spaces(where) == where
    for agent in (make(image), make(standardize=False)):
        assert not hasattr(jax.eval_shape(agent.init, jax.random.key(0)), "contexts")
    with pytest.raises(TypeError, match="standardize must be True or False; got 1"):
        make(image, standardize=1)


def test_numbers_of_candidates_are_measured_over_all_that_are_allowed() -> None:
    parts = {"features": spaces.Box(-np.inf, np.inf, (3, 2)), "item": spaces.Box(0, 4, (3,), np.int32)}
    agent = agents.hilofi(Spaces(spaces.Dict(parts), ARMS), rank=2)
    features = np.array([[1e6, 3], [3e6, 5], [np.float32(1e9), 0]], np.float32)
    seen = Masked({"features": features, "item": np.arange(3, dtype=np.int32)}, jnp.array([True, True, False]))
    state, info = jax.jit(agent.update)(agent.init(jax.random.key(0)), seen, jnp.int32(0), jnp.float32(1))
    assert not info.rejected and list(state.contexts) == ["features"]
    np.testing.assert_allclose(state.contexts["features"].mean, [2e6, 4])
    assert state.contexts["features"].seen == 2


def test_box_actions_are_seen_in_standard_units() -> None:
    """A price from 0 to 1,000 is chosen as one from 0 to 1 would be, and the record has the price."""
    chosen = []
    for width in (1000, 1):
        box = spaces.Box(0, width, (1,), np.float32)
        agent = agents.ekf(Spaces(spaces.Box(0, 1, (1,)), box), model=models.MLP(1, (3,)), num_candidates=8)
        update, act, state = jax.jit(agent.update), jax.jit(agent.act), agent.init(jax.random.key(0))
        prices = []
        for step in range(12):
            action = act(jax.random.key(step), state, np.ones(1, np.float32)).value
            assert box.contains(np.asarray(action))
            state, info = update(state, np.ones(1, np.float32), action, jnp.float32(np.sin(3 * action[0] / width)))
            assert not info.rejected
            prices.append(float(action[0]) / width)
        chosen.append(prices)
    np.testing.assert_allclose(chosen[0], chosen[1], atol=1e-3)


def test_the_first_batch_does_not_widen_a_column_far_from_zero() -> None:
    rows = jnp.asarray(1e5 + 8 * ROWS[:13, :1])
    seen = units.measured(units.unknown((1,)), rows, jnp.ones(13, bool))
    expected = np.asarray(rows, float)
    expected = (expected - expected.mean()) / expected.std()
    np.testing.assert_allclose(units.standard(seen, rows), expected, atol=0.02)


def test_a_derivative_where_nothing_varies_yet() -> None:
    """Backwards as forwards, in a number that is constant so far and in one that is not."""

    def seen(x: Any) -> Any:
        values = jnp.stack([jnp.array([1.0, 0.5]), x])
        return units.bounded(units.measured(units.unknown((2,)), values, jnp.array([True, True])), x).sum()

    backwards, forwards = jax.jit(lambda x: (jax.grad(seen)(x), jax.jacfwd(seen)(x)))(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(backwards, forwards, atol=1e-5)
