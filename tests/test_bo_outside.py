"""Values of points outside of the bounds: they inform the belief, and are no part of the search."""

import math
from typing import Any

import numpy as np
import pytest

import seqdec
from seqdec.bo import BayesianOptimizer, Categorical, Conditional, Integer, Linear, Real, Search, Trial

QUICK = Search(raw_samples=64, num_restarts=4, steps=10)
BOX = [(0.0, 1.0), (0.0, 1.0)]
MIXED = {
    "rate": Real(1e-3, 1e-1, log=True),
    "kind": Categorical(("a", "b")),
    "layers": Integer(2, 5),
    "skip": Conditional(Integer(1, 3, log=True), "layers", (4, 5)),
}


def bowl(x: Any) -> float:
    """The minimum over the square is .04, at (.3, 1); beyond it there are smaller values."""
    return float((x[0] - 0.3) ** 2 + (x[1] - 1.2) ** 2)


def earlier(count: int = 24) -> tuple[np.ndarray, list[float]]:
    points = np.random.default_rng(1).uniform(-0.5, 1.8, (count, 2))
    points = points[(points > 1).any(1) | (points < 0).any(1)]
    return points, [bowl(x) for x in points]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"surrogate": "hilofi"},
        {"trust_region": True},
        {"constraints": [lambda x: x[0] < 0.9]},
    ],
)
def test_values_outside_inform_the_search_and_are_not_in_its_result(options: dict[str, Any]) -> None:
    points, values = earlier()
    result = seqdec.minimize(
        bowl, BOX, n_calls=3, x0=points, y0=values, outside=True, seed=0, search=QUICK, progress=False, **options
    )
    assert len(result.x_iters) == len(result.func_vals) == len(result.seconds) == 3
    assert all(0 <= number <= 1 for x in result.x_iters for number in x)
    assert result.fun == bowl(result.x) < 0.06  # the first of the three calls is of the initial design
    assert result.optimizer.best[1] == result.func_vals.min() > min(values)
    states = result.optimizer.trials_dataframe()["state"].tolist()
    assert states == ["outside"] * len(points) + ["complete"] * 3
    assert f"3 complete, {len(points)} outside" in repr(result.optimizer)
    result.plot()


def test_several_objectives_and_outcomes_have_no_front_outside() -> None:
    study = BayesianOptimizer(BOX, seed=0, objectives=2, outcome_constraints=1, search=QUICK)
    for x in earlier()[0]:
        study.tell(x, (-1.0, -bowl(x)), outcomes=[-1.0], outside=True)
    assert not study.is_feasible and len(study.feasibility()) == 0
    with pytest.raises(ValueError, match="no trial is complete yet"):
        study.front()
    for _ in range(3):
        trial = study.ask()
        study.tell(trial, (float(trial.x[0]), bowl(trial.x)), outcomes=[float(trial.x[1] - 2)])
    assert 1 <= len(study.front().x) <= 3 and all((x >= 0).all() and (x <= 1).all() for x in study.front().x)


def test_a_belief_knows_what_lies_beyond_the_border() -> None:
    plain, informed = (BayesianOptimizer(BOX, seed=0, search=QUICK) for _ in range(2))
    for study in (plain, informed):
        for x in ([0.1, 0.2], [0.8, 0.4], [0.4, 0.6]):
            study.tell(x, bowl(x))
    points, values = earlier()
    for x, value in zip(points, values, strict=True):
        informed.tell(x, value, outside=True)
    border = [0.6, 1.0]
    low, high = informed.predict(border)[1:]
    assert high - low < 0.3 * np.subtract(*plain.predict(border)[:0:-1]) and low - 0.01 < bowl(border) < high + 0.01
    assert informed.recommend().x.tolist() == [0.4, 0.6]


