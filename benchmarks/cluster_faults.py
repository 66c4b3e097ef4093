"""Four servers with one log in PostgreSQL, under load and faults: what is lost, learned twice or answered twice.

    python benchmarks/cluster_faults.py --faults 200

Clients send each request to any server, with keys and ids, until one answers. Meanwhile servers are killed and started
again, or stopped for some seconds, all sessions of the database are ended, or the database crashes and starts again.
In the end each acknowledged decision and reward must be in the log, once and as answered, and each belief that was
published must be what the log gives when it is learned from its beginning, to the bit. With a spool, a key that was
answered before the database went away may be answered anew, and the later decision is in the log without it.
"""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString

import jax
import numpy as np
import psycopg
from harness import command
from psycopg import sql

from seqdec.service.postgres import Postgres, SharedStore

sys.path.append(str(Path(__file__).parents[1]))
from seqdec import serve, states
from seqdec.client import Client, RefusedError
from seqdec.runtime import compilation_cache
from seqdec.serve import deployments
from tests.databases import Cluster, cluster

SETTINGS = """
[server]
folder = "data"
store = "{url}"
spool = {spool}
grace = 5
[deployments.arms]
arms = ["a", "b", "c"]
context = {{ size = 3, low = -1, high = 1 }}
agent = "linear"
[deployments.late]
arms = ["a", "b"]
context = {{ size = 2, low = -1, high = 1 }}
agent = "linear"
rewards = {{ window = 2, default = 0, combine = "sum" }}
"""
SIZES = {"arms": 3, "late": 2}
AGAIN = {429, 500, 503}
_MARK = 20
"""Bytes before a published state."""


class Servers:
    """Processes of `seqdec serve`, one for each port."""

    def __init__(self, home: Path, count: int) -> None:
        self._home, self._file = home, home / "settings.toml"
        self.ports = [_free() for _ in range(count)]
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self.logs = {port: (home / f"log.{port}").open("ab") for port in self.ports}

    def start(self, port: int) -> None:
        arguments = ["-m", "seqdec", "serve", str(self._file), "--port", str(port)]
        self._running[port] = subprocess.Popen([sys.executable, *arguments], stderr=self.logs[port], cwd=self._home)

    def signal(self, port: int, number: int) -> None:
        self._running[port].send_signal(number)

    def wait(self, port: int) -> None:
        self._running[port].wait(60)

    def is_ready(self, port: int) -> bool:
        if self._running[port].poll() is not None:  # it started while the database was away
            self.start(port)
        with contextlib.suppress(OSError, RefusedError), Client(f"http://127.0.0.1:{port}", timeout=2) as client:
            client.call("/ready")
            return True
        return False

    def stop(self) -> None:
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            process.wait(60)


