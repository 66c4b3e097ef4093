"""Kill `seqdec serve` under load, or raise at each of its lines, and count what it loses: nothing.

    python benchmarks/service_kills.py --kills 200
    python benchmarks/service_kills.py --exceptions

Clients decide with keys, report with ids, activate and withdraw, change arms and items, and repeat each request with
the same key or id until it is answered. The server is a process that is killed at random moments, most often by
SIGKILL, also while it starts; or a thread of this process, in which a tracer raises at each line of `seqdec/serve` and
`seqdec/service` that runs, once. In the end every answer must be in the log, once, and the belief after a clean end
must be what the log gives when it is learned from its beginning, to the bit.
"""

import argparse
import asyncio
import contextlib
import faulthandler
import functools
import itertools
import linecache
import math
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import jax

from seqdec import serve, states
from seqdec.client import Client, RefusedError
from seqdec.runtime import compilation_cache
from seqdec.serve import deployments
from seqdec.serve.application import application
from seqdec.serve.connections import Connection, server
from seqdec.serve.queue import Batches
from seqdec.service import OnlineAgent
from seqdec.service.rewards import _digest
from seqdec.service.sqlite import SQLite

WINDOW = 1.0
SETTINGS = f"""
[server]
port = {{port}}
grace = 5
[deployments.arms]
arms = ["a", "b", "c"]
context = {{{{ size = 2, low = -1, high = 1 }}}}
agent = "linear"
rewards = {{{{ window = {WINDOW}, default = 0, combine = "sum" }}}}
[deployments.items]
items = {{{{ size = 2, low = -1, high = 1 }}}}
agent = "linear"
"""
NAMES = ("arms", "items")
SNAPSHOT_EVERY = 20
"""Batches, so that faults hit snapshots too."""
AGAIN = {429, 500, 503}
"""Answers after which a client repeats its request."""


class Load:
    """Clients in threads, and what they were answered."""

    def __init__(self, port: int, clients: int) -> None:
        self.port, self.ends, self.wrong = port, threading.Event(), list[str]()
        self.decided: dict[tuple[str, str], dict[str, Any]] = {}
        self.reported: dict[tuple[str, str, str], tuple[float, str]] = {}
        self.settled: dict[tuple[str, str], str] = {}
        self.changed: dict[str, bool] = {}
        self.sent, self.stocked = Counter[str](), threading.Event()
        self._threads = [threading.Thread(target=self._visit, args=(seed,)) for seed in range(clients)]
        self._threads.append(threading.Thread(target=self._operate))

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ends.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, client: Client, path: str, body: Any) -> Any:
        """The answer, after as many attempts as it takes; None at the end."""
        while not self.ends.is_set():
            self.sent[path.rpartition("/")[2]] += 1
            try:
                return client.call(path, body)
            except OSError:
                self.ends.wait(0.3)
            except RefusedError as error:
                if error.status not in AGAIN:
                    raise
                self.ends.wait(0.1)
        return None

    def _visit(self, seed: int) -> None:
        chance, mine = random.Random(seed), list[tuple[str, str]]()
        while not (self.stocked.wait(0.1) or self.ends.is_set()):
            pass
        with Client(f"http://127.0.0.1:{self.port}", timeout=5) as client:
            for place in range(10**9):
                if self.ends.is_set():
                    return
                try:
                    self._decide(client, chance, mine, f"{seed}/{place}")
                    if len(mine) > 4:
                        self._report(client, chance, *mine.pop(chance.randrange(len(mine))))
                    if chance.random() < 0.1 and mine:
                        self._repeat(client, *mine[0])
                except RefusedError as error:
                    self.wrong.append(f"refused: {error}")

    def _decide(self, client: Client, chance: random.Random, mine: list[Any], key: str) -> None:
        name, active = chance.choice(NAMES), chance.random() < 0.8
        keys = [f"{key}/{place}" for place in range(chance.choice((1, 1, 1, 3)))]
        context = {"context": [chance.uniform(-1, 1), 0.5]} if name == "arms" else {}
        rows = [{**context, "key": one} for one in keys]
        if len(rows) == 1:
            answer = self._ask(client, f"/v1/{name}/decide", {**rows[0], "active": active})
            found = [answer] if answer else []
        else:
            answer = self._ask(client, f"/v1/{name}/decide_many", {"rows": rows, "active": active})
            found = answer["decisions"] if answer else []
        for one, decision in zip(keys, found, strict=False):
            self.decided[name, one] = decision
            mine.append((name, one))
            if not active and chance.random() < 0.7:
                verb = chance.choice(("activate", "withdraw"))
                done = self._ask(client, f"/v1/{name}/{verb}", {"token": decision["token"]})
                if done:
                    self.settled[name, decision["token"]] = done["result"]

    def _report(self, client: Client, chance: random.Random, name: str, key: str) -> None:
        token = self.decided[name, key]["token"]
        for place in range(chance.choice((0, 1, 1, 2)) if name == "arms" else 1):
            body = {"token": token, "reward": chance.gauss(0, 1), "id": f"{key}/{place}"}
            again = chance.random() < 0.2
            for _ in range(1 + again):  # with the same id it counts once
                done = self._ask(client, f"/v1/{name}/learn", body)
                if done:
                    before = self.reported.get((name, token, body["id"]), (0.0, ""))[1]
                    self.reported[name, token, body["id"]] = body["reward"], before or done["result"]

    def _repeat(self, client: Client, name: str, key: str) -> None:
        body = {"context": [0.0, 0.0]} if name == "arms" else {}
        found = self._ask(client, f"/v1/{name}/decide", {**body, "key": key})
        if found and found != self.decided[name, key]:
            self.wrong.append(f"the key {key} got {self.decided[name, key]}, then {found}")

    def _operate(self) -> None:
        """Add and remove arms and items, archive and restore; what was done already is refused when it is repeated."""
        with Client(f"http://127.0.0.1:{self.port}", timeout=5) as client:
            self._ask(client, "/v1/items/add_items", {"items": {"first": [0.5, 0.5], "second": [-0.5, 0.5]}})
            self.stocked.set()
            for place in range(10**9):
                one, two = f"arm {place % 3}", f"item {place % 50}"
                calls = [
                    ("/v1/arms/add_arm", {"name": one}, one, True),
                    ("/v1/items/add_items", {"items": {two: [place % 7 / 7, 0.1]}}, two, True),
                    ("/v1/arms/remove_arm", {"name": one}, one, False),
                ]
                if place % 2:
                    calls.append(("/v1/items/remove_items", {"ids": [two]}, two, False))
                if place % 8 == 7:
                    for verb in ("archive", "restore"):
                        with contextlib.suppress(RefusedError):
                            self._ask(client, f"/v1/items/{verb}", {})
                for path, body, subject, there in calls:
                    self.changed.pop(subject, None)
                    with contextlib.suppress(RefusedError):
                        if self._ask(client, path, body) is None:
                            return
                        self.changed[subject] = there
                    self.ends.wait(0.05)


