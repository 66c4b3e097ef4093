r"""GaLore, Fira and APOLLO: Adam in a projection of the gradient, alone, completed, or as a scaling of the gradient.

For a gradient G (m x n), m <= n, a projection U (m x r), renewed in step 1 and every K steps, and Adam's direction
Delta, bias correction included, for sigma = U^T G:

    GaLore   U = leading left singular vectors of G                u = alpha U Delta
    Fira     U as GaLore's                                         u = alpha ( U Delta + limit( R diag(s) ) )
    APOLLO   U drawn from N(0, 1 / r), or as GaLore's              u = alpha G diag(s)

with R = G - U sigma and s_i = |Delta_i| / |sigma_i| of the columns. APOLLO with one dimension, APOLLO-Mini, takes one
s = |Delta| / |sigma| for the whole matrix. `limit` bounds the growth of the norm. Moments keep their coordinates when
U changes. A component of the gradient that is a rounding error of its column counts as zero. A random U is drawn
from the seed in every step, and not stored. `optax.contrib.galore` projects the longer side instead.

Memory of a matrix: 2 n r + m r numbers (and the limiter's one for Fira), 2 n r for a random U; so 2 n for APOLLO-Mini.
Work: O(m n r) per step; a singular value decomposition, O(m^2 n), every K steps where U is not random.

Sources: Zhao et al., "GaLore: Memory-Efficient LLM Training by Gradient Low-Rank Projection", 2024; Chen et al., "Fira:
Can We Achieve Full-rank Training of LLMs Under Low-rank Constraint?", 2024; Zhu et al., "APOLLO: SGD-like Memory,
AdamW-level Performance", 2024; as stated in Gong, Scetbon, Ma, Meeds, "Towards Efficient Optimizer Design for LLM via
Structured Fisher Approximation with a Low-Rank Extension", 2025, Algorithms 8 and 9. Algorithm 8 prints GaLore's step
without the minus and without U.
"""

from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax

from seqdec import checks
from seqdec.core import Array
from seqdec.optim import linear
from seqdec.optim.alias import for_matrices
from seqdec.optim.common import Step, matrixwise
from seqdec.optim.groups import Matrices
from seqdec.optim.injection import injectable

Projection = Literal["random", "svd"]


class GaloreState(NamedTuple):
    """2 n r + m r numbers of one matrix; trees of them in the transformation's state."""

    basis: Array
    """(m, r) U"""
    moment: Array
    """(r, n)"""
    square: Array
    """(r, n)"""


class FiraState(NamedTuple):
    """2 n r + m r + 1 numbers of one matrix; trees of them in the transformation's state."""

    basis: Array
    """(m, r) U"""
    moment: Array
    """(r, n)"""
    square: Array
    """(r, n)"""
    norm: Array
    """() of the last compensation; 0 at first"""


class ApolloState(NamedTuple):
    """2 n r numbers of one matrix, and m r with singular vectors; trees of them in the transformation's state."""

    basis: Array | None
    """(m, r) U; None where it is random"""
    moment: Array
    """(r, n)"""
    square: Array
    """(r, n)"""


def _singular(step: Step, interval: int, basis: Array, gradient: Array) -> Array:
    """The leading left singular vectors of the gradient, renewed in the steps that are `due`."""

    def singular_vectors(gradient):
        return linear.eigenvectors(gradient @ gradient.T, basis.shape[1])

    return step.renewed(interval, basis, singular_vectors, gradient)


def _adam(inner: Array, state: Any, count: Array, b1: Any, b2: Any, eps: Any) -> tuple[Array, Array, Array]:
    """Adam's direction with bias correction, first and second moment."""
    moment, square = b1 * state.moment + (1 - b1) * inner, b2 * state.square + (1 - b2) * jnp.square(inner)
    count = count.astype(moment.dtype)
    unbiased, variance = moment / (1 - b1**count), square / (1 - b2**count)
    return linear.adaptive(unbiased, variance, eps, 0), moment, square


def _check(b1, b2, eps, scale) -> None:
    checks.number("b1", b1, 0, 1)
    checks.number("b2", b2, 0, 1)
    checks.number("eps", eps)
    checks.number("scale", scale, exclusive=True)


@injectable
def scale_by_galore(
    *,
    rank: int = 128,
    interval: int = 200,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    scale: Any = 0.3,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Adam in the leading subspace of the gradient; see the head of this file. The direction is not negated.

    Args:
        rank: r; for a matrix with a shorter side, the length of that side.
        interval: K, steps between two projections.
        b1, b2, eps: as in Adam.
        scale: alpha.
        matrices: axes of the parameters, if they are not those of `seqdec.optim.matrix_axes`.

    Raises:
        ValueError: a setting is out of its range; in `init`, a parameter is not a matrix.
    """
    rank, interval = checks.count("rank", rank), checks.count("interval", interval)
    _check(b1, b2, eps, scale)

    def init(zeros):
        return GaloreState(zeros[:, :rank][:, : len(zeros)], zeros[:rank], zeros[:rank])

    def update(gradient, state, step):
        basis = _singular(step, interval, state.basis, gradient)
        within, moment, square = _adam(basis.T @ gradient, state, step.number, b1, b2, eps)
        return scale * basis @ within, GaloreState(basis, moment, square)

    return matrixwise("galore", GaloreState, init, update, matrices=matrices)


@injectable
def scale_by_fira(
    *,
    rank: int = 128,
    interval: int = 200,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    scale: Any = 0.3,
    growth: Any = 1.01,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """GaLore with a full-rank compensation; see the head of this file. The direction is not negated.

    Args:
        rank: r; for a matrix with a shorter side, the length of that side.
        interval: K, steps between two projections.
        b1, b2, eps: as in Adam.
        scale: alpha.
        growth: the norm of the compensation may grow by this factor per step.
        matrices: axes of the parameters, if they are not those of `seqdec.optim.matrix_axes`.

    Raises:
        ValueError: a setting is out of its range; in `init`, a parameter is not a matrix.
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

    return matrixwise("fira", FiraState, init, update, matrices=matrices)


@injectable
def scale_by_apollo(
    *,
    rank: int = 128,
    interval: int = 200,
    b1: Any = 0.9,
    b2: Any = 0.999,
    eps: Any = 1e-8,
    scale: Any = 1.0,
    projection: Projection = "random",
    seed: int = 0,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """The gradient, scaled as Adam scales it in a projection; see the head of this file. The direction is not negated.

    Args:
        rank: r; for a matrix with a shorter side, the length of that side. 1 is APOLLO-Mini.
        interval: K, steps between two projections.
        b1, b2, eps: as in Adam.
        scale: alpha.
        projection: "random", or "svd" for the leading left singular vectors of the gradient.
        seed: of the random projections. Replicas with the same seed use the same projections.
        matrices: axes of the parameters, if they are not those of `seqdec.optim.matrix_axes`.

    Raises:
        ValueError: a setting is out of its range; in `init`, a parameter is not a matrix.
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

    return matrixwise("apollo", ApolloState, init, update, seed=seed, matrices=matrices)


galore = for_matrices(
    scale_by_galore,
    "GaLore for hidden matrices, Adam for all other parameters. The authors' learning rate is 0.02, Adam's 0.001.",
)

fira = for_matrices(
    scale_by_fira,
    "Fira for hidden matrices, Adam for all other parameters. Usual learning rate: 0.02.",
)

apollo = for_matrices(
    scale_by_apollo,
    """APOLLO for hidden matrices, Adam for all other parameters. APOLLO-Mini is rank=1.

The root mean square of a step is about scale sqrt(r / m) times that of Adam's.""",
    adam_ratio=1.0,
)
