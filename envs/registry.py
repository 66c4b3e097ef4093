"""Environments by name."""

from collections.abc import Mapping
from typing import Any

from seqdec.core import Environment
from seqdec.envs import objectives
from seqdec.envs.objectives import query
from seqdec.registry import Outside, Registry
from seqdec.runtime import check_process


def _ackley(*, dim: int = 2, horizon: int = 100) -> Environment:
    """Ackley's function on [-4, 5]^d: a deep minimum at 0 among many shallow ones."""
    return query(objectives.ackley(dim), horizon=horizon)


def _branin(*, horizon: int = 100) -> Environment:
    """Branin's function on [-5, 10] x [0, 15]: three equal minima of 0.397887."""
    return query(objectives.branin(), horizon=horizon)


def _drawnn(*, dim: int = 50, seed: int = 3141, horizon: int = 100) -> Environment:
    """DrawNN: minus a random ReLU network on [0, 1]^d, two hidden layers of 50, weights and biases N(0, 1)."""
    return query(objectives.drawnn(dim, seed=seed), horizon=horizon)


def _failing_branin(*, horizon: int = 100) -> Environment:
    """Branin's function, but a query fails (NaN) where x_1 > 12, where one of the three minima is."""
    return query(objectives.failing_branin(), horizon=horizon)


def _hartmann6(*, horizon: int = 100) -> Environment:
    """Hartmann's function on [0, 1]^6: a sum of four Gaussian wells, minimum -3.322368."""
    return query(objectives.hartmann6(), horizon=horizon)


def _levy(*, dim: int = 2, horizon: int = 100) -> Environment:
    """Levy's function on [-10, 10]^d: waves on a bowl, minimum 0 at (1, ..., 1)."""
    return query(objectives.levy(dim), horizon=horizon)


def _noisy_branin(*, noise_std: float = 1.0, horizon: int = 100) -> Environment:
    """Branin's function with Gaussian noise on every query."""
    return query(objectives.noisy_branin(noise_std), horizon=horizon)


def _rosenbrock(*, dim: int = 2, horizon: int = 100) -> Environment:
    """Rosenbrock's curved valley on [-5, 10]^d, minimum 0 at (1, ..., 1)."""
    return query(objectives.rosenbrock(dim), horizon=horizon)


REGISTRY: Registry[Environment] = Registry(
    "environment",
    {
        "ackley": _ackley,
        "adult": "seqdec.envs._tabular:adult",
        "bernoulli": "seqdec.envs.bandits:bernoulli",
        "branin": _branin,
        "census": "seqdec.envs._tabular:census",
        "covertype": "seqdec.envs._tabular:covertype",
        "digits": "seqdec.envs._classification:digits",
        "drawnn": _drawnn,
        "drifting": "seqdec.envs._nonstationary:drifting",
        "failing-branin": _failing_branin,
        "fashion-mnist": "seqdec.envs._classification:fashion_mnist",
        "financial": "seqdec.envs._tabular:financial",
        "gaussian": "seqdec.envs.bandits:gaussian",
        "hartmann6": _hartmann6,
        "idx": "seqdec.envs._classification:idx",
        "jester": "seqdec.envs._tabular:jester",
        "kuairec": "seqdec.envs.recommender:kuairec",
        "levy": _levy,
        "linear": "seqdec.envs.bandits:linear",
        "mnist": "seqdec.envs._classification:mnist",
        "mushroom": "seqdec.envs._tabular:mushroom",
        "noisy-branin": _noisy_branin,
        "open-bandit": "seqdec.envs.recommender:open_bandit",
        "outliers": "seqdec.envs._nonstationary:outliers",
        "permuted": "seqdec.envs._nonstationary:permuted",
        "random-exposures": "seqdec.envs.recommender:random_exposures",
        "rosenbrock": _rosenbrock,
        "statlog": "seqdec.envs._tabular:statlog",
        "wheel": "seqdec.envs.bandits:wheel",
    },
    outside=Outside("seqdec.environments", "a function (*, keywords) -> seqdec.core.Environment", Environment),
)
"""Factories of environments; those of the library are registered with gymnasium (`seqdec.gymnasium_ids`)."""


def names() -> tuple[str, ...]:
    """The names that `make` knows, sorted."""
    return REGISTRY.names()


def make(name: str, **options: Any) -> Environment:
    """The environment called `name`; `options` go to its function in `seqdec.envs`.

    >>> import seqdec
    >>> env = seqdec.envs.make("linear", noise_std=0.1)
    >>> env.action_space
    Discrete(5)

    For an objective, `options` go to its function and `horizon` to `seqdec.envs.query`.

    Raises ValueError, with a suggestion, for an unknown name, and what that function raises.
    """
    check_process()
    return REGISTRY.make(name, **options)


def resolve(env: Environment | str, options: Mapping[str, Any]) -> Environment:
    """`env`, or the environment of that name with these options.

    Raises TypeError for options beside an environment, and what `make` raises.
    """
    if isinstance(env, str):
        return make(env, **options)
    if options:
        raise TypeError(f"{', '.join(options)}: options go with the name of an environment; {env.name} is made already")
    return env
