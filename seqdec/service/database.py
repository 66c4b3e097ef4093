"""The tables of a log and its rows with checksums, whatever database holds them.

    decisions   number, time (ns since 1970), nonce, context (`Contexts.pack`) and mask (bytes), action, propensity, key
                of the client (NULL: none), probabilities of all arms (float32, NULL: unknown), and those of the agent
                where it imitated another rule
    rewards     sequence, number of the decision, batch in which it is learned, reward (a number or a JSON object),
                time, source: "reported", "default", "collected" (combined reports) or "history" (imported)
    reports     sequence, number of the decision, reward, time, digest of the client's key (NULL: none): combined later
    withdrawn   number of a decision that is never learned, time
    deferred    number of a decision that was made inactive, time of its activation (NULL: not yet)
    units       number of a decision, digest of its unit, whether that is in the control group, share of its group
    arms        id, output of the model (NULL: none any more), whether it is removed
    items       number, id (as JSON), features (bytes), number of the change that removes it, from 1 (0: none)
    facts       format, UUID ("log"), what the log belongs to, and the names of the arms by id, as JSON
    base        place, part of the state of an agent (bytes)

Imported rows have numbers below 0, equal to their sequence and batch, and count once the fact "inserted" names them;
items and removals count up to the fact "catalog". A decision whose context was erased has no nonce, context, mask, key,
probabilities and unit. Each row ends with a CRC-32 of its other columns. A committed
transaction survives the end of the process at any point; with `fsync` also a loss of power.

Decisions up to that of the fact "base" may be removed, with all that belongs to them: the log is learned from the state
in the table base on, whose parts count once the fact names their places.
"""

import json
import sys
import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from seqdec.core import Schema
from seqdec.persistence import check_format

FORMAT = "seqdec decisions 5"
_OPENED = {FORMAT, "seqdec decisions 4"}
"""Formats that are read; opening makes them the present one."""
TABLES = {
    "facts": ("name TEXT PRIMARY KEY", "value TEXT"),
    "arms": ("id INTEGER PRIMARY KEY", "output INTEGER", "removed INTEGER"),
    "items": ("number INTEGER PRIMARY KEY", "id TEXT", "features BLOB", "removed INTEGER"),
    "decisions": (
        "number INTEGER PRIMARY KEY", "time INTEGER", "nonce BLOB", "context BLOB", "mask BLOB", "action",
        "propensity REAL", "key TEXT", "logging BLOB", "shadow BLOB",
    ),
    "rewards": (
        "sequence INTEGER PRIMARY KEY", "number INTEGER UNIQUE", "batch INTEGER", "reward REAL", "time INTEGER",
        "source TEXT",
    ),
    "reports": ("sequence INTEGER PRIMARY KEY", "number INTEGER", "reward REAL", "time INTEGER", "digest BLOB"),
    "withdrawn": ("number INTEGER PRIMARY KEY", "time INTEGER"),
    "deferred": ("number INTEGER PRIMARY KEY", "activated INTEGER"),
    "base": ("place INTEGER PRIMARY KEY", "content BLOB"),
    "units": ("number INTEGER PRIMARY KEY", "digest BLOB", "control INTEGER", "share REAL"),
}  # fmt: skip
COLUMNS = {
    table: ", ".join(f"{table}.{column.split()[0]}" for column in (*columns, "checksum"))
    for table, columns in TABLES.items()
}
REPLACED = {"facts", "arms", "items", "deferred", "base"}
"""Tables whose rows change."""
WIDTHS = {table: len(columns) + 1 for table, columns in TABLES.items()}
_WITH_DECISION = f"SELECT {COLUMNS['rewards']}, {COLUMNS['decisions']} FROM rewards LEFT JOIN decisions USING (number)"


class DamagedError(ValueError):
    """The log is not as it was written."""


class Unit(NamedTuple):
    """Whose decision it is, such as a user's: what a control group is drawn of."""

    digest: bytes
    is_control: bool
    share: float
    """of the units, in this group"""


class Inserted(NamedTuple):
    """An imported log."""

    batch: int
    """of its first row; each row is a batch"""
    number: int
    """of its first row, the lowest, below 0"""
    rows: int

    @property
    def last(self) -> int:
        """Batch of its last row."""
        return self.batch + self.rows - 1


