r"""FISMO: orthogonalized momentum in a Fisher-structured metric.

For a gradient G (m x n), factors P (m x m) and Q (n x n) with traces m and n, from I, and momentum M, from 0:

    L = G Q^{-1} G^T / n + mu I        P <- m P~ / tr P~,   P~ = gamma P + (1 - gamma) L
    R = G^T P^{-1} G / m + mu I        Q <- n Q~ / tr Q~,   Q~ = gamma Q + (1 - gamma) R        (with the new P)
    M <- beta M + (1 - beta) P^{-1/2} G Q^{-1/2}            u = P^{-1/2} polar(M) Q^{-1/2}

This is the steepest descent step under |P^{1/2} D Q^{1/2}|_2 <= 1. With gamma = 1 it is Muon with an averaged momentum.

L has the units of the squared gradient, while the trace of P is m. Where the entries of G are much smaller than 1 and
mu, as in most networks, P and Q stay close to I, and FISMO close to Muon. `statistics="scale_free"` computes L and R
from G / rms(G), so that the method does not depend on the scale of the gradient; the default is as in the paper.

The method is not symmetric: P, the factor of the rows, is updated first. Rows are a flax kernel's inputs. Memory of a
matrix: m n + 2 m^2 + 2 n^2 numbers, m^2 + n^2 of them the inverse roots; with an interval of 1, m^2 fewer. Work: 7
products O(m n (m + n)) and the polar factor in every step, and two eigendecompositions O(m^3 + n^3) every `interval`
steps. In between the last roots are used, which is not in the paper: interval=1 is as printed.

Source: Xu, Yan, Zhang, "FISMO: Fisher-Structured Momentum-Orthogonalized Optimizer", 2026, Algorithm 1.
"""

from typing import Any, Literal, NamedTuple, get_args

import jax.numpy as jnp
import optax

from seqdec import checks
from seqdec.core import Array
from seqdec.optim import linear
from seqdec.optim.alias import for_matrices
from seqdec.optim.common import matrixwise
from seqdec.optim.groups import Matrices
from seqdec.optim.injection import injectable

Statistics = Literal["printed", "scale_free"]
Damping = Literal["algorithm", "theorem"]


class FismoState(NamedTuple):
    """m n + 2 m^2 + 2 n^2 numbers of one matrix, m^2 fewer with interval 1; trees of them in the state."""

    moment: Array
    """(m, n) average of the whitened gradients"""
    left: Array
    """(m, m) P, of trace m"""
    right: Array
    """(n, n) Q, of trace n"""
    right_root: Array
    """(n, n) Q^{-1/2}"""
    left_root: Array | None
    """(m, m) P^{-1/2} where it is kept for several steps"""


@injectable
def scale_by_fismo(
    *,
    b1: Any = 0.95,
    b2: Any = 0.95,
    eps: Any = 1e-3,
    polar: linear.Polar = "newton_schulz",
    polar_steps: int = 5,
    statistics: Statistics = "printed",
    damping: Damping = "algorithm",
    interval: int = 20,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Whitened, orthogonalized momentum of matrices; see the head of this file. The direction is not negated.

    The paper states no values for its hyperparameters; the defaults are this library's.

    Args:
        b1: beta, decay of the momentum.
        b2: gamma, decay of the factors, at most 1.
        eps: mu, the damping, positive. The theory asks for more than the mean square of the gradient's entries; with
            much less, directions of small gradients get very large steps, and so do
            the rounding errors of those without a gradient.
        polar: "newton_schulz", "cubic" or "exact"; see `seqdec.optim.linear.polar`.
        polar_steps: of the iteration.
        statistics: "printed", or "scale_free"; see the head of this file.
        damping: "algorithm" as printed there, or "theorem": mu tr(Q^{-1}) / n I and mu tr(P^{-1}) / m I, those of the
            paper's Theorem 4.1.
        interval: steps between two decompositions; 1 as printed. The factors average over about 1 / (1 - gamma) = 20.
        matrices: axes of the parameters, where they are not those of `seqdec.optim.matrix_axes`.

    Raises:
        ValueError: a setting is out of its range; in `init`, a parameter is no matrix.
    """
    checks.number("b1", b1, 0, 1)
    if checks.known("b2", b2) != 1:
        checks.number("b2", b2, 0, 1)
    checks.number("eps", eps, exclusive=True)
    checks.choice("polar", polar, get_args(linear.Polar))
    polar_steps = checks.count("polar_steps", polar_steps)
    checks.choice("statistics", statistics, get_args(Statistics))
    checks.choice("damping", damping, get_args(Damping))
    interval = checks.count("interval", interval)

    def init(zeros):
        left, right = (jnp.eye(size, dtype=zeros.dtype) for size in zeros.shape)
        return FismoState(zeros, left, right, right, left if interval > 1 else None)

    def inverse_root(matrix, floor):
        return linear.power(matrix, -0.5, floor)

    def factor(old, old_root, whitened, other_root, step):
        """The new factor, from the gradient whitened on its other side (own side, other side), and its inverse root."""
        size, other = whitened.shape
        unit = eps * (jnp.sum(jnp.square(other_root)) / other if damping == "theorem" else jnp.trace(old) / size)
        mixed = b2 * old + (1 - b2) * (whitened @ whitened.T / other + unit * jnp.eye(size, dtype=old.dtype))
        scale = size / jnp.trace(mixed)
        fresh = scale * 0.5 * (mixed + mixed.T)
        floor = (1 - b2) * eps * scale

        if interval == 1:
            return fresh, inverse_root(fresh, floor)
        return fresh, step.renewed(interval, old_root, inverse_root, fresh, floor)

    def update(gradient, state, step):
        measured = gradient
        if statistics == "scale_free":
            measured = linear.safe_divide(gradient, linear.root(jnp.mean(jnp.square(gradient))))
        left, left_root = factor(state.left, state.left_root, measured @ state.right_root, state.right_root, step)
        right, right_root = factor(state.right, state.right_root, (left_root @ measured).T, left_root, step)
        moment = b1 * state.moment + (1 - b1) * left_root @ gradient @ right_root
        direction = left_root @ linear.polar(moment, polar, polar_steps) @ right_root
        return direction, FismoState(moment, left, right, right_root, left_root if interval > 1 else None)

    return matrixwise("fismo", FismoState, init, update, transpose=False, matrices=matrices)


fismo = for_matrices(
    scale_by_fismo,
    "FISMO for hidden matrices, Adam for all other parameters; learning rates are those of Muon.",
)
