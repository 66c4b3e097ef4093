"""What every agent learns, by name, and what is particular to filters, networks and presets."""

import functools
import inspect
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from gymnasium import spaces

from seqdec import agents, filters, likelihoods, models, policies

NUM_ARMS, NUM_FEATURES = 3, 4
WEIGHTS = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [-1, -1, 1, 0]], np.float32)
STEPS, SEEDS = 500, 3


# Nearly all of the time here is compilation, of programs that run for milliseconds.


class Spaces(NamedTuple):
    """What an agent is told of its environment."""

    observation_space: gymnasium.Space
    action_space: gymnasium.Space


ARMS = Spaces(spaces.Box(-1, 1, (NUM_FEATURES,), np.float32), spaces.Discrete(NUM_ARMS))
SMALL: dict[str, dict[str, Any]] = {
    "adamw": {"learning_rate": 3e-3},
    "auto": {"learning_rate": 3e-3, "capacity": 500},
    "ekf": {},
    "ensemble": {"learning_rate": 1e-2, "capacity": 200, "members": 5},
    "gp": {"buffer": 30, "length_scale": 2.0},
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


def learned(state):
    """What rejected feedback leaves alone: the parameters of a network; without one, all."""
    return getattr(state, "params", state)


def contexts(steps, seed=0):
    return jnp.asarray(np.random.default_rng(seed).uniform(-1, 1, (steps, NUM_FEATURES)), jnp.float32)


CONTEXTS = contexts(STEPS)
CONTEXT = contexts(1, seed=5)[0]


def live(agent, key, observations):
    """Act and learn once per observation on rewards linear in the context: -> state, (actions, infos)."""
    start, key = jax.random.split(key)

    def step(state, at):
        index, observation = at
        action = agent.act(jax.random.fold_in(key, index), state, observation)
        fresh, info = agent.update(state, observation, action.value, (WEIGHTS @ observation)[action.value])
        return fresh, (learned(state), action, info)

    return jax.lax.scan(step, agent.init(start), (jnp.arange(len(observations)), observations))


class Lab:
    """An agent, its compiled programs, and its life with several seeds at once."""

    def __init__(self, name):
        self.agent = make(name)
        self.init, self.act, self.update = (jax.jit(f) for f in (self.agent.init, self.agent.act, self.agent.update))
        self.keys = jax.random.split(jax.random.key(0), SEEDS)
        self.states, (self.params, self.action, self.info) = jax.jit(
            jax.vmap(lambda key: live(self.agent, key, CONTEXTS))
        )(self.keys)
        self.state = jax.tree.map(lambda leaf: leaf[0], self.states)


@functools.cache
def lab_of(name):
    return Lab(name)


@pytest.fixture
def lab(name):
    return lab_of(name)


every_agent = pytest.mark.parametrize("name", OF_CONTEXTS)
every_learner = pytest.mark.parametrize("name", LEARNERS)


def assert_same(one, other, **tolerance):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, **tolerance)


def test_every_agent_is_under_test():
    assert sorted(SMALL) == list(agents.names())


@pytest.mark.sampled(32)
@every_learner
def test_a_scan_mapped_over_seeds_is_the_loop_of_one_seed(lab):
    start, key = jax.random.split(lab.keys[1])
    state = lab.init(start)
    for index, observation in enumerate(CONTEXTS[:20]):
        assert_same(learned(state), jax.tree.map(lambda leaf, i=index: leaf[1, i], lab.params), rtol=1e-3, atol=1e-4)
        action = lab.act(jax.random.fold_in(key, index), state, observation)
        assert action.value == lab.action.value[1, index]
        np.testing.assert_allclose(action.propensity, lab.action.propensity[1, index], atol=0.03)
        state, info = lab.update(state, observation, action.value, (WEIGHTS @ observation)[action.value])
        np.testing.assert_allclose(info.innovation, lab.info.innovation[1, index], rtol=1e-3, atol=1e-4)
    # One program each: neither dtypes nor weak types of the state change from step to step.
    assert (lab.act._cache_size(), lab.update._cache_size()) == (1, 1)


