"""Bayesian optimization by ask and tell."""

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import numpy as np

from seqdec import checks
from seqdec.bo import checkpoint, levels, model, reading, suggestion
from seqdec.bo.acquisition.optimum import Optimum
from seqdec.bo.earlier import Earlier
from seqdec.bo.fidelity import Fidelity, Forecast, Grid
from seqdec.bo.findings import Findings
from seqdec.bo.fits import Fits
from seqdec.bo.locking import one_at_a_time
from seqdec.bo.model import Fitted, Model
from seqdec.bo.output_warp import Warp
from seqdec.bo.record import Entry, Record, Trial
from seqdec.bo.search.candidates import Search
from seqdec.bo.settings import check_noise, checked
from seqdec.bo.space.constraints import Constraint
from seqdec.bo.space.spaces import Point
from seqdec.bo.surrogates.contract import Surrogate
from seqdec.bo.surrogates.trend import Directions
from seqdec.core import Acquisition
from seqdec.portable import portable
from seqdec.registry import spelled
from seqdec.runtime import apart, check_process


@portable
class BayesianOptimizer(Findings):
    """Bayesian optimization by ask and tell.

        optimizer = BayesianOptimizer([(-5, 10), (0, 15)], seed=0)
        for _ in range(40):
            trial = optimizer.ask()
            optimizer.tell(trial, fun(trial.x))
        optimizer.best

    Trials may be told in any order, or never; points that were not asked for can be told as well. Pending trials enter
    the next suggestion with their expected value. A value that is not finite, or `failed=True`, marks a failed trial:
    the surrogate is not conditioned on it. If failures depend on the point, the scores of points that are likely to
    fail are reduced, see `seqdec.bo.acquisition.failures`. Several threads may share an optimizer. A pickled optimizer
    continues with the same suggestions.

    The first `initial` points form a Sobol sequence; then the surrogate, fitted to all values, scores candidates. Equal
    arguments, calls and values give equal suggestions.

    Args:
        bounds: as `seqdec.bo.space_from` takes them: pairs (low, high), Real, Integer, Ordinal, Categorical, a dict
            from names to these, to Conditional and to further dicts, scipy Bounds, a gymnasium Box or Discrete. With
            names a point is a dict, nested like the bounds.
        constraints: `seqdec.bo.Linear`, and functions (x) -> bool, which hold at every point. A function is called for
            about a thousand candidates per suggestion.
        seed: of everything random, an integer in [0, 2**63).
        maximize: whether large values are wanted, instead of small ones; with several objectives one bool for all, or
            one for each.
        objectives: number of values of the function. With several, the search is for their front, see `front`.
        outcome_constraints: number of outcomes told with each value; a point is feasible if all are at most 0.
        reference_point: with several objectives, the values that a point must improve on in all objectives in order to
            count. None: the front's worst values at the time of the suggestion, each worsened by a tenth of the range
            of all values, in warped units.
        surrogate: one of `seqdec.bo.surrogate_names()`, such as "gp", "sparse_gp" or "hilofi"; a Surrogate; or "auto":
            "gp", and "sparse_gp" once more than a thousand values have been told. The attributes `surrogate` and
            `reason` say which one is in use and why.
        surrogate_options: keywords of the surrogate's function, for example `seqdec.bo.hilofi`; not with "auto".
        acquisition: one of `seqdec.bo.acquisition_names()`, such as "thompson", "log_expected_improvement" or "ucb", an
            Acquisition of `seqdec.policies`, or "auto": the surrogate's default. With outcome constraints "auto" is
            "log_expected_improvement", and log P(feasible) is added to any acquisition, see
            `seqdec.bo.acquisition.feasibility`. With several objectives the only one is
            "log_expected_hypervolume_improvement", see `seqdec.bo.acquisition.pareto`.
        initial: number of points before the surrogate is used; None: one for each column of the unit cube, but at least
            two.
        capacity: expected number of trials; exceeding it costs a new compilation.
        trust_region: search a box around the best point, which grows with success and shrinks without. None: only with
            more than 20 columns and one objective. It needs one objective.
        standardize: scale responses to mean 0 and variance 1 before the surrogate is fitted.
        warp: fit an increasing transform of the responses before they are standardized, and leave outliers out, see
            `seqdec.bo.output_warp`. Without effect if `standardize` is False.
        input_warp: fit an increasing transform of each column of the unit cube, see `seqdec.bo.surrogates.input_warp`,
            for functions that change much faster at one end of a range than at the other.
        noise_std: standard deviation of the noise of the values; 0: they are exact; None: it is estimated. `tell` takes
            that of a single value. With several objectives it applies to each; the noise of outcomes is estimated.
            Needs a surrogate with a model of the noise: "gp", "sparse_gp", "hilofi".
        search: how the acquisition is maximized.
        optimum: where you believe the optimum to lie: a dict from names, or indices, of some parameters to densities. A
            density is a pair (center, width), normal on the scale of search, whose width is a factor if that scale is
            logarithmic; a dict from values to weights; or a function from a value to its density, or an object that has
            one as `pdf` or `pmf`, such as the distributions of scipy. It guides the first suggestions and fades, see
            `seqdec.bo.acquisition.optimum`. A parameter with a condition cannot have one.
        monotone: which way the value goes with some parameters: a dict from names, or indices, of numbers and Ordinals
            to 1, if the value rises, or -1, if it falls. With outcome constraints or several objectives a list with
            such a dict, or None, for each objective and outcome; a single dict is for the only objective. It is the
            prior mean of the function, see `seqdec.bo.surrogates.trend`, and values overrule it.
        fidelity: the levels at which the function can be evaluated, such as `seqdec.bo.Fidelity(1, 30)` for epochs of
            training. A suggestion is then a point and a level. The search is for the best value at full fidelity, the
            highest level, and only values there can be best or recommended. See `seqdec.bo.fidelity`. Needs one
            objective, no outcome constraints, and the surrogate "auto", "gp" or "sparse_gp".
        earlier: an earlier study of the same or of a similar function, or a list of them: a result of
            `seqdec.minimize`, an optimizer, a table like its `trials_dataframe()` in any container, or the path of the
            file of a study. Their values are not part of this search; how much they say about the function is learned,
            see `seqdec.bo.earlier`. The first suggestions are their best points. The surrogate is used after one more
            point, or after `initial` points while it uses none of the studies. Numbers may lie outside the bounds as
            with `outside` of `tell`. Other points that do not fit are left out, as are some of the worse values of a
            study with more than 128. Needs the surrogate "auto", "gp" or "sparse_gp".

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
        optimum: Mapping[Any, Any] | None = None,
        monotone: Mapping[Any, int] | Sequence[Mapping[Any, int] | None] | None = None,
        fidelity: Fidelity | None = None,
        earlier: Any = None,
    ) -> None:
        check_process()
        self._lock = threading.RLock()
        settings = checked(
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
            optimum=optimum,
            monotone=monotone,
            fidelity=fidelity,
        )
        self.settings = settings = settings._replace(earlier=reading.read(earlier, settings))
        self.space, self.outputs, self.seed, self.maximize = settings[:4]
        self.initial = settings.initial
        self._record, self._fits = Record(self.space, self.outputs, settings.fidelity), Fits(settings, capacity)
        self._asked: tuple[Model, Fitted, np.ndarray, np.ndarray] | None = None
        """of the last question: model, fit, the points told and the one asked"""
        self.notes: dict[str, Any] = {}
        """JSON values of yours, which `save` keeps"""

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_asked": None}

    @overload
    def ask(
        self, n: None = None, *, fixed: Mapping[Any, Any] | None = None, fidelity: float | None = None
    ) -> Trial: ...
    @overload
    def ask(self, n: int, *, fixed: Mapping[Any, Any] | None = None, fidelity: float | None = None) -> list[Trial]: ...
    @spelled()
    def ask(
        self, n: int | None = None, *, fixed: Mapping[Any, Any] | None = None, fidelity: float | None = None
    ) -> Trial | list[Trial]:
        """The next trial to evaluate, or a list of `n`.

        Args:
            n: number of trials; None is one, without a list.
            fixed: values of some parameters, by name or, in a space without names, by index; the acquisition is
                maximized over the others.
            fidelity: the level; None: the one that says most about the value at full fidelity for its cost, or full
                fidelity once lower levels have cost as much as an evaluation there.

        Raises:
            Exhausted: no new point is left.
            ValueError, TypeError: `fixed` holds an unknown name or a value outside the bounds, or was found to
                contradict the conditions or constraints; `fidelity` is not one of the levels.
        """
        held, level = self.space.fixed(fixed), self._level(fidelity)
        if n is None:
            return self._ask(held, level)
        return [self._ask(held, level) for _ in range(checks.count("n", n))]

    @one_at_a_time
    def propose(self, x: Any, *, fidelity: float | None = None) -> Trial:
        """A pending trial at a given point, at a level or at full fidelity.

        Raises ValueError or TypeError if the point is not in the space, or `fidelity` is not one of the levels.
        """
        level = self._level(fidelity) or 0
        return self._record.trial(self._add(self.space.point(x)._replace(level=level)))

    def _level(self, fidelity: Any) -> int | None:
        """The index of a level, None if it is None. Raises ValueError or TypeError for what is none."""
        if fidelity is None:
            return None
        if self.settings.fidelity is None:
            raise ValueError(
                f"fidelity={fidelity!r} needs levels: BayesianOptimizer(..., fidelity=Fidelity(low, high))"
            )
        return self.settings.fidelity.place(fidelity)

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
        outside: bool = False,
        fidelity: float | None = None,
    ) -> Trial:
        """Record the value of a trial, or of a point that was not asked for; returns the trial.

        Args:
            trial: a pending Trial, or a point.
            value: of the function at the point: a number, or with several objectives a sequence with one for each.
                None, NaN or infinity: the trial failed. If the levels are integers, it may be a learning curve: a
                sequence of the values after the units 1, 2, ..., such as epochs; those at levels are recorded.
            outcomes: one number for each of `outcome_constraints`; the trial is feasible if all are at most 0. NaN or
                infinity: the trial failed.
            noise_std: standard deviation of the noise of `value`; None: that of the optimizer. Trials with and without
                one may be mixed: those for which neither is given share one estimated variance.
            failed: the trial failed, whatever `value` is.
            reason: of the failure, for the table of trials.
            seconds: duration of the evaluation, for the table of trials.
            outside: accept a point that violates the constraints, or whose numbers lie outside the bounds by at most
                their range on the scale of search, as in data of an earlier search. Its value informs the belief; the
                point is never asked for, best or recommended. Its state in the table of trials is "outside".
            fidelity: the level of a point that was not asked for; None: full fidelity. The state of a value at a lower
                level is "partial"; that of a learning curve that ends before the level asked for is "stopped".

        Raises:
            ValueError: the trial was not asked from this optimizer, was changed or has been told before, or the point
                is outside the bounds; `value` or `outcomes` has another number of parts; `fidelity` is not one of the
                levels, or is given for a trial; `noise_std` or `seconds` is negative, or the surrogate has no model of
                the noise.
            TypeError: `value`, `outcomes`, `noise_std`, `seconds` or the point does not consist of numbers.
        """
        outside = checks.flag("outside", outside)
        if seconds is not None:
            seconds = checks.real("seconds", seconds)
            checks.number("seconds", seconds)
        number = self._record.number(trial)
        noise_std = check_noise(noise_std, self._fits.method.model.surrogate, self.surrogate)
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
        if not good and not reason:
            reason = "failed" if failed or value is None else self.outputs.described(values, found)
        point = self._record.entries[number].point if number is not None else self.space.known_point(trial, outside)
        entry = self._add(point._replace(level=level or 0)) if number is None else self._record.entries[number]
        told: dict[str, Any] = {"noise_std": noise_std, "seconds": seconds}
        if good:
            level = entry.level if reached is None else reached
            below = "stopped" if level > entry.level else "partial"
            status = "outside" if not point.inside else below if level else "complete"
            told |= {"values": values, "outcomes": found, "level": level, "curve": lower}
            self._record.end(entry.number, status, **told)
        else:
            self._record.end(entry.number, "failed", reason=reason, **told)
        self._fits.forget()
        return self._record.trial(self._record.entries[entry.number])

    def _add(self, point: Point, forecast: Forecast | None = None) -> Entry:
        """A new pending trial."""
        self._fits.forget()
        return self._record.add(point, forecast)

    @one_at_a_time
    def _ask(self, fixed: Mapping[Any, Any], level: int | None) -> Trial:
        self._asked, forecast = None, None
        known = self._fits.observations(self._record)
        method = self._fits.method
        if suggestion.is_early(method, known):
            point = suggestion.design(method, known, fixed, self._is_noisy)
            lowest = 0 if self.settings.fidelity is None else len(self.settings.fidelity.levels) - 1
            return self._record.trial(self._add(point._replace(level=lowest if level is None else level)))
        fitted = self._fits.advance(self._record)
        point = suggestion.suggest(method, known, fitted, fixed, self._is_noisy)
        inside = [one.unit for one in known.told if one.inside]
        self._asked = method.model, fitted, np.stack(inside), point.unit
        if self.settings.fidelity is not None:
            point, forecast = levels.aim(method.model, known, fitted, point, level, self._record.lower_cost())
        return self._record.trial(self._add(point, forecast))

    @one_at_a_time
    def expected_gain(self) -> float:
        """The expected improvement of the last suggested point on the best one, as known when it was suggested.

        E max(y* - y, 0), or E max(y - y*, 0) if values are maximized, in their units: y is the function at the
        suggested point, without noise, and y* its value at the told point with the best posterior mean. Feasibility and
        failures do not enter. NaN if no point was suggested yet, or the last one came from the initial design. Raises
        ValueError with several objectives.
        """
        if self.outputs.objectives > 1:
            raise ValueError(f"with {self.outputs.objectives} objectives there is no best point to improve on")
        return math.nan if self._asked is None else model.expected_gain(*self._asked)

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
                self.settings,
                self.surrogate,
                self.acquisition,
                self.capacity,
                self.notes,
                self._record,
                *self._fits.saved(),
            ),
        )

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], constraints: Sequence[Callable[[Any], bool]] = ()
    ) -> "BayesianOptimizer":
        """Read what `save` wrote.

        Args:
            path: of the file.
            constraints: the functions among the study's constraints, in their order, because a file does not hold them.

        Raises:
            FileNotFoundError: there is no file.
            ValueError: the file is damaged, or the study has another number of functions as constraints.
        """
        return checkpoint.load(path, cls._from_study, constraints)

    @classmethod
    def _from_study(cls, study: checkpoint.Study) -> "BayesianOptimizer":
        settings: dict[str, Any] = study.settings | {"search": Search(**study.settings["search"])}
        if (logs := settings.get("optimum")) is not None:
            settings["optimum"] = Optimum(tuple(None if one is None else tuple(one) for one in logs))
        if (directions := settings.get("monotone")) is not None:
            settings["monotone"] = Directions(tuple(map(tuple, directions)))
        if (grid := settings.get("fidelity")) is not None:
            settings["fidelity"] = Grid(*map(tuple, grid))
        settings["earlier"] = [Earlier(*map(np.array, one)) for one in settings.get("earlier", [])]
        used, notes = settings.pop("used", settings["surrogate"]), settings.pop("notes", {})
        optimizer = cls(study.space, **settings)
        optimizer.notes = notes
        if used != optimizer.surrogate:
            optimizer._fits.use(used)
        for x, *recorded in study.trials:
            entry = optimizer._add(optimizer.space.known_point(x, outside=True))
            optimizer._record.entries[-1] = Entry(*entry[:3], *recorded)
        optimizer._record.order = study.order
        optimizer._fits.restore(study.state, tuple(Warp(*warp) for warp in study.warps))
        return optimizer
