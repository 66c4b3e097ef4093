"""A policy: copy to seqdec/policies/_boltzmann.py.

Registry, REGISTRY of seqdec/policies/__init__.py:

    "boltzmann": "seqdec.policies._boltzmann:boltzmann",

Case, POLICIES of tests/contracts/test_policies.py:

    "boltzmann": (lambda: policies.make("boltzmann"), "mean"),
"""

import jax

from seqdec.core import Acquisition
from seqdec.policies import common


def boltzmann(temperature: float = 0.1) -> Acquisition:
    """Play each candidate with probability proportional to exp(expected response / temperature)."""

    def logits(posterior, candidates, mask):
        return common.masked(posterior.mean(candidates) / temperature, mask)

    def score(key, posterior, candidates, mask):
        values = logits(posterior, candidates, mask)
        return values + jax.random.gumbel(key, values.shape, values.dtype)

    def law(key, posterior, candidates, mask):
        return common.drawn(key, jax.nn.softmax(logits(posterior, candidates, mask)))

    return Acquisition(score, "mean", law)
