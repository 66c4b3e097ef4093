"""What holds while several processes use one log: here connections of threads, and a database that goes away."""

import secrets
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import Any

import psycopg
import pytest

from seqdec.service import postgres as module
from seqdec.service.database import Unit
from seqdec.service.postgres import Postgres, PostgresDatabase, SharedStore, grant, prepare, quoted
from seqdec.service.schema import LOG
from seqdec.service.store import (
    DAY,
    DEFAULT,
    REPORTED,
    WITHDRAWN,
    Entry,
    FencedError,
    KeysTakenError,
    first_of,
    split_number,
)
from tests.databases import Cluster, cluster

Opened = Callable[[], SharedStore]


@pytest.fixture
def opened(place: Postgres) -> Iterator[Opened]:
    with ExitStack() as held:
        yield lambda: held.enter_context(closing(SharedStore(place)))


def entry(key: str | None = None) -> Entry:
    return Entry(secrets.token_bytes(8), b"context", b"\1\1", 1, 0.5, key, belief=7)


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Results, or exceptions, of calls in threads that begin together."""
    gate = threading.Barrier(len(calls))

    def one(call: Callable[[], Any]) -> Any:
        gate.wait()
        try:
            return call()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(one, calls))


def count(log: SharedStore, table: str = "decisions") -> int:
    ((found,),) = log.database.execute(f"SELECT count(*) FROM {table}")
    return found


def test_numbers_are_of_one_process_and_have_no_gaps(opened: Opened) -> None:
    logs = [opened() for _ in range(4)]

    def decided(log: SharedStore) -> list[int]:
        return [log.append_decisions([entry() for _ in range(size)]) for size in (1, 3, 2)]

    found = at_once(*(lambda log=log: decided(log) for log in logs))
    assert all([split_number(number).place for number in numbers] == [1, 2, 5] for numbers in found)
    assert sorted(split_number(numbers[0]).block for numbers in found) == [0, 1, 2, 3]
    assert logs[0].decisions == 24 == count(logs[1])
    assert {belief for (belief,) in logs[0].database.execute("SELECT belief FROM decisions")} == {7}
    assert [log.next_number() - log.last for log in logs] == [1] * 4


def test_a_key_has_one_decision_whoever_asks(opened: Opened) -> None:
    first, second = opened(), opened()
    for trial in range(20):
        keys = [f"{trial}/{place}" for place in range(5)]
        asked = [[entry(key) for key in keys], [entry(key) for key in reversed(keys)]]  # would be a deadlock unsorted
        results = at_once(lambda: first.append_decisions(asked[0]), lambda: second.append_decisions(asked[1]))  # noqa: B023
        (lost,) = (one for one in results if isinstance(one, Exception))
        assert isinstance(lost, KeysTakenError) and sorted(lost.keys) == sorted(keys)
        (won,) = (one for one in results if not isinstance(one, Exception))
        assert sorted(one.number for one in first.keyed(keys).values()) == list(range(won, won + 5))
        assert first.keyed(keys) == second.keyed(keys)
    with pytest.raises(KeysTakenError, match="the keys '3/2'"):
        second.append_decisions([entry("new"), entry("3/2")])
    assert second.append_decisions([entry("new")]) == second.last and count(first) == 101 == first.decisions


def test_a_reward_or_a_withdrawal_counts_and_never_both(opened: Opened) -> None:
    logs = [opened() for _ in range(3)]
    start = logs[0].append_decisions([entry() for _ in range(40)])

    def decided(log: SharedStore, source: str) -> int:
        won = 0
        for number in range(start, start + 40, 2):
            with log.locked([number, number + 1]) as found:
                free = [one for one in found.values() if one.source is None]
                won += len(free)
                if source == WITHDRAWN:
                    log.withdraw([one.number for one in free])
                else:
                    log.append_rewards([(one, 1.0, source) for one in free])
        return won

    sources = (REPORTED, DEFAULT, WITHDRAWN)
    won = at_once(
        *(lambda log=log, source=source: decided(log, source) for log, source in zip(logs, sources, strict=True))
    )
    assert sum(won) == 40
    assert count(logs[0], "rewards") == won[0] + won[1] and count(logs[0], "withdrawn") == won[2]
    assert {one.source for one in logs[0].find_many(range(start, start + 40)).values()} <= {*sources}


def test_reports_of_a_decision_are_of_one_caller_at_a_time(opened: Opened) -> None:
    logs = [opened() for _ in range(3)]
    number = logs[0].append_decisions([entry()])

    def reported(log: SharedStore) -> None:
        for place in range(10):
            with log.locked([number]):
                given = log.reports([number]).get(number, ())
                if bytes([place]) not in [digest for _, digest in given]:
                    log.append_reports([(number, float(len(given)), bytes([place]))], ())

    assert at_once(*(lambda log=log: reported(log) for log in logs)) == [None] * 3
    assert [reward for reward, _ in logs[0].reports([number])[number]] == list(map(float, range(10)))


def test_rewards_are_numbered_once_by_the_learner_alone(opened: Opened) -> None:
    decider, learner = opened(), opened()
    start = decider.append_decisions([entry() for _ in range(10)])
    found = decider.find_many(range(start, start + 10))
    decider.append_rewards([(found[start + place], float(place), REPORTED) for place in range(10)])
    decider.append_rewards([(found[start], 9.0, REPORTED)])  # the first stays
    assert (learner.rewards, learner.batches, learner.batches_after(0, 9)) == (0, 0, [])
    assert [learner.number_rewards(4, 0) for _ in range(4)] == [4, 4, 2, 0]
    assert (decider.rewards, decider.batches) == (10, 3)
    batches = learner.batches_after(0, 9)
    assert [(number, [row.reward for row in rows]) for number, rows in batches] == [
        (1, [0.0, 1.0, 2.0, 3.0]),
        (2, [4.0, 5.0, 6.0, 7.0]),
        (3, [8.0, 9.0]),
    ]
    decider.append_rewards([(decider.find_many([decider.append_decisions([entry()])]).popitem()[1], 1.0, REPORTED)])
    learner.database.execute("UPDATE lease SET epoch = 1")
    with pytest.raises(FencedError, match="epoch 1 instead of 0"):
        learner.number_rewards(4, 0)
    with pytest.raises(FencedError), learner.fenced(0):
        raise AssertionError
    assert learner.number_rewards(4, 1) == 1
    start = decider.append_decisions([entry() for _ in range(5)])
    decider.append_rewards([(found, 1.0, REPORTED) for found in decider.find_many(range(start, start + 5)).values()])
    with closing(learner.beside()) as beside:
        assert beside.number_rewards(9, 1, 2) == 5
    assert [(number, len(rows)) for number, rows in learner.batches_after(4, 9)] == [(5, 2), (6, 2), (7, 1)]


def test_a_new_learner_waits_for_what_the_old_one_writes_and_a_heartbeat_does_not(opened: Opened) -> None:
    old, new, beats = opened(), opened(), opened()
    order: list[str] = []

    def took_over() -> None:
        new.database.execute("UPDATE lease SET epoch = epoch + 1")
        order.append("new")

    with ThreadPoolExecutor(1) as threads:
        with old.fenced(0):
            over = threads.submit(
                lambda: new.database.execute("UPDATE lease SET epoch = epoch + 1") or order.append("new")
            )
            beats.database.execute("UPDATE lease SET beat = now()")
            order.append("beat")
            time.sleep(0.2)
            old.describe({"seed": 1}, {})
            order.append("old")
        over.result(10)
    assert order == ["beat", "old", "new"]
    with pytest.raises(FencedError), old.fenced(0):
        old.describe({"seed": 2}, {})
    assert dict(new.database.execute("SELECT name, value FROM facts"))["seed"] == "1"


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> Callable[[SharedStore, str, int], None]:
    """Let the connection go after the next calls of a statement were committed, before their answer comes."""

    def made(log: SharedStore, statement: str, times: int) -> None:
        sent, left = log.database._sent, [times]

        def answered(statements: Any, commits: bool) -> Any:
            found = sent(statements, commits)
            if left[0] and any(statement in one for one, _ in statements):
                left[0] -= 1
                log.database._connection.close()
                raise psycopg.OperationalError("the connection is lost")
            return found

        monkeypatch.setattr(log.database, "_sent", answered)

    return made


@pytest.mark.parametrize("options", [{}, {"active": False}, {"units": [Unit(b"u", False, 0.5)] * 2}])
def test_a_commit_whose_answer_was_lost_is_repeated_without_doubles(opened: Opened, lost: Any, options: Any) -> None:
    log = opened()
    lost(log, "append_decisions", 1)
    number = log.append_decisions([entry("a"), entry()], **options)
    assert (
        split_number(number).place == 1 and count(log) == 2 == log.decisions and log.keyed(["a"])["a"].number == number
    )
    lost(log, "append_decisions", 2)
    with pytest.raises(OSError, match=r"cannot use PostgreSQL at .*: the connection is lost"):
        log.append_decisions([entry("b")])
    after = log.append_decisions([entry("c")])
    assert split_number(after).block == split_number(number).block + 1 and split_number(after).place == 1
    assert count(log) == 4 == log.decisions


def test_a_transaction_whose_connection_is_lost_writes_nothing(opened: Opened, place: Postgres) -> None:
    log, other = opened(), opened()
    number = log.append_decisions([entry()])
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND pid = ?"

    def end() -> None:
        ((pid,),) = log.database.execute("SELECT pg_backend_pid()")
        other.database.execute(ended, (pid,))

    def reported() -> None:
        with log.locked([number]) as found:
            log.append_reports([(number, 1.0, None)], ())
            end()
            log.append_rewards([(found[number], 1.0, REPORTED)])

    with pytest.raises(OSError, match="cannot use PostgreSQL at"):
        reported()
    assert log.reports([number]) == {} and count(log, "rewards") == 0
    end()
    assert log.find(number) is not None  # what only reads is repeated
    end()
    with log.locked([number]) as found:  # and what begins a transaction
        log.append_rewards([(found[number], 1.0, REPORTED)])
    assert count(log, "rewards") == 1


def test_a_process_that_stands_still_in_a_transaction_holds_up_nobody(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, other = opened(), opened()
    number = log.append_decisions([entry()])

    def stands_still() -> None:
        monkeypatch.setattr(module, "_IDLE", 200)
        with log.locked([number]) as found:
            monkeypatch.setattr(module, "_IDLE", 3000)
            begun = time.monotonic()
            with other.locked([number]):
                other.withdraw([number])
            assert 0.1 < time.monotonic() - begun < 2
            log.append_rewards([(found[number], 1.0, REPORTED)])

    with pytest.raises(OSError, match="cannot use PostgreSQL at"):
        stands_still()
    assert log.find_many([number])[number].source == WITHDRAWN and count(log, "rewards") == 0


def test_a_transaction_leaves_nothing_in_a_session(opened: Opened) -> None:
    log = opened()
    with log.locked([log.append_decisions([entry()], active=False)]):
        pass
    with suppress(ZeroDivisionError), log.fenced(0):
        log.describe({"seed": 1}, {})
        raise ZeroDivisionError
    session = "SELECT name, setting FROM pg_settings WHERE name LIKE '%timeout' OR name = 'search_path'"
    found = log.database.execute(session)
    with closing(PostgresDatabase(log.database.path)) as other:
        assert found == other.execute(session)
    assert log.database.execute("SELECT 1 FROM pg_prepared_statements") == []
    assert count(log, "facts") == 0


def test_a_day_stays_while_something_of_it_is_to_be_learned(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 5 * DAY)
    log = opened()
    first = log.append_decisions([entry("a"), entry()])
    log.append_decisions([entry()], active=False)
    log.append_rewards([(log.find_many([first])[first], 1.0, REPORTED)])
    log.close()
    monkeypatch.setattr(time, "time_ns", lambda: 8 * DAY)
    log = opened()
    log.stage_base(1, b"")
    numbers, _ = log.older(8 * DAY, -sys.maxsize, 9, False)
    assert numbers == [first_of(6) - 1]

    def dropped(batch: int, before: int) -> int:
        log.show_base(batch, numbers[0], before, False, 1, {}, (1, 1))
        return log.remove(numbers, before)

    assert dropped(0, 8 * DAY) == 0  # a reward waits
    log.number_rewards(9, 0)
    assert dropped(0, 8 * DAY) == 0  # the base has not learned it
    log.activate(first + 2)
    assert dropped(1, 8 * DAY) == 0  # one was activated since
    reader = opened()
    with reader.database.snapshot():
        assert reader.find(first) is not None
        with pytest.raises(OSError, match="lock timeout"):  # others do not wait behind it
            dropped(1, 9 * DAY)
    assert dropped(1, 9 * DAY) == 3 and log.decisions == 3 and count(log) == 0
    assert log.append_decisions([entry("a")]) == first_of(8) + 1  # its key went with it
    assert log.remove(numbers, 9 * DAY) == 0


def test_keys_end_after_a_week(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 5 * DAY)
    log = opened()
    log.append_decisions([entry(name) for name in "abc"])
    log.close()
    monkeypatch.setattr(time, "time_ns", lambda: 11 * DAY)
    log = opened()
    log.append_decisions([entry("d")])
    assert log.drop_keys(9) == 0
    log.close()
    monkeypatch.setattr(time, "time_ns", lambda: 12 * DAY + 1000)
    log = opened()
    assert [log.drop_keys(2) for _ in range(3)] == [2, 1, 0] and list(log.keyed("abcd")) == ["d"]
    assert len(log.numbers("a", 0, b"")) == 1  # still found, to be forgotten


def test_a_role_without_rights_to_make_tables(
    place: Postgres, postgres: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = f"app of {place.schema}"
    with psycopg.connect(postgres.url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {quoted(role)} LOGIN")
    app = place._replace(url=place.url.replace("seqdec@", f"{role.replace(' ', '%20')}@"))
    with pytest.raises(OSError, match=rf"run seqdec store init URL --schema '{place.schema}' --role"):
        SharedStore(app)
    prepare(place)
    with pytest.raises(OSError, match="lacks tables or rights"):
        SharedStore(app)
    grant(place, role)
    for day in (5, 11):
        monkeypatch.setattr(time, "time_ns", lambda day=day: day * DAY)
        with closing(SharedStore(app)) as log:
            number = log.append_decisions([entry("a/1")], [Unit(b"", True, 0.5)])
            with log.locked([number]) as found:
                log.append_reports([(number, 1.0, None)], [number])
                log.append_rewards([(found[number], 1.0, REPORTED)])
            log.number_rewards(9, 0)
            log.describe({"seed": 1}, {})
            assert log.erase(log.numbers("a", 0, b"")) == 1
            numbers, _ = log.older((day - 1) * DAY, -sys.maxsize, 9, False)
            log.stage_base(1, b"")
            log.show_base(log.batches, first_of(9), 8 * DAY, False, 1, {}, (1, 1))
            assert log.remove(numbers, (day - 1) * DAY) == (day == 11)
            assert log.drop_bases(9) == 0
            for statement in ("DROP TABLE {}.decisions", "CREATE TABLE {}.other ()"):
                with pytest.raises(OSError, match=r"must be owner|permission denied"):
                    log.database.execute(statement.format(quoted(place.schema)))


def test_migrations_are_made_once_and_a_newer_log_is_refused(place: Postgres) -> None:
    more = (*LOG, "CREATE TABLE {schema}.added (x bigint)", "INSERT INTO {schema}.added VALUES (1)")
    assert at_once(*[lambda: prepare(place, LOG)] * 3) == [None] * 3
    assert at_once(*[lambda: prepare(place, more)] * 3) == [None] * 3
    with closing(PostgresDatabase(place)) as database:
        assert database.execute(f"SELECT x FROM {quoted(place.schema)}.added") == [(1,)]
    with pytest.raises(ValueError, match=f"tables of version 3, and this seqdec knows {len(LOG)}: use a newer one"):
        SharedStore(place)


def test_what_is_said_of_a_place_has_no_password(place: Postgres) -> None:
    away = Postgres("postgresql://ann:secret@127.0.0.1:1,127.0.0.1:2/shop", "x")
    assert (
        str(away) == "PostgreSQL at 127.0.0.1,127.0.0.1:1,2, database 'shop', schema 'x'" and repr(away) == f"<{away}>"
    )
    raw = ("a@secret@host/x", "secret@a@host/x", "secret/a@host/x", "1/secret@host/x", "1/a?secret=1@host/x?b=c")
    broken = ("[::1", "host/x?sslmood=secret")
    urls = [*(f"postgresql://ann:{one}" for one in raw), *(f"postgresql://ann:secret@{one}" for one in broken)]
    for url in (away.url, *urls, "postgresql://ann:secret%zz@host/x", "secret", "/secret"):
        with pytest.raises((OSError, ValueError)) as raised:
            SharedStore(Postgres(url, "x"))
        assert "secret" not in "".join(traceback.format_exception(raised.value))
        assert ("unknown option 'sslmood'" in str(raised.value)) is ("sslmood" in url), url
    for schema in ("", "x" * 64):
        with pytest.raises(ValueError, match="1 to 63 bytes"):
            SharedStore(place._replace(schema=schema))


def test_numbers_of_a_database_restored_from_a_copy_are_not_mixed_up(opened: Opened) -> None:
    log, other = opened(), opened()
    number = log.append_decisions([entry()])
    log.database.execute("DELETE FROM decisions")
    log.database.execute("DELETE FROM deciders")  # as in a copy from before
    assert other.append_decisions([entry(), entry()]) == number
    with pytest.raises(OSError, match="numbers of other decisions"):
        log.append_decisions([entry()])
    assert split_number(log.append_decisions([entry()])).block == 1 and count(log) == 3


@pytest.mark.slow
def test_what_was_acknowledged_outlasts_crashes_of_the_database() -> None:
    with cluster(durable=True) as server:
        place = Postgres(server.url, "log")
        prepare(place)
        ended, written = threading.Event(), list[tuple[int, Entry]]()

        def decide(name: int) -> None:
            with closing(SharedStore(place)) as log:
                turn = 0
                while not ended.is_set():
                    turn += 1
                    asked = [entry(f"{name}/{turn}"), entry()]
                    with suppress(OSError):
                        first = log.append_decisions(asked)
                        written.extend(enumerate(asked, first))

        threads = [threading.Thread(target=decide, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(2):
            time.sleep(0.4)
            server.stop(signal.SIGQUIT)
            server.start()
        time.sleep(0.4)
        ended.set()
        for thread in threads:
            thread.join()
        with closing(SharedStore(place)) as log:
            found = log.find_many([number for number, _ in written])
            assert len(found) == len(written) > 20
            assert all(found[number].nonce == one.nonce for number, one in written)
            with log.database.snapshot():
                log.database.check_gaps()
            assert log.decisions == count(log) >= len(written)
