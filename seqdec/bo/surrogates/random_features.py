"""HiLoFi over a wide network with the exact Gaussian process's prior: updates of constant cost.

    f(x) = b + sqrt(2 s / K) sum_k u_k cos(w_k . z) + v_k sin(w_k . z),    z_i = x_i exp(h_i) / l_i

for K / 2 frequencies w_k. The last layer (b, u, v) ~ N(0, I) has a full-rank covariance, the first layer's log scales h
~ N(0, initial_std_hidden^2) a low-rank one. A scrambled Sobol sequence draws the frequencies from the spectral density
of the Matern-5/2 kernel, Student's t with five degrees of freedom: for h = 0 the prior tends to that of
`seqdec.bo.surrogates.gaussian_process`, whose marginal likelihood of at most 256 responses gives l, s and the noise
with each standardization. A chunk of responses is one Kalman update.

Sources: Rahimi, Recht, "Random features for large-scale kernel machines", 2007; by quasi-Monte Carlo: Avron, Sindhwani,
Yang, Mahoney, "Quasi-Monte Carlo feature maps for shift-invariant kernels", 2016.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import filters, likelihoods
from seqdec.bo.surrogates import evidence
from seqdec.bo.surrogates import gaussian_process as exact
from seqdec.bo.surrogates.contract import History, Surrogate
from seqdec.bo.surrogates.evidence import Hyperparameters
from seqdec.bo.surrogates.learned import shown
from seqdec.boundary import checks
from seqdec.core import Array, Filter, Key, Network, Posterior, PyTree
from seqdec.runtime import UNFUSED

_CHUNK = 16
_DEGREES = 5.0
"""Degrees of freedom of the frequencies' distribution."""
_CALIBRATED = 256
"""Most responses used for the hyperparameters."""


class Layer(NamedTuple):
    """The first layer without its scales h."""

    frequencies: Any
    """(K / 2, d)"""
    hyper: Hyperparameters
    """l, s and v"""


class Inputs(NamedTuple):
    """Rows of the unit cube for the network."""

    rows: Any
    """(n, d)"""
    weights: Any
    """(n,) factors of the responses: inverse noise standard deviations"""
    layer: Layer


class State(NamedTuple):
    """A belief and the number of its rows."""

    key: Key
    """of the prior"""
    layer: Layer
    belief: Any
    absorbed: Any
    """() int32 rows conditioned on"""
    unfitted: Any
    """() bool: hyperparameters of the prior"""


def hilofi(
    dim: int,
    *,
    units: int = 512,
    rank: int = 50,
    initial_std_hidden: float = 0.01,
) -> Surrogate:
    """HiLoFi over a wide network of cosines and sines.

    Args:
        dim: columns of the unit cube.
        units: K, an even number.
        rank: rank of the covariance of the first layer's log scales, at most `dim`.
        initial_std_hidden: their prior standard deviation, along each of its directions.

    Raises ValueError or TypeError for a setting that does not fit.
    """
    dim, units = checks.count("dim", dim), checks.count("units", units, 2)
    if units % 2:
        raise ValueError(f"units must be even, for each frequency has a cosine and a sine; got {units}")
    flt = filters.hilofi(
        _network(dim, units),
        likelihoods.gaussian(1.0),
        rank=min(checks.count("rank", rank), dim),
        initial_std_hidden=initial_std_hidden,
    )
    begin = jax.jit(flt.init, compiler_options=UNFUSED)
    absorb = jax.jit(functools.partial(_absorb, flt), compiler_options=UNFUSED)

    def start(key: Key, hyper: Hyperparameters, unfitted: bool) -> State:
        layer = Layer(_frequencies(key, dim, units), jax.tree.map(np.float32, hyper))
        belief = begin(jax.random.clone(key), _zeros(dim, units))  # every refit draws the same again
        return State(key, layer, belief, np.int32(0), np.array(unfitted))

    def init(key: Key, history: History) -> State:
        return start(key, evidence.prior_mean(evidence.places_of(history)), unfitted=True)

    def condition_on(state: State, history: History) -> State:
        noise = np.full(len(history.y), -1.0, np.float32) if history.noise is None else history.noise
        return absorb(state, history._replace(noise=noise, places=None))

    def fit(state: State, history: History) -> State:
        if state.unfitted:
            hyper = evidence.fitted(history, most=_CALIBRATED)
            state = start(state.key, hyper, unfitted=False)
        return condition_on(state, history)

    return Surrogate(
        init,
        fit,
        condition_on,
        functools.partial(_posterior, flt),
        exact.GROWTH,
        "log_expected_improvement",
        jnp.float32,
        lambda state: np.exp(state.layer.hyper.log_noise),
    )


def _zeros(dim: int, units: int) -> PyTree:
    return {"hidden": np.zeros(dim, np.float32), "last": np.zeros(units + 1, np.float32)}


def _network(dim: int, units: int) -> Network:
    def apply(params: PyTree, x: Inputs) -> Array:
        hyper = x.layer.hyper
        phases = (x.rows * jnp.exp(params["hidden"] - hyper.log_length_scales)[None]) @ x.layer.frequencies.T
        amplitude = jnp.exp(hyper.log_scale / 2) * math.sqrt(2 / units)
        waves = amplitude * jnp.concatenate([jnp.cos(phases), jnp.sin(phases)], axis=-1)
        return x.weights * (waves @ params["last"][:-1] + params["last"][-1])

    return Network(lambda key: _zeros(dim, units), apply, lambda path: path[0] == "last")


def _frequencies(key: Key, dim: int, units: int) -> np.ndarray:
    """(units / 2, dim) draws from the spectral density for unit length scales."""
    from scipy.special import gammaincinv, ndtri
    from scipy.stats import qmc

    seed = np.asarray(jax.random.key_data(key)).tolist()
    count = 1 << (units // 2 - 1).bit_length()  # a Sobol sequence is balanced over powers of two
    uniform = qmc.Sobol(dim + 1, rng=np.random.default_rng(seed)).random(count)[: units // 2]
    uniform = np.clip(uniform, 1e-9, 1 - 1e-9)
    spread = np.sqrt(_DEGREES / (2 * gammaincinv(_DEGREES / 2, uniform[:, :1])))
    return (ndtri(uniform[:, 1:]) * spread).astype(np.float32)


def _absorb(flt: Filter, state: State, history: History) -> State:
    estimated = jnp.exp(state.layer.hyper.log_noise)
    variances = jnp.where(history.noise < 0, estimated, history.noise) + evidence.SMALLEST_NOISE

    def update(belief: Any, index: Array, known: Array) -> Any:
        # Rows beyond the history weigh nothing: gradient and innovation vanish, and the update ignores them.
        weights = jnp.where(known, jax.lax.rsqrt(variances[index]), 0.0)
        inputs = Inputs(history.x[index], weights, state.layer)
        return flt.update(flt.predict(belief), inputs, weights * history.y[index])[0]

    belief = shown(update, state.belief, state.absorbed, history, _CHUNK)
    return state._replace(belief=belief, absorbed=history.filled)


def _posterior(flt: Filter, state: State) -> Posterior:
    at = filters.posterior(flt, state.belief)

    def inputs(rows: Array) -> Inputs:
        return Inputs(rows, jnp.ones(len(rows), rows.dtype), state.layer)

    def draw(key: Key):
        drawn = at.draw(key)
        return lambda rows: drawn(inputs(rows))

    return Posterior(lambda rows: at.mean(inputs(rows)), lambda rows: at.joint(inputs(rows)), draw)
