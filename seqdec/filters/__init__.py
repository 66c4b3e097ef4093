"""Recursive Gaussian beliefs over network parameters, one page per method."""

from seqdec.filters.ekf import ekf
from seqdec.filters.hilofi import hilofi
from seqdec.filters.independent import independent
from seqdec.filters.lolofi import lolofi
from seqdec.filters.lrkf import lrkf
from seqdec.filters.posterior import posterior

__all__ = ["ekf", "hilofi", "independent", "lolofi", "lrkf", "posterior"]
