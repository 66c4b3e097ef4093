"""The agent of a service: nothing that it acknowledged is lost, nothing is learned twice, nothing wrong is let in."""

import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

import seqdec
from seqdec import ope
from seqdec.core import Agent, HasSpaces, Masked, Spaces
from seqdec.service import model, read_log
from seqdec.service.sqlite import FILE
from tests.service.services import SITE, Clock, X, bits, killed, service, small

OTHER = Spaces(spaces.Box(-5, 5, (3,)), SITE.action_space)
FEWER = Spaces(SITE.observation_space, spaces.Discrete(2))
POINTS = Spaces(SITE.observation_space, spaces.Box(0, 1, (1,)))
SNAPSHOT = "state.safetensors"


def one_by_one(site: HasSpaces) -> Agent:
    return small(site)._replace(update_batch=None)


def busy(one: seqdec.OnlineAgent, steps: int = 12) -> None:
    """Decisions, late rewards, and a batch of them."""
    waiting = []
    for x in X[:steps]:
        waiting.append(one.decide(x))
        if len(waiting) > 3:
            late = waiting.pop(1)
            one.learn(late.token, float(late.action == 1))
    one.learn_many([(decision.token, 0.5) for decision in waiting])


def assert_near(one: Any, other: Any) -> None:
    for mine, plain in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-6)


def test_it_does_what_the_agent_does_with_late_rewards() -> None:
    agent, key, waiting = small(SITE), jax.random.key(5), []
    state = agent.init(jax.random.fold_in(key, 0))
    act, update = jax.jit(agent.act), jax.jit(agent.update)
    with service(seed=5) as one:
        for number, x in enumerate(X[:30], 1):
            mask = np.arange(3) != number % 4
            decision = one.decide(x, mask)
            action = act(jax.random.fold_in(key, number), state, Masked(x.astype(np.float32), mask))
            assert decision.action == int(action.value)
            assert decision.propensity == pytest.approx(float(action.propensity), abs=1e-5)
            assert decision.probabilities == pytest.approx(action.probabilities.tolist(), abs=1e-5)
            waiting.append((decision, x))
            if number > 3:
                late, then = waiting.pop(number % 3)
                assert one.learn(late.token, then[0]) == "learned"
                state, _ = update(state, then.astype(np.float32), np.int32(late.action), np.float32(then[0]))
        assert_near(one.state, state)


def test_what_becomes_of_a_reward(clock: Clock) -> None:
    one = service(expire_after=60)
    first, second, third, absurd = (one.decide(x) for x in X[:4])
    before = bits(one)
    assert one.learn(absurd.token, 1e30) == "rejected" and bits(one) == before
    assert one.learn(third.token, 1) == "learned" and bits(one) != before
    assert one.learn(third.token, 0) == "repeated"
    pairs = [(first.token, 1), (third.token, 1), (first.token, 0), ("7-00", 1), ("", 1)]
    assert one.learn_many(pairs) == ["learned", "repeated", "repeated", "unknown", "unknown"]
    forged = f"{second.token.partition('-')[0]}-{'00' * 8}"
    assert one.learn(forged, 1) == "unknown"
    clock.seconds += 61
    assert one.learn(second.token, 1) == "expired"
    results = {"learned": 2, "repeated": 3, "unknown": 3, "expired": 1, "rejected": 1}
    assert one.counts == {"decisions": 4, "rewards": 3, **results}


