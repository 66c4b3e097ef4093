"""Whether a policy is better than what is done now: a paired difference, its interval, and a verdict.

    difference = estimate of the target - estimate of the baseline, both from the same rows

Its error is that of the difference of the two influence functions. The noise that both share cancels, so that it can
decide where the intervals of both overlap.
"""

import datetime
import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from seqdec.boundary import checks
from seqdec.introspection import described, html
from seqdec.ope import intervals, sequences
from seqdec.ope.contract import Estimator, Evidence, evidence, missing, policy
from seqdec.ope.diagnostics import RARE, SIGMAS, Overlap, groups_of, overlap, range_of, reach
from seqdec.ope.estimators import DM, SNDR, SNIPS, STANDARD
from seqdec.ope.evaluation import evaluate
from seqdec.ope.intervals import Ends, Terms
from seqdec.ope.log import Log, check_log

if TYPE_CHECKING:
    import pandas as pd

LOGGED = "logged"
DECISIONS = ("better", "worse", "no difference shown", "cannot decide")
_WINDOWS, _LEAST = 5, 10
_CHANCE = 0.01
"""Probability of a change over time that chance may explain."""
_LOOKS, _MOST = 200, 200


class Estimate(NamedTuple):
    """A value and its interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        digits = _digits(self.high - self.low)
        return f"{self.value:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What a log says about a target policy and a baseline; printed, it is a short report."""

    verdict: str
    """the answer, in a sentence"""
    decision: str
    """one of `DECISIONS`"""
    difference: Estimate
    """of the target minus the baseline, in reward per decision"""
    target: Estimate
    """recommended estimate, "auto" of `seqdec.ope.evaluate`"""
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
    log: Log,
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
    """Whether a policy earns more than what is done now.

    >>> import numpy as np
    >>> from seqdec import ope
    >>> rng = np.random.default_rng(0)
    >>> action = rng.integers(2, size=2000)
    >>> reward = rng.random(2000) < np.array([0.2, 0.3])[action]
    >>> log = ope.make_log(action=action, reward=reward, propensity=np.full(2000, 0.5))
    >>> print(ope.compare(log, np.tile([0.0, 1.0], (2000, 1)), seed=0).verdict)
    Better by 0.045 (0.027 to 0.064): 0.314 against 0.269 of the log.

    The difference is estimated by the unbiased estimator, `SNIPS` or `SNDR`, whose paired difference has the smaller
    standard error. Decisions that were never logged count with the whole range of rewards, if it is known.

    Args:
        log: decisions of the logging policy.
        target: (n, k) probabilities of the policy, as in `evaluate`.
        predicted: cross-fitted rewards (n, k), as by `predict_rewards`; None: weights alone.
        seed: of the bootstrap and random estimators.
        baseline: "logged", the mean reward of the log; or another policy, as the target.
        reward_range: (low, high) of all possible rewards, as in `evaluate`.
        groups: (n,) labels, such as users, whose rows depend on each other.
        window: length of the windows in which changes over time are looked for: a number of rows; or for dates a time,
            such as "7D". None: a fifth of the log.
        level: of the intervals.
        samples: of the bootstrap over rows.
        anytime: whether the interval of the difference is to hold at all numbers of rows at once, however often a log
            that grows is read, and also if its policy learns from its rewards (`seqdec.ope.sequences`): for exact
            propensities, rewards in a known range, and the baseline "logged".

    Raises:
        TypeError: not a `Log`, or a policy or predictions that are not numbers.
        ValueError: arrays that do not fit the log, a setting out of range, or a log that does not allow `anytime`.
    """
    check_log(log)
    samples = checks.count("samples", samples, 2)
    checks.number("level", level, 0, 1, exclusive=True)
    given = evidence(log, target, predicted, seed=seed)
    logged = isinstance(baseline, str) and baseline == LOGGED
    other = given if logged else evidence(log, policy("baseline", log, cast(Any, baseline)), predicted, seed=seed)
    starts, known, member = _starts(log, window), range_of(reward_range, log.reward), groups_of(groups, len(log))
    if checks.flag("anytime", anytime):
        _check_anytime(log, logged, known, member)
    settings: Any = {"seed": given.seed, "level": level, "samples": samples}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of the overlap, which the result has
        more: Any = settings | {"reward_range": reward_range, "groups": groups}
        table = evaluate(log, given.target, predicted, estimators=_listed(given), **more)
        now = None if logged else evaluate(log, other.target, predicted, estimators="auto", **more)
    pairs = [(one, _paired(one, given, other, logged)) for one in _unbiased(given)]
    estimator, terms = min(pairs, key=lambda pair: np.nan_to_num(pair[1].std_error, nan=np.inf))
    ends: Any = settings | {"limits": known is None}
    windows = _windows(log, terms, starts, member, ends)
    mean = Terms(log.reward, np.ones(len(log)))
    before = Estimate(mean.value, *_interval(mean, (), member, ends, known)) if now is None else _row(now)
    name, sequence = estimator.name, None
    if anytime and known is not None:
        name, sequence = "ips", _sequence(given, known, level)
        low, high = map(float, sequence.iloc[-1])
        difference = Estimate(float(np.clip(np.mean((given.weights - 1) * log.reward), low, high)), low, high)
    else:
        low, high = _ends(estimator, terms, given, other, logged, member, known, ends)
        if known is not None and log.known_propensities:
            low, high = _beyond(low, high, (given, other), (_row(table).value, before.value), logged, known)
        difference = Estimate(terms.value, min(low, terms.value), max(high, terms.value))
    seen = overlap(log, given.target, reward_range=reward_range, groups=groups)
    doubt = _doubt(log, difference, seen, known is not None, anytime)
    decision, verdict = _verdict(log, difference, _row(table), before, doubt, logged)
    verdict = "; ".join([verdict, *_caveats(log, terms, windows, starts, member)]) + "."
    return Comparison(verdict, decision, difference, _row(table), before, name, windows, sequence, table, seen)


