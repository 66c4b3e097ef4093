"""The contract of experiments, and the checks of options that they share."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from seqdec.boundary import checks
from seqdec.persistence import located

_FLAGS = {"published": "the settings of the paper", "quick": "a small run for two cores"}
"""Flags that stand for other defaults, in the order in which they apply; `FLAG_options` says which."""


class Choice(NamedTuple):
    """The names that an option of text may have."""

    kind: str
    """what a name stands for, in messages"""
    known: Collection[str]
    several: bool = False
    """whether the option lists names separated by commas"""
    free: bool = False
    """whether a name may have more parts, or be something else, which the experiment checks itself"""


class Located:
    """Options whose paths are absolute from the working directory in which they are made, "~" expanded."""

    def __post_init__(self) -> None:
        """Replace the paths of a frozen dataclass that is being made."""
        for field in fields(self):  # pyright: ignore[reportArgumentType] (a dataclass)
            value = getattr(self, field.name)
            if isinstance(value, Path):
                object.__setattr__(self, field.name, located(value))

    def restore(self) -> list[Any]:
        """Nothing: by default all results are one part."""
        return []


class Experiment(Protocol):
    """Options of an experiment, as a frozen dataclass, with the methods that check, run, save and report it.

    The command line makes an option of every field; the docstrings of the class and of its fields are the help.
    """

    name: ClassVar[str]
    """Key in `seqdec.commands.REGISTRY` or `COMMANDS`, in files of settings too; of any other, any word."""
    choices: ClassVar[Mapping[str, Choice]]
    """The options that take names, by field."""

    @property
    def out(self) -> Path:
        """Folder of the results."""
        ...

    def check(self) -> Any:
        """Validate the options and build what `play` needs, before anything is computed or written.

        Raises ValueError or TypeError for wrong options, which the command line reports as a usage error, and OSError
        for missing data.
        """
        ...

    def restore(self) -> list[Any]:
        """The finished parts that `save` wrote to `out`, in the order in which `play` yields them."""
        ...

    def play(self, plan: Any, finished: Sequence[Any]) -> Iterator[Any]:
        """Run the experiment with what `check` returned, and yield each part of the results when it is complete.

        Leaves out the `finished` parts, without effect on the others. Raises KeyboardInterrupt on Ctrl-C, after
        yielding a part that was cut short but can be reported.
        """
        ...

    def save(self, parts: list[Any]) -> None:
        """Write the manifest and the results; called after each part with all parts so far, the new one last."""
        ...

    @staticmethod
    def report(folder: Path) -> str:
        """Write tables and figures from the results saved in `folder`; returns the table as text."""
        ...


class Quick(Experiment, Protocol):
    """An experiment of `seqdec run`, which has a small run."""

    quick_options: ClassVar[Mapping[str, Any]]
    """What --quick sets the options to that are not given."""

    @property
    def quick(self) -> bool:
        """Whether the options are to be those of the small run."""
        ...


def is_experiment(kind: Any) -> bool:
    """Whether something is a class with what `seqdec run` needs of an experiment."""
    needed = ("name", "choices", "quick_options", "quick", "out", "check", "restore", "play", "save", "report")
    known = {*dir(kind), *getattr(kind, "__dataclass_fields__", ())}
    return isinstance(kind, type) and is_dataclass(kind) and known >= {*needed}


def preset(options: Any) -> dict[str, Any]:
    """The defaults that the flags --published and --quick change, by option; --quick has precedence."""
    chosen: dict[str, Any] = {}
    for flag in _FLAGS:
        if getattr(options, flag, False):
            chosen |= getattr(options, f"{flag}_options")
    return chosen


def description(experiment: Any) -> str:
    """The help of an experiment: its docstring, and what --published and --quick stand for."""
    paragraphs = [experiment.__doc__]
    for flag, title in _FLAGS.items():
        changed = getattr(experiment, f"{flag}_options", {})
        listed = ", ".join(f"{name.replace('_', '-')} {value}" for name, value in changed.items())
        paragraphs += [f"--{flag}, {title}, changes these defaults: {listed}."] if changed else []
    return "\n\n".join(paragraphs)


def split_names(kind: str, text: str) -> list[str]:
    """The names in a comma-separated list. Raises ValueError for a name that occurs twice, TypeError for no text."""
    if not isinstance(text, str):
        raise TypeError(f"{kind}s must be a text of names separated by commas; got {text!r}")
    names = [name.strip() for name in text.split(",")]
    if len(set(names)) < len(names):
        raise ValueError(f"{kind}s must differ from each other; got {text!r}")
    return names


def check_choices(options: Any) -> None:
    """Refuse names that are not among those of `options.choices`, with a suggestion; None passes."""
    for field, (kind, known, several, free) in options.choices.items():
        value = getattr(options, field)
        if value is None or free:
            continue
        for name in split_names(kind, value) if several else [value]:
            checks.choice(kind, name, known)


def check_seeds(seed: int, seeds: int = 1) -> None:
    """Refuse seeds SEED, ..., SEED + SEEDS - 1 if there are none, or one of them is not in [0, 2**63)."""
    checks.seeds(seed, checks.count("seeds", seeds))


def check_path(option: str, path: str | Path) -> None:
    """Refuse the path of a file or folder that does not exist, as ValueError."""
    if not Path(path).exists():
        raise ValueError(f"{option}: there is no {path}")


def check_minimum(options: Any, **minimum: int) -> None:
    """Refuse fields of `options` below their minimum, as ValueError; None passes."""
    for name, least in minimum.items():
        value = getattr(options, name)
        if value is not None and value < least:
            raise ValueError(f"{name} must be at least {least}; got {value}")
