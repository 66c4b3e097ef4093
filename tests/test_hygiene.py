"""What comes from outside: refused on the host with a message that helps, a counted no-op in compiled code."""

import functools
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec import agents, filters, likelihoods, models
from seqdec.core import Masked
from seqdec.filters import Numerics
from tests.test_agents import LEARNERS, NETWORKS, OF_CONTEXTS, SMALL

WIDTH, OUTPUTS = 4, 3
NETWORK = models.network(models.MLP(OUTPUTS, (8,)), jnp.zeros(WIDTH))
FILTERS = {
    "ekf": lambda likelihood: filters.ekf(NETWORK, likelihood),
    "hilofi": lambda likelihood: filters.hilofi(NETWORK, likelihood, rank=6),
    "lofi": lambda likelihood: filters.lofi(NETWORK, likelihood, rank=6),
    "lolofi": lambda likelihood: filters.lolofi(NETWORK, likelihood, rank_hidden=6, rank_last=10),
    "lrkf": lambda likelihood: filters.lrkf(NETWORK, likelihood, rank=20),
}
every_filter = pytest.mark.parametrize("name", sorted(FILTERS))


def started(name, likelihood):
    flt = FILTERS[name](likelihood)
    return flt, flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))


def assert_same_bits(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# Counts


@pytest.mark.sampled(4)
@every_filter
@pytest.mark.parametrize("rate", [100.0, 10_000.0])
def test_a_surprising_first_count_does_not_end_learning(name, rate):
    """At the tangent of exp(0), a count of 100 would move the log rate by up to 99."""
    flt, belief = started(name, likelihoods.poisson())
    update, rng = jax.jit(lambda belief, x, y: flt.update(belief, x, y, 0)), np.random.default_rng(0)
    at, rejected = jnp.ones(WIDTH), []
    belief, info = update(belief, at, rate)
    assert not info.rejected
    assert flt.moments(belief, at).mean[0] < 2 * rate
    for _ in range(100):
        belief, info = update(belief, at, float(rng.poisson(rate)))
        rejected.append(bool(info.rejected))
    assert sum(rejected) == 0
    np.testing.assert_allclose(flt.moments(belief, at).mean[0], rate, rtol=0.05)


@pytest.mark.sampled(2)
@every_filter
def test_counts_are_learned_in_varying_contexts(name):
    flt, belief = started(name, likelihoods.poisson())
    update, rng = jax.jit(lambda belief, x, y: flt.update(belief, x, y, 0)), np.random.default_rng(1)
    xs, rejected = rng.normal(size=(200, WIDTH)).astype(np.float32), 0
    for x in xs:
        belief, info = update(belief, x, float(rng.poisson(100)))
        rejected += int(info.rejected)
    rates = jax.vmap(lambda x: flt.moments(belief, x).mean[0])(xs[-50:])
    assert rejected <= 2
    np.testing.assert_allclose(np.median(rates), 100, rtol=0.1)


@pytest.mark.parametrize("name", ["ekf", "hilofi"])
def test_a_batch_of_surprising_counts_is_learned(name):
    flt, belief = started(name, likelihoods.poisson())
    update, rng = jax.jit(flt.update_batch), np.random.default_rng(2)
    which = np.zeros(5, int)
    for _ in range(40):
        ys = rng.poisson(10_000, 5).astype(np.float32)
        ys[3] = np.nan  # left out
        belief, info = update(belief, np.ones((5, WIDTH), np.float32), ys, which)
        assert info.rejected.tolist() == [False, False, False, True, False]
    np.testing.assert_allclose(flt.moments(belief, jnp.ones(WIDTH)).mean[0], 10_000, rtol=0.02)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("rate", [0.2, 2.0])
def test_small_rates_are_learned_as_by_the_plain_recursion(rate):
    """Once certain, a belief takes every count by its tangent."""
    counts, rates = np.random.default_rng(3).poisson(rate, 1000), []
    for likelihood in (likelihoods.poisson(), likelihoods.poisson()._replace(mode=None)):
        flt, belief = started("ekf", likelihood)
        update = jax.jit(lambda belief, y, flt=flt: flt.update(belief, jnp.ones(WIDTH), y, 0))
        for y in counts:
            belief, _ = update(belief, float(y))
        rates.append(flt.moments(belief, jnp.ones(WIDTH)).mean[0])
    np.testing.assert_allclose(rates[0], rates[1], rtol=0.02)
    np.testing.assert_allclose(rates[0], counts.mean(), rtol=0.1)


def test_a_count_that_no_rate_explains_leaves_a_belief_that_learns():
    flt, belief = started("ekf", likelihoods.poisson())
    update = jax.jit(lambda belief, y: flt.update(belief, jnp.ones(WIDTH), y, 0))
    belief, _ = update(belief, 1e30)
    for _ in range(100):
        belief, info = update(belief, 5.0)
        assert not info.rejected
    np.testing.assert_allclose(flt.moments(belief, jnp.ones(WIDTH)).mean[0], 5, rtol=0.2)


def test_the_mode_of_a_count_is_where_its_likelihood_has_value_and_curvature():
    value, variance = likelihoods.poisson().mode(jnp.array([99.0]))
    log_likelihood = lambda f: 100 * f - jnp.exp(f)  # noqa: E731 (of the count with one added)
    np.testing.assert_allclose(jax.grad(log_likelihood)(value[0]), 0, atol=1e-3)
    np.testing.assert_allclose(-jax.grad(jax.grad(log_likelihood))(value[0]), 1 / variance[0], rtol=1e-4)


# Indices of outputs


@pytest.mark.sampled(6)
@every_filter
@pytest.mark.parametrize("index", [7, 3, -1, -9])
def test_an_output_that_does_not_exist_is_refused(name, index):
    flt, belief = started(name, likelihoods.gaussian(0.1))
    x = jnp.ones(WIDTH)
    with pytest.raises(ValueError, match=f"observed must hold indices of the 3 outputs, from 0 to 2; got {index}"):
        flt.update(belief, x, 1.0, index)
    fresh, info = jax.jit(flt.update)(belief, x, 1.0, index)
    assert info.rejected
    assert_same_bits(fresh, belief)


@pytest.mark.sampled(4)
@every_filter
@pytest.mark.parametrize("index", [7, -1])
def test_a_row_of_an_output_that_does_not_exist_is_left_out(name, index):
    flt, belief = started(name, likelihoods.gaussian(0.1))
    xs, ys = np.random.default_rng(0).normal(size=(3, WIDTH)).astype(np.float32), np.ones(3, np.float32)
    with pytest.raises(ValueError, match=f"got {index}"):
        flt.update_batch(belief, xs, ys, np.array([0, index, 2]))
    update = jax.jit(flt.update_batch)
    fresh, info = update(belief, xs, ys, np.array([0, index, 2]))
    assert info.rejected.tolist() == [False, True, False]
    fewer, _ = update(belief, xs[::2], ys[::2], np.array([0, 2]))
    for a, b in zip(jax.tree.leaves(fresh.params), jax.tree.leaves(fewer.params), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    fresh, info = update(belief, xs, ys, np.full(3, index))
    assert info.rejected.all()
    assert_same_bits(fresh, belief)


@pytest.mark.parametrize("index", [7, -1, -9])
def test_independent_beliefs_refuse_an_output_that_does_not_exist(index):
    scalar = models.network(models.MLP(1, ()), jnp.zeros(WIDTH))
    flt = filters.independent(filters.ekf(scalar, likelihoods.gaussian(0.1)), OUTPUTS)
    params = jax.vmap(scalar.init)(jax.random.split(jax.random.key(0), OUTPUTS))
    belief, x = flt.init(jax.random.key(1), params), jnp.ones(WIDTH)
    with pytest.raises(ValueError, match=f"got {index}"):
        flt.update(belief, x, 1.0, index)
    fresh, info = jax.jit(flt.update)(belief, x, 1.0, index)
    assert info.rejected
    assert_same_bits(fresh, belief)
    _, info = jax.jit(flt.update)(belief, x, 1.0, 2)
    assert not info.rejected


# Arguments of filters and likelihoods


@pytest.mark.parametrize(
    ("noise", "error", "message"),
    [
        ([[1.0, 2.0], [2.0, 1.0]], ValueError, "positive semi-definite.*smallest eigenvalue is -1"),
        (np.ones((5, 4)), ValueError, r"a square covariance; got shape \(5, 4\)"),
        ([[1.0, 0.5], [0.0, 1.0]], ValueError, "symmetric"),
        ([1.0, np.nan], ValueError, "finite"),
        (np.ones((2, 2, 2)), ValueError, r"got shape \(2, 2, 2\)"),
        ("0.1", TypeError, "noise_variance must hold real numbers; got '0.1'"),
    ],
)
def test_what_is_no_covariance_is_refused(noise, error, message):
    with pytest.raises(error, match=message):
        likelihoods.gaussian(noise)


@pytest.mark.parametrize("noise", [[1.0, 2.0], [[2.0, 1.0], [1.0, 2.0]]])
def test_a_covariance_of_another_number_of_outputs_is_refused(noise):
    flt = filters.ekf(NETWORK, likelihoods.gaussian(noise))
    with pytest.raises(ValueError, match=r"noise_variance has shape .* but the network has 3 outputs"):
        flt.init(jax.random.key(1), NETWORK.init(jax.random.key(0)))


def test_a_variance_that_is_infinite_in_single_precision_is_refused():
    with pytest.raises(ValueError, match=r"noise_variance is infinite in float32; got 1e\+300"):
        likelihoods.gaussian(1e300).cov(jnp.zeros(3))


@pytest.mark.parametrize("noise", [0.0, [1.0, 0.0, 2.0], [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]])
def test_singular_covariances_are_taken(noise):
    cov = likelihoods.gaussian(noise).cov(jnp.zeros(3))
    assert np.linalg.eigvalsh(cov)[0] > -1e-6


@pytest.mark.parametrize(
    ("numerics", "error", "message"),
    [
        (Numerics(buffer=-5), ValueError, "numerics.buffer must be at least 1; got -5"),
        (Numerics(buffer=2.5), TypeError, "numerics.buffer must be an integer; got 2.5"),  # pyright: ignore
        (Numerics(dtype=jnp.int32), TypeError, "numerics.dtype must be a floating dtype"),
        (Numerics(dtype="quick"), TypeError, "numerics.dtype must be a floating dtype.*got 'quick'"),
        (Numerics(basis_dtype=int), TypeError, "numerics.basis_dtype must be a floating dtype"),
        (Numerics(error_bounds="yes"), TypeError, "numerics.error_bounds must be True or False"),  # pyright: ignore
        ({"buffer": 3}, TypeError, "numerics must be a seqdec.filters.Numerics"),
    ],
)
def test_impossible_numerics_are_refused(numerics, error, message):
    with pytest.raises(error, match=message):
        filters.hilofi(NETWORK, likelihoods.gaussian(0.1), rank=2, numerics=numerics)


@pytest.mark.parametrize(
    ("x", "y", "observed", "error", "message"),
    [
        (["1.5", "2", "0", "1"], 1.0, 0, TypeError, "x must hold real numbers; got"),
        (np.array(["1.5", "2", "0", "1"]), 1.0, 0, TypeError, "x must hold real numbers"),
        (np.ones(WIDTH), "1.0", 0, TypeError, r"y must hold real numbers; got \[?'1.0'"),
        (None, 1.0, 0, TypeError, "x must hold numbers; got None"),
        (np.ones(WIDTH), 1.0, 0.5, TypeError, "observed must hold integers"),
        (np.ones(WIDTH), 1.0, "0", TypeError, "observed must hold integers"),
        (np.ones(5), 1.0, 0, ValueError, r"takes an input of shape \(4,\); got \(5,\)"),
        (np.ones(0), 1.0, 0, ValueError, r"takes an input of shape \(4,\); got \(0,\)"),
        ({"x": np.ones(WIDTH)}, 1.0, 0, ValueError, r"takes an input of shape \(4,\); got {'x': \(4,\)}"),
        (np.ones(WIDTH), 2**40, 0, ValueError, "y must hold integers of at most 32 bits.*pass floats"),
    ],
)
def test_inputs_that_are_no_numbers_or_of_another_shape_are_refused(x, y, observed, error, message):
    flt, belief = started("ekf", likelihoods.gaussian(0.1))
    with pytest.raises(error, match=message):
        flt.update(belief, x, y, observed)
    xs = jax.tree.map(lambda leaf: leaf[None], x if isinstance(x, dict | None) else np.array(x))
    ys = [y] if isinstance(y, str) else np.array([y])
    with pytest.raises(error, match=message.replace("x must", "xs must").replace("y must", "ys must")):
        flt.update_batch(belief, xs, ys, np.array([observed]))


# Agents


class Where(NamedTuple):
    observation_space: gymnasium.Space
    action_space: gymnasium.Space


ARMS = 5
SITE = Where(spaces.Box(-5, 5, (WIDTH,), np.float32), spaces.Discrete(ARMS))
CANDIDATES = Where(
    spaces.Dict(video=spaces.Box(0, 6, (ARMS,), np.int32), features=spaces.Box(-1, 1, (ARMS, 2), np.float32)),
    spaces.Discrete(ARMS),
)
GOOD = np.full(WIDTH, 0.5, np.float32)
OFFER = {"video": np.arange(ARMS, dtype=np.int32), "features": np.zeros((ARMS, 2), np.float32)}


def make(name, where):
    """A small agent."""
    model = {"model": models.MLP(int(where.action_space.n), (8,))} if name in NETWORKS else {}
    return agents.make(name, where, **{**model, **SMALL[name]})


@functools.cache
def agent_of(name):
    """An agent compiled for calls from Python, and one of its states."""
    agent = seqdec.compiled(make(name, SITE), optimize=False)
    return agent, agent.init(jax.random.key(0))


every_agent = pytest.mark.parametrize("name", OF_CONTEXTS)
KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("context", "error", "message"),
    [
        ([0.5, np.nan, 0.5, 0.5], ValueError, r"context must hold finite numbers below 1e\+15; got nan"),
        (
            np.array([0.5, np.inf, 0.5, 0.5], np.float32),
            ValueError,
            r"context must hold finite numbers below 1e\+15; got inf",
        ),
        (np.array([0.5, 1e300, 0.5, 0.5]), ValueError, r"finite numbers below 1e\+15; got 1e\+300"),
        (np.ones(3), ValueError, r"context must have shape \(4,\), as Box.*; got shape \(3,\)"),
        (np.ones((1, 4)), ValueError, r"got shape \(1, 4\)"),
        ([[1.0], [1.0, 2.0]], ValueError, "rows of different lengths"),
        (["0.5", "1", "2", "3.5"], TypeError, "context must hold real numbers"),
        (None, TypeError, "context must hold numbers; got None|real numbers"),
        (
            Masked(GOOD, np.ones(3, bool)),
            ValueError,
            r"mask must have shape \(5,\) for Discrete\(5\); got shape \(3,\)",
        ),
        (Masked(GOOD, np.zeros(ARMS, bool)), ValueError, "the mask allows no action"),
        (Masked(GOOD, np.full(ARMS, 0.5)), TypeError, "the mask must hold bools"),
    ],
)
def test_what_no_action_can_be_chosen_for_is_refused(context, error, message):
    agent, state = agent_of("hilofi")
    with pytest.raises(error, match=message):
        agent.act(KEY, state, context)
    with pytest.raises(error, match=message):
        make("hilofi", SITE).act(KEY, state, context)


@pytest.mark.sampled(8)
@every_agent
def test_in_compiled_code_what_no_action_can_be_chosen_for_has_no_propensity(name):
    agent, state = agent_of(name)
    act = jax.jit(make(name, SITE).act)
    for value in (np.nan, np.inf, 1e18):
        action = act(KEY, state, Masked(np.array([0.5, value, 0.5, 0.5], np.float32), np.ones(ARMS, bool)))
        assert action.value in range(ARMS)
        assert np.isnan(action.propensity)
    action = act(KEY, state, Masked(GOOD, np.zeros(ARMS, bool)))
    assert action.value in range(ARMS)
    assert np.isnan(action.propensity)
    mask = np.array([False, True, True, False, False])
    assert 0 < act(KEY, state, Masked(GOOD, mask)).propensity <= 1 + 1e-6
    assert 0 < agent.act(KEY, state, GOOD).propensity <= 1 + 1e-6


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("context", "action", "reward", "error", "message"),
    [
        (GOOD, [0, 1], 1.0, ValueError, r"action must have shape \(\) for Discrete\(5\); got shape \(2,\)"),
        (GOOD, 1.0, 1.0, TypeError, "action must be an integer, the index"),
        (GOOD, "1", 1.0, TypeError, "action must hold real numbers; got '1'"),
        (GOOD, None, 1.0, TypeError, "action must hold numbers; got None"),
        (GOOD, 1, [1.0, 2.0], ValueError, r"reward must be one number, or the \(5,\) responses .*; got shape \(2,\)"),
        (GOOD, 1, "1.0", TypeError, "reward must hold real numbers; got '1.0'"),
        (np.ones(9), 1, 1.0, ValueError, r"context must have shape \(4,\), as Box.*; got shape \(9,\)"),
        (np.array(["3.5"] * WIDTH), 1, 1.0, TypeError, "context must hold real numbers"),
    ],
)
@pytest.mark.parametrize("name", ["auto", "hilofi", "gp", "linear", "replay_adamw"])
def test_lessons_of_another_shape_are_refused(name, context, action, reward, error, message):
    agent, state = agent_of(name)
    with pytest.raises(error, match=message):
        agent.update(state, context, action, reward)
    with pytest.raises(error, match=message):
        make(name, SITE).update(state, context, action, reward)


