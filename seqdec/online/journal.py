"""The durable log of decisions and rewards: one SQLite file in WAL mode, written before anything is acknowledged.

    decisions   number, nonce, time (ns since 1970), context and mask (bytes), action, propensity
    rewards     sequence, number of the decision, batch in which it is learned, reward, time, source: "reported",
                "default", "collected" (put together from reports) or "history" (of another log)
    reports     sequence, number of the decision, reward, time: what is put together later
    arms        id, output of the model that it has (NULL: none any more), whether it is removed
    facts       what the log belongs to, as JSON

The last column of each table is a CRC-32 of the others, so that a damaged row is noticed when it is read.
A committed transaction survives the end of the process at any point; with `fsync` also a loss of power.
"""

import itertools
import json
import math
import os
import shutil
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from seqdec.features import Encoder
from seqdec.online.contexts import WHOLE, unpacked
from seqdec.ope.log import Log, make_log
from seqdec.persistence import check_format, located

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
FORMAT = "seqdec decisions 2"
FILE = "decisions.sqlite"
REPORTED, DEFAULT, COLLECTED, HISTORY = "reported", "default", "collected", "history"
_SQLITE = b"SQLite format 3\0"
"""How such a file starts."""
_TABLES = {
    "facts": ("name TEXT PRIMARY KEY", "value TEXT"),
    "arms": ("id INTEGER PRIMARY KEY", "output INTEGER", "removed INTEGER"),
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
_COLUMNS = {
    table: ", ".join(f"{table}.{column.split()[0]}" for column in (*columns, "checksum"))
    for table, columns in _TABLES.items()
}
_WIDTHS = {table: len(columns) + 1 for table, columns in _TABLES.items()}
_SCHEMA = (
    "".join(
        f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(columns)}, checksum INTEGER);"
        for table, columns in _TABLES.items()
    )
    + "CREATE INDEX IF NOT EXISTS reports_of ON reports (number);"
)


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
    """a byte for each id of an arm; None for points of a box"""
    action: Any
    """id of an arm, or the bytes of a point"""
    propensity: float
    """NaN where it is not known"""


class Reward(NamedTuple):
    """The reward of a decision."""

    context: bytes
    action: Any
    reward: float


class Arm(NamedTuple):
    """An arm of the service."""

    output: int | None
    """of the model; None where it has none any more"""
    removed: bool


_BOTH = f"SELECT {_COLUMNS['rewards']}, {_COLUMNS['decisions']} FROM rewards LEFT JOIN decisions USING (number)"


