r"""EKF: the extended Kalman filter with a dense covariance, the reference for small networks.

Belief N(theta, Sigma). Per step Sigma += q I; with the Jacobian J of the expected response at theta, an observation y
gives

    S = J Sigma J^T + R        K = Sigma J^T S^{-1}
    theta += K (y - y_hat)     Sigma = (I - K J) Sigma (I - K J)^T + K R K^T

Sigma is kept as a root (D x D), so it stays positive semi-definite. An update costs O(D^2), process noise O(D^3): meant
for up to a few thousand parameters.

Source: Duran-Martin, Sanchez-Betancourt, Cartea, Murphy, "Martingale Posterior Neural Networks for Fast Sequential
Decision Making", Appendix B.
"""

import jax.numpy as jnp
from jax.core import Tracer

from seqdec import linalg
from seqdec.core import Filter
from seqdec.filters import blocks, checks, rows
from seqdec.likelihoods import Likelihood


def ekf(
    apply,
    likelihood: Likelihood,
    *,
    initial_std=1.0,
    process_noise=0.0,
    tables: tuple[str, ...] = (),
    initial_std_table=1.0,
    share_linearisation: bool = True,
    error_bounds: bool = False,
    dtype=None,
) -> Filter:
    """Extended Kalman filter.

    Args:
        apply: (params, x) -> (out,), any differentiable network; best without a `jax.jit` of its own, which hides its
            dense layers (`seqdec.filters.derivatives`).
        likelihood: observation model, from `seqdec.likelihoods`.
        initial_std: prior standard deviation of every parameter.
        process_noise: q, variance added to every parameter per step. A Python 0 skips the O(D^3) time update.
        tables, initial_std_table, share_linearisation, error_bounds, dtype: as in `seqdec.filters.hilofi`; the bounds
            of this exact recursion are zero.

    Raises:
        ValueError: a setting is out of its range.
    """
    checks.variance("initial_std", initial_std)
    checks.variance("process_noise", process_noise)
    still = not isinstance(process_noise, Tracer) and process_noise == 0

    def predict(state):
        columns = state.factor.columns
        inflation = jnp.sqrt(jnp.asarray(process_noise, columns.dtype)) * jnp.eye(len(columns), dtype=columns.dtype)
        return state._replace(factor=linalg.full_rank_from(linalg.root_of_sum(columns.mT, inflation), 0))

    block = blocks.full_rank(initial_std, 0.0, buffer=None)._replace(
        predict=(lambda state: state) if still else predict
    )
    kept = rows.blocks_of(tables, initial_std_table, error_bounds)
    flt = blocks.single(apply, likelihood, block, share_linearisation, error_bounds, dtype, kept)
    return rows.sparse(flt, tables)
