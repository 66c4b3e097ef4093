"""A log copied from a folder to PostgreSQL or back, row by row with its checksums; all or nothing.

Numbers stay, and with them the tokens of callers. A log from PostgreSQL goes on in a folder behind its last number.
There, decisions whose time is not over lie in the order of numbers, not of time: they are written as activated just
after they were made, as those are looked at in the order of activation.
"""

import itertools
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from seqdec.persistence import locked
from seqdec.service.database import TABLES, Database, lowest_of
from seqdec.service.logs import new_folder, read_only
from seqdec.service.postgres import BATCH, KEYS, Postgres, PostgresDatabase, SharedStore, prepare, reading
from seqdec.service.sqlite import FILE, opened
from seqdec.service.store import Store, split_number

DEPLOYMENTS, AGENT = "deployments", "agent"
T = TypeVar("T")
_PART = 1000
"""Rows written at once."""
_PRESENT = 10
"""Seconds since its last heartbeat for which a learner is at work."""


def deployment_of(folder: Path) -> str | None:
    """NAME of FOLDER/deployments/NAME/agent, where a server has a log; None for another folder."""
    return folder.parent.name if folder.parts[-3::2] == (DEPLOYMENTS, AGENT) else None


def copy(source: Path | Postgres, to: Path | Postgres) -> dict[str, int]:
    """Copy a log that is not in use from an agent's folder to PostgreSQL, or back; returns the rows of each table.

    An agent that continues the copy learns it from its beginning, or from the belief of its last `compact`.

    Raises ValueError for two places of one kind, a damaged log, and a schema with a log, FileNotFoundError,
    FileExistsError for a folder in use or that is there, OSError.
    """
    if isinstance(source, Postgres) and isinstance(to, Path):
        return _to_folder(source, to)
    if isinstance(source, Path) and isinstance(to, Postgres):
        return _to_postgres(source, to)
    remedy = "use pg_dump" if isinstance(to, Postgres) else "use OnlineAgent.backup, or copy the folder"
    raise ValueError(f"a log is copied from a folder to PostgreSQL, or back; for {source} to {to} {remedy}")


def _to_postgres(source: Path, to: Postgres) -> dict[str, int]:
    if not (source / FILE).is_file():
        raise FileNotFoundError(f"there is no {FILE} in {source}: give the folder of an OnlineAgent")
    with locked(source):
        with closing(Store(source)) as counted:  # and drops what was not committed
            decisions, sequence, batch = _own(counted)
        prepare(to)
        with read_only(source / FILE) as log, closing(PostgresDatabase(to)) as copied, copied.lasting():
            copied.execute("SELECT epoch FROM lease FOR UPDATE")  # nobody begins a log meanwhile
            if copied.execute("SELECT 1 FROM facts LIMIT 1") or copied.execute("SELECT 1 FROM decisions LIMIT 1"):
                raise ValueError(f"{to} has a log already: give the copy a schema of its own")
            found = log.execute("SELECT min(number), max(number) FROM decisions WHERE number > 0 GROUP BY number >> 28")
            blocks = [(split_number(low), split_number(high)) for low, high in found]
            if any(low.place == 0 for low, _ in blocks):
                raise ValueError(f"{source} has more decisions than a block of {to} has numbers: compact it first")
            for day in {low.day for low, _ in blocks}:
                copied.execute("SELECT make_day(?::bigint)", (day,))
            gone = decisions - sum(high.place for _, high in blocks)
            for row in [*((low.day, low.block, None) for low, _ in blocks), (-1, 0, gone)]:
                copied.execute("INSERT INTO deciders (day, block, decided) VALUES (?, ?, ?)", row)
            counts = _copied(log, copied)
            copied.execute(
                "INSERT INTO keys SELECT key, max(number), max(time) FROM decisions WHERE key IS NOT NULL AND number > "
                "0 AND time > (SELECT max(time) FROM decisions WHERE number > 0) - ? GROUP BY key",
                (KEYS,),
            )
            copied.execute("UPDATE lease SET epoch = epoch + 1, sequence = ?, batch = ?", (sequence, batch))
            named = copied.named("report")
            copied.execute("SELECT setval(?::text::regclass, (SELECT max(sequence) + 1 FROM reports))", (named,))
    return counts


def _to_folder(source: Postgres, to: Path) -> dict[str, int]:
    to.parent.mkdir(parents=True, exist_ok=True)
    with reading(source) as log, closing(SharedStore(source)) as store, new_folder(to) as part:
        at_work = f"SELECT 1 FROM lease WHERE beat > now() - interval '{_PRESENT} seconds'"
        if log.execute(at_work):
            raise ValueError(f"{source} is being learned: stop the servers, so that the copy is complete")
        with closing(opened(part)) as copied:
            copied.begin()
            counts = _copied(log, copied)
            decisions, sequence, batch = _own(store)
            waiting = enumerate(log.rows("rewards", "WHERE sequence IS NULL ORDER BY time, number"))
            numbered = ((sequence + 1 + n, row[1], batch + 1 + n // BATCH, *row[3:]) for n, row in waiting)
            copied.write("rewards", list(numbered))
            if log.facts().get("reward_after") is not None:
                copied.write("deferred", [(number, moment + 1) for number, moment in log.execute(_PENDING)])
            copied.write_fact("moved", [_last(log), decisions])
            copied.commit()
        with read_only(part / FILE) as copied:
            copied.check()
    return counts


def _own(store: Store) -> tuple[int, int, int]:
    """Decisions and last sequence, without imported ones, and the last batch."""
    imported = -lowest_of(store.inserted)
    return store.decisions - imported, store.rewards - imported, store.batches


def _last(log: Database) -> int:
    """The number after which a folder goes on."""
    ((last,),) = log.execute("SELECT coalesce(max(number), 0) FROM decisions WHERE number > 0")
    base = log.base()
    if base is None or base.number < last:
        return last
    return base.number + (split_number(base.number + 1).place == 0)  # no decision has place 0


def _copied(log: Database, to: Database) -> dict[str, int]:
    """Write the rows of all tables, but rewards that wait; returns how many there are."""
    counts = dict.fromkeys(TABLES, 0)
    for table in filter(log.has, TABLES):  # not all are in older formats
        for rows in _in_parts(log.verified(table, row) for row in log.scan(table)):
            counts[table] += len(rows)
            to.write(table, [row for row in rows if not (table == "rewards" and row[0] is None)])
            if isinstance(to, PostgresDatabase):
                to.run()  # sends them
    return counts


def _in_parts(rows: Iterable[T]) -> Iterator[list[T]]:
    found = iter(rows)
    while part := list(itertools.islice(found, _PART)):
        yield part


_PENDING = "SELECT number, time FROM decisions WHERE number > 0" + "".join(
    f" AND NOT EXISTS (SELECT FROM {table} WHERE {table}.number = decisions.number)"
    for table in ("rewards", "withdrawn", "deferred")
)
"""Active decisions without a reward."""
