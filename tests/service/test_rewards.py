"""Rewards as they arrive: defaults for what nobody reports, and several of one decision put together."""

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqdec
from seqdec.service import read_log
from seqdec.service.rewards import Rewards, make_rule
from seqdec.service.store import FILE, Entry, Store
from tests.service.services import Clock, X, exceptions, service

CLICKS: Any = {"reward_default": 0.0, "reward_after": 60}


def rows(one: seqdec.OnlineAgent) -> list[Any]:
    return one._store.database.connection.execute(
        "SELECT number, reward, source FROM rewards ORDER BY sequence"
    ).fetchall()


def test_what_nobody_reports_becomes_the_default(clock: Clock, tmp_path: Path) -> None:
    with service(tmp_path, **CLICKS) as one:
        early = one.decide_many(np.tile(X, (5, 1)))
        before = exceptions.bits(one)
        assert one.learn(early[3].token, 1.0) == "collected"
        assert one.learn(early[3].token, 2.0) == "repeated"
        assert one.learn_many([(early[4].token, 1.0), (early[4].token, 0.0)]) == ["collected", "repeated"]
        clock.seconds += 30
        late = one.decide(X[0])
        assert exceptions.bits(one) == before  # a click is not learned before what was not clicked
        clock.seconds += 31
        assert one.learn(early[0].token, 1.0) == "expired"  # after its default
        assert one.learn(early[3].token, 1.0) == "repeated"
        log = one.log()
        assert log.reward.tolist() == [0.0] * 3 + [1.0, 1.0] + [0.0] * 15
        assert one.learn(late.token, 1.0) == "collected"
        expected = {"decisions": 21, "rewards": 20, "default": 18, "learned": 2, "collected": 3}
        assert one.counts == {**expected, "expired": 1, "repeated": 3}
        assert {source for _, _, source in rows(one)} == {"collected", "default"}
        expected = exceptions.bits(one)
        shutil.copytree(tmp_path, tmp_path / "copy", ignore=shutil.ignore_patterns("state*", "copy"))
    with service(tmp_path / "copy", **CLICKS) as again:
        assert exceptions.bits(again) == expected and again.counts["rewards"] == 20


def test_a_decision_is_in_time_until_its_seconds_are_over(clock: Clock, tmp_path: Path) -> None:
    with service(tmp_path, **CLICKS) as one:
        first, second = one.decide(X[0]), one.decide(X[1])
        clock.seconds += 59
        assert one.learn(first.token, 1.0) == "collected"
    clock.seconds += 2
    with service(tmp_path, **CLICKS) as again:  # the time in which none was open counts
        assert again.counts["default"] == 1
        assert again.learn(second.token, 1.0) == "expired"
        assert again._rewards._ended == 2
    with service(tmp_path, **CLICKS) as again:
        assert again._rewards._ended == 2


@pytest.mark.parametrize(("how", "expected"), [("sum", 1.5), ("last", -1.0), ("max", 2.0)])
def test_several_rewards_of_a_decision(how: Any, expected: float, clock: Clock, tmp_path: Path) -> None:
    options: Any = {"rewards": how, "reward_after": 60}
    with service(tmp_path, **options) as one:
        several, never, single = one.decide_many(X[:3])
        before = exceptions.bits(one)
        assert one.learn_many([(several.token, 0.5), (single.token, 3.0), (several.token, 2.0)]) == ["collected"] * 3
    with service(tmp_path, **options) as one:
        assert one.learn(several.token, -1.0) == "collected"
        assert exceptions.bits(one) == before and one.counts["rewards"] == 0
        clock.seconds += 61
        assert one.learn(several.token, 5.0) == "expired"
        assert rows(one) == [(1, expected, "collected"), (3, 3.0, "collected")]
        assert one.counts == {"decisions": 3, "rewards": 2, "collected": 1, "learned": 2, "expired": 1}
        assert exceptions.bits(one) != before
        assert one.learn(never.token, 1.0) == "expired"
        assert read_log(tmp_path).reward.tolist() == [expected, 3.0]
    with service(tmp_path, **options, reward_default=-2.0, relearn=True) as one:
        assert rows(one)[-1] == (3, 3.0, "collected")  # decision 2 was over before there was a default
        one.decide(X[0])
        clock.seconds += 61
        assert one.log().reward.tolist() == [expected, 3.0, -2.0]


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
    with pytest.raises(ValueError, match=r"means {} and batch_size=16, not linear {.*} and batch_size=8: make that"):
        seqdec.OnlineAgent("linear", exceptions.SITE, seed=0, folder=tmp_path, batch_size=8, **CLICKS)
    service(tmp_path, batch_size=8, relearn=True).close()
    service(tmp_path, batch_size=8).close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reward_default": 0.0}, "reward_default=0.0 needs reward_after"),
        ({"rewards": "sum"}, "rewards='sum' needs reward_after"),
        ({"reward_after": 60}, "reward_after needs a reward_default"),
        ({"reward_after": 0, "reward_default": 0.0}, "reward_after must be positive; got 0"),
        ({"reward_after": 1, "reward_default": np.nan}, "finite number in float32; got nan"),
        ({"reward_after": 1, "rewards": "summ"}, "sum"),
    ],
)
def test_settings_that_do_not_fit_together(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        service(**options)


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


def test_more_decisions_than_a_word_counts() -> None:
    one = service()
    one.learn(one.decide(X[0]).token, 1.0)
    row = one._store.database.connection.execute("SELECT number FROM decisions").fetchone()
    assert row == (1,)
    one._store.decisions = 2**32 - 3
    for _ in range(3):
        decision = one.decide(X[0])
        assert one.learn(decision.token, 1.0) == "learned"
    made = one.decide_many(X)
    assert int(made[-1].token.split("-")[0]) > 2**32
    assert set(one.learn_many([(decision.token, 1.0) for decision in made])) == {"learned"}


def flipped(value: Any) -> Any:
    """A value with another bit."""
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:]
    return chr(ord(value[0]) ^ 1) + value[1:] if isinstance(value, str) else value + 8


