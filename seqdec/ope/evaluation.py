"""Estimates with intervals, in one table."""

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec import checks
from seqdec.ope import intervals
from seqdec.ope.contract import (
    Estimator,
    Evidence,
    Expected,
    RowEvidence,
    Terms,
    check_needs,
    evidence,
    lacks,
)
from seqdec.ope.diagnostics import biases
from seqdec.ope.estimators import STANDARD, parsed

if TYPE_CHECKING:
    import pandas as pd

MARK = "propensities"
"""The column of `evaluate` that marks estimated propensities."""


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

    Args:
        log: decisions of the logging policy: a `Log`, a `SlateLog`, a `ContinuousLog`, or a file that `scan_log` reads
            in batches.
        target: (n, k) probabilities of the policy to be evaluated, given each row's context; of slates and numbers see
            there. Of a log in batches a function of a batch, a `Log` of m rows, that returns (m, k) probabilities, or a
            list of k columns of the file; and so are predictions.
        predicted: (n, k) rewards predicted by a model that was not fitted to the row, such as those of
            `predict_rewards`; None omits the estimators that need it. Needed for a log without propensities, of which
            there is the direct method alone.
        seed: of the bootstrap and of estimators that draw random numbers.
        estimators: configured estimators, or names of those in the registry, with settings or without, such as [DR(),
            "dr(shrinkage='slope')", "snips"]; or names in one text, such as "auto" or "dr, snips". None: those of
            `STANDARD` for which the log has what they need.
        interval: one of `INTERVALS`, described in `seqdec.ope.intervals`.
        level: of the intervals.
        samples: of the bootstrap; rows are drawn with replacement and predictions are kept fixed.
        bounds: of the contribution of a row, for the intervals "bernstein" and "betting"; None takes the smallest and
            the largest in the log, with which these intervals are not guaranteed.

    Returns:
        A table indexed by estimator: value, low, high, std_error, interval. NaN is unknown: without support, that is
        where the policy would play the logged action in no row, estimators by weights say nothing. An estimator that
        trades bias for variance has, by default, the interval of one without bias, extended to its value; "interval"
        names it. Where the log has no propensities, the interval of the direct method leaves out the error of the
        model, and "interval" says so. Where propensities are estimates, a column "propensities" says so.

    Warns:
        UserWarning: the log has no support for the policy or only a part of it, or a mean weight that is not 1; see
            `overlap`, which also warns of wide intervals and of estimated propensities.

    Raises:
        TypeError: a target or predictions that are not numbers.
        ValueError: arrays that do not fit the log, an unknown estimator, one that needs what the log lacks, or a
            setting out of its range.
    """
    import pandas as pd

    samples = checks.count("samples", samples, 2)
    checks.number("level", level, 0, 1, exclusive=True)
    checks.choice("interval", interval, intervals.INTERVALS)
    given = evidence(log, target, predicted, seed=seed)
    chosen = _chosen(estimators, given)
    terms = {one.name: one.terms(given) for one in chosen}
    if isinstance(given, Evidence | RowEvidence) and given.log.known_propensities:
        for text in biases(given.log, given.weights, given.law):
            warnings.warn(text, stacklevel=2)
    ends, told = _ends(chosen, terms, given, interval, level, samples, bounds)
    rows = [(one.value, *ends[name], one.std_error, told[name]) for name, one in terms.items()]
    names = pd.Index(list(terms), name="estimator")
    table = pd.DataFrame(rows, index=names, columns=["value", "low", "high", "std_error", "interval"])
    if given.log.estimated:
        table[MARK] = ["estimated" if "propensities" in one.needs else "not used" for one in chosen]
    return table


def _chosen(estimators: Sequence[Estimator | str] | str | None, given: Any) -> list[Estimator]:
    """The estimators, made where they are given by name, without repetitions."""
    if estimators is None:
        chosen = [one for one in STANDARD if isinstance(given.log, one.log) and not lacks(one, given)]
        if not chosen:
            check_needs(STANDARD[0], given)  # raises
        return chosen
    listed = [estimators] if isinstance(estimators, str) else checks.ordered("estimators", estimators, "a list")
    chosen = {}
    for one in listed:
        for made in parsed(one) if isinstance(one, str) else [one]:
            if not isinstance(made, Estimator):
                raise TypeError(f"estimators must be a list of estimators or their names; got {one!r:.80}")
            check_needs(made, given)
            chosen[made.name] = made
    if not chosen:
        raise ValueError("estimators must name at least one, such as [seqdec.ope.DR()]; got an empty list")
    return list(chosen.values())


def _ends(
    chosen: list[Estimator],
    terms: dict[str, Terms],
    given: Any,
    interval: str,
    level: float,
    samples: int,
    bounds: tuple[float, float] | None,
) -> tuple[dict[str, tuple[float, float]], dict[str, str]]:
    """Interval of each estimate by name, and whose it is."""
    if interval in intervals.BOUNDED:
        rule = getattr(intervals, interval)
        found = {}
        for name, one in terms.items():
            own = bounds or (float(one.numerator.min()), float(one.numerator.max()))
            found[name] = rule(one, own, level) if own[0] < own[1] else (one.value, one.value)
        return found, dict.fromkeys(terms, interval)
    if interval != "cautious":
        drawn, errors = intervals.bootstrap(list(terms.values()), seed=given.seed, samples=samples)
        found = {
            name: {
                "percentile": lambda i=i: intervals.percentile(drawn[:, i], level),
                "bca": lambda i=i, one=one: intervals.bca(one, drawn[:, i], level),
                "studentized": lambda i=i, one=one: intervals.studentized(
                    (one.value, one.std_error), drawn[:, i], errors[:, i], level
                ),
            }[interval]()
            for i, (name, one) in enumerate(terms.items())
        }
        return found, dict.fromkeys(terms, interval)
    bases = {one.name: _reference(one, given) for one in chosen}
    unique = {base.name: base for base in bases.values()}
    known = _cautious(list(unique.values()), terms, given, level, samples)
    found, told = {}, {}
    for name, base in bases.items():
        (low, high), value = known[base.name], terms[name].value
        if base.name != name and not np.isnan(value):
            low, high = min(low, value), max(high, value)
        found[name], told[name] = (low, high), f"of {base.name}" if base.name != name else "own"
        if base.name == name and not given.log.known_propensities:
            told[name] = "without the error of the model"
    return found, told


def _reference(one: Estimator, given: Any) -> Estimator:
    """The estimator whose interval is reported."""
    references = one.references(given) if callable(one.references) else one.references
    return next((other for other in references if not lacks(other, given)), one)


def _cautious(
    bases: list[Estimator], terms: dict[str, Terms], given: Any, level: float, samples: int
) -> dict[str, tuple[float, float]]:
    """Default intervals of estimators without bias, by name."""
    extra = _extra_rows(given) if any(one.extended for one in bases) else ()
    points = []

    def extended() -> Iterator[Terms]:
        for one in bases:
            own = terms.get(one.name) or one.terms(given)
            taken = extra if one.extended and not np.isnan(own.value) else ()
            for side in (0, 1):
                more = _with_row(own, one.terms(taken[side]) if taken else None)
                points.append((more.value, more.std_error))
                yield more

    drawn, errors = intervals.bootstrap(extended(), seed=given.seed, samples=samples)
    ends = [
        intervals.studentized(point, drawn[:, i], errors[:, i], level, cautious=True) for i, point in enumerate(points)
    ]
    return {one.name: (ends[2 * i][0], ends[2 * i + 1][1]) for i, one in enumerate(bases)}


def _with_row(own: Terms, more: Terms | None) -> Terms:
    """Terms with a row more: one of zeros, which changes nothing, where there is none."""
    columns = own.columns
    rows = [np.zeros((1, columns[0].shape[1]))] * 2 if more is None else more.columns
    return Terms(*(np.concatenate([part, row]) for part, row in zip(columns, rows, strict=True)))


def _extra_rows(given: Any) -> Sequence[RowEvidence]:
    """A row that the log might have had, with a low and with a high reward; see `seqdec.ope.intervals`."""
    if not isinstance(given, Evidence | RowEvidence) or not given.log.known_propensities:
        return ()
    direct = None if given.predicted is None else np.array([given.direct.mean()])
    weights = np.array([max(given.usual_weight, float(np.mean(given.weights**2)))])
    r, mean = given.log.reward, given.log.reward.mean()
    found = []
    for reward in (r[r <= mean].mean(), r[r >= mean].mean()):
        one = given.log.rows(np.array([0]))._replace(reward=np.array([reward]))
        predicted = None if direct is None else Expected(direct, one.reward - direct)
        found.append(RowEvidence(one, weights, predicted, given.law, given.usual_weight, given.seed))
    return found