def test_a_damaged_or_missing_snapshot_is_learned_again(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        busy(one)
        expected = bits(one)
    file = tmp_path / SNAPSHOT
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.warns(RuntimeWarning, match=r"state\.safetensors is damaged .* learned again from the log"):
        again = service(tmp_path)
    assert bits(again) == expected
    again.close()
    file.unlink()
    with service(tmp_path) as again:
        assert bits(again) == expected


def test_a_snapshot_that_knows_more_than_the_log_is_refused(tmp_path: Path) -> None:
    with service(tmp_path / "a") as one:
        busy(one, 6)
        one.snapshot()
        killed(tmp_path / "a", tmp_path / "b")
        busy(one, 6)
    shutil.copy(tmp_path / "a" / SNAPSHOT, tmp_path / "b")
    with pytest.raises(ValueError, match=r"has learned 8 batches, of which the log has 4: restore"):
        service(tmp_path / "b")


def test_a_log_belongs_to_an_agent(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        busy(one)
        expected = bits(one)
    for options, message in (
        ({"seed": 1}, "whose seed is 0, not 1"),
        ({"site": OTHER}, r"whose record of a context \(name, type, shape\) is"),
        ({"site": FEWER}, "whose arms are 0, 1, 2, not 0, 1: name these"),
        ({"site": POINTS}, r"whose arms are 0, 1, 2, not none \(a Box"),
        ({"make": "random"}, r"written with small .*, not random .*relearn=True"),
    ):
        with pytest.raises(ValueError, match=message):
            service(tmp_path, **options)
    with service(tmp_path, make="random", relearn=True) as other:
        assert other.counts["rewards"] == len(read_log(tmp_path).reward) == 12 and other.agent.name == "random"
    with service(tmp_path, relearn=True) as again:
        assert bits(again) == expected


def test_the_folder_is_for_one_process(tmp_path: Path) -> None:
    with service(tmp_path), pytest.raises(FileExistsError, match="in use by this process: close"):
        service(tmp_path)
    (tmp_path / FILE).write_bytes(b"no database, and longer than a header of one hundred bytes" * 3)
    with pytest.raises(ValueError, match=r"decisions\.sqlite is damaged or no log"):
        service(tmp_path)


def test_an_arm_beyond_the_capacity_learns_the_log_again(tmp_path: Path) -> None:
    with service(tmp_path / "a", capacity=3) as one, service(capacity=6) as wide:
        for both in (one, wide):
            busy(both)
        log = one.log()
        killed(tmp_path / "a", tmp_path / "before")
        assert one.add_arm() == 3
        assert log.reward.tolist() == one.log().reward.tolist()
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(one.state)]
        assert shapes == [np.shape(leaf) for leaf in jax.tree.leaves(wide.state)]
        expected = bits(one)
        with service(tmp_path / "before", capacity=6) as again:  # more when the log is opened again
            assert bits(again) == expected
        assert one.add_arm() == 4  # room is left
        assert bits(one) == expected
    with service(tmp_path / "a") as again:
        assert again.arms == (0, 1, 2, 3, 4) and bits(again) == expected


def test_a_removed_arm_is_not_played_and_its_output_is_used_again(tmp_path: Path) -> None:
    only = np.array([False, True, False])
    with service(tmp_path, capacity=4) as one:
        late, never = one.decide(X[0], only), one.decide(X[0], only)
        busy(one)
        one.remove_arm(1)
        assert one.arms == (0, 2) and {decision.action for decision in one.decide_many(X)} <= {0, 2}
        assert one.learn(late.token, 1.0) == "learned"
        with pytest.raises(ValueError, match="at least one of the arms"):
            one.decide(X[0], mask=only)
        before = bits(one)
        assert one.add_arm() == 3 and bits(one) == before  # where an output is free
        decision = one.decide(X[0], mask=np.arange(4) == 3)
        assert decision.action == 3 and decision.probabilities == (0, 0, 0, 1)
        assert one.learn(decision.token, 1.0) == "learned" and bits(one) != before
        for arm in (0, 2):
            one.remove_arm(arm)
        with pytest.raises(ValueError, match=r"one of \(3,\), of which one has to stay; got 3"):
            one.remove_arm(3)
        assert one.add_arm() == 4  # the outputs of 0, 1 and 2 are free now
        assert one._learner.model.outputs == 4
        assert one.learn(never.token, 1.0) == "removed"
        expected = bits(one)
    with service(tmp_path, capacity=4) as again:
        assert again.arms == (3, 4) and bits(again) == expected
        assert {decision.action for decision in again.decide_many(X)} <= {3, 4}


def test_many_decisions_are_as_so_many_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "_PADS", (1, 4, 16))
    one, other = service(), service()
    masks = np.random.default_rng(0).uniform(size=(40, 3)) < 0.7
    masks[~masks.any(1)] = True
    many = one.decide_many(X[:40], masks)
    single = [other.decide(x, mask) for x, mask in zip(X[:40], masks, strict=True)]
    assert [decision.action for decision in many] == [decision.action for decision in single]
    np.testing.assert_allclose([d.propensity for d in many], [d.propensity for d in single], atol=1e-5)
    assert all(mask[decision.action] for mask, decision in zip(masks, many, strict=True))
    assert len({decision.token.partition("-")[2] for decision in many}) == 40  # nobody guesses another's
    assert one.decide_many(X[:0]) == []
    frame = pd.DataFrame(X[:3], index=[2, 0, 1])
    assert [d.action for d in one.decide_many(frame)] == [d.action for d in other.decide_many(X[:3])]


