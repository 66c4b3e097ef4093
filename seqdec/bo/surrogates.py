"""The contract of surrogates: what a Bayesian optimiser believes of the function, in the unit cube.

Responses are standardised and larger is better; the optimiser takes care of both, and of the way back.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from seqdec.core import Array, Key, Posterior


class History(NamedTuple):
    """Queries in the order of their answers, padded to a fixed length N, so that one program serves them all."""

    x: Array
    """(N, d) points of the unit cube"""
    y: Array
    """(N,) standardised responses"""
    filled: Array
    """() int32 rows that hold a query"""

    @property
    def keep(self) -> Array:
        """(N,) bool: the rows that hold a query."""
        return jnp.arange(self.x.shape[0]) < self.filled


class Surrogate(NamedTuple):
    """A belief over functions on the unit cube, as pure functions."""

    init: Callable[[Key, History], Any]
    """(key, history) -> state that knows nothing yet; of the history only the shapes count."""
    fit: Callable[[Any, History], Any]
    """(state, history) -> state that knows the history, hyperparameters adapted. Rows have only been appended since the
    last fit; when the responses are standardised anew, the next fit has a state fresh from `init`."""
    condition_on: Callable[[Any, History], Any]
    """(state, history) -> state that knows the rows appended to the history, hyperparameters as they are."""
    posterior: Callable[[Any], Posterior]
    """(state) -> what an acquisition may ask about rows (n, d) of the unit cube."""
    growth: float
    """Responses are standardised anew whenever the history has grown by this factor; 1: for every query."""
    acquisition: str
    """The acquisition that goes with it unless another is asked for."""
    dtype: Any
    """of the history, and of the algebra"""
