"""Surrogates against oracles, and the hyperparameters of Gaussian processes."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import gaussian_process as sklearn_processes

from seqdec import filters, policies
from seqdec.bo import BayesianOptimizer, gp
from seqdec.bo.acquisition import names as acquisitions
from seqdec.bo.acquisition.feasibility import Incumbent
from seqdec.bo.surrogates import contract as surrogates
from seqdec.bo.surrogates import evidence
from seqdec.bo.surrogates import gaussian_process as exact
from seqdec.bo.surrogates import random_features as wide
from seqdec.bo.surrogates import sparse_gaussian_process as sparse
from seqdec.bo.surrogates.contract import History
from seqdec.bo.surrogates.filtered import over_mlp
from tests.bo.common import BRANIN, quick

REGRESSOR: Any = sklearn_processes.GaussianProcessRegressor  # the stubs know neither arrays nor None
KERNELS: Any = sklearn_processes.kernels
DIM, COUNT, ROWS = 3, 40, 64
PLACES = np.arange(DIM)
HYPER = evidence.Hyperparameters(np.log([0.5, 0.8, 3.0]), np.log(0.7), np.log(1e-3), np.zeros(DIM))
SLOPED = HYPER._replace(noise_slopes=np.array([2.0, -1.0, 0.5]))
NEW = np.random.default_rng(1).random((9, DIM))
NOISE = np.where(np.arange(ROWS) % 3 == 0, 0.04, -1.0)
"""Known of every third response."""


def history(count: int = COUNT, dtype: Any = np.float64, noise: np.ndarray | None = None) -> History:
    """Responses of a smooth function."""
    generator = np.random.default_rng(0)
    x, y = generator.random((ROWS, DIM)), np.zeros(ROWS)
    y[:count] = np.sin(4 * x[:count, 0]) + x[:count, 1] ** 2 + 0.01 * generator.standard_normal(count)
    return History(x.astype(dtype), y.astype(dtype), np.int32(count), noise)


def moments(posterior: Any, dtype: Any = np.float64) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance at the new points."""
    at = posterior.joint(jnp.asarray(NEW, dtype))
    return np.asarray(at.mean), np.asarray(at.cov)


# Gaussian processes


@pytest.mark.parametrize(
    "noise", [None, np.where(np.arange(ROWS) % 2, 0.3, 0.01), NOISE], ids=["estimated", "known", "some"]
)
def test_the_process_is_that_of_scikit_learn(noise: np.ndarray | None) -> None:
    known = history(noise=noise)
    with jax.enable_x64(True):
        mean, cov = moments(exact.posterior(exact.condition(HYPER, known)))
        means = exact.posterior(exact.condition(HYPER, known)).mean(jnp.asarray(NEW))
    used = np.where(
        NOISE[:COUNT] < 0 if noise is NOISE else noise is None, 1e-3, 0.0 if noise is None else noise[:COUNT]
    )
    kernel = KERNELS.ConstantKernel(1.0) + 0.7 * KERNELS.Matern([0.5, 0.8, 3.0], nu=2.5)
    oracle = REGRESSOR(kernel, alpha=used + 1e-8, optimizer=None).fit(known.x[:COUNT], known.y[:COUNT])
    expected, covariance = oracle.predict(NEW, return_cov=True)
    np.testing.assert_allclose(mean, expected, rtol=1e-7)
    np.testing.assert_allclose(means, expected, rtol=1e-7)
    np.testing.assert_allclose(cov, covariance, atol=1e-9)


@pytest.mark.parametrize("hyper", [HYPER, SLOPED], ids=["constant", "sloped"])
@pytest.mark.parametrize("noise", [None, NOISE], ids=["estimated", "some"])
def test_the_likelihood_and_its_gradient(noise: np.ndarray | None, hyper: Any) -> None:
    known = history(12, noise=noise)

    def loss(hyper: Any) -> Any:
        estimated = jnp.exp(hyper.log_noise + (known.x[:12] - 0.5) @ hyper.noise_slopes)
        variances = estimated if noise is None else jnp.where(noise[:12] < 0, estimated, noise[:12])
        cov = exact.kernel(hyper, known.x[:12], known.x[:12]) + jnp.diag(variances + 1e-8)
        return 0.5 * known.y[:12] @ jnp.linalg.solve(cov, known.y[:12]) + 0.5 * jnp.linalg.slogdet(cov)[1]

    with jax.enable_x64(True):
        value, gradient = jax.jit(jax.value_and_grad(loss))(jax.tree.map(jnp.asarray, hyper))
    flat = evidence.flatten(hyper, PLACES)
    found, slopes = evidence.negative_log_likelihood(flat, evidence.told(known))
    assert found == pytest.approx(float(value), rel=1e-9)
    np.testing.assert_allclose(slopes, evidence.flatten(gradient, PLACES)[: len(flat)], rtol=1e-6, atol=1e-8)


