"""Environments: pure functions to be compiled, and the same behind gymnasium's interface."""

if __name__ != "seqdec.envs":
    raise ImportError(f"import this package as seqdec.envs, not as {__name__}: its name is taken by many others")

from seqdec.envs.bandits import bernoulli, gaussian, linear, wheel
from seqdec.envs.classification import classification, digits, fashion_mnist, idx, mnist
from seqdec.envs.gym import FunctionalEnv, FunctionalVectorEnv, register
from seqdec.envs.nonstationary import nonstationary
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
from seqdec.envs.recommender import kuairec, random_exposures, recommender_log
from seqdec.envs.registry import make, names

__all__ = [
    "FunctionalEnv",
    "FunctionalVectorEnv",
    "Objective",
    "ackley",
    "bernoulli",
    "branin",
    "classification",
    "digits",
    "drawnn",
    "failing_branin",
    "fashion_mnist",
    "gaussian",
    "hartmann6",
    "idx",
    "kuairec",
    "levy",
    "linear",
    "make",
    "mnist",
    "names",
    "noisy_branin",
    "nonstationary",
    "query",
    "random_exposures",
    "recommender_log",
    "register",
    "rosenbrock",
    "wheel",
]

register()
