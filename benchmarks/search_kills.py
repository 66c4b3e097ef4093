"""Searches by `seqdec.minimize(checkpoint=...)` killed at random moments and resumed, and how long the file takes.

    python benchmarks/search_kills.py [one] [batch] [processes] [thread] [local] [--kills 20] [--seed 0]

A search of 24 calls in a process of its own is killed with SIGKILL at a random moment, resumed, killed again, and so
on, until all kills are made; the kinds of workers take turns. Whenever a search ends before it is killed, its points,
values and answer are compared with those of an uninterrupted one, to the bit, and another one begins. Then the CPU time
of writing the file is measured. Exits with 1 if any search differs.
"""

import argparse
import contextlib
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import seqdec
from seqdec.bo import BayesianOptimizer
from seqdec.executors import Local

KINDS = ("one", "batch", "processes", "thread", "local")
CALLS = 24


def fun(x: Any) -> float:
    """Branin's function, which fails in a corner and takes some time."""
    time.sleep(0.05)
    if x[0] > 8 and x[1] > 12:
        return math.nan
    a = x[1] - 5.1 / (4 * math.pi**2) * x[0] ** 2 + 5 / math.pi * x[0] - 6
    return float(a**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x[0]) + 10)


@contextlib.contextmanager
def workers_of(kind: str) -> Iterator[dict[str, Any]]:
    """Keywords of `minimize`; where points are chosen one by one, no order of ends can differ."""
    if kind in ("thread", "local"):
        with ThreadPoolExecutor(1) if kind == "thread" else Local(1) as executor:
            yield {"workers": executor}
    else:
        yield {"one": {}, "batch": {"batch_size": 4}, "processes": {"workers": 2, "batch_size": 2}}[kind]


def search(folder: Path, kind: str) -> None:
    """Run or resume the search in a folder; its answer goes into answer.json."""
    seqdec.compilation_cache(folder.parent / "cache")
    with workers_of(kind) as options:
        result = seqdec.minimize(
            fun, [(-5, 10), (0, 15)], n_calls=CALLS, seed=0, progress=False, checkpoint=folder / "study", **options
        )
    answer = [list(result.x), result.fun, np.asarray(result.x_iters).tolist(), result.func_vals.tolist()]
    (folder / "answer.json").write_text(json.dumps([*answer, result.nfev, result.message]))


def start(folder: Path, kind: str) -> subprocess.Popen[bytes]:
    """The search in a process of its own."""
    folder.mkdir(exist_ok=True)
    return subprocess.Popen([sys.executable, __file__, "--search", str(folder), kind])


def campaign(kinds: list[str], kills: int, rng: random.Random, home: Path) -> list[str]:
    """Kill and resume searches; returns the kinds of those that differ."""
    whole, durations = {}, {}
    for kind in kinds:
        for name in ("first", "whole"):  # the second with compiled programs
            began = time.perf_counter()
            if start(home / f"{kind}-{name}", kind).wait():
                raise RuntimeError(f"the search of kind {kind} failed")
            durations[kind] = time.perf_counter() - began
        whole[kind] = (home / f"{kind}-whole" / "answer.json").read_text()
    left = {kind: kills // len(kinds) + (index < kills % len(kinds)) for index, kind in enumerate(kinds)}
    different, ended = [], 0
    for kind in kinds:
        folder, number = home / f"{kind}-0", 0
        while left[kind] or not number:
            process = start(folder, kind)
            try:
                code = process.wait(rng.uniform(0, durations[kind]) if left[kind] else None)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                left[kind] -= 1
                continue
            if code:
                raise RuntimeError(f"the search in {folder} failed")
            if (folder / "answer.json").read_text() != whole[kind]:
                different.append(kind)
            number, ended = number + 1, ended + 1
            folder = home / f"{kind}-{number}"
    print(f"killed {kills} times, {ended} searches ended, {len(different)} differ {different}", flush=True)
    return different


def saves(path: Path) -> None:
    """Print the CPU time of writing the file of a search in six dimensions."""
    rng = np.random.default_rng(0)
    for number in (10, 100, 1000):
        optimizer, seconds = BayesianOptimizer([(-5, 10)] * 6, seed=0, capacity=number), []
        for _ in range(number - 1):
            optimizer.tell(rng.uniform(-5, 10, 6), float(rng.normal()))
        optimizer.ask()
        for _ in range(50):
            began = time.process_time()
            optimizer.save(path)
            seconds.append(time.process_time() - began)
        print(f"{number} calls: {1e3 * statistics.median(seconds):.1f} ms, {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--search", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.search:
        search(Path(asked.search[0]), asked.search[1])
        sys.exit()
    with tempfile.TemporaryDirectory() as folder:
        different = campaign(asked.kinds, asked.kills, random.Random(asked.seed), Path(folder))
        saves(Path(folder) / "study")
    sys.exit(bool(different))
