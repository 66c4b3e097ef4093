r"""HiLoFi: full-rank covariance for the last layer, low-rank for the hidden layers.

Belief N(l, Sigma_l) x N(h, C^T C) with Sigma_l (D_l x D_l) and C (d x D_h), coupled through one innovation. With the
Jacobians L, H of the expected response, an observation y gives

    S = L (Sigma_l + q_l I) L^T + H (C^T C + q_h I) H^T + R
    K_l^T = S^{-1} (L Sigma_l + q_l L)            K_h^T = S^{-1} (H C^T C + q_h H)
    l += K_l (y - y_hat)                          h += K_h (y - y_hat)
    Sigma_l = (I - K_l L) Sigma_l (I - K_l L)^T + K_l R K_l^T      C = P_{d,+q_h}( C (I - K_h H)^T, R^{1/2} K_h^T )

q_l enters gain and innovation but not Sigma_l: the surrogate of the paper. A step costs O(D_h d + D_l^2), or O(D_h d +
D_l^2 / K) where the arms of a bandit are the K outputs, whose Sigma_l has K blocks; see `seqdec.linalg`.

Source: Duran-Martin, Sanchez-Betancourt, Cartea, Murphy, "Martingale Posterior Neural Networks for Fast Sequential
Decision Making", Algorithm 2.
"""

from seqdec.core import Filter
from seqdec.filters import blocks, checks, rows
from seqdec.likelihoods import Likelihood
from seqdec.models import IsLast


def hilofi(
    apply,
    likelihood: Likelihood,
    *,
    is_last: IsLast,
    rank: int,
    initial_std_hidden=1.0,
    initial_std_last=1.0,
    process_noise_hidden=0.0,
    process_noise_last=0.0,
    tables: tuple[str, ...] = (),
    initial_std_table=1.0,
    per_output: bool = False,
    buffer: int | None = None,
    share_linearisation: bool = True,
    error_bounds: bool = False,
    dtype=None,
    basis_dtype=None,
    example=None,
) -> Filter:
    """High-rank last layer, low-rank hidden layers.

    Args:
        apply: (params, x) -> (out,), any differentiable network; best without a `jax.jit` of its own, which hides its
            dense layers (`seqdec.filters.derivatives`).
        likelihood: observation model, from `seqdec.likelihoods`.
        is_last: predicate on parameter paths, true in the output layer; `seqdec.models.output_layer` finds it for flax
            modules.
        rank: d, rows of the hidden layers' factor.
        initial_std_hidden: standard deviation of the initial hidden directions, d random orthonormal ones.
        initial_std_last: prior standard deviation of every parameter of the last layer.
        process_noise_hidden: q_h, variance added to every hidden parameter per step. A Python 0 keeps the span fixed.
        process_noise_last: q_l, likewise for the last layer.
        tables: names of embedding tables that get a belief per row, at the cost of the rows that an input reads
            (`seqdec.filters.rows`), as `seqdec.models.embedded` makes them. Tables not named here are hidden layers.
        initial_std_table: prior standard deviation of every number in `tables`, or of each column, (width,).
        per_output: keep Sigma_l by output, K blocks instead of one matrix K times as wide: O(D_l^2 / K) instead of
            O(D_l^2), exactly, for linear last layers of which one output is observed at a time, as in a bandit, and
            likelihoods whose responses depend on one output each (not categorical). All parameters of the last layer
            have the outputs as their last axis. Anything else would correlate outputs, and that is dropped.
        buffer: m, spare columns of the lazy basis and spare rows of the last layer's root; at least the number of
            outputs observed at once. None chooses.
        share_linearisation: linearise every output in `update`, as `moments` does, so that a compiled step that does
            both does it once. False linearises the observed outputs only: cheaper where the policy needs no moments.
        error_bounds: report `UpdateInfo.error_bound`. The bound is that of Proposition 4.1, except that the blocks'
            coupling is bounded through the whole innovation variance, which the proposition leaves out.
        dtype: of the mean and the factors; None takes that of the parameters.
        basis_dtype: of the lazy basis alone; jnp.bfloat16 halves the memory, for networks that would not fit otherwise.
            It rounds every direction to 8 bits: moments keep one to two digits, and over 100,000 steps fewer.
        example: an input x, or its shapes, to tell the dense layers from the rest before the first step: what an
            update appends to the lazy basis is then kept as two vectors for each of their kernels, and d instead of
            d + m columns are kept and read. Without it the posterior is the same.

    Raises:
        ValueError: a setting is out of its range; error bounds are asked for with tables; in `init`, `is_last` matches
            nothing or everything, the rank exceeds the number of hidden parameters, or `per_output` does not fit.
    """
    checks.count("rank", rank)
    for name, value in (("hidden", initial_std_hidden), ("last", initial_std_last)):
        checks.variance(f"initial_std_{name}", value)
    for name, value in (("hidden", process_noise_hidden), ("last", process_noise_last)):
        checks.variance(f"process_noise_{name}", value)
    hidden = blocks.low_rank(rank, initial_std_hidden, process_noise_hidden, buffer=buffer, basis_dtype=basis_dtype)
    make_last = blocks.by_output if per_output else blocks.full_rank
    last = make_last(initial_std_last, process_noise_last, buffer=buffer)
    kept = rows.blocks_of(tables, initial_std_table, error_bounds)
    flt = blocks.layered(
        apply, likelihood, is_last, hidden, last, share_linearisation, error_bounds, dtype, kept, example
    )
    return rows.sparse(flt, tables)