def settings(home: Path) -> tuple[Path, int]:
    """A file of settings, and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = home / "settings.toml"
    file.write_text(SETTINGS.format(port=port))
    return file, port


def check(file: Path, load: Load) -> list[str]:
    """What the logs lack or have twice, and whether the beliefs are those of the logs."""
    parts = f"{len(load.decided):,} decisions, {len(load.reported):,} reports, {len(load.settled):,} others"
    print(f"acknowledged: {parts}; requests: {dict(load.sent)}", flush=True)
    found, wrong = serve.read(file), list(load.wrong)
    for name in NAMES:
        folder = found.folder / "deployments" / name / "agent"
        declared = found.settings.deployments[name]
        time.sleep(WINDOW)
        with contextlib.closing(deployments.opened(declared, folder)) as one:
            decided = one.counts["decisions"]  # which learns all that is due
            present = {*one.arms, *one.items}
            belief = _bits(one)
        copy = shutil.copytree(folder, folder.with_name("copy"), ignore=shutil.ignore_patterns("state*"))
        with contextlib.closing(deployments.opened(declared, copy)) as whole:
            if _bits(whole) != belief:
                wrong.append(f"{name}: the belief is not that of the log")
        shutil.rmtree(copy)
        wrong += [f"{name}: {fault}" for fault in _faults(folder / "decisions.sqlite", name, load)]
        here = {subject: there for subject, there in load.changed.items() if subject.startswith(name[:-1])}
        wrong += [f"{name}: {one} is {one in present}" for one, there in here.items() if (one in present) is not there]
        print(f"{name}: {decided:,} decisions in the log", flush=True)
    return wrong


def _bits(one: OnlineAgent) -> list[bytes]:
    return [states.as_array("", leaf).tobytes() for leaf in jax.tree.leaves(one.state)]


def _faults(path: Path, name: str, load: Load) -> Iterator[str]:
    """Of a log, compared with what clients were answered."""
    database = SQLite(path, str(path))
    database.check()
    decisions = {row[0]: row for row in database.rows("decisions")}
    rewards = {row[1]: row for row in database.rows("rewards")}
    withdrawn = {row[0] for row in database.rows("withdrawn")}
    deferred = {row[0]: row[1] for row in database.rows("deferred")}
    reports: dict[int, dict[bytes, float]] = {}
    for _, number, reward, _, digest in database.rows("reports"):
        if digest in reports.setdefault(number, {}):
            yield f"a report of {number} is there twice"
        reports[number][digest] = reward
    database.close()
    keys = Counter(row[7] for row in decisions.values())
    yield from (f"the key {key} has {count} decisions" for key, count in keys.items() if count > 1 or key is None)
    for (_, key), answer in ((one, answer) for one, answer in load.decided.items() if one[0] == name):
        number, _, nonce = answer["token"].partition("-")
        row = decisions.get(int(number))
        if row is None or row[2].hex() != nonce or row[7] != key:
            yield f"the decision {answer['token']} of {key} is lost"
        elif answer["propensity"] is not None and row[6] != answer["propensity"]:
            yield f"the decision {answer['token']} has another propensity"
    for (_, token, id_), (reward, result) in ((one, of) for one, of in load.reported.items() if one[0] == name):
        number = int(token.partition("-")[0])
        if result in ("collected", "repeated") and name == "arms":
            if reports.get(number, {}).get(_digest(id_) or b"") != reward:
                yield f"the report {id_} ({result}) of {token} is lost"
        elif result in ("learned", "repeated"):
            if number not in rewards or rewards[number][3] != reward:
                yield f"the reward {id_} of {token} is lost"
        elif result == "withdrawn":
            if number not in withdrawn:
                yield f"{token} is not withdrawn"
        elif result != "expired":
            yield f"the report {id_} of {token} is {result}"
    for (_, token), result in ((one, result) for one, result in load.settled.items() if one[0] == name):
        number = int(token.partition("-")[0])
        if result == "withdrawn" and (number not in withdrawn or number in rewards):
            yield f"{token} is not withdrawn"
        if result == "activated" and number in deferred and deferred[number] is None:
            yield f"{token} is not activated"
    for number, row in rewards.items():
        if number in withdrawn:
            yield f"{number} is withdrawn, and learned"
        if name == "arms" and row[3] != math.fsum(reports.get(number, {}).values()):
            yield f"the reward of {number} is not the sum of its reports"


@contextlib.contextmanager
def process(file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that serves."""
    with (file.parent / "log").open("ab") as log:
        command = [sys.executable, __file__, "--child", str(file)]
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield running
    finally:
        running.kill()
        running.wait()


