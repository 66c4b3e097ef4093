"""Optimizers, results and spaces go through pickle, and to other processes and back."""

import pickle
from typing import Any

import pytest

import seqdec
from seqdec import policies
from seqdec.bo import BayesianOptimizer, Categorical, Conditional, Integer, Linear, Ordinal, Real, Search, space_from
from seqdec.envs import objectives

BOX = [(-5.0, 10.0), (0.0, 15.0)]
QUICK = Search(raw_samples=64, num_restarts=4, steps=10)
BRANIN = objectives.branin()
SPACE = {
    "kind": Categorical(("a", (1, 2), None)),
    "width": Ordinal((8, 16, 32)),
    "count": Integer(1, 9, log=True),
    "extra": Conditional(Real(0, 1), on="kind", values=("a",)),
}


def branin(x: Any) -> float:
    return BRANIN(x)


def left(x: Any) -> bool:
    return bool(x[0] < 5)


def through(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"surrogate": "hilofi", "surrogate_options": {"units": 16}},
        {"surrogate": "hilofi_mlp", "surrogate_options": {"features": [8, 8], "rank": 5}},
        {"outcome_constraints": 1},
        {"trust_region": True, "constraints": [left, Linear({0: 1.0}, high=4.0)]},
        {"acquisition": "ucb", "noise_std": 0.5},
        {"acquisition": policies.greedy(), "constraints": [lambda x: x[0] < 5]},
    ],
    ids=("default", "hilofi", "hilofi_mlp", "outcomes", "warped", "ucb", "greedy"),
)
def test_a_pickled_optimizer_goes_on_with_the_same_suggestions(options: dict[str, Any]) -> None:
    optimizer = BayesianOptimizer(BOX, **{"seed": 0, "capacity": 16, "search": QUICK, **options})
    for i in range(5):
        trial = optimizer.ask()
        told = [0.0] * optimizer.outputs.outcome_constraints
        optimizer.tell(trial, BRANIN(trial.x), failed=i == 3, outcomes=told)
    pending = optimizer.ask()
    optimizer.recommend()
    other = through(optimizer)
    assert other.trials_dataframe().equals(optimizer.trials_dataframe()) and other.reason == optimizer.reason
    assert other.predict([1.0, 2.0]) == optimizer.predict([1.0, 2.0])
    for _ in range(2):
        points = [one.ask() for one in (optimizer, other)]
        assert points[0].number == points[1].number and points[0].x.tolist() == points[1].x.tolist()
    other.tell(pending, 1.0, outcomes=[0.0] * optimizer.outputs.outcome_constraints)
    with pytest.raises(ValueError, match="read-only"):
        other.trials[0].x[0] = 3.0
    assert (other._method.plan == optimizer._method.plan) == isinstance(
        optimizer.acquisition, str
    )  # the same compiled programs


def test_a_surrogate_of_your_own_goes_on() -> None:
    optimizer = BayesianOptimizer(BOX, seed=0, capacity=16, search=QUICK, surrogate=seqdec.bo.gp(draws=2))
    for _ in range(4):
        told(optimizer)
    assert through(optimizer).ask().x.tolist() == optimizer.ask().x.tolist()


def test_results_spaces_and_settings() -> None:
    result = seqdec.minimize(branin, BOX, n_calls=4, seed=0, search=QUICK, progress=False, catch=ValueError)
    copy = through(result)
    assert (copy.x.tolist(), copy.fun, copy.message) == (result.x.tolist(), result.fun, result.message)
    assert copy.optimizer.ask().x.tolist() == result.optimizer.ask().x.tolist()
    space = space_from(SPACE, [Linear({"count": 1.0}, high=8.0)])
    for thing in (space, SPACE, QUICK, *space.dimensions, result.optimizer.trials[0], result.optimizer.recommend()):
        assert repr(through(thing)) == repr(thing)
    assert through(space) == space


def told(optimizer: BayesianOptimizer) -> BayesianOptimizer:
    trial = optimizer.ask()
    optimizer.tell(trial, BRANIN(trial.x))
    return optimizer
