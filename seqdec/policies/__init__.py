"""Policies: acquisition functions that score candidates from the moments or draws of a posterior."""

from typing import Any

from seqdec.core import Acquisition
from seqdec.policies._greedy import epsilon_greedy, greedy
from seqdec.policies._thompson import thompson
from seqdec.policies.confidence import ucb
from seqdec.policies.improvement import log_expected_improvement
from seqdec.policies.predictive import epistemic_sampling, predictive_sampling
from seqdec.policies.tempered import tempered_sampling
from seqdec.registry import Outside, Registry

__all__ = [
    "REGISTRY",
    "epistemic_sampling",
    "epsilon_greedy",
    "greedy",
    "log_expected_improvement",
    "make",
    "names",
    "predictive_sampling",
    "resolve",
    "tempered_sampling",
    "thompson",
    "ucb",
]

REGISTRY: Registry[Acquisition] = Registry(
    "policy",
    {
        "epsilon_greedy": epsilon_greedy,
        "epistemic_sampling": epistemic_sampling,
        "greedy": greedy,
        "log_expected_improvement": log_expected_improvement,
        "predictive_sampling": predictive_sampling,
        "tempered_sampling": tempered_sampling,
        "thompson": thompson,
        "ucb": ucb,
    },
    outside=Outside("seqdec.policies", "a function (*, keywords) -> seqdec.core.Acquisition", Acquisition),
)
"""Policies by name. Each can be made without arguments."""


def names() -> tuple[str, ...]:
    """The names that `make` knows, sorted."""
    return REGISTRY.names()


def make(name: str, **options: Any) -> Acquisition:
    """The policy called `name`; `options` go to the function of that name.

    Raises:
        ValueError: no policy has that name; or an option is out of its range.
    """
    return REGISTRY.make(name, **options)


def resolve(policy: str | Acquisition) -> tuple[Acquisition, str]:
    """An acquisition and its name: a name is resolved by `make`; an acquisition is called "custom".

    Raises:
        ValueError: no policy has that name.
        TypeError: neither a name nor an acquisition.
    """
    if isinstance(policy, Acquisition):
        return policy, "custom"
    if isinstance(policy, str):
        return make(policy), policy
    raise TypeError(f"policy must be one of the names {', '.join(names())} or an Acquisition; got {policy!r}")
