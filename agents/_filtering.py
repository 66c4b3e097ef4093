"""What `seqdec.agents.regression` still takes from here; `seqdec.agents.assembly` is the place."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces as gym_spaces

from seqdec.agents.assembly import decide
from seqdec.agents.choices import Choices, choices_for, limits
from seqdec.core import Acquisition, Assessment, HasSpaces, Key, Masked, Posterior, PyTree
from seqdec.policies.common import marginals

__all__ = ["Choices", "assessing", "choices_for", "decide", "drawn", "limits"]


def assessing(
    acquisition: Acquisition, question: Callable[[Any], Posterior], choices: Choices, spaces: HasSpaces
) -> Callable[[Key, Any, PyTree], Assessment] | None:
    """`Agent.assess`."""
    if not isinstance(spaces.action_space, gym_spaces.Discrete):
        return None

    def assess(key, state, observation):
        obs, mask = observation if isinstance(observation, Masked) else (observation, None)
        offer, _, estimate = jax.random.split(key, 3)
        posterior, candidates = question(state), choices.candidates(offer, obs)
        mean = posterior.mean(candidates)
        probability = jnp.full_like(mean, jnp.nan)
        if acquisition.probabilities is not None:
            probability = acquisition.probabilities(estimate, posterior, candidates, mask)
        return Assessment(mean, marginals(posterior, candidates).variance, probability)

    return assess


def drawn(num_candidates: int | None) -> dict[str, int]:
    """The setting of the number of candidates, where it is not the default."""
    return {} if num_candidates is None else {"num_candidates": num_candidates}
