"""A report of a search: one page of HTML that needs nothing else."""

import base64
import html
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from seqdec.bo.report import figures
from seqdec.bo.report.searched import Searched
from seqdec.introspection import brief
from seqdec.persistence import located, versions, write_file

_BEST = 20
"""Trials that are shown at most, the best ones."""
_FAILURES = 20
"""Reasons of failures that are shown at most, the most frequent ones."""
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
img { max-width: 100%; height: auto; display: block; margin: 1rem 0; }
pre { background: #f4f4f4; padding: .7rem; overflow-x: auto; white-space: pre-wrap; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #888; }
"""


def write(optimizer: Searched, path: str | os.PathLike[str], message: str, minimum: Any, maximum: Any) -> Path:
    """Write the page atomically; returns its path.

    Raises:
        ValueError: the path has a suffix other than ".html" or ".htm", or as `figures.plot`.
        OSError: the file cannot be written.
    """
    file = located(path)
    if file.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{file} would be a page of HTML with another suffix: call it {file.stem}.html")
    text = _page(optimizer, message, minimum, maximum)
    write_file(file, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return file


def _page(optimizer: Searched, message: str, minimum: Any, maximum: Any) -> str:
    """The text of the page."""
    picture, table = figures.plot(optimizer, None, minimum, maximum), optimizer.trials_dataframe()
    counts = table.loc[table["state"] == "failed", "reason"].value_counts(sort=True)[:_FAILURES]
    parts = [
        "<h1>Bayesian optimization</h1>",
        *(f"<pre>{html.escape(text)}</pre>" for text in (message, repr(optimizer)) if text),
        _picture(picture),
        "<h2>Best trials</h2>" if optimizer.outputs.objectives == 1 else "<h2>Front</h2>",
        _table(_best(optimizer, table).drop(columns=["state", "reason"])),
        "<h2>Failures</h2>",
        _table(pd.DataFrame({"trials": counts.to_numpy(), "reason": counts.index})),
        "<h2>Settings</h2>",
        _table(_listed(optimizer.settings._asdict())),
        "<h2>Versions</h2>",
        _table(pd.DataFrame(list(versions().items()), columns=["package", "version"])),
    ]
    head = f'<meta charset="utf-8"><title>Bayesian optimization</title><style>{_STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(parts) + "\n</body></html>\n"


def _listed(settings: Mapping[str, Any]) -> pd.DataFrame:
    """The settings, of which the space comes by its dimensions."""
    space = settings["space"]
    rows = [(f"parameter {key}", one) for key, one in zip(space.keys, space.dimensions, strict=True)]
    rows += [(name, value) for name, value in settings.items() if name != "space"]
    return pd.DataFrame([(name, brief(value)) for name, value in rows], columns=["keyword", "value"])


def _picture(figure: Any) -> str:
    """A figure as PNG within the page."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return f'<img alt="" src="data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}">'


def _best(optimizer: Searched, table: pd.DataFrame) -> pd.DataFrame:
    """The best feasible trials; with several objectives those of the front, in the order of the first one."""
    objectives = optimizer.outputs.objectives
    kept = (table["state"] == "complete").to_numpy()
    if "feasible" in table:
        kept = kept & table["feasible"].to_numpy(bool)
    values = table[list(optimizer.outputs.columns[:objectives])].to_numpy(float)
    if objectives > 1 and kept.any():
        front = optimizer.front().values
        kept = kept & np.array([(row == front).all(1).any() for row in values])
    merits = -values[:, 0] if optimizer.maximize is True else values[:, 0]
    return table.iloc[[i for i in np.argsort(merits, kind="stable") if kept[i]][:_BEST]]


def _table(table: pd.DataFrame) -> str:
    if not len(table):
        return "<p>None.</p>"
    text = table.to_html(index=False, border=0, na_rep="", float_format=lambda value: f"{value:.6g}")
    return f'<div class="wide">{text}</div>'
