"""Recursive Gaussian beliefs over network parameters, one page per method.

Read `reference` first, the algorithm boxes as printed; then `kalman`, the recursion that the filters share, and the
file of a filter, which holds the form of covariance that makes it this filter.
"""

from seqdec.filters.covariance import Annealed, Numerics
from seqdec.filters.ekf import ekf
from seqdec.filters.hilofi import hilofi
from seqdec.filters.independent import independent
from seqdec.filters.lofi import lofi
from seqdec.filters.lolofi import lolofi
from seqdec.filters.lrkf import lrkf
from seqdec.filters.posterior import posterior
from seqdec.filters.subspace import subspace

__all__ = ["Annealed", "Numerics", "ekf", "hilofi", "independent", "lofi", "lolofi", "lrkf", "posterior", "subspace"]
