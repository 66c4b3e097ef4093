"""Networks and their optimizers as agents, without uncertainty."""

from collections.abc import Callable
from typing import Any

import optax
from optax import contrib

from seqdec import optim
from seqdec.agents._neural.loop import Head, neural
from seqdec.boundary import checks
from seqdec.core import Acquisition, Agent, HasSpaces, Network
from seqdec.memory import reservoir
from seqdec.modules import Model

REPLAYED = 40_000
"""Rows of the reservoir."""


def adamw(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "epsilon_greedy",
    model: Model | None = None,
    head: Callable[[Network], Head] | None = None,
    learning_rate: float = 1e-4,
    inner_steps: int = 5,
    num_candidates: int | None = None,
) -> Agent:
    """Network trained by AdamW on the newest observation; arguments as in `replay_adamw`."""
    return _trained("adamw", optax.adamw, **locals())


def muon(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "epsilon_greedy",
    model: Model | None = None,
    head: Callable[[Network], Head] | None = None,
    learning_rate: float = 1e-4,
    inner_steps: int = 1,
    num_candidates: int | None = None,
) -> Agent:
    """Network trained by Muon on the newest observation; arguments as in `replay_adamw`."""
    return _trained("muon", contrib.muon, **locals())


def koala_plus_plus(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "epsilon_greedy",
    model: Model | None = None,
    head: Callable[[Network], Head] | None = None,
    learning_rate: float = 0.3,
    inner_steps: int = 5,
    num_candidates: int | None = None,
) -> Agent:
    """Network trained by KOALA++ on the newest observation; arguments as in `replay_adamw`.

    Defaults are the best of ten settings on the digits bandit.
    """
    return _trained("koala++", optim.koala_plus_plus, **locals())


def replay_adamw(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "greedy",
    model: Model | None = None,
    head: Callable[[Network], Head] | None = None,
    learning_rate: float = 1e-3,
    inner_steps: int = 1,
    batch_size: int | None = 32,
    capacity: int = REPLAYED,
    num_candidates: int | None = None,
) -> Agent:
    """Network trained by AdamW on minibatches of all observations.

    Args:
        spaces: with observation_space and action_space.
        policy: a policy of `seqdec.policies` that needs only the expected responses.
        model: as in `seqdec.agents.hilofi`.
        head: loss and belief of a network, as in `seqdec.agents.neural`; None: no uncertainty.
        learning_rate: learning rate of the optimizer.
        inner_steps: gradient steps per observation.
        batch_size: rows of a minibatch with the newest; None is the whole memory.
        capacity: rows of the reservoir, a uniform sample of all observations.
        num_candidates: points per decision, for Box actions only; None is 256.

    Raises:
        TypeError, ValueError: a space or a setting does not fit.
    """
    return _trained("replay_adamw", optax.adamw, **locals())


def replay_koala_plus_plus(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "greedy",
    model: Model | None = None,
    head: Callable[[Network], Head] | None = None,
    learning_rate: float = 0.3,
    inner_steps: int = 1,
    batch_size: int | None = 32,
    capacity: int = REPLAYED,
    num_candidates: int | None = None,
) -> Agent:
    """Network trained by KOALA++ on minibatches; arguments as in `replay_adamw`."""
    return _trained("replay_koala++", optim.koala_plus_plus, **locals())


def replay_muon(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "greedy",
    model: Model | None = None,
    head: Callable[[Network], Head] | None = None,
    learning_rate: float = 1e-3,
    inner_steps: int = 1,
    batch_size: int | None = 32,
    capacity: int = REPLAYED,
    num_candidates: int | None = None,
) -> Agent:
    """Network trained by Muon on minibatches; arguments as in `replay_adamw`."""
    return _trained("replay_muon", contrib.muon, **locals())


def replay_sgd(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "greedy",
    model: Model | None = None,
    head: Callable[[Network], Head] | None = None,
    learning_rate: float = 0.05,
    inner_steps: int = 1,
    batch_size: int | None = 32,
    capacity: int = REPLAYED,
    num_candidates: int | None = None,
) -> Agent:
    """Network trained by SGD on minibatches; arguments as in `replay_adamw`."""
    return _trained("replay_sgd", optax.sgd, **locals())


def _trained(
    name: str,
    optimizer: Callable[[float], optax.GradientTransformation],
    *,
    spaces: HasSpaces,
    learning_rate: float,
    **options: Any,
) -> Agent:
    """`options` are those of `neural`, and the `capacity` of a reservoir; without one there is no memory."""
    checks.rate("learning_rate", learning_rate)
    memory = reservoir(options.pop("capacity")) if "capacity" in options else None
    settings = {"learning_rate": learning_rate}
    return neural(spaces, optimizer=optimizer(learning_rate), memory=memory, name=name, settings=settings, **options)
