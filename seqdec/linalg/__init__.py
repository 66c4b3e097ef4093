"""Square-root linear algebra for recursive Gaussian beliefs.

Covariances are kept as roots, Sigma = C^T C, so that they are positive semi-definite whatever the rounding:

* `roots`: plain matrices: `root_of_sum` (the paper's Q_R), `low_rank_projection` (P_{d,+a}), `psd_root`, `solve_psd`,
  `inverse_root`;
* `full_rank`: `FullRankFactor`, which takes the update of a few observations in O(D^2);
* `low_rank`: `LowRankFactor`, a rank-d root on a lazy basis, with updates in O(D d);
* `spectral`: spaces of eigenvectors, with derivatives where eigenvalues are equal;
* `pieces`: Jacobians and bases cut along the parameters, some pieces of them outer products;
* `batching`: factorizations, branches and column writes under `jax.vmap`.
"""

from seqdec.linalg.batching import (
    cond_any,
    eigh,
    eigvalsh,
    lower_cholesky,
    qr,
    sequential_vmap,
    solve_transposed,
    solve_triangular,
    svd,
)
from seqdec.linalg.full_rank import FullRankFactor, full_rank_downdate, full_rank_from, symmetric_downdate
from seqdec.linalg.low_rank import (
    LowRankFactor,
    cross,
    fixed_span_downdate,
    low_rank_downdate,
    low_rank_from,
    times,
)
from seqdec.linalg.pieces import (
    Extended,
    Outer,
    Pieces,
    Rows,
    dense,
    full_columns,
    gram_of,
    multiply,
    multiply_all,
    select,
    squares_of,
    whole,
)
from seqdec.linalg.roots import (
    inverse_root,
    low_rank_projection,
    psd_root,
    random_orthonormal_rows,
    relative_jitter,
    root_of_sum,
    solve_psd,
)
from seqdec.linalg.spectral import parted_eigenvectors

__all__ = [
    "Extended",
    "FullRankFactor",
    "LowRankFactor",
    "Outer",
    "Pieces",
    "Rows",
    "cond_any",
    "cross",
    "dense",
    "eigh",
    "eigvalsh",
    "fixed_span_downdate",
    "full_columns",
    "full_rank_downdate",
    "full_rank_from",
    "gram_of",
    "inverse_root",
    "low_rank_downdate",
    "low_rank_from",
    "low_rank_projection",
    "lower_cholesky",
    "multiply",
    "multiply_all",
    "parted_eigenvectors",
    "psd_root",
    "qr",
    "random_orthonormal_rows",
    "relative_jitter",
    "root_of_sum",
    "select",
    "sequential_vmap",
    "solve_psd",
    "solve_transposed",
    "solve_triangular",
    "squares_of",
    "svd",
    "symmetric_downdate",
    "times",
    "whole",
]
