"""CPU seconds of an optimizer's first modeled question, in fresh processes without a compilation cache.

    python benchmarks/first_question.py [--columns 2 20] [--surrogate auto]

One line for each number of columns: the import of seqdec.bo, the first modeled question, the next one after a value
was told, and the first modeled question of a second space with as many columns. All threads count.
"""

import os
import subprocess
import sys
import time
from typing import Any

import tyro


def measure(columns: int, surrogate: str) -> None:
    """Print the line of a number of columns."""
    began = time.process_time()
    from seqdec import bo

    seconds = [time.process_time() - began]

    def asked(optimizer: Any) -> Any:
        began = time.process_time()
        trial = optimizer.ask()
        seconds.append(time.process_time() - began)
        return trial

    def study(bounds: Any) -> Any:
        optimizer = bo.BayesianOptimizer(bounds, seed=0, surrogate=surrogate)
        for trial in [optimizer.ask() for _ in range(optimizer.initial)]:
            optimizer.tell(trial, sum(value**2 for value in trial.x))
        return optimizer

    first = study([(-1.0, 2.0)] * columns)
    first.tell(asked(first), 1.0)
    asked(first)
    asked(study([*[bo.Integer(0, 9)] * (columns // 2), *[bo.Real(1e-3, 1.0, log=True)] * (columns - columns // 2)]))
    print(f"{columns:8d}" + "".join(f"{value:14.3f}" for value in seconds), flush=True)


def main(columns: tuple[int, ...] = (2, 20), surrogate: str = "auto") -> None:
    """The table, one process for each line."""
    print(f"{'columns':>8}{'import':>14}{'first':>14}{'next':>14}{'other space':>14}", flush=True)
    for number in columns:
        code = f"import first_question; first_question.measure({number}, {surrogate!r})"
        env = os.environ | {"PYTHONPATH": os.pathsep.join([os.path.dirname(__file__), *sys.path])}
        subprocess.run([sys.executable, "-c", code], check=True, env=env)


if __name__ == "__main__":
    tyro.cli(main)
