r"""One agent for contexts of numbers and for images: linear and learnt regressions, weighted by what they foretold.

Members. Each is a Bayesian regression with a weight vector for each action and an estimated noise variance
(`seqdec.agents.regression`); how they are weighted, and how some of them forget, is told in `seqdec.agents.mixture`.
With z the context in standard units (`seqdec.agents.units`), linear members have the features (z, 3) and (10 z, 3), the
other ((z, h(z), 1) / sqrt(10), 3), h the last hidden units of a network. Contexts of more than 256 numbers, such as
images, have the latter only, without z, as they are. With a half-life the first and the last have twins that forget.

Features. Each step takes one AdamW step on a minibatch of the memory, on half the squared error of the network's
output for rewards in standard units. All parameters shrink by learning_rate min(1, decay / t) a step, as under a prior
that t observations outweigh. The regression has a copy of the network whose parameters are averages over the last steps
(`seqdec.agents.averaging`). It is renewed at t = 16, 32, 48, ..., later every t / 10 steps: the belief is then
recomputed from the rows of the memory with the new features. Between these steps it is updated by each reward exactly.

Cost of a step, for n actions, F features with the network and b rows in a minibatch: O(n F^2) to act, O(F^2) and b
gradients to learn, and O(n F^3) in every fourth of a half-life. Recomputing costs a forward pass and O(n F^2) for
each row that it takes, at most 8,192, and O(n F^3).

Source: neural-linear: Riquelme, Tucker, Snoek, "Deep Bayesian Bandits Showdown", 2018.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from gymnasium import spaces as gym_spaces

from seqdec import checks, linalg, models, policies
from seqdec import memory as memories
from seqdec.agents import mixture, regression, rewards, units
from seqdec.agents._averaging import moved
from seqdec.agents._filtering import choices_for, decide, drawn
from seqdec.agents._neural import descend, mean_of_rows
from seqdec.agents.experience import Batch, finite, first, key_numbers, minibatch, recorder, remember, usable
from seqdec.agents.inputs import checked, refuse_unused, spaces_of
from seqdec.agents.last_layer import LastLayer, last_layer
from seqdec.agents.mixture import Kind
from seqdec.agents.networks import network_for
from seqdec.agents.presets import hilofi
from seqdec.agents.regression import Answer, Regression
from seqdec.agents.rewards import Rewards
from seqdec.agents.units import Units
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Network, Posterior, PyTree
from seqdec.memory import MemoryState
from seqdec.optim.common import promoting

_DEEP_STD = 0.1**0.5
"""Prior standard deviation of the weights with a network, in that of the noise."""
_FREE_STD = 10.0
"""That of the linear member for rewards nearly free of noise; the other linear members have 1."""
_ROWS, _BLOCK = 8192, 256
"""Rows of the memory that the belief is recomputed from, if there are more, a random draw; rows of it at a time."""
_FIRST, _OFTEN = 16, 10
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
    members: tuple[Regression, ...]
    """linear ones, if contexts are few numbers, and those with the network: (K, ...) each"""
    log_weights: Array
    """(members,), the largest is 0"""
    contexts: Units
    rewards: Rewards
    memory: MemoryState
    due: Array
    """() int32, the step of the next recomputation"""
    key: Array
    """data of the key of all draws from the memory, never changed"""


class AutoInfo(NamedTuple):
    """Result of an update."""

    innovation: Array
    """(o,) observed minus predicted reward, before the update"""
    weights: Array
    """(members,) after the update"""
    rejected: Array
    """() bool: the input or the result was not finite, and the state is unchanged"""


class _Parts(NamedTuple):
    """What an agent is made of."""

    network: Network
    layer: LastLayer
    raw: bool
    """whether contexts are few numbers, which the regressions see in standard units"""
    neglect: float
    groups: tuple[tuple[Kind, ...], ...]
    """of members with the same features"""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Of all members."""
        return tuple(kind for kinds in self.groups for kind in kinds)


