"""Where `minimize` keeps a search: in a file of one process or of several, or in PostgreSQL."""

import contextlib
import math
import os
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from seqdec.persistence import claim, is_claimed, located, locked_file

_PATIENCE = 600.0
"""Seconds to wait for a file that a process may not share, and for a database that does not answer."""
_PAUSE = 1.0
"""Seconds between attempts to reach a database."""
_SCHEMES = ("postgresql://", "postgres://")
_DEFAULTS = {"application_name": "seqdec", "connect_timeout": "10", "keepalives_idle": "60"}
_SESSION = "; ".join(
    f"SET {name} = {value}"
    for name, value in {
        "statement_timeout": 0,
        "idle_session_timeout": 0,
        "idle_in_transaction_session_timeout": 0,
        "tcp_keepalives_idle": 60,
        "tcp_keepalives_interval": 10,
        "tcp_keepalives_count": 6,
    }.items()
)
"""A session lasts as long as its process, and not longer where the process's machine has gone."""
_LOCK = "hashtextextended(%s, 0)"
_READ = "SELECT content FROM seqdec_studies WHERE name = %s"
_WRITE = "INSERT INTO seqdec_studies VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET content = excluded.content"


class Study(NamedTuple):
    """A place for one search."""

    name: str
    """for messages"""
    path: Path | None
    """of its file; None: it is not kept"""
    exclusive: Callable[[], contextlib.AbstractContextManager[Any]]
    """keeps other processes from it: the file is the newest, and kept at the end. May raise LostError"""
    is_alive: Callable[[str], bool]
    """whether the process of a worker lives; within `exclusive`"""
    worker: str = ""
    """of this process; empty: the search is not shared"""


class LostError(ConnectionError):
    """It is unknown whether anything was kept since `exclusive` began."""


def opened(checkpoint: Any, shared: bool, held: contextlib.ExitStack) -> Study:
    """The study of a path or URL until the end of `held`.

    Raises ValueError, TypeError, OSError, FileExistsError where others use the file and do not share it.
    """
    if isinstance(checkpoint, str) and checkpoint.startswith(_SCHEMES):
        folder = held.enter_context(tempfile.TemporaryDirectory(prefix="seqdec"))
        row = _Row(checkpoint, Path(folder, "study.safetensors"))
        held.callback(row.close)
        return Study(row.shown, row.file, row.exclusive, row.is_alive, row.worker)
    if checkpoint is None:
        if shared:
            raise ValueError("shared=True needs a checkpoint, the file or URL that the processes share")
        return Study("", None, contextlib.nullcontext, lambda worker: False)
    path = located(checkpoint)  # `fun` may change the working directory
    try:
        with locked_file(path, _PATIENCE if shared else 0.0, stays=shared) as lock:
            if not shared:
                held.enter_context(lock.pop_all())
    except FileExistsError as error:
        raise FileExistsError(f"{error}, or pass shared=True in each process of one search") from None

    def is_alive(worker: str) -> bool:
        return is_claimed(path, worker)

    if shared:
        return Study(str(path), path, lambda: locked_file(path, math.inf, stays=True), is_alive, claim(path, held))
    return Study(str(path), path, contextlib.nullcontext, is_alive)


class _Row:
    """A study in PostgreSQL: a row, of which `file` is a copy, and a session whose lock shows that its worker lives."""

    def __init__(self, url: str, file: Path) -> None:
        try:
            import psycopg
            import psycopg.conninfo
        except ImportError:
            raise ImportError("a checkpoint in PostgreSQL needs psycopg: pip install 'seqdec[postgres]'") from None

        self.file, self.worker, self._psycopg = file, uuid.uuid4().hex, psycopg
        place, _, self._study = url.rpartition("#")
        try:
            self._settings: dict[str, Any] = _DEFAULTS | psycopg.conninfo.conninfo_to_dict(place)
        except psycopg.Error:
            place = ""
        if not place or not self._study or "@" in self._study:
            raise ValueError(
                "a checkpoint in PostgreSQL must be a URL with the name of a study, as "
                "postgresql://user:password@host:port/database#study, whose special characters are written as %XX"
            )
        database = self._settings.get("dbname", os.environ.get("PGDATABASE", ""))
        self.shown = f"{self._study!r} in the PostgreSQL database {database!r}"
        try:
            self._connection = self._connected()
        except psycopg.Error as error:
            raise ConnectionError(f"cannot connect to checkpoint {self.shown}: {error}") from error

    def _connected(self) -> Any:
        connection = self._psycopg.connect(**self._settings, autocommit=True)
        connection.isolation_level = self._psycopg.IsolationLevel.READ_COMMITTED
        connection.execute(_SESSION)
        connection.execute(f"SELECT pg_advisory_lock({_LOCK})", [self.worker])
        return connection

    def _is_lost(self) -> bool:
        try:
            self._connection.execute("SELECT 1")
        except self._psycopg.OperationalError:
            return True
        return False

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """As of `Study`."""
        end = time.monotonic() + _PATIENCE
        while self._is_lost():
            self.close()
            if time.monotonic() > end:
                raise OSError(f"checkpoint {self.shown} was out of reach for {_PATIENCE:g} seconds")
            time.sleep(_PAUSE)
            with contextlib.suppress(self._psycopg.OperationalError):
                self._connection = self._connected()
        try:
            with self._connection.transaction():
                self._connection.execute(f"SELECT pg_advisory_xact_lock({_LOCK})", [f"seqdec {self._study}"])
                if self._connection.execute("SELECT to_regclass('seqdec_studies')").fetchone() == (None,):
                    self._connection.execute("CREATE TABLE seqdec_studies (name text PRIMARY KEY, content bytea)")
                found = self._connection.execute(_READ, [self._study]).fetchone()
                kept = None if found is None else found[0]
                if kept is None:
                    self.file.unlink(missing_ok=True)
                elif not self.file.exists() or kept != self.file.read_bytes():
                    self.file.write_bytes(kept)
                yield
                if self.file.exists() and (content := self.file.read_bytes()) != kept:
                    self._connection.execute(_WRITE, [self._study, content])
        except self._psycopg.OperationalError as error:
            raise LostError(f"the connection to checkpoint {self.shown} was lost: {error}") from error
        except self._psycopg.Error as error:
            raise OSError(f"cannot use the table seqdec_studies of checkpoint {self.shown}: {error}") from error

    def is_alive(self, worker: str) -> bool:
        """As of `Study`."""
        found = self._connection.execute(f"SELECT pg_try_advisory_xact_lock({_LOCK})", [worker]).fetchone()
        return found == (False,)

    def close(self) -> None:
        """End the session."""
        with contextlib.suppress(self._psycopg.Error):
            self._connection.close()
