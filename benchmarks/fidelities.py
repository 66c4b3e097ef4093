"""Several fidelities: the best value found at equal cost, beside Optuna's Hyperband and median pruners.

    PYTHONPATH=FOLDER_OF_OPTUNA python benchmarks/fidelities.py             # six CPU minutes

Tasks, all losses on validation data:

    network    a multilayer perceptron on handwritten digits, 27 epochs; four parameters; a learning curve
    boosting   gradient boosting on the diabetes data, 27 trees; four parameters; a learning curve
    svm        a support vector machine on digits with wrong labels, 1/9, 1/3 or all of the data; two parameters
    hartmann6  Hartmann's function; below full fidelity its optimum is moved and the values are higher; six parameters

The cost is counted in evaluations at full fidelity. A pruner gets the values of a curve one by one, and where a level
is an evaluation of its own those of the levels from the lowest on, of which each costs its share. Medians over the
seeds of the best value at full fidelity after 5, 10 and 20 of these, with the quarters in brackets.
"""

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from harness import command, quartiles, table
from knowledge import hartmann
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

import seqdec
from seqdec.bo import Fidelity, Integer, Real

BUDGETS = (5, 10, 20)


@functools.cache
def digits() -> tuple[np.ndarray, ...]:
    """Train x, validation x, train y, validation y."""
    data = load_digits()
    return tuple(train_test_split(data.data / 16, data.target, train_size=300, test_size=500, random_state=0))


@functools.cache
def diabetes() -> tuple[np.ndarray, ...]:
    """As `digits`."""
    data = load_diabetes()
    return tuple(train_test_split(data.data, data.target / data.target.std(), test_size=0.4, random_state=0))


def network(x: dict[str, Any]) -> Iterator[float]:
    """Log loss after each epoch."""
    train, valid, labels, wanted = digits()
    model = MLPClassifier(
        (x["units"],), learning_rate_init=x["rate"], alpha=x["decay"], batch_size=x["batch"], random_state=0
    )
    for _ in range(27):
        model.partial_fit(train, labels, classes=np.arange(10))
        chances = model.predict_proba(valid)[np.arange(len(wanted)), wanted]
        yield float(-np.log(np.clip(chances, 1e-6, 1)).mean())


def boosting(x: dict[str, Any]) -> Iterator[float]:
    """Mean squared error after each tree."""
    train, valid, values, wanted = diabetes()
    model = GradientBoostingRegressor(
        learning_rate=x["rate"],
        max_depth=x["depth"],
        min_samples_leaf=x["leaf"],
        subsample=x["share"],
        warm_start=True,
        n_estimators=0,
        random_state=0,
    )
    for _ in range(27):
        model.n_estimators += 1
        yield float(np.mean((model.fit(train, values).predict(valid) - wanted) ** 2))


def svm(x: dict[str, Any], share: float) -> float:
    """Share of wrong labels."""
    train, valid, labels, wanted = digits()
    count, rng = round(share * len(train)), np.random.default_rng(0)
    noisy = np.where(rng.random(len(labels)) < 0.2, rng.integers(0, 10, len(labels)), labels)
    model = SVC(C=x["c"], gamma=x["gamma"]).fit(train[:count], noisy[:count])
    return float(np.mean(model.predict(valid) != wanted))


def moved_hartmann(x: dict[str, Any], share: float) -> float:
    """Regret; its optimum is moved by up to a tenth of each range, and the values are up to a half larger."""
    return hartmann(np.array([*x.values()]) + 0.1 * (1 - share)) + 0.5 * (1 - share) + 3.32237


class Task(NamedTuple):
    """A function, its bounds and levels."""

    fun: Callable[..., Any]
    bounds: dict[str, Any]
    fidelity: Fidelity
    curve: bool


LOG = functools.partial(Real, log=True)
TASKS = {
    "network": Task(
        network,
        {"rate": LOG(1e-4, 1e-1), "decay": LOG(1e-6, 1e0), "units": Integer(8, 64), "batch": Integer(32, 256)},
        Fidelity(1, 27),
        True,
    ),
    "boosting": Task(
        boosting,
        {"rate": LOG(1e-2, 1e0), "depth": Integer(1, 6), "leaf": Integer(1, 50), "share": Real(0.2, 1.0)},
        Fidelity(1, 27),
        True,
    ),
    "svm": Task(svm, {"c": LOG(1e-2, 1e3), "gamma": LOG(1e-4, 1e1)}, Fidelity(1 / 9, 1.0), False),
    "hartmann6": Task(moved_hartmann, {f"x{i}": Real(0, 1) for i in range(6)}, Fidelity(1 / 27, 1.0), False),
}


