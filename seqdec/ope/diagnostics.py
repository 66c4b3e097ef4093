"""How well a log covers a policy."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.introspection import counted
from seqdec.ope.contract import evidence
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
_BEYOND = "never made by the logging policy"
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
    """Overlap of a log and a target policy: effective sample size, weights, calibration and verdict.

    A log can decide with at least 30 effective rows, in as many groups, ten of them with an unusual reward, and if
    support, propensities, and the tails of weights and rewards allow it.

    Arguments and errors as in `seqdec.ope.evaluate`.
    """
    return overlap_seen(evidence(log, target, seed=0), reward_range, groups)


@functools.singledispatch
def overlap_seen(given: Any, reward_range: Ends | None, groups: Any) -> Overlap:
    """Of the evidence."""
    return overlap_of(given, range_of(reward_range, given.log.reward), groups_of(groups, len(given.log)))


def overlap_of(given: Any, known: Ends | None, member: np.ndarray | None, support: "Support | None" = None) -> Overlap:
    """Of the evidence, the range of its rewards and the groups of its rows; `support`: of the log that it samples."""
    log, found = given.log, reach(given) if support is None else reach_of(given, support)
    weights = weights_of(found.weights) if support is None else support.weights
    count, times, nan = weights.rows, weights.rows / len(log), float("nan")
    w, off, telling = found.weights, 0.0, np.inf
    if not log.known_propensities:
        unknown = (
            "the log has no propensities: only the direct method is possible, and it rests on the model alone; its "
            "interval does not include the error of the model"
        )
        verdict = "The log alone cannot decide: without propensities estimates rest on the model."
        return Overlap(count, nan, nan, nan, nan, found.unsupported, nan, nan, (unknown,), verdict)
    effective = found.effective if member is None else min(found.effective, _effective(np.bincount(member, w)))
    worth, weakest = _worth(count, effective), effective / count
    words = [_ESTIMATED] * log.estimated + [*found.warnings]
    if isinstance(log, Log):
        off, weakest, telling = _miscalibration(log), _weakest(log, w), times * _telling(log.reward, w)
        words += repeats(log) if member is None else ()
    few = bool(w.any() and effective < ENOUGH)
    hardly = few and effective < 0.5 * count
    if few:
        words.append(
            f"the log hardly overlaps with the policy: {worth}; intervals are wide"
            if hardly
            else f"the log is short: {worth}; intervals are rough"
        )
    largest, size = weights.largest, times * float(np.abs(w).sum())
    if largest > 0.1 * size and effective < 0.5 * count:
        words.append(f"one row has {largest / size if size else 1:.0%} of all weight")
    if w.any() and off > SIGMAS:
        words.append(
            f"the propensities of an action are too small for its share of the rows, by {off:.1f} standard errors: "
            "they are not those of the logging policy"
        )
    reward = log.reward.reshape(len(log), -1).sum(axis=1)
    verdict = _verdict(found, reward, telling, off, worth, few, hardly, known, member)
    return Overlap(
        count,
        float(effective),
        largest,
        weights.mean,
        weights.error,
        found.unsupported,
        float(weakest),
        off,
        tuple(words),
        verdict,
    )


def _verdict(
    found: "Reach",
    reward: np.ndarray,
    telling: float,
    off: float,
    worth: str,
    few: bool,
    hardly: bool,
    known: Ends | None,
    member: np.ndarray | None,
) -> str:
    w = found.weights
    if not w.any():
        return "The log cannot decide about this policy: it never played what the policy would play."
    if off > SIGMAS:
        return "Do not decide by this log before its propensities are put right: they do not fit the actions."
    if found.unsupported > RARE:
        return f"The log decides only in part: {found.unsupported:.1%} of the policy's decisions are {found.beyond}."
    if found.off:
        return "The log decides only in part: weights show that it leaves out decisions of the policy."
    if member is not None and (size := int(member.max()) + 1) < ENOUGH:
        return f"The log is too short to decide: its rows are of {size} groups only."
    if hardly:
        remedy = "log with more random choices, as by policy='epsilon_greedy'"
        return f"The log hardly decides: {worth}; only a large difference would show. Remedy: {remedy}."
    if few:
        return f"The log is too short to decide: {worth}."
    if found.missing > RARE:
        return f"The log hardly decides: rows with {found.missing:.1%} of the weight seem to be missing."
    if telling < _TELLING:
        return f"The log is too short to decide: only {telling:.1f} effective rows have another reward than most."
    if known is None and not all(tail.light for tail in tails(Terms(w * reward, w))):
        return "The log hardly decides: a few large rewards may change the mean; pass reward_range= if it is known."
    return f"The log can decide about this policy: {worth}."


class Reach(NamedTuple):
    """How far the rows of a log reach the decisions of a policy."""

    weights: np.ndarray
    """(n,) of the rows"""
    effective: float = float("nan")
    """rows of the policy's own that the log is worth"""
    weight: float = float("nan")
    """E[w^2], the mean weight of the policy's decisions; NaN if unknown"""
    unsupported: float = 0.0
    """share of the decisions that the logging policy never makes"""
    missing: float = 0.0
    """share of the decisions that no row stands for: `unsupported`, or what the mean weight lacks, beyond two errors if
    the tail of the weights is light
    """
    off: bool = False
    """whether the mean weight is not 1; if the whole logging law is known, a smaller one is chance"""
    beyond: str = ""
    """what unsupported decisions are"""
    warnings: tuple[str, ...] = ()
    """sources of bias"""


