"""What a service says of its arms, its control group and its challenger at any time."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec.core import Spaces
from seqdec.features import Bool, Categorical, Encoder, Numeric, Ordered
from seqdec.service import Control
from seqdec.service.report import segments_of
from tests.service.services import Clock, X, service, small
from tests.service.test_apprentice import ARMS
from tests.service.test_challenger import BEST, caught_up, lazy, played
from tests.service.test_control import salts

__all__ = ["salts"]
SETTLED: Any = {"rewards": "first", "reward_after": 60, "reward_default": 0.0}


def clicked(one: seqdec.OnlineAgent, worth: list[float], rows: int, **options: Any) -> int:
    """The clicks of so many decisions; all others are never reported."""
    rng = np.random.default_rng(rows)
    made = one.decide_many(np.tile([1.0, 0.5], (rows, 1)), **options)
    clicks = [(d.token, 1.0) for d in made if rng.random() < worth[ARMS.index(d.action)]]
    one.learn_many(clicks)
    return len(clicks)


def test_rewards_that_come_early_do_not_count_before_defaults(clock: Clock) -> None:
    with service(arms=ARMS, **SETTLED) as one:
        clicked(one, [0.3, 0.3, 0.3], 300)
        found = one.report().arms
        assert found is not None and not found.decided and "Cannot decide" in found.verdict
        clock.seconds += 61
        count = clicked(one, [0.9, 0.9, 0.9], 100)
        found = one.report().arms
        assert found is not None and found.rows == 300 and count > 50
        assert found.arms is not None and found.arms["reward"].max() < 0.6
        late = one.decide(X[0], active=False)
        clock.seconds += 600
        one.learn(late.token, 1.0)  # begins with its first reward
        assert one.report().arms.rows == 400  # pyright: ignore[reportOptionalMemberAccess]


def test_the_best_arm_is_decided_without_the_control_group() -> None:
    with service(make=lazy, arms=ARMS, control=Control(0.3, "c")) as one:
        played(one, [0.1, 0.2, 0.9], 15, units=[f"user {n}" for n in range(100)])
        own = sum(law is None or max(law) < 1 for law in one.log().logging.tolist())  # pyright: ignore
        assert str(one.report()).startswith("Which arm earns most? Arm 'c' is best: ")
        found = one.report().arms
        assert found is not None and found.decided and found.rows == own < 1500
        assert found.arms is not None and found.arms["share"].sum() == pytest.approx(1)


def test_units_count_once_whatever_they_do(clock: Clock) -> None:
    """One unit of each group comes very often; of the others the agent's earn more, at each of two visits."""
    names = [f"user {n}" for n in range(600)]
    with service(arms=ARMS, control=Control(0.3, "c"), **SETTLED) as one:
        assert one.report().control is None
        for _ in range(2):
            clicked(one, [1, 1, 0], 600, units=names)
            clock.seconds += 10
        groups = [one.decide([1.0, 0.5], unit=name).action != "c" for name in names[:40]]
        often = [names[groups.index(True)], names[groups.index(False)]]
        clicked(one, [1, 1, 0], 400, units=often * 200)
        clock.seconds += 11
        clicked(one, [1, 1, 0], 1, units=["late"])
        early = one.report().control
        assert early is not None and "no unit" in early.verdict
        clock.seconds += 34
        first = one.report().control
        assert first is not None and first.rows == 600 and first.decided and first.difference is not None
        assert first.difference.low < 1 <= first.difference.high and first.verdict.startswith("More than control: ")
        assert first.total is not None and first.total.value / first.difference.value == pytest.approx(420, rel=0.1)
        assert "no unit" in one.report(decisions=4, within=30).control.verdict  # pyright: ignore
        clock.seconds += 31
        several = one.report(decisions=4, within=30).control
        assert several is not None and several.rows == 600 and several.decided
        assert several.difference is not None and several.total is not None
        decisions = several.total.value / several.difference.value
        assert 820 < decisions < 900  # two of each unit of the agent, four of a few
        for wrong in ({"decisions": 2}, {"within": 10.0}, {"decisions": 0}):
            with pytest.raises(ValueError, match=r"need a time|at least 1"):
                one.report(**wrong)  # pyright: ignore[reportArgumentType]
    with service(arms=ARMS, control=Control(0.3, "c")) as one:
        played(one, [0.5, 0.5, 0.5], 1, units=names[:100])
        found = one.report(decisions=4, within=30).control
        assert found is not None and "give rewards a window" in found.verdict
        assert one.report().control.rows == 100  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(("agent", "challenger", "more"), [(lazy, small, True), (small, lazy, False)])
def test_a_challenger_is_compared_at_any_time(agent: Any, challenger: Any, more: bool) -> None:
    with service(make=agent, arms=ARMS, challenger=challenger) as one:
        assert "Cannot decide" in one.report().challenger.verdict  # pyright: ignore
        played(one, [0.0, 0.0, 1.0], 8)
        caught_up(one)
        found = one.report().challenger
        assert found is not None and found.difference is not None and found.rows == 8 * len(BEST)
        assert (found.difference.value > 0) is more and found.decided is (
            found.difference.low > 0 or found.difference.high < 0
        )


def test_segments_are_levels_of_columns() -> None:
    encoder = Encoder(
        {
            "city": Categorical(("Oslo", "Rome")),
            "size": Ordered(("S", "M", "L")),
            "member": Bool(),
            "age": Numeric(40, 12),
        }
    )
    rows = [{"city": "Rome", "size": "M", "member": True}, {"city": "Bonn", "size": "S", "member": False}, {"age": 30}]
    x = np.array([encoder(row) for row in rows])
    found = segments_of(encoder, ("city", "size", "member"), x)
    assert {name for name, here in found.items() if here[0]} == {"city=Rome", "size=M", "member=true"}
    assert {name for name, here in found.items() if here[1]} == {"size=S", "member=false"}
    assert not any(here[2] for here in found.values())
    with pytest.raises(ValueError, match="town"):
        segments_of(encoder, ["town"], x)
    site = Spaces(encoder.space, spaces.Discrete(3))
    with service(make=lazy, site=site, arms=ARMS, encoder=encoder) as one:
        rng = np.random.default_rng(0)
        for _ in range(4):
            where = [{"city": str(city)} for city in rng.choice(["Oslo", "Rome"], 200)]
            made = one.decide_many(where)
            worths = [float((d.action == "a") is (row["city"] == "Rome")) for d, row in zip(made, where, strict=True)]
            one.learn_many([(d.token, worth) for d, worth in zip(made, worths, strict=True)])
        tables = one.report(segments=["city"]).arms.segments  # pyright: ignore[reportOptionalMemberAccess]
        assert tables is not None and tables.loc[("city=Rome", "a"), "reward"] > 0.9
        assert tables.loc[("city=Oslo", "a"), "reward"] < 0.1
        with pytest.raises(ValueError, match="age has no levels"):
            one.report(segments=["age"])
    with service(arms=ARMS) as one, pytest.raises(ValueError, match="no encoder of columns"):
        one.report(segments=["city"])
