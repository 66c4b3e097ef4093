"""A search with a checkpoint that kills its own process at a counted place."""

import contextlib
import math
import os
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import seqdec
from seqdec.bo.result import SearchResult
from seqdec.executors import Local

WORKERS: dict[str, dict[str, Any]] = {
    "one": {},
    "batch": {"batch_size": 3},
    "processes": {"batch_size": 2, "workers": 2},
    "thread": {"workers": ThreadPoolExecutor},
    "local": {"workers": Local},
}
PLACES = ("fun", "before", "after", "callback")
"""In a call, before and after the file is replaced, and in the callback."""
CALLS = 9


class Bowl:
    """A function with failures, which writes down its calls and kills the search within one of them."""

    def __init__(self, folder: Path, kills_at: int) -> None:
        self.folder, self.kills_at, self.driver = folder, kills_at, os.getpid()

    def __call__(self, x: Any) -> float:
        if written(self.folder / "calls", x.tolist()) == self.kills_at:
            os.kill(self.driver, signal.SIGKILL)
        if x[1] > 0.9:
            raise ValueError("x[1]")
        return math.nan if x[0] > 0.9 else float((x[0] - 0.3) ** 2 + (x[1] - 0.4) ** 2)


def written(file: Path, entry: Any) -> int:
    """Append a line; returns the number of lines."""
    with file.open("a") as opened:
        print(entry, file=opened, flush=True)
    return len(file.read_text().splitlines())


@contextlib.contextmanager
def replacing(place: str, number: int) -> Iterator[None]:
    """The process is killed before or after the file is replaced for the `number`-th time."""
    replace, seen = os.replace, 0

    def replaced(*paths: Any) -> None:
        nonlocal seen
        seen += 1
        if (place, seen) == ("before", number):
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*paths)
        if (place, seen) == ("after", number):
            os.kill(os.getpid(), signal.SIGKILL)

    os.replace = replaced
    try:
        yield
    finally:
        os.replace = replace


def search(folder: Path, kind: str, place: str = "", number: int = 0, **options: Any) -> SearchResult:
    """The search, with its files in a folder; killed at the `number`-th time of a place, if one is given."""

    def callback(intermediate_result: SearchResult) -> None:
        reports = written(folder / "reports", intermediate_result.nfev)
        if (place, reports) == ("callback", number):
            os.kill(os.getpid(), signal.SIGKILL)

    given, fun = WORKERS[kind], Bowl(folder, number if place == "fun" else 0)
    options = {"n_calls": CALLS, "seed": 0, "checkpoint": folder / "study", "progress": False, **given, **options}
    with contextlib.ExitStack() as held:
        held.enter_context(replacing(place, number))
        if options.get("workers") in (ThreadPoolExecutor, Local):
            options["workers"] = held.enter_context(options["workers"](1))
        return seqdec.minimize(fun, [(0.0, 1.0), (0.0, 1.0)], callback=callback, catch=ValueError, **options)


def differences(one: SearchResult, other: SearchResult) -> list[str]:
    """The parts in which two results differ, other than durations."""
    found = []
    for name in ("x", "fun", "fun_interval", "x_iters", "func_vals"):
        if not np.array_equal(np.asarray(one[name]), np.asarray(other[name]), equal_nan=True):
            found.append(name)
    if one.traceback != other.traceback:
        found.append("traceback")
    return found + [name for name in ("nfev", "status", "message", "kind", "seed") if one[name] != other[name]]


if __name__ == "__main__":
    search(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
