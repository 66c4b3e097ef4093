r"""Eigen-Adam and SOAP: Adam in the eigenbasis of the gradient's second moments.

For a gradient G (m x n), m <= n, with L an average of G G^T, R one of G^T G, and their eigenvectors U_L, U_R renewed in
the steps 1, K, 2 K, ...:

    Eigen-Adam   v = b2 v + (1 - b2) (U_L^T G)^2            u = U_L ( U_L^T m / (sqrt(v) + eps) )
    SOAP         v = b2 v + (1 - b2) (U_L^T G U_R)^2        u = U_L ( U_L^T m U_R / (sqrt(v) + eps) ) U_R^T

m averages G in its own space; v lives in the basis and is not turned when that changes. There is no bias correction.
Eigen-Adam is one-sided SOAP; with b3 = 0 the two are AdaDiag and AdaDiag++. 0 / 0 counts as 0, so eps = 0, the paper's
boxes, is allowed; but SOAP's first basis makes U_L^T G U_R diagonal up to rounding, and dividing by its rounding errors
there takes one arbitrary step of the usual length. eps stops that.

Memory of a matrix: 2 m n + 2 m^2 numbers for Eigen-Adam, 2 n^2 more for SOAP. Work: a few products O(m^2 n), and one
eigendecomposition O(m^3), for SOAP O(n^3), every K steps.

Sources: Gong, Scetbon, Ma, Meeds, "Towards Efficient Optimizer Design for LLM via Structured Fisher Approximation with
a Low-Rank Extension", 2025, Algorithms 6 and 7; Vyas et al., "SOAP: Improving and Stabilizing Shampoo using Adam",
2024.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from optax import ScalarOrSchedule

from seqdec.core import Array
from seqdec.linalg import cond_any
from seqdec.optim import linear
from seqdec.optim.common import Matrices, Step, check_count, check_number, matrixwise, routed


class EigenAdamState(NamedTuple):
    """2 m n + 2 m^2 numbers of one matrix; trees of them in the transformation's state."""

    moment: Array
    """(m, n) average of the gradient"""
    square: Array
    """(m, n) average of its squares in the basis"""
    left: Array
    """(m, m) average of G G^T"""
    basis: Array
    """(m, m) eigenvectors of `left`, largest eigenvalue first"""


class SoapState(NamedTuple):
    """2 m n + 2 m^2 + 2 n^2 numbers of one matrix; trees of them in the transformation's state."""

    moment: Array
    """(m, n) average of the gradient"""
    square: Array
    """(m, n) average of its squares in both bases"""
    left: Array
    """(m, m) average of G G^T"""
    left_basis: Array
    """(m, m)"""
    right: Array
    """(n, n) average of G^T G"""
    right_basis: Array
    """(n, n)"""


def _renewed(step: Step, interval: int, basis: Array, second_moment: Array) -> Array:
    """Eigenvectors of the second moment in the steps 1, K, 2 K, ..., the old ones in between."""

    def renew(basis, due, second_moment):
        return jnp.where(due, linear.eigenvectors(second_moment), basis)

    due = step.due(interval)
    return cond_any(due, renew, basis, due, second_moment)


def _check(b1, b2, b3, eps, interval) -> None:
    for name, value in (("b1", b1), ("b2", b2), ("b3", b3)):
        check_number(name, value, 0, 1)
    check_number("eps", eps)
    check_count("interval", interval)


def scale_by_eigen_adam(
    *, b1: Any = 0.9, b2: Any = 0.999, b3: Any = 0.999, eps: Any = 1e-8, interval: int = 10
) -> optax.GradientTransformationExtraArgs:
    """Adam in the eigenbasis of the short side; see the head of this file. The direction is not negated.

    Args:
        b1: decay of the first moment.
        b2: decay of the second moment in the basis.
        b3: decay of G G^T; 0 uses the current gradient alone (AdaDiag).
        eps: added to the denominator; 0 is as printed.
        interval: K, steps between two bases.

    Raises:
        ValueError: a setting is out of its range; in `init`, a parameter has fewer than two axes.
    """
    _check(b1, b2, b3, eps, interval)

    def init(zeros):
        square = jnp.zeros((len(zeros), len(zeros)), zeros.dtype)
        return EigenAdamState(zeros, zeros, square, square)

    def update(gradient, state, step):
        left = b3 * state.left + (1 - b3) * gradient @ gradient.T
        moment = b1 * state.moment + (1 - b1) * gradient
        basis = _renewed(step, interval, state.basis, left)
        square = b2 * state.square + (1 - b2) * jnp.square(basis.T @ gradient)
        direction = basis @ linear.safe_divide(basis.T @ moment, jnp.sqrt(square) + eps)
        return direction, EigenAdamState(moment, square, left, basis)

    return matrixwise("eigen_adam", EigenAdamState, init, update)


