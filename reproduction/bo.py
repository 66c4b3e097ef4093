"""Bayesian optimization of the paper's eight functions, against random search and differential evolution.

DIR/manifest.json      options
DIR/trials.parquet     every evaluation: function, method, run, evaluation, initial, value, best so far, seconds to ask
DIR/summary.csv        best value at the end and seconds, mean over runs with 95% intervals
DIR/*.png              regret, or the best value, against evaluations and against time
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import differential_evolution

from seqdec import bo, policies
from seqdec.commands.base import Choice, Located, check_choices, check_minimum, check_seeds, split_names
from seqdec.commands.folder import key_of, save_parts, saved_parts, write_manifest, write_summary
from seqdec.envs import objectives
from seqdec.envs.objectives import Objective
from seqdec.introspection import fitted
from seqdec.persistence import read_table
from seqdec.progress import bar
from seqdec.registry import unknown
from seqdec.statistics import summarized
from seqdec.ticks import plain_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Problem(NamedTuple):
    """A function and its number of evaluations after the initial points, one per dimension."""

    build: Callable[[], Objective]
    evaluations: int


PROBLEMS: dict[str, Problem] = {
    "ackley2": Problem(lambda: objectives.ackley(2), 40),
    "ackley5": Problem(lambda: objectives.ackley(5), 100),
    "ackley10": Problem(lambda: objectives.ackley(10), 100),
    "ackley50": Problem(lambda: objectives.ackley(50), 100),
    "branin": Problem(objectives.branin, 40),
    "hartmann6": Problem(objectives.hartmann6, 40),
    "drawnn50": Problem(lambda: objectives.drawnn(50), 200),
    "drawnn200": Problem(lambda: objectives.drawnn(200), 600),
}
_PAPER: dict[str, dict[str, Any]] = {
    "hilofi": {"noise_variance": 0.0, "initial_std_hidden": 0.01, "initial_std_last": 1.0, "scale": 0.5},
    "lrkf": {"noise_variance": 0.0, "initial_std": 1.0, "process_noise": 0.0, "rank": 50, "scale": 0.5},
    "lofi": {"noise_variance": 0.0, "initial_std_hidden": 0.01, "initial_std_last": 1.0, "rank": 50, "scale": 0.5},
    "last_layer_laplace": {
        "noise_variance": 1e-6, "prior_std": 1.0, "learning_rate": 1e-4, "inner_steps": 50, "buffer": 20, "scale": 0.5,
    },
    "on_vbll": {"learning_rate": 1e-4, "inner_steps": 50, "buffer": 20, "regularization": 0.0, "scale": 0.5},
    "vbll": {"learning_rate": 1e-4, "inner_steps": 100, "regularization": 1.0, "scale": 0.5},
    "gp": {"noise_variance": 0.0, "length_scale": 0.1, "buffer": 20},
}  # fmt: skip
"""Settings of the paper. R = 0 there; the Laplace approximation divides by R, which is 1e-6."""
_SURROGATES = {"gp": "buffered_gp", "hilofi": "hilofi_mlp"}
"""Surrogates of the paper that have another name here."""
_OTHERS = ("random", "evolution")
_PUBLISHED = ".published"
_RANKS = {"hilofi": "rank", "hilofi_mlp": "rank", "lofi": "rank", "lolofi": "rank_hidden", "lrkf": "rank"}
"""Surrogates that have a rank, with its keyword."""
_SMALLEST = 1e-6
"""Smaller regrets are drawn as this."""
_PART = ["function", "method", "run"]


@dataclass(frozen=True, kw_only=True)
class Optimization(Located):
    """Bayesian optimization of the paper's eight functions, against random search and differential evolution.

    Needs no data; on one core, a run on drawnn200 takes 4 minutes with auto and 40 seconds with hilofi.
    Example: seqdec run bo --functions branin,hartmann6 --methods auto,random --seeds 3
    """

    name: ClassVar[str] = "bo"
    choices: ClassVar[Mapping[str, Choice]] = {
        "functions": Choice("function", PROBLEMS, several=True),
        "methods": Choice("method", ("auto", *bo.surrogate_names(), *_OTHERS), several=True, free=True),
    }

    functions: str = ",".join(PROBLEMS)
    """Functions, separated by commas."""
    methods: str = "auto,hilofi,random,evolution"
    """Surrogates (auto, buffered_gp, ekf, gp, hilofi, hilofi_mlp, last_layer_laplace, lofi, lolofi, lrkf, on_vbll,
    sparse_gp, vbll), random, evolution; hilofi+thompson sets the acquisition, hilofi:200 the rank. With .published,
    gp, hilofi, last_layer_laplace, lofi, lrkf, on_vbll and vbll have the paper's settings: Thompson sampling on 1,024
    fixed Sobol points, one pass, unscaled responses, the unit cube around zero."""
    seeds: int = 10
    """Runs of each method on each function, with seeds SEED, SEED + 1, ..."""
    seed: int = 0
    """First seed."""
    steps: int | None = None
    """Evaluations after the initial points; default: the paper's number for each function."""
    published: bool = False
    """Add methods with the paper's settings."""
    out: Path = Path("results/bo")
    """Folder for the trials, the table and the figures."""
    quick: bool = False
    """A small run for two cores; its defaults are at the top of this help."""
    quick_options: ClassVar[Mapping[str, Any]] = {"functions": "ackley2,branin", "steps": 15, "seeds": 2}
    published_options: ClassVar[Mapping[str, Any]] = {
        "methods": ",".join(("auto", *(f"{kind}.published" for kind in _PAPER), *_OTHERS))
    }

    def check(self) -> None:
        check_minimum(self, steps=1)
        check_seeds(self.seed, self.seeds)
        check_choices(self)
        for method in split_names("method", self.methods):
            _settings(method)

    def restore(self) -> list[pd.DataFrame]:
        return saved_parts(self.out / "trials.parquet", _PART)

    def play(self, plan: None, finished: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        done = {key_of(part, _PART) for part in finished}
        functions, methods = split_names("function", self.functions), split_names("method", self.methods)
        cases = [(name, method) for name in functions for method in methods]
        with bar(len(cases) * self.seeds, "", "run") as shown:
            for name, method in cases:
                problem = PROBLEMS[name]
                objective, evaluations = problem.build(), self.steps or problem.evaluations
                settings = _settings(method)
                if settings is not None and method.endswith(_PUBLISHED) and name.startswith("drawnn"):
                    # An ascent from one random point.
                    settings["search"] = bo.Search(raw_samples=2, num_restarts=1, steps=500)
                for run in range(self.seeds):
                    shown.set_description(f"{name} {method}")
                    if (name, method, run) in done:
                        shown.update()
                        continue
                    values, seconds = _run(objective, evaluations, method, settings, self.seed + run)
                    shown.update()
                    yield _table(objective, name, method, run, values, seconds)

    def save(self, parts: list[pd.DataFrame]) -> None:
        trials = pd.concat(parts, ignore_index=True)
        save_parts(self.out / "trials.parquet", trials)
        write_manifest(self.out, self)

    @staticmethod
    def report(folder: Path) -> str:
        trials = read_table(folder / "trials.parquet")[0]
        table = summarize(trials)
        pictures = {"progress.png": progress_figure(trials), "time.png": time_figure(table)}
        write_summary(folder, table, pictures)
        return fitted(_readable(table))


def _settings(method: str) -> dict[str, Any] | None:
    """Keywords of `BayesianOptimizer` for "surrogate:rank+acquisition.published"; None for what is no surrogate."""
    published = method.endswith(_PUBLISHED)
    name, _, acquisition = method.removesuffix(_PUBLISHED).partition("+")
    kind, _, rank = name.partition(":")
    if kind in _OTHERS:
        if method != kind:
            raise ValueError(f"{kind} has neither a rank nor an acquisition nor published settings; got {method!r}")
        return None
    known = ("auto", *bo.surrogate_names())
    if kind not in known:
        raise ValueError(unknown("method", kind, (*known, *_OTHERS)))
    if published and kind not in _PAPER:
        raise ValueError(f"{method}: the settings of the paper are known for {', '.join(_PAPER)}")
    if acquisition and acquisition not in policies.REGISTRY:
        raise ValueError(unknown("acquisition", acquisition, bo.acquisition_names()))
    keyword = _RANKS.get(kind)
    if name != kind and keyword is None:
        raise ValueError(f"{kind} has no rank; got {method!r}")
    if name != kind and (not rank.isdigit() or int(rank) < 1):
        raise ValueError(f"the rank of {method!r} must be an integer of at least 1, as in hilofi:200; got {rank!r}")
    options: dict[str, Any] = {} if keyword is None or not rank else {keyword: int(rank)}
    settings: dict[str, Any] = {"surrogate": kind, "acquisition": acquisition or "auto"}
    if published:
        settings["surrogate"] = _SURROGATES.get(kind, kind)
        options = {"growth": float("inf"), **_PAPER[kind], **options}
        search = bo.Search(raw_samples=1024, grid=True, repeats=True, trust_region=False)
        settings |= {"responses": "raw", "search": search}
    return settings | {"surrogate_options": options}


def _run(
    objective: Objective, evaluations: int, method: str, settings: dict[str, Any] | None, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """(values, seconds to choose each point), both (d + evaluations,)."""
    dim = len(objective.bounds)
    count = dim + evaluations
    if method == "evolution":
        return _evolve(objective, count, seed)
    if settings is None:
        low, high = objective.bounds.T
        points = np.random.default_rng(seed).uniform(low, high, (count, dim))
        return np.array([objective(x) for x in points]), np.zeros(count)
    optimizer = bo.BayesianOptimizer(
        [(low, high) for low, high in objective.bounds], seed=seed, initial=dim, capacity=count, **settings
    )
    seconds = np.zeros(count)
    for i in range(count):
        began = time.perf_counter()
        trial = optimizer.ask()
        seconds[i] = time.perf_counter() - began
        optimizer.tell(trial, objective(trial.x))
    return optimizer.evaluations()[1], seconds


class _SpentError(Exception):
    """The budget is spent. Not a StopIteration, which SciPy's loops over a population would swallow."""


def _evolve(objective: Objective, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Differential evolution with a population of a tenth of the budget, at least eight; stopped when it is spent."""
    values: list[float] = []
    generator = np.random.default_rng(seed)
    low, high = objective.bounds.T
    population = generator.uniform(low, high, (max(8, count // 10), len(low)))

    def fun(x: np.ndarray) -> float:
        if len(values) == count:
            raise _SpentError
        values.append(objective(x))
        return values[-1]

    settings: Any = {"init": population, "maxiter": count, "tol": 0, "polish": False, "rng": generator}
    with contextlib.suppress(_SpentError):
        differential_evolution(fun, objective.bounds, **settings)
    return np.array(values), np.zeros(len(values))


def _table(
    objective: Objective, name: str, method: str, run: int, values: np.ndarray, seconds: np.ndarray
) -> pd.DataFrame:
    count = len(values)
    return pd.DataFrame(
        {
            "function": name,
            "method": method,
            "run": run,
            "evaluation": np.arange(1, count + 1),
            "initial": np.arange(count) < len(objective.bounds),
            "value": values,
            "best": np.minimum.accumulate(values),
            "minimum": np.nan if objective.minimum is None else objective.minimum,
            "seconds": seconds,
        }
    )


def summarize(trials: pd.DataFrame) -> pd.DataFrame:
    """One row for each function and method.

    Columns: runs; `best`, the smallest value found, and the half-width `best_95` of its 95% t-interval over runs;
    `regret`, best - minimum (NaN where that is not known); `ms_per_query`, the median time to choose a point once the
    surrogate decides; `seconds`, the time to choose all points of one run, compilation included in the first.
    """
    rows = []
    groups: Any = trials.groupby(["function", "method"], sort=False)
    for (function, method), group in groups:
        runs = group.groupby("run")
        found = summarized({"best": runs["best"].min()})
        rows.append(
            {
                "function": function,
                "method": method,
                "runs": runs.ngroups,
                **found,
                "regret": float(found["best"] - group["minimum"].iloc[0]),
                "ms_per_query": 1e3 * float(group.loc[~group["initial"], "seconds"].median()),
                "seconds": float(runs["seconds"].sum().median()),
            }
        )
    return pd.DataFrame(rows).set_index(["function", "method"])


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """The table of `summarize` as strings."""
    columns = {name: table[name].to_numpy() for name in table}
    bests = zip(columns["best"], columns["best_95"], strict=True)
    cells = {
        "best": [f"{best:,.4g} ± {margin:.2g}" for best, margin in bests],
        "regret": [f"{regret:.4g}" if np.isfinite(regret) else "-" for regret in columns["regret"]],
        "ms / query": [f"{ms:.1f}" for ms in columns["ms_per_query"]],
        "s / run": [f"{seconds:.1f}" for seconds in columns["seconds"]],
    }
    return pd.DataFrame(cells, index=table.index)


def progress_figure(trials: pd.DataFrame) -> "Figure":
    """Regret of the best value so far against evaluations, a panel for each function: mean over runs and 95% band.

    `trials` has the columns function, method, run, evaluation, best, minimum and initial. Functions are minimized, and
    the curves start where the initial points end. Means and bands are of log10 of the regret; where the minimum is not
    known, of the value, from what a tenth of the evaluations finds on.
    """
    from seqdec import figures

    names, methods = list(dict.fromkeys(trials["function"])), list(dict.fromkeys(trials["method"]))
    figure, axes = figures.panels(names)
    for name, axis in zip(names, axes, strict=True):
        here = trials.query("function == @name")
        minimum = float(here["minimum"].to_numpy()[0])
        known, first = np.isfinite(minimum), int(here.loc[here["initial"], "evaluation"].to_numpy().max(initial=1))
        scaled = here.assign(best=np.log10(np.maximum(here["best"] - minimum, _SMALLEST))) if known else here
        possible, tops = figures.extremes([scaled["best"].to_numpy()]), []
        for style, method in zip(figures.styles(methods), methods, strict=True):
            part = scaled.query("method == @method")
            curves = part.pivot(index="run", columns="evaluation", values="best").to_numpy()[:, first - 1 :]
            if len(curves):
                figures.curve(axis, np.arange(curves.shape[1]), curves, method, style, possible)
                tops.append(curves.mean(axis=0)[curves.shape[1] // 10])
        label = "regret of the best value so far" if known else "best value so far"
        figures.finish_axis(axis, name, "evaluations after the initial points", label)
        if known:
            axis.yaxis.set_major_formatter(lambda power, _: f"{10.0**power:.2g}")
        elif max(tops) > min(tops):
            axis.set_ylim(top=max(tops))
    figures.legend(figure, axes, methods)
    title = f"Smaller is better, log scale · {figures.bands(len(set(trials['run'])), 'run')}"
    return figures.titled(figure, title)


def time_figure(table: pd.DataFrame) -> "Figure":
    """Regret, or the best value, at the end (mean, 95% interval) against the time to choose all points.

    `table` is indexed by function and method, with the columns best, best_95, regret and seconds. Lower left is better.
    """
    from seqdec import figures

    names = list(dict.fromkeys(table.index.get_level_values("function")))
    methods = list(dict.fromkeys(table.index.get_level_values("method")))
    figure, axes = figures.panels(names)
    for name, axis in zip(names, axes, strict=True):
        known = bool(np.isfinite(table.loc[name, "regret"]).all())
        for style, method in zip(figures.styles(methods), methods, strict=True):
            if (name, method) in table.index:
                row: Any = table.loc[(name, method)]
                margin = np.nan_to_num(row["best_95"]) if row["runs"] > figures.FEW else 0.0
                below = np.fmin(margin, row["regret"])  # no value lies below the minimum, where that is known
                axis.errorbar(
                    row["seconds"],
                    max(row["regret"], _SMALLEST) if known else row["best"],
                    yerr=[[below], [margin]],
                    fmt="o",
                    capsize=3,
                    color=style["color"],
                    label=method,
                )
        label = "regret at the end" if known else "best value at the end"
        figures.finish_axis(axis, name, "time to choose all points of a run / s", label)
        if known:
            axis.set_yscale("log")
            plain_ticks(axis.yaxis)
        axis.margins(x=0.08)
        axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
    figures.legend(figure, axes, methods)
    count: Any = table["runs"].max()
    shown = f"{count} runs, mean{' and 95% interval' if count > figures.FEW else ''}" if count > 1 else "1 run"
    return figures.titled(figure, f"Smaller is better · {shown}")
