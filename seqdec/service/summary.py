"""A summary of a service's log: periods, arms, drift."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from seqdec.ope import Terms
from seqdec.ope.arms import stable_terms
from seqdec.ope.diagnostics import range_of
from seqdec.ope.intervals import Ends, interval, unseen
from seqdec.service import diagnostics
from seqdec.service.logs import LOG
from seqdec.service.store import COLLECTED, REPORTED

_MISS = 0.05
_NAMED = 12
"""Most columns that are named."""


class Summary(NamedTuple):
    """Lines and tables of a log."""

    facts: tuple[str, ...]
    periods: pd.DataFrame
    """by period: start, decisions, known (share with a reward), reward, low, high (95%), least and mean propensity,
    entropy of the choices (nats; NaN for points)
    """
    arms: pd.DataFrame | None
    """by arm: decisions, shares in the first and last part, reward, low, high (95%), least propensity; None for points.

    The reward is what the arm would earn in all decisions, weighted by propensities where they are known:

        sum_t h_t 1[a_t = a] r_t / p_t  /  sum_t h_t 1[a_t = a] / p_t,  h_t^2 = share of a in 100 decisions before t

    The agent plays an arm less after bad luck, so that the plain mean is too low; h_t keeps the variance of the terms
    stable (Hadad, Hirshberg, Zhan, Wager, Athey, "Confidence intervals for policy evaluation in adaptive experiments",
    2021). It does not depend on the context of t, which would change what is estimated.
    """
    drift: pd.DataFrame
    """by context number, as in `diagnostics.drift`"""


def summary(history: Any, periods: int = 20, reward_range: tuple[float, float] | None = None) -> Summary:
    """The tables of a log with at least one decision.

    Raises ValueError for rewards outside the range.
    """
    rows, reward, source = len(history), history["reward"], history["source"]
    cuts = np.array_split(np.arange(rows), min(periods, rows))
    bounds = range_of(reward_range, reward.dropna().to_numpy()) if reward.notna().any() else reward_range
    times = pd.DataFrame([_period(history.iloc[cut], bounds) for cut in cuts]).rename_axis("period")
    first, last = diagnostics.parts(history)
    reported = history[source.isin([REPORTED, COLLECTED])]  # others come by themselves
    delay = (reported["reward_time"] - reported["time"]).dt.total_seconds()
    collected = history.attrs.get(diagnostics.LOG, {}).get("collected")
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in source.value_counts().items()) or "none"
    facts = [
        f"{rows:,} decisions from {history['time'].iloc[0]:%Y-%m-%d %H:%M:%S} to "
        f"{history['time'].iloc[-1]:%Y-%m-%d %H:%M:%S} UTC",
        f"rewards: {kinds}; {int(reward.isna().sum()):,} decisions have none yet"
        + (f", of which {collected:,} have reports that wait for the end of their window" if collected else ""),
    ]
    contexts = diagnostics.contexts_of(history)
    if (before := history.attrs.get(LOG, {}).get("removed before")) is not None:
        facts.append(
            f"decisions before {pd.Timestamp(before, unit='s'):%Y-%m-%d %H:%M:%S} UTC were removed from the log"
        )
    for name in ("reward", *(name for name in history if name.startswith("reward[") and name not in contexts)):
        mean, low, high = _mean(history[name], bounds if name == "reward" else None)
        facts += [] if np.isnan(mean) else [f"mean {name} {mean:.5g} ({low:.5g} to {high:.5g}, 95%)"]
    if not reward.notna().any():
        facts.append("no reward is known yet")
    if len(delay):
        middle, late = np.quantile(delay, [0.5, 0.95])
        said = f"in the median, 95% of them within {diagnostics.spoken(late)}"
        facts.append(f"a reported reward comes after {diagnostics.spoken(middle)} {said}")
    arms = _arms(history, first, last, bounds) if "action" in history else None
    if arms is not None:
        facts += _of_choices(history, first, last)
    drift = diagnostics.drift(history)
    if contexts:
        facts.append(_of_drift(drift, len(first), len(last)))
    return Summary(tuple(facts), times, arms, drift)


def _of_drift(drift: pd.DataFrame, first: int, last: int) -> str:
    """What a table of drift says, of the first and the last rows."""
    parts, effective = f"the first {first:,} and the last {last:,} contexts", 1 / (1 / first + 1 / last)
    if not len(drift) or special.kolmogorov(np.sqrt(effective)) >= 0.01 / len(drift):  # of the largest distance, 1
        return f"too few contexts tell of drift: {parts} are compared"
    drifted = drift.index.to_numpy()[drift["beyond chance"].to_numpy(bool)].tolist()
    if not drifted:
        return f"no drift: {parts} differ no more than by chance"
    return f"drift: {parts} differ in {', '.join(map(str, drifted[:_NAMED]))}"


def _of_choices(history: Any, first: Any, last: Any) -> list[str]:
    """Entropy and its trend, and whether the arms can be compared."""
    before, after = (diagnostics.entropy(part["action"]) for part in (first, last))
    kinds = history["action"].nunique()
    said = f"entropy of the choices {before:.3g} in the first part and {after:.3g} in the last, of {np.log(kinds):.3g}"
    if history["propensity"].notna().all():
        return [said]
    return [said, "rewards of arms without all propensities are plain means: no test of one arm against another"]


def _period(part: Any, bounds: Ends | None) -> dict[str, object]:
    mean, low, high = _mean(part["reward"], bounds)
    return {
        "start": part["time"].iloc[0].floor("s"),
        "decisions": len(part),
        "known": float(part["reward"].notna().mean()),
        "reward": mean,
        "low": low,
        "high": high,
        "least propensity": float(part["propensity"].min()),
        "mean propensity": float(part["propensity"].mean()),
        "entropy": diagnostics.entropy(part["action"]) if "action" in part else np.nan,
    }


def _mean(rewards: Any, bounds: Ends | None) -> tuple[float, float, float]:
    """Mean of the known rewards, and its interval."""
    known = rewards.dropna().to_numpy(float)
    if not len(known):
        return np.nan, np.nan, np.nan
    found = interval(Terms(known, np.ones(len(known))), reward_range=bounds)
    return float(known.mean()), found.low, found.high


def _arms(history: Any, first: Any, last: Any, bounds: Ends | None) -> pd.DataFrame:
    known = history[history["reward"].notna()]
    action, reward, chance = (known[name].to_numpy() for name in ("action", "reward", "propensity"))
    rows, kinds = {}, history["action"].nunique()
    for arm, part in history.groupby("action"):
        value, low, high = _arm(action == arm, reward.astype(float), chance.astype(float), kinds, bounds)
        rows[arm] = {
            "decisions": len(part),
            "first share": float((first["action"] == arm).mean()),
            "last share": float((last["action"] == arm).mean()),
            "reward": value,
            "low": low,
            "high": high,
            "least propensity": float(part["propensity"].min()),
        }
    table: Any = pd.DataFrame.from_dict(rows, orient="index")
    return table.rename_axis("arm")


def _arm(
    played: np.ndarray, reward: np.ndarray, chance: np.ndarray, kinds: int, bounds: Ends | None
) -> tuple[float, float, float]:
    """Mean reward of an arm and its ends, from decisions with a reward."""
    if not played.any():
        return np.nan, np.nan, np.nan
    own = stable_terms(played, reward, chance, kinds)
    stable = own.denominator
    usual = float((stable**2).mean() / stable.mean() ** 2)
    found = interval(own, unseen(own, usual, bounds), reward_range=bounds)
    return own.value, min(found.low, own.value), max(found.high, own.value)
