"""Alice: Eigen-Adam in a low-rank subspace."""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax
from jax import lax

from seqdec import linalg
from seqdec.boundary import checks
from seqdec.core import Array, Key
from seqdec.optim import linear
from seqdec.optim.chains import Rate, routed
from seqdec.optim.common import Mask, Matrixwise, Step, seeded
from seqdec.optim.groups import Matrices
from seqdec.runtime import alike

Switching = Literal["complement", "full_basis", "gaussian_mix", "gaussian", "none"]
Compensation = Literal["optimal", "fira_plus", "fira", "none"]


def alice(
    learning_rate: Rate,
    *,
    rank: int = 128,
    leading: int | None = None,
    interval: int = 200,
    b1: Any = 0.9,
    b2: Any = 0.9,
    b3: Any = 0.999,
    scale: Any = 0.3,
    compensation_scale: Any = 0.4,
    growth: Any = 1.01,
    switching: Switching = "complement",
    compensation: Compensation = "optimal",
    seed: int = 0,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    rms: Any | None = 0.2,
    rest: optax.GradientTransformation | None = None,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Alice for hidden matrices, Adam elsewhere.

    >>> import jax.numpy as jnp
    >>> from seqdec import optim
    >>> params = {"hidden": jnp.ones((4, 4)), "head": jnp.ones((4, 2))}
    >>> table = optim.explain(optim.alice, params)
    >>> table.rule.tolist()[:2]
    ['Adam', 'alice']

    For a gradient G (m x n), m <= n, with orthonormal U (m x r) and sigma = U^T G (r x n):

        in step 1 and every K steps     Q = b3 U Q~ U^T + (1 - b3) G G^T,  U <- switch(Q, U)
        Q~ = b3 Q~ + (1 - b3) sigma sigma^T        m = b1 m + (1 - b1) sigma        v = b2 v + (1 - b2) sigma^2
        p  = b1 p + (1 - b1) colsum((G - U sigma)^2)
        C  = limit( sqrt(m - r) (G - U sigma) diag(p)^{-1/2} )
        u  = scale ( U m / sqrt(v) + compensation_scale C )

    The switch takes one subspace iteration towards the leading eigenvectors of Q (in step 1: those of G G^T), keeps
    the first l columns, and draws the other r - l from an orthonormal basis of the complement, uniformly without
    replacement. `limit` bounds the growth of the norm. No bias correction, no epsilon: 0 / 0 and components that are
    rounding errors of their column count as 0.

    Memory of a matrix: 2 n r + m r + n + r^2 + 1 numbers. Work: O(m n r) per step, and O(m^3) every K steps.

    Args:
        learning_rate: as for AdamW; the authors', with `rms=None`, is 0.02, with warm-up, and Adam's 0.001.
        rank: r, rank of the subspace, at most m.
        leading: l <= r, number of leading columns kept; None: 5/16 of the rank, but 40 for ranks from 128 to 256.
        interval: K, steps between switches.
        b1, b2: decay of the first moment and of p; decay of the second moment in the subspace.
        b3: decay of the tracked second moment; a Python 0 keeps no such moment.
        scale, compensation_scale: factors of the direction (alpha, only with `rms=None`) and of C (alpha_c).
        growth: factor by which the norm of the compensation may grow per step.
        switching: source of the other columns: "complement"; "full_basis", with the replaced columns;
            "gaussian_mix", normalized Gaussian vectors; "gaussian", such vectors for all columns; "none".
        compensation: "optimal"; "fira": the residual's columns scaled as the subspace scales its own; "fira_plus":
            with the Frobenius norm of the low-rank update and no limiter; "none".
        seed: seed for the switches.
        weight_decay, mask, rms, rest, matrices: as in `routed`.

    Source: Gong, Scetbon, Ma, Meeds, "Towards Efficient Optimizer Design for LLM via Structured Fisher Approximation
    with a Low-Rank Extension", 2025, Algorithms 2, 3, 4 and 10.
    """
    rank, interval = checks.count("rank", rank), checks.count("interval", interval)
    leading = default_leading(rank) if leading is None else checks.count("leading", leading)
    if leading > rank:
        raise ValueError(f"leading must not exceed the rank {rank}; got {leading}")
    for name, decay in (("b1", b1), ("b2", b2), ("b3", b3)):
        checks.number(name, decay, 0, 1)
    checks.number("scale", scale, exclusive=True)
    checks.number("compensation_scale", compensation_scale)
    checks.number("growth", growth, 1)
    checks.choice("switching", switching, get_args(Switching))
    checks.choice("compensation", compensation, get_args(Compensation))
    tracking = not isinstance(b3, int | float) or b3 > 0

    def init(zeros):
        r = min(rank, len(zeros))
        tracked = jnp.zeros((r, r), zeros.dtype) if tracking else None
        residual = zeros[0] if compensation == "optimal" else None
        return AliceState(zeros[:, :r], tracked, zeros[:r], zeros[:r], residual, zeros[0, 0])

    def update(gradient, state, step):
        m, r = state.basis.shape

        def new_basis(basis, step, gradient, tracked, b3):
            return switched(step.key, _turned(basis, step, gradient, tracked, b3), min(leading, r), switching)

        decay = jnp.asarray(b3, gradient.dtype)  # an operand: it may be traced
        own = step._replace(key=jax.random.fold_in(step.key, step.number))
        basis = step.renewed(interval, state.basis, new_basis, state.basis, own, gradient, state.tracked, decay)
        inner = basis.T @ gradient
        tracked = None if state.tracked is None else b3 * state.tracked + (1 - b3) * inner @ inner.T
        moment = b1 * state.moment + (1 - b1) * inner
        square = b2 * state.square + (1 - b2) * jnp.square(inner)
        within = linear.adaptive(moment, square, 0.0, 0)
        direction, residual, norm = basis @ within, linear.remainder(gradient, basis @ inner), state.norm
        average = state.residual
        if average is not None:
            average = b1 * average + (1 - b1) * jnp.sum(jnp.square(residual), 0)
        if compensation != "none" and r < m:
            if average is not None:
                extra = (m - r) ** 0.5 * linear.safe_divide(residual, linear.root(average)[None])
            else:
                extra = residual * linear.column_ratios(within, inner)[None]
            if compensation == "fira_plus":
                extra = extra * linear.safe_divide(linear.norm(direction), linear.norm(extra))
            else:
                extra, norm = linear.limit_growth(extra, norm, growth)
            direction = direction + compensation_scale * extra
        return scale * direction, AliceState(basis, tracked, moment, square, average, norm)

    direction = Matrixwise(AliceState, init, update, seed=seeded(seed))
    return routed(direction, learning_rate, weight_decay, mask, rms, rest, matrices)


scale_by_alice = functools.partial(alice, None)
alice_0 = functools.partial(alice, b3=0)
alice_0.__doc__ = "Alice-0 for hidden matrices, Adam elsewhere: `alice` without tracking, b3 = 0."


class AliceState(NamedTuple):
    basis: Array
    """(m, r) U"""
    tracked: Array | None
    """(r, r) average of sigma sigma^T, if tracked"""
    moment: Array
    """(r, n)"""
    square: Array
    """(r, n)"""
    residual: Array | None
    """(n,) p, if `compensation` is optimal"""
    norm: Array
    """() of the last compensation; 0 at first"""


def subspace_iteration(apply: Callable[[Array], Array], basis: Array) -> Array:
    """Ritz vectors (m, r), largest first, after a step from a basis (m, r) for a symmetric X -> A X."""
    turned = linalg.qr(apply(basis))[0]
    return turned @ linear.eigenvectors(turned.T @ apply(turned))


def switched(key: Key, basis: Array, leading: int, switching: Switching) -> Array:
    """An orthonormal basis (m, r) after the switch of `alice`; a small complement leaves more columns."""
    m, r = basis.shape
    if switching in ("gaussian", "gaussian_mix"):
        random = jax.random.normal(key, basis.shape, basis.dtype)
        random = random / jnp.linalg.norm(random, axis=0, keepdims=True)
        return random if switching == "gaussian" else jnp.concatenate([basis[:, :leading], random[:, leading:]], 1)
    if switching == "full_basis":
        pool = jnp.concatenate([basis[:, leading:], _complement(basis)], 1)
    elif switching == "complement":
        leading = max(leading, r - (m - r))
        pool = _complement(basis)
    else:
        return basis
    drawn = jax.random.choice(key, pool.shape[1], (r - leading,), replace=False)
    return jnp.concatenate([basis[:, :leading], pool[:, drawn]], 1)


_complete_qr = linalg.sequential_vmap(functools.partial(jnp.linalg.qr, mode="complete"))


def _complement(basis: Array) -> Array:
    """(m, m - r) orthonormal complement of a basis (m, r)."""
    return _complete_qr(basis)[0][:, basis.shape[1] :]


def _turned(basis: Array, step: Step, gradient: Array, tracked: Array | None, b3: Any) -> Array:
    def second_moment(x):
        current = gradient @ (gradient.T @ x)
        return current if tracked is None else b3 * (basis @ (tracked @ (basis.T @ x))) + (1 - b3) * current

    return lax.cond(
        step.number == 1,
        lambda: alike(linear.eigenvectors(gradient @ gradient.T, basis.shape[1]), basis, tracked),
        lambda: alike(subspace_iteration(second_moment, basis), gradient),
    )


def default_leading(rank: int) -> int:
    """The authors' l for a rank: 40, 40 and 160 for 128, 256 and 512."""
    share = max(1, 5 * rank // 16)
    return share if rank > 256 else min(share, 40)
