"""Estimates with bootstrap intervals, and whether the log can tell at all."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from seqdec.ope import estimators
from seqdec.ope.estimators import Terms
from seqdec.ope.log import Log

_CHUNK = 2**22
"""Resampled rows held at a time."""


class Overlap(NamedTuple):
    """How much of a log speaks of another policy."""

    rows: int
    effective_size: float
    """(sum w)^2 / sum w^2: as many rows of the target's own log would be as exact."""
    largest_weight: float
    mean_weight: float
    """1 up to chance, where propensities and target are right and every action has a propensity above 0"""
    mean_weight_error: float
    """standard error of the mean weight"""
    warnings: tuple[str, ...]


def overlap(log: Log, target: np.ndarray) -> Overlap:
    """Effective size and weights, with warnings in words. `target` (n, k) as in `seqdec.ope.weights`."""
    w = estimators.weights(log, target)
    count, total = len(w), w.sum()
    effective = float(total**2 / (w**2).sum()) if total else 0.0
    error = float(w.std(ddof=1) / np.sqrt(count)) if count > 1 else float("nan")
    warnings = []
    if effective < max(100.0, 0.01 * count):
        warnings.append(
            f"the log hardly overlaps with the policy: {count:,} rows are worth {effective:,.1f}; trust no interval"
        )
    if abs(w.mean() - 1) > 4 * error:
        warnings.append(
            f"the mean weight is {w.mean():.3f} and should be 1 within {4 * error:.3f}: the propensities are not those "
            "of the logging policy, or the policy plays what the log never does"
        )
    if w.max() > 0.1 * total:
        warnings.append(f"one row has {w.max() / total:.0%} of all weight")
    return Overlap(count, effective, float(w.max()), float(w.mean()), error, tuple(warnings))


def evaluate(
    log: Log,
    target: np.ndarray,
    predicted: np.ndarray | None = None,
    *,
    seed: int,
    samples: int = 1000,
    level: float = 0.95,
    maximum: float = 10.0,
    threshold: float = 10.0,
) -> pd.DataFrame:
    """Every estimate of the target's mean reward per decision, with bootstrap intervals.

    Args:
        log: what another policy did.
        target: (n, k) probabilities of the policy to be valued, given each row's context.
        predicted: (n, k) rewards that a model predicts which was not fitted to the row; None leaves out the estimators
            that need it.
        seed: of the bootstrap and of replay.
        samples: bootstrap samples; rows are drawn with replacement, and predictions are kept as they are, so that the
            interval of the direct method leaves out the error of the model, which may be all of its error.
        level: of the intervals, between the quantiles (1 - level) / 2 and (1 + level) / 2 of the bootstrap.
        maximum: weight at which clipped IPS cuts.
        threshold: weight from which SWITCH-DR trusts the model alone.

    Returns:
        A table indexed by estimator: value, low, high, std_error.

    Raises:
        ValueError: arrays that do not fit the log, or a setting out of its range.
    """
    if samples < 2 or not 0 < level < 1:
        raise ValueError(f"samples must be at least 2 and level in (0, 1); got {samples} and {level}")
    terms = {
        "ips": estimators.ips(log, target),
        "snips": estimators.snips(log, target),
        "clipped_ips": estimators.clipped_ips(log, target, maximum=maximum),
        "replay": estimators.replay(log, target, seed=seed),
    }
    if predicted is not None:
        terms |= {
            "direct": estimators.direct(log, target, predicted),
            "doubly_robust": estimators.doubly_robust(log, target, predicted),
            "switch_dr": estimators.switch_dr(log, target, predicted, threshold=threshold),
        }
    drawn = bootstrap(list(terms.values()), seed=seed, samples=samples)
    low, high = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    values = [term.value for term in terms.values()]
    columns = {"value": values, "low": low, "high": high, "std_error": np.nanstd(drawn, axis=0, ddof=1)}
    return pd.DataFrame(columns, index=pd.Index(list(terms), name="estimator"))


def bootstrap(terms: list[Terms], *, seed: int, samples: int = 1000) -> np.ndarray:
    """(samples, number of estimates) estimates from rows drawn with replacement, the same rows for all of them."""
    count, generator = len(terms[0].numerator), np.random.default_rng(seed)
    numerators, denominators = (np.stack(parts, axis=1) for parts in zip(*terms, strict=True))
    chances, drawn = np.full(count, 1 / count), []
    for start in range(0, samples, step := max(1, _CHUNK // count)):
        times = generator.multinomial(count, chances, min(step, samples - start)).astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):  # no row accepted: not a number, and left out above
            drawn.append((times @ numerators) / (times @ denominators))
    return np.concatenate(drawn)
