"""Overlap of a log with a policy."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.introspection import counted
from seqdec.ope.contract import Evidence, evidence
from seqdec.ope.intervals import Ends, Terms, tails
from seqdec.ope.log import Log
from seqdec.statistics import standard_error

ENOUGH = 30
"""Least effective rows, and groups, to decide by."""
_TELLING = 10
"""Least effective rows whose reward is not the usual one."""
RARE = 0.01
"""Share of unsupported decisions that does not count."""
SIGMAS = 5.0
_CLUSTERS, _STEPS = 5, 20
_BETS = 0.5 ** np.arange(1, 13)
_ESTIMATED = (
    "the propensities are estimates: if the logging policy used what the context does not hold, all estimators but the "
    "direct method are biased"
)


class Overlap(NamedTuple):
    """A log's information about a policy; NaN without propensities."""

    rows: int
    """decisions of the log"""
    effective_sample_size: float
    """n / E[w^2], in rows logged by the target itself: by `Log.logging`, else the smaller of (sum w)^2 / sum w^2 and
    that of unlogged actions played equally often
    """
    largest_weight: float
    """of the weights w = target / propensity"""
    mean_weight: float
    """1 up to sampling error if propensities and target are right and every propensity is above 0"""
    mean_weight_error: float
    """standard error of the mean weight"""
    unsupported: float
    """share of the target's decisions that the logging policy never makes: by `Log.logging`, else of actions that no
    row has, or what the mean weight lacks, where chance does not explain it
    """
    weakest_cluster: float
    """smallest effective sample size per row in five clusters of contexts, else of all rows"""
    miscalibration: float
    """evidence that propensities are too small, in standard errors: sqrt(2 log E), E the mean over bets b of
    prod_i (1 - b + b 1[a_i = a] / p_i), divided by the number of actions, for the worst action. If propensities are
    right, it is above 5 with a probability of at most 4e-6, also if the logging policy learns
    """
    warnings: tuple[str, ...]
    """reasons to distrust the estimates"""
    verdict: str
    """whether the log can decide about the policy"""


def overlap(log: Any, target: Any, *, reward_range: Ends | None = None, groups: Any = None) -> Overlap:
    """Effective sample size, weights, calibration and verdict.

    A log can decide if 30 rows and 1% of the rows are effective, as many groups, ten of them with another reward than
    the usual one, and if support, propensities and tails of the rewards allow it.

    Arguments and errors as in `seqdec.ope.evaluate`.
    """
    given = evidence(log, target, seed=0)
    return overlap_of(given, range_of(reward_range, given.log.reward), groups_of(groups, len(given.log)))


@functools.singledispatch
def overlap_of(evidence: Any, known: Ends | None, member: np.ndarray | None) -> Overlap:
    """Of the evidence, the range of its rewards and the groups of its rows."""
    raise TypeError(f"overlap is not known for a {type(evidence.log).__name__}")


@overlap_of.register
def _overlap_of(given: Evidence, known: Ends | None, member: np.ndarray | None) -> Overlap:
    log, w, count, nan = given.log, given.weights, len(given.log), float("nan")
    if not log.known_propensities:
        unsupported = float(given.law[_unplayed(log)].sum())
        unknown = (
            "the log has no propensities: only the direct method is possible, and it rests on the model alone; its "
            "interval does not include the error of the model"
        )
        verdict = "The log alone cannot decide: without propensities estimates rest on the model."
        return Overlap(count, nan, nan, nan, nan, unsupported, nan, nan, (unknown,), verdict)
    found, off = reach(given), _miscalibration(log)
    effective = _effective(w) if member is None else _effective(np.bincount(member, w))
    effective = min(effective if log.logging is None else np.inf, count / (given.usual_weight or np.inf))
    effective = float(effective) if w.any() else 0.0
    worth = _worth(count, effective)
    words = [_ESTIMATED] * log.estimated + [*found.warnings, *(repeats(log) if member is None else ())]
    few = w.any() and effective < max(ENOUGH, 0.01 * count)
    hardly = few and effective < 0.5 * count
    if few:
        words.append(
            f"the log hardly overlaps with the policy: {worth}; intervals are wide"
            if hardly
            else f"the log is short: {worth}; intervals are rough"
        )
    if w.max() > 0.1 * w.sum() and effective < 0.5 * count:
        words.append(f"one row has {w.max() / w.sum():.0%} of all weight")
    if w.any() and off > SIGMAS:
        words.append(
            f"the propensities of an action are too small for its share of the rows, by {off:.1f} standard errors: "
            "they are not those of the logging policy"
        )
    verdict = _verdict(given, found, off, worth, bool(few), bool(hardly), known, member)
    return Overlap(
        count,
        effective,
        float(w.max()),
        float(w.mean()),
        standard_error(w),
        found.unsupported,
        _weakest(log, w),
        off,
        tuple(words),
        verdict,
    )


