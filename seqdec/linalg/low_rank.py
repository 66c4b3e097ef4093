r"""A rank-d covariance Sigma = C^T C on a lazy basis, updated in O(D d); derived in `docs/mathematics.md`.

C = T Y with a root T (d, d) and orthonormal rows Y = A B^T, of coefficients A (d, n) and a basis B (D, n), n = d + m.
For a Jacobian H (o, D), noise R, innovation variance S, gain K^T = S^{-1} (H C^T C + q H), and the orthonormal rows Y+
of H outside the span of C:

    H = a Y + b Y+      a = (H B) A^T, b b^T = H H^T - a a^T      U = T a^T = C H^T
    kappa = S^{-1} [U^T T + q a, q b]                             K^T = kappa [Y; Y+]
    Z     = [[T, 0] - U kappa; R^{1/2} kappa]                     (d + o square) the stack of the paper is Z [Y; Y+]

P_{d,+q} drops the o least directions of Z. With an orthonormal basis Q (d, d + o) of the others, Y <- Q [Y; Y+] and
T <- the triangular root of Q Z^T Z Q^T + q I: a Cholesky factor, or a QR of [Z Q^T; q^{1/2} I] where that loses digits.
For o = 1 the dropped direction comes by inverse iteration, and Q is a reflection.

An observation appends H to B and reads B twice, 2 n D floats. When the m spare columns are used up, B <- [B, H^T] A^T
and, with Y Y^T = L L^T, A <- L^{-1}, T <- T L: O(D d n) once in m / o observations. With q = 0 only T changes.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from seqdec.core import Array
from seqdec.linalg.batching import (
    advance_filled,
    check_spare_columns,
    columns_from,
    cond_any,
    eigh,
    lower_cholesky,
    sequential_vmap,
    solve_transposed,
)
from seqdec.linalg.pieces import (
    Basis,
    Extended,
    Outer,
    Pieces,
    Rows,
    append,
    combine,
    dense,
    gram_of,
    multiply_piece,
    rewrite,
)
from seqdec.linalg.roots import largest_magnitude, potter_scale, psd_root, relative_jitter, root_of_sum, solve_psd
from seqdec.linalg.spectral import parted_eigenvectors, roots_of, sylvester
from seqdec.runtime import alike


class LowRankFactor(NamedTuple):
    """Rank-d root C = T Y of a covariance Sigma = C^T C, Y = coefficients basis^T."""

    basis: Basis
    """B (D_p, n), n = d + m"""
    coefficients: Array
    """A (d, n) of the orthonormal rows Y"""
    root: Array
    """T (d, d), upper triangular unless q = 0"""
    filled: Array
    """() int32, columns in use"""


def low_rank_from(rows: Pieces, root: Array, spare: int, basis_dtype=None, like: Rows | None = None) -> LowRankFactor:
    """The factor root @ rows, with Y (d, D_p) orthonormal and m = spare columns.

    Rows but outer products are rounded to `basis_dtype`. Pieces that are an `Outer` in `like` get spare columns that
    are outer products.
    """
    rank, dtype = len(rows[0]), rows[0].dtype
    narrow = tuple(dense(piece).astype(dtype if basis_dtype is None else basis_dtype) for piece in rows)

    def piece(columns, jacobian):
        if spare and isinstance(jacobian, Outer):
            _, size, out = jacobian.shape
            return Extended(columns, jnp.zeros((size, spare), dtype), jnp.zeros((out, spare), dtype))
        return jnp.pad(columns, ((0, 0), (0, spare)))

    return LowRankFactor(
        tuple(piece(part.mT, jacobian) for part, jacobian in zip(narrow, like or narrow, strict=True)),
        jnp.eye(rank, rank + spare, dtype=dtype),
        root,
        jnp.asarray(rank, jnp.int32),
    )


def cross(factor: LowRankFactor, jacobian: Rows) -> Array:
    """H B (o, n) for H (o, D_p)."""
    dtype = factor.root.dtype
    parts = (multiply_piece(rows, piece, dtype) for rows, piece in zip(jacobian, factor.basis, strict=True))
    return functools.reduce(jnp.add, parts)


def times(factor: LowRankFactor, weights: Array) -> Pieces:
    """Y^T weights (D_p,) for weights (d,): one pass over the basis."""
    combined = weights @ factor.coefficients
    return tuple(combine(piece, combined) for piece in factor.basis)


class LowRankUpdate(NamedTuple):
    """A factor after an observation, and the parts of its error bound."""

    factor: LowRankFactor
    gain_gram: Array
    """(o, o) K^T K"""
    dropped: Array
    """(o,) eigenvalues of the dropped directions, ascending"""


def low_rank_downdate(
    factor: LowRankFactor,
    jacobian: Rows,
    products: Array,
    innovation_root: Array,
    noise_root: Array,
    process_noise: Array,
    accept: Array,
    reads_done: Array | bool = True,
) -> LowRankUpdate:
    """C <- P_{d,+q}(C (I - K H)^T, R^{1/2} K^T), with K^T = S^{-1} (H C^T C + q H).

    Args:
        factor: C.
        jacobian: H (o, D_p).
        products: H B (o, n) of `cross`.
        innovation_root, noise_root: upper triangular S^{1/2} and R^{1/2} (o, o).
        process_noise: q ().
        accept: () False changes nothing; all but the Jacobian must be finite even then.
        reads_done: () True, computed from all other reads of the basis, which is then updated in place.
    """
    (rank, width), observed = factor.coefficients.shape, len(products)
    check_spare_columns(observed, width - rank)
    root = factor.root
    rows = tuple(
        rows if isinstance(piece, Extended) else dense(rows).astype(piece.dtype)
        for rows, piece in zip(jacobian, factor.basis, strict=True)
    )
    # Coordinates: H = a Y + b Y+, and [Y; Y+] by the columns of the basis and those to come.
    inside = products @ factor.coefficients.mT
    outside, beyond, real = _residual(inside, jnp.where(accept, gram_of(rows, products.dtype), 0))
    old = jnp.pad(factor.coefficients, ((0, 0), (0, observed)))
    directions = jnp.concatenate(
        [old, beyond @ jnp.concatenate([-inside @ factor.coefficients, jnp.eye(observed, dtype=root.dtype)], axis=1)]
    )
    # U^T, kappa and Z.
    crossed = inside @ root.mT
    raw = jnp.concatenate([crossed @ root + process_noise * inside, process_noise * outside], axis=1)
    gain = solve_psd(innovation_root, raw)
    stack = jnp.concatenate([jnp.pad(root, ((0, 0), (0, observed))) - crossed.mT @ gain, noise_root @ gain])
    # Q [Y; Y+], (Z Q^T)^T, and the new T.
    if observed == 1:
        least = _least_direction(root, crossed[0], gain[0], noise_root[0, 0] ** 2)
        dropped = jnp.sum((stack @ least) ** 2)[None]
        directions, across = (_reflect(least, part) for part in (directions, stack.mT))
    else:
        kept, dropped = _largest_directions(stack, real)
        directions, across = (kept.mT @ part for part in (directions, stack.mT))
    inflated = _inflated_root(across, process_noise)

    coefficients, appended = jnp.split(jnp.where(accept, directions, old), [width], axis=1)
    downdated = _Downdated(
        factor._replace(coefficients=coefficients, root=jnp.where(accept, inflated, root)),
        appended,
        advance_filled(jnp.zeros_like(factor.filled), observed, accept),
    )
    return LowRankUpdate(_write(downdated, rows, accept, reads_done), gain @ gain.mT, dropped)


class _Downdated(NamedTuple):
    """A factor without its last observed rows in the basis."""

    factor: LowRankFactor
    appended: Array
    """(d, o) coefficients of the rows H to come"""
    columns: Array
    """() int32, columns that these will fill"""


def _write(state: _Downdated, rows: Rows, accept: Array, reads_done: Array | bool) -> LowRankFactor:
    filled, (observed, width) = state.factor.filled, (state.appended.shape[1], state.factor.coefficients.shape[1])
    rows = jax.tree.map(lambda part: jnp.where(accept & reads_done, part, 0), rows)
    full = jnp.where(reads_done, filled + observed, width + 1) > width
    factor, appended, columns = cond_any(full, _make_room, state, rows)
    # A mask for the small coefficients: a write at another place for each member of a batch would be a loop over them.
    here = columns_from(factor.filled, observed, width).astype(appended.dtype)
    return factor._replace(
        basis=tuple(append(piece, part, factor.filled) for piece, part in zip(factor.basis, rows, strict=True)),
        coefficients=factor.coefficients + appended @ here,
        filled=factor.filled + columns,
    )


def _make_room(state: _Downdated, jacobian: Rows) -> _Downdated:
    """In place, on a basis of C's own d rows, H included."""
    factor, appended = state.factor, state.appended
    (rank, width), dtype = factor.coefficients.shape, factor.root.dtype
    if any(leaf.dtype != dtype for leaf in jax.tree.leaves(factor.basis)):
        # Rows that are about to be rounded are turned into principal directions: those of large variance are small
        # where inputs are large, and so are their rounding errors.
        turn = lax.stop_gradient(eigh(lax.stop_gradient(factor.root.mT @ factor.root))[1])  # any rotation is the same C
        factor = factor._replace(coefficients=turn.mT @ factor.coefficients, root=factor.root @ turn)
        appended = turn.mT @ appended
    basis, gram = rewrite(factor.basis, jacobian, factor.coefficients, appended, dtype)
    # Rows orthonormal up to rounding are orthonormalized: Y = L (L^{-1} Y), T Y = (T L) (L^{-1} Y).
    skew = psd_root(gram)
    straight = solve_transposed(skew, jnp.eye(rank, dtype=dtype))
    fresh = LowRankFactor(
        basis,
        jnp.pad(straight, ((0, 0), (0, width - rank))),
        root_of_sum(factor.root @ skew.mT),
        jnp.asarray(rank, jnp.int32),
    )
    return _Downdated(fresh, jnp.zeros_like(appended), jnp.zeros_like(state.columns))