def auto(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "epistemic_sampling",
    model: nn.Module | Network | None = None,
    learning_rate: float = 1e-3,
    batch_size: int = 32,
    capacity: int = 20_000,
    decay: float = 1000.0,
    horizon: float = 1000.0,
    half_life: float | None = None,
    neglect: float | None = None,
    average: float = 0.99,
    num_candidates: int | None = None,
) -> Agent:
    """The default agent: no setting depends on the unit, the noise or the linearity of the rewards.

    For Box actions, and for observations that are a Dict of candidates, it is `seqdec.agents.hilofi`.

    Args:
        spaces: anything with observation_space and action_space.
        policy: name or acquisition of `seqdec.policies`; the joint moments are those at the head of
            `seqdec.agents.regression`, functions are drawn at the full posterior variance.
        model: a flax module or `seqdec.models.Network` whose output layer is dense, with one output per action; None
            is an MLP with two hidden layers of 50 units whose output layer sees the context too, for images LeNet5.
        learning_rate: of AdamW.
        batch_size: rows of a minibatch, the newest included.
        capacity: rows of the memory, a uniform sample of all observations.
        decay: steps after which the weights of the network begin to shrink less.
        horizon: steps after which a prediction counts e times less in the members' weights.
        half_life: steps after which an observation counts half as much to the members that forget, for a world that
            changes, such as 200; None is without such members, which cost some regret where nothing changes.
        neglect: an action that was played near the context less than one in neglect x n times is explored at the full
            posterior variance, others in proportion less; None is the numbers in a context, between 2 and 20.
        average: in [0, 1); the features are those of the average over the last 1 / (1 - average) steps.
        num_candidates: points drawn per decision, for Box actions only; None is 256.

    Raises TypeError or ValueError for a space or a setting that does not fit.
    """
    acquisition, called = policies.resolve(policy)
    told = {
        "learning_rate": learning_rate, "batch_size": batch_size, "capacity": capacity, "decay": decay,
        "horizon": horizon, "half_life": half_life, "neglect": neglect, "average": average,
    }  # fmt: skip
    spaces = spaces_of(spaces)
    discrete = isinstance(spaces.action_space, gym_spaces.Discrete)
    if not discrete or isinstance(spaces.observation_space, gym_spaces.Dict):
        refuse_unused(auto, told, "for candidates and for Box actions, where auto is hilofi")
        made = hilofi(spaces, policy=policy, model=model, num_candidates=num_candidates)
        return made._replace(name="auto", settings={"policy": called, **drawn(num_candidates)})
    checks.positive("learning_rate", learning_rate)
    batch_size = checks.count("batch_size", batch_size)
    capacity = checks.count("capacity", capacity)
    checks.number("decay", decay)
    checks.positive("horizon", horizon)
    if half_life is not None:
        checks.number("half_life", half_life, 0, regression.LONGEST, exclusive=True)
    if neglect is not None:
        checks.positive("neglect", neglect)
    checks.number("average", average, 0, 1)
    choices = choices_for(spaces, num_candidates)
    recording = recorder(choices, spaces)
    example = recording.example._replace(step=jax.ShapeDtypeStruct((), jnp.int32))
    numbers = recording.example.x.size
    width = regression.neglect_for(numbers) if neglect is None else neglect
    parts = _parts(spaces, model, recording.example.x.shape, width, half_life)
    memory, transform = memories.reservoir(capacity), promoting(optax.adam(learning_rate))
    actions = int(spaces.action_space.n)  # pyright: ignore[reportAttributeAccessIssue] (Discrete)

    def init(key):
        weights, draws = jax.random.split(key)
        params = parts.network.init(weights)
        averaged, features = (jax.tree.map(jnp.copy, params) for _ in range(2))  # an array can be donated once
        sizes = ([recording.example.x.size + 1] if parts.raw else []) + [parts.layer.size + 1]
        members = tuple(mixture.prior(kinds, actions, size) for kinds, size in zip(parts.groups, sizes, strict=True))
        return AutoState(
            params, transform.init(params), averaged, features, members, mixture.log_weights(parts.kinds),
            units.unknown(recording.example.x.shape), rewards.unknown(), memory.init(example),
            jnp.int32(_FIRST), key_numbers(draws),
        )  # fmt: skip

    def act(key, state, observation):
        return decide(key, acquisition, _posterior(parts, state), choices, observation)

    def update(state, observation, action, feedback):
        newest, single = recording.rows(observation, action, feedback), jnp.ndim(feedback) == 0
        row = first(newest)
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.memory.seen)
        add, draw, again = jax.random.split(key, 3)
        good = usable(newest)
        error = regression.innovation(_mixed(_answers(parts, state, row.x), state.log_weights).mean, row, single)
        x = units.cut(state.contexts, row.x) if parts.raw else row.x
        contexts = units.measured(state.contexts, x[None], good[None])
        seen, y = rewards.measured(state.rewards, row.y, good & row.observed)
        steps = state.memory.seen + 1
        row = row._replace(x=x.astype(row.x.dtype), y=y.astype(row.y.dtype), step=steps)
        newest = jax.tree.map(lambda leaf: leaf[None], row)
        phis = _features(parts, state.features, _inputs(parts, contexts, row.x))
        pairs, location = zip(state.members, phis, strict=True), rewards.location(seen)
        learnt = [mixture.learn(*pair, row, location, single, good) for pair in pairs]
        densities = jnp.concatenate([density for _, density in learnt])
        members = [
            mixture.forgotten(kinds, belief, steps, good)
            for kinds, (belief, _) in zip(parts.groups, learnt, strict=True)
        ]

        def batch_of(key):
            return minibatch(memory, key, state.memory, newest, batch_size)

        def loss(params, batch):
            return _loss(parts, contexts, seen, params, batch)

        trained = state.params, state.optimizer
        (params, moments), _, _ = descend(loss, transform, trained, batch_of, draw[None])
        shrink = learning_rate * jnp.minimum(1, decay / steps.astype(float))
        params = jax.tree.map(lambda leaf: (1 - shrink).astype(leaf.dtype) * leaf, params)
        fresh = state._replace(
            params=params, optimizer=moments, average=moved(state.average, params, steps, average),
            members=tuple(members), contexts=contexts, rewards=seen,
            log_weights=mixture.reweighted(parts.kinds, state.log_weights, densities, horizon), memory=None,
        )  # fmt: skip
        good = good & finite(fresh)
        kept = jax.tree.map(lambda new, old: jnp.where(good, new, old), fresh, state._replace(memory=None))
        stored = remember(memory, add, state.memory, newest, good)
        state = _renewed(parts, again, kept._replace(memory=stored))
        return state, AutoInfo(error, jax.nn.softmax(state.log_weights), ~good)

    return checked(Agent(init, act, update, "auto", acquisition.exact, {"policy": called, **told}), spaces)


