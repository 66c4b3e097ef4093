r"""Warped inputs: a surrogate over an increasing transform of each column of the unit cube.

    w(u) = 1 - (1 - u^a)^b,    log a ~ N(0, 3/4),    log b ~ N(0, 3/4)

the distribution function of Kumaraswamy, with a and b for each column; a = b = 1 is the identity. A function that
changes much faster at one end of a range than at the other is closer to stationary in w(u). All a and b maximize the
marginal likelihood of the Gaussian process of `seqdec.bo.surrogates.gaussian_process`, jointly with its hyperparameters
and times the priors, by L-BFGS with the gradient in closed form, whenever the surrogate starts from its prior.

Source: Snoek, Swersky, Zemel, Adams, "Input warping for Bayesian optimization of non-stationary functions", 2014.
"""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from seqdec.bo.surrogates import gaussian_process as exact
from seqdec.bo.surrogates.contract import History, Surrogate, around
from seqdec.core import Key, Posterior

_VARIANCE = 0.75
_REACH = 4 * _VARIANCE**0.5
"""Largest absolute logarithm of a and b."""
_EDGE = 1e-6
"""Inputs are kept this far from 0 and 1, where the derivatives may be infinite."""
_ITERATIONS = 50


class Powers(NamedTuple):
    """Logarithms of a and b."""

    log_a: Any
    """(d,)"""
    log_b: Any
    """(d,)"""


class State(NamedTuple):
    """The warps, and the surrogate's state given the warped history."""

    powers: Powers
    unfitted: Any
    """() bool: they are the identity"""
    inner: Any


@functools.cache
def warped(surrogate: Surrogate) -> Surrogate:
    """The surrogate over warped inputs."""
    dtype = np.dtype(surrogate.dtype)

    def through(powers: Powers, history: History) -> History:
        return history._replace(x=_of_history(powers, np.asarray(history.x, float)).astype(dtype))

    def init(key: Key, history: History) -> State:
        identity = Powers(*np.zeros((2, np.shape(history.x)[1]), dtype))
        return State(identity, np.array(True), surrogate.init(key, history))

    def fit(state: State, history: History) -> State:
        powers = Powers(*(part.astype(dtype) for part in fitted(history))) if state.unfitted else state.powers
        return State(powers, np.array(False), surrogate.fit(state.inner, through(powers, history)))

    def condition_on(state: State, history: History) -> State:
        return state._replace(inner=surrogate.condition_on(state.inner, through(state.powers, history)))

    def posterior(state: State) -> Posterior:
        at = surrogate.posterior(state.inner)
        warp = functools.partial(forward, state.powers, xp=jnp)

        def draw(key: Key):
            drawn = at.draw(key)
            return lambda rows: drawn(warp(rows))

        return Posterior(lambda rows: at.mean(warp(rows)), lambda rows: at.joint(warp(rows)), draw)

    return around(surrogate, init, fit, condition_on, posterior)


def forward(powers: Powers, x: Any, xp: Any) -> Any:
    """Warped rows `x` (n, d), computed by the module `xp`, numpy or jax.numpy."""
    a, b = xp.exp(powers.log_a)[None], xp.exp(powers.log_b)[None]
    return -xp.expm1(b * xp.log1p(-(xp.clip(x, _EDGE, 1 - _EDGE) ** a)))


def _of_history(powers: Powers, x: np.ndarray) -> np.ndarray:
    """Warped rows `x` (n, d) of a history, of which some may lie outside of the cube, where the slope is 1."""
    return forward(powers, x, np) + (x - np.clip(x, 0, 1))


def derivatives(powers: Powers, x: np.ndarray) -> Powers:
    """Those of w at rows `x` (n, d) by log a and by log b, each (n, d)."""
    a, b, x = np.exp(powers.log_a), np.exp(powers.log_b), np.clip(x, _EDGE, 1 - _EDGE)
    power = x**a
    rest = np.log1p(-power)
    return Powers(a * b * np.exp((b - 1) * rest) * power * np.log(x), -b * np.exp(b * rest) * rest)


def fitted(history: History) -> Powers:
    """The warps fitted to a history."""
    from scipy.optimize import minimize

    known = exact.calibration_rows(history)
    dim = known.x.shape[1]
    start = exact.flatten(exact.fitted(history, _ITERATIONS))

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        powers, logs = Powers(flat[:dim], flat[dim : 2 * dim]), flat[: 2 * dim]
        moved = known._replace(x=_of_history(powers, known.x))
        value, by_hyper, by_x = exact.loss(flat[2 * dim :], moved)
        by_powers = [np.sum(by_x * by_power, axis=0) for by_power in derivatives(powers, known.x)]
        gradient = np.concatenate([*by_powers, by_hyper])
        gradient[: 2 * dim] += logs / _VARIANCE
        return value + 0.5 * float(logs @ logs) / _VARIANCE, gradient

    found = minimize(
        loss,
        np.concatenate([np.zeros(2 * dim), start]),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-_REACH, _REACH)] * (2 * dim) + exact.bounds(dim),
        options={"maxiter": _ITERATIONS, "gtol": exact.GRADIENT, "maxcor": 8},
    )
    return Powers(found.x[:dim], found.x[dim : 2 * dim]) if np.isfinite(found.fun) else Powers(*np.zeros((2, dim)))