def _largest_directions(stack: Array, real: Array) -> tuple[Array, Array]:
    """All but the o least directions of Z (d + o, d) as columns, and the o dropped eigenvalues of Z^T Z.

    `real` (o,) bool: rows of Y+ that exist.
    """
    observed = len(real)
    variances = stack.mT @ stack
    # Rows of zeros are dropped before any real direction, however small its variance.
    void = jnp.where(real, 0, largest_magnitude(variances))
    parts = parted_eigenvectors(variances - jnp.diag(jnp.pad(void, (len(variances) - observed, 0))), observed)
    return parts.kept, jnp.maximum(parts.values, 0)


@jax.custom_jvp
def _inflated_root(factor: Array, inflation: Array) -> Array:
    """Upper triangular R (d, d) with R^T R = F F^T + a I, F (d, k)."""

    def from_rows(_, factor, inflation):
        return root_of_sum(factor.mT, jnp.sqrt(inflation) * jnp.eye(len(factor), dtype=factor.dtype))

    total = factor @ factor.mT + inflation * jnp.eye(len(factor), dtype=factor.dtype)
    root = lower_cholesky(total).mT
    # The part of each row's variance that is independent of earlier rows. NaN where the factorization broke down.
    left = jnp.diagonal(root) ** 2
    return cond_any(~jnp.all(left > _SURE * jnp.diagonal(total)), from_rows, root, factor, inflation)


