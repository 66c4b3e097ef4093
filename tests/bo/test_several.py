"""Several objectives and outcome constraints."""

import math
import re
from typing import Any

import jax
import numpy as np
import pytest

from seqdec.bo import BayesianOptimizer, Search, hypervolume
from seqdec.bo import model as programs
from seqdec.bo import output_warp as responses
from seqdec.bo.output_warp import Warp
from tests.bo.common import SQUARE, minimum, quick, searched
from tests.toys import optimizer_programs


def two(x: Any) -> list[float]:
    """Squared distances from two points: the front is the segment between them."""
    return [float(np.sum((x - 0.2) ** 2)), float(np.sum((x - 0.7) ** 2))]


def three(x: Any) -> list[float]:
    return [*two(x), float(np.sum((x - (0.2, 0.7)) ** 2))]


def one(x: Any) -> tuple[float, list[float]]:
    """A sum, which a product bounds from below."""
    return float(np.sum(x)), [0.2 - float(np.prod(x))]


def played(fun: Any, calls: int, **options: Any) -> BayesianOptimizer:
    return searched(quick(SQUARE, capacity=32, **options), fun, calls)


def test_the_front_of_two_objectives_is_found_and_beats_random_points() -> None:
    optimizer = played(two, 16, objectives=2)
    points, values = optimizer.front()
    assert optimizer.acquisition == "log_expected_hypervolume_improvement"
    assert np.all(np.diff(values[:, 0]) > 0) and np.all(np.diff(values[:, 1]) < 0)
    np.testing.assert_allclose(values, [two(x) for x in points])
    reference = [0.5, 0.5]
    found = hypervolume(values, reference)
    random = [hypervolume([two(x) for x in np.random.default_rng(s).random((16, 2))], reference) for s in range(20)]
    segment = np.linspace(0.2, 0.7, 2000)
    best = hypervolume([two(np.full(2, t)) for t in segment], reference)
    assert sorted(random)[-3] < found < best and found > 0.85 * best


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
    optimizer = quick(SQUARE, capacity=32, outcome_constraints=2, initial=4)

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


def test_several_objectives_and_constraints_together_in_batches() -> None:
    optimizer = quick(SQUARE, capacity=32, objectives=2, outcome_constraints=1)
    for _ in range(4):
        for trial in optimizer.ask(4):
            optimizer.tell(trial, two(trial.x), outcomes=0.4 - float(trial.x[0]))
    points, values = optimizer.front()
    assert len(points) > 2 and all(x[0] >= 0.4 for x in points)
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
    up = played(lambda x: [-v for v in two(x)], 10, objectives=2, maximize=True)
    down = played(two, 10, objectives=2)
    mixed = played(lambda x: [-two(x)[0], two(x)[1]], 10, objectives=2, maximize=[True, False])
    for other in (up, mixed):
        for a, b in zip(other.trials, down.trials, strict=True):
            np.testing.assert_allclose(a.x, b.x, atol=1e-9)
    assert up.maximize == (True, True) and mixed.maximize == (True, False)
    np.testing.assert_allclose(sorted(-mixed.front().values[:, 0]), down.front().values[:, 0], atol=1e-9)


def test_a_reference_point_confines_the_front() -> None:
    optimizer = played(two, 16, objectives=2, reference_point=[0.1, 0.5])
    values = optimizer.front().values
    free = played(two, 16, objectives=2).front().values
    inside, outside = (np.mean(np.all(v[:] < [0.1, 0.5], axis=1)) for v in (values, free))
    assert inside > outside


@pytest.mark.parametrize("fun", [two, pytest.param(three, marks=pytest.mark.extended)])
def test_no_length_of_a_front_compiles(fun: Any) -> None:
    optimizer = played(fun, 6, objectives=len(fun(np.zeros(2))))
    before, sizes = optimizer_programs(), set()
    for _ in range(10):
        searched(optimizer, fun, 1)
        sizes.add(len(optimizer.front().x))
    assert len(sizes) > 3 and optimizer_programs() == before


