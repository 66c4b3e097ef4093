"""The folder of an experiment.

DIR/manifest.json              experiment, options, names of the runs, versions, whether finished
DIR/runs/NAME/steps.parquet    all steps of one agent
DIR/summary.csv, *.png         table and figures
DIR/checkpoint                 the run in progress, with --checkpoint-every
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args, get_type_hints

from seqdec import commands
from seqdec.persistence import (
    as_json,
    check_folder_name,
    check_writable,
    clear,
    locked,
    read_json,
    read_table,
    versions,
    write_file,
    write_json,
    write_table,
)
from seqdec.plugins import check_registered
from seqdec.results import Run

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

FORMAT = "seqdec experiment 1"
CHECKPOINT = "checkpoint"
T = TypeVar("T")


@contextmanager
def opened(folder: Path) -> Iterator[None]:
    """Make and lock `folder`; remove temporary files of killed processes.

    Raises FileExistsError if in use or with a foreign manifest, OSError if not writable.
    """
    check_folder_name(folder)
    check_writable(folder)
    if (folder / "manifest.json").exists():
        try:
            read_manifest(folder)
        except ValueError as error:
            raise FileExistsError(f"{error}; choose another folder") from error
    with locked(folder):
        if (folder / "manifest.json").exists():
            clear([Path(place) / name for place, names, _ in os.walk(folder) for name in names])
        yield


def resumed(kind: type[T], folder: Path) -> T:
    """The options of the experiment in `folder`, as a `kind`.

    Raises as `read_manifest`, and ValueError for another version's options.
    """
    saved = read_manifest(folder)["options"]
    known = {field.name: get_type_hints(kind)[field.name] for field in fields(kind)}  # pyright: ignore (a dataclass)
    if saved.keys() != known.keys():
        raise ValueError(
            f"{folder} is from another version of seqdec, whose options differ: "
            f"{', '.join(sorted(saved.keys() ^ known.keys()))}"
        )
    values = {name: _typed(value, known[name]) for name, value in saved.items()}
    moved = {
        name: folder / value.relative_to(values["out"])
        for name, value in values.items()
        if isinstance(value, Path) and value.is_relative_to(values["out"])
    }
    return kind(**values | moved)


def _typed(value: Any, hint: Any) -> Any:
    if isinstance(value, str) and Path in (hint, *get_args(hint)):
        return Path(value)
    return tuple(value) if isinstance(value, list) else value


def save_parts(path: Path, table: "pd.DataFrame") -> None:
    """Write the table of all parts so far."""
    write_table(path, table, {"started": started(path.parent)})


def saved_parts(path: Path, keys: Sequence[str]) -> "list[pd.DataFrame]":
    """Parts saved by the present command, by `keys`."""
    if not path.is_file():
        return []
    table, manifest = read_table(path)
    if manifest.get("started") != started(path.parent):
        return []
    return [part.reset_index(drop=True) for _, part in table.groupby(list(keys), sort=False)]


def key_of(part: "pd.DataFrame", keys: Sequence[str]) -> tuple[Any, ...]:
    """The values of the columns `keys`, constant in a part."""
    return tuple(part[keys].iloc[0])


def write_manifest(
    folder: Path, options: Any, runs: Sequence[str] = (), *, command: str | None = None, **results: Any
) -> None:
    """Write the manifest of `options`, with names of runs and other `results`.

    `command` identifies the command for resuming; None keeps the present one.
    """
    results["started"] = command or started(folder)
    name = commands.EVERY.name_of(type(options))
    manifest = {"format": FORMAT, "experiment": name, "options": as_json(asdict(options)), **as_json(results)}
    write_json(folder / "manifest.json", manifest | {"runs": list(runs), "versions": versions()})


def started(folder: Path) -> str | None:
    """The command in the manifest of `folder`; None without one."""
    return read_manifest(folder).get("started") if (folder / "manifest.json").is_file() else None


def finish(folder: Path) -> None:
    """Mark the experiment as finished in its manifest."""
    write_json(folder / "manifest.json", read_manifest(folder) | {"finished": True})


def finished(folder: Path) -> bool:
    """Whether the experiment in or above `folder` has finished."""
    command = started(folder)
    places = [place for place in (folder, folder.parent) if (place / "manifest.json").is_file()]
    manifests = [read_manifest(place) for place in places]
    return any(one.get("finished", False) and one.get("started") == command for one in manifests)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest. Raises FileNotFoundError if missing, ValueError if invalid."""
    path = folder / "manifest.json"
    if not path.is_file():
        reason = "No manifest.json in" if folder.is_dir() else "No such folder:"
        raise FileNotFoundError(f"{reason} {folder}. Pass a results folder written by `seqdec run` or `seqdec sweep`.")
    manifest = read_json(path)
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"{path} is not a manifest of the format {FORMAT!r}")
    return manifest