def test_many_rewards_are_an_update_of_each_batch() -> None:
    one = service(batch_size=4)
    made, state, update = one.decide_many(X[:6]), one.state, jax.jit(small(SITE).update_batch)  # pyright: ignore
    assert one.learn_many([(decision.token, i) for i, decision in enumerate(made)]) == ["learned"] * 6
    actions = np.array([decision.action for decision in made], np.int32)
    for rows in (slice(0, 4), slice(4, 6)):
        state, _ = update(state, X[rows].astype(np.float32), actions[rows], np.arange(6, dtype=np.float32)[rows])
    assert_near(one.state, state)


def test_agents_without_a_batch_learn_one_after_the_other() -> None:
    one, other = service(make=one_by_one), service(make=one_by_one)
    tokens = [[d.token for d in both.decide_many(X[:5])] for both in (one, other)]
    one.learn_many([(token, 1) for token in tokens[0]])
    assert [other.learn(token, 1) for token in tokens[1]] == ["learned"] * 5
    assert bits(one) == bits(other)


def test_what_is_wrong_is_refused_and_takes_nothing_with_it() -> None:
    one = service()
    good, bad = one.decide(X[0]), one.decide(X[1])
    before, counts = bits(one), one.counts
    x = X[0]
    for context, mask, kind, message in (
        (X[:2], None, ValueError, r"must have shape \(2,\), as Box.*; got shape \(2, 2\)"),
        ([1, np.nan], None, ValueError, r"must hold finite numbers below 1e\+15; got nan \(1 of 2 entries\)"),
        (["1", "2"], None, TypeError, "must hold real numbers; got \\['1'"),
        (x, np.zeros(3, bool), ValueError, "must allow at least one of the arms"),
        (x, np.ones(4, bool), ValueError, r"must be bool of shape \(3,\).*got bool of shape \(4,\)"),
        (x, np.ones(3), ValueError, "got float64 of shape"),
    ):
        with pytest.raises(kind, match=message):
            one.decide(context, mask)
    for token, reward, kind, message in (
        (bad.token, np.nan, ValueError, "finite number in float32; got nan"),
        (bad.token, 1e39, ValueError, "got 1e"),
        (bad.token, "1", TypeError, "a reward must be a number; got '1'"),
        (bad.token, [1.0, 2.0], TypeError, "must be a number"),
        (17, 1.0, TypeError, "a token is the text"),
    ):
        with pytest.raises(kind, match=message):
            one.learn_many([(good.token, 1.0), (token, reward)])
    for pairs in (["ab"], {good.token: 1.0}):
        with pytest.raises(TypeError, match="as pairs"):
            one.learn_many(pairs)  # pyright: ignore[reportArgumentType]
    assert one.counts == counts and bits(one) == before
    assert one.learn_many([[good.token, 1.0]]) == ["learned"]  # pyright: ignore[reportArgumentType]


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    text = Spaces(spaces.Text(3), SITE.action_space)
    for options, kind, message in (
        ({"seed": -1}, ValueError, "seed must be an integer from 0 to .*; got -1"),
        ({"expire_after": 0}, ValueError, "expire_after must be positive; got 0"),
        ({"capacity": 2}, ValueError, "capacity must be at least 3; got 2"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"snapshot_every": 0}, ValueError, "snapshot_every must be at least 1"),
        ({"site": text}, TypeError, "observations must be Box"),
        ({"make": lambda spaces: None}, TypeError, r"must be a seqdec\.core\.Agent"),
    ):
        with pytest.raises(kind, match=message):
            service(tmp_path, **options)
    service(tmp_path).close()  # what failed before has left no lock


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        tokens = [decision.token for decision in one.decide_many(np.tile(X, (3, 1)))]
        database = one._store.database.connection
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages}")
        for call in (lambda token: one.decide(X[0]), lambda token: one.learn(token, 1)):
            before, counts = bits(one), one.counts
            with pytest.raises(OSError, match=r"cannot use .*decisions\.sqlite: database or disk is full"):  # noqa: PT012
                for token in tokens:
                    before, counts = bits(one), one.counts
                    call(token)
            assert bits(one) == before and one.counts == counts
        database.execute(f"PRAGMA max_page_count = {pages + 1000}")
        assert one.learn(tokens[-1], 1) == "learned"


