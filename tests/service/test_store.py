"""The log by itself: what is appended is found and read in order, whole or not at all, in this process and the next."""

import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from seqdec.core import Schema
from seqdec.service import read_history, read_log
from seqdec.service.database import FORMAT, Arm, Unit
from seqdec.service.postgres import SharedStore
from seqdec.service.sqlite import FILE
from seqdec.service.store import COLLECTED, DEFAULT, REPORTED, WITHDRAWN, Entry, Logged, Store, first_of
from tests.service.services import Clock, X, service


def entry(place: int) -> Entry:
    return Entry(bytes([place] * 8), b"context" + bytes([place]), b"\1\0", place % 2, 0.5 if place else float("nan"))


Opened = Callable[[], Store]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Opened]:
    """Opens a log, the same one again; on the first day, on which numbers begin with 1 in both kinds of database."""
    clock.seconds = 100.0
    with ExitStack() as held:

        def one() -> Store:
            if request.param == "sqlite":
                return held.enter_context(closing(Store(tmp_path)))
            return held.enter_context(closing(SharedStore(request.getfixturevalue("place"))))

        yield one


def rewarded(log: Store, rows: Sequence[tuple[Logged | None, float, str]]) -> None:
    """Append rewards as one batch."""
    log.append_rewards([(found, reward, source) for found, reward, source in rows if found is not None])
    if isinstance(log, SharedStore):
        assert log.number_rewards(99, fence=0) == len(rows)


def filled(log: Store) -> Store:
    """Six decisions, of which four have rewards in two batches."""
    assert log.append_decisions([entry(place) for place in range(6)]) == 1
    for numbers in ((1, 2, 3), (5,)):
        found = log.find_many(numbers)
        rewarded(log, [(found[number], -0.0 if number == 5 else number / 4, REPORTED) for number in numbers])
    return log


def seen(log: Store) -> Any:
    log_of = [log.batches_after(place, 9) for place in range(log.batches + 1)]
    return log.decisions, log.rewards, log.batches, [log.find(number) for number in range(8)], log_of, log.settled()


def test_the_next_process_reads_what_was_appended(opened: Opened) -> None:
    log = filled(opened())
    assert (log.decisions, log.rewards, log.batches) == (6, 4, 2)
    batches = log.batches_after(0, 9)
    assert [(number, [reward for *_, reward in rows]) for number, rows in batches] == [
        (1, [0.25, 0.5, 0.75]),
        (2, [0.0]),
    ]
    assert batches[0][1][0].context == b"context\0" and batches[0][1][1].action == 1
    assert log.batches_after(0, 1) == batches[:1] and log.batches_after(2, 1) == []
    expected = seen(log)
    log.close()
    again = opened()
    assert seen(again) == expected
    assert again.append_decisions([entry(6)]) == (first_of(0, 1) + 1 if again.is_shared else 7)


def test_the_last_batch_is_as_the_log_has_it(opened: Opened) -> None:
    log = filled(opened())
    latest = log.batches_after(1, 9)
    log.recover()  # which forgets it
    assert log.batches_after(1, 9) == latest
    assert str(latest[0][1][0].reward) == "0.0"  # SQLite does not keep the sign


def test_decisions_without_a_reward_are_looked_at_in_order_of_time(opened: Opened) -> None:
    log = filled(opened())
    start, end = log.settled(), log.now()
    due, last = log.unrewarded(start, end, 4)
    assert [one.number for one in due] == [4] and last != start
    assert [one.number for one in log.unrewarded(last, end, 4)[0]] == [6]
    first = log.find(6)
    assert first is not None and first.begun is not None
    none, later = log.unrewarded(last, first.begun, 4)
    assert none == [] and later != last
    assert log.unrewarded(later, first.begun, 4) == ([], later)
    assert log.settled() == start
    rewarded(log, [(due[0], 0.0, DEFAULT)])
    rewarded(log, [(first, 0.0, COLLECTED)])
    again = log.settled()
    assert again != start and log.unrewarded(again, end, 4)[0] == []
    assert log.append_decisions([entry(6)]) == 7 and [one.number for one in log.unrewarded(again, log.now(), 4)[0]] == [
        7
    ]


def test_what_was_activated_is_looked_at_in_the_order_of_activation(opened: Opened) -> None:
    log = filled(opened())
    assert log.append_decisions([entry(place) for place in range(3)], active=False) == 7
    assert log.append_decisions([entry(3)]) == 10
    waiting = log.find(8)
    assert waiting is not None and waiting.begun is None
    _, start = log.unrewarded(log.settled(), log.now(), 6)
    for number in (9, 7):
        log.activate(number)
    times = [one.begun for number in (9, 7, 10) if (one := log.find(number)) is not None]
    due, last = log.unrewarded(start, log.now(), 4)
    assert sorted(one.number for one in due) == [7, 9, 10] and last != start
    assert [one.number for one in due if one.number != 10] == [9, 7]
    rest, end = log.unrewarded(last, times[1] or 0, 4)
    assert rest == [] and log.unrewarded(end, log.now(), 4) == ([], end)
    early, middle = log.unrewarded(start, times[1] or 0, 4)
    assert 9 in [one.number for one in early] and 7 not in [one.number for one in early]
    assert 7 in [one.number for one in log.unrewarded(middle, log.now(), 4)[0]]
    rewarded(log, [(log.find(9), 0.0, DEFAULT)])
    left = log.unrewarded(log.settled(), log.now(), 99)[0]  # not beyond decisions that were active at once
    assert sorted(one.number for one in left) == [4, 6, 7, 10]


