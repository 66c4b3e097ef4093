"""HiLoFi: full-rank covariance of the last layer, low-rank of the hidden layers.

Belief N(l, Sigma_l) x N(h, C^T C) with Sigma_l (D_l x D_l) and C (d x D_h). With the Jacobians L, H of the expected
response, an observation y gives

    S = L (Sigma_l + q_l I) L^T + H (C^T C + q_h I) H^T + R
    K_l^T = S^{-1} (L Sigma_l + q_l L)            K_h^T = S^{-1} (H C^T C + q_h H)
    l += K_l (y - y_hat)                          h += K_h (y - y_hat)
    Sigma_l = (I - K_l L) Sigma_l (I - K_l L)^T + K_l R K_l^T      C = P_{d,+q_h}( C (I - K_h H)^T, R^{1/2} K_h^T )

q_l enters gain and innovation but not Sigma_l: the surrogate of the paper. A step costs O(D_h d + D_l^2), or O(D_h d +
D_l^2 / K) for a bandit whose arms are the K outputs, with K blocks of Sigma_l.

Source: Duran-Martin et al. (`seqdec.filters.reference`), Algorithm 2.
"""

from typing import Any

import jax
import jax.numpy as jnp

from seqdec import linalg
from seqdec import params as parameters
from seqdec.boundary.checks import count, non_negative
from seqdec.core import Array, Filter, Network
from seqdec.filters import kalman
from seqdec.filters._ekf import full_rank
from seqdec.filters._lrkf import low_rank
from seqdec.filters.covariance import (
    Covariance,
    CovarianceState,
    CovarianceUpdate,
    Numerics,
    Observation,
    ProcessNoise,
    check_process_noise,
    zero_where_rejected,
)
from seqdec.filters.embeddings import TableStd
from seqdec.likelihoods import Likelihood
from seqdec.linalg import Outer, Pieces, Rows


def hilofi(
    network: Network,
    likelihood: Likelihood,
    *,
    rank: int,
    initial_std_hidden: Array | float = 1.0,
    initial_std_last: Array | float = 1.0,
    process_noise_hidden: ProcessNoise = 0.0,
    process_noise_last: ProcessNoise = 0.0,
    initial_span: str = "random",
    initial_std_table: TableStd = 1.0,
    per_output: bool = False,
    numerics: Numerics = Numerics(),
) -> Filter:
    """HiLoFi: full-rank belief over the last layer, low-rank over the hidden layers.

    Args:
        network: network whose `is_last` is true in the output layer.
        rank: d, rows of the hidden layers' factor.
        initial_std_hidden: prior standard deviation along each of d directions.
        initial_std_last: prior standard deviation of every parameter of the last layer.
        process_noise_hidden, process_noise_last: q_h and q_l, as `process_noise` of `lrkf`.
        likelihood, initial_span, initial_std_table, numerics: as in `lrkf`.
        per_output: keep Sigma_l by output, O(D_l^2 / K) instead of O(D_l^2). Exact for linear last layers with the
            outputs as last axis, one of them observed at a time, and responses that depend on one output each;
            correlations from other observations are dropped.

    Raises:
        ValueError, TypeError: as `lrkf`; or, in `init`, `is_last` matches nothing or everything, or `per_output` does
            not fit.
    """
    rank = count("rank", rank)
    non_negative("initial_std_hidden", initial_std_hidden)
    non_negative("initial_std_last", initial_std_last)
    check_process_noise("process_noise_hidden", process_noise_hidden)
    check_process_noise("process_noise_last", process_noise_last)
    hidden = low_rank(rank, initial_std_hidden, process_noise_hidden, initial_span, numerics)
    last = (by_output if per_output else full_rank)(initial_std_last, process_noise_last, numerics)
    return kalman.build("hilofi", network, likelihood, (hidden, last), initial_std_table, numerics)


