"""The paper's baselines as surrogates: filters and trained networks over its MLP, and a Gaussian process on a buffer.

A trained network has a belief over its last layer: the agents' heads and memories. Every response is learned by
gradient steps on it and on the responses kept before it.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seqdec import filters, models
from seqdec import memory as memories
from seqdec import params as parameters
from seqdec.agents import laplace, variational
from seqdec.agents._neural.experience import Experience
from seqdec.agents._neural.loop import Head, trainer
from seqdec.bo.surrogates import gaussian_process as exact
from seqdec.bo.surrogates.contract import History, Surrogate, check_growth
from seqdec.bo.surrogates.evidence import Hyperparameters
from seqdec.bo.surrogates.filtered import mlp, over_mlp
from seqdec.bo.surrogates.gaussian_process import Process
from seqdec.bo.surrogates.learned import learned
from seqdec.boundary import checks
from seqdec.core import Array, Filter, Key, Learner, Network

WIDTHS = (180, 180, 180)
"""Hidden layers of the paper's network."""


def lolofi(
    dim: int,
    *,
    rank_hidden: int = 50,
    rank_last: int = 100,
    initial_std_hidden: float = 0.01,
    initial_std_last: float = 0.3,
    features: tuple[int, ...] = WIDTHS,
    noise_variance: float = 1e-4,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """LoLoFi over an MLP: low-rank beliefs over the last layer and over the hidden layers.

    Args:
        dim: columns of the unit cube.
        rank_hidden: rank of the hidden layers' covariance.
        rank_last: rank of the last layer's covariance, at most its number of parameters, features[-1] + 1.
        initial_std_hidden, initial_std_last: prior standard deviations, as in `seqdec.bo.hilofi_mlp`.
        features, noise_variance, scale, growth: as in `seqdec.bo.surrogates.filtered.over_mlp`.
    """
    make = functools.partial(
        filters.lolofi,
        rank_hidden=rank_hidden,
        rank_last=checks.count("rank_last", rank_last),
        initial_std_hidden=initial_std_hidden,
        initial_std_last=initial_std_last,
    )
    return over_mlp(make, dim, features=features, noise_variance=noise_variance, scale=scale, growth=growth)


def lofi(
    dim: int,
    *,
    rank: int = 50,
    initial_std_hidden: float = 0.01,
    initial_std_last: float = 0.3,
    features: tuple[int, ...] = WIDTHS,
    noise_variance: float = 1e-4,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """LoFi over an MLP: one belief over all parameters, whose precision is a diagonal and a matrix of low rank.

    Args:
        dim: columns of the unit cube.
        rank: rank of the precision's factor.
        initial_std_hidden: prior standard deviation of every parameter of the hidden layers.
        initial_std_last: prior standard deviation of every parameter of the last layer.
        features, noise_variance, scale, growth: as in `seqdec.bo.surrogates.filtered.over_mlp`.
    """

    def make(rows: models.Network, likelihood: Any) -> Filter:
        like = jax.eval_shape(rows.init, jax.random.key(0))
        hidden, last = parameters.split(like, rows.is_last)
        hidden = [jnp.full(leaf.size, initial_std_hidden) for leaf in hidden]
        last = [jnp.full(leaf.size, initial_std_last) for leaf in last]
        stds = parameters.ravel(jax.tree.leaves(parameters.join(like, rows.is_last, hidden, last)))
        return filters.lofi(rows, likelihood, rank=rank, initial_std=stds)

    return over_mlp(make, dim, features=features, noise_variance=noise_variance, scale=scale, growth=growth)


def ekf(
    dim: int,
    *,
    initial_std: float = 0.3,
    features: tuple[int, ...] = (24, 24),
    noise_variance: float = 1e-4,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """EKF over a small MLP, with a dense belief over all parameters; arguments as in `lofi`."""
    make = functools.partial(filters.ekf, initial_std=initial_std)
    return over_mlp(make, dim, features=features, noise_variance=noise_variance, scale=scale, growth=growth)


def last_layer_laplace(
    dim: int,
    *,
    learning_rate: float = 1e-3,
    inner_steps: int = 50,
    buffer: int = 20,
    prior_std: float = 1.0,
    noise_variance: float = 1e-4,
    features: tuple[int, ...] = WIDTHS,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """Network trained on the last responses, with a Laplace approximation of its last layer (`seqdec.agents.laplace`).

    Args:
        dim: columns of the unit cube.
        learning_rate: learning rate of AdamW.
        inner_steps: gradient steps for each response, on it and the whole buffer.
        buffer: number of responses that are kept.
        prior_std: prior standard deviation of every parameter of the last layer.
        noise_variance: noise variance of the responses.
        features, scale, growth: as in `seqdec.bo.surrogates.filtered.over_mlp`.
    """
    head = laplace(prior_std=prior_std, noise_variance=noise_variance)
    return _trained(head, dim, features, scale, learning_rate, inner_steps, checks.count("buffer", buffer), growth)


def vbll(
    dim: int,
    *,
    learning_rate: float = 1e-3,
    inner_steps: int = 100,
    regularization: float = 1.0,
    noise_variance: float = 0.01,
    features: tuple[int, ...] = WIDTHS,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """Variational Bayesian last layer (`seqdec.agents.variational`), trained on all responses.

    Args:
        dim: columns of the unit cube.
        learning_rate: learning rate of AdamW.
        inner_steps: gradient steps for each response, on all responses so far.
        regularization, noise_variance: as in `seqdec.agents.variational`.
        features, scale, growth: as in `seqdec.bo.surrogates.filtered.over_mlp`.
    """
    head = variational(noise_variance=noise_variance, regularization=regularization)
    return _trained(head, dim, features, scale, learning_rate, inner_steps, None, growth)


def on_vbll(
    dim: int,
    *,
    learning_rate: float = 1e-3,
    inner_steps: int = 50,
    buffer: int = 20,
    regularization: float = 0.0,
    noise_variance: float = 0.01,
    features: tuple[int, ...] = WIDTHS,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """As `vbll`, trained on the last `buffer` responses only."""
    head = variational(noise_variance=noise_variance, regularization=regularization)
    return _trained(head, dim, features, scale, learning_rate, inner_steps, checks.count("buffer", buffer), growth)


def _trained(
    head: Callable[[Network], Head],
    dim: int,
    features: tuple[int, ...],
    scale: float,
    learning_rate: float,
    inner_steps: int,
    buffer: int | None,
    growth: float,
) -> Surrogate:
    """The surrogate of a network with a head; with a buffer of None it keeps all responses."""
    checks.rate("learning_rate", learning_rate)
    growth, rows, optimizer = check_growth(growth), mlp(dim, features, scale), optax.adamw(learning_rate)
    top, steps = head(rows), checks.count("inner_steps", inner_steps)
    example = jax.tree.map(lambda leaf: leaf[0], _row(jnp.zeros((1, dim)), jnp.zeros(1)))

    @functools.cache
    def keeping(count: int) -> Surrogate:
        memory = memories.last(count)
        inner = trainer(rows, top, example, optimizer=optimizer, memory=memory, batch_size=None, inner_steps=steps)

        def update(state, x, y, observed=None, allowed=None):
            return inner.update(state, _row(x, y))

        def posterior(state):
            at = inner.posterior(state)

            def joint(candidates):  # heads calculate in JAX's default dtype
                return jax.tree.map(lambda leaf: leaf.astype(candidates.dtype), at.joint(candidates))

            return at._replace(joint=joint)

        return learned(Learner(inner.init, update, posterior), growth=growth)

    if buffer is not None:
        return keeping(buffer)
    return keeping(1)._replace(
        init=lambda key, history: keeping(len(history.x)).init(key, history),
        fit=lambda state, history: keeping(len(history.x)).fit(state, history),
        condition_on=lambda state, history: keeping(len(history.x)).condition_on(state, history),
    )


def _row(x: Array, y: Array) -> Experience:
    """One response as a row, with a leading axis."""
    return Experience(x[None], y[None], jnp.ones((1, 1), bool))


def buffered_gp(
    dim: int,
    *,
    buffer: int = 20,
    length_scale: float = 0.1,
    variance: float = 1.0,
    noise_variance: float = 1e-4,
    growth: float = 1.1,
) -> Surrogate:
    """The Gaussian process of `seqdec.bo.gp` on the last responses, with one length scale, and nothing is fitted.

    Args:
        dim: columns of the unit cube.
        buffer: B, number of responses that are kept.
        length_scale: l, in units of the unit cube.
        variance: s, prior variance of the function around its mean, whose prior variance is 1.
        noise_variance: noise variance of the responses; 1e-8 is added.
        growth: as in `seqdec.bo.Surrogate`.
    """
    dim, buffer = checks.count("dim", dim), checks.count("buffer", buffer)
    checks.number("length_scale", length_scale, exclusive=True)
    checks.number("variance", variance, exclusive=True)
    checks.number("noise_variance", noise_variance)
    log_noise = math.log(noise_variance) if noise_variance else -math.inf
    hyper = Hyperparameters(
        np.full(dim, math.log(length_scale)), np.full((), math.log(variance)), np.full((), log_noise)
    )

    def init(key: Key, history: History) -> Process:
        return exact.condition(hyper, _last(history._replace(filled=0), buffer))

    def condition_on(state: Any, history: History) -> Process:
        return exact.condition(hyper, _last(history, buffer))

    return Surrogate(
        init, condition_on, condition_on, exact.posterior, check_growth(growth), "thompson",
        exact.DTYPE, stored=lambda state: state.stored,
    )  # fmt: skip


def _last(history: History, count: int) -> History:
    """The last responses of a history, `count` at most, in arrays of as many rows."""
    end = int(history.filled)
    rows = slice(max(0, end - count), max(0, end - count) + count)
    x, y = (np.asarray(part)[rows] for part in (history.x, history.y))
    missing = count - len(y)
    return History(np.pad(x, ((0, missing), (0, 0))), np.pad(y, (0, missing)), np.int32(min(end, count)))