def scale_by_soap(
    *, b1: Any = 0.9, b2: Any = 0.999, b3: Any = 0.999, eps: Any = 1e-8, interval: int = 10
) -> optax.GradientTransformationExtraArgs:
    """Adam in the eigenbases of both sides; see the head of this file. The direction is not negated.

    Args:
        b1, b2, b3, eps, interval: as in `scale_by_eigen_adam`; b3 also of G^T G.

    Raises:
        ValueError: a setting is out of its range; in `init`, a parameter has fewer than two axes.
    """
    _check(b1, b2, b3, eps, interval)

    def init(zeros):
        m, n = zeros.shape
        left, right = jnp.zeros((m, m), zeros.dtype), jnp.zeros((n, n), zeros.dtype)
        return SoapState(zeros, zeros, left, left, right, right)

    def update(gradient, state, step):
        moment = b1 * state.moment + (1 - b1) * gradient
        left = b3 * state.left + (1 - b3) * gradient @ gradient.T
        right = b3 * state.right + (1 - b3) * gradient.T @ gradient
        left_basis = _renewed(step, interval, state.left_basis, left)
        right_basis = _renewed(step, interval, state.right_basis, right)
        square = b2 * state.square + (1 - b2) * jnp.square(left_basis.T @ gradient @ right_basis)
        turned = linear.safe_divide(left_basis.T @ moment @ right_basis, jnp.sqrt(square) + eps)
        return left_basis @ turned @ right_basis.T, SoapState(moment, square, left, left_basis, right, right_basis)

    return matrixwise("soap", SoapState, init, update)


def eigen_adam(
    learning_rate: ScalarOrSchedule,
    *,
    b1: Any = 0.9,
    b2: Any = 0.999,
    b3: Any = 0.999,
    eps: Any = 1e-8,
    interval: int = 10,
    weight_decay: Any = 0.0,
    adam_ratio: Any = 1.0,
    matrices: Matrices | None = None,
    head: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """Eigen-Adam for hidden matrices, Adam for all else; learning rates are those of Adam.

    Args:
        learning_rate: a number or a schedule.
        b1, b2, b3, eps, interval: as in `scale_by_eigen_adam`.
        weight_decay, adam_ratio, matrices, head: as in `seqdec.optim.racs`.

    Raises:
        ValueError: a setting is out of its range.
    """
    return routed(
        scale_by_eigen_adam(b1=b1, b2=b2, b3=b3, eps=eps, interval=interval),
        learning_rate,
        weight_decay=weight_decay,
        adam_ratio=adam_ratio,
        matrices=matrices,
        head=head,
    )


def soap(
    learning_rate: ScalarOrSchedule,
    *,
    b1: Any = 0.9,
    b2: Any = 0.999,
    b3: Any = 0.999,
    eps: Any = 1e-8,
    interval: int = 10,
    weight_decay: Any = 0.0,
    adam_ratio: Any = 1.0,
    matrices: Matrices | None = None,
    head: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """SOAP for hidden matrices, Adam for all else; learning rates are those of Adam.

    Args:
        learning_rate: a number or a schedule.
        b1, b2, b3, eps, interval: as in `scale_by_soap`.
        weight_decay, adam_ratio, matrices, head: as in `seqdec.optim.racs`.

    Raises:
        ValueError: a setting is out of its range.
    """
    return routed(
        scale_by_soap(b1=b1, b2=b2, b3=b3, eps=eps, interval=interval),
        learning_rate,
        weight_decay=weight_decay,
        adam_ratio=adam_ratio,
        matrices=matrices,
        head=head,
    )
