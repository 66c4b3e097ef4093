r"""Bayesian linear regression with a weight vector and a noise variance for each of n responses, and one prior mean.

    y_j = w_j^T phi(x) + e        e ~ N(0, sigma_j^2)        w_j | sigma_j^2 ~ N((0, m / 3), sigma_j^2 I)

with sigma_j^2 as in `seqdec.agents.regression.noise`. The last feature is 3, so that an action which was never played
has expected reward m, the mean of all rewards so far, and three standard deviations of the noise around it. Rewards are
counted from the first one, so that their origin costs no digits. The covariance sigma_j^2 C_j is kept as C_j = T_j
T_j^T, and w_j is that of m = 0: the posterior mean is w_j + C_j (0, m / 3) for any m. One observation (x, y) of
response j, with p = T_j^T phi, s = 1 + p^T p and e = y - w_j^T phi, gives (Potter's form)

    w_j += T_j p e / s        T_j -= T_j p p^T / (s + sqrt(s))

in O(F^2). Source: textbook.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec import linalg, policies
from seqdec.agents._neural.experience import Experience
from seqdec.agents.regression import noise as noises
from seqdec.agents.regression.noise import Noise
from seqdec.core import Acquisition, Array
from seqdec.runtime import alike

CONSTANT = 3.0
"""The last feature: a prior of three standard deviations of the noise for the mean reward of an action."""
LONGEST = 2.0**32
"""Half-lives are below: then the steps between two times at which a belief forgets fit int32."""
_TIMES = 4
"""How often a belief forgets in a half-life: not in every step, so that it costs little."""
_FEW, _MOST_NEGLECT = 2, 20
"""Numbers in a context up to which draws are not tempered; the largest neglect, of contexts with as many or more."""


class Regression(NamedTuple):
    """Belief over the weights of n responses of F features."""

    weights: Array
    """(n, F) w, of the prior mean 0"""
    columns: Array
    """(n, F, F) T"""
    noise: Noise


def with_constant(z: Array) -> Array:
    """(z, 3) from z of any shape."""
    return jnp.append(jnp.ravel(z), CONSTANT)


class Answer(NamedTuple):
    """Predictions of n responses."""

    mean: Array
    """(n,)"""
    variance: Array
    """(n,) of the expected response"""
    noise: Array
    """(n,) sigma^2"""


def usual_policy(numbers: int) -> Acquisition:
    """For contexts of so many numbers: these explore the more by themselves, the more there are."""
    if numbers <= _FEW:
        return policies.epistemic_sampling()
    return policies.tempered_sampling(neglect=float(min(numbers, _MOST_NEGLECT)))


def prior(responses: int, features: int) -> Regression:
    """Before any observation."""
    columns = jnp.broadcast_to(jnp.eye(features), (responses, features, features))
    return Regression(jnp.zeros((responses, features)), columns, noises.unknown(responses))


def widened(belief: Regression, responses: int) -> Regression:
    """The belief over more responses, of which nothing is known."""
    fresh = prior(responses - len(belief.weights), belief.weights.shape[1])
    return jax.tree.map(lambda known, new: jnp.concatenate([known, new.astype(known.dtype)]), belief, fresh)


def answer(belief: Regression, phi: Array, location: Array) -> Answer:
    """Predictions at features (F,), with the prior mean m = `location`."""
    products = jnp.einsum("f,nfk->nk", phi, belief.columns)
    mean = belief.weights @ phi + location / CONSTANT * jnp.sum(products * belief.columns[:, -1], 1)
    noise = noises.variance(belief.noise)
    return Answer(mean, noise * jnp.sum(products**2, 1), noise)


def expected(belief: Regression, location: Array) -> Array:
    """Weights (n, F) in the mean, with the prior mean m = `location`."""
    return belief.weights + location / CONSTANT * jnp.einsum("nfk,nk->nf", belief.columns, belief.columns[:, -1])


def drawn(key: Array, belief: Regression, location: Array) -> Array:
    """Weights (n, F) drawn from the belief, its noise taken as it is estimated."""
    normal = jnp.sqrt(noises.variance(belief.noise))[:, None] * jax.random.normal(key, belief.weights.shape)
    coordinates = normal + location / CONSTANT * belief.columns[:, -1]
    return belief.weights + jnp.einsum("nfk,nk->nf", belief.columns, coordinates)


def responses(belief: Any, weights: Array, phi: Array, location: Array) -> Array:
    """(n,) expected rewards with these weights (n, F), whatever the belief."""
    del belief, location
    return weights @ phi


def root(belief: Regression, phis: Array) -> Array:
    """(b, F) R of which R R^T is the covariance of the first response at phis (b, F), in its noise variance."""
    return phis @ belief.columns[0]


def learn(
    belief: Any,
    phi: Array,
    row: Experience,
    location: Array,
    single: bool,
    accept: Array,
    one: Callable[..., tuple[Any, Array]] | None = None,
) -> tuple[Any, Array]:
    """The belief after one step, and the log density () of what was observed.

    Args:
        belief: before.
        phi: (F,) features.
        row: of the responses (n,), counted from the origin.
        location: m.
        single: whether just one of them was observed.
        accept: () bool; False leaves the belief unchanged.
        one: learns one response; None is `observe`.
    """
    dtype, learn_one = belief.weights.dtype, observe if one is None else one
    phi = jnp.where(accept, phi, 0).astype(dtype)  # a product with a mask would keep NaN
    y, location = row.y.astype(dtype), location.astype(dtype)
    indices = jnp.argmax(row.observed)[None] if single else jnp.arange(len(row.y))

    def step(belief, index):
        return learn_one(belief, phi, y[index], location, index, accept & row.observed[index])

    belief, densities = jax.lax.scan(step, alike(belief, phi, y), indices)
    return belief, jnp.sum(densities)


def innovation(mean: Array, row: Experience, single: bool) -> Array:
    """Observed minus predicted: (1,) where one response was observed, else (n,)."""
    error = jnp.where(row.observed, row.y - mean, 0)
    return jnp.sum(error, keepdims=True) if single else error


def observe(
    belief: Regression, phi: Array, y: Array, location: Array, index: Array, accept: Array
) -> tuple[Regression, Array]:
    """The belief after response `index` was y at features (F,), unchanged unless `accept`; and y's log density."""
    columns = belief.columns[index]
    products = jnp.where(accept, phi @ columns, 0)
    scale = 1 + products @ products
    error = jnp.where(accept, y - belief.weights[index] @ phi, 0)
    innovation = error - location / CONSTANT * (products @ columns[-1])
    density = noises.log_density(belief.noise, innovation, scale, index)
    weights = belief.weights.at[index].add(columns @ products * (error / scale))
    fresh = belief._replace(
        weights=weights,
        columns=belief.columns.at[index].set(_less(columns, products)),
        noise=noises.learned(belief.noise, innovation, scale, index, accept),
    )
    return fresh, jnp.where(accept, density, 0)


