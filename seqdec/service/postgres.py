"""A log in PostgreSQL, which several processes write at once: deciders, and one learner that numbers the rewards.

What a transaction writes is sent with its end. Nothing is set in a session beyond a transaction, so that a pooler of
transactions may stand between.
"""

import copy
import itertools
import json
import os
import re
import shlex
import socket
import sys
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple

from seqdec.service.database import (
    COLUMNS,
    REPLACED,
    TABLES,
    Base,
    DamagedError,
    Database,
    Inserted,
    Unit,
    checksum,
    lowest_of,
)
from seqdec.service.schema import LOG
from seqdec.service.spool import Rows, Spool, keyed
from seqdec.service.store import (
    COLLECTED,
    DAY,
    DEFAULT,
    PARTS,
    Entry,
    FencedError,
    KeysTakenError,
    Logged,
    Store,
    Stored,
    first_of,
    split_number,
)

KEYS = 7 * DAY
"""Nanoseconds for which a client's key stands for its decision."""
BATCH = 32
"""Rewards of a batch, of those that have waited."""
_DEFAULTS = {
    "application_name": "seqdec",
    "connect_timeout": "5",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "10000",
}
"""Of a connection whose URL says nothing else: a database that has gone is noticed in seconds."""
_PATIENCE, _IDLE = 30_000, 3_000
"""Milliseconds that a statement of a transaction may take, and that a transaction waits for its process."""
_LATE = 60 * 10**9
"""Nanoseconds after which what a transaction writes about the present time can be read, or never will be."""
_OLD = 2
"""Days after which no process writes in a block."""
_KINDS = {"TEXT": "text", "INTEGER": "bigint", "BLOB": "bytea", "REAL": "double precision"}
_MIXED = {"decisions": 5, "rewards": 3, "reports": 2}
"""Columns of two types, texts here."""
_KEPT = 10_000
"""Keys of clients whose decisions a process remembers."""
_REPEATED = {"rewards", "withdrawn", "units"}
"""Tables of which the first row of a decision counts."""
_NAMES = (*TABLES, "keys", "deciders", "lease", "beliefs", "requests", "deployments", "version")
_FUNCTIONS = ("make_day", "drop_day", "claim_block", "append_decisions", "waiting", "batches")
_QUALIFIED = re.compile(rf"\b((?:FROM|JOIN|INTO|UPDATE) |)({'|'.join(_NAMES)}|(?:{'|'.join(_FUNCTIONS)})(?=\())\b")
_JOINED = "".join(
    f" LEFT JOIN {table} ON {table}.number = decisions.number AND {table}.number = ANY(?::bigint[])"
    for table in PARTS[1:]
)  # so that only the partitions of these numbers are planned for
_FATES = (
    f"SELECT {', '.join(COLUMNS[table] for table in PARTS)} FROM decisions{_JOINED} "
    "WHERE decisions.number = ANY(?::bigint[])"
)
_LOCK = "SELECT number FROM decisions WHERE number = ANY(?::bigint[]) ORDER BY number FOR NO KEY UPDATE"
_LATE_ONES = """
SELECT given.number FROM unnest(?::bigint[]) AS given (number)
JOIN deciders ON given.number >> 28 = (day << 20 | block) AND decided IS NULL AND day >= ?
WHERE NOT EXISTS (
    SELECT FROM decisions WHERE decisions.number > given.number AND decisions.number < ((given.number >> 28) + 1) << 28
)"""
"""Numbers behind the last one of their block, which may be on their way."""
_FIRST = "(day << 20 | block) << 28"
"""`first_of` a block."""
_IN_BLOCK = f"number > {_FIRST} AND number < ((day << 20 | block) + 1) << 28"
_NEXT = f"""
SELECT {_FIRST}, found.number, found.time FROM deciders
LEFT JOIN unnest(?::bigint[], ?::bigint[]) AS given (first, after) ON given.first = {_FIRST}
CROSS JOIN LATERAL (
    SELECT number, time FROM decisions
    WHERE number > coalesce(given.after, {_FIRST}) AND number < ((day << 20 | block) + 1) << 28 AND number > ?
    ORDER BY number LIMIT ?
) AS found
WHERE day >= ? AND decided IS NULL ORDER BY 1, 2"""
"""Of each block, the decisions after one."""
_ACTIVATED = (
    "SELECT number, activated FROM deferred WHERE activated > ? AND activated < ? AND number <> ALL(?::bigint[]) "
    "ORDER BY activated, number LIMIT ?"
)
_KEYS_TAKEN, _NUMBERS_TAKEN = "SQ001", "SQ002"
_NO_TABLES = {"42P01", "42703", "42883", "3F000", "42501"}
"""Undefined tables, columns, functions, schemas, and missing privileges."""
_DAMAGED = {"XX001", "XX002"}
_FOREIGN = {"42P07", "42723", "42710"}
"""Of a migration: tables, functions or types that it would make are there."""