class Load:
    """Clients in threads, and what they were answered."""

    def __init__(self, ports: list[int], clients: int, pause: float, *, spools: bool) -> None:
        self.decided: dict[tuple[str, str], dict[str, Any]] = {}
        self.reported: dict[tuple[str, str, str], tuple[float, set[str]]] = {}
        self.wrong, self.sent, self.ends = list[str](), Counter[str](), threading.Event()
        self._ports, self._pause, self._spools = ports, pause, spools
        self._threads = [threading.Thread(target=self._visit, args=(seed,)) for seed in range(clients)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.ends.set()
        for thread in self._threads:
            thread.join()

    def _visit(self, seed: int) -> None:
        chance, mine = random.Random(seed), list[tuple[str, str]]()
        with contextlib.ExitStack() as held:
            clients = [held.enter_context(Client(f"http://127.0.0.1:{port}", timeout=4)) for port in self._ports]

            def ask(path: str, body: Any) -> Any:
                while not self.ends.is_set():
                    self.sent["requests"] += 1
                    try:
                        return chance.choice(clients).call(path, body)
                    except OSError:
                        self.sent["unanswered"] += 1
                        self.ends.wait(0.1)
                    except RefusedError as error:
                        self.sent[f"status {error.status}"] += 1
                        if error.status not in AGAIN:
                            self.wrong.append(f"refused: {path} {error}")
                            return None
                        self.ends.wait(0.1)
                return None

            for place in range(10**9):
                if self.ends.wait(self._pause):
                    return
                name, key = chance.choice([*SIZES]), f"{seed}/{place}"
                context = [round(chance.uniform(-1, 1), 3) for _ in range(SIZES[name])]
                found = ask(f"/v1/{name}/decide", {"context": context, "key": key})
                if found is None:
                    continue
                self.decided[name, key] = found
                mine.append((name, key))
                if chance.random() < 0.1:
                    name, key = chance.choice(mine)
                    again = ask(f"/v1/{name}/decide", {"context": [0.0] * SIZES[name], "key": key})
                    if again is not None and again != self.decided[name, key]:
                        if self._spools:  # asked while the database was away
                            self.sent["keys answered anew"] += 1
                            continue
                        self.wrong.append(f"the key {key} got {self.decided[name, key]}, then {again}")
                if len(mine) > 3:
                    name, key = mine.pop(chance.randrange(len(mine)))
                    token, reward = self.decided[name, key]["token"], chance.gauss(0, 1)
                    for _ in range(1 + (chance.random() < 0.2)):
                        body = {"token": token, "reward": reward, "id": key}
                        done = ask(f"/v1/{name}/learn", body)
                        if done is not None:
                            self.reported.setdefault((name, token, key), (reward, set()))[1].add(done["result"])


class Watch(threading.Thread):
    """Reads leases and beliefs all the time, in sessions of its own."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.beliefs: dict[tuple[str, int, int], bytes] = {}
        self.holders: dict[str, tuple[str, int]] = {}
        self.ends, self._url = threading.Event(), url
        self.start()

    def run(self) -> None:
        while not self.ends.wait(0.05):
            with contextlib.suppress(psycopg.Error), psycopg.connect(self._url, connect_timeout=2) as session:
                session.autocommit = True
                while not self.ends.wait(0.05):
                    for name in SIZES:
                        rows = _rows(session, "SELECT holder, epoch FROM {}.lease", name)
                        self.holders[name] = rows[0]
                        known = [batch for one, _, batch in self.beliefs if one == name]
                        new = "SELECT generation, batch, content FROM {}.beliefs WHERE batch > %s"
                        for generation, batch, content in _rows(session, new, name, max(known, default=-1)):
                            self.beliefs[name, generation, batch] = bytes(content)


def _rows(session: psycopg.Connection[Any], statement: LiteralString, name: str, *given: Any) -> list[Any]:
    """Of a statement about a deployment's schema."""
    return session.execute(sql.SQL(statement).format(sql.Identifier(f"seqdec_{name}")), given).fetchall()


def _free() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _fault(
    kind: str, servers: Servers, postgres: Cluster, watch: Watch, chance: random.Random
) -> tuple[str, int | None]:
    """Make a fault, and what has to be done after it; says whom it met, and the process."""
    holders = {holder.split()[1] for holder, _ in watch.holders.values()}
    ports = [port for port in servers.ports if servers.is_ready(port)]
    leaders = [port for port in ports if str(servers._running[port].pid) in holders]
    if kind in ("kill", "stop"):
        if len(ports) < 2:
            return "too few servers are ready", None
        port = chance.choice(leaders if leaders and chance.random() < 0.5 else ports)
        victim = servers._running[port].pid
        if kind == "kill":
            servers.signal(port, signal.SIGKILL)
            servers.wait(port)
            servers.start(port)
        else:
            servers.signal(port, signal.SIGSTOP)
            time.sleep(chance.uniform(4, 7))
            servers.signal(port, signal.SIGCONT)
        return "a learner" if port in leaders else "a decider", victim
    if kind == "sessions":
        with contextlib.suppress(psycopg.Error), psycopg.connect(postgres.url, autocommit=True) as session:
            session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        return "all", None
    postgres.stop(signal.SIGQUIT)
    time.sleep(chance.uniform(0, 2))
    postgres.start()
    return "the database", None


def _measure(watch: Watch, before: dict[str, tuple[str, int]], since: float, victim: int | None) -> Iterator[float]:
    """Seconds until each lease of the victim has another epoch, at most 20; without one, of those that get one."""
    for name, (holder, epoch) in before.items():
        if victim is None or holder.split()[1] == str(victim):
            while watch.holders[name][1] == epoch and time.monotonic() < since + 20:
                time.sleep(0.05)
            if victim is not None or watch.holders[name][1] != epoch:
                yield time.monotonic() - since


def _checked(home: Path, url: str, load: Load, watch: Watch, *, spool: bool) -> list[str]:
    """What is wrong."""
    wrong, found = list(load.wrong), serve.read(home / "settings.toml")
    compilation_cache(home / "data" / "programs")
    for name in SIZES:
        with psycopg.connect(url) as session:
            rows = _rows(session, "SELECT number, nonce, key, action, propensity, belief FROM {}.decisions", name)
            rewards = _rows(session, "SELECT number, sequence, batch, reward FROM {}.rewards", name)
        tokens = {
            f"{number}-{bytes(nonce).hex()}": (key, action, chance) for number, nonce, key, action, chance, _ in rows
        }
        arms, keys = found.settings.deployments[name].arms or [], Counter(row[2] for row in rows if row[2])
        for (one, key), answer in load.decided.items():
            if one == name:
                row = tokens.get(answer["token"])
                has_other = spool and row is not None and row[0] is None and keys[key] == 1
                if row is None or row != (
                    None if has_other else key,
                    str(arms.index(answer["action"])),
                    answer["propensity"],
                ):
                    wrong.append(f"{name}: {answer} is {row} in the log")
        wrong += [f"{name}: the key {key} is there {count} times" for key, count in keys.items() if count > 1]
        learned = {number: (sequence, float(reward)) for number, sequence, _, reward in rewards}
        sequences = sorted(sequence for sequence, _ in learned.values() if sequence is not None)
        if len(learned) < len(rewards) or sequences != list(range(1, len(sequences) + 1)):
            wrong.append(f"{name}: rewards are there twice, or have gaps")
        lost = 0
        for (one, token, _), (reward, results) in load.reported.items():
            if one == name and results & {"learned", "collected"}:
                number = int(token.partition("-")[0])
                lost += number not in learned or learned[number][1] != reward
        wrong += [f"{name}: {lost} acknowledged rewards are lost"] if lost else []
        wanted = {batch: content for (one, _, batch), content in watch.beliefs.items() if one == name}
        seen = _replayed(found.settings.deployments[name], Postgres(url, f"seqdec_{name}"), wanted)
        print(
            f"{name}: {len(rows):,} decisions, {len(rewards):,} rewards, {len(sequences):,} learned; "
            f"{sum(seen.values())} of {len(wanted)} beliefs equal the log's",
            flush=True,
        )
        wrong += [f"{name}: the belief after batch {batch} is another" for batch, same in seen.items() if not same]
        wrong += [f"{name}: no batch {batch}" for batch in wanted.keys() - seen.keys()]
    return wrong


def _replayed(declared: Any, place: Postgres, wanted: dict[int, bytes]) -> dict[int, bool]:
    """Learn a log from its beginning; whether the belief is as published, by batch."""
    seen = dict[int, bool]()
    with deployments.opened(declared, None) as fresh, contextlib.closing(SharedStore(place)) as store:
        learner = fresh._learner
        model, learner._store = learner.model, store
        while True:
            batch = model.belief.batch
            if batch in wanted:
                seen[batch] = wanted[batch][_MARK:] == states.packed(model.belief.state)
            if batch == store.batches:
                break
            model.learn(learner._lessons(model, learner._actions.lesson, 1)[0])
        learner._store = fresh._store
    return seen


def main(
    faults: int = 40, servers: int = 4, clients: int = 8, pause: float = 0.02, seed: int = 0, spool: bool = True
) -> None:
    """So many faults, about two seconds after each other.

    Args:
        pause: seconds between a client's requests.
        spool: decide while the database is away.
    """
    chance, kinds, taken = random.Random(seed), Counter[str](), dict[str, list[float]]()
    os.environ["JAX_PLATFORMS"] = "cpu"
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        with cluster(durable=True) as postgres:
            (home / "settings.toml").write_text(SETTINGS.format(url=postgres.url, spool=str(spool).lower()))
            running = Servers(home, servers)
            for port in running.ports:
                running.start(port)
                while not running.is_ready(port):  # the first compiles for all
                    time.sleep(0.2)
            watch = Watch(postgres.url)
            try:
                with Load(running.ports, clients, pause, spools=spool) as load:
                    time.sleep(3)
                    for place in range(faults):
                        kind = chance.choices(["kill", "stop", "sessions", "crash"], [10, 3, 4, 2])[0]
                        before, since = dict(watch.holders), time.monotonic()
                        whom, victim = _fault(kind, running, postgres, watch, chance)
                        kinds[f"{kind}: {whom}"] += 1
                        if whom in ("a learner", "the database"):
                            taken.setdefault(kind, []).extend(_measure(watch, before, since, victim))
                        time.sleep(chance.uniform(0.5, 3))
                        if place % 10 == 9:
                            print(f"{place + 1} faults; {len(load.decided):,} decisions", flush=True)
                    while not all(map(running.is_ready, running.ports)):
                        time.sleep(0.5)
                    time.sleep(5)
                time.sleep(4)  # of windows
            finally:
                watch.ends.set()
                running.stop()
            print(f"acknowledged: {len(load.decided):,} decisions, {len(load.reported):,} rewards; {dict(load.sent)}")
            print(dict(kinds))
            for kind, seconds in taken.items():
                quantiles = np.quantile(seconds, [0.5, 0.95, 1]).round(2).tolist()
                print(f"take-over after {kind}: median, 95%, longest {quantiles} s of {len(seconds)}")
            wrong = _checked(home, postgres.url, load, watch, spool=spool)
            print(*wrong[:20], f"{len(wrong)} faults", sep="\n")
            sys.exit(bool(wrong))


if __name__ == "__main__":
    jax.config.update("jax_platforms", "cpu")
    command(main)
