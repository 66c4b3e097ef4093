"""Responses: their warp against oracles, outliers, noise, predictions and recommendations."""

import copy
import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import gaussian_process as sklearn_processes

from seqdec.bo import BayesianOptimizer, Categorical, Exhausted, History, Integer, suggestion
from seqdec.bo import model as programs
from seqdec.bo import output_warp as responses
from seqdec.bo.output_warp import Warp
from seqdec.bo.surrogates.evidence import shows_noise
from tests.bo.common import BRANIN, QUICK, minimum, quick, searched

KERNELS: Any = sklearn_processes.kernels  # the stubs know neither arrays nor None
PLACES = np.arange(2)
SIX = {"y": Integer(1, 3), "z": Categorical(("a", "b"))}


def told(fun: Any, count: int, seed: int = 0, repeats: int = 1, **options: Any) -> BayesianOptimizer:
    """An optimizer that was told values at random points, the first several times."""
    optimizer = quick(capacity=32, **options)
    points = np.random.default_rng(seed).uniform((-5, 0), (10, 15), (count, 2))
    for x in [*points, *points[:1].repeat(repeats - 1, axis=0)]:
        optimizer.tell(x, fun(x))
    return optimizer


def noisy(std: float, seed: int = 0) -> Any:
    generator = np.random.default_rng(seed)
    return lambda x: BRANIN(x) + std * generator.standard_normal()


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
        plain.append(responses.fit(x, f, PLACES).power)
        skewed.append(responses.fit(x, -np.exp(3 * f), PLACES).power)
    assert plain.count(1.0) >= 8 and min(skewed) > 1


@pytest.mark.parametrize("worse", [10.0, 1e4, 1e12])
def test_outliers_are_left_out_and_the_others_fitted_as_without_them(worse: float) -> None:
    for seed in range(5):
        x, f = draw(40, seed)
        bad = np.arange(40) % 10 == 3
        warp, without = responses.fit(x, f - worse * bad, PLACES), responses.fit(x[~bad], f[~bad], PLACES)
        assert warp.outliers == tuple(np.flatnonzero(bad)) and not without.outliers
        assert warp[:5] == pytest.approx(without[:5], rel=1e-9)


def test_values_that_are_better_are_no_outliers_and_nothing_is_left_out_of_a_steep_function() -> None:
    for seed in range(5):
        x, f = draw(40, seed, length=0.6)
        assert not responses.fit(x, f + 10 * (np.arange(40) == 3), PLACES).outliers
        assert not responses.fit(x, -np.exp(8 * f), PLACES).outliers


@pytest.mark.parametrize(
    "y", [[1.0], [1.0, 1.0], [2.0] * 9, [0.0, 1e-300, 1.0, 2.0, 3.0, 1e12, 1e12], [1e300, -1e300] * 4]
)
def test_any_finite_responses_have_a_finite_warp(y: list[float]) -> None:
    values = np.array(y)
    x = np.random.default_rng(0).random((len(values), 2))
    warp = responses.fit(x, values, PLACES)
    assert np.isfinite(warp.forward(values[values >= warp.fence])).all() and warp.std > 0 and warp.fitted == len(y)


def test_outliers_are_not_in_the_way() -> None:
    calls: list[Any] = []

    def fun(x: Any) -> float:
        calls.append(x)
        return 1e12 if len(calls) % 10 == 4 else float(np.sum((x - np.array([1.3, 2.7])) ** 2))

    assert minimum(fun, n_calls=30).fun < 1e-2


# Noise


def warp(optimizer: BayesianOptimizer) -> Warp:
    """That of the first output."""
    return optimizer.fitted()[1].warps[0]


def variances(optimizer: BayesianOptimizer) -> np.ndarray:
    """The noise that the surrogate is given."""
    return np.asarray(optimizer.fitted()[1].trials.noise)


def test_noise_is_known_for_all_trials_for_some_or_for_none() -> None:
    optimizer = told(BRANIN, 6)
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


def rough(x: Any) -> float:
    """Changes faster than a few points tell."""
    u, v = (x[0] + 5) / 15, x[1] / 15
    return math.sin(37 * u) + 0.5 * math.sin(91 * v)


def estimates(optimizer: BayesianOptimizer) -> float:
    """The share of noise that the surrogate estimates."""
    model, fitted = optimizer.fitted()
    assert model.surrogate.noise_variance is not None
    return float(model.surrogate.noise_variance(fitted.state))


def test_of_a_rough_function_the_best_evaluated_point_is_recommended() -> None:
    optimizers = [told(rough, 20, seed) for seed in range(12)]
    assert sum(estimates(optimizer) > 0.01 for optimizer in optimizers) >= 1
    for optimizer in optimizers:
        best = optimizer.recommend()
        assert best.kind == "observed" and best.value == rough(best.x) == optimizer.evaluations()[1].min()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("surrogate", ["gp", "sparse_gp", "hilofi"])
def test_noise_is_found_without_repeated_points_where_there_are_many(surrogate: str) -> None:
    assert told(noisy(10.0), 31, surrogate=surrogate).recommend().kind == "predicted"