class Weights(NamedTuple):
    """Of the weights of all rows."""

    rows: int
    mean: float
    error: float
    """of the mean"""
    square: float
    """mean square"""
    largest: float

    @property
    def effective(self) -> float:
        """Effective sample size: the number of equally weighted rows with the same variance."""
        return self.rows * self.mean**2 / self.square if self.square else 0.0

    @property
    def margin(self) -> float:
        """Distance of the mean from 1 that chance may explain, also under a few large weights."""
        return 4 * self.error + 3 * self.largest / self.rows + checks.TOLERANCE


class Support(NamedTuple):
    """What all rows tell about the reach of a policy."""

    weights: Weights
    played: np.ndarray
    """(k,) rows of each action"""
    others: float
    """sum of 1 - p"""
    certain: float
    """share of the decisions that would be others where the logged one was certain"""
    never: float | None
    """share of the decisions that the logging law never makes; None if it is unknown"""


def weights_of(w: np.ndarray) -> Weights:
    """Of weights (n,)."""
    return Weights(len(w), float(w.mean()), standard_error(w), float(np.mean(w**2)), float(np.abs(w).max()))


def support_of(given: Any) -> Support:
    """Of evidence of discrete actions with propensities."""
    log, w, law = given.log, given.weights, given.target.probabilities
    logging = log.logging if len(law) else None
    return Support(
        weights_of(w),
        np.bincount(log.action, minlength=log.num_actions),
        float((1 - log.propensity).sum()),
        float(np.where(log.propensity > 1 - checks.TOLERANCE, 1 - w * log.propensity, 0.0).mean()),
        None if logging is None else float(np.where(logging > 0, 0.0, law).sum(axis=1).mean()),
    )


@functools.singledispatch
def reach(given: Any) -> Reach:
    """By the whole logging law if it is known, else by the weights."""
    if not given.log.known_propensities:
        return Reach(
            given.weights, unsupported=float(given.law[np.setdiff1d(np.arange(len(given.law)), given.log.action)].sum())
        )
    return reach_of(given, support_of(given))


