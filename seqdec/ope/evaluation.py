"""Estimates with intervals."""

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec.boundary import checks
from seqdec.ope import intervals
from seqdec.ope.contract import Estimator, check_needs, evidence, missing, named
from seqdec.ope.diagnostics import ENOUGH, RARE, Reach, extremes, groups_of, range_of, reach, repeats
from seqdec.ope.estimators import SNDR, SNIPS, STANDARD, Auto, parsed
from seqdec.ope.intervals import Terms
from seqdec.ope.log import Log
from seqdec.ope.partitions import Sums
from seqdec.ope.partitions import standard as standard_sums

if TYPE_CHECKING:
    import pandas as pd

MARK = "propensities"
_WEAK = (SNIPS(),)
"""Whose interval all estimates have where the log hardly reaches the policy."""


def evaluate(
    log: Any,
    target: Any,
    predicted: Any = None,
    *,
    seed: int,
    estimators: Sequence[Estimator | str] | str | None = None,
    level: float = 0.95,
    samples: int = 1000,
    reward_range: tuple[float, float] | None = None,
    groups: Any = None,
) -> "pd.DataFrame":
    """Estimates of the target's mean reward per decision, with intervals.

    >>> from seqdec import ope
    >>> log = ope.make_log(action=[0, 1, 0], reward=[1.0, 0.0, 2.0], propensity=[0.5, 0.5, 0.5])
    >>> ope.evaluate(log, [[0.8, 0.2]] * 3, seed=0, estimators="ips, snips")["value"].round(2).to_dict()
    {'ips': 1.6, 'snips': 1.33}
    >>> float(ope.evaluate(log, [0, 0, 0], seed=0)["value"]["snips"])  # the policy that always plays action 0
    1.5

    Args:
        log: a `Log`, `SlateLog`, `ContinuousLog` or file of `scan_log`.
        target: (n, k) probabilities of the policy; or (n,) names of its actions; one name, for all rows; "uniform"; or
            a function of the log that returns one of these. For a file: a function of a batch, a `Log` of m rows,
            to (m, k), or k names of columns. For a `ContinuousLog`: (n,) actions, or a function of the log to (n,)
            densities of the policy at the logged actions.
        predicted: as the target, cross-fitted rewards, as by `predict_rewards`; required without propensities. None
            omits estimators that need it.
        seed: seed for the bootstrap and random estimators.
        estimators: configured or by name, as [DR(), "dr(shrinkage='slope')"] or "dr, snips". None: those of `STANDARD`
            that the log allows.
        level: confidence level of the intervals.
        samples: number of bootstrap samples of rows, for rewards of unknown range; predictions are fixed.
        reward_range: (a, b) of all possible rewards, or sums of a slate's; None: (0, 1) if all are 0 or 1, else
            unknown; then an end without limit is infinite.
        groups: (n,) labels of any kind, such as users, of rows that depend on each other.

    Returns:
        A table indexed by estimator: value, low, high, std_error, interval, and "propensities" if estimated; NaN is
        unknown. A biased estimator has the interval of an unbiased one. With little overlap all have the interval of
        `SNIPS`, and the share of decisions without rows counts with the whole range of rewards (of those in the log, if
        unknown). Each interval is extended to its estimate; "interval" says whose it is and what limits it. Errors of
        propensity and reward models are not included. See `seqdec.ope.intervals`.

    Warns:
        UserWarning: missing support, or a mean weight that is not 1; see `overlap`.

    Raises:
        TypeError: a target or predictions that are not numbers.
        ValueError: arrays that do not fit the log, an unknown estimator or unmet needs, a setting out of range.
    """
    samples = checks.count("samples", samples, 2)
    checks.number("level", level, 0, 1, exclusive=True)
    given = evidence(log, target, predicted, seed=seed)
    known, member = bounds_of(given, reward_range, groups)
    chosen, found = chosen_of(estimators, given), reach(given)
    for text in (*found.warnings, *(repeats(given.log) if isinstance(given.log, Log) and member is None else ())):
        warnings.warn(text, stacklevel=2)
    return table_of(given, chosen, found, known, member, level=level, samples=samples)


def bounds_of(given: Any, reward_range: Any, groups: Any) -> tuple[intervals.Ends | None, np.ndarray | None]:
    """The range of the rewards, and the groups of the rows."""
    if isinstance(given, Sums):
        given.check([], groups)
        return given.known(reward_range), None
    return range_of(reward_range, given.log.reward), groups_of(groups, len(given.log))


def rows_of(given: Any) -> int:
    """Rows of the log."""
    return given.rows if isinstance(given, Sums) else len(given.log)


def terms_of(one: Estimator, given: Any) -> Terms:
    """Contributions of rows, or of blocks of them."""
    return given.terms(*given.form(one)) if isinstance(given, Sums) else one.terms(given)


