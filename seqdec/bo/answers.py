"""Answers of an optimizer."""

from typing import Any, Literal, NamedTuple

import numpy as np


class Prediction(NamedTuple):
    """Belief about the function at a point, without noise, in the units of its values.

    The fields are numbers, or with several objectives arrays with one number for each.
    """

    mean: Any
    """Expected value of the function."""
    low: Any
    """The function lies between `low` and `high` with probability 95%."""
    high: Any
    """See `low`."""


class Recommendation(NamedTuple):
    """The evaluated point to use."""

    x: Any
    """One of the evaluated points."""
    value: Any
    """The function at `x`: as told, or the mean of the prediction."""
    low: Any
    """The function lies between `low` and `high` with probability 95%; both are `value` where it was observed."""
    high: Any
    """See `low`."""
    kind: Literal["observed", "predicted"]
    """How `value` is known."""

    @classmethod
    def observed(cls, x: Any, value: Any) -> "Recommendation":
        """A point whose value is known without noise."""
        return cls(x, value, value, value, "observed")


class Front(NamedTuple):
    """Points of which none dominates another."""

    x: list[Any]
    """k points"""
    values: np.ndarray
    """(k, objectives) their values, as told"""
