r"""Bayesian linear regression of the logarithm of rewards, for counts, costs and revenue.

Rewards are counted from the end e of their shorter side: d = s (y - e) >= 0 with s = 1 and e the smallest, or s = -1
and e the largest. With c a tenth of the mean of d and log g the mean of log(d + c),

    u = log((d + c) / g)        u_j = w_j^T phi(x) + noise

is a regression (`seqdec.agents.regression.conjugate`) of prior mean 0. An expected reward is, linear in w about its
mean,

    y_j(x) = e + s (k g exp(w_j^T phi) - c)        k = sum (d + c) / sum g exp(w_j^T phi)

with sums over all observations. The noise of y is estimated as in other regressions. e, c and g are those of the
memory from which the belief is recomputed. Before that, and where half of the rewards are e, there is none: it predicts
the mean of all rewards, and its log density is one less. No predicted d + c is more than e times the largest.

Source: Duan, "Smearing estimate: a nonparametric retransformation method", JASA 1983, for k, here as a ratio of sums.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from seqdec.agents.regression import conjugate
from seqdec.agents.regression.conjugate import CONSTANT, Noise, Regression, Sums
from seqdec.core import Array, Marginals

_SHARE = 0.1
"""c / mean of d."""
_ENDS = 0.5
"""Share of rewards at e from which on there is no scale: zeros are no small amounts."""
_NONE = 1.0
"""Loss of log density where there is no scale."""
_BEYOND = 1.0
"""Largest predicted u beyond the largest u."""


class Scale(NamedTuple):
    """Scale of logarithms."""

    end: Array
    """() e"""
    sign: Array
    """() s"""
    shift: Array
    """() c, 0 while unknown"""
    unit: Array
    """() g, 0 while unknown"""
    furthest: Array
    """() largest u"""


class Logs(NamedTuple):
    """Belief over the weights of n responses of F features, as a `Regression`."""

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

    def answer(self, phi: Array, mu: Array) -> Marginals:
        """As `Regression.answer`; mu has the mean of all rewards."""
        at = self.regression.answer(phi, jnp.zeros_like(mu))
        amounts, mean = self._means(at.mean, CONSTANT * mu[0, -1])
        return Marginals(mean, amounts**2 * at.variance, self.noise.variance)

    def expected(self, mu: Array) -> Array:
        """As `Regression.expected`."""
        return self.weights

    def drawn(self, normal: Array, mu: Array) -> Array:
        """As `Regression.drawn`."""
        return self.regression.drawn(normal, jnp.zeros_like(mu))

    def responses(self, weights: Array, phi: Array, location: Array) -> Array:
        """As `Regression.responses`."""
        middle = self.weights @ phi
        amounts, mean = self._means(middle, location)
        return mean + self.scale.sign * amounts * (weights @ phi - middle)

    def observed(self, phi, y, index, mu, accept):
        """As `Regression.observed`."""
        at = jax.tree.map(lambda leaf: leaf[index], self.answer(phi, mu))
        error = jnp.where(accept, y - at.mean, 0)
        noise, density = self.noise.observed(error, 1 + at.variance / at.noise, index, accept)
        known = accept & (self.scale.unit > 0)
        u, foretold = jnp.where(known, self.target(y), 0), self._amounts(self.weights[index] @ phi)
        density = jnp.where(accept & ~known, density - _NONE, density)
        regression, _ = self.regression.observed(phi, u, index, jnp.zeros_like(mu), known)
        seen = self.seen + jnp.where(known, self.scale.unit * jnp.exp(u), 0)
        return Logs(regression, noise, self.scale, seen, self.foretold + jnp.where(known, foretold, 0)), (
            error,
            density,
        )

    def faded(self, keep: Array) -> "Logs":
        """As `Regression.faded`."""
        return self._replace(regression=self.regression.faded(keep))

    def rescaled(self, y: Array, observed: Array) -> "Logs":
        """The belief in the scale of rewards y (b, n), `observed` (b, n) bool."""
        count = jnp.maximum(jnp.sum(observed.astype(y.dtype)), 1)

        def mean(values):
            return jnp.sum(jnp.where(observed, values, 0)) / count

        low, high = jnp.min(y, initial=jnp.inf, where=observed), jnp.max(y, initial=-jnp.inf, where=observed)
        center = mean(y)
        above = high - center >= center - low
        end, sign = jnp.where(above, low, high), jnp.where(above, 1.0, -1.0).astype(y.dtype)
        shift = _SHARE * jnp.abs(center - end)
        ends = jnp.sum(jnp.where(observed & (y == end), 1, 0)) / count
        varies = jnp.any(observed) & (shift > 0) & (ends < _ENDS)
        shift = jnp.where(varies, shift, 1)
        logarithms = jnp.log(jnp.maximum(sign * (jnp.where(observed, y, end) - end), 0) + shift)
        center = mean(logarithms)
        scale = Scale(end, sign, shift, jnp.exp(center), jnp.max(logarithms) - center)
        return self._replace(scale=jax.tree.map(lambda new, old: jnp.where(varies, new, old), scale, self.scale))

    def target(self, y: Array) -> Array:
        """u, or 0 while the scale is unknown."""
        scale, known = self.scale, self.scale.unit > 0
        distance = jnp.maximum(scale.sign * (y - scale.end), 0) + scale.shift
        return jnp.where(known, jnp.log(jnp.where(known, distance / jnp.where(known, scale.unit, 1), 1)), 0)

    def recomputed(self, sums: Sums) -> "Logs":
        """The belief from sums over rows in its scale; the noise stays."""
        regression = self.regression.recomputed(sums)
        explained = jnp.einsum("jf,jf->j", regression.weights, sums.moment)
        noise = Noise(jnp.maximum(sums.squares - explained, 0), sums.counts)
        return self._replace(regression=regression._replace(noise=noise))

    def _amounts(self, logarithms: Array) -> Array:
        """The d + c at logarithms u: g exp(u)."""
        return self.scale.unit * jnp.exp(jnp.minimum(logarithms, self.scale.furthest + _BEYOND))

    def _means(self, logarithms: Array, location: Array) -> tuple[Array, Array]:
        """Expected d + c, k g exp(u), and expected rewards."""
        told, scale = self.foretold > 0, self.scale
        ratio = jnp.where(told, self.seen / jnp.where(told, self.foretold, 1), 1)
        amounts = ratio * self._amounts(logarithms)
        return amounts, jnp.where(scale.unit > 0, scale.end + scale.sign * (amounts - scale.shift), location)


def prior(responses: int, features: int) -> Logs:
    """Before any observation."""
    zero, noise = jnp.zeros(()), Noise(jnp.zeros(responses), jnp.zeros(responses))
    return Logs(conjugate.prior(responses, features), noise, Scale(zero, zero + 1, zero, zero, zero), zero, zero)
