"""Knowledge of monotone directions."""

from typing import Any

import numpy as np
import pytest

import seqdec
from seqdec.bo import BayesianOptimizer, Categorical, Conditional, Integer, Ordinal, Search
from seqdec.bo.surrogates import trend
from seqdec.bo.surrogates.contract import History

QUICK = Search(raw_samples=128, num_restarts=4, steps=20)
BOX = [(0.0, 1.0), (0.0, 1.0)]


def told(points: Any, values: Any, bounds: Any = BOX, **options: Any) -> BayesianOptimizer:
    study = BayesianOptimizer(bounds, **{"seed": 0, "search": QUICK, **options})
    for x, value in zip(points, values, strict=True):
        study.tell(x, value)
    return study


def test_slopes_are_the_most_likely_ones_with_the_known_signs() -> None:
    generator, signs = np.random.default_rng(0), np.array([1.0, -1.0, 0.0, 1.0])
    x = generator.random((12, 4))
    y = 2 * x[:, 0] - x[:, 1] + 3 * x[:, 2] - 4 * x[:, 3]  # against the last sign
    history = History(np.vstack([x, np.ones((4, 4))]), np.concatenate([y, np.ones(4)]), np.int32(12))
    slopes = trend.fitted(signs, history)
    used = (signs * slopes)[[0, 1, 3]]
    assert slopes[2] == 0 and slopes[3] == 0 and (used[:2] > 0).all()
    columns = (x - x.mean(0)) * signs
    gradient = columns.T @ ((y - y.mean()) - columns @ (signs * slopes)) - (signs * slopes - np.abs(signs))
    np.testing.assert_allclose(gradient[:2], 0, atol=1e-9)
    assert gradient[3] < 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("surrogate", ["gp", "hilofi"])
def test_the_belief_follows_the_directions_where_nothing_is_known(surrogate: str) -> None:
    points = [[0.1, 0.2], [0.12, 0.25], [0.15, 0.2], [0.11, 0.3]]
    values = [1.0, 1.1, 1.05, 1.2]
    options: dict[str, Any] = {"surrogate": surrogate, "noise_std": 0.0}
    apart = {}
    for directions in (None, {0: 1}, {0: -1}):
        study = told(points, values, monotone=directions, **options)
        means = [study.predict([u, 0.2]).mean for u in (0.2, 0.9)]
        apart[str(directions)] = means[1] - means[0]
        if surrogate == "gp":
            np.testing.assert_allclose([study.predict(x).mean for x in points], values, atol=1e-3)
    assert apart["{0: -1}"] < apart["None"] < apart["{0: 1}"]


def test_values_overrule_a_wrong_direction() -> None:
    result = seqdec.minimize(
        lambda x: (x[0] - 0.2) ** 2 + x[1], BOX, n_calls=20, seed=0, search=QUICK, monotone={0: -1, 1: -1}
    )
    assert result.fun < 0.01


def test_each_output_has_its_directions() -> None:
    bounds = {"a": (0.0, 1.0), "b": Integer(0, 9), "c": Ordinal((1, 4, 9))}
    options: dict[str, Any] = {"outcome_constraints": 1, "monotone": [{"a": 1, "c": -1}, {"b": -1}]}
    study = BayesianOptimizer(bounds, seed=0, search=QUICK, **options)
    for _ in range(6):
        trial = study.ask()
        study.tell(trial, trial.x["a"] - trial.x["c"] / 9, outcomes=0.4 - trial.x["b"] / 9)
    assert study.settings.monotone == trend.Directions(((1, 0, -1), (0, -1, 0))) and study.ask().number == 6
    alone = BayesianOptimizer(bounds, seed=0, outcome_constraints=1, monotone={"a": 1})
    assert alone.settings.monotone == trend.Directions(((1, 0, 0), (0, 0, 0)))


@pytest.mark.extended
def test_it_goes_with_earlier_studies() -> None:
    earlier = seqdec.minimize(lambda x: x[0] + x[1], BOX, n_calls=6, seed=1, search=QUICK)
    options: dict[str, Any] = {"n_calls": 8, "seed": 0, "search": QUICK, "monotone": {0: 1, 1: 1}}
    assert seqdec.minimize(lambda x: x[0] + x[1], BOX, earlier=earlier, **options).fun < 0.05


@pytest.mark.parametrize(
    ("given", "options", "error", "words"),
    [
        ({"rat": 1}, {}, ValueError, "rate"),
        ({"rate": 2}, {}, ValueError, r"monotone\['rate'\] must be 1"),
        ({"rate": "up"}, {}, TypeError, "monotone"),
        ({"kind": 1}, {}, ValueError, "no order"),
        ({"momentum": 1}, {}, ValueError, "condition"),
        (1, {}, TypeError, "got 1"),
        ([{"rate": 1}], {"outcome_constraints": 1}, ValueError, "2 objectives and outcomes; got 1"),
        ({"rate": 1}, {"objectives": 2}, TypeError, "list of one for each"),
        ([{"rate": 1}, "rate"], {"outcome_constraints": 1}, TypeError, "got 'rate'"),
    ],
)
def test_wrong_directions_are_refused(given: Any, options: dict[str, Any], error: Any, words: str) -> None:
    space = {
        "rate": (0.0, 1.0),
        "kind": Categorical(("a", "b")),
        "momentum": Conditional((0.0, 1.0), on="kind", values=("a",)),
    }
    with pytest.raises(error, match=words):
        BayesianOptimizer(space, seed=0, monotone=given, **options)
