"""Recursive Gaussian beliefs over network parameters, one page per method."""

from seqdec.filters.ekf import ekf
from seqdec.filters.hilofi import hilofi
from seqdec.filters.lolofi import lolofi
from seqdec.filters.lrkf import lrkf

__all__ = ["ekf", "hilofi", "lolofi", "lrkf"]
