"""Tables of results with intervals, and in LaTeX.

Columns NAME, and NAME_95 with half-widths of 95% intervals, become "mean ± half-width".
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec.statistics import with_margin

if TYPE_CHECKING:
    import pandas as pd

_MARGIN = "_95"
_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "[": "{[}", "]": "{]}", "|": r"\textbar{}", "±": r"$\pm$", "·": r"$\cdot$",
})  # fmt: skip


def with_intervals(table: "pd.DataFrame") -> "pd.DataFrame":
    """The table as strings, its index as columns, means with their intervals; "-" for unknown values."""
    import pandas as pd

    named = any(name is not None for name in table.index.names) or not isinstance(table.index, pd.RangeIndex)
    flat: Any = table.reset_index() if named else table
    columns = {}
    for name in map(str, flat.columns):
        values, margins = flat[name], f"{name}{_MARGIN}"
        if name.removesuffix(_MARGIN) != name and name.removesuffix(_MARGIN) in flat:
            continue
        if margins in flat:
            columns[f"{name} (95%)"] = with_margin(values.to_numpy(float), flat[margins].to_numpy(float))
        else:
            columns[name] = [_cell(value) for value in values]
    return pd.DataFrame(columns)


def latex(table: "pd.DataFrame") -> str:
    r"""The table of `with_intervals` as a LaTeX tabular of booktabs: names escaped, numbers right, in math."""
    shown, plain = with_intervals(table), table.reset_index()
    numbers = [_is_number(plain[name.removesuffix(" (95%)")]) for name in shown.columns]
    rows = [[_escaped(name) for name in shown.columns]]
    rows += [
        [_number(cell) if number else _escaped(cell) for cell, number in zip(row, numbers, strict=True)]
        for row in shown.itertuples(index=False)
    ]
    head, *body = (" & ".join(row) + r" \\" for row in rows)
    layout = "".join("r" if number else "l" for number in numbers)
    return "\n".join(
        [rf"\begin{{tabular}}{{{layout}}}", r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    )


def _is_number(column: Any) -> bool:
    return bool(np.issubdtype(column.to_numpy().dtype, np.number))


def _cell(value: Any) -> str:
    """A value in at most five digits; integers and text stay."""
    if isinstance(value, float | np.floating):
        return "-" if np.isnan(value) else f"{value:,.5g}"
    return f"{value:,}" if isinstance(value, int | np.integer) and not isinstance(value, bool) else str(value)


def _escaped(text: str) -> str:
    return text.translate(_LATEX)


def _number(cell: str) -> str:
    """A number, or mean and half-width, in math; thousands without the space after a comma."""
    if cell == "-":
        return "--"
    cell = cell.replace("inf", r"\infty")
    mantissa, power, exponent = cell.partition("e")
    text = mantissa.replace(",", "{,}").replace("±", r"\pm")
    return f"${text}" + (rf" \cdot 10^{{{int(exponent)}}}$" if power else "$")
