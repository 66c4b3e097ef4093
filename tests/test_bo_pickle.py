"""Optimizers, results and spaces go through pickle, and to other processes and back."""

import pickle
from typing import Any

import seqdec
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
