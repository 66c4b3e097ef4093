"""Keywords of the optimizer that other functions pass on, for type checkers and editors."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Required, TypedDict

import numpy as np

from seqdec.bo.fidelity import Fidelity
from seqdec.bo.search.candidates import Search
from seqdec.bo.space.constraints import Constraint
from seqdec.bo.surrogates.contract import Surrogate
from seqdec.core import Acquisition


class ModelOptions(TypedDict, total=False):
    """Keywords of `seqdec.bo.BayesianOptimizer` about the model and the search."""

    reference_point: Sequence[float] | np.ndarray | None
    surrogate_options: Mapping[str, Any] | None
    trust_region: bool | None
    standardize: bool
    warp: bool
    input_warp: bool
    noise_std: float | None
    search: Search | None


class SamplerOptions(ModelOptions, total=False):
    """Those that `seqdec.integrations.optuna.Sampler` passes on."""

    surrogate: str | Surrogate
    acquisition: str | Acquisition
    capacity: int


class GoalOptions(ModelOptions, total=False):
    """Those that `seqdec.maximize` passes on."""

    constraints: Sequence[Constraint]
    objectives: int
    outcome_constraints: int
    initial: int | None
    optimum: Mapping[Any, Any] | None
    monotone: Mapping[Any, int] | Sequence[Mapping[Any, int] | None] | None
    fidelity: Fidelity | None
    earlier: Any


class MinimizeOptions(GoalOptions, total=False):
    """Those that `seqdec.minimize` passes on."""

    maximize: bool | Sequence[bool]


class MaximizeOptions(GoalOptions, total=False):
    """Keywords of `seqdec.maximize`."""

    n_calls: Required[int]
    surrogate: str | Surrogate
    acquisition: str | Acquisition
    batch_size: int | None
    x0: Any
    y0: Any
    outside: bool
    callback: Callable[..., Any] | None
    workers: int | Executor | Callable[..., Iterable[Any]]
    call_timeout: float | None
    time_limit: float | None
    target: float | Sequence[float] | None
    patience: int | None
    checkpoint: str | os.PathLike[str] | None
    seed: int | None
    catch: type[Exception] | Iterable[type[Exception]]
    max_failures: int
    progress: bool | None
