"""A belief where the optimum lies, right and wrong: regrets with and without it.

    python benchmarks/optimum.py             # 70 CPU seconds

The belief is a normal density of each parameter with a tenth of its range as width, around the optimum moved by 5% of
the range ("near"), or around the opposite place, 1 - u where the optimum is at u ("wrong"). Regrets are medians of ten
seeds after 5, 10, 20 and 40 calls.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import seqdec

CALLS = (5, 10, 20, 40)


def branin(x: Any) -> float:
    """Minimum .397887 at (pi, 2.275) and two other places."""
    a, b = x
    return float(
        (b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6) ** 2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10
    )


def rosenbrock(x: Any) -> float:
    """Minimum 0 at (1, 1, 1)."""
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def ackley(x: Any) -> float:
    """Minimum 0 at (.6, ..., .6)."""
    z = 10 * (np.asarray(x) - 0.6)
    return float(20 - 20 * np.exp(-0.2 * np.sqrt(np.mean(z**2))) + np.e - np.exp(np.mean(np.cos(2 * np.pi * z))))


FUNCTIONS: dict[str, tuple[Callable[[Any], float], list[tuple[float, float]], list[float], float]] = {
    "branin": (branin, [(-5, 10), (0, 15)], [np.pi, 2.275], 0.397887),
    "rosenbrock": (rosenbrock, [(-2, 2)] * 3, [1.0] * 3, 0.0),
    "ackley": (ackley, [(0, 1)] * 4, [0.6] * 4, 0.0),
}


def belief(kind: str, bounds: list[tuple[float, float]], best: list[float]) -> dict[int, tuple[float, float]] | None:
    """The keyword `optimum`."""
    if kind == "none":
        return None
    low, high = np.transpose(bounds)
    units = (np.array(best) - low) / (high - low)
    centers = units + 0.05 * (-1.0) ** np.arange(len(units)) if kind == "near" else 1 - units
    return {i: (float(low[i] + c * (high[i] - low[i])), float(high[i] - low[i]) / 10) for i, c in enumerate(centers)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    print(f"{'function':12s}{'belief':8s}" + "".join(f"{f'{count} calls':>12s}" for count in CALLS))
    for name, (fun, bounds, best, least) in FUNCTIONS.items():
        for kind in ("none", "near", "wrong"):
            runs = [
                seqdec.minimize(
                    fun, bounds, n_calls=CALLS[-1], seed=seed, optimum=belief(kind, bounds, best), progress=False
                ).func_vals
                for seed in range(options.seeds)
            ]
            regrets = np.median(np.minimum.accumulate(np.array(runs), 1), 0) - least
            print(f"{name:12s}{kind:8s}" + "".join(f"{regrets[count - 1]:12.3g}" for count in CALLS), flush=True)


if __name__ == "__main__":
    main()