class Reader:
    """The log in a file, which is not changed, also while an agent uses it. Used by one thread at a time.

    Raises OSError where the file cannot be read, and ValueError for a file of another kind.
    """

    def __init__(self, path: Path) -> None:
        """See the class."""
        self.path, self.in_use, self._held = path, _wal(path).exists(), ExitStack()
        try:
            file = self._alone_with_wal() if self.in_use and not path.with_name(f"{path.name}-shm").exists() else path
            # Without a WAL, SQLite would make one, which its owner might not be allowed to open.
            mode = "mode=ro" if self.in_use else "mode=ro&immutable=1"
            with self._reported():
                self._connect(f"{file.as_uri()}?{mode}", uri=True)
                tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not {"facts", "decisions", "rewards"} <= tables or not self._described():
                raise ValueError(f"{path} is not the log of an OnlineAgent; its tables are {sorted(tables)}")
        except BaseException:
            self.close()
            raise

    def facts(self) -> dict[str, Any]:
        """What the log belongs to; empty for a new one. Raises ValueError where it has another format."""
        if not self._described():
            return {}
        with self._reported():
            rows = self._db.execute(f"SELECT {_COLUMNS['facts']} FROM facts").fetchall()
        return {name: json.loads(value) for name, value in (self._sound("facts", row) for row in rows)}

    def log(self, record: np.dtype) -> Log:
        """The decisions whose reward and propensity are known. Raises ValueError where there is none."""
        with self._reported():
            found = self._db.execute(f"{_BOTH} ORDER BY rewards.number")
            pairs = [pair for pair in map(self._both, found) if pair[1][-1] is not None]
        rows = [(decision[1], *decision[3:], reward[3]) for reward, decision in pairs]
        if not rows:
            raise ValueError(f"{self.path} has no decision with a propensity and a reward yet")
        times, contexts, masks, actions, propensities, rewards = zip(*rows, strict=True)
        if isinstance(actions[0], bytes):
            raise ValueError("a log for off-policy evaluation has actions with an index; these are points of a box")
        size = max(map(len, masks))
        records = unpacked(b"".join(contexts), record, len(rows))
        whole = record.names == (WHOLE,)
        lead = (len(rows),) if whole else (len(rows), size)
        parts = [records[name] for name in record.names or ()]
        columns = [part.reshape(*lead, part.size // math.prod(lead)) for part in parts]
        joined = np.concatenate(columns, axis=-1)
        return make_log(
            action=actions,
            reward=rewards,
            propensity=propensities,
            timestamp=np.array(times, "datetime64[ns]"),
            context=joined if whole else None,
            action_features=None if whole else joined,
            mask=np.frombuffer(b"".join(mask.ljust(size, b"\0") for mask in masks), bool).reshape(len(rows), size),
        )

    def history(self, record: np.dtype, names: Sequence[str] | None) -> "pd.DataFrame":
        """All decisions, as `read_history` returns them; `names` are those of the features of an encoder."""
        import pandas as pd

        with self._reported():
            found = self._db.execute(
                f"SELECT {_COLUMNS['decisions']}, {_COLUMNS['rewards']} FROM decisions LEFT JOIN rewards "
                "USING (number) ORDER BY decisions.number"
            )
            width = _WIDTHS["decisions"]
            rows = [(self._sound("decisions", row[:width]), self._reward_of(row[0], row[width:])) for row in found]
        decided = list(zip(*(row for row, _ in rows), strict=True)) or [()] * (width - 1)
        rewarded = list(zip(*(row for _, row in rows), strict=True)) or [()] * 3
        number, moment, nonce, context, _, action, propensity = decided
        columns: dict[str, Any] = {
            "number": np.array(number, np.int64),
            "time": _times(moment),
            "token": pd.array([f"{key}-{salt.hex()}" for key, salt in zip(number, nonce, strict=True)], "string"),
        }
        if rows and isinstance(action[0], bytes):
            points = np.array([np.frombuffer(point, np.float32) for point in action])
            columns |= {f"action_{place}": points[:, place] for place in range(points.shape[1])}
        else:
            columns["action"] = np.array(action, np.int64)
        columns |= {
            "propensity": np.array(propensity, float),
            "reward": np.array(rewarded[0], float),
            "reward_time": _times(rewarded[1]),
            "source": pd.array(rewarded[2], "string"),
        }
        records = unpacked(b"".join(context), record, len(rows))
        for field in record.names or ():
            flat = records[field].reshape(len(rows), math.prod(record[field].shape))
            own = [f"{field}_{place}" for place in range(flat.shape[1])] if names is None else names
            columns |= {f"context {name}" if name in columns else name: flat[:, i] for i, name in enumerate(own)}
        return pd.DataFrame(columns)

    def _reward_of(self, number: int, row: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Reward, its time and source, of the row of a decision's reward; None for each where it has none."""
        if row[0] is None:
            return None, None, None
        _, _, _, reward, moment, source = self._sound("rewards", (row[0], number, *row[2:]))
        return reward, moment, source

    def close(self) -> None:
        """Close the file."""
        self._held.close()

    def _connect(self, file: Path | str, **options: Any) -> None:
        self._db = sqlite3.connect(file, **options)
        self._held.callback(self._db.close)
        self._db.text_factory = lambda text: text.decode(errors="replace")  # for the checksum to notice

    def _described(self) -> bool:
        """Whether the file says what it belongs to. Raises ValueError where it has another format."""
        with self._reported():
            tables = self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'facts'").fetchone()
            texts = dict(self._db.execute("SELECT name, value FROM facts").fetchall()) if tables else {}
        if "format" in texts:
            names = [name for name in ("format", "versions") if name in texts]
            check_format(self.path, {name: json.loads(texts[name]) for name in names}, FORMAT)
        return "record" in texts

    def _alone_with_wal(self) -> Path:
        """A copy of a database that nobody uses, and of what a crash left beside it.

        To read it where it is, SQLite would have to write a file beside it.
        """
        folder = Path(self._held.enter_context(TemporaryDirectory()))
        for file in (_wal(self.path), self.path):
            shutil.copyfile(file, folder / file.name)
        return folder / self.path.name

    def _sound(self, table: str, row: Sequence[Any]) -> Sequence[Any]:
        """A row without its checksum. Raises ValueError where that is wrong."""
        if _checksum(row[:-1]) != row[-1]:
            raise ValueError(
                f"{self.path} is damaged: the row {row[0]!r} of its table {table} does not have its checksum; "
                "restore it from a copy"
            )
        return row[:-1]

    def _both(self, row: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """A reward and its decision, of a row of both."""
        reward, decision = (row[: _WIDTHS["rewards"]], row[_WIDTHS["rewards"] :])
        reward = self._sound("rewards", reward)
        return reward, self._sound("decisions", (reward[1], *decision[1:]))

    @contextmanager
    def _reported(self) -> Iterator[None]:
        """Errors of SQLite as OSError, or ValueError for a file of another kind, naming the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise OSError(f"cannot use {self.path}: {error}") from error
        except sqlite3.ProgrammingError as error:  # a daemon thread goes on while the process ends
            raise ValueError(f"{self.path} is closed, perhaps because the process ends ({error})") from error
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"{self.path} is damaged or no log of decisions: {error}; restore it from a copy"
            ) from error


class Journal(Reader):
    """The log in `folder`, or in memory for None. Used by one thread at a time.

    Raises OSError where the file cannot be read or written, and ValueError for a file that is no such log.
    """

    def __init__(self, folder: Path | None, *, fsync: bool = False) -> None:
        """See the class."""
        self.path = Path(":memory:") if folder is None else folder / FILE
        self._held, self._time, self._ahead = ExitStack(), 0, 0
        with self._reported():
            self._connect(self.path, isolation_level=None, check_same_thread=False)
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute(f"PRAGMA synchronous = {'FULL' if fsync else 'NORMAL'}")
                self._described()
                self._db.executescript(_SCHEMA)
                self.recover()
            except BaseException:
                self.close()
                raise

    def arms(self) -> dict[int, Arm]:
        """The arms by id, removed ones too."""
        with self._reported():
            rows = self._db.execute(f"SELECT {_COLUMNS['arms']} FROM arms ORDER BY id").fetchall()
        return {key: Arm(output, bool(removed)) for key, output, removed in (self._sound("arms", row) for row in rows)}

    def describe(self, facts: Mapping[str, Any], arms: Mapping[int, Arm]) -> None:
        """Write facts and arms, in one transaction."""
        pairs = [(name, json.dumps(value)) for name, value in facts.items()]
        rows = [(key, arm.output, int(arm.removed)) for key, arm in arms.items()]
        self._commit(("facts", pairs), ("arms", rows))

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

    def add_rewards(self, numbers: Sequence[int], rewards: Sequence[float], sources: Sequence[str]) -> None:
        """Commit rewards, which are learned as one batch."""
        self._commit(self._rewards(numbers, rewards, [self.batches + 1] * len(rewards), sources))

    def add_history(self, entries: Sequence[Entry], rewards: Sequence[float]) -> None:
        """Commit decisions with their rewards, each a batch of its own, in one transaction."""
        count = len(entries)
        numbers, batches = (range(last + 1, last + 1 + count) for last in (self.decisions, self.batches))
        self._commit(self._decisions(entries), self._rewards(numbers, rewards, batches, [HISTORY] * count))

    def add_reports(self, numbers: Sequence[int], rewards: Sequence[float]) -> None:
        """Commit rewards that are put together later."""
        with self._reported():
            (last,) = self._db.execute("SELECT coalesce(max(sequence), 0) FROM reports").fetchone()
        pairs = enumerate(zip(numbers, rewards, strict=True), last + 1)
        self._commit(("reports", [(sequence, *pair, self.now()) for sequence, pair in pairs]))

    def find(self, number: int) -> Found | None:
        """The decision of that number, if there is one."""
        with self._reported():
            row = self._db.execute(
                f"SELECT {_COLUMNS['decisions']}, source FROM decisions LEFT JOIN rewards USING (number) "
                "WHERE decisions.number = ?",
                (number,),
            ).fetchone()
        if row is None:
            return None
        _, moment, nonce, context, _, action, _ = self._sound("decisions", row[:-1])
        return Found(nonce, moment, context, action, row[-1])

    def unrewarded(self, number: int, before: int) -> list[tuple[int, list[float]]]:
        """Numbers and reports of the decisions after that number and before that time that have no reward."""
        with self._reported():
            found = self._db.execute(
                f"SELECT {_COLUMNS['decisions']}, source FROM decisions LEFT JOIN rewards USING (number) "
                "WHERE decisions.number > ? ORDER BY decisions.number",
                (number,),
            )
            early = itertools.takewhile(lambda row: row[1] < before, found)  # times increase
            rows = [self._sound("decisions", row[:-1]) for row in early if row[-1] is None]
            found.close()
            return [(row[0], self._reports(row[0])) for row in rows]

    def settled(self) -> int:
        """The number up to which `unrewarded` was asked and answered in an earlier process."""
        with self._reported():
            return self._db.execute(
                "SELECT coalesce(max(number), 0) FROM rewards WHERE source IN (?, ?)", (DEFAULT, COLLECTED)
            ).fetchone()[0]

    def batches_after(self, batch: int) -> Iterator[tuple[int, list[Reward]]]:
        """Number and rewards of each later batch, in the order in which they were given."""
        with self._reported():
            found = self._db.execute(f"{_BOTH} WHERE batch > ? ORDER BY sequence", (batch,))
            for number, pairs in itertools.groupby(map(self._both, found), lambda pair: pair[0][2]):
                yield number, [Reward(decision[3], decision[5], reward[3]) for reward, decision in pairs]

    def flush(self) -> None:
        """Make all that is committed last even if the power fails, without waiting for readers."""
        with self._reported():
            _, written, moved = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if moved < written:  # a reader needs the database as it is
            with _wal(self.path).open("rb+") as file:
                os.fsync(file.fileno())

    def recover(self) -> None:
        """Undo what was not committed, and count what was; after an exception at any point of any method."""
        with self._reported():
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            self.decisions, latest = self._last("number, time", "decisions", "number")
            self.rewards, self.batches = self._last("sequence, batch", "rewards", "sequence")
        self._time = max(self._time, latest)

    def _reports(self, number: int) -> list[float]:
        """The reports of a decision, in their order."""
        rows = self._db.execute(
            f"SELECT {_COLUMNS['reports']} FROM reports WHERE number = ? ORDER BY sequence", (number,)
        ).fetchall()
        return [self._sound("reports", row)[2] for row in rows]

    def _decisions(self, entries: Sequence[Entry]) -> tuple[str, list[Any]]:
        """Their table, and its rows."""
        rows = []
        for number, entry in enumerate(entries, self.decisions + 1):
            unknown = math.isnan(entry.propensity)  # SQLite makes NULL of it
            rows.append((number, self.now(), *entry[:-1], None if unknown else entry.propensity))
        return "decisions", rows

    def _rewards(
        self, numbers: Iterable[int], rewards: Iterable[float], batches: Iterable[int], sources: Iterable[str]
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
        """Write rows to tables, with their checksums, in one transaction."""
        with self._reported():
            try:
                self._db.execute("BEGIN IMMEDIATE")
                for table, rows in parts:
                    kind = "INSERT OR REPLACE" if table in ("facts", "arms") else "INSERT"
                    places = ", ".join("?" * _WIDTHS[table])
                    signed = [(*row, _checksum(row)) for row in rows]
                    self._db.executemany(f"{kind} INTO {table} VALUES ({places})", signed)
                self._db.execute("COMMIT")
            finally:
                self.recover()


def _times(moments: Sequence[int | None]) -> "pd.Series":
    """Times in UTC from ns since 1970; NaT for None."""
    import pandas as pd

    numbers = [np.iinfo(np.int64).min if moment is None else moment for moment in moments]  # that of NaT
    return pd.Series(np.array(numbers, np.int64).astype("datetime64[ns]")).dt.tz_localize("UTC")


def _checksum(row: Sequence[Any]) -> int:
    """Of the values of a row, as SQLite gives them back: it does not keep the sign of 0.0."""
    found = 0
    for value in row:
        known = value + 0.0 if isinstance(value, float) else value
        found = zlib.crc32(known if isinstance(known, bytes) else repr(known).encode(), found)
    return found


def is_database(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of an agent's folder, or of a database such as the one in it."""
    place = located(path)
    if place.is_dir():
        return (place / FILE).is_file()
    with place.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def read_log(path: str | os.PathLike[str]) -> Log:
    """The decisions of an `OnlineAgent` with their rewards, for off-policy evaluation, also while it is in use.

    Args:
        path: of the agent's folder, or of the database in it or a copy of that. Nothing in it is changed.

    Raises:
        FileNotFoundError: there is no log.
        ValueError: it is damaged, holds no reward yet, or its actions are points of a box.
    """
    return _read(path, lambda reader: reader.log(record_from(reader.facts()["record"])))


def read_history(path: str | os.PathLike[str]) -> "pd.DataFrame":
    """All decisions of an `OnlineAgent`, also those without a reward, as a table, while it is in use or not.

    Args:
        path: as in `read_log`.

    Returns:
        A row for each decision: number, time (UTC), token, action (or action_0, ... of a point), propensity (NaN where
        it is not known), reward, reward_time and source ("reported", "default", "collected", "history"), missing where
        no reward came yet; then the context, by the names of the encoder's features or context_0, ...

    Raises:
        FileNotFoundError: there is no log.
        ValueError: it is damaged.
    """

    def get(reader: Reader) -> "pd.DataFrame":
        facts = reader.facts()
        encoder = facts.get("encoder")
        if isinstance(encoder, str):
            names = Encoder.from_json(encoder).names
        else:
            names = None if encoder is None else encoder["features"]
        return reader.history(record_from(facts["record"]), names)

    return _read(path, get)


def read_encoder(path: str | os.PathLike[str]) -> Encoder:
    """The encoder that an `OnlineAgent` had, also while it is in use.

    Args:
        path: as in `read_log`.

    Raises:
        FileNotFoundError: there is no log.
        ValueError: the log is damaged, or the agent had no encoder, or one without a JSON form (`Encoder.of`).
    """
    text = _read(path, lambda reader: reader.facts().get("encoder"))
    if not isinstance(text, str):
        kind = "no encoder" if text is None else f"an encoder without a JSON form, of the columns {text['columns']}"
        raise ValueError(f"the agent of {path} had {kind}")
    return Encoder.from_json(text)


def _read(path: str | os.PathLike[str], get: Callable[[Reader], T]) -> T:
    """What `get` returns of a log that may be in use."""
    place = located(path)
    file = place / FILE if place.is_dir() else place
    if not file.is_file():
        raise FileNotFoundError(f"there is no {FILE} in {place}, and no file of that name")
    while True:
        reader = Reader(file)
        try:
            found = get(reader)
        finally:
            reader.close()
        if reader.in_use or not _wal(file).exists():
            return found  # else an agent has opened it meanwhile


def _wal(path: Path) -> Path:
    """The file beside a database that exists while it is in use, or after a crash."""
    return path.with_name(f"{path.name}-wal")


def record_from(described: Any) -> np.dtype:
    """The record that `described_record` described."""
    return np.dtype([(name, kind, tuple(shape)) for name, kind, shape in described])


def described_record(record: np.dtype) -> list[Any]:
    """A record as JSON values."""
    fields: Any = record.fields
    return [[name, kind.base.str, list(kind.shape)] for name, (kind, *_) in fields.items()]