class Meter:
    """Counts the cost of a task and notes the values at full fidelity."""

    def __init__(self, task: Task) -> None:
        self.task, self.grid, self.cost = task, task.fidelity.grid, 0.0
        self.found: list[tuple[float, float]] = []
        """(cost, value)"""

    def curve(self, x: dict[str, Any]) -> Iterator[float]:
        """The values of a learning curve."""
        for unit, value in enumerate(self.task.fun(x), 1):
            self._add(unit, 1 / self.grid.levels[0], value)
            yield value

    def level(self, x: dict[str, Any], fidelity: float) -> float:
        """The value at a level."""
        value = self.task.fun(x, fidelity)
        self._add(fidelity, self.grid.cost(fidelity), value)
        return value

    def full(self, x: dict[str, Any]) -> float:
        """The value at full fidelity."""
        return [*self.curve(x)][-1] if self.task.curve else self.level(x, self.grid.levels[0])

    def steps(self, x: dict[str, Any]) -> Iterator[tuple[int, float]]:
        """(step of a pruner, value)."""
        if self.task.curve:
            yield from enumerate(self.curve(x), 1)
        else:
            yield from ((round(level / self.grid.levels[-1]), self.level(x, level)) for level in self.grid.levels[::-1])

    def _add(self, amount: float, cost: float, value: float) -> None:
        self.cost += cost
        if amount == self.grid.levels[0]:
            self.found.append((self.cost, value))

    def best(self, budget: float) -> float:
        """The best value at full fidelity within a budget."""
        return min((value for cost, value in self.found if cost <= budget + 1e-6), default=np.inf)


def with_levels(meter: Meter, seed: int) -> None:
    """Seqdec with `fidelity`."""
    task = meter.task
    fun = meter.curve if task.curve else meter.level
    seqdec.minimize(fun, task.bounds, n_calls=BUDGETS[-1], fidelity=task.fidelity, seed=seed, progress=False)


def without(meter: Meter, seed: int) -> None:
    """Seqdec at full fidelity."""
    seqdec.minimize(meter.full, meter.task.bounds, n_calls=BUDGETS[-1], seed=seed, progress=False)


def optuna(meter: Meter, seed: int, pruner: str) -> None:
    """Optuna's TPE with a pruner."""
    import optuna  # pyright: ignore[reportMissingImports]

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    highest = round(meter.grid.levels[0] / meter.grid.levels[-1])
    pruners = {
        "hyperband": lambda: optuna.pruners.HyperbandPruner(1, highest, 3),
        "median": optuna.pruners.MedianPruner,
        "none": optuna.pruners.NopPruner,
    }
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed), pruner=pruners[pruner]())

    def objective(trial: Any) -> float:
        x, value = {}, np.inf
        for name, kind in meter.task.bounds.items():
            suggest = trial.suggest_int if isinstance(kind, Integer) else trial.suggest_float
            x[name] = suggest(name, kind.low, kind.high, log=kind.log)
        if pruner == "none":
            return meter.full(x)
        for step, value in meter.steps(x):
            trial.report(value, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    while meter.cost < BUDGETS[-1]:
        study.optimize(objective, n_trials=1)


METHODS: dict[str, Callable[[Meter, int], None]] = {
    "seqdec, fidelity": with_levels,
    "seqdec": without,
    "TPE, Hyperband": functools.partial(optuna, pruner="hyperband"),
    "TPE, median": functools.partial(optuna, pruner="median"),
    "TPE": functools.partial(optuna, pruner="none"),
}


def main(tasks: tuple[str, ...] = tuple(TASKS), methods: tuple[str, ...] = tuple(METHODS), seeds: int = 10) -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    row = table("task", "method", *(f"cost {budget}" for budget in BUDGETS))
    for name in tasks:
        for method in methods:
            meters = [Meter(TASKS[name]) for _ in range(seeds)]
            for seed, meter in enumerate(meters):
                METHODS[method](meter, seed)
            row(name, method, *(quartiles([meter.best(budget) for meter in meters]) for budget in BUDGETS))


if __name__ == "__main__":
    command(main)
