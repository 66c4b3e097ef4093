"""What every agent learns, by name, and what is particular to filters, networks and presets."""

import functools
import inspect
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from gymnasium import spaces

from seqdec import agents, filters, likelihoods, models, optim, policies
from seqdec.core import Spaces

NUM_ARMS, NUM_FEATURES = 3, 4
WEIGHTS = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [-1, -1, 1, 0]], np.float32)
STEPS, SEEDS = 500, 3


# Nearly all of the time here is compilation, of programs that run for milliseconds.


ARMS = Spaces(spaces.Box(-1, 1, (NUM_FEATURES,), np.float32), spaces.Discrete(NUM_ARMS))
SMALL: dict[str, dict[str, Any]] = {
    "adamw": {"learning_rate": 3e-3},
    "auto": {"learning_rate": 3e-3, "capacity": 500},
    "ekf": {},
    "ensemble": {"learning_rate": 1e-2, "capacity": 200, "members": 5},
    "gp": {"buffer": 30, "length_scale": 2.0},
    "hashed": {},
    "hilofi": {"rank": 6, "process_noise_hidden": 1e-4, "process_noise_last": 1e-4},
    "koala++": {"learning_rate": 0.3},
    "linear": {},
    "last_layer_laplace": {"learning_rate": 1e-3, "buffer": 10, "inner_steps": 5, "over": "stream"},
    "lofi": {"rank": 6},
    "lolofi": {"rank_hidden": 6, "rank_last": 8},
    "lrkf": {"rank": 6},
    "muon": {"learning_rate": 3e-3, "inner_steps": 5},
    "neural_linear": {"learning_rate": 1e-2, "capacity": 200, "every": 20, "noise_variance": 0.1},
    "on_vbll": {"learning_rate": 1e-2, "buffer": 10, "inner_steps": 5, "prior_std": 0.1},
    "pooled": {},
    "popularity": {},
    "random": {},
    "replay_adamw": {"learning_rate": 1e-2, "capacity": 200},
    "replay_koala++": {"learning_rate": 0.3, "capacity": 200},
    "replay_muon": {"learning_rate": 1e-2, "capacity": 200},
    "replay_sgd": {"learning_rate": 0.1, "capacity": 200},
    "subspace": {"rank": 40},
    "vbll": {"learning_rate": 1e-2, "capacity": 200, "inner_steps": 5, "prior_std": 0.3},
}
IS = {name: agents.capabilities(name) for name in sorted(SMALL)}
"""What each of them is, which decides what is asked of it."""
FILTERS = tuple(name for name, own in IS.items() if own.kind == "filter" and hasattr(filters, name))
NETWORKS = [name for name, own in IS.items() if own.model]
OF_CONTEXTS = [name for name, own in IS.items() if "contexts" in own.spaces]
LEARNERS = [name for name in OF_CONTEXTS if IS[name].kind != "baseline"]


def make(name, where=ARMS, **options):
    """A small agent: eight hidden units and ranks to match."""
    outputs = int(where.action_space.n) if isinstance(where.action_space, spaces.Discrete) else 1
    model = {"model": models.MLP(outputs, (8,))} if name in NETWORKS else {}
    return agents.make(name, where, **{**model, **SMALL[name], **options})


def contexts(steps, seed=0):
    return jnp.asarray(np.random.default_rng(seed).uniform(-1, 1, (steps, NUM_FEATURES)), jnp.float32)


CONTEXTS = contexts(STEPS)
CONTEXT = contexts(1, seed=5)[0]