class Base(NamedTuple):
    """The belief from which the log is learned; decisions that it has learned may be removed."""

    batch: int
    """the last one learned"""
    sequence: int
    """of the last reward in it, but for imported ones"""
    checksum: int
    """of the last reward in it"""
    number: int
    """of the last decision that may be removed, but for imported ones"""
    before: int
    """time before which decisions may be removed"""
    imported: bool
    """whether imported ones may be"""
    outputs: int
    """of the model"""
    leaves: dict[str, Any]
    """shape and dtype by name, in the order of their bytes"""
    places: tuple[int, int]
    """first and last part"""


class Arm(NamedTuple):
    """An arm of the service."""

    name: str | int
    output: int | None
    """of the model; None: none any more"""
    removed: bool


def checksum(row: Sequence[Any]) -> int:
    """CRC-32 of a row's values as SQLite returns them, without the sign of 0.0."""
    texts = [
        value if type(value) is bytes else repr(value + 0.0 if type(value) is float else value).encode()
        for value in row
    ]
    return zlib.crc32(b"".join(texts))


def lowest_of(inserted: Sequence[Inserted]) -> int:
    """The lowest number outside unfinished imports."""
    return inserted[-1].number if inserted else 0


class Database:
    """A log in a connection to a database, with checked rows. One thread at a time.

    Raises OSError where it cannot be used, ValueError for a database of another kind or a damaged one.
    """

    path: Any
    """where it is, for messages"""
    newest = "number DESC"
    """the latest decisions first"""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Rows of a statement in the SQL that all databases have, with ? for parameters."""
        raise NotImplementedError

    def among(self, column: str, values: Collection[int]) -> tuple[str, Sequence[Any]]:
        """A condition, and its parameters."""
        raise NotImplementedError

    def write(self, table: str, rows: Sequence[Sequence[Any]], *, replaces: bool = False) -> None:
        """Insert rows, given without their checksums; `replaces`: in place of others, as always in `REPLACED`."""
        raise NotImplementedError

    def scan(self, table: str) -> Iterator[Sequence[Any]]:
        """Rows of a table with their checksums, not all at once."""
        raise NotImplementedError

    def has(self, table: str) -> bool:
        raise NotImplementedError

    def begin(self) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def rollback(self) -> None:
        """End a transaction, if there is one, without what it wrote."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def check_place(self) -> None:
        """Raise FileNotFoundError while the folder does not hold the open file."""

    def content(self) -> bytes | None:
        """All of it, where no other connection could read it."""
        return None

    def flush(self) -> None:
        """Make all commits survive a loss of power."""

    def shrink(self, pages: int) -> bool:
        """Take at most so many free pages from the file; whether there are more. A file of format 4 keeps them."""
        return False

    def settle_erasure(self) -> bool:
        """Write the WAL back and empty it; False where a reader in another process holds it."""
        return True

    def rows(self, table: str, condition: str = "", parameters: Sequence[Any] = ()) -> list[Sequence[Any]]:
        found = self.execute(f"SELECT {COLUMNS[table]} FROM {table} {condition}", parameters)
        return [self.verified(table, row) for row in found]

    def rewarded(self, condition: str, parameters: Sequence[Any]) -> list[tuple[Sequence[Any], Sequence[Any]]]:
        width, pairs = WIDTHS["rewards"], []
        for row in self.execute(f"{_WITH_DECISION} {condition}", parameters):
            reward = self.verified("rewards", row[:width])
            pairs.append((reward, self.verified("decisions", (reward[1], *row[width + 1 :]))))
        return pairs

    def batches(self, after: int, last: int) -> list[tuple[Sequence[Any], Sequence[Any]]]:
        """Rewards of the batches after one, up to the last, in order, with their decisions."""
        return self.rewarded("WHERE batch > ? AND batch <= ? ORDER BY batch, sequence", (after, last))

    def verified(self, table: str, row: Sequence[Any]) -> Sequence[Any]:
        """A row without its checksum. Raises ValueError for a wrong one."""
        if checksum(row[:-1]) != row[-1]:
            raise DamagedError(
                f"{self.path} is damaged: the row {row[0]!r} of its table {table} does not have its checksum; "
                "restore it from a copy"
            )
        return row[:-1]

    def described(self) -> bool:
        """Whether the file says what it belongs to. Raises ValueError for another format."""
        tables = self.has("facts")
        texts = dict(self.execute("SELECT name, value FROM facts")) if tables else {}
        if "format" in texts:
            said = {name: json.loads(texts[name]) for name in ("format", "versions") if name in texts}
            if said["format"] not in _OPENED:
                check_format(self.path, said, FORMAT)
        return "record" in texts

    def facts(self) -> dict[str, Any]:
        return {name: json.loads(value) for name, value in self.rows("facts")} if self.described() else {}

    def inserted(self) -> list[Inserted]:
        """Imported logs in the order of learning."""
        return [Inserted(*one) for one in self._fact("inserted", [])]

    def base(self) -> Base | None:
        """None: no decision was removed."""
        found = self._fact("base", None)
        return None if found is None else Base(*found)

    def moved(self) -> tuple[int, int]:
        """Last number that several processes gave before the log was copied from theirs, and decisions up to it."""
        number, decisions = self._fact("moved", (0, 0))
        return number, decisions

    def arms(self) -> dict[int, Arm]:
        """By id."""
        rows = self.rows("arms", "ORDER BY id")
        names = self._fact("arms", [key for key, *_ in rows])
        return {key: Arm(name, output, bool(removed)) for name, (key, output, removed) in zip(names, rows, strict=True)}

    def taught(self) -> Schema:
        """What the numbers of imported logs stand for."""
        names, columns, encoder = self._fact("taught", Schema())
        return Schema(names and tuple(names), columns and tuple(columns), encoder)

    def catalog(self) -> tuple[int, int]:
        """Number of items ever added, and of the last change."""
        count, change = self._fact("catalog", (sys.maxsize, 1))
        return count, change

    def items(self) -> list[tuple[int, str, bytes, bool]]:
        """Number, id, features and whether removed."""
        if not self.has("items"):
            return []
        count, change = self.catalog()
        rows = self.rows("items", "WHERE number < ? ORDER BY number", (count,))
        return [(number, name, features, 0 < removed <= change) for number, name, features, removed in rows]

    def units(self) -> dict[int, Unit]:
        """By number of the decision, where there was a control group."""
        if not self.has("units"):
            return {}
        return {number: Unit(digest, bool(control), share) for number, digest, control, share in self.rows("units")}

    def check(self) -> None:
        """Read the whole log. Raises ValueError for a changed row or index, and for a row that is gone."""
        for table in filter(self.has, TABLES):  # not all are in older formats
            for row in self.scan(table):
                self.verified(table, row)
        self.check_gaps()
        if base := self.base():
            self.content_of(base)

    def check_gaps(self) -> None:
        """Raise ValueError where rows are gone."""
        base = self.base()
        before, _ = self.moved()
        after = (max(base.number, before), base.sequence) if base else (before, 0)  # others may have been removed
        for table, key, first in zip(("decisions", "rewards"), ("number", "sequence"), after, strict=True):
            counted = f"SELECT count(*), coalesce(max({key}) - ?, 0) FROM {table} WHERE {key} > ?"
            if len(set(*self.execute(counted, (first, first)))) > 1:
                raise self._lacks_rows(table)

    def content_of(self, base: Base) -> bytes:
        """The bytes of a base. Raises ValueError where parts are missing."""
        rows = self.rows("base", "WHERE place BETWEEN ? AND ? ORDER BY place", base.places)
        if len(rows) != 1 + base.places[1] - base.places[0]:
            raise self._lacks_rows("base")
        return b"".join(content for _, content in rows)

    def write_fact(self, name: str, value: Any) -> None:
        self.write("facts", [(name, json.dumps(value))])

    def _lacks_rows(self, table: str) -> DamagedError:
        return DamagedError(f"{self.path} is damaged: its table {table} lacks rows; restore it from a copy")

    def _fact(self, name: str, default: Any) -> Any:
        rows = self.rows("facts", "WHERE name = ?", (name,))
        return json.loads(rows[0][1]) if rows else default
