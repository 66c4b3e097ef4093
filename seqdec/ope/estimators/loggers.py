"""Logs of several policies.

References:
    Agarwal, Basu, Schnabel, Joachims, "Effective evaluation using logged bandit feedback from multiple loggers", 2017.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.contract import Estimator, Evidence, Target, check_needs
from seqdec.ope.estimators.weighting import IPS
from seqdec.ope.intervals import Terms


@dataclass(frozen=True, kw_only=True, eq=False)
class BalancedLoggers(Estimator):
    """An estimator on the mixture of all loggers."""

    mixture: Any
    """(n,) sum_l (n_l / n) p_l(a_i | x_i), the mixture's probability"""
    estimator: Estimator = field(default_factory=IPS)
    """Any."""

    needs = ("contexts",)

    def terms(self, evidence: Evidence) -> Terms:
        log, chance = evidence.log, np.asarray(checks.as_array("mixture", self.mixture), np.float64)
        if chance.shape != log.action.shape or not ((chance > 0) & (chance <= 1 + checks.TOLERANCE)).all():
            raise ValueError(f"mixture must be {log.action.shape} numbers in (0, 1]; got shape {chance.shape}")
        target = evidence.target.probabilities
        w = target[np.arange(len(log.action)), log.action] / chance
        given = evidence._replace(log=log.replace(propensity=chance), target=Target(target, w), weights=w)
        check_needs(self.estimator, given)
        return self.estimator.terms(given)


@dataclass(frozen=True, kw_only=True, eq=False)
class WeightedLoggers(Estimator):
    """Estimates of each logger's rows, weighted by inverse variances."""

    logger: Any
    """(n,) logger of each row, of any type; propensities are its own"""
    estimator: Estimator = field(default_factory=IPS)
    """Any."""

    needs = ("contexts",)

    def terms(self, evidence: Evidence) -> Terms:
        check_needs(self.estimator, evidence)
        count, name = len(evidence.log.action), checks.entries("logger", self.logger)
        if name.shape != (count,):
            raise ValueError(f"logger must name the logger of each row, {(count,)}; got shape {name.shape}")
        parts, variances = [], []
        for one in np.unique(name):
            rows = np.flatnonzero(name == one)
            found = self.estimator.terms(_of_rows(evidence, rows))
            parts.append((rows, *found.columns))
            variances.append(float(np.mean(found.influence**2)) / len(rows))
        inverse = 1 / np.maximum(variances, 1e-300)
        shares = np.where(np.isfinite(inverse), inverse, 0.0) / np.nansum(inverse)
        width = parts[0][1].shape[1]
        numerator, denominator = np.zeros((2, count, width * len(parts)))
        for place, (share, (rows, above, below)) in enumerate(zip(shares, parts, strict=True)):
            columns = slice(place * width, (place + 1) * width)
            numerator[rows, columns], denominator[rows, columns] = share * above, below
        return Terms(numerator, denominator)


def _of_rows(evidence: Evidence, rows: np.ndarray) -> Evidence:
    names = ("weights", "direct", "residual")
    return evidence._replace(
        log=evidence.log[rows],
        target=Target(*(part[rows] for part in evidence.target)),
        predicted=None if evidence.predicted is None else evidence.predicted[rows],
        **{name: getattr(evidence, name)[rows] for name in names},
    )
