"""A second agent learns beside the first from the same log, and is compared with it."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqdec
from seqdec.service.challenger import Challenger
from seqdec.service.control import Control
from tests.service.services import X, bits, service, small
from tests.service.test_apprentice import ARMS

BEST = np.tile([1.0, 0.5], (100, 1))


def lazy(site: Any) -> Any:
    """Never learns anything, and plays any arm."""
    agent = small(site)
    return agent._replace(
        name="lazy", update_batch=None, update=lambda state, *lesson: (state, agent.update(state, *lesson)[1])
    )


def caught_up(one: seqdec.OnlineAgent) -> Challenger:
    """Its challenger, once it has learned all."""
    found = one._challenger  # pyright: ignore[reportPrivateUsage]
    assert found is not None
    until = time.monotonic() + 60
    while time.monotonic() < until:
        model = found._model  # pyright: ignore[reportPrivateUsage]
        if model is not None and model.belief.batch == one._store.batches:  # pyright: ignore[reportPrivateUsage]
            return found
        time.sleep(0.02)
    raise TimeoutError


def played(one: seqdec.OnlineAgent, worth: list[float], rounds: int, **options: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        made = one.decide_many(BEST, **options)
        wins = [float(rng.random() < worth[ARMS.index(decision.action)]) for decision in made]
        one.learn_many([(decision.token, reward) for decision, reward in zip(made, wins, strict=True)])


def test_it_learns_the_same_log_and_changes_nothing(tmp_path: Path) -> None:
    with service(tmp_path / "a", arms=ARMS) as alone, service(tmp_path / "b", arms=ARMS, challenger=small) as one:
        for _ in range(2):
            for each in (alone, one):
                played(each, [0.2, 0.5, 0.8], 1)
            laws = caught_up(one).laws
        assert bits(one) == bits(alone) and sorted(laws) == list(range(1, 201))
        own = one.log().logging
        assert own is not None and not np.allclose(own[0], own[100])
        for place in (0, 100):  # as the same agent would have played before it learned, and after
            np.testing.assert_allclose(np.frombuffer(laws[place + 1], np.float32), own[place], atol=1e-5)
        assert one.log().reward.tolist() == alone.log().reward.tolist()
        one.add_arm("d")
        assert len(caught_up(one).laws) == 200
    with service(tmp_path / "b", arms=ARMS, challenger=lazy) as one:  # another, which goes through the log
        assert sorted(caught_up(one).laws) == list(range(1, 201))


@pytest.mark.parametrize(
    ("agent", "challenger", "decision"),
    [(lazy, small, "better"), (small, lazy, "worse"), (small, small, "no difference shown")],
)
def test_it_is_compared_with_the_agent_that_plays(agent: Any, challenger: Any, decision: str) -> None:
    with service(make=agent, arms=ARMS, challenger=challenger, control=Control(0.1)) as one:
        with pytest.raises(ValueError, match="no decision"):
            one.comparison("challenger", seed=0)
        played(one, [0.1, 0.2, 0.9], 10, units=[f"user {n}" for n in range(100)])
        one.learn(one.decide(X[0], taken="a", chance=0.5).token, 1.0)
        caught_up(one)
        found = one.comparison("challenger", seed=0)
        assert found.decision == decision, found
        assert len(found.windows)


def test_a_challenger_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="make must be a function"):
        service(arms=ARMS, challenger=3)
    with pytest.raises(TypeError, match="what make returns must be"):
        service(tmp_path / "log", arms=ARMS, challenger=lambda site: 3)
    with service(tmp_path / "log", arms=ARMS) as one:
        one.learn(one.decide(X[0]).token, 1.0)
        with pytest.raises(ValueError, match="make the agent with a challenger"):
            one.comparison("challenger", seed=0)


def test_one_that_fails_stops_alone(recwarn: pytest.WarningsRecorder) -> None:
    def broken(site: Any) -> Any:
        def update(*given: Any) -> Any:
            raise RuntimeError("broken")

        return small(site)._replace(update=update, update_batch=update)

    with service(arms=ARMS, challenger=broken) as one:
        played(one, [0.2, 0.5, 0.8], 1)
        thread = one._challenger  # pyright: ignore[reportPrivateUsage]
        assert thread is not None
        thread.join(60)
        assert not thread.is_alive() and one.decide(X[0])
    assert any("the challenger stops until the next start: broken" in str(one.message) for one in recwarn)
