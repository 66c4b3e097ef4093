r"""Tempered sampling: Thompson sampling with less variance for what is observed often.

With variance_a and noise_a of candidate a in a context, and v_a = variance_a / noise_a, one over its number of
observations in the belief,

    rho_a = v_a sum_b 1 / v_b

    y_a ~ N(mean_a, variance_a min(1, rho_a / (neglect n)))        action = argmax_a y_a

rho_a is the number of observations of all n candidates per observation of a, near n under greedy play in varying
contexts. The less they vary, the smaller neglect should be.

Source: ours; that varying contexts explore by themselves: Bastani, Bayati, Khosravi, "Mostly exploration-free
algorithms for contextual bandits", 2021.
"""

import jax.numpy as jnp

from seqdec.boundary.checks import positive
from seqdec.core import Acquisition
from seqdec.policies import common


def tempered_sampling(*, neglect: float = 5.0) -> Acquisition:
    """Thompson sampling with less variance where a candidate is observed often.

    Args:
        neglect: a candidate with less than 1 / (neglect n) of the observations near the context keeps its full
            variance; others have less in proportion. At most the count of numbers that vary in contexts, if the belief
            knows it.

    Raises:
        ValueError: neglect is not positive.
    """
    positive("neglect", neglect)

    def moments(at, mask, varying):
        smallest = jnp.finfo(at.mean.dtype).tiny
        ratio = jnp.maximum(at.variance, smallest) / jnp.maximum(at.noise, smallest)
        allowed = jnp.ones_like(ratio) if mask is None else jnp.asarray(mask, ratio.dtype)
        rho = ratio * jnp.sum(allowed / jnp.maximum(ratio, smallest))
        least = neglect if varying is None else jnp.clip(varying, 1, neglect)
        share = jnp.minimum(1, rho / (least * jnp.maximum(jnp.sum(allowed), 1)))
        return at.mean, jnp.sqrt(jnp.maximum(at.variance * share, 0))

    score, law = common.normal_scores(moments)
    return Acquisition(score, "joint", law)
