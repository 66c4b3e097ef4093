"""Surrogates and acquisitions by name, and the choice between them."""

import difflib
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from flax import linen as nn

from seqdec import filters, likelihoods, models, policies
from seqdec.bo.filtered import filtered
from seqdec.bo.gp import gp
from seqdec.bo.surrogates import Surrogate
from seqdec.core import Acquisition, Array

_NETWORK = (180, 180, 180)


def _network(dim: int, features: tuple[int, ...]) -> models.Network:
    return models.network(models.MLP(1, features, nn.elu), jnp.zeros(dim))


def hilofi(
    dim: int,
    *,
    rank: int = 50,
    initial_std_hidden: float = 0.01,
    initial_std_last: float = 0.3,
    process_noise: float = 0.0,
    noise: float = 1e-4,
    scale: float = 2.0,
    passes: int = 2,
    growth: float = 1.25,
    features: tuple[int, ...] = _NETWORK,
) -> Surrogate:
    """HiLoFi over an MLP: full-rank belief over the last layer, low-rank over the hidden layers."""
    network = _network(dim, features)

    def make(apply, is_last):
        return filters.hilofi(
            apply,
            likelihoods.gaussian(noise),
            is_last=is_last,
            rank=rank,
            initial_std_hidden=initial_std_hidden,
            initial_std_last=initial_std_last,
            process_noise_hidden=process_noise,
        )

    return filtered(make, network, scale=scale, passes=passes, growth=growth)


_SURROGATES: dict[str, Callable[..., Surrogate]] = {"gp": lambda dim, **options: gp(**options), "hilofi": hilofi}


@functools.cache
def make(name: str, dim: int, **options: Any) -> Surrogate:
    """."""
    return _SURROGATES[name](dim, **options)


def log_ei(best: Array) -> Acquisition:
    """."""
    return policies.log_expected_improvement(best)


def ucb(best: Array) -> Acquisition:
    """."""
    return policies.ucb(2.0)


def thompson(best: Array) -> Acquisition:
    """."""
    return policies.thompson(propensity_samples=0)


_ACQUISITIONS = {"log_expected_improvement": log_ei, "thompson": thompson, "ucb": ucb}
