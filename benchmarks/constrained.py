"""Engineering designs under constraints told with each value: the call of the first feasible point, the best value.

    OMP_NUM_THREADS=1 python benchmarks/constrained.py [--designs spring vessel beam] [--seeds 8] [--calls 50] [--tpe]

A line for each design and method: the share of runs that find a feasible point, the median call at which they do, and
the median of the best feasible values, beside the best known one. `--tpe` adds Optuna's TPESampler with
`constraints_func`.

Designs: tension spring, pressure vessel and welded beam as in Coello, "Use of a self-adaptive penalty approach for
engineering optimization problems", 2000.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from harness import command, table

from seqdec.bo import BayesianOptimizer


class Design(NamedTuple):
    """A function of numbers that returns (value, outcomes); an outcome above 0 violates its constraint."""

    fun: Callable[[Sequence[float]], tuple[float, list[float]]]
    bounds: list[tuple[float, float]]
    constraints: int
    known: float


def spring(x: Sequence[float]) -> tuple[float, list[float]]:
    """Weight of a spring of wire diameter d, coil diameter c and n coils."""
    d, c, n = x
    shear = (4 * c**2 - d * c) / (12566 * (c * d**3 - d**4)) if c > d else math.copysign(1e3, c - d)
    return (n + 2) * c * d**2, [
        1 - c**3 * n / (71785 * d**4),
        shear + 1 / (5108 * d**2) - 1,
        1 - 140.45 * d / (c**2 * n),
        (c + d) / 1.5 - 1,
    ]


def vessel(x: Sequence[float]) -> tuple[float, list[float]]:
    """Cost of a vessel of shell and head thickness, radius and length."""
    shell, head, r, length = x
    cost = 0.6224 * shell * r * length + 1.7781 * head * r**2 + 3.1661 * shell**2 * length + 19.84 * shell**2 * r
    volume = math.pi * r**2 * length + 4 / 3 * math.pi * r**3
    return cost, [0.0193 * r - shell, 0.00954 * r - head, 1_296_000 - volume, length - 240]


def beam(x: Sequence[float]) -> tuple[float, list[float]]:
    """Cost of a welded beam of weld height h and length l, beam height t and width b."""
    h, length, t, b = x
    load, span, elastic, shear = 6000.0, 14.0, 30e6, 12e6
    primary = load / (math.sqrt(2) * h * length)
    moment, radius = load * (span + length / 2), math.sqrt(length**2 / 4 + ((h + t) / 2) ** 2)
    polar = 2 * math.sqrt(2) * h * length * (length**2 / 12 + ((h + t) / 2) ** 2)
    secondary = moment * radius / polar
    stress = math.sqrt(primary**2 + primary * secondary * length / radius + secondary**2)
    buckling = 4.013 * elastic * math.sqrt(t**2 * b**6 / 36) / span**2
    buckling *= 1 - t / (2 * span) * math.sqrt(elastic / (4 * shear))
    cost = 1.10471 * h**2 * length + 0.04811 * t * b * (14 + length)
    return cost, [
        stress - 13_600,
        6 * load * span / (b * t**2) - 30_000,
        h - b,
        4 * load * span**3 / (elastic * t**3 * b) - 0.25,
        load - buckling,
    ]


DESIGNS = {
    "spring": Design(spring, [(0.05, 2.0), (0.25, 1.3), (2.0, 15.0)], 4, 0.012665),
    "vessel": Design(vessel, [(0.0625, 6.1875), (0.0625, 6.1875), (10.0, 200.0), (10.0, 240.0)], 4, 5885.33),
    "beam": Design(beam, [(0.1, 2.0), (0.1, 10.0), (0.1, 10.0), (0.1, 2.0)], 5, 1.7249),
}


def ours(design: Design, seed: int, calls: int) -> list[float]:
    """Values of the calls, NaN where a constraint is violated."""
    optimizer, found = (
        BayesianOptimizer(design.bounds, seed=seed, capacity=calls, outcome_constraints=design.constraints),
        [],
    )
    for _ in range(calls):
        trial = optimizer.ask()
        value, outcomes = design.fun([float(part) for part in trial.x])
        optimizer.tell(trial, value, outcomes=outcomes)
        found.append(value if max(outcomes) <= 0 else math.nan)
    return found


def optuna_tpe(design: Design, seed: int, calls: int) -> list[float]:
    """Those of Optuna."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=seed, constraints_func=lambda trial: trial.user_attrs["outcomes"])
    study, found = optuna.create_study(sampler=sampler), []

    def objective(trial: Any) -> float:
        value, outcomes = design.fun([trial.suggest_float(f"x{i}", *pair) for i, pair in enumerate(design.bounds)])
        trial.set_user_attr("outcomes", outcomes)
        found.append(value if max(outcomes) <= 0 else math.nan)
        return value

    study.optimize(objective, n_trials=calls)
    return found


def main(designs: tuple[str, ...] = tuple(DESIGNS), seeds: int = 8, calls: int = 50, tpe: bool = False) -> None:
    """Print the lines."""
    methods = {"seqdec": ours} | ({"TPE": optuna_tpe} if tpe else {})
    row = table("design", "method", "runs with a feasible point", "first at call", "best", "best known")
    for name in designs:
        design = DESIGNS[name]
        for method, play in methods.items():
            found = [play(design, seed, calls) for seed in range(seeds)]
            firsts = [1 + int(np.argmax(np.isfinite(values))) for values in found if np.isfinite(values).any()]
            bests = [float(np.nanmin(values)) for values in found if np.isfinite(values).any()]
            middle = [statistics.median(part) if part else math.nan for part in (firsts, bests)]
            row(name, method, f"{len(bests)} of {seeds}", f"{middle[0]:.0f}", f"{middle[1]:.5g}", design.known)


if __name__ == "__main__":
    command(main)
