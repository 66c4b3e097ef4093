"""Arms are known to callers by their names, or by the numbers that their space has."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

from seqdec.core import Spaces
from seqdec.service import read_history, read_log
from tests.service.services import SITE, X, bits, copied, service

SEEN = SITE.observation_space
FROM_ONE = Spaces(SEEN, spaces.Discrete(3, start=1))
FOUR = Spaces(SEEN, spaces.Discrete(4))
NAMES = ("a", "b", "c")


@pytest.mark.parametrize(
    ("site", "arms", "names"),
    [
        (FROM_ONE, None, (1, 2, 3)),
        (Spaces(SEEN, spaces.Discrete(3, start=-1)), None, (-1, 0, 1)),
        (SITE, NAMES, NAMES),
        (SITE, np.array([205, 101, 333]), (205, 101, 333)),
        (FROM_ONE, ["x", 7, "y"], ("x", 7, "y")),
    ],
)
def test_all_calls_know_arms_by_name(site: Any, arms: Any, names: tuple[Any, ...], tmp_path: Path) -> None:
    first, second, third = names
    with service(tmp_path, site=site, arms=arms) as one:
        assert one.arms == names and [type(name) for name in one.arms] == [type(name) for name in names]
        decided = [*one.decide_many(X[:40]), *map(one.decide, X[40:])]
        assert {decision.action for decision in decided} == set(names)
        for decision in decided:
            assert decision.probabilities is not None
            place = names.index(decision.action)
            assert decision.probabilities[place] == pytest.approx(decision.propensity)
        one.learn_many([(decision.token, float(decision.action == second)) for decision in decided])
        found = one.explain(X[0], mask={first, second})
        assert found.actions == names and found.probability[2] == 0
        for mask in (
            {third},
            {third: True, first: False},
            dict.fromkeys([third], 1).keys(),
            np.array([False, False, True]),
        ):
            assert one.decide(X[0], mask).action == third
            assert [decision.action for decision in one.decide_many(X[:2], [mask, {first}])] == [third, first]
        table = pd.DataFrame([[True, False, False]], columns=pd.Index([third, second, first], dtype=object))
        assert one.decide_many(X[:1], table if arms is not None else [{third}])[0].action == third
        log = one.log()
        assert log.action_names == names and [names[index] for index in log.action] == [
            decision.action for decision in decided
        ]
        one.remove_arm(first)
        assert one.arms == (second, third) and {decision.action for decision in one.decide_many(X)} == {second, third}
        with pytest.raises(ValueError, match="arm must be one of"):
            one.remove_arm(first)
    history = read_history(tmp_path)
    assert history["action"].tolist()[:80] == [decision.action for decision in decided]
    assert read_log(tmp_path).action_names == names


def test_lists_of_names_are_masks_and_lists_of_zeros_and_ones_are_not() -> None:
    one, numbered = service(arms=NAMES), service(site=FROM_ONE)
    assert one.decide(X[0], ["c"]).action == "c" and numbered.decide(X[0], [3]).action == 3
    assert numbered.decide(X[0], np.array([2])).action == 2
    for service_, mask, error, message in (
        (one, [0, 1, 1], ValueError, r"must be bool of shape \(3,\), .* or a set of names; got int64"),
        (numbered, [1, 0, 0], ValueError, "must be bool of shape"),
        (one, ["a", "z"], ValueError, r"names of arms, \('a', 'b', 'c'\); got 'z'"),
        (numbered, {0}, ValueError, r"names of arms, \(1, 2, 3\); got 0"),
        (numbered, {True}, ValueError, r"names of arms, \(1, 2, 3\); got True"),  # which is not 1
        (numbered, {2.0: True}, ValueError, r"names of arms, \(1, 2, 3\); got 2.0"),
        (one, set(), ValueError, "at least one of the arms"),
        (one, "a", TypeError, "the mask must hold real numbers; got 'a'"),
    ):
        with pytest.raises(error, match=message):
            service_.decide(X[0], mask)
    with pytest.raises(ValueError, match="names of arms"):
        one.decide_many(X[:2], [{"a"}, {"z"}])
    assert one.counts["decisions"] == 1


def test_arms_come_back_by_name(tmp_path: Path) -> None:
    with service(tmp_path / "a", arms=NAMES, capacity=3) as one:
        one.learn_many([(decision.token, 0.5) for decision in one.decide_many(X[:20])])
        one.remove_arm("b")
        assert one.add_arm("b") == "b" and one.arms == NAMES  # its output was kept
        one.remove_arm("b")
        one.remove_arm("c")
        assert one.add_arm("d") == "d" and one.add_arm(7) == 7  # b and c lose their outputs
        before = bits(one)
        assert one.add_arm("b") == "b" and one.arms == ("a", "b", "d", 7) and bits(one) != before
        for name, error, message in (
            ("d", ValueError, r"there is an arm 'd' already"),
            ("7", ValueError, r"there is an arm 7 already, .*: names differ, also as text"),
            (None, TypeError, r"arms have names, .*: give the new one a name"),
            (True, TypeError, "must be a text or an integer; got True"),
        ):
            with pytest.raises(error, match=message):
                one.add_arm(name)
        expected = bits(one)
    with service(copied(tmp_path / "a", tmp_path / "again"), arms=NAMES) as again:
        assert again.arms == ("a", "b", "d", 7) and bits(again) == expected
    numbered = service(site=FROM_ONE)
    assert numbered.add_arm() == 4 and numbered.add_arm(5) == 5
    numbered.remove_arm(4)
    assert numbered.add_arm(4) == 4
    for name in (7, "x"):
        with pytest.raises(ValueError, match=f"have numbers, the next of which is 6; got {name!r}"):
            numbered.add_arm(name)


def test_a_log_belongs_to_its_arms(tmp_path: Path) -> None:
    service(tmp_path, arms=NAMES).close()
    for site, arms, here in (
        (SITE, ["b", "c", "d"], "'b', 'c', 'd'"),
        (SITE, ["a", "c", "b"], "'a', 'c', 'b'"),
        (SITE, None, "0, 1, 2"),
        (Spaces(SEEN, spaces.Discrete(2)), ["a", "b"], "'a', 'b'"),
    ):
        with pytest.raises(ValueError, match=f"whose arms are 'a', 'b', 'c', not {here}: name these"):
            service(tmp_path, site=site, arms=arms)
    with service(tmp_path, site=FOUR, arms=[*NAMES, "d"]) as one:  # a new name is added
        assert one.arms == (*NAMES, "d")
        one.add_arm("e")
    for known in (NAMES, [*NAMES, "d"]):
        with service(tmp_path, site=Spaces(SEEN, spaces.Discrete(len(known))), arms=known) as one:
            assert one.arms == (*NAMES, "d", "e")
    service(tmp_path / "numbers", site=FROM_ONE).close()
    with pytest.raises(ValueError, match="whose arms are 1, 2, 3, not 0, 1, 2"):
        service(tmp_path / "numbers")
    with service(tmp_path / "numbers", site=Spaces(SEEN, spaces.Discrete(4, start=1))) as one:
        assert one.arms == (1, 2, 3, 4)


def test_names_of_arms_are_checked() -> None:
    box = Spaces(SEEN, spaces.Box(0, 1, (2,)))
    for site, arms, error, message in (
        (SITE, ["a", "b"], ValueError, r"must be 3 different names, as many as Discrete\(3\) has; got \['a', 'b'\]"),
        (SITE, ["a", "b", "a"], ValueError, "3 different names"),
        (SITE, [1, "a", "1"], ValueError, "3 different names, .*: names differ, also as text"),
        (SITE, {"a", "b", "c"}, TypeError, "their order counts"),
        (SITE, ["a", 1.5, "c"], TypeError, "must be a text or an integer; got 1.5"),
        (box, NAMES, TypeError, "arms are for Discrete actions"),
    ):
        with pytest.raises(error, match=message):
            service(site=site, arms=arms)


def test_a_series_masks_by_its_names(tmp_path: Path) -> None:
    mask = pd.Series({"c": True, "a": False, "b": False})
    with service(tmp_path, arms=NAMES) as one:
        assert {one.decide(x, mask=mask).action for x in X[:6]} == {"c"}
