"""Earlier studies as prior knowledge."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import seqdec
from seqdec.bo import BayesianOptimizer, Categorical, Conditional, Integer, Linear, Real, Search
from seqdec.bo.transfer import prior

QUICK = Search(raw_samples=128, num_restarts=4, steps=15)
BOX = [Real(-5, 10), Real(0, 15)]


def branin(x: Any) -> float:
    a, b = x
    return (
        (b - 5.1 / (4 * math.pi**2) * a**2 + 5 / math.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(a) + 10
    )


def waves(x: Any) -> float:
    return math.cos(2.1 * x[0] + 1) + math.sin(1.7 * x[1]) + math.cos(x[0] * x[1] / 5)


def searched(fun: Any, count: int, bounds: Any = BOX, **options: Any) -> BayesianOptimizer:
    study = BayesianOptimizer(bounds, **{"seed": 0, "search": QUICK, "capacity": 5, **options})
    for _ in range(count):
        trial = study.ask()
        told, outcomes = found if isinstance(found := fun(trial.x), tuple) else (found, None)
        study.tell(trial, told, outcomes=outcomes)
    return study


def asked(study: BayesianOptimizer) -> list[Any]:
    return [np.asarray(trial.x).tolist() for trial in study.trials]


@pytest.fixture(scope="module")
def first() -> BayesianOptimizer:
    return searched(lambda x: 3 * branin(x) + 7, 16, seed=5)  # other units


def test_a_study_in_any_form_informs_the_first_questions(first: BayesianOptimizer, tmp_path: Path) -> None:
    first.save(tmp_path / "first")
    with_it = searched(branin, 5, earlier=first)
    assert with_it.trials[0].x == pytest.approx(first.best[0])
    assert with_it.best[1] < 0.7  # the minimum is .398
    assert len(with_it.trials) == len(with_it.evaluations()[0]) == len(with_it.trials_dataframe()) == 5
    result = seqdec.minimize(branin, BOX, n_calls=5, seed=0, search=QUICK, earlier=tmp_path / "first", progress=False)
    assert np.asarray(result.x_iters).tolist() == asked(with_it)
    for form in ([first], first.trials_dataframe(), str(tmp_path / "first"), first.trials_dataframe().to_records()):
        assert asked(searched(branin, 3, earlier=form)) == asked(with_it)[:3]
    again = searched(branin, 3, earlier=result)  # a result, here of a search that had an earlier one itself
    assert again.trials[0].x == pytest.approx(result.x)


def test_how_related_the_functions_are_is_learned() -> None:
    """An unrelated study is not used, and predictions become better only with the related one."""
    at, known = np.random.default_rng(0).uniform([-5, 0], [10, 15], (2, 40, 2))
    tables = {
        name: pd.DataFrame({"x_0": known[:, 0], "x_1": known[:, 1], "value": list(map(fun, known))})
        for name, fun in {"related": lambda x: 3 * branin(x) + 7, "unrelated": waves}.items()
    }
    used, errors = {}, {}
    for name, earlier in {"none": None, **tables}.items():
        study = BayesianOptimizer(BOX, seed=0, search=QUICK, earlier=earlier)
        for x in np.random.default_rng(1).uniform([-5, 0], [10, 15], (12, 2)):
            study.tell(x, branin(x))
        used[name] = int(study.fitted()[1].trials.answered) - 12
        errors[name] = np.mean([abs(study.predict(x).mean - branin(x)) for x in at])
    assert used == {"none": 0, "related": 40, "unrelated": 0}
    assert errors["related"] < 0.5 * errors["none"] and errors["unrelated"] < 1.1 * errors["none"], errors


def test_values_of_a_study_are_brought_to_own_units() -> None:
    units = np.random.default_rng(0).uniform(size=(30, 1))
    z = np.sin(4 * units[:, 0])
    study, at = prior(units, z), np.linspace(0.1, 0.9, 20)[:, None]
    np.testing.assert_allclose(study.aligned(at, 2 * np.sin(4 * at[:, 0]) - 3), 2 * z - 3, atol=0.3)
    assert np.ptp(study.aligned(at, -np.sin(4 * at[:, 0]))) == 0  # where the function falls as the other rises
    np.testing.assert_allclose(study.aligned(at[:1], np.array([5.0])), z + 5.0 - np.sin(0.4), atol=0.05)


def test_a_search_with_an_earlier_study_goes_on_from_its_file(first: BayesianOptimizer, tmp_path: Path) -> None:
    options = {"seed": 0, "search": QUICK, "progress": False, "checkpoint": tmp_path / "search", "earlier": first}
    seqdec.minimize(branin, BOX, n_calls=3, **options)
    result = seqdec.minimize(branin, BOX, n_calls=5, **options)
    assert np.asarray(result.x_iters).tolist() == asked(searched(branin, 5, earlier=first))
    with pytest.raises(ValueError, match="is of another search: earlier is"):
        seqdec.minimize(branin, BOX, n_calls=6, **{**options, "earlier": None})


TREE = {
    "kind": Categorical(("a", "b")),
    "rate": Real(1e-3, 1, log=True),
    "depth": Conditional(Integer(1, 6), "kind", ("b",)),
}


def score(x: Any) -> float:
    return abs(math.log10(x["rate"]) + 1.5) + (abs(x["depth"] - 4) / 4 if x["kind"] == "b" else 1.0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("bounds", "fun", "options"),
    [
        (TREE, score, {"constraints": [lambda x: x["rate"] < 0.5]}),
        pytest.param(
            TREE,
            lambda x: math.nan if x["rate"] > 0.3 else score(x),
            {"optimum": {"rate": (0.03, 3)}},
            marks=pytest.mark.extended,
        ),
        pytest.param(BOX, lambda x: ((x[0], branin(x)), None), {"objectives": 2}, marks=pytest.mark.extended),
        pytest.param(
            BOX,
            lambda x: (branin(x), [x[0] - 3]),
            {"outcome_constraints": 1, "constraints": [Linear({0: 1, 1: 1}, 0)]},
            marks=pytest.mark.extended,
        ),
        (
            BOX,
            lambda x: -branin(x),
            {"maximize": True, "noise_std": 0.1, "trust_region": True, "surrogate": "sparse_gp"},
        ),
    ],
)
def test_with_other_capabilities(bounds: Any, fun: Any, options: dict[str, Any], tmp_path: Path) -> None:
    earlier = searched(fun, 9, bounds, seed=3, **options)
    rules = options.get("constraints", [])
    if rules and callable(rules[0]):  # of which a file holds none
        earlier.save(tmp_path / "study")
        assert len(searched(fun, 1, bounds, earlier=tmp_path / "study", **options).trials) == 1
    study = searched(fun, 5, bounds, earlier=earlier, **options)
    waiting = study.ask(2)
    assert len({str(trial.x) for trial in (*study.trials, *waiting)}) == 7
    if study.is_feasible and study.outputs.plain:
        assert np.isfinite(study.predict(study.recommend().x)).all()


def test_points_outside_are_used_and_others_left_out() -> None:
    table = pd.DataFrame({"x_0": [0.1, 0.5, 1.4, 9.0], "value": [3.0, 2.0, 1.0, 0.0]})
    study = BayesianOptimizer([(0, 1)], seed=0, earlier=table)
    assert study.settings.earlier[0].units.ravel() == pytest.approx([0.1, 0.5, 1.4])
    assert study.ask().x == pytest.approx([1.0])  # the nearest point of the space to the best one
    long = pd.DataFrame({"x_0": np.linspace(0, 1, 1000), "value": np.linspace(1, 0, 1000)})
    units = BayesianOptimizer([(0, 1)], seed=0, earlier=long).settings.earlier[0].units
    assert len(units) == 128 and np.sum(units > 0.935) >= 64 and units.min() == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"earlier": 3}, TypeError, "earlier must be a result of seqdec.minimize, .* path of a saved search; got 3"),
        ({"earlier": [None]}, TypeError, r"earlier\[0\] must be a result"),
        ({"earlier": "nowhere"}, FileNotFoundError, "nowhere"),
        ({"earlier": pd.DataFrame({"x_0": [0.1]})}, ValueError, "earlier has no column 'value'; its columns are"),
        ({"earlier": pd.DataFrame({"x": [0.1], "value": [1.0]})}, ValueError, "earlier has no column 'x_0'"),
        ({"earlier": pd.DataFrame({"x_0": [7.0], "value": [1.0]})}, ValueError, "none of its points fits, .* because"),
        ({"earlier": pd.DataFrame({"x_0": [0.1, 0.2], "value": [1.0, 1.0]})}, ValueError, "two values that differ"),
        ({"earlier": pd.DataFrame({"x_0": [0.1], "value": [math.nan]})}, ValueError, "no complete trial"),
        (
            {"earlier": pd.DataFrame({"x_0": [0.1, 0.2], "value": [1.0, 2.0]}), "surrogate": "hilofi"},
            ValueError,
            "earlier needs one of the surrogates auto, gp, sparse_gp; got 'hilofi'",
        ),
    ],
)
def test_wrong_studies_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        BayesianOptimizer([(0, 1)], seed=0, **options)
