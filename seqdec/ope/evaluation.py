"""Estimates with bootstrap intervals, and the overlap of the log with the target policy."""

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from seqdec import checks
from seqdec.ope import estimators
from seqdec.ope.estimators import Predicted, Target, Terms
from seqdec.ope.log import Log

if TYPE_CHECKING:
    import pandas as pd

_CHUNK = 2**22
"""Resampled rows held at a time."""
_ENOUGH = 30
"""Effective sample size from which on 95% intervals cover: 86% or more of them in simulations, 16% to 90% below 10."""


class Overlap(NamedTuple):
    """How much the data of a log inform about another policy."""

    rows: int
    """Decisions in the log."""
    effective_sample_size: float
    """(sum w)^2 / sum w^2: the number of rows logged by the target itself that would be as informative; like all that
    follows from weights, NaN for a log without propensities."""
    largest_weight: float
    """Of the rows."""
    mean_weight: float
    """1 up to sampling error if propensities and target are right and every action has a propensity above 0"""
    mean_weight_error: float
    """standard error of the mean weight"""
    warnings: tuple[str, ...]
    """Reasons to distrust the estimates, in words; empty where none is found."""


MARK = "propensities"
"""The column of `evaluate` that marks estimated propensities."""
_ESTIMATED = (
    "the propensities are estimates: if the logging policy used what the context does not hold, all estimators but the "
    "direct method are biased"
)
_RARE = 0.01
"""Probability of actions that no row has, up to which chance may have left them out."""


def overlap(log: Log, target: np.ndarray | Target) -> Overlap:
    """Effective sample size and weights, with warnings in words. Arguments and errors as in `check_target`.

    The log hardly overlaps with the policy where its rows are worth fewer than 30, or than 1% of them, because weights
    differ. Where it is worth fewer than 30 because it has few rows, it is called short.
    """
    target = estimators.check_target(log, target)
    w = target.weights
    if not log.known_propensities:
        unknown = (
            "the log has no propensities: only the direct method is possible, and it rests on the model alone; its "
            "interval does not include the error of the model"
        )
        nan = float("nan")
        return Overlap(len(w), nan, nan, nan, nan, (unknown,))
    count, total = len(w), w.sum()
    effective = float(total**2 / (w**2).sum()) if total else 0.0
    worth = f"{count:,} rows are worth {effective:,.1f} of the policy's own"
    words = [_ESTIMATED, *_biases(log, target)] if log.estimated else list(_biases(log, target))
    if total and effective < max(_ENOUGH, 0.01 * count):
        if effective < 0.5 * count:
            words.append(f"the log hardly overlaps with the policy: {worth}; trust no interval")
        else:
            words.append(f"the log is short: {worth}; intervals are rough")
    if w.max() > 0.1 * total and effective < 0.5 * count:
        words.append(f"one row has {w.max() / total:.0%} of all weight")
    return Overlap(count, effective, float(w.max()), float(w.mean()), _error(w), tuple(words))


def _biases(log: Log, target: Target) -> Iterator[str]:
    """In words, why estimates by weights may be wrong however many rows the log has."""
    w = target.weights
    if not w.any():
        yield (
            "the log has no support for the policy: in no row would the policy play the logged action; ips, snips, "
            "clipped_ips and replay are unknown (NaN), doubly_robust and switch_dr rest on the model alone"
        )
        return
    never = np.setdiff1d(np.arange(log.num_actions), log.action)
    share = target.probabilities[:, never].sum(axis=1).mean()
    if share > _RARE:
        listed = ", ".join(map(log.name, never[:5])) + (", ..." if len(never) > 5 else "")
        yield (
            f"the log supports only a part of the policy, which plays with {share:.1%} probability actions that no row "
            f"has ({listed}): ips and clipped_ips count these decisions as rewards of 0, snips and replay leave them "
            "out, the other estimators rest on the model in them"
        )
    elif abs(w.mean() - 1) > 4 * _error(w) + checks.TOLERANCE:
        yield (
            f"the mean weight is {w.mean():.3f} and should be 1 within {4 * _error(w):.3f}: the propensities are not "
            "those of the logging policy, or the log supports only a part of the policy"
        )


def _error(w: np.ndarray) -> float:
    """Standard error of the mean weight; NaN for one row."""
    return float(w.std(ddof=1) / np.sqrt(len(w))) if len(w) > 1 else float("nan")


