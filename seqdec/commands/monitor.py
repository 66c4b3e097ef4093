"""A summary of a service's log.

DIR/manifest.json, history.parquet   options; all decisions (`seqdec.service.read_history`)
DIR/periods.csv, arms.csv, drift.csv the tables of `Summary`
DIR/monitor.png, .html               the same as a figure, and as one page
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import tyro
from matplotlib.figure import Figure
from scipy import special

from seqdec import figures, pages
from seqdec.commands.base import Choice, Located, check_minimum, check_path, number_range
from seqdec.commands.folder import read_manifest, save_figure, save_table, write_manifest
from seqdec.ope import Terms, sequences
from seqdec.ope.diagnostics import range_of
from seqdec.ope.intervals import Ends, Interval, interval, unseen
from seqdec.persistence import read_table, write_table
from seqdec.service.logs import is_database, read_history
from seqdec.service.store import COLLECTED, REPORTED, WITHDRAWN

_SHARE = 4
"""The first and the last 1 / `_SHARE` of the log are compared."""
_SHOWN = 12
_RECENT = 100
_MISS = 0.05


@dataclass(frozen=True, kw_only=True)
class Monitor(Located):
    """Look at the log of an OnlineAgent, also while it is in use: prints tables, fills a folder with a page."""

    name: ClassVar[str] = "monitor"
    choices: ClassVar[Mapping[str, Choice]] = {}

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    """Folder of an OnlineAgent, or its decisions.sqlite."""
    periods: int = 20
    """Parts of equally many decisions."""
    reward_range: str | None = None
    """Least and largest possible reward, separated by a comma; by default 0,1 if no other rewards occur."""
    anytime: bool = False
    """Make the intervals of the arms hold however often the growing log is read."""
    out: Path = Path("results/monitor")
    """Folder for the tables, the figure and the page."""

    def check(self) -> None:
        check_minimum(self, periods=1)
        number_range("reward_range", self.reward_range)
        check_path("folder", str(self.folder))
        if not is_database(self.folder):
            raise ValueError(f"{self.folder} is not the folder of an OnlineAgent: it has no decisions.sqlite")

    def play(self, plan: None, finished: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        history: Any = read_history(self.folder)
        history = history[history["source"].ne(WITHDRAWN).fillna(True)].reset_index(drop=True)
        if history.empty:
            raise ValueError(f"the log of {self.folder} has no decisions yet")
        summary(history, self.periods, number_range("reward_range", self.reward_range), self.anytime)  # refuses
        yield history

    def save(self, parts: list[pd.DataFrame]) -> None:
        write_table(self.out / "history.parquet", parts[0])
        write_manifest(self.out, self)

    @staticmethod
    def report(folder: Path) -> str:
        options = read_manifest(folder)["options"]
        history = read_table(folder / "history.parquet")[0]
        bounds = number_range("reward_range", options["reward_range"])
        found = summary(history, options["periods"], bounds, options["anytime"])
        for name, table in (("periods", found.periods), ("arms", found.arms), ("drift", found.drift)):
            if table is not None:
                save_table(folder / f"{name}.csv", table)
        save_figure(folder / "monitor.png", monitor_figure(history, found, f"Log of {Path(options['folder']).name}"))
        parts = [pages.paragraph(fact) for fact in found.facts]
        parts.append(pages.figure((folder / "monitor.png").read_bytes()))
        for title, table in _tables(found):
            parts += [pages.heading(title), pages.table(table, index=True, digits=4)]
        pages.write(folder / "monitor.html", "seqdec monitor", parts)
        return "\n\n".join([*found.facts, *(f"{title}\n{_text(table)}" for title, table in _tables(found))])


class Summary(NamedTuple):
    """Lines and tables of a log."""

    facts: tuple[str, ...]
    periods: pd.DataFrame
    """by period: start, decisions, known (share with a reward), reward, low, high (95%), least and mean propensity"""
    arms: pd.DataFrame | None
    """by arm: decisions, shares in the first and last part, reward, low, high (95%), least propensity; None for points.

    The reward is what the arm would earn in all decisions, weighted by propensities where they are known:

        sum_t h_t 1[a_t = a] r_t / p_t  /  sum_t h_t 1[a_t = a] / p_t,  h_t^2 = share of a in 100 decisions before t

    The agent plays an arm less after bad luck, so that the plain mean is too low; h_t keeps the variance of the terms
    stable (Hadad, Hirshberg, Zhan, Wager, Athey, "Confidence intervals for policy evaluation in adaptive experiments",
    2021). It does not depend on the context of t, which would change what is estimated.
    """
    drift: pd.DataFrame
    """by context number, the largest first: shift of the mean between the parts in standard deviations of the first,
    Kolmogorov-Smirnov distance, and whether it is beyond chance at 1% over all numbers together
    """


def summary(
    history: Any, periods: int = 20, reward_range: tuple[float, float] | None = None, anytime: bool = False
) -> Summary:
    """The tables of a log with at least one decision.

    `anytime`: intervals of the arms hold at all lengths of the log at once (`seqdec.ope.sequences`). Raises ValueError
    for rewards outside the range, and with `anytime` for an unknown range or propensity.
    """
    rows, own = len(history), list(history.columns).index("source") + 1  # columns of contexts follow
    reward, source, numbers = history["reward"], history["source"], list(history.columns[own:])
    cuts = np.array_split(np.arange(rows), min(periods, rows))
    bounds = range_of(reward_range, reward.dropna().to_numpy()) if reward.notna().any() else reward_range
    times = pd.DataFrame([_period(history.iloc[cut], bounds) for cut in cuts]).rename_axis("period")
    share = max(1, rows // _SHARE)
    first, last = history.iloc[:share], history.iloc[-share:]
    reported = history[source.isin([REPORTED, COLLECTED])]  # others come by themselves
    delay = (reported["reward_time"] - reported["time"]).dt.total_seconds()
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in source.value_counts().items()) or "none"
    facts = [
        f"{rows:,} decisions from {history['time'].iloc[0]:%Y-%m-%d %H:%M:%S} to "
        f"{history['time'].iloc[-1]:%Y-%m-%d %H:%M:%S} UTC",
        f"rewards: {kinds}; {int(reward.isna().sum()):,} decisions have none yet",
    ]
    for name in ("reward", *(name for name in history.columns[:own] if name.startswith("reward["))):
        mean, low, high = _mean(history[name], bounds if name == "reward" else None)
        facts += [] if np.isnan(mean) else [f"mean {name} {mean:.5g} ({low:.5g} to {high:.5g}, 95%)"]
    if not reward.notna().any():
        facts.append("no reward is known yet")
    if len(delay):
        middle, late = np.quantile(delay, [0.5, 0.95])
        facts.append(f"a reported reward comes after {middle:.3g} s in the median, 95% of them within {late:.3g} s")
    arms = _arms(history, first, last, bounds, anytime) if "action" in history else None
    return Summary(tuple(facts), times, arms, _drift(first[numbers], last[numbers]))


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
    }


def _mean(rewards: Any, bounds: Ends | None) -> tuple[float, float, float]:
    """Mean of the known rewards, and its interval."""
    known = rewards.dropna().to_numpy(float)
    if not len(known):
        return np.nan, np.nan, np.nan
    found = interval(Terms(known, np.ones(len(known))), reward_range=bounds)
    return float(known.mean()), found.low, found.high


def _arms(history: Any, first: Any, last: Any, bounds: Ends | None, anytime: bool) -> pd.DataFrame:
    known = history[history["reward"].notna()]
    action, reward, chance = (known[name].to_numpy() for name in ("action", "reward", "propensity"))
    if anytime and (bounds is None or not np.isfinite(chance.astype(float)).all()):
        raise ValueError("anytime needs known propensities, and rewards of 0 and 1 or reward_range")
    rows, kinds = {}, history["action"].nunique()
    for arm, part in history.groupby("action"):
        value, low, high = _arm(action == arm, reward.astype(float), chance.astype(float), kinds, bounds, anytime)
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
    played: np.ndarray, reward: np.ndarray, chance: np.ndarray, kinds: int, bounds: Ends | None, anytime: bool
) -> tuple[float, float, float]:
    """Mean reward of an arm and its ends, from decisions with a reward."""
    if not played.any():
        return np.nan, np.nan, np.nan
    weighted = np.isfinite(chance[played]).all()
    weights = np.divide(1.0, chance, out=np.zeros(len(chance)), where=played) if weighted else played * 1.0
    before = np.concatenate([[0], np.cumsum(played)])[:-1]
    window = np.minimum(np.arange(len(played)), _RECENT)
    recent = before - np.concatenate([np.zeros(_RECENT), before])[: len(played)]
    stable = weights * np.sqrt((recent + 1) / (window + kinds)) if weighted else weights
    own = Terms(stable * reward, stable)
    if anytime and bounds is not None:
        r = (reward - bounds[0]) / (bounds[1] - bounds[0])
        at = np.array([len(r) - 1])
        low = max(sequences.lower(weights * r, 0.0, _MISS / 2, at=at)[0], 0.0)
        high = min(1 - sequences.lower(weights * (1 - r), 0.0, _MISS / 2, at=at)[0], 1.0)
        found = Interval(*(bounds[0] + (bounds[1] - bounds[0]) * end for end in (low, high)))
    else:
        usual = float((stable**2).mean() / stable.mean() ** 2)
        found = interval(own, unseen(own, usual, bounds), reward_range=bounds)
    return own.value, min(found.low, own.value), max(found.high, own.value)


def _drift(first: Any, last: Any) -> pd.DataFrame:
    rows = {}
    for name in first:
        before, after = (part[name].dropna().to_numpy(float) for part in (first, last))  # without erased contexts
        if not len(before) or not len(after):
            continue
        distance = _distance(before, after)
        chance = special.kolmogorov(distance * np.sqrt(len(before) / 2))  # of as large a distance without drift
        std = before.std() or after.std()
        rows[name] = {
            "first mean": before.mean(),
            "last mean": after.mean(),
            "shift": (after.mean() - before.mean()) / std if std else 0.0,
            "distance": distance,
            "beyond chance": bool(chance < 0.01 / len(first.columns)),
        }
    columns = ["first mean", "last mean", "shift", "distance", "beyond chance"]
    table: Any = pd.DataFrame.from_dict(rows, orient="index", columns=columns)
    return table.sort_values("distance", ascending=False, kind="stable").rename_axis("number")


def _distance(before: np.ndarray, after: np.ndarray) -> float:
    places = np.concatenate([before, after])
    below = [np.searchsorted(np.sort(values), places, side="right") / len(values) for values in (before, after)]
    return float(np.abs(below[0] - below[1]).max())


def monitor_figure(history: pd.DataFrame, found: Summary, title: str) -> Figure:
    """Rewards with 95% intervals, shares of arms, propensities, drift."""
    figure = Figure(figsize=(12, 7.2), dpi=110, layout="constrained")
    rewards, shares, chances, drift = figure.subplots(2, 2).ravel()
    ends = np.cumsum(found.periods["decisions"])
    mean, low, high = (found.periods[name].to_numpy(float) for name in ("reward", "low", "high"))
    errors = np.array([mean - low, high - mean])
    errors[~np.isfinite(errors)] = 0  # an end without a limit is not drawn
    rewards.errorbar(ends, mean, yerr=errors, fmt="o-", color="#0072B2", capsize=2, lw=1.2, ms=4)
    figures.finish_axis(rewards, "Mean reward", "decisions", "reward", "no reward is known yet")
    if found.arms is not None:
        most = found.arms.nlargest(6, "decisions").index
        cuts = np.split(history["action"].to_numpy(), ends[:-1])
        for style, arm in zip(figures.styles([f"arm {arm}" for arm in most]), most, strict=True):
            shares.plot(ends, [np.mean(part == arm) for part in cuts], label=f"arm {arm}", lw=1.6, **style)
        shares.set_ylim(0, 1.02)
        shares.legend(frameon=False, fontsize=8, ncols=3)
    figures.finish_axis(shares, "Share of the most played arms", "decisions", "share", "actions are points of a box")
    for name, color in (("mean propensity", "#009E73"), ("least propensity", "#D55E00")):
        chances.plot(ends, found.periods[name], label=name, color=color, lw=1.6)
    chances.set_yscale("log")
    chances.legend(frameon=False, fontsize=8)
    figures.finish_axis(chances, "Propensities", "decisions", "propensity", "not estimated")
    top = found.drift.head(_SHOWN)[::-1]
    colors = ["#D55E00" if beyond else "#A9A9A9" for beyond in top["beyond chance"]]
    drift.barh(range(len(top)), top["distance"], color=colors)
    figures.finish_axis(drift, "Drift: first against last quarter of the log", "distance (KS)", "", "no context")
    drift.set_yticks(range(len(top)), [str(name)[:28] for name in top.index])
    drift.set_xlim(0, 1)
    return figures.titled(figure, title)


def _tables(found: Summary) -> list[tuple[str, pd.DataFrame]]:
    arms = [] if found.arms is None else [("Arms", found.arms.nlargest(_SHOWN, "decisions"))]
    return [("Periods", found.periods.tail(_SHOWN)), *arms, ("Drift of the contexts", found.drift.head(_SHOWN))]


def _text(table: pd.DataFrame) -> str:
    return table.to_string(float_format=lambda value: f"{value:.4g}")
