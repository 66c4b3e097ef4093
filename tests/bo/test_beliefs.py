"""What the user knows: where the optimum lies, monotone directions, earlier searches."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from seqdec.bo import BayesianOptimizer, Categorical, Conditional, Integer, Linear, Ordinal, Prior, Real
from seqdec.bo.surrogates import trend
from seqdec.bo.surrogates.contract import History
from seqdec.bo.transfer import related
from tests.bo.common import BOX, BRANIN, QUICK, SQUARE, minimum, quick, searched

MIXED = {
    "rate": Real(1e-4, 1.0, log=True),
    "layers": Integer(1, 8),
    "kind": Categorical(("a", "b", "c")),
    "width": Ordinal((16, 32, 64)),
    "fixed": (2.0, 2.0),
}
BELIEF = {
    "rate": (1e-2, 1.5),
    "layers": stats.poisson(3),
    "kind": {"a": 3.0, "b": 1.0},
    "width": lambda width: float(width == 64),
    "fixed": (2.0, 1.0),
}


def asked(study: BayesianOptimizer) -> list[Any]:
    return [trial.x if isinstance(trial.x, dict) else np.asarray(trial.x).tolist() for trial in study.trials]


# The optimum


def test_half_of_the_initial_design_follows_the_densities() -> None:
    study = quick(MIXED, initial=10_000, prior=Prior(optimum=BELIEF))
    points = [trial.x for trial in study.ask(400)]
    believed, others = points[::2], points[1::2]
    logs = np.log([x["rate"] for x in believed])
    assert abs(logs.mean() - math.log(1e-2)) < 0.05 and abs(logs.std() - math.log(1.5)) < 0.05
    layers = np.bincount([x["layers"] for x in believed], minlength=9)[1:] / 200
    wanted = stats.poisson(3).pmf(np.arange(1, 9))
    np.testing.assert_allclose(layers, wanted / wanted.sum(), atol=0.04)
    assert abs(np.mean([x["kind"] == "a" for x in believed]) - 0.75) < 0.04
    assert all(x["width"] == 64 for x in believed)
    assert np.ptp(np.log([x["rate"] for x in others])) > 9 and {x["kind"] for x in others} == {"a", "b", "c"}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("options", [{}, {"acquisition": "ucb"}, {"constraints": [Linear({0: 1.0}, high=0.9)]}])
def test_a_belief_guides_the_first_questions(options: dict[str, Any]) -> None:
    def flat(x: Any) -> float:
        return 1.0 + 0.01 * float(np.sin(3 * x[0]))

    belief = {0: (0.7, 0.05), 1: stats.beta(30, 70).pdf}
    guided, free = (searched(quick(SQUARE, prior=Prior(optimum=one), **options), flat, 6) for one in (belief, None))
    far = [np.abs(np.array(asked(one)[2:]) - [0.7, 0.3]).max(1) for one in (guided, free)]
    assert (far[0] < 0.25).all() and (far[1] > 0.25).any()


def test_a_misleading_belief_costs_the_first_questions_only() -> None:
    def bowl(x: Any) -> float:
        return float((x[0] - 0.2) ** 2 + (x[1] - 0.2) ** 2)

    wrong = asked(searched(quick(SQUARE, prior=Prior(optimum={0: (0.9, 0.05), 1: (0.9, 0.05)})), bowl, 20))
    assert min(map(bowl, wrong)) < 1e-3 and bowl(wrong[0]) > 0.3


def test_several_objectives_are_guided() -> None:
    study = quick(SQUARE, objectives=2, prior=Prior(optimum={1: (0.8, 0.02)}))
    points = asked(searched(study, lambda x: (x[0], 1 - x[0]), 6))
    assert np.abs(np.array(points[3:])[:, 1] - 0.8).max() < 0.15


def test_a_checkpoint_keeps_the_belief(tmp_path: Path) -> None:
    options: dict[str, Any] = {"n_calls": 4, "prior": Prior({0: (0.5, 0.1)}), "checkpoint": tmp_path / "search"}
    with pytest.raises(KeyError):
        minimum(lambda x: {}[0], SQUARE, **options)
    assert minimum(sum, SQUARE, **options).nfev == 4
    with pytest.raises(ValueError, match="optimum is"):
        minimum(sum, SQUARE, **(options | {"prior": None}))


def test_a_belief_of_nested_parameters() -> None:
    bounds = {"net": {"kind": Categorical(("a", "b")), "depth": Integer(1, 9)}, "rate": (0, 1)}
    beliefs = {"net": {"kind": {"b": 1}, "depth": (4, 1)}}, {"net.kind": {"b": 1}, "net.depth": (4, 1)}
    nested, flat = (asked(searched(quick(bounds, prior=Prior(optimum=one)), lambda x: x["rate"], 4)) for one in beliefs)
    assert nested == flat and nested[0]["net"]["kind"] == "b"


@pytest.mark.parametrize(
    ("optimum", "error", "message"),
    [
        ({"rte": (0.1, 2)}, ValueError, "optimum: unknown parameter 'rte': did you mean 'rate'"),
        ({"rate": (2.0, 2)}, ValueError, r"optimum\['rate'\]: the center = 2.0 lies outside the bounds"),
        ({"rate": (0.1, 0.5)}, ValueError, "the width must be a factor above 1 on a logarithmic scale; got 0.5"),
        ({"layers": (3, 0)}, ValueError, "the width must be a positive number; got 0"),
        ({"kind": {"z": 1}}, ValueError, r"optimum\['kind'\] = 'z' is not one of"),
        ({"kind": ("a", 1)}, TypeError, r"must be a pair \(center, width\) for numbers, a dict from values to weights"),
        ({"width": lambda width: -1}, ValueError, "densities must be finite, not negative and not all zero; got .*-1"),
        ({"rate": lambda rate: math.nan}, ValueError, "densities must be finite"),
        ({"kind": {"a": 0}}, ValueError, "densities must be finite, not negative and not all zero"),
        ({"rate": 3}, TypeError, "must be a pair"),
        (3, TypeError, "optimum must be a dict from names, or indices, to beliefs; got 3"),
        ({"branch": (0.5, 0.1)}, ValueError, "optimum: 'branch' has a condition, so that no belief may be of it"),
    ],
)
def test_bad_beliefs_are_refused(optimum: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        BayesianOptimizer(
            MIXED | {"branch": Conditional(Real(0, 1), "kind", ("a",))}, seed=0, prior=Prior(optimum=optimum)
        )


# Directions


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
        study = quick(SQUARE, prior=Prior(monotone=directions), **options)
        for x, value in zip(points, values, strict=True):
            study.tell(x, value)
        means = [study.predict([u, 0.2]).mean for u in (0.2, 0.9)]
        apart[str(directions)] = means[1] - means[0]
        if surrogate == "gp":
            np.testing.assert_allclose([study.predict(x).mean for x in points], values, atol=1e-3)
    assert apart["{0: -1}"] < apart["None"] < apart["{0: 1}"]


def test_values_overrule_a_wrong_direction() -> None:
    result = minimum(lambda x: (x[0] - 0.2) ** 2 + x[1], SQUARE, n_calls=20, prior=Prior(monotone={0: -1, 1: -1}))
    assert result.fun < 0.01


def test_each_output_has_its_directions() -> None:
    bounds = {"a": (0.0, 1.0), "b": Integer(0, 9), "c": Ordinal((1, 4, 9))}
    options: dict[str, Any] = {"outcome_constraints": 1, "prior": Prior(monotone=[{"a": 1, "c": -1}, {"b": -1}])}
    study = quick(bounds, **options)
    for _ in range(6):
        trial = study.ask()
        study.tell(trial, trial.x["a"] - trial.x["c"] / 9, outcomes=0.4 - trial.x["b"] / 9)
    assert study.settings.monotone == trend.Directions(((1, 0, -1), (0, -1, 0))) and study.ask().number == 6
    alone = quick(bounds, outcome_constraints=1, prior=Prior(monotone={"a": 1}))
    assert alone.settings.monotone == trend.Directions(((1, 0, 0), (0, 0, 0)))


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
        BayesianOptimizer(space, seed=0, prior=Prior(monotone=given), **options)


# Earlier searches


def waves(x: Any) -> float:
    return math.cos(2.1 * x[0] + 1) + math.sin(1.7 * x[1]) + math.cos(x[0] * x[1] / 5)


@pytest.fixture(scope="module")
def first() -> BayesianOptimizer:
    return searched(quick(seed=5), lambda x: 3 * BRANIN(x) + 7, 16)  # other units


def test_a_search_in_any_form_informs_the_first_questions(first: BayesianOptimizer, tmp_path: Path) -> None:
    first.save(tmp_path / "first")
    with_it = searched(quick(prior=Prior(earlier=first)), BRANIN, 5)
    assert with_it.trials[0].x == pytest.approx(first.best[0])
    assert with_it.best[1] < 0.7  # the minimum is .398
    assert len(with_it.trials) == len(with_it.evaluations()[0]) == len(with_it.trials_dataframe()) == 5
    result = minimum(BRANIN, n_calls=5, prior=Prior(earlier=tmp_path / "first"))
    assert np.asarray(result.x_iters).tolist() == asked(with_it)
    for form in ([first], first.trials_dataframe(), first.trials_dataframe().to_records()):
        assert asked(searched(quick(prior=Prior(earlier=form)), BRANIN, 3)) == asked(with_it)[:3]
    again = quick(prior=Prior(earlier=result))  # a result, here of a search that had an earlier one itself
    assert again.ask().x == pytest.approx(result.x)


def test_how_related_the_functions_are_is_learned() -> None:
    """An unrelated study is not used, and predictions become better only with the related one."""
    at, known = np.random.default_rng(0).uniform([-5, 0], [10, 15], (2, 40, 2))
    tables = {
        name: pd.DataFrame({"x_0": known[:, 0], "x_1": known[:, 1], "value": list(map(fun, known))})
        for name, fun in {"related": lambda x: 3 * BRANIN(x) + 7, "unrelated": waves}.items()
    }
    used, errors = {}, {}
    for name, earlier in {"none": None, **tables}.items():
        study = quick(prior=Prior(earlier=earlier))
        for x in np.random.default_rng(1).uniform([-5, 0], [10, 15], (12, 2)):
            study.tell(x, BRANIN(x))
        used[name] = int(study.fitted()[1].trials.answered) - 12
        errors[name] = np.mean([abs(study.predict(x).mean - BRANIN(x)) for x in at])
    assert used == {"none": 0, "related": 40, "unrelated": 0}
    assert errors["related"] < 0.5 * errors["none"] and errors["unrelated"] < 1.1 * errors["none"], errors


def test_values_of_a_study_are_brought_to_own_units() -> None:
    units = np.random.default_rng(0).uniform(size=(30, 1))
    z = np.sin(4 * units[:, 0])
    study, at = related(units, z, np.zeros(1, int)), np.linspace(0.1, 0.9, 20)[:, None]
    np.testing.assert_allclose(study.aligned(at, 2 * np.sin(4 * at[:, 0]) - 3), 2 * z - 3, atol=0.3)
    assert np.ptp(study.aligned(at, -np.sin(4 * at[:, 0]))) == 0  # where the function falls as the other rises
    np.testing.assert_allclose(study.aligned(at[:1], np.array([5.0])), z + 5.0 - np.sin(0.4), atol=0.05)


def test_a_search_with_an_earlier_one_goes_on_from_its_file(first: BayesianOptimizer, tmp_path: Path) -> None:
    options = {"checkpoint": tmp_path / "search", "prior": Prior(earlier=first)}
    minimum(BRANIN, n_calls=3, **options)
    result = minimum(BRANIN, n_calls=5, **options)
    assert np.asarray(result.x_iters).tolist() == asked(searched(quick(prior=Prior(earlier=first)), BRANIN, 5))
    with pytest.raises(ValueError, match="is of another search: earlier is"):
        minimum(BRANIN, n_calls=6, **{**options, "prior": None})


TREE = {
    "kind": Categorical(("a", "b")),
    "rate": Real(1e-3, 1, log=True),
    "depth": Conditional(Integer(1, 6), "kind", ("b",)),
}


def score(x: Any) -> float:
    return abs(math.log10(x["rate"]) + 1.5) + (abs(x["depth"] - 4) / 4 if x["kind"] == "b" else 1.0)


CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "tree": (TREE, score, {"constraints": [lambda x: x["rate"] < 0.5]}),
    "failures": (
        TREE,
        lambda x: math.nan if x["rate"] > 0.3 else score(x),
        {"prior": Prior(optimum={"rate": (0.03, 3)})},
    ),
    "several": (BOX, lambda x: (x[0], BRANIN(x)), {"objectives": 2}),
    "outcome": (
        BOX,
        lambda x: (BRANIN(x), [x[0] - 3]),
        {"outcome_constraints": 1, "constraints": [Linear({0: 1}, -4)]},
    ),
    "noise": (BOX, lambda x: -BRANIN(x), {"maximize": True, "noise_std": 0.1, "surrogate": "sparse_gp"}),
    "monotone": (
        BOX,
        lambda x: -BRANIN(x),
        {"maximize": True, "prior": Prior(monotone={0: 1}), "search": replace(QUICK, trust_region=True)},
    ),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES)
def test_earlier_searches_go_with_other_capabilities(case: str, tmp_path: Path) -> None:
    bounds, fun, options = CASES[case]
    earlier = searched(quick(bounds, seed=3, **options), fun, 9)
    known = options.get("prior", Prior())
    if case == "tree":  # a file holds no functions
        earlier.save(tmp_path / "study")
        assert quick(bounds, **{**options, "prior": replace(known, earlier=tmp_path / "study")}).ask().number == 0
    study = searched(quick(bounds, **{**options, "prior": replace(known, earlier=earlier)}), fun, 5)
    waiting = study.ask(2)
    assert len({str(trial.x) for trial in (*study.trials, *waiting)}) == 7
    if study.is_feasible and study.outputs.plain:
        assert np.isfinite(study.predict(study.recommend().x)).all()


def test_points_outside_are_used_and_others_left_out() -> None:
    table = pd.DataFrame({"x_0": [0.1, 0.5, 1.4, 9.0], "value": [3.0, 2.0, 1.0, 0.0]})
    study = BayesianOptimizer([(0, 1)], seed=0, prior=Prior(earlier=table))
    assert study.settings.earlier[0].units.ravel() == pytest.approx([0.1, 0.5, 1.4])
    assert study.ask().x == pytest.approx([1.0])  # the nearest point of the space to the best one
    long = pd.DataFrame({"x_0": np.linspace(0, 1, 1000), "value": np.linspace(1, 0, 1000)})
    units = BayesianOptimizer([(0, 1)], seed=0, prior=Prior(earlier=long)).settings.earlier[0].units
    assert len(units) == 128 and np.sum(units > 0.935) >= 64 and units.min() == 0


@pytest.mark.parametrize(
    ("earlier", "error", "message"),
    [
        (3, TypeError, "earlier must be a result of seqdec.minimize, .* path of a saved search; got 3"),
        ([None], TypeError, r"earlier\[0\] must be a result"),
        ("nowhere", FileNotFoundError, "nowhere"),
        (pd.DataFrame({"x_0": [0.1]}), ValueError, "earlier has no column 'value'; its columns are"),
        (pd.DataFrame({"x": [0.1], "value": [1.0]}), ValueError, "earlier has no column 'x_0'"),
        (pd.DataFrame({"x_0": [7.0], "value": [1.0]}), ValueError, "none of its points fits, .* because"),
        (pd.DataFrame({"x_0": [0.1, 0.2], "value": [1.0, 1.0]}), ValueError, "two different values"),
        (pd.DataFrame({"x_0": [0.1], "value": [math.nan]}), ValueError, "no complete trial"),
    ],
)
def test_wrong_studies_are_refused(earlier: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        BayesianOptimizer([(0, 1)], seed=0, prior=Prior(earlier=earlier))


def test_an_earlier_study_needs_a_surrogate_that_is_refitted() -> None:
    known = Prior(earlier=pd.DataFrame({"x_0": [0.1, 0.2], "value": [1.0, 2.0]}))
    with pytest.raises(ValueError, match="earlier needs one of the surrogates auto, gp, sparse_gp; got 'hilofi'"):
        BayesianOptimizer([(0, 1)], seed=0, surrogate="hilofi", prior=known)
