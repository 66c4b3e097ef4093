"""Matrix functions of the optimizers, for matrices with their short side first, m <= n."""

from typing import Literal

import jax.numpy as jnp
from jax import lax

from seqdec import linalg
from seqdec.core import Array

Polar = Literal["newton_schulz", "cubic", "exact"]
_MUON = (3.4445, -4.7750, 2.0315)


def eigenvectors(symmetric: Array, count: int | None = None) -> Array:
    """(m, count) orthonormal eigenvectors of (m, m), those of the largest eigenvalues, largest first."""
    return linalg.eigh(symmetric)[1][:, ::-1][:, :count]


def power(positive: Array, exponent: float, floor: Array | float = 0.0) -> Array:
    """A^exponent of a symmetric positive semi-definite (m, m) on its range.

    Eigenvalues below `floor` are replaced by it first. Those that are zero up to rounding, relative to the largest,
    count as zero, and every power of zero is zero.
    """
    values, vectors = linalg.eigh(positive)
    values = jnp.maximum(values, floor)
    live = values > len(positive) * jnp.finfo(positive.dtype).eps * values[-1]
    return (vectors * jnp.where(live, jnp.where(live, values, 1) ** exponent, 0)[None]) @ vectors.T


def safe_divide(numerator: Array, denominator: Array) -> Array:
    """Elementwise numerator / denominator, with x / 0 = 0."""
    good = denominator != 0
    return jnp.where(good, numerator / jnp.where(good, denominator, 1), 0)


def column_ratios(numerator: Array, denominator: Array) -> Array:
    """(n,) ratios of the norms of the columns of two matrices, with x / 0 = 0."""
    return safe_divide(jnp.linalg.norm(numerator, axis=0), jnp.linalg.norm(denominator, axis=0))


def limit_growth(direction: Array, last_norm: Array, growth) -> tuple[Array, Array]:
    """Norm-growth limiter of Fira: a direction longer than growth * last_norm is scaled to it; -> direction, its norm.

    A last norm of zero, as in the first step, sets no limit.
    """
    norm = jnp.linalg.norm(direction)
    scale = jnp.where(last_norm > 0, growth / jnp.maximum(safe_divide(norm, last_norm), growth), 1)
    return scale * direction, scale * norm


def polar(matrix: Array, method: Polar, steps: int) -> Array:
    """Orthogonal polar factor U V^T of U S V^T (m, n); zero for the zero matrix.

    "newton_schulz": `steps` of Muon's quintic iteration, whose singular values end between 0.7 and 1.15; 5 are usual.
    "cubic": X <- 1.5 X - 0.5 X X^T X, which converges; 15 to 30 steps. "exact": from an SVD.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return polar(matrix.T, method, steps).T
    if method == "exact":
        left, values, right = linalg.svd(matrix)
        live = values > max(matrix.shape) * jnp.finfo(matrix.dtype).eps * values[0]
        return (left * live[None].astype(left.dtype)) @ right
    start = safe_divide(matrix, jnp.linalg.norm(matrix))
    a, b, c = _MUON if method == "newton_schulz" else (1.5, -0.5, 0.0)

    def iterate(_, x):
        gram = x @ x.T
        return a * x + (b * gram + c * gram @ gram if c else b * gram) @ x

    return lax.fori_loop(0, steps, iterate, start)