def reach_of(given: Any, support: Support) -> Reach:
    """Of the rows of the support, of which `given` may be a sample."""
    log, w, usual, known = given.log, given.weights, given.usual_weight, support.weights
    unplayed = np.flatnonzero(support.played == 0)
    never = float(given.law[unplayed].sum())
    listed = ", ".join(map(log.name, unplayed[:5])) + (", ..." if len(unplayed) > 5 else "")
    if support.never is not None:
        off = known.mean - 1 > known.margin
        effective = known.rows / usual if known.largest else 0.0
        found = Reach(w, effective, usual, support.never, support.never, off)
    else:
        certain, lacking = support.certain, 1 - known.mean
        plays = support.others / max(log.num_actions - 1, 1)  # of each action, if equally often
        chance = lacking <= never / 2 and never <= 5 * np.exp(-plays)
        unsupported = max(certain if certain > checks.TOLERANCE else 0.0, 0.0 if chance else never)
        if lacking - certain > known.margin:
            unsupported = max(unsupported, lacking)
        found = by_weights(w, unsupported, known)
        effective = min(found.effective, known.rows / usual if usual else np.inf)
        found = found._replace(effective=effective, weight=max(usual, known.square))
    unseen = found.unsupported > 0 and never > 0.5 * found.unsupported
    return _told(found._replace(beyond=f"actions that no row has ({listed})" if unseen else _BEYOND), known)


def by_weights(w: np.ndarray, unsupported: float, known: Weights | None = None) -> Reach:
    """By weights (n,), of all rows or a sample of `known`, and an unsupported share of the decisions."""
    known = known or weights_of(w)
    light = tails(Terms(w, np.ones_like(w)))[1].light  # else the error is too small where the heaviest rows lack
    lacking = 1 - known.mean - (2 * np.nan_to_num(known.error) if light else 0.0)
    missing = max(unsupported, float(lacking) if lacking > checks.TOLERANCE else 0.0)
    off = abs(known.mean - 1) > known.margin
    found = Reach(w, known.effective, float("nan"), unsupported, missing, off, "unlike all that were logged")
    return _told(found, known)


def _told(found: Reach, known: Weights) -> Reach:
    """With the sources of bias in words."""
    told = ()
    if not known.largest:
        told = (
            "the log has no support for the policy: in no row would the policy play what was logged; estimators by "
            "weights are unknown (NaN), doubly robust ones rest on the model alone",
        )
    elif found.off and (found.unsupported <= RARE or found.beyond == _BEYOND):
        why = (
            "the propensities are too small: they are not those of the logging policy"
            if known.mean > 1
            else "the log supports only a part of the policy, perhaps by chance, or the propensities are too large"
        )
        told = (f"the mean weight is {known.mean:.3f} and should be 1 within {known.margin:.3f}: {why}",)
    elif found.unsupported > RARE:
        told = (
            f"the log supports only a part of the policy: {found.unsupported:.1%} of its decisions are {found.beyond}: "
            "IPS counts them as rewards of 0, SNIPS and Replay leave them out, estimators with a model rest on it in "
            "them",
        )
    return found._replace(warnings=told)


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

    return pd.factorize(labels_of("groups", groups, count))[0]


def labels_of(name: str, given: Any, count: int) -> np.ndarray:
    """(n,) labels of rows. Raises ValueError for another shape, or a missing one."""
    import pandas as pd

    labels = checks.entries(name, given)
    if labels.shape != (count,):
        raise ValueError(f"{name} must name the group of each row, {(count,)}; got shape {labels.shape}")
    if (missing := np.asarray(pd.isna(labels))).any():
        row = int(missing.argmax())
        raise ValueError(
            f"{name}, row {row}: {labels[row]!r} is not a label: give each row without a group its own label"
        )
    return labels


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


def _telling(reward: np.ndarray, w: np.ndarray) -> float:
    """Effective number of rows whose reward is not the one that most rows have."""
    if not w.any():
        return 0.0
    _, place, times = np.unique(reward[w > 0], return_inverse=True, return_counts=True)
    usual = times.argmax()
    rows = np.where(place == usual, 0.0, w[w > 0]) if times[usual] > 0.5 * len(place) else w[w > 0]
    return _effective(rows)


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
