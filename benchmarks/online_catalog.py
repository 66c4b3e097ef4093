"""Time of a decision of `OnlineAgent` among the items of a catalog, with `auto`; run it on one core.

    taskset -c 0 python benchmarks/online_catalog.py --items 20000

Milliseconds, and those of the CPU, which other processes do not lengthen, of decisions among all items and among 50 of
them, learning their rewards, and adding an item.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

import seqdec
from seqdec.runtime import one_blas_thread
from seqdec.service import Catalog


def timed(call: Callable[[], Any], times: list[tuple[float, float]]) -> Any:
    """What a call returns; its milliseconds, and those of the CPU, are added to `times`."""
    began = time.perf_counter(), time.process_time()
    found = call()
    times.append((1e3 * (time.perf_counter() - began[0]), 1e3 * (time.process_time() - began[1])))
    return found


def measure(items: int, numbers: int, decisions: int, folder: str) -> dict[str, np.ndarray]:
    """(calls, 2) times of each kind of call."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(items, numbers)).astype(np.float32)
    found: dict[str, list[tuple[float, float]]] = {}
    site = Catalog(spaces.Box(-10, 10, (numbers,)))
    with one_blas_thread(), seqdec.OnlineAgent("auto", site, seed=0, folder=folder) as service:
        timed(lambda: service.add_items(dict(enumerate(features))), found.setdefault(f"add {items:,} items", []))
        service.warm_up()
        for number in range(decisions):
            some = generator.integers(items, size=50).tolist()
            for name, ids in ((f"decide among {items:,}", None), ("decide among 50", some)):
                decision = timed(lambda ids=ids: service.decide(items=ids), found.setdefault(name, []))
                reward = float(np.tanh(features[decision.action % items]).sum() + generator.normal())
                timed(lambda d=decision, r=reward: service.learn(d.token, r), found.setdefault("learn", []))
            row = {items + number % 50: generator.normal(size=numbers)}
            timed(lambda row=row: service.add_items(row), found.setdefault("add an item", []))
    return {name: np.array(times) for name, times in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--numbers", type=int, default=10)
    parser.add_argument("--decisions", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        for call, times in measure(options.items, options.numbers, options.decisions, home).items():
            p50, p99 = np.quantile(times, [0.5, 0.99], axis=0)
            print(f"{call:>24}: median {p50[0]:7.2f} ms (CPU {p50[1]:7.2f}), 99% {p99[0]:7.2f} (CPU {p99[1]:7.2f})")
