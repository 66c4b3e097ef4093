"""Environments as compilable pure functions, and adapters to gymnasium's interface."""

if __name__ != "seqdec.envs":
    raise ImportError(f"import this package as seqdec.envs, not as {__name__}: its name is taken by many others")

from seqdec.envs._check import check
from seqdec.envs._classification import classification, digits, fashion_mnist, idx, mnist
from seqdec.envs._nonstationary import drifting, nonstationary, outliers, permuted
from seqdec.envs._tabular import adult, census, covertype, financial, jester, mushroom, statlog, tables, tabular
from seqdec.envs.bandits import bernoulli, gaussian, linear, wheel
from seqdec.envs.gym import FunctionalEnv, FunctionalVectorEnv, register
from seqdec.envs.objectives import (
    Objective,
    ackley,
    branin,
    drawnn,
    failing_branin,
    hartmann6,
    levy,
    noisy_branin,
    query,
    rosenbrock,
)
from seqdec.envs.recommender import kuairec, open_bandit, random_exposures, recommender_log
from seqdec.envs.registry import REGISTRY, make, names

__all__ = [
    "REGISTRY",
    "FunctionalEnv",
    "FunctionalVectorEnv",
    "Objective",
    "ackley",
    "adult",
    "bernoulli",
    "branin",
    "census",
    "check",
    "classification",
    "covertype",
    "digits",
    "drawnn",
    "drifting",
    "failing_branin",
    "fashion_mnist",
    "financial",
    "gaussian",
    "hartmann6",
    "idx",
    "jester",
    "kuairec",
    "levy",
    "linear",
    "make",
    "mnist",
    "mushroom",
    "names",
    "noisy_branin",
    "nonstationary",
    "open_bandit",
    "outliers",
    "permuted",
    "query",
    "random_exposures",
    "recommender_log",
    "register",
    "rosenbrock",
    "statlog",
    "tables",
    "tabular",
    "wheel",
]

register()
