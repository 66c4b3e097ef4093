"""Refusal of bad settings, in the factories of the filters."""

import operator

import numpy as np
from jax.core import Tracer


def variance(name: str, value) -> None:
    """Refuses a negative or non-finite number; traced values (a vmap over settings) pass."""
    if isinstance(value, Tracer):
        return
    if np.ndim(value) != 0 or not np.isfinite(value) or value < 0:
        raise ValueError(f"{name} must be a finite number >= 0; got {value!r}")


def count(name: str, value) -> None:
    """Refuses anything but an integer of at least one."""
    try:
        good = operator.index(value) >= 1
    except TypeError:
        good = False
    if not good:
        raise ValueError(f"{name} must be an integer >= 1; got {value!r}")


def variances(name: str, values) -> None:
    """Refuses a negative or non-finite number, alone or in a vector; traced values pass."""
    if isinstance(values, Tracer):
        return
    array = np.asarray(values)
    if array.ndim > 1 or not np.all(np.isfinite(array) & (array >= 0)):
        raise ValueError(f"{name} must be finite numbers >= 0, one or a vector; got {values!r}")