def by_output(initial_std: Array | float, process_noise: ProcessNoise, numerics: Numerics) -> Covariance:
    """`full_rank` with a root by output, the last axis of every leaf."""
    one = full_rank(initial_std, process_noise, numerics)
    # All roots have the same number of columns in use.
    state_axes: Any = CovarianceState(linalg.FullRankFactor(0, None), None)  # pyright: ignore[reportArgumentType] (axes)
    observation_axes: Any = Observation(0, 1, 0, None, None, None, None)  # pyright: ignore[reportArgumentType] (axes)

    def init(key, leaves, dtype, like):
        counts = {leaf.shape[-1:] for leaf in leaves}
        if len(counts) > 1 or () in counts:
            shapes = ", ".join(str(leaf.shape) for leaf in leaves)
            raise ValueError(
                f"per_output needs the outputs as the last axis of all parameters of the last layer; got {shapes}: "
                "leave per_output out"
            )
        state = one.init(key, [leaf[..., :1] for leaf in leaves], dtype, like)
        columns = jnp.repeat(state.factor.columns[None], *counts.pop(), axis=0)
        return state._replace(factor=state.factor._replace(columns=columns))

    def project(state, jacobian):
        return jax.vmap(one.project, (state_axes, 0), 1)(state, _apart(jacobian, len(state.factor.columns)))

    def variance(state, products):
        del state
        flat = products.reshape(len(products), -1)
        return flat @ flat.mT

    def variances(state):
        covs = jnp.einsum("kdn,ken->kde", state.factor.columns, state.factor.columns)

        def of_rows(rows):
            apart = jax.vmap(linalg.whole)(_apart(rows, len(covs)))
            return jnp.einsum("kod,kod->o", apart, apart @ covs)

        return of_rows

    def mean_update(state, jacobian, products, weights):
        moves, squares, cache = jax.vmap(one.mean_update, (state_axes, 0, 1, None))(
            state, _apart(jacobian, len(state.factor.columns)), products, weights
        )
        return moves, jnp.sum(squares), cache

    def variance_of_one(state, products, jacobian):
        return one.variance(state, products) + state.accumulated_noise * linalg.gram_of(jacobian)

    def covariance_update(state, observation):
        jacobian = zero_where_rejected(observation, _apart(observation.jacobian, len(state.factor.columns)))
        observation = observation._replace(jacobian=jacobian)
        done = jax.vmap(one.covariance_update, (state_axes, observation_axes))(state, observation)
        variances = jax.vmap(variance_of_one, (state_axes, 1, 0))(state, observation.products, jacobian)
        factor, accumulated_noise, _ = done.state
        return CovarianceUpdate(
            CovarianceState(factor._replace(filled=factor.filled[0]), accumulated_noise[0], state.steps),
            gain_gram=jnp.sum(done.gain_gram, 0),
            process_noise=jnp.linalg.norm(done.process_noise),
            truncation=jnp.zeros_like(state.accumulated_noise),
            groups=(done.gain_gram, variances),
        )

    def draw(key, state):
        keys = jax.random.split(key, len(state.factor.columns))
        return jax.vmap(one.draw, (0, state_axes))(keys, state)

    return one._replace(
        init=init,
        project=project,
        variance=variance,
        variances=variances,
        mean_update=mean_update,
        covariance_update=covariance_update,
        draw=draw,
        pack=_pack,
        unpack=_unpack,
        columns=lambda state: None,
    )


def _pack(rows: list[Array | Outer]) -> Rows:
    return tuple(part if isinstance(part, Outer) else linalg.dense(part) for part in rows)


def _unpack(parts: Pieces, like: list[Array]) -> list[Array]:
    leaves = parameters.unravel(parts[0], [leaf[..., 0] for leaf in like])
    return [jnp.moveaxis(leaf, 0, -1) for leaf in leaves]


def _apart(rows: Rows, outputs: int) -> Rows:
    def split(part):
        if isinstance(part, Outer):
            return Outer(jnp.repeat(part.inputs[None], outputs, axis=0), part.deltas.mT[:, :, None])
        return jnp.moveaxis(part.reshape(len(part), -1, outputs), 2, 0)

    return tuple(map(split, rows))
