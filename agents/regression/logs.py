r"""Bayesian linear regression of the logarithm of rewards, for counts, costs and revenue.

Rewards are counted from the end e of their shorter side: d = s (y - e) >= 0 with s = 1 and e the smallest, or s = -1
and e the largest. With c a tenth of the mean of d and log g the mean of log(d + c),

    u = log((d + c) / g)        u_j = w_j^T phi(x) + noise

is a regression (`seqdec.agents.regression.nig`) of the prior mean 0. An expected reward is, linear in w about its mean,

    y_j(x) = e + s (k g exp(w_j^T phi) - c)        k = sum (d + c) / sum g exp(w_j^T phi)

with sums over all observations and their predictions: the logarithm of a mean is not the mean of logarithms.
The noise of y is estimated as in other regressions, with which this one is therefore comparable. The end, c and g are
those of the rows of a memory, from which the belief is recomputed; before that it foretells the mean of all rewards.
No predicted amount d + c is more than e times the largest.

Source: Duan, "Smearing estimate: a nonparametric retransformation method", JASA 1983, for k, here as a ratio of sums.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seqdec.agents._neural.experience import Experience
from seqdec.agents.regression import nig
from seqdec.agents.regression import noise as noises
from seqdec.agents.regression.nig import Answer, Moments, Regression
from seqdec.agents.regression.noise import Noise
from seqdec.core import Array, Key

_SHARE = 0.1
"""c, in the mean of d."""
_BEYOND = 1.0
"""The largest prediction of u, beyond the largest u."""


class Scale(NamedTuple):
    """How rewards become logarithms."""

    end: Array
    """() e"""
    sign: Array
    """() s"""
    shift: Array
    """() c, 0 while it is not known"""
    unit: Array
    """() g, 0 while it is not known"""
    furthest: Array
    """() largest u"""


class Logs(NamedTuple):
    """Belief over the weights of n responses of F features."""

    regression: Regression
    """of u"""
    noise: Noise
    """of the rewards"""
    scale: Scale
    seen: Array
    """() sum of d + c"""
    foretold: Array
    """() sum of their predictions"""

    @property
    def weights(self) -> Array:
        """(n, F) w."""
        return self.regression.weights


def prior(responses: int, features: int) -> Logs:
    """Before any observation."""
    zero = jnp.zeros(())
    unknown = Scale(zero, jnp.ones(()), zero, zero, zero)
    return Logs(nig.prior(responses, features), noises.unknown(responses), unknown, zero, zero)


def _exponentials(scale: Scale, logarithms: Array) -> Array:
    """The amounts g exp(u)."""
    return scale.unit * jnp.exp(jnp.minimum(logarithms, scale.furthest + _BEYOND))


def _amounts(belief: Logs, logarithms: Array) -> Array:
    """The expected d + c, k g exp(u)."""
    told = belief.foretold > 0
    ratio = jnp.where(told, belief.seen / jnp.where(told, belief.foretold, 1), 1)
    return ratio * _exponentials(belief.scale, logarithms)


def _logarithms(scale: Scale, y: Array) -> Array:
    """u, or 0 while the scale is not known."""
    known = scale.unit > 0
    distance = jnp.maximum(scale.sign * (y - scale.end), 0) + scale.shift
    return jnp.where(known, jnp.log(jnp.where(known, distance / jnp.where(known, scale.unit, 1), 1)), 0)


def _means(belief: Logs, logarithms: Array, location: Array) -> tuple[Array, Array]:
    """The expected d + c, and the expected rewards."""
    amounts, scale = _amounts(belief, logarithms), belief.scale
    return amounts, jnp.where(scale.unit > 0, scale.end + scale.sign * (amounts - scale.shift), location)


def answer(belief: Logs, phi: Array, location: Array) -> Answer:
    """Predictions at features (F,), with the mean of all rewards `location`."""
    told = nig.answer(belief.regression, phi, jnp.zeros_like(location))
    amounts, mean = _means(belief, told.mean, location)
    return Answer(mean, amounts**2 * told.variance, noises.variance(belief.noise))


def expected(belief: Logs, location: Array) -> Array:
    """Weights (n, F) in the mean."""
    del location
    return belief.weights


def drawn(key: Key, belief: Logs, location: Array) -> Array:
    """Weights (n, F) drawn from the belief."""
    return nig.drawn(key, belief.regression, jnp.zeros_like(location))


def responses(belief: Logs, weights: Array, phi: Array, location: Array) -> Array:
    """(n,) expected rewards with these weights (n, F), and the mean of all rewards `location`."""
    middle = belief.weights @ phi
    amounts, mean = _means(belief, middle, location)
    return mean + belief.scale.sign * amounts * (weights @ phi - middle)


def root(belief: Logs, phis: Array) -> Array:
    """(b, F) of the logarithms, as `seqdec.agents.regression.nig.root`."""
    return nig.root(belief.regression, phis)


def learn(
    belief: Logs, phi: Array, row: Experience, location: Array, single: bool, accept: Array
) -> tuple[Logs, Array]:
    """The belief after one step, as `seqdec.agents.regression.nig.learn`."""
    return nig.learn(belief, phi, row, location, single, accept, observe)


def observe(belief: Logs, phi: Array, y: Array, location: Array, index: Array, accept: Array) -> tuple[Logs, Array]:
    """The belief after response `index` was y at features (F,), unchanged unless `accept`; and y's log density."""
    scale, told = belief.scale, nig.answer(belief.regression, phi, jnp.zeros_like(location))
    at = jax.tree.map(lambda leaf: leaf[index], answer(belief, phi, location))
    innovation = jnp.where(accept, y - at.mean, 0)
    spread = 1 + at.variance / at.noise
    density = noises.log_density(belief.noise, innovation, spread, index)
    known = accept & (scale.unit > 0)
    u = jnp.where(known, _logarithms(scale, y), 0)
    regression, _ = nig.observe(belief.regression, phi, u, jnp.zeros_like(location), index, known)
    fresh = Logs(
        regression,
        noises.learned(belief.noise, innovation, spread, index, accept),
        scale,
        belief.seen + jnp.where(known, scale.unit * jnp.exp(u), 0),
        belief.foretold + jnp.where(known, _exponentials(scale, told.mean[index]), 0),
    )
    return fresh, jnp.where(accept, density, 0)


