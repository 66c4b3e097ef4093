"""The result of `seqdec.minimize`; it imports scipy."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.optimize import OptimizeResult

from seqdec.bo.optimizer import Front, Recommendation
from seqdec.introspection import html

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from seqdec.bo.optimizer import BayesianOptimizer


class SearchResult(OptimizeResult):
    """The result of `seqdec.minimize`: scipy's OptimizeResult with figures."""

    x: Any
    """The recommended point, or the points of the front."""
    fun: Any
    """The function at `x`, see `kind`; with several objectives a row for each point."""
    fun_interval: tuple[Any, Any]
    """95% interval of the function at `x`."""
    kind: str
    """Whether `fun` was "observed" or is "predicted"."""
    nfev: int
    """Calls made."""
    cost: float
    """Cost of the calls, in calls at full fidelity."""
    success: bool
    """Whether a call was feasible, and the search ended by `n_calls`, `time_limit`, `target`, `patience`, or as all
    points of a finite space were evaluated.
    """
    status: int
    """Why it ended: 0 all calls made, 1 too many failures in a row, 2 callback, 3 Ctrl-C, 4 every point of a finite
    space evaluated, 5 the executor broke, 6 the callback raised `error`, 7 no call was feasible, 8 an exception was
    raised, 9 `time_limit`, 10 `target`, 11 `patience`.
    """
    message: str
    """Why it ended, the surrogate, the acquisition and the seed."""
    traceback: str | None
    """Traceback of the first exception of `catch`, as text."""
    x_iters: list[Any]
    """The points evaluated at full fidelity."""
    func_vals: np.ndarray
    """Their values."""
    seconds: np.ndarray
    """(n,) durations of the calls; NaN where unknown."""
    surrogate: str
    """Its name."""
    acquisition: str
    """Its name."""
    seed: int
    """Seed of the search."""
    optimizer: "BayesianOptimizer"
    """The optimizer, for further suggestions."""

    @classmethod
    def of(cls, optimizer: "BayesianOptimizer", final: bool, message: str, **fields: Any) -> Self:
        """The result of all trials told, with a recommendation if `final`, and other `fields`."""
        best = _best(optimizer, final)
        surrogate = optimizer.surrogate if isinstance(optimizer.surrogate, str) else "custom"
        acquisition = optimizer.acquisition if isinstance(optimizer.acquisition, str) else "custom"
        reason = f" ({optimizer.reason})" if optimizer.reason.startswith("auto") else ""
        predicted = "; values are noisy: fun is predicted" if best.kind == "predicted" else ""
        used = f"surrogate {surrogate}{reason}, acquisition {acquisition}, seed {optimizer.seed}"
        points, values = optimizer.evaluations()
        return cls(
            x=best.x,
            fun=best.value,
            fun_interval=(best.low, best.high),
            kind=best.kind,
            x_iters=points,
            func_vals=values,
            seconds=optimizer.durations(),
            surrogate=surrogate,
            acquisition=acquisition,
            seed=optimizer.seed,
            optimizer=optimizer,
            message=f"{message}{predicted} ({used})",
            **fields,
        )

    def _repr_html_(self) -> str:
        several = self.optimizer.outputs.objectives > 1
        values = np.atleast_2d(self.fun)
        names = self.optimizer.space.names
        flat = self.optimizer.space.flat
        points = [flat(x) if names else dict(enumerate(x)) for x in (self.x if several else [self.x]) if x is not None]
        import pandas as pd

        table = pd.DataFrame(points).rename(columns=lambda name: name if names else f"x[{name}]")
        for index in range(values.shape[1] if len(values) == len(table) else 0):
            table[f"fun[{index}]" if several else "fun"] = values[:, index]
        return html(self.message, table)

    def plot(
        self,
        panel: str | Sequence[Any] | None = None,
        *,
        minimum: float | None = None,
        maximum: float | None = None,
    ) -> "Figure":
        """A matplotlib Figure, as `seqdec.bo.BayesianOptimizer.plot`."""
        return self.optimizer.plot(panel, minimum=minimum, maximum=maximum)

    def report(
        self, path: str | os.PathLike[str], *, minimum: float | None = None, maximum: float | None = None
    ) -> Path:
        """Write one page of HTML, as `seqdec.bo.BayesianOptimizer.report`."""
        from seqdec.bo.report import page  # matplotlib is slow to import

        return page.write(self.optimizer, path, self.message, minimum, maximum)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), "plot", "report"]


def _best(optimizer: "BayesianOptimizer", final: bool) -> Recommendation:
    if optimizer.outputs.objectives > 1:
        front = optimizer.front() if optimizer.is_feasible else Front([], np.zeros((0, optimizer.outputs.objectives)))
        return Recommendation.observed(front.x, front.values)
    if not optimizer.is_feasible:
        return Recommendation.observed(None, math.nan)
    return optimizer.recommend() if final and optimizer.is_fitted else Recommendation.observed(*optimizer.best)
