"""An agent from a learner and a policy."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces as gym_spaces

from seqdec import policies
from seqdec.agents.choices import Choices, choices_for, near_best
from seqdec.agents.inputs import checked
from seqdec.boundary.sparse import SparseBox
from seqdec.core import (
    Acquisition,
    Action,
    Agent,
    Array,
    Assessment,
    HasSpaces,
    Key,
    Learner,
    Masked,
    Posterior,
    PyTree,
)
from seqdec.policies.common import marginals, played


def agent(
    learner: Learner,
    policy: str | Acquisition,
    spaces: HasSpaces,
    *,
    name: str,
    settings: Mapping[str, Any] | None = None,
    num_candidates: int | None = None,
    refine: bool = False,
) -> Agent:
    """An agent from a learner and a policy.

    Scalar feedback is the action's response, a vector has one for every action. For an action out of range, or
    feedback that is not finite or at least 1e15, the learner gets NaN and rejects it.

    Args:
        learner: one response per Discrete action, per candidate of a Dict, or, for Box actions, per concatenated
            row of observation and action.
        policy: name or acquisition of `seqdec.policies`.
        spaces: with observation_space and action_space.
        name: shown in tables and figures.
        settings: recorded in the manifest of a run; the policy's name is added where missing.
        num_candidates: points per decision, for Box actions only; None is 256.
        refine: for Box actions, try as many points again near the best; without `act_batch`.

    Raises TypeError or ValueError for other spaces, or a policy that needs uncertainty if the learner has none.
    """
    acquisition, called = policies.resolve(policy)
    if acquisition.needs != "mean" and not learner.uncertain:
        raise ValueError(
            f"{name} has no uncertainty, but the policy needs {acquisition.needs!r} of it; use greedy or epsilon_greedy"
        )
    if isinstance(spaces.observation_space, SparseBox) and not learner.sparse:
        raise TypeError(f"{name} takes no contexts of a {spaces.observation_space}: use hashed or auto")
    choices, actions = choices_for(spaces, num_candidates), spaces.action_space
    box = actions if refine and isinstance(actions, gym_spaces.Box) else None

    def act(key, state, observation):
        posterior = learner.posterior(state)
        offered = choices if box is None else near_best(choices, posterior, box)
        return decide(key, acquisition, posterior, offered, observation)

    def act_batch(keys, state, observations):
        assert learner.prepared is not None
        posterior = learner.prepared(state)
        return jax.vmap(lambda key, seen: decide(key, acquisition, posterior, choices, seen))(keys, observations)

    def assess(key, state, observation):
        obs, mask = _unmasked(observation)
        offer, play = jax.random.split(key)
        posterior, candidates = learner.posterior(state), choices.candidates(offer, obs)
        mean = posterior.mean(candidates)
        variance = probability = jnp.full_like(mean, jnp.nan)
        if learner.uncertain:
            variance = marginals(posterior, candidates).variance
        _, every = played(acquisition, play, posterior, candidates, mask)
        return Assessment(mean, variance, probability if every is None else every)

    def update(state, observation, action, feedback):
        obs, mask = _unmasked(observation)
        return learner.update(state, *choices.evidence(obs, action, feedback), mask)

    def update_batch(state, observations, actions, rewards):
        assert learner.update_batch is not None
        obs, masks = _unmasked(observations)
        return learner.update_batch(state, *jax.vmap(choices.evidence)(obs, actions, rewards), masks)

    told = {"policy": called, **(settings or {})}
    if num_candidates is not None:
        told["num_candidates"] = num_candidates
    made = Agent(
        learner.init,
        act,
        update,
        name,
        told,
        update_batch=None if learner.update_batch is None else update_batch,
        act_batch=None if learner.prepared is None or box is not None else act_batch,
        widened=learner.widened,
        assess=assess if choices.spread is None else None,
    )
    return checked(made, spaces)


def means_only(mean: Callable[[PyTree], Array]) -> Posterior:
    """A posterior without uncertainty."""

    def refuse(_):
        raise TypeError("this agent has no uncertainty")

    return Posterior(mean, refuse, refuse)


def decide(key: Key, acquisition: Acquisition, question: Posterior, choices: Choices, observation: PyTree) -> Action:
    """Draw from the law of the acquisition; `Action.propensity` says when it is unknown."""
    obs, mask = _unmasked(observation)
    offer, play = jax.random.split(key)
    candidates, spread = choices.candidates(offer, obs), choices.spread
    play, near = (play, play) if spread is None else jax.random.split(play)
    index, every = played(acquisition, play, question, candidates, mask)
    if spread is None:
        value, chance = choices.action(candidates, index), jnp.nan if every is None else every[index]
    elif acquisition.law is None or every is None:  # the best of the points itself has no density
        value, chance, every = choices.action(candidates, index), jnp.nan, None
    else:
        (value, chance), every = spread(near, candidates, every, index), None
    propensity = jnp.where(choices.sound(obs) & (chance > 0) & (chance < jnp.inf), chance, jnp.nan)
    return Action(value, propensity, every)


def _unmasked(observation: PyTree) -> tuple[PyTree, Array | None]:
    return observation if isinstance(observation, Masked) else (observation, None)
