"""Total-effect Sobol indices of the surrogate's posterior mean.

The expected share of the variance of f that remains when all other parameters are known,

    S_T,i = E[Var(f | x without x_i)] / Var f  =  mean((f(A) - f(AB_i))^2) / (2 Var f)  by Jansen's estimator

with samples A and B of independent uniform parameters, and AB_i: A with column i of B.

Sources: Jansen, "Analysis of variance designs for model output", 1999; Saltelli et al., "Variance based sensitivity
analysis of model output", 2010.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from seqdec.bo import model
from seqdec.bo.search.candidates import sobol
from seqdec.bo.space.space import Space

if TYPE_CHECKING:
    from seqdec.bo.optimizer import BayesianOptimizer

_EVALUATIONS = 1 << 14
"""Predictions of an estimate, approximately."""
_FLAT = 1e-12


def importances(optimizer: "BayesianOptimizer") -> dict[Any, float]:
    """The total-effect index of each parameter, by name or index.

    The function is the posterior mean in warped units on the product of the parameters: inactive ones have no effect,
    constraints are ignored. Indices add up to 1 without interactions, else to more. Uses about 16,000 predictions at a
    Sobol sequence.

    Raises ValueError below two values, or with several objectives.
    """
    space = optimizer.space
    if optimizer.outputs.objectives > 1:
        raise ValueError("importances are defined for one objective; got an optimizer of several")
    if np.isfinite(optimizer.evaluations()[1]).sum() < 2:
        raise ValueError("importances need two values or more: tell further ones first")
    indices = total_effects(lambda u: model.means(*optimizer.fitted(), units(space, u))[:, 0], space.parameters)
    found = np.zeros(len(space.dimensions))
    found[np.unique(space.owners)] = indices
    return dict(zip(space.keys, found.tolist(), strict=True))


def total_effects(fun: Callable[[np.ndarray], np.ndarray], count: int) -> np.ndarray:
    """(count,) indices of a function (n, count) uniform numbers -> (n,)."""
    rows = 1 << ((_EVALUATIONS // (count + 2)).bit_length() - 1)
    first, second = np.split(sobol(rows, 2 * count, scramble=True), 2, axis=1)
    mixed = np.repeat(first[None], count, axis=0)
    columns = np.arange(count)
    mixed[columns, :, columns] = second.T
    values = fun(np.concatenate([first, second, *mixed])).reshape(count + 2, rows)
    variance = values[:2].var()
    if variance < _FLAT:
        return np.zeros(count)
    return np.mean((values[0] - values[2:]) ** 2, axis=1) / (2 * variance)


def units(space: Space, u: np.ndarray) -> np.ndarray:
    """(n, parameters) uniform numbers -> (n, columns) encodings of points."""
    return space.neutralized(space.uniform(u))[0]
