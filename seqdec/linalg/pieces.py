"""Matrices cut along the parameters of a network, some pieces of them outer products.

The Jacobian of the kernel of a dense layer has rows x delta_o^T with one x for all outputs o (`Outer`); a product with
B needs x^T B once. Bases are cut into the same pieces (D_p, n); columns appended to such a piece are stored as two
vectors (`Extended`): 2 d D floats are read per observation, and d D stored.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from seqdec.core import Array
from seqdec.linalg.batching import put_columns
from seqdec.runtime import alike

Pieces = tuple[Array, ...]
"""A matrix with one column or row per parameter, cut along the parameters (`seqdec.params.pieces`)."""


class Outer(NamedTuple):
    """Rows (o, in * out) of a Jacobian, x delta_o^T (`seqdec.filters.jacobians`)."""

    inputs: Array
    """x (in,) of all rows; or (g, in) of g consecutive groups of o / g rows"""
    deltas: Array
    """(o, out)"""

    @property
    def shape(self) -> tuple[int, int, int]:
        """(o, in, out)."""
        return (len(self.deltas), self.inputs.shape[-1], self.deltas.shape[1])

    @property
    def input_of_row(self) -> Array:
        """(o, in) x of each row."""
        groups = jnp.atleast_2d(self.inputs)
        return jnp.repeat(groups, len(self.deltas) // len(groups), axis=0)


Rows = tuple[Array | Outer, ...]
"""`Pieces` (o, D_p) of a Jacobian."""


def dense(rows: Array | Outer) -> Array:
    """The rows as a matrix (o, D_p)."""
    if isinstance(rows, Outer):
        inputs = rows.inputs if rows.inputs.ndim == 1 else rows.input_of_row
        rows = jnp.atleast_2d(inputs)[..., None] * rows.deltas[:, None, :]
    return rows.reshape(len(rows), -1)


def whole(rows: Sequence[Array | Outer]) -> Array:
    """All pieces or leaves (o, D_p) as one matrix (o, D)."""
    return jnp.concatenate([dense(part) for part in rows], axis=1)


def select(rows: Array | Outer, which: Array) -> Array | Outer:
    """Some rows; of outer products with one x only."""
    return rows._replace(deltas=rows.deltas[which]) if isinstance(rows, Outer) else rows[which]


def product(left: Array, right: Array, dtype) -> Array:
    """Product of two matrices of the basis's dtype, summed in `dtype`."""
    return jnp.matmul(left, right, preferred_element_type=dtype)


def gram_of(rows: Rows, dtype=None) -> Array:
    """H H^T (o, o) for H (o, D_p), summed in `dtype`."""

    def gram(piece):
        if isinstance(piece, Outer):
            inputs = piece.input_of_row
            squares = jnp.sum(piece.inputs**2) if piece.inputs.ndim == 1 else product(inputs, inputs.mT, dtype)
            return squares * product(piece.deltas, piece.deltas.mT, dtype)
        return product(piece, piece.mT, dtype)

    return functools.reduce(jnp.add, map(gram, rows))


def squares_of(rows: Rows) -> Array:
    """The diagonal of H H^T (o,) for H (o, D_p)."""

    def squares(piece):
        if isinstance(piece, Outer):
            return jnp.sum(piece.inputs**2, -1) * jnp.sum(piece.deltas**2, -1)
        return jnp.sum(piece**2, -1)

    return functools.reduce(jnp.add, map(squares, rows))


def multiply(rows: Array | Outer, columns: Array, dtype) -> Array:
    """Rows (o, D_p) times columns (D_p, n), summed in `dtype`."""
    if not isinstance(rows, Outer):
        return product(rows.astype(columns.dtype), columns, dtype)
    _, size, out = rows.shape
    inputs_times_columns = product(narrow_parts(rows.inputs, columns.dtype), columns.reshape(size, -1), dtype)
    summed = jnp.sum(inputs_times_columns, 0)
    if rows.inputs.ndim == 1:
        return rows.deltas @ summed.reshape(out, -1)
    groups = len(summed)
    return (rows.deltas.reshape(groups, -1, out) @ summed.reshape(groups, out, -1)).reshape(len(rows.deltas), -1)


def multiply_all(rows: Rows, columns: Array) -> Array:
    """Rows (o, D_p) times the columns (D, n) of one matrix, cut as the pieces.

    The numbers of rows before and after an outer product's must be multiples of its `out`.
    """
    total, offset = jnp.zeros((), columns.dtype), 0
    for piece in rows:
        size = math.prod(piece.shape[1:])
        if isinstance(piece, Outer):
            before, out = offset // piece.shape[2], piece.shape[2]
            after = len(columns) // out - before - piece.shape[1]
            around = (*((0, 0),) * (piece.inputs.ndim - 1), (before, after))
            total += multiply(piece._replace(inputs=jnp.pad(piece.inputs, around)), columns, columns.dtype)
        else:
            total += piece @ columns[offset : offset + size]
        offset += size
    return total


def narrow_parts(vector: Array, dtype) -> Array:
    """(parts, ..., n) of `dtype` that add up to vectors (..., n), without loss of digits."""
    if vector.dtype == dtype:
        return vector[None]
    head = vector.astype(dtype)
    return jnp.stack([head, (vector - head.astype(vector.dtype)).astype(dtype)])


class Extended(NamedTuple):
    """A piece of a basis, (in * out, d + m), whose last m columns are outer products."""

    columns: Array
    """(in * out, d)"""
    inputs: Array
    """(in, m)"""
    deltas: Array
    """(out, m)"""


Basis = tuple[Array | Extended, ...]
"""Pieces (D_p, n): a column for each direction."""


