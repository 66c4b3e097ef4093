"""Writing the log of a service: before anything is acknowledged, each call in one transaction."""

import itertools
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from seqdec.online.reading import Reader
from seqdec.online.rewards import Stored
from seqdec.online.tables import (
    BOTH,
    COLLECTED,
    COLUMNS,
    DEFAULT,
    FILE,
    HISTORY,
    SCHEMA,
    WIDTHS,
    Arm,
    Entry,
    Found,
    Reward,
    checksum,
    wal,
)


class Journal(Reader):
    """The log in `folder`, or in memory for None. Used by one thread at a time.

    Raises OSError where the file cannot be read or written, and ValueError for a file that is no such log.
    """

    def __init__(self, folder: Path | None, *, fsync: bool = False) -> None:
        """See the class."""
        self.path = Path(":memory:") if folder is None else folder / FILE
        self._held, self._time, self._ahead = ExitStack(), 0, 0
        self._file: tuple[int, int] | None = None
        with self._reported():
            self._connect(self.path, isolation_level=None, check_same_thread=False)
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
                self._described()
                self._db.executescript(SCHEMA)
                self.recover()
                self._file = None if folder is None else _identity(self.path)
            except BaseException:
                self.close()
                raise

    def check_place(self) -> None:
        """Refuse to go on where the folder does not hold the open file: what is written would be lost.

        Raises FileNotFoundError with the remedy. A folder that is back is used again.
        """
        if self._file is not None and _identity(self.path) != self._file:
            raise FileNotFoundError(
                f"the folder {self.path.parent} of this agent was removed, renamed or replaced while it was in use; "
                "nothing was written: put it back in its place to go on, or close this agent and make one with the "
                "folder where it is"
            )

    def arms(self) -> dict[int, Arm]:
        """The arms by id, removed ones too."""
        with self._reported():
            rows = self._db.execute(f"SELECT {COLUMNS['arms']} FROM arms ORDER BY id").fetchall()
        return {key: Arm(output, bool(removed)) for key, output, removed in (self._sound("arms", row) for row in rows)}

    def describe(self, facts: Mapping[str, Any], arms: Mapping[int, Arm]) -> None:
        """Write facts and arms, in one transaction."""
        pairs = [(name, json.dumps(value)) for name, value in facts.items()]
        rows = [(key, arm.output, int(arm.removed)) for key, arm in arms.items()]
        self._commit(("facts", pairs), ("arms", rows))

    def write_items(self, rows: Sequence[tuple[int, str, bytes, int]]) -> None:
        """Write items by number, anew where they have been written before; they count from `show_items` on."""
        self._commit(("items", rows))

    def show_items(self, count: int, change: int) -> None:
        """Commit a change of the catalog, of which so many items were ever part, and all that was written for it."""
        self._commit(("facts", [("catalog", json.dumps([count, change]))]))

    def undo_removals(self, most: int) -> int:
        """Take back removals that were written for a change that did not come to its end; returns how many, at most."""
        count, change = self.catalog()
        with self._reported():
            found = self._db.execute(
                f"SELECT {COLUMNS['items']} FROM items WHERE removed > ? AND number < ? LIMIT ?", (change, count, most)
            ).fetchall()
            rows = [(*self._sound("items", row)[:-1], 0) for row in found]
        self.write_items(rows)
        return len(rows)

    def now(self) -> int:
        """The time in ns, later than that of every decision before; where a clock jumps back, it goes on from there."""
        clock = time.time_ns()
        self._ahead = max(self._ahead, self._time + 1 - clock)
        self._time = clock + self._ahead
        return self._time

    def add_decisions(self, entries: Sequence[Entry]) -> int:
        """Commit decisions, numbered from the number that is returned."""
        self._commit(self._decisions(entries))
        return self.decisions - len(entries) + 1

    def add_rewards(self, numbers: Sequence[int], rewards: Sequence[Stored], sources: Sequence[str]) -> None:
        """Commit rewards, which are learned as one batch."""
        self._commit(self._rewards(numbers, rewards, [self.batches + 1] * len(rewards), sources))

    def add_history(self, entries: Sequence[Entry], rewards: Sequence[Stored], histories: Sequence[str]) -> None:
        """Commit decisions with their rewards, each a batch of its own, and the digests of all such logs."""
        count = len(entries)
        numbers, batches = (range(last + 1, last + 1 + count) for last in (self.decisions, self.batches))
        told = "facts", [("histories", json.dumps(histories))]
        self._commit(self._decisions(entries), self._rewards(numbers, rewards, batches, [HISTORY] * count), told)

    def add_reports(self, numbers: Sequence[int], rewards: Sequence[Stored]) -> None:
        """Commit rewards that are put together later."""
        with self._reported():
            (last,) = self._db.execute("SELECT coalesce(max(sequence), 0) FROM reports").fetchone()
        pairs = enumerate(zip(numbers, rewards, strict=True), last + 1)
        self._commit(("reports", [(sequence, *pair, self.now()) for sequence, pair in pairs]))

    def find(self, number: int) -> Found | None:
        """The decision of that number, if there is one."""
        with self._reported():
            row = self._db.execute(
                f"SELECT {COLUMNS['decisions']}, source FROM decisions LEFT JOIN rewards USING (number) "
                "WHERE decisions.number = ?",
                (number,),
            ).fetchone()
        if row is None:
            return None
        _, moment, nonce, context, _, action, _ = self._sound("decisions", row[:-1])
        return Found(nonce, moment, context, action, row[-1])

    def unrewarded(self, number: int, before: int, most: int) -> tuple[list[tuple[int, list[Stored]]], int]:
        """What has no reward of the next decisions after that number, and the last of these; 0 to `most` of them.

        Returns:
            Number and reports of each decision from before that time that has no reward, and the last number looked at.
        """
        with self._reported():
            found = self._db.execute(
                f"SELECT {COLUMNS['decisions']}, source FROM decisions LEFT JOIN rewards USING (number) "
                "WHERE decisions.number > ? ORDER BY decisions.number LIMIT ?",
                (number, most),
            ).fetchall()
            early = list(itertools.takewhile(lambda row: row[1] < before, found))  # times increase
            rows = [self._sound("decisions", row[:-1]) for row in early if row[-1] is None]
            return [(row[0], self.reports(row[0])) for row in rows], early[-1][0] if early else number

    def settled(self) -> int:
        """The number up to which `unrewarded` was asked and answered in an earlier process."""
        with self._reported():
            return self._db.execute(
                "SELECT coalesce(max(number), 0) FROM rewards WHERE source IN (?, ?)", (DEFAULT, COLLECTED)
            ).fetchone()[0]

    def batches_after(self, batch: int, most: int) -> list[tuple[int, list[Reward]]]:
        """Number and rewards of the next batches, at most so many, in the order in which they were given."""
        with self._reported():
            found = self._db.execute(
                f"{BOTH} WHERE batch > ? AND batch <= ? ORDER BY batch, sequence", (batch, batch + most)
            )
            batches = [
                (number, [Reward(decision[3], decision[5], reward[3]) for reward, decision in pairs])
                for number, pairs in itertools.groupby(map(self._both, found), lambda pair: pair[0][2])
            ]
        if not batches and batch < self.batches:
            raise ValueError(
                f"{self.path} is damaged: batch {batch + 1} of its rewards is missing; restore it from a copy"
            )
        return batches

    def serialized(self) -> bytes:
        """The whole database."""
        with self._reported():
            return self._db.serialize()

    def flush(self) -> None:
        """Make all that is committed last even if the power fails, in any thread.

        What is not in the WAL is in the database, which SQLite synchronizes before it uses the WAL anew.
        """
        if wal(self.path).exists():  # not on file systems without shared memory
            with wal(self.path).open("rb+") as file:
                os.fsync(file.fileno())

    def recover(self) -> None:
        """Undo what was not committed, and count what was; after an exception at any point of any method."""
        with self._reported():
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self.decisions, latest = self._last("number, time", "decisions", "number")
            self.rewards, self.batches = self._last("sequence, batch", "rewards", "sequence")
        self._time = max(self._time, latest)

    def reports(self, number: int) -> list[Stored]:
        """The reports of a decision, in their order."""
        with self._reported():
            rows = self._db.execute(
                f"SELECT {COLUMNS['reports']} FROM reports WHERE number = ? ORDER BY sequence", (number,)
            ).fetchall()
            return [self._sound("reports", row)[2] for row in rows]

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """As of a reader; `check_place` comes first."""
        self.check_place()
        with super()._reported():
            yield

    def _decisions(self, entries: Sequence[Entry]) -> tuple[str, list[Any]]:
        """Their table, and its rows."""
        moment, first = self.now(), self.decisions + 1
        self._time += max(len(entries) - 1, 0)  # a ns later for each
        return "decisions", [
            # SQLite makes NULL of a NaN
            (first + place, moment + place, *entry[:-1], None if math.isnan(entry.propensity) else entry.propensity)
            for place, entry in enumerate(entries)
        ]

    def _rewards(
        self, numbers: Iterable[int], rewards: Iterable[Stored], batches: Iterable[int], sources: Iterable[str]
    ) -> tuple[str, list[Any]]:
        """Their table, and its rows."""
        columns = zip(numbers, batches, rewards, sources, strict=True)
        return "rewards", [
            (sequence, number, batch, reward, self.now(), source)
            for sequence, (number, batch, reward, source) in enumerate(columns, self.rewards + 1)
        ]

    def _last(self, columns: str, table: str, key: str) -> Any:
        """Two columns of the last row of a table; zeros where it is empty."""
        return self._db.execute(f"SELECT {columns} FROM {table} ORDER BY {key} DESC LIMIT 1").fetchone() or (0, 0)

    def _commit(self, *parts: tuple[str, Sequence[Any]]) -> None:
        """Write rows to tables, with their checksums, in one transaction; `recover` after an exception."""
        several = sum(len(rows) for _, rows in parts) > 1  # a single row is a transaction
        with self._reported():
            try:
                if several:
                    self._db.execute("BEGIN IMMEDIATE")
                for table, rows in parts:
                    kind = "INSERT OR REPLACE" if table in ("facts", "arms", "items") else "INSERT"
                    places = ", ".join("?" * WIDTHS[table])
                    for row in rows:
                        self._db.execute(f"{kind} INTO {table} VALUES ({places})", (*row, checksum(row)))
                if several:
                    self._db.execute("COMMIT")
            except BaseException:
                self.recover()
                raise
        for table, rows in parts:
            if rows and table == "decisions":
                self.decisions = rows[-1][0]
            elif rows and table == "rewards":
                self.rewards, self.batches = rows[-1][0], rows[-1][2]


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from others, also after it was renamed; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
