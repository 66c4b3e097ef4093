"""Constraints on the points of a space."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqdec.bo.space.dimensions import Dimension
from seqdec.boundary import checks
from seqdec.registry import unknown


@dataclass(frozen=True)
class Linear:
    """low <= sum of weight times value <= high; inactive parameters add nothing."""

    weights: Mapping[Any, float]
    """by name or index; of dimensions of numbers"""
    low: float = -math.inf
    """Smallest allowed sum."""
    high: float = math.inf
    """Largest allowed sum."""


Constraint = Linear | Callable[[Any], bool]
"""A Linear, or a function of a point: may it be evaluated?"""


def checked(given: Any, keys: Sequence[Any], dimensions: Sequence[Dimension]) -> tuple[Constraint, ...]:
    """With Python numbers. Raises ValueError or TypeError, naming the constraint."""
    if not isinstance(given, list | tuple):
        raise TypeError(f"constraints must be a list of Linear and of functions; got {given!r}")
    by_key = dict(zip(keys, dimensions, strict=True))
    for i, constraint in enumerate(given):
        if not isinstance(constraint, Linear) and not callable(constraint):
            raise TypeError(f"constraints[{i}] must be a Linear or a function (x) -> bool; got {constraint!r}")
    return tuple(_linear(c, by_key, f"constraints[{i}]") if isinstance(c, Linear) else c for i, c in enumerate(given))


def _linear(given: Linear, by_key: Mapping[Any, Dimension], name: str) -> Linear:
    weights = given.weights
    if not isinstance(weights, Mapping) or not weights:
        raise TypeError(f"{name}: the weights must be a dict from names, or indices, to numbers; got {weights!r}")
    weights = {check_key(name, key, by_key): weight for key, weight in weights.items()}
    for key in weights:
        values = () if by_key[key].numeric else by_key[key].values()
        if not all(isinstance(value, int | float | np.number) for value in values):
            raise ValueError(f"{name}: {key!r} has values that are not numbers, {values!r}: use a function instead")
    weights = {key: checks.real(f"{name}: the weight of {key!r}", weight) for key, weight in weights.items()}
    low, high = checks.real(f"{name}: low", given.low), checks.real(f"{name}: high", given.high)
    if not all(map(math.isfinite, weights.values())) or not any(weights.values()):
        raise ValueError(f"{name}: the weights must be finite and not all zero; got {weights!r}")
    if not low <= high or low == math.inf or high == -math.inf or (math.isinf(low) and math.isinf(high)):
        raise ValueError(f"{name} must have low <= high, one of them finite; got low={low}, high={high}")
    if low == high and any(by_key[key].continuous for key in weights):
        raise ValueError(
            f"{name} has low == high == {low}, which no random point satisfies: leave one of its parameters out and "
            "compute it in the function"
        )
    return Linear(weights, low, high)


def check_key(name: str, key: Any, keys: Mapping[Any, Any]) -> Any:
    """A name or index in Python's types. Raises ValueError for another key."""
    if key not in keys or not isinstance(key, str | int | np.integer) or isinstance(key, bool):
        raise ValueError(f"{name}: {unknown('parameter', key, [str(known) for known in keys])}")
    return str(key) if isinstance(key, str) else int(key)


def holds(constraint: Constraint, x: Any, shown: Callable[[Any], Any]) -> bool:
    """Raises ValueError or TypeError where a function does not answer."""
    if isinstance(constraint, Linear):
        active = x.keys() if isinstance(x, dict) else range(len(x))
        total = sum(weight * x[key] for key, weight in constraint.weights.items() if key in active)
        return bool(constraint.low <= total <= constraint.high)
    try:
        answer = constraint(shown(x).copy())
    except Exception as error:
        raise ValueError(
            f"the constraint {describe(constraint)} raised {type(error).__name__}: {error} at {x!r}; it must return "
            "True or False at every point within the bounds"
        ) from error
    if isinstance(answer, list | tuple) or np.shape(answer) != () or np.asarray(answer).dtype.kind != "b":
        raise TypeError(
            f"the constraint {describe(constraint)} returned {answer!r} at {x!r}; it must return True or False: bool()"
        )
    return bool(answer)


def describe(constraint: Constraint) -> str:
    """A formula, or the name of the function."""
    if not isinstance(constraint, Linear):
        return getattr(constraint, "__qualname__", repr(constraint))
    total = " + ".join(f"{weight:g} * {key!r}" for key, weight in constraint.weights.items())
    low = f"{constraint.low:g} <= " if math.isfinite(constraint.low) else ""
    return f"{low}{total}" + (f" <= {constraint.high:g}" if math.isfinite(constraint.high) else "")
