r"""Thompson sampling: draw parameters from the belief and play the best action under them.

    theta ~ N(mean, Sigma)          action = argmax_a E[y_a | theta]

A draw costs one pass over the covariance factor and one forward pass. Source: W. R. Thompson, "On the likelihood that
one unknown probability exceeds another in view of the evidence of two samples", Biometrika 25, 1933.
"""

from seqdec.core import Acquisition
from seqdec.policies import common


def thompson(*, propensity_samples: int = 32) -> Acquisition:
    """Thompson sampling.

    Args:
        propensity_samples: parameter draws for the estimate of the action's probability, each at the cost of one
            action; 0 gives no estimate.

    Returns:
        The acquisition; its probabilities are Monte Carlo estimates.

    Raises:
        ValueError: propensity_samples is not an integer >= 0.
    """

    def score(key, posterior, candidates, mask):
        return common.masked(posterior.draw(key)(candidates), mask)

    return Acquisition(score, common.monte_carlo(score, propensity_samples), exact=False, needs="draw")