def test_a_snapshot_that_cannot_be_written_takes_no_reward_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    one = service(tmp_path, snapshot_every=2)
    tokens = [decision.token for decision in one.decide_many(X[:4])]
    with monkeypatch.context() as patch:
        patch.setattr("seqdec.service.snapshots.save", full)
        assert one.learn(tokens[0], 1.0) == "learned"
        for token in tokens[1:3]:
            with pytest.warns(RuntimeWarning, match="No space left on device; the log has everything"):
                assert one.learn(token, 1.0) == "learned"
        with pytest.raises(OSError, match="No space left"):
            one.snapshot()
    assert one.learn(tokens[3], 1.0) == "learned"
    assert (tmp_path / SNAPSHOT).is_file()


def test_a_lost_log_is_noticed(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        one.learn(one.decide(X[0]).token, 1.0)
    snapshot = (tmp_path / SNAPSHOT).read_bytes()
    (tmp_path / FILE).unlink()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"state\.safetensors belongs to a log, but .*sqlite is empty: restore it"):
            service(tmp_path)
    assert (tmp_path / SNAPSHOT).read_bytes() == snapshot
    (tmp_path / SNAPSHOT).unlink()
    service(tmp_path).close()


def test_an_error_in_the_middle_of_learning_is_made_up_for() -> None:
    def failing(*arguments: Any) -> Any:
        raise MemoryError

    one, twin = service(), service()
    decision = one.decide(X[0])
    twin.learn(twin.decide(X[0]).token, 1)
    update, one._learner.model._update = one._learner.model._update, failing
    for call in (lambda: one.learn(decision.token, 1), lambda: one.decide(X[0])):  # as long as it cannot be learned
        with pytest.raises(MemoryError):
            call()
    one._learner.model._update = update
    assert one.learn(decision.token, 1) == "repeated" and bits(one) == bits(twin)


def test_a_log_that_cannot_be_read_any_more_does_not_blame_the_call() -> None:
    one = service()
    with pytest.raises(ValueError, match="shape"):
        one.decide(X[0], mask=np.ones(4, bool))
    one._store.database.connection.execute("UPDATE facts SET value = '{'")
    with pytest.raises(RuntimeError, match="cannot learn again what its log holds"):
        one.decide(X[0])


