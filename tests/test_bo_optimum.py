"""What the user believes of where the optimum lies."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import seqdec
from seqdec.bo import BayesianOptimizer, Categorical, Conditional, Integer, Linear, Ordinal, Real, Search

QUICK = Search(raw_samples=128, num_restarts=4, steps=20)
BOX = [(0.0, 1.0), (0.0, 1.0)]
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


def asked(bounds: Any, fun: Any, calls: int, **options: Any) -> list[Any]:
    study = BayesianOptimizer(bounds, **{"seed": 0, "search": QUICK, **options})
    for _ in range(calls):
        trial = study.ask()
        study.tell(trial, fun(trial.x))
    return [trial.x for trial in study.trials]


def test_half_of_the_initial_design_follows_the_densities() -> None:
    study = BayesianOptimizer(MIXED, seed=0, initial=10_000, optimum=BELIEF)
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

    points = asked(BOX, flat, 6, optimum={0: (0.7, 0.05), 1: stats.beta(30, 70).pdf}, **options)
    distances = np.abs(np.array(points[2:]) - [0.7, 0.3]).max(1)
    assert (distances < 0.25).all()
    assert (np.abs(np.array(asked(BOX, flat, 6, **options)[2:]) - [0.7, 0.3]).max(1) > 0.25).any()


def test_a_misleading_belief_costs_the_first_questions_only() -> None:
    def bowl(x: Any) -> float:
        return float((x[0] - 0.2) ** 2 + (x[1] - 0.2) ** 2)

    wrong = asked(BOX, bowl, 20, optimum={0: (0.9, 0.05), 1: (0.9, 0.05)})
    assert min(map(bowl, wrong)) < 1e-3 and bowl(wrong[0]) > 0.3


def test_several_objectives_are_guided() -> None:
    points = asked(BOX, lambda x: (x[0], 1 - x[0]), 6, objectives=2, optimum={1: (0.8, 0.02)})
    assert np.abs(np.array(points[3:])[:, 1] - 0.8).max() < 0.15


def test_a_checkpoint_keeps_the_belief(tmp_path: Any) -> None:
    path, options = tmp_path / "search", {"n_calls": 4, "seed": 0, "optimum": {0: (0.5, 0.1)}, "progress": False}
    with pytest.raises(KeyError):
        seqdec.minimize(lambda x: {}[0], BOX, **options, checkpoint=path)
    assert seqdec.minimize(sum, BOX, **options, checkpoint=path).nfev == 4
    with pytest.raises(ValueError, match="optimum is"):
        seqdec.minimize(sum, BOX, **(options | {"optimum": None}), checkpoint=path)


def test_a_belief_of_nested_parameters() -> None:
    bounds = {"net": {"kind": Categorical(("a", "b")), "depth": Integer(1, 9)}, "rate": (0, 1)}
    nested = asked(bounds, lambda x: x["rate"], 4, optimum={"net": {"kind": {"b": 1}, "depth": (4, 1)}})
    assert nested == asked(bounds, lambda x: x["rate"], 4, optimum={"net.kind": {"b": 1}, "net.depth": (4, 1)})
    assert nested[0]["net"]["kind"] == "b"


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
        BayesianOptimizer(MIXED | {"branch": Conditional(Real(0, 1), "kind", ("a",))}, seed=0, optimum=optimum)
