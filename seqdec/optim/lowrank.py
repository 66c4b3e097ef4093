"""Fira and APOLLO: Adam in a projection of the gradient, completed, or as a scaling of the gradient."""

import functools
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax

from seqdec.boundary import checks
from seqdec.core import Array
from seqdec.optim import linear
from seqdec.optim.chains import Rate, routed
from seqdec.optim.common import Mask, Matrixwise, Step, seeded
from seqdec.optim.groups import Matrices

Projection = Literal["random", "svd"]


def fira(
    learning_rate: Rate,
    *,
    rank: int = 128,
    interval: int = 200,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    scale: Any = 0.3,
    growth: Any = 1.01,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    rms: Any | None = 0.2,
    rest: optax.GradientTransformation | None = None,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Fira for hidden matrices, Adam elsewhere: GaLore with a full-rank compensation.

    For a gradient G (m x n), m <= n, its leading left singular vectors U (m x r), renewed in step 1 and every K steps,
    and Adam's direction Delta, with bias correction, for sigma = U^T G:

        R = G - U sigma      s_i = |Delta_i| / |sigma_i| of the columns      u = scale ( U Delta + limit( R diag(s) ) )

    `limit` bounds the growth of the norm. Moments keep their coordinates when U changes. Components that are rounding
    errors of their column count as zero. Memory of a matrix: 2 n r + m r + 1 numbers. Work: O(m n r) per step, and a
    singular value decomposition, O(m^2 n), every K.

    Args:
        learning_rate: as for AdamW; typically 0.02 with `rms=None`.
        rank: r, rank of the projection, at most m.
        interval: K, steps between projections.
        b1, b2, eps: as in Adam.
        scale: the paper's alpha; it has an effect only with `rms=None`.
        growth: factor by which the norm of the compensation may grow per step.
        weight_decay, mask, rms, rest, matrices: as in `routed`.

    Source: Chen et al., "Fira: Can We Achieve Full-rank Training of LLMs Under Low-rank Constraint?", 2024, as stated
    in Gong et al. (see `alice`), Algorithm 9.
    """
    rank, interval = checks.count("rank", rank), checks.count("interval", interval)
    _check(b1, b2, eps, scale)
    checks.number("growth", growth, 1)

    def init(zeros):
        return FiraState(zeros[:, :rank][:, : len(zeros)], zeros[:rank], zeros[:rank], zeros[0, 0])

    def update(gradient, state, step):
        basis = _singular(step, interval, state.basis, gradient)
        inner = basis.T @ gradient
        within, moment, square = _adam(inner, state, step.number, b1, b2, eps)
        rest = linear.remainder(gradient, basis @ inner) * linear.column_ratios(within, inner)[None]
        rest, norm = linear.limit_growth(rest, state.norm, growth)
        return scale * (basis @ within + rest), FiraState(basis, moment, square, norm)

    direction = Matrixwise(FiraState, init, update)
    return routed(direction, learning_rate, weight_decay, mask, rms, rest, matrices)


scale_by_fira = functools.partial(fira, None)


def apollo(
    learning_rate: Rate,
    *,
    rank: int = 128,
    interval: int = 200,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    scale: Any = 1.0,
    projection: Projection = "random",
    seed: int = 0,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    rms: Any | None = 0.2,
    rest: optax.GradientTransformation | None = None,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """APOLLO for hidden matrices, Adam elsewhere: the gradient, scaled as Adam scales its projection.

    With sigma and Delta of `fira`, for U drawn from N(0, 1 / r) in every step, or as there:

        u = scale G diag(s),    s_i = |Delta_i| / |sigma_i|

    APOLLO-Mini, of rank 1, takes one s = |Delta| / |sigma|. With `rms=None`, the root mean square of a step is about
    scale sqrt(r / m) times Adam's. Memory of a matrix: 2 n r numbers, and m r with singular vectors. Work: O(m n r) per
    step.

    Args:
        learning_rate: as for AdamW.
        rank: r, rank of the projection, at most m.
        interval: K, steps between projections.
        b1, b2, eps: as in Adam.
        scale: the paper's alpha; it has an effect only with `rms=None`.
        projection: "random", or "svd" for the leading left singular vectors of the gradient.
        seed: seed for the random projections.
        weight_decay, mask, rms, rest, matrices: as in `routed`.

    Source: Zhu et al., "APOLLO: SGD-like Memory, AdamW-level Performance", 2024.
    """
    rank, interval = checks.count("rank", rank), checks.count("interval", interval)
    _check(b1, b2, eps, scale)
    checks.choice("projection", projection, get_args(Projection))

    def init(zeros):
        basis = zeros[:, :rank][:, : len(zeros)] if projection == "svd" else None
        return ApolloState(basis, zeros[:rank], zeros[:rank])

    def update(gradient, state, step):
        r = len(state.moment)
        if state.basis is None:
            key = jax.random.fold_in(step.key, step.number // interval)
            basis = jax.random.normal(key, (len(gradient), r), gradient.dtype) / r**0.5
        else:
            basis = _singular(step, interval, state.basis, gradient)
        inner = basis.T @ gradient
        within, moment, square = _adam(inner, state, step.number, b1, b2, eps)
        if rank == 1:
            ratios = linear.safe_divide(linear.norm(within), linear.norm(inner))
        else:
            ratios = linear.column_ratios(within, inner)[None]
        kept = ApolloState(None if state.basis is None else basis, moment, square)
        return scale * gradient * ratios, kept

    direction = Matrixwise(ApolloState, init, update, seed=seeded(seed))
    return routed(direction, learning_rate, weight_decay, mask, rms, rest, matrices)


scale_by_apollo = functools.partial(apollo, None)


class FiraState(NamedTuple):
    """Of one matrix."""

    basis: Array
    """(m, r) U"""
    moment: Array
    """(r, n)"""
    square: Array
    """(r, n)"""
    norm: Array
    """() of the last compensation; 0 at first"""


class ApolloState(NamedTuple):
    """Of one matrix."""

    basis: Array | None
    """(m, r) U, unless random"""
    moment: Array
    """(r, n)"""
    square: Array
    """(r, n)"""


def _singular(step: Step, interval: int, basis: Array, gradient: Array) -> Array:
    """Leading left singular vectors of the gradient, renewed when `due`."""

    def singular_vectors(gradient):
        return linear.eigenvectors(gradient @ gradient.T, basis.shape[1])

    return step.renewed(interval, basis, singular_vectors, gradient)


def _adam(inner: Array, state: Any, count: Array, b1: Any, b2: Any, eps: Any) -> tuple[Array, Array, Array]:
    """Adam's direction with bias correction, and both moments."""
    moment, square = b1 * state.moment + (1 - b1) * inner, b2 * state.square + (1 - b2) * jnp.square(inner)
    count = count.astype(moment.dtype)
    unbiased, variance = moment / (1 - b1**count), square / (1 - b2**count)
    return linear.adaptive(unbiased, variance, eps, 0), moment, square


def _check(b1, b2, eps, scale) -> None:
    checks.number("b1", b1, 0, 1)
    checks.number("b2", b2, 0, 1)
    checks.number("eps", eps)
    checks.number("scale", scale, exclusive=True)
