r"""Default agent: Bayesian regressions on raw and learned features, weighted by their past predictive density.

Members. Each is a Bayesian regression with an estimated noise variance (`seqdec.agents.regression.nig`): for contexts
with a weight vector for each action, for candidates and Box actions with one for all rows. How they are weighted, and
how some of them forget once a change was found, is told in `seqdec.agents.regression.mixture`. With z the numbers in
standard units, linear members have the features (z, 3) and (10 z, 3); candidates and boxes have further features of z
(`seqdec.agents.regression.views`); the last has ((z, h(z), 1) / sqrt(10), 3), h the last hidden units of a network.
More than 256 numbers stay as they are, and the last is without z: of images it is the only one, and vectors x, such as
hashed words, have members without covariances (`seqdec.agents.regression.diagonal`) on (3 x / |x|, 3), at scale 1 and
0.3. The first and the last have twins that forget. Contexts of at most 256 numbers have one more member, linear in them
for the logarithms of rewards (`seqdec.agents.regression.logs`): for counts, costs and revenue.

Features. Each step takes one AdamW step on a minibatch of the memory, on half the squared error of the network's
output for rewards in standard units. All parameters shrink by learning_rate min(1, decay / t) a step, as under a prior
that t observations outweigh. The regression has a copy of the network whose parameters are averages over the last steps
(`seqdec.agents.averaging`). It is renewed at t = 16, 32, 48, ..., later every t / 10 steps: the belief is then
recomputed from the rows of the memory with the new features. Between these steps it is updated by each reward exactly.

Box actions are points drawn at random, and as many again near the best of them.

Cost of a step, for n actions or rows, F features with the network and b rows in a minibatch: O(n F^2) to act, for draws
on rows O(n F), O(F^2) and b gradients to learn, and O(n F^3) in every fourth of a half-life. Recomputing costs a
forward pass and O(n F^2) for each row that it takes, at most 8,192, and O(n F^3).

Source: neural-linear: Riquelme, Tucker, Snoek, "Deep Bayesian Bandits Showdown", 2018.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces as gym_spaces

from seqdec import memory as memories
from seqdec import policies
from seqdec.agents._filtering import assessing, choices_for, decide, drawn
from seqdec.agents._neural.experience import (
    finite,
    key_numbers,
    minibatch,
    recorder,
    remember,
    usable,
)
from seqdec.agents._neural.loop import descend, innovation_of
from seqdec.agents.choices import near_best
from seqdec.agents.inputs import checked
from seqdec.agents.regression import mixture, nig, rewards, units
from seqdec.agents.regression.members import (
    FIRST,
    AutoState,
    answers_of,
    features_of,
    in_variance,
    inputs_of,
    learned,
    loss_of,
    measured,
    mixed,
    parts_of,
    posterior,
    renewed,
)
from seqdec.agents.wrappers.averaging import moved
from seqdec.boundary import checks
from seqdec.boundary.spaces import spaces_of
from seqdec.core import (
    Acquisition,
    Agent,
    Array,
    HasSpaces,
)
from seqdec.modules import Model
from seqdec.optim.common import promoting

_SCALE = 0.5
"""Of draws for candidates and Box actions, whose contexts explore by themselves."""


class AutoInfo(NamedTuple):
    """Result of an update."""

    innovation: Array
    """(o,) observed minus predicted reward, before the update"""
    weights: Array
    """(members,) after the update"""
    rejected: Array
    """() bool: the input or the result was not finite, and the state is unchanged"""


def auto(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition | None = None,
    model: Model | None = None,
    learning_rate: float = 1e-3,
    batch_size: int = 32,
    capacity: int = 20_000,
    decay: float = 1000.0,
    horizon: float = 1000.0,
    half_life: float | None = 200.0,
    average: float = 0.99,
    num_candidates: int | None = None,
) -> Agent:
    """The default agent, which needs no tuning for the scale, the noise or the linearity of rewards.

    Args:
        spaces: anything with observation_space and action_space.
        policy: name or acquisition of `seqdec.policies`. None is thompson(scale=0.5) for candidates and Box actions,
            epistemic_sampling for contexts of at most two numbers, and for other contexts tempered_sampling, whose
            neglect is how many there are, at most 20; 20 for candidates that are row numbers of tables with more
            than 256 rows.
        model: a flax module or `seqdec.models.Network` whose output layer is dense, with one output per action; None
            is an MLP with two hidden layers of 50 units whose output layer sees its input too, for images LeNet5, for
            candidates `seqdec.agents.scorer`. For candidates and Box actions as in `seqdec.agents.hilofi`.
        learning_rate: of AdamW.
        batch_size: rows of a minibatch, the newest included.
        capacity: rows of the memory, a uniform sample of all observations.
        decay: steps after which the weights of the network begin to shrink less.
        horizon: steps after which a prediction counts e times less in the members' weights.
        half_life: steps after which an observation counts half as much to the members that forget, which take part
            once rewards turn out to change; None is without such members.
        average: in [0, 1); the features are those of the average over the last 1 / (1 - average) steps.
        num_candidates: points drawn per decision, for Box actions only; None is 256.

    Raises TypeError or ValueError for a space or a setting that does not fit.
    """
    told = {
        "learning_rate": learning_rate, "batch_size": batch_size, "capacity": capacity, "decay": decay,
        "horizon": horizon, "half_life": half_life, "average": average,
    }  # fmt: skip
    spaces = spaces_of(spaces)
    box = spaces.action_space if isinstance(spaces.action_space, gym_spaces.Box) else None
    rows = spaces.observation_space if isinstance(spaces.observation_space, gym_spaces.Dict) else None
    choices = choices_for(spaces, num_candidates)
    recording = recorder(choices, spaces)
    checks.positive("learning_rate", learning_rate)
    batch_size = checks.count("batch_size", batch_size)
    capacity = checks.count("capacity", capacity)
    checks.number("decay", decay)
    checks.positive("horizon", horizon)
    if half_life is not None:
        checks.number("half_life", half_life, 0, nig.LONGEST, exclusive=True)
    checks.number("average", average, 0, 1)
    example = recording.example._replace(step=jax.ShapeDtypeStruct((), jnp.int32))
    parts = parts_of(spaces, model, recording.example.x, half_life)
    usual = policies.thompson(scale=_SCALE)
    if box is None and rows is None:
        usual = nig.usual_policy(recording.example.x.size)
    elif parts.view.wide is not None:  # a draw of weights takes as many numbers as the tables have rows
        usual = nig.usual_policy(units.FEW)
    acquisition, called = (usual, None) if policy is None else policies.resolve(policy)
    memory, transform = memories.reservoir(capacity), promoting(optax.adam(learning_rate))

    def init(key):
        weights, draws = jax.random.split(key)
        params = parts.network.init(weights)
        averaged, features = (jax.tree.map(jnp.copy, params) for _ in range(2))  # an array can be donated once
        x = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), recording.example.x)
        numbers = parts.view.numbers(x)
        sizes = jax.eval_shape(
            functools.partial(features_of, parts), params, inputs_of(parts, units.unknown(numbers.shape), x)
        )
        members = tuple(
            mixture.prior(group.form, group.kinds, parts.responses, phi.shape[-1])
            for group, phi in zip(parts.groups, sizes, strict=True)
        )
        return AutoState(
            params, transform.init(params), averaged, features, members, mixture.log_weights(parts.kinds),
            mixture.unchanged(), units.unknown(numbers.shape), rewards.unknown(), memory.init(example),
            jnp.int32(FIRST), key_numbers(draws),
        )  # fmt: skip

    def act(key, state, observation):
        question = posterior(parts, state)
        offered = choices if box is None else near_best(choices, question, box)
        return decide(key, acquisition, question, offered, observation)

    def update(state, observation, action, feedback):
        newest = recording.rows(observation, action, feedback)
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.memory.seen)
        add, draw, again = jax.random.split(key, 3)
        good = usable(newest)
        means = jax.vmap(lambda x: mixed(answers_of(parts, state, x), state.log_weights).mean)(newest.x)
        error = innovation_of(newest, means, single=jnp.ndim(feedback) == 0)
        contexts, x = measured(parts, state.contexts, observation, newest.x, good)
        count, observed = len(newest.y), newest.observed.ravel()
        seen, y = rewards.measured(state.rewards, newest.y.ravel(), good & observed)
        steps = state.memory.seen + jnp.arange(1, count + 1, dtype=jnp.int32)
        newest = newest._replace(x=x, y=y.reshape(newest.y.shape).astype(newest.y.dtype), step=steps)
        single = jnp.ndim(feedback) == 0
        change = mixture.watched(state.change, in_variance(seen, error), steps[-1])
        members, densities = learned(parts, state, contexts, rewards.location(seen), newest, single, good)

        def batch_of(key):
            return minibatch(memory, key, state.memory, newest, batch_size)

        def loss(params, batch):
            return loss_of(parts, contexts, seen, params, batch)

        trained = state.params, state.optimizer
        (params, moments), _, _ = descend(loss, transform, trained, batch_of, draw[None])
        shrink = learning_rate * jnp.minimum(1, decay / steps[-1].astype(float))
        params = jax.tree.map(lambda leaf: (1 - shrink).astype(leaf.dtype) * leaf, params)
        fresh = state._replace(
            params=params, optimizer=moments, average=moved(state.average, params, steps[-1], average),
            members=members, contexts=contexts, rewards=seen,
            log_weights=mixture.reweighted(parts.kinds, state.log_weights, densities, horizon, change.found),
            change=change, memory=None,
        )  # fmt: skip
        good = good & finite(fresh)
        kept = jax.tree.map(lambda new, old: jnp.where(good, new, old), fresh, state._replace(memory=None))
        stored = remember(memory, add, state.memory, newest, good)
        state = renewed(parts, again, kept._replace(memory=stored))
        return state, AutoInfo(error, jax.nn.softmax(state.log_weights), ~good)

    told |= drawn(num_candidates)
    told = {"policy": called, **told}
    assess = assessing(acquisition, functools.partial(posterior, parts), choices, spaces)
    return checked(Agent(init, act, update, "auto", acquisition.exact, told, assess=assess), spaces)
