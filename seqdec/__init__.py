"""Sequential decision making under uncertainty in JAX: beliefs over networks, policies, environments, the loop."""

from seqdec import agents, bo, core, envs, filters, likelihoods, models, ope, optim, policies
from seqdec.bo import maximize, minimize
from seqdec.results import Run
from seqdec.runner import run

__version__ = "0.1.0"

__all__ = [
    "Run",
    "agents",
    "bo",
    "core",
    "envs",
    "filters",
    "likelihoods",
    "maximize",
    "minimize",
    "models",
    "ope",
    "optim",
    "policies",
    "run",
]
