"""An agent from a filter and a policy: the policy scores actions by the belief, which is updated with the feedback."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.agents.inputs import as_floats, checked
from seqdec.agents.networks import check_candidates
from seqdec.checks import count
from seqdec.core import (
    Acquisition,
    Action,
    Agent,
    Array,
    Assessment,
    Filter,
    HasSpaces,
    Key,
    Marginals,
    Masked,
    Posterior,
    PyTree,
)
from seqdec.filters import posterior
from seqdec.params import at_least_float32
from seqdec.policies.common import marginals
from seqdec.spaces import is_sound, moderate, refused_actions, refused_observations, spaces_of

_WHOLE = 2**24
"""Largest integer up to which float32, in which models take actions, has all of them."""
_POINTS = 256
"""Points of a box that are offered for a decision, where the user does not say how many."""
_MANY, _BLOCK = 64, 256
"""Candidates beyond which their covariance is not computed for the sake of its diagonal; how many at a time."""


class Choices(NamedTuple):
    """How the actions of a space become candidates of a posterior, and back."""

    candidates: Callable[[Key, PyTree], PyTree]
    """(key, observation) -> what the model is applied to, one response per candidate"""
    action: Callable[[PyTree, Array], Array]
    """(candidates, index) -> action"""
    evidence: Callable[[PyTree, Array, Array], tuple[PyTree, Array, Array | None]]
    """(observation, action, feedback) -> x, y, observed of a filter's update"""
    sound: Callable[[PyTree], Array]
    """(observation) -> () bool: no number is NaN, infinite or too large, integers are in the range of the space"""
    indexed: bool
    """whether the candidates are all actions, in their order"""


def decide(key: Key, acquisition: Acquisition, question: Posterior, choices: Choices, observation: PyTree) -> Action:
    """Score the candidates of the observation and play the best; see `Action.propensity` for what has no score."""
    obs, mask = (observation.observation, observation.mask) if isinstance(observation, Masked) else (observation, None)
    offer, score, estimate = jax.random.split(key, 3)
    candidates = choices.candidates(offer, obs)
    scores = acquisition.score(score, question, candidates, mask)
    index = jnp.argmax(scores)
    every = None
    if acquisition.probabilities is None:
        propensity = jnp.full((), jnp.nan)
    else:
        if acquisition.probability is None:
            every = acquisition.probabilities(estimate, question, candidates, mask)
            propensity = every[index]
        else:
            propensity = acquisition.probability(estimate, question, candidates, mask, index)
        propensity = jnp.where(choices.sound(obs) & jnp.isfinite(scores[index]), propensity, jnp.nan)
    return Action(choices.action(candidates, index), propensity, every if choices.indexed else None)


def assessing(
    acquisition: Acquisition,
    question: Callable[[Any], Posterior],
    choices: Choices,
    spaces: HasSpaces,
    *,
    uncertain: bool = True,
) -> Callable[[Key, Any, PyTree], Assessment] | None:
    """`Agent.assess` of an agent that acts by `decide`; None for Box actions, of which there are too many.

    Args:
        acquisition: the policy.
        question: (state) -> posterior.
        choices: of the space.
        spaces: of the agent.
        uncertain: whether the posterior has more than means.
    """
    if not isinstance(spaces.action_space, gym_spaces.Discrete):
        return None

    def assess(key, state, observation):
        obs, mask = (
            (observation.observation, observation.mask) if isinstance(observation, Masked) else (observation, None)
        )
        offer, _, estimate = jax.random.split(key, 3)
        posterior, candidates = question(state), choices.candidates(offer, obs)
        mean = posterior.mean(candidates)
        unknown = jnp.full_like(mean, jnp.nan)
        variance = marginals(posterior, candidates).variance if uncertain else unknown
        probability = unknown
        if acquisition.probabilities is not None:
            probability = acquisition.probabilities(estimate, posterior, candidates, mask)
        return Assessment(mean, variance, probability)

    return assess