def _verdict(
    given: Evidence,
    found: "Reach",
    off: float,
    worth: str,
    few: bool,
    hardly: bool,
    known: Ends | None,
    member: np.ndarray | None,
) -> str:
    log, w = given.log, given.weights
    if not w.any():
        return "The log cannot decide about this policy: it never played what the policy would play."
    if off > SIGMAS:
        return "Do not decide by this log before its propensities are put right: they do not fit the actions."
    if found.unsupported > RARE:
        never = given.law[_unplayed(log)].sum() > 0.5 * found.unsupported
        what = "actions it never played" if never else "beyond its policy"
        return f"The log decides only in part: {found.unsupported:.1%} of the policy's decisions are {what}."
    if found.off:
        return "The log decides only in part: weights show that it leaves out decisions of the policy."
    if member is not None and (size := int(member.max()) + 1) < ENOUGH:
        return f"The log is too short to decide: its rows are of {size} groups only."
    if hardly:
        return f"The log hardly decides: {worth}; only a large difference would show."
    if few:
        return f"The log is too short to decide: {worth}."
    if found.missing > RARE:
        return f"The log hardly decides: rows with {found.missing:.1%} of the weight seem to be missing."
    if (telling := _telling(log.reward, w)) < _TELLING:
        return f"The log is too short to decide: only {telling:.1f} effective rows have another reward than most."
    if known is None and not all(tail.light for tail in tails(Terms(w * log.reward, w))):
        return "The log hardly decides: a few large rewards may change the mean; pass reward_range= if it is known."
    return f"The log can decide about this policy: {worth}."


class Reach(NamedTuple):
    """How far a log reaches the decisions of a policy; by default, unknown."""

    weight: float = float("nan")
    """E[w^2], the mean weight of the policy's decisions"""
    unsupported: float = 0.0
    """share of the decisions that the logging policy never makes"""
    missing: float = 0.0
    """share of the decisions that no row stands for: `unsupported`, or what the mean weight lacks beyond two errors"""
    off: bool = False
    """whether the mean weight is not 1; if the whole logging law is known, a smaller one is chance"""
    warnings: tuple[str, ...] = ()
    """sources of bias"""


@functools.singledispatch
def reach(given: Any) -> Reach:
    """By the whole logging law if it is known, else by the weights."""
    return Reach()


@reach.register
def _of_actions(given: Evidence) -> Reach:
    log, w, law = given.log, given.weights, given.target.probabilities
    if not log.known_propensities:
        return Reach()
    unplayed, mean, error = _unplayed(log), float(w.mean()), standard_error(w)
    margin = 4 * error + 3 * float(w.max()) / len(w) + checks.TOLERANCE  # also under a few large weights
    never = float(given.law[unplayed].sum())
    if log.logging is not None and len(law):
        weight = given.usual_weight
        unsupported = missing = float(np.where(log.logging > 0, 0.0, law).sum(axis=1).mean())
    else:
        weight, lacking = float(max(given.usual_weight, np.mean(w**2))), 1 - mean
        plays = float((1 - log.propensity).sum()) / max(log.num_actions - 1, 1)  # of each action, if equally often
        unsupported = never if lacking > never / 2 or never > 5 * np.exp(-plays) else 0.0  # else chance explains it
        if lacking > margin:
            unsupported = max(unsupported, lacking)
        missing = max(unsupported, lacking - 2 * np.nan_to_num(error), 0.0)
    off = (mean - 1 if log.logging is not None else abs(mean - 1)) > margin
    found = Reach(weight, unsupported, float(missing), off)
    return found._replace(warnings=tuple(_biases(given, found, unplayed, never, margin)))


def range_of(reward_range: Ends | None, rewards: np.ndarray) -> Ends | None:
    """The range of the rewards (n,) or, of slates, of their sums (n, L); (0, 1) where all are 0 or 1, None if unknown.

    Raises TypeError for anything but two numbers, ValueError if they are not increasing or do not hold the rewards.
    """
    total = rewards.reshape(len(rewards), -1).sum(axis=1)
    if reward_range is None:
        return (0.0, float(rewards[0].size)) if np.isin(rewards, (0, 1)).all() else None
    low, high = (checks.real("reward_range", end) for end in checks.ordered("reward_range", reward_range, "a pair"))
    if not -np.inf < low <= total.min() <= total.max() <= high < np.inf or not low < high:
        raise ValueError(
            f"reward_range must be (low, high) that hold all rewards, {total.min():.6g} to {total.max():.6g}; "
            f"got {reward_range}"
        )
    return low, high


