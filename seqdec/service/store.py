"""The log of a service, written before anything is acknowledged (`seqdec.service.database`: its tables)."""

import itertools
import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from seqdec.core import Schema
from seqdec.service.database import COLUMNS, WIDTHS, Arm, Base, DamagedError, Database, Inserted, Unit, lowest_of
from seqdec.service.sqlite import opened

REPORTED, DEFAULT, COLLECTED, HISTORY = "reported", "default", "collected", "history"
WITHDRAWN, INACTIVE = "withdrawn", "inactive"
PARTS = ("decisions", "rewards", "withdrawn", "deferred")
"""A decision, and what became of it."""
_JOINS = "".join(f" LEFT JOIN {table} ON {table}.number = decisions.number" for table in PARTS[1:])
_WITH_FATE = f"SELECT {', '.join(COLUMNS[table] for table in PARTS)} FROM decisions{_JOINS}"
_DROPPED = 10_000
LONGEST_KEY = 200
_JUMP, _DOUBT = 86_400 * 10**9, 3600 * 10**9
"""Nanoseconds that the clock may jump ahead, and for which a longer jump does not count."""
_PORTION, _BYTES = 128, 2**18
"""Most rows, and bytes, written while other calls wait."""

Stored = float | str
"""A stored reward: a number, or named ones as a JSON object."""
_PLACES, _BLOCKS = 28, 20
"""Bits of a decision's number for its place in a block, and for the block in a day."""
DAY = 86_400 * 10**9
"""Nanoseconds."""

Transact = Callable[..., Any]
"""(function, *arguments, urgent=False): an exclusive call (`seqdec.service.transactions`)."""


class KeysTakenError(Exception):
    """Another process has decided for these keys of clients; nothing was written."""

    def __init__(self, keys: Sequence[str]) -> None:
        super().__init__(f"other decisions have the keys {', '.join(map(repr, keys))}")
        self.keys = keys


class FencedError(Exception):
    """Another process has become the learner; nothing was written."""


class Entry(NamedTuple):
    """A decision to write."""

    nonce: bytes
    context: bytes
    mask: bytes | None
    """a byte per arm, or the items packed (`seqdec.service.items`); None for points of a Box"""
    action: Any
    """id of an arm, number of an item, or bytes of a point"""
    propensity: float
    """NaN where unknown"""
    key: str | None = None
    """of the client"""
    logging: bytes | None = None
    """probabilities of all arms as float32, if known"""
    shadow: bytes | None = None
    """those of the agent where another rule decided; 1 for its choice if it does not compute them"""
    belief: int | None = None
    """batch of the model that decided, where several processes decide"""


class Logged(NamedTuple):
    """A decision in the log."""

    number: int
    begun: int | None
    """time from which it takes rewards; None while it is inactive"""
    nonce: bytes | None
    context: bytes | None
    """None where it was erased"""
    action: Any
    propensity: float | None
    logging: bytes | None
    source: str | None
    """of its reward, if any, or `WITHDRAWN`"""

    @property
    def token(self) -> str | None:
        """None where it was erased."""
        return token_of(self.number, self.nonce)


class Reward(NamedTuple):
    """A decision's reward, to be learned."""

    context: bytes | None
    """None where it was erased"""
    action: Any
    propensity: float
    """NaN of imported ones, which another policy decided"""
    reward: Stored


class Place(NamedTuple):
    """How far the log was searched for decisions whose time is over."""

    number: int = 0
    """of those that were active at once"""
    activated: int = 0
    """the others' time"""


class Number(NamedTuple):
    """Parts of a decision's number.

    Each process numbers the decisions of a day in a block of its own, from place 1 on. A log in SQLite, of one process,
    has one block: day 0, block 0.
    """

    day: int
    """since 1970, UTC"""
    block: int
    place: int


def split_number(number: int) -> Number:
    """Inverse of `first_of(day, block) + place`."""
    return Number(number >> _BLOCKS + _PLACES, number >> _PLACES & (1 << _BLOCKS) - 1, number & (1 << _PLACES) - 1)


def first_of(day: int, block: int = 0) -> int:
    """The number before the first one of a block."""
    return (day << _BLOCKS | block) << _PLACES


def token_of(number: int, nonce: bytes | None) -> str | None:
    """The caller's name of a decision."""
    return None if nonce is None else f"{number}-{nonce.hex()}"