@pytest.mark.parametrize("name", FILTERS)
def test_filters_decide_and_learn_many_at_once(name):
    agent = make(name)
    assert agent.update_batch is not None and agent.act_batch is not None


@every_learner
def test_learns_a_small_bandit_from_rewards_alone(lab):
    rewards, late = np.asarray(CONTEXTS @ WEIGHTS.T), slice(STEPS // 2, None)
    got = rewards[np.arange(STEPS), lab.action.value][:, late].mean()
    best, chance = rewards.max(1)[late].mean(), rewards[late].mean()
    assert got > chance + 0.6 * (best - chance)
    assert not np.any(lab.info.rejected)


@pytest.mark.sampled(6)
@every_learner
def test_learns_every_arm_from_full_information(lab):
    state, errors = lab.init(jax.random.key(3)), []
    for observation in CONTEXTS[:250]:
        state, info = lab.update(state, observation, jnp.int32(0), WEIGHTS @ observation)
        assert info.innovation.shape == (NUM_ARMS,)
        errors.append(np.mean(np.square(info.innovation)))
    assert np.mean(errors[-50:]) < 0.3 * np.mean(errors[:20])


BAD_UPDATES = {
    "a context that is not a number": lambda x: (x.at[1].set(jnp.nan), jnp.int32(0), jnp.float32(0.5)),
    "an infinite context": lambda x: (x.at[1].set(jnp.inf), jnp.int32(0), jnp.float32(0.5)),
    "a reward that is not a number": lambda x: (x, jnp.int32(0), jnp.float32(jnp.nan)),
    "an infinite reward": lambda x: (x, jnp.int32(0), jnp.float32(-jnp.inf)),
    "an action beyond the last": lambda x: (x, jnp.int32(NUM_ARMS), jnp.float32(0.5)),
    "an action before the first": lambda x: (x, jnp.int32(-1), jnp.float32(0.5)),
}


def assert_rejects_and_learns(update, state, same_of):
    for what, bad in BAD_UPDATES.items():
        fresh, info = update(state, *bad(CONTEXT))
        assert info.rejected, what
        assert_same(same_of(fresh), same_of(state), rtol=0)
    fresh, info = update(state, CONTEXT, jnp.int32(0), jnp.float32(0.5))
    assert not info.rejected
    assert any(np.any(a != b) for a, b in zip(*map(jax.tree.leaves, (learned(fresh), learned(state))), strict=True))


@pytest.mark.parametrize("name", ["adamw", "hilofi"])
def test_without_process_noise_a_rejection_leaves_the_state_as_it_was(name):
    still = {"process_noise_hidden": 0.0, "process_noise_last": 0.0} if name in FILTERS else {}
    agent = make(name, **still)
    assert_rejects_and_learns(jax.jit(agent.update), jax.jit(agent.init)(jax.random.key(0)), lambda state: state)


@pytest.mark.sampled(2)
@every_agent
def test_settings_name_every_number_the_agent_was_built_with(name):
    agent = make(name)
    assert agent.name == name
    for key, value in SMALL[name].items():
        assert value in agent.settings.values(), f"{key} is missing from {dict(agent.settings)}"


@pytest.mark.parametrize("name", ["adamw", "hilofi"])
def test_a_discrete_observation_is_seen_as_one_of_its_values(name):
    agent = make(name, Spaces(spaces.Discrete(4, start=2), spaces.Discrete(NUM_ARMS)))
    state, update = jax.jit(agent.init)(jax.random.key(0)), jax.jit(agent.update)
    for step in range(400):
        value = 2 + step % 4
        state, info = update(state, jnp.int32(value), jnp.int32(0), jnp.float32(value == 4))
        assert step < 380 or abs(info.innovation[0]) < 0.2


# Box actions


def play_box(name, steps=600):
    """Learn where in a box the reward is largest: at the context, -1 or 1, in every coordinate."""
    where = Spaces(spaces.Box(-1, 1, (1,), np.float32), spaces.Box(-2, 2, (2,), np.float32))
    agent = agents.make(name, where, model=models.MLP(1, (24,)), num_candidates=64, **SMALL[name])
    sides = jnp.asarray(np.random.default_rng(0).choice([-1.0, 1.0], (steps, 1)), jnp.float32)

    def step(state, at):
        index, side = at
        action = agent.act(jax.random.fold_in(jax.random.key(1), index), state, side)
        reward = 1 - jnp.mean((action.value - side) ** 2)
        state, info = agent.update(state, side, action.value, reward)
        return state, (action.value, reward, info.rejected)

    _, played = jax.jit(lambda key: jax.lax.scan(step, agent.init(key), (jnp.arange(steps), sides)))(jax.random.key(2))
    return [np.asarray(part) for part in played]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["adamw", "hilofi", "lrkf"])