def _parts(
    spaces: HasSpaces,
    model: nn.Module | Network | None,
    shape: tuple[int, ...],
    neglect: float,
    half_life: float | None,
) -> _Parts:
    """The network and its last layer, for contexts of this shape."""
    actions = int(spaces.action_space.n)  # pyright: ignore[reportAttributeAccessIssue] (Discrete)
    raw = units.few(shape)
    network = network_for(spaces, models.MLP(actions, skip=True) if model is None and raw else model)
    layer = last_layer(network)
    if layer.groups != actions:
        raise ValueError(
            f"auto needs an output layer in which each of the {actions} actions has parameters of its own, as in a "
            "dense layer; use hilofi for other networks"
        )
    linear = Kind(), Kind(_FREE_STD), Kind(half_life=half_life)
    deep = Kind(_DEEP_STD), Kind(_DEEP_STD, half_life)
    if half_life is None:
        linear, deep = linear[:-1], deep[:-1]
    return _Parts(network, layer, raw, neglect, (linear, deep) if raw else (deep,))


def _inputs(parts: _Parts, contexts: Units, x: Array) -> Array:
    """What the network sees: few numbers in standard units, many as they are."""
    return units.bounded(contexts, x) if parts.raw else x


def _features(parts: _Parts, params: PyTree, inputs: Array) -> tuple[Array, ...]:
    """The features of the members, (K, F) for each group."""
    _, phi = parts.layer.features(params, inputs)
    shared = (inputs, phi[0]) if parts.raw else (phi[0],)
    return tuple(mixture.features(kinds, z) for kinds, z in zip(parts.groups, shared, strict=True))