def wait(port: int, goes_on: Callable[[], bool]) -> None:
    """Until all deployments answer. Raises RuntimeError where the server has ended."""
    with Client(f"http://127.0.0.1:{port}", timeout=5) as client:
        while goes_on():
            with contextlib.suppress(OSError, RefusedError):
                client.call("/ready")
                return
            time.sleep(0.2)
    raise RuntimeError("the server could not go on")


def kills(home: Path, count: int, clients: int) -> list[str]:
    """Kill a server so often, then end it; what was wrong."""
    file, port = settings(home)
    chance, how, wrong = random.Random(0), Counter[str](), list[str]()
    with Load(port, clients) as load:
        for number in range(count + 1):
            with process(file) as running:
                early = number and chance.random() < 0.1
                if early:
                    time.sleep(chance.uniform(0, 8))
                else:
                    wait(port, lambda: running.poll() is None)
                    time.sleep(chance.uniform(0, 1.5) if number < count else 1)
                kind = chance.choices(("SIGKILL", "SIGTERM", "SIGINT", "SIGSTOP"), (70, 12, 6, 12))[0]
                kind = kind if number < count else "SIGTERM"
                if number == count:
                    load.ends.set()
                how[kind] += 1
                running.send_signal(getattr(signal, kind))
                if kind == "SIGSTOP":
                    time.sleep(0.3)
                    running.kill()
                status = running.wait(30)
                if kind in ("SIGTERM", "SIGINT") and status and not early:
                    wrong.append(f"{kind} ended the server with {status}")
            if number % 10 == 9:
                print(f"{number + 1} kills, {len(load.decided):,} decisions answered", flush=True)
    print(f"ended by {dict(how)}")
    return wrong + check(file, load)


class Stop(BaseException):
    """Like KeyboardInterrupt, no Exception."""


