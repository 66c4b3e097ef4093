"""Times of an `OnlineAgent`, all calls durable.

calls     HiLoFi on contexts of the size of digits: decide, learn, and both for many rows
start     `seqdec serve` with equal deployments, 5 numbers and 4 arms, nothing cached and then again: seconds from the
          start of the process to the first decision, a decision of each, the first learned reward, and all programs
load      decisions of threads that do nothing else, alone and while another thread writes a snapshot, reads the log
          or adds an arm; starts from long logs. Contexts of 20 numbers, ten arms
catalog   `auto` among the items of a catalog, and among 50 of them; run it on one core, with taskset -c 0
"""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from gymnasium import spaces
from harness import milliseconds, table

import seqdec
from seqdec.client import Client, RefusedError
from seqdec.core import Spaces
from seqdec.ope import make_log
from seqdec.runtime import one_blas_thread
from seqdec.service import Catalog

RNG = np.random.default_rng(0)


def calls(ranks: tuple[int, ...] = (10, 50)) -> None:
    """Median and 99% of each kind of call."""
    env, contexts = seqdec.envs.make("digits"), RNG.uniform(0, 1, (1000, 64))
    row = table("rank", "decide", "learn", "decide_many(1,000)", "learn_many(16)")
    for rank in ranks:
        make = lambda spaces, rank=rank: seqdec.agents.hilofi(spaces, rank=rank)  # noqa: E731
        with (
            tempfile.TemporaryDirectory() as folder,
            one_blas_thread(),
            seqdec.OnlineAgent(make, env, seed=0, folder=folder) as service,
        ):
            service.warm_up()
            asked, decisions = milliseconds(service.decide, contexts), service.decide_many(contexts)
            told = milliseconds(lambda one: service.learn(one.token, one.action % 2), decisions)
            many = milliseconds(service.decide_many, [contexts] * 30)
            several = [[(one.token, 1) for one in service.decide_many(contexts[:16])] for _ in range(100)]
            row(rank, asked, told, many, milliseconds(service.learn_many, several))


_DEPLOYMENT = """
[deployments.d{number}]
arms = ["a", "b", "c", "d"]
agent = "{agent}"
context = {{ size = 5, low = -1, high = 1 }}
"""


def from_the_start(agent: str = "linear", deployments: int = 10) -> None:
    """Seconds, and CPU seconds of the server's process, from its start on."""
    with socket.socket() as found, tempfile.TemporaryDirectory() as home:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
        found.close()
        file, log = Path(home, "settings.toml"), Path(home, "log")
        parts = (_DEPLOYMENT.format(number=number, agent=agent) for number in range(deployments))
        file.write_text(f"[server]\nport = {port}\n{''.join(parts)}")
        client = Client(f"http://127.0.0.1:{port}", timeout=600)
        row = table("programs", "first decision", "one of each", "first reward", "all programs")
        for cached in (False, True):
            began = time.perf_counter()
            with log.open("wb") as errors:
                server = subprocess.Popen([sys.executable, "-m", "seqdec", "serve", str(file)], stderr=errors)

            def taken(began: float = began, server: Any = server) -> str:
                used = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
                cpu = (int(used[11]) + int(used[12])) / os.sysconf("SC_CLK_TCK")
                return f"{time.perf_counter() - began:.1f} ({cpu:.1f})"

            try:
                token, times = "", []
                for number in range(deployments):
                    while server.poll() is None:
                        with contextlib.suppress(RefusedError, OSError):
                            token = client.decide(f"d{number}", [0.5] * 5)["token"]
                            break
                        time.sleep(0.01)
                    times.append(taken())
                client.learn(f"d{deployments - 1}", token, 1.0)
                times = [times[0], times[-1], taken()]
                while log.read_text().count("has all its programs") < deployments:
                    time.sleep(0.05)
                row("cached" if cached else "none", *times, taken())
            finally:
                server.terminate()
                server.wait(60)
                client.close()