def check_keys(keys: Iterable[Any]) -> list[str]:
    """Keys of decisions. Raises TypeError or ValueError."""
    given = list(keys)
    for key in given:
        if not isinstance(key, str):
            raise TypeError(f"a key must be a text; got {key!r:.80}")
        if not key.isprintable() or not 0 < len(key) <= LONGEST_KEY:
            raise ValueError(f"a key must have 1 to {LONGEST_KEY} printable characters; got {key!r:.80}")
    return given


def own_propensity(number: int, propensity: float | None) -> float:
    """The propensity of a decision that was made here."""
    return math.nan if number < 1 or propensity is None else propensity


def nanoseconds(seconds: float) -> int:
    """At most a century and a half, so that times stay integers of SQLite."""
    return int(min(1e9 * seconds, 2.0**62))


def portion(size: int) -> int:
    """Rows of `size` bytes written while calls wait."""
    return max(1, min(_PORTION, _BYTES // max(1, size)))


class Store:
    """The log in `folder`, or in memory for None. One thread at a time, except `flush` and `check_place`.

    Each method that writes is one transaction. Raises as `Database`.
    """

    is_shared = False
    """whether other processes write too, and one of them numbers the rewards"""
    waited: float
    """seconds from the last decision to the opening"""

    def __init__(self, folder: Path | None, *, fsync: bool = False) -> None:
        database = opened(folder, fsync=fsync)
        self._use(database)
        try:
            self.recover()
            self.waited = (time.time_ns() - self._time) / 1e9 if self._time else 0.0
            while self.drop_staged(_DROPPED):
                pass
            while self.drop_bases(_DROPPED):
                pass
            if folder is not None:
                database.stay()
        except BaseException:
            self.close()
            raise

    def _use(self, database: Database) -> None:
        self._time, self._clock, self._at, self._jumped = 0, time.time_ns(), _running(), None
        self.database, self._is_within, self.waited = database, False, 0.0
        self.path, self.arms, self.facts, self.close = database.path, database.arms, database.facts, database.close
        self.check_place, self.flush, self.content = database.check_place, database.flush, database.content
        self.shrink, self.settle_erasure = database.shrink, database.settle_erasure

    @property
    def decisions(self) -> int:
        """Number of valid ones."""
        return self._number - self._skipped - lowest_of(self.inserted)

    @property
    def rewards(self) -> int:
        """Number of valid ones."""
        return self._rewarded

    @property
    def batches(self) -> int:
        """Rewards given at once, learned together."""
        return self._batches

    @property
    def base(self) -> Base | None:
        return self._base

    @property
    def inserted(self) -> list[Inserted]:
        """Imported logs."""
        return self._inserted

    def now(self) -> int:
        """Time in ns, later than every decision before, also where the clock jumps back.

        A jump ahead by more than a day counts once it has lasted for an hour.
        """
        clock, at = time.time_ns(), _running()
        step, lapsed = clock - self._clock, at - self._at
        if step - lapsed <= _JUMP:
            self._jumped = None
        else:
            self._jumped = at if self._jumped is None else self._jumped
            step = lapsed
            clock = self._clock + lapsed if at - self._jumped < _DOUBT else clock
        self._clock, self._at = clock, at
        self._time = max(clock, self._time + max(1, step))
        return self._time

    def before(self, seconds: float) -> int:
        """Time so many seconds ago, also while the log's time is ahead of the clock."""
        return min(self.now(), time.time_ns()) - nanoseconds(seconds)

    @property
    def last(self) -> int:
        """Number of the last decision."""
        return self._number

    def next_number(self) -> int:
        """Number of the next decision."""
        return self.last + 1

    def append_decisions(self, entries: Sequence[Entry], units: Sequence[Unit] = (), *, active: bool = True) -> int:
        """Commit decisions, with the unit of each, if there are any; returns the first number."""
        first = self.next_number()
        deferred = [] if active else [(number, None) for number in range(first, first + len(entries))]
        of = [(number, one.digest, int(one.is_control), one.share) for number, one in enumerate(units, first)]
        self._commit(("decisions", self._decisions(entries, first)), ("deferred", deferred), ("units", of))
        self._number += len(entries)
        return first

    def append_rewards(self, rows: Sequence[tuple[Logged, Stored, str]]) -> None:
        """Commit rewards with their sources, as one batch."""
        batch, first = self.batches + 1, self.rewards + lowest_of(self.inserted) + 1
        written = [
            (sequence, decision.number, batch, reward, self.now(), source)
            for sequence, (decision, reward, source) in enumerate(rows, first)
        ]
        self._commit(("rewards", written))
        self._rewarded += len(rows)
        self._batches = batch
        plain = (reward + 0.0 if isinstance(reward, float) else reward for _, reward, _ in rows)
        self._latest = (
            batch,
            [
                Reward(row.context, row.action, own_propensity(row.number, row.propensity), one)
                for (row, *_), one in zip(rows, plain, strict=True)
            ],
        )

    def append_reports(self, rows: Sequence[tuple[int, Stored, bytes | None]], activated: Iterable[int]) -> None:
        """Commit reports, and that some decisions are active."""
        ((last,),) = self.database.execute("SELECT coalesce(max(sequence), 0) FROM reports")
        written = [(place, number, one, self.now(), key) for place, (number, one, key) in enumerate(rows, last + 1)]
        self._commit(("reports", written), ("deferred", [(number, self.now()) for number in activated]))

    def activate(self, number: int) -> None:
        self._commit(("deferred", [(number, self.now())]))

    def find(self, number: int) -> Logged | None:
        return self.find_many([number]).get(number)

    def find_many(self, numbers: Collection[int]) -> dict[int, Logged]:
        """The decisions that there are, by number."""
        return {row[0]: self._logged(row) for row in self._found(numbers)}

    @contextmanager
    def locked(self, numbers: Collection[int]) -> Iterator[dict[int, Logged]]:
        """`find_many`; in a shared store a transaction in which no other caller has these decisions."""
        yield self.find_many(numbers)

    def keyed(self, keys: Collection[str]) -> dict[str, Logged]:
        """The decisions with these keys of clients, by key."""
        found: dict[str, Logged] = {}
        for key in keys:
            for row in self.database.execute(f"{_WITH_FATE} WHERE decisions.key = ? AND decisions.number > 0", (key,)):
                found[key] = self._logged(row)
        return found

    def withdraw(self, numbers: Sequence[int]) -> None:
        """Commit that decisions without a reward are never learned."""
        self._commit(("withdrawn", [(number, self.now()) for number in numbers]))

    def numbers(self, name: str, number: int, nonce: bytes) -> list[int]:
        """Decisions with a key, with one that begins with it and "/", or with that token."""
        found = self.find(number)
        condition = "SELECT number FROM decisions WHERE number >= ? AND (key = ? OR key >= ? AND key < ?)"
        rows = self.database.execute(condition, (lowest_of(self.inserted), name, f"{name}/", f"{name}0"))  # "0": next
        return [key for (key,) in rows] + ([number] if found and found.nonce == nonce else [])

    def older(self, moment: int, after: int, most: int, whole: bool) -> tuple[list[int], int | None]:
        """Of at most `most` decisions after that number: those before that time, with a context if `whole`; the last.

        None instead of the last number: no other is as old.
        """
        condition = "WHERE number > ? AND number >= ? ORDER BY number LIMIT ?"
        given = (after, lowest_of(self.inserted), most)
        rows = self.database.execute(f"SELECT number, time, context IS NOT NULL FROM decisions {condition}", given)
        over = not rows or self._is_over(rows[-1][0], rows[-1][1], moment)
        found = [number for number, time, has_context in rows if time < moment and (has_context or not whole)]
        return found, None if over else rows[-1][0]

    def erase(self, numbers: Sequence[int]) -> int:
        """Commit that decisions lose what belongs to a person, and are not learned any more; returns how many did."""
        with self.locked(numbers):
            rows = [self._parts(row) for row in self._found(numbers)]
            known = [(row, _source(*fate)) for row, *fate, _ in rows if row[3] is not None]
            with self._transaction():
                self._delete("units", [row[0] for row, _ in known])
                erased = [(*row[:2], *[None] * 3, *row[5:7], *[None] * 3) for row, _ in known]
                self.database.write("decisions", erased, replaces=True)
                self.database.write("withdrawn", [(row[0], self.now()) for row, source in known if source is None])
        self._latest = None
        return len(known)

    def stage_base(self, place: int, content: bytes) -> None:
        """Commit a part of a base; it does not count yet."""
        self._commit(("base", [(place, content)]))

    def show_base(self, batch: int, number: int, before: int, imported: bool, *parts: Any) -> None:
        """Make a staged base count, which has learned the batches up to this one; `parts`: the last fields."""
        old = self.base
        ((sequence,),) = self.database.execute(
            "SELECT max(sequence) FROM rewards WHERE batch = (SELECT max(batch) FROM rewards WHERE batch <= ?) "
            "AND sequence > 0",
            (batch,),
        )
        known = (old.sequence, old.number, old.before, old.imported) if old else (0, 0, before, False)
        ends = max(sequence or 0, known[0]), self.checksum_of(batch), max(number, known[1]), max(before, known[2])
        base = Base(batch, *ends, imported or known[3], *parts)
        self._commit(("facts", _as_rows({"base": base})))
        self._recount()

    def drop_bases(self, most: int) -> int:
        """Delete at most `most` parts of other bases than the present one; returns how many."""
        first, last = self.base.places if self.base else (0, 0)
        found = self.database.execute(
            "SELECT place FROM base WHERE place < ? OR place > ? LIMIT ?", (first, last, most)
        )
        if found:
            with self._transaction():
                for place in found:
                    self.database.execute("DELETE FROM base WHERE place = ?", place)
        return len(found)

    def remove(self, numbers: Sequence[int], before: int) -> int:
        """Commit that decisions are gone; returns how many.

        Those stay that have a reward which the base has not learned, or were activated since that time.
        """
        assert self.base is not None
        gone = []
        for row in self._found(numbers):
            decision, reward, _, deferred = self._parts(row)
            is_learned = reward is None or reward[2] <= self.base.batch
            if is_learned and (deferred is None or (deferred[1] or 0) < before):
                gone.append(decision[0])
        with self._transaction():
            for table in ("reports", "withdrawn", "deferred", "units", "rewards", "decisions"):
                self._delete(table, gone)
        self._latest = None
        return len(gone)

    def reports(self, numbers: Collection[int]) -> dict[int, list[tuple[Stored, bytes | None]]]:
        """Rewards, with the digests of their keys, in the order of their reports, by number of the decision."""
        condition, given = self.database.among("number", numbers)
        found: dict[int, list[tuple[Stored, bytes | None]]] = {}
        rows = self.database.rows("reports", f"WHERE {condition} ORDER BY sequence", given)
        for _, number, reward, _, digest in rows:
            found.setdefault(number, []).append((reward, digest))
        return found

    def unrewarded(self, place: Any, before: int, most: int) -> tuple[list[Logged], Any]:
        """Of the next decisions, at most `most` of a kind, that began before that time: those without a reward."""
        condition = "WHERE decisions.number > ? ORDER BY decisions.number LIMIT ?"
        rows = self.database.execute(f"{_WITH_FATE} {condition}", (place.number, most))
        early = list(itertools.takewhile(lambda row: row[1] < before, rows))  # times increase
        found = [one for row in early if (one := self._logged(row)).begun == row[1]]
        condition = "WHERE deferred.activated > ? AND deferred.activated < ? ORDER BY deferred.activated LIMIT ?"
        late = self.database.execute(f"{_WITH_FATE} {condition}", (place.activated, before, most))
        later = list(map(self._logged, late))
        place = Place(early[-1][0] if early else place.number, later[-1].begun or 0 if later else place.activated)
        return [one for one in (*found, *later) if one.source is None], place

    def settled(self) -> Any:
        """The place up to which decisions were learned because their time was over, for `unrewarded`."""
        ended = f"source IN ('{DEFAULT}', '{COLLECTED}')"
        ((number,),) = self.database.execute(
            f"SELECT max(number) FROM rewards WHERE {ended} AND number NOT IN (SELECT number FROM deferred)"
        )
        ((activated,),) = self.database.execute(
            f"SELECT max(activated) FROM deferred JOIN rewards USING (number) WHERE {ended}"
        )
        return Place(number or 0, activated or 0)

    def batches_after(self, batch: int, most: int) -> list[tuple[int, list[Reward]]]:
        if self._latest and self._latest[0] == batch + 1:
            return [self._latest]
        return [
            (
                number,
                [
                    Reward(decision[3], decision[5], own_propensity(decision[0], decision[6]), reward[3])
                    for reward, decision in pairs
                ],
            )
            for number, pairs in self.pairs_after(batch, most)
        ]

    def pairs_after(self, batch: int, most: int) -> list[tuple[int, list[tuple[Sequence[Any], Sequence[Any]]]]]:
        """At most `most` next batches: number, and rows of its rewards with their decisions."""
        known = self.batches
        after, last, shift = self._stored(batch, most)
        pairs = self.database.batches(after, last)
        if any(reward[0] != pairs[0][0][0] + place for place, (reward, _) in enumerate(pairs)):
            raise DamagedError(f"{self.path} is damaged: its rewards have a gap; restore it from a copy")
        grouped = itertools.groupby(pairs, lambda pair: pair[0][2])
        batches = [(number + shift, list(group)) for number, group in grouped]
        if not batches and batch < known:
            raise DamagedError(
                f"{self.path} is damaged: batch {batch + 1} of its rewards is missing; restore it from a copy"
            )
        return batches

    def checksum_of(self, batch: int) -> int:
        """Of the last reward in a batch; 0 before the first."""
        if self.base and batch == self.base.batch:
            return self.base.checksum
        _, stored, _ = self._stored(batch - 1, 1)
        condition = "WHERE batch = ? ORDER BY sequence DESC LIMIT 1"
        found = self.database.execute(f"SELECT checksum FROM rewards {condition}", (stored,)) if batch else []
        return found[0][0] if found else 0

    def latest(self, count: int) -> list[bytes]:
        """Contexts of the last decisions, imported ones after others."""
        condition = f"WHERE number >= ? AND context IS NOT NULL ORDER BY {self.database.newest} LIMIT ?"
        return [row[3] for row in self.database.rows("decisions", condition, (lowest_of(self.inserted), count))]

    def describe(self, facts: Mapping[str, Any], arms: Mapping[int, Arm]) -> None:
        rows = [(key, arm.output, int(arm.removed)) for key, arm in arms.items()]
        names = {"arms": [arm.name for arm in arms.values()]}
        self._commit(("facts", _as_rows({**facts, **names})), ("arms", rows))

    def write_items(self, rows: Sequence[tuple[int, str, bytes, int]]) -> None:
        """Write items; they count from `show_items` on."""
        self._commit(("items", rows))

    def show_items(self, count: int, change: int) -> None:
        """Commit a change of the catalog."""
        self._commit(("facts", _as_rows({"catalog": [count, change]})))

    def undo_removals(self, most: int) -> int:
        """Take back at most `most` removals of an unfinished change; returns how many."""
        count, change = self.database.catalog()
        rows = self.database.rows("items", "WHERE removed > ? AND number < ? LIMIT ?", (change, count, most))
        self.write_items([(number, name, features, 0) for number, name, features, _ in rows])
        return len(rows)

    def taught(self) -> Schema:
        return self.database.taught()

    def stage(
        self, place: int, entries: Sequence[Entry], rewards: Sequence[Stored], times: Sequence[int] | None, rows: int
    ) -> None:
        """Commit rows of an import, whose `times` may be unknown; they do not count yet."""
        first = lowest_of(self.inserted) - rows + place
        decisions = self._decisions(entries, first)
        if times is not None:
            decisions = [(row[0], moment, *row[2:]) for row, moment in zip(decisions, times, strict=True)]
        given = [(row[0], row[0], row[0], one, row[1], HISTORY) for row, one in zip(decisions, rewards, strict=True)]
        self._commit(("decisions", decisions), ("rewards", given))

    def show_history(self, rows: int, taught: Schema) -> None:
        """Make a staged log count, whose numbers stand for `taught`."""
        inserted = [*self.inserted, Inserted(self.batches + 1, lowest_of(self.inserted) - rows, rows)]
        self._commit(("facts", _as_rows({"inserted": inserted, "taught": taught})))
        self._recount()

    def drop_staged(self, most: int) -> int:
        """Delete at most `most` rows of an unfinished import; returns how many."""
        found = self.database.execute(
            "SELECT number FROM decisions WHERE number < ? ORDER BY number LIMIT ?", (lowest_of(self.inserted), most)
        )
        if found:
            with self._transaction():
                for table in ("rewards", "decisions"):
                    self.database.execute(f"DELETE FROM {table} WHERE number <= ?", found[-1])
        return len(found)

    def recover(self) -> None:
        """Undo what was not committed, and recount, after an exception."""
        self._is_within = False
        self.database.rollback()
        self._recount()

    def _recount(self) -> None:
        self._latest: tuple[int, list[Reward]] | None = None
        self._base = base = self.database.base()
        decided, rewarded = ((base.number, base.before), (base.sequence, base.batch)) if base else ((0, 0), (0, 0))
        number, latest = max(decided, self._last("number, time", "decisions", "number"))
        sequence, batch = max(rewarded, self._last("sequence, batch", "rewards", "sequence"))
        self._inserted = self.database.inserted()
        moved, count = self.database.moved()
        self._number, self._moved, self._skipped = max(number, moved), moved, moved - count
        self._rewarded = sequence - lowest_of(self._inserted)
        self._batches = max([batch, base.batch if base else 0, *(log.last for log in self._inserted)])
        self._time = max(self._time, latest)

    def _found(self, numbers: Collection[int]) -> list[Any]:
        condition, given = self.database.among("decisions.number", numbers)
        return self.database.execute(f"{_WITH_FATE} WHERE {condition}", given)

    def _is_over(self, number: int, time: int, moment: int) -> bool:
        """Whether no later decision is from before a moment."""
        return number > self._moved and time >= moment  # from there on times increase

    def _delete(self, table: str, numbers: Collection[int]) -> None:
        condition, given = self.database.among("number", numbers)
        self.database.execute(f"DELETE FROM {table} WHERE {condition}", given)

    def _parts(self, row: Sequence[Any]) -> list[Any]:
        """Rows of `PARTS`, None where there is none."""
        parts, start = [], 0
        for table in PARTS:
            part = row[start : start + WIDTHS[table]]
            parts.append(None if all(value is None for value in part) else self.database.verified(table, part))
            start += WIDTHS[table]
        return parts

    def _logged(self, row: Sequence[Any]) -> Logged:
        decision, *fate, deferred = self._parts(row)
        number, moment, nonce, context, _, action, propensity, _, law, _ = decision
        begun = moment if deferred is None else deferred[1]
        return Logged(number, begun, nonce, context, action, propensity, law, _source(*fate))

    def _stored(self, batch: int, most: int) -> tuple[int, int, int]:
        """Number after which the next batches are stored, up to which, and the shift to theirs."""
        for log in self.inserted:
            if batch + 1 < log.batch:
                return batch, min(batch + most, log.batch - 1), 0
            if batch < log.last:
                shift = log.batch - log.number
                return batch - shift, min(batch + most, log.last) - shift, shift
        return batch, batch + most, 0

    def _decisions(self, entries: Sequence[Entry], first: int) -> list[Any]:
        """Rows numbered from `first` on, each a nanosecond later than the one before."""
        moment = self.now()
        self._time += max(len(entries) - 1, 0)
        return [
            # SQLite makes NULL of a NaN
            (first + place, moment + place, *entry[:4], None if math.isnan(entry[4]) else entry[4], *entry[5:8])
            for place, entry in enumerate(entries)
        ]

    def _last(self, columns: str, table: str, key: str) -> Any:
        found = self.database.execute(f"SELECT {columns} FROM {table} WHERE {key} > 0 ORDER BY {key} DESC LIMIT 1")
        return found[0] if found else (0, 0)

    def _commit(self, *parts: tuple[str, Sequence[Any]]) -> None:
        several = sum(len(rows) for _, rows in parts) > 1
        with self._transaction(explicit=several):
            for table, rows in parts:
                self.database.write(table, rows)

    @contextmanager
    def _transaction(self, *, explicit: bool = True) -> Iterator[None]:
        """All or nothing, or a part of the transaction around it; a single statement need not be `explicit`."""
        if self._is_within:
            yield
            return
        try:
            if explicit:
                self.database.begin()
                self._is_within = True
            yield
            if explicit:
                self.database.commit()
                self._is_within = False
        except BaseException:
            self.recover()
            raise


def _source(reward: Any, withdrawn: Any) -> str | None:
    if reward is not None:
        return reward[-1]
    return None if withdrawn is None else WITHDRAWN


def _running() -> int:
    """Nanoseconds, also while the computer sleeps, where the system has a clock for it."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic_ns()


def _as_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, json.dumps(value)) for name, value in facts.items()]
