"""Searches that are over quickly; those of equal sizes share compiled programs."""

from collections.abc import Callable
from typing import Any

import seqdec
from seqdec.bo import BayesianOptimizer, Search
from seqdec.envs import objectives

QUICK = Search(raw_samples=64, num_restarts=4, steps=10)
BRANIN = objectives.branin()
BOX = [(-5.0, 10.0), (0.0, 15.0)]
"""Of Branin's function."""
SQUARE = [(0.0, 1.0), (0.0, 1.0)]


def quick(bounds: Any = BOX, **options: Any) -> BayesianOptimizer:
    return BayesianOptimizer(bounds, **{"seed": 0, "capacity": 16, "search": QUICK, **options})


def minimum(fun: Callable[..., Any], bounds: Any = BOX, **options: Any) -> Any:
    return seqdec.minimize(fun, bounds, **{"n_calls": 8, "seed": 0, "search": QUICK, "progress": False, **options})


def searched(study: BayesianOptimizer, fun: Callable[[Any], Any], calls: int) -> BayesianOptimizer:
    """The study after so many questions and answers."""
    for _ in range(calls):
        trial = study.ask()
        value, outcomes = study.outputs.split(fun(trial.x))
        study.tell(trial, value, outcomes=outcomes)
    return study
