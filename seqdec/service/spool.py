"""Decisions made while the database is away: a line of a file for those of one call, until the database has them."""

import base64
import itertools
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from seqdec.persistence import locked_file
from seqdec.service.store import Logged

Rows = Mapping[str, Sequence[Sequence[Any]]]
"""Rows by table."""
_LARGEST = 2**28
"""Bytes of a file beyond which it takes no more."""


class Spool:
    """A file of this process in `folder`, behind those that processes which have ended left there.

    One thread at a time. Raises OSError.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.keyed: dict[str, Logged] = {}
        """By the keys of clients"""
        self._folder, self._held = folder, ExitStack()
        self._own = next(path for place in itertools.count() if self._is_locked(path := folder / f"{place}.jsonl"))
        self._left = [self._own] if self._own.exists() else []
        self._place = 0
        """of the oldest line, in the first of these files"""
        self.find()

    @property
    def is_empty(self) -> bool:
        return not self._left

    def find(self) -> None:
        """Take the files of processes that have ended."""
        self._left += [path for path in sorted(self._folder.glob("*.jsonl")) if self._is_locked(path) and path.exists()]
        self._skip()

    def add(self, rows: Rows) -> None:
        """Write to the disk."""
        plain = {table: [list(map(_plain, row)) for row in some] for table, some in rows.items()}
        file = os.open(self._own, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if (size := os.fstat(file).st_size) > _LARGEST:
                raise OSError(f"{self._own} has {size / 2**20:,.0f} MiB of decisions, and takes no more")
            try:
                line = json.dumps(plain).encode() + b"\n"
                if os.write(file, line) < len(line):
                    raise OSError(f"{self._own} cannot be written: there is no room")
                os.fsync(file)
            except BaseException:
                os.ftruncate(file, size)
                raise
        finally:
            os.close(file)
        if self._own not in self._left:
            self._left.append(self._own)
        self.keyed |= keyed(rows)

    def first(self) -> Rows:
        """The oldest rows. Raises ValueError for a damaged file."""
        try:
            found = json.loads(self._line())
            return {table: [list(map(_value, row)) for row in rows] for table, rows in found.items()}
        except ValueError:
            raise ValueError(f"{self._left[0]} is damaged at byte {self._place}: move it away, and keep it") from None

    def drop_first(self) -> None:
        """Forget the oldest rows, which the database has."""
        self._place += len(self._line())
        self._skip()
        if self.is_empty:
            self.keyed.clear()

    def close(self) -> None:
        self._held.close()

    def _line(self) -> bytes:
        """The oldest one; b"" at the end of its file, where a line that is cut off was answered to nobody."""
        with self._left[0].open("rb") as file:
            file.seek(self._place)
            line = file.readline()
        return line if line.endswith(b"\n") else b""

    def _skip(self) -> None:
        """Remove files that are at their end."""
        while self._left and not self._line():
            self._left.pop(0).unlink()
            self._place = 0

    def _is_locked(self, path: Path) -> bool:
        with suppress(FileExistsError):
            self._held.enter_context(locked_file(path))
            return True
        return False


def keyed(rows: Rows) -> dict[str, Logged]:
    """Decisions by the keys of clients."""
    return {
        key: Logged(number, time, nonce, None, action, propensity, law, None)
        for number, time, nonce, _, _, action, propensity, key, law, _ in rows["decisions"]
        if key is not None
    }


def _plain(value: Any) -> Any:
    return {"bytes": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _value(plain: Any) -> Any:
    return base64.b64decode(plain["bytes"]) if isinstance(plain, dict) else plain