def extremes(reward: np.ndarray, known: Ends | None) -> Ends:
    """Rewards of an unseen row at either end: those of a known range, else the mean of those below or above the mean.

    `reward` (n,) holds those of the log.
    """
    mean = reward.mean()
    below, above = reward <= max(mean, reward.min()), reward >= min(mean, reward.max())  # the mean is rounded
    return known or (float(reward[below].mean()), float(reward[above].mean()))


def groups_of(groups: Any, count: int) -> np.ndarray | None:
    """(n,) numbers of the groups from 0; None without groups. Raises ValueError for another shape."""
    if groups is None:
        return None
    import pandas as pd

    labels = checks.entries("groups", groups)
    if labels.shape != (count,):
        raise ValueError(f"groups must name the group of each row, {(count,)}; got shape {labels.shape}")
    if (missing := np.asarray(pd.isna(labels))).any():
        row = int(missing.argmax())
        raise ValueError(f"groups, row {row}: {labels[row]!r} is no label: give rows without a group one of their own")
    return pd.factorize(labels)[0]


def _biases(given: Evidence, found: Reach, unplayed: np.ndarray, never: float, margin: float) -> Iterator[str]:
    log, w, unsupported = given.log, given.weights, found.unsupported
    if not w.any():
        yield (
            "the log has no support for the policy: in no row would the policy play the logged action; estimators by "
            "weights are unknown (NaN), doubly robust ones rest on the model alone"
        )
        return
    if unsupported > RARE and never > 0.5 * unsupported:
        listed = ", ".join(map(log.name, unplayed[:5])) + (", ..." if len(unplayed) > 5 else "")
        yield (
            f"the log supports only a part of the policy, which plays with {never:.1%} probability actions "
            f"that no row has ({listed}): IPS counts these decisions as rewards of 0, SNIPS and Replay leave them out, "
            "estimators with a model rest on it in them"
        )
    elif found.off:
        yield (
            f"the mean weight is {w.mean():.3f} and should be 1 within {margin:.3f}: the propensities are not "
            "those of the logging policy, or the log supports only a part of the policy"
        )
    elif unsupported > RARE:
        yield f"the log supports only a part of the policy: it never makes {unsupported:.1%} of the decisions"


def repeats(log: Log) -> Iterator[str]:
    """A warning if rows repeat others more often than chance.

    Compared are actions of one context, one row after the other: the second is the first with a probability of at most
    the first's propensity, on average, or its share of the rows, if propensities are wrong. And rewards of equal parts.
    """
    count = len(log)
    if not log.known_propensities or log.estimated or count < 2:
        return
    place = log.context @ np.cos(np.arange(log.context.shape[1]) + 1.0)  # equal for equal contexts
    found, alike = [], _alike(log.reward)
    if (np.diff(np.sort(place)) == 0).any():
        order = np.argsort(place, kind="stable")
        near = place[order[:-1]] == place[order[1:]]
        first, second = order[:-1][near], order[1:][near]
        chance = np.maximum(log.propensity, _alike(log.action))[first]
        same = np.count_nonzero(log.action[first] == log.action[second])
        found.append((same, len(first), chance.sum(), (chance * (1 - chance)).sum()))
    for parts in (2, 3, 4, 5):
        if count % parts == 0:
            rows = count - count // parts
            same = np.count_nonzero(log.reward[:rows] == log.reward[-rows:])
            found.append((same, rows, alike * rows, alike * (1 - alike) * rows))
    for same, rows, expected, variance in found:
        if same > expected + SIGMAS * (np.sqrt(variance) + 1) + 0.02 * rows:
            yield (
                f"{same:,} of {rows:,} rows repeat an earlier one of the same context or place, where chance "
                f"lets expect {expected:,.0f}: rows may be there twice (drop duplicates, or name their key, "
                "Log.from_pandas(key=...)), or one draw may stand for many rows (pass groups=)"
            )
            return


def _alike(values: np.ndarray) -> float:
    """Probability that two rows have the same value."""
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return float(shares @ shares)


def _unplayed(log: Log) -> np.ndarray:
    return np.setdiff1d(np.arange(log.num_actions), log.action)


def _telling(reward: np.ndarray, w: np.ndarray) -> float:
    """Effective number of rows whose reward is not the one that most rows have."""
    _, place, times = np.unique(reward[w > 0], return_inverse=True, return_counts=True)
    usual = times.argmax()
    rows = np.where(place == usual, 0.0, w[w > 0]) if times[usual] > 0.5 * len(place) else w[w > 0]
    return _effective(rows)


