"""Masks and action probabilities, shared by the policies."""

import math

import jax
import jax.numpy as jnp

from seqdec.checks import count, keyed, known
from seqdec.core import Array, Marginals, Posterior, PyTree


def masked(scores: Array, mask: Array | None) -> Array:
    """Scores (n,) with -inf where the mask (n,) bool is False."""
    return scores if mask is None else jnp.where(mask, scores, -jnp.inf)


def marginals(posterior: Posterior, candidates: PyTree) -> Marginals:
    """The posterior's marginals of the candidates' responses."""
    if posterior.marginals is not None:
        return posterior.marginals(candidates)
    at = posterior.joint(candidates)
    return Marginals(at.mean, jnp.diagonal(at.cov), jnp.diagonal(at.noise))


def chosen(scores: Array) -> Array:
    """(n,) one at the largest score and zero elsewhere; ties go to the first."""
    return jax.nn.one_hot(jnp.argmax(scores), len(scores), dtype=scores.dtype)


def monte_carlo(score, samples: int):
    """Probabilities of a randomised score from S more draws of it: `smoothed` counts of the winners.

    The bias is at most 1 / (S + 1), the standard error at most 1 / (2 sqrt(S)). Whatever does not depend on the key is
    computed once for all draws.

    Returns:
        A function with the signature of `seqdec.core.Acquisition.probabilities`, or None for samples = 0.
    """
    samples = _samples(samples)
    if not samples:
        return None

    @keyed
    def probabilities(key, posterior, candidates, mask):
        def winner(key):
            return chosen(score(key, posterior, candidates, mask))

        return smoothed(jnp.sum(jax.vmap(winner)(jax.random.split(key, samples)), 0), samples, mask)

    return probabilities


def marginal_quadrature(marginals, samples: int):
    r"""Probabilities that independent normal scores are the largest, from S quantiles of each.

        P(a) = E_z prod_{b != a} Phi((mean_a + std_a z - mean_b) / std_b),    z at the S midpoint quantiles of N(0, 1)

    Deterministic. Certain scores that are equal count as one of them each time, evenly. Apart from the smoothing, the
    error is at most 1 / (2 S) where the other scores are certain, and much smaller where they are about as uncertain
    as that of a. O(n S) time for one candidate; for all of them, whose sum is made 1, O(n^2 S).

    Args:
        marginals: (posterior, candidates, mask) -> mean (n,) and std (n,).
        samples: S.

    Returns:
        Functions with the signatures of `seqdec.core.Acquisition.probabilities` and `.probability`, or None for each
        with samples = 0.
    """
    samples = _samples(samples)
    if not samples:
        return None, None

    def wins(mean, std, mask, index):
        """S P(a) of candidate `index`."""
        dtype = mean.dtype
        quantiles = jax.scipy.special.ndtri((jnp.arange(samples, dtype=dtype) + 0.5) / samples)
        score = mean[index] + std[index] * quantiles
        rivals = jnp.arange(len(mean)) != index if mask is None else mask.at[index].set(False)
        tied = rivals & (mean == mean[index]) & (std == 0) & (std[index] == 0)
        scale = 1 / (math.sqrt(2) * jnp.maximum(std, jnp.finfo(dtype).tiny))
        below = 0.5 + 0.5 * jax.lax.erf((score[None] - mean[:, None]) * scale[:, None])
        product = jnp.prod(jnp.where((rivals & ~tied)[:, None], below, 1), axis=0)
        return jnp.sum(product) / (1 + jnp.sum(tied)).astype(dtype)

    def probability(key, posterior, candidates, mask, index):
        del key
        mean, std = marginals(posterior, candidates, mask)
        mask = None if mask is None else jnp.asarray(mask, bool)
        share = 1 / (len(mean) if mask is None else jnp.maximum(jnp.sum(mask), 1).astype(mean.dtype))
        return (wins(mean, std, mask, index) + share) / (samples + 1)

    def probabilities(key, posterior, candidates, mask):
        del key
        mean, std = marginals(posterior, candidates, mask)
        mask = None if mask is None else jnp.asarray(mask, bool)
        # One after the other, so that memory is O(n S).
        each = jax.lax.map(lambda index: wins(mean, std, mask, index), jnp.arange(len(mean)))
        each = each if mask is None else jnp.where(mask, each, 0)
        return smoothed(samples * each / jnp.sum(each), samples, mask)

    return probabilities, probability


def smoothed(counts: Array, samples: int, mask: Array | None) -> Array:
    """(count + 1/m) / (S + 1) for the m allowed candidates, from counts (n,) that sum to S.

    One extra draw is spread evenly over the allowed candidates, so that inverse-propensity weights are finite.
    """
    allowed = jnp.ones_like(counts) if mask is None else mask.astype(counts.dtype)
    return (counts + allowed / jnp.maximum(jnp.sum(allowed), 1)) / (samples + 1)


def _samples(samples) -> int:
    """Draws for an estimate of probabilities. Raises ValueError unless they are an integer >= 0."""
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
    at = known(name, value)
    if at is not None and not 0 <= at <= upper:
        raise ValueError(f"{name} must lie in [0, {upper:g}]; got {value!r}")
