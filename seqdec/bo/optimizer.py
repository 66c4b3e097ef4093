"""Bayesian optimisation by ask and tell."""

import functools
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import checks
from seqdec.bo import acquisitions, checkpoint, responses, restricted, suggest, surrogates, trust_region
from seqdec.bo.constraints import Constraint
from seqdec.bo.responses import Warp
from seqdec.bo.restricted import Box
from seqdec.bo.spaces import Point, identity, space_from
from seqdec.bo.suggest import Plan, Ranked, Region, Search, Trials, check_search, sobol
from seqdec.bo.surrogates import History, Surrogate
from seqdec.core import Acquisition

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_MANY_DIMENSIONS = 20
"""With more columns than these, the search keeps to a trust region."""
_SHORTEST = 4
"""Binary logarithm of the smallest number of rows of the padded history."""
_ENUMERABLE = 10_000
_RESTRICTED_DESIGN = 12
"""Binary logarithm of the number of points from which the design of a restricted space is chosen, at least."""
_NOISY = 1e-3
"""Estimated share of noise in the variance of the warped responses above which they count as noisy."""
_DEVIATIONS = 1.959964
"""Half-width of a 95% interval."""
Status = Literal["pending", "complete", "failed"]
F = TypeVar("F", bound=Callable[..., Any])


class Trial(NamedTuple):
    """A point to be evaluated, or evaluated."""

    number: int
    """From 0, in the order of asking."""
    x: Any
    """A read-only numpy array where all dimensions are Real, else a list of its own; with names a dict of its own."""


class Prediction(NamedTuple):
    """Belief about the function at a point, without noise, in the units of its values."""

    mean: float
    low: float
    """The function lies between `low` and `high` with probability 95%."""
    high: float


class Recommendation(NamedTuple):
    """The evaluated point to be used."""

    x: Any
    value: float
    """Of the function there: as told, or the mean of the prediction."""
    low: float
    """The function lies between `low` and `high` with probability 95%; both are `value` where it was observed."""
    high: float
    kind: Literal["observed", "predicted"]

    @classmethod
    def observed(cls, x: Any, value: float) -> "Recommendation":
        """A point whose value is known without noise."""
        return cls(x, value, value, value, "observed")


class Exhausted(RuntimeError):
    """Every point of a finite space has been suggested."""


class _Entry(NamedTuple):
    """The record of a trial."""

    number: int
    x: Any
    unit: np.ndarray
    status: Status
    value: float
    reason: str
    noise_std: float | None = None

    @property
    def trial(self) -> Trial:
        """What is handed out; changing it does not change the record."""
        return Trial(self.number, self.x if isinstance(self.x, np.ndarray) else self.x.copy())


