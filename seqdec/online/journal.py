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
        self._time = 0
        self.recover()

    def arms(self) -> dict[int, Arm]:
        """The arms by id, removed ones too."""
        with self._reported():
            rows = self._db.execute("SELECT id, output, removed FROM arms ORDER BY id")
            return {key: Arm(output, bool(removed)) for key, output, removed in rows}

    def describe(self, facts: Mapping[str, Any], arms: Mapping[int, Arm]) -> None:
        """Write facts and arms, in one transaction."""
        pairs = [(name, json.dumps(value)) for name, value in facts.items()]
        rows = [(key, arm.output, arm.removed) for key, arm in arms.items()]
        self._commit(
            ("INSERT OR REPLACE INTO facts VALUES (?, ?)", pairs),
            ("INSERT OR REPLACE INTO arms VALUES (?, ?, ?)", rows),
        )

    def now(self) -> int:
        """The time in ns, later than that of every decision before."""
        self._time = max(time.time_ns(), self._time + 1)
        return self._time

    def add_decisions(self, entries: Sequence[Entry]) -> int:
        """Commit decisions, numbered from the number that is returned."""
        self._commit(self._decisions(entries))
        return self.decisions - len(entries) + 1

    def add_rewards(self, numbers: Sequence[int], rewards: Sequence[float]) -> None:
        """Commit rewards, which are learned as one batch."""
        self._commit(self._rewards(numbers, rewards, [self.batches + 1] * len(rewards)))

    def add_history(self, entries: Sequence[Entry], rewards: Sequence[float]) -> None:
        """Commit decisions with their rewards, each a batch of its own, in one transaction."""
        numbers, batches = (range(last + 1, last + 1 + len(entries)) for last in (self.decisions, self.batches))
        self._commit(self._decisions(entries), self._rewards(numbers, rewards, batches))

    def find(self, number: int) -> Found | None:
        """The decision of that number, if there is one."""
        with self._reported():
            row = self._db.execute(
                "SELECT nonce, decisions.time, context, action, sequence FROM decisions "
                "LEFT JOIN rewards USING (number) WHERE number = ?",
                (number,),
            ).fetchone()
        return None if row is None else Found(row[0], row[1], row[2], row[3], row[4] is not None)

    def batches_after(self, batch: int) -> Iterator[tuple[int, list[Reward]]]:
        """Number and rewards of each later batch, in the order in which they were given."""
        with self._reported():
            found = self._db.execute(
                "SELECT batch, context, action, reward FROM rewards JOIN decisions USING (number) "
                "WHERE batch > ? ORDER BY sequence",
                (batch,),
            )
            for number, rows in itertools.groupby(found, lambda row: row[0]):
                yield number, [Reward(*row[1:]) for row in rows]

    def flush(self) -> None:
        """Make all that is committed last even if the power fails, without waiting for readers."""
        with self._reported():
            _, written, moved = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if moved < written:  # a reader needs the database as it is
            with _wal(self.path).open("rb+") as file:
                os.fsync(file.fileno())

    def recover(self) -> None:
        """Undo what was not committed, and count what was; after an exception at any point of any method."""
        with self._reported():
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self.decisions, latest = self._last("number, time", "decisions", "number")
            self.rewards, self.batches = self._last("sequence, batch", "rewards", "sequence")
        self._time = max(self._time, latest)

    def _decisions(self, entries: Sequence[Entry]) -> tuple[str, list[Any]]:
        """A statement that writes decisions, and its rows."""
        return (
            "INSERT INTO decisions (number, time, nonce, context, mask, action, propensity) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(self.decisions + index, self.now(), *entry) for index, entry in enumerate(entries, 1)],
        )

    def _rewards(
        self, numbers: Iterable[int], rewards: Iterable[float], batches: Iterable[int]
    ) -> tuple[str, list[Any]]:
        """A statement that writes rewards, and its rows."""
        return (
            "INSERT INTO rewards (number, batch, reward, time) VALUES (?, ?, ?, ?)",
            [(*row, time.time_ns()) for row in zip(numbers, batches, rewards, strict=True)],
        )

    def _last(self, columns: str, table: str, key: str) -> Any:
        """Two columns of the last row of a table; zeros where it is empty."""
        return self._db.execute(f"SELECT {columns} FROM {table} ORDER BY {key} DESC LIMIT 1").fetchone() or (0, 0)

    def _commit(self, *statements: tuple[str, Sequence[Any]]) -> None:
        """Run statements with their rows, in one transaction."""
        with self._reported():
            try:
                self._db.execute("BEGIN IMMEDIATE")
                for statement, rows in statements:
                    self._db.executemany(statement, rows)
                self._db.execute("COMMIT")
            finally:
                self.recover()


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
