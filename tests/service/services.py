"""Services of small agents, a clock that tests turn, and threads that wait at a gate."""

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import seqdec
from seqdec.core import Action, Agent, Assessment, HasSpaces
from seqdec.service.transactions import Transactions

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / "benchmarks")]

import online_exceptions as exceptions  # noqa: E402  # pyright: ignore[reportMissingImports]

SITE, bits = exceptions.SITE, exceptions.bits
X = np.random.default_rng(0).normal(size=(80, 2))
EXPLORED = 0.3
"""Share of random actions."""


class Clock:
    """In place of the system's, in seconds."""

    def __init__(self) -> None:
        self.seconds = 1e9

    def __call__(self) -> int:
        return int(self.seconds * 1e9)


class Belief(NamedTuple):
    """Of `small`."""

    weights: Any
    counts: Any


def _assessed(mean: Any, mask: Any) -> Assessment:
    greedy = jnp.argmax(jnp.where(mask, mean, -jnp.inf)) == jnp.arange(len(mask))
    return Assessment(mean, jnp.ones(len(mask)), EXPLORED * mask / jnp.sum(mask) + (1 - EXPLORED) * greedy)


def _played(key: Any, mean: Any, mask: Any) -> Action:
    chances = _assessed(mean, mask).probability
    value = jax.random.categorical(key, jnp.log(chances))
    return Action(value, chances[value], chances)


def small(site: HasSpaces) -> Agent:
    """A linear model of each arm by gradient descent, and a random arm at times; its programs compile in no time."""
    count = int(site.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]
    space: Any = site.observation_space
    parts = space.values() if isinstance(space, spaces.Dict) else [space]
    width = sum(int(np.prod(part.shape or ())) for part in parts)

    def row(x: Any) -> Any:
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(x)])

    def update_batch(state: Belief, x: Any, actions: Any, rewards: Any) -> tuple[Any, Any]:
        rows, good = jax.vmap(row)(x), jnp.abs(rewards) < 1e9
        errors = jnp.where(good, rewards - jnp.sum(state.weights[actions] * rows, 1), 0)
        weights = state.weights.at[actions].add(0.1 * errors[:, None] * rows)
        return Belief(weights, state.counts.at[actions].add(good.astype(jnp.float32))), exceptions.Info(~good)

    def update(state: Belief, *lesson: Any) -> tuple[Any, Any]:
        state, info = update_batch(state, *jax.tree.map(lambda leaf: leaf[None], lesson))
        return state, exceptions.Info(info.rejected[0])

    return Agent(
        init=lambda key: Belief(0.1 * jax.random.normal(key, (count, width)), jnp.zeros(count)),
        act=lambda key, state, masked: _played(key, state.weights @ row(masked.observation), masked.mask),
        update=update,
        update_batch=update_batch,
        assess=lambda key, state, masked: _assessed(state.weights @ row(masked.observation), masked.mask),
        name="small",
        settings={},
    )


def shop(site: HasSpaces) -> Agent:
    """As `small`, with one model of all rows of a catalog."""
    sizes = {name: part.shape[1] for name, part in site.observation_space.items()}  # pyright: ignore

    def rows(x: Any) -> Any:
        return jnp.concatenate([x[name] for name in sorted(sizes)], axis=1)

    def update(state: Any, x: Any, action: Any, reward: Any) -> tuple[Any, Any]:
        row, good = rows(x)[action], jnp.isfinite(reward)
        return state + jnp.where(good, 0.3 * (reward - row @ state) * row, 0), exceptions.Info(~good)

    return Agent(
        init=lambda key: jnp.zeros(sum(sizes.values())),
        act=lambda key, state, masked: _played(key, rows(masked.observation) @ state, masked.mask),
        update=update,
        assess=lambda key, state, masked: _assessed(rows(masked.observation) @ state, masked.mask),
        name="shop",
        settings={},
    )


def service(folder: Path | None = None, make: Any = small, site: Any = SITE, **options: Any) -> seqdec.OnlineAgent:
    return seqdec.OnlineAgent(make, site, **{"seed": 0, "folder": folder, **options})


def copied(folder: Path, to: Path) -> Path:
    """The log as a kill would leave it now, without a snapshot."""
    return Path(shutil.copytree(folder, to, ignore=shutil.ignore_patterns("state*", ".*")))


def killed(folder: Path, to: Path) -> Path:
    """All files as a kill would leave them now."""
    return Path(shutil.copytree(folder, to))


class Gate:
    """A place where a thread waits until it is let through."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.opened.wait(60)


@contextmanager
def beside(gate: Gate, call: Callable[[], Any]) -> Iterator[Future[Any]]:
    """`call` in another thread, which has come to the gate and waits there."""
    with ThreadPoolExecutor(1) as other:
        try:
            done = other.submit(call)
            assert gate.reached.wait(60)
            yield done
        finally:
            gate.opened.set()


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """What calls return that wait for nobody."""
    with ThreadPoolExecutor(1) as other:
        return [other.submit(call).result(timeout=30) for call in calls]


def wait(patch: pytest.MonkeyPatch, name: str, gate: Callable[[], None], *, after: bool = False) -> None:
    """Let calls wait before or after a step of that name, while others may take their turn."""
    plain = Transactions.__call__

    def waiting(self: Any, function: Any, *arguments: Any, **options: Any) -> Any:
        is_step = function.__name__ == name
        if is_step and not after:
            gate()
        found = plain(self, function, *arguments, **options)
        if is_step and after:
            gate()
        return found

    patch.setattr(Transactions, "__call__", waiting)
