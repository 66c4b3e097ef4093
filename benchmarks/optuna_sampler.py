"""The Optuna sampler beside Optuna's TPESampler and GPSampler: regret, and CPU seconds per question.

    python benchmarks/optuna_sampler.py [NAME ...] [--samplers seqdec tpe gp] [--seeds 3] [--seed 0]

Prints one line for each function and sampler: mean and largest regret of the best value over the runs; median and
largest CPU seconds of a question, of which the largest contains compilation; CPU seconds of all questions of a run, on
average. GPSampler needs torch.
"""

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import optuna
import tyro
from harness import command, cpu, table

from seqdec.envs import objectives
from seqdec.integrations.optuna import Sampler

FUNCTIONS = {
    "branin": (objectives.branin(), 40),
    "hartmann6": (objectives.hartmann6(), 50),
    "rosenbrock4": (objectives.rosenbrock(4), 50),
}
SAMPLERS: dict[str, Callable[[int], Any]] = {
    "seqdec": lambda seed: Sampler(seed=seed),
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
}


def play(fun: Any, bounds: Any, calls: int, sampler: Any) -> tuple[float, list[float]]:
    """The best value of a study, and the CPU seconds of its questions."""
    space = {f"x{i}": optuna.distributions.FloatDistribution(*pair) for i, pair in enumerate(bounds)}
    study, seconds = optuna.create_study(sampler=sampler), []
    for _ in range(calls):
        trial, spent = cpu(lambda: study.ask(space))
        seconds.append(spent)
        study.tell(trial, float(fun(np.array([trial.params[name] for name in space]))))
    return study.best_value, seconds


def main(
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = tuple(FUNCTIONS),
    samplers: tuple[str, ...] = tuple(SAMPLERS),
    seeds: int = 3,
    seed: int = 0,
) -> None:
    """The table, one line as soon as it is known."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    row = table("function", "sampler", "mean regret", "largest", "median s", "longest s", "s per run")
    for name in names:
        fun, calls = FUNCTIONS[name]
        for kind in samplers:
            found = [play(fun, fun.bounds, calls, SAMPLERS[kind](seed + run)) for run in range(seeds)]
            regrets = [value - fun.minimum for value, _ in found]
            seconds = np.array([each for _, each in found])
            times = f"{np.median(seconds):.3f}", f"{seconds.max():.2f}", f"{seconds.sum(1).mean():.1f}"
            row(name, kind, f"{np.mean(regrets):.2g}", f"{max(regrets):.2g}", *times)


if __name__ == "__main__":
    command(main)
