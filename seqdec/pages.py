"""Self-contained pages of HTML."""

import base64
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec.persistence import write_file

if TYPE_CHECKING:
    import pandas as pd

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
h3 { font-size: 1rem; overflow-wrap: anywhere; }
figure { margin: 1.4rem 0; } figcaption { font-size: .9rem; color: #555; }
img { max-width: 100%; height: auto; display: block; margin: 1rem 0; }
pre { background: #f4f4f4; padding: .7rem; overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere; }
pre.table { white-space: pre; overflow-wrap: normal; }
.warning { background: #fff3e0; border-left: 4px solid #d55e00; padding: .5rem .8rem; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } .wide img { min-width: 36rem; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .25rem .55rem; border-bottom: 1px solid #ddd; text-align: left; white-space: nowrap; }
th { border-bottom: 2px solid #888; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
"""


def check_name(file: Path) -> None:
    """Raises ValueError for the name of another kind of file."""
    if file.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{file} would be a page of HTML with another suffix: call it {file.stem}.html")


def write(file: Path, title: str, parts: Iterable[str]) -> None:
    """Write a page of `parts`, which are HTML, atomically.

    Raises ValueError for a suffix other than ".html" or ".htm", and OSError.
    """
    check_name(file)
    metadata = (
        f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    )
    head = f"<head>{metadata}<style>{_STYLE}</style></head>"
    body = "\n".join([f"<h1>{escape(title)}</h1>", *parts])
    text = f'<!doctype html>\n<html lang="en">{head}<body>\n{body}\n</body></html>\n'
    write_file(file, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def heading(text: str, level: int = 2) -> str:
    """A heading."""
    return f"<h{level}>{escape(text)}</h{level}>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph; `kind` "warning" stands out."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def preformatted(text: str, kind: str = "") -> str:
    """Lines as they are; `kind` "table": never broken."""
    return f'<pre class="{kind}">{escape(text)}</pre>' if kind else f"<pre>{escape(text)}</pre>"


def figure(png: bytes, caption: str = "") -> str:
    """A figure, scrolling on narrow screens."""
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    image = f'<div class="wide"><img alt="{escape(caption)}" src="{source}"></div>'
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>" if caption else image


def table(rows: "pd.DataFrame", *, index: bool = False, digits: int = 6) -> str:
    """A table, numbers to the right, scrolling on narrow screens; "None." without rows."""
    if not len(rows):
        return "<p>None.</p>"
    shown = rows.reset_index(names=rows.index.name or "") if index else rows
    columns = [[_text(value, digits) for value in shown[name]] for name in shown]
    kinds = [' class="number"' if all(map(_is_number, cells)) else "" for cells in columns]
    lines = [
        _row("th", map(str, shown.columns), kinds),
        *(_row("td", cells, kinds) for cells in zip(*columns, strict=True)),
    ]
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _row(tag: str, cells: Iterable[str], kinds: list[str]) -> str:
    filled = (f"<{tag}{kind}>{escape(cell)}</{tag}>" for cell, kind in zip(cells, kinds, strict=True))
    return f"<tr>{''.join(filled)}</tr>\n"


def _text(value: Any, digits: int) -> str:
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else f"{value:.{digits}g}"
    return "" if value is None else str(value)


def _is_number(text: str) -> bool:
    """Whether a cell holds a number, with or without half-width, or nothing."""
    try:
        float(text.partition(" ± ")[0].replace(",", "") or 0)
    except ValueError:
        return text == "-"
    return True
