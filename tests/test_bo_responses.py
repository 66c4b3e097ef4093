"""Responses of Bayesian optimization: their warp against oracles, outliers, noise, predictions and recommendations."""

import copy
import math
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import gaussian_process as sklearn_processes

import seqdec
from seqdec.bo import BayesianOptimizer, History, Search, suggestion
from seqdec.bo import model as programs
from seqdec.bo import output_warp as responses
from seqdec.bo.output_warp import Warp
from seqdec.bo.surrogates import evidence, gaussian_process
from seqdec.envs import objectives

BOX = [(-5.0, 10.0), (0.0, 15.0)]
REGRESSOR: Any = sklearn_processes.GaussianProcessRegressor  # the stubs know neither arrays nor None
KERNELS: Any = sklearn_processes.kernels
QUICK = Search(raw_samples=64, num_restarts=4, steps=10)
BRANIN = objectives.branin()


def quick(**options: Any) -> BayesianOptimizer:
    """An optimizer that shares its programs with the other tests'."""
    return BayesianOptimizer(BOX, **{"seed": 0, "capacity": 32, "search": QUICK, **options})


def told(count: int, noise: float = 0.0, **options: Any) -> BayesianOptimizer:
    """An optimizer that was told values of Branin's function at random points."""
    optimizer, generator = quick(**options), np.random.default_rng(0)
    for x in generator.uniform((-5, 0), (10, 15), (count, 2)):
        optimizer.tell(x, BRANIN(x) + noise * generator.standard_normal())
    return optimizer


