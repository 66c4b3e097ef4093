r"""A network trained by any optax optimizer on a memory of observations.

Each observation is followed by `inner_steps` gradient steps on the mean loss of a minibatch: the newest observation and
others drawn uniformly from the memory. Without uncertainty the loss of a row is

    1/2 sum_j (y_j - f_j(x))^2        over the observed responses j

A `Head` replaces the loss, may add trained parameters, and keeps a belief over the last layer: `seqdec.agents.laplace`,
`seqdec.agents.vbll`, `seqdec.agents.neural_linear`, `seqdec.agents.ensemble`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from seqdec import memory as memories
from seqdec.agents._neural.experience import (
    Batch,
    Experience,
    finite,
    first,
    key_numbers,
    minibatch,
    remember,
    rows_of,
    usable,
)
from seqdec.agents.assembly import agent, means_only
from seqdec.agents.networks import network_for
from seqdec.boundary.checks import count, rate
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Key, Learner, Network, Posterior, PyTree
from seqdec.memory import Memory, MemoryState
from seqdec.modules import Model
from seqdec.optim.common import promoting
from seqdec.runtime import scan


class NeuralState(NamedTuple):
    params: PyTree
    """trained parameters"""
    optimizer: Any
    belief: Any
    """of the head; () for a network without uncertainty"""
    memory: MemoryState
    """rows `Experience`"""
    key: Array
    """data of the constant key of draws from the memory"""


class NeuralInfo(NamedTuple):
    innovation: Array
    """(o,) observed minus predicted response before the update"""
    loss: Array
    """() half the squared innovation"""
    rejected: Array
    """() bool: input or result not finite, state unchanged"""


class Lesson(NamedTuple):
    newest: Experience
    """(k, ...) newest rows"""
    batch: Batch
    """minibatch of the last gradient step"""
    notes: Any
    """of the loss in the last gradient step"""
    memory: MemoryState
    """with the newest rows"""
    good: Array
    """() bool: False if the observation is rejected"""


class Head(NamedTuple):
    """Loss and belief of a network, as pure functions."""

    init: Callable[[Key, PyTree], tuple[PyTree, Any]]
    """(key, parameters of the network) -> trained params, belief"""
    loss: Callable[[PyTree, Any, Batch, Array], tuple[Array, tuple[Array, Any]]]
    """(params, belief, batch, observations so far ()) -> loss (), (expected responses (b, n), notes for `update`)"""
    update: Callable[[PyTree, Any, Lesson], Any]
    """(params, belief, lesson) -> belief"""
    posterior: Callable[[PyTree, Any], Posterior]
    """(params, belief) -> what policies ask"""
    tag: Callable[[Key, Experience], Experience] = lambda key, rows: rows
    """(key, rows (k, ...)) -> rows with the head's additions"""


class Trainer(NamedTuple):
    init: Callable[[Key], NeuralState]
    """(key) -> state"""
    update: Callable[[NeuralState, Experience], tuple[NeuralState, NeuralInfo]]
    """(state, rows (k, ...)) -> state, info with the innovation (k n,)"""
    posterior: Callable[[NeuralState], Posterior]
    """(state) -> what policies ask"""


def neural(
    spaces: HasSpaces,
    *,
    optimizer: optax.GradientTransformation,
    head: Callable[[Network], Head] | None = None,
    policy: str | Acquisition = "epsilon_greedy",
    model: Model | None = None,
    memory: Memory | None = None,
    batch_size: int | None = 1,
    inner_steps: int = 1,
    num_candidates: int | None = None,
    name: str = "neural",
    settings: Mapping[str, Any] | None = None,
) -> Agent:
    """An agent from a network, an optimizer and a memory.

    Optimizers that need the loss get it as the extra argument `value`. The time of an update does not depend on the
    size of the memory, unless `batch_size` is None.

    Args:
        spaces: with observation_space and action_space.
        optimizer: any optax transformation, e.g. `optax.adamw(1e-3)`.
        head: (network) -> loss and belief, such as `seqdec.agents.laplace`; None: no uncertainty.
        policy: name or acquisition of `seqdec.policies`; without a head, one that needs only the expected responses.
        model: a flax module or `seqdec.models.Network`; None as in `seqdec.agents.hilofi`.
        memory: stores the observations before the newest (`seqdec.memory`); None is `memory.last(1)`.
        batch_size: rows of a minibatch with the newest; None is the newest and the whole memory.
        inner_steps: gradient steps per observation, each on its own minibatch.
        num_candidates: points per decision, for Box actions only; None is 256.
        name: shown in tables and figures.
        settings: settings of optimizer and head, for the manifest of a run.

    Raises TypeError or ValueError for other spaces, a setting out of range, or a policy that needs a head.
    """
    inner_steps = count("inner_steps", inner_steps)
    if batch_size is not None:
        batch_size = count("batch_size", batch_size)
    memory = memories.last(1) if memory is None else memory
    recording, network = rows_of(spaces), network_for(spaces, model)
    top = point(network) if head is None else head(network)
    learns = trainer(
        network, top, recording.example, optimizer=optimizer, memory=memory, batch_size=batch_size,
        inner_steps=inner_steps,
    )  # fmt: skip

    def update(state, x, y, observed=None, allowed=None):
        state, info = learns.update(state, recording.rows(x, y, observed))
        if observed is not None:
            info = info._replace(innovation=jnp.sum(info.innovation, keepdims=True))
        return state, info

    learner = Learner(learns.init, update, learns.posterior, uncertain=head is not None)
    told = {"inner_steps": inner_steps, "batch_size": batch_size, "memory": memory.capacity, **(settings or {})}
    return agent(learner, policy, spaces, name=name, settings=told, num_candidates=num_candidates)


