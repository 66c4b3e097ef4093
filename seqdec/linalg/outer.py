"""Rows of a Jacobian, some of them outer products, and their products with matrices.

The Jacobian of a network's outputs by the kernel of a dense layer has rows x delta_o^T with one x for all outputs o:
x^T B serves all of them in a product with a matrix B, and the rows are never formed.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from seqdec.core import Array

Pieces = tuple[Array, ...]
"""A matrix with one column, or one row, per parameter, cut along the parameters; see `seqdec.params.pieces`."""


class Outer(NamedTuple):
    """Rows (o, in * out) of a Jacobian that are outer products, x delta_o^T; see `seqdec.filters.jacobians`.

    Their product with a basis B reads B once, as x^T B with B in the shape (in, out * n).
    """

    inputs: Array
    """x (in,), that of all rows; or (g, in), those of g groups of o / g rows each, one group after the other"""
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
"""`Pieces` (o, D_p) of a Jacobian, some of them as outer products."""


def dense(rows: Array | Outer) -> Array:
    """The rows as a matrix (o, D_p); an array is (o, ...)."""
    if isinstance(rows, Outer):
        inputs = rows.inputs if rows.inputs.ndim == 1 else rows.input_of_row
        rows = jnp.atleast_2d(inputs)[..., None] * rows.deltas[:, None, :]
    return rows.reshape(len(rows), -1)


def whole(rows: Sequence[Array | Outer]) -> Array:
    """Rows (o, D_p) of all pieces, or by all leaves, as one matrix (o, D)."""
    return jnp.concatenate([dense(part) for part in rows], axis=1)


def select(rows: Array | Outer, which: Array) -> Array | Outer:
    """Some of the rows; outer products with one x only."""
    return rows._replace(deltas=rows.deltas[which]) if isinstance(rows, Outer) else rows[which]


def product(left: Array, right: Array, dtype) -> Array:
    """Product of two matrices, both of the dtype of the basis, summed in `dtype`."""
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
    """Rows (o, D_p) times columns (D_p, n), summed in `dtype`.

    Written in this orientation: XLA folds a transpose into the product, which then runs five times slower on a CPU.
    """
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
    """Rows (o, D_p) times the columns (D, n) of one matrix, whose rows are those of the pieces, concatenated.

    A large slice would be copied. Outer products are therefore multiplied with the whole matrix, their inputs padded
    with zeros; the number of rows before and after theirs must be a multiple of their `out`.
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
    """(parts, ..., n) that add up to vectors (..., n): two narrow numbers hold twice the digits of one.

    A product with a basis in bfloat16 then loses no digits of the vector.
    """
    if vector.dtype == dtype:
        return vector[None]
    head = vector.astype(dtype)
    return jnp.stack([head, (vector - head.astype(vector.dtype)).astype(dtype)])