def test_nothing_is_compiled_after_the_warm_up(caplog: pytest.LogCaptureFixture) -> None:
    one = service()
    before = bits(one)
    one.warm_up()
    assert bits(one) == before and one.counts["decisions"] == 0
    given: list[Any] = [X[0], X[0].astype(np.float32), X[0].tolist(), [1, 0], [True] * 2, jnp.asarray(X[0])]
    rewards: list[Any] = [1, True, 0.5, np.float64(1), np.int8(1), np.bool_(True), jnp.float32(1)]
    with jax.log_compiles():
        for index, reward in enumerate(rewards):
            decision = one.decide(given[index % len(given)], mask=np.array([True, False, True]))
            one.learn(decision.token, reward)
        made = one.decide_many(X)
        one.learn_many([(decision.token, 1) for decision in made[:33]])
    assert [record.getMessage() for record in caplog.records if "ompil" in record.getMessage()] == []


def test_services_of_one_agent_compile_once(caplog: pytest.LogCaptureFixture) -> None:
    made: dict[int, Any] = {}

    def make(spaces: Any) -> Any:
        count = int(spaces.action_space.n)
        return made[count] if count in made else made.setdefault(count, small(spaces))

    first = service(make=make)
    first.warm_up()
    with jax.log_compiles():
        other = service(make=make, seed=1)
        other.warm_up()
        busy(other, 5)
    assert other.agent is first.agent
    messages = [record.getMessage() for record in caplog.records]
    assert [line for line in messages if "ompil" in line] == []


