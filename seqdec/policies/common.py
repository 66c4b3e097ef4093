"""Masks of policies, and the distributions of their choices."""

import jax
import jax.numpy as jnp

from seqdec.boundary.checks import concrete, count, keyed
from seqdec.core import Acquisition, Array, Key, Marginals, Posterior, PyTree

_CELLS, _FURTHER, _LOWEST, _HIGHEST = 24, 3, 3.5, 5.0
"""Of `normal_scores`: cells; how often their edges are found anew; deviations of the lowest edge below the mean of a
candidate, and of the highest above."""

_LEAST = 1e-7
"""Least F of which a logarithm is taken: the error of erf in single precision."""

_UNIFORM, _ALWAYS = 0.002, 0.0001
"""Shares of uniform play: of the plays of others than the most probable candidate, and of all."""


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
    """(n,) one at the first largest score, NaN if it is not finite; zero elsewhere."""
    best = jnp.argmax(scores)
    return jnp.zeros_like(scores).at[best].set(jnp.where(jnp.isfinite(scores[best]), 1, jnp.nan))


def played(
    acquisition: Acquisition, key: Key, posterior: Posterior, candidates: PyTree, mask: Array | None
) -> tuple[Array, Array | None]:
    """Index to play, and (n,) the probabilities by which it was drawn, None if unknown."""
    if acquisition.law is not None:
        return acquisition.law(key, posterior, candidates, mask)
    scores = acquisition.score(None, posterior, candidates, mask)
    return jnp.argmax(scores), chosen(scores)


def uniform(like: Array, mask: Array | None) -> Array:
    """(n,) equal probabilities of the allowed candidates."""
    allowed = jnp.ones_like(like) if mask is None else jnp.asarray(mask, like.dtype)
    return allowed / jnp.maximum(jnp.sum(allowed), 1)


def drawn(key: Key, law: Array) -> tuple[Array, Array]:
    """An index drawn from probabilities (n,), and these."""
    return jax.random.categorical(key, jnp.log(law)), law


def explored(law: Array, mask: Array | None) -> Array:
    """Probabilities (n,) mixed with uniform play of the allowed candidates, less of it the surer they are.

    (1 - e) law + e / m        e = 0.0001 + 0.002 (1 - max law)        for m allowed candidates
    """
    share, even = _ALWAYS + _UNIFORM * (1 - jnp.max(law)), uniform(law, mask)
    return jnp.where(even > 0, (1 - share) * law + share * even, 0)  # zero also beside NaN


def of_draws(score, samples: int):
    """Law of a randomized score: play the largest of one of S draws, of unknown probability for S = 0.

    The law is that of `explored` for the shares of draws that each candidate wins. S should be ten over the smallest
    probability that is to be evaluated.
    """
    samples = _samples(samples)

    @keyed
    def law(key, posterior, candidates, mask):
        own, play = jax.random.split(key)
        winners = jax.vmap(lambda key: chosen(score(key, posterior, candidates, mask)))(jax.random.split(own, samples))
        return drawn(play, explored(jnp.sum(winners, 0) / samples, mask))

    return law if samples else unknown(score)


def unknown(score):
    """Law of a randomized score whose probabilities are not computed."""

    def law(key, posterior, candidates, mask):
        return jnp.argmax(score(key, posterior, candidates, mask)), None

    return law


def normal_scores(moments):
    """Score and law of independent mixtures of normal scores; play a from nearly P(a), by the law of `explored`.

        P(a) = sum_k (G(y_k) - G(y_{k-1})) h_ak / sum_b h_bk        G(y) = prod_b F_b(y)
        h_ak = log F_a(y_k) - log F_a(y_{k-1})                      F_a(y) = sum_p w_pa Phi((y - mean_pa) / std_pa)

    with p the parts of a mixture. Where the largest score lies in cell k, it is that of a with the share of a in the
    growth of log G. The edges are at the quantiles (k / 24)^2 of G, found by three interpolations. P(a) differs by less
    than 0.002 from the probability that the score of a is the largest. Certain scores that are equal share evenly. Time
    and memory O(n) a part.

    Args:
        moments: (marginals, mask, how many numbers vary) -> mean (n,) and std (n,).
    """

    def of_parts(posterior, candidates, mask):
        if posterior.parts is None:
            each = jax.tree.map(lambda leaf: leaf[None], marginals(posterior, candidates))
            weights = jnp.ones_like(each.mean)
        else:
            weights, each = posterior.parts(candidates)
        return weights.astype(each.mean.dtype), *jax.vmap(lambda at: moments(at, mask, posterior.varying))(each)

    @keyed
    def score(key, posterior, candidates, mask):
        weights, mean, std = of_parts(posterior, candidates, mask)
        part, normal = jax.random.split(key)
        part = jax.random.categorical(part, jnp.log(weights), 0)[None]
        mean, std = (jnp.take_along_axis(each, part, 0)[0] for each in (mean, std))
        return masked(mean + std * jax.random.normal(normal, mean.shape, mean.dtype), mask)

    @keyed
    def law(key, posterior, candidates, mask):
        weights, mean, std = of_parts(posterior, candidates, mask)
        return drawn(key, explored(wins(weights, mean, std, uniform(mean[0], mask) > 0), mask))

    return score, law


def wins(weights: Array, mean: Array, std: Array, allowed: Array) -> Array:
    """P (n,) of `normal_scores` for parts (P, n); NaN where allowed if a mean is not finite."""
    std = jnp.maximum(jnp.maximum(std, 4 * jnp.finfo(mean.dtype).eps * jnp.abs(mean)), 1e-30)  # the mean's rounding
    lows = jnp.min(mean - _LOWEST * std, 0)
    binding = jnp.argmax(masked(lows, allowed))
    center = mean[0, binding]
    mean, low = mean - center, lows[binding] - center
    high = jnp.max(masked(mean + _HIGHEST * std, allowed[None]))
    scale = 1 / (2**0.5 * std[..., None])

    def below(y):
        cumulative = 0.5 + 0.5 * jax.lax.erf((y[None, None] - mean[..., None]) * scale)
        cumulative = jnp.sum(weights[..., None] * cumulative, 0)
        return jnp.where(allowed[:, None], jnp.maximum(cumulative, _LEAST), 1)

    levels = jnp.linspace(0, 1, _CELLS + 1, dtype=mean.dtype)
    edges = low + (high - low) * levels
    for _ in range(_FURTHER):
        total = jnp.prod(below(edges), axis=0)
        edges = jnp.interp(levels**2, total / total[-1], edges)
    logs = jnp.log(below(edges))
    growth = jnp.maximum(jnp.diff(logs, axis=1), 0)
    total = jnp.sum(growth, axis=0)
    mass = jnp.diff(jnp.exp(jnp.sum(logs, axis=0)))
    won = growth @ jnp.where(total > 0, mass / jnp.where(total > 0, total, 1), 0)
    return jnp.where(allowed, won / jnp.sum(won), 0)


def _samples(samples) -> int:
    try:
        return count("propensity_samples", samples, 0)
    except (TypeError, ValueError):
        message = f"propensity_samples must be an integer >= 0 (0: unknown propensities); got {samples!r}"
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
