"""Environments by name."""

import difflib
from collections.abc import Callable
from typing import Any

from seqdec.core import Environment
from seqdec.envs import objectives
from seqdec.envs.bandits import bernoulli, gaussian, linear, wheel
from seqdec.envs.classification import digits, fashion_mnist, idx, mnist
from seqdec.envs.open_bandit import open_bandit
from seqdec.envs.recommender import kuairec, random_exposures
from seqdec.envs.tabular import adult, census, covertype, financial, jester, mushroom, statlog


def _query(objective: Callable[..., objectives.Objective]) -> Callable[..., Environment]:
    """The factory of an objective's environment, which takes a horizon besides."""
    return lambda horizon=100, **options: objectives.query(objective(**options), horizon=horizon)


_OBJECTIVES = {
    "ackley": objectives.ackley,
    "branin": objectives.branin,
    "drawnn": objectives.drawnn,
    "failing-branin": objectives.failing_branin,
    "hartmann6": objectives.hartmann6,
    "levy": objectives.levy,
    "noisy-branin": objectives.noisy_branin,
    "rosenbrock": objectives.rosenbrock,
}
_FACTORIES: dict[str, Callable[..., Environment]] = {
    "bernoulli": bernoulli,
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "gaussian": gaussian,
    "idx": idx,
    "kuairec": kuairec,
    "linear": linear,
    "mnist": mnist,
    "random-exposures": random_exposures,
    "wheel": wheel,
    "adult": adult,
    "census": census,
    "covertype": covertype,
    "financial": financial,
    "jester": jester,
    "mushroom": mushroom,
    "open-bandit": open_bandit,
    "statlog": statlog,
    **{name: _query(objective) for name, objective in _OBJECTIVES.items()},
}


def names() -> tuple[str, ...]:
    """The names that `make` knows, sorted."""
    return tuple(sorted(_FACTORIES))


def make(name: str, **options: Any) -> Environment:
    """The environment called `name`; `options` go to the function of that name in `seqdec.envs`.

    For the name of an objective, `options` go to its function and `horizon` to `seqdec.envs.query`.

    Raises ValueError, with a suggestion, for an unknown name; further whatever that function raises.
    """
    if name not in _FACTORIES:
        close = difflib.get_close_matches(str(name), names(), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"unknown environment {name!r}: {hint}Known: {', '.join(names())}")
    return _FACTORIES[name](**options)
