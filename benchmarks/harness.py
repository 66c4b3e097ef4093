"""What the measurements share: cases, peers and seeds end in rows of a table, printed as soon as they are known.

Scripts are called from the root of the repository; `--help` shows the options of each. Importing this module puts the
root on the path, for `reproduction`.
"""

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import seqdec
from seqdec.core import Agent, Environment
from seqdec.statistics import mean_and_margin

sys.path.append(str(Path(__file__).resolve().parents[1]))


def command(main: Callable[..., None]) -> None:
    """Call `main` with the options of the command line; the help is the docstring of its module."""
    tyro.cli(main, description=sys.modules[main.__module__].__doc__)


def table(*columns: str) -> Callable[..., None]:
    """Print the head of a Markdown table; returns a function that prints a row of cells."""

    def row(*cells: Any) -> None:
        print("|", " | ".join(map(str, cells)), "|", flush=True)

    row(*columns)
    print("|---" * len(columns) + "|")
    return row


def interval(values: Any, form: str = ".4g", unit: float = 1) -> str:
    """Mean ± half-width of its 95% t-interval."""
    mean, margin = mean_and_margin(np.asarray(values, float))
    return f"{unit * mean:{form}} ± {unit * margin:{form}}"


def quartiles(values: Any, form: str = ".4g") -> str:
    """Median, with the quartiles in brackets; of values that occur."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], method="nearest")
    return f"{middle:{form}} ({low:{form}}, {high:{form}})"


def cpu(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and the CPU seconds of all threads that it took."""
    began = time.process_time()
    found = call()
    return found, time.process_time() - began


def milliseconds(
    call: Callable[[Any], Any], given: Iterable[Any], clock: Callable[[], float] = time.perf_counter
) -> str:
    """Median and 99% quantile of the time of a call, one for each of what it is given."""
    taken = []
    for one in given:
        began = clock()
        call(one)
        taken.append(1e3 * (clock() - began))
    return "{:.2f} ms, {:.2f} ms".format(*np.quantile(taken, [0.5, 0.99]))


def best_values(fun: Callable[[Any], float], bounds: Any, calls: int, seed: int, **options: Any) -> np.ndarray:
    """(calls,) the best value of `seqdec.minimize` so far."""
    result = seqdec.minimize(fun, bounds, n_calls=calls, seed=seed, progress=False, **options)
    return np.minimum.accumulate(result.func_vals)


def played(agent: Agent, env: Environment, steps: int, seeds: range) -> tuple[np.ndarray, float]:
    """Regret (seeds, steps), and the seconds of all steps."""
    run = seqdec.run(agent, env, steps, seed=seeds[0], num_seeds=len(seeds), progress=False)
    return np.asarray(run.regret, float), run.run_seconds
