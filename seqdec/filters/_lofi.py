"""LoFi: a Kalman filter whose precision is a diagonal and a low-rank matrix.

Belief N(theta, Sigma), Sigma^{-1} = diag(u) + W W^T with u (D,) and W (D x d). A time step of process noise q is
exact,

    u' = u / (1 + q u)       rho = u' / u        W' = diag(rho) W (I + q W^T diag(rho) W)^{-1/2}

and an observation y with the Jacobian J (o x D) of the expected response at theta and noise R gives

    S = J Sigma J^T + R      theta += Sigma J^T S^{-1} (y - y_hat)
    [W, J^T R^{-1/2}] = U diag(s) V^T, singular values in descending order
    W = U_{:d} diag(s_{:d})  u += squared norms of the rows of U_{d:} diag(s_{d:})

While W has d columns for all observed values, this is the extended Kalman filter with Sigma_0 = I / u_0.

The state holds A = diag(u)^{-1/2} W and A^T A. With n >= 1, the norms of the columns of A or one, and the Cholesky
factor G^T G = diag(n)^{-1} (I + A^T A) diag(n)^{-1}, Sigma = C C^T for

    C = diag(u)^{-1/2} (I - A diag(n)^{-1} G^{-1} (diag(n)^{-1} + G)^{-T} diag(n)^{-1} A^T)

A sample is theta + C z with z ~ N(0, I). An observation costs O(D (d + o)^2), process noise as much again. With m
spare columns W is cut to d only when d + m are full, and an observation costs O(D (d + m) o).

Source: Chang, Duran-Martin, Shestopaloff, Jones, Murphy, "Low-rank extended Kalman filtering for online learning of
neural networks from streaming data", CoLLAs 2023. The root is our own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from seqdec import linalg
from seqdec.boundary.checks import concrete, count
from seqdec.core import Array, Filter, Network
from seqdec.filters import kalman
from seqdec.filters.covariance import (
    Covariance,
    CovarianceUpdate,
    Numerics,
    Observation,
    ProcessNoise,
    arrival,
    check_process_noise,
    initial_state,
    known_zero,
    zero_where_rejected,
)
from seqdec.filters.embeddings import TableStd
from seqdec.likelihoods import Likelihood
from seqdec.linalg.batching import advance_filled, columns_from, put_columns


class Precision(NamedTuple):
    """Sigma^{-1} = diag(u)^{1/2} (I + A A^T) diag(u)^{1/2}, with A = diag(u)^{-1/2} W."""

    diagonal: Array
    """u (D,)"""
    factor: Array
    """A (D, d + m), zero in unused columns"""
    gram: Array
    """A^T A (d + m, d + m)"""
    core: Array
    """(d + m, d + m) between A and A^T in the root C; kept because XLA would compute it for acting and for updating"""
    filled: Array
    """() int32, columns in use"""


def precision_of(diagonal: Array, factor: Array, gram: Array, filled: Array) -> Precision:
    inverse_norms, root = _normalized_cholesky(gram)
    one = jnp.eye(len(root), dtype=root.dtype)
    inner = linalg.solve_triangular(root, linalg.solve_transposed(jnp.diag(inverse_norms) + root, one))
    return Precision(diagonal, factor, gram, inverse_norms[:, None] * inner * inverse_norms[None], filled)


def diagonal_and_low_rank(
    rank: int, initial_std: Array | float, process_noise: ProcessNoise, spare: int = 0
) -> Covariance:
    """Sigma^{-1} = diag(u) + W W^T, with the products F = J C (K, D): J Sigma J^T = F F^T."""

    def init(key, leaves, dtype, like):
        del key, like
        size = sum(leaf.size for leaf in leaves)
        if rank > size:
            raise ValueError(f"rank {rank} exceeds the {size} parameters; choose rank <= {size}")
        if jnp.shape(initial_std) not in ((), (size,)):
            raise ValueError(
                f"initial_std must be one number, or one for each of the {size} parameters; got shape "
                f"{jnp.shape(initial_std)}"
            )
        diagonal = jnp.full(size, jnp.minimum(1 / jnp.asarray(initial_std, dtype) ** 2, _largest_precision(dtype)))
        width = rank + spare
        gram, core = jnp.zeros((width, width), dtype), jnp.zeros((width, width), dtype)
        precision = Precision(diagonal, jnp.zeros((size, width), dtype), gram, core, jnp.int32(0))
        return initial_state(precision, dtype, process_noise)

    def predict(state):
        """Exact (Sigma + q I)^{-1}: A <- diag(rho)^{1/2} A (I + q W^T diag(rho) W)^{-1/2}."""
        arrived, state = arrival(process_noise, state)
        before = state.factor
        kept = 1 / (1 + arrived * before.diagonal)
        grown = jnp.sqrt(arrived * kept * before.diagonal)[:, None] * before.factor
        inverse_norms, root = _normalized_cholesky(grown.mT @ grown)
        shrunk = linalg.solve_transposed(root, (jnp.sqrt(kept)[:, None] * before.factor * inverse_norms[None]).mT).mT
        after = precision_of(kept * before.diagonal, shrunk, shrunk.mT @ shrunk, before.filled)
        return state._replace(factor=after)

    def project(state, jacobian):
        precision = state.factor
        rows = linalg.whole(jacobian) / jnp.sqrt(precision.diagonal)[None]
        # In this order, because the other one is slower under `jax.vmap` on a CPU.
        return rows - (precision.factor @ (rows @ precision.factor @ precision.core).mT).mT

    def variance(state, products):
        del state
        return products @ products.mT

    def mean_update(state, jacobian, products, weights):
        """Sigma J^T w = C F^T w with w = S^{-1} eps; no cache."""
        del jacobian
        move = _times(state.factor, weights @ products)
        return (move,), move @ move, None

    def covariance_update(state, observation):
        """Append columns J^T R^{-1/2}; what exceeds the rank goes to the diagonal."""
        before, observed = state.factor, len(observation.products)
        if observed > spare:
            cut, truncation = _truncated(before, _whitened(before, observation), rank)
            after = jax.tree.map(lambda new, old: jnp.where(observation.accept, new, old), cut, before)
        else:
            full = observation.accept & (before.filled + observed > rank + spare)
            after, truncation = linalg.cond_any(full, make_room, (before, jnp.zeros_like(before.gram[0, 0])), full)
            after = _appended(after, _whitened(after, observation), observation.accept)
        return CovarianceUpdate(
            state._replace(factor=after),
            gain_gram=_gain_gram(before, observation),
            process_noise=jnp.zeros_like(truncation),
            truncation=truncation,
        )

    def make_room(operand, full):
        cut = _truncated(operand[0], operand[0].factor[:, :0].mT, rank)
        return jax.tree.map(lambda new, old: jnp.where(full, new, old), cut, operand)

    def draw(key, state):
        diagonal = state.factor.diagonal
        return (_times(state.factor, jax.random.normal(key, diagonal.shape, diagonal.dtype)),)

    return Covariance(
        init=init,
        project=project,
        variance=variance,
        mean_update=mean_update,
        covariance_update=covariance_update,
        draw=draw,
        predict=(lambda state: state) if known_zero(process_noise) else predict,
    )


def _largest_precision(dtype) -> float:
    """The largest precision whose products with a few rows of the factor do not overflow."""
    return float(jnp.finfo(dtype).max) ** 0.5


def _normalized_cholesky(gram: Array) -> tuple[Array, Array]:
    """1/n (d,) and upper triangular G with diag(n) G^T G diag(n) = I + A^T A, from A^T A."""
    inverse_norms = 1 / jnp.sqrt(jnp.maximum(jnp.diagonal(gram), 1))
    least = inverse_norms**2
    ridge = least + linalg.relative_jitter(gram.dtype) * (1 - least)
    unit = inverse_norms[:, None] * gram * inverse_norms[None]
    return inverse_norms, linalg.lower_cholesky(unit + jnp.diag(ridge)).mT


def _times(precision: Precision, vector: Array) -> Array:
    along = precision.core @ (vector @ precision.factor)
    return (vector - precision.factor @ along) / jnp.sqrt(precision.diagonal)


def _whitened(precision: Precision, observation: Observation) -> Array:
    """New columns of A, R^{-1/2} J diag(u)^{-1/2} (o, D), zero if rejected; R at least 1e-6 of J diag(u)^{-1} J^T."""
    rows = zero_where_rejected(observation, linalg.whole(observation.jacobian)) / jnp.sqrt(precision.diagonal)[None]
    noise = observation.noise_root.mT @ observation.noise_root
    floor = linalg.relative_jitter(rows.dtype) * jnp.sum(rows**2) / len(rows)
    root = linalg.psd_root(noise + floor * jnp.eye(len(rows), dtype=rows.dtype))
    whitened = linalg.solve_transposed(root, rows)
    usable = observation.accept & observation.reads_done & jnp.all(jnp.isfinite(whitened))
    return jnp.where(usable, whitened, 0)


def _appended(precision: Precision, rows: Array, accept: Array) -> Precision:
    """The precision with the rows (o, D) as further columns of A, if accepted."""
    observed, first = len(rows), precision.filled
    here = columns_from(first, observed, precision.factor.shape[1]).astype(rows.dtype)
    crossed = here.mT @ (rows @ precision.factor + rows @ rows.mT @ here / 2)
    current = lax.dynamic_slice_in_dim(precision.factor, first, observed, 1)
    return precision_of(
        precision.diagonal,
        put_columns(precision.factor, jnp.where(accept, rows.mT, current), first),
        precision.gram + crossed + crossed.mT,
        advance_filled(precision.filled, observed, accept),
    )


def _truncated(precision: Precision, rows: Array, rank: int) -> tuple[Precision, Array]:
    """The d largest directions of [W, diag(u)^{1/2} A'], A' (o, D)^T; the diagonal takes the others N.

    Also the bound of the error in Sigma, Sigma_kept (N N^T - diag) Sigma_exact: ||N N^T - diag(N N^T)||_F over the
    least of u before and after it.
    """
    width, before = precision.factor.shape[1], precision.diagonal
    stack = jnp.sqrt(before)[:, None] * jnp.concatenate([precision.factor, rows.mT], axis=1)
    parts = linalg.parted_eigenvectors(stack.mT @ stack, stack.shape[1] - rank)
    lost, kept = stack @ parts.least, stack @ parts.kept
    grown = jnp.minimum(before + jnp.sum(lost**2, axis=1), _largest_precision(before.dtype))
    factor = kept / jnp.sqrt(grown)[:, None]
    beyond = width - rank
    cut = precision_of(
        grown,
        jnp.pad(factor, ((0, 0), (0, beyond))),
        jnp.pad(factor.mT @ factor, (0, beyond)),
        jnp.full_like(precision.filled, rank),
    )
    off_diagonal = jnp.sum((lost.mT @ lost) ** 2) - jnp.sum(jnp.sum(lost**2, axis=1) ** 2)
    return cut, jnp.sqrt(jnp.maximum(off_diagonal, 0)) / (jnp.min(before) * jnp.min(grown))


def _gain_gram(precision: Precision, observation: Observation) -> Array:
    """K^T K (o, o), of K^T = S^{-1} F C^T."""
    moves = jax.vmap(lambda row: _times(precision, row))(observation.products)
    gain = linalg.solve_psd(observation.innovation_root, moves)
    return gain @ gain.mT


def lofi(
    network: Network,
    likelihood: Likelihood,
    *,
    rank: int,
    initial_std: Array | float = 1.0,
    process_noise: ProcessNoise = 0.0,
    initial_std_table: TableStd = 1.0,
    spare: int = 0,
    numerics: Numerics = Numerics(),
) -> Filter:
    """LoFi: one belief over all parameters whose precision is a diagonal and a low-rank matrix.

    Args:
        network, likelihood: as in `lrkf`. Noise counts as 1e-6 of J diag(u)^{-1} J^T (1e-15 in float64) at least.
        rank: d, columns of the precision's factor.
        initial_std: prior standard deviation of every parameter, or of each, (D,) in the order of `jax.tree.leaves`.
            Precisions are 2e19 at most (1e154 in float64).
        process_noise, initial_std_table: as in `lrkf`. A Python 0 skips the O(D d^2) time update.
        spare: m; 0, as published, cuts after each observation. Without process noise, about d / 2 halves the time.
        numerics: buffer and basis_dtype are unused. The error bound is that of the dropped directions.

    Raises:
        ValueError, TypeError: as `lrkf`.
    """
    rank = count("rank", rank)
    if (stds := concrete("initial_std", initial_std, 1)) is not None and not np.all((stds > 0) & (stds < np.inf)):
        raise ValueError(f"initial_std must lie in (0, inf); got {initial_std!r:.200}")
    check_process_noise("process_noise", process_noise)
    covariance = diagonal_and_low_rank(rank, initial_std, process_noise, count("spare", spare, 0))
    return kalman.build("lofi", network, likelihood, (covariance,), initial_std_table, numerics)
