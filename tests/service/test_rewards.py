"""Rewards as they arrive: defaults for what nobody reports, and several of one decision put together."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import seqdec
from seqdec.service import read_log, store
from seqdec.service.sqlite import FILE
from tests.service.services import Clock, X, bits, copied, service

CLICKS: Any = {"reward_default": 0.0, "reward_after": 60}


def rows(one: seqdec.OnlineAgent) -> list[Any]:
    return one._store.database.connection.execute(
        "SELECT number, reward, source FROM rewards ORDER BY sequence"
    ).fetchall()


def test_what_nobody_reports_becomes_the_default(clock: Clock, tmp_path: Path) -> None:
    with service(tmp_path / "log", **CLICKS) as one:
        early = one.decide_many(X[:20])
        before = bits(one)
        assert one.learn(early[3].token, 1.0) == "collected"
        assert one.learn(early[3].token, 2.0) == "repeated"
        assert one.learn_many([(early[4].token, 1.0), (early[4].token, 0.0)]) == ["collected", "repeated"]
        clock.seconds += 30
        late = one.decide(X[0])
        assert bits(one) == before  # a click is not learned before what was not clicked
        clock.seconds += 31
        assert one.learn(early[0].token, 1.0) == "expired"  # after its default
        assert one.learn(early[3].token, 1.0) == "repeated"
        log = one.log()
        assert log.reward.tolist() == [0.0] * 3 + [1.0, 1.0] + [0.0] * 15
        assert one.learn(late.token, 1.0) == "collected"
        expected = {"decisions": 21, "rewards": 20, "default": 18, "learned": 2, "collected": 3}
        assert one.counts == {**expected, "expired": 1, "repeated": 3}
        assert {source for _, _, source in rows(one)} == {"collected", "default"}
        expected = bits(one)
        copied(tmp_path / "log", tmp_path / "copy")
    with service(tmp_path / "copy", **CLICKS) as again:
        assert bits(again) == expected and again.counts["rewards"] == 20


def test_a_decision_is_in_time_until_its_seconds_are_over(clock: Clock, tmp_path: Path) -> None:
    with service(tmp_path, **CLICKS) as one:
        first, second = one.decide(X[0]), one.decide(X[1])
        clock.seconds += 59
        assert one.learn(first.token, 1.0) == "collected"
    clock.seconds += 2
    with service(tmp_path, **CLICKS) as again:  # the time in which none was open counts
        assert again.counts["default"] == 1
        assert again.learn(second.token, 1.0) == "expired"
        assert again._rewards._place().number == 2
    with service(tmp_path, **CLICKS) as again:
        assert again._rewards._place().number == 2


def test_a_decision_without_a_default_learns_nothing(clock: Clock, tmp_path: Path) -> None:
    options: Any = {"rewards": "sum", "reward_after": 60}
    with service(tmp_path, **options) as one:
        several, never, single = one.decide_many(X[:3])
        assert one.learn_many([(several.token, 0.5), (single.token, 3.0), (several.token, 2.0)]) == ["collected"] * 3
        clock.seconds += 61
        assert one.learn(several.token, 5.0) == one.learn(never.token, 1.0) == "expired"
        assert rows(one) == [(1, 2.5, "collected"), (3, 3.0, "collected")]
        assert one.counts == {"decisions": 3, "rewards": 2, "collected": 3, "learned": 2, "expired": 2}
    with service(tmp_path, **options, reward_default=-2.0, relearn=True) as one:
        one.decide(X[0])
        clock.seconds += 61
        assert one.log().reward.tolist() == [2.5, 3.0, -2.0]  # decision 2 was over before there was a default


def test_the_settings_belong_to_the_log(tmp_path: Path) -> None:
    with service(tmp_path, **CLICKS) as one:
        one.decide(X[0])
    for options, message in [
        ({}, r"written with reward_after=60, reward_default=0, not reward_after=None, reward_default=None: "),
        ({**CLICKS, "reward_after": 61}, r"written with reward_after=60, not reward_after=61: "),
        ({**CLICKS, "rewards": "sum"}, r"written with rewards='first', not rewards='sum': "),
        ({**CLICKS, "batch_size": 8}, r"written with batch_size=16, not batch_size=8: .* relearn=True"),
    ]:
        with pytest.raises(ValueError, match=message):
            service(tmp_path, **options)
    with pytest.raises(ValueError, match=r"small {} and batch_size=16, not random {.*} and batch_size=8: use that"):
        service(tmp_path, "random", batch_size=8, **CLICKS)
    service(tmp_path, batch_size=8, relearn=True).close()
    service(tmp_path, batch_size=8).close()


def test_a_clock_that_jumps_back_stops_no_time(clock: Clock) -> None:
    one = service(expire_after=60)
    first = one.decide(X[0])
    clock.seconds -= 3600
    second = one.decide(X[0])
    clock.seconds += 30
    third = one.decide(X[0])
    clock.seconds += 31
    results = [one.learn(decision.token, 1.0) for decision in (first, second, third)]
    assert results == ["expired", "expired", "learned"]


def test_a_clock_that_reads_a_year_ahead_once_expires_nothing(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A year counts once the clock has stayed there for an hour of the computer's own time, or that has gone on too."""
    year, running = 365 * 86_400, [0]
    monkeypatch.setattr(store, "_running", lambda: running[0])
    with service(**CLICKS) as one:
        first = one.decide(X[0])
        clock.seconds += year
        second = one.decide(X[1])
        clock.seconds -= year - 1
        assert [one.learn(decision.token, 1.0) for decision in (first, second)] == ["collected"] * 2
        clock.seconds += year
        third = one.decide(X[2])
        running[0] += 3500 * 10**9
        clock.seconds += 3500
        assert one.counts["rewards"] == 3 and one.learn(third.token, 1.0) == "expired"  # time goes on meanwhile
        fourth = one.decide(X[3])
        running[0] += 101 * 10**9
        clock.seconds += 101
        assert one.learn(fourth.token, 1.0) == "expired"
        fifth = one.decide(X[4])
        running[0] += 3 * 86_400 * 10**9
        clock.seconds += 3 * 86_400  # nobody asked for three days
        assert one.learn(fifth.token, 1.0) == "expired"
        times = one.log().timestamp.astype("datetime64[s]").astype(int)
        assert times[2] - times[0] < 60 and times[4] - times[0] > year