def test_reports_and_facts(opened: Opened) -> None:
    log = filled(opened())
    log.append_reports([(4, 1.0, None), (6, '{"click": 1.0}', b"key")], ())
    log.append_reports([(4, 2.0, None)], ())
    assert log.reports([4, 5, 6]) == {4: [(1.0, None), (2.0, None)], 6: [('{"click": 1.0}', b"key")]}
    assert log.facts() == {} and log.arms() == {}
    log.describe({"format": FORMAT, "record": [], "seed": 3}, {0: Arm("a", 0, False), 1: Arm("b", None, True)})
    assert log.facts()["seed"] == 3 and log.arms() == {0: Arm("a", 0, False), 1: Arm("b", None, True)}


def test_rows_of_another_log_count_once_all_are_there(opened: Opened) -> None:
    log = filled(opened())
    log.describe({"format": FORMAT, "record": []}, {})
    before = seen(log)
    log.stage(0, [entry(1), entry(2)], [1.0, 2.0], [20, 10], 3)
    assert seen(log) == before
    log.stage(2, [entry(3)], [3.0], None, 3)
    log.show_history(3, Schema(("a", "b")))
    assert (log.decisions, log.rewards, log.batches, log.taught()) == (9, 7, 5, Schema(("a", "b")))
    assert [rows[0].reward for _, rows in log.batches_after(2, 9)] == [1.0, 2.0, 3.0]
    assert log.append_decisions([entry(6)]) == 7
    log.stage(0, [entry(4)], [4.0], None, 2)  # and not the other
    rewarded(log, [(log.find(7), 4.0, REPORTED)])
    assert log.batches == 6 and [rows[0].reward for _, rows in log.batches_after(2, 9)] == [1.0, 2.0, 3.0]
    assert [rows[0].reward for _, rows in log.batches_after(5, 9)] == [4.0]
    log.close()
    again = opened()
    while again.drop_staged(1):
        pass
    assert (again.decisions, again.rewards, again.batches) == (10, 8, 6)
    assert again.database.execute("SELECT count(*) FROM decisions") == [(10,)]


def test_what_is_removed_is_gone_and_the_rest_is_counted_as_before(opened: Opened, clock: Clock) -> None:
    filled(opened()).close()
    clock.seconds += 3 * 86_400  # while none is open, as a jump would not count at once
    log = opened()
    later = log.append_decisions([entry(7)])
    counts = log.decisions, log.rewards, log.batches
    for place, part in enumerate((b"a", b"b"), 1):
        log.stage_base(place, part)
    numbers, _ = log.older(log.before(86_400), -sys.maxsize, 99, False)
    log.show_base(2, max(numbers), log.before(86_400), False, 2, {}, (1, 2))
    assert log.remove(numbers, log.before(86_400)) == 6
    assert list(log.find_many([*range(1, 8), later])) == [later]
    assert (log.decisions, log.rewards, log.batches) == counts and log.batches_after(2, 9) == []
    log.close()
    again = opened()
    assert (again.decisions, again.rewards, again.batches) == counts
    assert again.base and again.database.content_of(again.base) == b"ab"
    with again.database.snapshot() if isinstance(again, SharedStore) else nullcontext():
        again.database.check()


def test_what_belongs_to_a_person_is_erased(opened: Opened) -> None:
    log = filled(opened())
    unit = Unit(b"unit", True, 0.5)
    first = log.append_decisions([entry(1)._replace(key=key) for key in ("ann/1", "ann", "anna")], [unit] * 3)
    assert list(log.keyed(["ann", "bo"])) == ["ann"]
    assert sorted(log.numbers("ann", 0, b"")) == [first, first + 1]
    assert log.numbers("-", first + 2, bytes([1] * 8)) == [first + 2]
    found, over = log.older(log.now(), -sys.maxsize, 99, True)
    assert found == list(range(1, first + 3)) and (over is None or log.older(log.now(), over, 99, True) == ([], None))
    assert log.erase([first, first + 1]) == 2 and log.erase([first]) == 0
    assert list(log.keyed(["ann", "anna"])) == ["anna"] and log.database.units().keys() == {first + 2}
    erased = log.find(first)
    assert erased is not None and erased.token is None and erased.context is None and erased.source == WITHDRAWN
    assert log.append_decisions([entry(1)._replace(key="ann")]) == first + 3  # the key is free again


