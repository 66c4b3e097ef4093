"""The table and the figure of the bench."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES: tuple[str, ...] = ("lrkf", "lolofi", "hilofi")

COLUMNS = {
    "filter": "",
    "network": "",
    "D": "parameters",
    "d": "rank of the hidden layers' covariance",
    "columns": "d + m, width of the lazy basis",
    "ms": "milliseconds a step",
    "ms_jacobian": "of which the Jacobian of all arms",
    "ms_products": "of which the products with the basis",
    "ms_rest": "of which all else: small algebra, buffer, last layer",
    "ms_boxes": "milliseconds a step of the boxes",
    "ratio": "ms_boxes / ms",
    "bandwidth": "the basis twice a step, over the bandwidth of a large copy",
    "mb": "peak of the compiled step's memory, in MB",
    "mb_boxes": "that of the boxes",
    "gb_per_s_copy": "bandwidth of a large copy, read and written",
}


def exponents(table: pd.DataFrame, by: str, within: str) -> Iterator[tuple[str, int, float]]:
    """(filter, value of `within`, exponent b of a fit ms ~ by^b) wherever the MLPs give three points or more."""
    mlp = table[table["network"] == "MLP"]
    for name in sorted(set(mlp["filter"])):
        for value in sorted(set(mlp[within])):
            group = mlp.loc[(mlp["filter"] == name) & (mlp[within] == value)]
            if group[by].nunique() >= 3:
                yield name, int(value), float(np.polyfit(np.log(group[by]), np.log(group["ms"]), 1)[0])


def text(table: pd.DataFrame) -> str:
    """The table in markdown, the exponents of its fits, and what its columns are."""
    digits = {name: 2 if name.startswith("ms") else 1 for name in COLUMNS} | {"bandwidth": 2}
    shown = table.drop(columns="gb_per_s_copy")
    for name in shown.select_dtypes("floating"):
        shown[name] = shown[name].round(digits[str(name)])
    lines = [_markdown(shown), "", f"A large copy moves {table.gb_per_s_copy.iloc[0]:.1f} GB/s, read and written.", ""]
    for by, within in (("D", "d"), ("d", "D")):
        for name, value, exponent in exponents(table, by, within):
            lines.append(f"- {name}, {within} = {value:,}: time grows as {by}^{exponent:.2f}")
    return "\n".join([*lines, "", *(f"- {name}: {what}" for name, what in COLUMNS.items() if what and name in shown)])


def _markdown(table: pd.DataFrame) -> str:
    """A table in markdown."""
    cells = [
        [*table.columns],
        *(
            [f"{value:,}" if isinstance(value, int) else str(value) for value in row]
            for row in table.itertuples(index=False)
        ),
    ]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.columns))]
    lines = [
        "| " + " | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|", *lines[1:]])


def picture(table: pd.DataFrame, repeats: int) -> "Figure":
    """Milliseconds a step against what varies of D and d, on log axes; the boxes dashed."""
    colors = dict(zip(NAMES, ("#0072B2", "#009E73", "#D55E00"), strict=True))
    mlp = table.loc[table["network"] == "MLP"]
    mlp = mlp if len(mlp) else table
    panels = [("D", "d", "parameters D"), ("d", "D", "rank d")]
    panels = [panel for panel in panels if len(set(mlp[panel[0]])) > 1] or panels[:1]
    from matplotlib.figure import Figure

    from seqdec import figures
    from seqdec.ticks import plain_ticks

    figure = Figure(figsize=(5.4 * len(panels), 4.4), dpi=140, layout="constrained")
    for axes, (by, within, label) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        values = sorted(set(mlp[within]))
        value = values[len(values) // 2]
        for name in dict.fromkeys(mlp["filter"]):
            group = mlp.loc[(mlp[within] == value) & (mlp["filter"] == name)]
            axes.plot(group[by], group["ms"], "o-", color=colors[name], label=name)
            if group["ms_boxes"].notna().any():
                axes.plot(group[by], group["ms_boxes"], "o--", color=colors[name], mfc="white", label=f"{name}, boxes")
        axes.set(xscale="log", yscale="log", xlabel=label, ylabel="ms per step")
        plain_ticks(axes.xaxis)
        plain_ticks(axes.yaxis)
        axes.set_title(f"{within} = {value:,}", fontsize=11, loc="left")
        axes.grid(True, which="major", alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    title = f"Time of a step · median of {repeats} measurement{'' if repeats == 1 else 's'}"
    figure.suptitle(title, fontsize=12, fontweight="bold", x=0.01, ha="left")
    figures.legend(figure, figure.axes[:1], figure.axes[0].get_legend_handles_labels()[1])
    return figure
