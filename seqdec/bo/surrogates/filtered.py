"""Surrogates from the filters over an MLP: a recursive belief with updates of constant cost.

The default network is the paper's, three hidden layers of 180 ELU units, on the unit cube scaled to [-a, a]. Responses
are processed in chunks, one Kalman update each, so that the covariance factor is read once per chunk. `fit` processes
the appended rows only; after responses are standardized again, the optimizer restarts from the prior.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec import filters, likelihoods, models
from seqdec import params as parameters
from seqdec.bo.surrogates.contract import History, Surrogate, check_growth
from seqdec.boundary import checks
from seqdec.core import Array, Filter, Key, Posterior

_CHUNK = 8


class State(NamedTuple):
    """A belief and the number of rows it is conditioned on."""

    key: Key
    """of the prior"""
    belief: Any
    absorbed: Array
    """() int32 rows of the history that the belief is conditioned on"""


def hilofi_mlp(
    dim: int,
    *,
    rank: int = 50,
    initial_std_hidden: float = 0.01,
    initial_std_last: float = 0.3,
    process_noise_hidden: float = 0.0,
    features: tuple[int, ...] = (180, 180, 180),
    noise_variance: float = 1e-4,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """HiLoFi over an MLP: full-rank belief over the last layer, low-rank over the hidden layers.

    Args:
        dim: columns of the unit cube.
        rank: rank of the hidden layers' covariance.
        initial_std_hidden: prior standard deviation along each of its directions.
        initial_std_last: prior standard deviation of every parameter of the last layer.
        process_noise_hidden: variance added to every hidden parameter with every chunk of responses.
        features, noise_variance, scale, growth: as in `over_mlp`.

    Raises ValueError or TypeError for a setting that is out of its range or not a number.
    """
    make = functools.partial(
        filters.hilofi,
        rank=rank,
        initial_std_hidden=initial_std_hidden,
        initial_std_last=initial_std_last,
        process_noise_hidden=process_noise_hidden,
    )
    return over_mlp(make, dim, features=features, noise_variance=noise_variance, scale=scale, growth=growth)


def lolofi(
    dim: int,
    *,
    rank_hidden: int = 50,
    rank_last: int = 100,
    initial_std_hidden: float = 0.01,
    initial_std_last: float = 0.3,
    process_noise_hidden: float = 0.0,
    features: tuple[int, ...] = (180, 180, 180),
    noise_variance: float = 1e-4,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """LoLoFi over an MLP: low-rank beliefs over the last layer and over the hidden layers.

    Args:
        dim: columns of the unit cube.
        rank_hidden: rank of the hidden layers' covariance.
        rank_last: rank of the last layer's covariance, at most its number of parameters, features[-1] + 1.
        initial_std_hidden, initial_std_last, process_noise_hidden: as in `hilofi_mlp`.
        features, noise_variance, scale, growth: as in `over_mlp`.

    Raises ValueError or TypeError for a setting that is out of its range or not a number.
    """
    make = functools.partial(
        filters.lolofi,
        rank_hidden=rank_hidden,
        rank_last=checks.count("rank_last", rank_last),
        initial_std_hidden=initial_std_hidden,
        initial_std_last=initial_std_last,
        process_noise_hidden=process_noise_hidden,
    )
    return over_mlp(make, dim, features=features, noise_variance=noise_variance, scale=scale, growth=growth)


def lrkf(
    dim: int,
    *,
    rank: int = 100,
    initial_std: float = 0.3,
    process_noise: float = 1e-2,
    features: tuple[int, ...] = (180, 180, 180),
    noise_variance: float = 1e-4,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """LRKF over an MLP: one low-rank belief over all parameters.

    Args:
        dim: columns of the unit cube.
        rank: rank of the covariance.
        initial_std: prior standard deviation along each of its directions.
        process_noise: variance added to every parameter with every chunk of responses.
        features, noise_variance, scale, growth: as in `over_mlp`.

    Raises ValueError or TypeError for a setting that is out of its range or not a number.
    """
    make = functools.partial(filters.lrkf, rank=rank, initial_std=initial_std, process_noise=process_noise)
    return over_mlp(make, dim, features=features, noise_variance=noise_variance, scale=scale, growth=growth)


def lofi(
    dim: int,
    *,
    rank: int = 50,
    initial_std_hidden: float = 0.01,
    initial_std_last: float = 0.3,
    process_noise: float = 0.0,
    features: tuple[int, ...] = (180, 180, 180),
    noise_variance: float = 1e-4,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """LoFi over an MLP: one belief over all parameters whose precision is a diagonal and a low-rank matrix.

    Args:
        dim: columns of the unit cube.
        rank: rank of the precision's factor.
        initial_std_hidden: prior standard deviation of every parameter of the hidden layers.
        initial_std_last: prior standard deviation of every parameter of the last layer.
        process_noise: variance added to every parameter with every chunk of responses.
        features, noise_variance, scale, growth: as in `over_mlp`.

    Raises ValueError or TypeError for a setting that is out of its range or not a number.
    """
    for name, std in (("initial_std_hidden", initial_std_hidden), ("initial_std_last", initial_std_last)):
        checks.number(name, std, exclusive=True)

    def make(rows: models.Network, likelihood: Any) -> Filter:
        like = jax.eval_shape(rows.init, jax.random.key(0))
        hidden, last = parameters.split(like, rows.is_last)
        hidden = [jnp.full(leaf.size, initial_std_hidden) for leaf in hidden]
        last = [jnp.full(leaf.size, initial_std_last) for leaf in last]
        stds = parameters.ravel(jax.tree.leaves(parameters.join(like, rows.is_last, hidden, last)))
        return filters.lofi(rows, likelihood, rank=rank, initial_std=stds, process_noise=process_noise)

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
    """EKF over a small MLP: one dense belief over all parameters.

    Args:
        dim: columns of the unit cube.
        initial_std: prior standard deviation of every parameter.
        features, noise_variance, scale, growth: as in `over_mlp`.

    Raises ValueError or TypeError for a setting that is out of its range or not a number.
    """
    make = functools.partial(filters.ekf, initial_std=initial_std)
    return over_mlp(make, dim, features=features, noise_variance=noise_variance, scale=scale, growth=growth)


def over_mlp(
    make: Callable[[models.Network, Any], Filter],
    dim: int,
    *,
    features: tuple[int, ...] = (180, 180, 180),
    noise_variance: float = 1e-4,
    scale: float = 2.0,
    growth: float = 1.25,
) -> Surrogate:
    """The surrogate of a filter over an MLP with one output.

    Args:
        make: (network with n outputs, likelihood) -> filter.
        dim: columns of the unit cube.
        features: widths of the hidden layers.
        noise_variance: noise variance of the responses.
        scale: a; the network's inputs lie in [-a, a].
        growth: as in `Surrogate`.

    Raises ValueError or TypeError for a setting that is out of its range or not a number.
    """
    checks.concrete("noise_variance", noise_variance)
    likelihood = likelihoods.gaussian(checks.real("noise_variance", noise_variance))
    return filtered(lambda rows: make(rows, likelihood), mlp(dim, features, scale), growth=check_growth(growth))


def mlp(dim: int, features: tuple[int, ...], scale: float) -> models.Network:
    """The network of one response for each row (n, dim) of the unit cube; arguments and errors as in `over_mlp`."""
    features = tuple(checks.count(f"features[{i}]", width) for i, width in enumerate(features))
    checks.number("scale", scale, exclusive=True)
    scale = checks.real("scale", scale)
    network = models.network(models.MLP(1, features), jnp.zeros(checks.count("dim", dim)))
    return models.per_candidate(network._replace(apply=lambda params, x: network.apply(params, scale * (2 * x - 1))))


def filtered(make: Callable[[models.Network], Filter], rows: models.Network, *, growth: float) -> Surrogate:
    """The surrogate of a filter.

    Args:
        make: (network with several outputs) -> filter.
        rows: the network, (n, d) -> (n,).
        growth: as in `over_mlp`.
    """
    flt = make(rows)

    # Rows beyond the history are multiplied by zero: gradient and innovation vanish, and the update ignores them.
    learner = make(rows._replace(apply=lambda params, x: jnp.where(x[1], rows.apply(params, x[0]), 0.0)))

    def init(key: Key, history: History) -> State:
        weights, covariance = jax.random.split(key)
        return State(key, flt.init(covariance, rows.init(weights)), jnp.int32(0))

    def condition_on(state: State, history: History) -> State:
        def absorb(size: int, count: Array, belief: Any) -> Any:
            def step(chunk, belief):
                index = state.absorbed + jnp.asarray(size * chunk, jnp.int32) + jnp.arange(size, dtype=jnp.int32)
                keep, index = index < history.filled, jnp.minimum(index, len(history.x) - 1)
                y = jnp.where(keep, history.y[index], 0.0)
                return learner.update(learner.predict(belief), (history.x[index], keep), y)[0]

            return jax.lax.fori_loop(0, count, step, belief)

        # A single new row, the usual case, is not padded to a chunk. Zero iterations are free.
        new = history.filled - state.absorbed
        belief = absorb(1, jnp.where(new == 1, 1, 0), state.belief)
        belief = absorb(_CHUNK, jnp.where(new == 1, 0, (new + _CHUNK - 1) // _CHUNK), belief)
        return State(state.key, belief, history.filled)

    def posterior(state: State) -> Posterior:
        return filters.posterior(flt, state.belief)

    fit, extend = jax.jit(condition_on, donate_argnums=0), jax.jit(condition_on)
    return Surrogate(jax.jit(init), fit, extend, posterior, growth, "thompson", jnp.float32)
