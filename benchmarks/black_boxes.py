"""The tasks of `bayesian_optimisation.py`: twelve functions with known minima, and three models to be tuned.

A task is a function of a dict, its space in the terms of `seqdec.bo`, and the number of calls. The data are those that
scikit-learn contains; errors are means of three folds, which are the same in every call. `task` knows also the 24
functions of the BBOB suite, from the package ioh: "bbob-3-5-1" is the third one in five columns, its first instance.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from seqdec.bo import Categorical, Conditional, Integer, Real
from seqdec.envs import objectives


class Task(NamedTuple):
    """A black box to be minimised."""

    fun: Callable[[Mapping[str, Any]], float]
    space: dict[str, Any]
    minimum: float
    """NaN where it is not known"""
    calls: int


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
    centres = 1e-4 * np.array([[3689, 1170, 2673], [4699, 4387, 7470], [1091, 8732, 5547], [381, 5743, 8828]])
    return -float(np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-np.sum(scales * (x - centres) ** 2, axis=1)))


def _rastrigin(x: np.ndarray) -> float:
    return float(np.sum(x**2 - 10 * np.cos(2 * math.pi * x) + 10))


def _griewank(x: np.ndarray) -> float:
    return float(1 + np.sum(x**2) / 4000 - np.prod(np.cos(x / np.sqrt(np.arange(1, len(x) + 1)))))


def _styblinski_tang(x: np.ndarray) -> float:
    return float(np.sum(x**4 - 16 * x**2 + 5 * x) / 2)


def _michalewicz(x: np.ndarray) -> float:
    return -float(np.sum(np.sin(x) * np.sin(np.arange(1, len(x) + 1) * x**2 / math.pi) ** 20))


def _error(model: Any, x: np.ndarray, y: np.ndarray, scoring: str) -> float:
    """Minus the mean score of three folds."""
    from sklearn.model_selection import KFold, cross_val_score

    return -float(cross_val_score(model, x, y, cv=KFold(3, shuffle=True, random_state=0), scoring=scoring).mean())


@functools.cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    """600 images of handwritten digits, scaled, and their labels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    chosen = np.random.default_rng(0).permutation(len(data.target))[:600]
    return data.data[chosen] / 16, data.target[chosen]


@functools.cache
def _tumours() -> tuple[np.ndarray, np.ndarray]:
    """Measurements of tumours, standardised, and whether they are benign."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    return (data.data - data.data.mean(0)) / data.data.std(0), data.target


def _svc(x: Mapping[str, Any]) -> float:
    """The share of wrong digits."""
    from sklearn.svm import SVC

    return 1 + _error(SVC(**x), *_digits(), "accuracy")


def _boosting(x: Mapping[str, Any]) -> float:
    """The root mean squared error of the progress of diabetes."""
    from sklearn.datasets import load_diabetes
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(max_iter=50, early_stopping=False, random_state=0, **x)
    return _error(model, *load_diabetes(return_X_y=True), "neg_root_mean_squared_error")


def _choice(x: Mapping[str, Any]) -> float:
    """1 - area under the ROC curve of the classifier that `x` names, of which the other values are the parameters."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    kinds = {
        "svc": SVC,
        "neighbours": KNeighborsClassifier,
        "logistic": functools.partial(LogisticRegression, max_iter=100, tol=1e-3),
        "forest": functools.partial(RandomForestClassifier, n_estimators=30, random_state=0),
    }
    options = {name.partition(".")[2]: value for name, value in x.items() if name != "model"}
    return 1 + _error(kinds[x["model"]](**options), *_tumours(), "roc_auc")


def _of(model: str, dimension: Any) -> Conditional:
    return Conditional(dimension, on="model", values=(model,))


TASKS = {
    "branin": _known(objectives.branin(), 40),
    "camel": _boxed(_camel, [(-3, 3), (-2, 2)], -1.031628453489877, 40),
    "hartmann3": _boxed(_hartmann3, [(0, 1)] * 3, -3.86278214782076, 40),
    "hartmann6": _known(objectives.hartmann6(), 50),
    "ackley2": _known(objectives.ackley(2), 40),
    "ackley5": _known(objectives.ackley(5), 50),
    "rosenbrock4": _known(objectives.rosenbrock(4), 50),
    "levy4": _known(objectives.levy(4), 50),
    # The minima of Rastrigin's and Griewank's functions are not in the centre of these boxes.
    "rastrigin4": _boxed(_rastrigin, [(-4, 5)] * 4, 0.0, 50),
    "griewank6": _boxed(_griewank, [(-50, 70)] * 6, 0.0, 50),
    "styblinski-tang5": _boxed(_styblinski_tang, [(-5, 5)] * 5, -39.16616570377142 * 5, 50),
    "michalewicz5": _boxed(_michalewicz, [(0, math.pi)] * 5, -4.687658179, 50),
    "svc": Task(_svc, {"C": Real(1e-2, 1e3, log=True), "gamma": Real(1e-4, 10.0, log=True)}, math.nan, 40),
    "boosting": Task(
        _boosting,
        {
            "learning_rate": Real(1e-3, 1.0, log=True),
            "max_leaf_nodes": Integer(2, 64, log=True),
            "min_samples_leaf": Integer(1, 60),
            "l2_regularization": Real(1e-3, 1e3, log=True),
            "max_features": Real(0.1, 1.0),
        },
        math.nan,
        40,
    ),
    "choice": Task(
        _choice,
        {
            "model": Categorical(("svc", "neighbours", "logistic", "forest")),
            "svc.C": _of("svc", Real(1e-2, 1e3, log=True)),
            "svc.gamma": _of("svc", Real(1e-4, 10.0, log=True)),
            "neighbours.n_neighbors": _of("neighbours", Integer(1, 30, log=True)),
            "neighbours.weights": _of("neighbours", Categorical(("uniform", "distance"))),
            "neighbours.p": _of("neighbours", Real(1.0, 4.0)),
            "logistic.C": _of("logistic", Real(1e-3, 1e3, log=True)),
            "forest.max_depth": _of("forest", Integer(2, 20)),
            "forest.max_features": _of("forest", Real(0.05, 1.0, log=True)),
        },
        math.nan,
        40,
    ),
}
_BBOB_CALLS = 100
GROUPS = {"separable": 1, "moderate": 6, "ill-conditioned": 10, "multimodal": 15, "weak structure": 20}
"""The first function of each group of the BBOB suite."""


def task(name: str) -> Task:
    """The task of that name. Raises KeyError for an unknown one."""
    if not name.startswith("bbob-"):
        return TASKS[name]
    from ioh import ProblemClass, get_problem

    number, columns, instance = map(int, name.split("-")[1:])
    problem: Any = get_problem(number, instance=instance, dimension=columns, problem_class=ProblemClass.BBOB)
    return _boxed(problem, [(-5, 5)] * columns, float(problem.optimum.y), _BBOB_CALLS)


def group(name: str) -> str:
    """The group of a task; of those that are not of the BBOB suite "others"."""
    if not name.startswith("bbob-"):
        return "others"
    return [group for group, first in GROUPS.items() if int(name.split("-")[1]) >= first][-1]
