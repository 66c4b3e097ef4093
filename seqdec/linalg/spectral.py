r"""Spaces of eigenvectors and roots of symmetric matrices, with derivatives of every order where eigenvalues are equal.

With eigenvectors V and U of two spaces of A, and the root S of A = S S,

    dU = V X,   (V^T A V) X - X (U^T A U) = -V^T dA U                    S dS + dS S = dA

if functions do not depend on how vectors turn within a space. The solutions of these Sylvester equations, L X - X R =
C, have the derivatives L dX - dX R = dC - dL X + X dR.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from seqdec.core import Array
from seqdec.linalg.batching import eigh


def sylvester(left: Array, right: Array, known: Array) -> Array:
    """X (m, n) with left X - X right = known, for symmetric left (m, m) and right (n, n).

    Zero along eigenvectors of both with eigenvalues that are equal up to rounding.
    """
    (values, vectors), (others, turned) = eigh(lax.stop_gradient(left)), eigh(lax.stop_gradient(right))
    gaps = values[:, None] - others[None]
    least = max(known.shape) * jnp.finfo(gaps.dtype).eps * jnp.maximum(_largest(values), _largest(others))
    inverse = jnp.where(jnp.abs(gaps) > least, 1 / jnp.where(gaps == 0, 1, gaps), 0)

    def solve(_, known):
        return vectors @ (inverse * (vectors.mT @ known @ turned)) @ turned.mT

    return lax.custom_linear_solve(lambda x: left @ x - x @ right, known, solve, symmetric=True)


def _largest(values: Array) -> Array:
    return jnp.max(jnp.abs(values))


class Parted(NamedTuple):
    """The eigenvectors of a symmetric matrix (n, n) in two parts."""

    kept: Array
    """(n, n - o) of the largest eigenvalues"""
    least: Array
    """(n, o) of the least"""
    values: Array
    """(o,) the least eigenvalues, in ascending order"""


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def parted_eigenvectors(matrix: Array, count: int) -> Parted:
    """The eigenvectors of a symmetric matrix without the o = `count` least, and these.

    Their derivatives are those of the spaces that they span.
    """
    values, vectors = eigh(matrix)
    return Parted(vectors[:, count:], vectors[:, :count], values[:count])


@parted_eigenvectors.defjvp
def _(count, primals, tangents):
    (matrix,), (moved,) = primals, tangents
    kept, least, values = parted_eigenvectors(matrix, count)
    turn = sylvester(kept.mT @ matrix @ kept, least.mT @ matrix @ least, -kept.mT @ moved @ least)
    changes = jnp.sum(least * (moved @ least), 0)
    return Parted(kept, least, values), Parted(-least @ turn.mT, kept @ turn, changes)


@jax.custom_jvp
def roots_of(matrix: Array, least: Array) -> tuple[Array, Array, Array]:
    """A root b (o, o) of a symmetric matrix, b b^T, its pseudo-inverse, and which columns of b are not zero.

    Eigenvalues of `least` or less count as zero. Derivatives are those of a symmetric root up to a fixed rotation.
    """
    values, vectors = (matrix[0], jnp.ones_like(matrix)) if len(matrix) == 1 else eigh(matrix)
    real = values > least
    lengths = jnp.sqrt(jnp.where(real, values, 1))
    return vectors * jnp.where(real, lengths, 0)[None], (vectors * jnp.where(real, 1 / lengths, 0)[None]).mT, real


@roots_of.defjvp
def _(primals, tangents):
    matrix, _ = primals
    root, inverse, real = roots_of(*primals)
    rotation = lax.stop_gradient(jnp.ones_like(matrix) if len(matrix) == 1 else eigh(lax.stop_gradient(matrix))[1])
    symmetric = root @ rotation.mT
    moved = jnp.where(real[None], sylvester(symmetric, -symmetric, tangents[0]) @ rotation, 0)
    beyond = moved - root @ (inverse @ moved)
    flat: Any = np.zeros(real.shape, jax.dtypes.float0)
    return (root, inverse, real), (moved, inverse @ inverse.mT @ beyond.mT - inverse @ moved @ inverse, flat)
