"""Overlap of a log with a policy."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from seqdec.boundary import checks
from seqdec.ope.contract import Evidence, Target, check_target
from seqdec.ope.log import Log, check_log
from seqdec.statistics import standard_error

_ENOUGH = 30
"""Least effective sample size to decide by."""
RARE = 0.01
"""Probability of unseen actions that chance may explain."""
_CLUSTERS = 5
SIGMAS = 5.0
_ESTIMATED = (
    "the propensities are estimates: if the logging policy used what the context does not hold, all estimators but the "
    "direct method are biased"
)


class Overlap(NamedTuple):
    """A log's information about a policy; NaN without propensities."""

    rows: int
    """decisions of the log"""
    effective_sample_size: float
    """(sum w)^2 / sum w^2, in rows logged by the target itself"""
    largest_weight: float
    """of the weights w = target / propensity"""
    mean_weight: float
    """1 up to sampling error if propensities and target are right and every propensity is above 0"""
    mean_weight_error: float
    """standard error of the mean weight"""
    unsupported: float
    """mean probability of the target's actions that no row has"""
    weakest_cluster: float
    """smallest effective sample size per row in five clusters of contexts, else of all rows"""
    miscalibration: float
    """largest standardized excess over actions of the mean of 1[a_i = a] / p_i over the share of rows that allow a;
    below 5 if propensities are right
    """
    warnings: tuple[str, ...]
    """reasons to distrust the estimates"""
    verdict: str
    """whether the log can decide about the policy"""


@functools.singledispatch
def overlap(log: Any, target: Any) -> Overlap:
    """Effective sample size, weights, calibration and verdict.

    At least 30 effective rows and 1% of the rows are needed. Arguments and errors as in `seqdec.ope.evidence`.
    """
    check_log(log)  # raises
    raise NotImplementedError


@overlap.register
def _of_actions(log: Log, target: np.ndarray | Target) -> Overlap:
    target = check_target(log, target)
    w, count, never = target.weights, len(log.action), np.setdiff1d(np.arange(log.num_actions), log.action)
    unsupported = float(target.probabilities[:, never].sum(axis=1).mean())
    if not log.known_propensities:
        unknown = (
            "the log has no propensities: only the direct method is possible, and it rests on the model alone; its "
            "interval does not include the error of the model"
        )
        nan = float("nan")
        verdict = "The log alone cannot decide: without propensities estimates rest on the model."
        return Overlap(count, nan, nan, nan, nan, unsupported, nan, nan, (unknown,), verdict)
    told = list(_biases(log, w, target.probabilities.mean(axis=0)))
    total, effective = w.sum(), _effective(w)
    worth = f"{count:,} rows are worth {effective:,.1f} of the policy's own"
    words = [_ESTIMATED, *told] if log.estimated else told
    hardly = short = False
    if total and effective < max(_ENOUGH, 0.01 * count):
        hardly = effective < 0.5 * count
        short = not hardly
        words.append(
            f"the log hardly overlaps with the policy: {worth}; intervals are wide"
            if hardly
            else f"the log is short: {worth}; intervals are rough"
        )
    if w.max() > 0.1 * total and effective < 0.5 * count:
        words.append(f"one row has {w.max() / total:.0%} of all weight")
    weakest, off = _weakest(log, w), _miscalibration(log)
    if total and off > SIGMAS:
        words.append(
            f"the propensities of an action are too small for its share of the rows, by {off:.1f} standard errors: "
            "they are not those of the logging policy"
        )
    if not total:
        verdict = "The log cannot decide about this policy: it never played what the policy would play."
    elif off > SIGMAS:
        verdict = "Do not decide by this log before its propensities are put right: they do not fit the actions."
    elif unsupported > RARE:
        verdict = (
            f"The log decides only in part: {unsupported:.1%} of the policy's decisions are actions it never played."
        )
    elif abs(w.mean() - 1) > 4 * standard_error(w) + checks.TOLERANCE:
        verdict = "The log decides only in part: weights show that it leaves out decisions of the policy."
    elif hardly:
        verdict = f"The log hardly decides: {worth}; only a large difference would show."
    elif short:
        verdict = f"The log is too short to decide: {worth}."
    else:
        verdict = f"The log can decide about this policy: {worth}."
    return Overlap(
        count,
        effective,
        float(w.max()),
        float(w.mean()),
        standard_error(w),
        unsupported,
        weakest,
        off,
        tuple(words),
        verdict,
    )


