"""Bayesian optimisation by ask and tell."""

import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import checks
from seqdec.bo import acquisitions, checkpoint, pareto, restricted, several, surrogates
from seqdec.bo.constraints import Constraint
from seqdec.bo.feasibility import Incumbent, Target
from seqdec.bo.input_warp import warped
from seqdec.bo.outputs import Outputs
from seqdec.bo.predictions import Front, Prediction, Recommendation
from seqdec.bo.questions import Questions
from seqdec.bo.responses import Warp
from seqdec.bo.spaces import name_of_a_column, space_from
from seqdec.bo.suggest import Plan, Search, check_search
from seqdec.bo.surrogates import Surrogate
from seqdec.bo.trials import Entry, Status, Trial, one_at_a_time
from seqdec.core import Acquisition
from seqdec.introspection import brief, described
from seqdec.portable import portable
from seqdec.registry import spelled
from seqdec.runtime import apart

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MANY_DIMENSIONS = 20
"""With more columns than these, the search keeps to a trust region."""


@portable
class BayesianOptimizer(Questions):
    """Bayesian optimisation by ask and tell.

        optimizer = BayesianOptimizer([(-5, 10), (0, 15)], seed=0)
        for _ in range(40):
            trial = optimizer.ask()
            optimizer.tell(trial, fun(trial.x))
        optimizer.best

    Trials may be told in any order, or never; points that were not asked for can be told as well. Pending trials enter
    the next question with their expected value. A value that is not finite, or `failed=True`, marks a failed trial: the
    surrogate is not conditioned on it. Where failures depend on the point, the scores of points that are likely to fail
    are reduced, see `seqdec.bo.failures`. Several threads may share an optimiser. A pickled one goes on with the same
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
            "log_expected_improvement", and log P(feasible) is added to any of them, see `seqdec.bo.feasibility`. With
            several objectives it is "log_expected_hypervolume_improvement", see `seqdec.bo.pareto`, and no other.
        initial: points before the surrogate is used; None is one for each column of the unit cube, but at least two.
        capacity: expected number of trials; exceeding it costs a new compilation.
        trust_region: search a box around the best point that grows with success and shrinks without; None does so
            with more than 20 columns and one objective. It needs one objective.
        standardize: responses to mean 0 and variance 1 before the surrogate is fitted.
        warp: fit an increasing transform of the responses before they are standardised, and leave outliers out, as
            `seqdec.bo.responses` says; without effect where `standardize` is False.
        input_warp: fit an increasing transform of each column of the unit cube, as `seqdec.bo.input_warp` says, for
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
        super().__init__()
        self.space = space_from(bounds, constraints)
        self._examples = [restricted.example(self.space)] if self.space.restricted else []
        self.outputs = Outputs(
            checks.count("objectives", objectives), checks.count("outcome_constraints", outcome_constraints, 0)
        )
        for name in self.outputs.columns:
            if name in self.space.names:
                raise ValueError(name_of_a_column(name))
        self.seed = checks.seed("seed", seed)
        flags = pareto.signs(maximize, self.outputs.objectives)
        self.maximize = bool(flags[0] > 0) if objectives == 1 else tuple((flags > 0).tolist())
        self._signs = np.concatenate([flags, np.full(self.outputs.outcome_constraints, -1.0)])
        self._warps = (Warp(),) * len(self._signs)
        self.reference_point = self._checked_reference(reference_point)
        self.capacity, columns = checks.count("capacity", capacity), self.space.columns
        self.initial = max(2, columns) if initial is None else checks.count("initial", initial)
        wide = columns > _MANY_DIMENSIONS and self.outputs.objectives == 1
        self.trust_region = wide if trust_region is None else checks.flag("trust_region", trust_region)
        if self.trust_region and self.outputs.objectives > 1:
            raise ValueError("trust_region needs one objective, a best point to be around: leave it out")
        self.standardize, self.warp = checks.flag("standardize", standardize), checks.flag("warp", warp)
        self.input_warp = checks.flag("input_warp", input_warp)
        self.search = check_search(Search() if search is None else search)
        if isinstance(surrogate, str):
            checks.choice("surrogate", surrogate, ["auto", *surrogates.names()])
        self._options = _hashable({} if surrogate_options is None else surrogate_options)
        self._automatic, self._acquisition = isinstance(surrogate, str) and surrogate == "auto", acquisition
        if self._options and not (isinstance(surrogate, str) and surrogate != "auto"):
            raise TypeError(f"surrogate_options need a surrogate by name, such as 'gp'; got {surrogate!r} with them")
        self._use(surrogates.choose(0) if self._automatic else surrogate)
        self.noise_std = self._checked_noise(noise_std)

    def _use(self, surrogate: str | Surrogate) -> None:
        """Ask this surrogate from now on, from its prior."""
        if isinstance(surrogate, str):
            belief = surrogates.make(surrogate, self.space.columns, **self._options)
        elif isinstance(surrogate, Surrogate):
            belief = surrogate
        else:
            raise TypeError(f"surrogate must be a name or a Surrogate; got {surrogate!r}")
        belief = warped(belief) if self.input_warp else belief
        automatic = acquisitions.automatic(belief.acquisition, self.outputs)
        acquisition = automatic if self._acquisition == "auto" else self._acquisition
        if self.outputs.plain:
            score = acquisitions.make(acquisition)
            smooth = acquisitions.is_smooth(score(Incumbent(*jnp.zeros(2))))
        else:
            belief = several.independent(belief, len(self._signs))
            score = acquisitions.make_several(acquisition, self.outputs)
            smooth = acquisitions.is_smooth(score(Target(Incumbent(*jnp.zeros(2)), jnp.array(False), jnp.zeros(0))))
        self.surrogate, self.acquisition = surrogate, acquisition
        self._plan, self._state = Plan(belief, score, smooth, self.search), None

    @one_at_a_time
    def __repr__(self) -> str:
        told = Counter(entry.status for entry in self._entries)
        counts = ", ".join(f"{told[status]} {status}" for status in ("complete", "failed", "pending") if told[status])
        goals = np.atleast_1d(self.maximize)
        told_of = (
            f"outcome constraints: {self.outputs.outcome_constraints}, " if self.outputs.outcome_constraints else ""
        )
        names = self.space.names or [""] * len(self.space.dimensions)
        parts = (f"{name} {brief(kind)}".strip() for name, kind in zip(names, self.space.dimensions, strict=True))
        best = ""
        if self.outputs.objectives == 1 and any(entry.feasible for entry in self._entries):
            x, value = self.best
            best = f"best value {value:.6g} at {brief(x)}"
        return described(
            f"BayesianOptimizer, {told_of}objectives: {', '.join('maximum' if up else 'minimum' for up in goals)}",
            f"{len(self.space.dimensions)} parameters: {', '.join(parts)}",
            f"surrogate {_called(self.surrogate)} ({self.reason}), acquisition {_called(self.acquisition)}, "
            f"seed {self.seed}",
            f"{len(self._entries)} trials{f': {counts}' if counts else ''}",
            best,
        )

    def __getstate__(self) -> dict[str, Any]:
        """All but the functions of a surrogate given by name, which are made anew."""
        with self._lock:
            state = super().__getstate__()
            if isinstance(self.surrogate, str):
                arrays = None if self._state is None else checkpoint.arrays(self._state)
                state |= {"_plan": None, "_fitted": None, "_state": arrays}
            return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self._plan is None:
            arrays = self._state
            self._use(self.surrogate)
            self._restore(arrays)

    def _restore(self, arrays: list[np.ndarray] | None) -> None:
        """Give the surrogate the state that had these `checkpoint.arrays`."""
        if arrays:
            with jax.enable_x64(True):
                self._state = checkpoint.state_of(arrays, self._prior())

    @property
    def reason(self) -> str:
        """Why it is this surrogate."""
        return surrogates.REASONS[str(self.surrogate)] if self._automatic else "as asked for"

    @property
    @one_at_a_time
    def best(self) -> tuple[Any, float]:
        """(x, value) of the best feasible trial, the first of equals.

        Raises ValueError when no trial is complete and feasible, and with several objectives, which `front` is for.
        """
        if self.outputs.objectives > 1:
            raise ValueError(f"with {self.outputs.objectives} objectives there is no best trial: use front()")
        entry = (max if self.maximize else min)(self._feasible(), key=lambda entry: entry.values[0])
        return entry.x.copy(), entry.values[0]

    @one_at_a_time
    def front(self) -> Front:
        """The feasible trials that none dominates, in the order of their first values; equal ones are all kept.

        A trial dominates another if it is at least as good in all objectives and better in one. Raises ValueError when
        no trial is complete and feasible.
        """
        entries = self._feasible()
        values = np.array([entry.values for entry in entries])
        kept = pareto.non_dominated(values * self._signs[: self.outputs.objectives])
        order = [i for i in np.lexsort(values.T[::-1]) if kept[i]]
        return Front([entries[i].x.copy() for i in order], values[order])

    def _feasible(self) -> list[Entry]:
        """The feasible trials. Raises ValueError if there is none."""
        feasible = [entry for entry in self._entries if entry.feasible]
        if not self._order:
            raise ValueError("no trial is complete yet: tell a finite value first")
        if not feasible:
            raise ValueError(
                f"no trial is feasible yet: each of the {len(self._order)} complete ones has an outcome above 0; ask "
                "and tell further ones, or look at trials_dataframe()"
            )
        return feasible

    @property
    @one_at_a_time
    def is_feasible(self) -> bool:
        """Whether a trial is complete and feasible."""
        return any(entry.feasible for entry in self._entries)

    @property
    def is_fitted(self) -> bool:
        """Whether the surrogate has chosen a point."""
        return self._state is not None

    @one_at_a_time
    def predict(self, x: Any) -> Prediction:
        """Mean and 95% interval of the function, or of each objective, at the point `x`, given all values told.

        The belief is Gaussian in warped units. The optimiser stays as it is.

        Raises:
            ValueError: `x` lies outside the bounds, or fewer than two values are known.
            TypeError: `x` is no point of the space.
        """
        unit = self.space.point(x).unit
        if len(self._order) < 2:
            raise ValueError(f"a prediction needs two values or more; got {len(self._order)}: tell further ones first")
        return self._prediction(unit)

    @one_at_a_time
    def recommend(self) -> Recommendation:
        """The evaluated point to be used, among the feasible ones.

        With noise it is the one with the best posterior mean in warped units, and its `value` is "predicted"; without,
        it is `best`, and "observed". Values are noisy where `noise_std` says so. Where it is not given, the surrogate
        must estimate noise of more than a thousandth of the warped values' variance, and the values must show it: they
        differ where a point repeats or, if none does, a Gaussian process with noise explains them at least 10 nats
        better than one without, and no rough function does as well, see `seqdec.bo.gaussian_process.shows_noise`. A
        surrogate that has no model of the noise finds none. Raises ValueError as `best` does.
        """
        observed = Recommendation.observed(*self.best)
        if len(self._order) < 2 or not self._is_noisy():
            return observed
        entries = [entry for number in self._order if (entry := self._entries[number]).feasible]
        means, _ = self._marginals(np.stack([entry.unit for entry in entries]))
        best = entries[int(np.argmax(means[:, 0]))]
        mean, low, high = self._prediction(best.unit)
        return Recommendation(best.x.copy(), mean, low, high, "predicted")

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
        seconds: float | None = None,
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
            seconds: that the evaluation took, for the table of trials.

        Raises:
            ValueError: the trial was not asked from this optimiser, was changed or has been told before, or the point
                is outside the bounds; `value` or `outcomes` has another number of parts; `noise_std` or `seconds` is
                negative, or the surrogate has no model of the noise.
            TypeError: `value`, `outcomes`, `noise_std`, `seconds` or the point is not of numbers.
        """
        if seconds is not None:
            seconds = checks.real("seconds", seconds)
            checks.number("seconds", seconds)
        number, noise_std = self._number(trial), self._checked_noise(noise_std)
        values, found = self.outputs.failed if value is None else self.outputs.values(value), ()
        if outcomes is not None or not (failed or value is None):
            found = self.outputs.outcomes(outcomes)
        good = not failed and all(map(math.isfinite, (*values, *found)))
        if not good and not reason:
            reason = "failed" if failed or value is None else self.outputs.described(values, found)
        entry = self._add(self.space.point(trial)) if number is None else self._entries[number]
        status: Status = "complete" if good else "failed"
        values, found = (values, found) if good else (self.outputs.failed, ())
        recorded = entry._replace(
            status=status,
            values=values,
            reason="" if good else reason,
            noise_std=noise_std,
            outcomes=found,
            seconds=seconds,
        )
        self._entries[entry.number], self._fitted = recorded, None
        if good:
            self._order.append(entry.number)
        return entry.trial

    def _checked_reference(self, given: Any) -> np.ndarray | None:
        """`given` as (k,) numbers. Raises ValueError or TypeError for anything else, and with one objective."""
        if given is None:
            return None
        count = self.outputs.objectives
        numbers = np.asarray(checks.numbers("reference_point", np.asarray(given)), float)
        if count == 1 or numbers.shape != (count,) or not np.isfinite(numbers).all():
            expected = f"{count} finite numbers, one for each objective" if count > 1 else "left out with one objective"
            raise ValueError(f"reference_point must be {expected}; got {given!r}")
        return numbers

    @one_at_a_time
    def _ask(self, fixed: Mapping[Any, Any]) -> Trial:
        return self._add(self._design(fixed) if self._early() else self._suggest(fixed)).trial

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
        settings = {
            "seed": self.seed,
            "maximize": self.maximize,
            **self.outputs._asdict(),
            "reference_point": None if self.reference_point is None else self.reference_point.tolist(),
            "surrogate": "auto" if self._automatic else self.surrogate,
            "used": self.surrogate,
            "surrogate_options": self._options,
            "acquisition": self.acquisition,
            "initial": self.initial,
            "capacity": self.capacity,
            "trust_region": self.trust_region,
            "standardize": self.standardize,
            "warp": self.warp,
            "input_warp": self.input_warp,
            "noise_std": self.noise_std,
            "search": self.search._asdict(),
        }
        trials = [
            (e.x if isinstance(e.x, dict) else list(e.x), *e[3:])  # status, values, ... in the order of Entry
            for e in self._entries
        ]
        state = [] if self._state is None else checkpoint.arrays(self._state)
        checkpoint.save(path, checkpoint.Study(self.space, settings, trials, self._order, self._warps, state))

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
            optimizer._entries[-1] = Entry(*entry[:3], *recorded)
        optimizer._order = study.order
        if study.warps:
            optimizer._warps = tuple(map(Warp._make, study.warps))
        optimizer._restore(study.state)
        return optimizer


def _called(part: Any) -> str:
    """The name of a surrogate or an acquisition, or its kind."""
    return part if isinstance(part, str) else f"of your own ({type(part).__name__})"


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
