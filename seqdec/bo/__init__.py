"""Bayesian optimisation of black-box functions, with the filters and policies of the bandits."""

from seqdec.bo.acquisitions import names as acquisition_names
from seqdec.bo.constraints import Linear
from seqdec.bo.dimensions import Categorical, Integer, Ordinal, Real
from seqdec.bo.filtered import ekf, hilofi_mlp, lolofi, lrkf
from seqdec.bo.gaussian_process import gp
from seqdec.bo.importance import importances
from seqdec.bo.minimizer.entry import maximize, minimize
from seqdec.bo.optimizer import BayesianOptimizer
from seqdec.bo.pareto import hypervolume
from seqdec.bo.predictions import Front, Prediction, Recommendation
from seqdec.bo.spaces import Conditional, Point, Space, space_from
from seqdec.bo.sparse_gaussian_process import sparse_gp
from seqdec.bo.suggest import Search
from seqdec.bo.surrogates import History, Surrogate
from seqdec.bo.surrogates import names as surrogate_names
from seqdec.bo.trials import Exhausted, Trial
from seqdec.bo.wide import hilofi

__all__ = [
    "BayesianOptimizer",
    "Categorical",
    "Conditional",
    "Exhausted",
    "Front",
    "History",
    "Integer",
    "Linear",
    "Ordinal",
    "Point",
    "Prediction",
    "Real",
    "Recommendation",
    "Search",
    "Space",
    "Surrogate",
    "Trial",
    "acquisition_names",
    "ekf",
    "gp",
    "hilofi",
    "hilofi_mlp",
    "hypervolume",
    "importances",
    "lolofi",
    "lrkf",
    "maximize",
    "minimize",
    "space_from",
    "sparse_gp",
    "surrogate_names",
]
