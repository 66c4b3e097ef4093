r"""Predictive sampling: draw an outcome for every candidate from the posterior predictive, play the best.

    y ~ N(mean, cov + noise)        action = argmax_a y_a

Outcomes, not parameters, are drawn: O(n^3) for n candidates once their joint covariance is there, whatever the
network's size.

Source: Duran-Martin, Sanchez-Betancourt, Cartea, Murphy, "Martingale Posterior Neural Networks for Fast Sequential
Decision Making", Algorithm 1.
"""

import jax
import jax.numpy as jnp

from seqdec import linalg
from seqdec.core import Acquisition
from seqdec.policies import common


def predictive_sampling(
    *, joint: bool = True, observation_noise: bool = True, propensity_samples: int = 100
) -> Acquisition:
    """Predictive sampling.

    Args:
        joint: draw all outcomes together, with the correlation that shared parameters give them; False draws each from
            its own marginal.
        observation_noise: include the observation noise R, as Algorithm 1 does. False draws the expected responses
            instead, which explores less: noise that no data removes is no reason to try an arm again.
        propensity_samples: draws for the estimate of the action's probability; 0 leaves it out.

    Returns:
        The acquisition; its probabilities are Monte Carlo estimates.

    Raises:
        ValueError: propensity_samples is not an integer >= 0.
    """

    def score(key, posterior, candidates, mask):
        at = posterior.joint(candidates)
        cov = at.cov + at.noise if observation_noise else at.cov
        normal = jax.random.normal(key, at.mean.shape, at.mean.dtype)
        deviation = normal @ linalg.psd_root(cov) if joint else jnp.sqrt(jnp.diagonal(cov)) * normal
        return common.masked(at.mean + deviation, mask)

    return Acquisition(score, common.monte_carlo(score, propensity_samples), exact=False, needs="joint")
