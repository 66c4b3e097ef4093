r"""Default agent: a mixture of Bayesian regressions on raw and learned features, in standard units.

Members. Each is a regression with estimated noise variance (`seqdec.agents.regression.conjugate`), weighted by
`seqdec.agents.regression.mixture`: for contexts with a weight vector per action, for candidates and Box actions with
one for all rows. With z features in standard units (`seqdec.agents.regression.features`), members have (r z, 3), with
r = 1 and r = 10; with the second features of rows r = 1 and 3, with the third r = 1; without covariances r = 1 and 0.3.
The last has the hidden units h of a network, ((z, h(z), 1) / sqrt(10), 3). Those with z or h and the smallest r have
copies that forget with half-lives of 32, 128, 512 and 2,048 steps, the shorter ones only with fewer weights than steps,
and two with z learn rewards minus their running mean. For contexts of at most 256 numbers one more member is linear in
the logarithms of rewards (`seqdec.agents.regression.logs`), for longer ones in few of their columns
(`seqdec.agents.regression.sparse`).

Network. Each step takes one step of Adam on half the squared error, over the newest row and a minibatch of the memory.
Parameters shrink by learning_rate min(1, 1000 / t) a step. The features come from the average of the parameters over
the last 100 steps (`seqdec.agents.averaging`), renewed at t = 16, 32, 48, ..., later every t / 10 steps: members with
learned features, further row features, selected columns or logarithms are then recomputed from the memory, in the
current units. In between each reward updates them exactly.

Contexts with more than 300 actions use `seqdec.agents.regression.pooled` instead, and contexts of a
`seqdec.features.SparseBox` use `seqdec.agents.regression.hashed`.

Cost of a step, for n actions or rows, F features and b rows in a minibatch: O(n F^2) to act, for draws on rows O(n F),
O(F^2) and b gradients to learn, and O(n F^3) in every fourth of a half-life. Renewal costs a forward pass and O(n F^2)
for each of at most 8,192 rows, and O(n F^3).

Source: neural-linear: Riquelme, Tucker, Snoek, "Deep Bayesian Bandits Showdown", 2018.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces as gym_spaces

from seqdec import linalg, models, policies
from seqdec import memory as memories
from seqdec import params as parameters
from seqdec.agents._neural.experience import Experience, finite, first, key_numbers, rows_of, usable
from seqdec.agents._neural.last_layer import last_layer
from seqdec.agents.assembly import agent
from seqdec.agents.inputs import refuse_unused
from seqdec.agents.networks import network_of_one
from seqdec.agents.regression import conjugate, logs, mixture, sparse, units
from seqdec.agents.regression.features import Inputs, inputs_of
from seqdec.agents.regression.hashed import hashed
from seqdec.agents.regression.mixture import Group, Kind, Mixture
from seqdec.agents.regression.pooled import pooled
from seqdec.agents.regression.units import Rewards, Units
from seqdec.agents.wrappers.averaging import moved
from seqdec.boundary import checks
from seqdec.boundary.spaces import spaces_of
from seqdec.boundary.sparse import SparseBox
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Learner, Network, PyTree
from seqdec.memory import MemoryState
from seqdec.modules import Model
from seqdec.optim.common import promoting

_FREE_STD, _WIDE_STD, _NARROW_STD, _DEEP_STD = 10.0, 3.0, 0.3, 0.1**0.5
"""r for rewards nearly free of noise, for the second features of rows, for many weak features, and with a network."""
_LOGS_WEIGHT = -4.0
"""Initial log weight of the member with logarithms of rewards."""
_ROWS, _BLOCK = 8192, 256
"""Most rows of the memory for renewal, evenly spread; rows at a time."""
_FIRST, _OFTEN = 16, 10
"""Steps between the first renewals, and renewals while the number of observations grows e times."""
_DECAY, _AVERAGE = 1000.0, 0.99
"""Steps after which weight decay shrinks; a of the average of parameters."""
_ACTIONS = 300
"""Most actions of contexts with a network."""
_LASTING, _LEVELS = 2048, (math.inf, 512.0)
"""Half-life that suffices for any number of weights; half-lives of members with a level."""
_SCALE = 0.5
"""Scale of draws for candidates and Box actions."""


class AutoState(NamedTuple):
    """State of the agent, except that of `seqdec.agents.pooled`."""

    params: Array
    """(D,) of the network in training"""
    optimizer: Any
    average: Array
    """(D,) of the last steps"""
    features: Array
    """(D,) of the network of the members' features"""
    mixture: Mixture
    contexts: Units
    rewards: Rewards
    memory: MemoryState
    """rows in their own units, responses counted from the first reward"""
    due: Array
    """() int32, the step of the next renewal"""
    key: Array
    """data of the constant key of draws from the memory"""


