"""Acquisition policies: scores over candidates from what a posterior says of them."""

import difflib
from collections.abc import Callable
from typing import Any

from seqdec.core import Acquisition
from seqdec.policies.confidence import ucb
from seqdec.policies.greedy import epsilon_greedy, greedy
from seqdec.policies.improvement import log_expected_improvement
from seqdec.policies.predictive import epistemic_sampling, predictive_sampling
from seqdec.policies.thompson import thompson

__all__ = [
    "epistemic_sampling",
    "epsilon_greedy",
    "greedy",
    "log_expected_improvement",
    "make",
    "names",
    "predictive_sampling",
    "resolve",
    "thompson",
    "ucb",
]

_FACTORIES: dict[str, Callable[..., Acquisition]] = {
    "epsilon_greedy": lambda epsilon=0.05: epsilon_greedy(epsilon),
    "epistemic_sampling": epistemic_sampling,
    "greedy": greedy,
    "predictive_sampling": predictive_sampling,
    "thompson": thompson,
    "ucb": lambda width=1.0: ucb(width),
}


def names() -> tuple[str, ...]:
    """The names that `make` knows, sorted."""
    return tuple(sorted(_FACTORIES))


def make(name: str, **options: Any) -> Acquisition:
    """The policy called `name`; epsilon_greedy explores 5% and ucb adds 1 standard deviation unless told otherwise.

    Raises:
        ValueError: no policy has that name; the message suggests one.
    """
    if name not in _FACTORIES:
        close = difflib.get_close_matches(str(name), names(), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown policy {name!r}: {hint}Known: {', '.join(names())}")
    return _FACTORIES[name](**options)


def resolve(policy: str | Acquisition) -> tuple[Acquisition, str]:
    """An acquisition and what to call it: a name stands for what `make` makes of it; an acquisition's own is "custom".

    Raises:
        ValueError: no policy has that name.
        TypeError: neither a name nor an acquisition.
    """
    if isinstance(policy, Acquisition):
        return policy, "custom"
    if isinstance(policy, str):
        return make(policy), policy
    raise TypeError(f"policy must be one of the names {', '.join(names())} or an Acquisition; got {policy!r}")
