"""Environments by name."""

from collections.abc import Callable, Mapping
from typing import Any

from seqdec.core import Environment
from seqdec.envs import objectives
from seqdec.registry import Outside, Registry, check_keywords, keywords
from seqdec.runtime import check_process


def _query(objective: Callable[..., objectives.Objective]) -> Callable[..., Environment]:
    """The factory of an objective's environment, which takes `horizon` in addition to the objective's arguments."""

    def factory(*, horizon: int = 100, **options: Any) -> Environment:
        check_keywords(f"envs.{objective.__name__}", options, ["horizon", *keywords(objective)])
        return objectives.query(objective(**options), horizon=horizon)

    factory.__doc__ = objective.__doc__
    return factory


REGISTRY: Registry[Environment] = Registry(
    "environment",
    {
        "ackley": _query(objectives.ackley),
        "adult": "seqdec.envs._tabular:adult",
        "bernoulli": "seqdec.envs.bandits:bernoulli",
        "branin": _query(objectives.branin),
        "census": "seqdec.envs._tabular:census",
        "covertype": "seqdec.envs._tabular:covertype",
        "digits": "seqdec.envs._classification:digits",
        "drawnn": _query(objectives.drawnn),
        "drifting": "seqdec.envs._nonstationary:drifting",
        "failing-branin": _query(objectives.failing_branin),
        "fashion-mnist": "seqdec.envs._classification:fashion_mnist",
        "financial": "seqdec.envs._tabular:financial",
        "gaussian": "seqdec.envs.bandits:gaussian",
        "hartmann6": _query(objectives.hartmann6),
        "idx": "seqdec.envs._classification:idx",
        "jester": "seqdec.envs._tabular:jester",
        "kuairec": "seqdec.envs.recommender:kuairec",
        "levy": _query(objectives.levy),
        "linear": "seqdec.envs.bandits:linear",
        "mnist": "seqdec.envs._classification:mnist",
        "mushroom": "seqdec.envs._tabular:mushroom",
        "noisy-branin": _query(objectives.noisy_branin),
        "open-bandit": "seqdec.envs._open_bandit:open_bandit",
        "outliers": "seqdec.envs._outliers:outliers",
        "permuted": "seqdec.envs._nonstationary:permuted",
        "random-exposures": "seqdec.envs.recommender:random_exposures",
        "rosenbrock": _query(objectives.rosenbrock),
        "statlog": "seqdec.envs._tabular:statlog",
        "wheel": "seqdec.envs.bandits:wheel",
    },
    outside=Outside("seqdec.environments", "a function (*, keywords) -> seqdec.core.Environment", Environment),
)
"""Factories of environments; the library's own are registered with gymnasium, under the ids of `envs.gym.id_of`."""


def names() -> tuple[str, ...]:
    """The names that `make` knows, sorted."""
    return REGISTRY.names()


def make(name: str, **options: Any) -> Environment:
    """The environment called `name`; `options` go to the function of that name in `seqdec.envs`.

    For the name of an objective, `options` go to its function and `horizon` to `seqdec.envs.query`.

    Raises ValueError, with a suggestion, for an unknown name; further whatever that function raises.
    """
    check_process()
    return REGISTRY.make(name, **options)


def resolve(env: Environment | str, options: Mapping[str, Any]) -> Environment:
    """`env`, or the environment of that name with these options.

    Raises TypeError for options beside an environment, and whatever `make` raises.
    """
    if isinstance(env, str):
        return make(env, **options)
    if options:
        raise TypeError(f"{', '.join(options)}: options go with the name of an environment; {env.name} is made already")
    return env
