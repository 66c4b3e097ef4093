"""The robust likelihood: hand-worked weights, bounded steps, and the same update as a larger observation noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import agents, envs, filters, likelihoods, models
from tests.toys import compiled, network_of

ekf = compiled(filters.ekf)
PLAIN = likelihoods.gaussian(0.5)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def weigh(params, x):
    return params["weight"] @ x


def updated(likelihood, y, std=2.0, outputs=1):
    """Belief over weights (outputs, 1) from N(0, std^2) after the responses y at x = 1."""
    flt = ekf(network_of(weigh), likelihood, initial_std=std, numerics=filters.Numerics(dtype=jnp.float64))
    belief = flt.init(jax.random.key(0), {"weight": jnp.zeros((outputs, 1))})
    belief, info = flt.update(belief, jnp.ones(1), jnp.asarray(y))
    return belief.params["weight"][:, 0], flt.moments(belief, jnp.ones(1)).cov, info


def test_one_response_by_hand():
    """P = 4, R = 1/2, S = 4.5, y = 9, so z^2 = 18; with c = 3 the weight is 1 / (1 + 18 / 9) = 1/3, the noise 3/2."""
    mean, cov, info = updated(likelihoods.robust(PLAIN, 3.0), [9.0])
    np.testing.assert_allclose(mean, [9 * 4 / 5.5], rtol=1e-12)
    np.testing.assert_allclose(cov, [[4 * 1.5 / 5.5]], rtol=1e-12)
    np.testing.assert_allclose(info.log_density, -0.5 * (18 + np.log(2 * np.pi * 4.5)), rtol=1e-12)
    assert not info.rejected


def test_steps_are_bounded_and_an_extreme_response_teaches_nothing():
    """mean = y P / (P + R (1 + y^2 / (S c^2))), at most sqrt(S / R) c P / (2 sqrt(P + R)), and the plain step grows."""
    responses = np.array([0.1, 1.0, 10.0, 1e2, 1e4, 1e8])
    robust = [float(updated(likelihoods.robust(PLAIN, 1.5), [y])[0][0]) for y in responses]
    plain = [float(updated(PLAIN, [y])[0][0]) for y in responses]
    np.testing.assert_allclose(robust, responses * 4 / (4 + 0.5 * (1 + responses**2 / (4.5 * 1.5**2))), rtol=1e-10)
    np.testing.assert_allclose(plain, responses * 4 / 4.5, rtol=1e-10)
    assert max(robust) <= np.sqrt(4.5 / 0.5) * 1.5 * 4 / (2 * np.sqrt(4.5)) and robust[-1] < 1e-5
    np.testing.assert_allclose(updated(likelihoods.robust(PLAIN, 1.5), [1e8])[1], [[4.0]], rtol=1e-9)


def test_each_of_several_responses_has_its_own_weight():
    """One outlier beside an ordinary response: as a plain likelihood of the noise R_ij / (w_i w_j)."""
    noise = np.array([[0.5, 0.2], [0.2, 0.4]])
    y, c = np.array([1.0, 20.0]), 2.0
    weights = 1 / (1 + y**2 / (4 + np.diag(noise)) / c**2)
    assert weights[0] > 0.9 > 0.1 > weights[1]
    weighted = noise / np.sqrt(np.outer(weights, weights))
    got = updated(likelihoods.robust(likelihoods.gaussian(noise), c), y, outputs=2)
    want = updated(likelihoods.gaussian(weighted), y, outputs=2)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-10)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-10)


def test_a_large_threshold_is_the_plain_filter():
    for ours, plain in zip(updated(likelihoods.robust(PLAIN, 1e6), [3.0])[:2], updated(PLAIN, [3.0])[:2], strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-9)


@pytest.mark.parametrize("name", ["hilofi", "lofi", "lrkf"])
def test_low_rank_covariances_get_the_weighted_noise(name):
    options = {"rank": 2} if name != "hilofi" else {"rank": 2, "initial_std_last": 0.5}
    network = network_of(
        lambda params, x: params["last"] @ jnp.tanh(params["first"] @ x), lambda path: path == ("last",)
    )
    params = {"first": jnp.array([[0.3, -1.0], [0.5, 0.2]]), "last": jnp.array([[0.4, 0.7]])}

    def after(likelihood, y):
        flt = compiled(getattr(filters, name))(
            network, likelihood, numerics=filters.Numerics(dtype=jnp.float64, buffer=4), **options
        )
        before = flt.init(jax.random.key(1), params)
        at = flt.moments(before, jnp.ones(2))
        belief, info = flt.update(before, jnp.ones(2), jnp.array([y]))
        assert not info.rejected
        return at, flt.moments(belief, jnp.ones(2))

    at, got = after(likelihoods.robust(PLAIN, 2.0), 7.0)
    z2 = float((7.0 - at.mean[0]) ** 2 / (at.cov + at.noise)[0, 0])
    _, want = after(likelihoods.gaussian(0.5 * (1 + z2 / 4)), 7.0)
    np.testing.assert_allclose(got.mean, want.mean, rtol=1e-9)
    np.testing.assert_allclose(got.cov, want.cov, rtol=1e-9)


def test_an_agent_with_a_threshold_learns_less_from_a_reward_that_it_does_not_expect():
    where = envs.bernoulli((0.2, 0.8))
    means = {}
    for threshold in (None, 2.0):
        agent = agents.ekf(where, model=models.MLP(2, ()), robust=threshold, initial_std=1.0)
        assert agent.settings.get("robust") == threshold
        state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
        for reward in [1.0] * 20 + [-20.0]:
            state, _ = update(state, jnp.ones(1, jnp.float32), jnp.int32(1), jnp.float32(reward))
        means[threshold] = float(agents_mean(state))
    assert means[None] < 0.1 and means[2.0] > 0.95


def agents_mean(belief):
    """Expected reward of arm 1 in the context (1,)."""
    return belief.params["output"]["kernel"][0, 1] + belief.params["output"]["bias"][1]


def test_a_threshold_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="threshold must be positive; got 0"):
        likelihoods.robust(PLAIN, 0.0)
