"""The tables of docs/reproduction.md that set the paper's numbers beside those of runs.

    seqdec run in-between --published --out results/in-between
    seqdec run mnist --published --seeds 3 --agents AGENTS --out results/mnist
    seqdec run bo --published --out results/bo
    python benchmarks/reproduction.py --results results

AGENTS are those of the page. The summary of each finished run among them is kept as
benchmarks/reproduction/RUN.parquet, with the options and the versions of the run in its manifest. The tables of the
page, each after a line `<!-- RUN -->`, are made of these; without --results that is all that is done.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tyro

from seqdec.experiments.folder import read_manifest
from seqdec.persistence import read_table, write_table
from seqdec.statistics import with_margin

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproduction.md"
STORE = Path(__file__).resolve().parent / "reproduction"
PUBLISHED = ".published"
NAMES = {
    "hilofi": "HiLoFi",
    "lolofi": "LoLoFi",
    "lrkf": "LRKF",
    "lofi": "LoFi",
    "last_layer_laplace": "last-layer Laplace",
    "adamw": "AdamW",
    "muon": "Muon",
    "vbll": "VBLL",
    "on_vbll": "OnVBLL",
}
TABLE_2 = {
    "hilofi": 31_167.7,
    "lolofi": 30_038.5,
    "lrkf": 28_354.9,
    "lofi": 23_184.5,
    "lofi+thompson": 23_304.3,
    "last_layer_laplace": 13_922.3,
    "last_layer_laplace+thompson": 7_201.9,
}
MNIST = [
    *("hilofi", "hilofi.published", "lolofi", "lolofi.published", "lrkf", "lrkf.published"),
    *("last_layer_laplace.published", "adamw.published", "muon.published"),
]
"""The agents of the paper but LoFi, whose runs take hours on a core."""
FINAL_BEST = {
    "ackley2": (2.59, 6.23),
    "ackley5": (4.73, 7.71),
    "ackley10": (6.70, 7.74),
    "ackley50": (8.72, 8.95),
    "branin": (3.43, 4.79),
    "hartmann6": (-1.71, -1.01),
    "drawnn50": (-278.0, -141.0),
    "drawnn200": (-805.0, 0.0),
}
"""HiLoFi's and LRKF's of the paper, as minima."""


class Report(NamedTuple):
    """A run that is compared with the paper."""

    command: str
    """whose options, but the folder, are those of the run"""
    index: list[str]
    """columns of summary.csv that name a row"""
    table: Callable[[pd.DataFrame], pd.DataFrame]
    """of strings, from the summary"""


def named(agent: str) -> str:
    """An agent's name for people: "hilofi+thompson" is "HiLoFi, Thompson sampling"."""
    kind, _, policy = agent.partition("+")
    filter_, _, rank = kind.partition(":")
    parts = [NAMES.get(filter_, filter_)] + [f"rank {rank}"] * bool(rank)
    return ", ".join(parts + ["Thompson sampling"] * (policy == "thompson"))


def cells(summary: pd.DataFrame, names: list[str], column: str, factor: float = 1) -> list[str]:
    """Means with margins of a column, "" where there is no such row."""
    rows = summary.reindex(names)
    margins = rows[f"{column}_95"] if f"{column}_95" in rows else np.full(len(rows), np.nan)
    shown = with_margin(factor * rows[column].to_numpy(float), factor * np.asarray(margins, float))
    return ["" if text == "-" else text for text in shown]


def bandit(summary: pd.DataFrame) -> pd.DataFrame:
    """Rewards of agents with the paper's settings and with ours, beside the paper's."""
    agents = list(dict.fromkeys(name.removesuffix(PUBLISHED) for name in summary.index))
    theirs = [f"{name}{PUBLISHED}" for name in agents]
    return pd.DataFrame(
        {
            "agent": [named(name) for name in agents],
            "paper": [f"{TABLE_2[name]:,.0f}" if name in TABLE_2 else "" for name in agents],
            "its settings": cells(summary, theirs, "reward"),
            "ours": cells(summary, agents, "reward"),
        }
    )


