"""No call of `OnlineAgent` waits for another's work, and what is done beside it agrees with the log."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from seqdec.core import Agent, HasSpaces, Spaces
from seqdec.ope import Log, make_log
from seqdec.service import model
from seqdec.service.model import Model
from seqdec.service.transactions import Transactions
from tests.service.services import SITE, Clock, Gate, X, at_once, beside, bits, copied, service, small, wait

CLICKS: Any = {"reward_default": 0.0, "reward_after": 60}


def gated(gate: Callable[[], None]) -> Callable[[HasSpaces], Agent]:
    """An agent that waits at the gate when it is made with more than four actions."""

    def make(spaces: HasSpaces) -> Agent:
        if spaces.action_space.n > 4:  # pyright: ignore[reportAttributeAccessIssue]
            gate()
        return small(spaces)

    return make


def some(rows: int = 5) -> Log:
    contexts = np.random.default_rng(rows).normal(size=(rows, 2))
    return make_log(
        action=np.arange(rows) % 3, reward=contexts[:, 0], propensity=[0.5] * rows, context=contexts, num_actions=3
    )


def test_decisions_go_on_and_rewards_wait_while_programs_compile(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unoptimized programs decide, and only optimized ones learn, what is due too."""
    gate, learned = Gate(), Model._learned
    one, plain = service(), service()
    one.warm_up(first=True)
    assert one._learner.model._act is one._learner.model._programs.first

    def waiting(self: Model, state: Any, lessons: Any) -> Any:
        if jax.numpy.isnan(lessons.rewards).all():  # of the warm-up
            gate()
        return learned(self, state, lessons)

    monkeypatch.setattr(Model, "_learned", waiting)
    with ThreadPoolExecutor(1) as other:
        with beside(gate, one.warm_up) as done:
            made = at_once(lambda: one.decide(X[0]), lambda: one.decide_many(X[:6]), lambda: one.counts)
            report = other.submit(one.learn, made[0].token, 1.0)
            at_once(lambda: one.decide(X[0]))
            assert not report.done() and one._store.rewards == 0
        done.result(60)
        assert report.result(60) == "learned"
    assert one._learner.model._act is one._learner.model._programs.act
    plain.learn(plain.decide(X[0]).token, 1.0)
    assert bits(one) == bits(plain)


def test_what_is_due_waits_for_the_programs_that_learn(clock: Clock) -> None:
    one = service(**CLICKS)
    one.decide_many(X[:4])
    clock.seconds += 61
    one._learner.is_warm.clear()  # as during `warm_up`
    at_once(lambda: one.decide(X[0]), lambda: one.counts)
    assert one._store.rewards == 0
    one._learner.is_warm.set()
    assert one.counts["default"] == 4


def test_many_programs_are_there_one_by_one() -> None:
    """A batch is decided in portions of the largest program that there is."""
    one, plain = service(), service()
    one.warm_up(first=True)
    model = one._learner.model
    steps = model.warm_up(one._actions._contexts.zeros(), np.int32(0))  # pyright: ignore[reportAttributeAccessIssue]
    made = one.decide_many(X[:10])
    assert [next(steps) for _ in range(5)] == [False, False, True, True, True]
    assert model._pads == (1, 4) and model._act is model._programs.act
    made += one.decide_many(X[:10])
    list(steps)
    assert model._pads == (1, 4, 16, 64, 256)
    for own, other in zip(made, plain.decide_many(np.concatenate([X[:10], X[:10]])), strict=True):
        assert own.action == other.action and abs(own.propensity - other.propensity) < 1e-4


