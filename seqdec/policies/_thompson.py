r"""Thompson sampling: draw parameters from the belief and play the best action under them.

    theta ~ N(mean, Sigma)          action = argmax_a E[y_a | theta]

A draw costs one pass over the covariance factor and one forward pass. Source: W. R. Thompson, "On the likelihood that
one unknown probability exceeds another in view of the evidence of two samples", Biometrika 25, 1933.
"""

from seqdec.boundary.checks import keyed
from seqdec.core import Acquisition
from seqdec.policies import common


def thompson(*, scale: float = 1.0, propensity_samples: int = 32) -> Acquisition:
    """Thompson sampling; the action is best in one of several draws, and its propensity the share of draws with it.

    >>> import seqdec
    >>> env = seqdec.envs.linear()
    >>> agent = seqdec.agents.linear(env, policy=seqdec.policies.thompson(scale=0.5))

    Args:
        scale: factor of the draws' deviation from the mean, in [0, 1]; below 1 it explores less, for varying contexts.
        propensity_samples: number of draws for the action's probability, each at the cost of an action; use ten over
            the smallest probability to be evaluated. 0: unknown probability.

    Raises:
        ValueError: propensity_samples is not an integer >= 0, or scale out of range.
    """
    common.weight("scale", scale, 1)

    @keyed
    def score(key, posterior, candidates, mask):
        drawn = posterior.draw(key)(candidates)
        if scale != 1:
            mean = posterior.mean(candidates)
            drawn = mean + scale * (drawn - mean)
        return common.masked(drawn, mask)

    return Acquisition(score, "draw", common.of_draws(score, propensity_samples))
