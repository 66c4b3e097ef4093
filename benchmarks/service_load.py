"""Requests per CPU-second of `seqdec serve`, with logs, keys and metrics on, beside a web framework that does nothing.

The servers run on one core and this script on another, where there are two. Each of `connections` clients sends its
next request when the last one is answered, so that an answer takes about connections / requests per second; with
`rate`, so many are sent per second. "pairs": a decision and then its reward, counted as one.
"""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
from harness import command, table

from seqdec.client import Client, RefusedError
from seqdec.serve.access import new_key

ITEMS = 10_000
SETTINGS = """
[server]
folder = "data"
port = PORT
[keys.clients]
sha256 = ["DIGEST"]
role = "operator"
[deployments.linear]
arms = ["a", "b", "c", "d"]
context = { size = 5, low = -1, high = 1 }
agent = "linear"
[deployments.synced]
arms = ["a", "b", "c", "d"]
context = { size = 5, low = -1, high = 1 }
agent = "linear"
fsync = true
[deployments.auto]
arms = ["a", "b", "c", "d"]
context = { size = 5, low = -1, high = 1 }
[deployments.items]
items = { size = 10, low = -1, high = 1 }
agent = "linear"
"""
FLOOR = """
import orjson, uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def decide(request):
    orjson.loads(await request.body())
    answer = orjson.dumps({"action": "a", "propensity": 0.25, "token": "1-0e41aa3080738636"})
    return Response(answer, media_type="application/json")

async def ready(request):
    return Response(b"{}", media_type="application/json")

app = Starlette(routes=[Route("/v1/{name}/decide", decide, methods=["POST"]), Route("/ready", ready)])
uvicorn.run(app, port=PORT, http="httptools", loop="uvloop", access_log=False, log_level="warning")
"""


class Case(NamedTuple):
    """A deployment, whether rewards are reported, and whether contexts are given."""

    name: str
    deployment: str
    pairs: bool = False
    has_context: bool = True


CASES = (
    Case("linear", "linear"),
    Case("linear, fsync", "synced"),
    Case("linear, pairs", "linear", pairs=True),
    Case("auto", "auto"),
    Case("auto, pairs", "auto", pairs=True),
    Case(f"linear, {ITEMS:,} items", "items", has_context=False),
)


