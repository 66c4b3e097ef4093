r"""LoFi: a Kalman filter whose precision, not covariance, is a diagonal and a low-rank matrix.

Belief N(theta, Sigma), Sigma^{-1} = diag(u) + W W^T with u (D,) and W (D x d). A time step of process noise q is exact,

    u' = u / (1 + q u)       rho = u' / u        W' = diag(rho) W (I + q W^T diag(rho) W)^{-1/2}

and an observation y with the Jacobian J (o x D) of the expected response at theta and noise R gives

    S = J Sigma J^T + R      theta += Sigma J^T S^{-1} (y - y_hat)
    [W, J^T R^{-1/2}] = U diag(s) V^T, singular values in descending order
    W = U_{:d} diag(s_{:d})  u += squared norms of the rows of U_{d:} diag(s_{d:})

so what does not fit the rank is kept on the diagonal: Sigma^{-1} has the right diagonal, and its correlations are those
of the d largest directions. Nothing is dropped, and the filter is the extended Kalman filter with Sigma_0 = I / u_0,
while W has d columns for all observed values, hence always for d >= D, with or without process noise.

Sigma is applied through a root C, Sigma = C C^T, so that no variance is a difference of large numbers and none is
negative. With E = diag(u)^{-1/2} W diag(n)^{-1}, whose columns of norms n >= 1 have norm one, and the Cholesky factor
G^T G = diag(n)^{-2} + E^T E,

    C = diag(u)^{-1/2} (I - E G^{-1} (diag(n)^{-1} + G)^{-T} E^T)

A sample is theta + C z with z ~ N(0, I). An observation costs O(D (d + o)^2), process noise as much again.

Source: Chang, Duran-Martin, Shestopaloff, Jones, Murphy, "Low-rank extended Kalman filtering for online learning of
neural networks from streaming data", CoLLAs 2023. The root is our own.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import linalg
from seqdec.checks import count, known
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
    whole,
    zero_where_rejected,
)
from seqdec.filters.embeddings import TableStd
from seqdec.likelihoods import Likelihood


class Precision(NamedTuple):
    """Sigma^{-1} = diag(u) + W W^T."""

    diagonal: Array
    """u (D,)"""
    factor: Array
    """W (D, d)"""


def diagonal_and_low_rank(rank: int, initial_std: Array | float, process_noise: ProcessNoise) -> Covariance:
    """Sigma^{-1} = diag(u) + W W^T, with the products F = J C (K, D), so that J Sigma J^T = F F^T."""

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
        diagonal = jnp.full(size, 1 / jnp.asarray(initial_std, dtype) ** 2)
        return initial_state(Precision(diagonal, jnp.zeros((size, rank), dtype)), dtype, process_noise)

    def predict(state):
        """(Sigma + q I)^{-1}, exactly; diag(rho) W (I + A^T A)^{-1/2} with A = (q diag(rho))^{1/2} W."""
        arrived, state = arrival(process_noise, state)
        diagonal, factor = state.factor
        kept = 1 / (1 + arrived * diagonal)
        _, inverse_norms, root = _scaled(jnp.sqrt(arrived * kept)[:, None] * factor)
        shrunk = linalg.solve_transposed(root, (kept[:, None] * factor * inverse_norms[None]).mT).mT
        return state._replace(factor=Precision(kept * diagonal, shrunk))

    def project(state, jacobian):
        """J C."""
        scale, unit, inner = _root(state.factor)
        rows = whole(jacobian) * scale[None]
        return rows - rows @ unit @ inner @ unit.mT

    def variance(state, products):
        del state
        return products @ products.mT

    def mean_update(state, jacobian, products, weights):
        """Sigma J^T w = C F^T w with w = S^{-1} eps; the cache is nothing."""
        del jacobian
        move = _times(state.factor, weights @ products)
        return (move,), move @ move, None

    def covariance_update(state, observation):
        """W and u with the rows R^{-1/2} J; what exceeds the rank goes to the diagonal."""
        accept, observed, before = observation.accept, len(observation.products), state.factor
        rows = zero_where_rejected(observation, whole(observation.jacobian))
        stack = jnp.concatenate([before.factor, _whitened(rows, before, observation).mT], axis=1)
        parts = linalg.parted_eigenvectors(stack.mT @ stack, observed)
        lost, kept = stack @ parts.least, stack @ parts.kept
        grown = before.diagonal + jnp.sum(lost**2, axis=1)
        after = Precision(*(jnp.where(accept, new, old) for new, old in zip((grown, kept), before, strict=True)))
        return CovarianceUpdate(
            state._replace(factor=after),
            gain_gram=_gain_gram(before, observation),
            process_noise=jnp.zeros((), grown.dtype),
            truncation=_truncation(lost) / (jnp.min(before.diagonal) * jnp.min(grown)),
            finite=jnp.all(jnp.isfinite(grown)) & jnp.all(jnp.isfinite(kept)),
        )

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


def _scaled(columns: Array) -> tuple[Array, Array, Array]:
    """A diag(n)^{-1}, 1/n (d,) and upper triangular G with diag(n) G^T G diag(n) = I + A^T A, for columns A (D, d).

    The norms n >= 1 are those of the columns or one, so that large precisions do not drown small ones in G. The jitter
    is for columns that are nearly parallel; it vanishes with the columns.
    """
    inverse_norms = 1 / jnp.sqrt(jnp.maximum(jnp.sum(columns**2, axis=0), 1))
    unit, least = columns * inverse_norms[None], inverse_norms**2
    ridge = least + linalg.relative_jitter(columns.dtype) * (1 - least)
    return unit, inverse_norms, linalg.lower_cholesky(unit.mT @ unit + jnp.diag(ridge)).mT


def _root(state: Precision) -> tuple[Array, Array, Array]:
    """diag(u)^{-1/2} (D,), E (D, d) and G^{-1} (diag(n)^{-1} + G)^{-T} (d, d) of C."""
    scale = 1 / jnp.sqrt(state.diagonal)
    unit, inverse_norms, root = _scaled(scale[:, None] * state.factor)
    one = jnp.eye(len(root), dtype=root.dtype)
    inner = linalg.solve_triangular(root, linalg.solve_transposed(jnp.diag(inverse_norms) + root, one))
    return scale, unit, inner


def _times(state: Precision, vector: Array) -> Array:
    """C times a vector (D,)."""
    scale, unit, inner = _root(state)
    return scale * (vector - unit @ (inner @ (vector @ unit)))


def _whitened(rows: Array, state: Precision, observation: Observation) -> Array:
    """R^{-1/2} J (o, D). Exact observations would have infinite precision: R is 1e-6 of J diag(u)^{-1} J^T at least."""
    noise = observation.noise_root.mT @ observation.noise_root
    floor = linalg.relative_jitter(rows.dtype) * jnp.sum(rows**2 / state.diagonal[None]) / len(rows)
    return linalg.solve_transposed(linalg.psd_root(noise + floor * jnp.eye(len(rows), dtype=rows.dtype)), rows)


def _gain_gram(state: Precision, observation: Observation) -> Array:
    """K^T K (o, o), of K^T = S^{-1} F C^T."""
    gain = linalg.solve_psd(observation.innovation_root, jax.vmap(lambda row: _times(state, row))(observation.products))
    return gain @ gain.mT


def _truncation(lost: Array) -> Array:
    """||N N^T - diag(N N^T)||_F for the dropped columns N (D, o).

    Divided by the least of u before and after it bounds the error of Sigma, Sigma_kept (N N^T - diag) Sigma_exact.
    """
    return jnp.sqrt(jnp.maximum(jnp.sum((lost.mT @ lost) ** 2) - jnp.sum(jnp.sum(lost**2, axis=1) ** 2), 0))


def lofi(
    network: Network,
    likelihood: Likelihood,
    *,
    rank: int,
    initial_std: Array | float = 1.0,
    process_noise: ProcessNoise = 0.0,
    initial_std_table: TableStd = 1.0,
    numerics: Numerics = Numerics(),
) -> Filter:
    """LoFi: one belief over all parameters whose precision is a diagonal and a low-rank matrix.

    Args:
        network: of any kind; its tables get a belief for each row (`seqdec.filters.embeddings`).
        likelihood: observation model, from `seqdec.likelihoods`. Noise below 1e-6 of the variance J diag(u)^{-1} J^T
            (1e-15 in double precision) is taken as that much, because precisions must be finite.
        rank: d, columns of the precision's factor.
        initial_std: prior standard deviation of every parameter, or of each, (D,) in the order of `jax.tree.leaves`.
        process_noise: q, variance added to every parameter per step, or a schedule of it, such as
            `seqdec.filters.Annealed`. A Python 0 skips the O(D d^2) time update.
        initial_std_table: prior standard deviation of every number in an embedding table, or of each column, (width,);
            a dict has one for each table by name.
        numerics: buffer and basis_dtype have no effect. The error bound is that of the dropped directions.

    Raises:
        ValueError, TypeError: a setting is out of its range; error bounds are asked for with embedding tables; or, in
            `init`, the rank exceeds the number of parameters.
    """
    rank = count("rank", rank)
    if (stds := known("initial_std", initial_std, 1)) is not None and not np.all((stds > 0) & (stds < np.inf)):
        raise ValueError(f"initial_std must lie in (0, inf); got {initial_std!r:.200}")
    check_process_noise("process_noise", process_noise)
    covariance = diagonal_and_low_rank(rank, initial_std, process_noise)
    return kalman.single("lofi", network, likelihood, covariance, initial_std_table, numerics)
