"""The durable log of decisions and rewards: one SQLite file in WAL mode, written before anything is acknowledged.

    decisions   number, nonce, time (ns since 1970), context and mask (bytes), action, propensity
    rewards     sequence, number of the decision, batch in which it is learned, reward, time
    arms        id, output of the model that it has (NULL: none any more), whether it is removed
    facts       what the log belongs to, as JSON

A committed transaction survives the end of the process at any point; with `fsync` also a loss of power.
"""

import itertools
import json
import math
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqdec.online.contexts import WHOLE, unpacked
from seqdec.ope.log import Log, make_log
from seqdec.persistence import located

FORMAT = "seqdec decisions 1"
FILE = "decisions.sqlite"
_SQLITE = b"SQLite format 3\0"
"""How such a file starts."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS arms (id INTEGER PRIMARY KEY, output INTEGER, removed INTEGER);
CREATE TABLE IF NOT EXISTS decisions
    (number INTEGER PRIMARY KEY, nonce BLOB, time INTEGER, context BLOB, mask BLOB, action, propensity REAL);
CREATE TABLE IF NOT EXISTS rewards
    (sequence INTEGER PRIMARY KEY, number INTEGER UNIQUE, batch INTEGER, reward REAL, time INTEGER);
"""


class Found(NamedTuple):
    """A decision in the log."""

    nonce: bytes
    time: int
    context: bytes
    action: Any
    """id of an arm, or the bytes of a point"""
    rewarded: bool


class Entry(NamedTuple):
    """A decision to be written."""

    nonce: bytes
    context: bytes
    mask: bytes | None
    """a byte for each id of an arm; None for points of a box"""
    action: Any
    """id of an arm, or the bytes of a point"""
    propensity: float
    """NaN where it is not known"""


class Reward(NamedTuple):
    """The reward of a decision."""

    context: bytes
    action: Any
    reward: float


class Arm(NamedTuple):
    """An arm of the service."""

    output: int | None
    """of the model; None where it has none any more"""
    removed: bool


