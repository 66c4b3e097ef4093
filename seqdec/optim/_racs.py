"""RACS: row and column scaled SGD."""

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jax import lax

from seqdec.boundary import checks
from seqdec.core import Array
from seqdec.optim import linear
from seqdec.optim.chains import Rate, routed
from seqdec.optim.common import Mask, Matrixwise
from seqdec.optim.groups import Matrices
from seqdec.runtime import alike


def racs(
    learning_rate: Rate,
    *,
    b2: Any = 0.9,
    scale: Any = 0.05,
    growth: Any = 1.01,
    sweeps: int = 5,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    rms: Any | None = 0.2,
    rest: optax.GradientTransformation | None = None,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """RACS for hidden matrices, Adam elsewhere.

    For a gradient G (m x n), m <= n, diag(s) (x) diag(q) approximates the Fisher matrix, the principal singular pair
    of P = G * G and fixed point of

        s = P^T q / |q|^2        q = P s / |s|^2        (`sweeps` times, from q = 1 in every step)

    Their averages with decay b2 scale the gradient, and the growth of its norm is limited:

        u = scale limit( diag(q)^{-1/2} G diag(s)^{-1/2} )

    No bias correction: with `rms=None` the first step is longer by 1 / (1 - b2); warm the learning rate up then.
    Invariant to the scale of all gradients. Memory of a matrix: m + n + 1 numbers. Work: 10 matrix-vector products.

    Args:
        learning_rate: as for AdamW; the authors', with `rms=None`, is 0.02, with warm-up, and Adam's 0.001.
        b2: the paper's beta, decay of the averages of s and q.
        scale: the paper's alpha. It has an effect only with `rms=None`, as has `growth`.
        growth: factor by which the norm of the direction may grow per step.
        sweeps: number of fixed-point iterations.
        weight_decay, mask, rms, rest, matrices: as in `routed`.

    Source: Gong et al. (see `alice`), Algorithm 1.
    """
    checks.number("b2", b2, 0, 1)
    checks.number("scale", scale, exclusive=True)
    checks.number("growth", growth, 1)
    sweeps = checks.count("sweeps", sweeps)

    def init(zeros):
        return RacsState(zeros[0], zeros[:, 0], zeros[0, 0])

    def update(gradient, state, step):
        del step
        s, q = principal_pair(jnp.square(gradient), sweeps)
        columns, rows = b2 * state.columns + (1 - b2) * s, b2 * state.rows + (1 - b2) * q
        # Divided by one root after the other: the product of two small numbers could underflow.
        by_row = linear.safe_divide(gradient, linear.root(rows)[:, None])
        scaled = linear.safe_divide(by_row, linear.root(columns)[None])
        direction, norm = linear.limit_growth(scaled, state.norm, growth)
        return scale * direction, RacsState(columns, rows, norm)

    direction = Matrixwise(RacsState, init, update)
    return routed(direction, learning_rate, weight_decay, mask, rms, rest, matrices)


scale_by_racs = functools.partial(racs, None)


class RacsState(NamedTuple):
    columns: Array
    """(n,) average of s, in squared units of the gradient"""
    rows: Array
    """(m,) average of q, dimensionless"""
    norm: Array
    """() of the last limited direction; 0 at first"""


def principal_pair(squares: Array, sweeps: int) -> tuple[Array, Array]:
    """(s (n,), q (m,)) after `sweeps` on squares (m, n) >= 0. Zeros give zeros."""
    unit = jnp.max(squares)  # keeps the squared norms of tiny gradients above underflow
    scaled = linear.safe_divide(squares, unit)

    def sweep(_, pair):
        _, q = pair
        s = linear.safe_divide(scaled.T @ q, q @ q)
        return s, linear.safe_divide(scaled @ s, s @ s)

    m, n = squares.shape
    start = (jnp.zeros(n, squares.dtype), jnp.ones(m, squares.dtype))
    s, q = lax.fori_loop(0, sweeps, sweep, alike(start, squares))
    return unit * s, q