def test_the_prior_is_the_density_of_its_normals() -> None:
    variances, generator = evidence._SHARED_VARIANCE, np.random.default_rng(2)
    (shift, slopes), scale, noise = generator.normal(size=(2, DIM)), 0.3, -0.8
    middle = np.concatenate([evidence.flatten(evidence.prior_mean(PLACES), PLACES), np.zeros(DIM)])
    value, slope = evidence.negative_log_prior(middle + np.concatenate([shift, [scale, noise], slopes]), DIM)
    cov = evidence._OWN_VARIANCE * np.eye(DIM) + variances
    solved = np.linalg.solve(cov, shift)
    assert value == pytest.approx(0.5 * (shift @ solved + scale**2 + noise**2 / 9 + slopes @ slopes / 4))
    np.testing.assert_allclose(slope, [*solved, scale, noise / 9, *slopes / 4])


@pytest.mark.parametrize("rise", [0.0, 6.0])
def test_noise_that_rises_is_known_from_constant_noise(rise: float) -> None:
    generator = np.random.default_rng(0)
    x = generator.random((64, DIM))
    errors = 0.3 * np.exp(rise * (x[:, 0] - 0.5) / 2) * generator.standard_normal(64)
    known = History(x, np.sin(4 * x[:, 0]) + x[:, 1] ** 2 + errors, np.int32(64))
    surrogate = gp()
    state = surrogate.fit(surrogate.init(jax.random.key(0), known), known)
    assert (state.hyper.noise_slopes.any()) == (rise > 0)
    if rise:
        assert state.hyper.noise_slopes[0] > 3 and np.abs(state.hyper.noise_slopes[1:]).max() < 1.5
        with jax.enable_x64(True):
            noise = np.diag(exact.posterior(state).joint(jnp.array([[0.1, 0.5, 0.5], [0.9, 0.5, 0.5]])).noise)
        np.testing.assert_allclose(np.log(noise[1] / noise[0]), 0.8 * state.hyper.noise_slopes[0], rtol=1e-4)
        assert len(evidence.drawn(state.hyper, known, 4)[0]) == 4


def test_fitting_maximizes_the_posterior_of_the_hyperparameters() -> None:
    surrogate, known = gp(), history(12)

    def loss(hyper: Any) -> tuple[float, np.ndarray]:
        return evidence.loss(evidence.flatten(hyper, PLACES), evidence.told(known))

    first = surrogate.init(jax.random.key(0), known)
    state = surrogate.fit(first, known)
    warm = surrogate.fit(state, known)
    begun, (fitted, slopes), again = loss(first.hyper)[0], loss(state.hyper), loss(warm.hyper)[0]
    assert fitted < begun - 1 and again <= fitted + 1e-9
    assert np.abs(slopes).max() < 0.5


# Mixtures


def averaged(**options: Any) -> Any:
    surrogate, known = gp(**options), history()
    return surrogate.averaged(surrogate.fit(surrogate.init(jax.random.key(0), known), known), known, 8)


def test_one_draw_is_the_most_likely_process_to_the_bit() -> None:
    state, known = averaged(draws=1), history()
    jax.tree.map(np.testing.assert_array_equal, state, exact.condition(evidence.fitted(known), known))


def test_hyperparameters_are_fitted_again_when_a_32nd_more_is_known() -> None:
    surrogate, known = gp(), history(33)
    state = surrogate.fit(surrogate.init(jax.random.key(0), known), known)
    kept, again = (surrogate.fit(state, history(count)) for count in (34, 35))
    np.testing.assert_array_equal(kept.hyper.log_length_scales, state.hyper.log_length_scales)
    assert np.any(again.hyper.log_length_scales != state.hyper.log_length_scales)
    assert [int(one.fitted) for one in (state, kept, again)] == [33, 33, 35] and kept.keep.sum() == 34


