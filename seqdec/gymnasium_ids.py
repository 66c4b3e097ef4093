"""Ids of the environments in gymnasium, known without importing JAX."""

from collections.abc import Iterable

import gymnasium

NAMES = (
    *("ackley", "adult", "bernoulli", "branin", "census", "covertype", "digits", "drawnn", "drifting"),
    *("failing-branin", "fashion-mnist", "financial", "gaussian", "hartmann6", "idx", "jester", "kuairec"),
    *("levy", "linear", "mnist", "mushroom", "noisy-branin", "open-bandit", "outliers", "permuted"),
    *("random-exposures", "rosenbrock", "statlog", "wheel"),
)
"""Of `seqdec.envs.REGISTRY`."""

_TITLES = {
    "bernoulli": "BernoulliBandit",
    "drawnn": "DrawNN",
    "fashion-mnist": "FashionMNIST",
    "gaussian": "GaussianBandit",
    "kuairec": "KuaiRec",
    "linear": "LinearBandit",
    "mnist": "MNIST",
    "wheel": "WheelBandit",
}
"""Irregular names in gymnasium's ids."""


def id_of(name: str) -> str:
    """The gymnasium id of an environment: "random-exposures" is "seqdec/RandomExposures-v0"."""
    title = _TITLES.get(name) or "".join(word.capitalize() for word in name.split("-"))
    return f"seqdec/{title}-v0"


def register(names: Iterable[str] = NAMES) -> None:
    """Register environments with gymnasium; a second call does nothing."""
    for name in names:
        if id_of(name) not in gymnasium.registry:
            gymnasium.register(
                id_of(name),
                entry_point="seqdec.envs.gym:make_env",
                vector_entry_point="seqdec.envs.gym:make_vector_env",
                kwargs={"name": name},
            )
