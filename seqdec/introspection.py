"""What users see of modules and objects: the names that TAB offers, the fields in `help`, and short texts for `repr`.

A field's text is the string literal below it, as in this library's sources; Python itself drops these strings. A module
offers `__all__`, or else what its own source defines. Where a source is missing, nothing changes.
"""

import re
import reprlib
import sys
from ast import literal_eval
from collections.abc import Collection, Iterator, Mapping
from html import escape
from inspect import cleandoc
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import jax
import numpy as np

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 200
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 70

_CLASS = re.compile(r"^class (\w+)\(.*\bNamedTuple\b.*\):\n((?:(?:    .*)?\n)*)", re.MULTILINE)
_FIELD = re.compile(
    r'^    (\w+): (.*(?:\n(?:     +.*|    [)\]}].*))*)(?:\n    (r?"""(?:\\[\s\S]|[^"\\]|"(?!""))*"""))?$', re.MULTILINE
)
_DEFINED = re.compile(
    r"^(?:(?:async )?(?:def|class) (\w+)|(\w+)(?:: .*)? = |(?:from .*)?import .*?(\w+) as \3$)", re.MULTILINE
)


def present(module: ModuleType | str) -> None:
    """Describe the fields of a loaded module's named tuples, and offer its public names only.

    `import seqdec` does so for all modules that it loads; others end with `present(__name__)`.
    """
    module = sys.modules[module] if isinstance(module, str) else module
    space = vars(module)
    own = {
        kind.__name__: kind
        for kind in space.values()
        if isinstance(kind, type) and kind.__module__ == module.__name__ and hasattr(kind, "_fields")
    }
    for name, body in _CLASS.findall(_source(module)) if own else ():
        for field, text in field_docs(body).items():
            if name in own and field in own[name]._fields:
                getattr(own[name], field).__doc__ = text
    space["__dir__"] = lambda: public_names(space, _source(module))


def present_all(package: str) -> None:
    """`present` all loaded modules of a package."""
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            present(module)


def field_docs(body: str) -> dict[str, str]:
    """Field -> the string below it, without one its annotation; of the body of a class."""
    return {
        name: cleandoc(literal_eval(text)) if text else _annotation(rest) for name, rest, text in _FIELD.findall(body)
    }


def public_names(namespace: Mapping[str, Any], source: str) -> list[str]:
    """The names of a module that are meant for its users, sorted."""
    names: Collection[str] = namespace.get("__all__") or set(_defined(source))
    return sorted(
        name
        for name in names
        if name in namespace and not name.startswith("_") and not isinstance(namespace[name], TypeVar | ParamSpec)
    )


def _defined(source: str) -> Iterator[str]:
    """Names that a module defines at its top level, or imports `as` themselves in order to offer them."""
    for match in _DEFINED.finditer(source):
        yield match[1] or match[2] or match[3]


def _annotation(rest: str) -> str:
    """The annotation of a field, without its default."""
    return " ".join(rest.split()).partition(" = ")[0].partition("  #")[0]


def _source(module: ModuleType) -> str:
    """The text of a module; empty where it is missing."""
    read = getattr(module.__loader__, "get_source", None)
    try:
        return (read and read(module.__name__)) or ""
    except (ImportError, OSError):
        return ""


def described(head: str, *lines: str) -> str:
    """The text of a `repr`: a head, and indented lines of which the empty ones are left out and long ones cut."""
    cut = (line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..." for line in lines if line)
    return "\n  ".join([head, *(line.replace("\n", " ") for line in cut)])


def counted(number: int, noun: str) -> str:
    """A number of things, as "1 step" or "2,000 steps"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(values: Mapping[str, Any]) -> str:
    """`name=value` of each entry, in short."""
    return ", ".join(f"{name}={brief(value)}" for name, value in values.items())


def brief(value: Any) -> str:
    """A value in some tens of characters, on one line."""
    if isinstance(value, np.ndarray | jax.Array):
        return f"array of shape {value.shape}" if value.size > 4 else " ".join(str(value).split())
    if isinstance(value, float):
        return f"{value:.6g}"
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    return " ".join(_BRIEF.repr(value).split())


def sized(tree: Any) -> str:
    """How many arrays a tree holds, and their bytes."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    if not leaves:
        return "no arrays"
    size = sum(int(leaf.size) * leaf.dtype.itemsize for leaf in leaves)
    amount = f"{size:,} bytes" if size < 100_000 else f"{size / 1e6:,.1f} MB"
    return f"{counted(len(leaves), 'array')}, {amount}"


def ranged(values: Any) -> str:
    """Mean and range of numbers, NaN left out."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    if not known.size:
        return "unknown"
    low, high = known.min(), known.max()
    return f"{low:.4g}" if low == high else f"mean {known.mean():.4g}, {low:.4g} to {high:.4g}"


def html(text: str, table: "pd.DataFrame") -> str:
    """A text as HTML, and a table under it."""
    return f"<pre>{escape(text)}</pre>\n{table.to_html(index=False, notebook=True)}"
