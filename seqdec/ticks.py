"""Ticks as plain numbers, 0.9 or 1,000; powers of ten on long logarithmic axes."""

from typing import Any

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogFormatterSciNotation, LogLocator, MaxNLocator, NullFormatter

_WIDE = 100.0
"""Ratio of limits from which on logarithmic axes have powers of ten."""
_STEPS = [1, 2, 5, 10]


def plain_ticks(axis: Axis) -> None:
    """Numbers with commas on a linear axis, or a logarithmic one below two decades; powers of ten on a longer one."""
    if axis.get_scale() == "linear":
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if axis.get_scale() != "log":
        return
    powers = LogFormatterSciNotation()

    def text(value: float, place: Any) -> str:
        low, high = np.sort(axis.get_view_interval())
        powers.set_axis(axis)
        return powers(value, place) if high >= _WIDE * low else f"{value:,.10g}"

    axis.set_major_locator(_Logarithmic())
    axis.set_major_formatter(FuncFormatter(text))
    axis.set_minor_formatter(NullFormatter())


class _Logarithmic(LogLocator):
    """1, 2 and 5 times powers of ten below two decades, or evenly spaced if these are too few."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        low, high = min(vmin, vmax), max(vmin, vmax)
        if low <= 0 or high >= _WIDE * low:
            return super().tick_values(vmin, vmax)
        powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        places = np.outer(powers, [1, 2, 5]).ravel()
        inside = places[(places >= low) & (places <= high)]
        return inside if len(inside) > 2 else MaxNLocator(4, steps=_STEPS).tick_values(low, high)