def test_items_and_arms_change(opened: Opened) -> None:
    log = opened()
    log.write_items([(0, '"a"', b"x", 0), (1, '"b"', b"y", 0)])
    log.show_items(2, 1)
    log.write_items([(0, '"a"', b"x", 2), (2, '"c"', b"z", 0)])
    assert log.database.items() == [(0, '"a"', b"x", False), (1, '"b"', b"y", False)]
    assert log.undo_removals(9) == 1 and log.undo_removals(9) == 0
    log.write_items([(0, '"a"', b"x", 2), (2, '"c"', b"z", 0)])
    log.show_items(3, 2)
    assert [removed for *_, removed in log.database.items()] == [True, False, False]
    for output in (0, 1):
        log.describe({"format": FORMAT, "record": []}, {0: Arm("a", output, False)})
        assert log.arms() == {0: Arm("a", output, False)}


def test_points_and_named_rewards_are_kept_to_the_bit(opened: Opened) -> None:
    log = opened()
    point, chance = b"\0\xff", 0.1 + 0.2
    first = log.append_decisions([Entry(b"n" * 8, b"", None, point, chance), Entry(b"m" * 8, b"", None, 12, 1e-300)])
    rewarded(log, [(log.find(first), 1e300, REPORTED), (log.find(first + 1), 5e-324, REPORTED)])
    ((_, rows),) = log.batches_after(0, 9)
    assert [(row.action, row.propensity, row.reward) for row in rows] == [(point, chance, 1e300), (12, 1e-300, 5e-324)]
    log.append_reports([(first, '{"a": -0.0}', None)], ())
    assert log.reports([first]) == {first: [('{"a": -0.0}', None)]}


def test_the_time_goes_on(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 900)
    log = opened()
    monkeypatch.setattr("time.time_ns", lambda: 1000)
    times = [log.now(), log.now()]
    log.append_decisions([entry(0), entry(1)])
    monkeypatch.setattr("time.time_ns", lambda: 10)
    times.append(log.now())
    first, second = (one.begun for one in (log.find(1), log.find(2)) if one and one.begun)
    assert times[:2] == [1000, 1001] and times[1] < first < second < times[2] and second == first + 1


@pytest.mark.parametrize(("fsync", "expected"), [(True, 2), (False, 1)])
def test_the_disk_is_waited_for_where_asked(fsync: bool, expected: int, tmp_path: Path) -> None:
    log = Store(tmp_path, fsync=fsync)
    assert log.database.execute("PRAGMA synchronous") == [(expected,)]
    assert log.database.execute("PRAGMA journal_mode") == [("wal",)]
    log.close()


def stored(read: Callable[[Store], Any]) -> Callable[[Path], Any]:
    def once(folder: Path) -> Any:
        with closing(Store(folder)) as log:
            return read(log)

    return once


BATCHES, FIRST = stored(lambda log: log.batches_after(0, 9)), stored(lambda log: log.find(2))
FLIPPED: list[tuple[str, str, list[Callable[[Path], Any]]]] = [
    ("facts", "value checksum", [stored(lambda log: log.facts())]),
    ("arms", "id output removed checksum", [stored(lambda log: log.arms())]),
    (
        "decisions",
        "number time nonce context mask action propensity logging checksum",
        [BATCHES, read_log, read_history],
    ),
    ("decisions", "time nonce context action logging checksum", [FIRST]),
    ("rewards", "sequence number batch reward time source checksum", [BATCHES, read_log]),
    ("rewards", "sequence batch reward time source checksum", [read_history]),
    ("reports", "sequence reward time checksum", [stored(lambda log: log.reports([2])), read_history]),
    ("withdrawn", "time checksum", [read_history]),
    ("base", "content checksum", [stored(lambda log: log.base and log.database.content_of(log.base))]),
]


def flipped(value: Any) -> Any:
    """A value with another bit."""
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    return chr(ord(value[0]) ^ 1) + value[1:] if isinstance(value, str) else value + 8


def test_a_bit_that_flips_in_the_log_is_noticed(tmp_path: Path, clock: Clock) -> None:
    with service(tmp_path / "log", rewards="sum", reward_after=60) as one:
        one.decide(X[0])
        clock.seconds += 61
        assert one.compact(60) == 1
        one.learn(one.decide(X[0]).token, 1.0)
        clock.seconds += 61
        one.withdraw(one.decide(X[1], key="ann").token)
    for table, columns, reads in FLIPPED:
        for column in columns.split():
            folder = tmp_path / f"{table} {column} {len(reads)}"
            folder.mkdir()
            shutil.copy(tmp_path / "log" / FILE, folder)
            with closing(sqlite3.connect(folder / FILE, isolation_level=None)) as database:
                (old,) = database.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
                database.execute(f"UPDATE {table} SET {column} = ? WHERE {column} IS ?", (flipped(old), old))
            for read in reads:
                with pytest.raises(ValueError, match=rf"damaged: the row .* of its table {table} .*; restore it"):
                    print(column, read(folder))
