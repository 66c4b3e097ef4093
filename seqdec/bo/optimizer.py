"""Bayesian optimisation by ask and tell."""

import functools
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import jax
import numpy as np

from seqdec import checks
from seqdec.bo import checkpoint, model, suggestion
from seqdec.bo.acquisition import pareto
from seqdec.bo.answers import Front, Prediction, Recommendation
from seqdec.bo.model import Fitted, Model, Observations, Start
from seqdec.bo.output_warp import Warp
from seqdec.bo.record import Entry, Record, Trial
from seqdec.bo.search.candidates import Search
from seqdec.bo.settings import check_noise, checked, choose
from seqdec.bo.space.constraints import Constraint
from seqdec.bo.space.spaces import Point
from seqdec.bo.surrogates import contract as surrogates
from seqdec.bo.surrogates.contract import Surrogate
from seqdec.core import Acquisition
from seqdec.introspection import brief, described
from seqdec.portable import portable
from seqdec.registry import spelled
from seqdec.runtime import apart, check_process

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

F = TypeVar("F", bound=Callable[..., Any])


def one_at_a_time(method: F) -> F:
    """Decorator: hold the lock while the method runs."""

    @functools.wraps(method)
    def locked(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_process()
        with self._lock, apart():
            return method(self, *args, **kwargs)

    return locked  # pyright: ignore[reportReturnType] (of the same signature)


@portable
class BayesianOptimizer:
    """Bayesian optimisation by ask and tell.

        optimizer = BayesianOptimizer([(-5, 10), (0, 15)], seed=0)
        for _ in range(40):
            trial = optimizer.ask()
            optimizer.tell(trial, fun(trial.x))
        optimizer.best

    Trials may be told in any order, or never; points that were not asked for can be told as well. Pending trials enter
    the next question with their expected value. A value that is not finite, or `failed=True`, marks a failed trial: the
    surrogate is not conditioned on it. Where failures depend on the point, the scores of points that are likely to fail
    are reduced, see `seqdec.bo.acquisition.failures`. Several threads may share an optimiser. A pickled one goes on with the same
    suggestions.

    The first `initial` points form a Sobol sequence; then the surrogate, fitted to all values, scores candidates. Equal
    arguments, calls and values give equal suggestions.

    Args:
        bounds: as `seqdec.bo.space_from` takes them: pairs (low, high), Real, Integer, Ordinal, Categorical, a dict
            from names to these and to Conditional, scipy Bounds, a gymnasium Box or Discrete. With names a point is a
            dict.
        constraints: `seqdec.bo.Linear`, and functions (x) -> bool, which hold at every point. A function is called for
            about a thousand candidates with every question.
        seed: of everything random, an integer in [0, 2**63).
        maximize: whether large values are wanted; else small ones. With several objectives for all, or for each.
        objectives: number of values of the function. With several, the search is for their front, see `front`.
        outcome_constraints: number of outcomes that are told with each value, and are to be at most 0.
        reference_point: values of several objectives that points have to improve on in all of them to count; None is
            the front's worst values, each worsened by a tenth of the range of all values, in warped units, at every
            question.
        surrogate: one of `seqdec.bo.surrogate_names()`, such as "gp", "sparse_gp" or "hilofi"; a Surrogate; or "auto":
            "gp", and "sparse_gp" once more than a thousand values have been told. The attributes `surrogate` and
            `reason` say which it is and why.
        surrogate_options: keywords of the surrogate's function, for example `seqdec.bo.hilofi`; not with "auto".
        acquisition: one of `seqdec.bo.acquisition_names()`, such as "thompson", "log_expected_improvement" or "ucb", an
            Acquisition of `seqdec.policies`, or "auto": the surrogate's default. With outcome constraints "auto" is
            "log_expected_improvement", and log P(feasible) is added to any of them, see `seqdec.bo.acquisition.feasibility`. With
            several objectives it is "log_expected_hypervolume_improvement", see `seqdec.bo.acquisition.pareto`, and no other.
        initial: points before the surrogate is used; None is one for each column of the unit cube, but at least two.
        capacity: expected number of trials; exceeding it costs a new compilation.
        trust_region: search a box around the best point that grows with success and shrinks without; None does so
            with more than 20 columns and one objective. It needs one objective.
        standardize: responses to mean 0 and variance 1 before the surrogate is fitted.
        warp: fit an increasing transform of the responses before they are standardised, and leave outliers out, as
            `seqdec.bo.output_warp` says; without effect where `standardize` is False.
        input_warp: fit an increasing transform of each column of the unit cube, as `seqdec.bo.surrogates.input_warp` says, for
            functions that change much faster at one end of a range than at the other.
        noise_std: standard deviation of the noise of the values; 0: they are exact; None: it is estimated. `tell` takes
            that of a single value. With several objectives it is that of each; the noise of outcomes is estimated.
            Needs a surrogate with a model of the noise: "gp", "sparse_gp", "hilofi".
        search: how the acquisition is maximised.

    Raises:
        ValueError, TypeError: an argument does not fit; the message names it.
    """

    @spelled(name="BayesianOptimizer")
    @apart()
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
        trust_region: bool | None = None,
        standardize: bool = True,
        warp: bool = True,
        input_warp: bool = False,
        noise_std: float | None = None,
        search: Search | None = None,
    ) -> None:
        check_process()
        self._lock = threading.RLock()
        self.settings = settings = checked(
            bounds,
            constraints,
            seed=seed,
            maximize=maximize,
            objectives=objectives,
            outcome_constraints=outcome_constraints,
            reference_point=reference_point,
            surrogate=surrogate,
            surrogate_options=surrogate_options,
            acquisition=acquisition,
            initial=initial,
            trust_region=trust_region,
            standardize=standardize,
            warp=warp,
            input_warp=input_warp,
            noise_std=noise_std,
            search=search,
        )
        self.space, self.outputs, self.seed, self.maximize = settings[:4]
        self.capacity, self.initial = checks.count("capacity", capacity), settings.initial
        self._record = Record(self.outputs)
        self._fitted: Fitted | None = None
        """to all values, for predictions"""
        self._use(surrogates.choose(0) if settings.is_automatic else settings.surrogate)

    def _use(self, surrogate: str | Surrogate) -> None:
        """Ask this surrogate from now on, from its prior."""
        self.surrogate, self.acquisition, self._method = choose(self.settings, surrogate)
        self._start: Start | None = None

    @one_at_a_time
    def __repr__(self) -> str:
        told = Counter(entry.status for entry in self._record.entries)
        counts = ", ".join(f"{told[status]} {status}" for status in ("complete", "failed", "pending") if told[status])
        goals = np.atleast_1d(self.maximize)
        told_of = (
            f"outcome constraints: {self.outputs.outcome_constraints}, " if self.outputs.outcome_constraints else ""
        )
        names = self.space.names or [""] * len(self.space.dimensions)
        parts = (f"{name} {brief(kind)}".strip() for name, kind in zip(names, self.space.dimensions, strict=True))
        best = ""
        if self.outputs.objectives == 1 and any(entry.feasible for entry in self._record.entries):
            x, value = self.best
            best = f"best value {value:.6g} at {brief(x)}"
        return described(
            f"BayesianOptimizer, {told_of}objectives: {', '.join('maximum' if up else 'minimum' for up in goals)}",
            f"{len(self.space.dimensions)} parameters: {', '.join(parts)}",
            f"surrogate {_called(self.surrogate)} ({self.reason}), acquisition {_called(self.acquisition)}, "
            f"seed {self.seed}",
            f"{len(self._record.entries)} trials{f': {counts}' if counts else ''}",
            best,
        )

    def __getstate__(self) -> dict[str, Any]:
        """All but the functions of a surrogate given by name, which are made anew."""
        with self._lock:
            state = {name: value for name, value in vars(self).items() if name != "_lock"}
            if isinstance(self.surrogate, str):
                state |= {"_method": None, "_fitted": None, "_start": self._saved_start()}
            return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())
        if self._method is None:
            saved: Any = self._start
            self._use(self.surrogate)
            self._restore(*saved)

    def _saved_start(self) -> tuple[list[np.ndarray], tuple[Warp, ...]]:
        """What the next fit goes on from, as `checkpoint.arrays` and warps; empty before the first."""
        return ([], ()) if self._start is None else (checkpoint.arrays(self._start.state), self._start.warps)

    def _restore(self, arrays: list[np.ndarray], warps: tuple[Warp, ...]) -> None:
        """Give the surrogate the state that had these `checkpoint.arrays`."""
        if arrays:
            with jax.enable_x64(True):
                like = model.prior(self._method.model, model.padded_rows(self.capacity))
                self._start = Start(checkpoint.state_of(arrays, like), warps)

    @property
    def reason(self) -> str:
        """Why it is this surrogate."""
        return surrogates.REASONS[str(self.surrogate)] if self.settings.is_automatic else "as asked for"

    @property
    @one_at_a_time
    def trials(self) -> tuple[Trial, ...]:
        """All trials, in the order of asking or telling."""
        return tuple(entry.trial for entry in self._record.entries)

    @one_at_a_time
    def evaluations(self) -> tuple[list[Any], np.ndarray]:
        """Points and values of all trials that were told, in the order of their numbers; NaN for failures.

        The values are (n,), with several objectives (n, objectives).
        """
        return self._record.evaluations()

    @one_at_a_time
    def feasibility(self) -> np.ndarray:
        """(n,) bool for each of `evaluations`: whether it is complete and all its outcomes are at most 0."""
        return np.array([entry.feasible for entry in self._record.entries if entry.status != "pending"], bool)

    @one_at_a_time
    def trials_dataframe(self) -> "pd.DataFrame":
        """One row for each trial: number, state, value (NaN unless complete), the point, reason of a failure.

        The columns of the point are x_0, x_1, ..., or the names; where a parameter is inactive, its value is missing.
        With several objectives the values are value_0, value_1, ...; with outcome constraints outcome_0, ... and
        feasible, which is False for trials that are not complete, follow them.
        """
        return self._record.dataframe(self.space)

    @property
    @one_at_a_time
    def best(self) -> tuple[Any, float]:
        """(x, value) of the best feasible trial, the first of equals.

        Raises ValueError when no trial is complete and feasible, and with several objectives, which `front` is for.
        """
        if self.outputs.objectives > 1:
            raise ValueError(f"with {self.outputs.objectives} objectives there is no best trial: use front()")
        entry = (max if self.maximize else min)(self._record.feasible(), key=lambda entry: entry.values[0])
        return entry.x.copy(), entry.values[0]

    @one_at_a_time
    def front(self) -> Front:
        """The feasible trials that none dominates, in the order of their first values; equal ones are all kept.

        A trial dominates another if it is at least as good in all objectives and better in one. Raises ValueError when
        no trial is complete and feasible.
        """
        entries = self._record.feasible()
        values = np.array([entry.values for entry in entries])
        kept = pareto.non_dominated(values * self._method.model.signs[: self.outputs.objectives])
        order = [i for i in np.lexsort(values.T[::-1]) if kept[i]]
        return Front([entries[i].x.copy() for i in order], values[order])

    @property
    @one_at_a_time
    def is_feasible(self) -> bool:
        """Whether a trial is complete and feasible."""
        return any(entry.feasible for entry in self._record.entries)

    @property
    def is_fitted(self) -> bool:
        """Whether the surrogate has chosen a point."""
        return self._start is not None

    @one_at_a_time
    def predict(self, x: Any) -> Prediction:
        """Mean and 95% interval of the function, or of each objective, at the point `x`, given all values told.

        The belief is Gaussian in warped units. The optimiser stays as it is.

        Raises:
            ValueError: `x` lies outside the bounds, or fewer than two values are known.
            TypeError: `x` is no point of the space.
        """
        unit = self.space.point(x).unit
        if len(self._record.order) < 2:
            raise ValueError(
                f"a prediction needs two values or more; got {len(self._record.order)}: tell further ones first"
            )
        return model.prediction(*self._belief(), unit)

    @one_at_a_time
    def recommend(self) -> Recommendation:
        """The evaluated point to be used, among the feasible ones.

        With noise it is the one with the best posterior mean in warped units, and its `value` is "predicted"; without,
        it is `best`, and "observed". Values are noisy where `noise_std` says so. Where it is not given, the surrogate
        must estimate noise of more than a thousandth of the warped values' variance, and the values must show it: they
        differ where a point repeats or, if none does, a Gaussian process with noise explains them at least 10 nats
        better than one without, and no rough function does as well, see `seqdec.bo.surrogates.gaussian_process.shows_noise`. A
        surrogate that has no model of the noise finds none. Raises ValueError as `best` does.
        """
        observed = Recommendation.observed(*self.best)
        if len(self._record.order) < 2 or not self._is_noisy():
            return observed
        entries = [entry for number in self._record.order if (entry := self._record.entries[number]).feasible]
        means, _ = model.marginals(*self._belief(), np.stack([entry.unit for entry in entries]))
        best = entries[int(np.argmax(means[:, 0]))]
        return Recommendation(best.x.copy(), *model.prediction(*self._belief(), best.unit), "predicted")

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
            minimum: of the function, if it is known and values are minimised.
            maximum: likewise where they are maximised.

        Raises:
            ValueError: an unknown panel, no trial was told, or the other one of `minimum` and `maximum` is given.
        """
        from seqdec.bo import figures  # matplotlib is slow to import

        if self.outputs.objectives > 1 and not minimum is maximum is None:
            raise ValueError("minimum and maximum are of one objective; leave them out with several")
        optimum, other = (maximum, minimum) if self.maximize else (minimum, maximum)
        if other is not None:
            right, wrong = ("maximum", "minimum") if self.maximize else ("minimum", "maximum")
            raise ValueError(f"values are {right[:-2]}ised here, so that {wrong}={other} is not drawn: give {right}")
        return figures.plot(self, panel, optimum)

    @overload
    def ask(self, n: None = None, *, fixed: Mapping[Any, Any] | None = None) -> Trial: ...
    @overload
    def ask(self, n: int, *, fixed: Mapping[Any, Any] | None = None) -> list[Trial]: ...
    @spelled()
    def ask(self, n: int | None = None, *, fixed: Mapping[Any, Any] | None = None) -> Trial | list[Trial]:
        """The next trial to evaluate, or a list of `n`.

        Args:
            n: number of trials; None is one, without a list.
            fixed: values that some parameters have there, by name, or by index in a space without names; the
                acquisition is maximised over the others.

        Raises:
            Exhausted: no new point is left.
            ValueError, TypeError: `fixed` holds an unknown name or a value outside, or was found to contradict the
                conditions or constraints.
        """
        held = self.space.fixed(fixed)
        if n is None:
            return self._ask(held)
        return [self._ask(held) for _ in range(checks.count("n", n))]

    @one_at_a_time
    def propose(self, x: Any) -> Trial:
        """A pending trial at a given point. Raises ValueError or TypeError if it is not one of the space."""
        return self._add(self.space.point(x)).trial

    @spelled()
    @one_at_a_time
    def tell(
        self,
        trial: Any,
        value: float | Sequence[float] | np.ndarray | None = None,
        *,
        outcomes: float | Sequence[float] | np.ndarray | None = None,
        noise_std: float | None = None,
        failed: bool = False,
        reason: str = "",
    ) -> Trial:
        """Record the value of a trial, or of a point that was not asked for; returns the trial.

        Args:
            trial: a pending Trial, or a point.
            value: of the function there, a number, with several objectives a sequence of as many; None, NaN or
                infinite: the trial failed.
            outcomes: one number for each of `outcome_constraints`; the trial is feasible if all are at most 0. NaN or
                infinite: the trial failed.
            noise_std: standard deviation of the noise of `value`; None is that of the optimiser. Trials with and
                without one may be mixed: where neither is given, one variance is estimated for all of them.
            failed: the trial failed, whatever `value` is.
            reason: for the failure.

        Raises:
            ValueError: the trial was not asked from this optimiser, was changed or has been told before, or the point
                is outside the bounds; `value` or `outcomes` has another number of parts; `noise_std` is negative, or
                the surrogate has no model of the noise.
            TypeError: `value`, `outcomes`, `noise_std` or the point is not of numbers.
        """
        number = self._record.number(trial, self.space)
        noise_std = check_noise(noise_std, self._method.model.surrogate, self.surrogate)
        values, found = self.outputs.failed if value is None else self.outputs.values(value), ()
        if outcomes is not None or not (failed or value is None):
            found = self.outputs.outcomes(outcomes)
        good = not failed and all(map(math.isfinite, (*values, *found)))
        if not good and not reason:
            reason = "failed" if failed or value is None else self.outputs.described(values, found)
        entry = self._add(self.space.point(trial)) if number is None else self._record.entries[number]
        if good:
            self._record.complete(entry.number, values, found, noise_std)
        else:
            self._record.fail(entry.number, reason, noise_std)
        self._fitted = None
        return entry.trial

    def _add(self, point: Point) -> Entry:
        """A new pending trial."""
        self._fitted = None
        return self._record.add(point)

    @one_at_a_time
    def _ask(self, fixed: Mapping[Any, Any]) -> Trial:
        known = self._known()
        if suggestion.is_early(self._method, known):
            return self._add(suggestion.design(self._method, known, fixed, self._is_noisy)).trial
        fitted = self._fit(known)
        return self._add(suggestion.suggest(self._method, known, fitted, fixed, self._is_noisy)).trial

    def _known(self) -> Observations:
        """What is known; where the surrogate is chosen automatically, it is chosen by it."""
        chosen = surrogates.choose(len(self._record.order))
        if self.settings.is_automatic and chosen != self.surrogate:
            self._use(chosen)
        return self._record.observations(self._method.model.signs)

    def _fit(self, known: Observations) -> Fitted:
        """The model fitted to what is known, from which the next fit goes on."""
        if (capacity := self._needed()) != self.capacity:
            self.capacity, self._start = capacity, None
        start, self._start = self._start, None  # after an interruption the next fit is anew
        with jax.enable_x64(True):
            fitted = model.fit(self._method.model, known, model.padded_rows(capacity), start)
        self._start = fitted.start
        return fitted

    def _needed(self) -> int:
        """The capacity that holds all trials."""
        count = len(self._record.entries)
        return self.capacity << (count // self.capacity).bit_length() if count >= self.capacity else self.capacity

    def _belief(self) -> tuple[Model, Fitted]:
        """The model, and its fit to all values as for the next question, which stays what it is."""
        if self._fitted is None:
            known, capacity = self._known(), self._needed()
            start = self._start if capacity == self.capacity else None
            with jax.enable_x64(True):
                if start is not None:  # `fit` may reuse its memory
                    start = start._replace(state=jax.tree.map(lambda leaf: leaf.copy(), start.state))
                self._fitted = model.fit(self._method.model, known, model.padded_rows(capacity), start)
        return self._method.model, self._fitted

    def _is_noisy(self) -> bool:
        """Whether values are known or found to be noisy, see `recommend`."""
        known = self._known()
        return model.is_noisy(self._method.model, known, self._belief()[1])

    @one_at_a_time
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file, from which `load` continues with identical suggestions.

        Raises:
            TypeError: surrogate or acquisition is not given by name, or a choice or an option of the surrogate is not
                made of strings, numbers, booleans, None, numpy scalars and tuples. An earlier file is left as it is.
            ValueError: the path has the suffix of another kind of file, such as ".csv".
            OSError: the file cannot be written.
        """
        if not isinstance(self.surrogate, str) or not isinstance(self.acquisition, str):
            raise TypeError("only a surrogate and an acquisition given by name can be saved")
        checkpoint.save(
            path,
            checkpoint.study(
                self.settings, self.surrogate, self.acquisition, self.capacity, self._record, *self._saved_start()
            ),
        )

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], constraints: Sequence[Callable[[Any], bool]] = ()
    ) -> "BayesianOptimizer":
        """Read what `save` wrote.

        Args:
            path: of the file.
            constraints: the functions among the study's constraints, in their order, because a file holds none.

        Raises:
            FileNotFoundError: there is no file.
            ValueError: it is damaged, or the study has another number of functions as constraints.
        """
        return checkpoint.load(path, cls._from_study, constraints)

    @classmethod
    def _from_study(cls, study: checkpoint.Study) -> "BayesianOptimizer":
        settings: dict[str, Any] = study.settings | {"search": Search(**study.settings["search"])}
        used = settings.pop("used", settings["surrogate"])
        optimizer = cls(study.space, **settings)
        if used != optimizer.surrogate:
            optimizer._use(used)
        for x, *recorded in study.trials:
            entry = optimizer._add(optimizer.space.point(x))
            told = dict(zip(("status", "values", "reason", "noise_std", "outcomes"), recorded, strict=True))
            optimizer._record.entries[-1] = entry._replace(**told)
        optimizer._record.order = study.order
        optimizer._restore(study.state, tuple(map(Warp._make, study.warps)))
        return optimizer


def _called(part: Any) -> str:
    """The name of a surrogate or an acquisition, or its kind."""
    return part if isinstance(part, str) else f"of your own ({type(part).__name__})"
