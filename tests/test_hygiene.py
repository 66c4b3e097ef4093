"""What comes from outside: refused on the host with a message that helps, a counted no-op in compiled code."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import filters, likelihoods, models
from seqdec.filters import Numerics

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
        (np.ones(WIDTH), "1.0", 0, TypeError, "y must hold real numbers; got '1.0'"),
        (None, 1.0, 0, TypeError, "x must hold numbers; got None"),
        (np.ones(WIDTH), 1.0, 0.5, TypeError, "observed must hold integers"),
        (np.ones(WIDTH), 1.0, "0", TypeError, "observed must hold integers"),
        (np.ones(5), 1.0, 0, ValueError, r"takes an input of shape \(4,\); got \(5,\)"),
    ],
)
def test_inputs_that_are_no_numbers_or_of_another_shape_are_refused(x, y, observed, error, message):
    flt, belief = started("ekf", likelihoods.gaussian(0.1))
    with pytest.raises(error, match=message):
        flt.update(belief, x, y, observed)
    xs, ys = None if x is None else np.array(x)[None], [y] if isinstance(y, str) else np.array([y])
    with pytest.raises(error, match=message.replace("x must", "xs must").replace("y must", "ys must")):
        flt.update_batch(belief, xs, ys, np.array([observed]))
