"""The members of `seqdec.agents.auto`: what they see, learn and answer, and how they follow the network."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces as gym_spaces

from seqdec import linalg, models
from seqdec import memory as memories
from seqdec.agents._neural.experience import (
    Batch,
    Experience,
    first,
)
from seqdec.agents._neural.last_layer import last_layer
from seqdec.agents._neural.loop import mean_of_rows
from seqdec.agents.networks import check_candidates, network_for
from seqdec.agents.regression import mixture, rewards, units, views
from seqdec.agents.regression import noise as noises
from seqdec.agents.regression.mixture import DIAGONAL, FULL, LOGS, Change, Form, Kind
from seqdec.agents.regression.nig import Answer, Regression
from seqdec.agents.regression.rewards import Rewards
from seqdec.agents.regression.units import Units
from seqdec.agents.regression.views import View
from seqdec.core import (
    Array,
    Marginals,
    Masked,
    Network,
    Posterior,
    Predictive,
    PyTree,
    Spaces,
)
from seqdec.memory import MemoryState
from seqdec.modules import Model
from seqdec.runtime import alike

_DEEP_STD = 0.1**0.5
"""Prior standard deviation of the weights with a network, in units of the noise's standard deviation."""
_FREE_STD = 10.0
"""That of the linear member for rewards nearly free of noise; the other linear members have 1."""
_NARROW_STD = 0.3
"""That of a member without covariances, for features that matter little each."""
_LOGS_WEIGHT = -20.0
"""Log weight of the member for logarithms before any observation: exponentials of few rewards are daring."""
_ROWS, _BLOCK = 8192, 256
"""Rows of the memory that the belief is recomputed from, if there are more, a random draw; rows of it at a time."""
FIRST, _OFTEN = 16, 10
"""Steps between the first recomputations, and recomputations while the number of observations grows e times."""


class AutoState(NamedTuple):
    """What the agent knows."""

    params: PyTree
    """of the network in training"""
    optimizer: Any
    average: PyTree
    """of the parameters over the last steps (`seqdec.agents.averaging`)"""
    features: PyTree
    """the copy of the network whose features the members have"""
    members: tuple[Any, ...]
    """(K, ...) a `Regression` or `Diagonal` for each kind of features, those with the network last"""
    log_weights: Array
    """(members,), the largest is 0"""
    change: Change
    contexts: Units
    rewards: Rewards
    memory: MemoryState
    due: Array
    """() int32, the step of the next recomputation"""
    key: Array
    """data of the key of all draws from the memory, never changed"""


class Group(NamedTuple):
    """Members with the same features."""

    kinds: tuple[Kind, ...]
    features: Callable[[PyTree, PyTree], Array]
    """(parameters of the network, its input) -> (F - 1,)"""
    form: Form = FULL
    renewed: bool = False
    """recomputed from the memory"""