def test_a_tiny_scale_is_no_unit_of_a_volume() -> None:
    y = np.concatenate([[-1e12], -np.geomspace(1e-9, 1.0, 20)])
    fine, coarse = Warp(0.0, 1e-9, 2.0, fence=-1e6), Warp(0.0, 0.1, 2.0, fence=-1e6)
    assert responses.moderate(coarse, y) == coarse
    plain = responses.moderate(fine, y)
    assert plain.power == 1 and plain.fence == -1e6 and plain.fitted == 21
    assert plain.forward(y[1:]).std() == pytest.approx(1)


def test_what_is_not_finite_fails() -> None:
    optimizer = quick(SQUARE, objectives=2, outcome_constraints=1)
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


def test_minimize_answers_with_the_front() -> None:
    seen = []
    result = minimum(two, SQUARE, n_calls=10, objectives=2, callback=lambda x: seen.append(len(x)))
    assert result.success and len(result.x) == len(result.fun) and result.fun.shape[1] == 2
    np.testing.assert_allclose(result.fun, [two(x) for x in result.x])
    assert result.func_vals.shape == (10, 2) and seen[-1] == len(result.x)
    upwards = minimum(lambda x: [-v for v in two(x)], SQUARE, n_calls=10, objectives=2, maximize=True)
    np.testing.assert_allclose(np.sort(-upwards.fun[:, 0]), result.fun[:, 0], atol=1e-9)


def test_minimize_answers_with_the_best_feasible_call() -> None:
    result = minimum(one, SQUARE, outcome_constraints=1, n_calls=16)
    assert result.success and result.status == 0 and np.prod(result.x) >= 0.2 and result.fun < 1.1
    none = minimum(lambda x: (1.0, x[0] + 0.1), SQUARE, outcome_constraints=1)
    assert not none.success and none.status == 7 and none.x is None and math.isnan(none.fun)
    assert "none of the 8 calls was feasible" in none.message
    empty = minimum(lambda x: (two(x), 1.0), SQUARE, objectives=2, outcome_constraints=1, n_calls=3)
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
    result = minimum(lambda x: returned, SQUARE, max_failures=2, catch=(TypeError, ValueError), **options)
    assert result.status == 1 and result.nfev == 2
    assert re.search(message, result.optimizer.trials_dataframe()["reason"][0])


def test_known_values_of_several_objectives() -> None:
    known = [[0.2, 0.2], [0.9, 0.1]]
    result = minimum(two, SQUARE, objectives=2, x0=known, y0=[two(np.array(x)) for x in known], n_calls=4)
    assert len(result.x_iters) == 6 and result.func_vals[0].tolist() == two(np.array(known[0]))
    bounded = minimum(one, SQUARE, outcome_constraints=1, x0=known, y0=[one(np.array(x)) for x in known], n_calls=3)
    assert bounded.optimizer.trials_dataframe()["outcome_0"][0] == one(np.array(known[0]))[1][0]


# Refusals


@pytest.mark.parametrize(
    ("options", "told", "error", "message"),
    [
        (
            {"objectives": 2},
            {"value": 1.0},
            ValueError,
            "value must be a sequence of 2 numbers, one for each",
        ),
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
    optimizer = quick(SQUARE, **options)
    trial = optimizer.ask()
    with pytest.raises(error, match=message):
        optimizer.tell(trial, **told)
    assert optimizer.trials_dataframe()["state"].tolist() == ["pending"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"objectives": 0}, ValueError, "objectives must be at least 1"),
        ({"outcome_constraints": -1}, ValueError, "outcome_constraints must be at least 0"),
        ({"reference_point": [1.0]}, ValueError, "reference_point must be left out with one objective"),
        ({"objectives": 2, "reference_point": [1.0]}, ValueError, "2 finite numbers, one for each objective"),
        ({"objectives": 2, "reference_point": ["a", "b"]}, TypeError, "reference_point must hold real numbers"),
        ({"objectives": 2, "maximize": [True]}, ValueError, "each of the 2 objectives"),
        ({"objectives": 2, "maximize": 3}, TypeError, "maximize must be True, False, or one of them"),
        ({"objectives": 2, "acquisition": "ucb"}, ValueError, "with several objectives acquisition must be 'auto'"),
        ({"objectives": 2, "search": Search(trust_region=True)}, ValueError, "trust_region needs one objective"),
    ],
)
def test_settings_that_do_not_fit(options: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        quick(SQUARE, **options)
