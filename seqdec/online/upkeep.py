"""The belief of a service beside its log: taken up at the start, and brought to the log after any exception."""

import functools
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec import checks
from seqdec.checks import count
from seqdec.core import Agent, HasSpaces, PyTree, Spaces
from seqdec.features import Encoder
from seqdec.introspection import listed
from seqdec.online import contexts, encoders
from seqdec.online.arguments import factory
from seqdec.online.digests import digest
from seqdec.online.journal import Journal
from seqdec.online.learner import Belief, Learner, Lesson
from seqdec.online.tables import FORMAT, Arm, Reward, described_record
from seqdec.persistence import as_json, check_format, check_writable, located, locked, versions
from seqdec.runtime import check_process, is_forked
from seqdec.spaces import spaces_of
from seqdec.states import load, save

SNAPSHOT = "state.safetensors"
_DIFFERENT = ", of which the network, the policy or a function in them is another"
_BATCHES = 256
"""Batches of the log that are read and learned at once."""
_MANY = 10_000
"""Rewards whose learning at the start shows a progress bar."""

Result = Literal["learned", "repeated", "expired", "unknown", "rejected", "removed", "collected"]

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Upkeep")


def exclusive(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """For one thread at a time, and after what an exception has left undone.

    Raises ValueError once the agent is closed, RuntimeError in a forked process.
    """

    @functools.wraps(method)
    def alone(self: S, *arguments: P.args, **named: P.kwargs) -> R:
        check_process()
        # On one line: a tracer or debugger that raises at the start of a line then leaves no lock behind.
        with self._lock: return self._alone(method, *arguments, **named)  # fmt: skip  # noqa: E701

    return alone


class Upkeep:
    """An agent and its log in `folder`, or in memory for None.

    Args:
        make, spaces, seed, encoder, folder, capacity, batch_size, snapshot_every, fsync, relearn: of `OnlineAgent`.
        options: further settings that the log belongs to, as JSON values.
    """

    def __init__(
        self,
        make: str | Callable[[HasSpaces], Agent],
        spaces: HasSpaces,
        *,
        seed: int,
        encoder: Encoder | None,
        folder: str | os.PathLike[str] | None,
        capacity: int | None,
        batch_size: int,
        snapshot_every: int,
        fsync: bool,
        relearn: bool,
        options: Mapping[str, Any],
    ) -> None:
        """See the class."""
        self._make, self._spaces, self._seed = factory(make), spaces_of(spaces), checks.seed("seed", seed)
        self._batch_size, self._every = count("batch_size", batch_size), count("snapshot_every", snapshot_every)
        self._options = {"batch_size": self._batch_size, **options}
        observations, actions = self._spaces
        self._record = contexts.record_of(observations)
        self._encoder = encoders.checked(encoder, observations)
        self._lock, self._held, self._open = threading.RLock(), ExitStack(), True
        self._free = weakref.finalize(self, _close, self._held)  # of garbage, and at the end of the process
        self._settled = True
        self._folder = None if folder is None else located(folder)
        first = int(actions.n) if isinstance(actions, gym_spaces.Discrete) else 0
        outputs = first if capacity is None else count("capacity", capacity, max(first, 1))
        try:
            if self._folder is not None:
                check_writable(self._folder)
                self._held.enter_context(locked(self._folder))
            self._journal = Journal(self._folder, fsync=fsync)
            self._held.callback(self._journal.close)
            self._take_up(first, outputs, relearn)
        except BaseException:
            self._free()
            raise

    def close(self) -> None:
        """Write a snapshot and release the folder; the agent cannot be used any more.

        Does nothing in a forked process.
        """
        if is_forked():
            return
        with self._lock:
            try:
                if self._open and self._free.alive:
                    self._settle()
                    if self._saved != self._journal.batches:
                        self._write_snapshot()
            finally:
                self._open = False
                self._free()

    def _alone(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What a method returns, for the thread that has the lock."""
        if not self._open:
            raise ValueError("this agent is closed; make another one with the same folder to go on")
        self._settle()
        self._settled = False
        self._prepare()
        result = method(self, *arguments, **named)
        self._settled = True
        return result

    def _prepare(self) -> None:
        """What is done before each call."""

    def _settle(self) -> None:
        """Follow the log, where an exception at any point of an earlier call has left something undone.

        Raises RuntimeError where the log cannot be read any more.
        """
        if self._settled:
            return
        try:
            self._journal.recover()
            facts, self._arms = self._journal.facts(), self._journal.arms()
            if self._learner.generation != facts["generation"]:
                self._learner = self._made(self._agent(facts["outputs"]), facts["outputs"], facts["generation"])
                self._restore()
            elif self._learner.belief.lost:
                self._learner.forget()
                self._restore()
            self._catch_up(self._learner, self._arms)
        except ValueError as error:  # which would blame the arguments of the call
            raise RuntimeError(f"this agent cannot learn again what its log holds: {error}") from error
        self._settled = True

    def _agent(self, outputs: int) -> Agent:
        """The agent with so many outputs."""
        actions = self._spaces.action_space
        if isinstance(actions, gym_spaces.Discrete):
            actions = gym_spaces.Discrete(outputs)
        agent = self._make(Spaces(self._spaces.observation_space, actions))
        if not isinstance(agent, Agent):
            raise TypeError(f"what make returns must be a seqdec.core.Agent; got {type(agent).__name__}")
        return agent

    def _made(self, agent: Agent, outputs: int, generation: int) -> Learner:
        """The learner of an agent, before it has learned anything."""
        return Learner(agent, _identity(agent), self._seed, outputs, self._batch_size, generation)

    def _take_up(self, first: int, outputs: int, relearn: bool) -> None:
        """Go on with the folder's log, or begin one."""
        facts, self._arms, self._saved = self._journal.facts(), self._journal.arms(), 0
        self._ended = self._journal.settled()
        if not facts:
            if self._folder is not None and (self._folder / SNAPSHOT).is_file():
                raise ValueError(
                    f"{self._folder / SNAPSHOT} belongs to a log, but {self._journal.path} is empty: restore it from a "
                    "copy, or delete the snapshot to begin a new log"
                )
            learner = self._made(self._agent(outputs), outputs, 0)
            self._describe(learner, {key: Arm(key, removed=False) for key in range(first)}, first=first)
            return
        check_format(self._journal.path, facts, FORMAT)
        if other := encoders.difference(facts.get("encoder"), encoders.described(self._encoder)):
            raise ValueError(
                f"{self._journal.path} was written {other}, and its contexts cannot be encoded anew: use the encoder "
                "of the log, seqdec.online.read_encoder(folder), or another folder"
            )
        own = {"seed": self._seed, "first": first, "record": described_record(self._record)}
        for name, value in own.items():
            if facts[name] != value:
                raise ValueError(f"{self._journal.path} belongs to an agent whose {name} is {facts[name]}, not {value}")
        agent = self._agent(facts["outputs"])
        told = {**_identity(agent), **self._options}
        changed = [name for name, value in told.items() if facts[name] != value]
        if changed == ["digest"] and facts["versions"] != as_json(versions()):
            changed = []  # other versions of the libraries may build the same agent of other functions
        if changed and not relearn:
            options = [name for name in self._options if name in changed]
            if options == changed:
                before, here = (listed({name: found[name] for name in options}) for found in (facts, told))
            else:
                before, here = (f"{found['agent']} {found['settings']}" for found in (facts, told))
            raise ValueError(
                f"{self._journal.path} was written with {before}, not {here}"
                f"{_DIFFERENT if changed == ['digest'] else ''}: make that agent, or pass relearn=True to learn the "
                "log again with this one"
            )
        wider = outputs > facts["outputs"]
        outputs = max(outputs, facts["outputs"])
        generation = facts["generation"] + bool(changed or wider)
        self._learner = self._made(self._agent(outputs) if wider else agent, outputs, generation)
        if not (changed or wider):
            self._restore()
        self._catch_up(self._learner, self._arms)
        self._describe(self._learner, self._arms)

    def _restore(self) -> None:
        """Load the snapshot, if there is one of this log and this generation of outputs."""
        if self._folder is None or not (self._folder / SNAPSHOT).is_file():
            return
        try:
            found = load(self._folder / SNAPSHOT, self._marked())
        except ValueError as error:
            warnings.warn(f"{error}; the belief is learned again from the log", RuntimeWarning, stacklevel=5)
            return
        if found["generation"] == self._learner.generation:
            if found["batch"] > self._journal.batches:
                raise ValueError(
                    f"{self._folder / SNAPSHOT} has learned {found['batch']} batches, of which the log has "
                    f"{self._journal.batches}: restore {self._journal.path} from a copy, or delete the snapshot"
                )
            self._learner.belief, self._saved = Belief(found["state"], int(found["batch"])), int(found["batch"])

    def _marked(self) -> PyTree:
        """What a snapshot holds."""
        learner = self._learner
        numbers = {"batch": learner.belief.batch, "generation": learner.generation}
        return {"state": learner.belief.state} | {name: np.int64(number) for name, number in numbers.items()}

    def _describe(self, learner: Learner, arms: Mapping[int, Arm], **facts: Any) -> None:
        """Write the arms, and what the log belongs to; then use them."""
        facts |= {"format": FORMAT, "versions": versions(), "seed": self._seed, "generation": learner.generation}
        facts |= {**learner.identity, **self._options}
        facts |= {"outputs": learner.outputs, "record": described_record(self._record)}
        facts |= {"encoder": encoders.described(self._encoder)}
        self._journal.describe(facts, arms)
        self._learner, self._arms = learner, dict(arms)

    def _catch_up(self, learner: Learner, arms: Mapping[int, Arm]) -> list[Result]:
        """Learn all batches of the log after those that are learned; returns what became of the last one's rewards."""
        from seqdec.progress import advance, bar, compiling

        results: list[Result] = []
        total = self._journal.batches - learner.belief.batch
        if not total:
            return results
        with bar(total, "learn the log", "batch", show=False if total < _MANY else None) as shown:
            compiling(shown)
            while learner.belief.batch < self._journal.batches:
                before = learner.belief.batch
                results = self._learn_some(learner, arms)
                advance(shown, learner.belief.batch - before)
        return results

    def _learn_some(self, learner: Learner, arms: Mapping[int, Arm]) -> list[Result]:
        """Learn the next batches of the log; returns what became of the last one's rewards."""
        found = self._journal.batches_after(learner.belief.batch, _BATCHES)
        lessons = [(number, [self._lesson(reward, arms) for reward in rewards]) for number, rewards in found]
        known = [(number, [lesson for lesson in each if lesson is not None]) for number, each in lessons]
        accepted = learner.learn(known)
        last = lessons[-1][1]
        count = len(known[-1][1])
        left = iter(accepted[len(accepted) - count :])
        return ["removed" if lesson is None else "learned" if next(left) else "rejected" for lesson in last]

    def _lesson(self, reward: Reward, arms: Mapping[int, Arm]) -> Lesson | None:
        """A reward for the present outputs; None where its arm has none any more."""
        record = contexts.unpacked(reward.context, self._record, 1)[0]
        if isinstance(reward.action, bytes):
            shape = self._spaces.action_space.shape or ()
            return Lesson(record, np.frombuffer(reward.action, np.float32).reshape(shape), reward.reward)
        output = arms[reward.action].output
        return None if output is None else Lesson(record, output, reward.reward)

    def _write_snapshot(self) -> None:
        if self._folder is not None:
            self._journal.flush()  # a snapshot must not outlast what it has learned
            save(self._folder / SNAPSHOT, self._marked(), self._learner.agent)
        self._saved = self._learner.belief.batch

    def _snapshot_if_due(self) -> None:
        if self._learner.belief.batch - self._saved >= self._every:
            self._try_snapshot()

    def _try_snapshot(self) -> None:
        """One that cannot be written is tried again after the next rewards: the log has all that it would hold."""
        try:
            self._write_snapshot()
        except OSError as error:
            warnings.warn(
                f"{error}; the log has everything, and a later call tries again", RuntimeWarning, stacklevel=6
            )


def _identity(agent: Agent) -> dict[str, Any]:
    """What tells an agent from others that would learn something else from the same log."""
    return {"agent": agent.name, "settings": as_json(dict(agent.settings)), "digest": digest(agent)}


def _close(held: ExitStack) -> None:
    """Close the log and unlock the folder; a forked process has copies of both, which are its parent's."""
    if not is_forked():
        held.close()
