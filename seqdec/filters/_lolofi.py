"""LoLoFi: low-rank covariances for the last and for the hidden layers.

Belief N(l, C_l^T C_l) x N(h, C_h^T C_h) with C_l (d_l x D_l) and C_h (d_h x D_h), as `seqdec.filters.hilofi` but

    K_l^T = S^{-1} (L C_l^T C_l + q_l L)          C_l = P_{d_l,+q_l}( C_l (I - K_l L)^T, R^{1/2} K_l^T )

A step costs O(D_h d_h + D_l d_l).

Source: Duran-Martin et al. (`seqdec.filters.reference`), Algorithm 3.
"""

import jax

from seqdec import params as parameters
from seqdec.boundary.checks import count, non_negative
from seqdec.core import Array, Filter, Network
from seqdec.filters import kalman
from seqdec.filters._lrkf import low_rank
from seqdec.filters.covariance import Numerics, ProcessNoise, check_process_noise
from seqdec.filters.embeddings import TableStd
from seqdec.likelihoods import Likelihood


def lolofi(
    network: Network,
    likelihood: Likelihood,
    *,
    rank_hidden: int,
    rank_last: int | None = None,
    initial_std_hidden: Array | float = 1.0,
    initial_std_last: Array | float = 1.0,
    process_noise_hidden: ProcessNoise = 0.0,
    process_noise_last: ProcessNoise = 0.0,
    initial_span: str = "random",
    initial_std_table: TableStd = 1.0,
    numerics: Numerics = Numerics(),
) -> Filter:
    """LoLoFi: low-rank beliefs over the last and over the hidden layers.

    Args:
        network, likelihood: as in `hilofi`.
        rank_hidden: d_h, rows of the hidden layers' factor.
        rank_last: d_l, rows of the last layer's factor; None: 100, or its number of parameters if smaller.
        initial_std_hidden, initial_std_last: prior standard deviations along each of d_h and d_l directions.
        process_noise_hidden, process_noise_last: q_h and q_l, as `process_noise` of `lrkf`.
        initial_span, initial_std_table, numerics: as in `lrkf`.

    Raises:
        ValueError, TypeError: as `hilofi`.
    """
    if rank_last is None:
        shapes = jax.eval_shape(lambda: network.init(jax.random.key(0)))
        rank_last = min(100, sum(leaf.size for leaf in parameters.split(shapes, network.is_last)[1]))
    rank_hidden = count("rank_hidden", rank_hidden)
    rank_last = count("rank_last", rank_last)
    non_negative("initial_std_hidden", initial_std_hidden)
    non_negative("initial_std_last", initial_std_last)
    check_process_noise("process_noise_hidden", process_noise_hidden)
    check_process_noise("process_noise_last", process_noise_last)
    hidden = low_rank(rank_hidden, initial_std_hidden, process_noise_hidden, initial_span, numerics)
    last = low_rank(rank_last, initial_std_last, process_noise_last, initial_span, numerics)
    return kalman.build("lolofi", network, likelihood, (hidden, last), initial_std_table, numerics)