def under_load(service: seqdec.OnlineAgent, threads: int, work: Callable[[], Any]) -> str:
    """Times of decisions in so many threads while `work` is done in another, for five seconds at least."""
    contexts, over = RNG.normal(size=(1000, 20)).clip(-5, 5), threading.Event()
    taken: list[list[float]] = [[] for _ in range(threads)]

    def decide(times: list[float]) -> None:
        while not over.is_set():
            began = time.perf_counter()
            service.decide(contexts[len(times) % len(contexts)])
            times.append(1e3 * (time.perf_counter() - began))

    running = [threading.Thread(target=decide, args=(times,)) for times in taken]
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
    return f"{seconds:.1f} s, decide: median {middle:.1f} ms, 99% {high:.1f}, longest {times.max():.1f}"


def under_work(
    agents: tuple[str, ...] = ("linear", "auto"),
    threads: int = 8,
    rows: int = 5000,
    rewards: int = 150_000,
    decisions: int = 1_000_000,
) -> None:
    """Decisions beside other work, with `rows` in the log; starts without a snapshot, and with rewards unknown."""
    site = Spaces(spaces.Box(-5, 5, (20,)), spaces.Discrete(10))

    def log(rows: int) -> Any:
        contexts, actions = RNG.normal(size=(rows, 20)).clip(-5, 5), RNG.integers(10, size=rows)
        reward = (contexts[np.arange(rows), actions] > 0).astype(float)
        return make_log(action=actions, reward=reward, propensity=np.full(rows, 0.1), context=contexts, num_actions=10)

    def opened(name: str, folder: Path, **options: Any) -> seqdec.OnlineAgent:
        return seqdec.OnlineAgent(name, site, seed=0, folder=folder, **options)

    with tempfile.TemporaryDirectory() as home:
        for name in agents:
            with opened(name, Path(home, name), capacity=10) as service:
                service.warm_up()
                service.warm_start(log(rows))

                def grown(service: seqdec.OnlineAgent = service) -> None:
                    outputs = service._learner.model.outputs
                    while service._learner.model.outputs == outputs:
                        service.add_arm()

                works = {
                    "alone": lambda: time.sleep(1), "snapshot": service.snapshot, "log": service.log, "add_arm": grown
                }  # fmt: skip
                for what, work in works.items():
                    print(f"{name}, {what}: {under_load(service, threads, work)}", flush=True)
        long, wide = Path(home, "rewards"), Path(home, "decisions")
        with opened("linear", long) as service:
            service.warm_start(log(rewards))
        (long / "state.safetensors").unlink()
        with opened("linear", wide) as service:
            for _ in range(decisions // 1000):
                service.decide_many(RNG.normal(size=(1000, 20)).clip(-5, 5))
        for folder in (long, wide):
            size, began = sum(file.stat().st_size for file in folder.iterdir()), time.perf_counter()
            with opened("linear", folder) as service:
                seconds = time.perf_counter() - began
                print(f"start from {service.counts}, {size / 1e6:,.0f} MB: {seconds:.1f} s", flush=True)


def catalog(items: int = 20_000, numbers: int = 10, decisions: int = 100) -> None:
    """Median and 99% of decisions among all items and among 50, of learning, and of adding an item."""
    features = RNG.normal(size=(items, numbers)).astype(np.float32)
    site, count = Catalog(spaces.Box(-10, 10, (numbers,))), range(decisions)
    with (
        tempfile.TemporaryDirectory() as folder,
        one_blas_thread(),
        seqdec.OnlineAgent("auto", site, seed=0, folder=folder) as service,
    ):
        print("all items", milliseconds(lambda _: service.add_items(dict(enumerate(features))), [0]))
        service.warm_up()
        some = [RNG.integers(items, size=50).tolist() for _ in count]
        made = [service.decide(items=ids) for ids in some]
        told = lambda one: service.learn(one.token, float(np.tanh(features[one.action]).sum()))  # noqa: E731
        print(f"decide among {items:,}", milliseconds(lambda _: service.decide(), count))
        print("decide among 50", milliseconds(lambda ids: service.decide(items=ids), some))
        print("learn", milliseconds(told, made))
        print("add an item", milliseconds(lambda i: service.add_items({items + i: RNG.normal(size=numbers)}), count))


if __name__ == "__main__":
    commands = {"calls": calls, "start": from_the_start, "load": under_work, "catalog": catalog}
    tyro.extras.subcommand_cli_from_dict(commands, description=__doc__)
