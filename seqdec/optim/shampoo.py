r"""Shampoo and SWAN: gradients divided by roots of their own second moments.

    Shampoo   L <- L + G G^T,  R <- R + G^T G,  from eps I        u = L^{-1/4} G R^{-1/4}
    SWAN      N = (G - row means) / row standard deviations       u = (N N^T)^{-1/2} N

Shampoo sums as printed, so its steps shrink like AdaGrad's; `decay` makes averages of the sums. With eps = 0 the roots
are taken on the range of L and R. SWAN keeps no state. A row whose entries are all alike normalises to zero, and the
inverse root is that on the range: (N N^T)^{-1/2} N is the polar factor of N. The means of a gradient's rows (along the
longer side) are thrown away, and what they would teach is not learnt.

Memory of a matrix: m^2 + n^2 numbers for Shampoo, twice as many where the roots are kept for several steps; none for
SWAN. Work: Shampoo two eigendecompositions, O(m^3 + n^3), every `interval` steps; SWAN O(m^2 n).

Sources: Gupta, Koren, Singer, "Shampoo: Preconditioned Stochastic Tensor Optimization", 2018; Ma, Gong, Scetbon, Meeds,
"SWAN: SGD with Normalization and Whitening Enables Stateless LLM Training", 2024; both as stated in Gong, Scetbon, Ma,
Meeds, "Towards Efficient Optimizer Design for LLM via Structured Fisher Approximation with a Low-Rank Extension", 2025,
Algorithm 5 and Appendix B.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import optax
from optax import ScalarOrSchedule

from seqdec.core import Array
from seqdec.linalg import cond_any
from seqdec.optim import linear
from seqdec.optim.common import Matrices, check_choice, check_count, check_number, matrixwise, routed


class ShampooState(NamedTuple):
    """m^2 + n^2 numbers of one matrix, twice as many with an interval; trees of them in the transformation's state."""

    left: Array
    """(m, m) L"""
    right: Array
    """(n, n) R"""
    left_root: Array | None
    """(m, m) L^{-1/4} where it is kept for several steps"""
    right_root: Array | None
    """(n, n) R^{-1/4} where it is kept for several steps"""


class SwanState(NamedTuple):
    """Nothing."""


def scale_by_shampoo(*, eps: Any = 1e-6, decay: Any = None, interval: int = 1) -> optax.GradientTransformationExtraArgs:
    """Both sides divided by fourth roots; see the head of this file. The direction is not negated.

    Args:
        eps: of the initial eps I.
        decay: None sums the second moments, as printed; a number averages them with that decay.
        interval: steps between two roots; 1 as printed.

    Raises:
        ValueError: a setting is out of its range; in `init`, a parameter has fewer than two axes.
    """
    check_number("eps", eps)
    if decay is not None:
        check_number("decay", decay, 0, 1)
    check_count("interval", interval)

    def init(zeros):
        left, right = (eps * jnp.eye(size, dtype=zeros.dtype) for size in zeros.shape)
        kept = (jnp.zeros_like(left), jnp.zeros_like(right)) if interval > 1 else (None, None)
        return ShampooState(left, right, *kept)

    def update(gradient, state, step):
        keep, add = (1, 1) if decay is None else (decay, 1 - decay)
        left = keep * state.left + add * gradient @ gradient.T
        right = keep * state.right + add * gradient.T @ gradient

        def renew(roots, due, moments):
            fresh = [linear.power(moment, -0.25) for moment in moments]
            return tuple(jnp.where(due, new, old) for new, old in zip(fresh, roots, strict=True))

        if state.left_root is None:
            left_root, right_root = linear.power(left, -0.25), linear.power(right, -0.25)
            return left_root @ gradient @ right_root, ShampooState(left, right, None, None)
        due = step.due(interval)
        left_root, right_root = cond_any(due, renew, (state.left_root, state.right_root), due, (left, right))
        return left_root @ gradient @ right_root, ShampooState(left, right, left_root, right_root)

    return matrixwise("shampoo", ShampooState, init, update)


def scale_by_swan(
    *, polar: linear.Polar = "newton_schulz", polar_steps: int = 5
) -> optax.GradientTransformationExtraArgs:
    """Normalised and whitened gradients; see the head of this file. The direction is not negated.

    Args:
        polar: "newton_schulz", "cubic" or "exact"; see `seqdec.optim.linear.polar`.
        polar_steps: of the iteration.

    Raises:
        ValueError: a setting is out of its range; in `init`, a parameter has fewer than two axes.
    """
    check_choice("polar", polar, linear.POLAR)
    check_count("polar_steps", polar_steps)

    def update(gradient, state, step):
        del step
        centred = gradient - jnp.mean(gradient, 1, keepdims=True)
        deviation = jnp.sqrt(jnp.mean(jnp.square(centred), 1, keepdims=True))
        return linear.polar(linear.safe_divide(centred, deviation), polar, polar_steps), state

    return matrixwise("swan", SwanState, lambda zeros: SwanState(), update)


def shampoo(
    learning_rate: ScalarOrSchedule,
    *,
    eps: Any = 1e-6,
    decay: Any = None,
    interval: int = 1,
    weight_decay: Any = 0.0,
    adam_ratio: Any = 0.05,
    matrices: Matrices | None = None,
    head: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """Shampoo for hidden matrices, Adam for all else.

    Args:
        learning_rate: a number or a schedule.
        eps, decay, interval: as in `scale_by_shampoo`.
        weight_decay, adam_ratio, matrices, head: as in `seqdec.optim.racs`.

    Raises:
        ValueError: a setting is out of its range.
    """
    return routed(
        scale_by_shampoo(eps=eps, decay=decay, interval=interval),
        learning_rate,
        weight_decay=weight_decay,
        adam_ratio=adam_ratio,
        matrices=matrices,
        head=head,
    )


def swan(
    learning_rate: ScalarOrSchedule,
    *,
    polar: linear.Polar = "newton_schulz",
    polar_steps: int = 5,
    weight_decay: Any = 0.0,
    adam_ratio: Any = 0.05,
    matrices: Matrices | None = None,
    head: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """SWAN for hidden matrices, Adam for all else; learning rates are those of Muon.

    Args:
        learning_rate: a number or a schedule.
        polar, polar_steps: as in `scale_by_swan`.
        weight_decay, adam_ratio, matrices, head: as in `seqdec.optim.racs`.

    Raises:
        ValueError: a setting is out of its range.
    """
    return routed(
        scale_by_swan(polar=polar, polar_steps=polar_steps),
        learning_rate,
        weight_decay=weight_decay,
        adam_ratio=adam_ratio,
        matrices=matrices,
        head=head,
    )
