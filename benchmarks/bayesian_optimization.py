"""seqdec beside BoTorch, Ax, Optuna, SMAC and random search: best value found, and CPU seconds per question.

    OMP_NUM_THREADS=1 python benchmarks/bayesian_optimization.py [--methods seqdec ...] [--tasks branin ...] [--seeds 5]
    OMP_NUM_THREADS=1 python benchmarks/bayesian_optimization.py --tasks svc boosting choice forest kernel pipeline
        xgboost lightgbm network-digits --seeds 3 --out results/models
    OMP_NUM_THREADS=1 python benchmarks/bayesian_optimization.py --tasks plateau{1,2,3,4} --seeds 8 --out results/flat
    OMP_NUM_THREADS=1 python benchmarks/bayesian_optimization.py --tasks levy20 --seeds 3 --out results/levy
    OMP_NUM_THREADS=1 python benchmarks/bayesian_optimization.py --tasks bbob-{1..24}-5-1 --seeds 1 --out results/bbob

    OUT/METHOD.parquet       every evaluation of the finished runs, which are not repeated
    OUT/summary.csv          best value, regret, cold and warm for each task and method
    OUT/progress.png         best value so far against evaluations

The tasks are those of `black_boxes.py`. Methods:

- seqdec: `BayesianOptimizer` with its defaults.
- botorch: `SingleTaskGP` and `LogExpectedImprovement` with their defaults, `optimize_acqf` with 10 restarts and 512 raw
  samples, after Sobol points, one for each column but at least five. It sees the flattened cube of seqdec: integers are
  rounded, categories are one-hot, and inactive parameters have a constant value, after the maximization.
- ax: `Client` with its defaults, which are models of BoTorch for mixed and hierarchical spaces. An integer that others
  depend on is an ordered choice. Parameters with several values of a condition are always active, because Ax knows
  trees only.
- optuna-gp, optuna-tpe: `GPSampler` and `TPESampler` with their defaults, define-by-run. Of a conditional space
  `GPSampler` models the parameters that every trial has, in `choice` the model alone, and draws the others at random.
- smac: `HyperparameterOptimizationFacade`, a random forest, with its defaults; "deterministic" where values are not
  noisy. It is trained after every eighth value, which the median of the seconds does not show.
- cma: `CMAEvolutionStrategy` of the package cma from the middle of the cube with a step of .3, for numbers only.
- random: uniform points of the space; "random x 2" has twice the calls.

Where values are noisy, what counts is the error that `judge` finds at the point that a method answers with: of seqdec
that of `recommend`, of Ax that of `get_best_parameterization`, of SMAC the incumbent, of the others, as they say, that
with the smallest value.

A process plays all runs of a task and a method. `cold` are the CPU seconds of the first modeled question in a new
process, without `import`, that of the packages, and `warm` the median of all others; the threads of the process count.
The table has the regret, or the smallest error where the minimum is not known: the mean over the runs with the
half-width of its 95% t-interval. `rank` is the mean over the tasks of the method's rank in it; `cold` and `warm` are
means over the tasks too, which `summary.csv` has one by one.
"""

import importlib
import logging
import multiprocessing
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import tyro
from black_boxes import HARD, TASKS, Task, group, task

from seqdec.bo import BayesianOptimizer, Categorical, Conditional, Integer, Ordinal, space_from
from seqdec.persistence import read_table, write_table
from seqdec.statistics import mean_and_margin

_SMALLEST = 1e-6
"""Regrets are drawn as this at least."""
_DRAWN = 5
"""The first evaluation that is drawn."""


class Question(NamedTuple):
    """One answer of a method."""

    x: Any
    tell: Callable[[float], Any]
    modeled: bool
    """Whether a model chose the point, rather than an initial design"""


class Player(NamedTuple):
    """A method that plays a task."""

    ask: Callable[[], Question]
    """for the next point; called again after the value was told"""
    answer: Callable[[], Any] | None = None
    """the point that it answers with; None: that with the smallest value"""


Method = Callable[..., Player]
"""(task, seed) -> player; some take the number of first points as a third argument"""


def seqdec(task: Task, seed: int, initial: int | None = None) -> Player:
    """The optimizer of this package."""
    optimizer = BayesianOptimizer(task.space, seed=seed, capacity=task.calls, initial=initial)

    def ask() -> Question:
        modeled = len(optimizer.trials) >= optimizer.initial
        trial = optimizer.ask()
        return Question(trial.x, lambda value: optimizer.tell(trial, value), modeled)

    return Player(ask, lambda: optimizer.recommend().x)


