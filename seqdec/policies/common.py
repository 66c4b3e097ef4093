"""Masks and action probabilities of policies."""

import math

import jax
import jax.numpy as jnp

from seqdec.boundary.checks import concrete, count, keyed
from seqdec.core import Array, Marginals, Posterior, PyTree

_NODES, _FURTHEST, _UNDECIDED, _LINEAR, _SHARPEST = 24, 5.0, 3.5, 3.0, 1e-3
"""Of `marginal_quadrature`: nodes; largest |z|; deviations of a rival from its mean to its lower end, and over which
nodes are about equally far apart; its least deviation in those of the candidate."""

_UNIFORM = 0.002
"""Share of uniform play beside counts of draws."""


def masked(scores: Array, mask: Array | None) -> Array:
    """Scores (n,) with -inf where the mask (n,) bool is False."""
    return scores if mask is None else jnp.where(mask, scores, -jnp.inf)


def marginals(posterior: Posterior, candidates: PyTree) -> Marginals:
    """Marginals of the candidates' responses."""
    if posterior.marginals is not None:
        return posterior.marginals(candidates)
    at = posterior.joint(candidates)
    return Marginals(at.mean, jnp.diagonal(at.cov), jnp.diagonal(at.noise))


def chosen(scores: Array) -> Array:
    """(n,) one at the first largest score, zero elsewhere."""
    return jax.nn.one_hot(jnp.argmax(scores), len(scores), dtype=scores.dtype)


def monte_carlo(score, samples: int):
    """Probabilities of a randomized score, and the law that is played; None, None for S = 0.

    Probabilities are `smoothed` counts of the winners of S draws: the bias is at most 1 / (S + 1), the standard error
    at most 1 / (2 sqrt(S)). In the law, the largest score is the first of S draws: it is any of them alike, so that
    given all, its law are their counts. One play in 500 is uniform, e = 0.002:

        (1 - e) count / S + e / m        for m allowed candidates

    S should be ten over the smallest probability that is to be evaluated.
    """
    samples = _samples(samples)
    if not samples:
        return None, None

    def counts(key, posterior, candidates, mask, samples):
        def winner(key):
            return chosen(score(key, posterior, candidates, mask))

        return jnp.sum(jax.vmap(winner)(jax.random.split(key, samples)), 0)

    @keyed
    def probabilities(key, posterior, candidates, mask):
        return smoothed(counts(key, posterior, candidates, mask, samples), samples, mask)

    @keyed
    def law(key, posterior, candidates, mask, scores):
        draws, some, explore = jax.random.split(key, 3)
        allowed = jnp.ones_like(scores) if mask is None else jnp.asarray(mask, scores.dtype)
        share = allowed / jnp.maximum(jnp.sum(allowed), 1)
        found = chosen(scores) + (counts(draws, posterior, candidates, mask, samples - 1) if samples > 1 else 0)
        other = jax.random.categorical(some, jnp.log(share))
        index = jnp.where(jax.random.bernoulli(explore, _UNIFORM), other, jnp.argmax(scores))
        return index, (1 - _UNIFORM) * found / samples + _UNIFORM * share

    return probabilities, law


