r"""Bayesian linear regression with a weight vector and a noise variance for each of n responses, and one prior mean.

    y_j = w_j^T phi(x) + e        e ~ N(0, sigma_j^2)        w_j | sigma_j^2 ~ N(mu_j, sigma_j^2 I)

The last feature is 3. Usually mu_j = (0, m / 3): an action never played has expected reward m, the mean of all rewards,
with standard deviation 3 sigma_j. The covariance is sigma_j^2 C_j, C_j = T_j T_j^T; w_j is kept for mu = 0, so that mu
may move: the posterior mean is w_j + C_j mu_j. An observation (x, y) of response j, with p = T_j^T phi, s = 1 + p^T p
and e = y - w_j^T phi, gives (Potter's form)

    w_j += T_j p e / s        T_j -= T_j p p^T / (s + sqrt(s))

in O(F^2). A diagonal T_j <- T_j / sqrt(1 + p^2), in O(F), is that of the posterior precision. The noise variances, with
e the difference to the posterior mean:

    b_j += e^2 / s        n_j += 1        a = sum_i b_i / sum_i n_i        sigma_j^2 = max(a, (4 a + b_j) / (4 + n_j))

y given the past is Student-t with 4 + n_j degrees of freedom and scale^2 sigma_j^2 s, whatever the unit of y.

Source: Bernardo, Smith, "Bayesian Theory", 1994, section 5.2, for the posterior; Crammer, Kulesza, Dredze, "Adaptive
regularization of weight vectors", NeurIPS 2009, for the diagonal; the prior from the other responses is ours.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from seqdec import linalg, policies
from seqdec.core import Acquisition, Array, Marginals
from seqdec.runtime import alike

CONSTANT = 3.0
"""The last feature: prior standard deviation of an action's mean reward, in those of the noise."""
LONGEST = 2.0**32
"""Bound of half-lives: steps between forgetting fit int32."""
_TIMES = 4
"""Times a belief forgets per half-life."""
_PRIOR_COUNT, _SMALLEST = 4.0, 1e-30
"""Prior count of the noise; least variance."""
_FEW, _MOST_NEGLECT = 2, 20
"""Numbers in a context up to which draws are not tempered; largest neglect."""


def usual_policy(numbers: int) -> Acquisition:
    """Default policy for contexts of `numbers` numbers."""
    if numbers <= _FEW:
        return policies.epistemic_sampling()
    return policies.tempered_sampling(neglect=float(min(numbers, _MOST_NEGLECT)))


class Noise(NamedTuple):
    """Noise of n responses."""

    squares: Array
    """(n,) b"""
    counts: Array
    """(n,)"""

    @property
    def variance(self) -> Array:
        """(n,) sigma^2."""
        shared = jnp.sum(self.squares) / jnp.maximum(jnp.sum(self.counts), 1)
        own = (_PRIOR_COUNT * shared + self.squares) / (_PRIOR_COUNT + self.counts)
        return jnp.maximum(jnp.maximum(own, shared), _SMALLEST)

    def observed(self, error: Array, s: Array, index: Array, accept: Array) -> tuple["Noise", Array]:
        """The noise after an error of response `index`, and its log density; unchanged and 0 unless `accept`."""
        freedom = _PRIOR_COUNT + self.counts[index]
        square = jnp.maximum(self.variance[index] * s, jnp.finfo(s.dtype).tiny ** 0.5)
        normalizer = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * jnp.log(freedom * jnp.pi * square)
        density = normalizer - (freedom + 1) / 2 * jnp.log1p(error**2 / (freedom * square))
        squares = self.squares.at[index].add(jnp.where(accept, error**2 / s, 0))
        counts = self.counts.at[index].add(jnp.where(accept, 1.0, 0.0))
        return Noise(squares, counts), jnp.where(accept, density, 0)


class Sums(NamedTuple):
    """Weighted sums over rows."""

    gram: Array
    """(n, F, F) of phi phi^T over the rows with response j"""
    moment: Array
    """(n, F) of u_j phi"""
    squares: Array
    """(n,) of u_j^2"""
    counts: Array
    """(n,)"""

    def added(self, phi: Array, u: Array, weights: Array) -> "Sums":
        """With rows of features (b, F), responses (b, n) and weights (b, n), 0 where not observed."""
        gram = jnp.einsum("bj,bf,bk->jfk", weights, phi, phi)
        more = Sums(gram, jnp.einsum("bj,bf->jf", u * weights, phi), jnp.sum(weights * u**2, 0), jnp.sum(weights, 0))
        return jax.tree.map(lambda old, new: old + new.astype(old.dtype), self, more)