def test_a_point_that_repeats_tells_whether_there_is_noise() -> None:
    assert told(noisy(30.0), 12).recommend().kind == "observed"
    repeated = told(noisy(30.0), 12, repeats=2)
    assert estimates(repeated) > 0.01 and repeated.recommend().kind == "predicted"
    values = noisy(30.0)
    table: dict[Any, float] = {}  # as noisy between points, but a function of them
    exact = told(lambda x: table.setdefault(tuple(x), values(x)), 30, repeats=2)
    assert estimates(exact) > 0.01 and exact.recommend().kind == "observed"


def test_residuals_of_a_rough_function_are_not_noise_where_close_points_agree() -> None:
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.random((60, 2)), np.array([0.5, 0.5]) + 0.004 * generator.standard_normal((8, 2))])
    ripple = 0.2 * np.sin(x @ np.array([97.0, 61.0]))
    trend = 2 * (x[:, 0] - 0.5) ** 2 + x[:, 1]
    for residuals, expected in ((ripple, False), (0.15 * generator.standard_normal(68), True)):
        y = trend + residuals
        history = History(x, (y - y.mean()) / y.std(), np.int32(68))
        assert shows_noise(history) == expected
        assert shows_noise(history._replace(filled=np.int32(60)))  # they look alike without the close points


@pytest.mark.parametrize(
    ("noise", "noise_std", "repeats", "share"),
    [(30.0, None, 3, 1.0), (30.0, None, 1, 0.0), (30.0, 30.0, 1, 1.0), (0.0, None, 3, 0.0), (30.0, 0.0, 1, 0.0)],
)
@pytest.mark.parametrize("outcomes", [0, 1])
def test_the_improvement_is_augmented_by_the_noise_that_is_known_or_that_repeated_points_show(
    noise: float, noise_std: float | None, repeats: int, share: float, outcomes: int
) -> None:
    optimizer, generator = (
        quick(capacity=32, noise_std=noise_std, outcome_constraints=outcomes),
        np.random.default_rng(0),
    )
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


# Points of a finite space


def ask_and_tell(noise: float, n: int, **options: Any) -> BayesianOptimizer:
    generator = np.random.default_rng(0)
    return searched(quick(SIX, **options), lambda x: x["y"] + (x["z"] == "b") + noise * generator.standard_normal(), n)


def test_points_of_a_finite_space_are_asked_for_again_where_values_are_noisy() -> None:
    optimizer = ask_and_tell(1.0, 14, noise_std=1.0)
    points = [(x["y"], x["z"]) for x in optimizer.evaluations()[0]]
    assert len({*points[:6]}) == 6 and points.count((1, "a")) > 2
    with pytest.raises(Exhausted, match=r"noise_std above 0 .* or search=Search\(repeats=True\), allows repeats"):
        ask_and_tell(1.0, 7, noise_std=1.0, search=replace(QUICK, repeats=False))
    with pytest.raises(Exhausted, match="all 6 points"):
        ask_and_tell(0.0, 7)
    assert len(ask_and_tell(0.0, 8, search=replace(QUICK, repeats=True)).trials) == 8


def test_noise_that_is_found_allows_repeats_too() -> None:
    optimizer = ask_and_tell(1.0, 6)
    for value in (-3.0, 3.0):
        optimizer.tell({"y": 1, "z": "a"}, value)
    assert optimizer.ask().number == 8


