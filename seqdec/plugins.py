"""Factories from outside the library: declared names, and "module:function".

Packages declare names as entry points of the groups seqdec.agents, seqdec.environments, seqdec.policies,
seqdec.surrogates and seqdec.experiments; folders in sys.path in the tables [tool.seqdec.agents], ... of their
pyproject.toml. They are read once.

"module:function" imports and runs code: whoever calls a function or types a command may name it, a file or folder only
if it is trusted.
"""

import difflib
import functools
import hashlib
import importlib
import re
import sys
import tomllib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

_NAME = re.compile(r"[\w+-]+")
"""Fits into lists of names, file names and "kind:rank+policy.variant"."""
_DOTTED = r"[^\W\d]\w*(?:\.[^\W\d]\w*)*"
REFERENCE = re.compile(f"{_DOTTED}:{_DOTTED}")
""""module:function", or "module:object.function"."""
_LOADED: dict[str, str] = {}
_SOURCE: ContextVar[tuple[Path, Collection[Any]] | None] = ContextVar("source", default=None)
_TRUSTED: ContextVar[bool] = ContextVar("trusted", default=False)


class Declared(NamedTuple):
    """A declared name."""

    name: str
    reference: str
    """"module:function\""""
    package: str
    """or path of a pyproject.toml"""
    version: str
    """"" for a folder"""

    def __str__(self) -> str:
        return f"{self.origin}, {self.reference}"

    @property
    def origin(self) -> str:
        """Package and version, or the path."""
        return f"{self.package} {self.version}".strip()


@functools.cache
def declared(group: str) -> tuple[Declared, ...]:
    """Declared names of a group, sorted."""
    found = metadata.entry_points(group=group)
    known = [(point, point.dist.name, point.dist.version) for point in found if point.dist is not None]
    installed = {Declared(point.name, f"{point.module}:{point.attr}", *dist) for point, *dist in known}
    return tuple(sorted(installed.union(_of_folders(group))))


def _of_folders(group: str) -> Iterator[Declared]:
    """Names declared by pyproject.toml in folders of sys.path. Raises ValueError for a damaged file."""
    for path in (Path(folder, "pyproject.toml") for folder in sys.path):
        if not path.is_file():
            continue
        try:
            table = tomllib.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not TOML: {error}") from error
        for key in ("tool", *group.split(".")):
            table = table.get(key, {})
        yield from (Declared(name, reference, str(path.absolute()), "") for name, reference in table.items())


def is_name(text: str) -> bool:
    """Whether a name may be declared."""
    return _NAME.fullmatch(text) is not None


def is_reference(text: Any) -> bool:
    """Whether a text has the form "module:function"."""
    return isinstance(text, str) and REFERENCE.fullmatch(text) is not None


@contextmanager
def named_by(source: Path, trust: Collection[Any] = ()) -> Iterator[None]:
    """Within it, names are those of a file or folder, which may hold a "module:function" only if it is in `trust`."""
    token = _SOURCE.set((source, trust))
    try:
        yield
    finally:
        _SOURCE.reset(token)


@contextmanager
def trusting() -> Iterator[None]:
    """Within it, files and folders may name any code: --trust."""
    token = _TRUSTED.set(True)
    try:
        yield
    finally:
        _TRUSTED.reset(token)


def check_registered(place: object, value: Any) -> None:
    """Raises ValueError for a "module:function" in a file or folder, unless it is trusted."""
    if is_reference(value) and not _TRUSTED.get():
        raise ValueError(
            f"{place} names {value!r}, which would import code: name one of the registry (seqdec list), or trust what "
            "you have read yourself with --trust"
        )


def check_source(reference: str) -> None:
    """Raises ValueError where a file or folder names what it may not."""
    if (found := _SOURCE.get()) is not None and reference not in found[1]:
        check_registered(found[0], reference)


def load(reference: str) -> Any:
    """What "module:function" names; imports the module.

    Raises ValueError, with the remedy, if it cannot.
    """
    name, _, attribute = reference.partition(":")
    try:
        found = module = importlib.import_module(name)
    except Exception as error:  # of the user's code, of any kind
        if isinstance(error, ModuleNotFoundError) and error.name and f"{name}.".startswith(f"{error.name}."):
            remedy = "install its package, call the command in the folder that holds it, or add that to PYTHONPATH"
            raise ValueError(f"{reference!r}: there is no module {error.name!r}: {remedy}") from error
        reason = (str(error).strip() or "no message").splitlines()[0]
        raise ValueError(
            f"{reference!r}: the module {name!r} cannot be imported ({type(error).__name__}: {reason}): see the whole "
            f"error with python -c 'import {name}'"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            close = difflib.get_close_matches(part, dir(found), n=1)
            hint = f"did you mean {close[0]!r}?" if close else "write it there, or correct the name"
            place = getattr(module, "__file__", None) or "a folder without __init__.py"
            raise ValueError(f"{reference!r}: {name!r} ({place}) has no {part!r}: {hint}")
        found = getattr(found, part)
    return found


def load_declared(points: tuple[Declared, ...], kind: str) -> Any:
    """What a name declared by `points` stands for. Raises ValueError unless exactly one loads."""
    first = points[0]
    if len(points) > 1:
        raise ValueError(
            f"the {kind} {first.name!r} is declared by several packages ({'; '.join(map(str, points))}): uninstall all "
            f"but one, or write {first.reference!r} in the place of the name"
        )
    try:
        found = load(first.reference)
    except ValueError as error:
        remedy = f"update the package, or pip uninstall {first.package}" if first.version else "correct that file"
        raise ValueError(f"the {kind} {first.name!r} of {first.origin} cannot be loaded: {error}; {remedy}") from error
    if first.version:
        _LOADED[first.package] = first.version
    return found


def versions() -> dict[str, str]:
    """Package -> version, where this process has loaded a declared factory."""
    return dict(sorted(_LOADED.items()))


def digest(reference: str) -> str:
    """Of the file of a loaded "module:function", or of the name without a file."""
    path = getattr(sys.modules[reference.partition(":")[0]], "__file__", None)
    content = Path(path).read_bytes() if path and Path(path).is_file() else reference.encode()
    return hashlib.sha256(content).hexdigest()[:20]
