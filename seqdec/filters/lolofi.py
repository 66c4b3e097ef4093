r"""LoLoFi: one low-rank covariance for the last layer and one for the hidden layers.

Belief N(l, C_l^T C_l) x N(h, C_h^T C_h) with C_l (d_l x D_l) and C_h (d_h x D_h), coupled through one innovation. As
`seqdec.filters.hilofi`, except that

    K_l^T = S^{-1} (L C_l^T C_l + q_l L)          C_l = P_{d_l,+q_l}( C_l (I - K_l L)^T, R^{1/2} K_l^T )

so that a step costs O(D_h d_h + D_l d_l), linear in every layer.

Source: Duran-Martin, Sanchez-Betancourt, Cartea, Murphy, "Martingale Posterior Neural Networks for Fast Sequential
Decision Making", Algorithm 3.
"""

from seqdec.core import Filter
from seqdec.filters import blocks, checks, rows
from seqdec.likelihoods import Likelihood
from seqdec.models import IsLast


def lolofi(
    apply,
    likelihood: Likelihood,
    *,
    is_last: IsLast,
    rank_hidden: int,
    rank_last: int,
    initial_std_hidden=1.0,
    initial_std_last=1.0,
    process_noise_hidden=0.0,
    process_noise_last=0.0,
    tables: tuple[str, ...] = (),
    initial_std_table=1.0,
    buffer: int | None = None,
    share_linearisation: bool = True,
    error_bounds: bool = False,
    dtype=None,
    basis_dtype=None,
    example=None,
) -> Filter:
    """Low-rank last layer, low-rank hidden layers.

    Args:
        rank_hidden: d_h, rows of the hidden layers' factor.
        rank_last: d_l, rows of the last layer's factor.
        apply, likelihood, is_last, initial_std_hidden, initial_std_last, process_noise_hidden, process_noise_last,
            tables, initial_std_table, buffer, share_linearisation, error_bounds, dtype, basis_dtype, example: as in
            `seqdec.filters.hilofi`.

    Raises:
        ValueError: as `seqdec.filters.hilofi`.
    """
    checks.count("rank_hidden", rank_hidden)
    checks.count("rank_last", rank_last)
    for name, value in (("hidden", initial_std_hidden), ("last", initial_std_last)):
        checks.variance(f"initial_std_{name}", value)
    for name, value in (("hidden", process_noise_hidden), ("last", process_noise_last)):
        checks.variance(f"process_noise_{name}", value)
    hidden = blocks.low_rank(
        rank_hidden, initial_std_hidden, process_noise_hidden, buffer=buffer, basis_dtype=basis_dtype
    )
    last = blocks.low_rank(rank_last, initial_std_last, process_noise_last, buffer=buffer, basis_dtype=basis_dtype)
    kept = rows.blocks_of(tables, initial_std_table, error_bounds)
    flt = blocks.layered(
        apply, likelihood, is_last, hidden, last, share_linearisation, error_bounds, dtype, kept, example
    )
    return rows.sparse(flt, tables)