COLUMNS = {
    "facts": ("value", "checksum"),
    "arms": ("id", "output", "removed", "checksum"),
    "decisions": ("number", "time", "nonce", "context", "mask", "action", "propensity", "checksum"),
    "rewards": ("sequence", "number", "batch", "reward", "time", "source", "checksum"),
    "reports": ("sequence", "reward", "time", "checksum"),
}


@pytest.mark.parametrize("table", COLUMNS)
def test_a_bit_that_flips_in_the_log_is_noticed(table: str, tmp_path: Path, clock: Clock) -> None:
    options: Any = {"rewards": "sum", "reward_after": 60}
    with service(tmp_path / "log", **options) as one:
        learned = one.decide(X[0])
        one.learn(learned.token, 1.0)
        if table != "reports":
            clock.seconds += 61
            one.decide(X[1])
    (tmp_path / "log" / "state.safetensors").unlink(missing_ok=True)
    clock.seconds += 61
    for column in COLUMNS[table]:
        shutil.copytree(tmp_path / "log", copy := tmp_path / column)
        database = sqlite3.connect(copy / FILE, isolation_level=None)
        (old,) = database.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
        database.execute(f"UPDATE {table} SET {column} = ? WHERE {column} IS ?", (flipped(old), old))
        database.close()
        with (
            pytest.raises(
                (ValueError, RuntimeError), match=rf"damaged: the row .* of its table {table} .*; restore it"
            ),
            service(copy, **options) as one,
        ):
            one.learn(learned.token, 1.0)


def test_a_log_in_a_folder_that_cannot_be_written_is_read_after_a_crash(tmp_path: Path) -> None:
    """Beside a WAL, SQLite would make another file, which it may not where the reader has no permission to write."""
    one = service(tmp_path / "log")
    for x in X:
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
            ValueError, match=r"'seqdec decisions 1', not 'seqdec decisions 2'; read it with the seqdec"
        ):
            use(tmp_path)


class Follower:
    """In place of a learner: what it was given to learn."""

    def __init__(self, log: Store) -> None:
        self.log, self.learned = log, []

    def catch_up(self) -> list[str]:
        ((_, rewards),) = self.log.batches_after(self.log.batches - 1, 1)
        self.learned += [(row.action, row.reward) for row in rewards]
        return ["learned"] * len(rewards)


def alone(*rule: Any, expire_after: float | None = None) -> tuple[Rewards, Follower, list[bytes]]:
    """Rewards of three decisions, without an agent."""
    log = Store(None)
    nonces = [bytes([place] * 8) for place in range(3)]
    log.append_decisions([Entry(nonce, b"", b"", action, 0.5) for action, nonce in enumerate(nonces)])
    follower: Any = Follower(log)
    return Rewards(make_rule(*rule), expire_after, log, follower), follower, nonces


def test_rewards_by_themselves(clock: Clock) -> None:
    some, follower, nonces = alone("first", None, None, None, expire_after=60)
    tokens = [f"{number}-{nonce.hex()}" for number, nonce in enumerate(nonces, 1)]
    asked = some.parse([(tokens[1], 1), [tokens[1], 0.5], ("9-00", 1), (tokens[0], np.float32(2))])
    assert some.report(asked) == ["learned", "repeated", "unknown", "learned"]
    assert some.report(asked[:1]) == ["repeated"] and follower.learned == [(1, 1.0), (0, 2.0)]
    clock.seconds += 61
    assert some.report(some.parse([(tokens[2], 1)])) == ["expired"]
    with pytest.raises(TypeError, match="as pairs"):
        some.parse(["ab"])


def test_a_decision_takes_rewards_until_its_last_nanosecond(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 10**9)
    some, _, nonces = alone("first", None, None, None, expire_after=60)
    for number, late, expected in ((1, 0, "learned"), (2, 1, "expired")):
        decided = some._store.find(number)
        assert decided is not None
        ahead = some._store._ahead  # equal times of the clock are told apart
        monkeypatch.setattr("time.time_ns", lambda at=decided.time + 60 * 10**9 + late - ahead: at)
        assert some.report(some.parse([(f"{number}-{nonces[number - 1].hex()}", 1)])) == [expected]


@pytest.mark.parametrize("few", [True, False])
def test_rewards_by_themselves_when_their_time_is_over(few: bool, clock: Clock) -> None:
    some, follower, nonces = alone("sum", 60, {"click": 0.0}, {"click": 1.0, "revenue": 0.5})
    tokens = [f"{number}-{nonce.hex()}" for number, nonce in enumerate(nonces, 1)]
    reports = [(tokens[0], {"revenue": 2}), (tokens[0], {"revenue": 1, "click": 1}), (tokens[1], {"click": 1})]
    assert some.report(some.parse(reports)) == ["collected"] * 3
    some.settle(few=few)
    assert follower.learned == [] and not some.is_more_due()
    clock.seconds += 61
    some.settle(few=few)
    assert follower.learned == [(0, '{"click": 1.0, "revenue": 3.0}')]
    assert some.counts == {"collected": 3, "learned": 1, "incomplete": 1} and not some.is_more_due()
