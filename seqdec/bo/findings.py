"""What a search has found so far."""

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec.bo import model
from seqdec.bo.acquisition import pareto
from seqdec.bo.answers import Front, Prediction, Recommendation
from seqdec.bo.fits import Fits
from seqdec.bo.locking import one_at_a_time
from seqdec.bo.model import Fitted, Model
from seqdec.bo.outputs import Outputs
from seqdec.bo.record import Record, Trial
from seqdec.bo.report.summary import summary
from seqdec.bo.settings import Settings
from seqdec.bo.space.spaces import Space
from seqdec.bo.surrogates.contract import Surrogate
from seqdec.core import Acquisition

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Findings:
    """A record and the fits to it, to be read; several threads may read and write at once."""

    settings: Settings
    """The keywords, checked."""
    space: Space
    """The domain."""
    outputs: Outputs
    """Number of objectives and of outcome constraints."""
    maximize: bool | tuple[bool, ...]
    """Whether large values are wanted, with several objectives for each."""
    _lock: Any
    _record: Record
    _fits: Fits

    @one_at_a_time
    def __repr__(self) -> str:
        best = self.best if self.outputs.objectives == 1 and self.is_feasible else None
        return summary(self.settings, self._fits, self._record, best)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    @property
    def surrogate(self) -> str | Surrogate:
        """The surrogate in use."""
        return self._fits.surrogate

    @property
    def acquisition(self) -> str | Acquisition:
        """The acquisition in use."""
        return self._fits.acquisition

    @property
    def reason(self) -> str:
        """Why this surrogate is in use."""
        return self._fits.reason

    @property
    def capacity(self) -> int:
        """Number of trials that fit without a new compilation."""
        return self._fits.capacity

    @property
    @one_at_a_time
    def trials(self) -> tuple[Trial, ...]:
        """All trials, in the order of asking or telling."""
        return tuple(map(self._record.trial, self._record.entries))

    @one_at_a_time
    def evaluations(self) -> tuple[list[Any], np.ndarray]:
        """Points and values of all trials that were told, in the order of their numbers; NaN for failures.

        Trials outside the bounds are only in `trials` and `trials_dataframe`.

        The values are (n,), with several objectives (n, objectives).
        """
        return self._record.evaluations()

    @one_at_a_time
    def feasibility(self) -> np.ndarray:
        """(n,) bool for each of `evaluations`: whether it is complete and all its outcomes are at most 0."""
        return np.array([entry.feasible for entry in self._record.evaluated()], bool)

    @one_at_a_time
    def durations(self) -> np.ndarray:
        """(n,) seconds that each of `evaluations` took; NaN where `tell` was not given them."""
        return np.array([entry.seconds for entry in self._record.evaluated()], float)  # of None it makes NaN

    @one_at_a_time
    def trials_dataframe(self) -> "pd.DataFrame":
        """One row for each trial: number, state, value (NaN unless complete), the point, reason of a failure, seconds.

        The columns of the point are x_0, x_1, ..., or the names; where a parameter is inactive, its value is missing.
        With several objectives the values are value_0, value_1, ...; with outcome constraints outcome_0, ... and
        feasible, which is False for trials that are not complete, follow them. seconds is the duration of the
        evaluation, NaN if `tell` was not given it.
        """
        return self._record.dataframe()

    @property
    @one_at_a_time
    def best(self) -> tuple[Any, float]:
        """(x, value) of the best feasible trial, the first of equals.

        Raises ValueError when no trial is complete and feasible, and with several objectives: see `front`.
        """
        if self.outputs.objectives > 1:
            raise ValueError(f"with {self.outputs.objectives} objectives there is no best trial: use front()")
        entry = (max if self.maximize else min)(self._record.feasible(), key=lambda entry: entry.values[0])
        return self._record.point(entry), entry.values[0]

    @one_at_a_time
    def front(self) -> Front:
        """The feasible trials that no other one dominates, ordered by their first values; equal ones are all kept.

        A trial dominates another if it is at least as good in all objectives and better in one. Raises ValueError when
        no trial is complete and feasible.
        """
        entries = self._record.feasible()
        values = np.array([entry.values for entry in entries])
        kept = pareto.non_dominated(values * self.settings.signs[: self.outputs.objectives])
        order = [i for i in np.lexsort(values.T[::-1]) if kept[i]]
        return Front([self._record.point(entries[i]) for i in order], values[order])

    @property
    @one_at_a_time
    def is_feasible(self) -> bool:
        """Whether any trial is complete and feasible."""
        return any(entry.feasible for entry in self._record.entries)

    @property
    def is_fitted(self) -> bool:
        """Whether the surrogate has chosen a point."""
        return self._fits.has_begun

    @one_at_a_time
    def predict(self, x: Any) -> Prediction:
        """Mean and 95% interval of the function, or of each objective, at the point `x`, given all values told.

        The belief is Gaussian in warped units. The optimizer stays as it is.

        Raises:
            ValueError: `x` lies outside the bounds, or fewer than two values are known.
            TypeError: `x` is not a point of the space.
        """
        unit = self.space.point(x).unit
        if len(self._record.order) < 2:
            raise ValueError(
                f"a prediction needs two values or more; got {len(self._record.order)}: tell further ones first"
            )
        return model.prediction(*self.fitted(), unit)

    @one_at_a_time
    def recommend(self) -> Recommendation:
        """The evaluated point to use, among the feasible ones.

        With noise it is the point with the best posterior mean in warped units, and its `kind` is "predicted"; without
        noise it is `best`, and its `kind` is "observed". Values count as noisy if `noise_std` says so. If it is not
        given, the surrogate must estimate that more than a thousandth of the warped values' variance is noise, and the
        values must show it: they differ where a point repeats or, if none repeats, a Gaussian process with noise
        explains them at least 10 nats better than one without, and no rough function does as well, see
        `seqdec.bo.surrogates.evidence.shows_noise`. A surrogate without a model of the noise finds none. Raises
        ValueError as `best` does.
        """
        observed = Recommendation.observed(*self.best)
        if len(self._record.order) < 2 or not self._is_noisy():
            return observed
        entries = [entry for number in self._record.order if (entry := self._record.entries[number]).feasible]
        means, _ = model.marginals(*self.fitted(), np.stack([entry.unit for entry in entries]))
        best = entries[int(np.argmax(means[:, 0]))]
        return Recommendation(self._record.point(best), *model.prediction(*self.fitted(), best.unit), "predicted")

    @one_at_a_time
    def plot(self, panel: str | None = None, *, minimum: float | None = None, maximum: float | None = None) -> "Figure":
        """A matplotlib Figure of all trials told; `figure.savefig("search.png")` writes it.

        Args:
            panel: None for all panels, or the name of one.
                "progress": every value, the best so far, failed trials, and the best that as many random points are
                expected to have under the posterior mean.
                "slices": posterior mean and 95% band along each of the most important parameters, the others as at the
                point of `recommend`.
                "parallel": every trial as a line through its parameters.
                "importances": total-effect Sobol indices of the posterior mean, `seqdec.bo.importances`.
                With several objectives there is one panel, "front": the values of each pair of them.
            minimum: of the function, if it is known and values are minimized.
            maximum: likewise, if values are maximized.

        Raises:
            ValueError: an unknown panel, no trial was told, or the wrong one of `minimum` and `maximum` is given.
        """
        from seqdec.bo.report import figures  # matplotlib is slow to import

        return figures.plot(self, panel, minimum, maximum)

    @one_at_a_time
    def report(
        self, path: str | os.PathLike[str], *, minimum: float | None = None, maximum: float | None = None
    ) -> Path:
        """Write one self-contained page of HTML, atomically; returns its path.

        It has the figure of `plot`, the best trials or the front, the failures by reason, settings and versions.

        Args:
            path: with the suffix ".html" or ".htm".
            minimum: as in `plot`.
            maximum: as in `plot`.

        Raises:
            ValueError: another suffix, or as `plot`.
            OSError: the file cannot be written.
        """
        from seqdec.bo.report import page  # matplotlib is slow to import

        return page.write(self, path, "", minimum, maximum)

    @one_at_a_time
    def fitted(self) -> tuple[Model, Fitted]:
        """The model, and its fit to all values, for the functions of `seqdec.bo.model`; `ask` is unaffected."""
        found = self._fits.current(self._record)  # which may choose another model
        return self._fits.method.model, found

    def _is_noisy(self) -> bool:
        """Whether values are known or found to be noisy, see `recommend`."""
        known = self._fits.observations(self._record)
        return model.is_noisy(self._fits.method.model, known, self._fits.current(self._record))
