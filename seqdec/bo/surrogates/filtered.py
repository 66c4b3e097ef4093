"""Surrogates from filters over an MLP, with updates of constant cost.

The default network is the paper's, three hidden layers of 180 ELU units, on the unit cube scaled to [-a, a]. Each chunk
of responses is one Kalman update.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from seqdec import filters, likelihoods, models
from seqdec.bo.surrogates.contract import Surrogate, check_growth
from seqdec.bo.surrogates.learned import learned
from seqdec.boundary import checks
from seqdec.core import Filter

_CHUNK = 8


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
        initial_std_hidden, initial_std_last: prior standard deviations along each of its directions, and of last-layer
            parameters.
        process_noise_hidden: variance added to every hidden parameter with every chunk.
        features, noise_variance, scale, growth: as in `over_mlp`.
    """
    make = functools.partial(
        filters.hilofi,
        rank=rank,
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
        process_noise: variance added to every parameter with every chunk.
        features, noise_variance, scale, growth: as in `over_mlp`.
    """
    make = functools.partial(filters.lrkf, rank=rank, initial_std=initial_std, process_noise=process_noise)
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

    Raises ValueError or TypeError for a setting that does not fit.
    """
    checks.concrete("noise_variance", noise_variance)
    likelihood = likelihoods.gaussian(checks.real("noise_variance", noise_variance))
    return filtered(lambda rows: make(rows, likelihood), mlp(dim, features, scale), growth=check_growth(growth))


def mlp(dim: int, features: tuple[int, ...], scale: float) -> models.Network:
    """The network of one response for each row (n, dim); arguments and errors as in `over_mlp`."""
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
        growth: as in `Surrogate`.
    """
    flt = make(rows)
    # Rows beyond the history are multiplied by zero: gradient and innovation vanish, and the update ignores them.
    masked = make(rows._replace(apply=lambda params, x: jnp.where(x[1], rows.apply(params, x[0]), 0.0)))
    learner = filters.learner(masked, rows.init)._replace(posterior=functools.partial(filters.posterior, flt))
    return learned(learner, growth=growth, chunk=_CHUNK, padded=lambda rows, known: (rows, known))
