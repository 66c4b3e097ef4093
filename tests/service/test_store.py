"""The log by itself: what is appended is found and read in order, whole or not at all, in this process and the next."""

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from seqdec.core import Schema
from seqdec.service import read_history, read_log
from seqdec.service.database import FORMAT, Arm
from seqdec.service.sqlite import FILE
from seqdec.service.store import COLLECTED, DEFAULT, REPORTED, Entry, Place, Store
from tests.service.services import Clock, X, service


def entry(place: int) -> Entry:
    return Entry(bytes([place] * 8), b"context" + bytes([place]), b"\1\0", place % 2, 0.5 if place else float("nan"))


def filled(folder: Path | None) -> Store:
    """Six decisions, of which four have rewards in two batches."""
    log = Store(folder)
    assert log.append_decisions([entry(place) for place in range(6)]) == 1
    for numbers in ((1, 2, 3), (5,)):
        found = [log.find(number) for number in numbers]
        log.append_rewards([(one, -0.0 if one.number == 5 else one.number / 4, REPORTED) for one in found if one])
    return log


def seen(log: Store) -> Any:
    log_of = [log.batches_after(place, 9) for place in range(log.batches + 1)]
    return log.decisions, log.rewards, log.batches, [log.find(number) for number in range(8)], log_of, log.settled()


def test_the_next_process_reads_what_was_appended(tmp_path: Path) -> None:
    log = filled(tmp_path)
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
    again = Store(tmp_path)
    assert seen(again) == expected
    assert again.append_decisions([entry(6)]) == 7
    again.close()


def test_the_last_batch_is_as_the_log_has_it() -> None:
    log = filled(None)
    latest = log.batches_after(1, 9)
    log.recover()  # which forgets it
    assert log.batches_after(1, 9) == latest
    assert str(latest[0][1][0].reward) == "0.0"  # SQLite does not keep the sign


def test_decisions_without_a_reward_are_looked_at_in_order_of_time() -> None:
    log = filled(None)
    end = log.now()
    due, last = log.unrewarded(Place(), end, 4)
    assert ([one.number for one in due], last) == ([4], Place(4))
    assert [one.number for one in log.unrewarded(last, end, 4)[0]] == [6]
    first = log.find(6)
    assert first is not None and first.begun is not None and log.unrewarded(last, first.begun, 4)[1] == Place(5)
    assert log.settled() == Place()
    log.append_rewards([(due[0], 0.0, DEFAULT)])
    log.append_rewards([(first, 0.0, COLLECTED)])
    assert log.settled() == Place(6)


def test_what_was_activated_is_looked_at_in_the_order_of_activation() -> None:
    log = filled(None)
    assert log.append_decisions([entry(place) for place in range(3)], active=False) == 7
    assert log.append_decisions([entry(3)]) == 10
    waiting = log.find(8)
    assert waiting is not None and waiting.begun is None and log.unrewarded(Place(6), log.now(), 4)[1] == Place(10)
    for number in (9, 7):
        log.activate(number)
    times = [one.begun for number in (9, 7, 10) if (one := log.find(number)) is not None]
    due, last = log.unrewarded(Place(6), log.now(), 4)
    assert [one.number for one in due] == [10, 9, 7] and last == Place(10, times[1] or 0)
    assert log.unrewarded(Place(10), times[1] or 0, 4) == ([due[1]], Place(10, times[0] or 0))
    log.append_rewards([(due[1], 0.0, DEFAULT)])
    assert log.settled() == Place(0, times[0] or 0)  # not beyond decisions that were active at once


def test_reports_and_facts() -> None:
    log = filled(None)
    log.append_reports([(4, 1.0, None), (6, '{"click": 1.0}', b"key")], ())
    log.append_reports([(4, 2.0, None)], ())
    assert log.reports([4, 5, 6]) == {4: [(1.0, None), (2.0, None)], 6: [('{"click": 1.0}', b"key")]}
    assert log.facts() == {} and log.arms() == {}
    log.describe({"format": FORMAT, "record": [], "seed": 3}, {0: Arm("a", 0, False), 1: Arm("b", None, True)})
    assert log.facts()["seed"] == 3 and log.arms() == {0: Arm("a", 0, False), 1: Arm("b", None, True)}


def test_rows_of_another_log_count_once_all_are_there(tmp_path: Path) -> None:
    log = filled(tmp_path)
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
    log.close()
    again = Store(tmp_path)
    assert (again.decisions, again.rewards, again.batches) == (10, 7, 5)
    assert again.database.execute("SELECT count(*) FROM decisions") == [(10,)]
    again.close()


def test_the_time_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Store(None)
    monkeypatch.setattr("time.time_ns", lambda: 1000)
    times = [log.now(), log.now()]
    log.append_decisions([entry(0), entry(1)])
    monkeypatch.setattr("time.time_ns", lambda: 10)
    times.append(log.now())
    assert times == sorted(set(times)) and [one.begun for one in (log.find(1), log.find(2)) if one] == [1002, 1003]


@pytest.mark.parametrize(("fsync", "expected"), [(True, 2), (False, 1)])
def test_the_disk_is_waited_for_where_asked(fsync: bool, expected: int, tmp_path: Path) -> None:
    log = Store(tmp_path, fsync=fsync)
    assert log.database.execute("PRAGMA synchronous") == [(expected,)]
    assert log.database.execute("PRAGMA journal_mode") == [("wal",)]
    log.close()


def stored(read: Callable[[Store], Any]) -> Callable[[Path], Any]:
    def opened(folder: Path) -> Any:
        with closing(Store(folder)) as log:
            return read(log)

    return opened


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