def _answers(parts: _Parts, state: AutoState, x: Array) -> Answer:
    """The members' predictions, (members, n) each."""
    phis = _features(parts, state.features, _inputs(parts, state.contexts, x))
    location, pairs = rewards.location(state.rewards), zip(state.members, phis, strict=True)
    each = [mixture.answers(*pair, location, parts.neglect) for pair in pairs]
    stacked = jax.tree.map(lambda *rows: jnp.concatenate(rows), *each)
    return stacked._replace(mean=stacked.mean + state.rewards.origin)


def _mixed(answers: Answer, log_weights: Array) -> Answer:
    """Weighted means over the members."""
    return jax.tree.map(lambda rows: jax.nn.softmax(log_weights) @ rows, answers)


def _posterior(parts: _Parts, state: AutoState) -> Posterior:
    def draw(key):
        """A member by its weight, and weights from its belief."""
        chosen, *keys = jax.random.split(key, len(state.members) + 1)
        member = jax.random.categorical(chosen, state.log_weights)
        location = rewards.location(state.rewards)
        weights = [mixture.drawn(*pair, location) for pair in zip(keys, state.members, strict=True)]

        def function(x):
            phis = _features(parts, state.features, _inputs(parts, state.contexts, x))
            responses = [jnp.einsum("knf,kf->kn", rows, phi) for rows, phi in zip(weights, phis, strict=True)]
            return jnp.concatenate(responses)[member] + state.rewards.origin

        return function

    return regression.question(lambda x: _mixed(_answers(parts, state, x), state.log_weights), draw)


def _loss(parts: _Parts, contexts: Units, seen: Rewards, params: PyTree, batch: Batch):
    """Half the squared error in standard units, as `seqdec.agents._neural.descend` takes it."""
    inputs = jax.vmap(lambda x: _inputs(parts, contexts, x))(batch.rows.x)
    responses = jax.vmap(parts.network.apply, (None, 0))(params, inputs)
    error = rewards.standard(seen, batch.rows.y) - responses.astype(batch.rows.y.dtype)
    return mean_of_rows(0.5 * error**2, batch), (responses, ())


def _renewed(parts: _Parts, key: Array, state: AutoState) -> AutoState:
    """The state with the members recomputed for the features of the present network, if this is due."""
    half_lives = np.array([kind.half_life or np.inf for kind in parts.groups[-1]])
    most = min(_ROWS, len(state.memory.rows.y))

    def renew(kept, params, contexts, memory, key):
        filled = memories.filled(memory)
        draws = jax.random.randint(jax.random.wrap_key_data(key), (most,), 0, filled, filled.dtype)
        used = jnp.minimum(filled, most)

        def block(index, moments):
            places = jnp.asarray(index * _BLOCK, jnp.int32) + jnp.arange(_BLOCK, dtype=jnp.int32)
            weights = jnp.where(places < used, memory.seen / used, 0).astype(float)
            places = jnp.minimum(places, most - 1)
            which = jnp.where(filled <= most, places, draws[places])
            rows = jax.tree.map(lambda leaf: leaf[which], memory.rows)
            phi = jax.vmap(lambda x: _features(parts, params, _inputs(parts, contexts, x))[-1])(rows.x)
            age = (memory.seen - rows.step).astype(weights.dtype)
            faded = weights[None] * 0.5 ** (age[None] / half_lives[:, None].astype(weights.dtype))
            return jax.vmap(regression.added, (0, 1, None, None, 0))(moments, phi, rows.y, rows.observed, faded)

        moments = jax.vmap(regression.no_rows)(kept[0])
        moments = jax.lax.fori_loop(0, (used + _BLOCK - 1) // _BLOCK, block, moments)
        later = memory.seen + jnp.maximum(_FIRST, memory.seen // _OFTEN)
        return jax.lax.map(lambda each: regression.recomputed(*each), (kept[0], moments)), params, later

    kept = state.members[-1], state.features, state.due
    due = state.memory.seen >= state.due
    given = state.average, state.contexts, state.memory, jax.random.key_data(key)
    deep, features, due = linalg.cond_any(due, renew, kept, *given)
    return state._replace(members=(*state.members[:-1], deep), features=features, due=due)
