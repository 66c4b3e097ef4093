"""Bayesian optimization by ask and tell."""

import contextlib
import functools
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, get_args, overload

import jax
import numpy as np

from seqdec.bo import checkpoint, model, suggestion
from seqdec.bo.acquisition import pareto
from seqdec.bo.earlier import earlier_searches
from seqdec.bo.fidelity import Fidelity
from seqdec.bo.model import Fitted, Model, Prediction, Responses, Start
from seqdec.bo.search.candidates import Search
from seqdec.bo.settings import Prior, Settings, check_noise, method_of
from seqdec.bo.space.bounds import space_from
from seqdec.bo.space.constraints import Constraint
from seqdec.bo.surrogates import contract as surrogates
from seqdec.bo.surrogates.contract import Surrogate
from seqdec.bo.trials import Observations, Outputs, Record, Status, Trial
from seqdec.boundary import checks
from seqdec.core import Acquisition
from seqdec.introspection import brief, counted, described
from seqdec.persistence import file_identity, located, locked_file
from seqdec.plugins import named_by
from seqdec.portable import portable
from seqdec.runtime import check_process, one_blas_thread

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

F = TypeVar("F", bound=Callable[..., Any])
_PATIENCE = 5.0
"""Seconds to wait for another to write the same file."""


class Recommendation(NamedTuple):
    """The evaluated point to use."""

    x: Any
    """One of the evaluated points."""
    value: Any
    """As told, or the mean of the prediction."""
    low: Any
    """Lower end of the interval in which the function lies with probability 95%; `value` if observed."""
    high: Any
    """Upper end of this interval; `value` if observed."""
    kind: Literal["observed", "predicted"]
    """How `value` is known."""

    @classmethod
    def observed(cls, x: Any, value: Any) -> "Recommendation":
        """A point whose value is known without noise."""
        return cls(x, value, value, value, "observed")


class Front(NamedTuple):
    """Points of which none dominates another."""

    x: list[Any]
    """k points"""
    values: np.ndarray
    """(k, objectives)"""


_compiler = ThreadPoolExecutor(1)
_compiling: dict[tuple[Any, ...], Future[None]] = {}
"""What questions need and is or was compiled; Python waits for it before it ends, also where Ctrl-C ended a wait."""


def _compile(method: suggestion.Method, capacity: int) -> None:
    with contextlib.suppress(Exception):  # which the question raises too
        suggestion.compile_ahead(method, capacity)