def _less(columns: Array, products: Array) -> Array:
    """T - T p p^T / (s + sqrt(s))."""
    scale = 1 + products @ products
    return columns - jnp.outer(columns @ products, products / (scale + jnp.sqrt(scale)))


def period(half_life: float) -> int:
    """Steps between two times at which a belief of this half-life forgets: a fourth of it."""
    return max(1, int(half_life / _TIMES))


def forgotten(belief: Regression, half_life: float, steps: Array, accept: Array) -> Regression:
    """The belief in which an observation counts half as much after `half_life` steps; O(n F^3) in each `period`.

    With C the covariance and g = 2^(-period / half_life),

        C' = (g C^-1 + (1 - g) I)^-1        w' = w - (1 - g) C' w

    The noise is remembered: it is the same in a world that changes, and what was rare is rare still.

    Args:
        belief: after a step.
        half_life: in steps.
        steps: () int32 number of the step.
        accept: () bool; False leaves the belief unchanged.
    """
    keep = 0.5 ** (period(half_life) / half_life)

    def fade(columns):
        root = linalg.inverse_root(columns @ columns.mT)
        return linalg.inverse_root(keep * (root @ root.mT) + (1 - keep) * jnp.eye(len(root), dtype=root.dtype))

    def due(_, roots):
        weights, columns = roots
        columns = jax.lax.map(fade, columns)
        lost = jnp.einsum("nfk,ngk,ng->nf", columns, columns, weights)
        return weights - (1 - keep) * lost, columns

    # A loop of zero or one iterations, where a conditional would copy the belief in each step.
    times = jnp.where(accept & (steps % period(half_life) == 0), 1, 0)
    weights, columns = jax.lax.fori_loop(0, times, due, (belief.weights, belief.columns))
    return Regression(weights, columns, belief.noise)


class Moments(NamedTuple):
    """Weighted sums over rows, which `recomputed` takes."""

    gram: Array
    """(n, F, F) of phi phi^T, over the rows in which response j was observed"""
    moment: Array
    """(n, F) of y_j phi"""


def no_rows(belief: Regression) -> Moments:
    """Sums over no rows, of as many responses and features as the belief has, and in its dtype."""
    (responses, features), dtype = belief.weights.shape, belief.weights.dtype
    return Moments(jnp.zeros((responses, features, features), dtype), jnp.zeros((responses, features), dtype))


def added(moments: Moments, phi: Array, y: Array, observed: Array, weights: Array) -> Moments:
    """The sums with more rows.

    Args:
        moments: before.
        phi: (b, F) features.
        y: (b, n) responses.
        observed: (b, n) bool.
        weights: (b,) how many observations a row stands for.
    """
    gram = jnp.einsum("bj,bf,bk->jfk", observed.astype(weights.dtype) * weights[:, None], phi, phi)
    moment = jnp.einsum("bj,bf->jf", jnp.where(observed, y, 0) * weights[:, None], phi)
    return jax.tree.map(lambda old, new: old + new.astype(old.dtype), moments, Moments(gram, moment))


def recomputed(belief: Regression, moments: Moments) -> Regression:
    """The belief with other features, from sums over rows; the noise stays as it is estimated."""
    identity = jnp.eye(moments.gram.shape[-1], dtype=moments.gram.dtype)
    columns = jax.lax.map(lambda gram: linalg.inverse_root(identity + gram), moments.gram)
    weights = jnp.einsum("jfk,jgk,jg->jf", columns, columns, moments.moment)
    return belief._replace(weights=weights, columns=columns)