_BELIEFS = "belief"
"""Beside rows of tables: the batches of the models that decided."""

Statement = tuple[str, Sequence[Any]]
"""SQL with ? for parameters, and these."""


_ALL_WRITE = {"rewards", "reports", "withdrawn", "deferred", "units"}
"""Tables that deciders write; of others, only the learner changes rows, but for `append_decisions`."""


class Postgres(NamedTuple):
    """A log in a database, in a schema of its own."""

    url: str
    """postgresql://user:password@host/database?sslmode=verify-full"""
    schema: str

    def __str__(self) -> str:
        found = settings(self.url)
        port = f":{found['port']}" if "port" in found else ""
        host = f"{found.get('host', 'localhost')}{port}"
        return f"PostgreSQL at {host}, database {found.get('dbname', '')!r}, schema {self.schema!r}"

    def __repr__(self) -> str:
        return f"<{self}>"


class SharedPlace(NamedTuple):
    """How far a shared log was searched for decisions whose time is over."""

    day: int
    """blocks of days before are at their end"""
    blocks: dict[int, int]
    """last number looked at, by `first_of` a block"""
    activated: int
    """time of the others, up to which almost all were"""
    seen: dict[int, int]
    """of them, those activated in the last minute before: time by number"""


class PostgresDatabase(Database):
    """A connection, made anew after it was lost. One thread at a time.

    Values are those of SQLite, with the same checksums: what has two types there is a text here.
    """

    newest = "time DESC"

    def __init__(self, place: Postgres) -> None:
        self.path, self._name = place, quoted(place.schema)
        self._settings = _DEFAULTS | settings(place.url)
        self._statements: dict[str, str] = {}
        self._connection: Any = None
        self._opening = ""
        self._written: list[Statement] = []
        self._is_within, self._is_closed = False, False
        self.is_watched, self.is_away = False, False
        """Whether a thread finds out when the database answers again, and it does not: calls then fail at once."""

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        return self.run((statement, parameters))[0]

    def run(self, *statements: Statement, commits: bool = False, repeats: bool = False) -> list[list[Any]]:
        """Rows of each of several statements; in one round trip outside a transaction, and where they end it.

        Where the connection turns out to be lost, what only reads, or begins a transaction and does not end it, is
        repeated once; so is what `repeats` without harm.
        """
        reads = all(statement.lstrip().startswith("SELECT") for statement, _ in statements) and not self._is_within
        begins = bool(self._opening) and not commits
        may_repeat = reads or begins or (repeats and not (self._is_within and not self._opening))
        sent, was_lost = [*self._written, *statements], self._is_lost()
        try:
            found = self._sent(sent, commits)
        except _driver().Error as error:
            has_begun = begins and not self._opening
            if was_lost or has_begun or not (may_repeat and self._is_lost()):
                raise self._error(error) from error
            try:
                found = self._sent(sent, commits)
            except _driver().Error as again:
                raise self._error(again) from again
        self._written = []
        if commits:
            self._opening, self._is_within = "", False
        return found[len(sent) - len(statements) :]

    def among(self, column: str, values: Collection[int]) -> tuple[str, Sequence[Any]]:
        return f"{column} = ANY(?::bigint[])", [list(values)]

    def write(self, table: str, rows: Sequence[Sequence[Any]], *, replaces: bool = False) -> None:
        """In a transaction with its next statement, or its end."""
        if not rows:
            return
        statement = _insert(table, replaces=replaces), _columns(table, rows)
        if self._is_within:
            self._written.append(statement)
        else:
            self.run(statement)

    def scan(self, table: str) -> Iterator[Sequence[Any]]:
        self.execute("SELECT 1")  # begins the transaction of `snapshot`
        statement = self._translated(f"SELECT {COLUMNS[table]} FROM {table}")
        with self._connection.cursor("scan") as cursor:
            cursor.execute(statement, binary=True)
            yield from cursor

    def verified(self, table: str, row: Sequence[Any]) -> Sequence[Any]:
        mixed = _MIXED.get(table)
        if mixed is not None and row[mixed] is not None:
            row = (*row[:mixed], _from_text(row[mixed]), *row[mixed + 1 :])
        return super().verified(table, row)

    def has(self, table: str) -> bool:
        ((found,),) = self.execute("SELECT to_regclass(?) IS NOT NULL", (f"{self._name}.{table}",))
        return found

    def batches(self, after: int, last: int) -> list[tuple[Sequence[Any], Sequence[Any]]]:
        found = self.execute("SELECT * FROM batches(?::bigint, ?::bigint)", (after, last))
        rewards = [self.verified("rewards", row) for row in found]
        # By number, as a join would be planned for the partitions of all days.
        numbers = [row[1] for row in rewards]
        known = {row[0]: row for row in self.rows("decisions", "WHERE number = ANY(?::bigint[])", (numbers,))}
        if len(known) < len(numbers):
            raise self._lacks_rows("decisions")
        return [(row, known[row[1]]) for row in rewards]

    def begin(self) -> None:
        self._begin("BEGIN", _PATIENCE, _IDLE)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """The log is read as it is now, for as long as it takes."""
        self._begin("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", 0, 0)
        try:
            yield
        finally:
            self.rollback()

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """A transaction that may take long."""
        self._begin("BEGIN", 0, 0)
        try:
            yield
            self.commit()
        finally:
            self.rollback()

    def commit(self) -> None:
        if self._opening and not self._written:
            self.rollback()
        else:
            self.run(commits=True)

    def rollback(self) -> None:
        self._opening, self._written, self._is_within = "", [], False
        if self._is_lost():
            self._drop()
            return
        status, kinds = self._connection.info.transaction_status, _driver().pq.TransactionStatus
        if status in (kinds.INTRANS, kinds.INERROR):
            with suppress(_driver().Error):
                self._connection.execute("ROLLBACK")
                return
        if status != kinds.IDLE:  # such as after KeyboardInterrupt
            self._drop()

    def close(self) -> None:
        self._is_closed = True
        self._drop()

    def check_gaps(self) -> None:
        base = self.base()
        blocks = (
            "SELECT count(*), max(number) - greatest(min(number) >> 28 << 28, ?) FROM decisions WHERE number > ? "
            "GROUP BY number >> 28"
        )
        rewards = "SELECT count(*), coalesce(max(sequence) - ?, 0) FROM rewards WHERE sequence > ?"
        number, first = (max(0, base.number), base.sequence) if base else (0, 0)
        counted = self.run((blocks, (number, number)), (rewards, (first, first)))
        for table, found in zip(("decisions", "rewards"), counted, strict=True):
            if any(count != last for count, last in found):
                raise self._lacks_rows(table)

    def migrate(self, steps: Sequence[str]) -> None:
        """Make the tables of a newer program. Raises OSError where the role may not."""
        try:
            connection = connected(self._settings)
            with connection, connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(hashtext('seqdec'), 0)")
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._name}")
                connection.execute(f"CREATE TABLE IF NOT EXISTS {self._name}.version (number bigint)")
                found = connection.execute(f"SELECT number FROM {self._name}.version").fetchone()
                literal = "'" + self.path.schema.replace("'", "''") + "'"
                for step in steps[found[0] if found else 0 :]:
                    connection.execute(step.replace("{schema}", self._name).replace("{literal}", literal))
                connection.execute(f"DELETE FROM {self._name}.version")
                connection.execute(f"INSERT INTO {self._name}.version VALUES ({len(steps)})")
        except _driver().Error as error:
            if error.sqlstate in _FOREIGN:
                raise ValueError(f"{self.path} has tables of another program: choose another schema") from error
            raise self._error(error) from error

    def named(self, name: str) -> str:
        return f"{self._name}.{quoted(name)}"

    def _begin(self, statement: str, patience: int, idle: int) -> None:
        limits = {"statement_timeout": patience, "idle_in_transaction_session_timeout": idle, "jit": "off"}
        set_ = ", ".join(f"set_config('{name}', '{limit}', true)" for name, limit in limits.items())
        self._opening, self._is_within = f"{statement}; SELECT {set_}", True

    def _sent(self, statements: Sequence[Statement], commits: bool) -> list[list[Any]]:
        if self._is_closed:
            raise RuntimeError(f"{self.path} is closed")
        if self._is_lost():
            if self._is_within and not self._opening:
                raise _driver().OperationalError("the connection was lost in a transaction")
            self._connect()
        if commits or (len(statements) > 1 and not self._is_within):
            parts = [(part, ()) for part in self._opening.split("; ") if part]
            with self._connection.pipeline():
                cursors = [self._run(*statement) for statement in (*parts, *statements, *[("COMMIT", ())] * commits)]
            return [_rows(cursor) for cursor in cursors[len(parts) : len(cursors) - commits]]
        # psycopg ends a pipeline in such a way that PostgreSQL does not wait for the end of a transaction that is left
        # open: idle_in_transaction_session_timeout would do nothing.
        if self._opening:
            self._connection.execute(self._opening)
            self._opening = ""
        return [_rows(self._run(*statement)) for statement in statements]

    def _connect(self) -> None:
        if self.is_away:
            raise _driver().OperationalError("it is away")
        try:
            self._connection = connected(self._settings)
        except _driver().Error:
            self.is_away = self.is_watched
            raise

    def _run(self, statement: str, parameters: Sequence[Any]) -> Any:
        return self._connection.execute(self._translated(statement), parameters, binary=True)

    def _translated(self, statement: str) -> str:
        """With names of the schema, and psycopg's parameters."""
        found = self._statements.get(statement)
        if found is None:
            full = _QUALIFIED.sub(self._qualified, statement)
            found = self._statements[statement] = full.replace("%", "%%").replace("?", "%b")
        return found

    def _qualified(self, found: re.Match[str]) -> str:
        before, name = found.groups()
        return f"{before}{self._name}.{name}" if before or name in _FUNCTIONS else name

    def _is_lost(self) -> bool:
        return self._connection is None or self._connection.closed or self._connection.broken

    def _drop(self) -> None:
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()
        self._connection = None

    def _error(self, error: Any) -> Exception:
        """What to raise instead of an error of psycopg."""
        state, text = getattr(error, "sqlstate", None), " ".join(str(error).split())
        if state == _KEYS_TAKEN:
            return KeysTakenError(json.loads(error.diag.message_detail))
        if state in _NO_TABLES:
            return OSError(f"{self.path} lacks tables or rights of this program ({text}): {_remedy(self.path)}")
        if state in _DAMAGED:
            return DamagedError(f"{self.path} is damaged: {text}; restore it from a copy")
        return OSError(f"cannot use {self.path}: {text}")


