r"""FISMO: orthogonalised momentum in a Fisher-structured metric.

For a gradient G (m x n), factors P (m x m) and Q (n x n) with traces m and n, from I, and momentum M, from 0:

    L = G Q^{-1} G^T / n + mu I        P <- m P~ / tr P~,   P~ = gamma P + (1 - gamma) L
    R = G^T P^{-1} G / m + mu I        Q <- n Q~ / tr Q~,   Q~ = gamma Q + (1 - gamma) R        (with the new P)
    M <- beta M + (1 - beta) P^{-1/2} G Q^{-1/2}            u = P^{-1/2} polar(M) Q^{-1/2}

It is the steepest descent step under |P^{1/2} D Q^{1/2}|_2 <= 1. With gamma = 1 it is Muon, its momentum an average.

L has the units of the squared gradient, while P is held at trace m. Where the entries of G are much smaller than 1 and
mu, as in most networks, P and Q stay close to I, and FISMO close to Muon. `statistics="scale_free"` takes L and R from
G / rms(G), and makes the method indifferent to the scale of the gradient; the default is as printed.

The two sides are not treated alike: P, the side of the rows, comes first. Rows are a flax kernel's inputs. Memory of a
matrix: m n + m^2 + 2 n^2 numbers, n^2 of them the root of Q, kept to save a decomposition; with an interval m^2 more.
Work: 7 products O(m n (m + n)) and the polar factor in every step, and two eigendecompositions O(m^3 + n^3) every
`interval` steps. In between, the last roots serve in the place of the true ones.

Source: Xu, Yan, Zhang, "FISMO: Fisher-Structured Momentum-Orthogonalized Optimizer", 2026, Algorithm 1.
"""

from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import optax
from optax import ScalarOrSchedule

from seqdec.core import Array
from seqdec.linalg import cond_any
from seqdec.optim import linear
from seqdec.optim.common import Matrices, check_choice, check_count, check_number, matrixwise, routed

Statistics = Literal["printed", "scale_free"]
Damping = Literal["algorithm", "theorem"]
_STATISTICS: tuple[Statistics, ...] = ("printed", "scale_free")
_DAMPING: tuple[Damping, ...] = ("algorithm", "theorem")


class FismoState(NamedTuple):
    """m n + m^2 + 2 n^2 numbers of one matrix, m^2 more with an interval; trees of them in the state."""

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


def scale_by_fismo(
    *,
    beta: Any = 0.95,
    gamma: Any = 0.95,
    mu: Any = 1e-3,
    polar: linear.Polar = "newton_schulz",
    polar_steps: int = 5,
    statistics: Statistics = "printed",
    damping: Damping = "algorithm",
    interval: int = 1,
) -> optax.GradientTransformationExtraArgs:
    """Whitened, orthogonalised momentum of matrices; see the head of this file. The direction is not negated.

    The paper states no values for its hyperparameters; these are ours.

    Args:
        beta: decay of the momentum.
        gamma: decay of the factors, at most 1.
        mu: damping, positive. The theory asks for more than the mean square of the gradient's entries; with much less,
            directions of small gradients get very large steps.
        polar: "newton_schulz", "cubic" or "exact"; see `seqdec.optim.linear.polar`.
        polar_steps: of the iteration.
        statistics: "printed", or "scale_free"; see the head of this file.
        damping: "algorithm" as printed there, or "theorem": mu tr(Q^{-1}) / n I and mu tr(P^{-1}) / m I, those of the
            paper's Theorem 4.1.
        interval: steps between two decompositions; 1 as printed.

    Raises:
        ValueError: a setting is out of its range; in `init`, a parameter has fewer than two axes.
    """
    check_number("beta", beta, 0, 1)
    if not isinstance(gamma, int | float) or gamma != 1:
        check_number("gamma", gamma, 0, 1)
    check_number("mu", mu, above=True)
    check_choice("polar", polar, linear.POLAR)
    check_count("polar_steps", polar_steps)
    check_choice("statistics", statistics, _STATISTICS)
    check_choice("damping", damping, _DAMPING)
    check_count("interval", interval)

    def init(zeros):
        left, right = (jnp.eye(size, dtype=zeros.dtype) for size in zeros.shape)
        return FismoState(zeros, left, right, right, left if interval > 1 else None)

    def factor(old, old_root, whitened, other_root, due):
        """The new factor, from the gradient whitened on its other side (own side, other side), and its inverse root."""
        size, other = whitened.shape
        unit = mu * (jnp.sum(jnp.square(other_root)) / other if damping == "theorem" else jnp.trace(old) / size)
        mixed = gamma * old + (1 - gamma) * (whitened @ whitened.T / other + unit * jnp.eye(size, dtype=old.dtype))
        scale = size / jnp.trace(mixed)
        fresh = scale * 0.5 * (mixed + mixed.T)
        floor = (1 - gamma) * mu * scale

        def renew(root, due, fresh, floor):
            return jnp.where(due, linear.power(fresh, -0.5, floor), root)

        if interval == 1:
            return fresh, linear.power(fresh, -0.5, floor)
        return fresh, cond_any(due, renew, old_root, due, fresh, floor)

    def update(gradient, state, step):
        due = step.due(interval)
        seen = gradient
        if statistics == "scale_free":
            seen = linear.safe_divide(gradient, jnp.sqrt(jnp.mean(jnp.square(gradient))))
        left, left_root = factor(state.left, state.left_root, seen @ state.right_root, state.right_root, due)
        right, right_root = factor(state.right, state.right_root, (left_root @ seen).T, left_root, due)
        moment = beta * state.moment + (1 - beta) * left_root @ gradient @ right_root
        direction = left_root @ linear.polar(moment, polar, polar_steps) @ right_root
        return direction, FismoState(moment, left, right, right_root, left_root if interval > 1 else None)

    return matrixwise("fismo", FismoState, init, update, transpose=False)


def fismo(
    learning_rate: ScalarOrSchedule,
    *,
    beta: Any = 0.95,
    gamma: Any = 0.95,
    mu: Any = 1e-3,
    polar: linear.Polar = "newton_schulz",
    polar_steps: int = 5,
    statistics: Statistics = "printed",
    damping: Damping = "algorithm",
    interval: int = 1,
    weight_decay: Any = 0.0,
    adam_ratio: Any = 0.05,
    matrices: Matrices | None = None,
    head: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """FISMO for hidden matrices, Adam for all else; learning rates are those of Muon.

    Args:
        learning_rate: a number or a schedule.
        beta, gamma, mu, polar, polar_steps, statistics, damping, interval: as in `scale_by_fismo`.
        weight_decay, adam_ratio, matrices, head: as in `seqdec.optim.racs`.

    Raises:
        ValueError: a setting is out of its range.
    """
    return routed(
        scale_by_fismo(
            beta=beta,
            gamma=gamma,
            mu=mu,
            polar=polar,
            polar_steps=polar_steps,
            statistics=statistics,
            damping=damping,
            interval=interval,
        ),
        learning_rate,
        weight_decay=weight_decay,
        adam_ratio=adam_ratio,
        matrices=matrices,
        head=head,
    )
