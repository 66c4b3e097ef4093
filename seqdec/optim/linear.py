"""Matrix functions of the optimizers, m <= n."""

import functools
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import lax

from seqdec import linalg
from seqdec.core import Array

Polar = Literal["newton_schulz", "cubic", "exact"]
_MUON = (3.4445, -4.7750, 2.0315)


def eigenvectors(symmetric: Array, count: int | None = None) -> Array:
    """(m, count) orthonormal eigenvectors of (m, m), largest first; derivatives turn no equal ones."""
    return _eigenvectors(symmetric)[:, ::-1][:, :count]


@jax.custom_jvp
def _eigenvectors(symmetric: Array) -> Array:
    return linalg.eigh(symmetric)[1]


@_eigenvectors.defjvp
def _(primals, tangents):
    vectors = _eigenvectors(*primals)
    values = jnp.sum(vectors * (primals[0] @ vectors), 0)
    gaps = values[None] - values[:, None]
    apart = jnp.abs(gaps) > len(values) * jnp.finfo(values.dtype).eps * jnp.max(jnp.abs(values))
    turn = jnp.where(apart, vectors.T @ tangents[0] @ vectors / jnp.where(apart, gaps, 1), 0)
    return vectors, vectors @ turn


def identity(size: int, max_side: int, dtype: jnp.dtype) -> Array:
    """(size, size), or its diagonal beyond `max_side`."""
    return jnp.eye(size, dtype=dtype) if size <= max_side else jnp.ones(size, dtype)


def gram(weight: Any, matrix: Array, like: Array) -> Array:
    """Weight X X^T of X (m, n): (m, m), or its diagonal if `like` is one."""
    weighted = weight * matrix
    return weighted @ matrix.T if like.ndim > 1 else jnp.sum(weighted * matrix, 1)


def between(left: Array | None, matrix: Array, right: Array | None) -> Array:
    """The product of three matrices; vectors are diagonals, None is the identity."""
    if left is not None:
        matrix = left @ matrix if left.ndim > 1 else left[:, None] * matrix
    if right is not None:
        matrix = matrix @ right if right.ndim > 1 else matrix * right[None]
    return matrix


def power(positive: Array, exponent: float, damping: Array | float = 0.0, errors: float = 0.0) -> Array:
    """A^exponent of a symmetric positive semi-definite A = S + d I (m, m), or its diagonal, on the range of S.

    Where S is zero up to rounding or `errors`, relative to the largest eigenvalue of A, the eigenvalue is d, but at
    least eps^{1/4} times the largest: errors of a product between two such A^{-1/2} grow from eps to eps^{1/2} at
    most. With d = 0 the power of such eigenvalues is zero.
    """
    damping = jnp.asarray(damping, positive.dtype)
    if positive.ndim == 1:
        return _powers(positive, exponent, errors, damping)[0]
    return _power(exponent, errors, positive, damping)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _power(exponent: float, errors: float, positive: Array, damping: Array) -> Array:
    values, vectors = linalg.eigh(positive)
    return (vectors * _powers(values, exponent, errors, damping)[0][None]) @ vectors.T


def _powers(values: Array, exponent: float, errors: float, damping: Array) -> tuple[Array, Array]:
    """Powers of eigenvalues, and their derivatives."""
    largest, eps = jnp.max(values), float(jnp.finfo(values.dtype).eps)
    least = jnp.where(damping > 0, jnp.maximum(damping, eps**0.25 * largest), 0)
    raised = jnp.where(values - damping > max(len(values) * eps, errors) * largest, values, least)
    live = raised != 0
    safe = jnp.where(live, raised, 1)
    return jnp.where(live, safe**exponent, 0), jnp.where(live, exponent * safe ** (exponent - 1), 0)


@_power.defjvp
def _(exponent, errors, primals, tangents):
    """V (D * V^T dA V) V^T with the divided differences D of the powers, derivatives at equal eigenvalues."""
    positive, damping = primals
    vectors = _eigenvectors(positive)
    values = jnp.sum(vectors * (positive @ vectors), 0)
    powers, slopes = _powers(values, exponent, errors, damping)
    gaps = values[:, None] - values[None]
    apart = jnp.abs(gaps) > jnp.finfo(values.dtype).eps ** (1 / 3) * jnp.maximum(jnp.abs(values)[:, None], values[None])
    differences = (powers[:, None] - powers[None]) / jnp.where(apart, gaps, 1)
    differences = jnp.where(apart, differences, (slopes[:, None] + slopes[None]) / 2)
    inner = differences * (vectors.T @ tangents[0] @ vectors)
    return (vectors * powers[None]) @ vectors.T, vectors @ inner @ vectors.T


def root(values: Array) -> Array:
    """Square roots, with derivative zero at zero."""
    positive = values != 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, values, 1)), 0)


def reciprocal(values: Array) -> Array:
    """Elementwise 1 / x, with 1 / 0 = 0. XLA would join two divisions into one that may overflow."""
    return safe_divide(jnp.ones_like(values), values)


def norm(values: Array, axis: int | None = None) -> Array:
    """Euclidean norm without overflow or underflow of squares, with derivative zero at zero."""
    largest = lax.stop_gradient(jnp.max(jnp.abs(values), axis, keepdims=True, initial=0))
    return jnp.squeeze(largest, axis) * root(jnp.sum(jnp.square(values * reciprocal(largest)), axis))


