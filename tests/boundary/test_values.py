"""Values that make no sense: refused on the host with a message that helps, a counted no-op in compiled code."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec import agents, filters, likelihoods, models
from seqdec.core import Masked, Spaces
from seqdec.filters import Numerics
from tests.test_agents import LEARNERS, NETWORKS, OF_CONTEXTS, SMALL

WIDTH, OUTPUTS, ARMS = 4, 3, 5
NETWORK = models.network(models.MLP(OUTPUTS, (8,)), jnp.zeros(WIDTH))
GAUSSIAN, POISSON = likelihoods.gaussian(0.1), likelihoods.poisson()
RANKS: dict[str, dict[str, int]] = {
    "ekf": {},
    "hilofi": {"rank": 6},
    "lofi": {"rank": 6},
    "lolofi": {"rank_hidden": 6, "rank_last": 10},
    "lrkf": {"rank": 20},
}
AT, KEY = jnp.ones(WIDTH), jax.random.key(0)


def started(name: str, likelihood: Any) -> Any:
    flt = getattr(filters, name)(NETWORK, likelihood, **RANKS[name])
    return flt, flt.init(jax.random.key(1), NETWORK.init(KEY))


def assert_same_bits(one: Any, other: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


# Counts


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", RANKS)
def test_a_surprising_first_count_does_not_end_learning(name: str) -> None:
    """At the tangent of exp(0), a count of 100 would move the log rate by up to 99."""
    rate = 10_000.0
    flt, belief = started(name, POISSON)
    update, rng = jax.jit(lambda belief, y: flt.update(belief, AT, y, 0)), np.random.default_rng(0)
    belief, info = update(belief, rate)
    assert not info.rejected and flt.moments(belief, AT).mean[0] < 2 * rate
    for _ in range(100):
        belief, info = update(belief, float(rng.poisson(rate)))
        assert not info.rejected
    np.testing.assert_allclose(flt.moments(belief, AT).mean[0], rate, rtol=0.05)


def test_a_batch_of_surprising_counts_is_learned() -> None:
    flt, belief = started("hilofi", POISSON)
    update, rng = jax.jit(flt.update_batch), np.random.default_rng(2)
    for _ in range(40):
        ys = rng.poisson(10_000, 5).astype(np.float32)
        ys[3] = np.nan  # left out
        belief, info = update(belief, np.ones((5, WIDTH), np.float32), ys, np.zeros(5, int))
        assert info.rejected.tolist() == [False, False, False, True, False]
    np.testing.assert_allclose(flt.moments(belief, AT).mean[0], 10_000, rtol=0.02)


def test_small_rates_are_learned_as_by_the_plain_recursion() -> None:
    """Once certain, a belief takes every count by its tangent; also after a count that no rate explains."""
    rate = 0.2
    counts, rates = np.random.default_rng(3).poisson(rate, 1000), []
    for likelihood, first in ((POISSON, None), (POISSON._replace(mode=None), None), (POISSON, 1e30)):
        flt, belief = started("ekf", likelihood)
        update = jax.jit(lambda belief, y, flt=flt: flt.update(belief, AT, y, 0))
        belief = belief if first is None else update(belief, first)[0]
        for y in counts:
            belief, _ = update(belief, float(y))
        rates.append(flt.moments(belief, AT).mean[0])
    np.testing.assert_allclose(rates[0], rates[1], rtol=0.02)
    np.testing.assert_allclose(rates, counts.mean(), rtol=0.2)


def test_the_mode_of_a_count_is_where_its_likelihood_has_value_and_curvature() -> None:
    value, variance = POISSON.mode(jnp.array([99.0]))
    log_likelihood = lambda f: 100 * f - jnp.exp(f)  # noqa: E731 (of the count with one added)
    np.testing.assert_allclose(jax.grad(log_likelihood)(value[0]), 0, atol=1e-3)
    np.testing.assert_allclose(-jax.grad(jax.grad(log_likelihood))(value[0]), 1 / variance[0], rtol=1e-4)


# Outputs that do not exist


def independent() -> Any:
    scalar = models.network(models.MLP(1, ()), jnp.zeros(WIDTH))
    flt = filters.independent(filters.ekf(scalar, GAUSSIAN), OUTPUTS)
    return flt, flt.init(jax.random.key(1), jax.vmap(scalar.init)(jax.random.split(KEY, OUTPUTS)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*RANKS, "independent"])
def test_an_output_that_does_not_exist_is_refused_and_left_out(name: str) -> None:
    flt, belief = independent() if name == "independent" else started(name, GAUSSIAN)
    update = jax.jit(flt.update)
    for index in (7, 3, -1, -9):
        with pytest.raises(ValueError, match=f"observed must hold indices of the 3 outputs, from 0 to 2; got {index}"):
            flt.update(belief, AT, 1.0, index)
        fresh, info = update(belief, AT, 1.0, index)
        assert info.rejected
        assert_same_bits(fresh, belief)
    assert not update(belief, AT, 1.0, 2)[1].rejected
    if flt.update_batch is None:
        return
    xs, ys = np.random.default_rng(0).normal(size=(3, WIDTH)).astype(np.float32), np.ones(3, np.float32)
    with pytest.raises(ValueError, match="got 7"):
        flt.update_batch(belief, xs, ys, np.array([0, 7, 2]))
    batch = jax.jit(flt.update_batch)
    fresh, info = batch(belief, xs, ys, np.array([0, 7, 2]))
    assert info.rejected.tolist() == [False, True, False]
    fewer, _ = batch(belief, xs[::2], ys[::2], np.array([0, 2]))
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-5), fresh.params, fewer.params)
    fresh, info = batch(belief, xs, ys, np.full(3, -1))
    assert info.rejected.all()
    assert_same_bits(fresh, belief)


# Arguments of filters and likelihoods

REFUSED: dict[str, tuple[Any, str]] = {
    "indefinite": ([[1.0, 2.0], [2.0, 1.0]], "positive semi-definite.*smallest eigenvalue is -1"),
    "not square": (np.ones((5, 4)), r"a square covariance; got shape \(5, 4\)"),
    "not symmetric": ([[1.0, 0.5], [0.0, 1.0]], "symmetric"),
    "not finite": ([1.0, np.nan], "finite"),
    "three axes": (np.ones((2, 2, 2)), r"got shape \(2, 2, 2\)"),
    "infinite in single precision": (1e300, r"noise_variance is infinite in float32; got 1e\+300"),
    "of two outputs": ([1.0, 2.0], "noise_variance has shape .* but the network has 3 outputs"),
    "a covariance of two": ([[2.0, 1.0], [1.0, 2.0]], "noise_variance has shape .* but the network has 3 outputs"),
}


def learned_with(noise: Any) -> Any:
    flt, belief = started("ekf", likelihoods.gaussian(noise))
    return flt.update(belief, AT, jnp.ones(OUTPUTS))


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_covariance_of_the_outputs_is_refused(what: str) -> None:
    noise, message = REFUSED[what]
    with pytest.raises(ValueError, match=message):
        learned_with(noise)


@pytest.mark.parametrize("noise", [0.0, [1.0, 0.0, 2.0], [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]])
def test_singular_covariances_are_taken(noise: Any) -> None:
    assert np.linalg.eigvalsh(likelihoods.gaussian(noise).cov(jnp.zeros(3)))[0] > -1e-6


@pytest.mark.parametrize(
    ("numerics", "message"),
    [
        (Numerics(buffer=-5), "numerics.buffer must be at least 1; got -5"),
        (Numerics(dtype=jnp.int32), "numerics.dtype must be a floating dtype"),
        (Numerics(dtype="quick"), "numerics.dtype must be a floating dtype.*got 'quick'"),
        (Numerics(basis_dtype=int), "numerics.basis_dtype must be a floating dtype"),
        (Numerics(error_bounds="yes"), "numerics.error_bounds must be True or False"),  # pyright: ignore
        ({"buffer": 3}, "numerics must be a seqdec.filters.Numerics"),
    ],
)
def test_impossible_numerics_are_refused(numerics: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        filters.hilofi(NETWORK, GAUSSIAN, rank=2, numerics=numerics)


@pytest.mark.parametrize(
    ("x", "y", "observed", "message"),
    [
        (None, 1.0, 0, "x must hold numbers; got None"),
        (np.ones(WIDTH), 1.0, 0.5, "observed must hold integers"),
        (np.ones(5), 1.0, 0, r"takes an input of shape \(4,\); got \(5,\)"),
        (np.ones(0), 1.0, 0, r"takes an input of shape \(4,\); got \(0,\)"),
        ({"x": np.ones(WIDTH)}, 1.0, 0, r"takes an input of shape \(4,\); got {'x': \(4,\)}"),
        (np.ones(WIDTH), 2**40, 0, "y must hold integers of at most 32 bits.*pass floats"),
    ],
)
def test_inputs_of_another_shape_or_kind_are_refused(x: Any, y: Any, observed: Any, message: str) -> None:
    flt, belief = started("ekf", GAUSSIAN)
    with pytest.raises((TypeError, ValueError), match=message):
        flt.update(belief, x, y, observed)
    xs = jax.tree.map(lambda leaf: leaf[None], x)
    with pytest.raises(
        (TypeError, ValueError), match=message.replace("x must", "xs must").replace("y must", "ys must")
    ):
        flt.update_batch(belief, xs, np.array([y]), np.array([observed]))


# Agents

SITE = Spaces(spaces.Box(-5, 5, (WIDTH,), np.float32), spaces.Discrete(ARMS))
CANDIDATES = Spaces(
    spaces.Dict(video=spaces.Box(0, 6, (ARMS,), np.int32), features=spaces.Box(-1, 1, (ARMS, 2), np.float32)),
    spaces.Discrete(ARMS),
)
GOOD = np.full(WIDTH, 0.5, np.float32)
OFFER = {"video": np.arange(ARMS, dtype=np.int32), "features": np.zeros((ARMS, 2), np.float32)}


def make(name: str) -> seqdec.core.Agent:
    """A small agent."""
    return agents.make(name, SITE, **({"model": models.MLP(ARMS, (8,))} if name in NETWORKS else {}), **SMALL[name])


@functools.cache
def agent_of(name: str) -> tuple[seqdec.core.Agent, Any]:
    """An agent compiled for calls from Python, and one of its states."""
    agent = seqdec.compiled(make(name), optimize=False)
    return agent, agent.init(KEY)


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (Masked(GOOD, np.ones(3, bool)), r"mask must have shape \(5,\) for Discrete\(5\); got shape \(3,\)"),
        (Masked(GOOD, np.zeros(ARMS, bool)), "the mask is False everywhere"),
        (Masked(GOOD, np.full(ARMS, 0.5)), "the mask must be bools"),
    ],
)
def test_a_mask_that_is_none_is_refused(context: Any, message: str) -> None:
    compiled, state = agent_of("linear")
    for agent in (compiled, make("linear")):
        with pytest.raises((TypeError, ValueError), match=message):
            agent.act(KEY, state, context)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", OF_CONTEXTS)
def test_in_compiled_code_what_no_action_can_be_chosen_for_has_no_propensity(name: str) -> None:
    agent, state = agent_of(name)
    act, every = jax.jit(make(name).act), np.ones(ARMS, bool)
    wrong = [Masked(np.array([0.5, value, 0.5, 0.5], np.float32), every) for value in (np.nan, np.inf, 1e18)]
    for context in (*wrong, Masked(GOOD, np.zeros(ARMS, bool))):
        action = act(KEY, state, context)
        assert action.value in range(ARMS) and np.isnan(action.propensity)
    assert 0 < act(KEY, state, Masked(GOOD, np.array([False, True, True, False, False]))).propensity <= 1 + 1e-6
    assert 0 < agent.act(KEY, state, GOOD).propensity <= 1 + 1e-6


@pytest.mark.parametrize(
    ("context", "action", "reward", "message"),
    [
        (GOOD, [0, 1], 1.0, r"action must have shape \(\) for Discrete\(5\); got shape \(2,\)"),
        (GOOD, 1.0, 1.0, "action must be an integer, the index"),
        (GOOD, None, 1.0, "action must hold numbers; got None"),
        (GOOD, 1, [1.0, 2.0], r"reward must be one number, or the \(5,\) responses .*; got shape \(2,\)"),
        (np.ones(9), 1, 1.0, r"context must have shape \(4,\), as Box.*; got shape \(9,\)"),
    ],
)
def test_feedback_of_another_shape_is_refused(context: Any, action: Any, reward: Any, message: str) -> None:
    for plain in (make("linear"), make("auto")):
        state = jax.eval_shape(plain.init, KEY)
        for agent in (plain, seqdec.compiled(plain)):
            with pytest.raises((TypeError, ValueError), match=message):
                agent.update(state, context, action, reward)


def test_rows_of_no_table_teach_nothing_in_compiled_code() -> None:
    agent = agents.ekf(CANDIDATES)
    state = jax.jit(agent.init)(KEY)
    bad = OFFER | {"video": np.array([0, 1, 2, 3, 7], np.int32)}
    fresh, info = jax.jit(agent.update)(state, bad, 4, 1.0)
    assert info.rejected
    assert_same_bits(fresh, state)
    assert np.isnan(jax.jit(agent.act)(KEY, state, bad).propensity)


def test_members_of_a_discrete_space_are_checked() -> None:
    agent = agents.linear(Spaces(spaces.Discrete(4, start=2), spaces.Discrete(3)))
    state = jax.jit(agent.init)(KEY)
    with pytest.raises(ValueError, match=r"must hold integers of Discrete\(4, start=2\); got 1"):
        agent.act(KEY, state, 1)
    with pytest.raises(TypeError, match="context must be an integer"):
        agent.act(KEY, state, 2.5)
    act, update = jax.jit(agent.act), jax.jit(agent.update)
    for at, member in ((1, False), (2, True), (5, True), (6, False)):
        assert np.isfinite(act(KEY, state, jnp.int32(at)).propensity) == member
        assert update(state, jnp.int32(at), 0, 1.0)[1].rejected != member


def test_an_agent_of_other_spaces_is_not_run() -> None:
    env = seqdec.envs.linear(np.eye(3, WIDTH, dtype=np.float32))
    with pytest.raises(ValueError, match=r"linear was built for .* action_space is Discrete\(5\), .* Discrete\(3\)"):
        seqdec.run(agents.linear(SITE), env, 5, seed=0)
    wide = Spaces(spaces.Box(-1, 1, (9,), np.float32), spaces.Discrete(3))
    with pytest.raises(ValueError, match=r"observation_space is Box\(-1.0, 1.0, \(9,\).*; build the agent from"):
        seqdec.run(agents.linear(wide), seqdec.envs.FunctionalEnv(env), 5, seed=0)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", LEARNERS)
def test_bad_values_leave_an_agent_that_learns(name: str) -> None:
    """In the reward, then in the context: the state stays finite, and rewards are then learned."""
    agent, state = agent_of(name)
    contexts = np.random.default_rng(0).uniform(-1, 1, (150, WIDTH)).astype(np.float32)
    errors = []
    for step, context in enumerate(contexts):
        if 3 <= step < 8:
            bad = np.float32([1.7e18, 1e38, np.inf, -np.inf, np.nan][step - 3])
            state, _ = agent.update(state, GOOD, 1, bad)
            state, _ = agent.update(state, np.array([bad, 0.5, 0.5, 0.5], np.float32), 1, np.float32(0.5))
        state, info = agent.update(state, context, 1, context[0])
        assert not info.rejected
        errors.append(float(info.innovation[0]))
    assert all(np.isfinite(leaf).all() for leaf in map(np.asarray, jax.tree.leaves(state)))
    assert np.mean(np.square(errors[-40:])) < 0.7 * np.var(contexts[:, 0])
