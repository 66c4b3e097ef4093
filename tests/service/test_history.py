"""The log of a warm start is written in portions, beside other calls: all of it counts, or nothing."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec.ope import Log, make_log
from seqdec.service import Catalog, read_history, read_log, store
from seqdec.service.sqlite import FILE
from tests.service.services import Gate, X, at_once, beside, bits, copied, service, shop, wait


def made(folder: Path, kind: str) -> seqdec.OnlineAgent:
    if kind == "arms":
        return service(folder)
    one = service(folder, shop, Catalog(spaces.Box(-5, 5, (2,))))
    if not one.items:
        one.add_items({"first": [1.0, 0.0], "second": [0.0, 1.0], "spare": [0.5, 0.5]})
    return one


def other(kind: str, rows: int = 7, shift: float = 0.0) -> Log:
    """A log of other decisions."""
    given: Any = {"action_names": ["first", "spare"]} if kind == "items" else {"context": X[np.arange(rows) % 4]}
    return make_log(action=np.arange(rows) % 2, reward=np.arange(rows) / 8 + shift, propensity=[0.5] * rows, **given)


def play(one: seqdec.OnlineAgent, kind: str) -> None:
    assert one.learn(one.decide(None if kind == "items" else X[0]).token, 1.0) == "learned"


def rows_in(folder: Path) -> tuple[int, int]:
    """All rows of decisions and rewards in the file, those that do not count too."""
    with sqlite3.connect(folder / FILE) as db:
        numbers = [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("decisions", "rewards")]
    return numbers[0], numbers[1]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_PORTION", 3)


def stops(monkeypatch: pytest.MonkeyPatch, at: int, instead: Any) -> None:
    """Do something else in the place of the n-th portion."""
    stage, count = store.Store.stage, iter(range(100))

    def staged(*arguments: Any) -> None:
        if next(count) == at:
            instead()
        stage(*arguments)

    monkeypatch.setattr(store.Store, "stage", staged)


@pytest.mark.parametrize("kind", ["arms", "items"])
def test_calls_go_on_while_the_log_is_written(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, log = Gate(), other(kind)
    wait(monkeypatch, "stage", second(gate))
    with made(tmp_path / "a", kind) as one:
        play(one, kind)
        with beside(gate, lambda: one.warm_start(log)) as done:
            at_once(lambda: play(one, kind))
            assert rows_in(tmp_path / "a") == (5, 5)
            assert one.counts["decisions"] == one.counts["rewards"] == len(one.log().reward) == 2
            assert len(read_history(tmp_path / "a")) == len(read_log(tmp_path / "a").reward) == 2
            killed = copied(tmp_path / "a", tmp_path / "killed")
        done.result()
        play(one, kind)
        one.warm_start(log)  # is known
        assert one.counts["decisions"] == one.counts["rewards"] == 10
        history, found = read_history(tmp_path / "a"), one.log()
        assert history["time"].is_monotonic_increasing and history["reward"].tolist() == found.reward.tolist()
        assert history["source"].eq("history").sum() == history["number"].lt(0).sum() == 7
        assert history["reward"][history["source"] == "history"].tolist() == log.reward.tolist()
        tokens = set(history["token"])
        assert len(tokens) == 10 and {one.learn(token, 0.0) for token in tokens} <= {"repeated", "unknown"}
        expected = bits(one)
    with made(copied(tmp_path / "a", tmp_path / "again"), kind) as again:
        assert bits(again) == expected and again.counts["decisions"] == 10
    with made(killed, kind) as again:
        assert rows_in(killed) == (2, 2) and again.counts["decisions"] == 2
        again.warm_start(log)
        play(again, kind)
        expected = bits(again)
    with made(copied(killed, tmp_path / "killed again"), kind) as again:
        assert bits(again) == expected and again.counts["rewards"] == 10


def second(gate: Gate) -> Callable[[], None]:
    """Waits the second time."""
    count = iter(range(100))
    return lambda: gate() if next(count) == 1 else None


@pytest.mark.parametrize("error", [OSError("the disk is full"), KeyboardInterrupt()])
def test_a_log_that_is_half_written_counts_for_nothing(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    with service(tmp_path / "a") as one, service() as plain:
        for each in (one, plain):
            play(each, "arms")
            each.warm_start(other("arms", shift=1.0))
        with monkeypatch.context() as patch:
            stops(patch, 2, fail)
            with pytest.raises(type(error)):
                one.warm_start(other("arms"))
        assert rows_in(tmp_path / "a") == (14, 14) and one.counts["decisions"] == len(one.log().reward) == 8
        assert bits(one) == bits(plain)
        for each in (one, plain):
            play(each, "arms")
            each.warm_start(other("arms", rows=2))
            play(each, "arms")
        assert rows_in(tmp_path / "a") == (12, 12)
        expected = bits(plain)
        assert bits(one) == expected
    for most in (1, 5):  # several logs, batches before, between and after them
        monkeypatch.setattr("seqdec.service.learner._BATCHES", most)
        with service(copied(tmp_path / "a", tmp_path / str(most)), batch_size=4, relearn=True) as again:
            assert bits(again) == expected and again.counts["rewards"] == 12


def test_a_start_deletes_what_is_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_DROPPED", 2)
    with service(tmp_path / "a") as one:
        stops(monkeypatch, 2, lambda: copied(tmp_path / "a", tmp_path / "killed"))
        one.warm_start(other("arms"))
    assert rows_in(tmp_path / "killed") == (6, 6)
    assert len(read_history(tmp_path / "killed")) == 0
    with service(tmp_path / "killed"):
        assert rows_in(tmp_path / "killed") == (0, 0)


def test_the_time_goes_on_after_that_of_own_decisions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(tmp_path) as one:
        play(one, "arms")
        one.warm_start(other("arms"))
    monkeypatch.setattr("time.time_ns", lambda: 10**9)  # the clock jumps back
    with service(tmp_path) as one:
        play(one, "arms")
        assert read_history(tmp_path)["number"].tolist() == [1, 2, *range(-7, 0)]  # another log keeps its time
