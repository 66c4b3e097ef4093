"""Several objectives and outcome constraints: hypervolume and log EHVI against oracles, feasibility, studies."""

import itertools
import math
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import seqdec
from seqdec import policies
from seqdec.bo import BayesianOptimizer, Real, Search, hypervolume, suggestion
from seqdec.bo import model as programs
from seqdec.bo import output_warp as responses
from seqdec.bo.acquisition import names as acquisitions
from seqdec.bo.acquisition import pareto
from seqdec.bo.acquisition.feasibility import Incumbent, Target, log_probability, weighted
from seqdec.bo.output_warp import Warp
from seqdec.bo.surrogates import multi_output as several
from seqdec.core import Posterior, Predictive
from tests.toys import optimizer_programs

BOX = [(0.0, 1.0), (0.0, 1.0)]
QUICK = Search(raw_samples=64, num_restarts=4, steps=10)
FILTER: dict[str, Any] = {"surrogate": "hilofi", "surrogate_options": {"units": 16}}


def quick(**options: Any) -> BayesianOptimizer:
    """An optimizer that shares its programs with the other tests'."""
    return BayesianOptimizer(BOX, **{"seed": 0, "capacity": 32, "search": QUICK, **options})


def two(x: Any) -> list[float]:
    """Squared distances from two points: the front is the segment between them."""
    return [float(np.sum((x - 0.2) ** 2)), float(np.sum((x - 0.7) ** 2))]


def one(x: Any) -> tuple[float, list[float]]:
    """A sum, which a product bounds from below."""
    return float(np.sum(x)), [0.2 - float(np.prod(x))]


