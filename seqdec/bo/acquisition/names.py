"""Acquisitions: the bandits' policies, given the best response."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from seqdec import policies
from seqdec.bo.acquisition.feasibility import Incumbent, Target, weighted
from seqdec.bo.acquisition.pareto import log_expected_hypervolume_improvement
from seqdec.bo.trials import Outputs
from seqdec.boundary import checks
from seqdec.core import Acquisition

SEVERAL = "log_expected_hypervolume_improvement"
"""That of several objectives."""
IMPROVEMENTS = frozenset({"log_expected_improvement"})
"""Policies with the fields of `Incumbent`."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "ucb": {"width": 2.0},
}
"""Keywords of policies that differ from the bandits'."""


def names() -> tuple[str, ...]:
    """The sorted names of the acquisitions, without "auto"."""
    return policies.names()


@functools.cache
def make(acquisition: str | Acquisition) -> Callable[[Incumbent], Acquisition]:
    """(incumbent) -> the acquisition of that name, or given. Raises ValueError or TypeError."""
    if isinstance(acquisition, Acquisition):
        return lambda incumbent: acquisition
    if not isinstance(acquisition, str):
        raise TypeError(f"acquisition must be a name or a seqdec.core.Acquisition; got {acquisition!r}")
    if acquisition not in policies.REGISTRY:
        checks.choice("acquisition", acquisition, names())
    settings = SETTINGS.get(acquisition, {})
    if acquisition in IMPROVEMENTS:
        return lambda incumbent: policies.make(acquisition, **incumbent._asdict(), **settings)
    return lambda incumbent: policies.make(acquisition, **settings)


@functools.cache
def make_several(acquisition: str | Acquisition, outputs: Outputs) -> Callable[[Target], Acquisition]:
    """(target) -> log EHVI of several objectives, else as `make`, plus log P(feasible)."""
    if outputs.objectives == 1:
        return weighted(make(acquisition), 1)
    if acquisition != SEVERAL:
        raise ValueError(f"with several objectives acquisition must be 'auto' or {SEVERAL!r}; got {acquisition!r}")
    return weighted(log_expected_hypervolume_improvement, outputs.objectives)


def automatic(surrogate: str, outputs: Outputs) -> str:
    """The acquisition of "auto", given the surrogate's own."""
    if outputs.plain:
        return surrogate
    return "log_expected_improvement" if outputs.objectives == 1 else SEVERAL


def is_smooth(acquisition: Acquisition) -> bool:
    """Whether scores with one key are smooth."""
    return acquisition.law is None or acquisition.needs != "joint"
