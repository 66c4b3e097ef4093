"""Several agents with one log in PostgreSQL: each decides, one learns, the others follow."""

import contextlib
import functools
import math
import os
import time

import jax
import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec.serve import reports
from seqdec.service import OnlineAgent
from seqdec.service.identity import ChangedError
from seqdec.service.spool import Spool
from seqdec.service.store import FencedError, split_number

ENV = seqdec.core.Spaces(spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3))
CONTEXT = np.array([0.5, -0.5], np.float32)


@functools.cache
def linear(size):
    """One agent for each number of arms, whose programs all tests share."""
    return seqdec.agents.linear(seqdec.core.Spaces(ENV.observation_space, spaces.Discrete(size)))


def agent(place, **options):
    return OnlineAgent(lambda given: linear(int(given.action_space.n)), ENV, seed=3, store=place, **options)


def wait(condition, seconds=10.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing happened in time"
        time.sleep(0.02)


def leaves(one):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(one.state)]


def same(first, second):
    return all(map(np.array_equal, first, second))


def lease(one):
    return one._transact(one._store.database.execute, "SELECT epoch, holder FROM lease")


@pytest.fixture
def pair(place):
    with contextlib.closing(agent(place)) as first, contextlib.closing(agent(place)) as second:
        yield first, second


def test_a_decision_of_one_is_rewarded_at_the_other_and_both_have_the_belief(pair):
    first, second = pair
    start = leaves(second)
    tokens = [(first if place % 2 else second).decide(CONTEXT).token for place in range(20)]
    assert {second.learn(token, 1.0) for token in tokens} == {"collected"}
    assert {first.learn(token, 2.0) for token in tokens} == {"repeated"}
    wait(lambda: first.lag == 0 and same(leaves(first), leaves(second)) and not same(start, leaves(second)))
    assert first.counts["rewards"] == second.counts["rewards"] == 20
    assert len({split_number(int(token.partition("-")[0])).block for token in tokens}) == 2


def test_the_first_answer_to_a_key_stands_everywhere(pair):
    first, second = pair
    given = first.decide_many(np.stack([CONTEXT] * 3), keys=["a", "b", "c"])
    assert second.decide_many(np.stack([CONTEXT] * 4), keys=["c", "b", "d", "a"])[:2] == given[:0:-1]
    assert first.decide(CONTEXT, key="d") == second.decide(CONTEXT, key="d")


def test_what_changes_arms_is_done_by_whoever_is_asked_and_known_to_all(pair):
    first, second = pair
    for one, other in (pair, pair[::-1]):
        name = one.add_arm()
        wait(lambda other=other, name=name: name in other.arms)
        assert {other.decide(CONTEXT, mask=[name]).action for _ in range(3)} == {name}
    second.remove_arm(0)
    wait(lambda: 0 not in first.arms)


def test_another_learns_when_the_learner_has_gone(pair, place):
    first, second = pair
    wait(lambda: first._learner.leads)
    first._cluster._ended.set()  # as if it had been killed
    first._cluster._lease._ended.set()
    token = second.decide(CONTEXT).token
    second.learn(token, 1.0)
    began = time.monotonic()
    wait(lambda: second._learner.leads and second.lag == 0)
    assert time.monotonic() - began < 5
    with pytest.raises(FencedError):  # as if it had been stopped, and went on
        first._learner.snapshot(first._transact)
    first._cluster._lease._beat()
    first._cluster.look()
    assert not first._learner.leads


def test_a_belief_that_lags_is_an_alarm(pair, place, monkeypatch):
    first, second = pair
    wait(lambda: first._learner.leads)
    second._cluster.stop()  # it gets no beliefs
    first.learn(second.decide(CONTEXT).token, 1.0)
    wait(lambda: first.lag == 0)
    assert 0 < second.lag < 10 and not reports.of_agent(place, second)["alarms"]
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 60 * 10**9)
    (alarm,) = reports.of_agent(place, second)["alarms"]
    assert alarm["kind"] == "lag" and "lacks rewards from 6" in alarm["observed"]
    assert first.lag == 0 and not reports.of_agent(place, first)["alarms"]
    first._cluster.stop()  # nobody learns
    first.learn(first.decide(CONTEXT).token, 1.0)
    assert first.lag > 0


def test_a_new_process_goes_on_from_the_log(place):
    with contextlib.closing(agent(place)) as one:
        for reward in (1.0, 0.0, 2.0):
            one.learn(one.decide(CONTEXT).token, reward)
        wait(lambda: one.counts["rewards"] == 3 and one.lag == 0)
        last = leaves(one)
    with contextlib.closing(agent(place)) as again:
        wait(lambda: same(last, leaves(again)))
        again._store.database.execute("DELETE FROM beliefs")
    with contextlib.closing(agent(place)) as whole:  # from the beginning
        wait(lambda: same(last, leaves(whole)))


