"""A log in SQLite: one file in WAL mode, or memory."""

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from seqdec.service.database import COLUMNS, REPLACED, TABLES, WIDTHS, DamagedError, Database, checksum

FILE = "decisions.sqlite"
_SCHEMA = [
    *(f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(parts)}, checksum INTEGER)" for name, parts in TABLES.items()),
    "CREATE INDEX IF NOT EXISTS reports_of ON reports (number)",
    "CREATE INDEX IF NOT EXISTS rewards_of ON rewards (batch)",
    "CREATE INDEX IF NOT EXISTS removals_of ON items (removed)",
    "CREATE INDEX IF NOT EXISTS activations_of ON deferred (activated) WHERE activated IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS keys_of ON decisions (key) WHERE key IS NOT NULL",
]  # fmt: skip


def wal(path: Path) -> Path:
    """The file beside a database in use, or after a crash."""
    return path.with_name(f"{path.name}-wal")


class SQLite(Database):
    """The log in a file, or in memory."""

    def __init__(self, path: Path, source: str = ":memory:", **options: Any) -> None:
        self.path: Path = path
        self._in_memory = source == ":memory:"
        self._file: tuple[int, int] | None = None
        self.connection: sqlite3.Connection = self._named(lambda: sqlite3.connect(source, **options))
        self.connection.text_factory = lambda text: text.decode(errors="replace")  # for the checksum to notice

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        self.check_place()
        try:
            return self.connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            raise self._error(error) from error

    def among(self, column: str, values: Collection[int]) -> tuple[str, Sequence[Any]]:
        return f"{column} IN ({', '.join('?' * len(values))})", tuple(values)

    def write(self, table: str, rows: Sequence[Sequence[Any]], *, replaces: bool = False) -> None:
        self.check_place()
        verb = "INSERT OR REPLACE" if replaces or table in REPLACED else "INSERT"
        statement = f"{verb} INTO {table} VALUES ({', '.join('?' * WIDTHS[table])})"
        try:
            for row in rows:
                self.connection.execute(statement, (*row, checksum(row)))
        except sqlite3.Error as error:
            raise self._error(error) from error

    def scan(self, table: str) -> Iterator[Sequence[Any]]:
        return self._named(lambda: self.connection.execute(f"SELECT {COLUMNS[table]} FROM {table}"))

    def has(self, table: str) -> bool:
        return bool(self.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)))

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        self.check_place()
        self._named(self.connection.rollback)

    def check(self) -> None:
        for (fault,) in self.execute("PRAGMA integrity_check(1)"):
            if fault != "ok":
                raise DamagedError(f"{self.path} is damaged: {fault}; restore it from a copy")
        super().check()

    def content(self) -> bytes | None:
        return self._named(self.connection.serialize) if self._in_memory else None

    def flush(self) -> None:
        self.check_place()
        if wal(self.path).exists():  # not on file systems without shared memory
            with wal(self.path).open("rb+") as file:
                os.fsync(file.fileno())

    def shrink(self, pages: int) -> bool:
        ((before,),) = self.execute("PRAGMA freelist_count")
        self.execute(f"PRAGMA incremental_vacuum({pages})")
        ((after,),) = self.execute("PRAGMA freelist_count")
        return 0 < after < before

    def settle_erasure(self) -> bool:
        self.execute("PRAGMA busy_timeout = 0")
        ((busy, *_),) = self.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.execute("PRAGMA busy_timeout = 5000")
        return not busy

    def stay(self) -> None:
        self._file = _identity(self.path)

    def check_place(self) -> None:
        """Raise FileNotFoundError while the folder does not hold the open file."""
        if self._file is not None and _identity(self.path) != self._file:
            raise FileNotFoundError(
                f"the folder {self.path.parent} of this agent was removed, renamed or replaced while it was in use; "
                "nothing was written: put it back in its place to go on, or close this agent and make one with the "
                "folder where it is"
            )

    def close(self) -> None:
        self.connection.close()

    def _named(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _error(self, error: sqlite3.Error) -> Exception:
        if isinstance(error, sqlite3.OperationalError):
            return OSError(f"cannot use {self.path}: {error}")
        if isinstance(error, sqlite3.ProgrammingError):  # a daemon thread goes on while the process ends
            return RuntimeError(f"{self.path} is closed, perhaps because the process ends ({error})")
        return DamagedError(f"{self.path} is damaged or no log of decisions: {error}; restore it from a copy")


def opened(folder: Path | None, *, fsync: bool = False) -> SQLite:
    """The log in a folder, made if it is not there, or in memory."""
    path = Path(":memory:") if folder is None else folder / FILE
    if folder is not None and not path.exists():
        with suppress(OSError):  # as SQLite will say
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o600))  # -wal and -shm get this mode too
    database = SQLite(path, str(path), isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")  # of a new file
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
        database.execute("PRAGMA secure_delete = ON")  # what `erase` leaves is zeros
        database.described()
        for statement in _SCHEMA:
            database.execute(statement)
    except BaseException:
        database.close()
        raise
    return database


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