def marginal_quadrature(marginals, samples: int):
    """Probabilities that independent normal scores are the largest, by a quadrature with 24 nodes.

        P(a) = int phi(z) G(z) dz        G(z) = prod_{b != a} Phi((mean_a + std_a z - mean_b) / std_b)

    G is next to 0 below the largest lower end of a rival, mean_b - 3.5 std_b. Nodes start there and grow apart up to z
    = 5,

        z(t) = start + 3 d (exp(t log(1 + (5 - start) / (3 d))) - 1)        d = std_b / std_a in [0.001, 1]

    at the midpoints t of 24 intervals of [0, 1]; for an end below z = -5, start = -5 and d = 1. The error is below
    0.002, and below 1% of P(a) + 0.01; about 0.0001 on average. `smoothed` then mixes in 1 / (S + 1) of uniform play.
    Certain scores that are equal share evenly. Time O(n) for one candidate; O(n^2) for all, whose sum is made 1.

    Args:
        marginals: (posterior, candidates, mask) -> mean (n,) and std (n,).
        samples: S.

    Returns:
        `probabilities` and `probability` of a `seqdec.core.Acquisition`, None for samples = 0.
    """
    samples = _samples(samples)
    if not samples:
        return None, None

    def wins(mean, std, mask, index):
        """P(a) of candidate `index`."""
        dtype = mean.dtype
        smallest = jnp.finfo(dtype).tiny
        rivals = jnp.arange(len(mean)) != index if mask is None else mask.at[index].set(False)
        tied = rivals & (mean == mean[index]) & (std == 0) & (std[index] == 0)
        rivals &= ~tied
        own = jnp.maximum(std[index], smallest)
        ends = jnp.where(rivals & (std[index] > 0), (mean - _UNDECIDED * std - mean[index]) / own, -jnp.inf)
        binding = jnp.argmax(ends)
        inside = ends[binding] > -_FURTHEST
        start = jnp.clip(ends[binding], -_FURTHEST, _FURTHEST)
        width = _LINEAR * jnp.where(inside, jnp.clip(std[binding] / own, _SHARPEST, 1), 1)
        stretch = jnp.log1p((_FURTHEST - start) / width)
        times = stretch * (jnp.arange(_NODES, dtype=dtype) + 0.5) / _NODES
        z = start + width * jnp.expm1(times)
        weights = width * stretch / _NODES * jnp.exp(times - z**2 / 2) / math.sqrt(2 * math.pi)
        scale = 1 / (math.sqrt(2) * jnp.maximum(std, smallest))
        score = mean[index] + std[index] * z
        below = 0.5 + 0.5 * jax.lax.erf((score[None] - mean[:, None]) * scale[:, None])
        product = jnp.prod(jnp.where(rivals[:, None], below, 1), axis=0)
        return jnp.minimum(weights @ product, 1) / (1 + jnp.sum(tied)).astype(dtype)

    def probability(key, posterior, candidates, mask, index):
        del key
        mean, std = marginals(posterior, candidates, mask)
        mask = None if mask is None else jnp.asarray(mask, bool)
        share = 1 / (len(mean) if mask is None else jnp.maximum(jnp.sum(mask), 1).astype(mean.dtype))
        return (samples * wins(mean, std, mask, index) + share) / (samples + 1)

    def probabilities(key, posterior, candidates, mask):
        del key
        mean, std = marginals(posterior, candidates, mask)
        mask = None if mask is None else jnp.asarray(mask, bool)
        # One after the other, so that memory is O(n).
        each = jax.lax.map(lambda index: wins(mean, std, mask, index), jnp.arange(len(mean)))
        each = each if mask is None else jnp.where(mask, each, 0)
        return smoothed(samples * each / jnp.sum(each), samples, mask)

    return probabilities, probability


def smoothed(counts: Array, samples: int, mask: Array | None) -> Array:
    """(count + 1/m) / (S + 1) for the m allowed candidates, from counts (n,) that sum to S."""
    allowed = jnp.ones_like(counts) if mask is None else mask.astype(counts.dtype)
    return (counts + allowed / jnp.maximum(jnp.sum(allowed), 1)) / (samples + 1)


def _samples(samples) -> int:
    try:
        return count("propensity_samples", samples, 0)
    except (TypeError, ValueError):
        message = f"propensity_samples must be an integer >= 0 (0: do not estimate); got {samples!r}"
        raise ValueError(message) from None


def weight(name: str, value, upper: float = float("inf")) -> None:
    """Refuse a number outside [0, upper]; traced numbers pass.

    Raises:
        TypeError: not a number.
        ValueError: out of range.
    """
    at = concrete(name, value)
    if at is not None and not 0 <= at <= upper:
        raise ValueError(f"{name} must lie in [0, {upper:g}]; got {value!r}")
