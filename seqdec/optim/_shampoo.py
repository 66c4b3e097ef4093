"""Shampoo and SWAN: gradients preconditioned by inverse roots of their own second moments."""

import functools
from typing import Any, NamedTuple, get_args

import jax.numpy as jnp
import optax

from seqdec.boundary import checks
from seqdec.core import Array
from seqdec.optim import linear
from seqdec.optim.chains import Rate, routed
from seqdec.optim.common import Mask, Matrixwise
from seqdec.optim.groups import Matrices


def shampoo(
    learning_rate: Rate,
    *,
    eps: Any = 1e-6,
    b2: Any = None,
    interval: int = 1,
    max_side: int = 8192,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    rms: Any | None = 0.2,
    rest: optax.GradientTransformation | None = None,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Shampoo for hidden matrices, Adam elsewhere.

        L <- L + G G^T,  R <- R + G^T G,  from eps I        u = L^{-1/4} G R^{-1/4}

    Memory of a matrix m x n: m^2 + n^2 numbers, twice as many with an interval above 1; a side beyond `max_side` has m
    in place of m^2. Work: two eigendecompositions, O(m^3 + n^3), every `interval` steps.

    Args:
        learning_rate: as for AdamW. With `rms` the sum of second moments no longer lowers it in the course of a run.
        eps: initial L and R are eps I; 0: roots on the range of L and R.
        b2: None sums the second moments, as in the paper; a number averages them.
        interval: steps between computations of the roots; 1 as in the paper.
        max_side: longest side with a matrix L or R; longer ones use the diagonal.
        weight_decay, mask, rms, rest, matrices: as in `routed`.

    Source: Gupta, Koren, Singer, "Shampoo: Preconditioned Stochastic Tensor Optimization", 2018.
    """
    checks.number("eps", eps)
    if b2 is not None:
        checks.number("b2", b2, 0, 1)
    interval, max_side = checks.count("interval", interval), checks.count("max_side", max_side)

    def init(zeros):
        left, right = (eps * linear.identity(size, max_side, zeros.dtype) for size in zeros.shape)
        kept = (jnp.zeros_like(left), jnp.zeros_like(right)) if interval > 1 else (None, None)
        return ShampooState(left, right, *kept)

    def roots(left, right):
        return linear.power(left, -0.25), linear.power(right, -0.25)

    def update(gradient, state, step):
        keep, add = (1, 1) if b2 is None else (b2, 1 - b2)
        left = keep * state.left + linear.gram(add, gradient, state.left)
        right = keep * state.right + linear.gram(add, gradient.T, state.right)
        kept = state.left_root, state.right_root
        if state.left_root is None:
            left_root, right_root = roots(left, right)
        else:
            kept = left_root, right_root = step.renewed(interval, kept, roots, left, right)
        return linear.between(left_root, gradient, right_root), ShampooState(left, right, *kept)

    direction = Matrixwise(ShampooState, init, update)
    return routed(direction, learning_rate, weight_decay, mask, rms, rest, matrices)


scale_by_shampoo = functools.partial(shampoo, None)


def swan(
    learning_rate: Rate,
    *,
    polar: linear.Polar = "newton_schulz",
    polar_steps: int = 5,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    rms: Any | None = 0.2,
    rest: optax.GradientTransformation | None = None,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """SWAN for hidden matrices, Adam elsewhere.

        N = (G - row means) / row standard deviations       u = (N N^T)^{-1/2} N

    Stateless. Rows lie along the longer side; one with equal entries normalizes to zero, and the inverse root is that
    on the range. Parameters do not move along row means. Work: O(m^2 n).

    Args:
        learning_rate: as for AdamW; as for Muon with `rms=None`.
        polar, polar_steps: as in `linear.polar`.
        weight_decay, mask, rms, rest, matrices: as in `routed`.

    Source: Ma, Gong, Scetbon, Meeds, "SWAN: SGD with Normalization and Whitening Enables Stateless LLM Training",
    2024, as stated in Gong et al. (see `alice`), Appendix B.
    """
    checks.choice("polar", polar, get_args(linear.Polar))
    polar_steps = checks.count("polar_steps", polar_steps)

    def update(gradient, state, step):
        del step
        centered = gradient - jnp.mean(gradient, 1, keepdims=True)
        deviation = linear.norm(centered, 1) / gradient.shape[1] ** 0.5
        return linear.polar(linear.safe_divide(centered, deviation[:, None]), polar, polar_steps), state

    direction = Matrixwise(SwanState, lambda zeros: SwanState(), update)
    return routed(direction, learning_rate, weight_decay, mask, rms, rest, matrices)


scale_by_swan = functools.partial(swan, None)


class ShampooState(NamedTuple):
    left: Array
    """(m, m) L, or its diagonal (m,)"""
    right: Array
    """(n, n) R, or its diagonal (n,)"""
    left_root: Array | None
    """(m, m) or (m,) L^{-1/4} for an interval above 1"""
    right_root: Array | None
    """(n, n) or (n,) R^{-1/4} for an interval above 1"""


class SwanState(NamedTuple):
    """Empty."""
