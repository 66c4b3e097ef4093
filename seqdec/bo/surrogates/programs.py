"""What is computed with any surrogate: its fit, the belief with pending points, its moments."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.bo.surrogates.contract import History, Surrogate
from seqdec.core import Array, Key
from seqdec.runtime import UNFUSED

program = functools.partial(jax.jit, static_argnums=0, compiler_options=UNFUSED)
"""Compiles a function of a static and of other arguments."""


class Trials(NamedTuple):
    """All known points in the order answered, pending, failed; padded to N rows."""

    x: Any
    """(N, d)"""
    y: Any
    """(N,) standardized responses of the answered points; with m outputs (N, m), here and below"""
    answered: Any
    """() int32, their number"""
    pending: Any
    """() int32"""
    failed: Any
    """() int32"""
    noise: Any = None
    """(N,) as in `History`"""
    success: Any = None
    """posterior of `acquisition.failures`; None where failures do not depend on the point as far as is known"""
    optimum: Any = None
    """tables of `acquisition.optimum`; None without a belief where the optimum lies"""


class Belief(NamedTuple):
    """What candidates are scored by."""

    state: Any
    """of the surrogate, pending points included"""
    means: np.ndarray
    """(n,) at the answered and pending points"""


def fit(surrogate: Surrogate, key: Key, state: Any, trials: Trials) -> Any:
    """The state fitted to the answered points; from the prior, with the key, if `state` is None."""
    history = History(trials.x, trials.y, trials.answered, trials.noise)
    return surrogate.fit(surrogate.init(key, history) if state is None else state, history)


def believe(surrogate: Surrogate, state: Any, trials: Trials) -> Belief:
    """The belief of a fitted state, conditioned on the pending points, with their expected values, as well."""
    expected, count = np.asarray(means(surrogate, state, trials.x)), int(trials.answered + trials.pending)
    if not trials.pending:
        return Belief(state, expected[:count])
    y = np.concatenate([trials.y[: trials.answered], expected[trials.answered :]])
    state = surrogate.condition_on(state, History(trials.x, y, np.int32(count), trials.noise))
    return Belief(state, np.asarray(means(surrogate, state, trials.x))[:count])


@program
def means(surrogate: Surrogate, state: Any, x: Array) -> Array:
    """(n,) means of the function at rows `x` (n, d), in warped units."""
    return surrogate.posterior(state).mean(x)


@program
def joint(surrogate: Surrogate, state: Any, x: Array) -> tuple[Array, Array, Array]:
    """((n,) means, (n, n) covariance of the function at rows `x` (n, d), () variance of the noise), in warped units."""
    found = surrogate.posterior(state).joint(x)
    return found.mean, found.cov, found.noise[0, 0]


@program
def marginals(surrogate: Surrogate, state: Any, x: Array) -> tuple[Array, Array]:
    """((n,) means, (n,) standard deviations) of the function at rows `x` (n, d), in warped units."""
    posterior = surrogate.posterior(state)
    at = jax.vmap(lambda row: posterior.joint(row[None]))(x)
    return at.mean[:, 0], jnp.sqrt(jnp.maximum(at.cov[:, 0, 0], 0))