class SharedStore(Store):
    """The log of several processes as a `Store`.

    Rewards wait, without sequence and batch, for the learner to number them (`number_rewards`), which is kept to one
    process by an epoch in the table `lease`.
    """

    database: PostgresDatabase
    is_shared = True
    epoch = 0
    """of this process's lease, the last one"""

    def __init__(self, place: Postgres, spool: Spool | None = None) -> None:
        prepare(place)
        self._spool, self._answered = spool, OrderedDict[str, Logged]()
        self._use(PostgresDatabase(place))
        self._block: tuple[int, int] | None = None
        self._placed, self._next = 0, None
        try:
            self.recover()
            while self.unspool(1):
                pass
            ((latest,),) = self.database.execute("SELECT max(time) FROM decisions WHERE number > 0")
        except BaseException:
            self.close()
            raise
        self.waited = max(0.0, (self.now() - latest) / 1e9) if latest else 0.0

    @property
    def has_spool(self) -> bool:
        return self._spool is not None

    @property
    def is_spooled(self) -> bool:
        """Whether the database lacks decisions of this process."""
        return self._spool is not None and not self._spool.is_empty

    @property
    def decisions(self) -> int:
        last = f"(SELECT max(number) FROM decisions WHERE {_IN_BLOCK})"
        ((own,),) = self.database.execute(
            f"SELECT coalesce(sum(coalesce(decided, {last} & 268435455, 0)), 0)::bigint FROM deciders"
        )
        return own - lowest_of(self.inserted)

    @property
    def rewards(self) -> int:
        ((sequence,),) = self.database.execute("SELECT sequence FROM lease")
        return sequence - lowest_of(self.inserted)

    @property
    def batches(self) -> int:
        ((batch,),) = self.database.execute("SELECT batch FROM lease")
        return max([batch, self.base.batch if self.base else 0, *(log.last for log in self.inserted)])

    @property
    def last(self) -> int:
        """Number of the last decision of this process; 0 before the first."""
        return first_of(*self._block) + self._placed if self._block else 0

    def next_number(self) -> int:
        """Number that this process's next decision has, in a block of the present day."""
        if self._next is None or split_number(self._next).day != self.now() // DAY:
            day = self.now() // DAY
            if self._block is None or self._block[0] != day:
                call = "SELECT claim_block(?::bigint, ?::text)"
                try:
                    ((block,),) = self.database.execute(call, (day, f"{socket.gethostname()}:{os.getpid()}"))
                    self._block, self._placed = (day, block), 0
                except OSError:
                    if self._spool is None or self._block is None or self._block[0] < day - 1:
                        raise
            self._next = first_of(*self._block) + self._placed + 1
        return self._next

    def append_decisions(self, entries: Sequence[Entry], units: Sequence[Unit] = (), *, active: bool = True) -> int:
        """Commit decisions, the first of which has the number last returned by `next_number`; or spool them.

        Raises KeysTakenError, and writes nothing, where another process has decided for some of their keys.
        """
        first = self.next_number() if self._next is None else self._next
        rows = {
            "decisions": self._decisions(entries, first),
            "units": [(number, one.digest, int(one.is_control), one.share) for number, one in enumerate(units, first)],
            "deferred": [] if active else [(first + place, None) for place in range(len(entries))],
            _BELIEFS: [[entry.belief for entry in entries]],
        }
        if self.is_spooled or not self._appended(rows):
            assert self._spool is not None
            try:
                self._spool.add(rows)
            except BaseException:
                self._block = self._next = None  # the database may have these numbers
                raise
        self._remember(keyed(rows))
        self._placed, self._next = self._placed + len(entries), None
        return first

    def unspool(self, most: int) -> bool:
        """Write the decisions of at most `most` calls in the spool; whether there are others."""
        for _ in range(most):
            if self._spool is None or self._spool.is_empty:
                return False
            rows = self._spool.first()
            try:
                self._append(rows)
            except KeysTakenError as error:  # by other processes, meanwhile
                self.recover()
                self._forget(error.keys)
                self._append({**rows, "decisions": [_without_key(row, error.keys) for row in rows["decisions"]]})
            self._spool.drop_first()
        return True

    def find_files(self) -> None:
        """Spool also what processes have left that have ended."""
        if self._spool is not None:
            self._spool.find()

    def _remember(self, answered: Mapping[str, Logged]) -> None:
        """The last answers, for the same ones while the database is away."""
        if self._spool is not None:
            self._answered |= {key: found._replace(context=None) for key, found in answered.items()}
            while len(self._answered) > _KEPT:
                self._answered.popitem(last=False)

    def _forget(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._answered.pop(key, None)

    def _appended(self, rows: Rows) -> bool:
        """Whether the database has them now; if not, the spool has to. Raises as `append_decisions`."""
        try:
            self._append(rows)
        except KeysTakenError:
            self.recover()
            raise
        except BaseException as error:
            self.recover()
            if self._spool is None or not isinstance(error, OSError):
                self._block = self._next = None  # whether they were written is not known: they are not used again
                raise
            self.database.is_away = self.database.is_watched
            return False
        return True

    def _append(self, rows: Rows) -> None:
        """May be repeated."""
        columns = [*_columns("decisions", rows["decisions"]), *rows[_BELIEFS]]
        call = f"SELECT append_decisions({_given('decisions')}, ?::bigint[])", columns
        others = {table: rows[table] for table in ("units", "deferred") if rows[table]}
        if others:
            self.database.begin()
        for table, some in others.items():
            self.database.write(table, some)
        self.database.run(call, commits=bool(others), repeats=True)

    def append_rewards(self, rows: Sequence[tuple[Logged, Stored, str]]) -> None:
        """Commit rewards with their sources, which wait for their numbers; the first of a decision stays."""
        written = [(None, decision.number, None, reward, self.now(), source) for decision, reward, source in rows]
        self._commit(("rewards", written))

    def append_reports(self, rows: Sequence[tuple[int, Stored, bytes | None]], activated: Iterable[int]) -> None:
        places = self.database.execute(
            "SELECT nextval(?::text::regclass) FROM generate_series(1, ?)", (self.database.named("report"), len(rows))
        )
        given = ((place, *row) for (place,), row in zip(places, rows, strict=True))
        written = [(place, number, one, self.now(), key) for place, number, one, key in given]
        self._commit(("reports", written), ("deferred", [(number, self.now()) for number in activated]))

    @contextmanager
    def locked(self, numbers: Collection[int]) -> Iterator[dict[int, Logged]]:
        with self._transaction():
            given = list(numbers)
            _, rows = self.database.run((_LOCK, (given,)), (_FATES, (given,) * len(PARTS)))
            found = {row[0]: self._logged(row) for row in rows}
            if self._spool is not None and (missing := [number for number in given if number not in found]):
                for (number,) in self.database.execute(_LATE_ONES, (missing, self.now() // DAY - _OLD)):
                    raise OSError(f"the decision {number} is not in {self.path} yet, but with its server: try again")
            yield found

    @contextmanager
    def fenced(self, epoch: int) -> Iterator[None]:
        """A transaction of the learner. Raises FencedError once there is another one, which waits for its end."""
        with self._transaction():
            ((found,),) = self.database.execute("SELECT epoch FROM lease FOR KEY SHARE")
            if found != epoch:
                raise FencedError(f"{self.path} has another learner, of epoch {found} instead of {epoch}")
            yield

    def beside(self) -> "SharedStore":
        """The log in a connection of its own, made when it is used, beside the calls of this one."""
        other = copy.copy(self)
        other._use(PostgresDatabase(self.database.path))
        other.recover()
        return other

    def number_rewards(self, most: int, fence: int, size: int = BATCH) -> int:
        """Give at most `most` waiting rewards their sequence, and batches of a `size`; returns how many.

        `fence`: the learner's epoch. Raises FencedError for another one in the table `lease`.
        """
        if not self.database.execute("SELECT 1 FROM waiting(?::bigint)", (1,)):
            return 0
        known = [self.base.batch if self.base else 0, *(log.last for log in self.inserted)]
        with self._transaction():
            ((epoch, sequence, last),), found = self.database.run(
                ("SELECT epoch, sequence, batch FROM lease FOR NO KEY UPDATE", ()),
                ("SELECT * FROM waiting(?::bigint)", (most,)),
            )
            if epoch != fence:
                raise FencedError(f"{self.path} has another learner, of epoch {epoch} instead of {fence}")
            first, rows = 1 + max([last, *known]), [self.database.verified("rewards", row) for row in found]
            numbered = [(sequence + 1 + n, row[1], first + n // size, *row[3:]) for n, row in enumerate(rows)]
            if numbered:
                places, numbers, batches = ([row[column] for row in numbered] for column in range(3))
                self.database.execute(
                    "UPDATE rewards SET sequence = given.sequence, batch = given.batch, checksum = given.checksum "
                    "FROM unnest(?::bigint[], ?::bigint[], ?::bigint[], ?::bigint[]) "
                    "AS given (number, sequence, batch, checksum) "
                    "WHERE rewards.number = given.number AND rewards.number = ANY(?::bigint[])",
                    (numbers, places, batches, list(map(checksum, numbered)), numbers),
                )
                self.database.execute("UPDATE lease SET sequence = ?, batch = ?", (places[-1], batches[-1]))
        return len(numbered)

    def keyed(self, keys: Collection[str]) -> dict[str, Logged]:
        own = {} if self._spool is None else {key: self._spool.keyed[key] for key in keys if key in self._spool.keyed}
        rest = [key for key in keys if key not in own]
        try:
            found = self.database.execute("SELECT key, number FROM keys WHERE key = ANY(?::text[])", (rest,))
        except OSError:
            if self._spool is None:
                raise
            return own | {key: self._answered[key] for key in rest if key in self._answered}
        known = self.find_many([number for _, number in found]) if found else {}
        stored = {key: known[number] for key, number in found if number in known}
        self._remember(stored)
        return own | stored

    def drop_keys(self, most: int) -> int:
        """Delete at most `most` keys whose time is over; returns how many."""
        condition = "ctid = ANY(ARRAY(SELECT ctid FROM keys WHERE time < ? LIMIT ?))"
        return len(self.database.execute(f"DELETE FROM keys WHERE {condition} RETURNING 1", (self.now() - KEYS, most)))

    def erase(self, numbers: Sequence[int]) -> int:
        with self._transaction():
            named = "SELECT key FROM decisions WHERE number = ANY(?::bigint[])"
            self.database.execute(f"DELETE FROM keys WHERE key IN ({named})", (list(numbers),))
            self._answered.clear()
            return super().erase(numbers)

    def older(self, moment: int, after: int, most: int, whole: bool) -> tuple[list[int], int | None]:
        """As of `Store`; instead of all decisions, for `remove`, the last number of each day whose decisions are."""
        if whole:
            return super().older(moment, after, most, whole)
        days = [
            -1,
            *(
                day
                for (day,) in self.database.execute(
                    "SELECT DISTINCT day FROM deciders WHERE decided IS NULL AND (day + 1) * ? <= ? ORDER BY day",
                    (DAY, moment),
                )
            ),
        ]
        last = "SELECT max(time) FROM decisions WHERE number > ? AND number <= ?"
        found = []
        for end in (first_of(day + 1) - 1 for day in days):
            start = first_of(split_number(end).day) if end > 0 else -sys.maxsize
            ((latest,),) = self.database.execute(last, (start, end))
            if latest is not None and latest < moment:
                found.append(end)
        return found, None

    def remove(self, numbers: Sequence[int], before: int) -> int:
        """Drop the days of these numbers; returns how many decisions they had. Those stay as in `Store.remove`."""
        assert self.base is not None
        gone = 0
        for number in numbers:
            given = split_number(number).day, self.base.batch, before
            ((count,),) = self.database.execute("SELECT drop_day(?::bigint, ?::bigint, ?::bigint)", given)
            gone += count or 0
        return gone

    def unrewarded(self, place: Any, before: int, most: int) -> tuple[list[Logged], Any]:
        """As of `Store`; decisions of each block in order, then those activated since a minute before the last."""
        share = max(1, most // max(1, len(place.blocks)))
        blocks = list(place.blocks), list(place.blocks.values()), first_of(place.day), share, place.day
        since = place.activated - _LATE
        following, late = self.database.run((_NEXT, blocks), (_ACTIVATED, (since, before, list(place.seen), most)))
        looked, times = dict(place.blocks), dict(late)
        for first, rows in itertools.groupby(following, lambda row: row[0]):
            for _, number, moment in itertools.takewhile(lambda row: row[2] < before, rows):
                looked[first] = number
                times.setdefault(number, moment)
        ends = [before // DAY - _OLD, *(split_number(first).day for first, *_ in following)]
        day, activated = max(place.day, min(ends)), max([place.activated, *dict(late).values()])
        seen = {number: time for number, time in (place.seen | dict(late)).items() if time > activated - _LATE}
        known = self.find_many(times) if times else {}
        due = [one for number, one in known.items() if one.source is None and one.begun == times[number]]
        due.sort(key=lambda one: (one.begun, one.number))
        rest = {first: number for first, number in looked.items() if split_number(first).day >= day}
        return due, SharedPlace(day, rest, activated, seen)

    def settled(self) -> Any:
        ended = f"source IN ('{DEFAULT}', '{COLLECTED}')"
        active = "NOT EXISTS (SELECT FROM deferred WHERE deferred.number = rewards.number)"
        of_block = f"SELECT max(number) FROM rewards WHERE {_IN_BLOCK} AND {ended} AND {active}"
        with self._transaction():  # without compilation, which takes long for the partitions of all days
            blocks, ((activated,),) = self.database.run(
                (f"SELECT {_FIRST}, ({of_block}) FROM deciders WHERE decided IS NULL", ()),
                (f"SELECT max(activated) FROM deferred JOIN rewards USING (number) WHERE {ended}", ()),
            )
        looked = {first: number for first, number in blocks if number is not None}
        return SharedPlace(0, looked, activated or 0, {})

    def drop_bases(self, most: int) -> int:
        with self.fenced(self.epoch):
            return super().drop_bases(most)

    def drop_staged(self, most: int) -> int:
        with self.fenced(self.epoch):
            return super().drop_staged(most)

    @contextmanager
    def consistent(self) -> Iterator[None]:
        """A transaction that reads the log as it is at its beginning."""
        with self.database.snapshot():
            self._known, self._is_within = None, True
            try:
                yield
            finally:
                self._is_within = False

    def mark(self) -> Any:
        """Another one after each change of facts, arms, items and beliefs by the learner."""
        ((facts, arms, belief),) = self.database.execute(
            "SELECT (SELECT string_agg(checksum::text, ' ' ORDER BY name) FROM facts), "
            "(SELECT string_agg(checksum::text, ' ' ORDER BY id) FROM arms), (SELECT max(id) FROM beliefs)"
        )
        return facts, arms, belief

    def recover(self) -> None:
        """Undo what was not committed, and forget what others may have changed since."""
        self._is_within = False
        self.database.rollback()
        self._recount()

    def _recount(self) -> None:
        self._latest = None
        self._known: tuple[Base | None, list[Inserted]] | None = None

    def _commit(self, *parts: tuple[str, Sequence[Any]]) -> None:
        if all(table in _ALL_WRITE for table, rows in parts if rows):
            super()._commit(*parts)
        else:
            with self.fenced(self.epoch):
                super()._commit(*parts)

    @property
    def base(self) -> Base | None:
        return self._read()[0]

    @property
    def inserted(self) -> list[Inserted]:
        return self._read()[1]

    def _read(self) -> tuple[Base | None, list[Inserted]]:
        if self._known is None:
            self._known = self.database.base(), self.database.inserted()
        return self._known

    def _found(self, numbers: Collection[int]) -> list[Any]:
        return self.database.execute(_FATES, (list(numbers),) * len(PARTS))

    def _is_over(self, number: int, time: int, moment: int) -> bool:
        return split_number(number).day * DAY > moment + DAY


@contextmanager
def reading(place: Postgres) -> Iterator[PostgresDatabase]:
    """The log as it is now, read only, while others write. Raises OSError or ValueError."""
    with closing(PostgresDatabase(place)) as database, database.snapshot():
        if not database.described():
            raise ValueError(f"{place} is not the log of an OnlineAgent")
        yield database


def settings(url: str) -> dict[str, Any]:
    """Of a URL. Raises ValueError, without its password, for another text."""
    try:
        found = dict(_driver().conninfo.conninfo_to_dict(url))
    except _driver().Error as error:
        option = re.match(r'invalid URI query parameter: "(\w+)"', str(error))
        if option and "@" not in url.partition("?")[2]:  # else it may be of a password
            raise ValueError(f"the place of a log has the unknown option {option[1]!r}") from None
        raise ValueError(
            "the place of a log must be a URL, postgresql://user:password@host:port/database, whose special characters "
            "are written as %XX"
        ) from None
    if "@" in found.get("host", "") + found.get("dbname", "") or re.search("[^0-9,]", found.get("port", "")):
        raise ValueError("a @ in a password is written as %40, and a / as %2F; the port of a database is a number")
    return found


def connected(given: Mapping[str, Any]) -> Any:
    """A connection. Raises an error of psycopg."""
    return _driver().connect(**given, autocommit=True, prepare_threshold=None)


def quoted(name: str) -> str:
    """A name in SQL. Raises ValueError for one that PostgreSQL would cut."""
    if not 0 < len(name.encode()) < 64 or "\0" in name:
        raise ValueError(f"the name of a schema must have 1 to 63 bytes; got {name!r:.80}")
    return '"' + name.replace('"', '""') + '"'


def prepare(place: Postgres, steps: Sequence[str] = LOG) -> None:
    """Make or migrate the tables of a schema, if they are not those of this program.

    Raises OSError where the role may not, ValueError for tables of a newer program.
    """
    with closing(PostgresDatabase(place)) as database:
        if _version(database, steps) < len(steps):
            database.migrate(steps)


def check_role(place: Postgres, role: str) -> None:
    """Raises ValueError for an unknown one, OSError."""
    with closing(PostgresDatabase(place)) as database:
        if not database.execute("SELECT 1 FROM pg_roles WHERE rolname = ?", (role,)):
            raise ValueError(f"the database has no role {role!r}: make it first, with createuser")


def grant(place: Postgres, role: str) -> None:
    """Let a role read and write the rows of a schema, and make no tables."""
    schema, name = quoted(place.schema), quoted(role)
    statements = [
        f"GRANT USAGE ON SCHEMA {schema} TO {name}",
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {name}",
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {name}",
        f"REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} FROM PUBLIC",
        f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {name}",
    ]
    with closing(PostgresDatabase(place)) as database:
        database.begin()
        database.run(*((statement, ()) for statement in statements), commits=True)


def _version(database: PostgresDatabase, steps: Sequence[str]) -> int:
    """Steps that were made. Raises ValueError for unknown ones."""
    if not database.has("version"):
        return 0
    ((version,),) = database.execute("SELECT number FROM version")
    if version > len(steps):
        raise ValueError(
            f"{database.path} has tables of version {version}, and this seqdec knows {len(steps)}: use a newer one"
        )
    return version


def _remedy(place: Postgres) -> str:
    return f"as a role that may make tables, run seqdec store init URL --schema {shlex.quote(place.schema)} --role ROLE"


def _without_key(row: Sequence[Any], keys: Collection[str]) -> Sequence[Any]:
    return (*row[:7], None, *row[8:]) if row[7] in keys else row


def _insert(table: str, *, replaces: bool) -> str:
    names = [column.split()[0] for column in TABLES[table]]
    statement = f"INSERT INTO {table} ({', '.join(names)}, checksum) SELECT * FROM unnest({_given(table)})"
    if replaces or table in REPLACED:
        changed = ", ".join(f"{name} = excluded.{name}" for name in (*names[1:], "checksum"))
        return f"{statement} ON CONFLICT ({names[0]}) DO UPDATE SET {changed}"
    return f"{statement} ON CONFLICT DO NOTHING" if table in _REPEATED else statement


def _given(table: str) -> str:
    """Parameters for the columns of a table, each an array."""
    declared = [(*column.split(), "TEXT")[1] for column in TABLES[table]]
    kinds = ["text" if place == _MIXED.get(table) else _KINDS[kind] for place, kind in enumerate(declared)]
    return ", ".join(f"?::{kind}[]" for kind in (*kinds, "bigint"))


def _columns(table: str, rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Values of rows, with their checksums, by column."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    if (mixed := _MIXED.get(table)) is not None:
        columns[mixed] = list(map(_as_text, columns[mixed]))
    return [*columns, list(map(checksum, rows))]


def _as_text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return f"x{value.hex()}"
    return value if value is None or isinstance(value, str) else repr(value + 0)


def _from_text(text: str) -> Any:
    if text[0] == "x":
        return bytes.fromhex(text[1:])
    if text[0] == "{":
        return text
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _rows(cursor: Any) -> list[Any]:
    return cursor.fetchall() if cursor.description else []


def _driver() -> Any:
    try:
        import psycopg
    except ImportError:
        raise ImportError("PostgreSQL needs psycopg: pip install 'seqdec[postgres]'") from None
    return psycopg