def test_the_log_is_one_for_off_policy_evaluation(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        with pytest.raises(ValueError, match="no decision with a propensity and a reward yet"):
            one.log()
        busy(one, 20)
        log = one.log()
        np.testing.assert_array_equal(log.context, X[:20].astype(np.float32))
        assert log.num_actions == 3 and np.all(np.diff(log.timestamp) > np.timedelta64(0))
        assert read_log(tmp_path).action.tolist() == log.action.tolist()  # while it is in use
        log.save(tmp_path / "log.parquet")
        with service(seed=3) as other:
            other.warm_start(ope.Log.load(tmp_path / "log.parquet"))
            assert other.counts == {"decisions": 20, "rewards": 20}
            found = other.log()
            for name in ("reward", "action", "propensity", "mask", "context"):
                np.testing.assert_array_equal(getattr(found, name), getattr(log, name))
    with pytest.raises(FileNotFoundError, match="there is no decisions"):
        read_log(tmp_path / "nowhere")


def test_a_warm_start_equals_learning_one_by_one(tmp_path: Path) -> None:
    log = ope.make_log(action=[0, 1, 2, 1], reward=[0, 1, 0.5, 1], propensity=[0.5] * 4, context=X[:4], num_actions=3)
    one = service(tmp_path)
    state, update = one.state, jax.jit(one.agent.update)
    for x, action, reward in zip(X, log.action, log.reward, strict=False):
        state, _ = update(state, x.astype(np.float32), np.int32(action), np.float32(reward))
    one.warm_start(log)
    assert_near(one.state, state)
    expected = bits(one)
    one.close()
    with service(tmp_path) as again:
        assert bits(again) == expected
        with pytest.raises(ValueError, match=r"a row of the log has \(1,\) numbers"):
            again.warm_start(log.replace(context=log.context[:, :1]))
        with pytest.raises(ValueError, match="the log has 5 actions; this agent has 3 arms"):
            again.warm_start(ope.make_log(action=[4], reward=[1], propensity=[1], context=X[:1], num_actions=5))


def test_points_of_a_box() -> None:
    one = service(make="random", site=Spaces(SITE.observation_space, spaces.Box(0, 1, (3,))))
    first = one.decide(X[0])
    assert first.action.shape == (3,) and one.arms == ()
    with pytest.raises(ValueError, match="read-only"):
        first.action[:] = 0
    assert one.learn(first.token, 1.0) == "learned"
    with pytest.raises(TypeError, match="here they are points of a Box"):
        one.add_arm()
    with pytest.raises(ValueError, match="arms are compared, and these actions are points of a Box"):
        one.comparison(seed=0)
    log = one.log()
    np.testing.assert_array_equal(log.action, first.action[None])
    assert log.context.tolist() == np.float32(X[:1]).tolist() and log.reward.tolist() == log.density.tolist() == [1.0]
    half = ope.evaluate(log, lambda log: 2.0 * (log.action[:, 0] < 0.5), seed=0)  # uniform in a half of the box
    assert half["value"]["kernel_ips"] == 2 * (first.action[0] < 0.5)
    without = service(
        make=lambda site: seqdec.agents.linear(site, policy="greedy"),
        site=Spaces(SITE.observation_space, spaces.Box(0, 1, (3,))),
    )
    without.learn(without.decide(X[0]).token, 1.0)
    with pytest.raises(ValueError, match="no decision with a propensity and a reward yet"):
        without.log()


def test_candidates_with_features() -> None:
    parts = {"features": spaces.Box(-5, 5, (6, 3)), "item": spaces.Box(0, 9, (6,), np.int32)}
    one = service(make="random", site=Spaces(spaces.Dict(parts), spaces.Discrete(6)))
    rng = np.random.default_rng(0)
    offer = {"features": rng.normal(size=(6, 3)), "item": rng.integers(0, 10, 6)}
    decision = one.decide(offer, mask=np.arange(6) < 4)
    assert decision.action < 4 and one.learn(decision.token, 1.0) == "learned"
    log = one.log()
    assert log.action_features is not None and log.action_features.shape == (1, 6, 4)
    np.testing.assert_allclose(log.action_features[0], np.column_stack([offer["features"], offer["item"]]), rtol=1e-6)
    with pytest.raises(TypeError, match="here they are candidates"):
        one.remove_arm(0)
    for wrong, kind, message in (
        ({"item": np.arange(6)}, TypeError, r"must be a dict with the entries \['features', 'item'\]; got \['item'\]"),
        ([1, 2], TypeError, r"must be a dict with the entries \[.features., .item.\]; got \[1, 2\]"),
        ({**offer, "item": np.full(6, 1.5)}, ValueError, r"context\['item'\] must hold integers of .*; got 1.5"),
    ):
        with pytest.raises(kind, match=message):
            one.decide(wrong)


GONE = {
    "decide": lambda one, token: one.decide(X[0]),
    "decide_many": lambda one, token: one.decide_many(X[:2]),
    "learn": lambda one, token: one.learn(token, 1.0),
    "learn an unknown token": lambda one, token: one.learn("99-00", 1.0),
    "explain": lambda one, token: one.explain(X[0]),
    "add_arm": lambda one, token: one.add_arm(),
    "remove_arm": lambda one, token: one.remove_arm(0),
    "warm_start": lambda one, token: one.warm_start(
        ope.make_log(action=[0], reward=[1.0], propensity=[0.5], context=X[:1], num_actions=3)
    ),
    "snapshot": lambda one, token: one.snapshot(),
    "log": lambda one, token: one.log(),
}


def test_no_call_goes_on_while_the_folder_is_gone(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "agent", tmp_path / "elsewhere"
    one = service(folder)
    one.learn(one.decide(X[0]).token, 0.5)
    token, before = one.decide(X[0]).token, one.counts
    for name, call in GONE.items():
        folder.rename(elsewhere)
        for _ in range(2):  # also after an exception
            with pytest.raises(FileNotFoundError, match=f"the folder {folder} of this agent was removed, renamed"):
                print(name, call(one, token))
        assert not folder.exists() and one.arms == (0, 1, 2)
        elsewhere.rename(folder)
        assert one.counts["decisions"] == before["decisions"] and "unknown" not in one.counts
    for call in GONE.values():
        call(one, token)
    one.close()
