"""Raise an exception at each line of the calls of an `OnlineAgent`, and check what it leaves: nothing half-done.

    python benchmarks/online_exceptions.py
    python benchmarks/online_exceptions.py add_items learn_named

A tracer raises at the n-th line of `seqdec/service` that a call runs, for all n (`identity.py`, which changes nothing,
left out). After each, another thread must be able to decide and to learn, and the agent must agree with its log. In the
end the belief must be what the log gives when it is learned again from its beginning, to the bit.
"""

import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import seqdec
from seqdec import states
from seqdec.core import Action, Agent, HasSpaces, Spaces
from seqdec.ope import make_log
from seqdec.service import Catalog, store
from seqdec.service.database import lowest_of
from seqdec.service.items import Inventory

SITE = Spaces(spaces.Box(-5, 5, (2,)), spaces.Discrete(3))
X = np.random.default_rng(0).normal(size=(4, 2))
_TRACED = [
    str(Path("seqdec", "service", f"{name}.py"))
    for name in (
        "actions",
        "contexts",
        "facade",
        "items",
        "learner",
        "model",
        "logs",
        "retention",
        "rewards",
        "store",
        "transactions",
    )
]

Call = Callable[[], Any]
AFTER = 0.02
_WEIGHTS = {"click": 1.0, "revenue": 0.1}
REWARDS: dict[str, dict[str, Any]] = {
    "arms": {},
    "named": {"reward_weights": _WEIGHTS},
    "collected": {"reward_weights": _WEIGHTS, "reward_after": AFTER, "reward_default": {"click": 0.0, "revenue": 0.0}},
}
"""Options of agents, by kind."""


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

    return Agent(init, act, update, "means", {}, update)


def rows(spaces: HasSpaces) -> Agent:
    """The candidate with the largest product of its numbers and a vector that rewards move."""
    count = int(spaces.action_space.n)  # pyright: ignore[reportAttributeAccessIssue]

    def act(key, state, masked):
        scores = masked.observation["item"] @ state + 0.1 * jax.random.normal(key, (count,))
        return Action(jnp.argmax(jnp.where(masked.mask, scores, -jnp.inf)), jnp.float32(1))

    def update(state, observation, action, reward):
        good = jnp.isfinite(reward)
        return state + jnp.where(good, reward, 0) * observation["item"][action], Info(~good)

    return Agent(lambda key: jnp.zeros(2), act, update, "rows", {})


def service(folder: Path | None, capacity: int, kind: str = "arms") -> seqdec.OnlineAgent:
    """With a snapshot after every second batch."""
    options: dict[str, Any] = {"seed": 0, "folder": folder, "snapshot_every": 2}
    if kind == "catalog":
        return seqdec.OnlineAgent(rows, Catalog(spaces.Box(-5, 5, (2,))), **options)
    return seqdec.OnlineAgent(means, SITE, capacity=capacity, **options, **REWARDS[kind])


def kind_of(name: str) -> str:
    """Of the agent that a call needs: one of arms, of a catalog, or one whose rewards have names."""
    if "item" in name or "slate" in name:
        return "catalog"
    return next((kind for kind in REWARDS if kind in name), "arms")


def _learn(one: seqdec.OnlineAgent) -> Call:
    token = one.decide(X[0]).token
    return lambda: one.learn(token, 0.5)


def _learn_many(one: seqdec.OnlineAgent) -> Call:
    pairs = [(decision.token, 0.25) for decision in one.decide_many(X)]
    return lambda: one.learn_many(pairs)


def _learn_named(one: seqdec.OnlineAgent) -> Call:
    token = one.decide(X[0]).token
    return lambda: one.learn(token, {"click": 1.0, "revenue": 2.5})


def _learn_collected(one: seqdec.OnlineAgent) -> Call:
    pairs = [(decision.token, {"click": 1.0}) for decision in one.decide_many(X)]
    return lambda: one.learn_many(pairs)


def _settle_collected(one: seqdec.OnlineAgent) -> Call:
    first, *_ = one.decide_many(X)
    one.learn(first.token, {"revenue": 2.5})
    time.sleep(2 * AFTER)
    return lambda: one.counts


def _warm_start(one: seqdec.OnlineAgent, items: Sequence[str] = ()) -> Call:
    """Of three rows that no call before had."""
    rewards = [one.counts["decisions"] + part for part in (0.0, 0.5, 0.25)]
    given: Any = {"action_names": items} if items else {"context": X[:3], "num_actions": 2}
    log = make_log(action=[0, 1, 0], reward=rewards, propensity=[0.5] * 3, **given)
    return lambda: one.warm_start(log)


def _compact(one: seqdec.OnlineAgent) -> Call:
    one.learn_many([(decision.token, 0.25) for decision in one.decide_many(X)])
    time.sleep(AFTER)
    return lambda: one.compact(AFTER)