def test_moments_of_a_mixture_are_those_of_its_members() -> None:
    with jax.enable_x64(True):
        state = averaged()
        weights = np.exp(state.log_weights)
        parts = jax.vmap(lambda member: exact.posterior(member).joint(jnp.asarray(NEW)))(state.members)
        at = exact.mixture_posterior(state)
        found, mean = jax.tree.map(np.asarray, (at.joint(jnp.asarray(NEW)), at.mean(jnp.asarray(NEW))))
    assert len(weights) == 8 and weights.sum() == pytest.approx(1) and weights.max() < 0.9
    center = weights @ np.asarray(parts.mean)
    second = np.einsum("k,kij->ij", weights, parts.cov + parts.mean[:, :, None] * parts.mean[:, None])
    np.testing.assert_allclose(found.mean, center, rtol=1e-10)
    np.testing.assert_allclose(mean, center, rtol=1e-10)
    np.testing.assert_allclose(found.cov, second - np.outer(center, center), atol=1e-10)


def test_draws_are_around_the_maximum_and_weighted_by_the_posterior() -> None:
    hyper, known = evidence.fitted(history()), evidence.told(history())
    drawn, log_weights = evidence.drawn(hyper, history(), 32)
    center, points = evidence.flatten(hyper, PLACES), np.array([evidence.flatten(one, PLACES) for one in drawn])
    losses = np.array([evidence.loss(point, known)[0] for point in points])
    assert np.all(losses > evidence.loss(center, known)[0] - 0.5)
    spread = np.sqrt(np.mean((points - center) ** 2, axis=0))
    assert spread[2] > 2 * spread[0] and np.all(spread[:2] < 0.5)  # nothing depends on the third column
    assert len(center) == DIM + 2 and np.exp(log_weights).sum() == pytest.approx(1)


@pytest.mark.parametrize(("rows", "count"), [(16, 8), (64, 8), (128, 4), (256, 2), (512, 1), (2048, 1)])
def test_longer_histories_have_fewer_members(rows: int, count: int) -> None:
    known = history()._replace(x=np.zeros((rows, DIM)), y=np.zeros(rows), filled=np.int32(0))
    state = gp().averaged(gp().init(jax.random.key(0), known), known._replace(filled=np.int32(2)), 8)
    assert len(state.log_weights if count > 1 else [0]) == count
    assert isinstance(state, exact.Mixture if count > 1 else exact.Process)


@pytest.mark.parametrize("kind", ["sparse", "mixture"])
def test_draws_have_the_moments(kind: str) -> None:
    with jax.enable_x64(True):
        if kind == "mixture":
            posterior = exact.mixture_posterior(averaged())
        else:
            noisy = HYPER._replace(log_noise=np.log(0.3))
            posterior = exact.posterior(sparse._condition(noisy, history(), 12))
        mean, cov = moments(posterior)
        keys = jax.random.split(jax.random.key(0), 1000)
        draws = np.asarray(jax.lax.map(lambda key: posterior.draw(key)(NEW), keys, batch_size=100))
    stds = np.sqrt(np.diag(cov))
    np.testing.assert_allclose(np.mean(draws, 0), mean, atol=0.15 * stds.max())
    np.testing.assert_allclose(np.std(draws, 0), stds, rtol=0.2, atol=0.02)


# Long histories


def test_with_all_points_the_sparse_process_is_exact() -> None:
    with jax.enable_x64(True):
        known = history(noise=NOISE)
        few = sparse._condition(HYPER, known, points=50)
        found, expected = (moments(exact.posterior(s)) for s in (few, exact.condition(HYPER, known)))
    assert few.keep.sum() == COUNT
    np.testing.assert_allclose(found[0], expected[0], atol=1e-7)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-7)


def test_fewer_points_are_close() -> None:
    with jax.enable_x64(True):
        known = history()
        full = moments(exact.posterior(exact.condition(HYPER, known)))
        errors = []
        for points in (8, 16, 32):
            mean, cov = moments(exact.posterior(sparse._condition(HYPER, known, points)))
            errors.append(np.abs(mean - full[0]).max())
            assert np.linalg.eigvalsh(cov).min() > 0
    assert errors[2] < 0.02 and errors[2] < errors[0]
    np.testing.assert_allclose(np.diag(cov), np.diag(full[1]), rtol=0.2, atol=1e-3)


