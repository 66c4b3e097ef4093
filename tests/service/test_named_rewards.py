"""Rewards with names: weighted, collected one by one, kept apart in the log, learned again with other weights."""

import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqdec
from seqdec.service import read_history, read_log
from seqdec.service.sqlite import FILE
from tests.service.services import Clock, X, bits, copied, service

WEIGHTS: Any = {"click": 1.0, "revenue": 0.05}
BOTH: Any = {"reward_weights": WEIGHTS, "reward_after": 60, "reward_default": {"click": 0.0, "revenue": 0.0}}


def test_named_rewards_are_learned_as_their_weighted_sum(tmp_path: Path) -> None:
    with service(tmp_path / "log", reward_weights=WEIGHTS) as one, service() as other:
        for place, parts in enumerate([{"click": 1, "revenue": 12.5}, {"revenue": 4.0, "click": 0}]):
            worth = WEIGHTS["click"] * parts["click"] + WEIGHTS["revenue"] * parts["revenue"]
            token = one.decide(X[place]).token
            assert one.learn(token, parts) == other.learn(other.decide(X[place]).token, worth) == "learned"
            assert one.learn(token, {"click": 5.0, "revenue": 0.0}) == "repeated"
        expected = bits(one)
        assert expected == bits(other)
        log = one.log()
    assert log.reward.tolist() == [1.625, 0.2] and log.reward_parts is not None
    assert {name: part.tolist() for name, part in log.reward_parts.items()} == {"click": [1, 0], "revenue": [12.5, 4]}
    assert log.weighted({"revenue": 2.0}).reward.tolist() == [25.0, 8.0]
    assert "reward[click]: mean 0.5, 0 to 1; reward[revenue]" in repr(log)
    log.save(tmp_path / "log.parquet")
    log.to_pandas().to_csv(tmp_path / "log.csv", index=False)
    for name in ("log.parquet", "log.csv"):
        found = seqdec.ope.Log.load(tmp_path / name).reward_parts
        assert found is not None and found["revenue"].tolist() == [12.5, 4.0]
    with service(copied(tmp_path / "log", tmp_path / "copy"), reward_weights=dict(reversed(WEIGHTS.items()))) as again:
        assert bits(again) == expected
    with service(tmp_path / "warm", reward_weights=WEIGHTS) as warm:
        warm.warm_start(log)
        warm.warm_start(log)
        found = warm.log().reward_parts
        assert found is not None and found["revenue"].tolist() == [12.5, 4.0] and warm.counts["rewards"] == 2
        with pytest.raises(ValueError, match=r"lacks the reward 'click'; it has no named rewards: .*reward\[revenue\]"):
            warm.warm_start(log.replace(reward_parts=None))


@pytest.mark.parametrize(
    ("how", "expected"), [("first", (1.0, 3.0)), ("sum", (0.0, 7.0)), ("last", (-1.0, 4.0)), ("max", (1.0, 4.0))]
)
def test_named_rewards_come_one_by_one(how: Any, expected: Any, clock: Clock, tmp_path: Path) -> None:
    with service(tmp_path / "log", rewards=how, **BOTH) as one:
        several, never, clicked = one.decide_many(X[:3])
        before = bits(one)
        assert one.learn(several.token, {"click": 1.0}) == "collected"
        assert one.learn_many(
            [(several.token, {"revenue": 3.0}), (clicked.token, {"click": 1.0}), (several.token, {"revenue": 4.0})]
        ) == ["collected", "collected", "repeated" if how == "first" else "collected"]
    with service(tmp_path / "log", rewards=how, **BOTH) as one:
        result = one.learn(several.token, {"click": -1.0})
        assert result == ("repeated" if how == "first" else "collected") and bits(one) == before
        clock.seconds += 61
        late = [one.learn(token, {"click": 1.0}) for token in (never.token, clicked.token)]
        assert late == ["expired", "repeated" if how == "first" else "expired"]
        assert one.learn(clicked.token, {"revenue": 9.0}) == "expired"  # a payment that came too late
        worth = expected[0] + 0.05 * expected[1]
        log = one.log()
        assert log.reward.tolist() == pytest.approx([worth, 0.0, 1.0]) and log.reward_parts is not None
        assert log.reward_parts["click"].tolist() == [expected[0], 0, 1]
        assert log.reward_parts["revenue"].tolist() == [expected[1], 0, 0]
        sources = one._store.database.connection.execute("SELECT source FROM rewards ORDER BY sequence").fetchall()
        assert sources == [("collected",), ("default",), ("collected",)]
        after = bits(one)
    with service(copied(tmp_path / "log", tmp_path / "copy"), rewards=how, **BOTH) as again:
        assert bits(again) == after
    table = read_history(tmp_path / "log")
    assert table["reward[revenue]"].tolist() == [expected[1], 0, 0]
    assert table["reward"].tolist() == log.reward.tolist()


