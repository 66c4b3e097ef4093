"""Earlier searches of similar functions as prior knowledge.

The surrogate has a column for each, 1 for its values and 0 for those of this search, with a learned length scale of
their relation; the other hyperparameters are shared.

An earlier search is used only if it helps to explain the values: with its posterior mean m at this search's points, and
this search's warped values z, the marginal likelihood of z - m is at least that of z, each centered and with the most
likely hyperparameters.

Its values are warped and standardized separately, and transformed to this search's units by

    z = a + b m + error,    b = max(0, (sum_i (m_i - mean m) (z_i - mean z) + 1) / (sum_i (m_i - mean m)^2 + 1))

where b = 1 a priori, with the weight of one value.

Source of a column for the task: Swersky, Snoek, Adams, "Multi-task Bayesian optimization", 2013.
"""

from typing import NamedTuple

import numpy as np

from seqdec.bo.surrogates import evidence
from seqdec.bo.surrogates.contract import History

_WEIGHT = 1.0
"""Weight of the prior b = 1 in the regression, in values."""


class Earlier(NamedTuple):
    """The values used of an earlier search."""

    units: np.ndarray
    """(n, columns) in or around the unit cube"""
    responses: np.ndarray
    """(n, m) as in `seqdec.bo.model.Observations`"""


class Related(NamedTuple):
    """An earlier search's belief about one output."""

    units: np.ndarray
    """(n, columns)"""
    z: np.ndarray
    """(n,) warped, larger is better"""
    hyper: evidence.Hyperparameters
    """of a Gaussian process of that search"""
    weights: np.ndarray
    """(n,) inverse covariance times z"""

    def mean(self, units: np.ndarray) -> np.ndarray:
        """(k,) its posterior mean at `units` (k, columns)."""
        return evidence.covariances(self.hyper, units, self.units) @ self.weights

    def aligned(self, units: np.ndarray, z: np.ndarray) -> np.ndarray:
        """(n,) its values in the units of own ones: `z` (k,) at `units` (k, columns)."""
        means = self.mean(units)
        centered = means - means.mean()
        slope = max((centered @ (z - z.mean()) + _WEIGHT) / (centered @ centered + _WEIGHT), 0.0)
        return z.mean() + slope * (self.z - means.mean())


def is_related(search: tuple[Related, ...], units: np.ndarray, z: np.ndarray, places: np.ndarray) -> bool:
    """Whether an earlier search is used, given own `z` (k, m) at `units` (k, columns) of the parameters `places`."""
    gain = 0.0
    for one, values in zip(search, z.T, strict=True):
        gain += _loss(units, values, places) - _loss(units, values - one.mean(units), places)
    return gain >= 0


def _loss(units: np.ndarray, y: np.ndarray, places: np.ndarray) -> float:
    history = History(units, y - y.mean(), np.int32(len(y)), places=places)
    return evidence.descend(evidence.prior_mean(places), evidence.calibration_rows(history))[1]


def related(units: np.ndarray, z: np.ndarray, places: np.ndarray) -> Related:
    """The belief of values `z` (n,) at `units` (n, columns) of the parameters `places` (columns,)."""
    history = History(units, z, np.int32(len(z)), places=places)
    hyper = evidence.fitted(history)
    whiten, _ = evidence.whitener(evidence.covariance(hyper, evidence.told(history)))
    return Related(units, z, hyper, whiten.T @ (whiten @ z))