def test_points_that_repeat_are_chosen_once() -> None:
    known = history()
    known.x[10:COUNT] = known.x[0]
    with jax.enable_x64(True):
        state = sparse._condition(HYPER, known, points=32)
        mean, cov = moments(exact.posterior(state))
    assert state.keep.sum() == 10 and np.isfinite(mean).all() and np.linalg.eigvalsh(cov).min() > -1e-9


def test_the_wide_network_tends_to_the_gaussian_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "fitted", lambda *_, **__: HYPER)
    with jax.enable_x64(True):
        expected = moments(exact.posterior(exact.condition(HYPER, history(noise=NOISE))))
        errors = []
        for units in (64, 1024):
            surrogate, known = wide.hilofi(DIM, units=units, initial_std_hidden=0.0), history(dtype=np.float32)
            known = known._replace(noise=NOISE.astype(np.float32))
            state = surrogate.fit(surrogate.init(jax.random.key(0), known), known)
            found = moments(surrogate.posterior(state), np.float32)
            errors.append([np.abs(a - b).max() for a, b in zip(found, expected, strict=True)])
    assert np.all(np.array(errors[1]) < [0.05, 0.015]) and errors[1][1] < errors[0][1] / 2


def test_the_wide_network_is_calibrated_once_and_continues() -> None:
    surrogate = surrogates.make("hilofi", DIM, units=32)
    known = history(20, np.float32)
    first = surrogate.fit(surrogate.init(jax.random.key(0), known), known)
    longer = history(COUNT, np.float32)
    both = [surrogate.fit(first, longer), surrogate.condition_on(first, longer)]
    for state in both:
        assert int(state.absorbed) == COUNT
        jax.tree.map(np.testing.assert_array_equal, state.layer, first.layer)
    assert surrogate.noise_variance is not None and 0 < float(surrogate.noise_variance(both[0])) < 0.1
    means = [surrogate.posterior(state).mean(jnp.asarray(NEW, np.float32)) for state in both]
    np.testing.assert_array_equal(*means)


# Filters


