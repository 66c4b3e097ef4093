"""Subspace EKF: an extended Kalman filter in a fixed random subspace.

theta = theta_0 + B z with B (D x d), orthonormal columns drawn once, and a Gaussian belief over z (d,):

    S = J B Sigma_z B^T J^T + R      K_z = Sigma_z B^T J^T S^{-1}
    z += K_z (y - y_hat)             Sigma_z = (I - K_z J B) Sigma_z

This is LRKF without process noise; an update costs O(D d). A baseline.

Source: Duran-Martin, Kara, Murphy, "Efficient online Bayesian inference for neural bandits", AISTATS 2022, whose
directions come from gradient descent on data of a first phase.
"""

from seqdec.core import Array, Filter, Network
from seqdec.filters._lrkf import lrkf
from seqdec.filters.covariance import Numerics
from seqdec.filters.embeddings import TableStd
from seqdec.likelihoods import Likelihood


def subspace(
    network: Network,
    likelihood: Likelihood,
    *,
    rank: int,
    initial_std: Array | float = 1.0,
    initial_std_table: TableStd = 1.0,
    numerics: Numerics = Numerics(),
) -> Filter:
    """Subspace EKF: a dense belief over d random directions of parameter space; the others are fixed.

    Args:
        rank: d, number of directions.
        network, likelihood, initial_std, initial_std_table, numerics: as in `lrkf`; buffer is unused.

    Raises:
        ValueError, TypeError: as `lrkf`.
    """
    return lrkf(
        network, likelihood, rank=rank, initial_std=initial_std, initial_std_table=initial_std_table, numerics=numerics
    )
