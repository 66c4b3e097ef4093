"""Logs that several policies left: any estimator on the mixture of all, or on each, weighted by its variance."""

from typing import Any

import numpy as np

from seqdec import checks
from seqdec.ope.contract import Estimator, Evidence, Predicted, Target, Terms, configured
from seqdec.ope.estimators.weighting import IPS


@configured
def BalancedLoggers(*, mixture: Any, estimator: Estimator | None = None) -> Estimator:
    """An estimator that takes all rows as those of the mixture of the loggers.

    Args:
        mixture: (n,) mean over all rows of the probability with which their loggers would have chosen this row's
            action in this row's context: sum_l (n_l / n) p_l(a_i | x_i).
        estimator: any; None is `IPS()`.

    Raises:
        ValueError: not n numbers in (0, 1].

    References:
        Agarwal, Basu, Schnabel, Joachims, "Effective evaluation using logged bandit feedback from multiple loggers",
        2017.
    """
    inner = IPS() if estimator is None else estimator

    def terms(evidence: Evidence) -> Terms:
        log, chance = evidence.log, np.asarray(checks.as_array("mixture", mixture), np.float64)
        if chance.shape != log.action.shape or not ((chance > 0) & (chance <= 1 + checks.TOLERANCE)).all():
            raise ValueError(f"mixture must be {log.action.shape} numbers in (0, 1]; got shape {chance.shape}")
        target = evidence.target.probabilities
        given = Target(target, target[np.arange(len(log.action)), log.action] / chance)
        return inner.terms(evidence._replace(log=log._replace(propensity=chance), target=given))

    return Estimator(terms, needs=(*(need for need in inner.needs if need != "propensities"), "contexts"))


@configured
def WeightedLoggers(*, logger: Any, estimator: Estimator | None = None) -> Estimator:
    """The estimates from the rows of each logger, weighted by their inverse variances.

    Args:
        logger: (n,) the logger of each row, of any kind; the log's propensities are those of the row's own logger.
        estimator: any; None is `IPS()`.

    Raises:
        ValueError: not one logger for each row.

    References:
        Agarwal, Basu, Schnabel, Joachims, "Effective evaluation using logged bandit feedback from multiple loggers",
        2017.
    """
    inner = IPS() if estimator is None else estimator

    def terms(evidence: Evidence) -> Terms:
        count, name = len(evidence.log.action), np.asarray(logger)
        if name.shape != (count,):
            raise ValueError(f"logger must name the logger of each row, {(count,)}; got shape {name.shape}")
        parts, variances = [], []
        for one in np.unique(name):
            rows = np.flatnonzero(name == one)
            found = inner.terms(_of_rows(evidence, rows))
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

    return Estimator(terms, needs=(*inner.needs, "contexts"))


def _of_rows(evidence: Evidence, rows: np.ndarray) -> Evidence:
    log, target, predicted = evidence.log, evidence.target, evidence.predicted
    return evidence._replace(
        log=log.rows(rows),
        target=Target(target.probabilities[rows], target.weights[rows]),
        predicted=None if predicted is None else Predicted(predicted.rewards[rows]),
    )
