"""Sequential decision making under uncertainty in JAX: beliefs over networks, policies, environments, the loop."""

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
