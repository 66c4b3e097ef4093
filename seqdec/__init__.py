"""Sequential decision making under uncertainty in JAX: beliefs over networks, policies, environments, the loop."""

from seqdec import agents, bo, core, envs, filters, likelihoods, models, ope, optim, policies
from seqdec.bo import maximize, minimize
from seqdec.loop.run import run
from seqdec.results import Run

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
