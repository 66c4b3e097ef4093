"""Agents of filters on raw tables: contexts and Box actions of any unit, as in standard units."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec import agents, models
from seqdec.agents.regression import units
from seqdec.agents.wrappers.standard import standard_spaces
from seqdec.core import Masked

FILTERS = [name for name in agents.names() if agents.capabilities(name).kind == "filter"]
ROWS = np.random.default_rng(0).uniform(size=(40, 4)).astype(np.float32)
ROWS[:, 3] = 0.5  # a constant column
LOW = np.array([1e-6, 3e1, -2e9, 7], np.float32)
WIDE = np.array([1e-6, 4e1, 1e9, 0], np.float32)
RAW = LOW + WIDE * ROWS
SMALL: Any = {"subspace": {"rank": 3}, "lolofi": {"rank_hidden": 2, "rank_last": 2}, "ekf": {}}
"""Ranks that fit a model without hidden layers, or a small one."""


def site(low: Any = -np.inf, high: Any = np.inf, shape: tuple[int, ...] = (4,)) -> Any:
    box = spaces.Box(np.broadcast_to(low, shape).astype(np.float32), np.broadcast_to(high, shape).astype(np.float32))
    return SimpleNamespace(observation_space=box, action_space=spaces.Discrete(3))


def make(name: str, where: Any, **options: Any) -> Any:
    ranks = SMALL.get(name, {"rank": 2})
    return agents.make(name, where, **{"model": models.MLP(3, (3,)), **ranks, **options})


def played(agent: Any, *streams: np.ndarray) -> list[tuple[list[int], Any]]:
    """On each stream, whose reward depends on the second column in standard units, the actions and the last state."""
    act, update, results = jax.jit(agent.act), jax.jit(agent.update), []
    for rows in streams:
        state, chosen = agent.init(jax.random.key(0)), []
        for step, (x, unit) in enumerate(zip(rows, ROWS, strict=True)):
            action = act(jax.random.key(step), state, x).value
            state, _ = update(state, x, action, jnp.float32((action == 0) * unit[1]))
            chosen.append(int(action))
        results.append((chosen, state))
    return results


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", FILTERS)
def test_a_raw_table_is_played_as_one_in_standard_units(name: str) -> None:
    (scaled, reference), (raw, state) = played(make(name, site()), ROWS, RAW)
    assert raw == scaled
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=0.02), state.params, reference.params)
    np.testing.assert_allclose(state.contexts["context"].mean, RAW.mean(0), rtol=1e-4)


def test_bounds_do_not_matter_and_it_can_be_left_out() -> None:
    ((free, _),) = played(make("ekf", site()), RAW)
    assert played(make("ekf", site(LOW, LOW + WIDE)), RAW)[0][0] == free
    as_they_are, state = played(make("ekf", site(), standardize=False), RAW)[0]
    assert not hasattr(state, "contexts") and as_they_are != free


def test_the_model_sees_standard_units_and_the_filter_what_it_is_given() -> None:
    agent = make("ekf", site(), model=models.MLP(3, ()), process_noise=0.0)
    ((_, state),) = played(agent, RAW)
    std = RAW[:, :3].std(0)
    seen = {name: unit.squares / unit.seen for name, unit in state.contexts.items()}
    np.testing.assert_allclose(seen["context"][:3], std**2, rtol=1e-3)
    flat = units.bounded(state.contexts["context"], jnp.asarray(RAW[0]))
    np.testing.assert_allclose(flat, [*np.clip((RAW[0] - RAW.mean(0))[:3] / std, -5, 5), 0], atol=1e-3)
    bare = seqdec.filters.ekf(models.network(models.MLP(3, ()), jnp.zeros(4)), seqdec.likelihoods.gaussian(0.1))
    belief = bare.init(jax.random.key(0), models.network(models.MLP(3, ()), jnp.zeros(4)).init(jax.random.key(0)))
    mean = bare.moments(belief, jnp.asarray(RAW[0])).mean
    np.testing.assert_array_equal(mean, bare.response(belief.params, jnp.asarray(RAW[0])))


def test_images_and_ids_stay_as_they_are() -> None:
    image, wide = site(0, 1, (4, 4)), site(0, 1, (257,))
    number: Any = SimpleNamespace(observation_space=spaces.Discrete(4), action_space=spaces.Discrete(3))
    ids = spaces.Dict({"item": spaces.Box(0, 9, (3,), np.int32)})
    listed: Any = SimpleNamespace(observation_space=ids, action_space=spaces.Discrete(3))
    for where in (image, wide, number, listed):
        assert standard_spaces(where) == (where.observation_space, where.action_space)
    image = site(0, 1, (4, 4))
    plain, other = (make("ekf", image, standardize=flag) for flag in (False, True))
    x = np.full((4, 4), 7, np.float32)
    states = [jax.jit(agent.init)(jax.random.key(0)) for agent in (plain, other)]
    jax.tree.map(np.testing.assert_array_equal, *states)
    after = [agent.update(state, x, 0, 1.0)[0] for agent, state in zip((plain, other), states, strict=True)]
    jax.tree.map(np.testing.assert_array_equal, *after)
    with pytest.raises(TypeError, match="standardize must be True or False; got 1"):
        make("ekf", image, standardize=1)


def test_numbers_of_candidates_are_measured_over_all_that_are_allowed() -> None:
    parts = {"features": spaces.Box(-np.inf, np.inf, (3, 2)), "item": spaces.Box(0, 4, (3,), np.int32)}
    where: Any = SimpleNamespace(observation_space=spaces.Dict(parts), action_space=spaces.Discrete(3))
    agent = agents.hilofi(where, rank=2)
    features = np.array([[1e6, 3], [3e6, 5], [np.float32(1e9), 0]], np.float32)
    seen = Masked({"features": features, "item": np.arange(3, dtype=np.int32)}, jnp.array([True, True, False]))
    state, info = jax.jit(agent.update)(agent.init(jax.random.key(0)), seen, jnp.int32(0), jnp.float32(1))
    assert not info.rejected and list(state.contexts) == ["features"]
    np.testing.assert_allclose(state.contexts["features"].mean, [2e6, 4])
    assert state.contexts["features"].seen == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_box_actions_are_seen_in_standard_units(dtype: Any) -> None:
    """A price from 0 to 1,000 is chosen as one from 0 to 1 would be, and the record has the price."""
    chosen = []
    for width in (1000, 1) if dtype is np.float32 else (1000, 1000):
        box = spaces.Box(0, width, (1,), dtype)
        where: Any = SimpleNamespace(observation_space=spaces.Box(0, 1, (1,)), action_space=box)
        agent = agents.ekf(where, model=models.MLP(1, (3,)), num_candidates=8)
        update, act, state = jax.jit(agent.update), jax.jit(agent.act), agent.init(jax.random.key(0))
        prices = []
        for step in range(12):
            action = act(jax.random.key(step), state, np.ones(1, np.float32)).value
            assert action.dtype == dtype and box.contains(np.asarray(action))
            state, info = update(state, np.ones(1, np.float32), action, jnp.float32(np.sin(3 * action[0] / width)))
            assert not info.rejected
            prices.append(float(action[0]) / width)
        chosen.append(prices)
    np.testing.assert_allclose(chosen[0], chosen[1], atol=1e-3)


def test_what_is_rejected_does_not_move_the_units() -> None:
    agent = make("lrkf", site())
    state, update = played(agent, RAW)[0][1], jax.jit(agent.update)
    for x, reward in (([np.nan, 1, 1, 1], 1.0), ([1e16, 1, 1, 1], 1.0), (RAW[0], np.nan), (RAW[0], np.inf)):
        after, info = update(state, np.asarray(x, np.float32), jnp.int32(0), jnp.float32(reward))
        assert info.rejected
        jax.tree.map(np.testing.assert_array_equal, after.contexts, state.contexts)
    action = jax.jit(agent.act)(jax.random.key(0), state, np.array([np.inf, 1, 1, 1], np.float32))
    assert np.isnan(action.propensity)


@pytest.mark.extended
def test_a_batch_is_measured_as_its_rows_one_by_one() -> None:
    agent = make("hilofi", site())
    state = agent.init(jax.random.key(0))
    rewards = jnp.ones(8).at[3].set(jnp.nan)
    actions = jnp.arange(8) % 3
    batch, _ = jax.jit(agent.update_batch)(state, RAW[:8], actions, rewards)
    update = jax.jit(agent.update)
    for x, action, reward in zip(RAW[:8], actions, rewards, strict=True):
        state, _ = update(state, x, action, reward)
    shown = (units.bounded(known.contexts["context"], jnp.asarray(RAW[:8])) for known in (batch, state))
    np.testing.assert_allclose(*shown, rtol=1e-3, atol=1e-5)
    keys = jax.random.split(jax.random.key(1), 8)
    each = jax.vmap(agent.act, (0, None, 0))(keys, batch, RAW[:8])
    np.testing.assert_array_equal(agent.act_batch(keys, batch, RAW[:8]).value, each.value)


def test_the_first_batch_does_not_widen_a_column_far_from_zero() -> None:
    rows = jnp.asarray(1e5 + 8 * ROWS[:13, :1])
    seen = units.measured(units.unknown((1,)), rows, jnp.ones(13, bool))
    expected = np.asarray(rows, float)
    expected = (expected - expected.mean()) / expected.std()
    np.testing.assert_allclose(units.standard(seen, rows), expected, atol=0.02)


@pytest.mark.extended
def test_states_are_saved_and_a_service_goes_on_from_them(tmp_path: Any) -> None:
    agent, kept = make("hilofi", site()), tmp_path / "agent.safetensors"
    ((_, state),) = played(agent, RAW)
    seqdec.save(kept, state, agent)
    jax.tree.map(np.testing.assert_array_equal, seqdec.load(kept, agent), state)
    folder = tmp_path / "service"
    with seqdec.OnlineAgent(lambda _: agent, site(), seed=0, folder=folder) as service:
        for x in RAW[:5]:
            service.learn(service.decide(x).token, 1.0)
        before = service.state
    with seqdec.OnlineAgent(lambda _: agent, site(), seed=0, folder=folder) as service:
        jax.tree.map(np.testing.assert_array_equal, service.state, before)
        assert service.state.contexts["context"].seen == 5


def test_a_derivative_where_nothing_varies_yet() -> None:
    """Backwards as forwards, in a number that is constant so far and in one that is not."""

    def seen(x: Any) -> Any:
        values = jnp.stack([jnp.array([1.0, 0.5]), x])
        return units.bounded(units.measured(units.unknown((2,)), values, jnp.array([True, True])), x).sum()

    backwards, forwards = jax.jit(lambda x: (jax.grad(seen)(x), jax.jacfwd(seen)(x)))(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(backwards, forwards, atol=1e-5)