def test_a_decision_that_lacks_a_part_without_a_default_teaches_nothing(clock: Clock) -> None:
    with service(**{**BOTH, "reward_default": {"revenue": 2.0}}) as one:
        first, second, _ = one.decide_many(X[:3])
        one.learn_many([(first.token, {"click": 1.0}), (second.token, {"revenue": 1.0})])
        clock.seconds += 61
        assert one.log().reward.tolist() == [1.1]
        assert one.counts == {"decisions": 3, "rewards": 1, "collected": 2, "learned": 1, "incomplete": 1}


def test_the_log_is_learned_again_with_other_weights(clock: Clock, tmp_path: Path) -> None:
    with service(tmp_path / "log", **BOTH) as one:
        one.learn(one.decide(X[0]).token, {"click": 1.0, "revenue": 10.0})
        clock.seconds += 61
        assert one.log().reward.tolist() == [1.5]
    other = {**BOTH, "reward_weights": {"click": 0.0, "revenue": 1.0}}
    with pytest.raises(ValueError, match=r"written with reward_weights=\{'click': 1.*relearn=True"):
        service(tmp_path / "log", **other)
    for names in ({"click": 1.0}, {**WEIGHTS, "like": 1.0}, None):
        different: Any = {**BOTH, "reward_weights": names, "reward_default": names}
        if names is None:
            different["reward_default"] = 0.0
        with pytest.raises(ValueError, match=r"reward_names is \['click', 'revenue'\], not "):
            service(tmp_path / "log", **different, relearn=True)
    with service(tmp_path / "log", **other, relearn=True) as one, service() as plain:
        assert one.log().reward.tolist() == [10.0]
        plain.learn(plain.decide(X[0]).token, 10.0)
        expected = bits(plain)
        assert bits(one) == expected
    assert read_log(tmp_path / "log").reward.tolist() == [10.0]
    with service(tmp_path / "log", **other) as one:
        assert bits(one) == expected


def test_a_log_from_before_there_were_named_rewards_goes_on(tmp_path: Path) -> None:
    with service(tmp_path) as one:
        one.learn(one.decide(X[0]).token, 1.0)
        expected = bits(one)
    database = sqlite3.connect(tmp_path / FILE)
    database.execute("DELETE FROM facts WHERE name IN ('reward_weights', 'reward_names')")
    database.commit()
    database.close()
    assert read_log(tmp_path).reward_parts is None and "reward[" not in " ".join(read_history(tmp_path).columns)
    with service(tmp_path) as one:
        assert bits(one) == expected


REFUSED: list[tuple[Any, Any, type[Exception], str]] = [
    ({}, {"click": 1.0}, TypeError, r"a reward must be a number; got \{'click': 1.0\}: .*reward_weights="),
    ({"reward_weights": WEIGHTS}, 1.0, TypeError, "a reward must be a dict of click, revenue, as in reward_weights"),
    ({"reward_weights": WEIGHTS}, {"click": 1}, ValueError, "lacks revenue: report all names at once, or .*after="),
    (BOTH, {}, ValueError, "lacks click, revenue"),
    (BOTH, {"clicks": 1}, ValueError, "unknown name 'clicks': did you mean 'click'"),
    (BOTH, {1: 1}, ValueError, "unknown name 1"),
    (BOTH, {"click": np.nan}, ValueError, "a reward 'click' must be a finite number in float32; got nan"),
    (BOTH, {"click": 1.0, "revenue": 1e39}, ValueError, r"a reward 'revenue' must be a finite .*1e\+39"),
    (BOTH, {"click": None}, TypeError, "a reward 'click' must be a number; got None"),
]