def botorch(task: Task, seed: int, initial: int | None = None) -> Player:
    """A Gaussian process with log expected improvement."""
    import torch
    from botorch.acquisition import LogExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.manual_seed(seed)
    space, units, values = space_from(task.space), [], []
    initial = initial or max(5, space.columns)
    design = torch.quasirandom.SobolEngine(space.columns, scramble=True, seed=seed).draw(initial)
    bounds = torch.tensor([[0.0] * space.columns, [1.0] * space.columns], dtype=torch.double)

    def suggested() -> Any:
        model = SingleTaskGP(torch.tensor(np.array(units)), -torch.tensor(values, dtype=torch.double)[:, None])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        acquisition = LogExpectedImprovement(model, best_f=-min(values))
        return optimize_acqf(acquisition, bounds, q=1, num_restarts=10, raw_samples=512)[0][0]

    def ask() -> Question:
        modeled = len(units) >= initial
        found = suggested() if modeled else design[len(units)]
        x = space.decode(found.double().numpy())
        units.append(space.point(x).unit)
        return Question(x, values.append, modeled)

    return Player(ask)


def _inner(bounds: Any) -> Any:
    """The dimension, also of a conditional parameter."""
    return bounds.dimension if isinstance(bounds, Conditional) else bounds


def _active(bounds: Any, x: Any) -> bool:
    """Whether the point has this parameter."""
    return not isinstance(bounds, Conditional) or x.get(bounds.on) in bounds.values


def ax(task: Task, seed: int) -> Player:
    """BoTorch's models of mixed and hierarchical spaces, as Ax chooses them."""
    from ax.api.client import Client
    from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig

    client, parameters = Client(random_seed=seed), []
    dependents: dict[str, dict[Any, list[str]]] = {}
    for name, bounds in task.space.items():
        if isinstance(bounds, Conditional) and len(bounds.values) == 1:  # more are no tree
            dependents.setdefault(bounds.on, {}).setdefault(bounds.values[0], []).append(name)
    for name, bounds in task.space.items():
        dimension, parent = _inner(bounds), dependents.get(name)
        if isinstance(dimension, Integer) and parent:
            dimension = Ordinal(tuple(range(dimension.low, dimension.high + 1)))
        if isinstance(dimension, Categorical | Ordinal):
            kind: Any = type(dimension.choices[0]).__name__
            ordered = isinstance(dimension, Ordinal)
            choices: Any = list(dimension.choices)
            parameters.append(ChoiceParameterConfig(name, choices, kind, ordered, parent))
        else:
            kind = "int" if isinstance(dimension, Integer) else "float"
            scaling = "log" if dimension.log else "linear"
            parameters.append(RangeParameterConfig(name, (dimension.low, dimension.high), kind, scaling=scaling))
    client.configure_experiment(parameters)
    client.configure_optimization("-value")
    told: list[float] = []

    def point(x: Any) -> dict[str, Any]:
        return {name: value for name, value in x.items() if _active(task.space[name], x)}

    def ask() -> Question:
        ((trial, found),) = client.get_next_trials(1).items()

        def tell(value: float) -> None:
            told.append(value)
            client.complete_trial(trial, {"value": value})

        return Question(point(found), tell, len(told) >= 5)  # the default

    return Player(ask, lambda: point(client.get_best_parameterization()[0]))


def smac(task: Task, seed: int) -> Player:
    """A random forest."""
    import ConfigSpace
    from smac import HyperparameterOptimizationFacade, Scenario
    from smac.runhistory import TrialValue

    space = ConfigSpace.ConfigurationSpace(seed=seed)
    for name, bounds in task.space.items():
        dimension = _inner(bounds)
        if isinstance(dimension, Categorical | Ordinal):
            space.add(ConfigSpace.Categorical(name, dimension.choices, ordered=isinstance(dimension, Ordinal)))
        else:
            kind = ConfigSpace.Integer if isinstance(dimension, Integer) else ConfigSpace.Float
            space.add(kind(name, (dimension.low, dimension.high), log=dimension.log))
        if dimension is not bounds:
            space.add(ConfigSpace.InCondition(space[name], space[bounds.on], list(bounds.values)))
    options: Any = {"n_trials": task.calls, "deterministic": task.judge is None, "output_directory": Path(mkdtemp())}
    facade: Any = HyperparameterOptimizationFacade(Scenario(space, seed=seed, **options))

    def ask() -> Question:
        trial = facade.ask()
        modeled = "Initial Design" not in str(trial.config.origin)
        return Question(dict(trial.config), lambda value: facade.tell(trial, TrialValue(value), save=False), modeled)

    return Player(ask, lambda: dict(facade.intensifier.get_incumbent()))


