"""The checked keywords of an optimizer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from seqdec.bo import model as fitting
from seqdec.bo import transfer
from seqdec.bo.acquisition import names as acquisitions
from seqdec.bo.acquisition import optimum as optima
from seqdec.bo.acquisition import pareto
from seqdec.bo.acquisition.feasibility import Incumbent, Target
from seqdec.bo.acquisition.optimum import Optimum
from seqdec.bo.fidelity import Fidelity, Grid
from seqdec.bo.model import Model, Responses
from seqdec.bo.search import restricted
from seqdec.bo.search.ascent import Plan
from seqdec.bo.search.candidates import Search
from seqdec.bo.space.bounds import name_of_a_column
from seqdec.bo.space.space import Space
from seqdec.bo.suggestion import Method
from seqdec.bo.surrogates import contract as surrogates
from seqdec.bo.surrogates import trend
from seqdec.bo.surrogates.contract import Surrogate
from seqdec.bo.surrogates.multi_output import independent
from seqdec.bo.surrogates.trend import Directions, trended
from seqdec.bo.transfer import Earlier, Related
from seqdec.bo.trials import Outputs
from seqdec.boundary import checks
from seqdec.core import Acquisition

_MANY = 20
"""Parameters above which the search keeps to a trust region."""
_FIRST, _DESIGN, _SHARE = 2, 4, 4
"""Initial design: first points for each objective, most further ones, and the part of all trials."""


@dataclass(frozen=True)
class Prior:
    """Prior knowledge about the function.

    >>> from seqdec.bo import BayesianOptimizer, Prior
    >>> known = Prior(optimum={"rate": (0.1, 0.05)}, monotone={"size": -1})
    >>> optimizer = BayesianOptimizer({"rate": (0.0, 1.0), "size": (1, 9)}, seed=0, prior=known)
    """

    optimum: Mapping[Any, Any] | None = None
    """Where the optimum lies: a dict from names, or indices, to pairs (center, width), dicts from values to weights, or
    densities (`seqdec.bo.acquisition.optimum`)."""
    monotone: Mapping[Any, int] | Sequence[Mapping[Any, int] | None] | None = None
    """A dict from names, or indices, to 1 (rising) or -1 (falling); for several outputs a list
    (`seqdec.bo.surrogates.trend`)."""
    earlier: Any = None
    """Searches of similar functions, one or a list: results, optimizers, tables of trials or paths
    (`seqdec.bo.transfer`)."""


@dataclass(frozen=True)
class Settings:
    """The keywords of `seqdec.bo.BayesianOptimizer` but its capacity."""

    space: Space
    outputs: Outputs
    seed: int
    maximize: bool | tuple[bool, ...]
    reference_point: np.ndarray | None
    surrogate: str | Surrogate
    surrogate_options: dict[str, Any]
    acquisition: str | Acquisition
    initial: int
    responses: Responses
    noise_std: float | None
    search: Search
    optimum: Optimum | None
    monotone: Directions | None
    fidelity: Grid | None
    earlier: tuple[Earlier, ...]

    @property
    def columns(self) -> int:
        """Of the surrogate, see `seqdec.bo.model.Model`."""
        return self.space.columns + (self.fidelity is not None) + len(self.earlier)

    @property
    def signs(self) -> np.ndarray:
        """(m,) 1 for what is maximized, -1 for other objectives and outcomes."""
        objectives = np.where(np.atleast_1d(self.maximize), 1.0, -1.0)
        return np.concatenate([objectives, np.full(self.outputs.outcome_constraints, -1.0)])

    @property
    def is_automatic(self) -> bool:
        """Whether the surrogate is chosen by the values told."""
        return isinstance(self.surrogate, str) and self.surrogate == "auto"

    def checked(self, capacity: int) -> "Settings":
        """The settings for so many trials. Raises ValueError or TypeError, naming the keyword."""
        space, given = self.space, self.outputs
        outputs = Outputs(
            checks.count("objectives", given.objectives),
            checks.count("outcome_constraints", given.outcome_constraints, 0),
        )
        for name in outputs.columns:
            if name in space.names:
                raise ValueError(name_of_a_column(name))
        grid = _grid(self, outputs)
        flags = pareto.signs(self.maximize, outputs.objectives) > 0
        wide = space.groups > _MANY and outputs.objectives == 1 and grid is None
        search = Search.checked(Search() if self.search is None else self.search)
        if search.trust_region is None:
            search = replace(search, trust_region=wide)
        if search.trust_region and outputs.objectives > 1:
            raise ValueError("trust_region needs one objective, because it surrounds the best point: leave it out")
        if isinstance(self.surrogate, str):
            if self.surrogate != "auto" and self.surrogate not in surrogates.REGISTRY:
                checks.choice("surrogate", self.surrogate, ["auto", *surrogates.names()])
        elif not isinstance(self.surrogate, Surrogate):
            raise TypeError(f"surrogate must be a name or a Surrogate; got {self.surrogate!r}")
        checks.choice("responses", self.responses, get_args(Responses))
        options = _hashable({} if self.surrogate_options is None else self.surrogate_options)
        if options and (self.is_automatic or not isinstance(self.surrogate, str)):
            raise TypeError(f"surrogate_options need a surrogate by name, such as 'gp'; got {self.surrogate!r}")
        return replace(
            self,
            outputs=outputs,
            seed=checks.seed("seed", self.seed),
            maximize=bool(flags[0]) if outputs.objectives == 1 else tuple(flags.tolist()),
            reference_point=_reference(self.reference_point, outputs.objectives),
            surrogate_options=options,
            initial=_initial(space, outputs, grid, capacity)
            if self.initial is None
            else checks.count("initial", self.initial),
            search=search,
            optimum=optima.checked(self.optimum, space),
            monotone=trend.checked(self.monotone, space, outputs),
            fidelity=grid,
            earlier=(),
        )


def _initial(space: Space, outputs: Outputs, grid: Grid | None, capacity: int) -> int:
    """One point for each parameter, at most a quarter of the trials; levels are cheap."""
    first, most = _FIRST * outputs.objectives, capacity // _SHARE if grid is None else math.inf
    return int(max(first, min(space.parameters, first + _DESIGN, most)))


def _grid(given: Settings, outputs: Outputs) -> Grid | None:
    """The levels of `fidelity`. Raises ValueError or TypeError where another argument excludes it."""
    fidelity: Any = given.fidelity
    if fidelity is None:
        return None
    if not isinstance(fidelity, Fidelity):
        raise TypeError(f"fidelity must be a seqdec.bo.Fidelity, such as Fidelity(1, 30); got {fidelity!r}")
    if not outputs.plain:
        raise ValueError(
            f"fidelity needs one objective and no outcome constraints; got objectives={outputs.objectives} and "
            f"outcome_constraints={outputs.outcome_constraints}"
        )
    if given.surrogate not in surrogates.REFITTED:
        known = ", ".join(surrogates.REFITTED)
        raise ValueError(f"fidelity needs one of the surrogates {known}; got {given.surrogate!r}")
    if given.search is not None and given.search.trust_region:
        raise ValueError("fidelity needs a search without a trust region: leave trust_region out")
    if "fidelity" in given.space.names:
        raise ValueError(name_of_a_column("fidelity"))
    return fidelity.grid


def method_of(settings: Settings, surrogate: str | Surrogate) -> tuple[str | Acquisition, Method]:
    """(acquisition, method) with this surrogate. Raises ValueError or TypeError where they do not fit."""
    space, outputs = settings.space, settings.outputs
    belief = (
        surrogates.make(surrogate, settings.columns, **settings.surrogate_options)
        if isinstance(surrogate, str)
        else surrogate
    )
    automatic = isinstance(settings.acquisition, str) and settings.acquisition == "auto"
    acquisition = acquisitions.automatic(belief.acquisition, outputs) if automatic else settings.acquisition
    beliefs = (belief,) * len(settings.signs)
    if settings.monotone is not None:
        directions = np.zeros((len(settings.signs), settings.columns))
        directions[:, : space.columns] = settings.signs[:, None] * settings.monotone.columns(space)
        beliefs = tuple(trended(belief, tuple(signs)) for signs in directions.tolist())
    incumbent: Any = Incumbent(*np.zeros(2))
    if outputs.plain:
        belief, score = beliefs[0], acquisitions.make(acquisition)
    else:
        belief, score = independent(beliefs), acquisitions.make_several(acquisition, outputs)
        incumbent = Target(incumbent, np.array(False), np.zeros(0))
    plan = Plan(belief, score, acquisitions.is_smooth(score(incumbent)), settings.search)
    noise = check_noise(settings.noise_std, belief, surrogate)
    own = np.arange(space.parameters, space.parameters + settings.columns - space.columns)
    places = np.append(space.places, own).astype(np.int32)
    model = Model(belief, outputs, settings.signs, places, settings.seed, settings.responses, noise)
    model = model._replace(
        earlier=tuple(_priors(model, study) for study in settings.earlier), fidelity=settings.fidelity
    )
    examples = np.reshape([restricted.example(space).unit] if space.restricted else [], (-1, space.columns))
    method = Method(
        model,
        space,
        plan,
        settings.initial,
        settings.reference_point,
        examples,
        settings.optimum,
        _bests(settings),
    )
    return acquisition, method


def _priors(model: Model, study: Earlier) -> tuple[Related, ...]:
    priors = []
    for output, values in enumerate(study.responses.T):
        warp = fitting.fit_warp(model, study.units, values, output)
        kept = fitting.inliers((warp,), values)
        units, z = study.units[kept], warp.forward(values[kept])
        priors.append(transfer.related(units, z, model.places[: units.shape[1]]))
    return tuple(priors)


def _bests(settings: Settings) -> np.ndarray:
    """(k, columns) the best feasible point of each earlier search."""
    bests, objectives = np.zeros((len(settings.earlier), settings.space.columns)), settings.outputs.objectives
    for place, (units, responses) in enumerate(settings.earlier):
        violation = np.minimum(responses[:, objectives:], 0).sum(1)
        bests[place] = units[np.lexsort((responses[:, 0], violation))[-1]]
    return bests


def check_noise(noise_std: Any, surrogate: Surrogate, name: Any) -> float | None:
    """`noise_std` as a float. Raises ValueError or TypeError if it does not fit or the surrogate uses none."""
    if noise_std is None:
        return None
    noise_std = checks.real("noise_std", noise_std)
    checks.number("noise_std", noise_std)
    if surrogate.noise_variance is None:
        raise ValueError(
            f'noise_std is not used by the surrogate {name!r}, got {noise_std}: leave it out, or choose surrogate="gp"'
        )
    return noise_std


def _reference(given: Any, objectives: int) -> np.ndarray | None:
    if given is None:
        return None
    numbers = np.asarray(checks.numbers("reference_point", np.asarray(given)), float)
    if objectives == 1 or numbers.shape != (objectives,) or not np.isfinite(numbers).all():
        wanted = f"{objectives} finite numbers, one for each objective"
        expected = wanted if objectives > 1 else "left out with one objective"
        raise ValueError(f"reference_point must be {expected}; got {given!r}")
    return numbers


def _hashable(options: Any) -> dict[str, Any]:
    """The options with lists as tuples. Raises TypeError for one without a hash."""
    if not isinstance(options, Mapping):
        raise TypeError(f"surrogate_options must be a mapping from keywords to values; got {options!r}")
    options = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    for name, value in options.items():
        try:
            hash(value)
        except TypeError:
            raise TypeError(f"surrogate option {name} must be a number, a string or a tuple; got {value!r}") from None
    return options