def _beyond(
    low: float, high: float, both: tuple[Evidence, Evidence], values: tuple[float, float], logged: bool, known: Ends
) -> Ends:
    """Ends in which the decisions that no row stands for have any reward of the range."""
    for given, value, side in zip(both, values, (1, -1), strict=True):
        if (side > 0 or not logged) and np.isfinite(value):
            share = reach(given).missing
            less, more = share * (value - known[0]), share * (known[1] - value)
            low, high = (low - less, high + more) if side > 0 else (low - more, high + less)
    return low, high


def _unbiased(given: Evidence) -> list[Estimator]:
    if not given.log.known_propensities:
        return [DM()]
    return [SNIPS()] if given.predicted is None else [SNIPS(), SNDR()]


def _listed(given: Evidence) -> list[Estimator]:
    absent = missing(given)
    return [one for one in STANDARD if one.log is Log and not any(need in absent for need in one.needs)]


def _row(table: "pd.DataFrame") -> Estimate:
    return Estimate(*map(float, table.loc["auto", ["value", "low", "high"]]))


def _paired(estimator: Estimator, given: Evidence, other: Evidence, logged: bool) -> Terms:
    """Terms of the target's estimate minus the baseline's, which is that of `other`, or its mean reward if logged."""
    above, below = estimator.terms(given).columns
    own = Terms(other.log.reward, np.ones(len(above))) if logged else estimator.terms(other)
    less, of = own.columns
    return Terms(np.concatenate([above, -less], axis=1), np.concatenate([below, of], axis=1))


def _ends(
    estimator: Estimator,
    terms: Terms,
    given: Evidence,
    other: Evidence,
    logged: bool,
    member: np.ndarray | None,
    known: Ends | None,
    settings: Any,
) -> Ends:
    """Interval of a paired difference; an unseen row is bad for the target at the low end, good at the high end."""
    if logged and np.allclose(given.weights, 1):
        return 0.0, 0.0  # the policy of the log
    if not estimator.extended:
        return _interval(terms, (), member, settings)
    if logged:
        pairs = [(row, row) for row in _unseen(given, known)]
    else:
        pairs = zip(_extra_rows(given, known), reversed(_extra_rows(other, known)), strict=True)
    return _interval(terms, [_paired(estimator, *pair, logged) for pair in pairs], member, settings)


def _unseen(given: Evidence, known: Ends | None) -> list[Evidence]:
    """The rows of `_extra_rows`, or rows of a weight a standard deviation below 1: those that move (w - 1) r more."""
    less, more = _extra_rows(given, known)
    spread = given.weights.std()
    heavy, light = max(less.weights[0], 1 + spread), max(1 - spread, 0.0)
    mean = given.log.reward.mean()
    found = []
    for usual, opposite in ((less, more), (more, less)):
        options = [one._replace(weights=np.array([w])) for one, w in ((usual, heavy), (opposite, light))]
        found.append(max(options, key=lambda one: abs((one.weights[0] - 1) * (one.log.reward[0] - mean))))
    return found