@_inflated_root.defjvp
def _(primals, tangents):
    """R^T (U + U^T) R = d(F F^T + a I) with dR = U R."""
    (factor, _), (factor_tangent, inflation_tangent) = primals, tangents
    root = _inflated_root(*primals)
    half = factor_tangent @ factor.mT + inflation_tangent / 2 * jnp.eye(len(factor), dtype=factor.dtype)
    # Not `solve_transposed`, whose tangents cannot be transposed.
    solve = functools.partial(jax.scipy.linalg.solve_triangular, root, trans=1)
    scaled = solve(solve(half + half.mT).mT)
    return root, (jnp.triu(scaled) - jnp.diag(jnp.diagonal(scaled)) / 2) @ root


_SURE = 1e-2
"""Least share of a variance left for its Cholesky factor to be used."""


def _residual(inside: Array, gram: Array) -> tuple[Array, Array, Array]:
    """Of H = a Y + b Y+: b (o, o), the (o, o) that turns H - a Y into Y+, and which rows exist."""
    # A residual of the size of rounding has no direction and gets a row of zeros.
    return roots_of(gram - inside @ inside.mT, relative_jitter(gram.dtype) * jnp.max(jnp.diagonal(gram)))


def _gram_of_stack(root: Array, crossed: Array, gain: Array, noise: Array) -> Array:
    changed = jnp.pad(root, ((0, 0), (0, 1))) - jnp.outer(crossed, gain)
    return changed.mT @ changed + noise * jnp.outer(gain, gain)


