r"""RACS: row and column scaled SGD.

For a gradient G (m x n) the Fisher matrix is approximated by S (x) Q with S = diag(s), Q = diag(q), whose best fit to
the squares P = G * G is the fixed point of

    s = P^T q / |q|^2        q = P s / |s|^2        (5 sweeps, from q = 1 in every step)

which is P's principal singular pair. Their moving averages with decay beta scale the gradient, and the growth of its
norm is limited:

    u = alpha limit( diag(q)^{-1/2} G diag(s)^{-1/2} )

Averages start at zero without bias correction, so the first steps are long (a factor of 1 / (1 - beta) in the first):
warm the learning rate up over a tenth of the run. The limiter also slows recovery: a direction that was short once,
near a stationary point, grows by at most one percent per step.

Memory: m + n + 1 numbers for a matrix. Work: 10 matrix-vector products. Invariant to the scale of all gradients. q
always belongs to the short side, which matters because the number of sweeps is finite.

Source: Gong, Scetbon, Ma, Meeds, "Towards Efficient Optimizer Design for LLM via Structured Fisher Approximation with a
Low-Rank Extension", 2025, Algorithm 1.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jax import lax

from seqdec import checks
from seqdec.core import Array
from seqdec.optim import linear
from seqdec.optim.alias import for_matrices
from seqdec.optim.common import matrixwise
from seqdec.optim.groups import Matrices
from seqdec.optim.injection import injectable
from seqdec.runtime import alike


class RacsState(NamedTuple):
    """m + n + 1 numbers of one matrix; trees of them in the transformation's state."""

    columns: Array
    """(n,) average of s, in squared units of the gradient"""
    rows: Array
    """(m,) average of q, dimensionless"""
    norm: Array
    """() norm of the last limited direction; 0 at first"""


def principal_pair(squares: Array, sweeps: int) -> tuple[Array, Array]:
    """(s (n,), q (m,)) after `sweeps` of the fixed-point iteration on squares (m, n) >= 0, from q = 1.

    q s^T converges to the best rank-one approximation of the squares. Zeros give zeros.
    """
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


@injectable
def scale_by_racs(
    *, b2: Any = 0.9, scale: Any = 0.05, growth: Any = 1.01, sweeps: int = 5, matrices: Matrices | None = None
) -> optax.GradientTransformationExtraArgs:
    """Row and column scaling of matrices; see the head of this file. The direction is not negated.

    Args:
        b2: beta, decay of the averages of s and q.
        scale: alpha.
        growth: the norm of the direction may grow by this factor per step.
        sweeps: number of sweeps of the fixed-point iteration.
        matrices: axes of the parameters, if they are not those of `seqdec.optim.matrix_axes`.

    Raises:
        ValueError: a setting is out of its range; in `init`, a parameter is not a matrix.
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

    return matrixwise("racs", RacsState, init, update, matrices=matrices)


racs = for_matrices(
    scale_by_racs,
    "RACS for hidden matrices, Adam for all other parameters. The authors' learning rate is 0.02, with warm-up, "
    "and Adam's 0.001.",
)
