"""Greedy optimizers in closed form: the symmetric Q >= 0 of fastest descent within a trust region.

The flow theta' = -Q grad L lowers the loss at the rate P(Q) = tr(Q Sigma), Sigma = E[g g^T] (d x d). Each family of
trust regions has a maximizer Q*, maximum P*, and gauge, the least multiple of the region that contains a given Q:

    frobenius   |Q|_F^2 <= B                  Q* ~ Sigma                            P* = sqrt(B) |Sigma|_F
    spectral    tr Q <= tau, Q <= lambda I    lambda on the leading eigenvectors of Sigma up to trace tau
    lyapunov    tr(Q^2 Sigma) <= B            Q* ~ projector on the range of Sigma  P* = sqrt(B tr Sigma)
    diagonal    Q = diag(q), sum c q^2 <= B   q ~ diag(Sigma) / c                   P* = sqrt(B sum diag(Sigma)^2 / c)

An indefinite Sigma, such as a cross moment of training and validation gradients, is replaced by its positive part. The
Lyapunov P* is neither convex nor homogeneous of degree one.

Source: Lee, Lee, "Optimizing Optimizers for Fast Gradient-Based Learning", 2025, Corollary 2. The Adam of its
experiments is `self_tuning_adamw`, not the diagonal family.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from seqdec import linalg
from seqdec.boundary import checks
from seqdec.core import Array


class Family(NamedTuple):
    """A family of trust regions."""

    optimum: Callable[[Array], tuple[Array, Array]]
    """(Sigma (d, d)) -> Q* (d, d), P* ()"""
    gauge: Callable[[Array, Array], Array]
    """(Q (d, d), Sigma (d, d)) -> (): 1 on the boundary; inf for a Q in no multiple"""


def frobenius(budget: Any) -> Family:
    """|Q|_F^2 <= budget: the proportional optimizer."""
    checks.number("budget", budget, exclusive=True)

    def optimum(moment):
        positive = _positive_part(moment)
        norm = jnp.linalg.norm(positive)
        return jnp.sqrt(budget) * positive / jnp.where(norm > 0, norm, 1), jnp.sqrt(budget) * norm

    def gauge(matrix, moment):
        del moment
        return _if_positive(matrix, jnp.linalg.norm(matrix) / jnp.sqrt(budget))

    return Family(optimum, gauge)


def spectral(trace: Any, largest: Any) -> Family:
    """Tr Q <= trace and Q <= largest I: water-filling.

    trace >= d largest: gradient descent; trace <= largest: a step along the leading eigenvector.
    """
    checks.number("trace", trace, exclusive=True)
    checks.number("largest", largest, exclusive=True)

    def optimum(moment):
        values, vectors = linalg.eigh(moment)
        order = jnp.arange(len(values), dtype=values.dtype)[::-1]
        spent = jnp.clip(trace - largest * order, 0, largest) * (values > 0).astype(values.dtype)
        return (vectors * spent[None]) @ vectors.T, jnp.sum(spent * values)

    def gauge(matrix, moment):
        del moment
        top = linalg.eigvalsh(matrix)[-1]
        return _if_positive(matrix, jnp.maximum(jnp.trace(matrix) / trace, top / largest))

    return Family(optimum, gauge)


def lyapunov(budget: Any) -> Family:
    """Tr(Q^2 Sigma) <= budget: equal power in every direction of Sigma's range."""
    checks.number("budget", budget, exclusive=True)

    def optimum(moment):
        values, vectors = linalg.eigh(moment)
        live = values > len(values) * jnp.finfo(moment.dtype).eps * jnp.maximum(values[-1], 0)
        total = jnp.sum(jnp.where(live, values, 0))
        size = jnp.sqrt(budget / jnp.where(total > 0, total, 1))
        return size * (vectors * live[None].astype(vectors.dtype)) @ vectors.T, jnp.sqrt(budget * total)

    def gauge(matrix, moment):
        return _if_positive(matrix, jnp.sqrt(jnp.trace(matrix @ matrix @ moment) / budget))

    return Family(optimum, gauge)


def diagonal(budget: Any, costs: Array) -> Family:
    """Q = diag(q) with sum costs q^2 <= budget; costs (d,) > 0."""
    checks.number("budget", budget, exclusive=True)

    def optimum(moment):
        gains, paid = jnp.maximum(jnp.diagonal(moment), 0), jnp.asarray(costs, moment.dtype)
        total = jnp.sum(gains**2 / paid)
        return jnp.sqrt(budget / jnp.where(total > 0, total, 1)) * jnp.diag(gains / paid), jnp.sqrt(budget * total)

    def gauge(matrix, moment):
        del moment
        entries = jnp.diagonal(matrix)
        inside = jnp.all(matrix == jnp.diag(entries)) & jnp.all(entries >= 0)
        return jnp.where(inside, jnp.sqrt(jnp.sum(jnp.asarray(costs, entries.dtype) * entries**2) / budget), jnp.inf)

    return Family(optimum, gauge)


def _positive_part(moment: Array) -> Array:
    values, vectors = linalg.eigh(moment)
    return (vectors * jnp.maximum(values, 0)[None]) @ vectors.T


def _if_positive(matrix: Array, gauge: Array) -> Array:
    """The gauge of a positive semi-definite matrix, else infinity."""
    values = linalg.eigvalsh(matrix)
    return jnp.where(values[0] >= -8 * len(values) * jnp.finfo(matrix.dtype).eps * values[-1], gauge, jnp.inf)
