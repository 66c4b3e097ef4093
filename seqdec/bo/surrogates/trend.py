"""Monotone directions: a surrogate of responses less a linear trend of known signs.

    y = sum_j s_j b_j (u_j - 1/2) + f(u) + e,    b_j >= 0,    b_j ~ N(1, 1)

with s_j = 1 where responses rise in column j of the unit cube, -1 where they fall, else 0, and f the function of the
surrogate. At its prior the slopes minimize

    sum_i (y_i - mean y - sum_j s_j b_j (u_ij - mean u_j))^2 + sum_j (b_j - 1)^2.

Values may contradict the directions.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from seqdec.bo.space import constraints, containers
from seqdec.bo.space.dimensions import Categorical
from seqdec.bo.space.space import Space
from seqdec.bo.surrogates.contract import History, Surrogate
from seqdec.bo.trials import Outputs
from seqdec.boundary import checks
from seqdec.core import Array, Key, Posterior, Predictive


class Directions(NamedTuple):
    """How outputs depend on parameters."""

    signs: tuple[tuple[int, ...], ...]
    """for each output, of each dimension: 1 rising, -1 falling, 0 unknown"""

    def columns(self, space: Space) -> np.ndarray:
        """(outputs, columns) of the unit cube."""
        found = np.zeros((len(self.signs), space.columns))
        for place, columns in enumerate(space.slices):
            found[:, columns] = np.array(self.signs)[:, place : place + 1]
        return found


def checked(given: Any, space: Space, outputs: Outputs) -> Directions | None:
    """The directions of `given`, as in `seqdec.bo.BayesianOptimizer`. Raises ValueError or TypeError."""
    if given is None:
        return None
    total, parts = outputs.objectives + outputs.outcome_constraints, [given]
    if isinstance(given, Mapping) and outputs.objectives == 1:
        parts += [None] * (total - 1)
    elif (parts := containers.sequence(given)) is None or isinstance(given, Mapping):
        raise TypeError(
            "monotone must be a dict from names, or indices, to 1 or -1, or a list of one for each objective and "
            f"outcome; got {given!r}"
        )
    if len(parts) != total:
        raise ValueError(f"monotone must have a dict for each of {total} objectives and outcomes; got {len(parts)}")
    return Directions(tuple(_signs(part, space) for part in parts))


def _signs(given: Any, space: Space) -> tuple[int, ...]:
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"monotone must be a dict from names, or indices, to 1 or -1 for each output; got {given!r}")
    places, signs = {key: place for place, key in enumerate(space.keys)}, [0] * len(space.keys)
    for key, direction in space.flat(given or {}).items():
        place = places[constraints.check_key("monotone", key, places)]
        if space.conditions and space.conditions[place] is not None:
            raise ValueError(f"monotone: {key!r} has a condition, so that no value may rise with it: leave it out")
        if isinstance(space.dimensions[place], Categorical):
            raise ValueError(f"monotone: the choices of {key!r} have no order: use Ordinal, or leave it out")
        if checks.real(f"monotone[{key!r}]", direction) not in (1, -1):
            raise ValueError(f"monotone[{key!r}] must be 1, the value rises, or -1, it falls; got {direction!r}")
        signs[place] = int(direction)
    return tuple(signs)


class State(NamedTuple):
    """The slopes, and the state of the rest."""

    slopes: Any
    """(d,) s_j b_j"""
    unfitted: Any
    """() bool: the prior's"""
    inner: Any


@functools.cache
def trended(surrogate: Surrogate, directions: tuple[float, ...]) -> Surrogate:
    """The surrogate with a trend in `directions` (d,), each 1, -1 or 0."""
    dtype, signs = np.dtype(surrogate.dtype), np.array(directions)

    def rest(slopes: np.ndarray, history: History) -> History:
        filled = np.arange(len(history.y)) < history.filled
        y = np.where(filled, history.y - (np.asarray(history.x) - 0.5) @ slopes, 0)
        return history._replace(y=y.astype(dtype))

    def init(key: Key, history: History) -> State:
        return State(signs.astype(dtype), np.array(True), surrogate.init(key, history))

    def fit(state: State, history: History) -> State:
        slopes = fitted(signs, history).astype(dtype) if state.unfitted else state.slopes
        return State(slopes, np.array(False), surrogate.fit(state.inner, rest(slopes, history)))

    def condition_on(state: State, history: History) -> State:
        return state._replace(inner=surrogate.condition_on(state.inner, rest(state.slopes, history)))

    def averaged(state: State, history: History, most: int) -> State:
        return state._replace(inner=surrogate.averaged(state.inner, rest(state.slopes, history), most))

    def posterior(state: State) -> Posterior:
        at = surrogate.posterior(state.inner)

        def trend(rows: Array) -> Array:
            return (rows - 0.5) @ jnp.asarray(state.slopes)

        def joint(rows: Array) -> Predictive:
            found = at.joint(rows)
            return found._replace(mean=found.mean + trend(rows))

        def draw(key: Key):
            drawn = at.draw(key)
            return lambda rows: drawn(rows) + trend(rows)

        return Posterior(lambda rows: at.mean(rows) + trend(rows), joint, draw)

    def stored(state: State) -> State:
        return state._replace(inner=surrogate.stored(state.inner))

    changed = surrogate._replace(
        init=init, fit=fit, condition_on=condition_on, posterior=posterior, stored=stored, averaged=averaged
    )
    if (noise := surrogate.noise_variance) is None:
        return changed
    return changed._replace(noise_variance=lambda state: noise(state.inner))


def fitted(signs: np.ndarray, history: History) -> np.ndarray:
    """(d,) the slopes for a history."""
    from scipy.optimize import nnls

    count = int(history.filled)
    x, y = np.asarray(history.x, float)[:count] * signs, np.asarray(history.y, float)[:count]
    rows = np.vstack([x - x.mean(0), np.diag(np.abs(signs))])
    return signs * nnls(rows, np.concatenate([y - y.mean(), np.abs(signs)]))[0]
