"""A report of a search: one self-contained page of HTML."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from seqdec import pages
from seqdec.bo.report import figures
from seqdec.introspection import brief
from seqdec.persistence import located, versions

if TYPE_CHECKING:
    from seqdec.bo.optimizer import BayesianOptimizer

_BEST = 20
"""Most trials shown."""
_FAILURES = 20
"""Most reasons of failures shown, by frequency."""


def write(optimizer: "BayesianOptimizer", path: Any, message: str, minimum: Any, maximum: Any) -> Path:
    """Write the page atomically; returns its path. Raises as `BayesianOptimizer.report`."""
    file = located(path)
    pages.check_name(file)
    pages.write(file, "Bayesian optimization", _parts(optimizer, message, minimum, maximum))
    return file


def _parts(optimizer: "BayesianOptimizer", message: str, minimum: Any, maximum: Any) -> list[str]:
    figure, table = figures.plot(optimizer, None, minimum, maximum), optimizer.trials_dataframe()
    counts = table.loc[table["state"] == "failed", "reason"].value_counts(sort=True)[:_FAILURES]
    return [
        *(pages.preformatted(text) for text in (message, repr(optimizer)) if text),
        _embedded(figure),
        pages.heading("Best trials") if optimizer.outputs.objectives == 1 else pages.heading("Front"),
        pages.table(_best(optimizer, table).drop(columns=["state", "reason"])),
        pages.heading("Failures"),
        pages.table(pd.DataFrame({"trials": counts.to_numpy(), "reason": counts.index})),
        pages.heading("Settings"),
        pages.table(_listed(vars(optimizer.settings))),
        pages.heading("Versions"),
        pages.table(pd.DataFrame(list(versions().items()), columns=["package", "version"])),
    ]


def _listed(settings: Mapping[str, Any]) -> pd.DataFrame:
    space = settings["space"]
    rows = [(f"parameter {key}", one) for key, one in zip(space.keys, space.dimensions, strict=True)]
    rows += [(name, value) for name, value in settings.items() if name != "space"]
    return pd.DataFrame([(name, brief(value)) for name, value in rows], columns=["keyword", "value"])


def _embedded(figure: Any) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return pages.figure(buffer.getvalue())


def _best(optimizer: "BayesianOptimizer", table: pd.DataFrame) -> pd.DataFrame:
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
