"""Recursive Gaussian beliefs over network parameters, one page per method."""

from seqdec.filters._ekf import ekf
from seqdec.filters._hilofi import hilofi
from seqdec.filters._independent import independent
from seqdec.filters._learner import learner, posterior
from seqdec.filters._lofi import lofi
from seqdec.filters._lolofi import lolofi
from seqdec.filters._lrkf import lrkf
from seqdec.filters._subspace import subspace
from seqdec.filters.covariance import Annealed, Numerics

__all__ = [
    "Annealed",
    "Numerics",
    "ekf",
    "hilofi",
    "independent",
    "learner",
    "lofi",
    "lolofi",
    "lrkf",
    "posterior",
    "subspace",
]