def _stocked(one: seqdec.OnlineAgent) -> None:
    """Add three items, unless they are there."""
    if "spare" not in one.items:
        one.add_items({"first": [1.0, 0.0], "second": [0.0, 1.0], "spare": [0.5, 0.5]})


def _with_items(call: Callable[[seqdec.OnlineAgent], Any]) -> Callable[[seqdec.OnlineAgent], Call]:
    def made(one: seqdec.OnlineAgent) -> Call:
        _stocked(one)
        return lambda: call(one)

    return made


CALLS: dict[str, Callable[[seqdec.OnlineAgent], Call]] = {
    "decide": lambda one: lambda: one.decide(X[0]),
    "decide_many": lambda one: lambda: one.decide_many(X),
    "learn": _learn,
    "learn_many": _learn_many,
    "add_arm": lambda one: one.add_arm,
    "remove_arm": lambda one: (lambda arm: lambda: one.remove_arm(arm))(one.add_arm()),
    "snapshot": lambda one: one.snapshot,
    "compact": _compact,
    "warm_start": _warm_start,
    "warm_start of items": _with_items(lambda one: _warm_start(one, ("first", "spare"))()),
    "decide of items": _with_items(lambda one: one.decide(items=["first", "spare"])),
    "decide_many of items": _with_items(lambda one: one.decide_many(np.zeros((3, 0)), items=[["first"], None, None])),
    "decide_slate": _with_items(lambda one: one.decide_slate(2)),
    "add_items": _with_items(lambda one: one.add_items({"spare": [1.0, 2.0], "second": [2.0, 1.0]})),
    "remove_items": _with_items(lambda one: one.remove_items(["spare", "second"])),
    "learn_named": _learn_named,
    "learn_many_collected": _learn_collected,
    "settle_collected": _settle_collected,
    "activate": lambda one: (lambda token: lambda: one.activate(token))(one.decide(X[0], active=False).token),
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


def check(one: seqdec.OnlineAgent, kind: str = "arms") -> None:
    """Decide and learn, and compare what the agent counts with what is in its log."""
    if kind == "catalog":
        _stocked(one)
    token = one.decide(None if kind == "catalog" else X[1]).token
    result = one.learn(token, {"click": 0.0, "revenue": 1.0} if kind in ("named", "collected") else 1.0)
    assert result in (("collected", "expired") if kind == "collected" else ("learned",))
    log = one._store
    database = log.database
    if kind == "catalog":
        inventory, kept = one._actions.inventory, Inventory.read(database.items(), one._actions._contexts.record)
        assert inventory.ids == kept.ids and inventory.numbers == kept.numbers
        assert inventory.features.tobytes() == kept.features.tobytes()
    else:
        assert one._actions.arms == log.arms()
    if log.base is not None:
        database.check()
    for count, table in ((log.decisions, "decisions"), (log.rewards, "rewards")) if log.base is None else ():
        counted = f"SELECT count(*) FROM {table} WHERE number >= ?"  # below are rows of a log that is half written
        assert database.execute(counted, (lowest_of(database.inserted()),)) == [(count,)]
    assert one._learner.model.belief.batch == log.batches
    assert one._learner.model.generation == log.facts()["generation"]


def sweep(folder: Path, name: str, places: Iterable[int], capacity: int) -> int:
    """Stop a call at these places, until it comes to its end, and check; returns how often it was stopped."""
    kind = kind_of(name)
    with (
        mock.patch.object(store, "_PORTION", 1),
        ThreadPoolExecutor(1) as other,
        service(folder / "log", capacity, kind) as one,
    ):
        count = 0
        check(one, kind)
        for place in places:
            if not stopped(CALLS[name](one), place):
                break
            other.submit(check, one, kind).result(timeout=60)
            count += 1
        if kind == "collected":
            time.sleep(2 * AFTER)  # so that nothing becomes due later
        expected = bits(one)
        shutil.copytree(folder / "log", folder / "copy", ignore=shutil.ignore_patterns("state*"))
    for kept in ("log", "copy"):
        with service(folder / kept, capacity, kind) as again:
            assert bits(again) == expected, f"{name}: the belief is not that of the log"
    return count


def everywhere(name: str, capacity: int) -> int:
    """Stop a call at all its lines; returns how many."""
    count = 0
    with tempfile.TemporaryDirectory() as home:
        if "arm" not in name and name not in ("add_items", "remove_items"):
            return sweep(Path(home), name, itertools.count(1), capacity)
        while sweep(
            Path(home, str(count)), name, [count + 1], capacity
        ):  # a new agent each: more arms or items take more lines
            count += 1
        return count


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as programs:
        seqdec.compilation_cache(programs)  # each agent has the same
        for each in sys.argv[1:] or CALLS:
            print(f"{each}: stopped at {everywhere(each, 4)} lines, all is well", flush=True)
        if not sys.argv[1:]:
            print(f"add_arm beyond the capacity: stopped at {everywhere('add_arm', 3)} lines, all is well")
