"""Environments by name."""

import difflib
from collections.abc import Callable
from typing import Any

from seqdec.core import Environment
from seqdec.envs.bandits import bernoulli, gaussian, linear, wheel
from seqdec.envs.classification import digits, fashion_mnist, idx, mnist

_FACTORIES: dict[str, Callable[..., Environment]] = {
    "bernoulli": bernoulli,
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "gaussian": gaussian,
    "idx": idx,
    "linear": linear,
    "mnist": mnist,
    "wheel": wheel,
}


def names() -> tuple[str, ...]:
    """The names that `make` knows, sorted."""
    return tuple(sorted(_FACTORIES))


def make(name: str, **options: Any) -> Environment:
    """The environment called `name`; `options` go to the function of that name in `seqdec.envs`.

    Raises ValueError, with a suggestion, for an unknown name; further whatever that function raises.
    """
    if name not in _FACTORIES:
        close = difflib.get_close_matches(str(name), names(), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown environment {name!r}: {hint}Known: {', '.join(names())}")
    return _FACTORIES[name](**options)
