"""EKF: the extended Kalman filter with a dense covariance, for up to a few thousand parameters.

Belief N(theta, Sigma). Per step Sigma += q I; with the Jacobian J of the expected response at theta, an observation y
gives

    S = J Sigma J^T + R        K = Sigma J^T S^{-1}
    theta += K (y - y_hat)     Sigma = (I - K J) Sigma (I - K J)^T + K R K^T

Sigma is kept as a root (D x D). An update costs O(D^2), process noise O(D^3).

Source: Duran-Martin et al. (`seqdec.filters.reference`), Appendix B.
"""

import math

import jax
import jax.numpy as jnp

from seqdec import linalg
from seqdec.boundary.checks import non_negative
from seqdec.core import Array, Filter, Network
from seqdec.filters import bounds, kalman
from seqdec.filters.covariance import (
    Covariance,
    CovarianceUpdate,
    Numerics,
    ProcessNoise,
    accumulate,
    arrival,
    check_process_noise,
    initial_state,
    known_zero,
    pack_whole,
)
from seqdec.filters.embeddings import TableStd
from seqdec.likelihoods import Likelihood
from seqdec.linalg import Outer, Rows


def full_rank(initial_std: Array | float, process_noise: ProcessNoise, numerics: Numerics) -> Covariance:
    """Sigma = T^T T (D x D), with the products F = J T^T.

    Process noise enters S and the gain but not Sigma, HiLoFi's surrogate: K^T = S^{-1} (F T + q J).
    """
    static_span = known_zero(process_noise)

    def init(key, leaves, dtype, like):
        del key, like
        size = sum(leaf.size for leaf in leaves)
        spare = 0 if static_span else (128 if numerics.buffer is None else numerics.buffer)
        factor = linalg.full_rank_from(initial_std * jnp.eye(size, dtype=dtype), spare)
        return initial_state(factor, dtype, process_noise)

    def project(state, jacobian):
        return linalg.multiply_all(jacobian, state.factor.columns)

    def variance(state, products):
        del state
        return products @ products.mT

    def variances(state):
        """|J T^T|^2 of each row, by output where row k has only the parameters of output k."""

        def all_of(rows):
            return jnp.sum(project(state, rows) ** 2, axis=1)

        def of_rows(rows):
            if not _is_by_output(rows):
                return all_of(rows)
            outputs = len(rows[0].deltas if isinstance(rows[0], Outer) else rows[0])
            columns = state.factor.columns.reshape(-1, outputs, state.factor.columns.shape[1])
            covs = jnp.einsum("dkn,ekn->kde", columns, columns)
            own, mixed = _own_of(rows)
            few = jnp.einsum("kd,kde,ke->k", own, covs, own)
            return linalg.cond_any(mixed, lambda _, rows: all_of(rows), few, rows)

        return of_rows

    def mean_update(state, jacobian, products, weights):
        """K eps = (F T + q J)^T S^{-1} eps; the cache is S K^T."""
        known = products @ state.factor.columns.mT
        raw_gain = known if static_span else known + state.accumulated_noise * linalg.whole(jacobian)
        move = weights @ raw_gain
        return (move,), move @ move, raw_gain

    def covariance_update(state, observation):
        products, raw_gain, accept = observation.products, observation.cache, observation.accept
        roots = observation.innovation_root, observation.noise_root
        jacobian = jnp.where(accept, linalg.whole(observation.jacobian), 0)
        if static_span:
            done = linalg.symmetric_downdate(state.factor, products, raw_gain, *roots, accept)
        else:
            done = linalg.full_rank_downdate(state.factor, jacobian, products, raw_gain, *roots, accept)
        noise = state.accumulated_noise
        return CovarianceUpdate(
            state._replace(factor=done.factor, accumulated_noise=jnp.where(accept, 0, noise)),
            gain_gram=done.gain @ done.gain.mT,
            process_noise=noise * bounds.joseph_norm(done.gain, jacobian),
            truncation=jnp.zeros_like(noise),
        )

    def draw(key, state):
        columns = state.factor.columns
        return (columns @ jax.random.normal(key, (columns.shape[1],), columns.dtype),)

    return Covariance(
        init=init,
        project=project,
        variance=variance,
        variances=variances,
        mean_update=mean_update,
        covariance_update=covariance_update,
        draw=draw,
        pack=pack_square,
        predict=accumulate(process_noise),
        accumulated_noise=lambda state: None if static_span else state.accumulated_noise,
        columns=lambda state: (state.factor.columns,),
    )


