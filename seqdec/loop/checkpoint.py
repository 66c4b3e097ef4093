"""Checkpoints: a run in progress as one file, continued to the bit."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from seqdec.core import PyTree
from seqdec.loop.record import Record
from seqdec.persistence import check_format, read_arrays, versions, write_arrays
from seqdec.states import as_array, as_leaf, described, named_leaves

_FORMAT = "seqdec checkpoint 1"
_COLUMNS = tuple(name for name in Record._fields if name != "diagnostics")


class Checkpoint(NamedTuple):
    """Where and how often a run is saved."""

    path: Path
    every: int
    """steps between checkpoints, rounded up to whole chunks"""
    facts: Mapping[str, Any]
    """what a run must share with the file's, as JSON values"""


class Progress(NamedTuple):
    """A run in progress."""

    state: PyTree
    record: Record
    """of the steps done, (seeds, steps, ...)"""
    clock: list[tuple[int, float]]
    compile_seconds: float


def save(checkpoint: Checkpoint, progress: Progress) -> None:
    """Replace the file; OSError where impossible, with the old file left."""
    state = {f"state.{name}": as_array(name, leaf) for name, leaf in named_leaves(progress.state)}
    record = {f"record.{name}": getattr(progress.record, name) for name in _COLUMNS}
    diagnostics = {f"diagnostics.{name}": values for name, values in progress.record.diagnostics.items()}
    manifest = {
        "format": _FORMAT,
        "run": dict(checkpoint.facts),
        "diagnostics": list(progress.record.diagnostics),
        "clock": progress.clock,
        "compile_seconds": progress.compile_seconds,
        "versions": versions(),
    }
    write_arrays(checkpoint.path, {**state, **record, **diagnostics}, manifest)


def load(checkpoint: Checkpoint, like: PyTree) -> Progress | None:
    """The progress in the file, None without one; `like` has the shapes of the run's state.

    Raises ValueError for a damaged file or one of another run.
    """
    path = checkpoint.path
    if not path.exists():
        return None
    arrays, manifest = read_arrays(path)
    check_format(path, manifest, _FORMAT)
    for name, value in checkpoint.facts.items():
        if manifest["run"].get(name) != value:
            raise ValueError(
                f"{path} is the checkpoint of another run: its {name} is {manifest['run'].get(name)!r}, "
                f"that of this run {value!r}; delete the file, or run with what it was written with"
            )
    leaves = named_leaves(like)
    for name, leaf in leaves:
        saved = as_leaf(arrays[f"state.{name}"], leaf) if f"state.{name}" in arrays else None
        if saved is None or described(saved) != described(leaf):
            raise ValueError(f"{path} is the checkpoint of another run: its state has another {name}; delete the file")
    state = jax.tree.structure(like).unflatten(as_leaf(arrays[f"state.{name}"], leaf) for name, leaf in leaves)
    diagnostics = {name: arrays[f"diagnostics.{name}"] for name in manifest["diagnostics"]}
    record = Record(**{name: arrays[f"record.{name}"] for name in _COLUMNS}, diagnostics=diagnostics)
    clock = [(steps, seconds) for steps, seconds in manifest["clock"]]
    return Progress(state, record, clock, manifest["compile_seconds"])