class Sums(NamedTuple):
    """Weighted sums over rows, which `recomputed` takes."""

    moments: Moments
    """of u"""
    squares: Array
    """(n,) of u^2"""
    counts: Array
    """(n,)"""


def rescaled(belief: Logs, y: Array, observed: Array) -> Logs:
    """The belief with the scale of rewards y (b, n), of those `observed` (b, n) bool; its other parts are as before."""
    count = jnp.maximum(jnp.sum(observed.astype(y.dtype)), 1)

    def mean(values):
        return jnp.sum(jnp.where(observed, values, 0)) / count

    low, high = jnp.min(y, initial=jnp.inf, where=observed), jnp.max(y, initial=-jnp.inf, where=observed)
    center = mean(y)
    above = high - center >= center - low
    end, sign = jnp.where(above, low, high), jnp.where(above, 1.0, -1.0).astype(y.dtype)
    shift = _SHARE * jnp.abs(center - end)
    varies = jnp.any(observed) & (shift > 0)
    shift = jnp.where(varies, shift, 1)
    logarithms = jnp.log(jnp.maximum(sign * (jnp.where(observed, y, end) - end), 0) + shift)
    center = mean(logarithms)
    scale = Scale(end, sign, shift, jnp.exp(center), jnp.max(logarithms) - center)
    return belief._replace(scale=jax.tree.map(lambda new, old: jnp.where(varies, new, old), scale, belief.scale))


def no_rows(belief: Logs) -> Sums:
    """Sums over no rows, as `seqdec.agents.regression.nig.no_rows`."""
    zero = jnp.zeros_like(belief.weights[:, 0])
    return Sums(nig.no_rows(belief.regression), zero, zero)


def added(sums: Sums, belief: Logs, phi: Array, y: Array, observed: Array, weights: Array) -> Sums:
    """The sums with more rows, as `seqdec.agents.regression.nig.added`, in the scale of the belief."""
    u, counted = _logarithms(belief.scale, y), observed.astype(weights.dtype) * weights[:, None]
    new = jnp.sum(counted * u**2, 0), jnp.sum(counted, 0)
    squares, counts = (old + more.astype(old.dtype) for old, more in zip(sums[1:], new, strict=True))
    return Sums(nig.added(sums.moments, phi, u, observed, weights), squares, counts)


def recomputed(belief: Logs, sums: Sums) -> Logs:
    """The belief from sums over rows, in its scale; the noise of the rewards stays as it is estimated."""
    regression = nig.recomputed(belief.regression, sums.moments)
    explained = jnp.einsum("jf,jf->j", regression.weights, sums.moments.moment)
    noise = Noise(jnp.maximum(sums.squares - explained, 0), sums.counts)
    return belief._replace(regression=regression._replace(noise=noise))