def test_named_rewards_that_are_refused() -> None:
    for options in ({}, {"reward_weights": WEIGHTS}, BOTH):
        with service(**options) as one:
            first, second = one.decide_many(X[:2])
            right: Any = WEIGHTS if options else 1.0
            for _, reward, error, message in [row for row in REFUSED if row[0] == options]:
                with pytest.raises(error, match=message):
                    one.learn_many([(first.token, right), (second.token, reward)])
            assert one.counts == {"decisions": 2, "rewards": 0}
            assert one._store.database.connection.execute("SELECT count(*) FROM reports").fetchone() == (0,)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"reward_weights": {}}, ValueError, "needs at least one name"),
        ({"reward_weights": {"": 1.0}}, ValueError, "none of them empty"),
        ({"reward_weights": ["click"]}, TypeError, r"must be a dict of numbers by name.*got \['click'\]"),
        ({"reward_weights": {3: 1.0}}, TypeError, "must be a dict of numbers by name"),
        ({"reward_weights": {"click": np.inf}}, ValueError, "the weight of 'click' must be a finite number"),
        ({"reward_weights": {"click": "1"}}, TypeError, "the weight of 'click' must be a number"),
        ({**BOTH, "reward_default": 0.0}, TypeError, "reward_default must be a dict of click, revenue"),
        ({**BOTH, "reward_default": {"like": 0.0}}, ValueError, "reward_default .*unknown name 'like'"),
        ({**BOTH, "reward_default": {"click": np.nan}}, ValueError, "reward_default 'click' must be a finite number"),
        ({"reward_after": 60, "reward_default": {"click": 0.0}}, TypeError, "reward must be a number.*reward_weights="),
        ({"reward_weights": WEIGHTS, "reward_default": {"click": 0.0}}, ValueError, "needs reward_after"),
        ({"reward_default": 0.0}, ValueError, "reward_default=0.0 needs reward_after"),
        ({"rewards": "sum"}, ValueError, "rewards='sum' needs reward_after"),
        ({"reward_after": 60}, ValueError, "reward_after needs a reward_default"),
        ({"reward_after": 0, "reward_default": 0.0}, ValueError, "reward_after must be positive; got 0"),
        ({"reward_after": 1, "reward_default": np.nan}, ValueError, "finite number in float32; got nan"),
        ({"reward_after": 1, "rewards": "summ"}, ValueError, "sum"),
    ],
)
def test_options_that_are_refused(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        service(**options)


def test_the_monitor_tells_the_mean_of_each_name(clock: Clock, tmp_path: Path) -> None:
    from seqdec.service.summary import summary

    with service(tmp_path, reward_weights=WEIGHTS) as one:
        for number, decision in enumerate(one.decide_many(X[:8])):
            one.learn(decision.token, {"click": number % 2, "revenue": 8.0})
    found = summary(read_history(tmp_path), 2)
    assert any(fact.startswith("mean reward[click] 0.5 (") for fact in found.facts)
    assert any(fact.startswith("mean reward[revenue] 8 (") for fact in found.facts)
    assert set(found.drift.index) == {"context_0", "context_1"}


def test_a_log_of_named_rewards_is_checked() -> None:
    given: Any = {"action": [0, 1], "reward": [1.0, 2.0], "propensity": [0.5, 0.5]}
    log = seqdec.ope.make_log(**given, reward_parts={"click": [1, 0]})
    for wrong, message in (
        ([1], r"reward\[click\] must have shape \(2,\)"),
        ([1, np.nan], r"column reward\[click\] is nan in row 1"),
    ):
        with pytest.raises(ValueError, match=message):
            seqdec.ope.make_log(**given, reward_parts={"click": wrong})
    with pytest.raises(ValueError, match="unknown reward 'clicks': did you mean 'click'"):
        log.weighted({"clicks": 1.0})
    with pytest.raises(TypeError, match="weights must be a dict of numbers by name"):
        log.weighted(1.0)  # pyright: ignore[reportArgumentType]