def test_box_actions_stay_in_the_box_and_get_better(name):
    actions, rewards, rejected = play_box(name)
    assert actions.shape == (600, 2)
    assert np.all((actions >= -2) & (actions <= 2))
    assert not rejected.any()
    chance = 1 - (4 / 3 + 1)  # of a uniform point of [-2, 2]
    assert rewards[300:].mean() > chance + 0.5 * (1 - chance)


# Models and spaces


def test_the_default_network_fits_the_observation():
    image = agents.make("hilofi", Spaces(spaces.Box(0, 1, (28, 28), np.float32), spaces.Discrete(10)))
    params = jax.eval_shape(image.init, jax.random.key(0)).params
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 43_902
    for shape in ((8, 8), (64,)):
        flat = agents.make("hilofi", Spaces(spaces.Box(0, 1, shape, np.float32), spaces.Discrete(10)))
        params = jax.eval_shape(flat.init, jax.random.key(0)).params
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 65 * 50 + 51 * 50 + 51 * 10


FEW, MANY = (Spaces(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(arms)) for arms in (1, 10))
POINTS = Spaces(spaces.Box(-1, 1, (2,), np.float32), spaces.Box(0, 1, (3,), np.float32))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", sorted(set(OF_CONTEXTS) - {"ekf"}))
@pytest.mark.parametrize("where", [FEW, MANY, POINTS], ids=["one arm", "ten arms", "points"])
def test_default_settings_work(name, where):
    if where is POINTS and "points" not in IS[name].spaces:
        pytest.skip("it does not act on points")
    agent = agents.make(name, where)
    state = jax.eval_shape(agent.init, jax.random.key(0))
    value = jax.eval_shape(agent.act, jax.random.key(0), state, jnp.zeros(2)).value
    assert value.shape == (where.action_space.shape or ())


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


@pytest.mark.sampled(4)
@every_agent
@pytest.mark.parametrize(
    ("where", "options", "error", "message"),
    [
        (Spaces(ARMS.observation_space, spaces.Box(0, 1, (1,))), {"num_candidates": 0}, ValueError, "num_candidates"),
        (
            ARMS,
            {"model": models.MLP(5, (8,))},
            ValueError,
            r"output has shape \(5,\); for Discrete\(3\) it must be \(3,\)",
        ),
        (ARMS, {"model": 3}, TypeError, "model must be a module of flax"),
        (ARMS, {"policy": "thomson"}, ValueError, "did you mean 'thompson'"),
    ],
)
def test_what_does_not_fit_is_refused(name, where, options, error, message):
    points = "num_candidates" not in options or "points" in IS[name].spaces
    if ("model" in options and not IS[name].model) or (options and not IS[name].policy) or not points:
        pytest.skip("it has no such option")
    with pytest.raises(error, match=message):
        agents.make(name, where, **options)