@pytest.mark.parametrize(
    ("offer", "error", "message"),
    [
        (OFFER | {"video": np.array([0, 1, 2, 3, 7], np.int32)}, ValueError, "must hold integers of Box.*; got 7"),
        (OFFER | {"features": np.zeros((3, 2))}, ValueError, r"context\['features'\] must have shape \(5, 2\)"),
        ({"video": OFFER["video"]}, TypeError, r"a dict with the entries \['features', 'video'\]; got \['video'\]"),
        (np.zeros(3), TypeError, "a dict with the entries"),
    ],
)
def test_candidates_that_do_not_fit_are_refused(offer, error, message):
    agent = agents.ekf(CANDIDATES)
    state = jax.jit(agent.init)(KEY)
    with pytest.raises(error, match=message):
        agent.act(KEY, state, offer)


def test_rows_of_no_table_teach_nothing_in_compiled_code():
    agent = agents.ekf(CANDIDATES)
    state = jax.jit(agent.init)(KEY)
    bad = OFFER | {"video": np.array([0, 1, 2, 3, 7], np.int32)}
    fresh, info = jax.jit(agent.update)(state, bad, 4, 1.0)
    assert info.rejected
    assert_same_bits(fresh, state)
    assert np.isnan(jax.jit(agent.act)(KEY, state, bad).propensity)


