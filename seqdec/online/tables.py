"""The durable log of decisions and rewards: one SQLite file in WAL mode, written before anything is acknowledged.

    decisions   number, nonce, time (ns since 1970), context (`seqdec.online.contexts.packed`) and mask (bytes), action,
                propensity
    rewards     sequence, number of the decision, batch in which it is learned, reward (a number, or named ones as a
                JSON object), time, source: "reported", "default", "collected" (put together from reports) or "history"
                (of another log)
    reports     sequence, number of the decision, reward, time: what is put together later
                Rows of other logs have numbers below 0, which are sequence and batch too. What counts is in the fact
                "inserted", a log after the other: the batch that its first row is learned as, its lowest number, and
                its rows, which are learned one after the other
    arms        id, output of the model that it has (NULL: none any more), whether it is removed
    items       number, id (as JSON), features (bytes), number of the change that removes it, from 1 (0: none): of a
                catalog; what counts is in the fact "catalog": how many items, and the last change
    facts       what the log belongs to, as JSON

The last column of each table is a CRC-32 of the others, so that a damaged row is noticed when it is read.
A committed transaction survives the end of the process at any point; with `fsync` also a loss of power.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORMAT = "seqdec decisions 2"
FILE = "decisions.sqlite"
REPORTED, DEFAULT, COLLECTED, HISTORY = "reported", "default", "collected", "history"
TABLES = {
    "facts": ("name TEXT PRIMARY KEY", "value TEXT"),
    "arms": ("id INTEGER PRIMARY KEY", "output INTEGER", "removed INTEGER"),
    "items": ("number INTEGER PRIMARY KEY", "id TEXT", "features BLOB", "removed INTEGER"),
    "decisions": (
        "number INTEGER PRIMARY KEY", "time INTEGER", "nonce BLOB", "context BLOB", "mask BLOB", "action",
        "propensity REAL",
    ),
    "rewards": (
        "sequence INTEGER PRIMARY KEY", "number INTEGER UNIQUE", "batch INTEGER", "reward REAL", "time INTEGER",
        "source TEXT",
    ),
    "reports": ("sequence INTEGER PRIMARY KEY", "number INTEGER", "reward REAL", "time INTEGER"),
}  # fmt: skip
COLUMNS = {
    table: ", ".join(f"{table}.{column.split()[0]}" for column in (*columns, "checksum"))
    for table, columns in TABLES.items()
}
WIDTHS = {table: len(columns) + 1 for table, columns in TABLES.items()}
SCHEMA = (
    "".join(
        f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(columns)}, checksum INTEGER);"
        for table, columns in TABLES.items()
    )
    + "CREATE INDEX IF NOT EXISTS reports_of ON reports (number);"
    + "CREATE INDEX IF NOT EXISTS rewards_of ON rewards (batch);"
    + "CREATE INDEX IF NOT EXISTS removals_of ON items (removed);"
)


BOTH = f"SELECT {COLUMNS['rewards']}, {COLUMNS['decisions']} FROM rewards LEFT JOIN decisions USING (number)"


class Found(NamedTuple):
    """A decision in the log."""

    nonce: bytes
    time: int
    context: bytes
    action: Any
    """id of an arm, or the bytes of a point"""
    source: str | None
    """of its reward; None where it has none yet"""


class Entry(NamedTuple):
    """A decision to be written."""

    nonce: bytes
    context: bytes
    mask: bytes | None
    """a byte for each id of an arm, or the items packed (`seqdec.online.catalog`); None for points of a box"""
    action: Any
    """id of an arm, number of an item, or the bytes of a point"""
    propensity: float
    """NaN where it is not known"""


class Reward(NamedTuple):
    """The reward of a decision."""

    context: bytes
    action: Any
    reward: float | str
    """as `seqdec.online.rewards.encoded`"""


class Inserted(NamedTuple):
    """The rows of another log in this one."""

    batch: int
    """as which the first row is learned"""
    number: int
    """the lowest, below 0, of the first row"""
    rows: int
    """each a batch of its own"""

    @property
    def last(self) -> int:
        """The batch as which the last row is learned."""
        return self.batch + self.rows - 1


class Arm(NamedTuple):
    """An arm of the service."""

    output: int | None
    """of the model; None where it has none any more"""
    removed: bool


def checksum(row: Sequence[Any]) -> int:
    """Of the values of a row, as SQLite gives them back: it does not keep the sign of 0.0."""
    parts = [
        value if isinstance(value, bytes) else repr(value + 0.0 if isinstance(value, float) else value).encode()
        for value in row
    ]
    return zlib.crc32(b"".join(parts))


def wal(path: Path) -> Path:
    """The file beside a database that exists while it is in use, or after a crash."""
    return path.with_name(f"{path.name}-wal")


def record_from(described: Any) -> np.dtype:
    """The record that `described_record` described."""
    return np.dtype([(name, kind, tuple(shape)) for name, kind, shape in described])


def described_record(record: np.dtype) -> list[Any]:
    """A record as JSON values."""
    fields: Any = record.fields
    return [[name, kind.base.str, list(kind.shape)] for name, (kind, *_) in fields.items()]
