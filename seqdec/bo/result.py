"""The result of `seqdec.minimize`; apart from it because scipy is slow to import."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.optimize import OptimizeResult

from seqdec.introspection import html, present

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from seqdec.bo.optimizer import BayesianOptimizer


class SearchResult(OptimizeResult):
    """scipy's OptimizeResult with a figure: what `seqdec.minimize` returns."""

    x: Any
    """The recommended point; with several objectives the points of the front."""
    fun: Any
    """The function there, see `kind`; with several objectives one row for each point."""
    fun_interval: tuple[Any, Any]
    """The function at `x` lies between these with probability 95%."""
    kind: str
    """Whether `fun` was "observed" or is "predicted"."""
    nfev: int
    """Calls made."""
    success: bool
    """Whether all calls were made, or all points of a finite space evaluated."""
    status: int
    """The reason of the end, as `message` says it."""
    message: str
    """The reason of the end, the surrogate, the acquisition and the seed."""
    traceback: str | None
    """Of the first exception of `catch`."""
    x_iters: list[Any]
    """The evaluated points."""
    func_vals: np.ndarray
    """Their values."""
    surrogate: str
    """Its name."""
    acquisition: str
    """Its name."""
    seed: int
    """Of the search."""
    optimizer: "BayesianOptimizer"
    """The optimizer, for further questions."""

    def _repr_html_(self) -> str:
        several = self.optimizer.outputs.objectives > 1
        values = np.atleast_2d(self.fun)
        names = self.optimizer.space.names
        points = [x if names else dict(enumerate(x)) for x in (self.x if several else [self.x]) if x is not None]
        table = pd.DataFrame(points).rename(columns=lambda name: name if names else f"x[{name}]")
        for index in range(values.shape[1] if len(values) == len(table) else 0):
            table[f"fun[{index}]" if several else "fun"] = values[:, index]
        return html(self.message, table)

    def plot(self, panel: str | None = None, *, minimum: float | None = None, maximum: float | None = None) -> "Figure":
        """A matplotlib Figure of the search, as `seqdec.bo.BayesianOptimizer.plot`."""
        return self.optimizer.plot(panel, minimum=minimum, maximum=maximum)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), "plot"]


present(__name__)
