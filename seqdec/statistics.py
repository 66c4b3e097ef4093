"""Means over seeds with 95% intervals."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def mean_and_margin(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean over the first axis and half-width of its 95% t-interval, t(0.975, n - 1) s / sqrt(n); NaN for n = 1."""
    from scipy import special

    samples = np.asarray(samples, float)
    count = len(samples)
    if count == 1:
        return samples[0], np.full(samples.shape[1:], np.nan)
    quantile = special.stdtrit(count - 1, 0.975)
    return samples.mean(axis=0), quantile * samples.std(axis=0, ddof=1) / np.sqrt(count)


def standard_error(values: np.ndarray) -> float:
    """S / sqrt(n) of (n,) values; NaN for n = 1."""
    count = len(values)
    return float(values.std(ddof=1) / np.sqrt(count)) if count > 1 else float("nan")


def summarized(samples: Mapping[str, Any]) -> dict[str, float]:
    """The row of a table: the mean of each sample by its name, and the half-width by "NAME_95"."""
    row = {}
    for name, values in samples.items():
        mean, margin = mean_and_margin(np.asarray(values, float))
        row |= {name: float(mean), f"{name}_95": float(margin)}
    return row


def percent(parts: np.ndarray, wholes: np.ndarray) -> np.ndarray:
    """100 parts / wholes; NaN where the whole is 0."""
    return 100 * np.divide(parts, wholes, out=np.full(np.shape(wholes), np.nan), where=np.not_equal(wholes, 0))


def with_margin(means: np.ndarray, margins: np.ndarray) -> list[str]:
    """Strings as "1,234 ± 56", without a margin of NaN; "-" for a NaN mean."""
    means, margins = np.asarray(means), np.asarray(margins)
    largest = np.abs(means[np.isfinite(means)]).max(initial=0.0)
    digits = 0 if largest >= 1000 else 1 if largest >= 10 else 3
    return [
        "-" if np.isnan(mean) else f"{mean:,.{digits}f}" + ("" if np.isnan(margin) else f" ± {margin:,.{digits}f}")
        for mean, margin in zip(means, margins, strict=True)
    ]


def column_text(table: "pd.DataFrame", name: str, unit: float = 1.0) -> list[str]:
    """`with_margin` of the columns NAME and NAME_95, in multiples of `unit`."""
    return with_margin(unit * table[name].to_numpy(float), unit * table[f"{name}_95"].to_numpy(float))