def linear_regression(known: History, std: float, noise: float, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of Bayesian linear regression on [2 (2x - 1), 1], whose first weights are zero."""
    count = int(known.filled)
    features = np.column_stack([2 * (2 * known.x[:count] - 1), np.ones(count)])
    at = np.column_stack([2 * (2 * new - 1), np.ones(len(new))])
    cov = np.linalg.inv(features.T @ features / noise + np.eye(features.shape[1]) / std**2)
    return at @ cov @ features.T @ known.y[:count] / noise, at @ cov @ at.T


def test_a_filter_over_a_linear_network_is_bayesian_regression() -> None:
    make = functools.partial(filters.ekf, initial_std=0.7)
    surrogate = over_mlp(make, DIM, features=(), noise_variance=0.01)
    init, fit, extend = surrogate.init, surrogate.fit, surrogate.condition_on
    joint = jax.jit(lambda belief, new: surrogate.posterior(belief).joint(new))
    state = init(jax.random.key(0), history(0, np.float32))
    for count, renewed in ((5, True), (6, False), (15, False)):
        known = history(count, np.float32)
        extended = extend(state, known)
        state = fit(init(jax.random.key(0), known) if renewed else state, known)
        mean, cov = linear_regression(history(count), 0.7, 0.01, NEW)
        for belief in (state, extended):
            at = joint(belief, jnp.asarray(NEW, jnp.float32))
            np.testing.assert_allclose(at.mean, mean, atol=1e-3)
            np.testing.assert_allclose(at.cov, cov, atol=2e-4)


def test_the_climb_follows_the_gradient_of_a_filter() -> None:
    """That of LRKF's variance, in which process noise arrives by a branch."""
    surrogate = surrogates.make("lrkf", DIM, features=(4,), rank=2, process_noise=0.5)
    known = history(dtype=np.float32)
    belief = surrogate.fit(surrogate.init(jax.random.key(0), known), known)
    state = belief._replace(
        learned=belief.learned._replace(blocks=(belief.learned.blocks[0]._replace(accumulated_noise=jnp.float32(0.5)),))
    )

    def variance(x: Any) -> Any:
        return surrogate.posterior(state).joint(x[None]).cov[0, 0]

    x, step = jnp.asarray(NEW[0], jnp.float32), 1e-2
    numeric = [(variance(x + step * e) - variance(x - step * e)) / (2 * step) for e in np.eye(DIM, dtype=np.float32)]
    np.testing.assert_allclose(jax.grad(variance)(x), numeric, rtol=2e-2, atol=1e-3)


# Choices


def test_auto_chooses_by_what_has_been_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    assert [surrogates.choose(told) for told in (0, 1000, 1001)] == ["gp", "gp", "sparse_gp"]
    monkeypatch.setattr(surrogates, "_MOST_EXACT", 5)
    optimizer = quick(surrogate="auto")
    assert optimizer.surrogate == "gp" and "exact" in optimizer.reason
    for _ in range(5):
        optimizer.tell(trial := optimizer.ask(), BRANIN(trial.x))
    optimizer.ask()
    optimizer.tell([0.0, 0.0], BRANIN([0.0, 0.0]))
    assert optimizer.surrogate == "gp"
    optimizer.save(tmp_path / "before")
    prediction = optimizer.predict([1.0, 1.0])
    assert optimizer.surrogate == "sparse_gp" and "slow" in optimizer.reason
    loaded = BayesianOptimizer.load(tmp_path / "before")
    assert loaded.surrogate == "gp" and loaded.predict([1.0, 1.0]) == prediction
    asked = [one.ask().x.tolist() for one in (optimizer, loaded)]
    assert asked[0] == asked[1] and loaded.surrogate == "sparse_gp"
    optimizer.save(tmp_path / "after")
    again = BayesianOptimizer.load(tmp_path / "after")
    assert again.surrogate == "sparse_gp" and again.ask().x.tolist() == optimizer.ask().x.tolist()


@pytest.mark.parametrize("name", acquisitions.names())
def test_what_an_acquisition_is_agrees_with_what_it_takes(name: str) -> None:
    """A policy that needs a row in the tables of the acquisitions has it."""
    taken = set(policies.REGISTRY.parameters(name))
    assert (name in acquisitions.IMPROVEMENTS) == (set(Incumbent._fields) <= taken) == ("best" in taken)
    assert set(acquisitions.SETTINGS.get(name, {})) == taken & {"width"}


# Columns of one parameter

LEVELS = History(
    np.column_stack([np.eye(4)[np.arange(ROWS) * 7 % 4], np.random.default_rng(2).random((ROWS, 1))]),
    np.sin(np.arange(ROWS) * 7 % 4) + np.random.default_rng(2).random(ROWS),
    np.int32(ROWS),
    places=np.array([0, 0, 0, 0, 1]),
)


def test_a_choice_has_one_length_scale_and_its_kernel_knows_equality_alone() -> None:
    hyper = evidence.fitted(LEVELS)
    scales = np.exp(hyper.log_length_scales)
    assert np.ptp(scales[:4]) == 0 and scales[4] != scales[0]
    assert len(evidence.flatten(hyper, LEVELS.places)) == 4
    level, u = LEVELS.x[:, :4].argmax(1), LEVELS.x[:, 4]
    squares = 2 * (level[:, None] != level) / scales[0] ** 2 + ((u[:, None] - u) / scales[4]) ** 2
    r = np.sqrt(5 * squares)
    expected = 1 + np.exp(hyper.log_scale) * (1 + r + r**2 / 3) * np.exp(-r)
    np.testing.assert_allclose(evidence.covariances(hyper, LEVELS.x, LEVELS.x), expected, atol=1e-6)


def test_the_gradient_of_a_common_length_scale_is_that_of_differences() -> None:
    known, flat = evidence.told(LEVELS), np.array([0.3, -0.4, 0.2, -2.0])
    _, slopes = evidence.loss(flat, known)
    steps = 1e-5 * np.eye(4)
    found = [(evidence.loss(flat + step, known)[0] - evidence.loss(flat - step, known)[0]) / 2e-5 for step in steps]
    np.testing.assert_allclose(slopes, found, rtol=1e-5)
