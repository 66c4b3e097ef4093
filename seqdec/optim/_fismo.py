"""FISMO: orthogonalized momentum in a Fisher-structured metric."""

import functools
from typing import Any, Literal, NamedTuple, get_args

import jax.numpy as jnp
import optax

from seqdec import linalg
from seqdec.boundary import checks
from seqdec.core import Array
from seqdec.optim import linear
from seqdec.optim.chains import Rate, routed
from seqdec.optim.common import Mask, Matrixwise
from seqdec.optim.groups import Matrices

Statistics = Literal["printed", "scale_free"]
Damping = Literal["algorithm", "theorem"]


def fismo(
    learning_rate: Rate,
    *,
    b1: Any = 0.95,
    b2: Any = 0.95,
    eps: Any = 1e-3,
    polar: linear.Polar = "newton_schulz",
    polar_steps: int = 5,
    statistics: Statistics = "printed",
    damping: Damping = "algorithm",
    interval: int = 20,
    max_side: int = 8192,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    rms: Any | None = 0.2,
    rest: optax.GradientTransformation | None = None,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """FISMO for hidden matrices, Adam elsewhere.

    For a gradient G (m x n), factors P (m x m, inputs) and Q (n x n) with traces m and n, from I, and momentum M, from
    0:

        L = G Q^{-1} G^T / n + mu I        P <- m P~ / tr P~,   P~ = gamma P + (1 - gamma) L
        R = G^T P^{-1} G / m + mu I        Q <- n Q~ / tr Q~,   Q~ = gamma Q + (1 - gamma) R        (with the new P)
        M <- beta M + (1 - beta) P^{-1/2} G Q^{-1/2}            u = P^{-1/2} polar(M) Q^{-1/2}

    the steepest descent step under |P^{1/2} D Q^{1/2}|_2 <= 1; with gamma = 1, Muon with an averaged momentum.
    Gradient entries far below 1 and mu leave P and Q close to I. Where P is made of damping and rounding errors,
    P^{-1/2} is limited as in `linear.power`.

    Memory of a matrix: m n + 2 m^2 + 2 n^2 + 2 numbers, with an interval of 1 m^2 fewer; m or n in place of the square
    of a side beyond `max_side`. Work: 4 products O(m n (m +
    n)) and the polar factor in every step; 3 more and two eigendecompositions O(m^3 + n^3) every K.

    Args:
        learning_rate: as for AdamW; as for Muon with `rms=None`. The paper states no defaults.
        b1: beta, decay of M.
        b2: gamma <= 1, decay of P and Q.
        eps: mu > 0, the damping. The theory asks for more than the mean square of the gradient's entries; much less
            makes very large steps along small gradients.
        polar, polar_steps: as in `linear.polar`.
        statistics: "printed", as in the paper, or "scale_free": L and R from G / rms(G).
        damping: "algorithm" as in Algorithm 1, or "theorem": mu tr(Q^{-1}) / n I and mu tr(P^{-1}) / m I (Theorem 4.1).
        interval: K, steps between updates of P and Q; 1 as in the paper.
        max_side: longest side with a matrix P or Q; longer ones use the diagonal.
        weight_decay, mask, rms, rest, matrices: as in `routed`.

    Source: Xu, Yan, Zhang, "FISMO: Fisher-Structured Momentum-Orthogonalized Optimizer", 2026, Algorithm 1.
    """
    checks.number("b1", b1, 0, 1)
    if checks.concrete("b2", b2) != 1:
        checks.number("b2", b2, 0, 1)
    checks.number("eps", eps, exclusive=True)
    checks.choice("polar", polar, get_args(linear.Polar))
    polar_steps = checks.count("polar_steps", polar_steps)
    checks.choice("statistics", statistics, get_args(Statistics))
    checks.choice("damping", damping, get_args(Damping))
    interval, max_side = checks.count("interval", interval), checks.count("max_side", max_side)

    def init(zeros):
        left, right = (linear.identity(size, max_side, zeros.dtype) for size in zeros.shape)
        one = jnp.ones((), zeros.dtype)
        return FismoState(zeros, left, right, one, one, right, left if interval > 1 else None)

    def inverse_trace(matrix, damping):
        return jnp.sum(1 / jnp.maximum(linalg.eigh(matrix)[0] if matrix.ndim > 1 else matrix, damping))

    def mixed(settings, old, old_damping, whitened, other, other_damping):
        """The new factor and its damping, from the gradient (own side, other side) whitened on the other."""
        decay, unit = settings
        size, other_size = whitened.shape
        if damping == "theorem":
            unit = unit * inverse_trace(other, other_damping) / other_size
        one = linear.identity(size, max_side, old.dtype)
        new = decay * old + (1 - decay) * (linear.gram(1, whitened, old) / other_size + unit * one)
        scale = size / (jnp.trace(new) if new.ndim > 1 else jnp.sum(new))
        return scale * 0.5 * (new + new.T), scale * (decay * old_damping + (1 - decay) * unit)

    def inverse_root(matrix, damping, precision):
        return linear.power(matrix, -0.5, damping, precision**2)

    def renew(precision, settings, gradient, left, right, left_damping, right_damping, right_root, _):
        if statistics == "scale_free":
            gradient = linear.safe_divide(gradient, linear.root(jnp.mean(jnp.square(gradient))))
        left, left_damping = mixed(
            settings, left, left_damping, linear.between(None, gradient, right_root), right, right_damping
        )
        left_root = inverse_root(left, left_damping, precision)
        right, right_damping = mixed(
            settings, right, right_damping, linear.between(left_root, gradient, None).T, left, left_damping
        )
        return left, right, left_damping, right_damping, inverse_root(right, right_damping, precision), left_root

    def update(gradient, state, step):
        old, compute = state[1:], functools.partial(renew, step.eps)
        operands = (b2, eps), gradient, *old
        factors = compute(*operands) if interval == 1 else step.renewed(interval, old, compute, *operands)
        left, right, left_damping, right_damping, right_root, left_root = factors
        moment = b1 * state.moment + linear.between((1 - b1) * left_root, gradient, right_root)
        direction = linear.between(left_root, linear.polar(moment, polar, polar_steps), right_root)
        kept = left_root if interval > 1 else None
        return direction, FismoState(moment, left, right, left_damping, right_damping, right_root, kept)

    direction = Matrixwise(FismoState, init, update, transpose=False)
    return routed(direction, learning_rate, weight_decay, mask, rms, rest, matrices)


scale_by_fismo = functools.partial(fismo, None)


class FismoState(NamedTuple):
    moment: Array
    """(m, n) average of the whitened gradients"""
    left: Array
    """(m, m) P, of trace m, or its diagonal (m,)"""
    right: Array
    """(n, n) Q, of trace n, or its diagonal (n,)"""
    left_damping: Array
    """() d, for P = d I and a part made of gradients"""
    right_damping: Array
    """() that of Q"""
    right_root: Array
    """(n, n) or (n,) Q^{-1/2}"""
    left_root: Array | None
    """(m, m) or (m,) P^{-1/2} for an interval above 1"""
