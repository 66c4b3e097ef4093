"""Bounds on the error of one update, in Frobenius norm, from (o, o) matrices.

LRKF: Proposition F.3 of the paper; HiLoFi: Proposition 4.1, with the coupling of the blocks bounded through the whole
innovation variance.
"""

import math

import jax.numpy as jnp

from seqdec.core import Array, ErrorBound
from seqdec.filters.covariance import CovarianceUpdate


def error_bound(updates: list[CovarianceUpdate], parts: list[Array], total: Array, noise: Array) -> ErrorBound:
    """Bound on ||(I - K J) Sigma_pred (I - K J)^T + K R K^T - blockdiag(kept)||_F with the joint gain K.

    Blocks also miss their correlation -K_a S K_b^T, and their Joseph forms K_a (S - S_a - R) K_a^T; both vanish for a
    single block. `parts` are S_a (o, o), process noise included.
    """
    apart = [u.groups or (u.gain_gram[None], part[None]) for u, part in zip(updates, parts, strict=True)]
    groups = [pair for grams, variances in apart for pair in zip(grams, variances, strict=True)]
    own = [_sandwich_norm(gram, total - part - noise, gram) for gram, part in groups]
    pairs = [(a, b) for i, (a, _) in enumerate(groups) for b, _ in groups[:i]]
    cross = [math.sqrt(2) * _sandwich_norm(a, total, b) for a, b in pairs]
    zero = jnp.zeros((), total.dtype)
    return ErrorBound(
        sum((u.process_noise for u in updates), zero),
        sum((u.truncation for u in updates), zero),
        sum(own + cross, zero) if pairs else zero,
    )


def low_rank_terms(
    gain_gram: Array, jacobian_gram: Array, dropped: Array, process_noise: Array, beyond: int
) -> tuple[Array, Array]:
    """Bounds on what a low-rank covariance neglects of process noise, and by truncation.

    From K^T K and J J^T (o, o), the dropped eigenvalues (o,), ascending and without process noise q, and the D - d
    directions beyond the rank.
    """
    turned = jnp.sqrt(jnp.maximum(jnp.sum(gain_gram * jacobian_gram.mT), 0))  # ||K J||_F
    eigenvalues = dropped[len(dropped) - min(len(dropped), beyond) :] + process_noise
    alone = max(0, beyond - len(dropped))
    truncation = jnp.sqrt(jnp.sum(eigenvalues**2) + alone * process_noise**2)
    return process_noise * (2 * turned + turned**2), truncation


def joseph_norm(gain: Array, jacobian: Array) -> Array:
    """||(I - K J)(I - K J)^T||_F for K^T and J (o, D), through I + P Y P^T with P = [K, J^T] (D x 2o)."""
    observed = len(gain)
    factor = jnp.concatenate([gain, jacobian])
    gram = factor @ factor.mT
    one = jnp.eye(observed, dtype=gain.dtype)
    inner = jnp.block([[jacobian @ jacobian.mT, -one], [-one, jnp.zeros_like(one)]]) @ gram
    return jnp.sqrt(jnp.maximum(gain.shape[1] + 2 * jnp.trace(inner) + jnp.sum(inner * inner.mT), 0))


def _sandwich_norm(left: Array, middle: Array, right: Array) -> Array:
    """||A M B^T||_F from the Gram matrices."""
    return jnp.sqrt(jnp.maximum(jnp.sum((left @ middle @ right) * middle), 0))