def _optuna(kind: str) -> Method:
    """A sampler of Optuna."""

    def start(task: Task, seed: int, initial: int | None = None) -> Player:
        import optuna

        initial = initial or 10  # both samplers' default
        study = optuna.create_study(sampler=getattr(optuna.samplers, kind)(n_startup_trials=initial, seed=seed))

        def ask() -> Question:
            modeled = len(study.trials) >= initial
            trial, x = study.ask(), {}
            for name, bounds in task.space.items():
                if not _active(bounds, x):
                    continue
                dimension = _inner(bounds)
                if isinstance(dimension, Categorical | Ordinal):
                    x[name] = trial.suggest_categorical(name, dimension.choices)
                else:
                    suggest = trial.suggest_int if isinstance(dimension, Integer) else trial.suggest_float
                    x[name] = suggest(name, dimension.low, dimension.high, log=dimension.log)
            return Question(x, lambda value: study.tell(trial, value), modeled)

        return Player(ask)

    return start


def random(task: Task, seed: int) -> Player:
    """Uniform points."""
    space, generator = space_from(task.space), np.random.default_rng(seed)
    return Player(lambda: Question(space.decode(generator.random(space.columns)), lambda value: None, False))


def cma(task: Task, seed: int) -> Player:
    """Evolution of a covariance matrix."""
    from cma import CMAEvolutionStrategy

    space = space_from(task.space)
    options = {"bounds": [0, 1], "seed": seed + 1, "verbose": -9}
    strategy: Any = CMAEvolutionStrategy([0.5] * space.columns, 0.3, options)
    waiting: list[Any] = []
    asked: list[Any] = []
    values: list[float] = []

    def tell(value: float) -> None:
        values.append(value)
        if not waiting:
            strategy.tell(asked, values)
            asked.clear()
            values.clear()

    def ask() -> Question:
        if not waiting:
            waiting.extend(strategy.ask())
        asked.append(waiting.pop(0))
        return Question(space.decode(np.array(asked[-1])), tell, False)

    return Player(ask)


METHODS: dict[str, Method] = {
    "seqdec": seqdec,
    "botorch": botorch,
    "ax": ax,
    "optuna-gp": _optuna("GPSampler"),
    "optuna-tpe": _optuna("TPESampler"),
    "smac": smac,
    "cma": cma,
    "random": random,
    "random x 2": random,
}
PACKAGES = {
    "seqdec": ("seqdec.bo",),
    "botorch": ("botorch.acquisition", "botorch.fit", "botorch.models", "botorch.optim"),
    "ax": ("ax.api.client",),
    "optuna-gp": ("optuna", "torch", "scipy.optimize"),
    "optuna-tpe": ("optuna",),
    "smac": ("smac",),
    "cma": ("cma",),
    "random": (),
    "random x 2": (),
}
"""What a method imports, late in some packages."""


def play(name: str, method: str, seed: int) -> pd.DataFrame:
    """One run: a row for each evaluation."""
    played, rows, points = task(name, seed), [], []
    player, calls = METHODS[method](played, seed), played.calls * (2 if method.endswith("x 2") else 1)
    for evaluation in range(calls):
        began = time.process_time()
        question = player.ask()
        seconds = time.process_time() - began
        value = played.fun(question.x)
        question.tell(value)
        points.append(question.x)
        rows.append((name, method, seed, evaluation + 1, value, question.modeled, seconds))
    table = pd.DataFrame(rows, columns=["task", "method", "run", "evaluation", "value", "modeled", "seconds"])
    answer = table["value"].min()
    if played.judge is not None:
        answer = played.judge(player.answer() if player.answer else points[int(table["value"].argmin())])
    return table.assign(answer=answer)


def play_all(name: str, method: str, seeds: list[int], path: Path) -> None:
    """The runs of a task and a method, each saved as soon as it is finished."""
    warnings.simplefilter("ignore")  # of the classifiers and of the other packages
    logging.disable()
    for package in PACKAGES[method]:
        importlib.import_module(package)
    for place, seed in enumerate(seeds):
        table = play(name, method, seed)
        first = table["modeled"] & ~table["modeled"].shift(fill_value=False)
        table["cold"] = first & (place == 0)
        write_table(path, pd.concat([*saved(path), table], ignore_index=True))


def saved(path: Path) -> list[pd.DataFrame]:
    """The table in a file, if there is one."""
    return [read_table(path)[0]] if path.exists() else []


def summarize(rows: pd.DataFrame) -> pd.DataFrame:
    """The table that the head of this file describes."""
    found = []
    for (name, method), played in rows.groupby(["task", "method"], sort=False):
        bests, chosen = played.groupby("run")["answer"].first().to_numpy(), played[played["modeled"]]
        best, margin = mean_and_margin(bests)
        times = [chosen.loc[chosen["cold"] == cold, "seconds"].median() for cold in (True, False)]
        found.append((name, method, len(bests), best, margin, best - task(name).minimum, *times))
    table = pd.DataFrame(found, columns=["task", "method", "runs", "best", "best_95", "regret", "cold", "warm"])
    table = table.sort_values("task", key=lambda names: names.map(_place), kind="stable")
    table["rank"] = table.groupby("task")["best"].rank()
    return table


