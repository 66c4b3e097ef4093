"""Spaces: their encoding, names, nested dicts, constants, conditions, constraints and fixed values."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds

from seqdec.bo import (
    BayesianOptimizer,
    Categorical,
    Conditional,
    Exhausted,
    Fidelity,
    Integer,
    Linear,
    Ordinal,
    Real,
    Space,
    importances,
    space_from,
)
from seqdec.bo.search import ascent
from seqdec.bo.search import candidates as suggesting
from seqdec.bo.space.space import identity
from tests.bo.common import QUICK, SQUARE, minimum, quick, searched
from tests.toys import optimizer_programs

PLAIN = {"rate": Real(1e-4, 1.0, log=True), "layers": Integer(1, 4), "name": Categorical(("relu", "elu", "tanh"))}
TREE = {
    "rate": Real(1e-4, 1.0, log=True),
    "degree": Conditional(Integer(2, 5), "kernel", ("poly",)),  # declared before what it depends on
    "kernel": Categorical(("rbf", "poly")),
    "shift": Conditional(Real(0.0, 1.0), "degree", (3, 4)),
}
NAMED = {"a": Real(0.0, 1.0), "b": Real(0.0, 1.0)}
CONSTANTS = {
    "real": Real(2, 2),
    "pair": (1e-3, 1e-3),
    "integer": Integer(3, 3, log=True),
    "choice": Categorical(("a",)),
    "level": Ordinal((None,)),
}
VALUES = {"real": 2.0, "pair": 1e-3, "integer": 3, "choice": "a", "level": None}
NESTED = {
    "optimizer": {
        "kind": Categorical(("adam", "sgd")),
        "rate": Real(1e-4, 1.0, log=True),
        "momentum": Conditional(Real(0.0, 0.99), "kind", ("sgd",)),
        "schedule": {"steps": Conditional(Integer(1, 9), "kind", ("adam",))},
    },
    "depth": Integer(1, 5),
    "clip": Conditional(Real(0.0, 1.0), "optimizer.kind", ("sgd",)),
}


def plain_loss(x: dict[str, Any]) -> float:
    return (math.log10(x["rate"]) + 2) ** 2 + abs(x["layers"] - 3) + (x["name"] != "elu")


def tree_loss(x: dict[str, Any]) -> float:
    at = (math.log10(x["rate"]) + 2) ** 2
    return at + (2.0 if x["kernel"] == "rbf" else abs(x["degree"] - 4) + (x.get("shift", 1.0) - 0.3) ** 2)


def slow(x: dict[str, Any]) -> float:
    inner = x["optimizer"]
    return float((np.log10(inner["rate"]) + 2) ** 2 + abs(x["depth"] - 2) + inner.get("momentum", 0.5))


# The unit cube


def test_a_logarithmic_scale_has_its_middle_at_the_geometric_mean() -> None:
    space = space_from([Real(1e-4, 1.0, log=True), Real(0.0, 1.0)])
    assert space.decode(np.array([0.5, 0.5])) == pytest.approx([1e-2, 0.5])


@pytest.mark.parametrize("log", [False, True])
def test_snap_goes_to_integers_and_every_integer_is_reached(log: bool) -> None:
    space = space_from([Integer(1, 4, log=log)])
    units = np.linspace(0, 1, 401)[:, None]
    snapped = np.asarray(space.snap(jnp.asarray(units, jnp.float32)))
    values = [space.decode(unit)[0] for unit in units]
    assert {space.decode(unit)[0] for unit in snapped} == {1, 2, 3, 4} == set(values)
    np.testing.assert_allclose(snapped[:, 0], [space.point([v]).unit[0] for v in values], atol=1e-6)
    if not log:
        assert np.bincount(values)[1:].min() >= 99  # each owns a quarter


def test_a_choice_is_one_hot_and_an_ordinal_one_column_in_order() -> None:
    space = space_from([Categorical(("a", "b", "c"))])
    np.testing.assert_array_equal(space.snap(np.array([0.2, 0.7, 0.6])), [0, 1, 0])
    assert space.point(["c"]).unit.tolist() == [0, 0, 1] and space.size == 3 and len(list(space.points())) == 3
    choices = (np.int64(16), 32, (64, 64), "huge")
    space = space_from([Ordinal(choices), (0, 1)])
    assert space.columns == 2 and space.size == math.inf
    assert [space.point([choice, 0.0]).unit[0] for choice in choices] == [0.125, 0.375, 0.625, 0.875]
    assert [space.decode(np.array([unit, 0.0]))[0] for unit in (0.0, 0.3, 0.74, 1.0)] == list(choices)
    np.testing.assert_allclose(space.snap(np.array([[0.3, 0.2]], np.float32)), [[0.375, 0.2]], rtol=1e-6)


COLUMNS = ("number", "state", "value", "reason", "seconds")
names = st.text(min_size=1, max_size=3).filter(lambda name: name not in COLUMNS)
leaves = st.one_of(
    st.sampled_from([(-1.5, 2.0), Real(1e-4, 1.0, log=True), Integer(1, 4, log=True)]),
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
    study = quick(bounds, initial=1000)
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
        (settled,), (active,), (good,) = space.settled(unit[None], {})
        np.testing.assert_allclose(settled, point.unit, atol=1e-12)
        assert good and [name for name, there in zip(space.names, active, strict=True) if there] == list(point.x)
        try:
            study.tell(study.ask(), 1.0)
        except Exhausted:
            assert len(study.trials) == len(list(space.points()))
    path = tmp_path_factory.getbasetemp() / "tree"
    study.save(path)
    loaded = BayesianOptimizer.load(path)
    assert loaded.space == space and [t.x for t in loaded.trials] == [t.x for t in study.trials]


@pytest.mark.parametrize(
    ("bounds", "dimensions"),
    [
        (Bounds([0, 1], [2, 3]), (Real(0, 2), Real(1, 3))),
        (np.array([[0, 2], [1, 3]]), (Real(0, 2), Real(1, 3))),
        (gymnasium.spaces.Box(-1, 1, (2,)), (Real(-1, 1), Real(-1, 1))),
        (gymnasium.spaces.Box(0, 5, (1,), np.int64), (Integer(0, 5),)),
        (gymnasium.spaces.Discrete(3, start=2), (Integer(2, 4),)),
        (space_from(list(PLAIN.values())), tuple(PLAIN.values())),
    ],
)
def test_what_counts_as_bounds(bounds: Any, dimensions: Any) -> None:
    assert space_from(bounds).dimensions == dimensions


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
    named, listed = quick(NAMED), quick(SQUARE)
    trials = [(named.ask(), listed.ask()) for _ in range(3)]
    assert all(list(one.x.items()) == list(zip("ab", two.x.tolist(), strict=True)) for one, two in trials)
    trials[0][0].x["a"] = 0.5
    with pytest.raises(ValueError, match=r"trial 0 at .* is not from this optimizer"):
        named.tell(trials[0][0], 1.0)
    named.tell({"b": np.float32(0.5), "a": 1}, 1.0)
    assert named.best == ({"a": 1.0, "b": 0.5}, 1.0)


def test_spaces_of_equal_columns_share_optimizer_programs() -> None:
    def asked(bounds: Any, fixed: Any = None, **options: Any) -> None:
        study = quick(bounds, initial=2, **options)
        for value in (1.0, 2.0):
            study.tell(study.ask(), value)
        study.ask(fixed=fixed)

    asked(PLAIN)
    asked(TREE)
    counts = optimizer_programs()
    asked([(0.0, 1.0)] * space_from(PLAIN).columns)
    asked({"r": PLAIN["rate"], "n": PLAIN["layers"], "z": Categorical((1, (2, 3), None))})
    asked(PLAIN, {"rate": 0.01, "name": "elu"})
    asked(TREE, constraints=[lambda x: x["rate"] < 0.1, Linear({"rate": 1.0}, high=0.5)])
    assert counts == optimizer_programs()


# Fixed values


def test_fixed_values_are_kept_and_the_others_fit_them() -> None:
    study = quick(SQUARE, acquisition="greedy")
    assert [trial.x[0] for trial in study.ask(2, fixed={0: 0.3})] == [0.3, 0.3]  # of the initial design
    for unit in np.random.default_rng(0).random((10, 2)):
        study.tell(unit, (unit[0] - unit[1]) ** 2)
    for value in (0.2, 0.7):
        trial = study.ask(fixed={0: value})
        assert trial.x[0] == value and trial.x[1] == pytest.approx(value, abs=0.12)
    assert study.ask(fixed={np.int64(0): 0.2, 1: 0.9}).number == 14
    with pytest.raises(Exhausted, match=r"points of the space with fixed=.* have been suggested"):
        study.ask(fixed={0: 0.2, 1: 0.9})


def test_fixed_values_on_a_grid_of_queries() -> None:
    lrkf: dict[str, Any] = {"surrogate": "lrkf", "surrogate_options": {"features": (4,), "rank": 2}}
    study = searched(quick(NAMED, search=replace(QUICK, grid=True), initial=2, **lrkf), lambda x: x["a"], 2)
    asked = [trial.x for trial in study.ask(4, fixed={"a": 0.3})]
    grid = suggesting.sobol(64, study.space.columns, scramble=True)
    units = np.array([point.unit for unit in grid if (point := study.space.point_at(unit, {"a": 0.3})) is not None])
    distances = [np.abs(units - study.space.point(x).unit).max(axis=1).min() for x in asked]
    assert {x["a"] for x in asked} == {0.3} and max(distances) < 1e-6  # the surrogate's grid is in single precision
    assert len(set(map(str, asked))) == 4


def test_a_finite_space_is_exhausted_where_it_is_fixed() -> None:
    study = quick({"n": Integer(0, 2), "c": Categorical(("a", "b"))})
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
    assert space.active(one.unit[None]).tolist() == [[True, False, True, False]]
    assert space.active(space.point({"rate": 1, "kernel": "poly", "degree": 3, "shift": 0}).unit[None]).all()


def test_a_finite_space_with_conditions_is_searched_once() -> None:
    study = quick(
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
    study = quick(TREE)
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
    result = minimum(lambda x: -x[0] - x[1], SQUARE, n_calls=16, constraints=rules)
    points = np.array(result.x_iters)
    assert np.all(points @ [1, 2] <= 1.5) and np.all(np.sum((points - 0.5) ** 2, axis=1) < 0.1)
    # the corner of line and circle, where x0 + x1 is largest
    corner = max(x0 + (1.5 - x0) / 2 for x0 in np.linspace(0, 1, 10001) if (x0 - 0.5) ** 2 + (0.25 - x0 / 2) ** 2 < 0.1)
    assert -result.fun == pytest.approx(corner, abs=0.01)


def test_a_small_part_of_the_cube_is_searched() -> None:
    shares = {f"part {i}": Real(0.0, 1.0) for i in range(8)}
    mixture = [Linear(dict.fromkeys(shares, 1.0), high=1.0)]  # one in 40,320 points of the cube

    options = {"n_calls": 12, "constraints": mixture, "repeats": 0}
    result = minimum(lambda x: sum((v - 0.1) ** 2 for v in x.values()), shares, **options)
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
    study = quick(bounds, constraints=rules)
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
    study = quick(NAMED, constraints=[Linear({"a": 1, "b": 1}, high=1.0)])
    for value in (0.9, 0.8, 0.7):
        trial = study.ask(fixed={"a": value})
        assert trial.x["a"] == value and trial.x["b"] <= 1 - value
        study.tell(trial, -trial.x["b"])
    assert study.ask(fixed={"b": 0.95}).x["a"] <= 0.05
    study = quick(NAMED, constraints=[lambda x: x["a"] < 0.5])
    with pytest.raises(ValueError, match=r"no point with fixed=\{'a': 0.75\} was found that satisfies"):
        study.ask(fixed={"a": 0.75})
    assert not study.trials


def test_points_that_violate_are_refused_everywhere() -> None:
    rules = [Linear({"a": 1, "b": -2}, high=0.5)]
    study = quick(NAMED, constraints=rules)
    bad = {"a": 1.0, "b": 0.0}
    for use in (study.propose, lambda x: study.tell(x, 1.0)):
        with pytest.raises(
            ValueError, match=r"\{'a': 1.0, 'b': 0.0\} violates the constraint 1 \* 'a' \+ -2 \* 'b' <= 0.5"
        ):
            use(bad)
    with pytest.raises(ValueError, match="violates the constraint"):
        minimum(lambda x: pytest.fail("evaluated"), NAMED, constraints=rules, x0=bad)


def test_an_empty_space_is_refused() -> None:
    rules: list[Any] = [Linear({"a": 1, "b": 1}, low=2.5), Linear({"a": 1}, high=0.5)]
    with pytest.raises(
        ValueError, match=r"no point .* of 8192 tried, 2.5 <= 1 \* 'a' \+ 1 \* 'b' holds at 0.0%, 1 \* 'a'"
    ):
        quick(NAMED, constraints=rules)
    with pytest.raises(
        ValueError, match=r"<lambda> holds at 0.0%: correct or widen a constraint, or narrow the bounds"
    ):
        quick({"n": Integer(0, 3)}, constraints=[lambda x: x["n"] > 3])


def test_numpy_booleans_are_booleans() -> None:
    study = quick([(0.0, 1.0)], constraints=[lambda x: x[0] > np.float64(0.5), lambda x: np.array(True)])
    assert study.ask().x[0] > 0.5


# Constants


def test_constants_are_in_every_point_and_change_no_question(tmp_path: Any) -> None:
    def fun(x: dict[str, Any]) -> float:
        return (x["a"] - 0.3) ** 2 + (x["b"] == "u")

    free = {"a": Real(0, 1), "b": Categorical(("u", "v"))}
    plain, mixed = (searched(quick(bounds), fun, 7) for bounds in (free, {**CONSTANTS, **free}))
    assert [trial.x for trial in mixed.trials] == [{**VALUES, **trial.x} for trial in plain.trials]
    assert mixed.space.columns == 3 and importances(mixed)["choice"] == 0
    assert {"a", "b"} < {text.get_text() for text in mixed.plot("parallel").findobj(_is_text)}
    mixed.save(tmp_path / "study")
    loaded = BayesianOptimizer.load(tmp_path / "study")
    assert loaded.space == mixed.space and loaded.ask() == mixed.ask()


def _is_text(artist: Any) -> bool:
    return hasattr(artist, "get_text")


def test_an_array_has_its_constants() -> None:
    study = searched(quick([(0, 1), (2, 2)]), lambda x: (x[0] - 0.3) ** 2 * x[1], 7)
    points = np.array([trial.x for trial in study.trials])
    assert points[:, 1].tolist() == [2.0] * 7 and np.ptp(points[:, 0]) > 0.1
    assert isinstance(quick([(0, 1), Integer(2, 2)]).ask().x, list)


def test_a_space_of_constants_has_one_point() -> None:
    for bounds, x in ((CONSTANTS, VALUES), (gymnasium.spaces.Discrete(1, start=4), [4])):
        result = minimum(lambda _: 1.0, bounds)
        assert (result.nfev, result.status, result.x) == (1, 4, x)
    noisy = iter([1.0, 3.0, 2.0, 2.5])
    again = minimum(lambda _: next(noisy), CONSTANTS, n_calls=4, noise_std=1.0)
    low, high = again.fun_interval
    assert again.nfev == 4 and low < 2.125 < high and 1 < again.fun < 3
    assert "no parameter varies" in {text.get_text() for text in again.plot().findobj(_is_text)}


def test_conditions_and_constraints_on_constants() -> None:
    bounds = {
        **CONSTANTS,
        "a": Real(0, 1),
        "of_choice": Conditional(Real(0, 1), "choice", ("a",)),
        "of_real": Conditional(Integer(7, 7), "real", (2.0,)),
    }
    rule = Linear({"a": 1.0, "of_choice": 1.0, "integer": 1.0, "real": 1.0}, high=5.02)  # a hundredth of the square
    study = searched(quick(bounds, constraints=[rule]), lambda x: -x["a"] - x["of_choice"], 7)
    assert all(trial.x["of_real"] == 7 and trial.x["a"] + trial.x["of_choice"] < 0.021 for trial in study.trials)
    assert importances(study)["of_choice"] > 0 and study.ask(fixed={"integer": 3.0, "a": 0.01}).x["a"] == 0.01


# Nested dicts


def test_points_are_nested_as_the_bounds(tmp_path: Any) -> None:
    rules = [Linear({"depth": 1.0, "optimizer.rate": 1.0}, high=4.5), lambda x: x["optimizer"]["rate"] < 0.5]
    study = searched(quick(NESTED, constraints=rules), slow, 7)
    for x in (trial.x for trial in study.trials):
        sgd, inner = x["optimizer"]["kind"] == "sgd", x["optimizer"]
        assert x.keys() - {"optimizer"} == ({"depth", "clip"} if sgd else {"depth"})
        assert ("momentum" in inner) == sgd and inner["schedule"].keys() == (set() if sgd else {"steps"})
    flat = searched(quick(dict(_leaves(NESTED))), lambda x: slow(study.space.shown(x)), 7)
    plain = searched(quick(NESTED), slow, 7)
    assert [plain.space.flat(trial.x) for trial in plain.trials] == [trial.x for trial in flat.trials]
    assert importances(plain) == importances(flat)
    assert "optimizer.schedule.steps" in study.trials_dataframe() and study.best[0] == study.recommend().x
    study.save(tmp_path / "study")
    loaded = BayesianOptimizer.load(tmp_path / "study", rules[1:])
    assert loaded.ask() == study.ask() and "optimizer.rate" in repr(study)


def _leaves(bounds: Any, above: str = "") -> list[tuple[str, Any]]:
    found = []
    for name, entry in bounds.items():
        if isinstance(entry, dict):
            found += _leaves(entry, f"{above}{name}.")
        else:
            on = isinstance(entry, Conditional)
            found.append((f"{above}{name}", replace(entry, on="optimizer.kind") if on else entry))
    return found


def test_nested_points_come_in_and_out_of_a_search(tmp_path: Any) -> None:
    def careless(x: Any) -> float:
        value = slow(x)
        x["optimizer"].clear()
        return value

    result = minimum(careless, NESTED, n_calls=6)
    study = result.optimizer
    assert result.fun == slow(result.x) and "optimizer.rate" in result._repr_html_()
    table = study.trials_dataframe()
    asked: Any = {"x0": result.x_iters[:2], "n_calls": 3, "checkpoint": tmp_path / "study"}
    with pytest.raises(KeyError):
        minimum(lambda x: x["none"], NESTED, **asked)
    assert minimum(slow, NESTED, **asked).nfev == 3  # the same x0, nested
    for x0 in (result.x_iters, table[list(study.space.names)]):
        again = minimum(slow, NESTED, n_calls=1, x0=x0, y0=result.func_vals)
        assert again.x_iters[:6] == result.x_iters and again.nfev == 1
    for fixed in (
        {"optimizer": {"kind": "sgd", "momentum": 0.5}},
        {"optimizer.kind": "sgd", "optimizer.momentum": 0.5},
    ):
        assert study.ask(fixed=fixed).x["optimizer"]["momentum"] == 0.5


def test_a_condition_is_on_the_nearest_parameter_of_its_name() -> None:
    inner = {"kind": Integer(0, 1), "near": Conditional(Real(0, 1), "kind", (1,))}
    space = space_from({"kind": Integer(5, 6), "inner": inner, "far": Conditional(Real(0, 1), "kind", (6,))})
    assert [c and space.names[c.parent] for c in space.conditions] == [None, None, "inner.kind", "kind"]


def test_a_point_of_a_flat_space_keeps_its_dots() -> None:
    study = BayesianOptimizer({"a.b": (0, 1)}, seed=0)
    assert study.ask().x.keys() == {"a.b"}
    with pytest.raises(ValueError, match="unknown parameter 'a'"):
        study.tell({"a": {"b": 0.5}}, 1.0)


# Refusals


ON_A = Conditional(Real(0, 1), "a", (1,))


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ([(0, 1), (2, 1)], ValueError, r"bounds\[1\] must have low <= high; got \(2.0, 1.0\): exchange them"),
        ([(0, math.inf)], ValueError, r"bounds\[0\] must be finite; got \(0.0, inf\)"),
        ([(math.nan, 1)], ValueError, r"bounds\[0\] must be finite"),
        ([Real(1, 2, log="no")], TypeError, r"log of bounds\[0\] must be True or False; got 'no'"),  # pyright: ignore
        ([Real(0, 1, log=True)], ValueError, r"bounds\[0\] must be positive for a logarithmic scale"),
        ({"a": Real(-1, -1, log=True)}, ValueError, "must be positive for a logarithmic scale"),
        ([Integer(0.5, 2)], ValueError, "must be whole numbers"),  # pyright: ignore[reportArgumentType]
        ([Integer(0, 2**60)], ValueError, r"bounds\[0\] of an Integer must lie within"),
        ([(0, 1, 2)], TypeError, r"bounds\[0\] must be a pair"),
        ([("3", "5")], TypeError, r"bounds\[0\] must be numbers; got '3' and '5': use Categorical\(\('3', '5'\)\)"),
        ([(-1e308, 1e308)], ValueError, r"bounds\[0\] span more than a float can hold"),
        ([Real(1e-300, 1e300, log=True)], ValueError, r"bounds\[0\] span more than a float can hold"),
        ([(0, 10**400)], ValueError, r"bounds\[0\] must be a number that a float can hold"),
        ([Categorical(())], ValueError, "must have choices, all of them different"),
        ({"a": Ordinal((1, 1))}, ValueError, r"bounds\['a'\] must have choices, all of them different"),
        ([Categorical("relu")], TypeError, "choices of a Categorical must be a tuple or list; got 'relu'"),  # pyright: ignore
        ([Categorical(((1, [2]), 3))], TypeError, r"bounds\[0\]: a choice must be hashable; .*: write a list as"),
        ([], ValueError, "at least one dimension"),
        (3, TypeError, "bounds must be a sequence"),
        ("ab", TypeError, "bounds must be a sequence"),
        ({"a": {"b": {}}}, ValueError, r"bounds\['a'\]\['b'\] must have at least one dimension; got none"),
        ({"a": {1: (0, 1)}}, TypeError, "the names of bounds must be strings, not empty; got 1"),
        ({"": (0, 1)}, TypeError, "the names of bounds must be strings, not empty; got ''"),
        ({"a": {"b": (2, 1)}}, ValueError, r"bounds\['a.b'\] must have low <= high"),
        ({"a": {"b.c": (0, 1)}, "a.b": {"c": (0, 1)}}, ValueError, "two parameters with the name 'a.b.c': rename one"),
        ([ON_A], TypeError, r"bounds\[0\] is a Conditional: conditions need names"),
        ({"b": {"c": ON_A}}, ValueError, r"bounds\['b.c'\]: the condition is on unknown param.*'a'"),
        ({"a": Real(0, 1), "b": ON_A}, ValueError, "on 'a', a Real; use an Integer"),
        ({"a": Integer(2, 3), "b": ON_A}, ValueError, r"bounds\['b'\]: 'a' = 1 lies outs"),
        ({"a": Integer(0, 1), "b": replace(ON_A, values=())}, TypeError, "must be a tuple, not empty; got"),
        ({"a": Integer(0, 1), "b": replace(ON_A, values="x")}, TypeError, "must be a tuple.*got 'x'"),
        ({"a": Integer(0, 1), "b": replace(ON_A, dimension=ON_A)}, TypeError, r"bounds\['b'\] is a Conditional"),
        (
            {"a": Conditional(Integer(0, 1), "b", (1,)), "b": Conditional(Integer(0, 1), "a", (1,))},
            ValueError,
            "form a cycle, a -> b -> a: remove one of them",
        ),
    ],
)
def test_bad_bounds_are_refused(bounds: Any, error: type, message: str) -> None:
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
    ("name", "options"),
    [
        ("value_1", {"objectives": 2}),
        ("outcome_1", {"outcome_constraints": 2, "objectives": 3}),
        ("feasible", {"outcome_constraints": 1}),
        *((name, {}) for name in COLUMNS),
    ],
)
def test_no_parameter_has_the_name_of_a_column(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"bounds: the name '{name}' is a column"):
        quick({name: (0, 1), "other": (0, 1)}, **options)


@pytest.mark.parametrize(
    ("bounds", "x", "error", "message"),
    [
        (TREE, [0.1, "rbf"], TypeError, "a point of this space is a dict of rate, degree, kernel, shift; got"),
        (TREE, {"rate": 0.1, "kernle": "rbf"}, ValueError, "unknown parameter 'kernle': did you mean 'kernel'"),
        (TREE, {"rate": 0.1, "kernel": "poly"}, ValueError, "has no value of 'degree', which is active there: add it"),
        (
            TREE,
            {"rate": 0.1, "kernel": "rbf", "degree": 3},
            ValueError,
            r"x\['degree'\] = 3 is inactive at 'kernel' = 'rbf'",
        ),
        (
            TREE,
            {"rate": 2.0, "kernel": "rbf"},
            ValueError,
            r"x\['rate'\] = 2.0 lies outside the bounds \[0.0001, 1.0\]",
        ),
        (TREE, {"rate": "0.1", "kernel": "rbf"}, TypeError, r"x\['rate'\] must be a number; got '0.1'"),
        (
            TREE,
            {"rate": 0.1, "kernel": "linear"},
            ValueError,
            r"x\['kernel'\] = 'linear' is not one of \('rbf', 'poly'",
        ),
        (NESTED, {"optimizer": {"rat": 1}}, ValueError, "unknown parameter 'optimizer.rat': did you mean"),
        (NESTED, {"optimizer": {"rate": 0.1}, "optimizer.rate": 0.2}, ValueError, "has 'optimizer.rate' twice"),
        (NESTED, {"optimizer": 3, "depth": 1}, ValueError, "unknown parameter 'optimizer'"),
        (CONSTANTS, VALUES | {"real": 2.1}, ValueError, r"x\['real'\] = 2.1 is not one of \(2.0,\)"),
        (CONSTANTS, VALUES | {"choice": "b"}, ValueError, r"x\['choice'\] = 'b' is not one of \('a',\)"),
    ],
)
def test_bad_points_are_refused(bounds: Any, x: Any, error: type, message: str) -> None:
    study = quick(bounds)
    for use in (study.propose, lambda x: study.tell(x, 1.0)):
        with pytest.raises(error, match=message):
            use(x)
    assert not study.trials


@pytest.mark.parametrize(
    ("bounds", "fixed", "error", "message"),
    [
        (TREE, {"rat": 0.1}, ValueError, "fixed: unknown parameter 'rat': did you mean 'rate'"),
        (TREE, {0: 0.1}, ValueError, "fixed: unknown parameter 0"),
        (TREE, {"rate": 2.0}, ValueError, r"fixed\['rate'\] = 2.0 lies outside the bounds"),
        (TREE, {"kernel": "linear"}, ValueError, r"fixed\['kernel'\] = 'linear' is not one of"),
        (TREE, {"rate": None}, TypeError, r"fixed\['rate'\] must be a number; got None"),
        (TREE, [("rate", 0.1)], TypeError, "fixed must be a dict from names, or indices, to values; got"),
        ([(0, 1), (0, 1)], {True: 0.5}, ValueError, "fixed: unknown parameter"),
        ([(0, 1), (0, 1)], {-1: 0.5}, ValueError, "fixed: unknown parameter"),
        ([(0, 1), (0, 1)], {1.0: 0.5}, ValueError, "fixed: unknown parameter"),
    ],
)
def test_bad_fixed_values_are_refused(bounds: Any, fixed: Any, error: type, message: str) -> None:
    study = quick(bounds)
    with pytest.raises(error, match=message):
        study.ask(2, fixed=fixed)
    assert not study.trials


def raising(x: Any) -> bool:
    raise KeyError("radius")


@pytest.mark.parametrize(
    ("constraints", "error", "message"),
    [
        (Linear({"a": 1}, high=1), TypeError, "constraints must be a list of Linear and of functions; got Linear"),
        ([3], TypeError, r"constraints\[0\] must be a Linear or a function \(x\) -> bool; got 3"),
        ([Linear({}, high=1)], TypeError, r"constraints\[0\]: the weights must be a dict .* got \{\}"),
        ([Linear({"aa": 1}, high=1)], ValueError, r"constraints\[0\]: unknown parameter 'aa'"),
        ([Linear({"a": "1"}, high=1)], TypeError, "the weight of 'a' must be a number; got '1'"),  # pyright: ignore
        ([Linear({"a": 0}, high=1)], ValueError, "the weights must be finite and not all zero"),
        ([Linear({"a": math.nan}, high=1)], ValueError, "the weights must be finite and not all zero"),
        ([Linear({"a": 1})], ValueError, "must have low <= high, one of them finite; got low=-inf, high=inf"),
        ([Linear({"a": 1}, 2, 1)], ValueError, "must have low <= high, one of them finite; got low=2.0, high=1.0"),
        (
            [Linear({"a": 1, "b": 1}, 1, 1)],
            ValueError,
            "low == high == 1.0, which no random point satisfies: leave one",
        ),
        ([Linear({"c": 1}, high=1)], ValueError, r"'c' has values that are not numbers, \('x', 1\): use a function"),
        ([raising], ValueError, "the constraint raising raised KeyError: 'radius' at .*; it must return True or False"),
        ([lambda x: None], TypeError, "returned None at .*; it must return True or False"),
        ([lambda x: np.array([True])], TypeError, r"returned array\(\[ True\]\) at"),
    ],
)
def test_bad_constraints_are_refused(constraints: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        quick(NAMED | {"c": Categorical(("x", 1))}, constraints=constraints)


# Mixed spaces


MANY = {f"c{i}": Categorical(tuple(range(6))) for i in range(6)} | {"a": Real(0.0, 1.0), "n": Integer(1, 4)}


@settings(max_examples=50, deadline=None, derandomize=True)
@given(bounds=trees(), calls=st.integers(1, 60), objectives=st.integers(1, 3))
def test_the_initial_design_counts_parameters_and_knows_the_budget(bounds: Any, calls: int, objectives: int) -> None:
    study, first = quick(bounds, capacity=calls, objectives=objectives), 2 * objectives
    assert first <= study.initial <= max(first, min(calls / 4, len(bounds), first + 4))
    assert study.settings.search.trust_region is False


def test_a_choice_of_fifty_is_one_parameter() -> None:
    study = quick([Categorical(tuple(range(50))), (0, 1), (0, 1)], capacity=45)
    assert study.initial == 3 and not study.settings.search.trust_region
    assert [quick(MANY, capacity=calls).initial for calls in (4, 8, 20, 50)] == [2, 2, 5, 6]
    assert quick([(0, 1)] * 21, capacity=100).initial == 6 and quick([(0, 1)] * 21).settings.search.trust_region
    fidelity = quick([(0, 1)] * 6, capacity=8, fidelity=Fidelity(1, 9))
    assert fidelity.initial == 6  # evaluations at the lowest level cost little


def test_a_longer_search_goes_on_with_the_design_it_began_with(tmp_path: Path) -> None:
    options = {"initial": None, "checkpoint": tmp_path / "study"}
    assert minimum(lambda x: x["a"], MANY, n_calls=8, **options).optimizer.initial == 2
    assert minimum(lambda x: x["a"], MANY, n_calls=12, **options).optimizer.initial == 2


@pytest.mark.parametrize(
    ("bounds", "constraints"),
    [
        (MANY, [lambda x: x["c0"] != x["c1"]]),
        (TREE, [Linear({"rate": 1.0, "shift": 0.5}, high=0.4), lambda x: x.get("degree") != 3]),
        ([Integer(0, 3), Categorical(tuple("abc")), Ordinal((1, 2, 4))], ()),
    ],
)
def test_questions_are_valid_and_new(bounds: Any, constraints: Any) -> None:
    study = quick(bounds, constraints=constraints, initial=2)
    for _ in range(12):
        trial = study.ask()
        assert study.space.violated(study.space.point(trial.x).x) is None
        assert all(identity(trial.x) != identity(told.x) for told in study.trials[:-1])
        study.tell(trial, float(len(str(trial.x)) + sum(map(hash, str(trial.x))) % 7))


def test_the_choices_of_a_parameter_share_a_length_scale() -> None:
    study = searched(quick(MANY, initial=2), lambda x: x["a"] + x["c0"] + (x["c1"] == 2), 6)
    scales = study.fitted()[1].state.hyper.log_length_scales
    assert all(np.ptp(scales[part]) == 0 for part in study.space.slices) and len(set(scales.tolist())) > 2


def test_rows_are_settled_as_points_are() -> None:
    rules = [Linear({"rate": 1.0, "shift": 0.5}, high=0.1), lambda x: x.get("degree") != 3]
    space = space_from(TREE, rules)
    units = np.random.default_rng(0).random((300, space.columns))
    settled, _, good = space.settled(units, {})
    points = [space.point_at(unit) for unit in units]
    assert good.tolist() == [point is not None for point in points] and 30 < good.sum() < 270
    np.testing.assert_allclose(settled[good], [point.unit for point in points if point is not None], atol=1e-12)
    _, active, good = space.settled(units, {"kernel": "poly"})
    assert good.any() and not good[~active[:, space.names.index("kernel")]].any()


@pytest.mark.parametrize("log", [False, True])
def test_steps_go_to_neighbors_and_to_every_choice(log: bool) -> None:
    space = space_from([Integer(1, 4, log=log), Ordinal(("s", "m", "l")), Categorical(tuple("abc")), (0, 1)])
    at = np.repeat(space.point([2, "s", "b", 0.3]).unit[None], len(space.moves), axis=0)
    found = [tuple(space.decode(unit)) for unit in space.moved(at, space.moves)]
    ends = [(1, "s", "b"), (3, "s", "b"), (2, "s", "b"), (2, "m", "b"), (2, "s", "a"), (2, "s", "b"), (2, "s", "c")]
    assert [x[:3] for x in found] == ends and {x[3] for x in found} == {0.3}


def test_steps_reach_the_best_levels() -> None:
    space = space_from(MANY)
    generator = np.random.default_rng(0)
    gains = np.where(space.places == space.places[-1], 0, generator.random(space.columns))
    by = ascent.Climber(lambda points: points @ gains, None)
    box = suggesting.Box(*space.cube({}), {})
    pool = suggesting.candidates(space, QUICK, box, space.uniform(np.zeros((1, space.parameters))), generator)
    point = ascent.maximize(by, space, QUICK, box, pool, np.zeros((0, space.columns)), generator)
    best = sum(gains[part].max() for name, part in zip(MANY, space.slices, strict=True) if name.startswith("c"))
    assert point is not None and point.unit[:36] @ gains[:36] == pytest.approx(best)
