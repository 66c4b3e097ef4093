"""What an observation may be is said once: agents, compiled or not, and services refuse the same in the same words."""

from typing import Any

import jax
import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec.core import Spaces

NUMBERS = spaces.Box(-9, 9, (2,))
LEVELS = spaces.Box(0, 5, (2,), np.int32)
INDEX = spaces.Discrete(4, start=2)
OFFER = spaces.Dict(item=spaces.Box(0, 5, (3,), np.int32), x=spaces.Box(-9, 9, (3, 2)))
GOOD = {"item": np.arange(3), "x": np.ones((3, 2))}

WRONG: list[tuple[spaces.Space, Any]] = [
    (NUMBERS, [1.0, 2.0, 3.0]),
    (NUMBERS, [[1.0], [2.0, 3.0]]),
    (NUMBERS, [np.nan, 1.0]),
    (NUMBERS, np.array([1e16, 1.0])),
    (NUMBERS, ["1", "2"]),
    (NUMBERS, {"x": 1.0}),
    (LEVELS, [0, 6]),
    (LEVELS, np.array([-1, 0], np.int8)),
    (INDEX, 1),
    (INDEX, 6),
    (OFFER, {**GOOD, "item": [0, 1, 6]}),
    (OFFER, {**GOOD, "x": np.ones((3, 1))}),
    (OFFER, {**GOOD, "x": np.full((3, 2), np.inf)}),
    (OFFER, {"x": GOOD["x"]}),
    (OFFER, [1.0, 2.0]),
]


@pytest.mark.parametrize(("space", "value"), WRONG, ids=range(len(WRONG)))
def test_agents_and_services_refuse_a_context_in_the_same_words(space: spaces.Space, value: Any) -> None:
    site = Spaces(space, spaces.Discrete(3))
    agent, key = seqdec.agents.random(site), jax.random.key(0)
    compiled, service = seqdec.compiled(agent), seqdec.OnlineAgent(seqdec.agents.random, site, seed=0)
    ways = (
        lambda: agent.act(key, agent.init(key), value),
        lambda: compiled.act(key, agent.init(key), value),
        lambda: service.decide(value),
    )
    told = []
    for way in ways:
        with pytest.raises((TypeError, ValueError)) as caught:
            way()
        told.append((caught.type, str(caught.value)))
    assert told == [told[0]] * 3
    assert "context" in told[0][1]