def test_long_calls_give_way_after_each_portion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the thread that releases the lock takes it again, before one that waits."""
    one = service(tmp_path)
    made = [decision.token for decision in one.decide_many(np.tile(X[:4], (40, 1)))]
    portions: list[str] = []
    monkeypatch.setattr(Transactions, "give_way", lambda self: portions.append(""))

    def gave_way(work: Callable[[], Any]) -> int:
        portions.clear()
        work()
        return len(portions)

    assert gave_way(lambda: one.warm_start(some(40))) >= 5
    assert gave_way(lambda: one.forget(made)) >= 160
    assert gave_way(one.add_arm) >= 1
    assert gave_way(lambda: one.decide(X[0])) == 0


def test_many_are_decided_and_learned_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one by one, while another thread decides; an exception between them leaves no decision that nobody knows."""
    rows = np.random.default_rng(3).normal(size=(600, 2))
    rewards = np.sin(np.arange(600)).tolist()
    with service(tmp_path / "whole", batch_size=4) as one, service(batch_size=4) as other:
        many, gate = one.decide_many(rows), Gate()
        assert [(d.action, d.propensity) for d in many] == [(d.action, d.propensity) for d in map(other.decide, rows)]
        assert one.learn_many(zip([d.token for d in many], rewards, strict=True)) == ["learned"] * 600
        expected, wait_for = bits(one), Transactions.give_way
        monkeypatch.setattr(Transactions, "give_way", lambda self: gate())
        with beside(gate, lambda: one.decide_many(rows)) as done:
            at_once(lambda: one.decide(X[0]), lambda: one.learn(other.decide(X[1]).token, 1.0))
            gate.opened.set()
            assert len(done.result(60)) == 600 and one.counts["decisions"] == 1201
        monkeypatch.setattr(Transactions, "give_way", wait_for)
        assert bits(one) == expected
        monkeypatch.setattr(one._store, "append_decisions", after(one._store.append_decisions, 2))
        with pytest.raises(OSError, match="full"):
            one.decide_many(rows, keys=[f"ann/{n}" for n in range(600)])
        monkeypatch.undo()
        assert one.decide_many(rows[:1], keys=["ann/0"])[0].token.startswith(str(1201 + 512 + 1))
        with pytest.raises(ValueError, match="at least one of the arms"):
            one.decide_many(rows, [[True] * 3] * 599 + [[False] * 3])
        assert one.counts["decisions"] == 1201 + 512 + 1
    with service(copied(tmp_path / "whole", tmp_path / "again"), batch_size=4) as again:
        assert bits(again) == expected