def with_head(
    name: str,
    make_head: Callable[..., Callable[[Network], Head]],
    /,
    *,
    spaces: HasSpaces,
    learning_rate: float,
    policy: str | Acquisition,
    model: Model | None,
    batch_size: int | None = None,
    inner_steps: int,
    num_candidates: int | None,
    **own: Any,
) -> Agent:
    """A network trained by AdamW.

    `own` are settings of the head, and `capacity` of a reservoir or `buffer`, the number of last observations kept.
    """
    rate("learning_rate", learning_rate)
    memory = (
        memories.last(count("buffer", own.pop("buffer")))
        if "buffer" in own
        else memories.reservoir(own.pop("capacity"))
    )
    return neural(
        spaces, optimizer=optax.adamw(learning_rate), head=make_head(**own), policy=policy, model=model, memory=memory,
        batch_size=batch_size, inner_steps=inner_steps, num_candidates=num_candidates, name=name,
        settings={"learning_rate": learning_rate, **own},
    )  # fmt: skip


def trainer(
    network: Network,
    head: Head,
    example: Experience,
    *,
    optimizer: optax.GradientTransformation,
    memory: Memory,
    batch_size: int | None,
    inner_steps: int,
) -> Trainer:
    """Network x head x optimizer x memory; `example` has the shapes of a row."""
    transform = promoting(optimizer)

    def tagged(key):
        row = jax.tree.map(lambda leaf: jnp.zeros((1, *leaf.shape), leaf.dtype), example)
        return first(head.tag(key, row))

    def init(key):
        weights, rest, draws = jax.random.split(key, 3)
        params, belief = head.init(rest, network.init(weights))
        stored = memory.init(jax.eval_shape(tagged, rest))
        return NeuralState(params, transform.init(params), belief, stored, key_numbers(draws))

    def posterior(state):
        return head.posterior(state.params, state.belief)

    def update(state, rows):
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key), state.memory.seen)
        add, draw, tag = jax.random.split(key, 3)
        newest = head.tag(tag, rows)

        def batch_of(key):
            return minibatch(memory, key, state.memory, newest, batch_size)

        seen = state.memory.seen + len(newest.y)
        keys = jax.random.split(draw, inner_steps)
        last = jax.random.clone(keys)[-1]  # the belief learns from the rows of the last step
        trained = state.params, state.optimizer
        (params, moments), responses, notes = descend(
            lambda params, batch: head.loss(params, state.belief, batch, seen), transform, trained, batch_of, keys
        )
        innovation = innovation_of(newest, responses, single=False)
        squares = 0.5 * jnp.sum(innovation**2)
        good = usable(newest) & jnp.isfinite(squares) & finite(params)
        stored = remember(memory, add, state.memory, newest, good)
        belief = head.update(params, state.belief, Lesson(newest, batch_of(last), notes, stored, good))
        fresh, old = (params, moments, belief), (*trained, state.belief)
        params, moments, belief = jax.tree.map(lambda new, old: jnp.where(good, new, old), fresh, old)
        return NeuralState(params, moments, belief, stored, state.key), NeuralInfo(innovation, squares, ~good)

    return Trainer(init, update, posterior)


def descend(
    loss: Callable[[PyTree, Batch], tuple[Array, tuple[Array, Any]]],
    transform: optax.GradientTransformationExtraArgs,
    trained: tuple[PyTree, Any],
    batch_of: Callable[[Key], Batch],
    keys: Array,
) -> tuple[tuple[PyTree, Any], Array, Any]:
    """Gradient steps on `loss` (params, batch) -> loss, (responses (b, n), notes), one per key (steps,).

    Returns params and optimizer state, the responses before the first step, and the last notes.
    """

    def step(trained, key):
        params, moments = trained
        (value, (responses, notes)), gradients = jax.value_and_grad(loss, has_aux=True)(params, batch_of(key))
        updates, moments = transform.update(gradients, moments, params, value=value)
        return (optax.apply_updates(params, updates), moments), (responses, notes)

    trained, (responses, notes) = scan(step, trained, keys)
    return trained, responses[0], jax.tree.map(lambda leaf: leaf[-1], notes)


def mean_of_rows(values: Array, batch: Batch) -> Array:
    """Weighted mean over rows of sums over the observed responses: (b, n) -> ()."""
    each = jnp.sum(jnp.where(batch.rows.observed, values, 0), axis=1)
    return jnp.sum(batch.weights * each) / jnp.maximum(jnp.sum(batch.weights), 1)


def squared_error(network: Network) -> Callable[[PyTree, Any, Batch, Array], tuple[Array, tuple[Array, Any]]]:
    def loss(params, belief, batch, seen):
        responses = jax.vmap(network.apply, (None, 0))(params, batch.rows.x)
        errors = 0.5 * (batch.rows.y - responses.astype(batch.rows.y.dtype)) ** 2
        return mean_of_rows(errors, batch), (responses, ())

    return loss


def point(network: Network) -> Head:
    return Head(
        lambda key, params: (params, ()),
        squared_error(network),
        lambda params, belief, lesson: (),
        lambda params, belief: means_only(lambda candidates: network.apply(params, candidates)),
    )


def innovation_of(newest: Experience, responses: Array, *, single: bool) -> Array:
    """Observed minus predicted: (1,) for one response observed, else all."""
    error = jnp.where(newest.observed, newest.y - responses[: len(newest.y)].astype(newest.y.dtype), 0)
    return jnp.sum(error, keepdims=True).reshape(1) if single else jnp.ravel(error)