@functools.singledispatch
def biases(evidence: Any) -> Iterator[str]:
    """Sources of bias of estimates from the evidence."""
    return iter(())


@biases.register
def _of_evidence(evidence: Evidence) -> Iterator[str]:
    known = evidence.log.known_propensities
    return _biases(evidence.log, evidence.weights, evidence.law) if known else iter(())


def _biases(log: Log, w: np.ndarray, law: np.ndarray) -> Iterator[str]:
    """Sources of bias, for weights w (n,) and a target's law (k,)."""
    if not w.any():
        yield (
            "the log has no support for the policy: in no row would the policy play the logged action; estimators by "
            "weights are unknown (NaN), doubly robust ones rest on the model alone"
        )
        return
    never = np.setdiff1d(np.arange(len(law)), log.action)
    share = law[never].sum()
    if share > RARE:
        listed = ", ".join(map(log.name, never[:5])) + (", ..." if len(never) > 5 else "")
        yield (
            f"the log supports only a part of the policy, which plays with {share:.1%} probability actions that no row "
            f"has ({listed}): IPS counts these decisions as rewards of 0, SNIPS and Replay leave them out, "
            "estimators with a model rest on it in them"
        )
    elif abs(w.mean() - 1) > (margin := 4 * standard_error(w)) + checks.TOLERANCE:
        yield (
            f"the mean weight is {w.mean():.3f} and should be 1 within {margin:.3f}: the propensities are not those of "
            "the logging policy, or the log supports only a part of the policy"
        )


def of_weights(w: np.ndarray, unsupported: float, told: Iterable[str], share: float, groups: Any = None) -> Overlap:
    """The overlap by weights (n,) alone; of the rows that have one, at least a share must be effective."""
    count, size = len(w), float(np.abs(w).sum())
    together = w if groups is None else np.bincount(np.unique(groups, return_inverse=True)[1], w)
    effective = _effective(together)
    largest, near = float(np.abs(w).max()), np.count_nonzero(w)
    worth = f"{count:,} rows are worth {effective:,.1f} of the policy's own"
    words, rare = list(told), max(_ENOUGH, share * min(near, len(together)))
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


def _effective(w: np.ndarray) -> float:
    return float(w.sum() ** 2 / (w**2).sum()) if w.any() else 0.0


def _weakest(log: Log, w: np.ndarray) -> float:
    spread = np.ptp(log.context, axis=0) if log.context.shape[1] else np.zeros(0)
    if len(w) < 10 * _CLUSTERS or not (spread > 0).any():
        return _effective(w) / len(w)
    from sklearn.cluster import MiniBatchKMeans
    from threadpoolctl import threadpool_limits

    x = log.context[:, spread > 0]
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    sample = x[:: max(1, len(x) // 10_000)]
    with threadpool_limits(1):
        clusters = MiniBatchKMeans(_CLUSTERS, random_state=0).fit(sample)
        member = clusters.predict(x)
    return min(_effective(w[member == one]) / int((member == one).sum()) for one in np.unique(member))


def _miscalibration(log: Log) -> float:
    count = len(log.action)
    inverse = np.bincount(log.action, 1 / log.propensity, minlength=log.num_actions)
    squares = np.bincount(log.action, 1 / log.propensity**2, minlength=log.num_actions)
    told = np.bincount(log.action, minlength=log.num_actions) >= _ENOUGH
    error = np.sqrt(np.maximum(squares - inverse**2 / count, 0))
    above = (inverse - log.mask.sum(axis=0))[told] / np.maximum(error[told], 1e-9 * count)
    return float(above.max(initial=0.0))
