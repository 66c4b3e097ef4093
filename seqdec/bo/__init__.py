"""Bayesian optimization of black-box functions."""

from typing import TYPE_CHECKING

from seqdec.bo.acquisition.names import names as acquisition_names
from seqdec.bo.acquisition.pareto import hypervolume, log_expected_hypervolume_improvement
from seqdec.bo.fidelity import Fidelity, Forecast
from seqdec.bo.minimizer import maximize, minimize
from seqdec.bo.model import Prediction
from seqdec.bo.optimizer import BayesianOptimizer, Front, Recommendation
from seqdec.bo.report.importance import importances
from seqdec.bo.search.candidates import Search
from seqdec.bo.settings import Prior
from seqdec.bo.space.bounds import Conditional, space_from
from seqdec.bo.space.constraints import Linear
from seqdec.bo.space.dimensions import Categorical, Integer, Ordinal, Real
from seqdec.bo.space.space import Point, Space
from seqdec.bo.surrogates.contract import REGISTRY as _SURROGATES
from seqdec.bo.surrogates.contract import History, Surrogate
from seqdec.bo.surrogates.contract import names as surrogate_names
from seqdec.bo.surrogates.filtered import hilofi_mlp, lrkf
from seqdec.bo.surrogates.gaussian_process import gp
from seqdec.bo.surrogates.random_features import hilofi
from seqdec.bo.surrogates.sparse_gaussian_process import sparse_gp
from seqdec.bo.trials import Exhausted, Trial

__all__ = [
    "BayesianOptimizer",
    "Categorical",
    "Conditional",
    "Exhausted",
    "Fidelity",
    "Forecast",
    "Front",
    "History",
    "Integer",
    "Linear",
    "Ordinal",
    "Point",
    "Prediction",
    "Prior",
    "Real",
    "Recommendation",
    "Search",
    "Space",
    "Surrogate",
    "Trial",
    "acquisition_names",
    "gp",
    "hilofi",
    "hilofi_mlp",
    "hypervolume",
    "importances",
    "log_expected_hypervolume_improvement",
    "lrkf",
    "maximize",
    "minimize",
    "space_from",
    "sparse_gp",
    "surrogate_names",
]

if not TYPE_CHECKING:

    def __getattr__(name: str):
        """A registered surrogate by its name."""
        if name in _SURROGATES.own():
            return _SURROGATES[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
