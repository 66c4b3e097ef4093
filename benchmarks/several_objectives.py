"""Several objectives and outcome constraints: `seqdec.minimize` beside NSGA-II and random search.

    python benchmarks/several_objectives.py [--problems zdt1 gardner1] [--seeds 10] [--seed 0]

zdt1: hypervolume, with reference (1.1, 1.1), of the front after 60 evaluations of ZDT1 with 6 columns (Zitzler, Deb,
Thiele, "Comparison of multiobjective evolutionary algorithms", 2000), whose whole front has 0.8767. gardner1: best
feasible value after 40 evaluations of the first simulation of Gardner et al., "Bayesian optimization with inequality
constraints", 2014. Prints one line for each method: mean over the runs with the half-width of its 95% interval,
smallest, largest and CPU seconds of a run. NSGA-II is that of Optuna, which must be installed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from harness import command, cpu, interval, table

import seqdec
from seqdec.bo import hypervolume

COLUMNS, ZDT1_CALLS, REFERENCE = 6, 60, (1.1, 1.1)
GARDNER_CALLS, GARDNER_BOX = 40, [(0.0, 6.0), (0.0, 6.0)]


def zdt1(x: Any) -> tuple[float, float]:
    """f_1 = x_1, f_2 = g (1 - sqrt(x_1 / g)), g = 1 + 9 mean(x_2, ...)."""
    g = 1 + 9 * float(np.mean(x[1:]))
    return float(x[0]), g * (1 - float(np.sqrt(x[0] / g)))


def gardner1(x: Any) -> tuple[Any, Any]:
    """cos(2x) cos(y) + sin(x) subject to cos(x) cos(y) - sin(x) sin(y) <= 0.5."""
    a, b = x[0], x[1]
    return np.cos(2 * a) * np.cos(b) + np.sin(a), np.cos(a) * np.cos(b) - np.sin(a) * np.sin(b) - 0.5


def zdt1_by_seqdec(seed: int, **options: Any) -> float:
    """The hypervolume that `seqdec.minimize` finds."""
    box = [(0.0, 1.0)] * COLUMNS
    result = seqdec.minimize(zdt1, box, n_calls=ZDT1_CALLS, objectives=2, seed=seed, progress=False, **options)
    return hypervolume(result.fun, REFERENCE)


def zdt1_by_nsga2(seed: int, population: int) -> float:
    """The hypervolume that Optuna's NSGA-II finds."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.NSGAIISampler(population_size=population, seed=seed)
    study = optuna.create_study(directions=["minimize"] * 2, sampler=sampler)
    names = [f"x{i}" for i in range(COLUMNS)]
    study.optimize(lambda trial: zdt1([trial.suggest_float(name, 0, 1) for name in names]), n_trials=ZDT1_CALLS)
    return hypervolume([trial.values for trial in study.trials], REFERENCE)


def zdt1_by_random(seed: int) -> float:
    """The hypervolume that uniform random points find."""
    points = np.random.default_rng(seed).random((ZDT1_CALLS, COLUMNS))
    return hypervolume([zdt1(x) for x in points], REFERENCE)


def gardner1_by_seqdec(seed: int) -> float:
    """The best feasible value that `seqdec.minimize` finds."""
    options: dict[str, Any] = {"outcome_constraints": 1, "progress": False}
    return float(seqdec.minimize(gardner1, GARDNER_BOX, n_calls=GARDNER_CALLS, seed=seed, **options).fun)


def gardner1_by_random(seed: int) -> float:
    """The best feasible value of uniform random points; infinity if none is feasible."""
    points = np.random.default_rng(seed).uniform(0, 6, (GARDNER_CALLS, 2))
    values, outcomes = gardner1(points.T)
    return float(np.min(values[outcomes <= 0], initial=np.inf))


def gardner1_by_brute_force() -> float:
    """The best feasible value on a grid of 3001 x 3001 points."""
    axis = np.linspace(0, 6, 3001)
    values, outcomes = gardner1(np.meshgrid(axis, axis))
    return float(values[outcomes <= 0].min())


PROBLEMS: dict[str, dict[str, Callable[[int], float]]] = {
    "zdt1": {
        "seqdec": zdt1_by_seqdec,
        "seqdec, reference_point=(1.1, 1.1)": lambda seed: zdt1_by_seqdec(seed, reference_point=REFERENCE),
        "NSGA-II, population 50": lambda seed: zdt1_by_nsga2(seed, 50),
        "NSGA-II, population 10": lambda seed: zdt1_by_nsga2(seed, 10),
        "NSGA-II, population 5": lambda seed: zdt1_by_nsga2(seed, 5),
        "random search": zdt1_by_random,
    },
    "gardner1": {"seqdec": gardner1_by_seqdec, "random search": gardner1_by_random},
}


def main(problems: tuple[str, ...] = tuple(PROBLEMS), seeds: int = 10, seed: int = 0) -> None:
    """Print the table."""
    row = table("problem", "method", "mean", "smallest", "largest", "CPU s of a run")
    for problem in problems:
        for name, play in PROBLEMS[problem].items():
            found, seconds = cpu(lambda play=play: [play(seed + run) for run in range(seeds)])
            row(
                problem,
                name,
                interval(found, ".4f"),
                f"{min(found):.4f}",
                f"{max(found):.4f}",
                f"{seconds / seeds:.1f}",
            )
        if problem == "gardner1":
            row(problem, "optimum, by brute force", f"{gardner1_by_brute_force():.4f}", "", "", "")


if __name__ == "__main__":
    command(main)