class Regression(NamedTuple):
    """Belief over the weights of n responses of F features."""

    weights: Array
    """(n, F) w for prior mean 0"""
    root: Array
    """(n, F, F) T, or (n, F) its diagonal"""
    noise: Noise

    def answer(self, phi: Array, mu: Array) -> Marginals:
        """Predictions (n,) at features (F,), for prior means (n, F)."""
        products = jnp.einsum("f,nfk->nk", phi, self.root) if self.root.ndim == 3 else phi[None] * self.root
        mean, noise = self.weights @ phi + jnp.sum(products * _transposed(self.root, mu), 1), self.noise.variance
        return Marginals(mean, noise * jnp.sum(products**2, 1), noise)

    def expected(self, mu: Array) -> Array:
        """Mean weights (n, F)."""
        return self.weights + _times(self.root, _transposed(self.root, mu))

    def drawn(self, normal: Array, mu: Array) -> Array:
        """Weights (n, F) drawn by standard normal numbers (n, F)."""
        std = jnp.sqrt(self.noise.variance)[:, None]
        return self.weights + _times(self.root, std * normal[:, : self.root.shape[-1]] + _transposed(self.root, mu))

    def responses(self, weights: Array, phi: Array, location: Array) -> Array:
        """(n,) expected rewards of weights (n, F)."""
        return weights @ phi

    def covariance(self, phis: Array) -> Array:
        """(b, b) of the first response at features (b, F)."""
        root = phis @ self.root[0] if self.root.ndim == 3 else phis * self.root[0]
        return self.noise.variance[0] * root @ root.mT

    def observed(self, phi, y, index, mu, accept):
        """The belief after response `index` was y, its error () and log density ()."""
        root, full = self.root[index], self.root.ndim == 3
        products = jnp.where(accept, phi @ root if full else phi * root, 0)
        scale = 1 + products @ products
        error = jnp.where(accept, y - self.weights[index] @ phi, 0)
        beyond = error - products @ (root.T @ mu[index] if full else root * mu[index])
        if full:
            gain = root @ products
            root = root - jnp.outer(gain, products / (scale + jnp.sqrt(scale)))
        else:
            gain = root * products
            root = root / jnp.sqrt(1 + products**2)
        noise, density = self.noise.observed(beyond, scale, index, accept)
        weights = self.weights.at[index].add(gain * (error / scale))
        return self._replace(weights=weights, root=self.root.at[index].set(root), noise=noise), (beyond, density)

    def faded(self, keep: Array) -> "Regression":
        """The belief in which an observation counts `keep` () times as much; O(n F^3).

        With C the covariance and g = keep,

            C' = (g C^-1 + (1 - g) I)^-1 = T (g I + (1 - g) T^T T)^-1 T^T        w' = w - (1 - g) C' w

        The noise stays.
        """

        def fade(root):
            information = keep * jnp.eye(root.shape[-1], dtype=root.dtype) + (1 - keep) * root.mT @ root
            return linalg.solve_transposed(linalg.lower_cholesky(information).mT, root.mT).mT

        root = self.root
        root = jax.lax.map(fade, root) if root.ndim == 3 else root / jnp.sqrt(keep + (1 - keep) * root**2)
        lost = _times(root, _transposed(root, self.weights))
        return self._replace(weights=self.weights - (1 - keep) * lost, root=root)

    def rescaled(self, y: Array, observed: Array) -> "Regression":
        """Itself."""
        return self

    def target(self, y: Array) -> Array:
        """Responses of rewards y."""
        return y

    def recomputed(self, sums: Sums) -> "Regression":
        """The belief from sums over rows with other features; the noise stays."""
        identity = jnp.eye(sums.gram.shape[-1], dtype=sums.gram.dtype)
        root = jax.lax.map(lambda gram: linalg.inverse_root(identity + gram), sums.gram)
        return self._replace(weights=_times(root, _transposed(root, sums.moment)), root=root)


def prior(responses: int, features: int, *, diagonal: bool = False) -> Regression:
    """Before any observation."""
    shape = (responses, features)
    root = jnp.ones(shape) if diagonal else jnp.broadcast_to(jnp.eye(features), (*shape, features))
    return Regression(jnp.zeros(shape), root, Noise(jnp.zeros(responses), jnp.zeros(responses)))


def usual_mean(weights: Array, location: Array) -> Array:
    """Prior means (n, F) for m = `location` ()."""
    return jnp.zeros_like(weights).at[:, -1].set(location / CONSTANT)


def learned(belief: Any, phi: Array, y: Array, index: Array, mu: Array, accept: Array) -> tuple[Any, Any]:
    """A belief after responses y (o,) number `index` (o,) at features (F,), their errors (o,) and log densities (o,).

    Sequential; unchanged unless `accept` () bool.
    """
    dtype = belief.weights.dtype
    phi = jnp.where(accept, phi, 0).astype(dtype)  # a product with a mask would keep NaN
    y, mu = y.astype(dtype), mu.astype(dtype)

    def one(belief, at):
        return belief.observed(phi, *at, mu, accept)

    return jax.lax.scan(one, alike(belief, phi, y), (y, index))


def forgotten(members: Any, half_lives: Sequence[float], step: Array, accept: Array) -> Any:
    """Beliefs (K, ...) whose observations count half after so many steps, after step number `step` () int32.

    Each forgets in every fourth of its half-life; unchanged unless `accept` () bool.
    """
    finite = [place for place, half_life in enumerate(half_lives) if half_life < math.inf]
    if not finite:
        return members
    periods = [max(1, int(half_lives[place] / _TIMES)) for place in finite]
    keeps = jnp.array([0.5 ** (steps / half_lives[place]) for place, steps in zip(finite, periods, strict=True)])
    due = accept & (step % jnp.array(periods) == 0)

    def one(number, members):
        at = jnp.argmax(jnp.cumsum(due) > number)
        place = jnp.array(finite)[at]
        less = jax.tree.map(lambda leaf: leaf[place], members).faded(keeps[at].astype(members.weights.dtype))
        return jax.tree.map(lambda leaf, new: leaf.at[place].set(new), members, less)

    return jax.lax.fori_loop(0, jnp.sum(due), one, members)


def no_rows(weights: Array) -> Sums:
    """Sums over no rows for weights (n, F)."""
    zeros = jnp.zeros_like(weights[:, 0])
    return Sums(jnp.zeros((*weights.shape, weights.shape[1]), weights.dtype), jnp.zeros_like(weights), zeros, zeros)


def _times(root: Array, vectors: Array) -> Array:
    """(n, F) T_j v_j."""
    return jnp.einsum("nfk,nk->nf", root, vectors) if root.ndim == 3 else root * vectors


def _transposed(root: Array, vectors: Array) -> Array:
    """(n, F) T_j^T v_j."""
    return jnp.einsum("nfk,nf->nk", root, vectors) if root.ndim == 3 else root * vectors
