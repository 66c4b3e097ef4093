"""Where beliefs are kept: in a file beside the log or, for all processes with one log, in a table of its database."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from seqdec.core import Agent
from seqdec.service.postgres import PostgresDatabase, SharedStore
from seqdec.service.store import FencedError, Store
from seqdec.states import load, packed, save, unpacked

SNAPSHOT = "state.safetensors"
_KEPT = 3
"""Published beliefs."""


class Snapshots(Protocol):
    """A place for the last snapshot: a dict of "state", "batch", "generation" and "log" (what it is known by).

    check_none: raises ValueError where there is one.
    write: replace it; what it has learned is on the disk before.
    read: it, if any; `like`: another one. Raises ValueError for one of another agent, or a damaged one.
    """

    path: Any

    def check_none(self) -> None: ...
    def write(self, marked: Mapping[str, Any], agent: Agent) -> None: ...
    def read(self, like: Mapping[str, Any]) -> Any: ...


class File:
    """A file in the folder of the log."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.path, self._store = folder / SNAPSHOT, store

    def check_none(self) -> None:
        if self.path.is_file():
            raise ValueError(
                f"{self.path} belongs to a log, but {self._store.path} is empty: restore it from a copy, or "
                "delete the snapshot to begin a new log"
            )

    def write(self, marked: Mapping[str, Any], agent: Agent) -> None:
        self._store.flush()  # a snapshot must not outlast what it has learned
        is_new = not self.path.exists()
        save(self.path, marked, agent)
        if is_new:
            self.path.chmod(0o600)

    def read(self, like: Mapping[str, Any]) -> Any:
        return load(self.path, like) if self.path.is_file() else None


class Published:
    """The last ones of the process that learns, for all to follow; written beside other calls."""

    def __init__(self, store: SharedStore) -> None:
        self.path, self._store = store.path, store
        self._database = PostgresDatabase(store.database.path)
        self.close = self._database.close

    def check_none(self) -> None:
        pass

    def write(self, marked: Mapping[str, Any], agent: Agent) -> None:
        content = marked["log"].tobytes() + packed(marked["state"])
        row = int(marked["generation"]), int(marked["batch"]), content
        found = self._database.execute(
            "INSERT INTO beliefs (epoch, generation, batch, content) SELECT epoch, ?::bigint, ?::bigint, ?::bytea "
            "FROM lease WHERE epoch = ? FOR KEY SHARE RETURNING id",
            (*row, self._store.epoch),
        )
        if not found:
            raise FencedError(f"{self.path} has another learner")
        self._database.execute("DELETE FROM beliefs WHERE id <= ?", (found[0][0] - _KEPT,))

    def read(self, like: Mapping[str, Any]) -> Any:
        found = self._store.database.execute(
            "SELECT batch, content FROM beliefs WHERE generation = ? ORDER BY id DESC LIMIT 1",
            (int(like["generation"]),),
        )
        if not found:
            return None
        (batch, content), size = found[0], like["log"].nbytes
        log = np.frombuffer(content[:size], np.uint8)
        return {**like, "batch": batch, "log": log, "state": unpacked(content[size:], like["state"])}
