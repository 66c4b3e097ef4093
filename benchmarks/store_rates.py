"""Rows per second that a log in PostgreSQL takes from several processes, and rewards per second that a learner takes.

The database is one of its own, with fsync and synchronous commits, on all cores beside the processes that write: rows
per second of the CPU of the database say what a machine of its own would take.
"""

import contextlib
import itertools
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context

import numpy as np
import psycopg
from gymnasium import spaces
from harness import command, table
from service_load import used_by

import seqdec
from seqdec.service.postgres import Postgres, SharedStore, prepare
from seqdec.service.store import REPORTED, Entry, split_number
from tests.databases import Cluster, cluster

SITE = seqdec.core.Spaces(spaces.Box(-1, 1, (5,)), spaces.Discrete(4))
ROWS = 2000
"""Written at once for the learner."""


def entries(count: int) -> list[Entry]:
    """Decisions for contexts of five numbers and four arms."""
    x = np.random.default_rng(0).uniform(-1, 1, (count, 5)).astype(np.float32)
    law = np.full(4, 0.25, np.float32).tobytes()
    return [Entry(secrets.token_bytes(8), row.tobytes(), b"\1" * 4, 1, 0.25, None, law, None, 0) for row in x]


def made(server: Cluster, days: int) -> Postgres:
    """A log with partitions of so many days."""
    place = Postgres(server.url, f"log {next(_NUMBERS)}")
    prepare(place)
    with closing(SharedStore(place)) as log:
        today = split_number(log.next_number()).day
        for day in range(today - days, today):
            log.database.execute("SELECT make_day(?::bigint)", (day,))
    return place


def wal(server: Cluster) -> int:
    """Bytes that were written."""
    with psycopg.connect(server.url) as connection:
        found = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint").fetchone()
        assert found is not None
        return found[0]


def decide(place: Postgres, size: int, seconds: float) -> tuple[int, float]:
    """Write batches; returns rows, and CPU seconds of this process."""
    with closing(SharedStore(place)) as log:
        log.append_decisions(entries(size))
        count, end, cpu = 0, time.monotonic() + seconds, time.process_time()
        while time.monotonic() < end:
            log.append_decisions(entries(size))
            count += size
        return count, time.process_time() - cpu


def written(server: Cluster, seconds: float, runs: int, days: int) -> None:
    """Rates of decisions."""
    head = "rows per second", "per CPU-second of the database", "of the processes", "bytes of WAL per row"
    row = table("sessions", "rows at once", *head)
    for sessions in (1, 2, 4):
        with ProcessPoolExecutor(sessions, mp_context=get_context("spawn")) as processes:
            list(processes.map(time.sleep, [1.0] * sessions))  # which start
            for size in (1, 16, 64, 256):
                found = []
                for _ in range(runs):
                    place = made(server, days)
                    before, start = used_by(server), wal(server)
                    done = [processes.submit(decide, place, size, seconds) for _ in range(sessions)]
                    counts, cpus = zip(*(one.result() for one in done), strict=True)
                    total = sum(counts)
                    parts = seconds, used_by(server) - before, sum(cpus)
                    found.append([*(total / part for part in parts), (wal(server) - start) / total])
                row(sessions, size, *(f"{one:,.0f}" for one in np.median(found, axis=0)))


def learned(server: Cluster, rewards: int, runs: int, days: int) -> None:
    """Rates of rewards, from the inbox to the belief."""
    row = table("learns", "rewards per second", "per CPU-second of the learner", "of the database")
    found = []
    for _ in range(runs):
        place = made(server, days)
        with agent(place) as one:
            one.decide(np.zeros(5))
            one.warm_up()
        with closing(SharedStore(place)) as log:
            for _ in range(rewards // ROWS):
                first = log.append_decisions(entries(ROWS))
                known = log.find_many(range(first, first + ROWS)).values()
                log.append_rewards([(each, 0.5, REPORTED) for each in known])
        with agent(place) as one:
            began, cpu, before = time.monotonic(), time.process_time(), used_by(server)
            while one.lag:
                time.sleep(0.1)
            spent = time.monotonic() - began, time.process_time() - cpu, used_by(server) - before
            found.append([rewards / each for each in spent])
    row("linear", *(f"{one:,.0f}" for one in np.median(found, axis=0)))


@contextlib.contextmanager
def agent(place: Postgres) -> Iterator[seqdec.OnlineAgent]:
    """Of the log."""
    with closing(seqdec.OnlineAgent("linear", SITE, seed=0, store=place)) as one:
        yield one


_NUMBERS = itertools.count()


def main(seconds: float = 3, runs: int = 3, rewards: int = 20_000, days: int = 0) -> None:
    """Each figure is the median of `runs`, of logs that go back so many days."""
    with cluster(durable=True) as server:
        learned(server, rewards, runs, days)
        written(server, seconds, runs, days)


if __name__ == "__main__":
    command(main)