class Parts(NamedTuple):
    """What an agent is made of."""

    network: Network
    view: View
    responses: int
    """n, of an input"""
    groups: tuple[Group, ...]
    """the last with the features of the network"""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Of all members."""
        return tuple(kind for group in self.groups for kind in group.kinds)


def parts_of(spaces: Spaces, model: Model | None, x: PyTree, half_life: float | None) -> Parts:
    """The members, and the network and its last layer, for inputs of the shapes of x."""
    actions, responses = spaces.action_space, 1
    by_row = isinstance(spaces.observation_space, gym_spaces.Dict)
    if by_row:
        check_candidates(spaces)
        view = views.of_candidates(spaces)
    elif isinstance(actions, gym_spaces.Discrete):
        view, responses = views.of_contexts(x.shape), int(actions.n)
    else:
        view = views.of_boxes(spaces, x.size - math.prod(actions.shape or ()))
    if model is None and view.features and not by_row:
        model = models.MLP(responses, skip=True)
    network = network_for(spaces, model)
    layer = last_layer(network)
    if layer.groups != responses:
        raise ValueError(
            f"auto needs an output layer in which each of the {responses} actions has parameters of its own, as in a "
            "dense layer; use hilofi for other networks"
        )
    forgetful = (Kind(half_life=half_life),) if half_life is not None else ()
    groups = [
        Group(((Kind(), Kind(_FREE_STD), *forgetful) if place == 0 else (Kind(),)), lambda params, x, of=of: of(x))
        for place, of in enumerate(view.features)
    ]
    if view.wide is not None:
        wide = view.wide
        kinds = (Kind(), Kind(_NARROW_STD), *forgetful)
        groups.append(Group(kinds, lambda params, x: wide(x), DIAGONAL))
    if responses > 1 and view.features:
        kinds = (Kind(log_weight=_LOGS_WEIGHT),)
        groups.append(Group(kinds, lambda params, x: view.features[0](x), LOGS, True))
    forgetful = (Kind(_DEEP_STD, half_life),) if half_life is not None else ()
    groups.append(Group((Kind(_DEEP_STD), *forgetful), lambda params, x: layer.features(params, x)[1][0], FULL, True))
    return Parts(network, view, responses, tuple(groups))


def inputs_of(parts: Parts, contexts: Units, x: PyTree) -> PyTree:
    """What the network sees: few numbers in standard units, many as they are."""
    view = parts.view
    return view.scaled(view.replaced(x, units.bounded(contexts, view.numbers(x))))


def measured(parts: Parts, contexts: Units, observation: PyTree, x: PyTree, good: Array) -> tuple[Units, PyTree]:
    """The units after a step with the inputs x (k, ...), and these with absurd numbers cut off."""
    view = parts.view
    numbers = units.cut(contexts, jax.vmap(view.numbers)(x))
    x = jax.tree.map(lambda new, old: new.astype(old.dtype), jax.vmap(view.replaced)(x, numbers), x)
    shown, present = numbers, jnp.broadcast_to(good, len(numbers))
    if view.shown is not None:
        context, mask = observation if isinstance(observation, Masked) else (observation, None)
        shown = units.cut(contexts, view.shown(context))
        present = jnp.broadcast_to(good, len(shown)) if mask is None else good & jnp.asarray(mask, bool)
    return units.measured(contexts, shown, present), x


def in_variance(seen: Rewards, error: Array) -> Array:
    """() mean squared error in the variance of the rewards."""
    variance = seen.units.squares / jnp.maximum(seen.units.seen, 1)
    return jnp.mean(error**2) / jnp.maximum(variance, jnp.finfo(variance.dtype).tiny ** 0.5)


def features_of(parts: Parts, params: PyTree, inputs: PyTree) -> tuple[Array, ...]:
    """The features of the members, (K, F) for each group."""
    return tuple(mixture.features(group.kinds, group.features(params, inputs)) for group in parts.groups)


def learned(
    parts: Parts, state: AutoState, contexts: Units, location: Array, rows: Experience, single: bool, good: Array
) -> tuple[tuple[Regression, ...], Array]:
    """The members after rows (k, ...), and the log densities (members,) of these."""

    def learn(members, row):
        phis = features_of(parts, state.features, inputs_of(parts, contexts, row.x))
        learned = [
            mixture.learn(group.form, belief, phi, row, location, single, good)
            for group, belief, phi in zip(parts.groups, members, phis, strict=True)
        ]
        fresh = [
            mixture.forgotten(group.form, group.kinds, belief, row.step, good)
            for group, (belief, _) in zip(parts.groups, learned, strict=True)
        ]
        return tuple(fresh), jnp.concatenate([density for _, density in learned])

    if len(rows.y) == 1:
        return learn(state.members, first(rows))
    members, densities = jax.lax.scan(learn, alike(state.members, rows), rows)
    return members, jnp.sum(densities, 0)


def answers_of(parts: Parts, state: AutoState, x: PyTree) -> Answer:
    """The members' predictions at an input, (members, n) each."""
    phis = features_of(parts, state.features, inputs_of(parts, state.contexts, x))
    location, given = rewards.location(state.rewards), zip(parts.groups, state.members, phis, strict=True)
    found = state.change.found
    each = [mixture.answers(group.form, group.kinds, members, phi, location, found) for group, members, phi in given]
    stacked = jax.tree.map(lambda *rows: jnp.concatenate(rows), *each)
    return stacked._replace(mean=stacked.mean + state.rewards.origin)


def mixed(answers: Answer, log_weights: Array) -> Marginals:
    """Moments of the mixture (...,), from those of its members (members, ...)."""
    weights = jax.nn.softmax(log_weights)
    mean = jnp.tensordot(weights, answers.mean, 1)
    return Marginals(
        mean,
        jnp.tensordot(weights, answers.variance + (answers.mean - mean[None]) ** 2, 1),
        jnp.tensordot(weights, answers.noise, 1),
    )


