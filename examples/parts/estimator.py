"""An estimator: copy to seqdec/ope/estimators/smoothed.py.

Registry, REGISTRY of seqdec/ope/estimators/__init__.py:

    "smoothed": "seqdec.ope.estimators.smoothed:Smoothed",

Case, HAND of tests/test_ope.py:

    "smoothed": ("smoothed", {}, np.log([2, 17, 16]).sum() / 6),
"""

from dataclasses import dataclass

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.contract import Estimator, Evidence, Terms


@dataclass(frozen=True, kw_only=True)
class Smoothed(Estimator):
    """Logarithmic smoothing: mean of log(1 + scale w r) / scale, for rewards that are not negative."""

    scale: float = 1.0
    """Above 0."""

    def __post_init__(self) -> None:
        checks.positive("scale", self.scale)

    def terms(self, evidence: Evidence) -> Terms:
        numerator = np.log1p(self.scale * evidence.weights * np.maximum(evidence.log.reward, 0)) / self.scale
        return Terms(numerator, np.ones_like(numerator))
