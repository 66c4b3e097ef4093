"""Square-root linear algebra for recursive Gaussian beliefs: covariances as roots, Sigma = C^T C.

* `roots`: plain matrices;
* `full_rank`: `FullRankFactor`, updated in O(D^2);
* `low_rank`: `LowRankFactor`, rank d, updated in O(D d);
* `spectral`: eigenvectors and roots, with derivatives where eigenvalues are equal;
* `pieces`: Jacobians and bases cut along the parameters;
* `batching`: factorizations, branches and writes under `jax.vmap`.
"""

from seqdec.linalg.batching import cond_any as cond_any
from seqdec.linalg.batching import eigh as eigh
from seqdec.linalg.batching import eigvalsh as eigvalsh
from seqdec.linalg.batching import lower_cholesky as lower_cholesky
from seqdec.linalg.batching import qr as qr
from seqdec.linalg.batching import sequential_vmap as sequential_vmap
from seqdec.linalg.batching import solve_transposed as solve_transposed
from seqdec.linalg.batching import solve_triangular as solve_triangular
from seqdec.linalg.batching import svd as svd
from seqdec.linalg.full_rank import FullRankFactor as FullRankFactor
from seqdec.linalg.full_rank import full_rank_downdate as full_rank_downdate
from seqdec.linalg.full_rank import full_rank_from as full_rank_from
from seqdec.linalg.full_rank import symmetric_downdate as symmetric_downdate
from seqdec.linalg.low_rank import LowRankFactor as LowRankFactor
from seqdec.linalg.low_rank import cross as cross
from seqdec.linalg.low_rank import fixed_span_downdate as fixed_span_downdate
from seqdec.linalg.low_rank import low_rank_downdate as low_rank_downdate
from seqdec.linalg.low_rank import low_rank_from as low_rank_from
from seqdec.linalg.low_rank import times as times
from seqdec.linalg.pieces import Extended as Extended
from seqdec.linalg.pieces import Outer as Outer
from seqdec.linalg.pieces import Pieces as Pieces
from seqdec.linalg.pieces import Rows as Rows
from seqdec.linalg.pieces import dense as dense
from seqdec.linalg.pieces import full_columns as full_columns
from seqdec.linalg.pieces import gram_of as gram_of
from seqdec.linalg.pieces import multiply as multiply
from seqdec.linalg.pieces import multiply_all as multiply_all
from seqdec.linalg.pieces import select as select
from seqdec.linalg.pieces import squares_of as squares_of
from seqdec.linalg.pieces import whole as whole
from seqdec.linalg.roots import inverse_root as inverse_root
from seqdec.linalg.roots import low_rank_projection as low_rank_projection
from seqdec.linalg.roots import psd_root as psd_root
from seqdec.linalg.roots import random_orthonormal_rows as random_orthonormal_rows
from seqdec.linalg.roots import relative_jitter as relative_jitter
from seqdec.linalg.roots import root_of_sum as root_of_sum
from seqdec.linalg.roots import solve_psd as solve_psd
from seqdec.linalg.spectral import parted_eigenvectors as parted_eigenvectors
