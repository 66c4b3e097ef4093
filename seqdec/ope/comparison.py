"""Whether a policy is better than the current one: a paired difference, its interval, and a verdict."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from seqdec.boundary import checks
from seqdec.introspection import counted, described, html
from seqdec.ope import paired, sequences
from seqdec.ope.contract import Estimator, Evidence, evidence, missing, policy
from seqdec.ope.diagnostics import ENOUGH, RARE, SIGMAS, Overlap, groups_of, overlap_of, range_of, reach
from seqdec.ope.estimators import DM, PDIS, SNDR, SNIPS, KernelDR, KernelIPS, SequentialDR, SlateIPS
from seqdec.ope.estimators.continuous import ContinuousLog
from seqdec.ope.estimators.sessions import EpisodeLog
from seqdec.ope.estimators.slates import SlateLog
from seqdec.ope.evaluation import chosen_of, rows_of, table_of, terms_of, unseen_of
from seqdec.ope.files import LogFile, LogFolder
from seqdec.ope.intervals import Ends, Terms, unseen
from seqdec.ope.log import Log
from seqdec.ope.partitions import Sums
from seqdec.ope.windows import changes, in_windows, starts_of

if TYPE_CHECKING:
    import pandas as pd

LOGGED = "logged"
DECISIONS = ("better", "worse", "no difference shown", "cannot decide")
_UNBIASED: Mapping[type, tuple[Estimator, ...]] = MappingProxyType(
    {
        Log: (SNIPS(), SNDR()),
        ContinuousLog: (KernelIPS(normalized=True), KernelDR()),
        SlateLog: (SlateIPS(interaction="standard", normalized=True),),
        EpisodeLog: (PDIS(normalized=True), SequentialDR(normalized=True)),
    }
)
"""Estimators of the difference, by the kind of log."""


class Estimate(NamedTuple):
    """A value and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = _digits(self.high - self.low)
        return f"{self.value:z.{digits}f} ({self.low:z.{digits}f} to {self.high:z.{digits}f})"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Comparison of a target policy with a baseline; prints as a short report."""

    verdict: str
    """the answer, in a sentence"""
    decision: str
    """one of `DECISIONS`"""
    difference: Estimate
    """target minus baseline, in reward per row: a decision, slate or session"""
    target: Estimate
    """recommended estimate: "auto" of `seqdec.ope.evaluate`, for other logs than of discrete actions that of the
    difference
    """
    baseline: Estimate
    """mean reward of the log, or estimate of the given policy"""
    estimator: str
    """of the difference"""
    windows: "pd.DataFrame"
    """for parts of the log in time: first row, rows, reward of the baseline, difference, low, high"""
    sequence: "pd.DataFrame | None"
    """ends of the interval after rows of the log, indexed by their number; None without `anytime`"""
    table: "pd.DataFrame"
    """all estimates of the target, as by `seqdec.ope.evaluate`"""
    overlap: Overlap
    """of the log and the target"""

    def __repr__(self) -> str:
        return described(
            self.verdict,
            f"difference: {self.difference}, {self.estimator}",
            f"target: {self.target}",
            f"baseline: {self.baseline}",
            *(f"warning: {text}" for text in self.overlap.warnings),
        )

    def _repr_html_(self) -> str:
        return html(repr(self), self.table.reset_index())


def compare(
    log: Log | LogFile | LogFolder | ContinuousLog | SlateLog | EpisodeLog,
    target: Any,
    predicted: Any = None,
    *,
    seed: int,
    baseline: Any = LOGGED,
    reward_range: tuple[float, float] | None = None,
    groups: Any = None,
    window: Any = None,
    level: float = 0.95,
    samples: int = 1000,
    anytime: bool = False,
) -> Comparison:
    """Whether a policy earns more than the policy that wrote the log, or another baseline.

    >>> import numpy as np
    >>> from seqdec import ope
    >>> rng = np.random.default_rng(0)
    >>> action = rng.integers(2, size=2000)
    >>> reward = rng.random(2000) < np.array([0.2, 0.3])[action]
    >>> log = ope.make_log(action=action, reward=reward, propensity=np.full(2000, 0.5))
    >>> print(ope.compare(log, np.tile([0.0, 1.0], (2000, 1)), seed=0).verdict)
    Better by 0.045 (0.027 to 0.064): 0.314 against 0.269 of the log.

    The difference is estimated by the unbiased estimator, such as `SNIPS` or `SNDR`, whose paired difference has the
    smaller standard error. Decisions that were never logged count with the whole range of rewards, if known. The
    difference of two equal policies is exactly 0.

    Args:
        log: decisions of the logging policy, as in `evaluate`.
        target: (n, k) probabilities of the policy, as in `evaluate`.
        predicted: cross-fitted rewards (n, k), as by `predict_rewards`; None: weights alone.
        seed: seed for the bootstrap and random estimators.
        baseline: "logged", the mean reward of the log; or another policy, as the target.
        reward_range: (low, high) of all possible rewards, as in `evaluate`.
        groups: (n,) labels, such as users, of rows that depend on each other.
        window: length of the windows for changes over time: a number of rows, or for dates a time such as "7D". None: a
            fifth of the log.
        level: confidence level of the intervals.
        samples: number of bootstrap samples of rows.
        anytime: whether the interval of the difference holds at all numbers of rows of a growing log at once, also if
            its policy learns from its rewards (`seqdec.ope.sequences`). Needs discrete actions with exact propensities,
            a known range of rewards, and the baseline "logged".

    Raises:
        TypeError: not a log, or a policy or predictions that are not numbers.
        ValueError: arrays that do not fit the log, a setting out of range, or a log that does not allow `anytime`.
    """
    samples = checks.count("samples", samples, 2)
    checks.number("level", level, 0, 1, exclusive=True)
    given = evidence(log, target, predicted, seed=seed)
    logged = isinstance(baseline, str) and baseline == LOGGED
    if isinstance(given, Sums):
        if not logged or window is not None or anytime:
            raise ValueError(
                "a folder of files is compared with itself, in the whole: leave out baseline, window, anytime"
            )
        given.check([], groups)
        return _of_sums(given, given.known(reward_range), level, samples)
    pair = paired.Pair(given, None if logged else _baseline(log, baseline, predicted, seed))
    rows, reward = given.log, paired.rewards(given.log)
    known, member = range_of(reward_range, rows.reward), groups_of(groups, len(rows))
    times = rows.timestamp if isinstance(rows, Log) else np.arange(len(rows))
    starts = starts_of(times, window)
    if checks.flag("anytime", anytime):
        sequences.check_anytime(given, logged, known, member)
    unbiased = {one.name: one for one in _unbiased(given)}
    chosen = chosen_of(None, given) | unbiased
    terms = {name: pair.terms(one) for name, one in unbiased.items()}
    name = min(terms, key=lambda one: np.nan_to_num(terms[one].std_error, nan=np.inf))
    best = "auto" if "auto" in chosen else name
    found, settings = reach(given), cast(Any, {"level": level, "samples": samples})
    bootstrap = settings | {"seed": given.seed}
    table = table_of(given, chosen, found, known, member, **settings)
    future = _row(table, best)
    if logged:
        mean = paired.mean_reward(rows)
        now = Estimate(mean.value, *paired.ends(mean, [], member, bootstrap | {"reward_range": known}))
    else:
        now = _row(table_of(pair.other, {best: chosen[best]}, reach(pair.other), known, member, **settings), best)
    bootstrap |= {"limits": known is None}
    windows = in_windows(
        times,
        reward,
        terms[name],
        starts,
        lambda part, at: paired.ends(part, [], None if member is None else member[at], bootstrap),
    )
    sequence = sequences.of_difference(given, known, level) if anytime and known is not None else None
    equal, estimator = pair.equal, name if sequence is None else "ips"
    if equal:
        difference, sequence = Estimate(0.0, 0.0, 0.0), None if sequence is None else 0 * sequence
    elif sequence is not None:
        low, high = map(float, sequence.iloc[-1])
        difference = Estimate(float(np.clip(np.mean((given.weights - 1) * rows.reward), low, high)), low, high)
    else:
        ends, value = pair.ends(unbiased[name], known, member, bootstrap), terms[name].value
        low, high = pair.beyond(ends, (future.value, now.value), known)
        difference = Estimate(value, min(low, value), max(high, value))
    seen = overlap_of(given, known, member)
    doubt = "" if equal else _doubts(pair, seen, difference, known, member, anytime)
    decision, verdict = _verdict(pair, equal, difference, future, now, doubt, known)
    verdict = "; ".join([verdict, *_caveats(rows, terms[name], reward, windows, starts, member)]) + "."
    return Comparison(verdict, decision, difference, future, now, estimator, windows, sequence, table, seen)


def _of_sums(given: Sums, known: Ends, level: float, samples: int) -> Comparison:
    """As `compare`, of a folder, without a look for changes over time."""
    import pandas as pd

    pair, found = paired.Pair(given, None), reach(given)
    unbiased = {one.name: one for one in (SNIPS(), SNDR()) if given.predicted is not None or one == SNIPS()}
    terms = {name: given.difference(one) for name, one in unbiased.items()}
    name = min(terms, key=lambda one: np.nan_to_num(terms[one].std_error, nan=np.inf))
    settings = cast(Any, {"level": level, "samples": samples})
    table = table_of(given, chosen_of(None, given), found, known, None, **settings)
    bootstrap = settings | {"seed": given.seed, "limits": False}
    future, mean, own = _row(table, name), given.mean, terms_of(unbiased[name], given)
    before = given.row(unseen(mean, 1.0, known, weighted=False))
    now = Estimate(mean.value, *paired.ends(mean, before, None, bootstrap | {"reward_range": known}))
    rows = paired.against_log(
        lambda w: unseen_of(unbiased[name], own, given, w, known), before, found.weight, mean.value, known
    )
    low, high = paired.ends(terms[name], rows, None, bootstrap)
    low, high = pair.beyond((low, high), (future.value, now.value), known)
    value, equal = terms[name].value, given.rows >= ENOUGH and np.abs(given.weights - 1).max() <= checks.TOLERANCE
    difference = Estimate(0.0, 0.0, 0.0) if equal else Estimate(value, min(low, value), max(high, value))
    seen = overlap_of(given.sample, known, None, given.support)
    doubt = "" if equal else _doubt(given.sample, seen, difference, known, anytime=False)
    decision, verdict = _verdict(pair, equal, difference, future, now, doubt, known)
    verdict = "; ".join([verdict, *["the propensities are estimates"] * given.log.estimated]) + "."
    windows = pd.DataFrame(columns=["start", "rows", "reward", "difference", "low", "high"])
    return Comparison(verdict, decision, difference, future, now, name, windows, None, table, seen)


def _baseline(log: Any, given: Any, predicted: Any, seed: int) -> Any:
    """Evidence of the baseline."""
    if isinstance(log, Log):
        return evidence(log, policy("baseline", log, given), predicted, seed=seed)
    if predicted is not None and not isinstance(log, LogFile):
        raise ValueError(
            f"predicted holds the rewards of the target, which the baseline has not, in a {type(log).__name__}: leave "
            "out one of them"
        )
    try:
        return evidence(log, given, predicted, seed=seed)
    except (TypeError, ValueError) as error:
        raise type(error)(f"baseline: {error}") from error


def _unbiased(given: Any) -> list[Estimator]:
    """Estimators of the difference whose needs are met."""
    if isinstance(given, Evidence) and not given.log.known_propensities:
        return [DM()]
    absent = missing(given)
    return [one for one in _UNBIASED[type(given.log)] if not any(need in absent for need in one.needs)]


def _row(table: "pd.DataFrame", name: str) -> Estimate:
    return Estimate(*map(float, table.loc[name, ["value", "low", "high"]]))


def _verdict(
    pair: paired.Pair,
    equal: bool,
    difference: Estimate,
    future: Estimate,
    now: Estimate,
    doubt: str,
    known: Ends | None,
) -> tuple[str, str]:
    """One of `DECISIONS`, and the sentence without its full stop."""
    value, low, high = difference
    whose = "the log" if pair.other is None else "the baseline"
    if doubt:
        return DECISIONS[3], f"Cannot decide: {doubt}"
    if equal:
        return DECISIONS[2], f"No difference: the policy is equal to that of {whose}"
    digits = _digits(high - low)
    if low > 0 or high < 0:
        size = Estimate(value, low, high) if low > 0 else Estimate(-value, -high, -low)
        values = f"{future.value:.{digits}f} against {now.value:.{digits}f} of {whose}"
        return DECISIONS[low < 0], f"{'Better' if low > 0 else 'Worse'} by {size}: {values}"
    count = rows_of(pair.given)
    half, beyond = (high - low) / 2, value - low if value > 0 else high - value
    clipped = known is not None and half > 0.9 * (known[1] - known[0])  # the interval of a few rows, not of its errors
    if count >= ENOUGH and not clipped and abs(value) > 0.03 * half:
        more = f"to show it would need about {count * (beyond / value) ** 2:,.0f} rows"
    else:
        more = f"differences below {half:.{digits}f} do not show in {counted(count, 'row')}"
    return DECISIONS[2], f"No difference that this log could show: {difference}; {more}"


def _doubts(
    pair: paired.Pair, seen: Overlap, difference: Estimate, known: Ends | None, member: np.ndarray | None, anytime: bool
) -> str:
    """Why the log cannot decide, or nothing."""
    doubt = _doubt(pair.given, seen, difference, known, anytime)
    if doubt or pair.other is None:
        return doubt
    doubt = _doubt(pair.other, overlap_of(pair.other, known, member), difference, known, anytime)
    return doubt and f"of the baseline, {doubt}"


def _doubt(given: Any, seen: Overlap, difference: Estimate, known: Ends | None, anytime: bool) -> str:
    if not given.log.known_propensities:
        return "without propensities the difference rests on the model alone"
    if seen.miscalibration > SIGMAS:
        return "the propensities do not fit the actions"
    if anytime:
        return ""
    if not seen.effective_sample_size:
        return "the log never played what the policy would play"
    bounded = known is not None and isinstance(given, Evidence)  # then the interval counts what was never logged
    if seen.unsupported > RARE and (not bounded or difference.low <= 0 <= difference.high):
        return f"{seen.unsupported:.0%} of the policy's decisions were never logged"
    if seen.unsupported <= RARE and not seen.verdict.startswith("The log can decide"):
        return seen.verdict.partition(": ")[2].rstrip(".") or seen.verdict
    if not np.isfinite(difference).all():
        return "too few rewards, or too large ones, tell about the difference"
    return ""


def _caveats(
    log: Any,
    terms: Terms,
    reward: np.ndarray,
    windows: "pd.DataFrame",
    starts: np.ndarray,
    member: np.ndarray | None,
) -> Iterator[str]:
    if log.estimated:
        yield "the propensities are estimates"
    if changes(terms.influence, starts, member):
        yield f"the difference changes over time, {_extremes(windows, 'difference')}"
    elif changes(reward, starts, member):
        yield f"the rewards of the log change over time, {_extremes(windows, 'reward')}"


def _extremes(windows: "pd.DataFrame", name: str) -> str:
    values = windows[name].to_numpy(float)
    ends = sorted([int(np.nanargmin(values)), int(np.nanargmax(values))])
    digits = _digits(float(np.nanmax(values) - np.nanmin(values)))
    first, rows = windows.index.to_numpy(), windows["rows"].to_numpy()
    told = (f"{values[at]:.{digits}f} in rows {first[at] + 1:,} to {first[at] + rows[at]:,}" for at in ends)
    return "from " + " to ".join(told)


def _digits(width: float) -> int:
    """Decimals with which an interval of this width has two digits."""
    return int(np.clip(1 - math.floor(math.log10(width)), 0, 12)) if 0 < width < math.inf else 4