@jax.custom_jvp
def _one_least_direction(root: Array, crossed: Array, gain: Array, noise: Array) -> Array:
    """Unit v (d + 1,) with the least |Z v|, Z = [[T, 0] - u kappa; r kappa], by inverse iteration on Z^T Z.

    From the new direction, of variance q^2 b^2 (|u|^2 + R) / S^2 <= q / 4, R = r^2; all others have q or more.
    """
    inside, outside = gain[:-1], gain[-1]
    eps = float(jnp.finfo(root.dtype).eps)
    # Directions without variance get the least one that can be divided by.
    diagonal = jnp.diagonal(root)
    upper = root + jnp.diag(jnp.where(diagonal == 0, eps * largest_magnitude(diagonal), 0))

    def refine(state):
        count, v, _ = state
        # (Z^T Z)^{-1} v up to a positive factor, without divisions by R or by the last entry of kappa.
        first = jax.scipy.linalg.solve_triangular(upper, outside * v[:-1] - inside * v[-1], trans=1)
        second = v[-1] + crossed @ first
        turned = jax.scipy.linalg.solve_triangular(upper, noise * first + crossed * second)
        image = jnp.append(outside * turned, second - inside @ turned)
        square = image @ image
        image = jnp.where(jnp.isfinite(square) & (square > 0), image / jnp.sqrt(square), v)
        return count + 1, image, jnp.sum((image - v) ** 2)

    def moving(state):
        count, _, change = state
        return (count < _MAX_ITERATIONS) & (change > (4 * eps) ** 2)

    state = (0, jnp.zeros_like(gain).at[-1].set(1), jnp.ones((), gain.dtype))
    return lax.while_loop(moving, refine, alike(state, upper, crossed, gain, noise))[1]


@_one_least_direction.defjvp
def _(primals, tangents):
    """(V^T G V - v^T G v) t = -V^T dG v with dv = V t, V orthonormal beside v, G = Z^T Z."""
    least = _one_least_direction(*primals)
    gram, moved = jax.jvp(_gram_of_stack, primals, tangents)
    others = _reflect(least, jnp.eye(len(least), dtype=least.dtype)).mT
    turn = sylvester(
        others.mT @ gram @ others, (least @ gram @ least)[None, None], -others.mT @ (moved @ least)[:, None]
    )
    return least, others @ turn[:, 0]


_least_direction = sequential_vmap(_one_least_direction)

_MAX_ITERATIONS = 50


def _reflect(direction: Array, columns: Array) -> Array:
    """Columns (d + 1, k) times the reflection that takes a unit direction to the last axis, without its last row."""
    sign = jnp.where(direction[-1] < 0, -1, 1)
    normal = direction.at[-1].add(sign)
    return columns[:-1] - jnp.outer(normal[:-1], normal @ columns) / jnp.abs(normal[-1])


def fixed_span_downdate(
    factor: LowRankFactor, products: Array, innovation_root: Array, noise_root: Array, accept: Array
) -> LowRankUpdate:
    """C <- a root of (I - K H) C^T C (I - K H)^T + K R K^T for q = 0, through T alone."""
    crossed = products @ factor.coefficients.mT @ factor.root.mT
    gain = solve_psd(innovation_root, crossed @ factor.root)
    if len(products) > 1:
        root = root_of_sum(factor.root - crossed.mT @ gain, noise_root @ gain)
    else:
        root = factor.root - potter_scale(crossed, innovation_root, noise_root) * crossed.mT @ gain
    kept = factor._replace(root=jnp.where(accept, root, factor.root))
    return LowRankUpdate(kept, gain @ gain.mT, jnp.zeros(len(products), products.dtype))
