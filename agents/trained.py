"""The agents that are a network and its optimizer, without uncertainty, learning online or from a memory."""

from collections.abc import Callable

import optax
from optax import contrib

from seqdec import optim
from seqdec.agents._neural.loop import Head, neural
from seqdec.boundary import checks
from seqdec.core import Acquisition, Agent, HasSpaces, Network
from seqdec.memory import Memory, reservoir
from seqdec.modules import Model

REPLAYED = 40_000
"""Rows of the reservoir of the networks that learn from all that was seen."""


def adamw(
    spaces: HasSpaces,
    *,
    learning_rate: float = 1e-4,
    inner_steps: int = 5,
    head: Callable[[Network], Head] | None = None,
    policy: str | Acquisition = "epsilon_greedy",
    model: Model | None = None,
    memory: Memory | None = None,
    batch_size: int | None = 1,
    num_candidates: int | None = None,
) -> Agent:
    """Epsilon-greedy network trained by AdamW; arguments as in `seqdec.agents.neural`."""
    checks.rate("learning_rate", learning_rate)
    return neural(
        spaces, optimizer=optax.adamw(learning_rate), inner_steps=inner_steps, head=head, policy=policy, model=model,
        memory=memory, batch_size=batch_size, num_candidates=num_candidates, name="adamw",
        settings={"learning_rate": learning_rate},
    )  # fmt: skip


def muon(
    spaces: HasSpaces,
    *,
    learning_rate: float = 1e-4,
    inner_steps: int = 1,
    head: Callable[[Network], Head] | None = None,
    policy: str | Acquisition = "epsilon_greedy",
    model: Model | None = None,
    memory: Memory | None = None,
    batch_size: int | None = 1,
    num_candidates: int | None = None,
) -> Agent:
    """Epsilon-greedy network trained by Muon; arguments as in `seqdec.agents.neural`."""
    checks.rate("learning_rate", learning_rate)
    return neural(
        spaces, optimizer=contrib.muon(learning_rate), inner_steps=inner_steps, head=head, policy=policy, model=model,
        memory=memory, batch_size=batch_size, num_candidates=num_candidates, name="muon",
        settings={"learning_rate": learning_rate},
    )  # fmt: skip


def koala_plus_plus(
    spaces: HasSpaces,
    *,
    learning_rate: float = 0.3,
    inner_steps: int = 5,
    head: Callable[[Network], Head] | None = None,
    policy: str | Acquisition = "epsilon_greedy",
    model: Model | None = None,
    memory: Memory | None = None,
    batch_size: int | None = 1,
    num_candidates: int | None = None,
) -> Agent:
    """Epsilon-greedy network trained by KOALA++; arguments as in `seqdec.agents.neural`.

    Rate and steps are the best of ten settings on the digits bandit.
    """
    checks.rate("learning_rate", learning_rate)
    return neural(
        spaces, optimizer=optim.koala_plus_plus(learning_rate), inner_steps=inner_steps, head=head, policy=policy,
        model=model, memory=memory, batch_size=batch_size, num_candidates=num_candidates, name="koala++",
        settings={"learning_rate": learning_rate},
    )  # fmt: skip


def replay_adamw(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "greedy",
    learning_rate: float = 1e-3,
    batch_size: int | None = 32,
    capacity: int = REPLAYED,
    head: Callable[[Network], Head] | None = None,
    model: Model | None = None,
    inner_steps: int = 1,
    num_candidates: int | None = None,
) -> Agent:
    """Network trained by AdamW on minibatches of all that was seen.

    Args:
        spaces: anything with observation_space and action_space.
        policy: name or acquisition of `seqdec.policies`; without a head, one that needs only the expected responses.
        learning_rate: of the optimizer.
        batch_size: rows of a minibatch, the newest included; None is the whole memory.
        capacity: rows of the reservoir, a uniform sample of all observations.
        head: (network) -> loss and belief, as `seqdec.agents.laplace` makes; None is a network without uncertainty.
        model: as in `seqdec.agents.hilofi`.
        inner_steps: gradient steps per observation.
        num_candidates: points drawn per decision, for Box actions only; None is 256.

    Raises:
        TypeError, ValueError: a space or a setting does not fit.
    """
    checks.rate("learning_rate", learning_rate)
    return neural(
        spaces, optimizer=optax.adamw(learning_rate), policy=policy, memory=reservoir(capacity), head=head,
        batch_size=batch_size, model=model, inner_steps=inner_steps, num_candidates=num_candidates,
        name="replay_adamw", settings={"learning_rate": learning_rate},
    )  # fmt: skip


def replay_koala_plus_plus(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "greedy",
    learning_rate: float = 0.3,
    batch_size: int | None = 32,
    capacity: int = REPLAYED,
    head: Callable[[Network], Head] | None = None,
    model: Model | None = None,
    inner_steps: int = 1,
    num_candidates: int | None = None,
) -> Agent:
    """Network trained by KOALA++ on minibatches of all that was seen; arguments as in `replay_adamw`."""
    checks.rate("learning_rate", learning_rate)
    return neural(
        spaces, optimizer=optim.koala_plus_plus(learning_rate), policy=policy, memory=reservoir(capacity), head=head,
        batch_size=batch_size, model=model, inner_steps=inner_steps, num_candidates=num_candidates,
        name="replay_koala++", settings={"learning_rate": learning_rate},
    )  # fmt: skip


def replay_muon(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "greedy",
    learning_rate: float = 1e-3,
    batch_size: int | None = 32,
    capacity: int = REPLAYED,
    head: Callable[[Network], Head] | None = None,
    model: Model | None = None,
    inner_steps: int = 1,
    num_candidates: int | None = None,
) -> Agent:
    """Network trained by Muon on minibatches of all that was seen; arguments as in `replay_adamw`."""
    checks.rate("learning_rate", learning_rate)
    return neural(
        spaces, optimizer=contrib.muon(learning_rate), policy=policy, memory=reservoir(capacity), head=head,
        batch_size=batch_size, model=model, inner_steps=inner_steps, num_candidates=num_candidates,
        name="replay_muon", settings={"learning_rate": learning_rate},
    )  # fmt: skip


def replay_sgd(
    spaces: HasSpaces,
    *,
    policy: str | Acquisition = "greedy",
    learning_rate: float = 0.05,
    batch_size: int | None = 32,
    capacity: int = REPLAYED,
    head: Callable[[Network], Head] | None = None,
    model: Model | None = None,
    inner_steps: int = 1,
    num_candidates: int | None = None,
) -> Agent:
    """Network trained by SGD on minibatches of all that was seen; arguments as in `replay_adamw`."""
    checks.rate("learning_rate", learning_rate)
    return neural(
        spaces, optimizer=optax.sgd(learning_rate), policy=policy, memory=reservoir(capacity), head=head,
        batch_size=batch_size, model=model, inner_steps=inner_steps, num_candidates=num_candidates,
        name="replay_sgd", settings={"learning_rate": learning_rate},
    )  # fmt: skip
