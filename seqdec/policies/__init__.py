"""Policies: acquisition functions of the moments or draws of a posterior."""

from typing import TYPE_CHECKING, Any

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
"""Policies by name, each without required arguments."""


def names() -> tuple[str, ...]:
    """Sorted names for `make`."""
    return REGISTRY.names()


def make(name: str, **options: Any) -> Acquisition:
    """The policy (`seqdec.core.Acquisition`) called `name`; `options` go to its function in `seqdec.policies`.

    Raises:
        ValueError: unknown name, or an option out of its range.
    """
    return REGISTRY.make(name, **options)


def resolve(policy: str | Acquisition) -> tuple[Acquisition, str]:
    """The acquisition and name of a policy given by name, or an acquisition itself, called "custom".

    Raises:
        ValueError: unknown name.
        TypeError: neither a name nor an acquisition.
    """
    if isinstance(policy, Acquisition):
        return policy, "custom"
    if isinstance(policy, str):
        return make(policy), policy
    raise TypeError(f"policy must be one of the names {', '.join(names())} or an Acquisition; got {policy!r}")


if not TYPE_CHECKING:

    def __getattr__(name: str):
        """A registered policy by its name."""
        if name in REGISTRY.own():
            return REGISTRY[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