def assert_same(one, other, **tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


def test_every_agent_is_under_test():
    assert sorted(SMALL) == list(agents.names())


TYPICAL = ("adamw", "auto", "hilofi", "linear", "vbll")
"""One for each way of learning: the others have closed forms of their own below and in their files."""


@pytest.mark.parametrize(
    "name", [name if name in TYPICAL else pytest.param(name, marks=pytest.mark.extended) for name in LEARNERS]
)
def test_learns_a_small_bandit_from_rewards_alone(name):
    agent = make(name)

    def step(state, at):
        key, observation = at
        action = agent.act(key, state, observation)
        state, info = agent.update(state, observation, action.value, (WEIGHTS @ observation)[action.value])
        return state, (action.value, info.rejected)

    def live(key):
        start, *keys = jax.random.split(key, STEPS + 1)
        return jax.lax.scan(step, agent.init(start), (jnp.stack(keys), CONTEXTS))[1]

    played, rejected = jax.jit(jax.vmap(live))(jax.random.split(jax.random.key(0), SEEDS))
    rewards, late = np.asarray(CONTEXTS @ WEIGHTS.T), slice(STEPS // 2, None)
    got = rewards[np.arange(STEPS), played][:, late].mean()
    best, chance = rewards.max(1)[late].mean(), rewards[late].mean()
    assert got > chance + 0.6 * (best - chance)
    assert not np.any(rejected)


@pytest.mark.parametrize("name", ["auto", "linear"])
def test_learns_every_arm_from_full_information(name):
    agent = make(name)

    def step(state, x):
        state, info = agent.update(state, x, jnp.int32(0), WEIGHTS @ x)
        return state, info.innovation

    errors = jax.jit(lambda key: jax.lax.scan(step, agent.init(key), CONTEXTS[:250])[1])(jax.random.key(3))
    squares = np.mean(np.square(errors), 1)
    assert errors.shape == (250, NUM_ARMS) and squares[-50:].mean() < 0.3 * squares[:20].mean()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", OF_CONTEXTS)
def test_settings_name_every_number_the_agent_was_built_with(name):
    agent = make(name)
    assert agent.name == name
    assert set(SMALL[name].values()) <= set(agent.settings.values())


def test_a_discrete_observation_is_seen_as_one_of_its_values():
    agent = make("linear", Spaces(spaces.Discrete(4, start=2), spaces.Discrete(NUM_ARMS)))
    state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
    for step in range(80):
        state, info = update(state, jnp.int32(2 + step % 4), jnp.int32(0), jnp.float32(step % 4 == 2))
        assert step < 60 or abs(info.innovation[0]) < 0.2


def test_box_actions_get_better():
    """The reward is largest at the context, -1 or 1, in every coordinate."""
    where, steps = Spaces(spaces.Box(-1, 1, (1,), np.float32), spaces.Box(-2, 2, (2,), np.float32)), 400
    agent = make("lrkf", where, model=models.MLP(1, (24,)), num_candidates=64)
    sides = jnp.asarray(np.random.default_rng(0).choice([-1.0, 1.0], (steps, 1)), jnp.float32)

    def step(state, at):
        key, side = at
        action = agent.act(key, state, side).value
        reward = 1 - jnp.mean((action - side) ** 2)
        return agent.update(state, side, action, reward)[0], reward

    at = jax.random.split(jax.random.key(1), steps), sides
    rewards = jax.jit(lambda key: jax.lax.scan(step, agent.init(key), at)[1])(jax.random.key(2))
    chance = 1 - (4 / 3 + 1)  # of a uniform point of [-2, 2]
    assert rewards[200:].mean() > chance + 0.5 * (1 - chance)


# Models and spaces


def test_the_default_network_fits_the_observation():
    for shape, size in (
        ((28, 28), 43_902),
        ((8, 8), 65 * 50 + 51 * 50 + 51 * 10),
        ((64,), 65 * 50 + 51 * 50 + 51 * 10),
    ):
        agent = agents.make("hilofi", Spaces(spaces.Box(0, 1, shape, np.float32), spaces.Discrete(10)))
        params = jax.eval_shape(agent.init, jax.random.key(0)).params
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == size


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [name for name in OF_CONTEXTS if name != "ekf"])
def test_default_settings_work(name):
    context = spaces.Box(-1, 1, (2,), np.float32)
    actions = {"contexts": spaces.Discrete(1), "points": spaces.Box(0, 1, (3,), np.float32)}
    for kind in actions.keys() & IS[name].spaces:
        agent = agents.make(name, Spaces(context, actions[kind]))
        state = jax.eval_shape(agent.init, jax.random.key(0))
        value = jax.eval_shape(agent.act, jax.random.key(0), state, jnp.zeros(2)).value
        assert value.shape == (actions[kind].shape or ())


class Custom(nn.Module):
    """A flax module of the user's own."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(NUM_ARMS, name="head")(jnp.tanh(nn.Dense(6, name="body")(x)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(
    "model", [Custom(), models.network(Custom(), jnp.zeros(NUM_FEATURES))], ids=["flax", "Network"]
)
def test_own_networks_are_taken(name, model):
    agent = make(name, model=model)
    params = jax.eval_shape(agent.init, jax.random.key(0)).params
    if name == "auto":  # one vector
        assert params.size == (NUM_FEATURES + 1) * 6 + (6 + 1) * NUM_ARMS
    else:
        assert set(getattr(params, "network", params)) == {"body", "head"}


POINTS = Spaces(ARMS.observation_space, spaces.Box(0, 1, (1,)))
MISFITS: list[tuple[Spaces, dict[str, Any], type, str]] = [
    (POINTS, {"num_candidates": 0}, ValueError, "num_candidates"),
    (ARMS, {"model": models.MLP(5, (8,))}, ValueError, r"has shape \(5,\); for Discrete\(3\) it must be \(3,\)"),
    (ARMS, {"model": 3}, TypeError, "model must be a module of flax"),
    (ARMS, {"policy": "thomson"}, ValueError, "did you mean 'thompson'"),
]


@pytest.mark.parametrize("name", TYPICAL)
def test_what_does_not_fit_is_refused(name):
    for where, options, error, message in MISFITS:
        if "model" not in options or IS[name].model:
            with pytest.raises(error, match=message):
                agents.make(name, where, **options)


# Filters


def test_policies_by_name_drive_filters():
    for policy in policies.names():
        agent = make("hilofi", policy=policy)
        assert agent.settings["policy"] == policy
        state = jax.eval_shape(agent.init, jax.random.key(0))
        assert jax.eval_shape(agent.act, jax.random.key(0), state, CONTEXT).propensity.shape == ()


@pytest.mark.parametrize("name", FILTERS)
def test_the_linearization_is_shared_just_where_acting_linearizes_too(name):
    told, factory = {}, getattr(filters, name)

    @functools.wraps(factory)
    def spy(*arguments, **options):
        told.update(options)
        return factory(*arguments, **options)

    build = agents.from_filter(spy, "greedy", **SMALL[name])
    for policy, average, shared in (("ucb", 0.0, True), ("ucb", 0.5, False), ("thompson", 0.0, False)):
        build(
            ARMS, model=models.MLP(NUM_ARMS, (8,)), policy=policy, average=average, numerics=filters.Numerics(buffer=20)
        )
        assert told["numerics"].share_linearization is shared
        assert told["numerics"].buffer == 20


@pytest.mark.parametrize("name", FILTERS)
def test_a_filters_agent_has_the_keywords_of_the_filter_with_defaults_of_its_own(name):
    signature, own = (inspect.signature(getattr(package, name)).parameters for package in (agents, filters))
    assert set(own) - {"network", "likelihood"} < set(signature)
    agent = make(name)
    assert agent.update_batch is not None and agent.act_batch is not None
    for keyword, parameter in signature.items():
        if keyword in agent.settings and keyword not in SMALL[name]:
            assert agent.settings[keyword] == parameter.default


def test_an_unknown_keyword_gets_a_suggestion():
    with pytest.raises(TypeError, match=r"unknown keyword of agents\.lolofi 'rank': did you mean 'rank_hidden'"):
        make("lolofi", rank=1)


def test_a_policy_without_an_estimate_gives_no_propensity():
    agent = make("linear", policy=policies.predictive_sampling(propensity_samples=0))
    assert np.isnan(agent.act(jax.random.key(0), agent.init(jax.random.key(0)), CONTEXT).propensity)


def test_an_update_is_the_filters_prediction_and_then_its_update():
    network = models.network(Custom(), jnp.zeros(NUM_FEATURES))
    flt = filters.lrkf(network, likelihoods.gaussian(0.1), rank=4, process_noise=1e-3)
    agent = agents.agent(filters.learner(flt, network.init), "greedy", ARMS, name="mine", settings={"rank": 4})
    state, index = jax.jit(agent.init)(jax.random.key(0)), jnp.int32(2)
    update = jax.jit(agent.update)
    one = jax.jit(lambda belief: flt.update(flt.predict(belief), CONTEXT, jnp.float32(0.5), index))
    assert_same(update(state, CONTEXT, index, jnp.float32(0.5)), one(state), rtol=1e-5, atol=1e-6)
    y = jnp.array([0.1, 0.2, 0.3])
    whole = jax.jit(lambda belief: flt.update(flt.predict(belief), CONTEXT, y))
    assert_same(update(state, CONTEXT, index, y), whole(state), rtol=1e-5, atol=1e-6)
    assert jnp.argmax(network.apply(state.params, CONTEXT)) == agent.act(jax.random.key(1), state, CONTEXT).value


def test_a_posterior_speaks_of_expected_rewards_not_of_the_networks_raw_output():
    """With a Bernoulli likelihood every answer's center is a probability."""
    network = models.network(Custom(), jnp.zeros(NUM_FEATURES))
    flt = filters.ekf(network, likelihoods.bernoulli(), initial_std=2.0)
    key = jax.random.key(1)

    @jax.jit
    def ask(belief):
        question = filters.posterior(flt, belief)
        return question.mean(CONTEXT), question.joint(CONTEXT).mean, question.draw(key)(CONTEXT)

    belief = jax.jit(lambda key: flt.init(key, network.init(key)))(jax.random.key(0))
    expected = jax.nn.sigmoid(network.apply(belief.params, CONTEXT))
    drawn = jax.nn.sigmoid(network.apply(flt.sample(key, belief), CONTEXT))
    assert_same(ask(belief), (expected, expected, drawn), rtol=1e-5)


# Networks with an optimizer


PRESETS = {"adamw": optax.adamw, "muon": optax.contrib.muon, "koala++": optim.koala_plus_plus, "sgd": optax.sgd}


@pytest.mark.parametrize("name", [name for name, own in IS.items() if own.kind == "network"])
def test_presets_have_their_optimizer(name):
    state = jax.eval_shape(make(name).init, jax.random.key(0))
    own = jax.eval_shape(PRESETS[name.removeprefix("replay_")](0.1).init, state.params)
    assert jax.tree.structure(state.optimizer) == jax.tree.structure(own)


def test_an_update_is_gradient_steps_on_half_the_squared_error():
    network = models.network(Custom(), jnp.zeros(NUM_FEATURES))
    agent = make("adamw", model=network, learning_rate=0.01, inner_steps=3)
    state, x = agent.init(jax.random.key(0)), contexts(1)[0]

    def loss(params):
        return 0.5 * (0.7 - network.apply(params, x)[1]) ** 2

    optimizer, params = optax.adamw(0.01), state.params
    memory = optimizer.init(params)
    for _ in range(3):
        updates, memory = optimizer.update(jax.grad(loss)(params), memory, params)
        params = optax.apply_updates(params, updates)
    fresh, info = jax.jit(agent.update)(state, x, jnp.int32(1), jnp.float32(0.7))
    assert_same(fresh.params, params, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(info.loss, loss(state.params), rtol=1e-5)


def test_optimizers_that_ask_for_the_loss_get_it():
    seen = optax.GradientTransformationExtraArgs(
        lambda params: jnp.zeros(()),
        lambda updates, state, params=None, *, value, **extra: (jax.tree.map(lambda g: -0.1 * g, updates), value),
    )
    agent = agents.neural(ARMS, optimizer=seen, model=Custom())
    state = agent.init(jax.random.key(0))
    fresh, info = agent.update(state, contexts(1)[0], jnp.int32(0), 0.5)
    np.testing.assert_allclose(fresh.optimizer, info.loss, rtol=1e-6)


def test_a_network_without_uncertainty_refuses_a_policy_that_needs_it():
    with pytest.raises(ValueError, match="has no uncertainty, but the policy needs 'joint' of it"):
        agents.neural(ARMS, optimizer=optax.sgd(0.1), policy=policies.ucb(1.0))
    with pytest.raises(ValueError, match=r"inner_steps must be .*; got 0"):
        agents.neural(ARMS, optimizer=optax.sgd(0.1), inner_steps=0)
