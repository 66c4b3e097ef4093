"""The belief of a service beside its log: taken up at the start, and brought to the log after any exception."""

import math
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec import checks
from seqdec.checks import count
from seqdec.core import Agent, HasSpaces, Spaces
from seqdec.features import Encoder
from seqdec.introspection import listed
from seqdec.online import contexts, encoders
from seqdec.online.arguments import factory
from seqdec.online.catalog import ROWS, Catalog, read_shelf
from seqdec.online.digests import digest
from seqdec.online.journal import Journal
from seqdec.online.learner import Belief, Learner, Lesson
from seqdec.online.reading import Copy, Reader
from seqdec.online.rewards import Rule, worth
from seqdec.online.tables import FORMAT, Arm, Reward, described_record
from seqdec.online.turns import exclusive, urgent
from seqdec.persistence import as_json, check_folder_name, check_format, check_writable, located, locked, versions
from seqdec.runtime import is_forked, short_turns
from seqdec.spaces import spaces_of
from seqdec.states import load, save

SNAPSHOT = "state.safetensors"
_DIFFERENT = ", of which the network, the policy or a function in them is another"
_NAMED = {
    "first": "number of arms in the action space (0: a Box, or a catalog)",
    "record": "record of a context (name, type, shape)",
}
"""What facts are called in errors, where that is not their name."""
_SPARE = 0.25
"""Share of outputs for arms to come."""
_BATCHES, _STEP = 256, 16
"""Batches of the log that are read and learned at once; those that are while other calls wait."""
_MANY = 10_000
"""Rewards whose learning at the start shows a progress bar."""
_PATIENCE = 10.0
"""Seconds for which the end of the process waits for a call of another thread."""

Result = Literal["learned", "repeated", "expired", "unknown", "rejected", "removed", "collected"]


