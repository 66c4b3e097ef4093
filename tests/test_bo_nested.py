"""Constants and nested dicts in the bounds of Bayesian optimization."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from scipy.optimize import Bounds

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
    importances,
    space_from,
)

QUICK = Search(raw_samples=64, num_restarts=4, steps=10)
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


def searched(bounds: Any, fun: Any, calls: int = 7, **options: Any) -> BayesianOptimizer:
    study = BayesianOptimizer(bounds, **{"seed": 0, "search": QUICK, **options})
    for _ in range(calls):
        trial = study.ask()
        study.tell(trial, fun(trial.x))
    return study


def slow(x: dict[str, Any]) -> float:
    inner = x["optimizer"]
    return float((np.log10(inner["rate"]) + 2) ** 2 + abs(x["depth"] - 2) + inner.get("momentum", 0.5))


# Constants


def test_constants_are_in_every_point_and_change_no_question(tmp_path: Any) -> None:
    free = {"a": Real(0, 1), "b": Categorical(("u", "v"))}
    plain = searched(free, lambda x: (x["a"] - 0.3) ** 2 + (x["b"] == "u"))
    mixed = searched({**CONSTANTS, **free}, lambda x: (x["a"] - 0.3) ** 2 + (x["b"] == "u"))
    assert [trial.x for trial in mixed.trials] == [{**VALUES, **trial.x} for trial in plain.trials]
    assert mixed.space.columns == 3 and importances(mixed)["choice"] == 0
    assert {"a", "b"} < {text.get_text() for figure in [mixed.plot("parallel")] for text in figure.findobj(_is_text)}
    mixed.save(tmp_path / "study")
    loaded = BayesianOptimizer.load(tmp_path / "study")
    assert loaded.space == mixed.space and loaded.ask() == mixed.ask()


def _is_text(artist: Any) -> bool:
    return hasattr(artist, "get_text")


def test_an_array_has_its_constants() -> None:
    study = searched([(0, 1), (2, 2)], lambda x: (x[0] - 0.3) ** 2 * x[1])
    points = np.array([trial.x for trial in study.trials])
    assert points[:, 1].tolist() == [2.0] * 7 and np.ptp(points[:, 0]) > 0.1
    assert isinstance(searched([(0, 1), Integer(2, 2)], sum).trials[0].x, list)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("bounds", "x"),
    [
        (CONSTANTS, VALUES),
        ([(2, 2)], [2.0]),
        (spaces.Discrete(1, start=4), [4]),
        (Bounds([1, 2], [1, 2]), [1.0, 2.0]),
    ],
)
def test_a_space_of_constants_has_one_point(bounds: Any, x: Any) -> None:
    result = seqdec.minimize(lambda _: 1.0, bounds, n_calls=3, seed=0, progress=False)
    assert result.nfev == 1 and result.status == 4
    assert (result.x if isinstance(x, dict) else list(result.x)) == x
    noisy = iter([1.0, 3.0, 2.0, 2.5])
    again = seqdec.minimize(lambda _: next(noisy), bounds, n_calls=4, seed=0, noise_std=1.0, progress=False)
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
    study = searched(bounds, lambda x: -x["a"] - x["of_choice"], constraints=[rule])
    assert all(trial.x["of_real"] == 7 and trial.x["a"] + trial.x["of_choice"] < 0.021 for trial in study.trials)
    assert importances(study)["of_choice"] > 0 and study.ask(fixed={"integer": 3.0, "a": 0.01}).x["a"] == 0.01


# Nested dicts


def test_points_are_nested_as_the_bounds(tmp_path: Any) -> None:
    rules = [Linear({"depth": 1.0, "optimizer.rate": 1.0}, high=4.5), lambda x: x["optimizer"]["rate"] < 0.5]
    study = searched(NESTED, slow, constraints=rules)
    for x in (trial.x for trial in study.trials):
        sgd, inner = x["optimizer"]["kind"] == "sgd", x["optimizer"]
        assert x.keys() - {"optimizer"} == ({"depth", "clip"} if sgd else {"depth"})
        assert ("momentum" in inner) == sgd and inner["schedule"].keys() == (set() if sgd else {"steps"})
    flat = searched({name: _flat(entry) for name, entry in _leaves(NESTED)}, lambda x: slow(study.space.shown(x)))
    plain = searched(NESTED, slow)
    assert [plain.space.flat(trial.x) for trial in plain.trials] == [trial.x for trial in flat.trials]
    assert importances(plain) == importances(flat)
    assert "optimizer.schedule.steps" in study.trials_dataframe() and study.best[0] == study.recommend().x
    study.save(tmp_path / "study")
    loaded = BayesianOptimizer.load(tmp_path / "study", rules[1:])
    assert loaded.ask() == study.ask() and "optimizer.rate" in repr(study)


def _leaves(bounds: Any, above: str = "") -> list[tuple[str, Any]]:
    return [
        leaf
        for name, entry in bounds.items()
        for leaf in (_leaves(entry, f"{above}{name}.") if isinstance(entry, dict) else [(f"{above}{name}", entry)])
    ]


def _flat(entry: Any) -> Any:
    return replace(entry, on="optimizer.kind") if isinstance(entry, Conditional) else entry


def test_nested_points_come_in_and_out_of_a_search(tmp_path: Any) -> None:
    def careless(x: Any) -> float:
        value = slow(x)
        x["optimizer"].clear()
        return value

    result = seqdec.minimize(careless, NESTED, n_calls=6, seed=0, search=QUICK, progress=False)
    study = result.optimizer
    assert result.fun == slow(result.x) and "optimizer.rate" in result._repr_html_()
    table = study.trials_dataframe()
    path = tmp_path / "study"
    asked: Any = {"x0": result.x_iters[:2], "n_calls": 3, "seed": 0, "search": QUICK, "progress": False}
    with pytest.raises(KeyError):
        seqdec.minimize(lambda x: x["none"], NESTED, **asked, checkpoint=path)
    assert seqdec.minimize(slow, NESTED, **asked, checkpoint=path).nfev == 3  # the same x0, nested
    for x0 in (result.x_iters, table[list(study.space.names)]):
        again = seqdec.minimize(
            slow, NESTED, n_calls=1, x0=x0, y0=result.func_vals, seed=0, search=QUICK, progress=False
        )
        assert again.x_iters[:6] == result.x_iters and again.nfev == 1
    for fixed in (
        {"optimizer": {"kind": "sgd", "momentum": 0.5}},
        {"optimizer.kind": "sgd", "optimizer.momentum": 0.5},
    ):
        assert study.ask(fixed=fixed).x["optimizer"]["momentum"] == 0.5
    result.plot()


def test_a_condition_is_on_the_nearest_parameter_of_its_name() -> None:
    inner = {"kind": Integer(0, 1), "near": Conditional(Real(0, 1), "kind", (1,))}
    space = space_from({"kind": Integer(5, 6), "inner": inner, "far": Conditional(Real(0, 1), "kind", (6,))})
    assert [c and space.names[c.parent] for c in space.conditions] == [None, None, "inner.kind", "kind"]


def test_a_point_of_a_flat_space_keeps_its_dots() -> None:
    study = BayesianOptimizer({"a.b": (0, 1)}, seed=0)
    assert study.ask().x.keys() == {"a.b"}
    with pytest.raises(ValueError, match="unknown parameter 'a'"):
        study.tell({"a": {"b": 0.5}}, 1.0)


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ({"a": {"b": (0, 1)}, "a.b": (0, 1)}, ValueError, "two parameters with the name 'a.b': rename one of them"),
        ({"a": {"b.c": (0, 1)}, "a.b": {"c": (0, 1)}}, ValueError, "two parameters with the name 'a.b.c'"),
        ({"a": {"b": {}}}, ValueError, r"bounds\['a'\]\['b'\] must have at least one dimension; got none"),
        ({"a": {1: (0, 1)}}, TypeError, "the names of bounds must be strings, not empty; got 1"),
        ({"a": {"b": (2, 1)}}, ValueError, r"bounds\['a.b'\] must have low <= high"),
        ({"a": {"b": Conditional(Real(0, 1), "c", (1,))}}, ValueError, r"bounds\['a.b'\]: the condition is on unknown"),
        ({"a": Real(-1, -1, log=True)}, ValueError, "must be positive for a logarithmic scale"),
        ({"a": Real(0, 1), "b": Conditional(Real(0, 1), "a", (1,))}, ValueError, "on 'a', a Real; use an Integer"),
    ],
)
def test_bad_bounds_are_refused(bounds: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        space_from(bounds)


@pytest.mark.parametrize(
    ("bounds", "x", "message"),
    [
        (NESTED, {"optimizer": {"rat": 1}}, "unknown parameter 'optimizer.rat': did you mean 'optimizer.rate'"),
        (NESTED, {"optimizer": {"rate": 0.1}, "optimizer.rate": 0.2}, "holds 'optimizer.rate' twice"),
        (NESTED, {"optimizer": 3, "depth": 1}, "unknown parameter 'optimizer'"),
        (CONSTANTS, VALUES | {"real": 2.1}, r"x\['real'\] = 2.1 is not one of \(2.0,\)"),
        (CONSTANTS, VALUES | {"choice": "b"}, r"x\['choice'\] = 'b' is not one of \('a',\)"),
    ],
)
def test_bad_points_are_refused(bounds: Any, x: Any, message: str) -> None:
    study = BayesianOptimizer(bounds, seed=0)
    with pytest.raises(ValueError, match=message):
        study.tell(x, 1.0)
    assert not study.trials


def test_one_point_is_asked_once() -> None:
    study = BayesianOptimizer(CONSTANTS, seed=0)
    study.tell(study.ask(), 1.0)
    with pytest.raises(Exhausted, match="all 1 points"):
        study.ask()