def table_of(
    given: Any,
    chosen: dict[str, Estimator],
    found: Reach,
    known: intervals.Ends | None,
    member: np.ndarray | None,
    *,
    level: float,
    samples: int,
) -> "pd.DataFrame":
    """The table of `evaluate`, from the evidence, its reach, the range of the rewards and the groups of the rows."""
    import pandas as pd

    from seqdec.ope.estimates import Estimates

    terms = {name: terms_of(one, given) for name, one in chosen.items()}
    points = intervals.points(terms.values())
    ends = _intervals(chosen, terms, given, found, known, member, level, samples)
    rows = [
        (value, min(value, low), max(value, high), error, kind)
        for (value, error), (low, high, kind) in zip(points, ends, strict=True)
    ]
    names = pd.Index(list(terms), name="estimator")
    table = Estimates(rows, index=names, columns=["value", "low", "high", "std_error", "interval"])
    if given.log.estimated:
        table[MARK] = [
            "estimated" if "propensities" in one.needs or isinstance(one, Auto) else "not used"
            for one in chosen.values()
        ]
    return table


def chosen_of(estimators: Sequence[Estimator | str] | str | None, given: Any) -> dict[str, Estimator]:
    """Estimators by name, whose needs the evidence meets. Raises TypeError or ValueError."""
    absent = missing(given)
    if isinstance(given, Sums) and estimators is None:
        estimators = standard_sums(given.predicted)
    if estimators is None:
        standard = [one for one in STANDARD if isinstance(given.log, one.log)]
        chosen = [one for one in standard if not any(need in absent for need in one.needs)]
        if any(one.needs for one in chosen):
            return dict(zip(named(chosen), chosen, strict=True))
        check_needs(next(one for one in standard if one.needs), given)  # raises
    listed = [estimators] if isinstance(estimators, str) else checks.ordered("estimators", estimators, "a list")
    made = [part for one in listed for part in (parsed(one) if isinstance(one, str) else [one])]
    for one in made:
        if not isinstance(one, Estimator):
            raise TypeError(f"estimators must be a list of estimators or their names; got {one!r:.80}")
        if isinstance(given, Sums):
            given.check([one], None)
        check_needs(one, given)
    if not made:
        raise ValueError("estimators must name at least one, such as [seqdec.ope.DR()]; got an empty list")
    return dict(zip(named(made), made, strict=True))


def _intervals(
    chosen: dict[str, Estimator],
    terms: dict[str, Terms],
    given: Any,
    found: Reach,
    known: intervals.Ends | None,
    member: np.ndarray | None,
    level: float,
    samples: int,
) -> list[tuple[float, float, str]]:
    """Intervals of the estimates, and whose they are, with what limits them."""
    absent, reward = missing(given), given.log.reward.reshape(len(given.log.reward), -1).sum(axis=1)
    weak = not np.isnan(found.weight) and (found.missing > RARE or rows_of(given) < ENOUGH * found.weight)
    bases = []
    for one in chosen.values():
        others = _WEAK if weak else one.references(given)
        usable = [other for other in others if not any(need in absent for need in other.needs)]
        bases.append(usable[0] if usable else one)
    owners = list(named(bases))
    estimates, worst = {}, extremes(reward, known)
    for owner, base in zip(owners, bases, strict=True):
        if owner in estimates:
            continue
        own = terms[owner] if owner in terms else terms_of(base, given)
        unseen = unseen_of(base, own, given, weight_of(own, found, reward), worst)
        if member is not None:
            size = len(reward) / (member.max() + 1)
            own, unseen = own.grouped(member), [Terms(*(size * part for part in row)) for row in unseen]
        estimates[owner] = (own, unseen)
    groups = None if member is None else int(member.max()) + 1
    several = intervals.several(
        list(estimates.values()), reward_range=known, groups=groups, level=level, seed=given.seed, samples=samples
    )
    made, (low, high) = dict(zip(estimates, several, strict=True)), known or (float(reward.min()), float(reward.max()))
    rows = []
    for name, owner in zip(chosen, owners, strict=True):
        interval, words = made[owner], [f"of {owner}" if owner != name else "own"]
        if "propensities" in absent:
            words = ["without the error of the model"]
        if lacking := found.missing:
            ends = ((1 - lacking) * interval.low + lacking * low, (1 - lacking) * interval.high + lacking * high)
            interval = interval._replace(low=ends[0], high=ends[1]) if lacking < 1 else intervals.Interval(low, high)
            words.append(f"{lacking:.1%} of the decisions from {low:.4g} to {high:.4g}")
        words += [interval.words] if interval.words else []
        rows.append((interval.low, interval.high, "; ".join(words)))
    return rows


def unseen_of(base: Estimator, own: Terms, given: Any, weight: float, worst: intervals.Ends) -> list[Terms]:
    """Terms of the unseen row at either end."""
    if not isinstance(given, Sums):
        return intervals.unseen(own, weight, worst)
    return given.row(intervals.unseen(own, weight, worst, weighted=isinstance(base, SNIPS | SNDR)))


def weight_of(own: Terms, found: Reach, reward: np.ndarray) -> float:
    """The weight of the unseen row; where weights are unknown, the variance of the estimate by that of the mean."""
    if not np.isnan(found.weight):
        return found.weight
    variance = reward.var()
    return max(float((own.influence**2).mean() / variance), 1.0) if variance else 1.0
