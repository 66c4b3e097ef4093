"""Belief about the optimum's location, to weight the acquisition.

With independent densities p_j, known up to a factor, and n known points, the score of a point is

    log acquisition + (beta / n) sum_j log p_j(x_j),    beta = 10

also for acquisitions that are not logarithms. Densities are at least a millionth of their maximum. Every second initial
point is drawn from them.

Source: Hvarfner et al., "piBO: augmenting acquisition functions with user beliefs for Bayesian optimization", 2022.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.bo.space import constraints, containers
from seqdec.bo.space.dimensions import Categorical, Dimension
from seqdec.bo.space.space import Space
from seqdec.boundary import checks
from seqdec.core import Array

_POWER = 10.0
_LEAST = 1e-6
"""Least density relative to its maximum."""
_GRID = (np.arange(256) + 0.5) / 256
"""Places in (0, 1) at which densities are tabulated."""


class Optimum(NamedTuple):
    """Densities of a space's parameters."""

    logs: tuple[tuple[float, ...] | None, ...]
    """log densities, at most 0, at the table's places or of a Categorical's choices; None without a belief"""


def checked(given: Any, space: Space) -> Optimum | None:
    """The densities of `given`, as in `seqdec.bo.BayesianOptimizer`. Raises ValueError or TypeError."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise TypeError(f"optimum must be a dict from names, or indices, to beliefs; got {given!r}")
    places = {key: place for place, key in enumerate(space.keys)}
    logs: list[tuple[float, ...] | None] = [None] * len(places)
    for key, belief in space.flat(given).items():
        place = places[constraints.check_key("optimum", key, places)]
        if space.conditions and space.conditions[place] is not None:
            raise ValueError(f"optimum: {key!r} has a condition, so that no belief may be of it: leave it out")
        logs[place] = _logs(space.dimensions[place], belief, f"optimum[{key!r}]")
    return Optimum(tuple(logs))


def _logs(dimension: Dimension, belief: Any, name: str) -> tuple[float, ...]:
    """Log densities at the dimension's table places or choices, relative to their maximum."""
    values = _values(dimension)
    density = getattr(belief, "pdf", getattr(belief, "pmf", belief))
    if isinstance(belief, Mapping):
        weights = {dimension.value(value, name): weight for value, weight in belief.items()}
        found = [weights.get(value, 0.0) for value in values]
    elif callable(density):
        found = [density(value) for value in values]
    elif dimension.numeric and (pair := containers.sequence(belief)) is not None and len(pair) == 2:
        found = _normal(dimension, pair[0], pair[1], name)
    else:
        raise TypeError(
            f"{name} must be a pair (center, width) for numbers, a dict from values to weights, or a function from a "
            f"value to its density; got {belief!r}"
        )
    numbers = np.array([checks.real(f"a density of {name}", one) for one in found])
    if not (np.isfinite(numbers).all() and (numbers >= 0).all() and numbers.any()):
        span = f"from {numbers.min()} to {numbers.max()}"
        raise ValueError(f"{name}: densities must be finite, not negative and not all zero; got numbers {span}")
    return tuple(np.log(np.maximum(numbers / numbers.max(), _LEAST)).tolist())


def _values(dimension: Dimension) -> list[Any]:
    if isinstance(dimension, Categorical):
        return list(dimension.choices)
    return dimension.decode(_GRID[:, None])


def _normal(dimension: Any, center: Any, width: Any, name: str) -> np.ndarray:
    """A normal density on the scale of search; `width` is its standard deviation, for a logarithmic scale a factor."""
    center, width = dimension.value(center, f"{name}: the center"), checks.real(f"{name}: the width", width)
    log, ends = getattr(dimension, "log", False), np.array([dimension.low, dimension.high], float)
    if not (width > (1 if log else 0) and math.isfinite(width)):
        raise ValueError(
            f"{name}: the width must be a factor above 1 on a logarithmic scale; got {width}"
            if log
            else f"{name}: the width must be a positive number; got {width}"
        )
    if dimension.size == 1:
        return np.ones(1)
    low, high = (float(dimension.encode(end)[0]) for end in (dimension.low, dimension.high))
    range_ = float(np.ptp(np.log(ends) if log else ends)) / (high - low)
    std = (math.log(width) if log else width) / range_
    return np.exp(-0.5 * ((_GRID - dimension.encode(center)[0]) / std) ** 2)


def tables(optimum: Optimum, space: Space, known: int) -> np.ndarray:
    """(columns, places) terms of a score after so many points."""
    found = np.zeros((space.columns, len(_GRID)))
    for dimension, columns, logs in zip(space.dimensions, space.slices, optimum.logs, strict=True):
        if logs is not None and isinstance(dimension, Categorical):
            found[columns] = np.array(logs)[:, None] * (_GRID > 0.5)
        elif logs is not None:
            found[columns] = logs
    return found * _POWER / max(known, 1)


def preferred(score: Array, table: Any, x: Array) -> Array:
    """The score of a point (d,) with its terms of `tables`."""
    if table is None:
        return score
    terms = jax.vmap(jnp.interp, (0, None, 0))(x, jnp.asarray(_GRID, x.dtype), table)
    return score + jnp.sum(terms).astype(score.dtype)


def drawn(optimum: Optimum, space: Space, u: np.ndarray) -> np.ndarray:
    """`u` (n, parameters), uniform numbers, moved by the densities' quantiles."""
    moved = u.copy()
    for place, index in enumerate(np.unique(space.owners)):
        if (logs := optimum.logs[index]) is not None:
            edges = np.linspace(0, 1, len(logs) + 1)
            shares = np.concatenate([[0.0], np.cumsum(np.exp(logs))])
            moved[:, place] = np.interp(u[:, place], shares / shares[-1], edges)
    return moved
