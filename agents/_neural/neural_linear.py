r"""Neural-linear bandits: features trained on replayed minibatches, an exact Bayesian linear regression on top.

With the features phi of the network (`seqdec.agents._neural.last_layer`), each group has the conjugate prior

    sigma^2 ~ InverseGamma(a_0, b_0)        w | sigma^2 ~ N(0, sigma^2 tau^2 I)

and, given n rewards y less the rest of the network, the posterior

    Lambda = I / tau^2 + sum phi phi^T      mu = Lambda^{-1} sum phi y      w | sigma^2 ~ N(mu, sigma^2 Lambda^{-1})
    a = a_0 + n / 2                         b = b_0 + (sum y^2 - mu^T Lambda mu) / 2

Every `every` observations the sums are taken over the memory with present features. In between each observation is
added with the features of its time, with S = 1 + phi^T Lambda^{-1} phi and e = y - phi^T mu:

    mu += Lambda^{-1} phi e / S         Lambda^{-1} -= Lambda^{-1} phi phi^T Lambda^{-1} / S
    a += 1/2                            b += e^2 / (2 S)

The network's own last layer is trained but does not act. The expected noise variance b / (a - 1) scales predictive
covariances; a Thompson draw draws the noise variance too.

Cost of an update: O(G F^2), and every `every` steps a forward pass over the m rows of the memory and
O(m G F^2 + G F^3).

Source: Riquelme, Tucker, Snoek, "Deep Bayesian bandits showdown", 2018.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from seqdec import linalg
from seqdec import memory as memories
from seqdec.agents._neural.experience import Experience
from seqdec.agents._neural.last_layer import (
    LastLayer,
    by_group,
    condition,
    displaced,
    draw_weights,
    gram,
    last_layer,
    moment,
    responses,
    spread,
)
from seqdec.agents._neural.loop import Head, Lesson, squared_error, with_head
from seqdec.boundary import checks
from seqdec.core import Acquisition, Agent, Array, HasSpaces, Network, Posterior, Predictive, PyTree
from seqdec.memory import MemoryState
from seqdec.modules import Model
from seqdec.runtime import alike

_CHUNK = 256
"""Rows of the memory per forward pass."""


class Moments(NamedTuple):
    """Sums over the observed responses of each group."""

    gram: Array
    """(G, F, F) of phi phi^T"""
    cross: Array
    """(G, F) of phi y"""
    square: Array
    """(G,) of y^2"""
    number: Array
    """(G,) responses"""


class Regression(NamedTuple):
    weights: Array
    """(G, F) mu"""
    columns: Array
    """(G, F, F) C with C C^T = Lambda^{-1}"""
    shape: Array
    """(G,) a"""
    rate: Array
    """(G,) b"""


def neural_linear_head(
    *, prior_std: float = 1.0, noise_variance: float = 0.01, noise_shape: float = 3.0, every: int = 100
) -> Callable[[Network], Head]:
    """The head of a Bayesian linear regression on trained features; the loss is the squared error.

    Args:
        prior_std: prior standard deviation of every weight, tau times the root of `noise_variance`.
        noise_variance: prior mean of the noise variance, b_0 / (a_0 - 1).
        noise_shape: a_0 > 1.
        every: observations between recomputations from the memory.

    Raises TypeError or ValueError for a setting out of range.
    """
    for setting, value in (("prior_std", prior_std), ("noise_variance", noise_variance)):
        checks.positive(setting, value)
    checks.number("noise_shape", noise_shape, 1.0, exclusive=True)
    every = checks.count("every", every)
    prior_precision, rate = noise_variance / prior_std**2, noise_variance * (noise_shape - 1)

    def head(network: Network) -> Head:
        layer = last_layer(network)

        def solve(moments: Moments) -> Regression:
            return regression(moments, prior_precision, noise_shape, rate)

        def init(key, params):
            zeros = jnp.zeros((layer.groups, layer.size))
            nothing = Moments(zeros[:, :, None] * zeros[:, None], zeros, zeros[:, 0], zeros[:, 0])
            return params, solve(nothing)

        def update(params, belief, lesson: Lesson):
            belief = absorbed(belief, layer, params, lesson.newest, lesson.good)
            due = lesson.good & (lesson.memory.seen % every < len(lesson.newest.y))

            def recompute(belief, params, memory):
                fresh = solve(moments_of(layer, params, memory))
                return jax.tree.map(lambda new, old: new.astype(old.dtype), fresh, belief)

            return linalg.cond_any(due, recompute, belief, params, lesson.memory)

        return Head(init, squared_error(network), update, _posterior(network, layer))

    return head


def regression(moments: Moments, prior_precision: float, shape: float, rate: float) -> Regression:
    """The posterior; prior_precision is 1 / tau^2."""
    precision = moments.gram + prior_precision * jnp.eye(moments.gram.shape[1], dtype=moments.gram.dtype)[None]
    columns = jax.vmap(linalg.inverse_root)(precision)
    half = jnp.einsum("gfk,gf->gk", columns, moments.cross)
    weights = jnp.einsum("gfk,gk->gf", columns, half)
    left = jnp.maximum(moments.square - jnp.sum(half**2, 1), 0)
    return Regression(weights, columns, shape + moments.number / 2, rate + left / 2)


def targets(layer: LastLayer, params: PyTree, rows: Experience) -> tuple[Array, Array]:
    """Features (k, n, F) of rows, and y (k, n) less the rest of the network."""
    response, phi = jax.vmap(layer.features, (None, 0))(params, rows.x)
    return phi, rows.y - response + responses(phi, layer.get(params))


def moments_of(layer: LastLayer, params: PyTree, memory: MemoryState) -> Moments:
    capacity, filled = len(memory.rows.y), memories.filled(memory)

    def add(chunk, total):
        index = jnp.asarray(chunk * _CHUNK, jnp.int32) + jnp.arange(min(_CHUNK, capacity), dtype=jnp.int32)
        rows = jax.tree.map(lambda leaf: leaf[jnp.minimum(index, capacity - 1)], memory.rows)
        phi, y = targets(layer, params, rows)
        seen = jnp.where(index[:, None] < filled, rows.observed, False).astype(y.dtype)
        squares, counts = (jnp.sum(by_group(part, layer.groups), 1) for part in (seen * y**2, seen))
        parts = Moments(gram(phi, seen, layer.groups), moment(phi, seen * y, layer.groups), squares, counts)
        return jax.tree.map(lambda old, new: old + new.astype(old.dtype), total, parts)

    zeros = jnp.zeros((layer.groups, layer.size), memory.rows.y.dtype)
    nothing = Moments(zeros[:, :, None] * zeros[:, None], zeros, zeros[:, 0], zeros[:, 0])
    return jax.lax.fori_loop(0, -(-filled // _CHUNK), add, alike(nothing, params, memory))


def absorbed(belief: Regression, layer: LastLayer, params: PyTree, rows: Experience, good: Array) -> Regression:
    """The posterior with more rows, with present features."""
    phi, y = (part.astype(belief.weights.dtype) for part in targets(layer, params, rows))
    phi = jnp.where(good & rows.observed[:, :, None], phi, 0)
    errors = jnp.where(good & rows.observed, y - responses(phi, belief.weights), 0)
    errors, seen = by_group(errors, layer.groups), by_group(rows.observed & good, layer.groups)
    fresh = condition(belief.columns, by_group(phi, layer.groups), 1.0, good)
    return Regression(
        belief.weights + jnp.einsum("gfo,go->gf", fresh.gain, errors),
        fresh.columns,
        belief.shape + (jnp.sum(seen, 1) / 2).astype(belief.shape.dtype),
        belief.rate + jnp.einsum("go,gop,gp->g", errors, fresh.precision, errors) / 2,
    )


def _posterior(network: Network, layer: LastLayer) -> Callable[[PyTree, Regression], Posterior]:
    def posterior(params, belief):
        variance = belief.rate / (belief.shape - 1)

        def joint(candidates):
            response, phi = layer.features(params, candidates)
            mean = response + responses(phi, belief.weights - layer.get(params))
            noise = jnp.diag(jnp.broadcast_to(variance, mean.shape))
            return Predictive(mean, spread(phi, jnp.sqrt(variance)[:, None, None] * belief.columns), noise)

        def draw(key):
            noise, normal = jax.random.split(key)
            std = jnp.sqrt(belief.rate / jax.random.gamma(noise, belief.shape))
            weights = draw_weights(normal, belief.weights, std[:, None, None] * belief.columns)
            return displaced(layer, network, params, weights)

        return Posterior(displaced(layer, network, params, belief.weights), joint, draw)

    return posterior


def neural_linear(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "thompson",
    model: Model | None = None,
    learning_rate: float = 1e-3,
    inner_steps: int = 1,
    batch_size: int | None = 32,
    capacity: int = 10_000,
    prior_std: float = 1.0,
    noise_variance: float = 0.01,
    noise_shape: float = 3.0,
    every: int = 100,
    num_candidates: int | None = None,
) -> Agent:
    """Features trained by AdamW on minibatches of all observations, and a Bayesian linear regression for each action.

    Arguments as in `seqdec.agents.replay_adamw` and `seqdec.agents.neural_linear_head`.
    """
    return with_head("neural_linear", neural_linear_head, **locals())