class Tracer:
    """Raises once at each line of the server and the service, in turn a `Stop` and a MemoryError.

    Left out are lines that set a handler up (`try:`), those of the handlers of last resort, and the server's own loop.
    """

    OUTERMOST = (
        "_work",
        "_guarded",
        "_refuse",
        "on_tick",
        "connection_made",
        "shutdown",
        "run",
        "lifespan",
        "__init__",
    )

    def __init__(self, pause: float) -> None:
        self.is_active, self.done, self._pause, self._last = False, set[tuple[str, int]](), pause, 0.0
        self._errors = itertools.cycle((Stop, MemoryError))

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        file, name = frame.f_code.co_filename, frame.f_code.co_name
        if not ("/seqdec/serve/" in file or "/seqdec/service/" in file) or name in self.OUTERMOST:
            return None
        if event == "line" and self.is_active and time.monotonic() - self._last > self._pause:
            place = file, frame.f_lineno
            if place not in self.done and linecache.getline(*place).strip() != "try:":
                self.done.add(place)
                self._last = time.monotonic()
                raise MemoryError if file.endswith("connections.py") else next(self._errors)
        return self

    def armed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with this tracer in its thread: one that has raised is taken out."""

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            sys.settrace(self)
            return function(*arguments, **options)

        return call

    @contextlib.contextmanager
    def everywhere(self) -> Iterator[None]:
        """Arm the event loop, the threads of batches and those of long calls."""
        slow = asyncio.to_thread
        with contextlib.ExitStack() as patches:
            for kind, name in ((Batches, "_made"), (Batches, "_guarded"), (Connection, "data_received")):
                patches.enter_context(mock.patch.object(kind, name, self.armed(getattr(kind, name))))
            there = mock.patch.object(
                asyncio, "to_thread", lambda call, *given, **more: slow(self.armed(call), *given, **more)
            )
            patches.enter_context(there)
            yield


def exceptions(home: Path, clients: int, seconds: float, pause: float = 0.05) -> list[str]:
    """Raise at each line of a server in a thread that runs within so many seconds; what was wrong."""
    file, port = settings(home)
    AGAIN.add(400)  # of a parser whose callback has raised
    found, tracer = serve.read(file), Tracer(pause)
    running = server(application(found), found.settings.server)
    thread = threading.Thread(target=running.run)
    thread.start()
    wrong: list[str] = []
    with tracer.everywhere(), contextlib.ExitStack() as end:

        def ended() -> None:
            tracer.is_active, running.should_exit = False, True
            thread.join(60)

        end.callback(ended)
        wait(port, thread.is_alive)
        with Load(port, clients) as load:
            load.stocked.wait(60)
            tracer.is_active, until = True, time.monotonic() + seconds
            while time.monotonic() < until:
                time.sleep(1)
            tracer.is_active = False
            with Client(f"http://127.0.0.1:{port}", timeout=100) as client:
                last = {"arms": ("add_arm", {"name": "last"}), "items": ("add_items", {"items": {"last": [0.0, 0.0]}})}
                for name, (verb, body) in last.items():
                    try:
                        client.call(f"/v1/{name}/restore", {})
                        client.decide(name, [0.0, 0.0] if name == "arms" else None, key="last")
                        client.call(f"/v1/{name}/{verb}", body)
                    except (OSError, RefusedError) as error:
                        wrong.append(f"{name} does not answer after the exceptions: {error}")
                        faulthandler.dump_traceback()
        print(f"raised at {len(tracer.done)} lines", flush=True)
    return wrong + check(file, load)


def child(file: Path) -> None:
    """Serve, with frequent snapshots."""
    deployments.OnlineAgent = functools.partial(OnlineAgent, snapshot_every=SNAPSHOT_EVERY)  # pyright: ignore
    serve.run(serve.read(file))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--exceptions", action="store_true", help="raise in a server of this process")
    parser.add_argument("--seconds", type=float, default=120, help="in which exceptions are raised")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else children of a job in the background ignore it
    options = parser.parse_args()
    if options.child:
        child(options.child)
    else:
        with tempfile.TemporaryDirectory() as home:
            if options.exceptions:
                deployments.OnlineAgent = functools.partial(OnlineAgent, snapshot_every=SNAPSHOT_EVERY)  # pyright: ignore
                compilation_cache(Path(home) / "programs")
                faults = exceptions(Path(home), options.clients, options.seconds)
            else:
                faults = kills(Path(home), options.kills, options.clients)
            log = Path(home) / "log"
            text = log.read_text(errors="replace") if faults and log.exists() else ""
        print(*faults[:20], *text.splitlines()[-30:], sep="\n")
        print(f"{len(faults)} faults")
        sys.exit(bool(faults))