def of_weights(w: np.ndarray, unsupported: float, share: float, member: np.ndarray | None) -> Overlap:
    """The overlap by weights (n,) alone; of the rows that have one, at least a share must be effective."""
    count, size = len(w), float(np.abs(w).sum())
    together = w if member is None else np.bincount(member, w)
    effective = _effective(together)
    largest, near = float(np.abs(w).max()), np.count_nonzero(w)
    worth = _worth(count, effective)
    words, rare = list(biases_of_weights(w, unsupported)), max(ENOUGH, share * min(near, len(together)))
    if hardly := effective < rare or largest > 0.05 * size:
        words.append(f"the log hardly overlaps with the policy: {worth}; intervals are wide")
        words.append(f"one row has {largest / size if size else 1:.0%} of all weight")
    if not size:
        verdict = "The log cannot decide about this policy: it never played what the policy would play."
    elif unsupported > RARE:
        verdict = (
            f"The log decides only in part: {unsupported:.1%} of the policy's decisions are unlike all of its own."
        )
    elif abs(w.mean() - 1) > 4 * standard_error(w) + checks.TOLERANCE:
        verdict = "The log decides only in part: weights show that it leaves out decisions of the policy."
    elif hardly:
        verdict = f"The log hardly decides: {worth}; only a large difference would show."
    else:
        verdict = f"The log can decide about this policy: {worth}."
    mean, error = float(w.mean()), standard_error(w)
    return Overlap(count, effective, largest, mean, error, unsupported, effective / count, 0.0, tuple(words), verdict)


def biases_of_weights(w: np.ndarray, unsupported: float) -> Iterator[str]:
    """Sources of bias that weights (n,) and a share of unsupported decisions show."""
    if not w.any():
        yield "the log has no support for the policy: no row has a weight"
    elif unsupported > RARE:
        yield (
            f"the log supports only a part of the policy: {unsupported:.1%} of its decisions are unlike all that were "
            "logged"
        )
    elif abs(w.mean() - 1) > (margin := 4 * standard_error(w)) + checks.TOLERANCE:
        yield (
            f"the mean weight is {w.mean():.3f} and should be 1 within {margin:.3f}: the propensities are not those of "
            "the logging policy, or the log supports only a part of the policy"
        )


def _worth(count: int, effective: float) -> str:
    return f"{counted(count, 'row')} {'is' if count == 1 else 'are'} worth {effective:,.1f} of the policy's own"


def _effective(w: np.ndarray) -> float:
    return float(w.sum() ** 2 / (w**2).sum()) if w.any() else 0.0


def _weakest(log: Log, w: np.ndarray) -> float:
    spread = np.ptp(log.context, axis=0) if log.context.shape[1] else np.zeros(0)
    if len(w) < 10 * _CLUSTERS or not (spread > 0).any():
        return _effective(w) / len(w)
    x = log.context[:, spread > 0]
    member = _clusters((x - x.mean(axis=0)) / x.std(axis=0))
    return min(_effective(w[member == one]) / int((member == one).sum()) for one in np.unique(member))


def _clusters(x: np.ndarray) -> np.ndarray:
    """(n,) the nearest of the centers that k-means finds in a sample, started as by k-means++."""
    sample, generator = x[:: max(1, len(x) // 10_000)], np.random.default_rng(0)
    centers = sample[:1]
    for _ in range(_CLUSTERS - 1):
        far = np.maximum(_distances(sample, centers).min(axis=1), 0.0).cumsum()
        drawn = min(int(np.searchsorted(far, generator.random() * far[-1])), len(sample) - 1)
        centers = np.concatenate([centers, sample[[drawn]]])
    for _ in range(_STEPS):
        member = _distances(sample, centers).argmin(axis=1)
        found = np.unique(member)
        centers = np.stack([sample[member == one].mean(axis=0) for one in found])
    return _distances(x, centers).argmin(axis=1)


def _distances(x: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """(n, c) squared."""
    return (x**2).sum(axis=1, keepdims=True) - 2 * x @ centers.T + (centers**2).sum(axis=1)


def _miscalibration(log: Log) -> float:
    times, allowed = np.bincount(log.action, minlength=log.num_actions), log.mask.sum(axis=0)
    excess, capital = 1 / log.propensity - 1, []
    for bet in _BETS:
        won = np.bincount(log.action, np.log1p(bet * excess), minlength=log.num_actions)
        capital.append(won + (allowed - times) * np.log1p(-bet))
    evidence = np.logaddexp.reduce(capital, axis=0).max() - np.log(len(_BETS) * log.num_actions)
    return float(np.sqrt(2 * max(evidence, 0.0)))
