"""The folder of an experiment: runs, table, pictures and a manifest, written as the runs come in and rebuilt at will.

DIR/manifest.json              what was asked for, and the names of the runs
DIR/runs/NAME/steps.parquet    every step of one agent, with its own manifest.json
DIR/summary.csv                the table
DIR/*.png                      the pictures
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from seqdec import figures
from seqdec.experiments import kuairec
from seqdec.persistence import as_json, check_writable, read_json, versions, write_file, write_json
from seqdec.results import Run, compare, mean_and_margin, readable, with_margin

FORMAT = "seqdec experiment 1"


def open_folder(folder: Path) -> None:
    """Make `folder` and see that it can be written, so that no run is computed in vain.

    Raises FileExistsError when it holds a manifest that is not an experiment's, and OSError when it cannot be written.
    """
    check_writable(folder)
    if (folder / "manifest.json").exists():
        try:
            read_manifest(folder)
        except ValueError as error:
            raise FileExistsError(f"{error}; choose another folder") from error


def save_run(folder: Path, name: str, run: Run, experiment: str, options: Mapping[str, Any], done: list[str]) -> None:
    """Save one run under `name` and put it into the manifest after the runs already `done`."""
    run.save(folder / "runs" / name)
    manifest = {"format": FORMAT, "experiment": experiment, "options": as_json(dict(options)), "runs": [*done, name]}
    write_json(folder / "manifest.json", manifest | {"versions": versions()})


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of an experiment. Raises FileNotFoundError where there is none, ValueError where it is not one."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise FileNotFoundError(f"{folder} holds no experiment: there is no manifest.json in it")
    try:
        manifest = read_json(path)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{path} is not the manifest of a {FORMAT!r}")
    return manifest


def load_runs(folder: Path) -> dict[str, Run]:
    """The runs of an experiment, in order. Raises as `Run.load` and `read_manifest` do."""
    return {name: Run.load(folder / "runs" / name) for name in read_manifest(folder)["runs"]}


def write_report(folder: Path, runs: Mapping[str, Run], experiment: str) -> str:
    """Write summary.csv and the pictures of `runs` into `folder`; returns the table as text.

    Raises OSError when a file cannot be written.
    """
    if experiment == kuairec.KuaiRec.name:
        runs = {name: kuairec.in_watch_ratios(run) for name, run in runs.items()}
    table, pictures = compare(runs), {"comparison.png": figures.comparison(runs)}
    shown = readable(table)
    if experiment == "classify":
        accuracy = _accuracy(runs)
        shown = _readable_accuracy(accuracy, figures.window(runs)).join(
            shown[["s / 1,000 steps", "compile s", "rejected"]]
        )
        table, pictures["accuracy.png"] = accuracy.join(table), figures.accuracy(runs)
    else:
        pictures["regret.png"] = figures.regret(runs)
    if experiment == kuairec.KuaiRec.name:
        days = kuairec.daily(runs, pd.read_parquet(folder / kuairec.DAYS))
        pictures["daily.png"] = figures.daily(days, table, next(iter(runs.values())).env)
        write_file(folder / "daily.csv", lambda path: days.to_csv(path, index=False))
        table, shown = kuairec.tables(runs, table, shown)
    write_file(folder / "summary.csv", lambda path: table.to_csv(path))
    for name, figure in pictures.items():
        save_picture(folder / name, figure)
    return shown.to_string()


def _accuracy(runs: Mapping[str, Run]) -> pd.DataFrame:
    """One-step-ahead accuracy of each run over all steps and over the last window, with 95% half-widths over seeds."""
    rows = {}
    for name, run in runs.items():
        mean, margin = mean_and_margin(run.rewards.mean(axis=1, dtype=np.float64))
        recent, recent_margin = mean_and_margin(run.rewards[:, -figures.window(runs) :].mean(axis=1, dtype=np.float64))
        rows[name] = {
            "accuracy": float(mean),
            "accuracy_95": float(margin),
            "recent_accuracy": float(recent),
            "recent_accuracy_95": float(recent_margin),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("agent")


def _readable_accuracy(accuracy: pd.DataFrame, window: int) -> pd.DataFrame:
    """Accuracies in percent, for people."""
    titles = {"accuracy": "accuracy / %", "recent_accuracy": f"last {window:,} steps / %"}
    rows = {
        title: with_margin(100 * accuracy[name].to_numpy(), 100 * accuracy[f"{name}_95"].to_numpy())
        for name, title in titles.items()
    }
    return pd.DataFrame(rows, index=accuracy.index).rename_axis(None)


def save_picture(path: Path, figure: Figure) -> None:
    """Write `figure` as a PNG."""
    write_file(path, lambda temporary: figure.savefig(temporary, format="png"))
