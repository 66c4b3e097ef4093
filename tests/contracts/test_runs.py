"""What a run feeds to an agent, when it is kept, and which numbers are too large for any agent."""

import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from safetensors.numpy import load_file

import seqdec
from seqdec import agents
from seqdec.core import Spaces
from tests.toys import NUM_ARMS, toy_agent, toy_env


@pytest.mark.parametrize("full_information", [False, True])
def test_an_agent_learns_the_outcomes_of_all_actions_where_they_are_known(full_information: bool) -> None:
    run = seqdec.run(toy_agent(), toy_env(full_information=full_information), 20, seed=0)
    learned = 20 - run.rejected[0]
    counts = np.asarray(run.state.agent.counts[0]) - 1
    assert counts.sum() == learned * (NUM_ARMS if full_information else 1)
    assert not full_information or (counts == learned).all()


@pytest.mark.parametrize(("steps", "every", "places"), [(40, 10, [10, 20, 30]), (12, 4, [4, 8]), (9, 9, [])])
def test_a_run_is_kept_after_as_many_steps_as_it_was_told(
    steps: int, every: int, places: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, replace = [], os.replace

    def replaced(source: Any, target: Any) -> None:
        arrays = load_file(source)
        found.append(next(array.shape[1] for name, array in arrays.items() if name == "record.reward"))
        replace(source, target)

    monkeypatch.setattr(os, "replace", replaced)
    seqdec.run(toy_agent(), toy_env(), steps, seed=0, checkpoint=tmp_path / "run", checkpoint_every=every)
    assert found == places


TOO_LARGE = np.float32(1e15)
ALLOWED = np.nextafter(TOO_LARGE, np.float32(0))


def test_numbers_from_1e15_on_are_too_large_and_no_others() -> None:
    site = Spaces(spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(2))
    agent = agents.linear(site)
    act, update, key = jax.jit(agent.act), jax.jit(agent.update), jax.random.key(0)
    state = jax.jit(agent.init)(key)
    for sign in (1, -1):
        for number, fine in ((ALLOWED, True), (TOO_LARGE, False)):
            context = jnp.asarray([sign * number, 0.5])
            assert np.isfinite(act(key, state, context).propensity) == fine, number
            assert update(state, context, 0, 1.0)[1].rejected != fine
            with seqdec.OnlineAgent("linear", site, seed=0) as service:
                if fine:
                    assert np.isfinite(service.decide(np.asarray(context)).propensity)
                else:
                    with pytest.raises(ValueError, match=r"finite numbers below 1e\+15"):
                        service.decide(np.asarray(context))
