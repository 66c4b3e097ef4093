"""Estimates with intervals."""

import warnings
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec.boundary import checks
from seqdec.ope import intervals
from seqdec.ope.contract import Estimator, Evidence, check_needs, evidence, missing
from seqdec.ope.diagnostics import biases
from seqdec.ope.estimators import STANDARD, Auto, parsed
from seqdec.ope.intervals import Terms

if TYPE_CHECKING:
    import pandas as pd

MARK = "propensities"


def evaluate(
    log: Any,
    target: Any,
    predicted: Any = None,
    *,
    seed: int,
    estimators: Sequence[Estimator | str] | str | None = None,
    interval: str = "cautious",
    level: float = 0.95,
    samples: int = 1000,
    bounds: tuple[float, float] | None = None,
) -> "pd.DataFrame":
    """Estimates of the target's mean reward per decision, with intervals.

    >>> from seqdec import ope
    >>> log = ope.make_log(action=[0, 1, 0], reward=[1.0, 0.0, 2.0], propensity=[0.5, 0.5, 0.5])
    >>> ope.evaluate(log, [[0.8, 0.2]] * 3, seed=0, estimators="ips, snips")["value"].round(2).to_dict()
    {'ips': 1.6, 'snips': 1.33}

    Args:
        log: a `Log`, `SlateLog`, `ContinuousLog` or file of `scan_log`.
        target: (n, k) probabilities of the policy. For a file: a function of a batch, a `Log` of m rows, to (m, k), or
            k names of columns.
        predicted: as the target, cross-fitted rewards, as by `predict_rewards`; required without propensities. None
            omits estimators that need it.
        seed: of the bootstrap and random estimators.
        estimators: configured or by name, as [DR(), "dr(shrinkage='slope')"] or "dr, snips". None: those of `STANDARD`
            that the log allows.
        interval: one of `INTERVALS`, see `seqdec.ope.intervals`.
        level: of the intervals.
        samples: of the bootstrap over rows; predictions are fixed.
        bounds: of a row's contribution, for "bernstein" and "betting"; None: the log's extremes, without guarantee.

    Returns:
        A table indexed by estimator: value, low, high, std_error, interval, and "propensities" if estimated; NaN is
        unknown. By default, a biased estimator has the interval of an unbiased one, named in "interval" and extended to
        its value. Errors of propensity and reward models are not included.

    Warns:
        UserWarning: missing support, or a mean weight that is not 1; see `overlap`.

    Raises:
        TypeError: a target or predictions that are not numbers.
        ValueError: arrays that do not fit the log, an unknown estimator or unmet needs, a setting out of range.
    """
    import pandas as pd

    samples = checks.count("samples", samples, 2)
    checks.number("level", level, 0, 1, exclusive=True)
    checks.choice("interval", interval, intervals.INTERVALS)
    given = evidence(log, target, predicted, seed=seed)
    absent = missing(given)
    chosen = _chosen(estimators, given, absent)
    terms = {name: one.terms(given) for name, one in chosen.items()}
    for text in biases(given):
        warnings.warn(text, stacklevel=2)
    points = {name: one.point for name, one in terms.items()}
    if interval == "cautious":
        ends = _cautious(chosen, terms, points, given, absent, level, samples)
    else:
        settings: Any = {"bounds": bounds, "seed": given.seed, "level": level, "samples": samples}
        ends = [(*found, interval) for found in intervals.plain(interval, list(terms.values()), **settings)]
    rows = [
        (value, low, high, error, kind) for (value, error), (low, high, kind) in zip(points.values(), ends, strict=True)
    ]
    names = pd.Index(list(terms), name="estimator")
    table = pd.DataFrame(rows, index=names, columns=["value", "low", "high", "std_error", "interval"])
    if given.log.estimated:
        table[MARK] = [
            "estimated" if "propensities" in one.needs or isinstance(one, Auto) else "not used"
            for one in chosen.values()
        ]
    return table


def _chosen(
    estimators: Sequence[Estimator | str] | str | None, given: Any, absent: Collection[str]
) -> dict[str, Estimator]:
    if estimators is None:
        standard = [one for one in STANDARD if isinstance(given.log, one.log)]
        chosen = [one for one in standard if not any(need in absent for need in one.needs)]
        if any(one.needs for one in chosen):
            return {one.name: one for one in chosen}
        check_needs(next(one for one in standard if one.needs), given)  # raises
    listed = [estimators] if isinstance(estimators, str) else checks.ordered("estimators", estimators, "a list")
    made = [part for one in listed for part in (parsed(one) if isinstance(one, str) else [one])]
    for one in made:
        if not isinstance(one, Estimator):
            raise TypeError(f"estimators must be a list of estimators or their names; got {one!r:.80}")
        check_needs(one, given)
    if not made:
        raise ValueError("estimators must name at least one, such as [seqdec.ope.DR()]; got an empty list")
    return {one.name: one for one in made}


def _cautious(
    chosen: dict[str, Estimator],
    terms: dict[str, Terms],
    points: dict[str, tuple[float, float]],
    given: Any,
    absent: Collection[str],
    level: float,
    samples: int,
) -> list[tuple[float, float, str]]:
    """Default intervals of the estimators: low, high, and whose interval it is, such as "own" or "of IPS"."""
    owners = []
    for name, one in chosen.items():
        others = (other for other in one.references(given) if not any(need in absent for need in other.needs))
        owners.append(next(((other.name, other) for other in others), (name, one)))
    bases = dict(owners)
    weighted = isinstance(given, Evidence) and "propensities" not in absent
    extra = extra_rows(given) if weighted and any(base.extended for base in bases.values()) else ()
    estimates = []
    for name, base in bases.items():
        own = terms[name] if name in terms else base.terms(given)
        estimates.append((own, [base.terms(row) for row in extra] if base.extended else []))
    ends = intervals.cautious(estimates, seed=given.seed, level=level, samples=samples)
    known, found = dict(zip(bases, ends, strict=True)), []
    for (name, (value, _)), (owner, _) in zip(points.items(), owners, strict=True):
        low, high = known[owner]
        kind = "without the error of the model" if "propensities" in absent else "own"
        if owner != name:
            kind = f"of {owner}"
            if not np.isnan(value):
                low, high = min(low, value), max(high, value)
        found.append((low, high, kind))
    return found


def extra_rows(given: Evidence) -> Sequence[Evidence]:
    """An unseen row of the target with a low reward, and one with a high reward."""
    weights = np.array([max(given.usual_weight, float(np.mean(given.weights**2)))])
    direct, r, mean = np.array([given.direct.mean()]), given.log.reward, given.log.reward.mean()
    return [
        given._replace(log=given.log.replace(reward=reward), weights=weights, direct=direct, residual=reward - direct)
        for reward in (np.array([r[r <= mean].mean()]), np.array([r[r >= mean].mean()]))
    ]
