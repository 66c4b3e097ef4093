"""Decisions made while the database is away: rows in a file, a line each time, until the database has them."""

import base64
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Rows = Mapping[str, Sequence[Sequence[Any]]]
"""Rows by table."""


class Spool:
    """A file that is written before a decision is answered. One thread at a time.

    A line that a crash has cut off is of a decision that was not answered. Raises OSError.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.keys = path, dict[str, int]()
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for rows in self:
            self._note(rows)

    @property
    def is_empty(self) -> bool:
        return not self.path.exists() or not self.path.stat().st_size

    def __iter__(self) -> Iterator[Rows]:
        if self.path.exists():
            for line in self.path.read_bytes().splitlines():
                try:
                    yield {table: [list(map(_value, row)) for row in rows] for table, rows in json.loads(line).items()}
                except ValueError:
                    return

    def add(self, rows: Rows) -> None:
        plain = {table: [list(map(_plain, row)) for row in some] for table, some in rows.items()}
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, json.dumps(plain).encode() + b"\n")
            os.fsync(file)
        finally:
            os.close(file)
        self._note(rows)

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)
        self.keys.clear()

    def _note(self, rows: Rows) -> None:
        self.keys.update({row[7]: row[0] for row in rows["decisions"] if row[7] is not None})


def _plain(value: Any) -> Any:
    return {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _value(plain: Any) -> Any:
    return base64.b64decode(plain["bytes"]) if isinstance(plain, dict) else plain
