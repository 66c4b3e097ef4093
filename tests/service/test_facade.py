"""The agent of a service: nothing that it acknowledged is lost, nothing is learned twice, nothing wrong is let in."""

import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

import seqdec
from seqdec import OnlineAgent, models, ope, states
from seqdec.core import Agent, Masked
from seqdec.service import read_log
from seqdec.service.store import FILE

SITE = SimpleNamespace(observation_space=spaces.Box(-5, 5, (4,)), action_space=spaces.Discrete(3))
RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4)).astype(np.float32)


def hilofi(site: Any, **options: Any) -> Agent:
    network = models.MLP(int(site.action_space.n), (8,))
    return seqdec.agents.hilofi(site, model=network, rank=3, policy="epistemic_sampling", **options)


def service(folder: Path | None = None, make: Any = hilofi, site: Any = SITE, **options: Any) -> OnlineAgent:
    return OnlineAgent(make, site, **{"seed": 0, "folder": folder, **options})


def bits(state: Any) -> list[bytes]:
    return [states.as_array("", leaf).tobytes() for leaf in jax.tree.leaves(state)]


def crashed(folder: Path, to: Path) -> Path:
    """The files as a kill would leave them now."""
    shutil.copytree(folder, to)
    return to


def busy(one: OnlineAgent, steps: int = 12) -> None:
    """Decisions, late rewards, and a batch of them."""
    waiting = []
    for x in X[:steps]:
        waiting.append(one.decide(x))
        if len(waiting) > 3:
            late = waiting.pop(1)
            one.learn(late.token, float(late.action == 1))
    one.learn_many([(decision.token, 0.5) for decision in waiting])


def assert_same_belief(agent: Agent, one: Any, other: Any) -> None:
    """Equal means, and equal chances of each action, up to rounding."""
    for mine, plain in zip(jax.tree.leaves(one.params), jax.tree.leaves(other.params), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-3, atol=1e-5)
    act = jax.jit(jax.vmap(agent.act, (0, None, 0)))
    keys = jax.random.split(jax.random.key(0), len(X))
    np.testing.assert_allclose(act(keys, one, X).propensity, act(keys, other, X).propensity, atol=1e-3)


def test_it_does_what_the_agent_does() -> None:
    agent, key = seqdec.agents.linear(SITE), jax.random.key(5)
    state = agent.init(jax.random.fold_in(key, 0))
    act, update = jax.jit(agent.act), jax.jit(agent.update)
    with service(make=seqdec.agents.linear, seed=5) as one:
        for number, x in enumerate(X[:30], 1):
            decision = one.decide(x)
            action = act(jax.random.fold_in(key, number), state, Masked(x, np.ones(3, bool)))
            assert decision.action == int(action.value)
            assert decision.propensity == pytest.approx(float(action.propensity), abs=1e-5)
            assert one.learn(decision.token, x[0] > 0) == "learned"
            state, _ = update(state, x, action.value, np.float32(x[0] > 0))
        for mine, plain in zip(jax.tree.leaves(one.state), jax.tree.leaves(state), strict=True):
            np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-5)


def test_what_becomes_of_a_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    one = service(expire_after=60)
    first, second, third = (one.decide(x) for x in X[:3])
    before = bits(one.state)
    assert one.learn(third.token, 1) == "learned"  # out of order
    learned = bits(one.state)
    assert learned != before
    assert one.learn(third.token, 0) == "repeated"
    assert one.learn_many([(first.token, 1), (third.token, 1), (first.token, 0), ("7-00", 1), ("", 1)]) == [
        "learned",
        "repeated",
        "repeated",
        "unknown",
        "unknown",
    ]
    forged = f"{second.token.partition('-')[0]}-{'00' * 8}"
    assert one.learn(forged, 1) == "unknown"
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now + 61 * 10**9)
    assert one.learn(second.token, 1) == "expired"
    assert one.counts == {"decisions": 3, "rewards": 2, "learned": 2, "repeated": 3, "unknown": 3, "expired": 1}


