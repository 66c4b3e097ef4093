"""Time of an `OnlineAgent` and of the HTTP service in examples/: HiLoFi, rank 10, on contexts of the size of digits.

    python benchmarks/online_service.py [--ranks 10 50] [--requests 500]

Milliseconds of a call in the process, all calls durable; requests per second of eight threads, in another process, over
HTTP; programs compiled after the start; seconds from the start of the service with a filled compilation cache to its
first answer.
"""

import argparse
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import seqdec
from seqdec.core import Spaces
from seqdec.runtime import one_blas_thread

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))


def milliseconds(call, times: int) -> str:
    """Median and 99% quantile of a call."""
    taken = []
    for index in range(times):
        began = time.perf_counter()
        call(index)
        taken.append(1e3 * (time.perf_counter() - began))
    return "p50 {:.2f} ms, p99 {:.2f} ms".format(*np.quantile(taken, [0.5, 0.99]))


def in_process(rank: int) -> None:
    """Print the time of each kind of call."""
    site = Spaces(seqdec.envs.make("digits").observation_space, seqdec.envs.make("digits").action_space)
    contexts = np.random.default_rng(0).uniform(0, 1, (1000, 64))
    with tempfile.TemporaryDirectory() as folder, one_blas_thread():
        make = lambda spaces: seqdec.agents.hilofi(spaces, rank=rank)  # noqa: E731
        with seqdec.OnlineAgent(make, site, seed=0, folder=folder) as service:
            service.warm_up()
            decisions = []
            print(f"rank {rank}: decide", milliseconds(lambda i: decisions.append(service.decide(contexts[i])), 1000))
            print(f"rank {rank}: learn", milliseconds(lambda i: service.learn(decisions[i].token, i % 2), 1000))
            print(f"rank {rank}: decide_many(1,000)", milliseconds(lambda i: service.decide_many(contexts), 30))
            several = [[(d.token, 1) for d in service.decide_many(contexts[:16])] for _ in range(100)]
            print(f"rank {rank}: learn_many(16)", milliseconds(lambda i: service.learn_many(several[i]), 100))


def answered(port: int, process: subprocess.Popen) -> None:
    """Wait until the service decides. Raises RuntimeError if it ends instead."""
    body = json.dumps({"context": [0.5] * 64})
    while process.poll() is None:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            try:
                connection.request("POST", "/decide", body, {"Content-Type": "application/json"})
                connection.getresponse().read()
                return
            except ConnectionError:
                time.sleep(0.01)
    raise RuntimeError(f"the service ended with {process.returncode}")


def started(folder: Path, log: Path) -> tuple[subprocess.Popen, int, float]:
    """The service in `folder`, its port, and the seconds to its first answer; what JAX compiles goes to `log`."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, str(EXAMPLES / "service.py"), str(folder), "--port", str(port)]
    with log.open("wb") as errors:
        began = time.perf_counter()
        process = subprocess.Popen(command, stderr=errors, env={**os.environ, "JAX_LOG_COMPILES": "1"})
    answered(port, process)
    return process, port, time.perf_counter() - began


def over_http(threads: int, requests: int) -> None:
    """Print what clients see of the service, started with nothing cached and then again."""
    from client import load

    with tempfile.TemporaryDirectory() as home:
        folder, log = Path(home) / "service", Path(home) / "log"
        process, port, seconds = started(folder, log)
        print(f"first answer, nothing cached: {seconds:.1f} s")
        before = log.read_text().count("Finished XLA compilation")
        print(", ".join(f"{name} {value:,.2f}" for name, value in load(port, threads, requests).items()))
        print(
            "programs compiled by",
            2 * threads * requests,
            "requests:",
            log.read_text().count("XLA compilation") - before,
        )
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        for _ in range(3):
            process, _, seconds = started(folder, log)
            print(f"first answer, programs in the cache: {seconds:.1f} s")
            process.send_signal(signal.SIGTERM)
            process.wait(60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--requests", type=int, default=500, help="decisions of each thread")
    parser.add_argument("--ranks", type=int, nargs="*", default=[10, 50])
    parser.add_argument("--http-only", action="store_true")
    options = parser.parse_args()
    for rank in [] if options.http_only else options.ranks:
        in_process(rank)
    over_http(options.threads, options.requests)