def full_columns(piece: Array | Extended) -> Array:
    """A piece as a matrix (D_p, n)."""
    if not isinstance(piece, Extended):
        return piece
    appended = (piece.inputs[:, None] * piece.deltas).reshape(-1, piece.inputs.shape[1])
    return jnp.concatenate([piece.columns.astype(appended.dtype), appended], axis=1)


def multiply_piece(rows: Array | Outer, piece: Array | Extended, dtype) -> Array:
    """Rows (o, D_p) times the columns of a piece (D_p, n), summed in `dtype`."""
    if not isinstance(piece, Extended):
        return multiply(rows, piece, dtype)
    if not isinstance(rows, Outer):
        raise ValueError(
            "a layer that is dense for the example that the filter was built with is none for this input: build "
            "the filter with example=None"
        )
    inputs = rows.inputs if rows.inputs.ndim == 1 else rows.input_of_row
    appended = jnp.atleast_2d(inputs @ piece.inputs) * (rows.deltas @ piece.deltas)
    return jnp.concatenate([multiply(rows, piece.columns, dtype), appended], axis=1)


def combine(piece: Array | Extended, weights: Array) -> Array:
    """The sum (D_p,) of a piece's columns with weights (n,)."""
    if not isinstance(piece, Extended):
        return _combine_columns(piece, weights)
    rank = piece.columns.shape[1]
    appended = (piece.inputs * weights[None, rank:]) @ piece.deltas.mT
    return _combine_columns(piece.columns, weights[:rank]) + appended.reshape(-1)


def _combine_columns(columns: Array, weights: Array) -> Array:
    return jnp.sum(product(columns, narrow_parts(weights, columns.dtype).mT, weights.dtype), 1)


def append(piece: Array | Extended, rows: Array | Outer, at: Array) -> Array | Extended:
    """The piece with `rows` as its columns from `at` on."""
    if not isinstance(piece, Extended):
        return put_columns(piece, dense(rows).mT, at)
    assert isinstance(rows, Outer)
    place = at - piece.columns.shape[1]
    return piece._replace(
        inputs=put_columns(piece.inputs, rows.input_of_row.mT, place),
        deltas=put_columns(piece.deltas, rows.deltas.mT, place),
    )


_CHUNK = 2**14


def rewrite(basis: Basis, jacobian: Rows, coefficients: Array, appended: Array, dtype) -> tuple[Basis, Array]:
    """First d columns <- [B, H^T] [A, A_H]^T in place, and their Gram matrix (d, d).

    B (D_p, n), H (o, D_p), A (d, n) and A_H (d, o). The other columns stay, with coefficients of zero.
    """
    rank = len(coefficients)
    rewritten, gram = [], jnp.zeros((rank, rank), dtype)
    # By chunks, because a second basis would be most of the memory that a large network needs.
    for piece, rows in zip(basis, jacobian, strict=True):
        extended = isinstance(piece, Extended)
        size, out = (len(piece.inputs), len(piece.deltas)) if extended else (len(piece), 1)
        target, chunk = piece.columns if extended else piece, min(size, max(1, _CHUNK // out))

        def write(target, gram, first, count, piece=piece, rows=rows):
            fresh = _chunk_of(piece, rows, coefficients, appended, target, first, count).astype(target.dtype)
            place = first * (len(fresh) // count)
            target = lax.dynamic_update_slice(target, fresh, (place, jnp.zeros_like(place)))
            return target, gram + product(fresh.mT, fresh, dtype)

        def step(index, carry, chunk=chunk, write=write):
            return write(*carry, index * chunk, chunk)

        target, gram = lax.fori_loop(0, size // chunk, step, alike((target, gram), piece, rows, coefficients, appended))
        if size % chunk:
            target, gram = write(target, gram, jnp.asarray(size - size % chunk), size % chunk)
        rewritten.append(piece._replace(columns=target) if extended else target)
    return tuple(rewritten), gram


def _chunk_of(piece, rows, coefficients: Array, appended: Array, target: Array, first: Array, count: int) -> Array:
    """`count` rows of [B, H^T] [A, A_H]^T from `first` on; of `Extended` pieces `count` inputs with all outputs.

    `target`: the columns of the piece, earlier rows rewritten.
    """
    dtype = coefficients.dtype
    if not isinstance(piece, Extended):
        old = lax.dynamic_slice_in_dim(target, first, count).astype(dtype) @ coefficients.mT
        return old + lax.dynamic_slice_in_dim(rows, first, count, 1).astype(dtype).mT @ appended.mT
    rank = len(coefficients)
    old, new = jnp.split(coefficients.mT, [rank])
    new, out = jnp.concatenate([new, appended.mT]), len(piece.deltas)
    columns = lax.dynamic_slice_in_dim(target, first * out, count * out)
    inputs = lax.dynamic_slice_in_dim(piece.inputs, first, count)
    latest = rows._replace(inputs=lax.dynamic_slice_in_dim(rows.inputs, first, count, -1)).input_of_row
    inputs = jnp.concatenate([inputs, latest.mT], axis=1)
    deltas = jnp.concatenate([piece.deltas, rows.deltas.mT], axis=1)
    # The coefficients are multiplied with inputs or deltas, whichever are fewer, so that the outer products are never
    # formed. Both ways give the rows in their order (`einsum` transposes them where deltas are fewer).
    if count < out:
        products = jnp.matmul(deltas, inputs[:, :, None] * new[None])
    else:
        products = inputs @ (deltas.mT[:, :, None] * new[:, None]).reshape(len(new), -1)
    return columns.astype(dtype) @ old + products.reshape(-1, rank)