class Server(NamedTuple):
    """A process, where it listens, and the key of its callers."""

    process: subprocess.Popen
    port: int
    key: str

    def cpu(self) -> float:
        """Seconds of all of its threads."""
        times = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")

    def request(self, deployment: str, call: str, message: object) -> bytes:
        """A request as it is sent."""
        body = orjson.dumps(message)
        lines = (
            f"POST /v1/{deployment}/{call} HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {self.key}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextlib.contextmanager
def running(kind: str, core: int) -> Iterator[Server]:
    """The server of SETTINGS or of FLOOR, ready."""
    with tempfile.TemporaryDirectory() as home, socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port, (key, digest) = found.getsockname()[1], new_key()
        found.close()
        file, log = Path(home, kind), Path(home, "log")
        file.write_text({"floor": FLOOR, "seqdec": SETTINGS}[kind].replace("PORT", str(port)).replace("DIGEST", digest))
        arguments = {"floor": [str(file)], "seqdec": ["-m", "seqdec", "serve", str(file)]}[kind]
        with log.open("wb") as output:
            process = subprocess.Popen(["taskset", "-c", str(core), sys.executable, *arguments], stderr=output)
        try:
            with Client(f"http://127.0.0.1:{port}", key=key, timeout=600) as client:
                while not _is_ready(client):
                    if process.poll() is not None:
                        raise RuntimeError(log.read_text())
                    time.sleep(0.1)
                if kind == "seqdec":
                    _add_items(client)
                    while log.read_text().count("has all its programs") < SETTINGS.count("[deployments."):
                        time.sleep(0.1)
            yield Server(process, port, key)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def _is_ready(client: Client) -> bool:
    try:
        client.call("/ready")
    except (OSError, RefusedError):
        return False
    return True


def _add_items(client: Client) -> None:
    features = np.random.default_rng(0).uniform(-1, 1, (ITEMS, 10)).round(4)
    for first in range(0, ITEMS, 1000):
        items = {f"item {i}": features[i].tolist() for i in range(first, first + 1000)}
        client.call("/v1/items/add_items", {"items": items})


class Load(NamedTuple):
    """What clients have seen: milliseconds of each request, how many were refused; CPU seconds of the server."""

    taken: np.ndarray
    refused: int
    seconds: float
    cpu: float

    def per_cpu(self) -> float:
        """Requests per CPU-second."""
        return len(self.taken) / self.cpu


def loaded(server: Server, case: Case, connections: int, seconds: float, rate: float) -> Load:
    """Requests of so many clients, after a second of warm-up."""
    rng, poll = np.random.default_rng(0), select.epoll()
    contexts = rng.uniform(-1, 1, (500, 5)).round(4).tolist() if case.has_context else [None]
    asked = [server.request(case.deployment, "decide", {"context": one}) for one in contexts]
    clients = {}
    for _ in range(connections):
        client = socket.create_connection(("127.0.0.1", server.port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        clients[client.fileno()] = client
        poll.register(client, select.EPOLLIN)
    free, sent, parts, taken = deque(clients), {}, dict.fromkeys(clients, b""), []
    count, refused, cpu = 0, 0, server.cpu()
    due = time.perf_counter()
    began, is_warm = due + 1, False
    while (now := time.perf_counter()) < began + seconds:
        if not is_warm and now > began:
            began, cpu, taken, is_warm = now, server.cpu(), [], True
        while free and due <= now:
            client = free.popleft()
            clients[client].send(asked[count % len(asked)])
            sent[client], count, due = now, count + 1, due + 1 / rate
        for client, _ in poll.poll(max(0.0, min(due - now, 0.1)) if free else 0.1):
            parts[client] += clients[client].recv(2**16)
            head, _, body = parts[client].partition(b"\r\n\r\n")
            if not body.endswith(b"}"):
                continue
            parts[client] = b""
            refused += head[9:12] != b"200"
            if case.pairs and b'"token"' in body:
                report = {"token": orjson.loads(body)["token"], "reward": float(rng.random() < 0.5)}
                clients[client].send(server.request(case.deployment, "learn", report))
            else:
                taken.append(1e3 * (time.perf_counter() - sent[client]))
                free.append(client)
    cpu = server.cpu() - cpu
    for client in clients.values():
        client.close()
    return Load(np.array(taken), refused, now - began, cpu)


def main(connections: int = 64, seconds: float = 5, runs: int = 3, rate: float = np.inf, only: str = "") -> None:
    """Each case `runs` times, in turns with the floor; shown is the median by CPU time. `only`: cases so named."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[-1:])
    head = "per CPU-second", "of the floor's", "per second", "median, ms", "99%", "longest", "refused"
    row, options = table("", *head), (connections, seconds, rate)
    with running("floor", cores[0]) as floor, running("seqdec", cores[0]) as server:
        for case in [case for case in CASES if only in case.name]:
            floors, loads = [], []
            for _ in range(runs):
                floors.append(loaded(floor, CASES[0], *options).per_cpu())
                loads.append(loaded(server, case, *options))
            load = sorted(loads, key=Load.per_cpu)[runs // 2]
            times = (f"{one:.1f}" for one in np.quantile(load.taken, [0.5, 0.99, 1]))
            floor_per_cpu = float(np.median(floors))
            per_cpu, per_second = f"{load.per_cpu():,.0f}", f"{len(load.taken) / load.seconds:,.0f}"
            share = f"{load.per_cpu() / floor_per_cpu:.2f} of {floor_per_cpu:,.0f}"
            row(case.name, per_cpu, share, per_second, *times, load.refused)


if __name__ == "__main__":
    command(main)