def _exclusive(method: F) -> F:
    @functools.wraps(method)
    def locked(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_process()
        with self._lock:
            return method(self, *args, **kwargs)

    return locked  # pyright: ignore[reportReturnType] (of the same signature)


@portable
class BayesianOptimizer:
    """Bayesian optimization by ask and tell.

        >>> from seqdec.bo import BayesianOptimizer
        >>> optimizer = BayesianOptimizer([(-5, 10), (0, 15)], seed=0)
        >>> for _ in range(2):
        ...     trial = optimizer.ask()
        ...     trial = optimizer.tell(trial, float(trial.x @ trial.x))
        >>> x, value = optimizer.best

    Trials may be told in any order, or never. Equal arguments, calls and values give equal suggestions. Threads may
    share an optimizer; a pickled copy continues identically.

    Args:
        bounds: as in `seqdec.bo.space_from`. With names a point is a dict, nested like the bounds.
        constraints: `seqdec.bo.Linear`, and functions (x) -> bool, called for about 1,000 candidates per suggestion.
        seed: seed for all random numbers, an integer in [0, 2**63).

        maximize: one bool, or one for each objective.
        objectives: number of values; several are optimized jointly, for their `front`.
        outcome_constraints: number of outcomes told with each value; a point is feasible if all are at most 0.
        reference_point: only better values count in a front; None: its worst values, with a margin.
        noise_std: noise standard deviation of the values; None: estimated. Needs "gp", "sparse_gp" or "hilofi".
        fidelity: levels of the function (`seqdec.bo.Fidelity`); the highest counts.

        surrogate: one of `seqdec.bo.surrogate_names()`, a Surrogate, or "auto": "gp", above 1,000 values "sparse_gp".
        surrogate_options: keywords of the surrogate's function, such as `seqdec.bo.hilofi`.
        responses: "warped" (`seqdec.bo.output_warp`, without `seqdec.bo.outliers`, to mean 0 and variance 1),
            "standardized" or "raw".
        capacity: expected number of trials; exceeding it costs a compilation.

        acquisition: one of `seqdec.bo.acquisition_names()`, an Acquisition, or "auto": the surrogate's.
        initial: number of Sobol points before the surrogate is used; None: one per parameter, but at most a quarter of
            `capacity` and at most 4 beyond the first two of each objective.
        search: how the acquisition is maximized.
        prior: prior knowledge. Like `fidelity`, its `earlier` needs "auto", "gp" or "sparse_gp".

    Raises:
        ValueError, TypeError: an argument does not fit; the message names it.
    """

    def __init__(
        self,
        bounds: Any,
        *,
        constraints: Sequence[Constraint] = (),
        seed: int,
        maximize: bool | Sequence[bool] = False,
        objectives: int = 1,
        outcome_constraints: int = 0,
        reference_point: Sequence[float] | np.ndarray | None = None,
        surrogate: str | Surrogate = "auto",
        surrogate_options: Mapping[str, Any] | None = None,
        acquisition: str | Acquisition = "auto",
        initial: int | None = None,
        capacity: int = 128,
        responses: Responses = "warped",
        noise_std: float | None = None,
        search: Search | None = None,
        prior: Prior | None = None,
        fidelity: Fidelity | None = None,
    ) -> None:
        prior = Prior() if prior is None else prior
        if not isinstance(prior, Prior):
            raise TypeError(f"prior must be a seqdec.bo.Prior; got {prior!r}")
        of: Any = Settings  # whose fields are as described once they are checked
        settings: Settings = of(
            space=space_from(bounds, constraints),
            outputs=Outputs(objectives, outcome_constraints),
            seed=seed,
            maximize=maximize,
            reference_point=reference_point,
            surrogate=surrogate,
            surrogate_options=surrogate_options,
            acquisition=acquisition,
            initial=initial,
            responses=responses,
            noise_std=noise_std,
            search=search,
            optimum=prior.optimum,
            monotone=prior.monotone,
            fidelity=fidelity,
            earlier=(),
        )
        capacity = checks.count("capacity", capacity)
        settings = settings.checked(capacity)
        settings = replace(settings, earlier=earlier_searches(prior.earlier, settings))
        self._begin(settings, capacity)

    def _begin(self, settings: Settings, capacity: int) -> None:
        check_process()
        self._lock = threading.RLock()
        self.settings, self.capacity = settings, capacity
        self.space, self.outputs = settings.space, settings.outputs
        self.seed, self.maximize = settings.seed, settings.maximize
        self._record = Record(settings.space, settings.outputs, settings.fidelity)
        self._asked: tuple[Model, Fitted, np.ndarray, np.ndarray] | None = None
        """of the last question: model, fit, told points, suggestion"""
        self._current: Fitted | None = None
        """the fit to all values, for predictions"""
        self.notes: dict[str, Any] = {}
        """JSON values of yours, kept by `save`"""
        self._file: tuple[Path, tuple[int, ...] | None] | None = None
        """the file last read or written, and its identity"""
        self._use(surrogates.choose(0) if settings.is_automatic else settings.surrogate)

    def _use(self, surrogate: str | Surrogate) -> None:
        self.surrogate = surrogate
        with one_blas_thread():
            self.acquisition, self._method = method_of(self.settings, surrogate)
        self._start: Start | None = None

    @overload
    def ask(
        self, n: None = None, *, fixed: Mapping[Any, Any] | None = None, fidelity: float | None = None
    ) -> Trial: ...
    @overload
    def ask(self, n: int, *, fixed: Mapping[Any, Any] | None = None, fidelity: float | None = None) -> list[Trial]: ...
    def ask(
        self, n: int | None = None, *, fixed: Mapping[Any, Any] | None = None, fidelity: float | None = None
    ) -> Trial | list[Trial]:
        """The next trial to evaluate, or a list of `n`.

        Args:
            n: number of trials; None is one, without a list.
            fixed: values of some parameters, by name or index.
            fidelity: level to evaluate; None: the most informative for its cost.

        Raises:
            Exhausted: no new point is left.
            ValueError, TypeError: `fixed` or `fidelity` does not fit.
        """
        held, level = self.space.fixed(fixed), self._level(fidelity)
        if n is None:
            return self._ask(held, level)
        return [self._ask(held, level) for _ in range(checks.count("n", n))]

    @_exclusive
    def _ask(self, fixed: Mapping[Any, Any], level: int | None) -> Trial:
        self._asked, forecast = None, None
        with one_blas_thread():
            known = self._observations()
            method, grid = self._method, self.settings.fidelity
            if suggestion.is_early(method, known):
                if known.told:
                    self._compile()
                point = suggestion.design(method, known, fixed, self._is_noisy)
                lowest = 0 if grid is None else len(grid.levels) - 1
                point = point._replace(level=lowest if level is None else level)
            else:
                if (compiling := _compiling.get(self._programs())) is not None:
                    compiling.result()
                fit = self._advance(known)
                fitted = suggestion.for_question(method.model, known, fit)
                point = suggestion.suggest(method, known, fitted, fixed, self._is_noisy)
                inside = [one.unit for one in known.told if one.inside]
                self._asked = method.model, fit, np.stack(inside), point.unit
                if grid is not None:
                    lower = self._record.lower_cost()
                    point, forecast = suggestion.at_level(method.model, known, fitted, point, level, lower)
        self._current = None
        return self._record.trial(self._record.add(point, forecast).number)

    def _programs(self) -> tuple[Any, ...]:
        """What the compiled programs of a question depend on."""
        used = self._method.model
        return self._method.plan, model.padded_rows(used, self.capacity), used.columns, len(used.signs)

    def _compile(self) -> None:
        """Compile the programs of a question, during the evaluations of the initial design."""
        named = isinstance(self.surrogate, str) and isinstance(self.acquisition, str)
        if named and (programs := self._programs()) not in _compiling:
            _compiling[programs] = _compiler.submit(_compile, self._method, self.capacity)

    @_exclusive
    def _compile_ahead(self) -> None:
        """Compile now what the next question needs."""
        if not suggestion.is_early(self._method, self._observations()):
            self._compile()
            if (compiling := _compiling.get(self._programs())) is not None:
                compiling.result()

    @_exclusive
    def propose(self, x: Any, *, fidelity: float | None = None) -> Trial:
        """A pending trial at a given point and level, by default full fidelity."""
        level, self._current = self._level(fidelity) or 0, None
        return self._record.trial(self._record.add(self.space.point(x)._replace(level=level)).number)

    def _level(self, fidelity: Any) -> int | None:
        if fidelity is None:
            return None
        if self.settings.fidelity is None:
            raise ValueError(
                f"fidelity={fidelity!r} needs levels: BayesianOptimizer(..., fidelity=Fidelity(low, high))"
            )
        return self.settings.fidelity.place(fidelity)

    @_exclusive
    def tell(
        self,
        trial: Any,
        value: float | Sequence[float] | np.ndarray | None = None,
        *,
        outcomes: float | Sequence[float] | np.ndarray | None = None,
        noise_std: float | None = None,
        failed: bool = False,
        reason: str = "",
        seconds: float | None = None,
        outside: bool = False,
        fidelity: float | None = None,
    ) -> Trial:
        """Record the value of a trial, or of a point that was not asked for; returns the trial.

        Args:
            trial: a pending Trial or its number, or a point: an int is a number, the point is [3].
            value: a number, or one for each objective. None, NaN or infinity: the trial failed. With integer levels
                also a learning curve: the values after the units 1, 2, ....
            outcomes: one number for each of `outcome_constraints`; NaN or infinity: the trial failed.
            noise_std: noise standard deviation of `value`; None: the optimizer's.
            failed: whether the trial failed, whatever `value` is.
            reason: why it failed.
            seconds: duration of the evaluation.
            outside: whether to accept a point that violates the constraints, or the bounds by at most their range on
                the scale of search. It informs the belief, but is never suggested or best.
            fidelity: level of a point that was not asked for; None: full fidelity.

        Raises:
            ValueError, TypeError: the trial is not pending here, or an argument does not fit.
        """
        outside = checks.flag("outside", outside)
        if seconds is not None:
            seconds = checks.real("seconds", seconds)
            checks.number("seconds", seconds)
        number = self._record.number(trial)
        noise_std = check_noise(noise_std, self._method.model.surrogate, self.surrogate)
        level, grid = self._level(fidelity), self.settings.fidelity
        if number is not None and level is not None:
            raise ValueError(f"fidelity={fidelity!r} is for a point; trial {number} has a level")
        reached, lower = None, ()
        if grid is not None and value is not None and np.ndim(value) == 1:
            value, reached, lower = grid.curve(value)
        values, found = self.outputs.failed if value is None else self.outputs.values(value), ()
        if outcomes is not None or not (failed or value is None):
            found = self.outputs.outcomes(outcomes)
        good = not failed and all(map(math.isfinite, (*values, *found)))
        if number is None:
            point = self.space.known_point(trial, outside)
            number = self._record.add(point._replace(level=level or 0)).number
        self._current, point = None, self._record.entries[number].point
        if good:
            level = point.level if reached is None else reached
            below = "stopped" if level > point.level else "partial"
            self._record.end(
                number,
                "outside" if not point.inside else below if level else "complete",
                point=point._replace(level=level),
                values=values,
                outcomes=found,
                curve=lower,
                noise_std=noise_std,
                seconds=seconds,
            )
        else:
            why = "failed" if failed or value is None else self.outputs.described(values, found)
            self._record.end(number, "failed", reason=reason or why, noise_std=noise_std, seconds=seconds)
        return self._record.trial(number)

    def _observations(self) -> Observations:
        chosen = surrogates.choose(self._record.values)
        if self.settings.is_automatic and chosen != self.surrogate:
            self._use(chosen)
        return self._record.observations(self.settings.signs)

    def _advance(self, known: Observations) -> Fitted:
        if (capacity := self._needed()) != self.capacity:
            self.capacity, self._start = capacity, None
        start, self._start = self._start, None  # after an interruption the next fit is anew
        with jax.enable_x64(True):
            fitted = model.fit(self._method.model, known, capacity, start)
        self._start = fitted.start
        return fitted

    def _needed(self) -> int:
        count = len(self._record.entries) + self._record.more
        return self.capacity << (count // self.capacity).bit_length() if count >= self.capacity else self.capacity

    @_exclusive
    def fitted(self) -> tuple[Model, Fitted]:
        """The model, and its fit to all values, for the functions of `seqdec.bo.model`."""
        if self._current is None:
            known, capacity = self._observations(), self._needed()
            start = self._start if capacity == self.capacity else None
            with jax.enable_x64(True), one_blas_thread():
                if start is not None:  # `fit` may reuse its memory
                    start = start._replace(state=jax.tree.map(lambda leaf: leaf.copy(), start.state))
                fitted = model.fit(self._method.model, known, capacity, start)
                self._current = model.averaged(self._method.model, fitted)
        return self._method.model, self._current

    def _may_be_noisy(self) -> bool:
        """Whether the values told do not exclude noise; `_is_noisy` asks for more evidence."""
        return len(self._record.order) > 1 and model.may_be_noisy(*self.fitted(), self._observations())

    def _is_noisy(self) -> bool:
        return model.is_noisy(*self.fitted(), self._observations())

    @_exclusive
    def __repr__(self) -> str:
        space, told = self.space, Counter(entry.status for entry in self._record.entries)
        counts = ", ".join(f"{told[status]} {status}" for status in get_args(Status) if told[status])
        goals = ", ".join("maximum" if up else "minimum" for up in np.atleast_1d(self.maximize))
        outcomes = self.outputs.outcome_constraints
        names = space.names or [""] * len(space.dimensions)
        parts = (f"{name} {brief(kind)}".strip() for name, kind in zip(names, space.dimensions, strict=True))
        surrogate, acquisition = (
            part if isinstance(part, str) else f"of your own ({type(part).__name__})"
            for part in (self.surrogate, self.acquisition)
        )
        best = self.best if self.outputs.objectives == 1 and self.is_feasible else None
        return described(
            f"BayesianOptimizer, {f'outcome constraints: {outcomes}, ' if outcomes else ''}objectives: {goals}",
            f"{counted(len(space.dimensions), 'parameter')}: {', '.join(parts)}",
            f"surrogate {surrogate} ({self.reason}), acquisition {acquisition}, seed {self.seed}",
            f"{counted(len(self._record.entries), 'trial')}{f': {counts}' if counts else ''}",
            "" if best is None else f"best value {best[1]:.6g} at {brief(best[0])}",
        )

    def __getstate__(self) -> dict[str, Any]:
        """Without the functions of a surrogate given by name."""
        with self._lock:
            state = {name: value for name, value in vars(self).items() if name != "_lock"} | {"_asked": None}
            if isinstance(self.surrogate, str):
                state |= {"_method": None, "_current": None, "_start": self._saved()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())
        if self._method is None:
            saved: Any = self._start
            self._use(self.surrogate)
            self._restore(*saved)

    def _saved(self) -> tuple[list[np.ndarray], tuple[Any, ...]]:
        if self._start is None:
            return [], ()
        return checkpoint.arrays(self._method.model.surrogate.stored(self._start.state)), self._start.warps

    def _restore(self, arrays: list[np.ndarray], warps: tuple[Any, ...]) -> None:
        if arrays:
            with jax.enable_x64(True):
                like = model.prior(self._method.model, self.capacity)
                self._start = Start(checkpoint.state_of(arrays, like), warps)

    @property
    def reason(self) -> str:
        """Why this surrogate is used."""
        return surrogates.REASONS[str(self.surrogate)] if self.settings.is_automatic else "as asked for"

    @property
    def initial(self) -> int:
        """Number of points before the surrogate is used."""
        return self.settings.initial

    @property
    def is_fitted(self) -> bool:
        """Whether the surrogate was fitted."""
        return self._start is not None

    @property
    @_exclusive
    def is_feasible(self) -> bool:
        """Whether any trial is complete and feasible."""
        return any(entry.feasible for entry in self._record.entries)

    @property
    @_exclusive
    def trials(self) -> tuple[Trial, ...]:
        """All trials, in the order of asking or telling."""
        return tuple(map(self._record.trial, range(len(self._record.entries))))

    @property
    @_exclusive
    def pending(self) -> tuple[Trial, ...]:
        """Trials asked but not yet told."""
        entries = self._record.entries
        return tuple(self._record.trial(entry.number) for entry in entries if entry.status == "pending")

    @_exclusive
    def told(self) -> np.ndarray:
        """(n, columns) values, outcomes and feasibility of each trial, as in `trials_dataframe`."""
        return self._record.told()

    @_exclusive
    def evaluations(self) -> tuple[list[Any], np.ndarray]:
        """Points and values, (n,) or (n, objectives), told of the space; NaN for failures."""
        entries = self._record.evaluated()
        values = np.reshape([entry.values for entry in entries], (len(entries), self.outputs.objectives))
        return list(map(self._record.shown, entries)), values[:, 0] if self.outputs.objectives == 1 else values

    @_exclusive
    def feasibility(self) -> np.ndarray:
        """(n,) bool for `evaluations`: complete, with all outcomes at most 0."""
        return np.array([entry.feasible for entry in self._record.evaluated()], bool)

    @_exclusive
    def durations(self) -> np.ndarray:
        """(n,) seconds of `evaluations`; NaN where unknown."""
        return np.array([entry.seconds for entry in self._record.evaluated()], float)  # of None it makes NaN

    @_exclusive
    def trials_dataframe(self) -> "pd.DataFrame":
        """One row for each trial: number, state, value or value_0, ..., the point, reason of a failure, seconds.

        The point's columns are x_0, x_1, ..., or the names; inactive parameters are missing. Outcome constraints add
        outcome_0, ... and feasible, several levels fidelity.
        """
        return self._record.dataframe()

    @property
    @_exclusive
    def best(self) -> tuple[Any, float]:
        """(x, value) of the best feasible trial, the first of equals.

        Raises ValueError without one, and with several objectives.
        """
        if self.outputs.objectives > 1:
            raise ValueError(f"with {self.outputs.objectives} objectives there is no best trial: use front()")
        entry = (max if self.maximize else min)(self._record.feasible(), key=lambda entry: entry.values[0])
        return self._record.shown(entry), entry.values[0]

    @_exclusive
    def front(self) -> Front:
        """The feasible trials that no other dominates, ordered by their first values.

        Raises ValueError without one.
        """
        entries = self._record.feasible()
        values = np.array([entry.values for entry in entries])
        kept = pareto.non_dominated(values * self.settings.signs[: self.outputs.objectives])
        order = [i for i in np.lexsort(values.T[::-1]) if kept[i]]
        return Front([self._record.shown(entries[i]) for i in order], values[order])

    @_exclusive
    def predict(self, x: Any) -> Prediction:
        """Mean and 95% interval of the function, or of each objective, at one point or many.

        Args:
            x: a point, an array (n, parameters), a list or table of points, or a dict of columns by name.

        Raises ValueError if a point lies outside the bounds, or fewer than two values are known, TypeError for no
        point.
        """
        units = self._units(x)
        return model.prediction(*self._predicting(), units)

    def _units(self, x: Any) -> np.ndarray:
        """(columns,) of a point, or (n, columns) of many."""
        points = self.space.listed(x)
        if points is None:
            return self.space.point(x).unit
        return np.reshape([self.space.point(point).unit for point in points], (len(points), self.space.columns))

    def _predicting(self) -> tuple[Model, Fitted]:
        """As `fitted`. Raises ValueError for fewer than two values."""
        if len(self._record.order) < 2:
            raise ValueError(
                f"a prediction needs two values or more; got {len(self._record.order)}: tell further ones first"
            )
        return self.fitted()

    @_exclusive
    def recommend(self) -> Recommendation:
        """The evaluated feasible point to use.

        Without noise it is `best`, "observed"; with noise that of the best posterior mean in warped units, "predicted".
        Values are noisy by `noise_std`, or if they differ where a point repeats or, if none repeats, if noise is
        estimated at more than a thousandth of the warped variance and `seqdec.bo.surrogates.evidence.shows_noise`.
        Raises ValueError as `best`.
        """
        observed = Recommendation.observed(*self.best)
        if len(self._record.order) < 2 or not self._is_noisy():
            return observed
        entries = [entry for number in self._record.order if (entry := self._record.entries[number]).feasible]
        means, _ = model.marginals(*self.fitted(), np.stack([entry.point.unit for entry in entries]))
        best = entries[int(np.argmax(means[:, 0]))]
        found = model.prediction(*self.fitted(), best.point.unit)
        return Recommendation(self._record.shown(best), *found, "predicted")

    @_exclusive
    def expected_gain(self, x: Any = None) -> Any:
        """The expected improvement at one point or many, in the units of the values.

        E max(y* - y, 0), or E max(y - y*, 0) if maximized: y is the function there, y* at the told point with the best
        posterior mean.

        Args:
            x: as in `predict`; None: the last suggested point, when it was suggested.

        Returns a number, or (n,) for many points; NaN if x is None and the surrogate made no suggestion. Raises as
        `predict`, and ValueError with several objectives.
        """
        if self.outputs.objectives > 1:
            raise ValueError(f"with {self.outputs.objectives} objectives there is no best point to improve on")
        if x is not None:
            at, (used, fit) = self._units(x), self._predicting()
            told = [point.unit for point in self._observations().told if point.inside]
            return model.expected_gains(used, fit, np.reshape(told, (-1, self.space.columns)), at)
        if self._asked is None:
            return math.nan
        used, fit, units, unit = self._asked
        return model.expected_gains(used, model.averaged(used, fit), units, unit)

    @_exclusive
    def plot(
        self,
        panel: str | Sequence[Any] | None = None,
        *,
        minimum: float | None = None,
        maximum: float | None = None,
    ) -> "Figure":
        """A matplotlib Figure of all trials told.

        Args:
            panel: None for all, "progress", "slices", "parallel", "importances", "plane", or for the plane of any two
                parameters their names or indices; of several objectives "front".
            minimum, maximum: minimum or maximum of the function, if known.

        Raises:
            ValueError: no trial was told, or an argument does not fit.
        """
        from seqdec.bo.report import figures  # matplotlib is slow to import

        return figures.plot(self, panel, minimum, maximum)

    @_exclusive
    def report(
        self, path: str | os.PathLike[str], *, minimum: float | None = None, maximum: float | None = None
    ) -> Path:
        """Write one self-contained page of HTML, atomically; returns its path.

        Raises ValueError for a suffix other than ".html" and ".htm", or as `plot`; OSError if it cannot be written.
        """
        from seqdec.bo.report import page  # matplotlib is slow to import

        return page.write(self, path, "", minimum, maximum)

    @_exclusive
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file; `load` continues with identical suggestions.

        Raises:
            TypeError: surrogate or acquisition is not given by name, or a choice or option is not a string, number,
                bool, None, numpy scalar or tuple of these. An earlier file stays.
            ValueError: the path has the suffix of another kind of file.
            OSError: the file cannot be written; FileExistsError: another process uses it, or has written it since this
                optimizer loaded or saved it.
        """
        file = located(path)
        with locked_file(file, _PATIENCE):
            there = file_identity(file)
            if self._file is not None and self._file[0] == file and there not in (None, self._file[1]):
                raise FileExistsError(
                    f"{file} was changed since this optimizer loaded or saved it: load it and tell it this one's new "
                    "values, or save this one elsewhere"
                )
            self._write(file)

    def _write(self, file: Path) -> None:
        """Write the file, which the caller has locked."""
        if not isinstance(self.surrogate, str) or not isinstance(self.acquisition, str):
            raise TypeError("only a surrogate and an acquisition given by name can be saved")
        used = {"used": self.surrogate, "acquisition": self.acquisition, "capacity": self.capacity, "notes": self.notes}
        checkpoint.save(file, self.settings, used, self._record, *self._saved())
        self._file = file, file_identity(file)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        constraints: Sequence[Callable[[Any], bool]] = (),
        *,
        trust: Collection[str] = (),
    ) -> "BayesianOptimizer":
        """Read what `save` wrote.

        Args:
            path: path of the file.
            constraints: the functions among its constraints, in order, which a file cannot store.
            trust: each "module:function" that it may import as its surrogate or acquisition.

        Raises:
            FileNotFoundError: there is no file.
            ValueError: the file is damaged, has another number of functions, or names code that is not in `trust`.
        """
        file = located(path)
        found = file_identity(file)  # before it is read: what is written meanwhile counts as another's
        saved, optimizer = checkpoint.load(file, constraints), cls.__new__(cls)
        with checkpoint.refusing(file), named_by(file, trust):
            optimizer._begin(saved.settings, saved.used["capacity"])
            optimizer.notes, optimizer._file = saved.used["notes"], (file, found)
            if saved.used["used"] != optimizer.surrogate:
                optimizer._use(saved.used["used"])
            optimizer._record.entries, optimizer._record.order = saved.entries, saved.order
            optimizer._restore(saved.state, saved.warps)
        return optimizer