def _extra_rows(given: Evidence, known: Ends | None) -> Sequence[Evidence]:
    """An unseen row of the target with a low reward, and one with a high reward, those of a known range."""
    weights = np.array([max(given.usual_weight, float(np.mean(given.weights**2)))])
    direct, r, mean = np.array([given.direct.mean()]), given.log.reward, given.log.reward.mean()
    rewards = known or (r[r <= max(mean, r.min())].mean(), r[r >= min(mean, r.max())].mean())  # the mean is rounded
    return [
        given._replace(log=given.log[:1].replace(reward=one), weights=weights, direct=direct, residual=one - direct)
        for one in np.array(rewards)[:, None]
    ]


def _interval(
    terms: Terms, rows: Sequence[Terms], member: np.ndarray | None, settings: Any, reward_range: Ends | None = None
) -> Ends:
    count = None
    if member is not None:
        member = np.unique(member, return_inverse=True)[1]
        count = int(member.max()) + 1
        size = len(member) / count
        terms, rows = terms.grouped(member), [Terms(*(size * part for part in row)) for row in rows]
    found = intervals.several([(terms, rows)], reward_range=reward_range, groups=count, **settings)[0]
    return found.low, found.high


def check_window(window: Any) -> int | np.timedelta64:
    """A length of windows: a number of rows, or a time, also as text.

    Raises TypeError or ValueError.
    """
    if not isinstance(window, str | datetime.timedelta | np.timedelta64):
        return checks.count("window", window)
    import pandas as pd

    if isinstance(window, str) and window.isdecimal():
        return checks.count("window", int(window))
    try:
        length: Any = pd.Timedelta(window)
    except ValueError:
        length = pd.NaT
    if not length > pd.Timedelta(0):
        raise ValueError(f'window must be a number of rows, or a time above 0, such as "7D"; got {window!r}')
    return length.to_timedelta64()


