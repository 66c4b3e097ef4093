"""Raise an exception at each line of the calls of an `OnlineAgent`, and check what it leaves: nothing half-done.

    python benchmarks/online_exceptions.py

A tracer raises at the n-th line of `seqdec/online` that a call runs, for all n (`digests.py`, which changes nothing,
left out). After each, another thread must be able to decide and to learn, and the agent must agree with its log. In the
end the belief must be what the log gives when it is learned again from its beginning, to the bit.
"""

import itertools
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import seqdec
from seqdec import states
from seqdec.core import Action, Agent, HasSpaces, Spaces

SITE = Spaces(spaces.Box(-5, 5, (2,)), spaces.Discrete(3))
X = np.random.default_rng(0).normal(size=(4, 2))
_TRACED = [
    str(Path("seqdec", "online", f"{name}.py"))
    for name in (
        "agent",
        "arms",
        "calls",
        "catalog",
        "contexts",
        "items",
        "journal",
        "learner",
        "reading",
        "turns",
        "upkeep",
    )
]

Call = Callable[[], Any]


class Stop(BaseException):
    """What the tracer raises: like KeyboardInterrupt, no Exception."""


class Means(NamedTuple):
    """Rewards of each action."""

    sums: Any
    counts: Any


class Info(NamedTuple):
    """Of an update."""

    rejected: Any


def means(spaces: HasSpaces) -> Agent:
    """The action with the best mean reward; its programs compile in no time."""
    count = int(spaces.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]

    def init(key):
        return Means(jnp.zeros(count), jnp.zeros(count))

    def act(key, state, masked):
        scores = state.sums / jnp.maximum(state.counts, 1) + 0.1 * jax.random.normal(key, (count,))
        return Action(jnp.argmax(jnp.where(masked.mask, scores, -jnp.inf)), jnp.float32(1))

    def update(state, observation, action, reward):
        good = jnp.isfinite(reward)
        return Means(
            state.sums.at[action].add(jnp.where(good, reward, 0)), state.counts.at[action].add(good.astype(jnp.float32))
        ), Info(~good)

    return Agent(init, act, update, "means", True, {}, update)


def service(folder: Path | None, capacity: int) -> seqdec.OnlineAgent:
    """With a snapshot after every second batch."""
    return seqdec.OnlineAgent(means, SITE, seed=0, folder=folder, capacity=capacity, snapshot_every=2)


def _learn(one: seqdec.OnlineAgent) -> Call:
    token = one.decide(X[0]).token
    return lambda: one.learn(token, 0.5)


def _learn_many(one: seqdec.OnlineAgent) -> Call:
    pairs = [(decision.token, 0.25) for decision in one.decide_many(X)]
    return lambda: one.learn_many(pairs)


CALLS: dict[str, Callable[[seqdec.OnlineAgent], Call]] = {
    "decide": lambda one: lambda: one.decide(X[0]),
    "decide_many": lambda one: lambda: one.decide_many(X),
    "learn": _learn,
    "learn_many": _learn_many,
    "add_arm": lambda one: one.add_arm,
    "remove_arm": lambda one: (lambda arm: lambda: one.remove_arm(arm))(one.add_arm()),
    "snapshot": lambda one: one.snapshot,
}
"""(agent) -> a call with all that it needs."""


def stopped(call: Call, place: int) -> bool:
    """Whether a call was stopped at that line, because it ran so many."""
    left = place

    def tracer(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.endswith(tuple(_TRACED)):
            return None
        left -= event == "line"
        if event == "line" and not left:
            raise Stop
        return tracer

    sys.settrace(tracer)
    try:
        call()
    except Stop:
        return True
    finally:
        sys.settrace(None)
    return False


def bits(one: seqdec.OnlineAgent) -> list[bytes]:
    """Of the belief."""
    return [states.as_array("", leaf).tobytes() for leaf in jax.tree.leaves(one.state)]


def check(one: seqdec.OnlineAgent) -> None:
    """Decide and learn, and compare what the agent counts with what is in its log."""
    assert one.learn(one.decide(X[1]).token, 1.0) == "learned"
    journal = one._journal
    for count, table in ((journal.decisions, "decisions"), (journal.rewards, "rewards")):
        assert journal._db.execute(f"SELECT count(*) FROM {table}").fetchone() == (count,)
    assert one._learner.belief.batch == journal.batches
    assert (one._arms, one._learner.generation) == (journal.arms(), journal.facts()["generation"])


def sweep(folder: Path, name: str, places: Iterable[int], capacity: int) -> int:
    """Stop a call at these places, until it comes to its end, and check; returns how often it was stopped."""
    with ThreadPoolExecutor(1) as other, service(folder / "log", capacity) as one:
        count = 0
        check(one)
        for place in places:
            if not stopped(CALLS[name](one), place):
                break
            other.submit(check, one).result(timeout=60)
            count += 1
        expected = bits(one)
        shutil.copytree(folder / "log", folder / "copy", ignore=shutil.ignore_patterns("state*"))
    for kept in ("log", "copy"):
        with service(folder / kept, capacity) as again:
            assert bits(again) == expected, f"{name}: the belief is not that of the log"
    return count


def everywhere(name: str, capacity: int) -> int:
    """Stop a call at all its lines; returns how many."""
    count = 0
    with tempfile.TemporaryDirectory() as home:
        if "arm" not in name:
            return sweep(Path(home), name, itertools.count(1), capacity)
        while sweep(Path(home, str(count)), name, [count + 1], capacity):  # a new agent each: more arms take more lines
            count += 1
        return count


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as programs:
        seqdec.compilation_cache(programs)  # each agent has the same
        for each in CALLS:
            print(f"{each}: stopped at {everywhere(each, 4)} lines, all is well", flush=True)
        print(f"add_arm beyond the capacity: stopped at {everywhere('add_arm', 3)} lines, all is well")