def discrete_choices(observe: Callable[[PyTree], Array], sound: Callable[[PyTree], Array], num_actions: int) -> Choices:
    """One response of the model per action."""

    def evidence(observation, action, feedback):
        # JAX would clamp an index out of range silently; with a NaN reward the filter rejects the update.
        feedback = as_floats(feedback)
        played = sound(observation) & moderate(feedback)
        if feedback.ndim == 1:
            return observe(observation), jnp.where(played, feedback, jnp.nan), None
        index = jnp.asarray(action)
        played &= (index >= 0) & (index < num_actions)
        return observe(observation), jnp.where(played, feedback, jnp.nan), jnp.clip(index, 0, num_actions - 1)

    return Choices(
        lambda key, observation: observe(observation), lambda candidates, index: index, evidence, sound, True
    )


def box_choices(
    observe: Callable[[PyTree], Array], sound: Callable[[PyTree], Array], space: gym_spaces.Box, num_candidates: int
) -> Choices:
    """Uniform points of the box, in its dtype; the model's input is the observation and the point, concatenated."""
    dtype = jax.dtypes.canonicalize_dtype(space.dtype)
    whole = not jnp.issubdtype(dtype, jnp.floating)
    low, high = (bound.ravel() for bound in (map(jnp.int32, (space.low, space.high)) if whole else limits(space)))

    def join(observation, points):
        context = jnp.broadcast_to(jnp.ravel(observe(observation)), (len(points), observe(observation).size))
        wide = at_least_float32(context.dtype, points.dtype)
        return jnp.concatenate([context.astype(wide), points.astype(wide)], axis=1)

    def candidates(key, observation):
        shape = (num_candidates, low.size)
        if whole:
            bounds = (jnp.broadcast_to(bound, shape) for bound in (low, high + 1))
            return join(observation, jax.random.randint(key, shape, *bounds))
        return join(observation, jax.random.uniform(key, shape, minval=low, maxval=high).astype(dtype))

    def evidence(observation, action, feedback):
        response = jnp.atleast_1d(as_floats(feedback))
        response = jnp.where(sound(observation) & moderate(response), response, jnp.nan)
        return join(observation, jnp.ravel(action)[None]), response, None

    def action(rows, index):
        return rows[index, rows.shape[1] - low.size :].reshape(space.shape).astype(dtype)

    return Choices(candidates, action, evidence, sound, indexed=False)


def limits(space: gym_spaces.Box) -> tuple[Array, Array]:
    """The least and the largest points of a box of floats among those of 32 bits."""
    low, high = (bound.astype(np.float32) for bound in (space.low, space.high))
    inner = np.where(low < space.low, np.nextafter(low, np.float32(np.inf)), low)
    outer = np.where(high > space.high, np.nextafter(high, np.float32(-np.inf)), high)
    return jnp.asarray(inner), jnp.asarray(np.maximum(inner, outer))


def choices_for(spaces: HasSpaces, num_candidates: int | None = None) -> Choices:
    """`Choices` for Discrete or bounded Box actions, and Box or Discrete observations or a Dict of candidates.

    Raises:
        TypeError: another kind of space, or num_candidates is not an integer.
        ValueError: the action box is unbounded, num_candidates < 1, or it is given for Discrete actions.
    """
    spaces = spaces_of(spaces)
    actions, sound = spaces.action_space, functools.partial(is_sound, spaces.observation_space)
    if num_candidates is not None:
        num_candidates = count("num_candidates", num_candidates)
        if isinstance(actions, gym_spaces.Discrete):
            raise ValueError(
                f"num_candidates={num_candidates} has no effect on {actions}, of which all are scored: leave it out"
            )
    if isinstance(spaces.observation_space, gym_spaces.Dict) and isinstance(actions, gym_spaces.Discrete):
        check_candidates(spaces)
        return discrete_choices(lambda observation: jax.tree.map(_wide, observation), sound, int(actions.n))
    observe = _observer(spaces.observation_space)
    if isinstance(actions, gym_spaces.Discrete):
        return discrete_choices(observe, sound, int(actions.n))
    if not isinstance(actions, gym_spaces.Box):
        raise TypeError(refused_actions(actions))
    if not actions.is_bounded():
        raise ValueError(refused_actions(actions))
    whole = actions.low.size and not np.issubdtype(actions.dtype, np.floating)
    if whole and max(-int(actions.low.min()), int(actions.high.max())) > _WHOLE:
        raise ValueError(f"a Box of integers must lie within -{_WHOLE} and {_WHOLE}, for float32; got {actions}")
    return box_choices(observe, sound, actions, _POINTS if num_candidates is None else num_candidates)