def test_a_search_goes_on_where_its_design_has_no_new_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A belief that takes values for noise asks the design every second time."""
    optimizer, calls = ask_and_tell(0.0, 4), []

    def exhausted(*_: Any) -> None:
        calls.append(1)
        raise Exhausted("no new point")

    monkeypatch.setattr(suggestion, "design", exhausted)
    monkeypatch.setattr(suggestion.fitting, "estimated_noise", lambda *_: 1.0)
    for _ in range(2):
        optimizer.tell(optimizer.ask(), 0.0)
    assert len(calls) == 1 and len({str(trial.x) for trial in optimizer.trials}) == 6


@pytest.mark.parametrize("initial", [2, 9])
def test_a_noisy_search_of_a_finite_space_makes_all_its_calls(initial: int) -> None:
    def fun(x: Any) -> float:
        return x["y"] + (x["z"] == "b")

    result = minimum(fun, SIX, n_calls=11, noise_std=1.0, batch_size=4, initial=initial)
    assert (result.status, result.nfev) == (0, 11)
    ended = minimum(fun, SIX, n_calls=11, batch_size=4, initial=initial)
    assert (ended.status, ended.nfev, ended.success, ended.x) == (4, 6, True, {"y": 1, "z": "a"})
    assert "Search(repeats=True), allows repeats" in ended.message


# Predictions


def test_predictions_interpolate_exact_values_and_cover_new_ones() -> None:
    optimizer = told(BRANIN, 24, noise_std=0.0)
    for x, value in zip(*optimizer.evaluations(), strict=True):
        at = optimizer.predict(x)
        assert at.mean == pytest.approx(value, abs=0.2) and at.low <= at.mean <= at.high
    new = np.random.default_rng(1).uniform((-5, 0), (10, 15), (60, 2))
    covered = [at.low <= BRANIN(x) <= at.high for x in new if (at := optimizer.predict(x))]
    assert sum(covered) >= 0.8 * 60


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


def test_a_prediction_changes_nothing() -> None:
    optimizer, other = told(BRANIN, 8), told(BRANIN, 8)
    for _ in range(2):
        first = optimizer.predict([0.0, 0.0])
        assert first == optimizer.predict([0.0, 0.0]) == copy.deepcopy(optimizer).predict([0.0, 0.0])
        optimizer.recommend()
        trials = [one.ask() for one in (optimizer, other)]
        assert trials[0].x.tolist() == trials[1].x.tolist()
        for one, trial in zip((optimizer, other), trials, strict=True):
            one.tell(trial, BRANIN(trial.x))
        assert optimizer.predict([0.0, 0.0]) != first


@pytest.mark.parametrize("objectives", [1, 2])
def test_many_points_are_predicted_at_once_from_every_container(objectives: int) -> None:
    named = quick({"a": (0, 1), "b": (0, 1)}, objectives=objectives)
    listed = quick([(0, 1), (0, 1)], objectives=objectives)
    for u, v in ((0.1, 0.3), (0.8, 0.2), (0.5, 0.9)):
        value: Any = u - v if objectives == 1 else [u - v, u + v]
        named.tell({"a": u, "b": v}, value)
        listed.tell([u, v], value)
    grid = np.random.default_rng(0).random((40, 2))  # more than a block
    columns = dict(zip("ab", grid.T, strict=True))
    single = np.array([listed.predict(x) for x in grid])
    assert isinstance(listed.predict(grid[0]).mean, float if objectives == 1 else np.ndarray)
    for points in (grid, grid.tolist(), pd.DataFrame(columns)):
        found = listed.predict(points)
        assert found.mean.shape == (40, objectives)[:objectives]
        np.testing.assert_allclose(np.stack(found, 1), single, atol=1e-12)
    for points in (columns, pd.DataFrame(columns), pa.table(columns), pd.DataFrame(columns).to_dict("records")):
        np.testing.assert_allclose(np.stack(named.predict(points), 1), single, atol=1e-12)
    assert listed.predict(grid[:1]).mean.shape == (1, 2)[:objectives]
    with pytest.raises(ValueError, match=r"columns of points must have one length; got \{'a': 40, 'b': 1\}"):
        named.predict({"a": columns["a"], "b": [0.5]})
    with pytest.raises(ValueError, match=r"a point has 1 values; got 2: .* lists of one value, as x\[:, None\]"):
        quick([(0, 1)]).predict(np.array([0.1, 0.2]))


def test_predictions_of_the_largest_are_those_of_the_smallest_of_the_negative() -> None:
    down, up = told(BRANIN, 12), quick(maximize=True, capacity=32)
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
    optimizer = told(noisy(30.0), 30, noise_std=30.0)
    best = optimizer.recommend()
    points, values = optimizer.evaluations()
    means = [optimizer.predict(x).mean for x in points]
    assert best.kind == "predicted" and best.value == min(means) and best.low < best.value < best.high
    assert best.x.tolist() == points[int(np.argmin(means))].tolist()
    assert best.value > values.min() and best.low <= BRANIN(best.x) <= best.high


def test_noise_is_found_in_the_values_or_not() -> None:
    assert told(noisy(30.0), 30).recommend().kind == "predicted"
    exact = told(BRANIN, 30)
    assert exact.recommend().kind == "observed" and exact.recommend().value == exact.best[1]
    surprise = told(noisy(30.0), 30, noise_std=0.0)
    assert surprise.recommend().kind == "observed"


def test_minimize_says_what_its_answer_is() -> None:
    exact = minimum(BRANIN, n_calls=6, noise_std=0.0)
    assert exact.kind == "observed" and exact.fun == exact.func_vals.min() and "predicted" not in exact.message
    assert exact.fun_interval == (exact.fun, exact.fun)
    result = minimum(noisy(30.0), n_calls=10, noise_std=30.0)
    best = result.optimizer.recommend()
    assert result.kind == best.kind == "predicted" and result.fun == best.value and result.x.tolist() == best.x.tolist()
    assert result.fun_interval == (best.low, best.high) and "values are noisy: fun is predicted" in result.message
    start = minimum(BRANIN, n_calls=2, noise_std=30.0)
    assert start.kind == "observed"  # the surrogate has not been used


def test_a_study_keeps_warp_and_noise(tmp_path: Any) -> None:
    optimizer = told(BRANIN, 8, noise_std=0.5)
    optimizer.tell([0.0, 0.0], 1e12, noise_std=0.25)
    optimizer.save(tmp_path / "study")
    loaded = BayesianOptimizer.load(tmp_path / "study")
    assert (
        warp(loaded) == warp(optimizer)
        and loaded.settings.noise_std == 0.5
        and loaded._record.entries[8].noise_std == 0.25
    )
    assert loaded.recommend()[1:] == optimizer.recommend()[1:]
