"""What holds for every search: it goes on from files and copies to the bit, and its settings mean what they say."""

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from seqdec.bo import BayesianOptimizer, Categorical, Conditional, Integer, Linear, Prior, Real, checkpoint
from tests.bo.common import BOX, QUICK, SQUARE, quick


def asked(reference_point: Any) -> np.ndarray:
    """The point after six values with a curved front."""
    optimizer = quick(SQUARE, objectives=2, initial=6, responses="standardized", reference_point=reference_point)
    for values in VALUES:
        optimizer.tell(optimizer.ask(), list(values))
    return np.asarray(optimizer.ask().x)


VALUES = np.array([[0.0, 3.0], [1.0, 1.0], [3.0, 0.0], [4.0, 4.0], [2.0, 5.0], [3.5, 2.0]])
FRONT = VALUES[:3]


def test_the_default_reference_point_is_a_tenth_of_all_values_beyond_the_front() -> None:
    beyond = FRONT.max(0) + 0.1 * np.ptp(VALUES, axis=0)
    np.testing.assert_allclose(asked(None), asked(beyond.tolist()), atol=1e-3)


TREE = {
    "rate": Real(1e-4, 1.0, log=True),
    "kind": Categorical(("a", (1, 2), None)),
    "degree": Conditional(Integer(2, 5), "kind", ("a",)),
    "nested": {"shift": Conditional(Real(0.0, 1.0), "degree", (3, 4))},
}
EARLIER = pd.DataFrame({"x_0": [0.0, 5.0, 9.0], "x_1": [1.0, 9.0, 3.0], "value": [2.0, 1.0, 4.0]})


def below(x: Any) -> bool:
    return x["rate"] < 0.9


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "gp": (BOX, {"search": replace(QUICK, trust_region=True)}),
    "sparse_gp": (BOX, {"surrogate": "sparse_gp", "surrogate_options": {"points": 4}}),
    "hilofi": (TREE, {"surrogate": "hilofi", "surrogate_options": {"units": 16}}),
    "hilofi_mlp": (BOX, {"surrogate": "hilofi_mlp", "surrogate_options": {"features": [8, 8], "rank": 5}}),
    "lrkf": (BOX, {"surrogate": "lrkf", "surrogate_options": {"features": (8, 8), "rank": 5}}),
    "tree": (TREE, {"constraints": [below, Linear({"rate": 1, "degree": 0.1}, high=1.3)]}),
    "front": (BOX, {"objectives": 2, "maximize": [True, False], "reference_point": [0.1, 0.4]}),
    "outcome": (BOX, {"outcome_constraints": 1, "prior": Prior(monotone=[{0: 1}, {1: -1}])}),
    "outcome, network": (
        BOX,
        {"outcome_constraints": 1, "surrogate": "lrkf", "surrogate_options": {"features": (8, 8), "rank": 5}},
    ),
    "optimum": (BOX, {"prior": Prior(optimum={0: (0.5, 0.1)})}),
    "noise": (BOX, {"noise_std": 0.5, "acquisition": "ucb"}),
    "earlier": (BOX, {"prior": Prior(earlier=EARLIER)}),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES)
def test_a_search_goes_on_to_the_bit_from_its_file_and_from_copies(case: str, tmp_path: Path) -> None:
    bounds, options = CASES[case]
    study = BayesianOptimizer(bounds, **{"seed": 0, "capacity": 16, "search": QUICK, **options})
    objectives, outcomes = study.outputs

    def tell(one: BayesianOptimizer, trial: Any, number: int) -> None:
        values = [float(number % 4) - 0.5 * place for place in range(objectives)]
        told = [0.5 - number % 2] * outcomes or None
        one.tell(trial, values if objectives > 1 else values[0], outcomes=told, failed=number == 3)

    for number, trial in enumerate(reversed(study.ask(2))):
        tell(study, trial, number)
    for number in range(2, 7):
        tell(study, study.ask(), number)
    pending = study.ask()
    study.save(tmp_path / "study")
    rules = [rule for rule in options.get("constraints", []) if callable(rule)]
    loaded = BayesianOptimizer.load(tmp_path / "study", rules)
    others = [loaded, copy.deepcopy(study), pickle.loads(pickle.dumps(study))]
    for other in others:
        assert other.space == study.space and other.trials_dataframe().equals(study.trials_dataframe())
        assert other._record.order == study._record.order == [1, 0, 2, 4, 5, 6]
        assert checkpoint.plain(other.settings) | {"acquisition": ""} == checkpoint.plain(study.settings) | {
            "acquisition": ""
        }
        assert other.fitted()[1].warps == study.fitted()[1].warps and other.reason == study.reason
    for number in (7, 8):
        asked = [one.ask() for one in (study, *others)]
        assert len(set(map(repr, asked))) == 1
        for one, trial in zip((study, *others), asked, strict=True):
            tell(one, trial, number)
    for other in others:
        tell(other, pending, 9)
    if rules:
        with pytest.raises(ValueError, match=r"1 of its constraints are functions.*got 0: pass them as"):
            BayesianOptimizer.load(tmp_path / "study")