# Filters


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "policy"),
    [("hilofi", policy) for policy in policies.names()] + [(name, "thompson") for name in FILTERS[2:]],
)
def test_policies_by_name_drive_filters(name, policy):
    agent = make(name, policy=policy)
    action = jax.jit(agent.act)(jax.random.key(0), lab_of(name).state, CONTEXT)
    assert agent.settings["policy"] == policy
    assert agent.exact_propensity is policies.make(policy).exact
    assert 0 <= action.value < NUM_ARMS
    assert 0 < action.propensity <= 1 + 1e-6


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FILTERS)
def test_the_linearization_is_shared_just_where_acting_linearizes_too(name):
    told, factory = {}, getattr(filters, name)

    @functools.wraps(factory)
    def spy(*arguments, **options):
        told.update(options)
        return factory(*arguments, **options)

    build = agents.from_filter(spy, "greedy", **SMALL[name])
    for policy in policies.names():
        build(ARMS, model=models.MLP(NUM_ARMS, (8,)), policy=policy, numerics=filters.Numerics(buffer=20))
        assert told["numerics"].share_linearization == (policies.make(policy).needs == "joint")
        assert told["numerics"].buffer == 20


@pytest.mark.parametrize("name", FILTERS)
def test_a_filters_agent_has_the_keywords_of_the_filter_with_defaults_of_its_own(name):
    signature, own = (inspect.signature(getattr(package, name)).parameters for package in (agents, filters))
    assert next(iter(signature)) == "spaces"
    assert {"policy", "model", "likelihood", "noise_variance", "num_candidates"} < set(signature)
    assert set(own) - {"network", "likelihood"} < set(signature)
    assert all(parameter.default is not parameter.empty for parameter in list(signature.values())[1:])
    assert getattr(agents, name).__doc__.startswith(getattr(filters, name).__doc__.partition("\n")[0])
    settings = make(name).settings
    for keyword, parameter in signature.items():
        if keyword in settings and keyword not in SMALL[name]:
            assert settings[keyword] == parameter.default


@pytest.mark.parametrize(
    ("name", "keyword", "suggestion"),
    [
        ("hilofi", "noise", "noise_variance"),
        ("lolofi", "rank", "rank_hidden"),
        ("lrkf", "process_nose", "process_noise"),
    ],
)
def test_an_unknown_keyword_gets_a_suggestion(name, keyword, suggestion):
    with pytest.raises(TypeError, match=f"unknown keyword of agents.{name} '{keyword}': did you mean '{suggestion}'"):
        make(name, **{keyword: 1})


def test_a_policy_without_an_estimate_gives_no_propensity():
    agent = make("lrkf", policy=policies.predictive_sampling(propensity_samples=0))
    assert np.isnan(jax.jit(agent.act)(jax.random.key(0), lab_of("lrkf").state, CONTEXT).propensity)


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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("full", [False, True], ids=["one reward", "every reward"])
def test_an_update_is_gradient_steps_on_half_the_squared_error(name, full):
    network = models.network(Custom(), jnp.zeros(NUM_FEATURES))
    agent = make(name, model=network, learning_rate=0.01, inner_steps=3)
    state, x = agent.init(jax.random.key(0)), contexts(1)[0]
    feedback = jnp.array([1.0, -1.0, 0.5]) if full else jnp.float32(0.7)

    def loss(params):
        error = feedback - (network.apply(params, x) if full else network.apply(params, x)[1])
        return 0.5 * jnp.sum(error**2)

    optimizer = {"adamw": optax.adamw, "muon": optax.contrib.muon}[name](0.01)
    params, memory = state.params, optimizer.init(state.params)
    descend = jax.jit(lambda memory, params: optimizer.update(jax.grad(loss)(params), memory, params))
    for _ in range(3):
        updates, memory = descend(memory, params)
        params = optax.apply_updates(params, updates)
    fresh, info = jax.jit(agent.update)(state, x, jnp.int32(1), feedback)
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
    with pytest.raises(ValueError, match="has no uncertainty, and the policy needs 'joint' of it"):
        agents.neural(ARMS, optimizer=optax.sgd(0.1), policy=policies.ucb(1.0))
    with pytest.raises(ValueError, match=r"inner_steps must be .*; got 0"):
        agents.neural(ARMS, optimizer=optax.sgd(0.1), inner_steps=0)
