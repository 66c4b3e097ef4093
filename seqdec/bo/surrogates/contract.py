"""The contract of surrogates, beliefs over the function in the unit cube.

Responses are standardized; larger is better.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from seqdec.boundary import checks
from seqdec.core import Array, Key, Posterior
from seqdec.portable import portable
from seqdec.registry import Outside, Registry

_MOST_EXACT = 1000
"""Values up to which "auto" is exact."""


class History(NamedTuple):
    """Evaluated points in order, padded to N; arrays of numpy or JAX."""

    x: Any
    """(N, d) points of the unit cube"""
    y: Any
    """(N,) standardized responses"""
    filled: Any
    """() int32 rows that hold a point"""
    noise: Any = None
    """(N,) known noise variances, negative where to be estimated; None: everywhere"""
    places: Any = None
    """(d,) int: the parameter of each column, from 0; columns of one have a common length scale. None: each its own"""

    @property
    def keep(self) -> Array:
        """(N,) bool: the rows with a point."""
        return jnp.arange(self.x.shape[0], dtype=jnp.int32) < jnp.asarray(self.filled, jnp.int32)


@portable
class Surrogate(NamedTuple):
    """A learner (`seqdec.core.Learner`) of histories.

    `posterior` is traced by JAX; the others are called with arrays of the host: compile what they compute.
    """

    init: Callable[[Key, History], Any]
    """(key, history) -> state of the prior; of the history only shapes are used."""
    fit: Callable[[Any, History], Any]
    """(state, history) -> state conditioned on the history, hyperparameters adapted; consumes the old state. Rows were
    only appended.
    """
    condition_on: Callable[[Any, History], Any]
    """(state, history) -> state conditioned on appended rows, hyperparameters unchanged."""
    posterior: Callable[[Any], Posterior]
    """(state) -> posterior over the responses at rows (n, d) of the unit cube."""
    growth: float
    """Responses are standardized again, and the state is from `init`, when the history has grown by this factor; 1:
    always, infinity: never.
    """
    acquisition: str
    """The acquisition that "auto" uses."""
    dtype: Any
    """of the history, and of the linear algebra"""
    noise_variance: Callable[[Any], Array] | None = None
    """(state) -> () estimated noise variance; None: neither estimated nor used from `History.noise`."""
    stored: Callable[[Any], Any] = lambda state: state
    """(state) -> what a file holds: empty arrays for those that `fit` computes anew."""
    averaged: Callable[[Any, History, int], Any] = lambda state, history, most: state
    """(state of `fit`, its history, most members) -> state whose `posterior` also averages over hyperparameters."""


def check_growth(growth: Any) -> float:
    """`growth` as a float, at least 1."""
    checks.concrete("growth", growth)
    growth = checks.real("growth", growth)
    if not growth >= 1:  # nor NaN
        raise ValueError(f"growth must be at least 1; got {growth}")
    return growth


REGISTRY: Registry[Surrogate] = Registry(
    "surrogate",
    {
        "gp": "seqdec.bo.surrogates.gaussian_process:gp",
        "hilofi": "seqdec.bo.surrogates.random_features:hilofi",
        "hilofi_mlp": "seqdec.bo.surrogates.filtered:hilofi_mlp",
        "lrkf": "seqdec.bo.surrogates.filtered:lrkf",
        "sparse_gp": "seqdec.bo.surrogates.sparse_gaussian_process:sparse_gp",
    },
    outside=Outside("seqdec.surrogates", "a function (*, keywords) -> seqdec.bo.Surrogate", Surrogate),
)
"""Factories (**options) -> Surrogate; a parameter `dim` receives the columns of the unit cube."""


def names() -> tuple[str, ...]:
    """The sorted names of the surrogates, without "auto"."""
    return REGISTRY.names()


def choose(told: int) -> str:
    """The surrogate of "auto" for so many values."""
    return "gp" if told <= _MOST_EXACT else "sparse_gp"


REFITTED = ("auto", "gp", "sparse_gp")
"""Those fitted anew with every question."""
REASONS = {
    "gp": f"auto: exact inference up to {_MOST_EXACT:,} values",
    "sparse_gp": f"auto: exact inference is slow for more than {_MOST_EXACT:,} values",
}
"""Why "auto" is which surrogate."""


@functools.cache
def make(name: str, dim: int, **options: Any) -> Surrogate:
    """The surrogate `name` for `dim` columns; equal arguments return the same object."""
    if "dim" in REGISTRY.parameters(name):
        options["dim"] = dim
    return REGISTRY.make(name, **options)
