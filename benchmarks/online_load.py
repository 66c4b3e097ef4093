"""An `OnlineAgent` under load: decisions of many threads while an arm is added, the log read, a snapshot written.

    python benchmarks/online_load.py [--agents linear auto] [--threads 8] [--rows 5000] [--rewards 150000]
        [--decisions 1000000]

Contexts of 20 numbers, ten arms. Milliseconds of `decide` in so many threads that do nothing else, alone and while
another thread works; seconds of that work; seconds of a start from a log of many rewards without a snapshot; size of a
log of many decisions without reward, and seconds of a start from it.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

import seqdec
from seqdec.core import Spaces
from seqdec.ope import Log, make_log

SITE = Spaces(spaces.Box(-5, 5, (20,)), spaces.Discrete(10))
RNG = np.random.default_rng(0)
CONTEXTS = RNG.normal(size=(1000, 20))


def log_of(rows: int) -> Log:
    """Uniform decisions, of which each arm is good where its number of the context is large."""
    contexts, actions = RNG.normal(size=(rows, 20)).clip(-5, 5), RNG.integers(10, size=rows)
    rewards = (contexts[np.arange(rows), actions] > 0).astype(float)
    return make_log(action=actions, reward=rewards, propensity=np.full(rows, 0.1), context=contexts, num_actions=10)


def service(name: str, folder: Path, **options: Any) -> seqdec.OnlineAgent:
    """Of agents by name."""
    return seqdec.OnlineAgent(name, SITE, seed=0, folder=folder, **options)


def under_load(one: seqdec.OnlineAgent, threads: int, work: Callable[[], Any]) -> str:
    """Times of decisions in so many threads while `work` is done in another, for five seconds at least."""
    taken: list[list[float]] = [[] for _ in range(threads)]
    over = threading.Event()

    def decide(index: int) -> None:
        while not over.is_set():
            began = time.perf_counter()
            one.decide(CONTEXTS[len(taken[index]) % len(CONTEXTS)])
            taken[index].append(1e3 * (time.perf_counter() - began))

    running = [threading.Thread(target=decide, args=(index,)) for index in range(threads)]
    for thread in running:
        thread.start()
    began, count = time.perf_counter(), 0
    while not count or time.perf_counter() < began + 5:
        work()
        count += 1
    seconds = (time.perf_counter() - began) / count
    over.set()
    for thread in running:
        thread.join()
    times = np.concatenate(taken)
    middle, high = np.quantile(times, [0.5, 0.99])
    found = f"p50 {middle:.1f} ms, p99 {high:.1f} ms, longest {times.max():.1f} ms"
    return f"{seconds:.1f} s, {len(times):,} decisions: {found}"


def loaded(name: str, threads: int, rows: int, folder: Path) -> None:
    """Print what decisions take beside other work."""
    with service(name, folder, capacity=10) as one:
        one.warm_up()
        began = time.perf_counter()
        one.warm_start(log_of(rows))
        print(f"{name}: warm start with {rows:,} rows {time.perf_counter() - began:.1f} s", flush=True)

        def grown() -> None:
            """Add arms until the model had to grow."""
            outputs = one._learner.model.outputs
            while one._learner.model.outputs == outputs:
                one.add_arm()

        works = {"alone": lambda: time.sleep(1), "snapshot": one.snapshot, "log": one.log, "add_arm": grown}
        for what, work in works.items():
            print(f"{name}, {what}: {under_load(one, threads, work)}", flush=True)


def restarted(name: str, rewards: int, folder: Path) -> None:
    """Print how long a start without a snapshot takes."""
    with service(name, folder) as one:
        one.warm_start(log_of(rewards))
    (folder / "state.safetensors").unlink()
    began = time.perf_counter()
    with service(name, folder):
        print(f"{name}: start from {rewards:,} rewards {time.perf_counter() - began:.1f} s", flush=True)


def decided(decisions: int, folder: Path) -> None:
    """Print size and time of start of a log without rewards."""
    with service("linear", folder) as one:
        for _ in range(decisions // len(CONTEXTS)):
            one.decide_many(CONTEXTS)
    size = sum(file.stat().st_size for file in folder.iterdir())
    began = time.perf_counter()
    with service("linear", folder) as one:
        seconds = time.perf_counter() - began
        print(f"{one.counts['decisions']:,} decisions: {size / 1e6:,.0f} MB, start {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="*", default=["linear", "auto"])
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rows", type=int, default=5000, help="in the log beside which decisions are made")
    parser.add_argument("--rewards", type=int, default=150_000)
    parser.add_argument("--decisions", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        for each in options.agents:
            loaded(each, options.threads, options.rows, Path(home, each))
        restarted("linear", options.rewards, Path(home, "restarted"))
        decided(options.decisions, Path(home, "decided"))