@pytest.mark.filterwarnings("ignore:.*this process decides by its last belief:RuntimeWarning")
def test_another_agent_is_refused_until_it_relearns(place):
    other = seqdec.agents.linear(ENV, policy="ucb")
    with contextlib.closing(agent(place)) as one:
        one.learn(one.decide(CONTEXT).token, 1.0)
        with pytest.raises(ChangedError, match="relearn=True"):
            OnlineAgent(lambda spaces: other, ENV, seed=3, store=place)
        with contextlib.closing(OnlineAgent(lambda spaces: other, ENV, seed=3, store=place, relearn=True)) as new:
            wait(lambda: "relearn=True" in one._cluster._said)
            token = one.decide(CONTEXT).token  # goes on
            assert new.learn(token, 1.0) == "collected"
            wait(lambda: new.lag == 0 and new.counts["rewards"] == 2)
            new._cluster._ended.set()  # as if it had been killed
            new._cluster._lease._ended.set()
            began, held = time.monotonic(), lease(new)
            with pytest.raises(ChangedError, match=r"was written with linear .*relearn=True"):
                one.add_arm()
            assert one.learn(one.decide(CONTEXT).token, 1.0) == "collected"
            wait(lambda: one.learner is None)
            time.sleep(1)
            assert time.monotonic() - began < 10 and lease(new) == held


@pytest.mark.filterwarnings("ignore:.*decisions are refused until it is back:RuntimeWarning")
def test_decisions_go_on_while_the_database_is_away(pair, place, postgres, tmp_path):
    third, other = pair
    with contextlib.closing(agent(place, spool=tmp_path)) as one:
        known = [one.decide(CONTEXT, key="y"), other.decide(CONTEXT, key="z")]
        assert one.decide(CONTEXT, key="z") == known[1]
        one._cluster.stop()
        try:
            postgres.stop()
            wait(lambda: third._cluster._said and other._cluster._said)
            with pytest.raises(OSError, match="cannot use PostgreSQL"):
                third.decide(CONTEXT)
            alone = [one.decide(CONTEXT, key="a"), *one.decide_many(np.stack([CONTEXT] * 2), keys=["b", "c"])]
            assert one.decide(CONTEXT, key="b") == alone[1]
            assert one.decide_many(np.stack([CONTEXT] * 2), keys=["y", "z"]) == known
            with pytest.raises(OSError, match="cannot use PostgreSQL"):
                one.learn(alone[0].token, 1.0)
        finally:
            postgres.start()
        wait(lambda: not third._cluster._said and not other._cluster._said)
        assert third.learn(alone[0].token, 1.0) == "unknown"  # without a spool there is no other reason
        taken = other.decide(CONTEXT, key="c")
        with contextlib.closing(agent(place, spool=tmp_path)) as fourth:
            with pytest.raises(OSError, match=r"not in .* yet"):
                fourth.learn(alone[0].token, 1.0)
            one._cluster.look()
            results = fourth.learn_many([(given.token, 1.0) for given in [*alone, taken]])
            assert results == ["collected"] * 4 and other.decide(CONTEXT, key="c") == taken
            assert fourth.decide(CONTEXT, key="a") == alone[0] and fourth.decide(CONTEXT, key="b") == alone[1]
            wait(lambda: fourth.lag == 0)
            assert len(fourth.log()) == 4


def test_a_number_that_the_database_may_have_is_not_given_again(place, tmp_path, monkeypatch):
    with contextlib.closing(agent(place, spool=tmp_path)) as one:
        first = one.decide(CONTEXT)
        one._cluster.stop()
        append = one._store._append

        def lost(rows):
            append(rows)  # and the answer does not arrive
            raise OSError("lost")

        with monkeypatch.context() as patched:
            patched.setattr(one._store, "_append", lost)
            patched.setattr(os, "write", lambda file, content: 0)
            with pytest.raises(OSError, match="no room"):
                one.decide(CONTEXT)
        one._store.database.is_away = False
        later = one.decide(CONTEXT)
        assert one.learn_many([(each.token, 1.0) for each in (first, later)]) == ["collected"] * 2


@pytest.mark.parametrize("runs", [False, True])
def test_what_a_process_left_in_its_spool_is_written_by_another(place, postgres, tmp_path, runs):
    one, *others = [agent(place, spool=tmp_path) for _ in range(1 + runs)]
    one.decide(CONTEXT)
    for each in (one, *others):
        each._cluster.stop()
    postgres.stop()
    try:
        kept = [one.decide(CONTEXT, key=key) for key in "abc"]
        (file,) = tmp_path.glob("*.jsonl")
        content = file.read_bytes()
        one.close()
    finally:
        postgres.start()
    file.write_bytes(content[:-5])  # "c" was not answered
    with contextlib.closing(others[0] if runs else agent(place, spool=tmp_path)) as again:
        again._cluster._files = -math.inf
        again._cluster.look()
        assert not file.exists()
        found = [again.decide(CONTEXT, key=key) for key in "abc"]
        assert [a.token == b.token for a, b in zip(found, kept, strict=True)] == [True, True, False]


def test_a_full_disk_cuts_no_line_of_a_spool(tmp_path, monkeypatch):
    spool, write = Spool(tmp_path), os.write
    rows = [{"decisions": [[number, 0, b"", None, None, 0, 1.0, "key", None, None]]} for number in range(3)]
    spool.add(rows[0])
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda file, content: write(file, content[:9]))
        with pytest.raises(OSError, match="no room"):
            spool.add(rows[1])
    spool.add(rows[2])
    for row in (rows[0], rows[2]):
        assert spool.first() == row
        spool.drop_first()
    assert spool.is_empty
    spool.close()


def test_a_spool_is_for_a_database():
    with pytest.raises(ValueError, match="spool="):
        OnlineAgent(lambda spaces: linear(3), ENV, seed=3, spool="here")