def test_members_of_a_discrete_space_are_checked():
    agent = agents.hilofi(Where(spaces.Discrete(4, start=2), spaces.Discrete(3)), rank=3, process_noise_hidden=0.0)
    state = jax.jit(agent.init)(KEY)
    with pytest.raises(ValueError, match=r"must hold integers of Discrete\(4, start=2\); got 1"):
        agent.act(KEY, state, 1)
    with pytest.raises(TypeError, match="context must be an integer"):
        agent.act(KEY, state, 2.5)
    assert np.isnan(jax.jit(agent.act)(KEY, state, jnp.int32(1)).propensity)
    assert jax.jit(agent.update)(state, jnp.int32(6), 0, 1.0)[1].rejected


@pytest.mark.sampled(3)
@every_agent
@pytest.mark.parametrize("what", ["CartPole-v1", None, SITE.action_space], ids=["name", "nothing", "space"])
def test_what_has_no_spaces_is_refused(name, what):
    with pytest.raises(TypeError, match=r"an agent is built for an environment.*seqdec.envs.make"):
        agents.make(name, what)


def test_an_agent_of_other_spaces_is_not_run():
    env = seqdec.envs.linear(np.eye(3, WIDTH, dtype=np.float32))
    with pytest.raises(ValueError, match=r"hilofi was built for .* action_space is Discrete\(5\), .* Discrete\(3\)"):
        seqdec.run(agents.hilofi(SITE, rank=4), env, 5, seed=0)
    wide = Where(spaces.Box(-1, 1, (9,), np.float32), spaces.Discrete(3))
    with pytest.raises(ValueError, match=r"observation_space is Box\(-1.0, 1.0, \(9,\).*; build the agent from"):
        seqdec.run(agents.linear(wide), env, 5, seed=0)
    with pytest.raises(ValueError, match="action_space"):
        seqdec.run(agents.linear(SITE), seqdec.envs.FunctionalEnv(env), 5, seed=0)


@pytest.mark.sampled(32)
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("bad", [1.7e18, 1e38, np.inf, -np.inf, np.nan])
def test_one_bad_value_leaves_an_agent_that_learns(name, bad):
    """In the reward, then in the context: the state stays finite, and rewards are then learned."""
    agent, state = agent_of(name)
    contexts = np.random.default_rng(0).uniform(-1, 1, (150, WIDTH)).astype(np.float32)
    for context in contexts[:3]:
        state, _ = agent.update(state, context, 1, float(context[0]))
    state, _ = agent.update(state, GOOD, 1, bad)
    state, _ = agent.update(state, np.array([bad, 0.5, 0.5, 0.5], np.float32), 1, 0.5)
    errors = []
    for context in contexts[3:]:
        state, info = agent.update(state, context, 1, float(context[0]))
        assert not info.rejected
        errors.append(float(info.innovation[0]))
    assert all(np.isfinite(leaf).all() for leaf in map(np.asarray, jax.tree.leaves(state)))
    assert np.mean(np.square(errors[-40:])) < 0.7 * np.var(contexts[:, 0])