def test_names_logarithms_conditions_and_constraints(tmp_path: Any) -> None:
    rule = Linear({"layers": 1.0}, high=4.0)
    study = BayesianOptimizer(MIXED, seed=0, search=QUICK, constraints=[rule])
    inside = {"rate": 0.01, "kind": "a", "layers": 3}
    told = [
        {**inside, "rate": 1.0},
        {**inside, "layers": 6},  # beyond the values of which skip is active
        {**inside, "layers": 5, "skip": 2},  # violates the rule
        {**inside, "rate": 2e-4, "layers": 4, "skip": 4},
    ]
    for number, x in enumerate(told):
        assert study.tell(x, float(number), outside=True) == Trial(number, x)
    study.tell(inside, 5.0, outside=True)
    study.tell({**inside, "rate": 0.5}, math.nan, outside=True)
    assert study.trials_dataframe()["state"].tolist() == ["outside"] * 4 + ["complete", "failed"]
    assert study.best == (inside, 5.0)
    study.save(tmp_path / "study")
    loaded = BayesianOptimizer.load(tmp_path / "study")
    assert loaded.trials == study.trials and loaded.best == study.best
    for _ in range(4):
        asked = study.ask()
        assert asked == loaded.ask() and study.space.point(asked.x).inside


def test_a_search_with_values_outside_goes_on_from_its_file(tmp_path: Any) -> None:
    points, values = earlier()

    def search(path: Any, y0: Any = values, fun: Any = bowl) -> Any:
        options: Any = {"x0": points, "y0": y0, "outside": True, "seed": 0, "search": QUICK, "progress": False}
        return seqdec.minimize(fun, BOX, n_calls=4, checkpoint=path, **options)

    calls = iter([1.0])
    with pytest.raises(StopIteration):
        search(tmp_path / "study", fun=lambda x: bowl(x) * next(calls))
    assert search(tmp_path / "study").func_vals.tolist() == search(None).func_vals.tolist()
    with pytest.raises(ValueError, match="y0 is another"):
        search(tmp_path / "study", [value + 1 for value in values])


@pytest.mark.parametrize(
    ("x", "outside", "error", "message"),
    [
        (
            [1.5, 0],
            False,
            ValueError,
            r"x\[0\] = 1.5 lies outside the bounds \[0.0, 1.0\]: outside=True makes it a value",
        ),
        ([0.5, 0.95], False, ValueError, "violates the constraint .*: outside=True makes it a value that informs"),
        (
            [2.1, 0],
            True,
            ValueError,
            r"x\[0\] = 2.1 lies outside .*, and farther from them than they are wide: leave it",
        ),
        ([math.inf, 0], True, ValueError, "farther from them than they are wide"),
        ([math.nan, 0], True, ValueError, "lies outside the bounds"),
        (["a", 0], True, TypeError, r"x\[0\] must be a number; got 'a'"),
        ([0.5], True, ValueError, "a point has 2 values; got 1"),
        ([1.5, 0], "yes", TypeError, "outside must be True or False; got 'yes'"),
    ],
)
def test_what_cannot_inform_is_refused(x: Any, outside: Any, error: type, message: str) -> None:
    study = BayesianOptimizer(BOX, seed=0, constraints=[Linear({0: 1.0, 1: 1.0}, high=1.4)])
    with pytest.raises(error, match=message):
        study.tell(x, 1.0, outside=outside)
    with pytest.raises(error, match=message):
        seqdec.minimize(
            bowl, BOX, n_calls=2, x0=[x], y0=[1.0], outside=outside, constraints=study.space.constraints, seed=0
        )
    assert not study.trials


def test_choices_have_no_outside_and_points_to_evaluate_are_inside() -> None:
    study = BayesianOptimizer(MIXED, seed=0)
    with pytest.raises(ValueError, match=r"x\['kind'\] = 'c' is not one of \('a', 'b'\)"):
        study.tell({"rate": 0.01, "kind": "c", "layers": 3}, 1.0, outside=True)
    with pytest.raises(ValueError, match=r"x\['rate'\] = -1.0 lies outside"):
        study.tell({"rate": -1.0, "kind": "a", "layers": 3}, 1.0, outside=True)
    with pytest.raises(ValueError, match=r"x\[0\] = 1.5 lies outside the bounds \[0.0, 1.0\]$"):
        seqdec.minimize(bowl, BOX, n_calls=2, x0=[[1.5, 0.0]], outside=True, seed=0)