def test_more_decisions_than_a_word_counts() -> None:
    one = service()
    one.learn(one.decide(X[0]).token, 1.0)
    row = one._store.database.connection.execute("SELECT number FROM decisions").fetchone()
    assert row == (1,)
    one._store._number = 2**32 - 3
    for _ in range(3):
        decision = one.decide(X[0])
        assert one.learn(decision.token, 1.0) == "learned"
    made = one.decide_many(X[:4])
    assert int(made[-1].token.split("-")[0]) > 2**32
    assert set(one.learn_many([(decision.token, 1.0) for decision in made])) == {"learned"}


def test_a_log_in_a_folder_that_cannot_be_written_is_read_after_a_crash(tmp_path: Path) -> None:
    """Beside a WAL, SQLite would make another file, which it may not where the reader has no permission to write."""
    one = service(tmp_path / "log")
    for x in X[:4]:
        one.learn(one.decide(x).token, 1.0)
    shutil.copytree(tmp_path / "log", tmp_path / "copy", ignore=shutil.ignore_patterns("*-shm"))
    before = {file.name: file.read_bytes() for file in (tmp_path / "copy").iterdir()}
    assert len(before) >= 2 and f"{FILE}-wal" in before
    (tmp_path / "copy").chmod(0o555)
    assert read_log(tmp_path / "copy").reward.tolist() == one.log().reward.tolist()
    assert {file.name: file.read_bytes() for file in (tmp_path / "copy").iterdir()} == before
    (tmp_path / "copy").chmod(0o755)


def test_a_log_of_another_format_is_refused(tmp_path: Path) -> None:
    service(tmp_path).close()
    database = sqlite3.connect(tmp_path / FILE)
    database.execute("UPDATE facts SET value = '\"seqdec decisions 1\"' WHERE name = 'format'")
    database.commit()
    database.close()
    for use in (service, read_log):
        with pytest.raises(
            ValueError, match=r"'seqdec decisions 1', not 'seqdec decisions 5'; read it with the seqdec"
        ):
            use(tmp_path)


def test_a_decision_takes_rewards_until_its_last_nanosecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 10**9)
    one = service(expire_after=60)
    for decision, late, expected in zip(one.decide_many(X[:2]), (0, 1), ("learned", "expired"), strict=True):
        decided: Any = one._store.find(int(decision.token.partition("-")[0]))
        ahead = one._store._time - one._store._clock  # equal times of the clock are told apart
        monkeypatch.setattr("time.time_ns", lambda at=decided.begun + 60 * 10**9 + late - ahead: at)
        assert one.learn(decision.token, 1.0) == expected
