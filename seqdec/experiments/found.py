"""Settings of agents that `seqdec tune` found, as JSON: beside the experiment in this package, or in a user's file.

{"format": ..., "experiment": NAME, "agents": {KIND: {"settings": {keyword: number}, "budget": ..., "steps": ...}}}
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqdec.persistence import read_json, write_json

FORMAT = "seqdec settings 1"
STORED = Path(__file__).parent / "settings"
"""Folder of the settings stored with the experiments, NAME.json each."""


def read_settings(path: Path, experiment: str) -> dict[str, dict[str, Any]]:
    """What was found for each agent.

    Raises ValueError for a file that is missing, damaged or another experiment's, and OSError where it cannot be read.
    """
    if not path.is_file():
        raise ValueError(f"settings: there is no file {path}")
    content = read_json(path)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} is not a file of settings, as `seqdec tune` writes them")
    if content.get("experiment") != experiment:
        raise ValueError(f"{path} holds settings for {content.get('experiment')!r}, not for {experiment!r}")
    found = content.get("agents")
    entries = found.values() if isinstance(found, dict) else [None]
    if not all(isinstance(entry, dict) and isinstance(entry.get("settings"), dict) for entry in entries):
        raise ValueError(f"{path} is damaged: agents must be a table of settings by agent; make it anew")
    return content["agents"]


def found_for(experiment: str, path: Path | None) -> dict[str, dict[str, Any]]:
    """What was found for each agent: in the file `path`, or by default in the one stored with the experiment, if any.

    Raises as `read_settings`.
    """
    stored = STORED / f"{experiment}.json"
    path = stored if path is None and stored.is_file() else path
    return {} if path is None else read_settings(path, experiment)


def write_settings(path: Path, experiment: str, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Write what was found for each agent. Raises OSError."""
    write_json(path, {"format": FORMAT, "experiment": experiment, "agents": dict(found)})


def described(found: Mapping[str, Mapping[str, Any]]) -> str:
    """One line for each agent: its settings, and how they were found."""
    lines = []
    for kind, entry in found.items():
        numbers = ", ".join(f"{keyword} {value:.3g}" for keyword, value in entry["settings"].items())
        how = f"best of {entry['budget']} trials of {entry['steps']:,} steps, seed {entry['seed']}"
        lines.append(f"{kind}: {numbers} ({how})")
    return "\n".join(lines)
