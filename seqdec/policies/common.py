"""What the policies share: masks, and the probability of the action."""

import jax
import jax.numpy as jnp
from jax.core import Tracer

from seqdec.core import Array


def masked(scores: Array, mask: Array | None) -> Array:
    """Scores (n,) with -inf where the mask (n,) bool is False."""
    return scores if mask is None else jnp.where(mask, scores, -jnp.inf)


def chosen(scores: Array) -> Array:
    """(n,) one at the largest score and zero elsewhere; the first of equal scores is played."""
    return jax.nn.one_hot(jnp.argmax(scores), len(scores), dtype=scores.dtype)


def monte_carlo(score, samples: int):
    """Probabilities of a randomised score, by drawing it again.

    From S draws the estimate is (count + 1/n) / (S + 1) over the n allowed candidates: one extra draw is spread evenly,
    so that no candidate that can be played is given probability zero, which inverse-propensity weights could not bear.
    The bias is at most 1 / (S + 1), the standard error at most 1 / (2 sqrt(S)). What the score asks of the posterior
    and does not depend on the key is computed once.

    Returns:
        A function with the signature of `seqdec.core.Acquisition.probabilities`, or None for samples = 0.
    """
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 0:
        raise ValueError(f"propensity_samples must be an integer >= 0 (0: do not estimate); got {samples!r}")
    if samples == 0:
        return None

    def probabilities(key, posterior, candidates, mask):
        def winner(key):
            return chosen(score(key, posterior, candidates, mask))

        counts = jnp.sum(jax.vmap(winner)(jax.random.split(key, samples)), 0)
        allowed = jnp.ones_like(counts) if mask is None else mask.astype(counts.dtype)
        return (counts + allowed / jnp.maximum(jnp.sum(allowed), 1)) / (samples + 1)

    return probabilities


def weight(name: str, value, upper: float = float("inf")) -> None:
    """Refuses a number outside [0, upper]; traced values pass."""
    if not isinstance(value, Tracer) and not 0 <= value <= upper:
        raise ValueError(f"{name} must lie in [0, {upper:g}]; got {value!r}")