def played(fun: Any, calls: int, batch: int = 1, **options: Any) -> BayesianOptimizer:
    optimizer = quick(**options)
    for _ in range(calls // batch):
        for trial in optimizer.ask(batch):
            value, outcomes = optimizer.outputs.split(fun(trial.x))
            optimizer.tell(trial, value, outcomes=outcomes)
    return optimizer


@pytest.fixture
def x64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def front_of(count: int, objectives: int, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((count, objectives))
    return values[pareto.non_dominated(values)]


def normal(mean: np.ndarray, std: np.ndarray) -> Posterior:
    """Independent outputs with these moments (m,), whatever the candidates are."""

    def joint(candidates: Any) -> Predictive:
        eye = jnp.eye(len(candidates))[:, :, None]
        return Predictive(jnp.broadcast_to(mean, (len(candidates), len(mean))), eye * std**2, 0 * eye * std)

    return Posterior(lambda candidates: joint(candidates).mean, joint, lambda key: lambda candidates: mean)


# Hypervolume


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
def test_the_hypervolume_is_that_of_inclusion_and_exclusion(objectives: int) -> None:
    for seed in range(5):
        values = np.random.default_rng(seed).random((7, objectives))
        reference, expected = np.full(objectives, 0.8), 0.0
        for size in range(1, 8):
            for rows in itertools.combinations(values, size):
                sides = np.maximum(reference - np.max(rows, 0), 0)
                expected -= (-1) ** size * np.prod(sides)
        assert hypervolume(values, reference) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert hypervolume(-values, -reference, maximize=True) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_boxes_are_the_points_that_nothing_dominates(objectives: int) -> None:
    generator = np.random.default_rng(0)
    values = generator.integers(0, 5, (12, objectives)).astype(float)  # with ties
    boxes = pareto.decompose(values, np.full(objectives, -0.5))
    points = generator.uniform(-0.5, 6, (4000, objectives))
    inside = np.all((points[:, None] >= boxes.low) & (points[:, None] < boxes.high), axis=2).sum(1)
    assert inside.tolist() == (~np.any(np.all(values >= points[:, None], axis=2), axis=1)).astype(int).tolist()


def test_two_objectives_have_one_box_more_than_points() -> None:
    front = front_of(50, 2, 0)
    assert len(pareto.decompose(front, np.full(2, -9.0)).low) == len(front) + 1
    assert len(pareto.decompose(np.zeros((0, 2)), np.zeros(2)).low) == 1


def test_a_hypervolume_may_mix_directions_and_be_empty() -> None:
    assert hypervolume([[1.0, 9.0], [0.0, 3.0]], [2.0, 1.0], maximize=[False, True]) == pytest.approx(8 + 2)
    assert hypervolume([], [2.0, 1.0]) == 0.0 == hypervolume([[3.0, 0.0]], [2.0, 1.0])


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (([[1.0, 2.0]], [1.0]), {}, ValueError, "a column for each of the 1 numbers"),
        (([1.0, 2.0], [1.0, 2.0]), {}, ValueError, "values must be finite numbers with 2 axes"),
        (([[1.0, math.nan]], [1.0, 2.0]), {}, ValueError, "values must be finite"),
        (([["a", "b"]], [1.0, 2.0]), {}, TypeError, "values must hold real numbers"),
        (([[1.0, 2.0]], [1.0, 2.0]), {"maximize": [True]}, ValueError, "each of the 2 objectives"),
        (([[1.0, 2.0]], [1.0, 2.0]), {"maximize": "yes"}, TypeError, "maximize must be True, False"),
    ],
)
def test_no_hypervolume(arguments: Any, options: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        hypervolume(*arguments, **options)


# Acquisitions


@pytest.mark.sampled(2)
@pytest.mark.parametrize("objectives", [2, 3])
def test_log_ehvi_is_the_mean_improvement(objectives: int, x64: None) -> None:
    draws = 20_000
    for seed in range(3):
        generator = np.random.default_rng(seed)
        front, reference = front_of(12, objectives, seed), np.full(objectives, -2.0)
        mean, std = 0.5 * generator.standard_normal(objectives), generator.uniform(0.3, 1.0, objectives)
        boxes = pareto.decompose(front, reference)
        y = mean + std * generator.standard_normal((draws, objectives))
        sides = np.clip(np.minimum(y[:, None], boxes.high) - boxes.low, 0, None)
        gains = np.prod(sides, axis=2).sum(1)
        volumes = [pareto.volume(np.vstack([front, row]), reference) for row in y[:50]]
        np.testing.assert_allclose(gains[:50], np.array(volumes) - pareto.volume(front, reference), atol=1e-9)
        found = math.exp(pareto.log_improvement(jnp.asarray(mean), jnp.asarray(std), pareto.padded(boxes, 64)))
        assert abs(found - gains.mean()) < 5 * gains.std() / math.sqrt(draws)


def test_log_ehvi_of_one_objective_is_log_ei(x64: None) -> None:
    boxes = pareto.decompose(np.array([[0.3]]), np.array([-1.0]))
    for mean in (2.0, -1.0, -40.0):
        posterior = normal(np.array([mean]), np.array([0.7]))
        expected = policies.log_expected_improvement(0.3).score(
            jax.random.key(0), several.select(posterior, 0), jnp.zeros((1, 1)), None
        )
        found = pareto.log_improvement(jnp.array([mean]), jnp.array([0.7]), boxes)
        assert float(found) == pytest.approx(float(expected[0]), rel=1e-12)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("objectives", [2, 3])
def test_far_below_the_front_the_score_is_finite_and_its_gradient_leads_back(
    dtype: Any, objectives: int, x64: None
) -> None:
    boxes = pareto.padded(pareto.decompose(front_of(20, objectives, 0), np.full(objectives, -1.0)), 32)
    boxes = pareto.Boxes(*(side.astype(dtype) for side in boxes))
    slope = jax.value_and_grad(pareto.log_improvement)
    for mean, std in ((-30.0, 0.5), (-3.0, 1e-3), (-1000.0, 1.0), (50.0, 0.1), (0.0, 1e-5)):
        value, gradient = slope(jnp.full(objectives, mean, dtype), jnp.full(objectives, std, dtype), boxes)
        assert np.isfinite(value) and np.isfinite(gradient).all() and value.dtype == dtype
        if mean < -1:
            assert np.all(gradient > 0)


def test_thin_boxes_keep_their_volume() -> None:
    """In single precision, against double precision."""
    with jax.enable_x64(True):
        for a in (-8.0, -1.0, 0.0, 3.0):
            for width in (1e-6, 1e-4, 1e-2, 1.0):
                exact = math.log(float(stats.norm.cdf(a - width / 2)) * width)
                found = [
                    float(pareto._log_difference(*(jnp.asarray(v, dtype) for v in (a, a - width, width))))
                    for dtype in (np.float32, np.float64)
                ]
                assert found[0] == pytest.approx(found[1], abs=5e-3)
                if width < 1e-2:
                    assert found[1] == pytest.approx(exact, abs=1e-3)


def test_feasibility_weights_the_improvement(x64: None) -> None:
    mean, std = np.array([0.2, -0.5, 1.0]), np.array([0.6, 0.3, 2.0])
    acquisition = weighted(acquisitions.make("log_expected_improvement"), 1)
    thresholds = np.array([-0.4, 0.1])

    def score(known: bool) -> float:
        target = Target(Incumbent(jnp.asarray(0.5), jnp.zeros(())), jnp.asarray(known), thresholds)
        return float(acquisition(target).score(jax.random.key(0), normal(mean, std), jnp.zeros((2, 1)), None)[1])

    z = (0.2 - 0.5) / 0.6
    improvement = 0.6 * (stats.norm.pdf(z) + z * stats.norm.cdf(z))
    feasible = np.prod(stats.norm.cdf((mean[1:] - thresholds) / std[1:]))
    assert score(True) == pytest.approx(math.log(improvement * feasible), rel=1e-10)
    assert score(False) == pytest.approx(math.log(feasible), rel=1e-10)


def test_the_log_probability_and_its_gradient() -> None:
    z = np.array([-1e6, -1e3, -50.0, -12.0, -9.0, -1.0, 0.0, 4.0])
    with jax.enable_x64(True):
        value, slope = jax.vmap(jax.value_and_grad(log_probability))(jnp.asarray(z))
        np.testing.assert_allclose(value, stats.norm.logcdf(z), rtol=1e-12)
        log_slope = stats.norm.logpdf(z[2:]) - stats.norm.logcdf(z[2:])
        np.testing.assert_allclose(slope[2:], np.exp(log_slope), rtol=1e-6)
        np.testing.assert_allclose(slope[:2], -z[:2], rtol=1e-5)
    single = jax.vmap(jax.grad(log_probability))(jnp.asarray(z, jnp.float32))
    np.testing.assert_allclose(single, slope, rtol=1e-3)


# Ask and tell


@pytest.mark.extended
def test_the_front_of_two_objectives_is_found_and_beats_random_points() -> None:
    optimizer = played(two, 24, objectives=2)
    points, values = optimizer.front()
    assert optimizer.acquisition == "log_expected_hypervolume_improvement"
    assert np.all(np.diff(values[:, 0]) > 0) and np.all(np.diff(values[:, 1]) < 0)
    np.testing.assert_allclose(values, [two(x) for x in points])
    reference = [0.5, 0.5]
    found = hypervolume(values, reference)
    random = [hypervolume([two(x) for x in np.random.default_rng(s).random((24, 2))], reference) for s in range(20)]
    segment = np.linspace(0.2, 0.7, 2000)
    best = hypervolume([two(np.full(2, t)) for t in segment], reference)
    assert max(random) < found < best and found > 0.95 * best


def test_a_constraint_is_kept_to() -> None:
    optimizer = played(one, 24, outcome_constraints=1)
    x, value = optimizer.best
    assert np.prod(x) >= 0.2 and value < 2 * math.sqrt(0.2) * 1.01
    table = optimizer.trials_dataframe()
    outputs, point = ["value", "outcome_0", "feasible"], ["x_0", "x_1"]
    assert table.columns.tolist() == ["number", "state", *outputs, *point, "reason", "seconds"]
    assert table["feasible"].tolist() == (table["outcome_0"] <= 0).tolist()
    assert value == table["value"][table["feasible"]].min() == optimizer.recommend().value


def test_where_nothing_is_feasible_it_is_sought_and_best_says_so() -> None:
    optimizer = quick(outcome_constraints=2, initial=4)

    def outcomes(x: Any) -> list[float]:
        return [0.93 - x[0], x[1] - 0.07]

    while not optimizer.is_feasible:
        trial = optimizer.ask()
        optimizer.tell(trial, float(np.sum(trial.x)), outcomes=outcomes(trial.x))
        if not optimizer.is_feasible:
            with pytest.raises(ValueError, match="no trial is feasible yet: each of the"):
                optimizer.recommend()
    assert len(optimizer.trials) <= 16  # a share of 0.005 of the square is feasible
    assert np.all(np.array(outcomes(optimizer.best[0])) <= 0)


@pytest.mark.extended
def test_several_objectives_and_constraints_together_in_batches() -> None:
    def fun(x: Any) -> tuple[list[float], float]:
        return two(x), 0.4 - float(x[0])

    optimizer = played(fun, 24, batch=4, objectives=2, outcome_constraints=1)
    points, values = optimizer.front()
    assert len(points) > 3 and all(x[0] >= 0.4 for x in points)
    table = optimizer.trials_dataframe()
    assert list(table.columns[2:6]) == ["value_0", "value_1", "outcome_0", "feasible"]
    asked = np.array([trial.x for trial in optimizer.trials])
    distances = np.abs(asked[:, None] - asked).max(2) + np.eye(len(asked))
    assert distances.min() > 1e-6  # none is asked for again while it is pending
    with pytest.raises(ValueError, match=r"with 2 objectives there is no best trial: use front\(\)"):
        _ = optimizer.best
    with pytest.raises(ValueError, match=r"use front\(\)"):
        optimizer.recommend()
    prediction = optimizer.predict(points[0])
    assert prediction.mean == pytest.approx(values[0], abs=0.02) and np.all(prediction.low < prediction.high)


def test_pending_trials_enter_with_what_is_expected_of_each_output() -> None:
    optimizer = played(one, 8, outcome_constraints=1)
    optimizer.ask(2)
    with jax.enable_x64(True):
        model, (state, _, trials, _) = optimizer.fitted()
        before = np.asarray(programs.means_of(model.surrogate, state, trials.x))
        belief = programs.believe(model.surrogate, state, trials)
        found = programs.marginals_of(model.surrogate, belief.state, trials.x[:10])
    means, stds = map(np.asarray, found)
    assert belief.means.shape == (10, 2) and int(trials.pending) == 2
    np.testing.assert_allclose(means[8:], before[8:10], atol=1e-3)
    assert np.all(stds[8:] < 0.05)


def test_directions() -> None:
    up = played(lambda x: [-v for v in two(x)], 14, objectives=2, maximize=True)
    down = played(two, 14, objectives=2)
    mixed = played(lambda x: [-two(x)[0], two(x)[1]], 14, objectives=2, maximize=[True, False])
    for other in (up, mixed):
        for a, b in zip(other.trials, down.trials, strict=True):
            np.testing.assert_allclose(a.x, b.x, atol=1e-9)
    assert up.maximize == (True, True) and mixed.maximize == (True, False)
    np.testing.assert_allclose(sorted(-mixed.front().values[:, 0]), down.front().values[:, 0], atol=1e-9)


def test_a_reference_point_confines_the_front() -> None:
    optimizer = played(two, 20, objectives=2, reference_point=[0.1, 0.5])
    values = optimizer.front().values
    free = played(two, 20, objectives=2).front().values
    inside, outside = (np.mean(np.all(v[:] < [0.1, 0.5], axis=1)) for v in (values, free))
    assert inside > outside


def three(x: Any) -> list[float]:
    return [*two(x), float(np.sum((x - (0.2, 0.7)) ** 2))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fun", [two, three])
def test_no_length_of_a_front_compiles(fun: Any) -> None:
    optimizer = played(fun, 6, objectives=len(fun(np.zeros(2))))
    before = optimizer_programs()
    sizes = set()
    for _ in range(10):
        trial = optimizer.ask()
        optimizer.tell(trial, fun(trial.x))
        sizes.add(len(optimizer.front().x))
    assert len(sizes) > 3
    assert optimizer_programs() == before


def test_a_tiny_scale_is_no_unit_of_a_volume() -> None:
    y = np.concatenate([[-1e12], -np.geomspace(1e-9, 1.0, 20)])
    fine, coarse = Warp(0.0, 1e-9, 2.0, fence=-1e6), Warp(0.0, 0.1, 2.0, fence=-1e6)
    assert responses.moderate(coarse, y) == coarse
    plain = responses.moderate(fine, y)
    assert plain.power == 1 and plain.fence == -1e6 and plain.fitted == 21
    assert plain.forward(y[1:]).std() == pytest.approx(1)


# Studies


# Errors


@pytest.mark.parametrize(
    ("options", "told", "error", "message"),
    [
        (
            {"objectives": 2},
            {"value": 1.0},
            ValueError,
            "value must be a sequence of 2 numbers, one for each",
        ),
        ({"objectives": 2}, {"value": [1.0, 2.0, 3.0]}, ValueError, r"got \[1.0, 2.0, 3.0\]"),
        ({"objectives": 2}, {"value": "ab"}, TypeError, "value must be a sequence of 2 numbers"),
        ({"objectives": 2}, {"value": [1.0, "2"]}, TypeError, r"value\[1\] must be a number; got '2'"),
        ({}, {"value": [1.0, 2.0]}, TypeError, "value must be a number"),
        ({}, {"value": 1.0, "outcomes": [1.0]}, ValueError, "outcomes must be left out, without constraints"),
        (
            {"outcome_constraints": 2},
            {"value": 1.0},
            ValueError,
            "outcomes must be a sequence of 2 numbers",
        ),
        ({"outcome_constraints": 2}, {"value": 1.0, "outcomes": 3.0}, ValueError, "outcomes must be .* got 3.0"),
        ({"outcome_constraints": 1}, {"value": 1.0, "outcomes": "0"}, TypeError, "outcomes must be"),
        ({"outcome_constraints": 1}, {"value": 1.0, "outcomes": [None]}, TypeError, r"outcomes\[0\] must be a number"),
    ],
)
def test_what_is_told_has_the_right_shape(options: Any, told: Any, error: type, message: str) -> None:
    optimizer = quick(**options)
    trial = optimizer.ask()
    with pytest.raises(error, match=message):
        optimizer.tell(trial, **told)
    assert optimizer.trials_dataframe()["state"].tolist() == ["pending"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"objectives": 0}, ValueError, "objectives must be at least 1"),
        ({"objectives": 1.5}, TypeError, "objectives must be an integer"),
        ({"outcome_constraints": -1}, ValueError, "outcome_constraints must be at least 0"),
        ({"reference_point": [1.0]}, ValueError, "reference_point must be left out with one objective"),
        ({"objectives": 2, "reference_point": [1.0]}, ValueError, "2 finite numbers, one for each objective"),
        ({"objectives": 2, "reference_point": ["a", "b"]}, TypeError, "reference_point must hold real numbers"),
        ({"objectives": 2, "maximize": [True]}, ValueError, "each of the 2 objectives"),
        ({"objectives": 2, "maximize": 3}, TypeError, "maximize must be True, False, or one of them"),
        ({"objectives": 2, "acquisition": "ucb"}, ValueError, "with several objectives acquisition must be 'auto'"),
        ({"objectives": 2, "trust_region": True}, ValueError, "trust_region needs one objective"),
    ],
)
def test_settings_that_do_not_fit(options: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        quick(**options)


def test_what_is_not_finite_fails() -> None:
    optimizer = quick(objectives=2, outcome_constraints=1)
    trials = optimizer.ask(4)
    optimizer.tell(trials[0], [1.0, math.nan], outcomes=[0.0])
    optimizer.tell(trials[1], [1.0, 2.0], outcomes=[math.inf])
    optimizer.tell(trials[2], None)
    optimizer.tell(trials[3], [1.0, 2.0], outcomes=[0.0], failed=True, reason="lost")
    table = optimizer.trials_dataframe()
    assert table["state"].tolist() == ["failed"] * 4 and not table["feasible"].any()
    assert table[["value_0", "value_1", "outcome_0"]].isna().all().all()
    assert table["reason"].tolist() == [
        "value (1.0, nan), outcomes (0.0,)",
        "value (1.0, 2.0), outcomes (inf,)",
        "failed",
        "lost",
    ]
    with pytest.raises(ValueError, match="no trial is complete yet"):
        optimizer.front()


# Minimize


def minimum(fun: Any, **options: Any) -> Any:
    return seqdec.minimize(fun, BOX, **{"n_calls": 10, "seed": 0, "search": QUICK, "progress": False, **options})


def test_minimize_answers_with_the_front() -> None:
    seen = []
    result = minimum(two, objectives=2, callback=lambda x: seen.append(len(x)))
    assert result.success and len(result.x) == len(result.fun) and result.fun.shape[1] == 2
    np.testing.assert_allclose(result.fun, [two(x) for x in result.x])
    assert result.func_vals.shape == (10, 2) and seen[-1] == len(result.x)
    upwards = seqdec.maximize(
        lambda x: [-v for v in two(x)], BOX, n_calls=10, seed=0, search=QUICK, progress=False, objectives=2
    )
    np.testing.assert_allclose(np.sort(-upwards.fun[:, 0]), result.fun[:, 0], atol=1e-9)


def test_minimize_answers_with_the_best_feasible_call() -> None:
    result = minimum(one, outcome_constraints=1, n_calls=16)
    assert result.success and result.status == 0 and np.prod(result.x) >= 0.2 and result.fun < 1.1
    none = minimum(lambda x: (1.0, x[0] + 0.1), outcome_constraints=1)
    assert not none.success and none.status == 7 and none.x is None and math.isnan(none.fun)
    assert "none of the 10 calls was feasible" in none.message
    empty = minimum(lambda x: (two(x), 1.0), objectives=2, outcome_constraints=1, n_calls=3)
    assert empty.status == 7 and empty.x == [] and empty.fun.shape == (0, 2)


@pytest.mark.parametrize(
    ("options", "returned", "message"),
    [
        ({"objectives": 2}, 1.0, "the value of fun must be a sequence of 2 numbers"),
        ({"outcome_constraints": 1}, 1.0, r"fun must return a pair, \(value, outcomes\); got 1.0"),
        ({"outcome_constraints": 1}, (1.0, [1.0, 2.0]), "outcomes must be a sequence of 1 numbers"),
        ({"objectives": 2}, (math.nan, 1.0), r"value \(nan, 1.0\)"),
    ],
)
def test_a_call_that_returns_something_else_fails(options: Any, returned: Any, message: str) -> None:
    result = minimum(lambda x: returned, max_failures=2, catch=(TypeError, ValueError), **options)
    assert result.status == 1 and result.nfev == 2
    assert re.search(message, result.optimizer.trials_dataframe()["reason"][0])


def test_known_values_of_several_objectives() -> None:
    known = [[0.2, 0.2], [0.9, 0.1]]
    result = minimum(two, objectives=2, x0=known, y0=[two(np.array(x)) for x in known], n_calls=4)
    assert len(result.x_iters) == 6 and result.func_vals[0].tolist() == two(np.array(known[0]))
    bounded = minimum(one, outcome_constraints=1, x0=known, y0=[one(np.array(x)) for x in known], n_calls=3)
    assert bounded.optimizer.trials_dataframe()["outcome_0"][0] == one(np.array(known[0]))[1][0]


def test_a_trust_region_is_around_the_best_feasible_point() -> None:
    optimizer = BayesianOptimizer(
        {"a": Real(0, 1), "b": Real(0, 1)}, seed=0, trust_region=True, outcome_constraints=1, search=QUICK, capacity=32
    )
    for a, b, outcome in ((0.1, 0.1, 0.5), (0.6, 0.6, -0.1), (0.9, 0.9, -0.2)):
        optimizer.tell({"a": a, "b": b}, a + b, outcomes=outcome)
    optimizer.ask()
    known, (_, fitted) = optimizer._observations(), optimizer.fitted()
    low, high = suggestion._region(optimizer._method, known, fitted.warps)
    np.testing.assert_allclose((low + high) / 2, [0.6, 0.6])
