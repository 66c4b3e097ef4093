"""Gaussian processes with drawn hyperparameters; questions where values are equal or a trust region has shrunk."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec.bo import BayesianOptimizer, Search, gp
from seqdec.bo.surrogates import evidence, gaussian_process
from tests.test_bo_surrogates import DIM, NEW, history

QUICK = Search(raw_samples=64, num_restarts=4, steps=10)


def fitted(**options: Any) -> gaussian_process.Mixture:
    surrogate, known = gp(**options), history()
    return surrogate.fit(surrogate.init(jax.random.key(0), known), known)


def test_one_draw_is_the_most_likely_process_to_the_bit() -> None:
    with jax.enable_x64(True):
        state, known = fitted(draws=1), history()
        best = gaussian_process.condition(evidence.fitted(known), known)
        jax.tree.map(np.testing.assert_array_equal, state.best, best)
        found = gaussian_process.mixture_posterior(state).joint(jnp.asarray(NEW))
        expected = gaussian_process.posterior(best).joint(jnp.asarray(NEW))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15), found, expected)


@pytest.mark.extended
def test_moments_are_those_of_the_members_and_of_draws() -> None:
    with jax.enable_x64(True):
        state = fitted()
        weights = np.exp(state.log_weights)
        members = [jax.tree.map(lambda leaf, k=k: leaf[k], state.members) for k in range(len(weights))]
        parts = [gaussian_process.posterior(member).joint(jnp.asarray(NEW)) for member in members]
        at = gaussian_process.mixture_posterior(state)
        found, mean = jax.tree.map(np.asarray, (at.joint(jnp.asarray(NEW)), at.mean(jnp.asarray(NEW))))
        keys = jax.random.split(jax.random.key(0), 800)
        draws = np.asarray(jax.lax.map(lambda key: at.draw(key)(jnp.asarray(NEW)), keys, batch_size=100))
        parts = jax.tree.map(np.asarray, parts)
    assert len(weights) == 8 and weights.sum() == pytest.approx(1) and weights.max() < 0.9
    means, covs = np.array([part.mean for part in parts]), np.array([part.cov for part in parts])
    center = weights @ means
    second = np.einsum("k,kij->ij", weights, covs + means[:, :, None] * means[:, None])
    np.testing.assert_allclose(found.mean, center, rtol=1e-10)
    np.testing.assert_allclose(mean, center, rtol=1e-10)
    np.testing.assert_allclose(found.cov, second - np.outer(center, center), atol=1e-10)
    stds = np.sqrt(np.diagonal(found.cov))
    np.testing.assert_allclose(np.mean(draws, 0), center, atol=0.1 * stds.max())
    np.testing.assert_allclose(np.std(draws, 0), stds, rtol=0.2)


def test_draws_are_around_the_maximum_and_weighted_by_the_posterior() -> None:
    known = evidence.told(history())
    hyper = evidence.fitted(history())
    drawn, log_weights = evidence.drawn(hyper, known, 32)
    center, points = evidence.flatten(hyper), np.array([evidence.flatten(one) for one in drawn])
    losses = np.array([evidence.loss(point, known)[0] for point in points])
    assert np.all(losses > evidence.loss(center, known)[0] - 0.5)
    spread = np.sqrt(np.mean((points - center) ** 2, axis=0))
    assert spread[2] > 2 * spread[0] and np.all(spread[:2] < 0.5)  # nothing depends on the third column
    assert len(center) == DIM + 2 and np.exp(log_weights).sum() == pytest.approx(1)


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
@pytest.mark.parametrize("scale", [1e160, 1e300, 1e-300])
@pytest.mark.parametrize("standardize", [False, True])
def test_values_whose_squares_overflow(scale: float, standardize: bool) -> None:
    optimizer = BayesianOptimizer([(0.0, 1.0)] * 2, seed=0, search=QUICK, capacity=32, standardize=standardize)
    for _ in range(6):
        trial = optimizer.ask()
        optimizer.tell(trial, scale * (float(np.sum(np.square(trial.x))) - 0.3))
    found = optimizer.predict([0.5, 0.5])
    assert np.isfinite(found if standardize else found.mean).all() and optimizer.is_fitted


@pytest.mark.parametrize(("rows", "count"), [(16, 8), (64, 8), (128, 4), (256, 2), (512, 1), (2048, 1)])
def test_longer_histories_have_fewer_members(rows: int, count: int) -> None:
    known = history()._replace(x=np.zeros((rows, DIM)), y=np.zeros(rows), filled=np.int32(0))
    assert len(gp().init(jax.random.key(0), known).log_weights) == count


@pytest.mark.extended
@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_intervals_hold(noise: float) -> None:
    """On sums of random waves and a bowl, at random points, after thirty calls."""
    hits = []
    for seed in range(12):
        generator = np.random.default_rng([seed, 3])
        dim = 2 + seed % 3
        waves, phases, center = (
            generator.normal(size=(12, dim)) * 3,
            generator.uniform(0, 6.3, 12),
            generator.random(dim),
        )

        def fun(x: Any, waves: Any = waves, phases: Any = phases, center: Any = center) -> float:
            return float(np.cos(waves @ np.asarray(x) + phases).mean() + 2 * np.sum((np.asarray(x) - center) ** 2))

        points = generator.random((30, dim))
        std = noise * np.std([fun(point) for point in points])
        optimizer = BayesianOptimizer([(0.0, 1.0)] * dim, seed=seed, capacity=64)
        for _ in range(30):
            trial = optimizer.ask()
            optimizer.tell(trial, fun(trial.x) + std * generator.standard_normal())
        found = [optimizer.predict(point) for point in points]
        hits += [at.low <= fun(point) <= at.high for at, point in zip(found, points, strict=True)]
    assert 0.88 <= np.mean(hits) <= 0.995


@pytest.mark.parametrize("value", [0.0, -3.5])
def test_equal_values_are_asked_as_the_design(value: float) -> None:
    optimizer = BayesianOptimizer([(0.0, 1.0)] * 2, seed=0, search=QUICK, capacity=32)
    for _ in range(20):
        optimizer.tell(optimizer.ask(), value)
    points = np.array([trial.x for trial in optimizer.trials])
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 21)] * 2), -1).reshape(-1, 1, 2)
    assert np.abs(grid - points).max(-1).min(-1).max() < 0.26 and not optimizer.is_fitted  # no large gap
    optimizer.tell(optimizer.ask(), value - 1)
    optimizer.ask()
    assert optimizer.is_fitted


def test_a_trust_region_that_has_shrunk_begins_anew_all_over_the_space() -> None:
    optimizer = BayesianOptimizer([(0.0, 1.0)] * 2, seed=0, search=QUICK, capacity=64, trust_region=True, initial=4)
    for x in np.random.default_rng(0).random((4, 2)):
        optimizer.tell(list(x), float(np.sum(x)))
    for x in np.random.default_rng(1).random((28, 2)) * 0.01 + 0.4:  # seven halvings
        optimizer.tell(list(x), 5.0)
    anew = [optimizer.tell(optimizer.ask(), 3.0 + i) for i in range(4)]
    assert np.ptp([trial.x for trial in anew], axis=0).min() > 0.4
    after = optimizer.ask()
    assert np.all(np.abs(after.x - anew[0].x) <= 0.4)  # around the best of these, not of all
