"""LRKF: a Kalman filter with one low-rank covariance for all parameters of a network.

Belief N(theta, C^T C) with C (d x D). With the Jacobian H (o x D) of the expected response at theta, an observation y
gives

    S = H (C^T C + q I) H^T + R           K^T = S^{-1} (H C^T C + q H)
    theta += K (y - y_hat)                C = P_{d,+q}( C (I - K H)^T, R^{1/2} K^T )

where P_{d,+q}(W_1, W_2) is the best rank-d root of W_1^T W_1 + W_2^T W_2 + q I. A step costs O(D d) in the coordinates
of C = T A B^T (`seqdec.linalg.low_rank`). With q = 0 the filter is an extended Kalman filter in the span of its first
factor.

Source: Duran-Martin et al. (`seqdec.filters.reference`), Algorithm 4.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from seqdec import linalg
from seqdec import params as parameters
from seqdec.boundary.checks import choice, count, non_negative
from seqdec.core import Array, Filter, Network
from seqdec.filters import bounds, kalman
from seqdec.filters.covariance import (
    Covariance,
    CovarianceUpdate,
    Numerics,
    ProcessNoise,
    accumulate,
    check_process_noise,
    initial_state,
    known_zero,
    pack_whole,
)
from seqdec.filters.embeddings import TableStd
from seqdec.likelihoods import Likelihood
from seqdec.linalg import Outer, Rows

_SPANS = ("random", "first")


def low_rank(
    rank: int, initial_std: Array | float, process_noise: ProcessNoise, span: str, numerics: Numerics
) -> Covariance:
    """Sigma = C^T C, with the products H B. Only a known zero of process noise keeps the span of C."""
    choice("initial_span", span, _SPANS)
    static_span = known_zero(process_noise)

    def init(key, leaves, dtype, like):
        size = sum(leaf.size for leaf in leaves)
        if rank > size:
            raise ValueError(f"rank {rank} exceeds the {size} parameters it is to span; choose rank <= {size}")
        first = span == "first"
        rows = jnp.eye(rank, size, dtype=dtype) if first else linalg.random_orthonormal_rows(key, rank, size, dtype)
        rows = parameters.pieces(parameters.unravel(rows, [leaf.astype(dtype) for leaf in leaves]), 1)
        root = initial_std * jnp.eye(rank, dtype=dtype)
        spare = 0 if static_span else _spare_columns(rank, numerics.buffer, like)
        factor = linalg.low_rank_from(rows, root, spare, numerics.basis_dtype, like)
        return initial_state(factor, dtype, process_noise)

    def project(state, jacobian):
        return linalg.cross(state.factor, jacobian)

    def variance(state, products):
        """H C^T C H^T from H C^T = (H B) A^T T^T."""
        root = products @ state.factor.coefficients.mT @ state.factor.root.mT
        return root @ root.mT

    def variances(state):
        factor = state.factor
        columns = jax.vmap(lambda row: linalg.times(factor, row), out_axes=1)(factor.root)

        def of_rows(rows):
            products = (linalg.multiply(own, piece, piece.dtype) for own, piece in zip(rows, columns, strict=True))
            return jnp.sum(functools.reduce(jnp.add, products) ** 2, axis=1)

        return of_rows

    def mean_update(state, jacobian, products, weights):
        """K eps = C^T C H^T w + q H^T w with w = S^{-1} eps, and |K eps|^2."""
        factor = state.factor
        inside = weights @ products @ factor.coefficients.mT
        along = inside @ factor.root.mT @ factor.root
        move, square = linalg.times(factor, along), along @ along
        if static_span:
            return move, square, None
        noise = state.accumulated_noise * weights
        move = tuple(part + noise @ linalg.dense(rows) for part, rows in zip(move, jacobian, strict=True))
        square += 2 * state.accumulated_noise * (inside @ along) + noise @ linalg.gram_of(jacobian) @ noise
        return move, square, None

    def covariance_update(state, observation):
        """C <- P_{d,+q}(C (I - K H)^T, R^{1/2} K^T); for q = 0 the span stays."""
        products, accept, noise = observation.products, observation.accept, state.accumulated_noise
        roots = observation.innovation_root, observation.noise_root
        if static_span:
            done = linalg.fixed_span_downdate(state.factor, products, *roots, accept)
        else:
            done = linalg.low_rank_downdate(
                state.factor, observation.jacobian, products, *roots, noise, accept, observation.reads_done
            )
        state = state._replace(factor=done.factor, accumulated_noise=jnp.where(accept, 0, noise))
        size = sum(math.prod(rows.shape[1:]) for rows in observation.jacobian)
        jacobian_gram = jnp.where(accept, linalg.gram_of(observation.jacobian), 0)
        terms = bounds.low_rank_terms(done.gain_gram, jacobian_gram, done.dropped, noise, size - rank)
        return CovarianceUpdate(state, done.gain_gram, *terms)

    def draw(key, state):
        root = state.factor.root
        return linalg.times(state.factor, jax.random.normal(key, (rank,), root.dtype) @ root)

    def columns(state):
        basis = state.factor.basis
        return None if any(isinstance(piece, linalg.Extended) for piece in basis) else basis

    return Covariance(
        init=init,
        project=project,
        variance=variance,
        variances=variances,
        mean_update=mean_update,
        covariance_update=covariance_update,
        draw=draw,
        pack=pack_pieces,
        unpack=parameters.unpieces,
        predict=accumulate(process_noise),
        accumulated_noise=lambda state: None if static_span else state.accumulated_noise,
        columns=columns,
    )


def pack_pieces(rows: list[Array | Outer]) -> Rows:
    """`seqdec.params.pieces`; only large leaves stay outer products."""
    large, small = parameters.by_size(rows, 1)
    pieces = tuple(part if isinstance(part, Outer) else linalg.dense(part) for part in large)
    return (*pieces, *pack_whole(small)) if small else pieces


def _spare_columns(rank: int, buffer: int | None, like: Any) -> int:
    if buffer is not None:
        return buffer
    mostly_outer = like is not None and not kalman.mostly_dense(like)
    return max(32, rank) if mostly_outer else max(16, rank // 2)


def lrkf(
    network: Network,
    likelihood: Likelihood,
    *,
    rank: int,
    initial_std: Array | float = 1.0,
    process_noise: ProcessNoise = 0.0,
    initial_span: str = "random",
    initial_std_table: TableStd = 1.0,
    numerics: Numerics = Numerics(),
) -> Filter:
    """LRKF: one low-rank belief over all parameters.

    Args:
        network: any network; its embedding tables get a belief for each row (`seqdec.filters.embeddings`).
        likelihood: observation model, from `seqdec.likelihoods`.
        rank: d, rows of the factor.
        initial_std: prior standard deviation along each of d directions.
        process_noise: q, variance added to every parameter per step, or a schedule, such as `seqdec.filters.Annealed`.
            A Python 0 keeps the span fixed.
        initial_span: "random" orthonormal directions, or "first", the first d parameters, as in the published
            experiments.
        initial_std_table: prior standard deviation of an embedding table, or of each column, (width,); a dict has one
            for each table by name.
        numerics: numerical options.

    Raises:
        ValueError, TypeError: a setting is out of its range; error bounds are asked for with embedding tables; or, in
            `init`, the rank exceeds the number of parameters.
    """
    rank = count("rank", rank)
    non_negative("initial_std", initial_std)
    check_process_noise("process_noise", process_noise)
    covariance = low_rank(rank, initial_std, process_noise, initial_span, numerics)
    return kalman.build("lrkf", network, likelihood, (covariance,), initial_std_table, numerics)
