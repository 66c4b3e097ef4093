r"""RACS: row and column scaled SGD.

For a gradient G (m x n) the Fisher matrix is approximated by S (x) Q with S = diag(s), Q = diag(q), whose best fit to
the squares P = G * G is the fixed point of

    s = P^T q / |q|^2        q = P s / |s|^2        (5 sweeps, from q = 1 in every step)

that is P's principal singular pair. Their moving averages with decay beta scale the gradient, and the growth of its
norm is limited:

    u = alpha limit( diag(q)^{-1/2} G diag(s)^{-1/2} )

Averages start at zero and are not corrected for it, so the first steps are long (1 / (1 - beta) in the first): warm the
learning rate up over a tenth of the run. The limiter works both ways: a direction that was once short, near a
stationary point, grows by one percent per step only.

Memory: m + n + 1 numbers for a matrix. Work: 10 matrix-vector products. Invariant to the scale of all gradients. The
short side is always q's; the finite number of sweeps makes that a choice.

Source: Gong, Scetbon, Ma, Meeds, "Towards Efficient Optimizer Design for LLM via Structured Fisher Approximation with a
Low-Rank Extension", 2025, Algorithm 1.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from jax import lax
from optax import ScalarOrSchedule

from seqdec.core import Array
from seqdec.optim import linear
from seqdec.optim.common import Matrices, check_count, check_number, matrixwise, routed


class RacsState(NamedTuple):
    """m + n + 1 numbers of one matrix; trees of them in the transformation's state."""

    columns: Array
    """(n,) average of s, in squared units of the gradient"""
    rows: Array
    """(m,) average of q, without unit"""
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
    s, q = lax.fori_loop(0, sweeps, sweep, start)
    return unit * s, q


def scale_by_racs(
    *, decay: Any = 0.9, scale: Any = 0.05, growth: Any = 1.01, sweeps: int = 5
) -> optax.GradientTransformationExtraArgs:
    """Row and column scaling of matrices; see the head of this file. The direction is not negated.

    Args:
        decay: beta of the averages of s and q.
        scale: alpha.
        growth: the norm of the direction may grow by this factor per step.
        sweeps: of the fixed-point iteration.

    Raises:
        ValueError: a setting is out of its range; in `init`, a parameter has fewer than two axes.
    """
    check_number("decay", decay, 0, 1)
    check_number("scale", scale, above=True)
    check_number("growth", growth, 1)
    check_count("sweeps", sweeps)

    def init(zeros):
        return RacsState(zeros[0], zeros[:, 0], zeros[0, 0])

    def update(gradient, state, step):
        del step
        s, q = principal_pair(jnp.square(gradient), sweeps)
        columns, rows = decay * state.columns + (1 - decay) * s, decay * state.rows + (1 - decay) * q
        # One root after the other: the product of two small numbers could underflow.
        scaled = linear.safe_divide(linear.safe_divide(gradient, jnp.sqrt(rows)[:, None]), jnp.sqrt(columns))
        direction, norm = linear.limit_growth(scaled, state.norm, growth)
        return scale * direction, RacsState(columns, rows, norm)

    return matrixwise("racs", RacsState, init, update)


def racs(
    learning_rate: ScalarOrSchedule,
    *,
    decay: Any = 0.9,
    scale: Any = 0.05,
    growth: Any = 1.01,
    sweeps: int = 5,
    weight_decay: Any = 0.0,
    adam_ratio: Any = 0.05,
    matrices: Matrices | None = None,
    head: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """RACS for hidden matrices, Adam for all else. The authors' learning rate is 0.02, warmed up, Adam's 0.001.

    Args:
        learning_rate: a number or a schedule.
        decay, scale, growth, sweeps: as in `scale_by_racs`.
        weight_decay: decoupled.
        adam_ratio: Adam's learning rate as a multiple of `learning_rate`.
        matrices: which parameters are matrices: a tree of bools like the parameters, or a function that makes one of
            them; None is `seqdec.optim.hidden_matrices`.
        head: give the output layer to the matrix method too.

    Raises:
        ValueError: a setting is out of its range.
    """
    return routed(
        scale_by_racs(decay=decay, scale=scale, growth=growth, sweeps=sweeps),
        learning_rate,
        weight_decay=weight_decay,
        adam_ratio=adam_ratio,
        matrices=matrices,
        head=head,
    )