def test_a_damaged_or_missing_snapshot_is_learned_again(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        busy(one)
        expected = bits(one.state)
    file = tmp_path / "state.safetensors"
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.warns(RuntimeWarning, match=r"state\.safetensors is damaged .* learned again from the log"):
        again = service(tmp_path)
    assert bits(again.state) == expected
    again.close()
    file.unlink()
    with service(tmp_path) as again:
        assert bits(again.state) == expected


def test_a_snapshot_that_knows_more_than_the_log_is_refused(tmp_path: Path) -> None:
    one = service(tmp_path / "a")
    busy(one, 6)
    one.snapshot()
    crashed(tmp_path / "a", tmp_path / "b")
    busy(one, 6)
    one.close()
    shutil.copy(tmp_path / "a" / "state.safetensors", tmp_path / "b")
    with pytest.raises(ValueError, match=r"has learned 8 batches, of which the log has 4: restore"):
        service(tmp_path / "b")


def test_a_log_belongs_to_an_agent(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        busy(one)
    with pytest.raises(ValueError, match="whose seed is 0, not 1"):
        service(tmp_path, seed=1)
    wide = SimpleNamespace(observation_space=spaces.Box(-5, 5, (5,)), action_space=SITE.action_space)
    with pytest.raises(ValueError, match=r"whose record of a context \(name, type, shape\) is"):
        service(tmp_path, site=wide)
    more = SimpleNamespace(observation_space=SITE.observation_space, action_space=spaces.Discrete(4))
    with pytest.raises(ValueError, match=r"arms in the action space .* is 3, not 4: .* add_arm"):
        service(tmp_path, site=more)
    with pytest.raises(ValueError, match=r"written with hilofi .*'rank': 3.*, not linear .*relearn=True"):
        service(tmp_path, make=seqdec.agents.linear)
    with service(tmp_path, make=seqdec.agents.linear, relearn=True) as other, service(make=seqdec.agents.linear) as new:
        log = read_log(tmp_path)
        assert other.counts["rewards"] == len(log.reward) == 12
        new.warm_start(log)
        assert other.agent.name == "linear"
    with service(tmp_path, make=seqdec.agents.linear) as again:
        assert again.counts["rewards"] == 12


def test_the_folder_is_for_one_process(tmp_path: Path) -> None:
    with service(tmp_path), pytest.raises(FileExistsError, match="in use by this process: close"):
        service(tmp_path)
    (tmp_path / FILE).write_bytes(b"no database, and longer than a header of one hundred bytes" * 3)
    with pytest.raises(ValueError, match=r"decisions\.sqlite is damaged or no log"):
        service(tmp_path)


def test_an_arm_is_added_where_an_output_is_free() -> None:
    one = service(capacity=4)
    busy(one)
    before = bits(one.state)
    assert one.arms == (0, 1, 2) and all(decision.action < 3 for decision in one.decide_many(X))
    assert one.add_arm() == 3 and one.arms == (0, 1, 2, 3)
    assert bits(one.state) == before
    only = np.array([False, False, False, True])
    decision = one.decide(X[0], mask=only)
    assert decision.action == 3
    assert one.learn(decision.token, 1.0) == "learned" and bits(one.state) != before


def test_an_arm_beyond_the_capacity_learns_the_log_again(tmp_path: Path) -> None:
    with service(tmp_path, capacity=3) as one, service(capacity=6) as wide:
        for both in (one, wide):
            busy(both)
        log = one.log()
        crashed(tmp_path, tmp_path / "before")
        assert one.add_arm() == 3
        assert log.reward.tolist() == one.log().reward.tolist()
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(one.state)]
        assert shapes == [np.shape(leaf) for leaf in jax.tree.leaves(wide.state)]
        expected = bits(one.state)
        with service(tmp_path / "before", capacity=6) as again:
            assert bits(again.state) == expected
        assert one.add_arm() == 4  # room is left
        assert bits(one.state) == expected
    with service(tmp_path) as again:
        assert again.arms == (0, 1, 2, 3, 4) and bits(again.state) == expected


def test_a_removed_arm_is_not_played_and_its_output_is_used_again(tmp_path: Path) -> None:
    with service(tmp_path, capacity=4) as one:
        late = one.decide(X[0], mask=[i == 1 for i in range(3)] and np.array([False, True, False]))
        never = one.decide(X[0], mask=np.array([False, True, False]))
        busy(one)
        one.remove_arm(1)
        assert one.arms == (0, 2)
        assert {decision.action for decision in one.decide_many(X)} <= {0, 2}
        assert one.learn(late.token, 1.0) == "learned"
        with pytest.raises(ValueError, match="at least one of the arms"):
            one.decide(X[0], mask=np.array([False, True, False]))
        assert one.add_arm() == 3
        for arm in (0, 2):
            one.remove_arm(arm)
        with pytest.raises(ValueError, match=r"one of \(3,\), of which one has to stay; got 3"):
            one.remove_arm(3)
        assert one.add_arm() == 4  # the outputs of 0, 1 and 2 are free now
        assert one.agent.init is not None and one._learner.model.outputs == 4
        assert one.learn(never.token, 1.0) == "removed"
        expected = bits(one.state)
    with service(tmp_path, capacity=4) as again:
        assert again.arms == (3, 4) and bits(again.state) == expected
        assert {decision.action for decision in again.decide_many(X)} <= {3, 4}


@pytest.mark.extended
def test_more_capacity_when_the_log_is_opened_again(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        busy(one)
    with service(tmp_path, capacity=5) as wide:
        assert wide._learner.model.outputs == 5 and wide.counts["rewards"] == 12
        expected = bits(wide.state)
    with service(tmp_path) as again:
        assert bits(again.state) == expected


def test_many_decisions_are_as_so_many_single_ones() -> None:
    one, other = service(), service()
    masks = RNG.uniform(size=(150, 3)) < 0.7
    masks[~masks.any(1)] = True
    many = one.decide_many(X[:150], masks)
    single = [other.decide(x, mask) for x, mask in zip(X[:150], masks, strict=True)]
    assert [decision.action for decision in many] == [decision.action for decision in single]
    np.testing.assert_allclose([d.propensity for d in many], [d.propensity for d in single], atol=1e-5)
    assert all(mask[decision.action] for mask, decision in zip(masks, many, strict=True))
    assert len({decision.token for decision in many}) == 150
    assert one.decide_many(X[:0]) == []
    frame = pd.DataFrame(X[:3], index=[2, 0, 1])
    assert [d.action for d in one.decide_many(frame)] == [d.action for d in other.decide_many(X[:3])]


def test_many_rewards_are_one_update() -> None:
    one = service()
    made = one.decide_many(X[:5])
    agent, state = one.agent, one.state
    assert agent.update_batch is not None
    assert one.learn_many([(decision.token, 0.25 * i) for i, decision in enumerate(made)]) == ["learned"] * 5
    actions = np.array([decision.action for decision in made], np.int32)
    expected, _ = jax.jit(agent.update_batch)(state, X[:5], actions, np.arange(5, dtype=np.float32) / 4)
    assert_same_belief(agent, one.state, expected)


def test_agents_without_a_batch_learn_one_after_the_other() -> None:
    one, other = service(make=seqdec.agents.linear), service(make=seqdec.agents.linear)
    assert one.agent.update_batch is None
    for both in (one, other):
        both.decide_many(X[:5])
    tokens = [[d.token for d in both.decide_many(X[5:10])] for both in (one, other)]
    one.learn_many([(token, 1) for token in tokens[0]])
    assert [other.learn(token, 1) for token in tokens[1]] == ["learned"] * 5
    assert bits(one.state) == bits(other.state)


WRONG: list[tuple[Any, Any, type[Exception], str]] = [
    (X[:2], None, ValueError, r"must have shape \(4,\), as Box.*; got shape \(2, 4\)"),
    ([1, 2, 3, np.nan], None, ValueError, r"must hold finite numbers below 1e\+15; got nan \(1 of 4 entries\)"),
    (["1", "2", "3", "4"], None, TypeError, "must hold real numbers; got \\['1'"),
    (X[0], np.zeros(3, bool), ValueError, "must allow at least one of the arms"),
    (X[0], np.ones(4, bool), ValueError, r"must be bool of shape \(3,\).*got bool of shape \(4,\)"),
    (X[0], np.ones(3), ValueError, "got float64 of shape"),
]


@pytest.mark.parametrize(("context", "mask", "kind", "message"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_context_or_mask_is_refused(context: Any, mask: Any, kind: type[Exception], message: str) -> None:
    one = service(make=seqdec.agents.linear)
    with pytest.raises(kind, match=message):
        one.decide(context, mask)
    assert one.counts["decisions"] == 0


@pytest.mark.parametrize(
    ("token", "reward", "kind", "message"),
    [
        (None, np.nan, ValueError, "finite number in float32; got nan"),
        (None, 1e39, ValueError, "got 1e"),
        (None, "1", TypeError, "a reward must be a number; got '1'"),
        (None, [1.0, 2.0], TypeError, "must be a number"),
        (17, 1.0, TypeError, "a token is the text"),
    ],
)
def test_a_wrong_reward_is_refused_and_takes_nothing_with_it(
    token: Any, reward: Any, kind: type[Exception], message: str
) -> None:
    one = service(make=seqdec.agents.linear)
    good, bad = one.decide(X[0]), one.decide(X[1])
    before = bits(one.state)
    with pytest.raises(kind, match=message):
        one.learn_many([(good.token, 1.0), (bad.token if token is None else token, reward)])
    assert one.counts["rewards"] == 0 and bits(one.state) == before
    assert one.learn(good.token, 1.0) == "learned"


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    for options, message in [
        ({"seed": -1}, "seed must be an integer from 0 to .*; got -1"),
        ({"expire_after": 0}, "expire_after must be positive; got 0"),
        ({"capacity": 2}, "capacity must be at least 3; got 2"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"snapshot_every": 0}, "snapshot_every must be at least 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            service(tmp_path, **options)
    with pytest.raises(TypeError, match="observations must be Box"):
        service(site=SimpleNamespace(observation_space=spaces.Text(3), action_space=SITE.action_space))
    with pytest.raises(TypeError, match=r"must be a seqdec\.core\.Agent"):
        service(make=lambda spaces: None)
    with service(tmp_path) as one:  # what failed before has left no lock
        assert one.arms == (0, 1, 2)


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    one = service(tmp_path / "a", make=seqdec.agents.linear)
    tokens = [decision.token for decision in one.decide_many(X)]
    database = one._store.database.connection
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count = {pages}")
    for call in (lambda token: one.decide(X[0]), lambda token: one.learn(token, 1)):
        before, counts = bits(one.state), one.counts
        with pytest.raises(OSError, match=r"cannot use .*decisions\.sqlite: database or disk is full"):  # noqa: PT012
            for token in tokens:
                before, counts = bits(one.state), one.counts
                call(token)
        assert bits(one.state) == before and one.counts == counts
    database.execute(f"PRAGMA max_page_count = {pages + 1000}")
    assert one.learn(tokens[-1], 1) == "learned"
    with service(crashed(tmp_path / "a", tmp_path / "b"), make=seqdec.agents.linear) as again:
        assert bits(again.state) == bits(one.state)


def test_a_snapshot_that_cannot_be_written_takes_no_reward_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    one = service(tmp_path, make=seqdec.agents.linear, snapshot_every=2)
    tokens = [decision.token for decision in one.decide_many(X[:4])]
    with monkeypatch.context() as patch:
        patch.setattr("seqdec.service.learner.save", full)
        assert one.learn(tokens[0], 1.0) == "learned"
        for token in tokens[1:3]:
            with pytest.warns(RuntimeWarning, match="No space left on device; the log has everything"):
                assert one.learn(token, 1.0) == "learned"
        with pytest.raises(OSError, match="No space left"):
            one.snapshot()
    assert one.learn(tokens[3], 1.0) == "learned"
    assert (tmp_path / "state.safetensors").is_file()


def test_a_lost_log_is_noticed(tmp_path: Path) -> None:
    with service(tmp_path, make=seqdec.agents.linear) as one:
        one.learn(one.decide(X[0]).token, 1.0)
    snapshot = (tmp_path / "state.safetensors").read_bytes()
    (tmp_path / FILE).unlink()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"state\.safetensors belongs to a log, but .*sqlite is empty: restore it"):
            service(tmp_path, make=seqdec.agents.linear)
    assert (tmp_path / "state.safetensors").read_bytes() == snapshot
    (tmp_path / "state.safetensors").unlink()
    service(tmp_path, make=seqdec.agents.linear).close()


def test_an_error_in_the_middle_of_learning_is_made_up_for(tmp_path: Path) -> None:
    one = service(tmp_path)
    busy(one)
    decision = one.decide(X[0])

    def failing(*arguments: Any) -> Any:
        raise MemoryError

    update, one._learner.model._update = one._learner.model._update, failing
    with pytest.raises(MemoryError):
        one.learn(decision.token, 1)
    with pytest.raises(MemoryError):  # as long as the reward cannot be learned
        one.decide(X[0])
    one._learner.model._update = update
    with service() as twin:
        busy(twin)
        twin.learn(twin.decide(X[0]).token, 1)
        assert one.learn(decision.token, 1) == "repeated"
        assert bits(one.state) == bits(twin.state)
        one.close()
        with service(tmp_path) as again:
            assert bits(again.state) == bits(twin.state)


def test_a_log_that_cannot_be_read_any_more_does_not_blame_the_call() -> None:
    one = service(make=seqdec.agents.linear)
    with pytest.raises(ValueError, match="shape"):
        one.decide(X[0], mask=np.ones(4, bool))
    one._store.database.connection.execute("UPDATE facts SET value = '{'")
    with pytest.raises(RuntimeError, match="cannot learn again what its log holds"):
        one.decide(X[0])


def test_threads_share_an_agent(tmp_path: Path) -> None:
    one = service(tmp_path / "a", snapshot_every=50)
    one.warm_up()
    errors: list[Exception] = []

    def work(index: int) -> None:
        try:
            for x in X[index : index + 25]:
                decision = one.decide(x)
                assert one.learn(decision.token, float(decision.action)) == "learned"
                assert one.learn(decision.token, 0.0) == "repeated"
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(25 * index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert one.counts == {"decisions": 200, "rewards": 200, "learned": 200, "repeated": 200}
    with service(crashed(tmp_path / "a", tmp_path / "b")) as again:
        assert bits(again.state) == bits(one.state)
    one.close()


def test_nothing_is_compiled_after_the_warm_up(caplog: pytest.LogCaptureFixture) -> None:
    one = service()
    before = bits(one.state)
    one.warm_up()
    assert bits(one.state) == before and one.counts["decisions"] == 0
    given: list[Any] = [X[0], X[0].astype(np.float64), X[0].tolist(), [1, 0, 1, 0], [True] * 4, jnp.asarray(X[0])]
    rewards: list[Any] = [1, True, 0.5, np.float64(1), np.int8(1), np.bool_(True), jnp.float32(1)]
    with jax.log_compiles():
        for index, reward in enumerate(rewards):
            decision = one.decide(given[index % len(given)], mask=np.array([True, False, True]))
            one.learn(decision.token, reward)
        made = one.decide_many(X[:150])
        one.learn_many([(decision.token, 1) for decision in made[:33]])
    assert [record.getMessage() for record in caplog.records if "ompil" in record.getMessage()] == []


def test_the_log_is_one_for_off_policy_evaluation(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        with pytest.raises(ValueError, match="no decision with a propensity and a reward yet"):
            one.log()
        busy(one, 60)
        log = one.log()
        np.testing.assert_array_equal(log.context, X[:60].astype(np.float64))
        assert log.num_actions == 3 and np.all(np.diff(log.timestamp) > np.timedelta64(0))
        assert read_log(tmp_path).action.tolist() == log.action.tolist()  # while it is in use
        estimates = ope.evaluate(log, np.full(log.mask.shape, 1 / 3), seed=0)
        assert np.isfinite(estimates.loc["ips", "value"])
        log.save(tmp_path / "log.parquet")
        with service(seed=3) as other:
            other.warm_start(ope.Log.load(tmp_path / "log.parquet"))
            assert other.counts == {"decisions": 60, "rewards": 60}
            assert other.log().reward.tolist() == log.reward.tolist()
    with pytest.raises(FileNotFoundError, match="there is no decisions"):
        read_log(tmp_path / "nowhere")


def test_a_warm_start_equals_learning_one_by_one(tmp_path: Path) -> None:
    log = ope.make_log(action=[0, 1, 2, 1], reward=[0, 1, 0.5, 1], propensity=[0.5] * 4, context=X[:4], num_actions=3)
    one, state = service(tmp_path), None
    state = one.state
    for x, action, reward in zip(X, log.action, log.reward, strict=False):
        state, _ = jax.jit(one.agent.update)(state, x, np.int32(action), np.float32(reward))
    one.warm_start(log)
    assert_same_belief(one.agent, one.state, state)
    expected = bits(one.state)
    one.close()
    with service(tmp_path) as again:
        assert bits(again.state) == expected
        with pytest.raises(ValueError, match=r"a row of the log has \(2,\) numbers"):
            again.warm_start(log._replace(context=log.context[:, :2]))
        with pytest.raises(ValueError, match="the log has 5 actions; this agent has 3 arms"):
            again.warm_start(ope.make_log(action=[4], reward=[1], propensity=[1], context=X[:1], num_actions=5))


def test_points_of_a_box() -> None:
    site = SimpleNamespace(observation_space=spaces.Box(-5, 5, (2,)), action_space=spaces.Box(0, 1, (3,)))
    one = service(make=lambda s: seqdec.agents.lrkf(s, model=models.MLP(1, (8,)), rank=3, num_candidates=16), site=site)
    first = one.decide(X[0][:2])
    assert first.action.shape == (3,) and one.arms == ()
    with pytest.raises(ValueError, match="read-only"):
        first.action[:] = 0
    assert one.learn_many([(d.token, 1.0) for d in (first, *one.decide_many(X[:4, :2]))]) == ["learned"] * 5
    with pytest.raises(TypeError, match="here they are points of a Box"):
        one.add_arm()
    with pytest.raises(ValueError, match="these are points of a box"):
        one.log()


def test_candidates_with_features() -> None:
    parts = {"features": spaces.Box(-5, 5, (6, 3)), "item": spaces.Box(0, 9, (6,), np.int32)}
    site = SimpleNamespace(observation_space=spaces.Dict(parts), action_space=spaces.Discrete(6))
    one = service(make=lambda s: seqdec.agents.hilofi(s, rank=3), site=site)
    offer = {"features": RNG.normal(size=(6, 3)), "item": RNG.integers(0, 10, 6)}
    decision = one.decide(offer, mask=np.arange(6) < 4)
    assert decision.action < 4 and one.learn(decision.token, 1.0) == "learned"
    log = one.log()
    assert log.action_features is not None and log.action_features.shape == (1, 6, 4)
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
    one = service(folder, make=seqdec.agents.linear)
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


def test_an_observation_with_an_index() -> None:
    site = SimpleNamespace(observation_space=spaces.Discrete(4, start=2), action_space=spaces.Discrete(2))
    one = service(make=seqdec.agents.linear, site=site)
    assert one.decide(np.int64(5)).action in (0, 1)
    for wrong in (1, 6, 2.5):
        with pytest.raises(ValueError, match="must hold integers of Discrete"):
            one.decide(wrong)
