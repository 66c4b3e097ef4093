"""Short texts for `repr`."""

import reprlib
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = 80
"""Of a terminal."""
_WIDTH = 200
_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 70


def described(head: str, *lines: str) -> str:
    """A head and indented lines, without empty ones, long ones cut."""
    cut = (line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..." for line in lines if line)
    return "\n  ".join([head, *(line.replace("\n", " ") for line in cut)])


def counted(number: int, noun: str) -> str:
    """A number of things, as "1 step" or "2,000 steps"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(values: Mapping[str, Any]) -> str:
    """`name=value` of each entry, in short."""
    return ", ".join(f"{name}={brief(value)}" for name, value in values.items())


def brief(value: Any) -> str:
    """A value in a few dozen characters, on one line."""
    if isinstance(value, np.ndarray | jax.Array):
        return f"array of shape {value.shape}" if value.size > 4 else " ".join(str(value).split())
    if isinstance(value, float):
        return f"{value:.6g}"
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    return " ".join(_BRIEF.repr(value).split())


def sized(tree: Any) -> str:
    """Number of arrays in a tree, and their bytes."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")]
    if not leaves:
        return "no arrays"
    size = sum(int(leaf.size) * leaf.dtype.itemsize for leaf in leaves)
    amount = f"{size:,} bytes" if size < 100_000 else f"{size / 1e6:,.1f} MB"
    return f"{counted(len(leaves), 'array')}, {amount}"


def ranged(values: Any) -> str:
    """Mean and range of numbers other than NaN."""
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    if not known.size:
        return "unknown"
    low, high = known.min(), known.max()
    return f"{low:.4g}" if low == high else f"mean {known.mean():.4g}, {low:.4g} to {high:.4g}"


def fitted(table: "pd.DataFrame", digits: int = 4, **options: Any) -> str:
    """A table in blocks of columns no wider than a terminal, the first columns first."""
    return table.to_string(float_format=lambda value: f"{value:.{digits}g}", line_width=COLUMNS, **options)


def html(text: str, table: "pd.DataFrame") -> str:
    """A text, and a table under it."""
    return f"<pre>{escape(text)}</pre>\n{table.to_html(index=False, notebook=True)}"
