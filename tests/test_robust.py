"""The robust likelihood: hand-worked weights, and the same update as a larger observation noise."""

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


@pytest.mark.parametrize(
    ("y", "weight"), [(0.0, 1.0), (0.5, 0.9), (0.75, 0.9 * 0.25 / (0.9 * 0.25 + 0.1 * 0.75)), (1.0, 1 / 12)]
)
def test_one_response_by_hand(y, weight):
    """Expected 0, P = 4, R = 1/2, share 0.1; y = 1 has p = 0.01, so w = .009 / (.009 + .099) = 1/12 and noise 6."""
    mean, cov, info = updated(likelihoods.robust(PLAIN, 0.1), [y])
    noise = 0.5 / weight
    np.testing.assert_allclose(mean, [y * 4 / (4 + noise)], rtol=1e-12)
    np.testing.assert_allclose(cov, [[4 * noise / (4 + noise)]], rtol=1e-12)
    np.testing.assert_allclose(info.log_density, -0.5 * (y**2 / 4.5 + np.log(2 * np.pi * 4.5)), rtol=1e-12)
    assert not info.rejected


def test_each_of_several_responses_has_its_own_weight():
    """One surprise beside an expected response: as a plain likelihood of the noise R_ij / sqrt(w_i w_j)."""
    noise, y = np.array([[0.5, 0.2], [0.2, 0.4]]), np.array([0.0, 1.0])
    weights = np.array([1.0, 0.95 * 0.01 / (0.95 * 0.01 + 0.05 * 0.99)])
    got = updated(likelihoods.robust(likelihoods.gaussian(noise)), y, outputs=2)
    want = updated(likelihoods.gaussian(noise / np.sqrt(np.outer(weights, weights))), y, outputs=2)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-10)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-10)


def test_without_outliers_to_expect_it_is_the_plain_filter():
    for ours, plain in zip(updated(likelihoods.robust(PLAIN, 0.0), [0.8])[:2], updated(PLAIN, [0.8])[:2], strict=True):
        np.testing.assert_allclose(ours, plain, rtol=1e-12)


@pytest.mark.parametrize("name", ["hilofi", "lofi", "lrkf"])
def test_low_rank_covariances_get_the_weighted_noise(name):
    options = {"rank": 2} if name != "hilofi" else {"rank": 2, "initial_std_last": 0.5}
    network = network_of(
        lambda params, x: params["last"] @ jnp.tanh(params["first"] @ x), lambda path: path == ("last",)
    )
    params = {"first": jnp.array([[0.3, -1.0], [0.5, 0.2]]), "last": jnp.array([[0.4, 0.7]])}

    def after(likelihood):
        flt = compiled(getattr(filters, name))(
            network, likelihood, numerics=filters.Numerics(dtype=jnp.float64, buffer=4), **options
        )
        before = flt.init(jax.random.key(1), params)
        at = flt.moments(before, jnp.ones(2))
        belief, info = flt.update(before, jnp.ones(2), jnp.array([1.0]))
        assert not info.rejected
        return at, flt.moments(belief, jnp.ones(2))

    at, got = after(likelihoods.robust(PLAIN, 0.2))
    p = 1 - abs(1 - float(at.mean[0]))
    _, want = after(likelihoods.gaussian(0.5 * (0.8 * p + 0.2 * (1 - p)) / (0.8 * p)))
    np.testing.assert_allclose(got.mean, want.mean, rtol=1e-9)
    np.testing.assert_allclose(got.cov, want.cov, rtol=1e-9)


def test_a_robust_agent_learns_less_from_a_reward_against_which_it_is_sure():
    where, means = envs.bernoulli((0.2, 0.8)), {}
    for share in (None, 0.05):
        agent = agents.ekf(where, model=models.MLP(2, ()), robust=share, initial_std=1.0)
        assert agent.settings.get("robust") == share
        state, update = agent.init(jax.random.key(0)), jax.jit(agent.update)
        for reward in [1.0] * 20 + [0.0]:
            state, _ = update(state, jnp.ones(1, jnp.float32), jnp.int32(1), jnp.float32(reward))
        last = state.params["output"]
        means[share] = float(last["kernel"][0, 1] + last["bias"][1])
    # One in 21 with equal weights; the last with a sixth of the weight otherwise.
    np.testing.assert_allclose([means[None], means[0.05]], [20 / 21, 20 / 20.16], atol=2e-3)


def test_a_share_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"share must lie in \[0, 1\); got 1\.5"):
        likelihoods.robust(PLAIN, 1.5)
