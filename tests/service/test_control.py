"""A control group: sticky units, exact propensities, and a comparison with the agent."""

import itertools
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqdec
from seqdec.service import Control, read_log
from seqdec.service.database import Unit
from seqdec.service.logs import opened
from tests.service.services import X, service
from tests.service.test_apprentice import ARMS

UNITS = [f"user {n}" for n in range(400)]
MANY = np.tile(X, (5, 1))


@pytest.fixture(autouse=True)
def salts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs that always have the same UUIDs, on which groups depend."""
    numbers = itertools.count(1)
    monkeypatch.setattr("uuid.uuid4", lambda: uuid.UUID(int=next(numbers)))


def units(one: seqdec.OnlineAgent) -> dict[int, Unit]:
    with opened(one._store, one._transact) as database:  # pyright: ignore[reportPrivateUsage]
        return database.units()


def group(one: seqdec.OnlineAgent) -> set[str]:
    one.decide_many(MANY, units=UNITS)
    found = list(units(one).values())[-len(UNITS) :]
    return {name for name, unit in zip(UNITS, found, strict=True) if unit.is_control}


def test_units_stay_in_their_group_and_groups_of_logs_are_independent(tmp_path: Path) -> None:
    with service(tmp_path / "a", arms=ARMS, control=Control(0.3, "c")) as one:
        first = group(one)
        assert 0.2 < len(first) / len(UNITS) < 0.4 and group(one) == first
    with service(tmp_path / "a", arms=ARMS, control=Control(0.5)) as one:
        assert first < group(one)
        assert one.decide(X[0], unit="ann", key="ann/1") == one.decide(X[1], unit="ann", key="ann/1")
    with service(tmp_path / "b", arms=ARMS, control=Control(0.3)) as one:
        other = group(one)
        assert 0.1 < len(first & other) / len(first) < 0.5
    with service(tmp_path / "b", arms=ARMS) as one:  # without a group from now on
        one.decide(X[0])
        assert len(units(one)) == len(UNITS)


@pytest.mark.parametrize("arm", ["c", None])
def test_propensities_are_those_of_the_rule_of_the_group(arm: str | None, tmp_path: Path) -> None:
    with service(tmp_path, arms=ARMS, control=Control(0.4, arm)) as one:
        masks = [["a", "b"] if n % 4 == 0 else None for n in range(400)]
        made = one.decide_many(MANY, masks, units=UNITS)
        belief = {kind: one.explain(X[0], kind).probability for kind in (None, ("a", "b"))}
        seen = units(one)
        drawn: dict[Any, list[Any]] = {True: [], False: []}
        for decision, mask, unit in zip(made, masks, seen.values(), strict=True):
            law = np.array(decision.probabilities)
            assert decision.propensity == pytest.approx(
                law[ARMS.index(decision.action)]
            ) and law.sum() == pytest.approx(1)
            assert unit.share == (0.4 if unit.is_control else 0.6)
            if not unit.is_control:
                assert law.max() > 0.7  # the agent's
            elif mask is not None:
                assert law.tolist() == [0.5, 0.5, 0]
                drawn[True].append(decision.action)
            else:
                np.testing.assert_allclose(law, [1 / 3] * 3 if arm is None else [0, 0, 1])
                drawn[False].append(decision.action)
        assert 0.2 < np.mean([action == "a" for action in drawn[True]]) < 0.8 and belief
        assert len(set(drawn[False])) == (3 if arm is None else 1)
        one.learn_many([(decision.token, 1.0) for decision in made])
        kept = [place for place, unit in enumerate(seen.values()) if arm is None or masks[place] or not unit.is_control]
        log = one.log()
        assert len(log) == len(kept)
        assert log.logging is not None and read_log(tmp_path).propensity.tolist() == log.propensity.tolist()
        one.forget([made[0].token])
        assert 1 not in units(one) and 2 in units(one)
        one.compact(1e-6)
        assert not units(one)


@pytest.mark.parametrize(
    ("worth", "decision"), [([1, 0, 0], "better"), ([0, 0, 1], "worse"), ([1, 1, 1], "no difference shown")]
)
def test_the_agent_is_compared_with_the_control_group(worth: list[int], decision: str) -> None:
    """By units: of a rule that knows the best arm, and of one that plays a bad one."""
    rng = np.random.default_rng(0)
    with service(arms=ARMS, control=Control(0.3, "c")) as one:
        for _ in range(3):
            made = one.decide_many(np.tile([1.0, 0.5], (400, 1)), units=UNITS)
            base = rng.uniform(-0.5, 0.5, size=400)
            rewards = [worth[ARMS.index(d.action)] + float(e) for d, e in zip(made, base, strict=True)]
            one.learn_many([(d.token, reward) for d, reward in zip(made, rewards, strict=True)])
        found = one.comparison("control", seed=0, reward_range=(-0.5, 1.5))
        assert found.decision == decision, found
        with pytest.raises(ValueError, match="imitated another rule"):
            one.comparison(seed=0)
        one.decide(X[0], taken="a")  # a rule that plays for all
        assert len(units(one)) == 1200
    with service(arms=ARMS) as one:
        one.learn(one.decide(X[0]).token, 1.0)
        with pytest.raises(ValueError, match="since there is a control group"):
            one.comparison("control", seed=0)
        with pytest.raises(ValueError, match="against"):
            one.comparison("rules", seed=0)  # pyright: ignore[reportArgumentType]


def test_what_a_control_group_cannot_have_is_refused() -> None:
    with service(arms=ARMS) as one, pytest.raises(ValueError, match="this agent has none"):
        one.decide(X[0], unit="ann")
    with service(arms=ARMS, control=Control(0.1)) as one:
        for unit, says in ((None, "needs the unit"), ("", "1 to 200"), ("\n", "printable")):
            with pytest.raises(ValueError, match=says):
                one.decide(X[0], unit=unit)
        with pytest.raises(ValueError, match="one for each of 2"):
            one.decide_many(X[:2], units=["ann"])
        with pytest.raises(TypeError, match="must be a text"):
            one.decide(X[0], unit=3)  # pyright: ignore[reportArgumentType]
        assert one.counts["decisions"] == 0
    with pytest.raises(ValueError, match=r"one of \('a', 'b', 'c'\); got 'd'"):
        service(arms=ARMS, control=Control(0.1, "d"))
    for share in (0.0, 1.0, float("nan")):
        with pytest.raises(ValueError, match="share must lie in"):
            Control(share)