class AutoInfo(NamedTuple):
    """Result of an update."""

    innovation: Array
    """(o,) observed minus predicted reward before the update"""
    weights: Array
    """(members,) after the update, by all rewards"""
    rejected: Array
    """() bool: input not finite, state unchanged"""


def auto(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition | None = None,
    model: Model | None = None,
    learning_rate: float = 1e-3,
    batch_size: int = 32,
    capacity: int = 20_000,
    half_lives: Sequence[float] = mixture.HALF_LIVES,
    num_candidates: int | None = None,
) -> Agent:
    """The default agent, without tuning for scale, noise or linearity of rewards.

    The default policy is

        candidates, Box actions                 thompson(scale=0.5)
        row numbers of more than 256 rows       tempered_sampling(20)
        contexts of at most two numbers         epistemic_sampling
        other contexts                          tempered_sampling with the number of entries that vary, at most 20

    >>> import seqdec
    >>> env = seqdec.envs.linear()
    >>> agent = seqdec.agents.auto(env)
    >>> agent.name
    'auto'

    Args:
        spaces: with observation_space and action_space.
        policy: name or acquisition of `seqdec.policies`. None: the default above.
        model: a flax module or `seqdec.models.Network` with a dense output layer and one output per action; None is
            an MLP with two hidden layers of 50 units whose output layer also sees the input, for images LeNet5, for
            candidates `seqdec.agents.scorer`, and for more than 300 actions in contexts of at most 256 numbers no
            network: `seqdec.agents.pooled`. For candidates and Box actions as in `seqdec.agents.hilofi`.
        learning_rate: learning rate of Adam, with decoupled shrinkage.
        batch_size: rows of a minibatch with the newest.
        capacity: rows of the memory, a uniform sample of all observations.
        half_lives: half-lives of the members that forget, in steps; those below 2,048 need at most as many weights as
            steps. (): for rewards that never change.
        num_candidates: points per decision, for Box actions only, and as many again near the best; None is 256.

    Raises TypeError or ValueError for a space or a setting that does not fit.
    """
    settings = {
        "learning_rate": learning_rate, "batch_size": batch_size, "capacity": capacity, "half_lives": half_lives,
    }  # fmt: skip
    spaces = spaces_of(spaces)
    if isinstance(spaces.observation_space, SparseBox):
        refuse_unused(
            auto, {"model": model, "num_candidates": num_candidates, **settings}, "for contexts of a SparseBox"
        )
        return hashed(spaces, policy=policy)._replace(name="auto")
    checks.positive("learning_rate", learning_rate)
    batch_size, capacity = checks.count("batch_size", batch_size), checks.count("capacity", capacity)
    for each in half_lives:
        checks.number("half_lives", each, 0, conjugate.LONGEST, exclusive=True)
    half_lives = tuple(map(float, half_lives))
    seen = rows_of(spaces).example.x
    inputs = inputs_of(spaces)
    by_row = isinstance(spaces.observation_space, gym_spaces.Dict)
    of_contexts = not by_row and isinstance(spaces.action_space, gym_spaces.Discrete)
    if of_contexts and inputs.responses > _ACTIONS and inputs.features and model is None:
        refuse_unused(auto, settings, f"for {inputs.responses} actions of contexts without a model")
        return pooled(spaces, policy=policy)._replace(name="auto")
    if model is None and inputs.features and not by_row:
        model = models.MLP(inputs.responses, skip=True)
    network, n = network_of_one(spaces, model), inputs.responses
    example = jax.eval_shape(lambda x: first(inputs.rows(x)), seen)
    groups = _groups(inputs, network, half_lives, of_contexts, example)
    by_columns = of_contexts and units.few(example.shape)
    leaves, structure = jax.tree.flatten(jax.eval_shape(network.init, jax.random.key(0)))
    transform, memory = promoting(optax.adam(learning_rate)), memories.reservoir(capacity)

    def tree(params):
        """Parameters of the network from a vector (D,)."""
        return structure.unflatten(parameters.unravel(params, leaves))

    def standard(contexts, row):
        return inputs.replaced(row, units.bounded(contexts, inputs.numbers(row)))

    def phis(params, contexts, rows):
        own = tree(params)
        return jax.vmap(lambda row: tuple(group.phis(own, standard(contexts, row)) for group in groups))(rows)

    def init(key):
        weights, draws = jax.random.split(key)
        params = parameters.ravel(jax.tree.leaves(network.init(weights)))
        row = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), example)
        contexts = units.unknown(inputs.numbers(row).shape)
        shapes = jax.eval_shape(phis, params, contexts, jax.tree.map(lambda leaf: leaf[None], row))
        return AutoState(
            params, transform.init(params), jnp.copy(params), jnp.copy(params),
            mixture.prior(groups, n, shapes), contexts, units.no_rewards(),
            memory.init(Experience(example, jnp.zeros(n), jnp.zeros(n, bool), step=jnp.int32(0))), jnp.int32(_FIRST),
            key_numbers(draws),
        )  # fmt: skip

    def update(state, x, y, observed=None, allowed=None):
        # k rows with the responses number `index` (o,) of each, y (k, o).
        rows = shown = inputs.rows(x)
        if observed is not None and not of_contexts:
            rows = jax.tree.map(lambda leaf: leaf[observed][None], rows)
        index = jnp.arange(n) if observed is None or not of_contexts else jnp.asarray(observed)[None]
        y = jnp.reshape(y, (-1, len(index)))
        good = usable((rows, y))

        # In standard units: those of contexts, and of all candidates that could be chosen.
        numbers = units.cut(state.contexts, jax.vmap(inputs.numbers)(shown))
        present = good & allowed if by_row and allowed is not None else good
        contexts = units.measured(state.contexts, numbers, jnp.broadcast_to(present, len(numbers)))
        cut = jax.vmap(lambda row: inputs.replaced(row, units.cut(state.contexts, inputs.numbers(row))))(rows)
        rows = jax.tree.map(lambda leaf, kept: leaf.astype(kept.dtype), cut, example)
        rewards, y = units.counted(state.rewards, y, good)

        # Into the memory, and a minibatch of it; one draw of bits for all that is random.
        seen, none = state.memory.seen, jnp.zeros((len(y), n))
        steps = seen + jnp.arange(1, len(y) + 1, dtype=jnp.int32)
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), seen)
        more = max(batch_size - len(y), 0)
        drawn = jax.random.uniform(key, (2 * len(y) + more + 1,))
        newest = Experience(rows, none.at[:, index].set(y), none.at[:, index].set(1) > 0, step=steps)
        stored = memories.sampled(state.memory, newest, drawn[: 2 * len(y)].reshape(2, -1), good)
        others = memories.rows_at(stored, drawn[2 * len(y) : -1])
        batch = jax.tree.map(lambda new, old: jnp.concatenate([new, old]), newest, others)

        # The network.
        def loss(params):
            own = tree(params)
            responses = jax.vmap(lambda row: network.apply(own, standard(contexts, row)))(batch.x)
            error = rewards.standard(batch.y) - responses.astype(batch.y.dtype)
            return jnp.sum(jnp.where(batch.observed, 0.5 * error**2, 0)) / len(error)

        step = steps[-1]
        moves, moments = transform.update(jax.grad(loss)(state.params), state.optimizer)
        shrink = learning_rate * jnp.minimum(1, _DECAY / step.astype(float))
        params = (1 - shrink).astype(state.params.dtype) * (state.params + moves)
        fresh = params, moments, moved(state.average, params, step, _AVERAGE)
        sound = good & finite(fresh)
        before = state.params, state.optimizer, state.average
        params, moments, averaged = jax.tree.map(lambda new, old: jnp.where(sound, new, old), fresh, before)

        # The members.
        known, error = mixture.learned(
            groups, state.mixture, phis(state.features, contexts, rows), y, index, steps, rewards, good
        )
        state = AutoState(
            params, moments, averaged, state.features, known, contexts, rewards, stored, state.due, state.key
        )
        return renewed(state, drawn[-1]), AutoInfo(error, jnp.sum(known.shares[0], 0), ~good)

    def renewed(state, start):
        """With the features of the averaged network if due; rows begin at `start` () in [0, 1)."""

        def renew(kept, params, contexts, memory, start):
            rows, seen, filled = memory.rows, memory.seen, memories.filled(memory)
            used = jnp.minimum(filled, _ROWS)

            def block(number):
                at = number.astype(jnp.int32) * _BLOCK + jnp.arange(_BLOCK, dtype=jnp.int32)
                counts = jnp.where(at < used, seen / used, 0).astype(float)
                at = jnp.where(filled <= _ROWS, at, ((at + start) * (filled / used)).astype(jnp.int32))
                own = jax.tree.map(lambda leaf: leaf[jnp.minimum(at, filled - 1)], rows)
                ages = (seen - own.step).astype(float)
                return phis(params, contexts, own.x), own.y, own.observed * counts[:, None], ages

            blocks = (used + _BLOCK - 1) // _BLOCK
            known = mixture.recomputed(groups, kept[0], rows.y, rows.observed, blocks, block)
            return known, params, seen + jnp.maximum(_FIRST, seen // _OFTEN)

        kept, given = (state.mixture, state.features, state.due), (state.average, state.contexts, state.memory, start)
        known, features, due = linalg.cond_any(state.memory.seen >= state.due, renew, kept, *given)
        return state._replace(mixture=known, features=features, due=due)

    def posterior(state):
        def seen(x):
            return phis(state.features, state.contexts, inputs.rows(x))

        at = mixture.posterior(groups, state.mixture, seen, state.rewards)
        return at._replace(varying=units.varying(state.contexts)) if by_columns else at

    usual = policies.thompson(scale=_SCALE)
    if of_contexts:
        usual = conjugate.usual_policy(math.prod(jax.tree.leaves(example)[0].shape))
    elif inputs.wide is not None:  # a draw of weights takes as many numbers as the tables have rows
        usual = conjugate.usual_policy(units.FEW)
    if policy is None:
        policy, settings = usual, {"policy": None, **settings}
    learner = Learner(init, update, posterior)
    return agent(learner, policy, spaces, name="auto", settings=settings, num_candidates=num_candidates, refine=True)


def _groups(
    inputs: Inputs, network: Network, half_lives: tuple[float, ...], of_contexts: bool, example: PyTree
) -> tuple[Group, ...]:
    layer = last_layer(network)
    if layer.groups != inputs.responses:
        raise ValueError(
            f"auto needs an output layer in which each of the {inputs.responses} actions has parameters of its own, as "
            "in a dense layer; use hilofi for other networks"
        )

    def ladder(scale, features, *given):
        """The member that remembers all, and those that forget."""
        weights = inputs.responses * math.prod(jax.eval_shape(features, *given, example).shape)
        least = min(weights, _LASTING)
        return tuple(Kind(scale, half_life) for half_life in (*half_lives, math.inf) if half_life >= least)

    levels = tuple(Kind(1.0, half_life, True) for half_life in _LEVELS) if half_lives else ()
    groups = []
    for place, of in enumerate(inputs.features):
        kinds = ((*ladder(1.0, of), Kind(_FREE_STD), *levels), (Kind(1.0), Kind(_WIDE_STD)), (Kind(1.0),))[
            min(place, 2)
        ]
        groups.append(Group(lambda params, row, of=of: of(row), kinds, renewed=place > 0))
    if inputs.wide is not None:
        wide, diagonal = inputs.wide, functools.partial(conjugate.prior, diagonal=True)
        kinds = (*ladder(1.0, wide), Kind(_NARROW_STD))
        groups.append(Group(lambda params, row: wide(row), kinds, diagonal))
    if inputs.sparse is not None:
        few = inputs.sparse
        groups.append(Group(lambda params, row: few(row), (Kind(1.0),), sparse.prior, renewed=True))
    if of_contexts and inputs.features:
        groups.append(Group(groups[0].features, (Kind(1.0),), logs.prior, _LOGS_WEIGHT, renewed=True))

    def hidden(params, row):
        return layer.features(params, row)[1][0]

    params = jax.eval_shape(network.init, jax.random.key(0))
    return (*groups, Group(hidden, ladder(_DEEP_STD, hidden, params), renewed=True))