def bands(summary: pd.DataFrame) -> pd.DataFrame:
    """Deviations and coverage on both data sets."""
    every: Any = list(summary.index)
    shown = {"deviation at the data": "at_data", "in the gap": "in_gap", "outside": "outside"}
    parts = {title: cells(summary, every, column) for title, column in shown.items()}
    covered = {"held out covered / %": "coverage", "in the gap covered / %": "gap_coverage"}
    parts |= {title: cells(summary, every, column, 100) for title, column in covered.items()}
    kinds = [named(name.removesuffix(PUBLISHED)) for _, name in every]
    whose = ["paper's" if name.endswith(PUBLISHED) else "ours" for _, name in every]
    table = pd.DataFrame({"data": [data for data, _ in every], "filter": kinds, "settings": whose, **parts})
    return table.sort_values("data", kind="stable")


def searches(summary: pd.DataFrame) -> pd.DataFrame:
    """Best values of the two filters with the paper's settings, of the default and of random search."""
    columns: dict[str, list[str]] = {"function": [], "HiLoFi, paper": [], "its settings": [], "LRKF, paper": []}
    columns |= {"its settings ": [], "`auto`": [], "random": []}
    methods = {
        "its settings": "hilofi.published",
        "its settings ": "lrkf.published",
        "`auto`": "auto",
        "random": "random",
    }
    for function in dict.fromkeys(summary.index.get_level_values(0)):
        columns["function"].append(function)
        for column, number in zip(("HiLoFi, paper", "LRKF, paper"), FINAL_BEST[function], strict=True):
            columns[column].append(f"{number:,.4g}")
        for column, method in methods.items():
            columns[column] += cells(summary, [(function, method)], "best")
    return pd.DataFrame(columns)


REPORTS = {
    "in-between": Report("seqdec run in-between --published", ["data", "filter"], bands),
    "mnist": Report(f"seqdec run mnist --published --seeds 3 --agents {','.join(MNIST)}", ["agent"], bandit),
    "bo": Report("seqdec run bo --published", ["function", "method"], searches),
}


def collect(results: Path) -> None:
    """Keep the summaries of the runs in `results` that are there."""
    for name, report in REPORTS.items():
        if (results / name / "summary.csv").is_file():
            manifest = read_manifest(results / name)
            summary = pd.read_csv(results / name / "summary.csv").set_index(report.index)
            options = {key: value for key, value in manifest["options"].items() if key != "out"}
            write_table(STORE / f"{name}.parquet", summary, {"options": options, "versions": manifest["versions"]})


def rendered(name: str) -> str:
    """The table of a run and its command, as Markdown."""
    table = REPORTS[name].table(read_table(STORE / f"{name}.parquet")[0])
    rows = [table.columns.str.strip(), ["---"] * table.shape[1], *table.to_numpy()]
    return "\n".join([f"`{REPORTS[name].command}`:", "", *(f"| {' | '.join(row)} |" for row in rows)])


def page(text: str) -> str:
    """The text with the tables of the runs that are kept, each after its mark and up to the next empty line but one."""
    for name in REPORTS:
        if (STORE / f"{name}.parquet").is_file():
            mark = f"<!-- {name} -->"
            pattern = rf"{mark}\n(?:`seqdec[^\n]*\n\n(?:\|[^\n]*\n)+)?"
            text, found = re.subn(pattern, f"{mark}\n{rendered(name)}\n", text)
            if found != 1:
                raise ValueError(f"{PAGE.name} must have one line {mark}; got {found}")
    return text


def main(results: Path | None = None) -> None:
    """Keep the summaries of the runs in a folder, and write the tables of the page.

    Args:
        results: folder with one folder for each run.
    """
    if results is not None:
        collect(results)
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
