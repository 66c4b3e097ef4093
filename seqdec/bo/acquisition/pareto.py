"""Hypervolume, and the logarithm of its expected improvement.

Larger objectives are better. A point y dominates z if y_i >= z_i for all objectives i and y is not z; no point of a set
dominates those of its front. Its hypervolume, in warped units, is

    HV = vol { p : r <= p <= y for some y of the front },    with the reference point r

The rest of { p : p >= r } is cut into disjoint boxes [l_k, u_k), some unbounded. Along the last objective, with the
front's values v_1 > v_2 > ...: between v_(j+1) and v_j only the points with v_1 ... v_j count, in the remaining
objectives, cut likewise; equal boxes of neighboring slices are one. A front of n points leaves n + 1 boxes for two
objectives, at most 2 n + 1 for three, and O(n^(m-2)) for m.

A new point y adds sum_k prod_i (min(y_i, u_ki) - l_ki)+. For independent y_i ~ N(mean_i, std_i^2)

    EHVI = sum_k prod_i std_i (h((mean_i - l_ki) / std_i) - h((mean_i - u_ki) / std_i)),    h(z) = phi(z) + z Phi(z)
    log EHVI = logsumexp_k sum_i log std_i + log(h(a_ki) - h(b_ki))
    log(h(a) - h(b)) = log h(a) + log(1 - exp(log h(b) - log h(a)))

and (a - b) Phi((a + b) / 2) where the difference has no digits left.

Sources: Emmerich, Giannakoglou, Naujoks, "Single- and multiobjective evolutionary optimization assisted by Gaussian
random field metamodels", 2006; Yang, Emmerich, Deutz, Baeck, "Multi-objective Bayesian global optimization using
expected hypervolume improvement gradient", 2019; logarithms: Ament et al., "Unexpected improvements to expected
improvement for Bayesian optimization", 2023.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from seqdec.bo.acquisition.feasibility import deviations, log_probability
from seqdec.boundary import checks
from seqdec.core import Acquisition, Array
from seqdec.policies.common import masked
from seqdec.policies.improvement import log_h

_MARGIN = 0.1
"""Distance of the default reference point to the nadir, as a share of the values' range."""


class Boxes(NamedTuple):
    """Disjoint; padded ones have `low` = infinity."""

    low: Any
    """(k, m)"""
    high: Any
    """(k, m), may be infinite"""


def hypervolume(values: Any, reference_point: Any, *, maximize: bool | Sequence[bool] = False) -> float:
    """Volume of the points that some of `values` dominate and that dominate the reference point.

        >>> hypervolume([[1.0, 2.0], [2.0, 1.0]], (3.0, 3.0))
        3.0

    Args:
        values: (n, m) objectives of n points.
        reference_point: (m,); only points better in all objectives count.
        maximize: one bool, or one for each objective.

    Raises:
        ValueError: the shapes differ, or a number is not finite. TypeError: an argument does not consist of numbers.
    """
    reference = _numbers("reference_point", reference_point, 1)
    values = _numbers("values", values, 2) if np.size(values) else np.zeros((0, len(reference)))
    if values.shape[1] != len(reference):
        raise ValueError(
            f"values must have a column for each of the {len(reference)} numbers of reference_point; got shape "
            f"{values.shape}"
        )
    sign = signs(maximize, len(reference))
    return volume(values * sign, reference * sign)


def _numbers(name: str, given: Any, ndim: int) -> np.ndarray:
    numbers = np.asarray(checks.numbers(name, np.asarray(given)), float)
    if numbers.ndim != ndim or not np.isfinite(numbers).all():
        raise ValueError(f"{name} must be finite numbers with {ndim} axes; got {given!r}")
    return numbers


def signs(maximize: Any, objectives: int) -> np.ndarray:
    """(m,) 1 for objectives to be maximized, else -1. Raises ValueError or TypeError for anything but booleans."""
    flags = [maximize] * objectives if isinstance(maximize, bool | np.bool_) else maximize
    if not isinstance(flags, Sequence | np.ndarray) or isinstance(flags, str):
        raise TypeError(f"maximize must be True, False, or one of them for each objective; got {maximize!r}")
    if len(flags) != objectives or not all(isinstance(flag, bool | np.bool_) for flag in flags):
        raise ValueError(
            f"maximize must hold True or False for each of the {objectives} objectives, or be one for all; got "
            f"{maximize!r}"
        )
    return np.where(flags, 1.0, -1.0)