def drawn(num_candidates: int | None) -> dict[str, int]:
    """The setting of the number of candidates, where it is not the default."""
    return {} if num_candidates is None else {"num_candidates": num_candidates}


def _wide(values: Any) -> Array:
    """Floats with 32 bits at least, because linear algebra has none that are narrower; integers as they are."""
    values = jnp.asarray(values)
    narrow = jnp.issubdtype(values.dtype, jnp.floating) and values.dtype.itemsize < 4
    return values.astype(jnp.float32) if narrow else values


def _observer(space: gym_spaces.Space) -> Callable[[PyTree], Array]:
    if isinstance(space, gym_spaces.Discrete):
        return lambda observation: jax.nn.one_hot(jnp.asarray(observation) - int(space.start), int(space.n))
    if isinstance(space, gym_spaces.Box):
        floating = np.issubdtype(space.dtype, np.floating)
        return _wide if floating else lambda observation: jnp.asarray(observation, jnp.float32)
    raise TypeError(refused_observations(space))


def _one_by_one(flt: Filter, belief: PyTree) -> Callable[[PyTree], Marginals]:
    """Marginals of candidates, each from its row alone: O(n) for n of them, where their Jacobian is O(n^2)."""

    def alone(row):
        at = flt.moments(belief, jax.tree.map(lambda leaf: leaf[None], row))
        return Marginals(at.mean[0], at.cov[0, 0], at.noise[0, 0])

    return lambda candidates: jax.lax.map(alone, candidates, batch_size=_BLOCK)


def filtering(
    flt: Filter,
    acquisition: Acquisition,
    init: Callable[[Key], PyTree],
    spaces: HasSpaces,
    *,
    name: str,
    settings: Mapping[str, Any],
    num_candidates: int | None = None,
) -> Agent:
    """Filter x policy.

    Each update is a `Filter.predict` followed by a `Filter.update`. Scalar feedback is the response of the action, a
    vector that of every action. An update with an action out of range, or with numbers that are not finite or as large
    as 1e15, is rejected.

    Args:
        flt: belief over a network with one response per Discrete action; for Box actions over one that takes rows of
            observation and action, concatenated (`seqdec.models.per_candidate`).
        acquisition: policy.
        init: (key) -> initial parameters of the network.
        spaces: anything with observation_space and action_space.
        name: shown in tables and figures.
        settings: recorded in the manifest of a run.
        num_candidates: points drawn per decision, for Box actions only; None is 256.

    Raises:
        TypeError: spaces of other kinds than Box and Discrete.
        ValueError: an unbounded box of actions.
    """
    choices = choices_for(spaces, num_candidates)
    actions = spaces.action_space
    many = isinstance(actions, gym_spaces.Discrete) and int(actions.n) > _MANY
    many = many and isinstance(spaces.observation_space, gym_spaces.Dict)

    def start(key):
        network, belief = jax.random.split(key)
        return flt.init(belief, init(network))

    def question(state):
        asked = posterior(flt, state)
        return asked._replace(marginals=_one_by_one(flt, state)) if many else asked

    def act(key, state, observation):
        return decide(key, acquisition, question(state), choices, observation)

    def update(state, observation, action, feedback):
        obs = observation.observation if isinstance(observation, Masked) else observation
        return flt.update(flt.predict(state), *choices.evidence(obs, action, feedback))

    def update_batch(state, observations, actions, rewards):
        assert flt.update_batch is not None
        obs = observations.observation if isinstance(observations, Masked) else observations
        return flt.update_batch(flt.predict(state), *jax.vmap(choices.evidence)(obs, actions, rewards))

    def act_batch(keys, state, observations):
        assert flt.marginals is not None
        question = posterior(flt, state)._replace(marginals=flt.marginals(state))
        return jax.vmap(lambda key, seen: decide(key, acquisition, question, choices, seen))(keys, observations)

    several = (
        update_batch if flt.update_batch is not None else None,
        act_batch if flt.marginals is not None else None,
    )
    told = {**settings, **drawn(num_candidates)}
    assess = assessing(acquisition, question, choices, spaces)
    return checked(Agent(start, act, update, name, acquisition.exact, told, *several, assess=assess), spaces)
