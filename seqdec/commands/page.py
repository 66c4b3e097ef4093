"""An experiment as a page of HTML, and its tables in LaTeX."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pandas as pd
import tyro

from seqdec import commands, pages, tables
from seqdec.commands.folder import CHECKPOINT, Reported, finished, read_manifest, runs_of
from seqdec.persistence import as_json, read_text
from seqdec.results import Run

_POSITIONAL = get_args(tyro.conf.Positional[int])[1]


def write(file: Path, folder: Path, text: str, reported: Reported) -> None:
    """Write the page of a report `text` with the files `reported`.

    Raises as `seqdec.pages.write` and `read_manifest`.
    """
    manifest = read_manifest(folder)
    options, versions = manifest["options"], manifest["versions"]
    pages.write(
        file,
        f"Results of {manifest['experiment']}: {folder.name}",
        [
            *(pages.paragraph(line, "warning") for line in warnings(folder)),
            pages.preformatted(command(manifest)),
            pages.preformatted(text, "table"),
            *_figures(folder, reported),
            *_tables(folder, reported),
            *_configuration(folder, manifest),
            pages.heading("Options"),
            _pairs("option", "value", {name: "" if value is None else str(value) for name, value in options.items()}),
            pages.heading("Versions"),
            _pairs("package", "version", versions),
        ],
    )  # fmt: skip


def latex(folder: Path, reported: Reported) -> str:
    """All tables, each below a comment with its name."""
    return "\n\n".join(
        f"% {path.relative_to(folder)}\n{tables.latex(table)}" for path, table in reported.tables.items()
    )


def warnings(folder: Path) -> Iterator[str]:
    """Interrupted or missing runs and rejected updates."""
    if not finished(folder):
        state = " A checkpoint of the run in progress is saved." if (folder / CHECKPOINT).exists() else ""
        yield (
            f"The experiment is not marked as finished: it runs, was interrupted or has failed.{state} "
            f"seqdec run --resume {shlex.quote(str(folder))} continues it."
        )
    for path in runs_of(folder):
        run = Run.load(path)
        if run.interrupted:
            yield f"{path.name} was interrupted after {run.rewards.shape[1]:,} steps."
        if run.rejected.any():
            yield f"{path.name}: {int(run.rejected.sum()):,} of {run.rewards.size:,} updates were rejected."


def command(manifest: dict[str, Any]) -> str:
    """The command, without defaults."""
    name = manifest["experiment"]
    kind: Any = commands.EVERY[name]
    hints = get_type_hints(kind, include_extras=True)
    words = ["seqdec", name] if name in commands.COMMANDS else ["seqdec", "run", name]
    for field in fields(kind):
        value, option = manifest["options"].get(field.name), f"--{field.name.replace('_', '-')}"
        if _POSITIONAL in get_args(hints[field.name])[1:]:
            words.append(str(value))
        elif value == as_json(field.default):
            continue
        elif isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        else:
            words += [option, *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


def _pairs(key: str, value: str, entries: Mapping[str, Any]) -> str:
    return pages.table(pd.DataFrame(list(entries.items()), columns=[key, value]))


def _figures(folder: Path, reported: Reported) -> Iterator[str]:
    if reported.figures:
        yield pages.heading("Figures")
    for path, title in reported.figures.items():
        yield pages.figure(path.read_bytes(), f"{path.relative_to(folder)}: {title}")


def _configuration(folder: Path, manifest: dict[str, Any]) -> Iterator[str]:
    if "config" in manifest["options"]:
        yield pages.heading("Configuration")
        yield pages.preformatted(read_text(folder / Path(manifest["options"]["config"]).name))


def _tables(folder: Path, reported: Reported) -> Iterator[str]:
    if reported.tables:
        yield pages.heading("Tables")
    for path, table in reported.tables.items():
        shown = tables.with_intervals(table)
        told = ", ± the half-width of the 95% interval" if any("(95%)" in name for name in shown) else ""
        yield pages.heading(f"{path.relative_to(folder)}{told}", 3)
        yield pages.table(shown)
