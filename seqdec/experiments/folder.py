"""The folder of an experiment: a manifest, results and what is made from them.

DIR/manifest.json              experiment, options, names of the runs, versions
DIR/runs/NAME/steps.parquet    all steps of one agent
DIR/summary.csv, *.png         table and figures
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqdec.persistence import as_json, check_writable, read_json, versions, write_file, write_json
from seqdec.results import Run

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FORMAT = "seqdec experiment 1"


def open_folder(folder: Path) -> None:
    """Make `folder` and check that files can be written to it, before anything is computed.

    Raises FileExistsError when it holds a manifest that is not an experiment's, and OSError when it cannot be written.
    """
    check_writable(folder)
    if (folder / "manifest.json").exists():
        try:
            read_manifest(folder)
        except ValueError as error:
            raise FileExistsError(f"{error}; choose another folder") from error


def write_manifest(folder: Path, options: Any, runs: Sequence[str] = (), **results: Any) -> None:
    """Write the manifest of the experiment `options`: its name and options, the names of its runs, other `results`."""
    manifest = {"format": FORMAT, "experiment": options.name, "options": as_json(asdict(options)), **as_json(results)}
    write_json(folder / "manifest.json", manifest | {"runs": list(runs), "versions": versions()})


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


def save_run(folder: Path, name: str, run: Run) -> None:
    """Save one run under `name`."""
    run.save(folder / "runs" / name)


def load_runs(folder: Path) -> dict[str, Run]:
    """The runs of an experiment, in order. Raises as `Run.load` and `read_manifest` do."""
    return {name: Run.load(folder / "runs" / name) for name in read_manifest(folder)["runs"]}


def write_summary(folder: Path, table: "pd.DataFrame", figures: Mapping[str, "Figure"]) -> None:
    """Write the table as summary.csv, and the figures as PNG files of the given names.

    Raises OSError when a file cannot be written.
    """
    write_file(folder / "summary.csv", lambda path: table.to_csv(path))
    for name, figure in figures.items():
        save_figure(folder / name, figure)


def save_figure(path: Path, figure: "Figure") -> None:
    """Write `figure` as a PNG."""
    write_file(path, lambda temporary: figure.savefig(temporary, format="png"))
