"""An Optuna sampler of `seqdec.bo`.

All it knows of a study is in the storage. Parameters of the same complete trials form a group. Groups are sampled in
turn, those of the most trials first, each by an optimizer of its parameters and of those that occur wherever it does,
held at their values.
"""

import logging
import math
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from seqdec.bo import BayesianOptimizer, Categorical, Exhausted, Integer, Real, Search, Surrogate, Trial
from seqdec.bo.model import Responses
from seqdec.bo.space.dimensions import Dimension
from seqdec.bo.space.space import identity
from seqdec.boundary import checks
from seqdec.core import Acquisition
from seqdec.introspection import described, listed

try:
    from optuna.samplers import BaseSampler, RandomSampler  # pyright: ignore[reportMissingImports] (an extra)
except ImportError as error:
    raise ImportError("Optuna is not installed: pip install 'seqdec[optuna]'") from error

from optuna.distributions import (  # pyright: ignore[reportMissingImports]
    BaseDistribution,
    CategoricalDistribution,
    IntDistribution,
    check_distribution_compatibility,
)
from optuna.samplers._base import _process_constraints_after_trial  # pyright: ignore[reportMissingImports]
from optuna.study import Study, StudyDirection  # pyright: ignore[reportMissingImports]
from optuna.trial import FrozenTrial, TrialState  # pyright: ignore[reportMissingImports]

_logger = logging.getLogger(__name__)

_UNKNOWN = IntDistribution(0, 0)
"""Of one value, of a parameter not searched."""
_FAILED: tuple[float, ...] = ()