def save_run(folder: Path, name: str, run: Run) -> None:
    """Save one run under `name`."""
    run.save(folder / "runs" / name)


def runs_of(folder: Path) -> list[Path]:
    """The folders of the runs, in order. Raises as `read_manifest`."""
    return [folder / "runs" / name for name in read_manifest(folder)["runs"]]


def load_runs(folder: Path) -> dict[str, Run]:
    """The runs, in order. Raises as `Run.load` and `read_manifest`; ValueError for none."""
    paths = runs_of(folder)
    if not paths:
        raise ValueError(f"{folder} has no finished run yet")
    return {path.name: Run.load(path) for path in paths}


def finished_runs(folder: Path) -> list[tuple[str, Run]]:
    """Uninterrupted runs by name."""
    runs = load_runs(folder) if read_manifest(folder)["runs"] else {}
    return [(name, run) for name, run in runs.items() if not run.interrupted]


class Reported(NamedTuple):
    """Files of a report."""

    formats: tuple[str, ...]
    """suffixes of figures besides PNG: svg, pdf"""
    tables: "dict[Path, pd.DataFrame]"
    """by file"""
    figures: dict[Path, str]
    """titles by file"""


_REPORTED: ContextVar[Reported | None] = ContextVar("reported", default=None)
_UNDATED: Mapping[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


@contextmanager
def reporting(*formats: str) -> Iterator[Reported]:
    """Collect the files of `save_table` and `save_figure`; save figures in further `formats` too."""
    reported = Reported(formats, {}, {})
    token = _REPORTED.set(reported)
    try:
        yield reported
    finally:
        _REPORTED.reset(token)


def write_summary(folder: Path, table: "pd.DataFrame", figures: Mapping[str, "Figure"]) -> None:
    """Write the table as summary.csv, and the figures as PNG."""
    save_table(folder / "summary.csv", table)
    for name, figure in figures.items():
        save_figure(folder / name, figure)


def save_table(path: Path, table: "pd.DataFrame", *, index: bool = True) -> None:
    """Write a table as CSV."""
    write_file(path, lambda temporary: table.to_csv(temporary, index=index))
    reported = _REPORTED.get()
    if reported is not None:
        reported.tables[path] = table if index else table.reset_index(drop=True)


def save_figure(path: Path, figure: "Figure") -> None:
    """Write `figure` as PNG and in the formats of `reporting`; text remains text."""
    from matplotlib import rc_context

    reported = _REPORTED.get()
    for suffix in ("png", *(() if reported is None else reported.formats)):
        with rc_context({"pdf.fonttype": 42, "svg.hashsalt": "seqdec"}):
            write_file(
                path.with_suffix(f".{suffix}"),
                lambda temporary, suffix=suffix: figure.savefig(temporary, format=suffix, metadata=_UNDATED[suffix]),
            )
    if reported is not None:
        reported.figures[path] = _title_of(figure)


def _title_of(figure: "Figure") -> str:
    panels = [axis.get_title(loc="left") or axis.get_title() for axis in figure.axes if axis.get_visible()]
    return ". ".join(dict.fromkeys(part for part in (figure.get_suptitle(), "; ".join(filter(None, panels))) if part))


SETTINGS = "seqdec settings 1"


def read_settings(path: Path, experiment: str) -> dict[str, dict[str, Any]]:
    """Settings by agent. Raises ValueError for an invalid file."""
    if not path.is_file():
        raise ValueError(f"settings: no such file: {path}")
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != SETTINGS:
        raise ValueError(f"{path} is not a settings file of `seqdec tune`")
    if content.get("experiment") != experiment:
        raise ValueError(f"{path} has settings for {content.get('experiment')!r}, not for {experiment!r}")
    found = content.get("agents")
    entries = found.values() if isinstance(found, dict) else [None]
    if not all(isinstance(entry, dict) and isinstance(entry.get("settings"), dict) for entry in entries):
        raise ValueError(f"{path} is damaged: 'agents' must map agents to their settings; create the file again")
    for entry in content["agents"].values():
        for name, value in entry["settings"].items():
            check_registered(f"{path}: {name}", value)
    return content["agents"]


def write_settings(path: Path, experiment: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Write settings by agent. Raises OSError."""
    write_json(path, {"format": SETTINGS, "experiment": experiment, "agents": dict(found)})


def described(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Settings of each agent, and how they were found."""
    lines = []
    for kind, entry in found.items():
        numbers = ", ".join(f"{keyword} {value:.3g}" for keyword, value in entry["settings"].items())
        how = f"best of {entry['budget']} trials of {entry['steps']:,} steps, seed {entry['seed']}"
        lines.append(f"{kind}: {numbers} ({how})")
    return "\n".join(lines)
