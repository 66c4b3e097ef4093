"""Estimates with intervals, in one table."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec import checks
from seqdec.ope import intervals
from seqdec.ope.contract import (
    Estimator,
    Evidence,
    Predicted,
    Target,
    Terms,
    check_needs,
    evidence,
    lacks,
)
from seqdec.ope.diagnostics import biases
from seqdec.ope.estimators import REGISTRY, STANDARD

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
        log: decisions of the logging policy: a `Log`, a `SlateLog` or a `ContinuousLog`.
        target: (n, k) probabilities of the policy to be evaluated, given each row's context; of other kinds of logs see
            there.
        predicted: (n, k) rewards predicted by a model that was not fitted to the row, such as those of
            `predict_rewards`; None omits the estimators that need it. Needed for a log without propensities, of which
            there is the direct method alone.
        seed: of the bootstrap and of estimators that draw random numbers.
        estimators: configured estimators, or names of those in the registry, such as [DR(), DR(shrinkage="slope"),
            "snips"], or one name, such as "auto". None: those of `STANDARD` for which the log has what they need.
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
    if isinstance(given, Evidence) and log.known_propensities:
        for text in biases(log, given.target):
            warnings.warn(text, stacklevel=2)
    ends, told = _ends(chosen, terms, given, interval, level, samples, bounds)
    rows = [(one.value, *ends[name], one.std_error, told[name]) for name, one in terms.items()]
    names = pd.Index(list(terms), name="estimator")
    table = pd.DataFrame(rows, index=names, columns=["value", "low", "high", "std_error", "interval"])
    if log.estimated:
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
        made = REGISTRY.make(one) if isinstance(one, str) else one
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
                "studentized": lambda i=i, one=one: intervals.studentized(one, drawn[:, i], errors[:, i], level),
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
    parts = {one.name: terms.get(one.name) or one.terms(given) for one in bases}
    low, high = _extended(bases, parts, given)
    drawn, errors = intervals.bootstrap([*low, *high], seed=given.seed, samples=samples)
    ends = [
        intervals.studentized(one, drawn[:, i], errors[:, i], level, cautious=True)
        for i, one in enumerate([*low, *high])
    ]
    return {one.name: (ends[i][0], ends[i + len(bases)][1]) for i, one in enumerate(bases)}


def _extended(bases: list[Estimator], parts: dict[str, Terms], given: Any) -> tuple[list[Terms], list[Terms]]:
    """Terms with one row more, which counts for a low and for a high estimate; see `seqdec.ope.intervals`.

    Estimators that cannot take one get a row of zeros, which changes nothing.
    """
    extra = _extra_rows(given) if isinstance(given, Evidence) and any(one.extended for one in bases) else None
    found = []
    for side in (0, 1):
        terms = []
        for one in bases:
            own = parts[one.name]
            more = one.terms(extra[side]) if extra is not None and one.extended and own.value == own.value else None
            terms.append(_with_row(own, more))
        found.append(terms)
    return found[0], found[1]


def _with_row(own: Terms, more: Terms | None) -> Terms:
    columns = own.columns
    rows = [np.zeros((1, columns[0].shape[1]))] * 2 if more is None else more.columns
    return Terms(*(np.concatenate([part, row]) for part, row in zip(columns, rows, strict=True)))


def _extra_rows(given: Evidence) -> tuple[Evidence, Evidence] | None:
    """Evidence of one row each, which the log might have had: with a low and with a high reward."""
    log, target = given.log, given.target.probabilities
    if not log.known_propensities:
        return None
    rows = np.arange(len(log.action))
    others = np.maximum(log.mask.sum(axis=1) - 1, 1)
    rest = np.maximum((1 - log.propensity) / others, 1e-6)  # of each other action, if they share what is left
    own = target[rows, log.action]
    squares = np.einsum("na,na->n", target, target) - own**2
    weight = float(np.mean(own * given.weights + squares / rest))
    direct = 0.0 if given.predicted is None else float(given.direct.mean())
    one = log.rows(np.array([0]))
    law = np.where(one.mask, 1.0, 0.0) / one.mask.sum()
    predicted = None if given.predicted is None else Predicted(np.where(one.mask, direct, 0.0))
    r, mean = log.reward, log.reward.mean()
    found = [
        given._replace(
            log=one._replace(reward=np.array([reward])), target=Target(law, np.array([weight])), predicted=predicted
        )
        for reward in (r[r <= mean].mean(), r[r >= mean].mean())
    ]
    return found[0], found[1]
