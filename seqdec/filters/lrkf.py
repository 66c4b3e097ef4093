r"""LRKF: a Kalman filter with one low-rank covariance for all parameters of a network.

Belief N(theta, C^T C) with C (d x D). With the Jacobian H (o x D) of the expected response at theta, an observation y
gives

    S = H (C^T C + q I) H^T + R           K^T = S^{-1} (H C^T C + q H)
    theta += K (y - y_hat)                C = P_{d,+q}( C (I - K H)^T, R^{1/2} K^T )

where P_{d,+q}(W_1, W_2) is the best rank-d root of W_1^T W_1 + W_2^T W_2 + q I. A step costs O(D d): see
`seqdec.linalg`. With q = 0 the filter is an extended Kalman filter in the span of its first factor, whose rows are
therefore drawn at random.

Source: Duran-Martin, Sanchez-Betancourt, Cartea, Murphy, "Martingale Posterior Neural Networks for Fast Sequential
Decision Making", Algorithm 4.
"""

from seqdec.core import Filter
from seqdec.filters import blocks, checks, rows
from seqdec.likelihoods import Likelihood


def lrkf(
    apply,
    likelihood: Likelihood,
    *,
    rank: int,
    initial_std=1.0,
    process_noise=0.0,
    tables: tuple[str, ...] = (),
    initial_std_table=1.0,
    buffer: int | None = None,
    share_linearisation: bool = True,
    error_bounds: bool = False,
    dtype=None,
    basis_dtype=None,
    example=None,
) -> Filter:
    """Low-rank Kalman filter.

    Args:
        apply: (params, x) -> (out,), any differentiable network; best without a `jax.jit` of its own, which hides its
            dense layers (`seqdec.filters.derivatives`).
        likelihood: observation model, from `seqdec.likelihoods`.
        rank: d, rows of the factor.
        initial_std: standard deviation of every initial direction; the initial covariance is initial_std^2 times a
            projection on d random orthonormal directions.
        process_noise: q, variance added to every parameter per step. A Python 0 keeps the span fixed.
        tables, initial_std_table: as in `seqdec.filters.hilofi`.
        buffer: m, spare columns of the lazy basis; at least the number of outputs observed at once. None chooses.
        share_linearisation: linearise every output in `update`, as `moments` does, so that a compiled step that does
            both does it once. False linearises the observed outputs only: cheaper where the policy needs no moments.
        error_bounds: report `UpdateInfo.error_bound` (Proposition F.3).
        dtype: of the mean and the factor; None takes that of the parameters.
        basis_dtype: of the lazy basis alone; jnp.bfloat16 halves the memory, for networks that would not fit otherwise.
            It rounds every direction to 8 bits: moments keep one to two digits, and over 100,000 steps fewer.
        example: an input x, or its shapes, to tell the dense layers from the rest before the first step: what an
            update appends to the lazy basis is then kept as two vectors for each of their kernels, and d instead of
            d + m columns are kept and read. Without it the posterior is the same.

    Raises:
        ValueError: a setting is out of its range, or the rank exceeds the number of parameters (in `init`).
    """
    checks.count("rank", rank)
    checks.variance("initial_std", initial_std)
    checks.variance("process_noise", process_noise)
    block = blocks.low_rank(rank, initial_std, process_noise, buffer=buffer, basis_dtype=basis_dtype)
    kept = rows.blocks_of(tables, initial_std_table, error_bounds)
    flt = blocks.single(apply, likelihood, block, share_linearisation, error_bounds, dtype, kept, example)
    return rows.sparse(flt, tables)
