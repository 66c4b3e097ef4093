r"""Predictive sampling: draw an outcome for every candidate from the posterior predictive, play the best.

    y_a ~ N(mean_a, cov_aa + noise_aa)        action = argmax_a y_a

Source: Duran-Martin, Sanchez-Betancourt, Cartea, Murphy, "Martingale Posterior Neural Networks for Fast Sequential
Decision Making", Algorithm 1.
"""

import jax
import jax.numpy as jnp

from seqdec import linalg
from seqdec.boundary.checks import keyed
from seqdec.core import Acquisition
from seqdec.policies import common


def predictive_sampling(*, joint: bool = False, propensity_samples: int = 100) -> Acquisition:
    """Predictive sampling of outcomes, observation noise included (Algorithm 1).

    Args:
        joint: draw outcomes from their joint distribution; False: from their marginals, as in Algorithm 1.
        propensity_samples: for joint draws as in `thompson`; for others probabilities are computed without draws.
            0: unknown probability.

    Raises:
        ValueError: propensity_samples is not an integer >= 0.
    """
    return _sampling(True, joint, propensity_samples)


def epistemic_sampling(*, joint: bool = False, propensity_samples: int = 100) -> Acquisition:
    """Predictive sampling of expected responses, without observation noise.

    Arguments and errors as in `predictive_sampling`.
    """
    return _sampling(False, joint, propensity_samples)


def _sampling(noisy: bool, joint: bool, propensity_samples: int) -> Acquisition:

    def moments(at, *_):
        variance = at.variance + at.noise if noisy else at.variance
        return at.mean, jnp.sqrt(jnp.maximum(variance, 0))

    @keyed
    def together(key, posterior, candidates, mask):
        at = posterior.joint(candidates)
        cov = at.cov + at.noise if noisy else at.cov
        normal = jax.random.normal(key, at.mean.shape, at.mean.dtype)
        return common.masked(at.mean + normal @ linalg.psd_root(cov), mask)

    separate, law = common.normal_scores(moments)
    score = together if joint else separate
    of_draws = common.of_draws(score, propensity_samples)
    return Acquisition(score, "joint", of_draws if joint or not propensity_samples else law)