def posterior(parts: Parts, state: AutoState) -> Posterior:
    """Of the responses of a context, or of rows."""

    def under(weights, among):
        """(candidates) -> among(expected rewards (members, n)) under weights (K, n, F) of each group."""

        def function(x):
            phis = features_of(parts, state.features, inputs_of(parts, state.contexts, x))
            location, given = (
                rewards.location(state.rewards),
                zip(parts.groups, state.members, weights, phis, strict=True),
            )
            responses = [mixture.responses(group.form, kept, own, phi, location) for group, kept, own, phi in given]
            return among(jnp.concatenate(responses)) + state.rewards.origin

        return function if parts.responses > 1 else lambda x: jax.vmap(function)(parts.view.rows(x))[:, 0]

    def draw(key):
        """A member by its weight, and weights from its belief."""
        chosen, *keys = jax.random.split(key, len(state.members) + 1)
        member = jax.random.categorical(chosen, state.log_weights)
        location = rewards.location(state.rewards)
        given = zip(parts.groups, keys, state.members, strict=True)
        weights = [mixture.drawn(group.form, key, members, location) for group, key, members in given]
        return under(weights, lambda responses: responses[member])

    def mean(x):
        """In O(n F) for rows, whose moments take O(n F^2)."""
        location, given = rewards.location(state.rewards), zip(parts.groups, state.members, strict=True)
        weights = [mixture.expected(group.form, members, location) for group, members in given]
        return under(weights, lambda responses: jnp.tensordot(jax.nn.softmax(state.log_weights), responses, 1))(x)

    def answers(x):
        """Of the members, (members, n)."""
        if parts.responses > 1:
            return answers_of(parts, state, x)
        at = jax.vmap(functools.partial(answers_of, parts, state))(parts.view.rows(x))
        return jax.tree.map(lambda leaf: leaf[..., 0].T, at)

    def marginals(x):
        return mixed(answers(x), state.log_weights)

    def joint(x):
        at, weights = answers(x), jax.nn.softmax(state.log_weights)
        mean, _, noise = mixed(at, state.log_weights)
        errors = (at.mean - mean[None]) * jnp.sqrt(weights)[:, None]
        own = jnp.diag(weights @ at.variance) if parts.responses > 1 else shared(x, weights)
        return Predictive(mean, errors.mT @ errors + own, jnp.diag(noise))

    def shared(candidates, weights):
        """(b, b) weighted mean of the covariances of rows, whose weights are the same."""
        phis = jax.vmap(lambda x: features_of(parts, state.features, inputs_of(parts, state.contexts, x)))
        cov, place = jnp.zeros(()), 0
        given = zip(parts.groups, state.members, phis(parts.view.rows(candidates)), strict=True)
        for group, members, phi in given:
            own = weights[place : place + len(members.weights)] * jax.vmap(noises.variance)(members.noise)[:, 0]
            root = mixture.roots(group.form, members, phi)
            cov, place = cov + jnp.einsum("k,kbc,kdc->bd", own, root, root), place + len(own)
        return cov

    return Posterior(mean, joint, draw, marginals)


def loss_of(parts: Parts, contexts: Units, seen: Rewards, params: PyTree, batch: Batch):
    """Half the squared error in standard units, as `seqdec.agents._neural.loop.descend` takes it."""
    inputs = jax.vmap(lambda x: inputs_of(parts, contexts, x))(batch.rows.x)
    responses = jax.vmap(parts.network.apply, (None, 0))(params, inputs)
    error = rewards.standard(seen, batch.rows.y) - responses.astype(batch.rows.y.dtype)
    return mean_of_rows(0.5 * error**2, batch), (responses, ())


def renewed(parts: Parts, key: Array, state: AutoState) -> AutoState:
    """The state with members recomputed from the memory, for the features of the present network, if this is due."""
    groups = [(place, group) for place, group in enumerate(parts.groups) if group.renewed]
    most = min(_ROWS, len(state.memory.rows.y))

    def renew(kept, params, contexts, memory, key):
        filled = memories.filled(memory)
        draws = jax.random.randint(jax.random.wrap_key_data(key), (most,), 0, filled, filled.dtype)
        used = jnp.minimum(filled, most)
        present = memories.present(memory)
        begun = [
            mixture.begun(group.form, old, memory.rows, present)
            for (_, group), old in zip(groups, kept[0], strict=True)
        ]
        members, none = zip(*begun, strict=True)

        def block(index, sums):
            places = jnp.asarray(index * _BLOCK, jnp.int32) + jnp.arange(_BLOCK, dtype=jnp.int32)
            counts = jnp.where(places < used, memory.seen / used, 0).astype(float)
            places = jnp.minimum(places, most - 1)
            which = jnp.where(filled <= most, places, draws[places])
            rows = jax.tree.map(lambda leaf: leaf[which], memory.rows)
            phis = jax.vmap(lambda x: features_of(parts, params, inputs_of(parts, contexts, x)))(rows.x)
            ages = (memory.seen - rows.step).astype(counts.dtype)
            return tuple(
                mixture.added(group.form, group.kinds, each, old, phis[place], rows, counts, ages)
                for (place, group), each, old in zip(groups, sums, members, strict=True)
            )

        sums = jax.lax.fori_loop(0, (used + _BLOCK - 1) // _BLOCK, block, alike(none, members, memory))
        fresh = [mixture.recomputed(group.form, *each) for (_, group), *each in zip(groups, members, sums, strict=True)]
        return fresh, params, memory.seen + jnp.maximum(FIRST, memory.seen // _OFTEN)

    kept = [state.members[place] for place, _ in groups], state.features, state.due
    due = state.memory.seen >= state.due
    given = state.average, state.contexts, state.memory, jax.random.key_data(key)
    fresh, features, due = linalg.cond_any(due, renew, kept, *given)
    members = list(state.members)
    for (place, _), each in zip(groups, fresh, strict=True):
        members[place] = each
    return state._replace(members=tuple(members), features=features, due=due)
