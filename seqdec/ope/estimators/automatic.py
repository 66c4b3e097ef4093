"""The estimator, chosen from the log."""

from dataclasses import dataclass

import numpy as np

from seqdec.ope.contract import Estimator, Evidence
from seqdec.ope.estimators.doubly_robust import DM, SNDR, SubGaussianDR
from seqdec.ope.estimators.weighting import SNIPS
from seqdec.ope.intervals import Terms

_OPTIONS = (SNDR(), SNIPS())
_WEIGHTS = (SNIPS(),)


@dataclass(frozen=True, kw_only=True)
class Auto(Estimator):
    """`SNDR` or `SNIPS`, whichever has the smaller standard error s, or `SubGaussianDR` if its estimated error is less.

    That error is s^2 + (t' - t)^2, with the estimates t of the first and t' of the latter. `SNIPS` without predicted
    rewards, `DM` without propensities.
    """

    needs = ()

    def terms(self, evidence: Evidence) -> Terms:
        if not evidence.log.known_propensities:
            return DM().terms(evidence)
        (first,) = self.references(evidence)
        terms = first.terms(evidence)
        if evidence.predicted is None:
            return terms
        shrunk = SubGaussianDR().terms(evidence)
        error = shrunk.std_error**2 + (shrunk.value - terms.value) ** 2
        return shrunk if error < terms.std_error**2 else terms

    def references(self, evidence: Evidence) -> tuple[Estimator, ...]:
        """The unbiased estimator with the smaller standard error; none without propensities."""
        if not evidence.log.known_propensities:
            return ()
        if evidence.predicted is None:
            return _WEIGHTS
        return (min(_OPTIONS, key=lambda one: np.nan_to_num(one.terms(evidence).std_error, nan=np.inf)),)
