"""Requests per CPU-second of `seqdec serve`, with logs, keys and metrics on, beside a web framework that does nothing.

The servers run on one core and this script on another, where there are two. Each of `connections` clients sends its
next request when the last one is answered, so that an answer takes about connections / requests per second; with
`rate`, so many are sent per second. "pairs": a decision and then its reward, counted as one. With `servers`, so many
have one log in a PostgreSQL of their own, with fsync, and everything shares all cores.
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
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson
from harness import command, table

from seqdec.client import Client, RefusedError
from seqdec.serve.access import new_key
from tests.databases import Cluster, cluster

ITEMS = 10_000
SETTINGS = """
[server]
folder = "data"
port = PORT
STORE
[keys.clients]
sha256 = ["DIGEST"]
role = "operator"
"""
DEPLOYMENTS = {
    "linear": 'context = { size = 5, low = -1, high = 1 }\nagent = "linear"\narms = ["a", "b", "c", "d"]',
    "synced": 'context = { size = 5, low = -1, high = 1 }\nagent = "linear"\narms = ["a", "b", "c", "d"]\nfsync = true',
    "auto": 'context = { size = 5, low = -1, high = 1 }\narms = ["a", "b", "c", "d"]',
    "items": 'items = { size = 10, low = -1, high = 1 }\nagent = "linear"',
}
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
    Case(f"{ITEMS:,} items, linear", "items", has_context=False),
)


def used(process: int, fields: slice) -> float:
    """CPU seconds of a process, in fields of /proc/PID/stat."""
    found = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[fields]
    return sum(map(int, found)) / os.sysconf("SC_CLK_TCK")


def used_by(cluster: Cluster) -> float:
    """CPU seconds of a PostgreSQL: of its processes, and of those that have ended."""
    main, spent = cluster.process.pid, 0.0
    for child in Path(f"/proc/{main}/task/{main}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError):  # ended since, which counts in what follows
            spent += used(int(child), slice(11, 13))
    return spent + used(main, slice(11, 15))


class Server(NamedTuple):
    """A process, where it listens, and the key of its callers."""

    process: subprocess.Popen
    port: int
    key: str

    def cpu(self) -> float:
        """Seconds of all of its threads."""
        return used(self.process.pid, slice(11, 13))

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
def running(cores: Sequence[int], deployments: Collection[str] = (), store: str = "") -> Iterator[Server]:
    """The server of some deployments, or of FLOOR, ready."""
    with tempfile.TemporaryDirectory() as home, socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port, (key, digest) = found.getsockname()[1], new_key()
        found.close()
        file, log, text = Path(home, "file"), Path(home, "log"), FLOOR
        if deployments:
            parts = (f"[deployments.{name}]\n{DEPLOYMENTS[name]}\n" for name in deployments)
            text = "".join([SETTINGS.replace("DIGEST", digest).replace("STORE", store), *parts])
        file.write_text(text.replace("PORT", str(port)))
        arguments = ["-m", "seqdec", "serve", str(file)] if deployments else [str(file)]
        command = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, *arguments]
        with log.open("wb") as output:
            process = subprocess.Popen(command, stderr=output)
        try:
            with Client(f"http://127.0.0.1:{port}", key=key, timeout=600) as client:
                while not _is_ready(client):
                    if process.poll() is not None:
                        raise RuntimeError(log.read_text())
                    time.sleep(0.1)
                if "items" in deployments:
                    _add_items(client)
                while log.read_text().count("has all its programs") < len(deployments):
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
    """What clients have seen: milliseconds of each request, how many were refused; CPU seconds of the servers."""

    taken: np.ndarray
    refused: int
    seconds: float
    cpu: float
    database: float
    """CPU seconds"""

    def per_cpu(self) -> float:
        """Requests per CPU-second."""
        return len(self.taken) / self.cpu


def loaded(
    servers: Sequence[Server], case: Case, connections: int, seconds: float, rate: float, database: Cluster | None
) -> Load:
    """Requests of so many clients, after a second of warm-up."""

    def spent() -> tuple[float, float]:
        return sum(server.cpu() for server in servers), 0.0 if database is None else used_by(database)

    rng, poll = np.random.default_rng(0), select.epoll()
    contexts = rng.uniform(-1, 1, (500, 5)).round(4).tolist() if case.has_context else [None]
    clients, asked, of = {}, {}, {}
    for place in range(connections):
        server = servers[place % len(servers)]
        client = socket.create_connection(("127.0.0.1", server.port))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        clients[client.fileno()], of[client.fileno()] = client, server
        asked[client.fileno()] = [server.request(case.deployment, "decide", {"context": one}) for one in contexts]
        poll.register(client, select.EPOLLIN)
    free, sent, parts, taken = deque(clients), {}, dict.fromkeys(clients, b""), []
    count, refused, before = 0, 0, spent()
    due = time.perf_counter()
    began, is_warm = due + 1, False
    while (now := time.perf_counter()) < began + seconds:
        if not is_warm and now > began:
            began, before, taken, is_warm = now, spent(), [], True
        while free and due <= now:
            client = free.popleft()
            clients[client].send(asked[client][count % len(contexts)])
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
                clients[client].send(of[client].request(case.deployment, "learn", report))
            else:
                taken.append(1e3 * (time.perf_counter() - sent[client]))
                free.append(client)
    cpu, of_database = np.subtract(spent(), before)
    for client in clients.values():
        client.close()
    return Load(np.array(taken), refused, now - began, cpu, of_database)


def main(
    connections: int = 64, seconds: float = 5, runs: int = 3, rate: float = np.inf, only: str = "", servers: int = 0
) -> None:
    """Each case `runs` times, in turns with the floor; shown is the median by CPU time. `only`: cases so beginning."""
    cores = sorted(os.sched_getaffinity(0))
    cases = [case for case in CASES if case.name.startswith(only) and not (servers and case.deployment == "synced")]
    if not servers:
        os.sched_setaffinity(0, cores[-1:])
        cores = cores[:1]
    head = "per CPU-second", "of the floor's", "per second", "median, ms", "99%", "longest", "refused"
    row, names = table("", *head, *["database"] * bool(servers)), {case.deployment for case in cases}
    with contextlib.ExitStack() as held:
        database = held.enter_context(cluster(durable=True)) if servers else None
        store = f'store = "{database.url}"' if database else ""
        floor = held.enter_context(running(cores))
        served = [held.enter_context(running(cores, names, store)) for _ in range(servers or 1)]
        for case in cases:
            floors, loads = [], []
            for _ in range(runs):
                floors.append(loaded([floor], CASES[0], connections, seconds, rate, None).per_cpu())
                loads.append(loaded(served, case, connections, seconds, rate, database))
            load = sorted(loads, key=Load.per_cpu)[runs // 2]
            times = (f"{one:.1f}" for one in np.quantile(load.taken, [0.5, 0.99, 1]))
            floor_per_cpu = float(np.median(floors))
            per_cpu, per_second = f"{load.per_cpu():,.0f}", f"{len(load.taken) / load.seconds:,.0f}"
            share = f"{load.per_cpu() / floor_per_cpu:.2f} of {floor_per_cpu:,.0f}"
            beside = [f"{len(load.taken) / load.database:,.0f} per CPU-second"] if servers else []
            row(case.name, per_cpu, share, per_second, *times, load.refused, *beside)


if __name__ == "__main__":
    command(main)
