"""Contexts of an `OnlineAgent`: those of an empty space, and those at and beyond the bounds of a space."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from seqdec import ope
from seqdec.core import Spaces
from seqdec.service import contexts
from tests.service.services import service

EMPTY = spaces.Box(-1, 1, (0,))


def test_a_bandit_without_features() -> None:
    one = service(site=Spaces(EMPTY, spaces.Discrete(2)))
    one.warm_start(ope.make_log(action=[0, 1], reward=[1.0, 0.0], propensity=[0.5, 0.5], num_actions=2))
    with pytest.raises(ValueError, match=r"must have shape \(0,\), as Box.*; got shape \(1,\)"):
        one.decide([1.0])
    assert one.decide([]).action in (0, 1) and one.log().context.shape == (2, 0)


def test_candidates_without_a_kind_of_features() -> None:
    """An empty entry of a Dict, beside one that is not."""
    space = spaces.Dict({"item": spaces.Box(-1, 1, (3, 2)), "user": spaces.Box(-1, 1, (3, 0))})
    one = service(make="random", site=Spaces(space, spaces.Discrete(3)))
    offer = {"item": np.ones((3, 2)), "user": np.ones((3, 0))}
    assert one.learn(one.decide(offer).token, 1.0) == "learned"
    assert one.log().action_features.shape == (1, 3, 2)  # pyright: ignore[reportOptionalMemberAccess]


def checked(space: Any, value: Any, rows: int | None = None) -> Any:
    known = contexts.Contexts(space)
    return known.one(value).x[0] if rows is None else known.many(value).x


LET_IN: list[tuple[spaces.Space, Any]] = [
    (spaces.Box(-5, 5, (2,)), [-5, 5]),
    (spaces.Box(-0.1, 0.1, (2,)), [-0.1, 0.1]),  # the bounds are float32
    (spaces.Box(-0.1, 0.1, (2,), np.float64), np.float32([-0.1, 0.1])),
    (spaces.Box(0, 1, (2,)), [0.1 * 3 - 0.3, 1 + 1e-7]),
    (spaces.Box(0, np.inf, (2,)), [-5e-17, 1e9]),
    (spaces.Box(-np.inf, np.inf, (2,)), [-1e14, 1e14]),
    (spaces.Box(0, 1, (2,), np.float16), np.float16([0, 1.001])),
    (spaces.Box(0, 255, (2,), np.uint8), [0, 255]),
    (spaces.Box(-(2**40), 2**40, (2,), np.int64), [-(2**31), 2**31 - 1]),
]
CLIPPED: list[tuple[spaces.Space, Any, Any]] = [
    (spaces.Box(-5, 5, (2,)), [0, 1e6], [0, 5]),
    (spaces.Box(-5, 5, (2,)), [-5.001, 0], [-5, 0]),
    (spaces.Box(np.array([0, -9], np.float32), np.array([1, 9], np.float32)), [-2, -2], [0, -2]),
    (spaces.Box(0, np.inf, (2,)), [-1, 1], [0, 1]),
]
REFUSED: list[tuple[spaces.Space, Any, str]] = [
    (spaces.Discrete(4, start=2), 6, "must hold integers of Discrete"),
    (spaces.Discrete(4, start=2), 1, "must hold integers of Discrete"),
    (spaces.Discrete(4, start=2), 2.5, "must hold integers of Discrete"),
    (spaces.Box(-np.inf, np.inf, (2,), np.float16), [1e6, 0], "must hold finite numbers below"),
    (spaces.Box(0, 9, (2,), np.uint8), [256, 0], "must hold integers of"),
    (spaces.Box(-(2**40), 2**40, (2,), np.int64), [2**31, 0], "must hold integers of"),
    (spaces.Box(0, 9, (2,), np.int32), [0.5, np.nan], r"must hold integers of .*got 0.5"),
]


@pytest.mark.parametrize(("space", "value"), LET_IN, ids=range(len(LET_IN)))
def test_a_context_at_a_bound_or_a_rounding_beyond_it(space: spaces.Space, value: Any) -> None:
    np.testing.assert_allclose(checked(space, value), value, rtol=2e-3)
    np.testing.assert_array_equal(checked(space, [value] * 3, 3), np.stack([checked(space, value)] * 3))


@pytest.mark.parametrize(("space", "value", "message"), REFUSED, ids=range(len(REFUSED)))
def test_a_context_outside_its_space(space: spaces.Space, value: Any, message: str) -> None:
    for given, rows in ((value, None), ([value, value], 2)):
        with pytest.raises(ValueError, match=message):
            checked(space, given, rows)
    named = spaces.Dict({"x": space})
    with pytest.raises(ValueError, match=r"context\['x'\] must hold"):
        checked(named, {"x": value})


@pytest.mark.parametrize(("space", "value", "kept"), CLIPPED, ids=range(len(CLIPPED)))
def test_a_context_beyond_the_bounds_of_a_box(space: spaces.Space, value: Any, kept: Any) -> None:
    rows = contexts.Contexts(space).many([value, kept])
    np.testing.assert_array_equal(rows.x, np.float32([kept, kept]))
    assert rows.clipped == 1
    named = spaces.Dict({"x": space, "y": spaces.Discrete(2)})
    row = contexts.Contexts(named).one({"x": value, "y": 1})
    np.testing.assert_array_equal(row.x["x"], np.float32([kept]))
    assert row.clipped == 1


def test_an_agent_clips_a_context_to_its_space_and_counts_it() -> None:
    site = Spaces(spaces.Box(-5, 5, (2,)), spaces.Discrete(2))
    one = service(site=site)
    far = np.array([[0.0, 0.0], [0.0, 1e6]])
    log = ope.make_log(action=[0, 1], reward=[1.0, 0.0], propensity=[0.5, 0.5], context=far, num_actions=2)
    one.warm_start(log)
    made = [one.decide(far[1]), *one.decide_many(far)]
    one.learn_many([(decision.token, 1.0) for decision in made])
    assert one.counts == {"decisions": 5, "rewards": 5, "clipped": 3, "learned": 3}
    np.testing.assert_array_equal(one.log().context, [[0, 0], [0, 5], [0, 5], [0, 0], [0, 5]])
