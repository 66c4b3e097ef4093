"""The result of `seqdec.minimize`; apart from it because scipy is slow to import."""

from typing import TYPE_CHECKING

from scipy.optimize import OptimizeResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class SearchResult(OptimizeResult):
    """scipy's OptimizeResult with a figure."""

    def plot(self, panel: str | None = None, *, minimum: float | None = None, maximum: float | None = None) -> "Figure":
        """A matplotlib Figure of the search, as `seqdec.bo.BayesianOptimizer.plot`."""
        return self.optimizer.plot(panel, minimum=minimum, maximum=maximum)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), "plot"]
