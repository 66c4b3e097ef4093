"""Rehearsal: what is stored, what is learned from it, and at what cost."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces

import seqdec
from seqdec import agents, filters, likelihoods, memory, models, testing
from seqdec.agents import Rehearsal
from tests.test_agents import ARMS, NUM_ARMS, NUM_FEATURES, Spaces, assert_same, contexts
from tests.toys import toy_env

NETWORK = models.network(models.MLP(NUM_ARMS, (4,)), jnp.zeros(NUM_FEATURES))
CONTEXT = contexts(1, seed=5)[0]


def make(rehearsal, where=ARMS, **options):
    """A small EKF, of which programs are compiled quickly."""
    outputs = int(where.action_space.n) if isinstance(where.action_space, spaces.Discrete) else 1
    options = {"model": models.MLP(outputs, (4,)), "policy": "epsilon_greedy", **options}
    return agents.ekf(where, rehearsal=rehearsal, standardize=False, **options)


@functools.cache
def toy(rehearsal, steps=30, **options):
    """key -> (state, what was seen) of some steps of the toy bandit, where every seventh reward is NaN."""
    env = toy_env(**options)
    agent = make(rehearsal, env)

    def step(carry, key):
        env_state, observation, state = carry
        action = agent.act(key, state, observation).value
        env_state, seen = env.step(key, env_state, action, env.params)
        feedback = seen.reward if seen.outcomes is None else seen.outcomes
        state, info = agent.update(state, observation, action, feedback)
        return (env_state, seen.observation, state), (observation, action, feedback, info.rejected)

    def run(key):
        start, agent_key, steps_key = jax.random.split(key, 3)
        carry = (*env.reset(start, env.params), agent.init(agent_key))
        (_, _, state), seen = jax.lax.scan(step, carry, jax.random.split(steps_key, steps))
        return state, seen

    return jax.jit(run)


KEY = jax.random.key(0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("full", [False, True], ids=["one reward", "every reward"])
def test_the_memory_holds_what_was_learned_and_nothing_that_was_rejected(full):
    rehearsal = Rehearsal(memory.last(100), optimizer=optax.sgd(0.01), batch_size=4)
    state, (observations, actions, feedback, rejected) = toy(rehearsal, full_information=full)(KEY)
    taken = ~np.asarray(rejected)
    assert taken.sum() == 26
    assert state.memory.seen == 26
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[:26], state.memory.rows)
    np.testing.assert_array_equal(rows.x, observations[taken])
    # Up to rounding: a compiled program may compute a reward once for each of its uses.
    if full:
        np.testing.assert_allclose(rows.y, feedback[taken], rtol=1e-6)
        assert rows.observed.all()
    else:
        np.testing.assert_array_equal(rows.observed, np.eye(NUM_ARMS, dtype=bool)[actions[taken]])
        np.testing.assert_allclose(rows.y[rows.observed], feedback[taken], rtol=1e-6)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(state))


@functools.cache
def plain():
    """A filter and its step."""
    flt = filters.ekf(NETWORK, likelihoods.gaussian(0.01), initial_std=0.3)
    step = jax.jit(lambda belief, x, y, index: flt.update(flt.predict(belief), x, y, index)[0])
    return flt, step


def rehearsed_once(rehearsal, flt=None):
    """The update, and the states before and after the first."""
    flt = plain()[0] if flt is None else flt
    learner = agents.rehearsing(filters.learner(flt, NETWORK.init), flt, rehearsal, ARMS)
    agent = agents.agent(learner, "greedy", ARMS, name="mine")
    before = jax.jit(agent.init)(jax.random.key(0))
    update = jax.jit(agent.update)
    after, info = update(before, CONTEXT, jnp.int32(2), jnp.float32(0.7))
    assert not info.rejected
    return update, before, after


@pytest.mark.sampled(2)
@pytest.mark.parametrize("joint", [True, False])
def test_replayed_rows_are_one_more_step_of_the_filter(joint):
    """The only row in the memory is the newest: learned once, and replayed twice."""
    flt, step = plain()
    _, before, after = rehearsed_once(
        Rehearsal(memory.last(1), updates=2), flt if joint else flt._replace(update_batch=None)
    )
    belief = step(before.belief, CONTEXT, jnp.float32(0.7), jnp.int32(2))
    if joint:
        pair = jnp.stack([CONTEXT, CONTEXT]), jnp.full(2, 0.7), jnp.full(2, 2)
        belief, _ = jax.jit(flt.update_batch)(flt.predict(belief), *pair)
    else:
        for _ in range(2):
            belief = step(belief, CONTEXT, jnp.float32(0.7), jnp.int32(2))
    assert_same(after.belief.params, belief.params, rtol=1e-4, atol=1e-5)


def test_the_optimizer_takes_one_step_on_the_mean_loss_and_a_rejected_update_none():
    rate = 0.1
    rehearsal = Rehearsal(memory.last(1), updates=0, optimizer=optax.sgd(rate, momentum=0.9), batch_size=3)
    update, before, state = rehearsed_once(rehearsal)
    belief = plain()[1](before.belief, CONTEXT, jnp.float32(0.7), jnp.int32(2))
    slope = jax.grad(lambda params: 0.5 * (0.7 - NETWORK.apply(params, CONTEXT)[2]) ** 2)(belief.params)
    wanted = jax.tree.map(lambda leaf, slope: leaf - rate * slope, belief.params, slope)
    assert_same(state.belief.params, wanted, rtol=1e-5, atol=1e-6)
    assert_same(state.belief.blocks, belief.blocks, rtol=1e-5, atol=1e-6)
    for action, reward in ((0, np.nan), (NUM_ARMS, 0.5), (0, np.inf)):
        after, info = update(state, CONTEXT, jnp.int32(action), jnp.float32(reward))
        assert info.rejected
        left = lambda state: (state.belief.params, state.memory, state.optimizer)  # noqa: E731
        assert_same(left(after), left(state), rtol=0)


CANDIDATES = spaces.Dict(
    kind=spaces.Box(0, 4, (NUM_ARMS,), np.int32), features=spaces.Box(-1, 1, (NUM_ARMS, 2), np.float32)
)
CASES = {
    "candidates": (Spaces(CANDIDATES, ARMS.action_space), {"model": None}),
    "a box of actions": (Spaces(ARMS.observation_space, spaces.Box(-1, 1, (2,), np.float32)), {"num_candidates": 8}),
    "a discrete observation": (Spaces(spaces.Discrete(3, start=2), ARMS.action_space), {}),
}


@pytest.mark.extended
@pytest.mark.parametrize("case", CASES)
def test_contract_of_agents_in_other_spaces(case):
    where, options = CASES[case]
    rehearsal = Rehearsal(memory.reservoir(4), optimizer=optax.adam(1e-3), batch_size=3)
    testing.check_agent(lambda where: make(rehearsal, where, **options), spaces=where)


@pytest.mark.extended
@pytest.mark.parametrize("seeds", [1, 2])
def test_no_step_copies_the_memory(seeds):
    """Temporary memory of a compiled chunk is far below that of the memory, which has 16 MB a seed."""
    rehearsal = Rehearsal(memory.reservoir(10**6), optimizer=optax.adam(1e-3))
    agent = make(rehearsal)

    def chunk(state):
        def step(state, key):
            action = agent.act(key, state, CONTEXT).value
            return agent.update(state, CONTEXT, action, jnp.float32(0.5))[0], None

        return jax.lax.scan(step, state, jax.random.split(jax.random.key(0), 10))[0]

    keys = jax.random.split(jax.random.key(0), seeds)
    state = jax.eval_shape(jax.vmap(agent.init), keys)
    program = jax.jit(jax.vmap(chunk), donate_argnums=0).lower(state).compile()
    assert program.memory_analysis().temp_size_in_bytes < 10**6


def test_a_compiled_agent_updates_in_place_where_it_may():
    agent = seqdec.compiled(make(Rehearsal(memory.reservoir(50))), in_place=True)
    state = agent.init(jax.random.key(0))
    for _ in range(3):
        before = state
        state, _ = agent.update(before, CONTEXT, jnp.int32(0), jnp.float32(0.5))
    assert before.memory.rows.x.is_deleted()
    assert state.memory.seen == 3


def test_wrong_settings_are_refused():
    for rehearsal, error, message in (
        (3, TypeError, "rehearsal must be a seqdec.agents.Rehearsal; got 3"),
        (Rehearsal(100), TypeError, r"rehearsal.memory must be a memory, such as .*; got 100"),
        (Rehearsal(memory.last(9), updates=-1), ValueError, "rehearsal.updates must be at least 0; got -1"),
        (Rehearsal(memory.last(9), batch_size=0), ValueError, "rehearsal.batch_size must be at least 1; got 0"),
        (Rehearsal(memory.last(9), optimizer="adam"), TypeError, "be an optax transformation or None; got 'adam'"),
    ):
        with pytest.raises(error, match=message):
            make(rehearsal)


def test_a_belief_without_a_free_mean_cannot_be_moved():
    flt = plain()[0]._replace(recenter=None)
    learner = filters.learner(flt, NETWORK.init)
    with pytest.raises(ValueError, match=r"no mean to optimize: leave out rehearsal.optimizer"):
        agents.rehearsing(learner, flt, Rehearsal(memory.last(9), optimizer=optax.sgd(0.1)), ARMS)
    assert agents.ekf(ARMS, rehearsal=Rehearsal(memory.last(9))).settings["rehearsal"]["memory"] == 9