class Upkeep:
    """An agent and its log in `folder`, or in memory for None.

    Args:
        make, spaces, seed, encoder, folder, capacity, batch_size, snapshot_every, fsync, relearn: of `OnlineAgent`.
        rule: of rewards.
    """

    def __init__(
        self,
        make: str | Callable[[HasSpaces], Agent],
        spaces: HasSpaces | Catalog,
        *,
        seed: int,
        encoder: Encoder | None,
        folder: str | os.PathLike[str] | None,
        capacity: int | None,
        batch_size: int,
        snapshot_every: int,
        fsync: bool,
        relearn: bool,
        rule: Rule,
    ) -> None:
        """See the class."""
        self._catalog = spaces if isinstance(spaces, Catalog) else None
        self._make, self._seed = factory(make), checks.seed("seed", seed)
        self._spaces = spaces.spaces(ROWS) if isinstance(spaces, Catalog) else spaces_of(spaces)
        self._batch_size, self._every = count("batch_size", batch_size), count("snapshot_every", snapshot_every)
        self._rule, self._options = rule, {"batch_size": self._batch_size, **rule.options()}
        observations, actions = self._spaces
        self._record = contexts.record_of(observations)
        self._encoder = encoders.checked(encoder, observations, self._catalog)
        self._encoding = encoders.described(encoder if self._catalog is None else self._catalog.encoders)
        # For what takes long, what is shared, and the file of the snapshot; several are taken in this order.
        self._growing, self._lock, self._writing = threading.RLock(), threading.RLock(), threading.RLock()
        self._held, self._open, self._versions = ExitStack(), True, versions()
        self._free = weakref.finalize(self, _end, self._lock, self._held)  # of garbage, and at the end of the process
        self._settled, self._due, self._saved = True, self._every, (0, 0)
        self._folder = None if folder is None else located(folder)
        self._first = int(actions.n) if isinstance(actions, gym_spaces.Discrete) and self._catalog is None else 0
        if self._catalog is not None and capacity is not None:
            raise ValueError(f"capacity={capacity} is of arms; a catalog has room for all items: leave it out")
        outputs = None if capacity is None else count("capacity", capacity, max(self._first, 1))
        try:
            if self._folder is not None:
                check_folder_name(self._folder)
                check_writable(self._folder)
                self._held.enter_context(locked(self._folder))
            self._journal = Journal(self._folder, fsync=fsync)
            self._held.callback(self._journal.close)
            self._take_up(outputs, relearn)
        except BaseException:
            self._free.detach()
            _close(self._held)
            raise

    def close(self) -> None:
        """Write a snapshot and release the folder; the agent cannot be used any more.

        Does nothing in a forked process.
        """
        if is_forked():
            return
        with self._lock, self._writing: self._closed()  # fmt: skip  # noqa: E701

    def _closed(self) -> None:
        try:
            if self._open and self._free.alive:
                self._settle()
                if self._saved != (self._learner.generation, self._journal.batches):
                    self._write_snapshot()
        finally:
            self._open = False
            self._free.detach()
            _close(self._held)

    def _alone(self, in_haste: bool, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """What a method returns, for the thread that has the lock."""
        if not self._open:
            raise RuntimeError("this agent is closed; make another one with the same folder to go on")
        self._settle()
        self._settled = False
        self._prepare(in_haste)
        result = method(self, *arguments, **named)
        self._settled = True
        return result

    def _ease(self) -> None:
        """Do what is due, in steps between which other calls go on."""
        self._follow(_STEP)

    def _prepare(self, in_haste: bool) -> None:
        """Do what is due before a call; only a little of it in haste."""

    def _settle(self) -> None:
        """Follow the log, where an exception at any point of an earlier call has left something undone.

        Raises RuntimeError where the log cannot be read any more.
        """
        if self._settled:
            return
        try:
            self._journal.recover()
            facts, self._arms = self._journal.facts(), self._journal.arms()
            self._shelf = read_shelf(self._journal.items(), self._record)
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
        if isinstance(actions, gym_spaces.Discrete) and self._catalog is None:
            actions = gym_spaces.Discrete(outputs)
        agent = self._make(Spaces(self._spaces.observation_space, actions))
        if not isinstance(agent, Agent):
            raise TypeError(f"what make returns must be a seqdec.core.Agent; got {type(agent).__name__}")
        return agent

    def _first_agent(self, outputs: int | None) -> tuple[Agent, int]:
        """The agent of a new log with so many outputs, and their number; None: with some to spare, if that pays."""
        agent = self._agent(self._first if outputs is None else outputs)
        if outputs is not None or agent.widened is not None or not self._first or self._has_candidates():
            return agent, self._first if outputs is None else outputs
        outputs = self._first + math.ceil(self._first * _SPARE)
        try:
            wide = self._agent(outputs)
        except ValueError:  # such as of a network with a fixed number of outputs
            return agent, self._first
        fits = wide.spaces is not None and wide.spaces.action_space == gym_spaces.Discrete(outputs)
        return (wide, outputs) if fits else (agent, self._first)  # another may not look at the spaces

    def _has_candidates(self) -> bool:
        return isinstance(self._spaces.observation_space, gym_spaces.Dict)

    def _made(self, agent: Agent, outputs: int, generation: int) -> Learner:
        """The learner of an agent, before it has learned anything."""
        return Learner(agent, _identity(agent), self._seed, outputs, self._batch_size, generation)

    def _take_up(self, outputs: int | None, relearn: bool) -> None:
        """Go on with the folder's log, or begin one."""
        facts, self._arms = self._journal.facts(), self._journal.arms()
        self._shelf = read_shelf(self._journal.items(), self._record)
        self._ended = self._journal.settled()
        if not facts:
            if self._folder is not None and (self._folder / SNAPSHOT).is_file():
                raise ValueError(
                    f"{self._folder / SNAPSHOT} belongs to a log, but {self._journal.path} is empty: restore it from a "
                    "copy, or delete the snapshot to begin a new log"
                )
            agent, outputs = self._first_agent(outputs)
            arms = {key: Arm(key, removed=False) for key in range(self._first)}
            self._describe(self._made(agent, outputs, 0), arms, first=self._first)
            return
        check_format(self._journal.path, facts, FORMAT)
        if other := encoders.difference(facts.get("encoder"), self._encoding):
            raise ValueError(
                f"{self._journal.path} was written {other}, and its contexts cannot be encoded anew: use the encoder "
                "of the log, seqdec.online.read_encoder(folder), or another folder"
            )
        own = {"seed": self._seed, "first": self._first, "record": described_record(self._record)}
        for name, value in (own | {"reward_names": self._rule.names}).items():
            if (found := facts.get(name)) != value:
                remedy = (
                    ": make it with as many, and let add_arm() add others"
                    if name == "first" and found and value
                    else ""
                )
                raise ValueError(
                    f"{self._journal.path} belongs to an agent whose {_NAMED.get(name, name)} is {found}, not "
                    f"{value}{remedy}"
                )
        agent = self._agent(facts["outputs"])
        told = {**_identity(agent), **self._options}
        changed = [name for name, value in told.items() if facts.get(name) != value]
        if changed == ["digest"] and facts["versions"] != as_json(self._versions):
            changed = []  # other versions of the libraries may build the same agent of other functions
        if changed and not relearn:
            options = [name for name in self._options if name in changed]
            own = [name for name in changed if name not in options]
            before, here = (
                [f"{found['agent']} {found['settings']}"] * bool(own)
                + [listed({name: found.get(name) for name in options})] * bool(options)
                for found in (facts, told)
            )
            if own == ["digest"]:
                here[0] += _DIFFERENT
            raise ValueError(
                f"{self._journal.path} was written with {' and '.join(before)}, not {' and '.join(here)}: make that "
                "agent, or pass relearn=True to learn the log again with this one"
            )
        wider = outputs is not None and outputs > facts["outputs"]
        outputs = max(outputs or 0, facts["outputs"])
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
            self._learner.belief = Belief(found["state"], int(found["batch"]))
            self._saved = self._learner.generation, self._learner.belief.batch
            self._due = self._learner.belief.batch + self._every

    def _marked(self) -> dict[str, Any]:
        """What a snapshot holds."""
        learner = self._learner
        numbers = {"batch": learner.belief.batch, "generation": learner.generation}
        return {"state": learner.belief.state} | {name: np.int64(number) for name, number in numbers.items()}

    def _reader(self) -> Reader:
        """Of the log as it is, for this thread, apart from what others do."""
        self._journal.check_place()
        content = self._content()
        return Reader(self._journal.path) if content is None else Copy(content)

    @exclusive
    def _content(self) -> bytes | None:
        """Of a log in memory."""
        return self._journal.serialized() if self._folder is None else None

    @exclusive
    def _kept(self) -> tuple[dict[str, Any], Agent]:
        """What a snapshot holds, out of reach of later updates, and the agent."""
        return self._marked() | {"state": self._learner.copied()}, self._learner.agent

    def _describe(self, learner: Learner, arms: Mapping[int, Arm], **facts: Any) -> None:
        """Write the arms, and what the log belongs to; then use them."""
        facts |= {"format": FORMAT, "versions": self._versions, "seed": self._seed, "generation": learner.generation}
        facts |= {**learner.identity, **self._options}
        facts |= {"outputs": learner.outputs, "record": described_record(self._record)}
        facts |= {"encoder": self._encoding, "reward_names": self._rule.names}
        self._journal.describe(facts, arms)
        self._learner, self._arms = learner, dict(arms)

    def _catch_up(self, learner: Learner, arms: Mapping[int, Arm]) -> list[Result]:
        """Learn all batches of the log after those that are learned; returns what became of the last one's rewards."""
        results: list[Result] = []
        total = self._journal.batches - learner.belief.batch
        if not total:
            return results
        with _bar(total) as advanced:
            while learner.belief.batch < self._journal.batches:
                before = learner.belief.batch
                results = self._learn_some(learner, arms, _BATCHES)
                advanced(learner.belief.batch - before)
        return results

    def _follow(self, left: int = 0) -> None:
        """Learn what the log has, if more than `left` batches, in steps between which other calls go on."""
        total = self._journal.batches - self._learner.belief.batch
        if total <= left:
            return
        with _bar(total) as advanced:
            while learned := self._step():
                advanced(learned)

    @urgent
    def _step(self) -> int:
        """Learn the next few batches; returns how many."""
        before = self._learner.belief.batch
        if before < self._journal.batches:
            self._learn_some(self._learner, self._arms, _STEP)
        return self._learner.belief.batch - before

    def _learn_some(self, learner: Learner, arms: Mapping[int, Arm], most: int) -> list[Result]:
        """Learn the next batches of the log, at most so many; returns what became of the last one's rewards."""
        lessons = self._lessons(learner, arms, most)
        accepted, last = learner.learn(lessons), lessons[-1][1]
        found = zip(last, accepted[len(accepted) - len(last) :], strict=True)
        return ["removed" if lesson is None else "learned" if good else "rejected" for lesson, good in found]

    def _lessons(self, learner: Learner, arms: Mapping[int, Arm], most: int) -> list[tuple[int, list[Lesson | None]]]:
        """The next batches of the log that the learner has to learn, at most so many."""
        found = self._journal.batches_after(learner.belief.batch, most)
        return [(number, [self._lesson(reward, arms) for reward in rewards]) for number, rewards in found]

    def _lesson(self, reward: Reward, arms: Mapping[int, Arm]) -> Lesson | None:
        """A reward for the present outputs; None where its arm has none any more."""
        record, told = contexts.unpacked([reward.context], self._record)[0], worth(reward.reward, self._rule.weights)
        if isinstance(reward.action, bytes):
            shape = self._spaces.action_space.shape or ()
            return Lesson(record, np.frombuffer(reward.action, np.float32).reshape(shape), told)
        output = 0 if self._catalog is not None else arms[reward.action].output
        return None if output is None else Lesson(record, output, told)

    def _write_snapshot(self) -> None:
        """Write the state, while other threads go on with what they do."""
        marked, agent = self._kept()
        with self._writing, short_turns(): self._written(marked, agent)  # fmt: skip  # noqa: E701

    def _written(self, marked: Mapping[str, Any], agent: Agent) -> None:
        place = int(marked["generation"]), int(marked["batch"])
        if not self._open or place < self._saved:
            return  # a later one has been written
        if self._folder is not None:
            self._journal.check_place()
            self._journal.flush()  # a snapshot must not outlast what it has learned
            save(self._folder / SNAPSHOT, marked, agent)
        self._saved, self._due = place, place[1] + self._every

    def _snapshot_if_due(self) -> None:
        """Write one in this thread, unless another thread does."""
        if self._learner.belief.batch >= self._due and self._is_mine():
            self._try_snapshot()

    @exclusive
    def _is_mine(self) -> bool:
        """Whether a snapshot is due, which is then for this thread to write."""
        due = self._learner.belief.batch >= self._due
        if due:
            self._due = self._learner.belief.batch + self._every
        return due

    def _try_snapshot(self) -> None:
        """One that cannot be written is tried again after the next rewards: the log has all that it would hold."""
        try:
            self._write_snapshot()
        except OSError as error:
            self._due = 0
            warnings.warn(
                f"{error}; the log has everything, and a later call tries again", RuntimeWarning, stacklevel=6
            )


def _identity(agent: Agent) -> dict[str, Any]:
    """What tells an agent from others that would learn something else from the same log."""
    return {"agent": agent.name, "settings": as_json(dict(agent.settings)), "digest": digest(agent)}


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    """A function that is told how many more batches are learned, and shows it where they are many."""
    from seqdec.progress import advance, bar, compiling

    with bar(total, "learn the log", "batch", show=False if total < _MANY else None) as shown:
        compiling(shown)
        yield lambda learned: advance(shown, learned)


def _end(lock: Any, held: ExitStack) -> None:
    """As `_close` where nothing closed the agent, after the call of another thread; no call begins then.

    SQLite and JAX crash in a thread that uses them while the process ends. A call that takes longer keeps what it uses.
    """
    if not is_forked() and lock.acquire(timeout=_PATIENCE):  # for ever
        held.close()


def _close(held: ExitStack) -> None:
    """Close the log and unlock the folder; a forked process has copies of both, which are its parent's."""
    if not is_forked():
        held.close()
