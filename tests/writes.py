"""What a process hands to the disk, in order: statements of SQLite, files that are synchronized or renamed."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Event(NamedTuple):
    """One write."""

    kind: str
    """"statement", "fsync" or "replace\""""
    name: str
    """of the statement, its first word; of a file that takes its place, its name; of one that is synchronized, none"""
    file: int
    """inode of the file that is synchronized, or that takes the place; 0 of a statement"""


class Stopped(BaseException):
    """Raised in place of a write."""


class Writes:
    """Records writes while it is installed; `before` is called before each, and the one after `most` raises Stopped."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.events: list[Event] = []
        self.before: Callable[[Event], None] = lambda event: None
        self.most: int | None = None
        self._connect, fsync, replace, rename = sqlite3.connect, os.fsync, os.replace, os.rename
        told = self._told

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *given: Any) -> Any:
                told(Event("statement", sql.split()[0].upper(), 0))
                return super().execute(sql, *given)

            def other(self, *given: Any, **named: Any) -> Any:
                raise NotImplementedError("statements are recorded where they are executed by their connection")

            cursor = executemany = commit = other

        def synchronized(file: Any) -> None:
            told(Event("fsync", "", os.fstat(file).st_ino))
            fsync(file)

        def taking(move: Callable[..., None]) -> Callable[..., None]:
            def moved(source: Any, target: Any, **named: Any) -> None:
                told(Event("replace", Path(target).name, os.stat(source, **named).st_ino))
                move(source, target, **named)

            return moved

        patch.setattr(sqlite3, "connect", lambda *given, **named: self._connect(*given, factory=Connection, **named))
        patch.setattr(os, "fsync", synchronized)
        patch.setattr(os, "replace", taking(replace))
        patch.setattr(os, "rename", taking(rename))

    def _told(self, event: Event) -> None:
        if self.most is not None and len(self.events) >= self.most:
            raise Stopped
        self.before(event)
        self.events.append(event)

    def connect(self, file: Path) -> sqlite3.Connection:
        """A connection of which nothing is recorded, and that cannot write."""
        return self._connect(f"{file.as_uri()}?mode=ro", uri=True)

    def replaced(self, name: str) -> list[int]:
        """The places among the events at which a file of that name was replaced."""
        return [place for place, event in enumerate(self.events) if (event.kind, event.name) == ("replace", name)]

    def synchronized(self, file: int) -> list[int]:
        """The places at which the file with that inode was."""
        return [place for place, event in enumerate(self.events) if (event.kind, event.file) == ("fsync", file)]


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    """The writes of the test."""
    return Writes(monkeypatch)
