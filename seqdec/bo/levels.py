"""The level of a question, once its point is known, and what is expected of its learning curve; see `fidelity`."""

from collections.abc import Sequence

import jax
import numpy as np

from seqdec.bo import fidelity
from seqdec.bo import model as fitting
from seqdec.bo.fidelity import Forecast
from seqdec.bo.model import Fitted, Model, Observations
from seqdec.bo.space.spaces import Point
from seqdec.bo.surrogates import programs


def aim(
    model: Model, known: Observations, fitted: Fitted, point: Point, level: int | None, lower: float
) -> tuple[Point, Forecast | None]:
    """(the point at the level to evaluate, the forecast of its learning curve) with several fidelities.

    `level` None: the one that says most of the value at full fidelity for its cost, or that one where no value is known
    there, or lower levels have cost as much as `lower` since the last one, see `seqdec.bo.fidelity.level_of`.
    """
    grid = model.fidelity
    assert grid is not None
    with jax.enable_x64(True):
        state = programs.believe(model.surrogate, fitted.state, fitted.trials).state
    means, cov, noise = fitting.curve(model, fitted, state, point.unit)
    values = known.responses[_full(known.told) & [one.inside for one in known.told], 0]
    if level is None:
        begun = len(values) or any(one.level == 0 for one in known.pending)
        level = fidelity.level_of(grid, cov, noise, lower) if begun else 0
    point = point._replace(level=level)
    if not len(values):
        return point, None
    warp = fitted.warps[0]
    best = warp.forward(np.max(values, keepdims=True))[0]
    return point, fidelity.forecast(means, cov, noise, grid, best, model.signs[0], warp)


def to_complete(model: Model, known: Observations, fitted: Fitted) -> Point | None:
    """The best of the points told, by its mean at full fidelity; None if some are told, or pending, there."""
    inside = [point for point in known.told if point.inside]
    if model.fidelity is None or _full(inside + known.pending).any():
        return None
    means = fitting.means(model, fitted, np.stack([point.unit for point in inside]))[:, 0]
    return inside[int(np.argmax(means))]._replace(level=0)


def _full(points: Sequence[Point]) -> np.ndarray:
    """(n,) bool: those at full fidelity."""
    return np.array([point.level == 0 for point in points], bool)
