"""Lessons of a service with the propensities of their decisions."""

from pathlib import Path

import jax
import numpy as np
import pytest

from seqdec import agents
from seqdec.service import read_log
from tests.service.services import X, bits, killed, service, small
from tests.service.test_apprentice import ARMS


def careful(site):
    return agents.conservative(small(site), loss=0.2, share=0.2)


def earned(made, rewards) -> float:
    """The sum of what is earned beyond the bound, one decision after the other."""
    total, usual, plays = 0.0, 0.0, 0
    for one, reward in zip(made, rewards, strict=True):
        control = one.action == ARMS[0]
        total += reward - 0.8 * (usual + (reward - usual) / one.propensity * control)
        plays += control
        usual += (reward - usual) / plays if control else 0.0
    return total


def test_lessons_have_the_propensities_of_their_decisions_also_late_together_and_after_a_kill(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with service(tmp_path / "a", careful, arms=ARMS) as one:
        made = [one.decide(x) for x in X[:40]]
        rewards = rng.random(40)
        order = [*range(0, 40, 2), *range(1, 40, 2)]
        for place in order[:5]:
            one.learn(made[place].token, rewards[place])
        one.learn_many([(made[place].token, rewards[place]) for place in order[5:]])
        state, _ = one.state, killed(tmp_path / "a", tmp_path / "b")
        expected = earned([made[place] for place in order], rewards[order])
        assert float(state.account.total[0]) == pytest.approx(expected, rel=1e-4)
    (tmp_path / "b" / "state.safetensors").unlink(missing_ok=True)
    with service(tmp_path / "b", careful, arms=ARMS) as again:
        assert bits(again.state) == bits(state)


def test_decisions_of_other_laws_are_learned_but_not_counted(tmp_path: Path) -> None:
    with service(tmp_path / "a", arms=ARMS) as one:
        one.learn_many([(made.token, 1.0) for made in one.decide_many(X[:20])])
    with pytest.raises(ValueError, match="decisions of another law than that of small-conservative"):
        service(tmp_path / "a", careful, arms=ARMS, relearn=True)
    with service(tmp_path / "b", careful, arms=ARMS) as one:
        one.warm_start(read_log(tmp_path / "a"))
        state = one.state
        assert not any(jax.tree.leaves(state.account.total)) and float(state.state.counts.sum()) == 20
