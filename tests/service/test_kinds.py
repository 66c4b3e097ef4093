"""Every kind of service: its state is that of its log, after a kill, from a snapshot or from the beginning."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces

import seqdec
from seqdec.core import Action, Agent, HasSpaces, Spaces
from seqdec.features import Categorical, Encoder, Numeric
from seqdec.service import Catalog, Decision, read_history, read_log
from tests.service.services import SITE, Clock, bits, copied, exceptions, killed, shop, small

WEIGHTS = {"click": 1.0, "revenue": 0.5}
ENCODER = Encoder({"age": Numeric(40, 12), "city": Categorical(("Oslo", "Rome"))})
ARMS = SITE.action_space
OFFER = spaces.Dict({"features": spaces.Box(-5, 5, (3, 2)), "kind": spaces.Box(0, 9, (3,), np.int32)})
RNG = np.random.default_rng(0)
FLOATS = RNG.normal(size=(40, 2))


def points(site: HasSpaces) -> Agent:
    """Draws points of a Box around the sum of the rewarded ones."""

    def act(key: Any, state: Any, x: Any) -> Action:
        return Action(jnp.clip(state + jax.random.normal(key, (2,)), -1, 1), jnp.float32(jnp.nan))

    def update(state: Any, x: Any, action: Any, reward: Any) -> tuple[Any, Any]:
        good = jnp.isfinite(reward)
        return state + jnp.where(good, reward, 0) * action, exceptions.Info(~good)

    return Agent(lambda key: jnp.zeros(2), act, update, "points", {})


class Kind(NamedTuple):
    """A kind of service: how it is made, and what it is given."""

    site: Any
    context: Callable[[int], Any]
    """of the decision of that number"""
    stacked: Callable[[list[Any]], Any] = np.stack
    make: Any = small
    options: dict[str, Any] = {}  # noqa: RUF012
    reward: Callable[[int], Any] = lambda number: number / 4
    items: Any = None


def named(number: int) -> dict[str, float]:
    return {"click": float(number % 2), "revenue": number / 4}


KINDS: dict[str, Kind] = {
    "arms": Kind(SITE, lambda i: FLOATS[i]),
    "arms with a batch size": Kind(SITE, lambda i: FLOATS[i], options={"batch_size": 2}),
    "no features": Kind(Spaces(spaces.Box(-1, 1, (0,)), ARMS), lambda i: np.zeros(0)),
    "a number": Kind(Spaces(spaces.Discrete(4, start=2), ARMS), lambda i: 2 + i % 4),
    "candidates": Kind(
        Spaces(OFFER, spaces.Discrete(3)),
        lambda i: {"features": np.tile(FLOATS[i], (3, 1)), "kind": np.arange(3)},
        lambda rows: {name: np.stack([row[name] for row in rows]) for name in rows[0]},
    ),
    "rows of columns": Kind(
        Spaces(ENCODER.space, ARMS), lambda i: {"age": i, "city": "Rome"}, pd.DataFrame, options={"encoder": ENCODER}
    ),
    "points": Kind(Spaces(spaces.Box(-5, 5, (2,)), spaces.Box(-1, 1, (2,))), lambda i: FLOATS[i], make=points),
    "named": Kind(SITE, lambda i: FLOATS[i], options={"reward_weights": WEIGHTS}, reward=named),
    "collected": Kind(
        SITE,
        lambda i: FLOATS[i],
        options={"reward_weights": WEIGHTS, "reward_after": 60, "reward_default": {"click": 0.0, "revenue": 0.0}},
        reward=named,
    ),
    "sums": Kind(SITE, lambda i: FLOATS[i], options={"reward_after": 60, "rewards": "sum"}),
    "items": Kind(
        Catalog(spaces.Box(-5, 5, (2,))),
        lambda i: None,
        lambda rows: np.zeros((len(rows), 0)),
        make=shop,
        items={"lamp": [1.0, 0.0], "chair": [0.0, 1.0], 7: [0.5, 0.5]},
    ),
}


def made(kind: str, folder: Path | None) -> seqdec.OnlineAgent:
    how = KINDS[kind]
    return seqdec.OnlineAgent(how.make, how.site, seed=0, folder=folder, snapshot_every=5, **how.options)


def play(one: seqdec.OnlineAgent, kind: str, clock: Clock, steps: int = 12) -> list[Decision]:
    """Decisions one by one and together, rewards late and in a batch, one of them twice."""
    how = KINDS[kind]
    decisions = [one.decide(how.context(i)) for i in range(steps)]
    for i in (3, 1, 3, 7, 5, 4, 2):
        one.learn(decisions[i].token, how.reward(i))
    one.snapshot()
    decisions += one.decide_many(how.stacked([how.context(i) for i in range(5)]))
    one.learn_many([(decision.token, how.reward(i)) for i, decision in enumerate(decisions[steps - 2 :])])
    clock.seconds += 61
    return decisions


def answered(one: seqdec.OnlineAgent, kind: str) -> list[Any]:
    """Actions and propensities of further decisions."""
    context = KINDS[kind].context
    return [
        (np.asarray(found.action).tolist(), str(found.propensity)) for found in map(one.decide, map(context, (20, 21)))
    ]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_state_is_that_of_the_log(kind: str, tmp_path: Path, clock: Clock) -> None:
    how = KINDS[kind]
    with made(kind, tmp_path / "log") as one:
        if how.items:
            one.add_items(how.items)
        decisions = play(one, kind, clock)
        assert one.counts["decisions"] == len(decisions) == 17 and one.counts["rewards"] in (13, 17)
        expected, counts = bits(one), one.counts
        kept = killed(tmp_path / "log", tmp_path / "killed"), copied(tmp_path / "log", tmp_path / "bare")
        history = read_history(tmp_path / "log")
        assert history["token"].tolist() == [decision.token for decision in decisions]
        assert history["reward"].notna().sum() == counts["rewards"]
        np.testing.assert_array_equal(history["propensity"], [decision.propensity for decision in decisions])
        if kind != "points":
            log = one.log()
            assert history["action"].tolist() == [decision.action for decision in decisions]
            assert log.reward.tolist() == read_log(tmp_path / "killed").reward.tolist()
            assert log.reward.tolist() == history["reward"].dropna().tolist()
        answers = answered(one, kind)
    for folder in kept:
        with made(kind, folder) as again:
            assert bits(again) == expected and again.arms == one.arms and again.items == one.items
            assert [again.counts[name] for name in ("decisions", "rewards")] == [17, counts["rewards"]]
            assert answered(again, kind) == answers
            results = {again.learn(decision.token, how.reward(0)) for decision in decisions[1:6]}
            assert results <= {"repeated", "expired"}
            assert again.learn("1-00", how.reward(0)) == "unknown" and bits(again) == expected