def evaluate(
    log: Log,
    target: np.ndarray | Target,
    predicted: np.ndarray | Predicted | None = None,
    *,
    seed: int,
    samples: int = 1000,
    level: float = 0.95,
    max_weight: float = 10.0,
    threshold: float = 10.0,
) -> "pd.DataFrame":
    """Every estimate of the target's mean reward per decision, with bootstrap intervals.

    Args:
        log: decisions of the logging policy.
        target: (n, k) probabilities of the policy to be evaluated, given each row's context.
        predicted: (n, k) rewards predicted by a model that was not fitted to the row; None omits the estimators that
            need it. Needed for a log without propensities, of which there is the direct method alone.
        seed: of the bootstrap and of replay.
        samples: bootstrap samples; rows are drawn with replacement and predictions are kept fixed, so that the
            interval of the direct method does not include the error of the model, which may be all of its error.
        level: of the intervals, between the quantiles (1 - level) / 2 and (1 + level) / 2 of the bootstrap.
        max_weight: weight at which clipped IPS clips.
        threshold: weight above which SWITCH-DR uses the model alone.

    Returns:
        A table indexed by estimator: value, low, high, std_error. NaN is unknown: without support, that is where the
        policy would play the logged action in no row, estimators by weights say nothing. Where propensities are
        estimates, a column "propensities" says so of each estimator.

    Warns:
        UserWarning: the log has no support for the policy or only a part of it, or a mean weight that is not 1; see
            `overlap`, which also warns of wide intervals and of estimated propensities.

    Raises:
        TypeError: a target or predictions that are not numbers.
        ValueError: arrays that do not fit the log, a setting out of its range, or a log without propensities where no
            predictions are given.
    """
    import pandas as pd

    samples = checks.count("samples", samples, 2)
    checks.number("level", level, 0, 1, exclusive=True)
    target = estimators.check_target(log, target)
    settings = {"seed": seed, "max_weight": max_weight, "threshold": threshold}
    if predicted is not None:
        settings["predicted"] = estimators.check_predicted(log, predicted)
    terms = _all_terms(log, target, settings)
    if not terms:
        estimators.weights(log, target)  # raises
    drawn = bootstrap(list(terms.values()), seed=seed, samples=samples)
    for text in _biases(log, target) if log.known_propensities else ():
        warnings.warn(text, stacklevel=2)
    rows = [(term.value, *_interval(column, level)) for term, column in zip(terms.values(), drawn.T, strict=True)]
    names = pd.Index(list(terms), name="estimator")
    table = pd.DataFrame(rows, index=names, columns=["value", "low", "high", "std_error"])
    if log.estimated:
        table[MARK] = ["estimated" if estimators.ESTIMATORS[name].weighted else "not used" for name in terms]
    return table


def _interval(drawn: np.ndarray, level: float) -> tuple[float, float, float]:
    """Ends of the interval and standard deviation of the bootstrap samples, NaN left out; NaN without two others."""
    known = drawn[~np.isnan(drawn)]
    if len(known) < 2:
        return float("nan"), float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high), float(known.std(ddof=1))


def _all_terms(log: Log, target: Target, settings: dict) -> dict[str, Terms]:
    """Terms of the registered estimators for which the log has propensities and `settings` the predictions."""
    return {
        name: estimators.REGISTRY.make(name, log, target, **{key: settings[key] for key in row.takes})
        for name, row in estimators.ESTIMATORS.items()
        if set(row.takes) <= set(settings) and (log.known_propensities or not row.weighted)
    }


def bootstrap(terms: list[Terms], *, seed: int, samples: int = 1000) -> np.ndarray:
    """(samples, number of estimates) estimates from rows drawn with replacement, the same rows for all of them."""
    count, generator = len(terms[0].numerator), np.random.default_rng(checks.seed("seed", seed))
    numerators, denominators = (np.stack(parts, axis=1) for parts in zip(*terms, strict=True))
    chances, drawn = np.full(count, 1 / count), []
    for start in range(0, samples, step := max(1, _CHUNK // count)):
        times = generator.multinomial(count, chances, min(step, samples - start)).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):  # NaN if no row was accepted; ignored by the quantiles
            drawn.append((times @ numerators) / (times @ denominators))
    return np.concatenate(drawn)
