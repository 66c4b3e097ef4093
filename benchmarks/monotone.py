"""Knowledge of monotone directions, right and wrong: the best values with and without it.

    OMP_NUM_THREADS=1 python benchmarks/monotone.py             # 4 CPU minutes

The functions depend on some of their parameters in a known direction: "hartmann" is Hartmann6 plus three increasing or
decreasing terms, "rosenbrock" the logarithm of Rosenbrock's function in four columns plus three such terms,
"allocation" divides a budget of 2 among eight uses with diminishing returns, drawn anew for each seed. "wrong" has all
directions reversed. Best values are medians of ten seeds after 10, 15, 25 and 40 calls.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tyro

import seqdec
from seqdec.bo import Linear
from seqdec.envs import objectives

CALLS = (10, 15, 25, 40)
HARTMANN = objectives.hartmann6()


class Case(NamedTuple):
    """A function and what is known of it."""

    fun: Callable[[int], Callable[[Any], float]]
    """(seed) -> function"""
    bounds: list[tuple[float, float]]
    monotone: dict[int, int]
    constraints: tuple[Linear, ...] = ()


def hartmann(seed: int) -> Callable[[Any], float]:
    """Hartmann6 plus three terms."""
    del seed
    return lambda x: float(HARTMANN(np.array(x[:6])) + 0.5 * x[6] + 0.5 * (1 - x[7]) ** 2 + 0.3 * x[8] ** 3)


def rosenbrock(seed: int) -> Callable[[Any], float]:
    """The logarithm of 1 plus Rosenbrock's function, plus three terms."""
    del seed

    def fun(x: Any) -> float:
        a = np.array(x[:4])
        valley = np.log1p(np.sum(100 * (a[1:] - a[:-1] ** 2) ** 2 + (1 - a[:-1]) ** 2))
        return float(valley + 2 * np.sqrt(x[4]) + 2 * (1 - x[5]) + np.expm1(2 * x[6]))

    return fun


def allocation(seed: int) -> Callable[[Any], float]:
    """Minus the returns of eight uses."""
    generator = np.random.default_rng(seed)
    most, rates = generator.uniform(0.5, 2, 8), generator.uniform(1, 8, 8)
    return lambda x: -float(np.sum(most * -np.expm1(-rates * np.array(x))))


CASES = {
    "hartmann": Case(hartmann, [(0, 1)] * 9, {6: 1, 7: -1, 8: 1}),
    "rosenbrock": Case(rosenbrock, [(-2, 2)] * 4 + [(0, 1)] * 3, {4: 1, 5: -1, 6: 1}),
    "allocation": Case(
        allocation, [(0, 1)] * 8, dict.fromkeys(range(8), -1), (Linear(dict.fromkeys(range(8), 1), high=2),)
    ),
}


def main(cases: tuple[str, ...] = tuple(CASES), seeds: int = 10) -> None:
    """Print the table."""
    print(f"{'function':12s}{'known':8s}" + "".join(f"{f'{count} calls':>12s}" for count in CALLS))
    for name in cases:
        case = CASES[name]
        wrong = {key: -sign for key, sign in case.monotone.items()}
        for kind, monotone in (("none", None), ("right", case.monotone), ("wrong", wrong)):
            runs = [
                seqdec.minimize(
                    case.fun(seed),
                    case.bounds,
                    n_calls=CALLS[-1],
                    seed=seed,
                    monotone=monotone,
                    constraints=case.constraints,
                    progress=False,
                ).func_vals
                for seed in range(seeds)
            ]
            best = np.median(np.minimum.accumulate(np.array(runs), 1), 0)
            print(f"{name:12s}{kind:8s}" + "".join(f"{best[count - 1]:12.3f}" for count in CALLS), flush=True)


if __name__ == "__main__":
    tyro.cli(main)
