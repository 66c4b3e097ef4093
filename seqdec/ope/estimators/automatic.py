"""The estimator that a log speaks for."""

import numpy as np

from seqdec.ope.contract import Estimator, Evidence, Terms, configured
from seqdec.ope.estimators.doubly_robust import DM, SNDR, SubGaussianDR
from seqdec.ope.estimators.weighting import SNIPS


@configured
def Auto() -> Estimator:
    """The estimate of `SNDR`, `SNIPS` or `SubGaussianDR` with the least estimated error s^2 + (t - t_SNDR)^2.

    t is the estimate and s its standard error. Weights alone may be better than with a bad reward model, and shrunk
    weights are better where few rows have most of the weight. Without predicted rewards it is `SNIPS`, without
    propensities `DM`.
    """

    def terms(evidence: Evidence) -> Terms:
        return choose(evidence)[1]

    return Estimator(terms, needs=(), references=(SNDR(), SNIPS()))


def choose(evidence: Evidence) -> tuple[Estimator, Terms]:
    """The estimator that `Auto` chooses, and its terms."""
    if not evidence.log.known_propensities:
        options = [DM()]
    elif evidence.predicted is None:
        options = [SNIPS()]
    else:
        options = [SNDR(), SNIPS(), SubGaussianDR()]
    every = [one.terms(evidence) for one in options]
    errors = np.array([one.std_error**2 + (one.value - every[0].value) ** 2 for one in every])
    best = 0 if np.isnan(errors[0]) else int(np.nanargmin(errors))
    return options[best], every[best]