class Sampler(BaseSampler):
    """Optuna sampler that asks a `seqdec.bo.BayesianOptimizer`.

        study = optuna.create_study(sampler=Sampler(seed=0))
        study.optimize(objective, n_trials=40)

    Parameters are known once a trial that has them is complete; until then the independent sampler draws them. In a
    conditional space each branch has its own model. A changed range or step is that of the latest trial. With several
    directions the front is sought.

    Trials with a value outside its range are not modeled; running trials enter with their expected value. Values that
    are not finite, and trials without one of the constraints, have failed; pruned trials have their last intermediate
    value, or have failed. A trial is feasible where no constraint is greater than 0.

    Equal seeds and values give equal trials in one process without threads; processes that share a study need different
    seeds. A pickled sampler holds its settings only.

    Args:
        seed: seed for all random numbers, an integer in [0, 2**63); None: a random one.
        n_startup_trials: trials before the surrogate; None: one for each column of the unit cube, at least two.
        independent_sampler: sampler of unknown parameters; None: `optuna.samplers.RandomSampler`.
        constraints_func: (trial) -> values, stored with each complete or pruned trial.
        surrogate, surrogate_options, acquisition, capacity, responses, noise_std, reference_point, search:
            as in `seqdec.bo.BayesianOptimizer`.

    Raises:
        ValueError, TypeError: an argument does not fit.
    """

    def __init__(
        self,
        *,
        seed: int | None = None,
        n_startup_trials: int | None = None,
        independent_sampler: BaseSampler | None = None,
        constraints_func: Callable[[FrozenTrial], Sequence[float]] | None = None,
        surrogate: str | Surrogate = "auto",
        surrogate_options: Mapping[str, Any] | None = None,
        acquisition: str | Acquisition = "auto",
        capacity: int = 128,
        responses: Responses = "warped",
        noise_std: float | None = None,
        reference_point: Sequence[float] | np.ndarray | None = None,
        search: Search | None = None,
    ) -> None:
        options = {
            "surrogate": surrogate,
            "surrogate_options": surrogate_options,
            "acquisition": acquisition,
            "capacity": capacity,
            "responses": responses,
            "noise_std": noise_std,
            "reference_point": reference_point,
            "search": search,
        }
        self._seed = _random_seed() if seed is None else checks.seed("seed", seed)
        legacy = None if seed is None else int(checks.seed_bits(self._seed))  # NumPy's old generators take 32 bits
        startup = None if n_startup_trials is None else checks.count("n_startup_trials", n_startup_trials, 0)
        self._initial = None if startup is None else max(1, startup)
        self._independent_sampler = independent_sampler or RandomSampler(seed=legacy)
        self._constraints_func, self._options = constraints_func, options
        # raises here, not in the first trial
        objectives = 1 if reference_point is None else np.size(reference_point)
        BayesianOptimizer([(0.0, 1.0)], **_optimizer_options(0, [False] * objectives, 0, 1), **options)
        self._start()

    def _start(self) -> None:
        self._models: dict[Any, _Model] = {}
        self._drawn: dict[tuple[int, str], BaseDistribution] = {}
        """the independent sampler's last distributions, by study and parameter"""
        self._warned: set[tuple[int, str]] = set()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        given = {"seed": self._seed, "n_startup_trials": self._initial, "constraints_func": self._constraints_func}
        given["independent_sampler"] = type(self._independent_sampler).__name__
        given |= {name: self._options[name] for name in ("surrogate", "acquisition", "noise_std")}
        return described(
            f"Sampler({listed({name: value for name, value in given.items() if value is not None})})",
            f"{len(self._models)} {'model' if len(self._models) == 1 else 'models'}",
        )

    def __getstate__(self) -> dict[str, Any]:
        own = ("_models", "_drawn", "_warned", "_lock")
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def reseed_rng(self) -> None:
        """Draw another seed, for the independent sampler and new models."""
        self._seed = _random_seed()
        self._independent_sampler.reseed_rng()

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters of the complete trials, with the latest distributions; none of one value."""
        trials = study.get_trials(deepcopy=False)
        found: dict[str, BaseDistribution] = {}
        changed, mixed = set(), set()
        for name, distribution in (item for other in trials for item in other.distributions.items()):
            if (earlier := found.setdefault(name, distribution)) != distribution:
                changed.add(name)
                mixed |= set() if _is_compatible(earlier, distribution) else {name}
            found[name] = distribution
        for name in sorted(changed):
            self._warn(study, name)
        for name in mixed:
            found[name] = self._drawn.get((study._study_id, name), _UNKNOWN)
        known = {name for other in trials if other.state == TrialState.COMPLETE for name in other.params}
        return {name: found[name] for name in sorted(known) if not found[name].single()}

    def _warn(self, study: Study, name: str) -> None:
        if (study._study_id, name) not in self._warned:
            self._warned.add((study._study_id, name))
            _logger.warning(
                "the distribution of %r changes: that of the latest trial is searched, trials with a value outside are "
                "not modeled, and in a trial with another one the independent sampler draws it",
                name,
            )

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Values of all parameters."""
        chosen: dict[str, Any] = {}
        with self._lock:  # also for reading the trials: they must not be older than those that the models know
            trials = [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
            models, self._models = self._models, {}
            finished = (other for other in trials if other.state.is_finished())
            constraints = tuple(sorted({name for other in finished for name in _constraints(other)}))
            maximize = [direction == StudyDirection.MAXIMIZE for direction in study.directions]
            options = _optimizer_options(self._seed, maximize, len(constraints), self._initial) | self._options
            for space in _spaces(trials, search_space):
                key = tuple(study.directions), tuple(space)
                model = models.get(key)
                if model is None or (model.space, model.constraints) != (space, constraints):
                    model = _Model(space, constraints, options)
                chosen |= model.ask(trial.number, trials, chosen)
                self._models[key] = model
        return {name: _external(search_space[name], value) for name, value in chosen.items()}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """A value by the independent sampler."""
        self._drawn[study._study_id, param_name] = param_distribution
        return self._independent_sampler.sample_independent(study, trial, param_name, param_distribution)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Call `before_trial` of the independent sampler."""
        self._independent_sampler.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Store the constraints."""
        if self._constraints_func is not None:
            _process_constraints_after_trial(self._constraints_func, study, trial, state)
        self._independent_sampler.after_trial(study, trial, state, values)


class _Record(NamedTuple):
    x: tuple[Any, ...]
    """in the model's space"""
    values: tuple[float, ...] | None
    """None while the trial runs; `_FAILED`"""
    outcomes: tuple[float, ...] = ()


class _Model:
    """An optimizer of some parameters of a study."""

    def __init__(
        self, space: dict[str, BaseDistribution], constraints: tuple[str, ...], options: dict[str, Any]
    ) -> None:
        self.space, self.constraints, self._options = space, constraints, dict(options)
        self._start()

    def _start(self, repeats: bool = False) -> None:
        """With `repeats` points may be chosen again."""
        if repeats:
            self._options["search"] = replace(self._options["search"] or Search(), repeats=True)
        self._optimizer = BayesianOptimizer([_dimension(d) for d in self.space.values()], **self._options)
        self._records: dict[int, _Record] = {}
        self._pending: dict[int, Trial] = {}

    def ask(self, number: int, trials: list[FrozenTrial], fixed: Mapping[str, Any]) -> dict[str, Any]:
        held = {index: fixed[name] for index, name in enumerate(self.space) if name in fixed}
        self._follow(trials)
        try:
            asked = self._optimizer.ask(fixed=held)
        except Exhausted:
            self._start(repeats=True)
            self._follow(trials)
            asked = self._optimizer.ask(fixed=held)
        x = identity(asked.x)
        self._records[number], self._pending[number] = _Record(x, None), asked
        return dict(zip(self.space, x, strict=True))

    def _follow(self, trials: list[FrozenTrial]) -> None:
        """Tell what is new, or all if a trial changed."""
        known = {trial.number: record for trial in trials if (record := self._record(trial)) is not None}
        running = {trial.number for trial in trials if trial.state == TrialState.RUNNING}
        if not all(_continues(old, known.get(number), number in running) for number, old in self._records.items()):
            self._start()
        for number, record in known.items():
            if record != self._records.get(number):
                asked = self._pending.pop(number, None) or self._optimizer.propose(record.x)
                if record.values is None:
                    self._pending[number] = asked
                else:
                    self._optimizer.tell(asked, record.values or None, outcomes=record.outcomes or None)
                self._records[number] = record

    def _record(self, trial: FrozenTrial) -> _Record | None:
        """The record of a trial; None unless it has all parameters, within their distributions."""
        if trial.state == TrialState.WAITING or not all(_holds(d, trial.params, n) for n, d in self.space.items()):
            return None
        x = tuple(_internal(distribution, trial.params[name]) for name, distribution in self.space.items())
        outcomes = _constraints(trial)
        values = _values(trial, self._optimizer.outputs.objectives)
        if values in (None, _FAILED) or not all(math.isfinite(outcomes.get(n, math.nan)) for n in self.constraints):
            return _Record(x, None if values is None else _FAILED)
        return _Record(x, values, tuple(outcomes[name] for name in self.constraints))


def _holds(distribution: BaseDistribution, params: Mapping[str, Any], name: str) -> bool:
    try:
        return name in params and distribution._contains(distribution.to_internal_repr(params[name]))
    except ValueError:  # of another kind
        return False


def _is_compatible(one: BaseDistribution, other: BaseDistribution) -> bool:
    try:
        check_distribution_compatibility(one, other)
    except ValueError:
        return False
    return True


def _continues(old: _Record, new: _Record | None, running: bool) -> bool:
    if new is None:
        return old.values is None and running
    return new.x == old.x and (old.values is None or old == new)


def _values(trial: FrozenTrial, objectives: int) -> tuple[float, ...] | None:
    if trial.state == TrialState.RUNNING:
        return None
    values: Sequence[float] = ()
    if trial.state == TrialState.COMPLETE:
        values = trial.values
    elif trial.state == TrialState.PRUNED and trial.last_step is not None:
        values = [trial.intermediate_values[trial.last_step]]
    return tuple(values) if len(values) == objectives and all(map(math.isfinite, values)) else _FAILED


def _constraints(trial: FrozenTrial) -> dict[str, float]:
    """Those of a function are numbered."""
    found: dict[str, float] = {}
    for key, stored in trial.system_attrs.items():
        if key == "constraints" and stored is not None:
            found |= {str(index): float(value) for index, value in enumerate(stored)}
        elif key.startswith("constraints:") and stored is not None:
            found[key.partition(":")[2]] = float(stored)
    return found


def _optimizer_options(seed: int, maximize: list[bool], constraints: int, initial: int | None) -> dict[str, Any]:
    return {
        "constraints": (),
        "seed": seed,
        "maximize": maximize[0] if len(maximize) == 1 else maximize,
        "objectives": len(maximize),
        "outcome_constraints": constraints,
        "initial": initial,
    }


def _spaces(
    trials: list[FrozenTrial], search_space: dict[str, BaseDistribution]
) -> Iterator[dict[str, BaseDistribution]]:
    """Of each set of complete trials, the parameters they share."""
    complete = [trial for trial in trials if trial.state == TrialState.COMPLETE]
    occurs = {name: frozenset(trial.number for trial in complete if name in trial.params) for name in search_space}
    for group in sorted(dict.fromkeys(occurs.values()), key=len, reverse=True):
        yield {name: distribution for name, distribution in search_space.items() if occurs[name] >= group}


def _random_seed() -> int:
    return secrets.randbits(31)


def _dimension(distribution: Any) -> Dimension:
    """Choices and steps are numbered."""
    if isinstance(distribution, CategoricalDistribution):
        return Categorical(tuple(range(len(distribution.choices))))
    low, high, log = distribution.low, distribution.high, distribution.log
    if _is_stepped(distribution):
        return Integer(0, round((high - low) / distribution.step))
    return Integer(low, high, log) if isinstance(distribution, IntDistribution) else Real(low, high, log)


def _internal(distribution: Any, value: Any) -> Any:
    number = distribution.to_internal_repr(value)
    return round((number - distribution.low) / distribution.step) if _is_stepped(distribution) else number


def _external(distribution: Any, value: Any) -> Any:
    if _is_stepped(distribution):
        value = min(distribution.low + value * distribution.step, distribution.high)
    return distribution.to_external_repr(value)


def _is_stepped(distribution: Any) -> bool:
    return not isinstance(distribution, CategoricalDistribution) and bool(distribution.step) and not distribution.log