def bounded(
    gradient: Array, limit: Array | float = math.inf, axis: tuple[int, ...] | None = None
) -> tuple[Array, Array]:
    """A gradient scaled to a norm of at most the limit and max^{3/8}, 2.6e14 in float32, and its norm, with all axes.

    Others stay to the bit, and those that are not finite.
    """
    limit = jnp.minimum(limit, float(jnp.finfo(gradient.dtype).max) ** 0.375).astype(gradient.dtype)
    quarter = lax.stop_gradient(jnp.max(jnp.abs(gradient), axis, keepdims=True, initial=0)) / 4  # 1 / max is subnormal
    unit = safe_divide(gradient, quarter)
    length = root(jnp.sum(jnp.square(unit), axis, keepdims=True))
    beyond = length > safe_divide(limit, quarter)  # the norm itself may overflow
    scaled = jnp.where(beyond, unit * safe_divide(limit, length), gradient)
    return scaled, jnp.where(beyond, limit, quarter * length)


def safe_divide(numerator: Array, denominator: Array) -> Array:
    """Elementwise numerator / denominator, with x / 0 = 0."""
    good = denominator != 0
    return jnp.where(good, numerator / jnp.where(good, denominator, 1), 0)


def rounding(shape: tuple[int, ...], dtype: jnp.dtype) -> float:
    """Relative error bound of products with orthogonal matrices."""
    return 10 * float(sum(shape)) ** 0.5 * float(jnp.finfo(dtype).eps)


def adaptive(moment: Array, square: Array, eps: Array | float, axis: int | None = None) -> Array:
    """Ratio m / (sqrt(v) + eps), elementwise, for moments (m, n) of a gradient in a basis.

    Zero where sqrt(v) is a rounding error relative to the largest along the axis.
    """
    deviation = root(square)
    errors = rounding(square.shape, square.dtype) * jnp.max(deviation, axis, keepdims=True)
    return jnp.where(deviation > errors, safe_divide(moment, deviation + eps), 0)


def remainder(whole: Array, part: Array) -> Array:
    """(m, n) less its projection; columns that are rounding errors are zero."""
    rest = whole - part
    kept = norm(rest, 0) > rounding(whole.shape, whole.dtype) * norm(whole, 0)
    return jnp.where(kept[None], rest, 0)


def column_ratios(numerator: Array, denominator: Array) -> Array:
    """(n,) ratios of the columns' norms, with x / 0 = 0."""
    return safe_divide(norm(numerator, 0), norm(denominator, 0))


def limit_growth(direction: Array, last_norm: Array, growth) -> tuple[Array, Array]:
    """Fira's limiter: (direction of norm at most growth * last_norm, its norm). A last norm of zero sets no limit."""
    length = norm(direction)
    scale = jnp.where(last_norm > 0, growth / jnp.maximum(safe_divide(length, last_norm), growth), 1)
    return scale * direction, scale * length


def polar(matrix: Array, method: Polar, steps: int) -> Array:
    """Orthogonal polar factor U V^T of U S V^T (m, n); zero for the zero matrix.

    "newton_schulz": `steps` of Muon's quintic iteration, to singular values between 0.7 and 1.15; usually 5.
    "cubic": X <- 1.5 X - 0.5 X X^T X, which converges; 15 to 30 steps. "exact": from an SVD.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return polar(matrix.T, method, steps).T
    if method == "exact":
        return _exact_polar(matrix)
    start = safe_divide(matrix, norm(matrix))
    if method == "newton_schulz":
        iterate = _quintic if matrix.shape[1] < 2 * matrix.shape[0] else _quintic_by_gram
        return iterate(start, steps)
    return lax.fori_loop(0, steps, lambda _, x: 1.5 * x - 0.5 * (x @ x.T) @ x, start)


def _quintic(matrix: Array, steps: int) -> Array:
    a, b, c = _MUON

    def iterate(_, x):
        gram = x @ x.T
        return a * x + (b * gram + c * gram @ gram) @ x

    return lax.fori_loop(0, steps, iterate, matrix)


def _quintic_by_gram(matrix: Array, steps: int) -> Array:
    """The same by products of (m, m) matrices, for n > 1.6 m: A = X X^T moves by A <- F A F, F = a I + b A + c A^2.

    A is formed anew after five steps; its rounding errors grow by a^2 = 12 in each.
    """
    a, b, c = _MUON
    eye = jnp.eye(len(matrix), dtype=matrix.dtype)

    def iterate(_, pair):
        gram, product = pair
        factor = a * eye + b * gram + c * gram @ gram
        return factor @ gram @ factor, factor @ product

    for begin in range(0, steps, 5):
        _, product = lax.fori_loop(0, min(5, steps - begin), iterate, (matrix @ matrix.T, eye))
        matrix = product @ matrix
    return matrix


@jax.custom_jvp
def _exact_polar(matrix: Array) -> Array:
    """By an SVD, without singular values of zero up to rounding."""
    return _singular_parts(matrix)[0]


def _singular_parts(matrix: Array) -> tuple[Array, Array, Array]:
    left, values, right = linalg.svd(matrix)
    live = values > max(matrix.shape) * jnp.finfo(matrix.dtype).eps * values[0]
    return (left * live[None].astype(left.dtype)) @ right, left, jnp.where(live, values, 0)


@_exact_polar.defjvp
def _(primals, tangents):
    """Derivative of U V^T, without differences of singular values."""
    polar, left, values = _singular_parts(*primals)
    turned, moved = left.T @ polar, left.T @ tangents[0]
    inside = moved @ turned.T
    skew = safe_divide(inside - inside.T, values[:, None] + values[None])
    outside = safe_divide(moved - inside @ turned, jnp.broadcast_to(values[:, None], moved.shape))
    return polar, left @ (skew @ turned + outside)
