"""The tables of docs/measurements that set the papers' numbers beside those of runs.

    seqdec run in-between --published --out results/in-between
    seqdec run mnist --published --seeds 3 --agents AGENTS --out results/mnist
    seqdec run bo --published --methods METHODS --seeds 10 --out results/bo
    python -m reproduction.page --results results

The folder of a run has its name in `RUNS`, and the command is the one there. The table of each finished run is kept
as reproduction/kept/NAME.parquet, with the options and the versions of the run in its manifest. The tables of the
pages, each after a line `<!-- NAME -->`, are made of these; without --results that is all that is done.
"""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tyro

from reproduction.images import LAPLACE_MUON
from seqdec.commands.folder import read_manifest
from seqdec.persistence import read_table, write_table
from seqdec.statistics import with_margin

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "measurements"
STORE = Path(__file__).resolve().parent / "kept"
PUBLISHED = ".published"
NAMES = {
    "hilofi": "HiLoFi",
    "lolofi": "LoLoFi",
    "lrkf": "LRKF",
    "lofi": "LoFi",
    "last_layer_laplace": "last-layer Laplace",
    LAPLACE_MUON: "last-layer Laplace, Muon",
    "adamw": "AdamW",
    "muon": "Muon",
    "vbll": "VBLL",
    "on_vbll": "OnVBLL",
    "gp": "GP",
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
"""The agents of the paper but LoFi, which takes an hour on a core."""
FUNCTIONS = ["ackley2", "branin", "hartmann6", "ackley5", "ackley10", "ackley50"]
FINAL_BEST = {
    "hilofi": (2.59, 3.43, -1.71, 4.73, 6.70, 8.72),
    "lrkf": (6.23, 4.79, -1.01, 7.71, 7.74, 8.95),
    "lofi": (5.91, 9.45, -1.23, 7.71, 7.74, 8.78),
    "last_layer_laplace": (5.83, 6.86, -1.27, 7.71, 7.73, 8.82),
    "on_vbll": (3.98, 1.07, -1.86, 6.30, 7.25, 8.58),
    "vbll": (1.60, 0.63, -2.27, 4.36, 7.07, 8.70),
    "gp": (2.43, 2.84, -2.06, 4.20, 7.31, 8.90),
}
"""By method and function, as minima."""
TABLE_5 = {
    1: (656.6, 26.2), 10: (630.6, 38.4), 20: (670.9, 28.9), 50: (684.0, 30.6), 100: (782.2, 34.5), 150: (864.8, 40.8),
    200: (921.1, 48.2),
}  # fmt: skip
"""HiLoFi on DrawNN by rank: the largest value found, and seconds."""


class Run(NamedTuple):
    """A run that is kept."""

    command: str
    """whose options, but the folder, are those of the run"""
    keys: list[str]
    """columns of the file that name a row"""
    file: str = "summary.csv"
    folder: str = ""
    """of the run in the results, if it is not its name"""


class Table(NamedTuple):
    """A table of the page."""

    runs: list[str]
    """whose rows it has"""
    form: Callable[[pd.DataFrame], pd.DataFrame]
    """of strings, from the summaries one below the other"""
    page: str = "reproduction"
    commands: bool = True
    """whether those of the runs stand before it"""


def named(agent: str) -> str:
    """An agent's name for people: "hilofi:20" is "HiLoFi, rank 20"."""
    kind, _, rank = (agent, "", "") if agent in NAMES else agent.partition(":")
    return NAMES.get(kind, kind) + (f", rank {rank}" if rank else "")


def cells(summary: pd.DataFrame, names: list[Any], column: str, factor: float = 1) -> list[str]:
    """Means with margins of a column, "" where there is no such row."""
    rows = summary.reindex(names)
    margins = rows[f"{column}_95"] if f"{column}_95" in rows else np.full(len(rows), np.nan)
    shown = with_margin(factor * rows[column].to_numpy(float), factor * np.asarray(margins, float))
    return ["" if text == "-" else text for text in shown]


def bandit(summary: pd.DataFrame) -> pd.DataFrame:
    """Rewards of agents with the paper's settings and with ours, beside the paper's."""
    agents = sorted({name.removesuffix(PUBLISHED) for name in summary.index}, key=list(NAMES).index)
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


def exploration(summary: pd.DataFrame) -> pd.DataFrame:
    """Rewards of agents with the paper's settings under the policies that are not predictive sampling."""
    agents = ["hilofi", "lolofi", "lrkf", "lofi", "last_layer_laplace", LAPLACE_MUON]
    kinds = {"epsilon-greedy": "+epsilon_greedy", "Thompson sampling": "+thompson"}
    table = pd.DataFrame({"agent": [named(name) for name in agents]})
    for title, policy in kinds.items():
        table[title] = cells(summary, [f"{name}{policy}{PUBLISHED}" for name in agents], "reward")
    published = [TABLE_2.get(f"{name}+thompson") for name in agents]
    table["Thompson sampling, paper"] = ["" if reward is None else f"{reward:,.0f}" for reward in published]
    return table


def accuracies(summary: pd.DataFrame) -> pd.DataFrame:
    """One-step-ahead accuracy of all images, and of the last 10,000."""
    every = list(summary.index)
    return pd.DataFrame(
        {
            "filter": [named(name.removesuffix(PUBLISHED)) for name in every],
            "accuracy / %": cells(summary, every, "accuracy", 100),
            "of the last 10,000 / %": cells(summary, every, "recent_accuracy", 100),
        }
    )


def ranks(summary: pd.DataFrame) -> pd.DataFrame:
    """Accuracy and time of each filter by rank."""
    filters = list(dict.fromkeys(name.partition(":")[0] for name in summary.index))
    found = list(dict.fromkeys(name.partition(":")[2].removesuffix(PUBLISHED) for name in summary.index))
    table = pd.DataFrame({"rank": found})
    for name in filters:
        rows = [f"{name}:{rank}{PUBLISHED}" for rank in found]
        accuracy = cells(summary, rows, "recent_accuracy", 100)
        times = summary["seconds_per_1000_steps"].reindex(rows)
        table[f"{NAMES[name]} / % (ms)"] = [f"{a} ({t:.1f})" for a, t in zip(accuracy, times, strict=True)]
    return table


def watched(summary: pd.DataFrame) -> pd.DataFrame:
    """Watch ratio of a step, and time, with the paper's settings and with ours."""
    agents = list(dict.fromkeys(name.removesuffix(PUBLISHED) for name in summary.index))
    table = pd.DataFrame({"agent": [named(name) for name in agents]})
    for title, suffix in {"its settings": PUBLISHED, "ours": ""}.items():
        rows = [f"{name}{suffix}" for name in agents]
        table[title] = cells(summary, rows, "per_step")
        times = summary["seconds_per_1000_steps"].reindex(rows)
        table[f"ms per step, {title}"] = ["" if np.isnan(t) else f"{t:.2f}" for t in times]
    return table


def searches(summary: pd.DataFrame) -> pd.DataFrame:
    """Best values of methods with the paper's settings; of Thompson sampling the published ones too, in brackets."""
    table = pd.DataFrame({"function": list(dict.fromkeys(summary.index.get_level_values(0)))})
    for method in dict.fromkeys(summary.index.get_level_values(1)):
        kind = method.removesuffix(PUBLISHED)
        found = cells(summary, [(function, method) for function in table["function"]], "best")
        if kind in FINAL_BEST:
            published = dict(zip(FUNCTIONS, FINAL_BEST[kind], strict=True))
            found = [f"{text} ({published[name]:.2f})" for text, name in zip(found, table["function"], strict=True)]
        table[named(kind.partition("+")[0])] = found
    return table


def by_rank(summary: pd.DataFrame) -> pd.DataFrame:
    """Largest value found on DrawNN200, and seconds, by filter and rank."""
    rows: list[Any] = list(summary.index)
    found = [method.removesuffix(PUBLISHED).partition(":")[::2] for _, method in rows]
    published = [TABLE_5.get(int(rank)) if kind == "hilofi" else None for kind, rank in found]
    return pd.DataFrame(
        {
            "filter": [named(kind) for kind, _ in found],
            "rank": [rank for _, rank in found],
            "paper": ["" if shown is None else f"{shown[0]:,.0f}" for shown in published],
            "ours": [text.lstrip("-") for text in cells(summary, rows, "best")],
            "s, paper": ["" if shown is None else f"{shown[1]:.0f}" for shown in published],
            "s, ours": [f"{seconds:.0f}" for seconds in summary["seconds"]],
        }
    )


def optimizers(summary: pd.DataFrame) -> pd.DataFrame:
    """Held-out data of all optimizers, best mean rank first; `again` is the mean rank in the second run of a task."""
    repeated = summary.index.duplicated()
    first, second = summary.loc[~repeated], summary.loc[repeated]
    rank = _mean_rank(first).sort_values(kind="stable")
    parts = {"mean rank": rank, "again": _mean_rank(second).reindex(rank.index)}
    table = pd.DataFrame({title: [f"{value:.1f}" for value in own] for title, own in parts.items()}, index=rank.index)
    for task, group in first.groupby(level="task", sort=False):
        rows: Any = group.droplevel("task")
        column, ahead, unit, title = _judged(rows)
        names: Any = list(rows.index)
        gains = zip(rows[ahead] * unit, rows[f"{ahead}_95"] * unit, strict=True)
        marks = [("", "*", "-")[(gain > margin) + 2 * (gain < -margin)] for gain, margin in gains]
        shown = [text + mark for text, mark in zip(cells(rows, names, column, unit), marks, strict=True)]
        table[f"{task}, {title}"] = pd.Series(shown, rows.index)
    return table.fillna("").rename_axis("optimizer").reset_index()


def _judged(rows: pd.DataFrame) -> tuple[str, str, float, str]:
    """What judges a task: its column, the column of differences to AdamW, the factor of its unit, a title."""
    if rows["by_perplexity"].iloc[0]:
        return "perplexity", "ahead_perplexity", 1, "perplexity"
    return "test_accuracy", "ahead_accuracy", 100, "accuracy / %"


def _mean_rank(summary: pd.DataFrame) -> pd.Series:
    """By optimizer, on the tasks of all optimizers."""
    tasks = [rows.droplevel("task") for _, rows in summary.groupby(level="task", sort=False)]
    most = max(len(rows) for rows in tasks)
    full = [rows for rows in tasks if len(rows) == most]
    ranks = [rows[_judged(rows)[0]].rank(ascending=bool(rows["by_perplexity"].iloc[0])) for rows in full]
    return pd.concat(ranks, axis=1).mean(axis=1)


def speeds(summary: pd.DataFrame) -> pd.DataFrame:
    """Steps and time to AdamW's loss on every task; state, rate and share; the settings."""
    parts: dict[str, pd.Series] = {}
    for task, rows in summary.groupby(level="task", sort=False):
        rows = rows.droplevel("task")
        for title in ("steps", "time"):
            shown = ["-" if np.isnan(share) else f"{share:.2f}" for share in rows[f"{title}_to_adamw"]]
            parts[f"{task}: {title}"] = pd.Series(shown, rows.index)
        pairs = zip(rows["rate"], rows["share"], strict=True)
        found = [f"{rate:.2g}" + f" ({share:.2g})" * (share != 1) for rate, share in pairs]
        parts[f"{task}: rate (share)"] = pd.Series(found, rows.index)
    every = summary.groupby(level="optimizer", sort=False)
    states = [f"{state:.2f}" for state in summary.loc["text", "state"].reindex([*every.groups])]
    settings = every["settings"].last().fillna("")
    table = pd.DataFrame({"state (text)": states}, index=settings.index).assign(**parts, settings=settings)
    return table.fillna("").rename_axis("optimizer").reset_index()


_CLAIM = ["paper", "better", "worse", "published"]


def claims(found: pd.DataFrame) -> pd.DataFrame:
    """Pairs of which a paper claims the order: their difference on every task, and the verdict of its second run."""
    second = found.index.duplicated()
    again = found.loc[second, "verdict"].to_dict()
    rows = []
    for _, own in found[~second].reset_index().groupby(_CLAIM, sort=False):
        paper, better, worse, published = own[_CLAIM].iloc[0]
        margins = with_margin(own["gain"].to_numpy(float), own["gain_95"].to_numpy(float))
        shown = zip(own["task"], margins, own["verdict"], strict=True)
        later = {task: again.get((paper, better, worse, published, task)) for task in own["task"]}
        cells_of = {task: f"{text}: {verdict}" for task, text, verdict in shown}
        cells_of |= {task: f"{cells_of[task]}, again {verdict}" for task, verdict in later.items() if verdict}
        rows.append({"ahead": better, "of": worse, **cells_of})
    return pd.DataFrame(rows).fillna("")


METHODS = [
    *(f"{name}{PUBLISHED}" for name in ("hilofi", "lrkf", "lofi", "last_layer_laplace", "on_vbll", "gp")),
    "random",
]
SMALL = ",".join(FUNCTIONS)
LOFI = "seqdec run mnist --published --seeds {} --agents {}.published --checkpoint-every 5000"


def improving(*names: str) -> list[str]:
    """Methods with the paper's settings that choose by expected improvement."""
    return [f"{name}+log_expected_improvement{PUBLISHED}" for name in names]


RUNS = {
    "in-between": Run("seqdec run in-between --published", ["data", "filter"]),
    "mnist": Run(f"seqdec run mnist --published --seeds 3 --agents {','.join(MNIST)}", ["agent"]),
    "lofi": Run(LOFI.format(3, "lofi"), ["agent"]),
    "lofi-thompson": Run(LOFI.format(1, "lofi+thompson"), ["agent"]),
    "exploration": Run(
        "seqdec run mnist --published --seeds 3 --checkpoint-every 5000 --agents hilofi+epsilon_greedy.published,"
        "lolofi+epsilon_greedy.published,lrkf+epsilon_greedy.published,last_layer_laplace+thompson.published,"
        "last_layer_laplace+epsilon_greedy.published",
        ["agent"],
    ),
    "exploration-muon": Run(
        f"seqdec run mnist --published --seeds 3 --agents {LAPLACE_MUON}+thompson.published --checkpoint-every 5000",
        ["agent"],
    ),
    "classify": Run(
        "seqdec run classify --published --agents hilofi.published,lolofi.published --checkpoint-every 5000", ["agent"]
    ),
    "less-noise": Run(
        "seqdec run classify --published --agents lolofi.published --process-noise 0.0001 --checkpoint-every 5000",
        ["agent"],
    ),
    "bounds": Run(
        "seqdec run classify --published --agents lrkf.published --error-bounds --checkpoint-every 5000", ["agent"]
    ),
    "cifar": Run("seqdec run cifar --published --steps 2000 --agents lrkf:1.published,adamw.published", ["agent"]),
    "ranks": Run(
        "seqdec run classify --published --agents hilofi.published,lolofi.published,lrkf.published,lofi.published "
        "--ranks 1,5,10,20,50 --steps 10000",
        ["agent"],
    ),
    "vbll-kuairec": Run(
        "seqdec run kuairec --published --steps 5000 --agents hilofi.published,lrkf.published,lofi.published,"
        "last_layer_laplace.published,on_vbll.published,vbll.published,popularity,random",
        ["agent"],
    ),
    "kuairec": Run(
        "seqdec run kuairec --published --agents hilofi,hilofi.published,lrkf,lrkf.published,lofi.published,"
        "last_layer_laplace.published,on_vbll.published,popularity,random --checkpoint-every 5000",
        ["agent"],
    ),
    "bo": Run(f"seqdec run bo --published --functions {SMALL} --methods {','.join(METHODS)}", ["function", "method"]),
    "vbll": Run(f"seqdec run bo --published --functions {SMALL} --methods vbll.published", ["function", "method"]),
    "expected": Run(
        "seqdec run bo --published --functions branin --seeds 3 --methods "
        + ",".join([*improving("hilofi", "lrkf", "lofi", "on_vbll"), "random"]),
        ["function", "method"],
    ),
    "expected-others": Run(
        "seqdec run bo --published --functions ackley2,hartmann6 --seeds 5 --methods "
        + ",".join([*improving("hilofi", "lrkf", "last_layer_laplace", "on_vbll", "gp"), "random"]),
        ["function", "method"],
    ),
    "table5": Run(
        "seqdec run bo --published --functions drawnn200 --seeds 3 --methods "
        + ",".join(f"hilofi:{rank}{PUBLISHED}" for rank in TABLE_5),
        ["function", "method"],
    ),
    "drawnn-lrkf": Run(
        "seqdec run bo --published --functions drawnn200 --seeds 3 --methods "
        + ",".join(f"lrkf:{rank}{PUBLISHED}" for rank in (50, 200, 300)),
        ["function", "method"],
    ),
}
TRAINED = {
    f"optimizers-{task}": f"seqdec run optimizers --tasks {task}" for task in ("text", "lstm", "cifar", "scanned")
}
AGAIN = {f"{name}-again": f"{TRAINED[name]} --seed 100 --shift 0.25" for name in list(TRAINED)[:3]}
"""Other seeds, and learning rates between those of the first."""
CLAIMED = {name.replace("optimizers", "claims"): name for name in TRAINED | AGAIN}
RUNS |= {name: Run(command, ["task", "optimizer"]) for name, command in (TRAINED | AGAIN).items()}
RUNS |= {name: Run(RUNS[folder].command, [*_CLAIM, "task"], "claims.csv", folder) for name, folder in CLAIMED.items()}
TABLES = {
    "mnist": Table(["mnist", "lofi"], bandit),
    "exploration": Table(["lofi-thompson", "exploration", "exploration-muon"], exploration),
    "in-between": Table(["in-between"], bands),
    "classify": Table(["classify", "bounds"], accuracies),
    "less-noise": Table(["less-noise"], accuracies),
    "ranks": Table(["ranks"], ranks),
    "cifar": Table(["cifar"], lambda summary: accuracies(summary).iloc[:, :2]),
    "kuairec": Table(["kuairec"], watched),
    "vbll-kuairec": Table(["vbll-kuairec"], watched),
    "bo": Table(["bo", "vbll"], searches),
    "expected": Table(["expected", "expected-others"], searches),
    "table5": Table(["table5", "drawnn-lrkf"], by_rank),
    "optimizers": Table([*TRAINED, *AGAIN], optimizers, "optimizers"),
    "speeds": Table([*TRAINED], speeds, "optimizers", commands=False),
    "claims": Table([*CLAIMED], claims, "reproduction-optimizers", commands=False),
}


def collect(results: Path) -> None:
    """Keep the tables of the runs in `results` that are there."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name, run in RUNS.items():
        folder = results / (run.folder or name)
        if (folder / run.file).is_file():
            manifest = read_manifest(folder)
            summary = pd.read_csv(folder / run.file).set_index(run.keys)
            options = {key: value for key, value in manifest["options"].items() if key != "out"}
            about = {"options": options, "versions": manifest["versions"], "commit": commit.strip()}
            write_table(STORE / f"{name}.parquet", summary, about)


def rendered(name: str) -> str:
    """The table and the commands of its runs, as Markdown."""
    own = TABLES[name]
    table = own.form(pd.concat([read_table(STORE / f"{run}.parquet")[0] for run in own.runs]))
    commands = [*(f"    {RUNS[run].command}" for run in own.runs), ""] if own.commands else []
    rows = [table.columns, ["---"] * table.shape[1], *table.to_numpy()]
    lines = (f"| {' | '.join(row)} |" for row in rows)
    return "\n".join([*commands, "<details><summary>Table</summary>", "", *lines, "", "</details>"])


def page(name: str, text: str) -> str:
    """The text of the page with the tables of the runs that are kept, each after its mark."""
    for mark, own in TABLES.items():
        if own.page == name and all((STORE / f"{run}.parquet").is_file() for run in own.runs):
            pattern = rf"<!-- {mark} -->\n(?:(?:(?:    seqdec[^\n]*\n)+\n)?<details>.*?</details>\n)?"
            text, found = re.subn(pattern, f"<!-- {mark} -->\n{rendered(mark)}\n", text, flags=re.DOTALL)
            if found != 1:
                raise ValueError(f"{name}.md must have one line <!-- {mark} -->; got {found}")
    return text


def main(results: Path | None = None) -> None:
    """Keep the tables of the runs in a folder, and write those of the pages.

    Args:
        results: folder with one folder for each run.
    """
    if results is not None:
        collect(results)
    for name in dict.fromkeys(own.page for own in TABLES.values()):
        path = PAGES / f"{name}.md"
        path.write_text(page(name, path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
