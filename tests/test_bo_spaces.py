"""Bayesian optimization of named, fixed, conditional, ordered and constrained parameters."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import seqdec
from seqdec.bo import (
    BayesianOptimizer,
    Categorical,
    Conditional,
    Exhausted,
    Integer,
    Linear,
    Ordinal,
    Real,
    Search,
    Space,
    space_from,
)
from seqdec.bo.search import candidates as suggesting
from tests.toys import optimizer_programs

QUICK = Search(raw_samples=64, num_restarts=4, steps=10)
PLAIN = {"rate": Real(1e-4, 1.0, log=True), "layers": Integer(1, 4), "name": Categorical(("relu", "elu", "tanh"))}
TREE = {
    "rate": Real(1e-4, 1.0, log=True),
    "degree": Conditional(Integer(2, 5), "kernel", ("poly",)),  # declared before what it depends on
    "kernel": Categorical(("rbf", "poly")),
    "shift": Conditional(Real(0.0, 1.0), "degree", (3, 4)),
}
SQUARE = {"a": Real(0.0, 1.0), "b": Real(0.0, 1.0)}


def optimizer(bounds: Any, **options: Any) -> BayesianOptimizer:
    return BayesianOptimizer(bounds, **{"seed": 0, "capacity": 16, "search": QUICK, **options})


def minimum(fun: Any, bounds: Any, **options: Any) -> Any:
    return seqdec.minimize(fun, bounds, **{"n_calls": 8, "seed": 0, "search": QUICK, "progress": False, **options})


def plain_loss(x: dict[str, Any]) -> float:
    return (math.log10(x["rate"]) + 2) ** 2 + abs(x["layers"] - 3) + (x["name"] != "elu")


def tree_loss(x: dict[str, Any]) -> float:
    at = (math.log10(x["rate"]) + 2) ** 2
    return at + (2.0 if x["kernel"] == "rbf" else abs(x["degree"] - 4) + (x.get("shift", 1.0) - 0.3) ** 2)


# Names


def test_names_change_the_form_of_the_points_alone() -> None:
    def positional(x: list[Any]) -> float:
        return plain_loss(dict(zip(PLAIN, x, strict=True)))

    named, listed = minimum(plain_loss, PLAIN), minimum(positional, list(PLAIN.values()))
    assert [list(x.items()) for x in named.x_iters] == [list(zip(PLAIN, x, strict=True)) for x in listed.x_iters]
    assert named.x == dict(zip(PLAIN, listed.x, strict=True)) and named.fun == listed.fun
    table = named.optimizer.trials_dataframe()
    assert list(table) == ["number", "state", "value", "rate", "layers", "name", "reason", "seconds"]
    assert table["layers"].tolist() == [x["layers"] for x in named.x_iters]
    assert named.optimizer.best == (named.x, named.fun) and "rate:" in repr(named)


def test_reals_with_names_are_dicts() -> None:
    named, listed = optimizer(SQUARE), optimizer([(0.0, 1.0), (0.0, 1.0)])
    trials = [(named.ask(), listed.ask()) for _ in range(3)]
    assert all(list(one.x.items()) == list(zip("ab", two.x.tolist(), strict=True)) for one, two in trials)
    trials[0][0].x["a"] = 0.5
    with pytest.raises(ValueError, match="trial 0 was not asked from this optimizer at"):
        named.tell(trials[0][0], 1.0)
    named.tell({"b": np.float32(0.5), "a": 1}, 1.0)
    assert named.best == ({"a": 1.0, "b": 0.5}, 1.0)


def test_what_the_function_does_to_its_dict_is_not_recorded() -> None:
    result = minimum(lambda x: x.clear() or 1.0, PLAIN, n_calls=3)
    assert all(x.keys() == PLAIN.keys() for x in result.x_iters)


def test_an_integer_and_a_real_of_equal_limits_share_no_program() -> None:
    whole, real = ([kind(0, 4), kind(0, 40)] for kind in (Integer, Real))
    assert space_from(whole) != space_from(real) and space_from(whole) == space_from(whole)
    for bounds in (whole, real):
        study = optimizer(bounds, surrogate="lrkf", surrogate_options={"features": (4,), "rank": 2})
        for _ in range(5):
            trial = study.ask()
            study.tell(trial, (trial.x[0] - 1.3) ** 2 + (trial.x[1] - 22.6) ** 2)
    asked = np.array([trial.x for trial in study.trials[2:]])
    columns = asked * [5 / 4, 41 / 40] - 0.5  # whole numbers where the columns of the integers have values
    assert np.abs(columns - np.round(columns)).max() > 0.05


def test_spaces_of_equal_columns_share_optimizer_programs() -> None:
    def three(bounds: Any, **options: Any) -> None:
        study = optimizer(bounds, initial=2, **options)
        for value in (1.0, 2.0):
            study.tell(study.ask(), value)
        study.ask()

    three(PLAIN)
    three(TREE)
    counts = optimizer_programs()
    three(list(PLAIN.values()))
    three(PLAIN | {"rate": Real(-3.0, 7.0)})
    three({"r": PLAIN["rate"], "n": PLAIN["layers"], "z": Categorical((1, (2, 3), None))})
    three([(0.0, 1.0)] * space_from(PLAIN).columns)
    study = optimizer(PLAIN, initial=2)
    for value in (1.0, 2.0):
        study.tell(study.ask(), value)
    for fixed in ({"layers": 2}, {"rate": 0.01, "name": "elu"}, {"layers": 3}):
        study.ask(fixed=fixed)
    three(TREE | {"degree": Conditional(Integer(2, 5), "kernel", ("rbf",))}, constraints=[lambda x: x["rate"] < 0.1])
    three(TREE, constraints=[Linear({"rate": 1.0}, high=0.5)])
    assert counts == optimizer_programs()


# Ordered choices


def test_an_ordinal_is_one_column_in_order() -> None:
    choices = (np.int64(16), 32, (64, 64), "huge")
    space = space_from([Ordinal(choices), (0, 1)])
    assert space.columns == 2 and space.size == math.inf
    assert [space.point([choice, 0.0]).unit[0] for choice in choices] == [0.125, 0.375, 0.625, 0.875]
    assert [space.decode(np.array([unit, 0.0]))[0] for unit in (0.0, 0.3, 0.74, 1.0)] == list(choices)
    np.testing.assert_allclose(space.snap(np.array([[0.3, 0.2]], np.float32)), [[0.375, 0.2]], rtol=1e-6)


def test_ordered_choices_are_found_between_others(tmp_path: Any) -> None:
    sizes = tuple(2**i for i in range(4, 14))
    study = optimizer({"size": Ordinal(sizes), "name": Categorical((np.float32(0.1), (1, 2)))})
    for _ in range(10):
        trial = study.ask()
        study.tell(trial, abs(math.log2(trial.x["size"]) - 9))
    assert study.best[0]["size"] == 512
    study.save(tmp_path / "study")
    loaded = BayesianOptimizer.load(tmp_path / "study")
    assert loaded.space == study.space and loaded.ask().x == study.ask().x


# Fixed values


@pytest.mark.parametrize("bounds", [SQUARE, [(0.0, 1.0), (0.0, 1.0)]])
def test_fixed_values_are_kept_and_the_others_fit_them(bounds: Any) -> None:
    first, second = ("a", "b") if isinstance(bounds, dict) else (0, 1)
    study = optimizer(bounds, acquisition="greedy")
    assert [trial.x[first] for trial in study.ask(2, fixed={first: 0.3})] == [0.3, 0.3]  # of the initial design
    for unit in np.random.default_rng(0).random((10, 2)):
        study.tell(dict(zip("ab", unit, strict=True)) if isinstance(bounds, dict) else unit, (unit[0] - unit[1]) ** 2)
    for value in (0.2, 0.7):
        trial = study.ask(fixed={first: value})
        assert trial.x[first] == value and trial.x[second] == pytest.approx(value, abs=0.12)
    assert study.ask(fixed={first: 0.2, second: 0.9}).number == 14
    with pytest.raises(Exhausted, match=r"points of the space with fixed=.* have been suggested"):
        study.ask(fixed={first: 0.2, second: 0.9})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bounds", [SQUARE, TREE | {"a": Real(0.0, 1.0)}])
def test_fixed_values_on_a_grid_of_queries(bounds: Any) -> None:
    lrkf: dict[str, Any] = {"surrogate": "lrkf", "surrogate_options": {"features": (4,), "rank": 2}}
    study = optimizer(bounds, search=replace(QUICK, grid=True), initial=2, **lrkf)
    for trial in study.ask(2):
        study.tell(trial, trial.x["a"])
    asked = [trial.x for trial in study.ask(4, fixed={"a": 0.3})]
    grid = suggesting.sobol(64, study.space.columns, scramble=True)
    units = np.array([point.unit for unit in grid if (point := study.space.point_at(unit, {"a": 0.3})) is not None])
    distances = [np.abs(units - study.space.point(x).unit).max(axis=1).min() for x in asked]
    assert {x["a"] for x in asked} == {0.3} and max(distances) < 1e-6  # the surrogate's grid is in single precision
    assert len(set(map(str, asked))) == 4


def test_a_finite_space_is_exhausted_where_it_is_fixed() -> None:
    study = optimizer({"n": Integer(0, 2), "c": Categorical(("a", "b"))})
    trials = study.ask(3, fixed={"c": "b"})
    assert sorted(trial.x["n"] for trial in trials) == [0, 1, 2]
    with pytest.raises(Exhausted, match=r"points of the space with fixed=\{'c': 'b'\} have been suggested"):
        study.ask(fixed={"c": "b"})
    assert study.ask().x["c"] == "a"


# Conditions


def legal(x: dict[str, Any]) -> bool:
    """Whether a point of TREE has exactly its active parameters."""
    expected = {"rate", "kernel"} | ({"degree"} if x["kernel"] == "poly" else set())
    return x.keys() == expected | ({"shift"} if x.get("degree") in (3, 4) else set())


def test_inactive_parameters_are_absent() -> None:
    result = minimum(tree_loss, TREE, n_calls=14)
    assert all(map(legal, result.x_iters)) and len(set(map(len, result.x_iters))) == 3
    assert result.x["kernel"] == "poly" and result.fun < 0.5
    table = result.optimizer.trials_dataframe()
    assert list(table)[3:-2] == list(TREE)
    assert table["shift"].isna().tolist() == ["shift" not in x for x in result.x_iters]


def test_inactive_parameters_do_not_influence_the_surrogate() -> None:
    space = space_from(TREE)
    one, two = (space.point_at(unit) for unit in ([0.5, 0.1, 1, 0, 0.2], [0.5, 0.9, 1, 0, 0.7]))
    assert one is not None and two is not None and one.x == two.x == {"rate": pytest.approx(0.01), "kernel": "rbf"}
    np.testing.assert_array_equal(one.unit, two.unit)
    assert space.active(one.x).tolist() == [True, False, True, True, False]
    assert space.active({"rate": 1, "kernel": "poly", "degree": 3, "shift": 0}).all()


def test_an_ascent_leaves_inactive_columns_where_they_are() -> None:
    study = optimizer(TREE)
    for _ in range(6):
        trial = study.ask()
        study.tell(trial, tree_loss(trial.x))
    for entry in study._record.entries:
        assert np.all(entry.point.unit[~study.space.active(entry.point.x)] == 0.5)


def test_a_finite_space_with_conditions_is_searched_once() -> None:
    study = optimizer(
        {
            "n": Integer(0, 2),
            "c": Conditional(Categorical(("a", "b")), "n", (2,)),
            "d": Conditional(Integer(0, 1), "c", ("a",)),
        }
    )
    for _ in range(5):
        trial = study.ask()
        study.tell(trial, trial.x["n"] + trial.x.get("d", 0))
    assert sorted(str(trial.x) for trial in study.trials) == sorted(map(str, study.space.points()))
    with pytest.raises(Exhausted, match="all 5 points of the space have been suggested"):
        study.ask()


def test_fixing_a_conditional_parameter_makes_it_active() -> None:
    study = optimizer(TREE)
    for _ in range(4):
        trial = study.ask(fixed={"shift": 0.25})
        assert legal(trial.x) and trial.x["shift"] == 0.25
        study.tell(trial, tree_loss(trial.x))
    assert study.ask(fixed={"kernel": "rbf"}).x.keys() == {"rate", "kernel"}
    with pytest.raises(ValueError, match="fixed: 'degree' is inactive at 'kernel' = 'rbf': leave one of them out"):
        study.ask(fixed={"degree": 3, "kernel": "rbf"})
    with pytest.raises(ValueError, match="fixed: 'degree' is inactive at 'kernel' = 'rbf'"):
        study.ask(fixed={"shift": 0.5, "kernel": "rbf"})


# Constraints


def test_no_question_violates_a_constraint() -> None:
    rules: list[Any] = [Linear({0: 1, 1: 2}, high=1.5), lambda x: (x[0] - 0.5) ** 2 + (x[1] - 0.5) ** 2 < 0.1]
    result = minimum(lambda x: -x[0] - x[1], [(0.0, 1.0), (0.0, 1.0)], n_calls=16, constraints=rules)
    points = np.array(result.x_iters)
    assert np.all(points @ [1, 2] <= 1.5) and np.all(np.sum((points - 0.5) ** 2, axis=1) < 0.1)
    # the corner of line and circle, where x0 + x1 is largest
    corner = max(x0 + (1.5 - x0) / 2 for x0 in np.linspace(0, 1, 10001) if (x0 - 0.5) ** 2 + (0.25 - x0 / 2) ** 2 < 0.1)
    assert -result.fun == pytest.approx(corner, abs=0.01)


def test_a_small_part_of_the_cube_is_searched() -> None:
    shares = {f"part {i}": Real(0.0, 1.0) for i in range(8)}
    mixture = [Linear(dict.fromkeys(shares, 1.0), high=1.0)]  # one in 40,320 points of the cube

    result = minimum(lambda x: sum((v - 0.1) ** 2 for v in x.values()), shares, n_calls=12, constraints=mixture)
    assert max(sum(x.values()) for x in result.x_iters) <= 1
    assert len({tuple(x.values()) for x in result.x_iters}) == 12 and result.fun < 0.1


def test_constraints_on_integers_choices_and_conditions() -> None:
    rules: list[Any] = [
        Linear({"n": 1, "size": 2}, low=10, high=10),
        Linear({"n": 1, "extra": 5}, high=8),  # an inactive one adds nothing
    ]
    bounds = {
        "n": Integer(0, 20),
        "size": Ordinal((1, 2, 3, 4)),
        "extra": Conditional(Integer(0, 2), "size", (1, 3)),
    }
    study = optimizer(bounds, constraints=rules)
    expected = [
        {"n": 2, "size": 4},
        {"n": 4, "size": 3, "extra": 0},
        {"n": 6, "size": 2},
        {"n": 8, "size": 1, "extra": 0},
    ]
    assert sorted((trial.x for trial in study.ask(4)), key=str) == sorted(expected, key=str)
    with pytest.raises(Exhausted, match="all 4 points"):
        study.ask()


def test_fixed_values_within_constraints() -> None:
    study = optimizer(SQUARE, constraints=[Linear({"a": 1, "b": 1}, high=1.0)])
    for value in (0.9, 0.8, 0.7):
        trial = study.ask(fixed={"a": value})
        assert trial.x["a"] == value and trial.x["b"] <= 1 - value
        study.tell(trial, -trial.x["b"])
    assert study.ask(fixed={"b": 0.95}).x["a"] <= 0.05
    study = optimizer(SQUARE, constraints=[lambda x: x["a"] < 0.5])
    with pytest.raises(ValueError, match=r"no point with fixed=\{'a': 0.75\} was found that satisfies"):
        study.ask(fixed={"a": 0.75})
    assert not study.trials


def test_points_that_violate_are_refused_everywhere() -> None:
    rules = [Linear({"a": 1, "b": -2}, high=0.5)]
    study = optimizer(SQUARE, constraints=rules)
    bad = {"a": 1.0, "b": 0.0}
    for use in (study.propose, lambda x: study.tell(x, 1.0)):
        with pytest.raises(
            ValueError, match=r"\{'a': 1.0, 'b': 0.0\} violates the constraint 1 \* 'a' \+ -2 \* 'b' <= 0.5"
        ):
            use(bad)
    with pytest.raises(ValueError, match="violates the constraint"):
        minimum(lambda x: pytest.fail("evaluated"), SQUARE, constraints=rules, x0=bad)


def test_an_empty_space_is_refused() -> None:
    rules: list[Any] = [Linear({"a": 1, "b": 1}, low=2.5), Linear({"a": 1}, high=0.5)]
    with pytest.raises(
        ValueError, match=r"no point .* of 8192 tried, 2.5 <= 1 \* 'a' \+ 1 \* 'b' holds at 0.0%, 1 \* 'a'"
    ):
        optimizer(SQUARE, constraints=rules)
    with pytest.raises(
        ValueError, match=r"<lambda> holds at 0.0%: correct or widen a constraint, or narrow the bounds"
    ):
        optimizer({"n": Integer(0, 3)}, constraints=[lambda x: x["n"] > 3])


# Studies in files


COLUMNS = ("number", "state", "value", "reason", "seconds")
names = st.text(min_size=1, max_size=3).filter(lambda name: name not in COLUMNS)
leaves = st.one_of(
    st.just((-1.5, 2.0)),
    st.builds(Integer, st.integers(-3, 0), st.integers(1, 3), st.just(False)),
    st.sampled_from([Ordinal((1, "b", None)), Categorical(("x", (1, 2), np.float32(0.5)))]),
)


@st.composite
def trees(draw: Any) -> dict[str, Any]:
    """Named parameters, about half of them conditional on one declared before."""
    bounds: dict[str, Any] = {}
    for name in draw(st.lists(names, min_size=1, max_size=5, unique=True)):
        parents = [known for known in bounds if _discrete(bounds[known])]
        leaf = draw(leaves)
        if parents and draw(st.booleans()):
            on = draw(st.sampled_from(parents))
            of = list(_values(_bare(bounds[on])))
            leaf = Conditional(
                Real(*leaf) if type(leaf) is tuple else leaf, on, tuple(draw(st.lists(st.sampled_from(of), min_size=1)))
            )
        bounds[name] = leaf
    return dict(draw(st.permutations(list(bounds.items()))))


def _bare(entry: Any) -> Any:
    return entry.dimension if isinstance(entry, Conditional) else entry


def _discrete(entry: Any) -> bool:
    return isinstance(_bare(entry), Integer | Ordinal | Categorical)


def _values(dimension: Any) -> Any:
    return range(dimension.low, dimension.high + 1) if isinstance(dimension, Integer) else dimension.choices


@settings(max_examples=25, deadline=None, derandomize=True)
@given(bounds=trees())
def test_random_trees(bounds: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    study = optimizer(bounds, initial=1000)
    space = study.space
    assert space_from(space) == space == space_from(bounds)
    for unit in np.random.default_rng(0).random((6, space.columns)):
        point = space.point_at(unit)
        assert (
            point is not None
            and space.values(point.x) == point.x
            and list(point.x) == [n for n in bounds if n in point.x]
        )
        for name, entry in bounds.items():
            expected = not isinstance(entry, Conditional) or (
                entry.on in point.x and point.x[entry.on] in {*entry.values}
            )
            assert (name in point.x) == expected
        again = space.point_at(point.unit)
        assert again is not None and again.x.keys() == point.x.keys()
        np.testing.assert_allclose(again.unit, point.unit, atol=1e-12)
        try:
            study.tell(study.ask(), 1.0)
        except Exhausted:
            assert len(study.trials) == len(list(space.points()))
    path = tmp_path_factory.getbasetemp() / "tree"
    study.save(path)
    loaded = BayesianOptimizer.load(path)
    assert loaded.space == space and [t.x for t in loaded.trials] == [t.x for t in study.trials]


# Refusals


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ({}, ValueError, "bounds must have at least one dimension"),
        ({1: (0, 1)}, TypeError, "the names of bounds must be strings, not empty; got 1"),
        ({"": (0, 1)}, TypeError, "the names of bounds must be strings, not empty; got ''"),
        ({"value": (0, 1)}, ValueError, "the name 'value' is that of a column of the table of trials: choose another"),
        ({"a": (1, 0)}, ValueError, r"bounds\['a'\] must have low <= high; got \(1.0, 0.0\): exchange them"),
        ({"a": 3}, TypeError, r"bounds\['a'\] must be a pair \(low, high\), a Real, an Integer, an Ordinal or a Cat"),
        ({"a": Ordinal((1, 1))}, ValueError, r"bounds\['a'\] must have choices, all of them different"),
        ({"a": Ordinal("abc")}, TypeError, "the choices of an Ordinal must be a tuple or list; got 'abc'"),
        ([Conditional(Integer(0, 1), "a", (1,))], TypeError, r"bounds\[0\] is a Conditional: conditions need names"),
        (Conditional(Integer(0, 1), "a", (1,)), TypeError, "bounds must be a sequence"),
        (
            {"a": Conditional(Real(0, 1), "c", (1,))},
            ValueError,
            r"bounds\['a'\]: the condition is on unknown param.*'c'",
        ),
        ({"a": Real(0, 1), "b": Conditional(Real(0, 1), "a", (1,))}, ValueError, "on 'a', a Real; use an Integer"),
        (
            {"a": Integer(0, 1), "b": Conditional(Real(0, 1), "a", (2,))},
            ValueError,
            r"bounds\['b'\]: 'a' = 2 lies outs",
        ),
        ({"a": Integer(0, 1), "b": Conditional(Real(0, 1), "a", ())}, TypeError, "must be a tuple, not empty; got"),
        ({"a": Categorical(("x", "y")), "b": Conditional(Real(0, 1), "a", "x")}, TypeError, "must be a tuple.*got 'x'"),  # pyright: ignore
        (
            {"a": Integer(0, 1), "b": Conditional(Conditional(Real(0, 1), "a", (1,)), "a", (1,))},  # pyright: ignore
            TypeError,
            r"bounds\['b'\] is a Conditional",
        ),
        ({"a": Conditional(Integer(0, 1), "a", (1,))}, ValueError, "form a circle, a -> a: remove one of them"),
        (
            {"a": Conditional(Integer(0, 1), "b", (1,)), "b": Conditional(Integer(0, 1), "a", (1,))},
            ValueError,
            "form a circle, a -> b -> a",
        ),
    ],
)
def test_bad_spaces_are_refused(bounds: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        space_from(bounds)


def test_names_of_a_space_fit_its_dimensions() -> None:
    with pytest.raises(ValueError, match=r"the names of a space must differ; got \('a', 'a'\)"):
        Space((Real(0, 1), Real(0, 1)), ("a", "a"))
    with pytest.raises(ValueError, match="a space has a name for each of its 1 dimensions"):
        Space((Real(0, 1),), ("a", "b"))
    with pytest.raises(ValueError, match="low <= high"):
        space_from(Space((Real(1, 0),)))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        ([0.1, "rbf"], TypeError, "a point of this space is a dict of rate, degree, kernel, shift; got"),
        ({"rate": 0.1, "kernle": "rbf"}, ValueError, "unknown parameter 'kernle': did you mean 'kernel'"),
        ({"rate": 0.1}, ValueError, "has no value of 'kernel', which is active there: add it"),
        ({"rate": 0.1, "kernel": "poly"}, ValueError, "has no value of 'degree', which is active there"),
        ({"rate": 0.1, "kernel": "rbf", "degree": 3}, ValueError, r"x\['degree'\] = 3 is inactive at 'kernel' = 'rbf'"),
        ({"rate": 2.0, "kernel": "rbf"}, ValueError, r"x\['rate'\] = 2.0 lies outside the bounds \[0.0001, 1.0\]"),
        ({"rate": "0.1", "kernel": "rbf"}, TypeError, r"x\['rate'\] must be a number; got '0.1'"),
        ({"rate": 0.1, "kernel": "linear"}, ValueError, r"x\['kernel'\] = 'linear' is not one of \('rbf', 'poly'\)"),
    ],
)
def test_bad_points_are_refused(x: Any, error: type, message: str) -> None:
    study = optimizer(TREE)
    for use in (study.propose, lambda x: study.tell(x, 1.0)):
        with pytest.raises(error, match=message):
            use(x)
    assert not study.trials


@pytest.mark.parametrize(
    ("fixed", "error", "message"),
    [
        ({"rat": 0.1}, ValueError, "fixed: unknown parameter 'rat': did you mean 'rate'"),
        ({0: 0.1}, ValueError, "fixed: unknown parameter 0"),
        ({"rate": 2.0}, ValueError, r"fixed\['rate'\] = 2.0 lies outside the bounds"),
        ({"kernel": "linear"}, ValueError, r"fixed\['kernel'\] = 'linear' is not one of"),
        ({"rate": None}, TypeError, r"fixed\['rate'\] must be a number; got None"),
        ([("rate", 0.1)], TypeError, "fixed must be a dict from names, or indices, to values; got"),
    ],
)
def test_bad_fixed_values_are_refused(fixed: Any, error: type, message: str) -> None:
    study = optimizer(TREE)
    with pytest.raises(error, match=message):
        study.ask(2, fixed=fixed)
    assert not study.trials
    with pytest.raises(ValueError, match="fixed: unknown parameter"):
        optimizer([(0, 1)]).ask(fixed={True: 0.5})
    with pytest.raises(ValueError, match="fixed: unknown parameter"):
        optimizer([(0, 1)]).ask(fixed={-1: 0.5})
    with pytest.raises(ValueError, match="fixed: unknown parameter"):
        optimizer([(0, 1), (0, 1)]).ask(fixed={1.0: 0.5})
    assert optimizer([(0, 1), (0, 1)]).ask(fixed={np.int64(1): 0.5}).x[1] == 0.5


def raising(x: Any) -> bool:
    raise KeyError("radius")


@pytest.mark.parametrize(
    ("constraints", "error", "message"),
    [
        (Linear({"a": 1}, high=1), TypeError, "constraints must be a list of Linear and of functions; got Linear"),
        (raising, TypeError, "constraints must be a list of Linear and of functions; got"),
        ([3], TypeError, r"constraints\[0\] must be a Linear or a function \(x\) -> bool; got 3"),
        ([Linear({}, high=1)], TypeError, r"constraints\[0\]: the weights must be a dict .* got \{\}"),
        ([Linear([1, 2], high=1)], TypeError, r"constraints\[0\]: the weights must be a dict"),  # pyright: ignore
        ([Linear({"aa": 1}, high=1)], ValueError, r"constraints\[0\]: unknown parameter 'aa'"),
        ([Linear({"a": "1"}, high=1)], TypeError, "the weight of 'a' must be a number; got '1'"),  # pyright: ignore
        ([Linear({"a": 0}, high=1)], ValueError, "the weights must be finite and not all zero"),
        ([Linear({"a": math.nan}, high=1)], ValueError, "the weights must be finite and not all zero"),
        ([Linear({"a": 1})], ValueError, "must have low <= high, one of them finite; got low=-inf, high=inf"),
        ([Linear({"a": 1}, 2, 1)], ValueError, "must have low <= high, one of them finite; got low=2.0, high=1.0"),
        ([Linear({"a": 1}, math.nan, 1)], ValueError, "must have low <= high"),
        (
            [Linear({"a": 1, "b": 1}, 1, 1)],
            ValueError,
            "low == high == 1.0, which no random point satisfies: leave one",
        ),
        ([Linear({"c": 1}, high=1)], ValueError, r"'c' has values that are no numbers, \('x', 1\): use a function"),
        ([raising], ValueError, "the constraint raising raised KeyError: 'radius' at .*; it must return True or False"),
        ([lambda x: None], TypeError, "returned None at .*; it must return True or False"),
        ([lambda x: 0.5], TypeError, "returned 0.5 at .*; it must return True or False"),
        ([lambda x: np.array([True])], TypeError, r"returned array\(\[ True\]\) at"),
    ],
)
def test_bad_constraints_are_refused(constraints: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        optimizer(SQUARE | {"c": Categorical(("x", 1))}, constraints=constraints)


def test_numpy_booleans_are_booleans() -> None:
    study = optimizer([(0.0, 1.0)], constraints=[lambda x: x[0] > np.float64(0.5), lambda x: np.array(True)])
    assert study.ask().x[0] > 0.5


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("value_0", {"objectives": 2}),
        ("value_1", {"objectives": 2}),
        ("outcome_0", {"outcome_constraints": 1}),
        ("outcome_1", {"outcome_constraints": 2, "objectives": 3}),
        ("feasible", {"outcome_constraints": 1}),
        *((name, {}) for name in COLUMNS),
    ],
)
def test_no_parameter_has_the_name_of_a_column(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"bounds: the name '{name}' is that of a column"):
        BayesianOptimizer({name: (0, 1), "other": (0, 1)}, seed=0, **options)
