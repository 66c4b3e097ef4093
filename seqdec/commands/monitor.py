"""A summary of a service's log.

DIR/manifest.json, history.parquet   options; all decisions (`seqdec.service.read_history`)
DIR/periods.csv, arms.csv, drift.csv the tables of `Summary`
DIR/monitor.png, .html               the same as a figure, and as one page
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
import tyro
from matplotlib.figure import Figure

from seqdec import figures, pages
from seqdec.commands.base import Choice, Located, check_minimum, check_path, number_range
from seqdec.commands.folder import read_manifest, save_figure, save_table, write_manifest
from seqdec.introspection import fitted
from seqdec.persistence import read_table, write_table
from seqdec.service import diagnostics
from seqdec.service.logs import check, is_database, read_database, read_history
from seqdec.service.report import report_of
from seqdec.service.summary import Summary, summary

_SHOWN = 12
_REPORT = "report"
"""Name in `attrs` of a history of the answers at any time."""


@dataclass(frozen=True, kw_only=True)
class Monitor(Located):
    """Summarize the log of an OnlineAgent, even while it is in use; print tables and save them as a page."""

    name: ClassVar[str] = "monitor"
    choices: ClassVar[Mapping[str, Choice]] = {}

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FOLDER")]
    """Folder of an OnlineAgent, or its decisions.sqlite."""
    periods: int = 20
    """Number of periods, each with equally many decisions."""
    reward_range: str | None = None
    """Smallest and largest possible reward, separated by a comma; default: 0,1 if no other rewards occur."""
    anytime: bool = False
    """Also report the best arm and the gain over the control group, however often the log is read."""
    out: Path = Path("results/monitor")
    """Folder for the tables, the figure and the page."""

    def check(self) -> None:
        check_minimum(self, periods=1)
        number_range("reward_range", self.reward_range)
        check_path("folder", str(self.folder))
        if not is_database(self.folder):
            place = self.folder / "deployments"
            hint = f"; those of a server are in {place}/NAME/agent" if place.is_dir() else ""
            raise ValueError(f"{self.folder} is not the folder of an OnlineAgent: it has no decisions.sqlite{hint}")

    def play(self, plan: None, finished: Sequence[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        check(self.folder)
        history = diagnostics.played(read_history(self.folder))
        if history.empty:
            raise ValueError(f"the log of {self.folder} has no decisions yet")
        bounds = number_range("reward_range", self.reward_range)
        summary(history, self.periods, bounds)  # refuses
        if self.anytime:
            history.attrs[_REPORT] = read_database(self.folder, lambda log: report_of(log, reward_range=bounds)).facts
        yield history

    def save(self, parts: list[pd.DataFrame]) -> None:
        write_table(self.out / "history.parquet", parts[0])
        write_manifest(self.out, self)

    @staticmethod
    def report(folder: Path) -> str:
        options = read_manifest(folder)["options"]
        history = read_table(folder / "history.parquet")[0]
        bounds = number_range("reward_range", options["reward_range"])
        found = summary(history, options["periods"], bounds)
        found = found._replace(facts=(*history.attrs.get(_REPORT, ()), *found.facts))
        for name, table in (("periods", found.periods), ("arms", found.arms), ("drift", found.drift)):
            if table is not None:
                save_table(folder / f"{name}.csv", table)
        save_figure(folder / "monitor.png", monitor_figure(history, found, f"Log of {Path(options['folder']).name}"))
        alarms = [str(alarm) for alarm in diagnostics.alarms(history)]
        parts = [*(pages.paragraph(alarm, "warning") for alarm in alarms), *map(pages.paragraph, found.facts)]
        parts.append(pages.figure((folder / "monitor.png").read_bytes()))
        for title, table in _tables(found):
            parts += [pages.heading(title), pages.table(table, index=True, digits=4)]
        pages.write(folder / "monitor.html", "seqdec monitor", parts)
        said = [f"! {alarm}" for alarm in alarms] or ["no alarm"]
        return "\n\n".join([*said, *found.facts, *(f"{title}\n{_text(table)}" for title, table in _tables(found))])


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
    figures.finish_axis(chances, "Propensities", "decisions", "propensity", "unknown")
    top = found.drift.head(_SHOWN)[::-1]
    colors = ["#D55E00" if beyond else "#A9A9A9" for beyond in top["beyond chance"]]
    drift.barh(range(len(top)), top["distance"], color=colors)
    figures.finish_axis(drift, "Drift: first against last quarter of the log", "distance (KS)", "", "no context")
    drift.set_yticks(range(len(top)), [str(name)[:28] for name in top.index])
    drift.set_xlim(0, 1)
    return figures.titled(figure, title)


def _tables(found: Summary) -> list[tuple[str, pd.DataFrame]]:
    arms = [] if found.arms is None else [("Arms", found.arms.nlargest(_SHOWN, "decisions"))]
    drift = [("Drift of the contexts", found.drift.head(_SHOWN))] if len(found.drift) else []
    return [("Periods", found.periods.tail(_SHOWN)), *arms, *drift]


def _text(table: pd.DataFrame) -> str:
    moments = table.select_dtypes("datetimetz")
    return fitted(table.assign(**{name: moments[name].dt.strftime("%Y-%m-%d %H:%M") for name in moments}))