def after(call: Callable[..., Any], times: int) -> Callable[..., Any]:
    """A call that works so many times, then finds the disk full."""
    left = [times]

    def made(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError("the disk is full")
        return call(*arguments, **options)

    return made


@pytest.mark.parametrize("count", [2, 4, 5, 17, 65])
def test_programs_of_several_sizes_decide_alike(count: int) -> None:
    with service() as one, service() as other:
        many, alone = one.decide_many(X[:count]), [other.decide(x) for x in X[:count]]
        assert [(d.action, d.propensity) for d in many] == [(d.action, d.propensity) for d in alone]


def test_a_start_learns_in_blocks_what_came_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(tmp_path / "a") as one:
        for place in range(40):
            one.learn(one.decide(X[place % 4] + place / 100).token, np.sin(place))
        one.learn_many([(decision.token, 0.5) for decision in one.decide_many(X[:4])])
        expected = bits(one)
        monkeypatch.setattr("seqdec.service.learner._BATCHES", 32)
        calls: list[int] = []
        stacked = model._filled_up

        def counted(lessons: Any, parts: Any, *rest: Any) -> Any:
            calls.append(len(parts))
            return stacked(lessons, parts, *rest)

        monkeypatch.setattr("seqdec.service.model._filled_up", counted)
        with service(copied(tmp_path / "a", tmp_path / "b")) as again:
            assert bits(again) == expected
        assert sum(calls) == 41 and len(calls) == 3
        plan = one._store.database.connection.execute(
            "EXPLAIN QUERY PLAN SELECT * FROM rewards WHERE batch > 3 ORDER BY batch, sequence"
        )
        assert "USING INDEX" in str(plan.fetchall())


def test_calls_go_on_while_an_arm_is_added(tmp_path: Path) -> None:
    gate = Gate()
    with service(tmp_path / "a", gated(gate), capacity=4) as one:
        old = np.ones(3, bool)
        for decision in one.decide_many(np.tile(X[:4], (10, 1))):
            one.learn(decision.token, 1.0)
        assert one.add_arm() == 3
        late = one.decide(X[0])
        with beside(gate, one.add_arm) as added:
            decision, *_ = at_once(lambda: one.decide(X[0], old), one.snapshot, one.log, lambda: one.counts)
            assert at_once(lambda: one.learn(decision.token, 5.0), lambda: one.remove_arm(1)) == ["learned", None]
            assert one.arms == (0, 2, 3) and not added.done()
            copied(tmp_path / "a", tmp_path / "killed")
        assert added.result() == 4 and one.arms == (0, 2, 3, 4)
        assert one.learn(late.token, -5.0) == "learned"
        expected = bits(one)
        with service(copied(tmp_path / "a", tmp_path / "b"), gated(gate)) as again:
            assert again.arms == one.arms and bits(again) == expected
        with service(tmp_path / "killed", gated(gate)) as killed:
            assert killed.arms == (0, 2, 3) and killed.counts["rewards"] == 41
            assert killed.learn(late.token, -5.0) == "learned" and killed.add_arm() == 4


def test_two_arms_at_once() -> None:
    gate = Gate()
    one = service(make=gated(gate), capacity=4)
    one.add_arm()
    with beside(gate, one.add_arm) as first, ThreadPoolExecutor(1) as other:
        second = other.submit(one.add_arm)
        at_once(lambda: one.decide(X[0]))
        gate.opened.set()
        assert {first.result(60), second.result(60)} == {4, 5}
    assert one.arms == (0, 1, 2, 3, 4, 5)


def test_an_arm_that_cannot_be_added_leaves_all_as_it_was(tmp_path: Path) -> None:
    def full() -> None:
        raise MemoryError

    with service(tmp_path, gated(full), capacity=4) as one:
        one.add_arm()
        one.learn(one.decide(X[0]).token, 1.0)
        expected = bits(one)
        with pytest.raises(MemoryError):
            one.add_arm()
        assert one.arms == (0, 1, 2, 3) and bits(one) == expected
    gate = Gate()
    one = service(tmp_path, gated(gate))
    with beside(gate, one.add_arm) as added:
        at_once(one.close)
    with pytest.raises(RuntimeError, match="this agent is closed"):
        added.result()
    with service(tmp_path) as again:
        assert again.arms == (0, 1, 2, 3) and bits(again) == expected


def test_a_regression_for_each_arm_is_widened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(tmp_path / "a", "linear") as one:
        assert one._learner.model.outputs == 3
        for place in range(12):
            one.learn(one.decide(X[place]).token, np.sin(place))
        with monkeypatch.context() as patch:
            patch.setattr(Model, "learn", None)  # nothing is learned again
            assert one.add_arm() == 3
        assert one._learner.model.outputs == 6
        mask = np.array([False, False, False, True])
        assert one.learn(one.decide(X[0], mask).token, 1.0) == "learned"
        with service(copied(tmp_path / "a", tmp_path / "b"), "linear") as again:
            for known, learned in zip(jax.tree.leaves(one.state), jax.tree.leaves(again.state), strict=True):
                np.testing.assert_allclose(known, learned, atol=1e-6)
        assert [one.add_arm() for _ in range(2)] == [4, 5]
        for arm in range(4):
            one.remove_arm(arm)
        assert one.add_arm() == 6  # where most arms were removed, their outputs are used again
        assert one._learner.model.outputs == 6 and one.arms == (4, 5, 6)


def test_outputs_to_spare(tmp_path: Path) -> None:
    def make(site: HasSpaces) -> Agent:
        return small(site)._replace(spaces=Spaces(site.observation_space, site.action_space))

    with service(tmp_path, make) as one:
        assert one._learner.model.outputs == 4
        mask = np.array([True, False, False])
        one.add_arm()
        assert {decision.action for decision in one.decide_many(X[:4], np.tile(mask, (4, 1)))} == {0}
        assert one.decide(X[0], mask).action == 0
        with pytest.raises(ValueError, match=r"must be bool of shape \(4,\).*got bool of shape \(2,\)"):
            one.decide(X[0], mask[:2])
    with service(tmp_path, make) as again:
        assert again._learner.model.outputs == 4


def of_three(site: HasSpaces) -> Agent:
    if site.action_space != SITE.action_space:
        raise ValueError("a network of three outputs")
    return small(site)


@pytest.mark.parametrize("make", [small, lambda _: small(SITE)._replace(spaces=SITE), of_three])
def test_no_outputs_to_spare_where_the_agent_may_have_a_fixed_number(make: Any) -> None:
    one = service(make=make)
    assert one._learner.model.outputs == 3
    if make is of_three:
        with pytest.raises(ValueError, match="three outputs"):
            one.add_arm()
        assert one.arms == (0, 1, 2)


@pytest.mark.parametrize("place", ["seqdec.service.snapshots.save", "seqdec.service.logs.make_log"])
def test_calls_go_on_while_a_file_is_written_or_read(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    module, _, name = place.rpartition(".")
    plain = getattr(__import__(module, fromlist=[name]), name)

    def waiting(*arguments: Any, **named: Any) -> Any:
        gate()
        return plain(*arguments, **named)

    monkeypatch.setattr("seqdec.service.model._LARGE", -1)  # updates write into the state
    with service(tmp_path, snapshot_every=3) as one:
        for _ in range(2):
            one.learn(one.decide(X[0]).token, 1.0)
        last = one.decide(X[0]).token
        monkeypatch.setattr(place, waiting)
        with beside(gate, one.log if name == "make_log" else lambda: one.learn(last, 2.0)) as done:
            decision, _ = at_once(lambda: one.decide(X[1]), lambda: one.counts)
            assert at_once(lambda: one.learn(decision.token, 3.0)) == ["learned"]
            assert not done.done()
        done.result()
        expected = bits(one)
    with service(tmp_path) as again:
        assert bits(again) == expected


def test_a_decision_learns_little_of_what_is_due(clock: Clock) -> None:
    one = service(**CLICKS)
    one.decide_many(np.tile(X[:4], (5, 1)))
    clock.seconds += 61
    for expected in (8, 16):
        one.decide(X[0])
        assert one._rewards.counts["default"] == expected
    assert one.counts["default"] == 20
    assert one._rewards._place().number == 20


def test_decisions_go_on_while_what_is_due_is_learned(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    one = service(**CLICKS)
    one.warm_up()
    one.decide_many(np.tile(X[:4], (10, 1)))
    clock.seconds += 61
    wait(monkeypatch, "is_more_due", gate, after=True)
    with beside(gate, lambda: one.counts) as counts:
        at_once(lambda: one.decide(X[0]))
        assert one._store.rewards == 16
    assert counts.result()["default"] == 40


def test_decisions_with_rewards_are_looked_at_once(clock: Clock) -> None:
    one = service(**CLICKS)
    one.learn_many([(decision.token, 1.0) for decision in one.decide_many(X[:4])])
    clock.seconds += 61
    assert one.counts["rewards"] == 4 and one._rewards._place().number == 4


def test_a_log_is_learned_once(tmp_path: Path) -> None:
    log = some(40)
    with service(tmp_path) as one:
        one.warm_start(log)
        assert (tmp_path / "state.safetensors").is_file()
        expected = bits(one)
        one.warm_start(log)
        assert one.counts["rewards"] == 40
        log.save(tmp_path / "log.parquet")
    with service(tmp_path) as again:
        again.warm_start(Log.load(tmp_path / "log.parquet"))
        assert again.counts["rewards"] == 40 and bits(again) == expected
        again.warm_start(log.replace(reward=log.reward + 1))
        assert again.counts["rewards"] == 80


def test_decisions_go_on_during_a_warm_start(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    one = service()
    one.warm_up()
    given = one.decide(X[0]).token
    wait(monkeypatch, "_step", gate)
    with beside(gate, lambda: one.warm_start(some(40))) as done:
        at_once(lambda: one.decide(X[0]))
        assert one._learner.model.belief.batch == 0 and one._store.rewards == 40
    done.result()
    assert one.learn(given, 1.0) == "learned" and one._learner.model.belief.batch == 41