def dominating(values: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(n,) how many `others` (k, m) dominate each of `values` (n, m), larger is better."""
    at_least = np.all(others >= values[:, None], axis=2)
    return np.sum(at_least & np.any(others > values[:, None], axis=2), axis=1)


def non_dominated(values: np.ndarray) -> np.ndarray:
    """(n,) bool: the rows of `values` (n, m), larger is better, that none dominates; equal rows stay."""
    return dominating(values, values) == 0


def volume(values: np.ndarray, reference: np.ndarray) -> float:
    """The hypervolume of `values` (n, m), larger is better."""
    if not len(values) or np.any(values.max(0) <= reference):
        return 0.0
    top = values.max(0)
    boxes = decompose(values, reference)
    left = np.prod(np.clip(boxes.high, None, top) - np.clip(boxes.low, None, top), axis=1).sum()
    return float(np.prod(top - reference) - left)


def decompose(values: np.ndarray, reference: np.ndarray) -> Boxes:
    """The boxes above `reference` (m,) that no row of `values` (n, m) dominates."""
    inside = np.unique(values[np.all(values > reference, axis=1)], axis=0)
    lows, highs = zip(*_slices(inside[non_dominated(inside)], reference), strict=True)
    return Boxes(np.array(lows), np.array(highs))


def _slices(front: np.ndarray, reference: np.ndarray) -> list[tuple[tuple[float, ...], tuple[float, ...]]]:
    if len(reference) == 1:
        return [((float(front[:, 0].max(initial=reference[0])),), (math.inf,))]
    front = front[np.argsort(-front[:, -1], kind="stable")]
    edges = [math.inf, *front[:, -1].tolist(), float(reference[-1])]
    found, tops = [], {}
    for count, (high, low) in enumerate(itertools.pairwise(edges)):
        if low < high:
            counted = front[:count, :-1]
            inner = dict.fromkeys(_slices(counted[non_dominated(counted)], reference[:-1]))
            found += [((*a, high), (*b, top)) for (a, b), top in tops.items() if (a, b) not in inner]
            tops = {cell: tops.get(cell, high) for cell in inner}
    return found + [((*a, edges[-1]), (*b, top)) for (a, b), top in tops.items()]


def padded(boxes: Boxes, least: int) -> Boxes:
    """The boxes and empty ones: a power of two, at least `least`."""
    count, columns = boxes.low.shape
    empty = np.full(((1 << (max(least, count) - 1).bit_length()) - count, columns), math.inf)
    return Boxes(np.concatenate([boxes.low, empty]), np.concatenate([boxes.high, empty]))


def default_reference(front: np.ndarray, values: np.ndarray) -> np.ndarray:
    """(m,) the nadir of `front` (k, m) less a tenth of the range of `values` (n, m)."""
    spread = np.ptp(values, axis=0)
    return front.min(0) - _MARGIN * np.where(spread > 0, spread, 1.0)


def log_improvement(mean: Array, std: Array, boxes: Boxes) -> Array:
    """() log EHVI of normal objectives with means and deviations (m,)."""
    real, bounded = jnp.isfinite(boxes.low), jnp.isfinite(boxes.high)
    mean, std = mean[None], std[None]
    a = (mean - jnp.where(real, boxes.low, 0)) / std
    b = jnp.where(bounded, (mean - jnp.where(bounded, boxes.high, 0)) / std, a - 1)
    width = jnp.where(bounded, boxes.high - jnp.where(real, boxes.low, 0), std) / std
    factors = jnp.log(std) + jnp.where(bounded, _log_difference(a, b, width), log_h(a))
    return logsumexp(jnp.where(real.all(1), factors.sum(1), -jnp.inf))


def _log_difference(a: Array, b: Array, width: Array) -> Array:
    """log(h(a) - h(b)) for a = b + width, width > 0."""
    drop = log_h(a) - log_h(b)
    close = drop < jnp.finfo(drop.dtype).eps ** 0.25
    wide = log_h(a) + jnp.log(-jnp.expm1(-jnp.where(close, 1.0, drop)))
    return jnp.where(close, jnp.log(width) + log_probability((a + b) / 2), wide)


def log_expected_hypervolume_improvement(boxes: Boxes) -> Acquisition:
    """Play the largest log EHVI over `boxes`."""

    def score(key, posterior, candidates, mask):
        del key
        mean, std = deviations(posterior, candidates)
        return masked(jax.vmap(log_improvement, (0, 0, None))(mean, std, boxes), mask)

    return Acquisition(score, "joint")