def _is_by_output(rows: Rows) -> bool:
    """Whether these are parameters of a dense layer of the responses."""
    few = [part for part in rows if not isinstance(part, Outer)]
    outputs = len(rows[0].deltas if isinstance(rows[0], Outer) else rows[0])
    layers = [part for part in rows if isinstance(part, Outer)]
    return (
        outputs > 1
        and len(layers) == 1
        and layers[0].inputs.ndim == 1
        and layers[0].deltas.shape[1] == outputs
        and all(part.shape[1] == outputs for part in few)
    )


def _own_of(rows: Rows) -> tuple[Array, Array]:
    """Rows (k, D / k) by their own output's parameters, and whether they have others."""
    every = [part.deltas if isinstance(part, Outer) else part for part in rows]
    square = jnp.stack(every)
    own = jnp.diagonal(square, axis1=1, axis2=2)
    others = jnp.any(square * (1 - jnp.eye(square.shape[1], dtype=square.dtype))[None] != 0)
    parts = [
        part.inputs[None] * scale[:, None] if isinstance(part, Outer) else scale[:, None]
        for part, scale in zip(rows, own, strict=True)
    ]
    return jnp.concatenate(parts, axis=1), others


def pack_square(rows: list[Array | Outer]) -> Rows:
    """`pack_whole`, with a dense layer that is most of it as outer product, if `linalg.multiply_all` can."""
    sizes = [math.prod(part.shape[1:]) for part in rows]
    total = sum(sizes)
    for place, (part, size) in enumerate(zip(rows, sizes, strict=True)):
        out = part.shape[-1]
        if isinstance(part, Outer) and 2 * size > total and sum(sizes[:place]) % out == total % out == 0:
            before, after = rows[:place], rows[place + 1 :]
            return (*(pack_whole(before) if before else ()), part, *(pack_whole(after) if after else ()))
    return pack_whole(rows)


def ekf(
    network: Network,
    likelihood: Likelihood,
    *,
    initial_std: Array | float = 1.0,
    process_noise: ProcessNoise = 0.0,
    initial_std_table: TableStd = 1.0,
    numerics: Numerics = Numerics(),
) -> Filter:
    """EKF: one dense belief over all parameters, for small networks.

    Args:
        network, likelihood: as in `lrkf`.
        initial_std: prior standard deviation of every parameter.
        process_noise, initial_std_table: as in `lrkf`. A Python 0 skips the O(D^3) time update.
        numerics: buffer and basis_dtype are unused; the error bounds are zero.

    Raises:
        ValueError: a setting is out of its range; or error bounds are asked for with embedding tables.
    """
    non_negative("initial_std", initial_std)
    check_process_noise("process_noise", process_noise)

    def predict(state):
        arrived, state = arrival(process_noise, state)
        columns = state.factor.columns
        inflation = jnp.sqrt(jnp.asarray(arrived, columns.dtype)) * jnp.eye(len(columns), dtype=columns.dtype)
        return state._replace(factor=linalg.full_rank_from(linalg.root_of_sum(columns.mT, inflation), 0))

    def init(*args):
        state = without_noise.init(*args)
        return initial_state(state.factor, state.accumulated_noise.dtype, process_noise)

    without_noise = full_rank(initial_std, 0.0, numerics)
    covariance = without_noise if known_zero(process_noise) else without_noise._replace(init=init, predict=predict)
    return kalman.build("ekf", network, likelihood, (covariance,), initial_std_table, numerics)