def _starts(log: Log, window: Any) -> np.ndarray:
    """First row of each window."""
    count = len(log)
    if window is None:
        return np.linspace(0, count, max(1, min(_WINDOWS, count // _LEAST)), endpoint=False).astype(int)
    length = check_window(window)
    if isinstance(length, int):
        starts = np.arange(0, count, length)
    elif log.timestamp.dtype.kind == "M":
        starts = np.unique((log.timestamp - log.timestamp[0]) // length, return_index=True)[1]
    else:
        raise ValueError(f"window must be a number of rows, because the times of the log are no dates; got {window!r}")
    if len(starts) > _MOST:
        raise ValueError(f"window must divide the log into at most {_MOST} parts; {window!r} makes {len(starts):,}")
    return starts


def _windows(log: Log, terms: Terms, starts: np.ndarray, member: np.ndarray | None, settings: Any) -> "pd.DataFrame":
    import pandas as pd

    rows = []
    for start, stop in itertools.pairwise([*starts, len(log)]):
        part = Terms(terms.numerator[start:stop], terms.denominator[start:stop])
        ends = _interval(part, (), None if member is None else member[start:stop], settings)
        rows.append((log.timestamp[start], stop - start, log.reward[start:stop].mean(), part.value, *ends))
    columns = ["start", "rows", "reward", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=columns, index=pd.Index(starts, name="row"))


def _changes(influence: np.ndarray, starts: np.ndarray, member: np.ndarray | None) -> bool:
    """Whether means in windows differ more than by chance: sum_w n_w (mean_w - mean)^2 / s^2 against chi-squared.

    The variance s^2 is that of sums over the rows of a group in a window.
    """
    from scipy.special import chdtrc

    x, sizes = influence - influence.mean(), np.diff([*starts, len(influence)])
    window = np.repeat(np.arange(len(starts)), sizes)
    cells = np.arange(len(x)) if member is None else np.unique(member * len(starts) + window, return_inverse=True)[1]
    variance = (np.bincount(cells, x) ** 2).sum() / len(x)
    if len(starts) < 2 or not variance > 1e-20 * (influence**2).mean():
        return False
    distance = (np.bincount(window, x) ** 2 / sizes).sum() / variance
    return bool(chdtrc(len(starts) - 1, distance) < _CHANCE)


def _check_anytime(log: Log, logged: bool, known: Ends | None, member: np.ndarray | None) -> None:
    if not log.known_propensities or log.estimated:
        raise ValueError("anytime=True needs exact propensities: log the probability with which each action was drawn")
    if not logged:
        raise ValueError(
            'anytime=True compares with the policy that wrote the log: leave out baseline, or pass "logged"'
        )
    if known is None:
        raise ValueError("anytime=True needs the range of possible rewards: pass reward_range=(low, high)")
    if member is not None:
        raise ValueError("anytime=True is about the decisions of the log, whatever their groups: leave out groups")


def _sequence(given: Evidence, bounds: Ends, level: float) -> "pd.DataFrame":
    """Ends for the mean of V_t(target) - V_t(logged) over the first rows of the log.

    (w - 1) r and (w - 1) (1 - r), r scaled to [0, 1], are at least -1, with means of at most the difference and minus
    the difference, equal where the logging policy supports the target. If it is known, so is the largest weight, and
    each variable has an upper bound too.
    """
    import pandas as pd

    log, w, (least, most) = given.log, given.weights, bounds
    r = (log.reward - least) / (most - least)
    at = np.unique(np.geomspace(1, len(log), min(len(log), _LOOKS)).round().astype(int)) - 1
    gain, loss, delta = (w - 1) * r, (w - 1) * (1 - r), (1 - level) / 2
    if log.logging is None or not len(given.target.probabilities):
        low, high = (sequences.lower(x, -1.0, delta, at=at) for x in (gain, loss))
    else:
        law, played = given.target.probabilities, log.logging > 0
        top = np.divide(law, log.logging, out=np.zeros_like(law), where=played).max(axis=1)
        never = np.where(played, 0.0, law).sum(axis=1)
        low, high = (
            np.maximum(
                sequences.lower(x, -1.0, delta / 2, at=at),
                sequences.lower(-y - never, 1 - np.maximum(top, 1) - never, delta / 2, at=at),
            )
            for x, y in ((gain, loss), (loss, gain))
        )
    ends = {"low": np.maximum(low, -1), "high": np.minimum(-high, 1)}
    return pd.DataFrame(ends, index=pd.Index(at + 1, name="rows")) * (most - least)


def _verdict(
    log: Log, difference: Estimate, target: Estimate, now: Estimate, doubt: str, logged: bool
) -> tuple[str, str]:
    """One of `DECISIONS`, and the sentence without its full stop."""
    value, low, high = difference
    if doubt:
        return DECISIONS[3], f"Cannot decide: {doubt}"
    digits = _digits(high - low)
    if low > 0 or high < 0:
        size = Estimate(value, low, high) if low > 0 else Estimate(-value, -high, -low)
        values = (
            f"{target.value:.{digits}f} against {now.value:.{digits}f} of {'the log' if logged else 'the baseline'}"
        )
        return DECISIONS[low < 0], f"{'Better' if low > 0 else 'Worse'} by {size}: {values}"
    if low == high == 0:
        return DECISIONS[2], "No difference: the policy is the one that wrote the log"
    half = (high - low) / 2
    needed = len(log) * (half / value) ** 2 if abs(value) > 0.03 * half else np.inf
    more = (
        f"to show it would need about {needed:,.{0}f} rows"
        if np.isfinite(needed)
        else f"differences below {half:.{digits}f} do not show in {len(log):,} rows"
    )
    return DECISIONS[2], f"No difference that this log could show: {difference}; {more}"


def _doubt(log: Log, difference: Estimate, seen: Overlap, bounded: bool, anytime: bool) -> str:
    """Why the log cannot decide, or nothing."""
    if not log.known_propensities:
        return "without propensities the difference rests on the model alone"
    if seen.miscalibration > SIGMAS:
        return "the propensities do not fit the actions"
    if anytime:
        return ""
    if not seen.effective_sample_size:
        return "the log never played what the policy would play"
    if seen.unsupported > RARE and (not bounded or difference.low <= 0 <= difference.high):
        return f"{seen.unsupported:.0%} of the policy's decisions were never logged"
    if seen.unsupported <= RARE and not seen.verdict.startswith("The log can decide"):
        return seen.verdict.partition(": ")[2].rstrip(".") or seen.verdict
    if not np.isfinite(difference).all():
        return "too few rewards, or too large ones, tell about the difference"
    return ""


def _caveats(
    log: Log, terms: Terms, windows: "pd.DataFrame", starts: np.ndarray, member: np.ndarray | None
) -> Iterator[str]:
    if log.estimated:
        yield "the propensities are estimates"
    if _changes(terms.influence, starts, member):
        yield f"the difference changes over time, {_extremes(windows, 'difference')}"
    elif _changes(log.reward, starts, member):
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