def _place(name: str) -> tuple[int, ...]:
    """By which tasks are ordered."""
    if name.startswith("bbob-"):
        return (len(TASKS | HARD), *map(int, name.split("-")[1:]))
    return (list(TASKS | HARD).index(name),)


def readable(table: pd.DataFrame) -> str:
    """Regrets, or errors where the minimum is not known, by task and method; and the means over the tasks."""
    values = table["regret"].fillna(table["best"])
    cells = [f"{value:.3g} ± {margin:.2g}" for value, margin in zip(values, table["best_95"], strict=True)]
    shown = table.assign(cell=cells).pivot(index="task", columns="method", values="cell").fillna("-")
    methods = [method for method in METHODS if method in shown]
    shown = shown.loc[list(dict.fromkeys(table["task"])), methods].rename_axis(index=None, columns=None)
    means = table.groupby("method")[["rank", "cold", "warm"]].mean().loc[methods].rename_axis(index=None)
    if table["task"].str.startswith("bbob-").any():
        ranks = table.assign(group=table["task"].map(group)).pivot_table(index="method", columns="group", values="rank")
        means = means.join(ranks.loc[:, table["task"].map(group).unique()])
    means["import"] = [import_seconds(method) for method in methods]
    return f"{shown.to_string()}\n\n{means.to_string(float_format='%.3f', na_rep='-')}"


def import_seconds(method: str) -> float:
    """CPU seconds of the import of a method's packages in a new process; NaN where one is missing."""
    lines = ["import time", *(f"import {package}" for package in PACKAGES[method]), "print(time.process_time())"]
    ended = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    return float(ended.stdout.split()[-1]) if ended.returncode == 0 else np.nan


def progress_figure(rows: pd.DataFrame) -> Any:
    """Best value so far, a panel for each task: log10 of the regret where the minimum is known; mean and 95% band.

    Noisy values are drawn as they are.
    """
    from seqdec import figures

    methods = list(dict.fromkeys(rows["method"]))
    names = sorted(set(rows["task"]), key=_place)
    figure, axes = figures.panels(names)
    for name, axis in zip(names, axes, strict=True):
        known = np.isfinite(task(name).minimum)
        curves = {method: _curves(rows[rows["task"] == name], name, method) for method in methods}
        possible = figures.extremes(curves.values())
        for style, method in zip(figures.styles(methods), methods, strict=True):
            if len(curves[method]):
                evaluations = np.arange(_DRAWN, _DRAWN + curves[method].shape[1])
                figures.curve(axis, evaluations, curves[method], method, style, possible)
        label = "log10 of the regret" if known else "smallest error"
        figures.finish_axis(axis, name, "evaluations", label)
    figures.legend(figure, axes, methods)
    runs = rows["run"].nunique()
    title = f"Best value so far, smaller is better · {runs} runs, mean and 95% band"
    return figures.titled(figure, title)


def _curves(rows: pd.DataFrame, name: str, method: str) -> np.ndarray:
    """(runs, evaluations) best values so far or log10 of their regrets, from evaluation `_DRAWN` on."""
    values = rows[rows["method"] == method].pivot(index="run", columns="evaluation", values="value").to_numpy()
    best = np.minimum.accumulate(values, axis=1)[:, _DRAWN - 1 :]
    minimum = task(name).minimum
    return np.log10(np.maximum(best - minimum, _SMALLEST)) if np.isfinite(minimum) else best


def main(
    methods: Annotated[tuple[str, ...], tyro.conf.arg(help="of all")] = tuple(METHODS),
    tasks: tuple[str, ...] = tuple(TASKS),
    seeds: int = 5,
    seed: int = 0,
    out: Path = Path("results/black-boxes"),
) -> None:
    """Play what is missing; then the table and the picture of all that OUT holds."""
    out.mkdir(parents=True, exist_ok=True)
    for name in tasks:
        for method in methods:
            path = out / f"{method}.parquet"
            done = {(task, run) for table in saved(path) for task, run in zip(table["task"], table["run"], strict=True)}
            left = [run for run in range(seed, seed + seeds) if (name, run) not in done]
            if not left:
                continue
            began = time.monotonic()
            process = multiprocessing.get_context("spawn").Process(target=play_all, args=(name, method, left, path))
            process.start()
            process.join()
            ended = "" if process.exitcode == 0 else f", exit code {process.exitcode}"
            print(f"{name} {method}: {time.monotonic() - began:.0f} s{ended}", flush=True)
    rows = pd.concat([table for method in METHODS for table in saved(out / f"{method}.parquet")], ignore_index=True)
    table = summarize(rows)
    table.to_csv(out / "summary.csv", index=False)
    progress_figure(rows).savefig(out / "progress.png")
    print(readable(table))


if __name__ == "__main__":
    tyro.cli(main)
