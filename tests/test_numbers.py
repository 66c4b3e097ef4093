"""Every numeric keyword of every public factory refuses what is not a number, by its name."""

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from seqdec import agents, filters, likelihoods, memory, models, optim, policies
from seqdec.bo.surrogates import contract as surrogates


class Spaces(NamedTuple):
    """What an agent is told of its environment."""

    observation_space: gymnasium.Space
    action_space: gymnasium.Space


CONTEXT = spaces.Box(-1, 1, (2,), np.float32)
ARMS, POINTS = Spaces(CONTEXT, spaces.Discrete(2)), Spaces(CONTEXT, spaces.Box(0, 1, (1,), np.float32))
ROWS = spaces.Dict(video=spaces.Box(0, 4, (2,), np.int32), features=spaces.Box(-1, 1, (2, 3), np.float32))
CANDIDATES = Spaces(ROWS, spaces.Discrete(2))
NETWORK = models.network(models.MLP(2, (4,)), jnp.zeros(2))
OF_POINTS = models.network(models.MLP(1, (4,)), jnp.zeros(3))
SEEDS = ("seed",)
"""Integers of any kind, which have a check of their own."""


class Case(NamedTuple):
    """A factory, and what it needs to be called."""

    name: str
    factory: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    needed: Mapping[str, Any] = MappingProxyType({})


def factories() -> Iterator[Case]:
    for name in agents.names():
        factory = agents.REGISTRY[name]
        own = agents.capabilities(name)
        model = {"model": NETWORK} if own.model else {}
        yield Case(f"agents.{name}", factory, (ARMS if "contexts" in own.spaces else CANDIDATES,), model)
        if "num_candidates" in parameters(factory):
            model = {"model": OF_POINTS} if own.model else {}
            yield Case(f"agents.{name} of points", factory, (POINTS,), {"num_candidates": 8, **model})
    for name in ("ekf", "hilofi", "lofi", "lolofi", "lrkf", "subspace"):
        factory = getattr(filters, name)
        ranks = {key: 2 for key, one in parameters(factory).items() if one.default is one.empty}
        del ranks["network"], ranks["likelihood"]
        yield Case(f"filters.{name}", factory, (NETWORK, likelihoods.gaussian(0.1)), ranks)
    for name in policies.names():
        yield Case(f"policies.{name}", policies.REGISTRY[name])
    for name in optim.REGISTRY:
        yield Case(f"optim.{name}", optim.REGISTRY[name], (), {"learning_rate": 0.1})
    for name in surrogates.REGISTRY:
        needed = {"dim": 2} if "dim" in parameters(surrogates.REGISTRY[name]) else {}
        yield Case(f"bo.{name}", surrogates.REGISTRY[name], (), needed)
    for name in ("bernoulli", "categorical", "poisson"):
        yield Case(f"likelihoods.{name}", getattr(likelihoods, name))
    yield Case("likelihoods.gaussian", likelihoods.gaussian, (), {"noise_variance": 0.1})
    for name in ("last", "reservoir"):
        yield Case(f"memory.{name}", getattr(memory, name), (), {"capacity": 2})
    for name in ("members_head", "laplace", "neural_linear_head", "variational"):
        yield Case(f"agents.{name}", getattr(agents, name))


def parameters(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(factory).parameters)


def numeric(case: Case) -> list[str]:
    """The keywords that are numbers: by their default, or required."""
    found = []
    for key, one in parameters(case.factory).items():
        default = case.needed.get(key, one.default)
        if case.name.endswith("points") and key not in case.needed:
            continue
        if isinstance(default, int | float) and not isinstance(default, bool) and key not in SEEDS:
            found.append(key)
    return found


CASES = [(case, keyword) for case in factories() for keyword in numeric(case)]


def takes_none(factory: Callable[..., Any], keyword: str) -> bool:
    hint = inspect.signature(factory).parameters[keyword].annotation
    return type(None) in typing.get_args(hint) or "None" in str(hint)


def build(case: Case, keyword: str, value: Any) -> Any:
    return case.factory(*case.arguments, **{**case.needed, keyword: value})


def test_the_factories_are_many():
    assert len(CASES) > 200


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("case", "keyword"), CASES, ids=[f"{case.name}-{keyword}" for case, keyword in CASES])
def test_a_keyword_refuses_what_is_not_a_number(case: Case, keyword: str) -> None:
    wrong = ["x", True, np.bool_(True), float("nan"), 1j, [None], {"a": 1}]
    wrong += [] if takes_none(case.factory, keyword) else [None]
    if keyword == "initial_std_table":
        wrong.remove({"a": 1})
    for value in wrong:
        with pytest.raises((TypeError, ValueError), match=keyword):
            build(case, keyword, value)
