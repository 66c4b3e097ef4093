"""The surrogates for long histories against the exact Gaussian process."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import policies
from seqdec.bo.acquisition import names as acquisitions
from seqdec.bo.acquisition.feasibility import Incumbent
from seqdec.bo.acquisition.names import is_smooth, make
from seqdec.bo.acquisition.names import names as acquisition_names
from seqdec.bo.model import Trials
from seqdec.bo.search import ascent as suggest
from seqdec.bo.search.ascent import Plan
from seqdec.bo.search.candidates import Region, Search
from seqdec.bo.surrogates import contract as surrogates
from seqdec.bo.surrogates import evidence
from seqdec.bo.surrogates import gaussian_process as exact
from seqdec.bo.surrogates import random_features as wide
from seqdec.bo.surrogates import sparse_gaussian_process as sparse
from seqdec.bo.surrogates.contract import History

DIM, COUNT, ROWS = 3, 40, 64
HYPER = evidence.Hyperparameters(np.log([0.5, 0.8, 3.0]), np.log(0.7), np.log(1e-3))
NEW = np.random.default_rng(1).random((9, DIM))


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


def test_the_prior_is_the_density_of_its_normals() -> None:
    variances, generator = evidence._SHARED_VARIANCE, np.random.default_rng(2)
    shift, scale, noise = generator.normal(size=DIM), 0.3, -0.8
    middle = evidence.prior_mean(DIM)
    value, slope = evidence.negative_log_prior(evidence.flatten(middle) + np.concatenate([shift, [scale, noise]]))
    cov = evidence._OWN_VARIANCE * np.eye(DIM) + variances
    solved = np.linalg.solve(cov, shift)
    assert value == pytest.approx(0.5 * (shift @ solved + scale**2 + noise**2 / 9))
    np.testing.assert_allclose(slope, [*solved, scale, noise / 9])


def test_with_all_points_the_sparse_process_is_exact() -> None:
    noise = np.where(np.arange(ROWS) % 3 == 0, 0.04, -1.0)
    with jax.enable_x64(True):
        known = history(noise=noise)
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


@pytest.mark.extended
@pytest.mark.parametrize("points", [12, 50])
def test_draws_of_the_sparse_process_have_its_moments(points: int) -> None:
    with jax.enable_x64(True):
        posterior = exact.posterior(sparse._condition(HYPER, history(), points))
        mean, cov = moments(posterior)
        keys = jax.random.split(jax.random.key(0), 2000)
        draws = np.asarray(jax.lax.map(lambda key: posterior.draw(key)(NEW), keys))
    stds = np.sqrt(np.diag(cov))
    np.testing.assert_allclose(np.mean(draws, 0), mean, atol=0.15 * stds.max())
    np.testing.assert_allclose(np.std(draws, 0), stds, rtol=0.15, atol=0.02)


@pytest.mark.extended
def test_the_wide_network_tends_to_the_gaussian_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "fitted", lambda *_, **__: HYPER)
    noise = np.where(np.arange(ROWS) % 3 == 0, 0.04, -1.0)
    with jax.enable_x64(True):
        expected = moments(exact.posterior(exact.condition(HYPER, history(noise=noise))))
        errors = []
        for units in (64, 4096):
            surrogate, known = wide.hilofi(DIM, units=units, initial_std_hidden=0.0), history(dtype=np.float32)
            known = known._replace(noise=noise.astype(np.float32))
            state = surrogate.fit(surrogate.init(jax.random.key(0), known), known)
            found = moments(surrogate.posterior(state), np.float32)
            errors.append([np.abs(a - b).max() for a, b in zip(found, expected, strict=True)])
    assert np.all(np.array(errors[1]) < 0.02) and np.all(np.array(errors[1]) < np.array(errors[0]) / 2)


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


SMALL: dict[str, dict[str, Any]] = {
    "ekf": {"features": (4,)},
    "hilofi": {"units": 8},
    "hilofi_mlp": {"features": (4,), "rank": 2},
    "last_layer_laplace": {"features": (4,), "inner_steps": 2},
    "lofi": {"features": (4,), "rank": 2},
    "lolofi": {"features": (4,), "rank_hidden": 2, "rank_last": 2},
    "lrkf": {"features": (4,), "rank": 2},
    "on_vbll": {"features": (4,), "inner_steps": 2},
    "vbll": {"features": (4,), "inner_steps": 2},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", surrogates.names())
def test_every_acquisition_is_climbed_on_every_surrogate(name: str) -> None:
    """Traced only: compiled, each would take a second."""
    surrogate, search = surrogates.make(name, DIM, **SMALL.get(name, {})), Search(2, 2, 3)
    dtype = surrogate.dtype
    points = np.zeros((2, DIM), dtype)
    with jax.enable_x64(dtype == jnp.float64):
        known = history(dtype=dtype)
        state = surrogate.init(jax.random.key(0), known)
        trials = Trials(known.x, known.y, known.filled, np.int32(0), np.int32(0))
        arguments = jax.random.key(1), state, Incumbent(*np.zeros(2, dtype)), trials
        for acquisition in map(make, acquisition_names()):
            smooth = is_smooth(acquisition(Incumbent(*jnp.zeros(2))))
            plan = Plan(surrogate, acquisition, smooth, search)
            assert suggest.score.eval_shape(plan, *arguments, points).shape == (2,)
            if smooth:
                region, free = Region(np.zeros(DIM, dtype), np.ones(DIM, dtype)), np.ones((2, DIM), bool)
                top, _ = suggest.climb.eval_shape(plan, *arguments, region, points, free)
                assert top.shape == (2, DIM)


def test_the_climb_follows_the_gradient_of_a_filter() -> None:
    """That of LRKF's variance, in which process noise arrives by a branch."""
    surrogate = surrogates.make("lrkf", DIM, **SMALL["lrkf"], process_noise=0.5)
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


@pytest.mark.parametrize("name", acquisitions.names())
def test_what_an_acquisition_is_agrees_with_what_it_takes(name: str) -> None:
    """A policy that needs a row in the tables of the acquisitions has it."""
    taken = set(policies.REGISTRY.parameters(name))
    assert (name in acquisitions.IMPROVEMENTS) == (set(Incumbent._fields) <= taken) == ("best" in taken)
    assert set(acquisitions.SETTINGS.get(name, {})) == taken & {"propensity_samples", "width"}
