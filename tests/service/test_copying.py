"""A log that is copied from a folder to PostgreSQL and back gives the same, and is there as a whole or not at all."""

import itertools
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import seqdec
from seqdec.service import Control, read_history, read_log
from seqdec.service.copying import copy
from seqdec.service.database import TABLES
from seqdec.service.postgres import Postgres, PostgresDatabase, SharedStore, prepare
from seqdec.service.sqlite import FILE, SQLite
from seqdec.service.store import DEFAULT, FencedError, Store
from tests.service.services import Clock, X, bits, service

WINDOW = 1000.0
OPTIONS: Any = {
    "arms": ["a", "b", "c"],
    "control": Control(0.4, "a"),
    "rewards": "sum",
    "reward_after": WINDOW,
    "reward_default": 0.0,
}


def opened(place: Path | Postgres) -> seqdec.OnlineAgent:
    return service(place, **OPTIONS) if isinstance(place, Path) else service(None, store=place, **OPTIONS)


def units(count: int) -> list[str]:
    return [f"user {place}" for place in range(count)]


def fill(folder: Path, clock: Clock, *, compacts: bool) -> list[str]:
    """A log with a row of each kind; returns the tokens."""
    log = seqdec.ope.make_log(action=[0, 1, 2], reward=[1.0, 0.0, 0.5], propensity=[0.5] * 3, context=X[:3])
    with service(folder, **OPTIONS) as one:
        one.warm_start(log.replace(action_names=("a", "b", "c")))
        made = one.decide_many(X[:20], keys=[f"ann/{place}" for place in range(20)], units=units(20))
        one.learn_many([(row.token, place / 8, f"order {place}") for place, row in enumerate(made[:9])])
        one.add_arm("d")
        one.remove_arm("b")
        clock.seconds += 2 * WINDOW
        made += one.decide_many(X[20:32], keys=[f"bob/{place}" for place in range(12)], units=units(12))
        assert one.compact(1.5 * WINDOW) == 23 if compacts else one.counts["default"] == 11
        one.forget(["bob/9"])
        hidden = one.decide_many(X[32:36], units=units(4), active=False)
        one.learn_many([(row.token, 0.5, "order") for row in made[20:24]])
        clock.seconds += 0.7 * WINDOW
        made += one.decide_many(X[36:44], units=units(8))
        one.learn(made[-1].token, 3.0)
        clock.seconds += 0.5 * WINDOW  # the time of some is over
        one.learn(made[-2].token, 4.0)
        one.activate(hidden[0].token)
        one.withdraw(made[-3].token)
    return [row.token for row in (*made, *hidden)]


def caught_up(one: seqdec.OnlineAgent) -> list[bytes]:
    until = time.monotonic() + 20
    while one.lag or (one._cluster is not None and not one._learner.leads) or one._transact(one._learner.is_behind):
        assert time.monotonic() < until
        time.sleep(0.02)
    return bits(one)


def answers(one: seqdec.OnlineAgent, tokens: list[str]) -> Any:
    """The belief, and what becomes of reports, of keys and of the next decisions."""
    state, counts = caught_up(one), dict(one.counts)
    results = [one.learn(token, 1.0, key="order") for token in tokens]
    known = one.decide_many(X[:12], keys=[f"bob/{place}" for place in range(12)], units=units(12))
    tokens_of = [row.token for place, row in enumerate(known) if place != 9]  # which was forgotten
    return state, {name: counts[name] for name in ("decisions", "rewards")}, one.arms, results, tokens_of


@pytest.mark.parametrize("compacts", [False, True])
def test_a_log_there_and_back_gives_the_same(compacts: bool, tmp_path: Path, place: Postgres, clock: Clock) -> None:
    tokens = fill(tmp_path / "log", clock, compacts=compacts)
    counts = copy(tmp_path / "log", place)
    assert all(count for table, count in counts.items() if table not in ("items", "base" * (not compacts)))
    assert copy(place, tmp_path / "back" / "agent") == counts
    places = tmp_path / "log", place, tmp_path / "back" / "agent"
    for other in places[1:]:
        pd.testing.assert_frame_equal(read_history(other), read_history(places[0]))
        logs = [read_log(one).to_pandas() for one in (other, places[0])]
        pd.testing.assert_frame_equal(*logs)
    found = []
    for one in places:
        with closing(opened(one)) as agent:
            found.append(answers(agent, tokens))
    assert found[1] == found[0] == found[2]
    assert set(found[0][3]) >= {"collected", "repeated", "expired", "withdrawn", "unknown"}
    with closing(opened(places[2])) as agent:
        assert agent.decide_many(X[:1], units=["ann"])[0].token.partition("-")[0] == str(len(tokens) + 2)


