"""Eigen-Adam and SOAP: Adam in the eigenbasis of the gradient's second moments."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax

from seqdec.boundary import checks
from seqdec.core import Array
from seqdec.optim import linear
from seqdec.optim.chains import Rate, routed
from seqdec.optim.common import Mask, Matrixwise
from seqdec.optim.groups import Matrices


def eigen_adam(
    learning_rate: Rate,
    *,
    b1: Any = 0.9,
    b2: Any = 0.99,
    b3: Any = 0.95,
    eps: Any = 1e-8,
    interval: int = 20,
    max_side: int = 8192,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    rms: Any | None = 0.2,
    rest: optax.GradientTransformation | None = None,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Eigen-Adam for hidden matrices, Adam elsewhere.

    For a gradient G (m x n), m <= n, and eigenvectors U of an average of G G^T, renewed in step 1 and every K steps:

        v = b2 v + (1 - b2) (U^T G)^2            u = U ( U^T m / (sqrt(v) + eps) )

    m averages G and turns with the basis, v does not. No bias correction. With b3 = 0 it is AdaDiag. 0 / 0 counts as
    0, and sqrt(v) as zero below 10 sqrt(m + n) times the precision of the dtype, relative to the largest of the
    column.

    Memory of a matrix: 2 m n + 2 m^2 numbers, 2 m n for m beyond `max_side`. Work: 3 products O(m^2 n), and one
    eigendecomposition O(m^3) every K.

    Args:
        learning_rate: as for AdamW.
        b1, b2, b3: decay of the first moment, of the second moment in the basis, and of G G^T; b3 = 0 uses only the
            current gradient.
        eps: added to the denominator; 0 as in the paper.
        interval: K, steps between updates of the basis.
        max_side: the longest side with a basis; beyond, it is the identity.
        weight_decay, mask, rms, rest, matrices: as in `routed`.

    Source: Gong et al. (see `alice`), Algorithm 7.
    """
    _check(b1, b2, b3, eps)
    interval, max_side = checks.count("interval", interval), checks.count("max_side", max_side)

    def init(zeros):
        square = _square(len(zeros), max_side, zeros.dtype)
        return EigenAdamState(zeros, zeros, square, square)

    def renew(left, basis, moment):
        fresh = _eigenvectors(left)
        return fresh, linear.between(_transposed(fresh), linear.between(basis, moment, None), None)

    def update(gradient, state, step):
        left = _average(b3, state.left, gradient)
        kept = state.basis, state.moment
        basis, moment = step.renewed(interval, kept, renew, left, *kept)
        turned = linear.between(_transposed(basis), gradient, None)
        moment = b1 * moment + (1 - b1) * turned
        square = b2 * state.square + (1 - b2) * jnp.square(turned)
        direction = linear.between(basis, linear.adaptive(moment, square, eps, 0), None)
        return direction, EigenAdamState(moment, square, left, basis)

    direction = Matrixwise(EigenAdamState, init, update)
    return routed(direction, learning_rate, weight_decay, mask, rms, rest, matrices)


scale_by_eigen_adam = functools.partial(eigen_adam, None)


def soap(
    learning_rate: Rate,
    *,
    b1: Any = 0.9,
    b2: Any = 0.99,
    b3: Any = 0.95,
    eps: Any = 1e-8,
    interval: int = 20,
    max_side: int = 8192,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    rms: Any | None = 0.2,
    rest: optax.GradientTransformation | None = None,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """SOAP for hidden matrices, Adam elsewhere.

    >>> import jax.numpy as jnp
    >>> from seqdec import optim
    >>> params = {"hidden": jnp.ones((4, 4)), "head": jnp.ones((4, 2))}
    >>> table = optim.explain(optim.soap, params)
    >>> table.rule.tolist()[:2]
    ['Adam', 'soap']

    `eigen_adam` in the eigenbases U_L of an average of G G^T and U_R of one of G^T G:

        v = b2 v + (1 - b2) (U_L^T G U_R)^2        u = U_L ( U_L^T m U_R / (sqrt(v) + eps) ) U_R^T

    sqrt(v) counts as zero relative to the largest of the matrix. b3 = 0 is AdaDiag++. Memory of a matrix: 2 m n + 2
    m^2 + 2 n^2 numbers, without the squares of sides beyond `max_side`. Work: 6 products O(m n (m + n)), and two
    eigendecompositions O(m^3 + n^3) every K steps.

    Args:
        learning_rate, b1, b2, b3, eps, interval, max_side: as in `eigen_adam`; b3 also of G^T G.
        weight_decay, mask, rms, rest, matrices: as in `routed`.

    Source: Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam", 2024.
    """
    _check(b1, b2, b3, eps)
    interval, max_side = checks.count("interval", interval), checks.count("max_side", max_side)

    def init(zeros):
        left, right = (_square(size, max_side, zeros.dtype) for size in zeros.shape)
        return SoapState(zeros, zeros, left, left, right, right)

    def renew(left, right, left_basis, right_basis, moment):
        fresh_left, fresh_right = _eigenvectors(left), _eigenvectors(right)
        moment = linear.between(left_basis, moment, _transposed(right_basis))
        return fresh_left, fresh_right, linear.between(_transposed(fresh_left), moment, fresh_right)

    def update(gradient, state, step):
        left, right = _average(b3, state.left, gradient), _average(b3, state.right, gradient.T)
        kept = state.left_basis, state.right_basis, state.moment
        left_basis, right_basis, moment = step.renewed(interval, kept, renew, left, right, *kept)
        turned = linear.between(_transposed(left_basis), gradient, right_basis)
        moment = b1 * moment + (1 - b1) * turned
        square = b2 * state.square + (1 - b2) * jnp.square(turned)
        direction = linear.between(left_basis, linear.adaptive(moment, square, eps), _transposed(right_basis))
        return direction, SoapState(moment, square, left, left_basis, right, right_basis)

    direction = Matrixwise(SoapState, init, update)
    return routed(direction, learning_rate, weight_decay, mask, rms, rest, matrices)


scale_by_soap = functools.partial(soap, None)


class EigenAdamState(NamedTuple):
    """Of one matrix."""

    moment: Array
    """(m, n) first moment in the basis"""
    square: Array
    """(m, n) second moment in the basis"""
    left: Array | None
    """(m, m) average of G G^T; None beyond `max_side`, as the basis"""
    basis: Array | None
    """(m, m) eigenvectors of `left`, largest eigenvalue first"""


class SoapState(NamedTuple):
    """Of one matrix."""

    moment: Array
    """(m, n) first moment in both bases"""
    square: Array
    """(m, n) second moment in both bases"""
    left: Array | None
    """(m, m) average of G G^T; None beyond `max_side`, as the basis"""
    left_basis: Array | None
    """(m, m)"""
    right: Array | None
    """(n, n) average of G^T G"""
    right_basis: Array | None
    """(n, n)"""


def _square(size: int, max_side: int, dtype: jnp.dtype) -> Array | None:
    return jnp.zeros((size, size), dtype) if size <= max_side else None


def _average(b3: Any, kept: Array | None, gradient: Array) -> Array | None:
    return None if kept is None else b3 * kept + (1 - b3) * gradient @ gradient.T


def _eigenvectors(moment: Array | None) -> Array | None:
    return None if moment is None else linear.eigenvectors(moment)


def _transposed(basis: Array | None) -> Array | None:
    return None if basis is None else basis.T


def _check(b1, b2, b3, eps) -> None:
    for name, value in (("b1", b1), ("b2", b2), ("b3", b3)):
        checks.number(name, value, 0, 1)
    checks.number("eps", eps)
