"""The tasks of `bayesian_optimization.py`: functions with known minima, and the models of `model_tasks.py`.

A task is a function of a dict, its space in the terms of `seqdec.bo`, and the number of calls. `task` knows also the 24
functions of the BBOB suite, from the package ioh: "bbob-3-5-1" is the third one in five columns, its first instance.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from model_tasks import MODELS

from seqdec.bo import Categorical, Conditional, Integer, Real
from seqdec.envs import objectives


class Task(NamedTuple):
    """A black box to be minimized."""

    fun: Callable[[Mapping[str, Any]], float]
    space: dict[str, Any]
    minimum: float
    """NaN where it is not known"""
    calls: int
    judge: Callable[[Mapping[str, Any]], float] | None = None
    """of noisy tasks: what counts, at the point that a method answers with"""


def _boxed(fun: Callable[[np.ndarray], Any], bounds: Any, minimum: float, calls: int) -> Task:
    """The task of a function of an array on a box."""
    space = {f"x{i}": Real(float(low), float(high)) for i, (low, high) in enumerate(bounds)}
    return Task(lambda x: float(fun(np.array([x[name] for name in space]))), space, minimum, calls)


def _known(objective: objectives.Objective, calls: int) -> Task:
    assert objective.minimum is not None
    return _boxed(objective, objective.bounds, objective.minimum, calls)


def _camel(x: np.ndarray) -> float:
    """The six-hump camel function."""
    a, b = x
    return (4 - 2.1 * a**2 + a**4 / 3) * a**2 + a * b + (4 * b**2 - 4) * b**2


def _hartmann3(x: np.ndarray) -> float:
    """Hartmann's function of three arguments."""
    scales = np.array([[3, 10, 30], [0.1, 10, 35], [3, 10, 30], [0.1, 10, 35]])
    centers = 1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]])
    return -float(np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-np.sum(scales * (x - centers) ** 2, axis=1)))


def _rastrigin(x: np.ndarray) -> float:
    return float(np.sum(x**2 - 10 * np.cos(2 * math.pi * x) + 10))


def _griewank(x: np.ndarray) -> float:
    return float(1 + np.sum(x**2) / 4000 - np.prod(np.cos(x / np.sqrt(np.arange(1, len(x) + 1)))))


def _styblinski_tang(x: np.ndarray) -> float:
    return float(np.sum(x**4 - 16 * x**2 + 5 * x) / 2)


def _michalewicz(x: np.ndarray) -> float:
    return -float(np.sum(np.sin(x) * np.sin(np.arange(1, len(x) + 1) * x**2 / math.pi) ** 20))


TASKS = {
    "branin": _known(objectives.branin(), 40),
    "camel": _boxed(_camel, [(-3, 3), (-2, 2)], -1.031628453489877, 40),
    "hartmann3": _boxed(_hartmann3, [(0, 1)] * 3, -3.86278214782076, 40),
    "hartmann6": _known(objectives.hartmann6(), 50),
    "ackley2": _known(objectives.ackley(2), 40),
    "ackley5": _known(objectives.ackley(5), 50),
    "rosenbrock4": _known(objectives.rosenbrock(4), 50),
    "levy4": _known(objectives.levy(4), 50),
    # The minima of Rastrigin's and Griewank's functions are not in the center of these boxes.
    "rastrigin4": _boxed(_rastrigin, [(-4, 5)] * 4, 0.0, 50),
    "griewank6": _boxed(_griewank, [(-50, 70)] * 6, 0.0, 50),
    "styblinski-tang5": _boxed(_styblinski_tang, [(-5, 5)] * 5, -39.16616570377142 * 5, 50),
    "michalewicz5": _boxed(_michalewicz, [(0, math.pi)] * 5, -4.687658179, 50),
    **{name: Task(model.error, model.space, math.nan, model.calls) for name, model in MODELS.items()},
}
_SHARE = 0.045
"""Of the volume of a box, where a function with a plateau is not constant."""


