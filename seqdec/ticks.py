"""Ticks as plain numbers: 0.9 or 1,000, powers of ten only on an axis that spans two decades or more."""

from typing import Any

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import FuncFormatter, LogFormatterSciNotation, LogLocator, MaxNLocator, NullFormatter

_WIDE = 100.0
"""Ratio of the limits of a logarithmic axis from which on its ticks are powers of ten."""
_STEPS = [1, 2, 5, 10]


def plain_ticks(axis: Axis) -> None:
    """Numbers with commas on a linear axis, and on a logarithmic one that spans less than two decades.

    A longer logarithmic axis has powers of ten; any other scale keeps its own ticks.
    """
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
    """Places of ticks: 1, 2 and 5 times powers of ten below two decades, or evenly spaced where these are too few."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """The places from `vmin` to `vmax`."""
        low, high = min(vmin, vmax), max(vmin, vmax)
        if low <= 0 or high >= _WIDE * low:
            return super().tick_values(vmin, vmax)
        powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
        places = np.outer(powers, [1, 2, 5]).ravel()
        inside = places[(places >= low) & (places <= high)]
        return inside if len(inside) > 2 else MaxNLocator(4, steps=_STEPS).tick_values(low, high)
