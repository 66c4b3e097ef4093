"""The contract of experiments."""

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from seqdec import executors
from seqdec.boundary import checks
from seqdec.persistence import located

_FLAGS = {"published": "the paper's settings", "quick": "a small run for two cores"}


class Choice(NamedTuple):
    """The names that a text option may have."""

    kind: str
    """what a name stands for"""
    known: Collection[str]
    several: bool = False
    """whether the option is a comma-separated list"""
    free: bool = False
    """whether the experiment itself checks other names"""


class Located:
    """Options whose paths are made absolute, "~" expanded."""

    def __post_init__(self) -> None:
        """Replace the paths of a frozen dataclass."""
        for field in fields(self):  # pyright: ignore[reportArgumentType] (a dataclass)
            value = getattr(self, field.name)
            if isinstance(value, Path):
                object.__setattr__(self, field.name, located(value))

    def restore(self) -> list[Any]:
        return []


@dataclass(frozen=True, kw_only=True)
class Distributed(Located):
    """Options of commands that run in processes or on a cluster."""

    backend: str = "local"
    """local: processes on this machine; ray: a Ray cluster (pip install 'seqdec[ray]')."""
    address: str | None = None
    """Address of the Ray cluster, such as auto or ray://head:10001; by default, start one on this machine."""
    workers: int | None = None
    """Processes on this machine; by default one per core."""

    def check_backend(self) -> None:
        """Raises ValueError for incompatible options, ImportError without Ray."""
        check_minimum(self, workers=1)
        if self.backend == "ray":
            executors.check_ray()
        elif self.address is not None:
            raise ValueError(f"--address requires --backend ray; got {self.address!r} with --backend {self.backend}")
        if self.address is not None and self.workers is not None:
            raise ValueError("--workers has no effect on the cluster at --address; leave it out")

    def executor(self) -> executors.Local | executors.Ray:
        return executors.Ray(self.address, self.workers) if self.backend == "ray" else executors.Local(self.workers)


class Experiment(Protocol):
    """Options of an experiment, a frozen dataclass; docstrings of class and fields are the help."""

    name: ClassVar[str]
    """Key in `seqdec.commands.REGISTRY` or `COMMANDS`, and in files of settings."""
    choices: ClassVar[Mapping[str, Choice]]
    """Options that take names, by field."""

    @property
    def out(self) -> Path:
        """Folder of the results."""
        ...

    def check(self) -> Any:
        """Validate the options and build what `play` needs; writes nothing.

        Raises ValueError or TypeError for wrong options, OSError for missing data.
        """
        ...

    def restore(self) -> list[Any]:
        """Finished saved parts, in the order of `play`."""
        ...

    def play(self, plan: Any, finished: Sequence[Any]) -> Iterator[Any]:
        """Run with what `check` returned, and yield each complete part.

        Omits `finished` parts, without effect on others. Raises KeyboardInterrupt on Ctrl-C, after yielding a
        reportable partial part.
        """
        ...

    def save(self, parts: list[Any]) -> None:
        """Write the manifest and all parts so far, the new one last."""
        ...

    @staticmethod
    def report(folder: Path) -> str:
        """Write tables and figures of `folder`; returns the table as text."""
        ...


class Quick(Experiment, Protocol):
    """An experiment of `seqdec run`, with a small run."""

    quick_options: ClassVar[Mapping[str, Any]]
    """Options under --quick, unless given."""

    @property
    def quick(self) -> bool:
        """Whether to use the small run."""
        ...


def is_experiment(kind: Any) -> bool:
    """Whether it satisfies what `seqdec run` needs."""
    needed = ("name", "choices", "quick_options", "quick", "out", "check", "restore", "play", "save", "report")
    known = {*dir(kind), *getattr(kind, "__dataclass_fields__", ())}
    return isinstance(kind, type) and is_dataclass(kind) and known >= {*needed}


def preset(options: Any) -> dict[str, Any]:
    """Defaults under --published and --quick, the latter first."""
    chosen: dict[str, Any] = {}
    for flag in _FLAGS:
        if getattr(options, flag, False):
            chosen |= getattr(options, f"{flag}_options")
    return chosen


def description(experiment: Any) -> str:
    """The help of an experiment, with --published and --quick."""
    paragraphs = [inspect.getdoc(experiment) or ""]
    for flag, title in _FLAGS.items():
        changed = getattr(experiment, f"{flag}_options", {})
        listed = ", ".join(f"{name.replace('_', '-')} {value}" for name, value in changed.items())
        paragraphs += [f"--{flag}, {title}, changes these defaults: {listed}."] if changed else []
    return "\n\n".join(paragraphs)


def split_names(kind: str, text: str) -> list[str]:
    """Comma-separated names. Raises ValueError for a duplicate, TypeError unless `text` is a str."""
    if not isinstance(text, str):
        raise TypeError(f"{kind}s must be a str of comma-separated names; got {text!r}")
    names = [name.strip() for name in text.split(",")]
    if len(set(names)) < len(names):
        raise ValueError(f"{kind}s must differ from each other; got {text!r}")
    return names


def number_range(option: str, text: str | None) -> tuple[float, float] | None:
    """Two numbers separated by a comma. Raises ValueError."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError as error:
        raise ValueError(f"{option} must be two numbers, such as 0,1; got {text!r}") from error
    if not low < high:
        raise ValueError(f"{option} must be two increasing numbers; got {text!r}")
    return low, high


def check_choices(options: Any) -> None:
    """Refuse names outside `options.choices`, with a suggestion; None passes."""
    for field, (kind, known, several, free) in options.choices.items():
        value = getattr(options, field)
        if value is None or free:
            continue
        for name in split_names(kind, value) if several else [value]:
            checks.choice(kind, name, known)


def check_seeds(seed: int, seeds: int = 1) -> None:
    """Raises ValueError for no seeds, or any outside [0, 2**63)."""
    checks.seeds(seed, checks.count("seeds", seeds))


def check_path(option: str, path: str | Path) -> None:
    """Raises ValueError for a path that does not exist."""
    if not Path(path).exists():
        raise ValueError(f"{option}: no such file or folder: {path}")


def check_minimum(options: Any, **minimum: int) -> None:
    """Raises ValueError for fields below their minimum."""
    for name, least in minimum.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}; got {value}")
