"""What is old leaves the log, and the belief stays: by hand, by age, after kills, and with other arms."""

import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqdec
from seqdec.ope import make_log
from seqdec.service import read_history, read_log, retention
from seqdec.service.database import FORMAT
from seqdec.service.snapshots import SNAPSHOT
from seqdec.service.sqlite import FILE
from seqdec.service.store import Store
from seqdec.service.summary import summary
from tests.service.services import SITE, Clock, X, bits, copied, service, small
from tests.service.test_keys import found_in

LATE: Any = {"rewards": "sum", "reward_after": 60.0, "reward_default": 0.0}


def aged(one: seqdec.OnlineAgent, clock: Clock, rows: int = 40) -> list[str]:
    """Decisions with rewards, all a thousand seconds old, and ten that are new; returns their tokens."""
    tokens = [one.decide(X[n % 80], key=f"ann/{n}").token for n in range(rows)]
    one.learn_many([(token, n / 8) for n, token in enumerate(tokens[: rows // 2])])
    for n, token in enumerate(tokens[rows // 2 : -5]):
        one.learn(token, n / 4)
    clock.seconds += 1000
    new = [one.decide(x, key=f"bob/{n}").token for n, x in enumerate(X[60:70])]
    one.learn_many([(token, 0.5) for token in new[:5]])
    return [*tokens, *new]


def rows_in(folder: Path) -> list[int]:
    with closing(sqlite3.connect(folder / FILE)) as database:
        return [database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("decisions", "rewards")]


def test_what_is_removed_is_in_no_file_and_what_was_learned_stays(tmp_path: Path, clock: Clock) -> None:
    with service(tmp_path / "log") as one:
        tokens = aged(one, clock)
        state = bits(one)
        assert one.compact(500) == 40 and one.compact(500) == 0
        assert bits(one) == state and rows_in(tmp_path / "log") == [10, 5]
        assert found_in(tmp_path / "log", X[3].astype(np.float32).tobytes(), b"ann/") == []
        assert one.counts["decisions"] == 50 and one.counts["rewards"] == 40
        assert one.learn(tokens[0], 1.0) == "unknown" and one.learn(tokens[40], 1.0) == "repeated"
        assert one.learn(tokens[46], 2.0) == "learned" and len(one.log()) == 6
        later = one.decide(X[0])
        assert later.token.startswith("51-") and one.learn(later.token, 1.0) == "learned"
        state = bits(one)
        one.backup(tmp_path / "backup")
        without = copied(tmp_path / "log", tmp_path / "killed")
        assert "51 decisions and 42 rewards in the log, from which those up to number 40 were removed" in repr(one)
        assert any("were removed from the log" in fact for fact in summary(read_history(tmp_path / "log")).facts)
    for folder in (tmp_path / "log", without, tmp_path / "backup"):
        with service(folder) as one:  # with the snapshot, and from the base
            assert bits(one) == state and one.counts["decisions"] == 51 and one.counts["rewards"] == 42
            assert one.decide(X[1]).token.startswith("52-")


def test_an_idle_service_goes_on_counting(tmp_path: Path, clock: Clock) -> None:
    with service(tmp_path) as one:
        aged(one, clock)
        clock.seconds += 1000
        state = bits(one)
        assert one.compact(500) == 50 and rows_in(tmp_path) == [0, 0]
    (tmp_path / SNAPSHOT).unlink()
    with service(tmp_path) as one:
        assert bits(one) == state and one.counts["decisions"] == 50 and one.counts["rewards"] == 40
        assert one.learn(one.decide(X[0]).token, 1.0) == "learned" and rows_in(tmp_path) == [1, 1]


def test_only_what_was_learned_and_is_old_is_removed(tmp_path: Path, clock: Clock) -> None:
    with service(tmp_path, **LATE) as one:
        with pytest.raises(ValueError, match="older_than=59 must be at least reward_after=60, the seconds in which"):
            one.compact(59)
        hidden, shown = one.decide_many(X[:2], active=False)
        one.learn(one.decide(X[2]).token, 3.0)
        clock.seconds += 100
        one.activate(shown.token)
        one.learn(shown.token, 2.0)
        assert one.compact(60) == 2 and one.activate(hidden.token) == "unknown"
        assert one.learn(shown.token, 1.0) == "collected"
        clock.seconds += 61
        assert one.log().reward.tolist() == [3.0]
    with pytest.raises(ValueError, match="retention=59 must be at least reward_after=60"):
        service(retention=59, **LATE)


@pytest.mark.parametrize("make", ["small", "linear"])
def test_arms_are_added_where_the_base_can_be_widened(make: str, tmp_path: Path, clock: Clock) -> None:
    made: Any = {"make": "linear"} if make == "linear" else {"capacity": 4}
    with service(tmp_path / "log", **made) as one:
        aged(one, clock)
        if make == "small":
            one.add_arm()  # a spare output
        one.compact(500)
        if make == "small":
            with pytest.raises(ValueError, match=r"no output free for another arm, and the log .* begins with the bel"):
                one.add_arm()
            assert len(one.arms) == 4
        else:
            one.add_arm()
            one.learn(one.decide(X[0], {3}).token, 1.0)
        state = bits(one)
        shutil.copytree(tmp_path / "log", tmp_path / "copy", ignore=shutil.ignore_patterns("state*", ".*"))
    with service(tmp_path / "copy", **made) as one:
        assert bits(one) == state and len(one.arms) == 4


def test_another_agent_cannot_learn_what_was_removed(tmp_path: Path, clock: Clock) -> None:
    with service(tmp_path / "log") as one:
        aged(one, clock)
        one.compact(500)
    with pytest.raises(ValueError, match=r"the log .* begins with the belief of its agent .* warm_start"):
        service(tmp_path / "log", batch_size=4, relearn=True)
    with service(tmp_path / "new", batch_size=4) as one:
        one.warm_start(read_log(tmp_path / "log"))
        assert one.counts["rewards"] == 5
    with service(tmp_path / "log", relearn=True) as one:
        assert one.counts["rewards"] == 40


def test_a_base_is_needed_only_without_a_snapshot(tmp_path: Path, clock: Clock) -> None:
    with service(tmp_path / "log") as one:
        aged(one, clock)
        one.compact(500)
        state = bits(one)
    with closing(sqlite3.connect(tmp_path / "log" / FILE, isolation_level=None)) as database:
        (content,) = database.execute("SELECT content FROM base").fetchone()
        database.execute("UPDATE base SET content = ?", (bytes([content[0] ^ 1]) + content[1:],))
    with service(tmp_path / "log") as one:
        assert bits(one) == state
        with pytest.raises(ValueError, match="damaged: the row 1 of its table base"):
            one.backup(tmp_path / "backup")
    with pytest.raises(ValueError, match="damaged: the row 1 of its table base"):
        service(copied(tmp_path / "log", tmp_path / "copy"))


def test_imported_rows_are_removed_and_not_learned_again(tmp_path: Path, clock: Clock) -> None:
    times = np.datetime64(int(clock.seconds), "s") + np.arange(6).astype("timedelta64[s]") * 100 - 300
    log = make_log(action=[0, 1, 2] * 2, reward=np.arange(6.0), propensity=[0.5] * 6, context=X[:6], timestamp=times)
    numbered = make_log(action=[0, 1], reward=[1.0, 0.0], propensity=[0.5] * 2, context=X[:2])
    with service(tmp_path) as one:
        one.warm_start(log)
        aged(one, clock)
        clock.seconds -= 900
        assert one.compact(100) == 3
        with pytest.warns(
            RuntimeWarning, match="3 of 6 rows are from before .*, and were not learned, because rows of"
        ):
            one.warm_start(log)
        assert one.counts["known"] == 6 and one.counts["decisions"] == 56
        with pytest.raises(ValueError, match=r"imported rows were removed from the log .*: give the log times"):
            one.warm_start(numbered)
        state = bits(one)
    (tmp_path / SNAPSHOT).unlink()
    with service(tmp_path) as one:
        assert bits(one) == state and len(read_history(tmp_path)) == 53


class Stopped(BaseException):
    """In place of a kill."""


def test_a_kill_at_any_step_loses_nothing(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_SOME", 16)
    monkeypatch.setattr(retention, "_PART", 8)
    plain, finished, number = Store._transaction, False, 0
    with service(tmp_path / "log") as one:
        aged(one, clock)
        shutil.copytree(tmp_path / "log", tmp_path / "before", ignore=shutil.ignore_patterns(".*"))
        expected = bits(one)
    while not finished:
        folder, left = Path(shutil.copytree(tmp_path / "before", tmp_path / str(number))), iter([*[0] * number, 1])

        def stopping(self: Any, left: Any = left, **options: Any) -> Any:
            if next(left, 0):
                raise Stopped
            return plain(self, **options)

        with service(folder) as one:
            monkeypatch.setattr(Store, "_transaction", stopping)
            try:
                assert one.compact(500) == 40
                finished = next(left, 0) == 1
            except Stopped:
                pass
            monkeypatch.setattr(Store, "_transaction", plain)
            shutil.copytree(folder, tmp_path / f"killed {number}", ignore=shutil.ignore_patterns("state*", ".*"))
        with service(tmp_path / f"killed {number}") as one:
            assert bits(one) == expected
            one.compact(500)
            assert rows_in(tmp_path / f"killed {number}") == [10, 5] and bits(one) == expected
            one.backup(tmp_path / f"backup {number}")
        number += 1
    assert number > 8


def test_the_file_shrinks(tmp_path: Path, clock: Clock) -> None:
    wide = seqdec.core.Spaces(type(SITE.observation_space)(-5, 5, (500,)), SITE.action_space)
    with service(tmp_path, site=wide) as one:
        one.decide_many(np.random.default_rng(0).normal(size=(400, 500)))
        one.compact(1e6)
        size = (tmp_path / FILE).stat().st_size
        clock.seconds += 1000
        assert size > 800_000 and one.compact(500) == 400
        assert (tmp_path / FILE).stat().st_size < 150_000


def test_a_challenger_that_is_behind_goes_on_from_the_base(tmp_path: Path, clock: Clock) -> None:
    with service(tmp_path, challenger=small) as one:
        other: Any = one._challenger
        other.stop()
        aged(one, clock)
        assert one.compact(500) == 40
        token = one.decide(X[0]).token
        one.learn(token, 1.0)
        other._ended.clear()
        while other._step():
            pass
        assert list(other.laws) == [int(token.partition("-")[0])]


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


def test_a_service_removes_by_itself_what_is_old(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_HOUR", 0.01)
    with service(tmp_path, retention=500.0) as one:
        aged(one, clock)
        assert until(lambda: rows_in(tmp_path) == [10, 5])
        clock.seconds += 365 * 86_400  # reads a year ahead, once
        one.decide(X[0])
        time.sleep(0.1)
        assert rows_in(tmp_path) == [11, 5]
        clock.seconds -= 365 * 86_400 - 1000
        assert until(lambda: rows_in(tmp_path) == [0, 0])
        thread = one._retention
    assert thread is not None and not thread.is_alive()


def test_a_start_a_year_later_waits_whether_the_clock_is_right(tmp_path: Path, clock: Clock) -> None:
    with service(tmp_path) as one:
        aged(one, clock)
    clock.seconds += 365 * 86_400
    with service(tmp_path, retention=500.0) as one:
        time.sleep(0.1)
        assert rows_in(tmp_path) == [50, 40]
        clock.seconds -= 365 * 86_400
        assert one.compact(500) == 40  # by a clock that was put right
    assert one._retention is not None and not one._retention.is_alive()


def test_an_agent_that_nobody_holds_ends_its_thread(tmp_path: Path) -> None:
    import gc

    thread = service(tmp_path, retention=500.0)._retention
    gc.collect()
    assert thread is not None and until(lambda: not thread.is_alive())
    with service(tmp_path) as one:
        assert one.counts["decisions"] == 0


def test_an_older_format_is_read_and_becomes_the_present_one(tmp_path: Path) -> None:
    kept = Path(__file__).with_name("logs") / "4"
    assert len(read_history(kept)) == 7
    folder = Path(shutil.copytree(kept, tmp_path / "log"))
    log = Store(folder)
    assert log.facts()["format"] == "seqdec decisions 4" and log.base is None and FORMAT.endswith(" 5")
    log.close()