def test_what_waits_in_the_log_of_several_processes_is_learned_once(
    tmp_path: Path, place: Postgres, clock: Clock
) -> None:
    with closing(opened(place)) as first, closing(opened(place)) as second:
        made = [one.decide_many(X[:3], units=units(3)) for one in (first, second)]
        clock.seconds += WINDOW / 2
        made.append(first.decide_many(X[:3], units=units(3)))
        second.learn(made[2][0].token, 1.0)
        hidden = first.decide_many(X[:2], units=units(2), active=False)
        second.activate(hidden[1].token)
    clock.seconds += 2 * WINDOW  # the servers are away
    with closing(SharedStore(place)) as log:  # rewards that no learner has numbered
        numbers = [int(row.token.partition("-")[0]) for row in made[1][:2]]
        log.append_rewards([(one, 7.0, DEFAULT) for one in log.find_many(numbers).values()])
    copy(place, tmp_path / "log")
    with closing(Store(tmp_path / "log")) as log:
        early, after = [], -sys.maxsize
        while after is not None:
            found, after = log.older(log.before(2.2 * WINDOW), after, 4, True)
            early += found
        assert len(early) == 6  # behind later ones of another process, too
    clock.seconds += 1
    with closing(opened(tmp_path / "log")) as one:
        assert one.counts["decisions"] == 11
        later = one.decide_many(X[:2], units=units(2))
        clock.seconds += 2 * WINDOW
        one.decide_many(X[:1], units=units(1))
        assert one.forget(older_than=3 * WINDOW) == 11
        last = max(int(row.token.partition("-")[0]) for row in (*itertools.chain(*made), *hidden))
        assert [int(row.token.partition("-")[0]) for row in later] == [last + 1, last + 2]
    history = read_history(tmp_path / "log")
    assert Counter(history["source"].fillna("")) == {"collected": 1, "default": 11, "withdrawn": 1, "": 1}
    assert len(history) == 14
    with closing(opened(tmp_path / "log")) as one:
        assert one.compact(3 * WINDOW) == 11  # all of two blocks
    copy(tmp_path / "log", again := place._replace(schema=f"{place.schema} again"))
    with closing(opened(again)) as one:
        assert one.counts["decisions"] == 14 and caught_up(one)
        one.decide_many(X[:1], units=units(1))
        with one._store.database.snapshot():
            one._store.database.check_gaps()


def rows_of(place: Postgres) -> int:
    with closing(PostgresDatabase(place)) as database:
        return sum(database.execute(f"SELECT count(*) FROM {table}")[0][0] for table in (*TABLES, "keys", "deciders"))


def test_a_copy_is_whole_or_not_there(
    tmp_path: Path, place: Postgres, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "log", clock, compacts=False)

    def fail(statement: str) -> Callable[..., Any]:
        def failed(self: Any, table: str, rows: Any, **options: Any) -> Any:
            if table == statement:
                raise OSError("no space")
            return written(self, table, rows, **options)

        return failed

    for other, source, to in (
        (PostgresDatabase, tmp_path / "log", place),
        (SQLite, place, tmp_path / "back"),
    ):
        with monkeypatch.context() as patch:
            written = other.write
            patch.setattr(other, "write", fail("units"))
            with pytest.raises(OSError, match="no space"):
                copy(source, to)
        if isinstance(to, Path):
            assert {path.name for path in tmp_path.iterdir()} == {"log"}
        else:
            assert rows_of(to) == 0
        copy(source, to)
    with closing(sqlite3.connect(tmp_path / "back" / FILE)) as database, database:
        database.execute("UPDATE reports SET reward = 17 WHERE sequence = 3")
    damaged = place._replace(schema="damaged")
    with pytest.raises(ValueError, match="the row 3 of its table reports does not have its checksum"):
        copy(tmp_path / "back", damaged)
    assert rows_of(damaged) == 0


def test_what_is_not_copied(tmp_path: Path, place: Postgres, clock: Clock) -> None:
    folder = tmp_path / "log"
    with service(folder, **OPTIONS) as one:
        with pytest.raises(FileExistsError, match="in use by this process"):
            copy(folder, place)
        one.decide_many(X[:2], units=units(2))
    with pytest.raises(FileNotFoundError, match=f"there is no {FILE} in {tmp_path}: give the folder"):
        copy(tmp_path, place)
    for one, remedy in ((folder, "use OnlineAgent.backup"), (place, "use pg_dump")):
        with pytest.raises(ValueError, match=remedy):
            copy(one, one)
    with pytest.raises(ValueError, match="is not the log of an OnlineAgent"):
        copy(place, tmp_path / "new")
    copy(folder, place)
    with pytest.raises(ValueError, match="has a log already"):
        copy(folder, place)
    with pytest.raises(FileExistsError, match="needs a folder of its own"):
        copy(place, folder)
    with closing(opened(place)) as one:
        caught_up(one)
        with pytest.raises(ValueError, match="is being learned: stop the servers"):
            copy(place, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_who_begins_a_log_meanwhile_is_fenced(tmp_path: Path, place: Postgres, clock: Clock) -> None:
    service(tmp_path / "log", **OPTIONS).close()
    prepare(place)
    with closing(SharedStore(place)) as other:
        copy(tmp_path / "log", place)
        with pytest.raises(FencedError):
            other.describe({"log": "other"}, {})