def _locked(method: F) -> F:
    """The method, which one thread at a time runs."""

    @functools.wraps(method)
    def locked(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return locked  # pyright: ignore[reportReturnType] (of the same signature)


class BayesianOptimizer:
    """Bayesian optimisation by ask and tell.

        optimizer = BayesianOptimizer([(-5, 10), (0, 15)], seed=0)
        for _ in range(40):
            trial = optimizer.ask()
            optimizer.tell(trial, fun(trial.x))
        optimizer.best

    Trials may be told in any order, or never; points that were not asked for can be told as well. Pending trials enter
    the next question with their expected value. A value that is not finite, or `failed=True`, marks a failed trial: the
    surrogate is not conditioned on it, and the scores of points near it are reduced. Several threads may share an
    optimiser.

    The first `initial` points form a Sobol sequence; then the surrogate, fitted to all values, scores candidates. Equal
    arguments, calls and values give equal suggestions.

    Args:
        bounds: as `seqdec.bo.space_from` takes them: pairs (low, high), Real, Integer, Ordinal, Categorical, a dict
            from names to these and to Conditional, scipy Bounds, a gymnasium Box or Discrete. With names a point is a
            dict.
        constraints: `seqdec.bo.Linear`, and functions (x) -> bool, which hold at every point. A function is called for
            about a thousand candidates with every question.
        seed: of everything random, an integer >= 0.
        maximize: whether large values are wanted; else small ones.
        surrogate: "gp", "hilofi", "lolofi", "lrkf", "ekf", "auto" (by `capacity` and dimension), or a Surrogate.
        surrogate_options: keywords of the surrogate's function, for example `seqdec.bo.hilofi`.
        acquisition: one of `seqdec.bo.acquisition_names()`, such as "thompson", "log_expected_improvement" or "ucb", an
            Acquisition of `seqdec.policies`, or "auto": the surrogate's default.
        initial: points before the surrogate is used; None is one for each column of the unit cube, but at least two.
        capacity: expected number of trials; exceeding it costs a new compilation.
        trust_region: search a box around the best point that grows with success and shrinks without; None does so
            with more than 20 columns.
        standardize: responses to mean 0 and variance 1 before the surrogate is fitted.
        warp: fit an increasing transform of the responses before they are standardised, and leave outliers out, as
            `seqdec.bo.responses` says; without effect where `standardize` is False.
        noise_std: standard deviation of the noise of the values; 0: they are exact; None: it is estimated. `tell` takes
            that of a single value. Needs a surrogate with a model of the noise, "gp".
        search: how the acquisition is maximised.

    Raises:
        ValueError, TypeError: an argument does not fit; the message names it.
    """

    def __init__(
        self,
        bounds: Any,
        *,
        constraints: Sequence[Constraint] = (),
        seed: int,
        maximize: bool = False,
        surrogate: str | Surrogate = "auto",
        surrogate_options: Mapping[str, Any] | None = None,
        acquisition: str | Acquisition = "auto",
        initial: int | None = None,
        capacity: int = 128,
        trust_region: bool | None = None,
        standardize: bool = True,
        warp: bool = True,
        noise_std: float | None = None,
        search: Search | None = None,
    ) -> None:
        self.space = space_from(bounds, constraints)
        self._examples = [restricted.example(self.space)] if self.space.restricted else []
        self.maximize, self.seed = bool(maximize), checks.count("seed", seed, 0)
        self.capacity, columns = checks.count("capacity", capacity), self.space.columns
        self.initial = max(2, columns) if initial is None else checks.count("initial", initial)
        self.trust_region = columns > _MANY_DIMENSIONS if trust_region is None else bool(trust_region)
        self.standardize, self.search = bool(standardize), check_search(Search() if search is None else search)
        self.warp = bool(warp)
        self.surrogate = surrogates.choose(columns, self.capacity) if surrogate == "auto" else surrogate
        self._options = _hashable({} if surrogate_options is None else surrogate_options)
        if isinstance(self.surrogate, str):
            belief = surrogates.make(self.surrogate, columns, **self._options)
        elif isinstance(self.surrogate, Surrogate) and not self._options:
            belief = self.surrogate
        else:
            raise TypeError(f"surrogate must be a name (then with surrogate_options) or a Surrogate; got {surrogate!r}")
        self.acquisition = belief.acquisition if acquisition == "auto" else acquisition
        score = acquisitions.make(self.acquisition)
        smooth = acquisitions.is_smooth(score(jnp.zeros(())))
        self._plan = Plan(belief, score, smooth, self.search)
        self.noise_std = self._checked_noise(noise_std)
        self._lock = threading.RLock()
        self._entries: list[_Entry] = []
        self._order: list[int] = []
        self._state: Any = None
        self._warp = Warp()
        self._fitted: tuple[Any, Warp] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.RLock())

    @property
    @_locked
    def trials(self) -> tuple[Trial, ...]:
        """All trials, in the order of asking or telling."""
        return tuple(entry.trial for entry in self._entries)

    @property
    @_locked
    def best(self) -> tuple[Any, float]:
        """(x, value) of the best complete trial, the first of equals. Raises ValueError when there is none."""
        done = [entry for entry in self._entries if entry.status == "complete"]
        if not done:
            raise ValueError("no trial is complete yet: tell a finite value first")
        entry = (max if self.maximize else min)(done, key=lambda entry: entry.value)
        return entry.x.copy(), entry.value

    @property
    def is_fitted(self) -> bool:
        """Whether the surrogate has chosen a point."""
        return self._state is not None

    @_locked
    def predict(self, x: Any) -> Prediction:
        """Mean and 95% interval of the function at the point `x`, given all values told.

        The belief is Gaussian in warped units. The optimiser stays as it is.

        Raises:
            ValueError: `x` lies outside the bounds, or fewer than two values are known.
            TypeError: `x` is no point of the space.
        """
        unit = self.space.point(x).unit
        if len(self._order) < 2:
            raise ValueError(f"a prediction needs two values or more; got {len(self._order)}: tell further ones first")
        return self._predictions(unit[None])[0]

    @_locked
    def recommend(self) -> Recommendation:
        """The evaluated point to be used.

        With noise, known or estimated, it is the one with the best posterior mean in warped units, and `value` is
        "predicted"; without, or with a surrogate that has no model of the noise, it is `best`, and "observed". Raises
        ValueError when no trial is complete.
        """
        if len(self._order) < 2 or not self._is_noisy():
            return Recommendation.observed(*self.best)
        entries = [self._entries[number] for number in self._order]
        means, _ = self._marginals(np.stack([entry.unit for entry in entries]))
        best = entries[int(np.argmax(means))]
        mean, low, high = self._predictions(best.unit[None])[0]
        return Recommendation(best.x.copy(), mean, low, high, "predicted")

    @_locked
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
            minimum: of the function, if it is known and values are minimised.
            maximum: likewise where they are maximised.

        Raises:
            ValueError: an unknown panel, no trial was told, or the other one of `minimum` and `maximum` is given.
        """
        from seqdec.bo import figures  # matplotlib is slow to import

        optimum, other = (maximum, minimum) if self.maximize else (minimum, maximum)
        if other is not None:
            right, wrong = ("maximum", "minimum") if self.maximize else ("minimum", "maximum")
            raise ValueError(f"values are {right[:-2]}ised here, so that {wrong}={other} is not drawn: give {right}")
        return figures.plot(self, panel, optimum)

    @overload
    def ask(self, n: None = None, *, fixed: Mapping[Any, Any] | None = None) -> Trial: ...
    @overload
    def ask(self, n: int, *, fixed: Mapping[Any, Any] | None = None) -> list[Trial]: ...
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

    @_locked
    def propose(self, x: Any) -> Trial:
        """A pending trial at a given point. Raises ValueError or TypeError if it is not one of the space."""
        return self._add(self.space.point(x)).trial

    @_locked
    def evaluations(self) -> tuple[list[Any], np.ndarray]:
        """Points and values of all trials that were told, in the order of their numbers; NaN for failures."""
        told = [entry for entry in self._entries if entry.status != "pending"]
        return [entry.x.copy() for entry in told], np.array([entry.value for entry in told])

    @_locked
    def tell(
        self,
        trial: Any,
        value: float | None = None,
        *,
        noise_std: float | None = None,
        failed: bool = False,
        reason: str = "",
    ) -> Trial:
        """Record the value of a trial, or of a point that was not asked for; returns the trial.

        Args:
            trial: a pending Trial, or a point.
            value: of the function there, a number; None, NaN or infinite: the trial failed.
            noise_std: standard deviation of the noise of `value`; None is that of the optimiser. Trials with and
                without one may be mixed: where neither is given, one variance is estimated for all of them.
            failed: the trial failed, whatever `value` is.
            reason: for the failure.

        Raises:
            ValueError: the trial was not asked from this optimiser, was changed or has been told before, or the point
                is outside the bounds; `noise_std` is negative, or the surrogate has no model of the noise.
            TypeError: `value`, `noise_std` or the point is not of numbers.
        """
        number, noise_std = self._number(trial), self._checked_noise(noise_std)
        told = math.nan if value is None else checks.real("value", value)
        good = not failed and math.isfinite(told)
        if not good and not reason:
            reason = "failed" if failed or value is None else f"value {told}"
        entry = self._add(self.space.point(trial)) if number is None else self._entries[number]
        status: Status = "complete" if good else "failed"
        value = told if good else math.nan
        recorded = entry._replace(status=status, value=value, reason="" if good else reason, noise_std=noise_std)
        self._entries[entry.number], self._fitted = recorded, None
        if good:
            self._order.append(entry.number)
        return entry.trial

    @_locked
    def trials_dataframe(self) -> "pd.DataFrame":
        """One row for each trial: number, state, value (NaN unless complete), the point, reason of a failure.

        The columns of the point are x_0, x_1, ..., or the names; where a parameter is inactive, its value is missing.
        """
        import pandas as pd

        names = self.space.names or [f"x_{i}" for i in range(len(self.space.dimensions))]
        rows = [
            {"number": e.number, "state": e.status, "value": e.value}
            | (e.x if self.space.names else dict(zip(names, e.x, strict=True)))
            | {"reason": e.reason}
            for e in self._entries
        ]
        return pd.DataFrame(rows, columns=["number", "state", "value", *names, "reason"])

    def _number(self, trial: Any) -> int | None:
        """The number of a pending trial; None for a point."""
        if not isinstance(trial, Trial):
            return None
        known = 0 <= checks.count("the number of a trial", trial.number, 0) < len(self._entries)
        if not known or identity(self._entries[trial.number].x) != identity(self.space.values(trial.x)):
            raise ValueError(
                f"trial {trial.number} was not asked from this optimizer at {trial.x!r}; tell a point instead of a "
                "trial to add it"
            )
        if self._entries[trial.number].status != "pending":
            raise ValueError(f"trial {trial.number} has been told before: it is {self._entries[trial.number].status}")
        return trial.number

    def _add(self, point: Point) -> _Entry:
        """A new pending trial."""
        x = point.x if isinstance(point.x, np.ndarray) else point.x.copy()
        entry = _Entry(len(self._entries), x, point.unit, "pending", math.nan, "")
        self._entries.append(entry)
        self._fitted = None
        return entry

    @_locked
    def _ask(self, fixed: Mapping[Any, Any]) -> Trial:
        return self._add(self._design(fixed) if self._early() else self._suggest(fixed)).trial

    def _early(self) -> bool:
        """Whether the next point belongs to the initial design: too few asked, or fewer than two values."""
        return len(self._entries) < self.initial or len(self._order) < 2

    def _design(self, fixed: Mapping[Any, Any]) -> Point:
        """The next new point of a randomly shifted Sobol sequence."""
        generator = np.random.default_rng([self.seed, 0])
        index = len(self._entries)
        if self.search.grid:
            grid = sobol(self.search.raw_samples, self.space.columns, scramble=True)
            return self._first_new(generator.permutation(grid)[index % len(grid) :], fixed)
        shift = generator.random(self.space.columns)
        least = _RESTRICTED_DESIGN if self.space.restricted else 6
        points = (sobol(1 << max(least, index.bit_length() + 1), self.space.columns)[index:] + shift) % 1
        return self._first_new(points, fixed)

    def _first_new(self, units: np.ndarray, fixed: Mapping[Any, Any]) -> Point:
        """The first point of `units` (n, columns) that no trial has, else of the space, else with repeats a known one.

        Raises Exhausted, and ValueError if `fixed` excludes all that were tried.
        """
        known, found = {identity(entry.x) for entry in self._entries}, None
        for point in self._points(units, fixed):
            if identity(point.x) not in known:
                return point
            found = found or point
        if found is not None and self.search.repeats:
            return found
        if fixed and found is None:
            raise ValueError(
                f"no point with fixed={dict(fixed)} was found that satisfies all constraints and conditions"
            )
        left = f"with fixed={dict(fixed)} " if fixed else ""
        raise Exhausted(f"all {len(known)} points of the space {left}have been suggested")

    def _points(self, units: np.ndarray, fixed: Mapping[Any, Any]) -> Iterable[Point]:
        """The points of the space at `units`; then all of a small one, or those that walks in a restricted one find."""
        box = Box(*self.space.cube(fixed), fixed)
        at = (self.space.point_at(unit, fixed) for unit in np.clip(units, box.low, box.high))
        yield from (point for point in at if point is not None)
        if self.space.size <= _ENUMERABLE:
            for point in map(self.space.point, self.space.points()):
                if not np.any((point.unit < box.low) | (point.unit > box.high)):
                    yield point
        elif self._examples:
            generator = np.random.default_rng([self.seed, len(self._entries), 1])
            for near in restricted.walk(self.space, box, self._examples, self.search.raw_samples, generator):
                yield from near

    def _suggest(self, fixed: Mapping[Any, Any]) -> Point:
        """The maximiser of the acquisition, or a random new point if that one is known."""
        found = self._maximise(fixed)
        point = self.space.point_at(found, fixed) if isinstance(found, np.ndarray) else found
        if point is not None:
            return point
        generator = np.random.default_rng([self.seed, len(self._entries)])
        return self._first_new(generator.random((1000, self.space.columns)), fixed)

    def _maximise(self, fixed: Mapping[Any, Any]) -> Point | np.ndarray | None:
        """The maximiser of the acquisition, a point of the cube except in restricted spaces; None if all are known."""
        number, surrogate = len(self._entries), self._plan.surrogate
        with jax.enable_x64(True):  # 64-bit arrays only for surrogates that ask for them; see `Surrogate.dtype`
            trials = self._fit()
            belief = suggest.believe(surrogate, self._state, trials)
            region = Region(*(np.clip(side, *self.space.cube(fixed)) for side in self._region()))
            key = jax.random.fold_in(jax.random.key(self.seed), number)
            generator = np.random.default_rng([self.seed, number, 2])

            def ranked(points: np.ndarray, free: np.ndarray) -> Ranked:
                return suggest.rank(self._plan, key, belief, trials, region, points, free)

            known = [] if self.search.repeats else [entry.unit for entry in self._entries]
            known = np.reshape(known, (-1, self.space.columns))
            if not self.space.restricted:
                best = trials.x[np.argsort(-belief.means, kind="stable")[: suggest.INCUMBENTS]]
                pool = suggest.candidates(self.space, self.search, region, best, generator)
                return suggest.best_new(ranked(pool, np.broadcast_to(self.space.continuous, pool.shape)), known)
            box, order = Box(*region, fixed), np.argsort(-self._responses(), kind="stable")
            best = [self._entries[self._order[i]] for i in order[: suggest.INCUMBENTS]]
            starts = [*(Point(entry.x, entry.unit) for entry in best), *self._examples]
            pool = restricted.candidates(self.space, self.search, box, starts, generator)
            return restricted.maximise(ranked, self.space, box, pool, known) if pool else None

    def _fit(self) -> Trials:
        """Fit the surrogate to all values; returns the arguments of the compiled programs."""
        trials, renewed = self._trials(self._plan.surrogate.dtype)
        state, self._state = None if renewed else self._state, None  # after an interruption the next fit is anew
        self._state = suggest.fit(self._plan.surrogate, jax.random.key(self.seed), state, trials)
        return trials

    def _belief(self) -> tuple[Any, Warp]:
        """(surrogate's state, warp), fitted to all values as for the next question, which stays what it is."""
        if self._fitted is None:
            kept = self._state, self._warp, self.capacity
            try:
                self._state = jax.tree.map(lambda leaf: leaf.copy(), self._state)  # `fit` may reuse its memory
                with jax.enable_x64(True):
                    self._fit()
                self._fitted = self._state, self._warp
            finally:
                self._state, self._warp, self.capacity = kept
        return self._fitted

    def _marginals(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(means (n,), standard deviations (n,)) of the function at `units` (n, columns), warped; larger is better."""
        means, stds = self._at(suggest.marginals, units)
        return means, stds

    def _means(self, units: np.ndarray) -> np.ndarray:
        """(n,) the means alone, in much less time with the surrogates that are networks."""
        return self._at(suggest.means, units)[0]

    def _at(self, program: Callable[..., Any], units: np.ndarray) -> np.ndarray:
        """(k, n) results of a program (surrogate, state, rows) at `units` (n, columns)."""
        (state, _), rows, found = self._belief(), self._length, []
        with jax.enable_x64(True):
            for block in np.split(units, range(rows, len(units), rows)):
                x = np.zeros((rows, self.space.columns))
                x[: len(block)] = block
                at = program(self._plan.surrogate, state, x.astype(self._plan.surrogate.dtype))
                found.append(np.atleast_2d(at)[:, : len(block)])
        return np.concatenate(found, 1).astype(float)

    def _predictions(self, units: np.ndarray) -> list[Prediction]:
        """The predictions at `units` (n, columns)."""
        means, stds = self._marginals(units)
        sign, warp = 1 if self.maximize else -1, self._belief()[1]
        limits = [sign * warp.inverse(means + side * _DEVIATIONS * stds) for side in (-sign, sign)]
        columns = [sign * warp.expected_inverse(means, stds), *limits]
        return [Prediction(mean, low, high) for mean, low, high in np.stack(columns, 1).tolist()]

    def _is_noisy(self) -> bool:
        """Whether values are known or estimated to be noisy."""
        estimate = self._plan.surrogate.noise_variance
        if estimate is None:
            return False
        known = [self._noise_of(self._entries[number]) for number in self._order]
        if None not in known:
            return any(known)
        return any(known) or float(estimate(self._belief()[0])) > _NOISY

    def _noise_of(self, entry: _Entry) -> float | None:
        """Standard deviation of the noise of a value; None if it is not known."""
        return self.noise_std if entry.noise_std is None else entry.noise_std

    def _checked_noise(self, noise_std: Any) -> float | None:
        """`noise_std` as a float. Raises ValueError or TypeError if it is no deviation or the surrogate uses none."""
        if noise_std is None:
            return None
        noise_std = checks.real("noise_std", noise_std)
        checks.number("noise_std", noise_std)
        if self._plan.surrogate.noise_variance is None:
            raise ValueError(
                f"noise_std is not used by the surrogate {self.surrogate!r}, got {noise_std}: leave it out, or choose "
                'surrogate="gp"'
            )
        return noise_std

    def _trials(self, dtype: Any) -> tuple[Trials, bool]:
        """The arguments of the compiled program, and whether the responses were standardised again."""
        if len(self._entries) >= self.capacity:
            self.capacity <<= (len(self._entries) // self.capacity).bit_length()
            self._state, self._warp = None, Warp()
        complete, values = [self._entries[number] for number in self._order], self._responses()
        renewed = self._is_renewal_due(values)
        if renewed:
            self._warp = self._fit_warp(complete, values)
        kept = values >= self._warp.fence
        answered, outliers = ([entry for entry, k in zip(complete, kept, strict=True) if k == side] for side in (1, 0))
        pending, failed = ([e for e in self._entries if e.status == status] for status in ("pending", "failed"))
        groups = answered, pending, failed + outliers
        x, y = np.zeros((self._length, self.space.columns)), np.zeros(self._length)
        rows = [entry.unit for group in groups for entry in group]
        x[: len(rows)], y[: len(answered)] = rows, self._warp.forward(values[kept])
        noise = None
        if self._plan.surrogate.noise_variance is not None:
            noise = self._noise(answered, values[kept]).astype(dtype)
        counts = [np.int32(len(group)) for group in groups]
        return Trials(x.astype(dtype), y.astype(dtype), *counts, noise=noise), renewed

    def _is_renewal_due(self, values: np.ndarray) -> bool:
        """Whether the warp is to be fitted again, and with it the surrogate from its prior."""
        warp = self._warp
        if self._state is None or len(values) >= warp.fitted * self._plan.surrogate.growth:
            return True
        return self.standardize and self.warp and warp.is_far(values[warp.fitted :])

    def _fit_warp(self, complete: list[_Entry], values: np.ndarray) -> Warp:
        """The warp for all responses."""
        if not self.standardize:
            return Warp(fitted=len(values))
        if not self.warp:
            return responses.standardized(values)
        return responses.fit(np.stack([entry.unit for entry in complete]), values)

    def _noise(self, answered: list[_Entry], values: np.ndarray) -> np.ndarray:
        """(N,) variances of the warped responses' noise, to first order; negative where it is estimated."""
        known = [-1.0 if (std := self._noise_of(entry)) is None else std for entry in answered]
        default = -1.0 if self.noise_std is None else self.noise_std
        noise = np.full(self._length, default) * self._warp.slope(self._warp.inverse(np.zeros(1)))
        noise[: len(known)] = np.array(known) * self._warp.slope(values)
        return np.where(noise < 0, -1.0, noise**2)

    def _region(self) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) of the box to search, each (columns,)."""
        columns = self.space.columns
        if not self.trust_region:
            return np.zeros(columns), np.ones(columns)
        values = self._responses()
        best = self._entries[self._order[int(np.argmax(values))]]
        warped = self._warp.forward(np.maximum(values, self._warp.fence))
        confined = self.space.continuous & self.space.active(best.x)
        return trust_region.box(best.unit, trust_region.edge(warped, self.initial, columns), confined)

    def _responses(self) -> np.ndarray:
        """(n,) values of the complete trials, larger is better, in the order in which they were told."""
        return np.array([self._entries[number].value for number in self._order]) * (1 if self.maximize else -1)

    @property
    def _length(self) -> int:
        """Rows of the padded history, a power of two, so that studies share programs."""
        return 1 << max(_SHORTEST, (self.capacity - 1).bit_length())

    @_locked
    def save(self, path: str | Path) -> None:
        """Write everything to one file, from which `load` continues with identical suggestions.

        Raises:
            TypeError: surrogate or acquisition is not given by name, or a choice or an option of the surrogate is not
                made of strings, numbers, booleans, None, numpy scalars and tuples. An earlier file is left as it is.
            OSError: the file cannot be written.
        """
        if not isinstance(self.surrogate, str) or not isinstance(self.acquisition, str):
            raise TypeError("only a surrogate and an acquisition given by name can be saved")
        settings = {
            "seed": self.seed,
            "maximize": self.maximize,
            "surrogate": self.surrogate,
            "surrogate_options": self._options,
            "acquisition": self.acquisition,
            "initial": self.initial,
            "capacity": self.capacity,
            "trust_region": self.trust_region,
            "standardize": self.standardize,
            "warp": self.warp,
            "noise_std": self.noise_std,
            "search": self.search._asdict(),
        }
        trials = [
            (e.x if isinstance(e.x, dict) else list(e.x), e.status, e.value, e.reason, e.noise_std)
            for e in self._entries
        ]
        state = [] if self._state is None else checkpoint.arrays(self._state)
        checkpoint.save(path, checkpoint.Study(self.space, settings, trials, self._order, tuple(self._warp), state))

    @classmethod
    def load(cls, path: str | Path, constraints: Sequence[Callable[[Any], bool]] = ()) -> "BayesianOptimizer":
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
        changed: dict[str, Any] = {"search": Search(**study.settings["search"])}
        optimizer = cls(study.space, **study.settings | changed)
        for x, *recorded in study.trials:
            entry = optimizer._add(optimizer.space.point(x))
            told = dict(zip(("status", "value", "reason", "noise_std"), recorded, strict=False))
            optimizer._entries[-1] = entry._replace(**told)
        optimizer._order = study.order
        if study.warp:
            optimizer._warp = Warp._make(study.warp)
        if study.state:
            with jax.enable_x64(True):
                optimizer._state = checkpoint.state_of(study.state, optimizer._prior())
        return optimizer

    def _prior(self) -> Any:
        """The surrogate's state before the first fit."""
        dtype, shape = self._plan.surrogate.dtype, (self._length, self.space.columns)
        history = History(np.zeros(shape, dtype), np.zeros(self._length, dtype), np.int32(0))
        return self._plan.surrogate.init(jax.random.key(0), history)


def _hashable(options: Any) -> dict[str, Any]:
    """The options with lists as tuples. Raises TypeError for one that has no hash."""
    if not isinstance(options, Mapping):
        raise TypeError(f"surrogate_options must be a mapping from keywords to values; got {options!r}")
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    for name, value in options.items():
        try:
            hash(value)
        except TypeError:
            raise TypeError(f"surrogate option {name} must be a number, a string or a tuple; got {value!r}") from None
    return options
