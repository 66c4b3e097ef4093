"""Reading the log of a service, also while it is in use."""

import json
import math
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from seqdec.features import Encoder
from seqdec.online import catalog, encoders, rewards
from seqdec.online.contexts import WHOLE, unpacked
from seqdec.ope.columns import part_column
from seqdec.ope.log import Log, make_log
from seqdec.persistence import check_format, located

if TYPE_CHECKING:
    import pandas as pd

from seqdec.online.tables import BOTH, COLLECTED, COLUMNS, FILE, FORMAT, WIDTHS, Inserted, checksum, record_from, wal

T = TypeVar("T")
_SQLITE = b"SQLite format 3\0"
"""How such a file starts."""


class Reader:
    """The log in a file, which is not changed, also while an agent uses it. Used by one thread at a time.

    Raises OSError where the file cannot be read, and ValueError for a file of another kind.
    """

    def __init__(self, path: Path) -> None:
        """See the class."""
        self.path, self.in_use, self._held = path, wal(path).exists(), ExitStack()
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
            rows = self._db.execute(f"SELECT {COLUMNS['facts']} FROM facts").fetchall()
        return {name: json.loads(value) for name, value in (self._sound("facts", row) for row in rows)}

    def items(self) -> list[Any]:
        """Number, id, features and whether it is removed of all items of a catalog, by number; none without one."""
        with self._reported():
            if not self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'items'").fetchone():
                return []
            count, change = self.catalog()
            rows = self._db.execute(
                f"SELECT {COLUMNS['items']} FROM items WHERE number < ? ORDER BY number", (count,)
            ).fetchall()
        return [(*row[:-1], 0 < row[-1] <= change) for row in (self._sound("items", row) for row in rows)]

    def catalog(self) -> tuple[int, int]:
        """How many items were ever part of the catalog, and the number of the last change."""
        with self._reported():
            row = self._db.execute(f"SELECT {COLUMNS['facts']} FROM facts WHERE name = 'catalog'").fetchone()
        count, change = json.loads(self._sound("facts", row)[1]) if row else (sys.maxsize, 1)
        return count, change

    def inserted(self) -> list[Inserted]:
        """The other logs in this one, in the order in which they are learned."""
        with self._reported():
            row = self._db.execute(f"SELECT {COLUMNS['facts']} FROM facts WHERE name = 'inserted'").fetchone()
        return [Inserted(*one) for one in json.loads(self._sound("facts", row)[1])] if row else []

    def log(self, record: np.dtype) -> Log:
        """The decisions whose reward and propensity are known. Raises ValueError where there is none."""
        lowest = lowest_of(self.inserted())
        with self._reported():
            found = self._db.execute(f"{BOTH} WHERE rewards.number >= ? ORDER BY rewards.number", (lowest,))
            pairs = [pair for pair in map(self._both, found) if pair[1][-1] is not None]
        rows = sorted(((decision[1], *decision[3:], reward[3]) for reward, decision in pairs), key=lambda row: row[0])
        if not rows:
            raise ValueError(f"{self.path} has no decision with a propensity and a reward yet")
        moments, contexts, masks, actions, propensities, stored = zip(*rows, strict=True)
        times, weights = np.array(moments, "datetime64[ns]"), self.facts().get("reward_weights")
        given = {"action": actions, "propensity": propensities, "timestamp": times}
        given |= {"reward": [rewards.worth(told, weights) for told in stored]}
        given |= {"reward_parts": rewards.columns(stored, weights)}
        if items := self.items():
            known = catalog.read_shelf(items, record)
            mask = np.array([catalog.unpacked(shown, len(items)) for shown in masks])
            users = unpacked(contexts, record)
            users = users[catalog.USER][:, 0] if catalog.USER in (record.names or ()) else None
            names = catalog.names(known.ids)
            return make_log(**given, context=users, mask=mask, action_features=known.features, action_names=names)
        if isinstance(actions[0], bytes):
            raise ValueError("a log for off-policy evaluation has actions with an index; these are points of a box")
        size = max(map(len, masks))
        records = unpacked(contexts, record)
        whole = record.names == (WHOLE,)
        lead = (len(rows),) if whole else (len(rows), size)
        parts = [records[name] for name in record.names or ()]
        columns = [part.reshape(*lead, part.size // math.prod(lead)) for part in parts]
        joined = np.concatenate(columns, axis=-1)
        return make_log(
            **given,
            context=joined if whole else None,
            action_features=None if whole else joined,
            mask=np.frombuffer(b"".join(mask.ljust(size, b"\0") for mask in masks), bool).reshape(len(rows), size),
        )

    def latest(self, count: int) -> list[bytes]:
        """The contexts of the last decisions, so many at most; those of other logs come after all others."""
        lowest = lowest_of(self.inserted())
        with self._reported():
            found = self._db.execute(
                f"SELECT {COLUMNS['decisions']} FROM decisions WHERE number >= ? ORDER BY number DESC LIMIT ?",
                (lowest, count),
            )
            return [self._sound("decisions", row)[3] for row in found]

    def history(self, record: np.dtype) -> "pd.DataFrame":
        """All decisions, as `read_history` returns them."""
        import pandas as pd

        items, facts = self.items(), self.facts()
        weights, names = facts.get("reward_weights"), encoders.names(facts.get("encoder"))
        lowest = lowest_of(self.inserted())
        with self._reported():
            found = self._db.execute(
                f"SELECT {COLUMNS['decisions']}, {COLUMNS['rewards']} FROM decisions LEFT JOIN rewards "
                "USING (number) WHERE decisions.number >= ? ORDER BY decisions.number",
                (lowest,),
            )
            width = WIDTHS["decisions"]
            rows = [(self._sound("decisions", row[:width]), self._reward_of(row[0], row[width:])) for row in found]
            if any(source == COLLECTED for _, (*_, source) in rows):
                last = self._last_reports()
                rows = [
                    (row, (told, last[row[0]] if source == COLLECTED else moment, source))
                    for row, (told, moment, source) in rows
                ]
        rows.sort(key=lambda row: row[0][1])  # by time
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
            ids = {number: json.loads(text) for number, text, *_ in items}
            columns["action"] = pd.Series([ids.get(key, key) for key in action], dtype=None if action else np.int64)
        columns |= {
            "propensity": np.array(propensity, float),
            "reward": np.array([told if told is None else rewards.worth(told, weights) for told in rewarded[0]], float),
            **{part_column(name): part for name, part in rewards.columns(rewarded[0], weights).items()},
            "reward_time": _times(rewarded[1]),
            "source": pd.array(rewarded[2], "string"),
        }
        records = unpacked(context, record)
        for field in record.names or ():
            part = records[field][:, 0] if items else records[field]  # of the item that was chosen
            flat = part.reshape(len(rows), math.prod(part.shape[1:]))
            own = names.get(field) or [f"{field}_{place}" for place in range(flat.shape[1])]
            columns |= {f"context {name}" if name in columns else name: flat[:, i] for i, name in enumerate(own)}
        return pd.DataFrame(columns)

    def _last_reports(self) -> dict[int, int]:
        """(number of a decision) -> the time of its last report."""
        found = self._db.execute(f"SELECT {COLUMNS['reports']} FROM reports ORDER BY sequence")
        return {number: moment for _, number, _, moment in (self._sound("reports", row) for row in found)}

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
        for file in (wal(self.path), self.path):
            shutil.copyfile(file, folder / file.name)
        return folder / self.path.name

    def _sound(self, table: str, row: Sequence[Any]) -> Sequence[Any]:
        """A row without its checksum. Raises ValueError where that is wrong."""
        if checksum(row[:-1]) != row[-1]:
            raise ValueError(
                f"{self.path} is damaged: the row {row[0]!r} of its table {table} does not have its checksum; "
                "restore it from a copy"
            )
        return row[:-1]

    def _both(self, row: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        """A reward and its decision, of a row of both."""
        reward, decision = (row[: WIDTHS["rewards"]], row[WIDTHS["rewards"] :])
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
            raise RuntimeError(f"{self.path} is closed, perhaps because the process ends ({error})") from error
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"{self.path} is damaged or no log of decisions: {error}; restore it from a copy"
            ) from error


class Copy(Reader):
    """The log in the bytes of a database. Used by one thread."""

    def __init__(self, content: bytes) -> None:
        """See the class."""
        self.path, self._held = Path(":memory:"), ExitStack()
        self._connect(":memory:")
        self._db.deserialize(content)


def lowest_of(inserted: Sequence[Inserted]) -> int:
    """The lowest number of a decision that counts; those below belong to a log of which not all is written."""
    return inserted[-1].number if inserted else 0


def _times(moments: Sequence[int | None]) -> "pd.Series":
    """Times in UTC from ns since 1970; NaT for None."""
    import pandas as pd

    numbers = [np.iinfo(np.int64).min if moment is None else moment for moment in moments]  # that of NaT
    return pd.Series(np.array(numbers, np.int64).astype("datetime64[ns]")).dt.tz_localize("UTC")


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
        A row for each decision, by time: number (below 0 for rows of a `warm_start`), time (UTC), token, action (or
        action_0, ... of a point), propensity (NaN where it is not known), reward, its named parts (as reward[click]),
        reward_time (where reports were collected, that of the last one) and source ("reported", "default", "collected",
        "history"), missing where no reward came yet; then the context, by the names of the encoder's features or
        context_0, ...

    Raises:
        FileNotFoundError: there is no log.
        ValueError: it is damaged.
    """
    return _read(path, lambda reader: reader.history(record_from(reader.facts()["record"])))


def read_encoder(path: str | os.PathLike[str], part: Literal["item", "user"] | None = None) -> Encoder:
    """The encoder that an `OnlineAgent` had, also while it is in use.

    Args:
        path: as in `read_log`.
        part: of a catalog, whose items and users have encoders of their own; None: of contexts.

    Raises:
        FileNotFoundError: there is no log.
        ValueError: the log is damaged, or the agent had no encoder, or one without a JSON form (`Encoder.of`).
    """
    found = _read(path, lambda reader: reader.facts().get("encoder"))
    text = found if part is None else encoders.of_part(found, part)
    if isinstance(text, str):
        return Encoder.from_json(text)
    if text is None:
        kind = f"no encoder{'' if part is None else f' of each {part}'}"
    elif "columns" in text:
        kind = f"an encoder without a JSON form, of the columns {text['columns']}"
    else:
        kind = f"a catalog: say of which part, {' or '.join(map(repr, text))}"
    raise ValueError(f"the agent of {path} had {kind}")


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
        if reader.in_use or not wal(file).exists():
            return found  # else an agent has opened it meanwhile