class Reader:
    """The log in a file, which is not changed, also while an agent uses it. Used by one thread at a time.

    Raises OSError where the file cannot be read, and ValueError for a file of another kind.
    """

    def __init__(self, path: Path) -> None:
        """See the class."""
        self.path, self.in_use = path, _wal(path).exists()
        # Without a WAL, SQLite would make one, which its owner might not be allowed to open.
        mode = "mode=ro" if self.in_use else "mode=ro&immutable=1"
        with self._reported():
            self._db = sqlite3.connect(f"{path.as_uri()}?{mode}", uri=True)
            tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not {"facts", "decisions", "rewards"} <= tables or "record" not in self.facts():
            self.close()
            raise ValueError(f"{path} is not the log of an OnlineAgent; its tables are {sorted(tables)}")

    def facts(self) -> dict[str, Any]:
        """What the log belongs to; empty for a new one."""
        with self._reported():
            return {name: json.loads(value) for name, value in self._db.execute("SELECT name, value FROM facts")}

    def log(self, record: np.dtype) -> Log:
        """The decisions whose reward and propensity are known. Raises ValueError where there is none."""
        with self._reported():
            rows = self._db.execute(
                "SELECT decisions.time, context, mask, action, propensity, reward FROM decisions "
                "JOIN rewards USING (number) WHERE propensity IS NOT NULL ORDER BY number"
            ).fetchall()
        if not rows:
            raise ValueError(f"{self.path} has no decision with a propensity and a reward yet")
        times, contexts, masks, actions, propensities, rewards = zip(*rows, strict=True)
        if isinstance(actions[0], bytes):
            raise ValueError("a log for off-policy evaluation has actions with an index; these are points of a box")
        size = max(map(len, masks))
        records = unpacked(b"".join(contexts), record, len(rows))
        whole = record.names == (WHOLE,)
        lead = (len(rows),) if whole else (len(rows), size)
        parts = [records[name] for name in record.names or ()]
        columns = [part.reshape(*lead, part.size // math.prod(lead)) for part in parts]
        joined = np.concatenate(columns, axis=-1)
        return make_log(
            action=actions,
            reward=rewards,
            propensity=propensities,
            timestamp=np.array(times, "datetime64[ns]"),
            context=joined if whole else None,
            action_features=None if whole else joined,
            mask=np.frombuffer(b"".join(mask.ljust(size, b"\0") for mask in masks), bool).reshape(len(rows), size),
        )

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Errors of SQLite as OSError, or ValueError for a file of another kind, naming the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise OSError(f"cannot use {self.path}: {error}") from error
        except sqlite3.ProgrammingError as error:  # a daemon thread goes on while the process ends
            raise ValueError(f"{self.path} is closed, perhaps because the process ends ({error})") from error
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"{self.path} is damaged or no log of decisions: {error}; restore it from a copy"
            ) from error


class Journal(Reader):
    """The log in `folder`, or in memory for None. Used by one thread at a time.

    Raises OSError where the file cannot be read or written, and ValueError for a file that is no such log.
    """

    def __init__(self, folder: Path | None, *, fsync: bool = False) -> None:
        """See the class."""
        self.path = Path(":memory:") if folder is None else folder / FILE
        with self._reported():
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
            self._db.executescript(_SCHEMA)
            self.decisions = self._largest("number", "decisions")
            self.batches = self._largest("batch", "rewards")
            self.rewards = self._largest("sequence", "rewards")
            self._time = max(self._largest("time", "decisions"), 0)

    def arms(self) -> dict[int, Arm]:
        """The arms by id, removed ones too."""
        with self._reported():
            rows = self._db.execute("SELECT id, output, removed FROM arms ORDER BY id")
            return {key: Arm(output, bool(removed)) for key, output, removed in rows}

    def describe(self, facts: Mapping[str, Any], arms: Mapping[int, Arm]) -> None:
        """Write facts and arms, in one transaction."""
        with self._transaction():
            pairs = [(name, json.dumps(value)) for name, value in facts.items()]
            self._db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", pairs)
            rows = [(key, arm.output, arm.removed) for key, arm in arms.items()]
            self._db.executemany("INSERT OR REPLACE INTO arms VALUES (?, ?, ?)", rows)

    def now(self) -> int:
        """The time in ns, later than that of every decision before."""
        self._time = max(time.time_ns(), self._time + 1)
        return self._time

    def add_decisions(self, entries: Sequence[Entry]) -> int:
        """Commit decisions, numbered from the number that is returned."""
        with self._transaction():
            self._insert_decisions(entries)
        self.decisions += len(entries)
        return self.decisions - len(entries) + 1

    def add_rewards(self, numbers: Sequence[int], rewards: Sequence[float]) -> None:
        """Commit rewards, which are learned as one batch."""
        with self._transaction():
            self._insert_rewards(numbers, rewards, [self.batches + 1] * len(rewards))
        self.batches, self.rewards = self.batches + 1, self.rewards + len(rewards)

    def add_history(self, entries: Sequence[Entry], rewards: Sequence[float]) -> None:
        """Commit decisions with their rewards, each a batch of its own, in one transaction."""
        count = len(entries)
        with self._transaction():
            self._insert_decisions(entries)
            numbers = range(self.decisions + 1, self.decisions + 1 + count)
            self._insert_rewards(numbers, rewards, range(self.batches + 1, self.batches + 1 + count))
        self.decisions += count
        self.batches, self.rewards = self.batches + count, self.rewards + count

    def find(self, number: int) -> Found | None:
        """The decision of that number, if there is one."""
        with self._reported():
            row = self._db.execute(
                "SELECT nonce, decisions.time, context, action, sequence FROM decisions "
                "LEFT JOIN rewards USING (number) WHERE number = ?",
                (number,),
            ).fetchone()
        return None if row is None else Found(row[0], row[1], row[2], row[3], row[4] is not None)

    def batches_after(self, batch: int) -> Iterator[list[Reward]]:
        """The rewards of each later batch, in the order in which they were given."""
        with self._reported():
            found = self._db.execute(
                "SELECT batch, context, action, reward FROM rewards JOIN decisions USING (number) "
                "WHERE batch > ? ORDER BY sequence",
                (batch,),
            )
            for _, rows in itertools.groupby(found, lambda row: row[0]):
                yield [Reward(*row[1:]) for row in rows]

    def flush(self) -> None:
        """Write all that is committed from the WAL to the database, to last even if the power fails."""
        with self._reported():
            self._db.execute("PRAGMA wal_checkpoint(FULL)")

    def _insert_decisions(self, entries: Sequence[Entry]) -> None:
        rows = [(self.decisions + index, self.now(), *entry) for index, entry in enumerate(entries, 1)]
        self._db.executemany(
            "INSERT INTO decisions (number, time, nonce, context, mask, action, propensity) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            rows,
        )

    def _insert_rewards(self, numbers: Iterable[int], rewards: Iterable[float], batches: Iterable[int]) -> None:
        rows = [(*row, time.time_ns()) for row in zip(numbers, batches, rewards, strict=True)]
        self._db.executemany("INSERT INTO rewards (number, batch, reward, time) VALUES (?, ?, ?, ?)", rows)

    def _largest(self, column: str, table: str) -> int:
        return self._db.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._reported():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise


def is_database(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of an agent's folder, or of a database such as the one in it."""
    place = located(path)
    if place.is_dir():
        return (place / FILE).is_file()
    with place.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def read_log(path: str | os.PathLike[str]) -> Log:
    """The decisions of an `OnlineAgent` with their rewards, for off-policy evaluation, also while it is in use.

    Args:
        path: of the agent's folder, or of the database in it or a copy of that. Nothing in it is changed.

    Raises:
        FileNotFoundError: there is no log.
        ValueError: it is damaged, holds no reward yet, or its actions are points of a box.
    """
    place = located(path)
    file = place / FILE if place.is_dir() else place
    if not file.is_file():
        raise FileNotFoundError(f"there is no {FILE} in {place}, and no file of that name")
    while True:
        reader = Reader(file)
        try:
            log = reader.log(record_from(reader.facts()["record"]))
        finally:
            reader.close()
        if reader.in_use or not _wal(file).exists():
            return log  # else an agent has opened it meanwhile


def _wal(path: Path) -> Path:
    """The file beside a database that exists while it is in use, or after a crash."""
    return path.with_name(f"{path.name}-wal")


def record_from(described: Any) -> np.dtype:
    """The record that `described_record` described."""
    return np.dtype([(name, kind, tuple(shape)) for name, kind, shape in described])


def described_record(record: np.dtype) -> list[Any]:
    """A record as JSON values."""
    fields: Any = record.fields
    return [[name, kind.base.str, list(kind.shape)] for name, (kind, *_) in fields.items()]
