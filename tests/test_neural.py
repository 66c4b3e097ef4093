"""Networks trained on a memory, and the beliefs over their last layers, against closed forms in double precision."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn
from gymnasium import spaces

from seqdec import agents, memory, models, optim, policies
from seqdec import params as parameters
from seqdec.agents._neural import experience, last_layer
from tests.test_agents import ARMS, CONTEXT, NUM_ARMS, NUM_FEATURES, Custom, Spaces, assert_same, contexts

NETWORK = models.network(Custom(), jnp.zeros(NUM_FEATURES))
REWARDS = jnp.array([1.0, -1.0, 0.5])


@pytest.fixture
def double_precision():
    with jax.enable_x64():
        yield


def taught(agent, steps=6, full=False):
    """A state after some steps with actions in turn, and those of the steps before."""
    state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
    states = [state]
    for step, x in enumerate(contexts(steps)):
        state, info = update(state, x, jnp.int32(step % NUM_ARMS), REWARDS if full else REWARDS[step % NUM_ARMS])
        assert not info.rejected
        states.append(state)
    return states


# Experiences and minibatches


def test_a_minibatch_is_the_newest_rows_and_others_of_the_memory():
    kept, key = memory.last(3), jax.random.key(0)
    state, newest = kept.init(jnp.float32(0)), jnp.array([9.0])
    batch = experience.minibatch(kept, key, state, newest, 4)
    np.testing.assert_array_equal(batch.rows, [9, 9, 9, 9])
    np.testing.assert_array_equal(batch.weights, np.ones(4))
    for row in (1.0, 2.0):
        state = experience.remember(kept, key, state, jnp.array([row]), jnp.bool_(True))
    batch = experience.minibatch(kept, key, state, newest, 901)
    assert batch.rows[0] == 9
    shares = [np.mean(batch.rows[1:] == row) for row in (9, 1, 2)]
    np.testing.assert_allclose(shares, 1 / 3, atol=6 * np.sqrt(2 / 9 / 900))
    np.testing.assert_array_equal(batch.weights, np.ones(901))
    whole = experience.minibatch(kept, key, state, newest, None)
    np.testing.assert_array_equal(whole.rows, [9, 1, 2, 0])
    np.testing.assert_array_equal(whole.weights, [1, 1, 1, 0])


@pytest.mark.parametrize("full", [False, True], ids=["one reward", "every reward"])
def test_replay_is_a_step_on_the_mean_loss_of_what_is_in_the_memory(full):
    """With every row in each minibatch, as `batch_size` None makes it."""
    agent = agents.neural(
        ARMS, optimizer=optax.sgd(0.1), model=NETWORK, memory=memory.last(4), batch_size=None, inner_steps=2
    )
    states = taught(agent, full=full)

    def loss(params, steps):
        errors = [REWARDS - NETWORK.apply(params, contexts(6)[step]) for step in steps]
        if not full:
            errors = [error[step % NUM_ARMS] for step, error in zip(steps, errors, strict=True)]
        return 0.5 * sum(jnp.sum(error**2) for error in errors) / len(steps)

    for step in (0, 2, 5):
        params = states[step].params
        for _ in range(2):
            slope = jax.grad(loss)(params, list(range(max(0, step - 4), step + 1)))
            params = jax.tree.map(lambda p, g: p - 0.1 * g, params, slope)
        assert_same(states[step + 1].params, params, rtol=1e-4, atol=1e-6)


def test_a_row_that_is_rejected_does_not_enter_the_memory():
    agent = agents.make("replay_sgd", ARMS, model=NETWORK, capacity=5)
    state = agent.init(jax.random.key(0))
    for bad in (jnp.nan, jnp.inf, 1e30):  # the last is finite, its square is not
        fresh, info = jax.jit(agent.update)(state, CONTEXT, jnp.int32(0), jnp.float32(bad))
        assert info.rejected
        assert_same(fresh, state, rtol=0)


@pytest.mark.parametrize("name", ["replay_sgd", "neural_linear"])
def test_no_step_copies_the_memory(name):
    agent = agents.make(name, ARMS, model=NETWORK, capacity=12_345)

    def live(states):
        def step(states, _):
            return jax.vmap(lambda state: agent.update(state, CONTEXT, jnp.int32(0), 0.5)[0])(states), None

        return jax.lax.scan(step, states, length=10)[0]

    states = jax.eval_shape(jax.vmap(agent.init), jax.random.split(jax.random.key(0), 2))
    program = jax.jit(live, donate_argnums=0).lower(states).compile().as_text()
    assert "12345" in program
    assert re.findall(r"= \S*12345\S* (copy|select|concatenate)\(.*", program) == []


# Candidates


OFFER = spaces.Dict(item=spaces.Box(0, 5, (4,), np.int32), features=spaces.Box(-1, 1, (4, 2), np.float32))
CANDIDATES = Spaces(OFFER, spaces.Discrete(4))


def offer(seed=0):
    random = np.random.default_rng(seed)
    features = jnp.asarray(random.normal(size=(4, 2)), jnp.float32)
    return {"item": jnp.asarray(random.integers(0, 6, 4), jnp.int32), "features": features}


def test_the_memory_holds_the_rows_that_were_played():
    agent = agents.make("replay_sgd", CANDIDATES, capacity=6)
    state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
    state, _ = update(state, offer(0), jnp.int32(2), jnp.float32(0.5))
    np.testing.assert_array_equal(state.memory.rows.x["features"][0, 0], offer(0)["features"][2])
    assert (state.memory.rows.x["item"][0, 0], state.memory.rows.y[0, 0]) == (offer(0)["item"][2], 0.5)
    state, _ = update(state, offer(1), jnp.int32(0), jnp.arange(4.0))
    assert memory.filled(state.memory) == 5
    np.testing.assert_array_equal(state.memory.rows.y[1:5, 0], np.arange(4))
    np.testing.assert_array_equal(state.memory.rows.x["item"][1:5, 0], offer(1)["item"])


# Ensembles


def test_an_ensemble_of_one_without_bootstrap_is_replay():
    options = {"model": NETWORK, "capacity": 20, "learning_rate": 0.01, "batch_size": 4, "policy": "greedy"}
    alone = agents.make("replay_adamw", ARMS, **options)
    one = agents.make("ensemble", ARMS, members=1, bootstrap="none", **options)
    for state, other in zip(taught(one), taught(alone), strict=True):
        assert_same(jax.tree.map(lambda leaf: leaf[0], state.params), other.params, rtol=1e-4, atol=1e-6)


def test_members_are_trained_on_their_own_share_of_the_rows():
    head, network = agents.members_head(members=4)(NETWORK), NETWORK
    params, belief = head.init(jax.random.key(0), network.init(jax.random.key(1)))
    x = contexts(6)
    rows = experience.Experience(x, jnp.ones((6, NUM_ARMS)), jnp.ones((6, NUM_ARMS), bool))
    rows = head.tag(jax.random.key(2), rows)
    batch = experience.Batch(rows, jnp.ones(6))
    slopes = jax.jit(jax.grad(lambda params: head.loss(params, belief, batch, 6)[0]))(params)

    @jax.jit
    @jax.grad
    def slope(params, weights):
        errors = 0.5 * jnp.sum((1 - jax.vmap(network.apply, (None, 0))(params, x)) ** 2, 1)
        return jnp.sum(weights * errors) / jnp.maximum(jnp.sum(weights), 1)

    for member in range(4):
        own = slope(jax.tree.map(lambda leaf, m=member: leaf[m], params), rows.weights[:, member])
        assert_same(jax.tree.map(lambda leaf, m=member: leaf[m], slopes), own, rtol=1e-4, atol=1e-7)
    for bootstrap in ("poisson", "bernoulli"):
        tag = agents.members_head(members=4, bootstrap=bootstrap)(network).tag
        many = tag(jax.random.key(3), rows._replace(y=jnp.ones((5000, NUM_ARMS)))).weights
        np.testing.assert_allclose([jnp.mean(many), jnp.var(many)], 1, atol=6 * np.sqrt(3 / 20_000))


def test_the_moments_and_draws_of_an_ensemble_are_those_of_its_members():
    head = agents.members_head(members=3, prior_scale=2.0, noise_variance=0.3)(NETWORK)
    params, priors = head.init(jax.random.key(0), NETWORK.init(jax.random.key(1)))
    pairs = [jax.tree.map(lambda leaf, m=member: leaf[m], (params, priors)) for member in range(3)]
    each = np.array([NETWORK.apply(own, CONTEXT) + NETWORK.apply(prior, CONTEXT) for own, prior in pairs])
    question = head.posterior(params, priors)
    np.testing.assert_allclose(question.mean(CONTEXT), each.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(question.joint(CONTEXT).cov, np.cov(each.T), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(question.joint(CONTEXT).noise, 0.3 * np.eye(NUM_ARMS), rtol=1e-6)
    draws = jax.vmap(lambda key: question.draw(key)(CONTEXT))(jax.random.split(jax.random.key(2), 60))
    gaps = np.abs(np.asarray(draws)[:, None] - each).max(2)
    assert np.all(gaps.min(1) < 1e-5)
    assert set(gaps.argmin(1)) == {0, 1, 2}


# The last layer


@pytest.mark.parametrize("shared", [False, True])
def test_features_of_the_last_layer_are_the_gradients_by_its_groups(shared):
    network = NETWORK._replace(example=None) if shared else NETWORK
    layer, params = last_layer.last_layer(network), NETWORK.init(jax.random.key(0))
    assert (layer.groups, layer.size) == ((1, 21) if shared else (3, 7))
    response, phi = layer.features(params, CONTEXT)
    np.testing.assert_allclose(response, NETWORK.apply(params, CONTEXT), rtol=1e-6)
    np.testing.assert_allclose(last_layer.responses(phi, layer.get(params)), response, rtol=1e-5, atol=1e-6)
    weights = jnp.arange(21.0).reshape(layer.groups, layer.size)
    moved = layer.put(params, weights)
    np.testing.assert_allclose(layer.get(moved), weights)
    np.testing.assert_allclose(NETWORK.apply(moved, CONTEXT), last_layer.responses(phi, weights), rtol=1e-5)


class Crossed(nn.Module):
    """Every output reads every parameter of the last layer."""

    @nn.compact
    def __call__(self, x):
        h = nn.tanh(nn.Dense(NUM_ARMS, name="body")(x))
        return nn.Dense(NUM_ARMS, name="head")(h)[::-1]


def test_outputs_that_do_not_own_a_column_share_one_group():
    network = models.network(Crossed(), jnp.zeros(NUM_FEATURES))._replace(is_last=lambda path: path[0] == "head")
    assert last_layer.last_layer(network).groups == 1


# Laplace


def rows_of(params, x):
    """Gradients (n, p) by the last layer, whatever its groups."""
    gradients = jax.jacobian(NETWORK.apply)(params, x)
    return np.asarray(parameters.ravel(parameters.split(gradients, NETWORK.is_last)[1], 1), np.float64)


@pytest.mark.parametrize(
    ("over", "shared", "full"),
    [
        ("memory", False, False),
        ("stream", True, True),
        pytest.param("memory", True, True, marks=pytest.mark.extended),
        pytest.param("stream", False, False, marks=pytest.mark.extended),
    ],
)
def test_laplace_has_the_covariance_of_a_linear_model_in_the_features(over, shared, full, double_precision):
    agent = agents.neural(
        ARMS,
        optimizer=optim.koala_plus_plus(0.3),
        head=agents.laplace(prior_std=0.5, noise_variance=0.1, over=over),
        model=NETWORK._replace(example=None) if shared else NETWORK,
        policy=policies.ucb(1.0),
        memory=memory.last(4),
        batch_size=3,
    )
    states = taught(agent, full=full)
    precision = np.eye(21) / 0.25
    for step in range(6) if over == "stream" else range(2, 6):
        rows = rows_of(states[step + 1 if over == "stream" else -1].params, contexts(6)[step])
        rows = rows if full else rows[step % NUM_ARMS][None]
        precision += rows.T @ rows / 0.1
    rows = rows_of(states[-1].params, CONTEXT)
    expected = rows @ np.linalg.inv(precision) @ rows.T
    scores = NETWORK.apply(states[-1].params, CONTEXT) + np.sqrt(np.diag(expected))
    assert agent.act(jax.random.key(1), states[-1], CONTEXT).value == np.argmax(scores)
    layer = last_layer.last_layer(NETWORK._replace(example=None) if shared else NETWORK)
    _, phi = layer.features(states[-1].params, CONTEXT)
    np.testing.assert_allclose(last_layer.spread(phi, states[-1].belief), expected, rtol=1e-6, atol=1e-9)


def test_draws_from_the_last_layer_have_its_moments():
    agent = agents.neural(
        ARMS, model=NETWORK, optimizer=optax.sgd(0.1), head=agents.laplace(prior_std=0.3), policy="thompson"
    )
    state = agent.init(jax.random.key(0))
    actions = jax.vmap(lambda key: agent.act(key, state, CONTEXT).value)(jax.random.split(jax.random.key(1), 4000))
    # Before any data the arms are independent and alike, whatever the network says of them being equal.
    rows = rows_of(state.params, CONTEXT)
    draws = np.random.default_rng(0).normal(size=(100_000, rows.shape[1])) @ (0.3 * rows).T
    best = np.argmax(np.asarray(NETWORK.apply(state.params, CONTEXT)) + draws, 1)
    expected = np.bincount(best, minlength=3) / len(best)
    assert np.all(np.abs(np.bincount(actions, minlength=3) / 4000 - expected) < 6 * np.sqrt(0.25 / 4000))


def test_settings_of_laplace_that_do_not_fit_are_refused():
    for wrong, message in (
        ({"prior_std": 0.0}, "prior_std must be positive; got 0.0"),
        ({"noise_variance": -1.0}, "noise_variance must be positive; got -1.0"),
        ({"over": "steam"}, "did you mean 'stream'"),
    ):
        with pytest.raises(ValueError, match=message):
            agents.laplace(**wrong)


def test_laplace_is_trained_by_any_optimizer():
    agent = agents.last_layer_laplace(ARMS, optimizer=optax.contrib.muon(1e-2), buffer=3, model=NETWORK)
    state = jax.eval_shape(agent.init, jax.random.key(0))
    own = jax.eval_shape(optax.contrib.muon(1e-2).init, state.params)
    assert jax.tree.structure(state.optimizer) == jax.tree.structure(own)
