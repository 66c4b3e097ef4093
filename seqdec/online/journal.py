"""Writing the log of a service: before anything is acknowledged, each call in one transaction.

What is long, such as another log, is written in several, and counts from the last one on.
"""

import itertools
import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from seqdec.online.reading import Reader, lowest_of
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
    Inserted,
    Reward,
    checksum,
    wal,
)

_DROPPED = 10_000
"""Rows of another log that never counted, which a start deletes at once."""


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
                while self.drop_staged(_DROPPED):
                    pass
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

    @property
    def decisions(self) -> int:
        """How many decisions count."""
        return self._number - lowest_of(self._inserted)

    @property
    def rewards(self) -> int:
        """How many rewards count."""
        return self._sequence - lowest_of(self._inserted)

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
        rows = self._decisions(entries, self._number + 1)
        self._commit(("decisions", rows))
        self._number += len(rows)
        return self._number - len(rows) + 1

    def add_rewards(self, numbers: Sequence[int], rewards: Sequence[Stored], sources: Sequence[str]) -> None:
        """Commit rewards, which are learned as one batch."""
        rows = [
            (self._sequence + place, number, self.batches + 1, reward, self.now(), source)
            for place, (number, reward, source) in enumerate(zip(numbers, rewards, sources, strict=True), 1)
        ]
        self._commit(("rewards", rows))
        self._sequence += len(rows)
        self.batches += bool(rows)

    def histories(self) -> list[str]:
        """The digests of the other logs in this one."""
        return self.facts().get("histories", [])

    def stage(self, place: int, entries: Sequence[Entry], rewards: Sequence[Stored], rows: int) -> None:
        """Commit some decisions with their rewards, from that place on, of a log of so many rows.

        They count from `show_history` on.
        """
        first = lowest_of(self._inserted) - rows + place
        decisions = self._decisions(entries, first)
        given = [(number, number, number, reward, self.now(), HISTORY) for number, reward in enumerate(rewards, first)]
        self._commit(("decisions", decisions), ("rewards", given))

    def show_history(self, rows: int, digest: str) -> None:
        """Commit a log of so many rows, all of which are staged, and its digest."""
        inserted = [*self._inserted, Inserted(self.batches + 1, lowest_of(self._inserted) - rows, rows)]
        facts = {"inserted": inserted, "histories": [*self.histories(), digest]}
        self._commit(("facts", [(name, json.dumps(value)) for name, value in facts.items()]))
        self.recover()

    def drop_staged(self, most: int) -> int:
        """Delete what is staged of a log that does not count; returns how many rows, at most."""
        with self._reported():
            found = self._db.execute(
                "SELECT number FROM decisions WHERE number < ? ORDER BY number LIMIT ?",
                (lowest_of(self._inserted), most),
            ).fetchall()
            if found:
                try:
                    self._db.execute("BEGIN IMMEDIATE")
                    for table in ("rewards", "decisions"):
                        self._db.execute(f"DELETE FROM {table} WHERE number <= ?", found[-1])
                    self._db.execute("COMMIT")
                except BaseException:
                    self.recover()
                    raise
        return len(found)

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
        after, last, shift = self._stored(batch, most)
        with self._reported():
            found = self._db.execute(f"{BOTH} WHERE batch > ? AND batch <= ? ORDER BY batch, sequence", (after, last))
            batches = [
                (number + shift, [Reward(decision[3], decision[5], reward[3]) for reward, decision in pairs])
                for number, pairs in itertools.groupby(map(self._both, found), lambda pair: pair[0][2])
            ]
        if not batches and batch < self.batches:
            raise ValueError(
                f"{self.path} is damaged: batch {batch + 1} of its rewards is missing; restore it from a copy"
            )
        return batches

    def _stored(self, batch: int, most: int) -> tuple[int, int, int]:
        """Where the next batches are: after which number, up to which, and by how much these are below theirs."""
        for log in self._inserted:
            if batch + 1 < log.batch:
                return batch, min(batch + most, log.batch - 1), 0
            if batch < log.last:
                shift = log.batch - log.number
                return batch - shift, min(batch + most, log.last) - shift, shift
        return batch, batch + most, 0

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
            self._number, latest = self._last("number, time", "decisions", "number")
            self._sequence, batch = self._last("sequence, batch", "rewards", "sequence")
            self._inserted = self.inserted()
            newest = self._db.execute(
                "SELECT time FROM decisions WHERE number < ? ORDER BY number DESC LIMIT 1",
                (self._inserted[-2].number if len(self._inserted) > 1 else 0,),
            ).fetchone()
        self.batches = max([batch, *(log.last for log in self._inserted)])
        self._time = max(self._time, latest, *(newest or ()))

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

    def _decisions(self, entries: Sequence[Entry], first: int) -> list[Any]:
        """Rows of their table, numbered from the first."""
        moment = self.now()
        self._time += max(len(entries) - 1, 0)  # a ns later for each
        return [
            # SQLite makes NULL of a NaN
            (first + place, moment + place, *entry[:-1], None if math.isnan(entry.propensity) else entry.propensity)
            for place, entry in enumerate(entries)
        ]

    def _last(self, columns: str, table: str, key: str) -> Any:
        """Two columns of the last row of a table, besides those of other logs; zeros where there is none."""
        row = self._db.execute(f"SELECT {columns} FROM {table} WHERE {key} > 0 ORDER BY {key} DESC LIMIT 1").fetchone()
        return row or (0, 0)

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


def _identity(path: Path) -> tuple[int, int] | None:
    """What tells a file from others, also after it was renamed; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
