"""Sequential decision making under uncertainty in JAX: beliefs over networks, policies, environments, the loop.

Modules are imported when they are first asked for, so that `seqdec.client` needs no JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

from seqdec import gymnasium_ids

if TYPE_CHECKING:
    from seqdec import (
        agents,
        bo,
        core,
        data,
        envs,
        executors,
        features,
        filters,
        likelihoods,
        memory,
        models,
        ope,
        optim,
        policies,
        results,
        runtime,
        service,
        states,
        tables,
    )
    from seqdec.bo import maximize, minimize
    from seqdec.loop._compiled import compiled
    from seqdec.loop._run import run
    from seqdec.results import Run
    from seqdec.runtime import compilation_cache, use_all_cores
    from seqdec.service.facade import OnlineAgent
    from seqdec.states import inspect, load, save

__version__ = "0.2.0"

__all__ = [
    "OnlineAgent",
    "Run",
    "agents",
    "bo",
    "compilation_cache",
    "compiled",
    "core",
    "data",
    "envs",
    "executors",
    "features",
    "filters",
    "inspect",
    "likelihoods",
    "load",
    "maximize",
    "memory",
    "minimize",
    "models",
    "ope",
    "optim",
    "policies",
    "results",
    "run",
    "runtime",
    "save",
    "service",
    "states",
    "tables",
    "use_all_cores",
]

_PLACES = {
    "OnlineAgent": "seqdec.service.facade",
    "Run": "seqdec.results",
    "compilation_cache": "seqdec.runtime",
    "compiled": "seqdec.loop._compiled",
    "inspect": "seqdec.states",
    "load": "seqdec.states",
    "maximize": "seqdec.bo",
    "minimize": "seqdec.bo",
    "run": "seqdec.loop._run",
    "save": "seqdec.states",
    "use_all_cores": "seqdec.runtime",
}
"""Module of each object that is not a module."""

gymnasium_ids.register()


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        value = getattr(importlib.import_module(_PLACES[name]), name)
    elif name in __all__:
        value = importlib.import_module(f"seqdec.{name}")
    else:
        raise AttributeError(f"module 'seqdec' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
