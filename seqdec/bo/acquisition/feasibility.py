"""Outcome constraints: the probability that a point satisfies them weights the acquisition.

A point is feasible if all outcomes are at most 0. Outputs are outcomes of changed sign, warped; with z_j the warp of 0
and the independent belief N(mean_j, std_j^2) about the output,

    log P(feasible) = sum_j log Phi((mean_j - z_j) / std_j)

The score is the acquisition's plus this, for log EI the log expected feasible improvement; without a known feasible
point it is log P(feasible) alone.

Source: Gardner, Kusner, Xu, Weinberger, Cunningham, "Bayesian optimization with inequality constraints", 2014.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from jax.scipy.stats import norm

from seqdec.bo.surrogates.multi_output import select
from seqdec.core import Acquisition, Array, Posterior
from seqdec.policies.common import unknown

_FAR = 10.0


class Incumbent(NamedTuple):
    """What an acquisition of one objective must exceed."""

    best: Any
    """() largest posterior mean at the known points, warped"""
    noise_std: Any
    """() noise standard deviation there; 0: none found"""


class Target(NamedTuple):
    """What an acquisition of several outputs must exceed."""

    best: Any
    """for the objectives: `Incumbent` among the feasible points, or `acquisition.pareto.Boxes`"""
    known: Any
    """() bool: a feasible point is known; else `best` is arbitrary"""
    thresholds: Any
    """(c,) the warps of 0"""


def weighted(acquisition: Callable[[Any], Acquisition], objectives: int) -> Callable[[Target], Acquisition]:
    """(target) -> the acquisition of the first `objectives` outputs, plus log P(feasible)."""
    selected = 0 if objectives == 1 else slice(objectives)

    def make(target: Target) -> Acquisition:
        base = acquisition(target.best)

        def score(key, posterior, candidates, mask):
            mean, std = deviations(posterior, candidates)
            feasible = log_probability((mean[:, objectives:] - target.thresholds[None]) / std[:, objectives:]).sum(1)
            scores = base.score(key, select(posterior, selected), candidates, mask)
            return jnp.where(target.known, scores, 0) + feasible

        return base._replace(score=score, law=None if base.law is None else unknown(score))

    return make


def deviations(posterior: Posterior, candidates: Array) -> tuple[Array, Array]:
    """(means (n, m), standard deviations (n, m)) of m noiseless outputs at n candidates."""
    at = posterior.joint(candidates)
    variances = jnp.einsum("iim->im", at.cov)
    return at.mean, jnp.sqrt(jnp.maximum(variances, jnp.finfo(variances.dtype).eps ** 2))


@jax.custom_jvp
def log_probability(z: Array) -> Array:
    """Log Phi(z), with a finite gradient wherever z^2 is finite.

    The derivative is phi(z) / Phi(z), below -10 by its asymptotic series.
    """
    return log_ndtr(z)


@log_probability.defjvp
def _log_probability_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (z,), value = primals, log_probability(*primals)
    near, far = jnp.maximum(z, -_FAR), jnp.minimum(z, -_FAR)
    s = 1 / far**2
    series = -far * (1 + s * (1 - s * (2 - s * (10 - s * 74))))
    return value, jnp.where(z > -_FAR, jnp.exp(norm.logpdf(near) - log_ndtr(near)), series) * tangents[0]


def merits(base: np.ndarray, outputs: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """(n,) ranks of points: `base` (n,), infeasible ones below by their violations.

    `outputs` (n, c) are the outcomes, `thresholds` (c,) as in `Target`.
    """
    violations = np.maximum(thresholds - outputs, 0).sum(1)
    return np.where(violations > 0, base.min() - violations, base)
