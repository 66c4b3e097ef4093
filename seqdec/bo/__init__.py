"""Bayesian optimisation of black-box functions: the beliefs and acquisitions of the bandits on a box."""

from seqdec.bo.gp import gp
from seqdec.bo.minimize import maximize, minimize
from seqdec.bo.optimizer import BayesianOptimizer, Exhausted, Trial
from seqdec.bo.presets import acquisition_names, ekf, hilofi, lolofi, lrkf, surrogate_names
from seqdec.bo.spaces import Categorical, Integer, Real, Space, space_from
from seqdec.bo.suggest import Search
from seqdec.bo.surrogates import History, Surrogate

__all__ = [
    "BayesianOptimizer",
    "Categorical",
    "Exhausted",
    "History",
    "Integer",
    "Real",
    "Search",
    "Space",
    "Surrogate",
    "Trial",
    "acquisition_names",
    "ekf",
    "gp",
    "hilofi",
    "lolofi",
    "lrkf",
    "maximize",
    "minimize",
    "space_from",
    "surrogate_names",
]