def _plateau(columns: int) -> Task:
    """1 outside of a ball in the unit cube, in which it falls to 0 at the center."""
    volume = math.pi ** (columns / 2) / math.gamma(columns / 2 + 1)
    center, radius = np.linspace(0.3, 0.7, columns), (_SHARE / volume) ** (1 / columns)
    return _boxed(lambda x: min(1.0, math.dist(x, center) / radius), [(0, 1)] * columns, 0.0, 60)


def _effects(count: int, levels: int) -> np.ndarray:
    """(count, levels) effects of the levels of each parameter, 0 of the best."""
    drawn = np.random.default_rng(levels).uniform(size=(count, levels))
    return drawn - drawn.min(1, keepdims=True)


def _levels(choices: int, levels: int, numbers: int, calls: int) -> Task:
    """`choices` categoricals, whose levels have effects that the distance of a number from the middle enlarges."""
    effects, centers = _effects(choices, levels), np.linspace(0.25, 0.75, numbers)
    labels = [f"c{i}" for i in range(choices)]
    space = {name: Categorical(tuple(f"{name}{level}" for level in range(levels))) for name in labels}

    def fun(x: Mapping[str, Any]) -> float:
        at = np.array([x[f"r{i}"] for i in range(numbers)])
        found = [effect[int(x[name].removeprefix(name))] for name, effect in zip(labels, effects, strict=True)]
        return float(found @ (1 + np.abs(np.resize(at, choices) - 0.5)) + 4 * np.sum((at - centers) ** 2))

    return Task(fun, space | {f"r{i}": Real(0.0, 1.0) for i in range(numbers)}, 0.0, calls)


def _branches() -> Task:
    """Four branches of two numbers and an integer each, and a number of all."""
    effects, centers = _effects(1, 4)[0], np.random.default_rng(0).uniform(0.1, 0.9, (4, 2))
    space: dict[str, Any] = {"r": Real(0.0, 1.0), "kind": Categorical((0, 1, 2, 3))}
    for kind in range(4):
        own = {"a": Real(0.0, 1.0), "b": Real(0.0, 1.0), "n": Integer(1, 9)}
        space |= {f"{name}{kind}": Conditional(of, on="kind", values=(kind,)) for name, of in own.items()}

    def fun(x: Mapping[str, Any]) -> float:
        kind = x["kind"]
        at = np.array([x[f"a{kind}"], x[f"b{kind}"]])
        own = 4 * np.sum((at - centers[kind]) ** 2) + abs(x[f"n{kind}"] - 3 - kind) / 8
        return float(effects[kind] + own + (x["r"] - 0.3) ** 2)

    return Task(fun, space, 0.0, 40)


HARD = {
    "levels6": _levels(6, 6, 3, 50),
    "levels50": _levels(1, 50, 2, 45),
    "branches": _branches(),
    **{f"plateau{columns}": _plateau(columns) for columns in (1, 2, 3, 4)},
    "levy20": _known(objectives.levy(20), 1000),
}
"""Tasks that are played only by name."""
_BBOB_CALLS = 100
GROUPS = {"separable": 1, "moderate": 6, "ill-conditioned": 10, "multimodal": 15, "weak structure": 20}
"""The first function of each group of the BBOB suite."""


def task(name: str, seed: int = 0) -> Task:
    """The task of that name, with the noise of a seed. Raises KeyError for an unknown one."""
    if name in MODELS and MODELS[name].noisy:
        model, calls = MODELS[name], itertools.count(1000 * seed)
        return TASKS[name]._replace(fun=lambda x: model.error(x, next(calls)), judge=model.judge)
    if not name.startswith("bbob-"):
        return (TASKS | HARD)[name]
    from ioh import ProblemClass, get_problem

    number, columns, instance = map(int, name.split("-")[1:])
    problem: Any = get_problem(number, instance=instance, dimension=columns, problem_class=ProblemClass.BBOB)
    return _boxed(problem, [(-5, 5)] * columns, float(problem.optimum.y), _BBOB_CALLS)


def group(name: str) -> str:
    """The group of a task; of those that are not of the BBOB suite "others"."""
    if not name.startswith("bbob-"):
        return "others"
    return [group for group, first in GROUPS.items() if int(name.split("-")[1]) >= first][-1]