def draw(count: int, seed: int, length: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Points of the unit square and values of a function drawn from a Gaussian process."""
    generator = np.random.default_rng(seed)
    x = generator.random((count, 2))
    cov = KERNELS.Matern(length, nu=2.5)(x) + 1e-8 * np.eye(count)
    return x, np.linalg.cholesky(cov) @ generator.standard_normal(count)


# Warp

WARPS = st.builds(
    Warp,
    origin=st.floats(-100, 100),
    scale=st.floats(0.01, 100),
    power=st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0]),
    mean=st.floats(-3, 3),
    std=st.floats(0.1, 10),
    symmetric=st.booleans(),
)


@settings(deadline=None)
@given(WARPS, st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=8, unique=True))
def test_a_warp_is_yeo_johnsons_transform_or_symmetric_and_increases(warp: Warp, values: list[float]) -> None:
    y = np.sort(values)
    z, u = warp.forward(y), (y - warp.origin) / warp.scale
    yeojohnson: Any = stats.yeojohnson
    psi = np.copysign(np.log(1 + np.abs(u)), u) if warp.symmetric else yeojohnson(u, warp.power)
    oracle = (psi - warp.mean) / warp.std
    np.testing.assert_allclose(z, oracle, rtol=1e-9, atol=1e-9)
    assert np.all(np.diff(z)[np.diff(y) > 1e-6] > 0) and np.all(warp.slope(y) > 0)
    np.testing.assert_allclose(warp.inverse(z), y, rtol=1e-6, atol=1e-6)
    change = 1e-5 * warp.scale
    finite = (warp.forward(y + change) - warp.forward(y - change)) / (2 * change)
    np.testing.assert_allclose(warp.slope(y), finite, rtol=1e-3, atol=1e-9 / change)


def test_the_expected_response_of_a_warped_normal() -> None:
    mean, std = np.array([-1.0, 0.5]), np.array([0.3, 0.8])
    for power in (0.5, 1.0, 1.5, 2.0):
        warp = Warp(2.0, 3.0, power, 0.4, 1.5)
        z = mean[:, None] + std[:, None] * stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
        np.testing.assert_allclose(warp.expected_inverse(mean, std), warp.inverse(z).mean(1), rtol=3e-3)


def test_outcomes_of_any_size_are_resolved_where_they_are_zero() -> None:
    generator = np.random.default_rng(0)
    x = generator.random((60, 2))
    plain = x[:, 0] + x[:, 1] - 1
    assert not responses.fit_outcome(x, plain).symmetric
    wide = np.sinh(12 * plain)  # up to 80,000 on both sides
    warp = responses.fit_outcome(x, wide)
    assert warp.symmetric and warp.fence == -math.inf and warp.fitted == 60
    near = warp.forward(np.array([-1.0, 0.0, 1.0]))
    assert np.diff(near).min() > 0.05 and abs(warp.forward(wide).std() - 1) < 1e-9
    scaled = responses.fit_outcome(x, 1e6 * wide)
    np.testing.assert_allclose(scaled.forward(1e6 * wide), warp.forward(wide), rtol=1e-6)
    assert responses.fit_outcome(x, np.zeros(60)).std == 1


def test_the_likelihood_of_a_warp_is_that_of_the_responses() -> None:
    x, y = draw(7, 0)
    warp = Warp(float(y.max()), 0.7, 2.0)
    w = warp.forward(y)
    w = w - w.mean()
    found = responses._log_likelihoods(x, w[:, None])[0] + np.sum(np.log(warp.slope(y)))
    best = -math.inf
    for length in responses._LENGTH_SCALES:
        cov = 1 + KERNELS.Matern(length * math.sqrt(2), nu=2.5)(x)
        for noise in responses._NOISE_VARIANCES:
            full = cov + noise * np.eye(7)
            amplitude = w @ np.linalg.solve(full, w) / 7
            density = stats.multivariate_normal(np.zeros(7), amplitude * full).logpdf(w)
            best = max(best, density - 0.5 * (math.log(length) + 0.5) ** 2)
    constant = -3.5 * (1 + math.log(2 * math.pi))
    assert found + constant == pytest.approx(best + np.sum(np.log(warp.slope(y))), rel=1e-9)


def test_the_identity_is_kept_where_it_fits_and_a_logarithm_found_where_it_does() -> None:
    plain, skewed = [], []
    for seed in range(10):
        x, f = draw(40, seed)
        plain.append(responses.fit(x, f).power)
        skewed.append(responses.fit(x, -np.exp(3 * f)).power)
    assert plain.count(1.0) >= 8 and min(skewed) > 1


@pytest.mark.parametrize("bad", [-1e12, -1e4])
def test_outliers_are_left_out_and_the_others_fitted_as_without_them(bad: float) -> None:
    for seed in range(5):
        x, f = draw(40, seed)
        y = np.where(np.arange(40) % 10 == 3, bad, f)
        warp, without = responses.fit(x, y), responses.fit(x[y == f], f[y == f])
        assert (y < warp.fence).tolist() == (y == bad).tolist()
        assert warp[:5] == pytest.approx(without[:5], rel=1e-9)


def test_nothing_is_left_out_of_a_steep_function() -> None:
    for seed in range(5):
        x, f = draw(40, seed, length=0.6)
        warp = responses.fit(x, -np.exp(8 * f))
        assert np.sum(-np.exp(8 * f) < warp.fence) == 0


@pytest.mark.parametrize(
    "y", [[1.0], [1.0, 1.0], [2.0] * 9, [0.0, 1e-300, 1.0, 2.0, 3.0, 1e12, 1e12], [1e300, -1e300] * 4]
)
def test_any_finite_responses_have_a_finite_warp(y: list[float]) -> None:
    values = np.array(y)
    x = np.random.default_rng(0).random((len(values), 3))
    warp = responses.fit(x, values)
    assert np.isfinite(warp.forward(values[values >= warp.fence])).all() and warp.std > 0 and warp.fitted == len(y)


# Noise


def test_known_noise_is_that_of_scikit_learn() -> None:
    x, y = draw(9, 0)
    noise = np.where(np.arange(9) % 2, 0.3, 0.01)
    with jax.enable_x64(True):
        hyper = evidence.Hyperparameters(np.log([0.4, 0.9]), np.log(1.7), np.log(0.05))
        new = np.random.default_rng(1).random((4, 2))

        def predict(given: np.ndarray) -> Any:
            state = gaussian_process.condition(hyper, History(x, y, np.int32(9), given))
            return jax.jit(lambda state: gaussian_process.posterior(state).joint(new)[:2])(state)

        cases = ((noise, noise), (np.where(noise > 0.1, -1.0, noise), np.where(noise > 0.1, 0.05, noise)))
        found = [(jax.device_get(predict(given)), used) for given, used in cases]
    kernel = KERNELS.ConstantKernel(1.0) + 1.7 * KERNELS.Matern([0.4, 0.9], nu=2.5)
    for (mean, cov), used in found:
        oracle = REGRESSOR(kernel, alpha=used + 1e-8, optimizer=None).fit(x, y)
        expected, covariance = oracle.predict(new, return_cov=True)
        np.testing.assert_allclose(mean, expected, rtol=1e-7)
        np.testing.assert_allclose(cov, covariance, atol=1e-9)


def warp(optimizer: BayesianOptimizer) -> Warp:
    """That of the first output."""
    return optimizer.fitted()[1].warps[0]


def variances(optimizer: BayesianOptimizer) -> np.ndarray:
    """The noise that the surrogate is given."""
    return np.asarray(optimizer.fitted()[1].trials.noise)


def test_noise_is_known_for_all_trials_for_some_or_for_none() -> None:
    optimizer = told(6)
    assert np.all(variances(optimizer) == -1)
    optimizer.tell([0.0, 0.0], 55.6, noise_std=2.0)
    noise = variances(optimizer)
    assert np.all(noise[:6] == -1) and noise[6] == pytest.approx((2 * warp(optimizer).slope(np.array([-55.6]))[0]) ** 2)
    exact = quick(noise_std=0.0)
    exact.tell([0.0, 0.0], 55.6)
    exact.tell([1.0, 0.0], 40.0, noise_std=1.0)
    noise = variances(exact)
    assert noise[0] == 0 and noise[1] > 0 and np.all(noise[2:] == 0)


@pytest.mark.parametrize(
    ("noise_std", "error", "message"),
    [
        (-0.1, ValueError, r"noise_std must lie in \[0, inf\); got -0.1"),
        (math.nan, ValueError, r"noise_std must lie in \[0, inf\); got nan"),
        (math.inf, ValueError, "noise_std must lie in"),
        ("0.1", TypeError, "noise_std must be a number; got '0.1'"),
    ],
)
def test_bad_noise_is_refused_and_nothing_recorded(noise_std: Any, error: type, message: str) -> None:
    optimizer = quick()
    with pytest.raises(error, match=message):
        optimizer.tell([0.0, 0.0], 1.0, noise_std=noise_std)
    with pytest.raises(error, match=message):
        quick(noise_std=noise_std)
    assert optimizer.trials == ()


def test_noise_needs_a_surrogate_that_uses_it() -> None:
    with pytest.raises(ValueError, match=r"noise_std is not used by the surrogate 'lrkf', got 0.5.* surrogate=\"gp\""):
        quick(surrogate="lrkf", noise_std=0.5)
    with pytest.raises(ValueError, match=r"noise_std is not used by the surrogate 'lrkf'"):
        quick(surrogate="lrkf").tell([0.0, 0.0], 1.0, noise_std=0.5)


# Predictions


def test_predictions_interpolate_exact_values_and_cover_new_ones() -> None:
    optimizer = told(24, noise_std=0.0)
    for x, value in zip(*optimizer.evaluations(), strict=True):
        at = optimizer.predict(x)
        assert at.mean == pytest.approx(value, abs=0.2) and at.low <= at.mean <= at.high
    new = np.random.default_rng(1).uniform((-5, 0), (10, 15), (60, 2))
    covered = [at.low <= BRANIN(x) <= at.high for x in new if (at := optimizer.predict(x))]
    assert sum(covered) >= 0.8 * 60


def test_a_prediction_changes_nothing() -> None:
    optimizer, other = told(8), told(8)
    for _ in range(2):
        first = optimizer.predict([0.0, 0.0])
        assert first == optimizer.predict([0.0, 0.0]) == copy.deepcopy(optimizer).predict([0.0, 0.0])
        optimizer.recommend()
        trials = [one.ask() for one in (optimizer, other)]
        assert trials[0].x.tolist() == trials[1].x.tolist()
        for one, trial in zip((optimizer, other), trials, strict=True):
            one.tell(trial, BRANIN(trial.x))
        assert optimizer.predict([0.0, 0.0]) != first


def test_predictions_of_the_largest_are_those_of_the_smallest_of_the_negative() -> None:
    down, up = told(12), quick(maximize=True)
    for x, value in zip(*down.evaluations(), strict=True):
        up.tell(x, -value)
    at, negative = down.predict([1.0, 2.0]), up.predict([1.0, 2.0])
    assert (negative.mean, negative.low, negative.high) == pytest.approx((-at.mean, -at.high, -at.low))


def test_what_cannot_be_predicted() -> None:
    optimizer = quick()
    with pytest.raises(ValueError, match="a prediction needs two values or more; got 0: tell further ones first"):
        optimizer.predict([0.0, 0.0])
    with pytest.raises(ValueError, match="no trial is complete yet"):
        optimizer.recommend()
    optimizer.tell([0.0, 0.0], 1.0)
    with pytest.raises(ValueError, match=r"x\[0\] = 11.0 lies outside the bounds"):
        optimizer.predict([11.0, 0.0])
    assert optimizer.recommend()[1:] == (1.0, 1.0, 1.0, "observed")


# Recommendations


def test_the_recommended_point_of_a_noisy_function_is_predicted() -> None:
    optimizer = told(30, noise=30.0, noise_std=30.0)
    best = optimizer.recommend()
    points, values = optimizer.evaluations()
    means = [optimizer.predict(x).mean for x in points]
    assert best.kind == "predicted" and best.value == min(means) and best.low < best.value < best.high
    assert best.x.tolist() == points[int(np.argmin(means))].tolist()
    assert best.value > values.min() and best.low <= BRANIN(best.x) <= best.high


def test_noise_is_found_in_the_values_or_not() -> None:
    assert told(30, noise=30.0).recommend().kind == "predicted"
    exact = told(30)
    assert exact.recommend().kind == "observed" and exact.recommend().value == exact.best[1]
    surprise = told(30, noise=30.0, noise_std=0.0)
    assert surprise.recommend().kind == "observed"


@pytest.mark.parametrize(
    ("noise", "noise_std", "repeats", "share"),
    [(30.0, None, 3, 1.0), (30.0, None, 1, 0.0), (30.0, 30.0, 1, 1.0), (0.0, None, 3, 0.0), (30.0, 0.0, 1, 0.0)],
)
@pytest.mark.parametrize("outcomes", [0, 1])
def test_the_improvement_is_augmented_by_the_noise_that_is_known_or_that_repeated_points_show(
    noise: float, noise_std: float | None, repeats: int, share: float, outcomes: int
) -> None:
    optimizer, generator = quick(noise_std=noise_std, outcome_constraints=outcomes), np.random.default_rng(0)
    for x in np.repeat(generator.uniform((-5, 0), (10, 15), (30 // repeats, 2)), repeats, axis=0):
        optimizer.tell(x, BRANIN(x) + noise * generator.standard_normal(), outcomes=[x[0] - 8] * outcomes)
    with jax.enable_x64(True):
        model, fitted = optimizer.fitted()
        belief = programs.believe(model.surrogate, fitted.state, fitted.trials)
        known = optimizer._observations()
        target = suggestion._target(optimizer._method, known, fitted, belief.means)
    means = np.reshape(belief.means, (30, -1))[:, 0]
    feasible = np.array([x[0] <= 8 or not outcomes for x in optimizer.evaluations()[0]])
    incumbent = target.best if outcomes else target
    assert incumbent.best == means[feasible].max()
    value = warp(optimizer).inverse(np.array([incumbent.best]))
    expected = share * noise * warp(optimizer).slope(value)[0]
    assert incumbent.noise_std == pytest.approx(expected, rel=0.5)


def test_minimize_says_what_its_answer_is() -> None:
    exact = seqdec.minimize(BRANIN, BOX, n_calls=6, seed=0, search=QUICK, noise_std=0.0, progress=False)
    assert (
        exact.kind == "observed" and exact.fun == exact.func_vals.min() and exact.fun_interval == (exact.fun, exact.fun)
    )
    generator = np.random.default_rng(0)
    noisy = seqdec.minimize(
        lambda x: BRANIN(x) + 30 * generator.standard_normal(),
        BOX,
        n_calls=10,
        seed=0,
        search=QUICK,
        noise_std=30.0,
        progress=False,
    )
    best = noisy.optimizer.recommend()
    assert noisy.kind == best.kind == "predicted" and noisy.fun == best.value and noisy.x.tolist() == best.x.tolist()
    assert noisy.fun_interval == (best.low, best.high)
    start = seqdec.minimize(BRANIN, BOX, n_calls=2, seed=0, noise_std=30.0, progress=False)
    assert start.kind == "observed"  # the surrogate has not been used


def test_outliers_are_not_in_the_way() -> None:
    calls: list[Any] = []

    def fun(x: Any) -> float:
        calls.append(x)
        return 1e12 if len(calls) % 10 == 4 else float(np.sum((x - np.array([1.3, 2.7])) ** 2))

    result = seqdec.minimize(fun, BOX, n_calls=30, seed=0, search=QUICK, progress=False)
    assert result.fun < 1e-2


# Studies


def test_a_study_keeps_warp_and_noise(tmp_path: Any) -> None:
    optimizer = told(8, noise_std=0.5)
    optimizer.tell([0.0, 0.0], 1e12, noise_std=0.25)
    optimizer.save(tmp_path / "study")
    loaded = BayesianOptimizer.load(tmp_path / "study")
    assert (
        warp(loaded) == warp(optimizer)
        and loaded.settings.noise_std == 0.5
        and loaded._record.entries[8].noise_std == 0.25
    )
    assert loaded.recommend()[1:] == optimizer.recommend()[1:]
