"""Knowledge of a function, right and wrong: an earlier study, where the optimum lies, monotone directions.

    OMP_NUM_THREADS=1 python benchmarks/knowledge.py earlier     # ten CPU minutes
    OMP_NUM_THREADS=1 python benchmarks/knowledge.py optimum     # one
    OMP_NUM_THREADS=1 python benchmarks/knowledge.py monotone    # four

earlier: a search of 40 calls in the same box, of the same function; of a similar one, the optimum moved by 5% of each
range, values doubled and 5 added; or of an unrelated one, a sum of random waves.

optimum: a normal density of each parameter with a tenth of its range as width, around the optimum moved by 5% of the
range ("near"), or around the opposite place ("wrong").

monotone: Hartmann6 and the logarithm of Rosenbrock's function, each with three terms that rise or fall, and the
allocation of a budget of 2 to eight uses with diminishing returns, drawn anew for each seed; "wrong" reverses all
directions.

The table has medians over the seeds, of the regret or, for monotone, of the best value; quartiles in the last column.
"""

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import tyro
from harness import best_values, command, quartiles, table

import seqdec
from seqdec.bo import Linear, Prior, Real
from seqdec.envs import objectives

Fun = Callable[[Any], float]
BRANIN, HARTMANN = objectives.branin(), objectives.hartmann6()


class Case(NamedTuple):
    """A function, what is known of it, and how that is told to `seqdec.minimize`."""

    function: str
    known: str
    fun: Callable[[int], Fun]
    """(seed) -> function"""
    bounds: Any
    options: dict[str, Any]
    least: float = 0.0


def ackley(x: Any) -> float:
    """Minimum 0 at (.6, ..., .6)."""
    z = 10 * (np.asarray(x) - 0.6)
    return float(20 - 20 * np.exp(-0.2 * np.sqrt(np.mean(z**2))) + np.e - np.exp(np.mean(np.cos(2 * np.pi * z))))


def valley(x: Any) -> float:
    """Rosenbrock's function: minimum 0 at (1, ..., 1)."""
    x = np.asarray(x)
    return float(np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))


def branin(x: Any) -> float:
    """Branin's function of a point of any kind."""
    return float(BRANIN(np.asarray(x)))


def hartmann(x: Any) -> float:
    """Hartmann's function of six columns, of a point of any kind."""
    return float(HARTMANN(np.asarray(x)))


def earlier() -> Iterator[Case]:
    """Without and with an earlier study."""
    functions: dict[str, tuple[Fun, Any, float]] = {
        "branin": (branin, BRANIN.bounds, 0.397887),
        "hartmann6": (hartmann, [(0, 1)] * 6, -3.32237),
        "ackley5": (ackley, [(0, 1)] * 5, 0.0),
    }
    for name, (fun, bounds, least) in functions.items():
        low, high = np.transpose(bounds)
        rng = np.random.default_rng(7)
        waves, phases = rng.normal(size=(8, len(low))) * 4, rng.uniform(0, 2 * np.pi, 8)
        shift = 0.05 * (high - low) * (-1.0) ** np.arange(len(low))
        related: dict[str, Fun] = {
            "same": fun,
            "similar": lambda x, fun=fun, shift=shift: 2 * fun(x + shift) + 5,
            "unrelated": lambda x, w=waves, p=phases, a=low, b=high: float(np.cos(w @ ((x - a) / (b - a)) + p).sum()),
        }
        box = [Real(float(a), float(b)) for a, b in bounds]
        yield Case(name, "nothing", lambda seed, fun=fun: fun, box, {}, least)
        for known, other in related.items():
            study = seqdec.minimize(other, box, n_calls=40, seed=99, progress=False)
            yield Case(name, known, lambda seed, fun=fun: fun, box, {"prior": Prior(earlier=study)}, least)


def optimum() -> Iterator[Case]:
    """Without and with a belief where the optimum lies."""
    functions: dict[str, tuple[Fun, Any, list[float], float]] = {
        "branin": (branin, [(-5, 10), (0, 15)], [np.pi, 2.275], 0.397887),
        "rosenbrock": (valley, [(-2, 2)] * 3, [1.0] * 3, 0.0),
        "ackley": (ackley, [(0, 1)] * 4, [0.6] * 4, 0.0),
    }
    for name, (fun, bounds, best, least) in functions.items():
        low, high = np.transpose(bounds)
        units = (np.array(best) - low) / (high - low)
        centers = {"near": units + 0.05 * (-1.0) ** np.arange(len(units)), "wrong": 1 - units}
        yield Case(name, "nothing", lambda seed, fun=fun: fun, bounds, {}, least)
        for known, center in centers.items():
            places = low + center * (high - low)
            belief = {i: (float(place), float(high[i] - low[i]) / 10) for i, place in enumerate(places)}
            yield Case(name, known, lambda seed, fun=fun: fun, bounds, {"prior": Prior(optimum=belief)}, least)


def monotone() -> Iterator[Case]:
    """Without directions, with the right ones and with the wrong ones."""

    def bowl(seed: int) -> Fun:
        return lambda x: hartmann(x[:6]) + 0.5 * x[6] + 0.5 * (1 - x[7]) ** 2 + 0.3 * x[8] ** 3

    def log_valley(seed: int) -> Fun:
        return lambda x: float(np.log1p(valley(x[:4])) + 2 * np.sqrt(x[4]) + 2 * (1 - x[5]) + np.expm1(2 * x[6]))

    def allocation(seed: int) -> Fun:
        generator = np.random.default_rng(seed)
        most, rates = generator.uniform(0.5, 2, 8), generator.uniform(1, 8, 8)
        return lambda x: -float(np.sum(most * -np.expm1(-rates * np.array(x))))

    budget = (Linear(dict.fromkeys(range(8), 1), high=2),)
    for name, fun, bounds, signs, constraints in (
        ("hartmann", bowl, [(0, 1)] * 9, {6: 1, 7: -1, 8: 1}, ()),
        ("rosenbrock", log_valley, [(-2, 2)] * 4 + [(0, 1)] * 3, {4: 1, 5: -1, 6: 1}, ()),
        ("allocation", allocation, [(0, 1)] * 8, dict.fromkeys(range(8), -1), budget),
    ):
        wrong = {key: -sign for key, sign in signs.items()}
        for known, told in {"nothing": None, "right": signs, "wrong": wrong}.items():
            yield Case(name, known, fun, bounds, {"prior": Prior(monotone=told), "constraints": constraints})


STUDIES: dict[str, tuple[Callable[[], Iterator[Case]], tuple[int, ...], int]] = {
    "earlier": (earlier, (5, 10, 20, 40), 6),
    "optimum": (optimum, (5, 10, 20, 40), 10),
    "monotone": (monotone, (10, 15, 25, 40), 10),
}
"""cases, calls after which values are printed, seeds"""


def main(
    study: Annotated[Literal["earlier", "optimum", "monotone"], tyro.conf.Positional],
    functions: tuple[str, ...] = (),
    seeds: int | None = None,
) -> None:
    """Print the table of a study, of all functions or of some."""
    cases, calls, usual = STUDIES[study]
    row = table("function", "known", *(f"{count} calls" for count in calls))
    for case in cases():
        if functions and case.function not in functions:
            continue
        runs = [
            best_values(case.fun(seed), case.bounds, calls[-1], seed, **case.options) for seed in range(seeds or usual)
        ]
        found = np.array(runs) - case.least
        medians = [f"{np.median(found[:, count - 1]):.4g}" for count in calls[:-1]]
        row(case.function, case.known, *medians, quartiles(found[:, -1]))


if __name__ == "__main__":
    command(main)
