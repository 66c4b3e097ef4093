"""An earlier study as prior knowledge, of the same, a similar and an unrelated function: regrets with and without it.

    python benchmarks/earlier.py             # ten CPU minutes

The earlier study is a search of 40 calls in the same box: of the same function; of a similar one, the optimum moved
by 5% of each range, values doubled and 5 added; or of an unrelated one, a sum of random waves. Regrets are medians of
six seeds after 5, 10, 20 and 40 calls, with the quarters in brackets at the last of them.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from optimum import ackley, branin

import seqdec
from seqdec.bo import Real

CALLS = (5, 10, 20, 40)
A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(x: Any) -> float:
    """Minimum -3.32237 in the unit cube of six columns."""
    return -float(np.array([1, 1.2, 3, 3.2]) @ np.exp(-np.sum(A * (np.asarray(x) - P) ** 2, 1)))


FUNCTIONS: dict[str, tuple[Callable[[Any], float], list[tuple[float, float]], float]] = {
    "branin": (branin, [(-5, 10), (0, 15)], 0.397887),
    "hartmann6": (hartmann, [(0, 1)] * 6, -3.32237),
    "ackley5": (ackley, [(0, 1)] * 5, 0.0),
}


def related(kind: str, fun: Callable[[Any], float], bounds: list[tuple[float, float]]) -> Callable[[Any], float]:
    """The function of the earlier study."""
    low, high = np.transpose(bounds)
    rng = np.random.default_rng(7)
    waves, phases = rng.normal(size=(8, len(low))) * 4, rng.uniform(0, 2 * np.pi, 8)
    if kind == "unrelated":
        return lambda x: float(np.cos(waves @ ((x - low) / (high - low)) + phases).sum())
    return fun if kind == "same" else lambda x: 2 * fun(x + 0.05 * (high - low) * (-1.0) ** np.arange(len(low))) + 5


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--functions", default=",".join(FUNCTIONS))
    options = parser.parse_args()
    print(f"{'function':12s}{'earlier':11s}" + "".join(f"{f'{count} calls':>12s}" for count in CALLS))
    for name in options.functions.split(","):
        fun, bounds, least = FUNCTIONS[name]
        box = [Real(*pair) for pair in bounds]
        for kind in ("none", "same", "similar", "unrelated"):
            earlier = None
            if kind != "none":
                earlier = seqdec.minimize(related(kind, fun, bounds), box, n_calls=CALLS[-1], seed=99, progress=False)
            runs = [
                seqdec.minimize(fun, box, n_calls=CALLS[-1], seed=seed, earlier=earlier, progress=False).func_vals
                for seed in range(options.seeds)
            ]
            found = np.minimum.accumulate(np.array(runs), 1) - least
            shown = "".join(f"{np.median(found[:, count - 1]):12.3g}" for count in CALLS)
            low, high = np.quantile(found[:, -1], [0.25, 0.75])
            print(f"{name:12s}{kind:11s}{shown}  ({low:.3g}, {high:.3g})", flush=True)


if __name__ == "__main__":
    main()
