"""The belief of a service, which follows its log batch by batch from the last snapshot.

A wider model learns the same log beside it, and takes over in one transaction.
"""

import math
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import unwrap
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.core import Agent
from seqdec.introspection import counted
from seqdec.ope.log import Label
from seqdec.runtime import short_turns
from seqdec.service.actions import Actions, Arms, Plan
from seqdec.service.contexts import Contexts
from seqdec.service.database import Arm, Base
from seqdec.service.identity import has_changed
from seqdec.service.model import Belief, Lessons, Maker, Model, identity_of
from seqdec.service.postgres import SharedStore
from seqdec.service.snapshots import Snapshots
from seqdec.service.store import Store, Stored, Transact
from seqdec.states import described, named_leaves, packed, unpacked

_SPARE = 0.25
"""Share of spare outputs."""
_BATCHES, _STEP = 256, 16
"""Most batches learned at once: in one call, and while other calls wait for the lock."""
_MOMENT = 0.03
"""Seconds for which others may wait."""
_FEW, _SOME = 16, 64
"""Most batches learned when a wider model takes over; batches read at once before."""
_MANY = 10_000
_MORE, _PERIOD = 1.1, 1.0
"""Rewards learned and seconds between beliefs for other processes: staleness costs at the start of a log only."""
_UUID = 16
"""Bytes of a UUID."""
Result = Literal[
    "learned", "repeated", "expired", "unknown", "rejected", "removed", "collected", "withdrawn", "activated"
]


class Learner:
    """The model that serves, with a snapshot after `every` batches.

    One thread at a time, except methods that take `transact` and run in steps. `worth`: stored reward -> number to
    learn; `facts`: what the log belongs to.
    """

    model: Model
    log: str
    """UUID of the log"""
    leads: bool
    """whether it learns; of several processes with one log all but one follow its beliefs"""

    def __init__(
        self,
        store: Store,
        actions: Actions,
        contexts: Contexts,
        maker: Maker,
        worth: Callable[[Stored], float],
        facts: Mapping[str, Any],
        snapshots: Snapshots | None,
        every: int,
    ) -> None:
        self._store, self._actions, self._contexts, self._maker = store, actions, contexts, maker
        self._worth, self._facts, self._every = worth, facts, every
        self._snapshots, self.log, self.leads, self._seen = snapshots, "", not store.is_shared, ""
        self._saved, self._due, self.is_open, self._erased = (0, 0), every, True, 0
        self._published = 0, 0.0
        """rewards learned, and time"""
        self._most = 1
        """batches of a step of `follow`"""
        self.writing, self.is_warm = threading.RLock(), threading.Event()
        self.is_warm.set()

    def begin(self, capacity: int | None) -> None:
        """Begin a log. Raises ValueError for a snapshot of another one."""
        if self._snapshots is not None:
            self._snapshots.check_none()
        agent, outputs = self._first_agent(capacity)
        arms = {key: Arm(name, key, removed=False) for key, name in enumerate(self._maker.arms)}
        self.log = uuid.uuid4().hex
        self.use(self._maker.model(outputs, 0, agent), arms, first=len(arms), log=self.log)

    def resume(self, agent: Agent, outputs: int, generation: int, *, relearn: bool) -> None:
        """Continue from the last snapshot, or relearn all.

        Raises ValueError for a snapshot of another log, and where the log begins with a belief that cannot be the
        agent's.
        """
        self.log = self._store.facts()["log"]
        self.model = self._maker.model(outputs, generation, agent)
        self._actions.restore(self._store, outputs)
        if relearn or not self._load():
            self._begin(self.model)
        if not self.leads:
            return
        self._catch_up(self.model, self._actions.lesson, shown=True)
        self._say_erased()
        self.use(self.model, self._store.arms())

    def use(self, model: Model, arms: Mapping[int, Arm], **facts: Any) -> None:
        """Commit arms and facts, then use them."""
        self._store.describe({**facts, **self._facts, **model.facts}, arms)
        self.model = model
        self._actions.restore(self._store, model.outputs)

    def recover(self) -> None:
        """Make the model consistent with the log after an exception; else one of several stops learning."""
        if self.leads:
            try:
                self._follow_facts()
                self.catch_up()
            except OSError:
                if not self._store.is_shared or self.model.is_lost:
                    raise
                self.leads = False

    def _follow_facts(self) -> None:
        facts = self._store.facts()
        self._actions.restore(self._store, facts["outputs"])
        if self.model.generation != facts["generation"]:
            self.model = self._maker.model(facts["outputs"], facts["generation"])
            self._restore()
        elif self.model.is_lost:
            self.model.forget()
            self._restore()

    def is_behind(self, batches: int = 0) -> bool:
        """Whether more than so many batches are to be learned here."""
        return self.leads and self._store.batches - self.model.belief.batch > batches

    def catch_up(self) -> list[Result]:
        """Learn the rest of the log, if it learns; returns the last batch's results."""
        return self._catch_up(self.model, self._actions.lesson) if self.leads else []

    def follow(self, transact: Transact) -> None:
        """Learn the rest of the log, in steps for which other calls wait a moment."""
        while (seconds := transact(self._step, self._most, urgent=True)) is not None:
            self._most = min(2 * self._most, _STEP) if seconds < _MOMENT else max(1, self._most // 2)

    def lead(self) -> None:
        """Begin to learn, from the last belief on."""
        self._check_own(self._store.facts())
        self._store.recover()
        self.leads = True
        self._follow_facts()

    def adopt(self, transact: Transact) -> None:
        """Use the arms, items and last belief of the process that learns, if they are new.

        Raises ChangedError where it learns another agent.
        """
        wanted = transact(self._adopted, None, urgent=True)
        if wanted is not None:
            model = self._maker.model(*wanted)
            for _ in self._actions.warm_up(model):
                pass
            transact(self._adopted, model, urgent=True)

    def _adopted(self, model: Model | None) -> tuple[int, int] | None:
        """Outputs and generation of the model that is needed; None: nothing more is to do now."""
        assert isinstance(self._store, SharedStore)
        mark = self._store.mark()
        if mark == self._seen:
            return None
        with self._store.consistent():
            facts = self._store.facts()
            self._check_own(facts)
            own = self.model if self.model.generation == facts["generation"] else model
            if own is None or own.generation != facts["generation"]:
                return facts["outputs"], facts["generation"]
            before, self.model = self.model, own
            if self._load() or own is before:
                self._actions.restore(self._store, own.outputs)
                self._seen = mark
            else:
                self.model = before  # until its first belief is there
        return None

    def _check_own(self, facts: Mapping[str, Any]) -> None:
        """Raises ChangedError where the log is another agent's by now."""
        outputs, own = facts["outputs"], self.model.facts
        own = own if outputs == self.model.outputs else identity_of(self._maker.agent(outputs))
        has_changed(self._store.path, facts, {**self._facts, **own}, relearn=False)

    def add_arm(self, transact: Transact, arms: Arms, name: Label | None) -> Label:
        """Add an arm, in steps, in one thread at a time; returns its name."""
        plan, belief = transact(self._planned, arms, name)
        if belief is None:
            return plan.name
        model = self._maker.model(plan.outputs, self.model.generation + 1)
        if plan.keeps and model.agent.widened is not None:
            model.belief = Belief(jax.jit(model.agent.widened)(belief.state), belief.batch)
        for _ in arms.warm_up(model):
            pass
        while (lessons := transact(self._ahead, model, plan, arms)) is not None:
            model.learn(lessons)
        self._say_erased()
        self.try_snapshot(transact)
        return plan.name

    def snapshot(self, transact: Transact) -> None:
        marked, agent = transact(self._marked)
        with self.writing, short_turns(): self._write(marked, agent)  # fmt: skip  # noqa: E701

    def snapshot_if_due(self, transact: Transact) -> None:
        if self.model.belief.batch >= self._due and transact(self._claim):
            self.try_snapshot(transact)

    def publish(self, transact: Transact) -> None:
        """Write a snapshot if it has learned a tenth more than the last one, or that is a second old."""
        if (self.model.generation, self.model.belief.batch) == self._saved:
            return
        learned: int = transact(lambda: self._store.rewards, urgent=True)
        if learned >= _MORE * self._published[0] or time.monotonic() >= self._published[1] + _PERIOD:
            self.snapshot(transact)
            self._published = learned, time.monotonic()

    def try_snapshot(self, transact: Transact) -> None:
        """Write a snapshot; a failed one is retried after the next rewards."""
        try:
            self.snapshot(transact)
        except OSError as error:
            self._due = 0
            warnings.warn(
                f"{error}; the log has everything, and a later call tries again", RuntimeWarning, stacklevel=5
            )

    def packed(self, transact: Transact) -> tuple[bytes, dict[str, Any], int, int]:
        """The belief as bytes, shape and dtype of its leaves, its last batch, and the outputs of its model."""
        state, batch, outputs = transact(lambda: (self.model.copied(), self.model.belief.batch, self.model.outputs))
        return packed(state), {name: described(leaf) for name, leaf in named_leaves(state)}, batch, outputs

    def finish(self) -> None:
        """Write a last snapshot; the caller holds both locks."""
        try:
            if self.leads and self._saved != (self.model.generation, self._store.batches):
                self._write(*self._marked())
        except OSError:
            if not self._store.is_shared:  # else another process learns it
                raise

    def _catch_up(self, model: Model, lesson: Callable[[Any], Any], *, shown: bool = False) -> list[Result]:
        """`shown`: with a bar, whose lock an exception in a call that answers would leave held."""
        results: list[Result] = []
        total = self._store.batches - model.belief.batch
        if total == 1:  # the usual case
            return self._learn_some(model, lesson, 1)
        with _bar(total if shown else 0) as advanced:
            while model.belief.batch < self._store.batches:
                before = model.belief.batch
                results = self._learn_some(model, lesson, _BATCHES)
                advanced(model.belief.batch - before)
        return results

    def _step(self, most: int) -> float | None:
        """Seconds in which at most `most` batches were learned; None: there are none."""
        began = time.monotonic()
        if not self.is_behind():
            return None
        self._learn_some(self.model, self._actions.lesson, most)
        return time.monotonic() - began

    def _learn_some(self, model: Model, lesson: Callable[[Any], Any], most: int) -> list[Result]:
        lessons, last = self._lessons(model, lesson, most)
        accepted = model.learn(lessons)
        of_last = iter(accepted[len(accepted) - lessons.sizes[-1] :])
        return ["removed" if not known else "learned" if next(of_last) else "rejected" for known in last]

    def _lessons(self, model: Model, lesson: Callable[[Any], Any], most: int) -> tuple[Lessons, list[bool]]:
        """At most `most` next batches, and whether each reward of the last has an output."""
        batches = self._store.batches_after(model.belief.batch, most)
        contexts, actions, rewards, chances, sizes, known = [], [], [], [], [], []
        for _, found in batches:
            known, before = [], len(actions)
            for context, action, propensity, reward in found:
                learned = None if context is None else lesson(action)
                self._erased += context is None
                known.append(learned is not None)
                if context is not None and learned is not None:
                    contexts.append(context)
                    actions.append(learned)
                    chances.append(propensity)
                    rewards.append(reward if isinstance(reward, float) else self._worth(reward))
            sizes.append(len(actions) - before)
        x = self._contexts.unpack(contexts)
        played = model.played(actions, chances)
        return Lessons(x, played, np.array(rewards, np.float32), sizes, batches[-1][0]), known

    def _say_erased(self) -> None:
        if self._erased:
            warnings.warn(
                f"{self._erased:,} rewards in {self._store.path} were not learned again, because the contexts of their "
                "decisions were erased",
                RuntimeWarning,
                stacklevel=5,
            )
        self._erased = 0

    def _planned(self, arms: Arms, name: Label | None) -> tuple[Plan, Belief | None]:
        """Another arm's output and a copy of the belief; None: it has an output already."""
        plan = arms.plan(name, can_widen=self.model.agent.widened is not None)
        if plan.outputs == self.model.outputs and plan.keeps:
            self.use(self.model, plan.arms(arms.arms))
            return plan, None
        if (base := self._store.base) and not (plan.keeps and self.model.agent.widened is not None):
            raise ValueError(f"the model has no output free for another arm, and {beginning(self._store.path, base)}")
        return plan, Belief(self.model.copied(), self.model.belief.batch)

    def _ahead(self, model: Model, plan: Plan, arms: Arms) -> Lessons | None:
        """The next batches; None once the wider model has learned the last few and taken over."""
        after = plan.arms(arms.arms)

        def lesson(action: int) -> int | None:
            return after[action].output

        if self._store.batches - model.belief.batch > _FEW:
            return self._lessons(model, lesson, _SOME)[0]
        self._catch_up(model, lesson)
        self.use(model, after)
        return None

    def _first_agent(self, capacity: int | None) -> tuple[Agent, int]:
        first = len(self._maker.arms)
        agent = self._maker.agent(first if capacity is None else capacity)
        candidates = isinstance(self._maker.spaces.observation_space, gym_spaces.Dict)
        if capacity is not None or agent.widened is not None or not first or candidates:
            return agent, first if capacity is None else capacity
        outputs = first + math.ceil(first * _SPARE)
        try:
            wide = self._maker.agent(outputs)
        except ValueError:  # such as of a network with a fixed number of outputs
            return agent, first
        fits = wide.spaces is not None and wide.spaces.action_space == gym_spaces.Discrete(outputs)
        return (wide, outputs) if fits else (agent, first)  # another may not look at the spaces

    def _restore(self) -> None:
        if not self._load():
            self._begin(self.model)

    def _begin(self, model: Model) -> None:
        """Where the log begins: with the belief of its base, if decisions before it were removed."""
        base = self._store.base
        if base is None:
            return
        agent = model.agent if base.outputs == model.outputs else self._maker.agent(base.outputs)
        like = jax.eval_shape(unwrap(agent.init), jax.random.key(0))
        if base.leaves != {name: described(leaf) for name, leaf in named_leaves(like)} or (
            agent is not model.agent and model.agent.widened is None
        ):
            raise ValueError(beginning(self._store.path, base))
        state = unpacked(self._store.database.content_of(base), like)
        if agent is not model.agent:
            assert model.agent.widened is not None
            state = jax.jit(model.agent.widened)(state)
        model.belief = Belief(state, base.batch)

    def _load(self) -> bool:
        """Whether the belief is that of the snapshot."""
        if self._snapshots is None:
            return False
        try:
            found = self._snapshots.read(self._marked()[0])
        except ValueError as error:
            warnings.warn(f"{error}; the belief is learned again from the log", RuntimeWarning, stacklevel=5)
            return False
        if found is None:
            return False
        batch, base = int(found["batch"]), self._store.base
        is_old = base is not None and batch < base.batch  # such as one from before the log was compacted
        if found["generation"] == self.model.generation:
            if batch > self._store.batches:
                raise ValueError(
                    f"{self._snapshots.path} has learned {batch} batches, of which the log has {self._store.batches}: "
                    f"restore {self._store.path} from a copy, or delete the snapshot"
                )
            size = _UUID if is_old else None
            if not np.array_equal(found["log"][:size], self._mark(batch)[:size]):
                raise ValueError(
                    f"{self._snapshots.path} is of another log than {self._store.path}: put the two of one service "
                    "together, or delete the snapshot to learn the log again"
                )
            if not is_old:
                self.model.belief = Belief(found["state"], batch)
                self._saved, self._due = (self.model.generation, batch), batch + self._every
                return True
        return False

    def _marked(self) -> tuple[dict[str, Any], Agent]:
        model = self.model
        marks = {"batch": np.int64(model.belief.batch), "generation": np.int64(model.generation)}
        marks |= {"log": self._mark(model.belief.batch)}
        state = model.belief.state if self._snapshots is None else model.copied()
        return {"state": state, **marks}, model.agent

    def _mark(self, batch: int) -> np.ndarray:
        """What the log with its first batches is known by: its UUID, and the checksum of the last reward in them."""
        return np.array([*bytes.fromhex(self.log), *self._store.checksum_of(batch).to_bytes(4)], np.uint8)

    def _write(self, marked: Mapping[str, Any], agent: Agent) -> None:
        place = int(marked["generation"]), int(marked["batch"])
        if not self.is_open or place < self._saved:
            return  # a later one has been written
        if self._snapshots is not None:
            self._snapshots.write(marked, agent)
        self._saved, self._due = place, place[1] + self._every

    def _claim(self) -> bool:
        due = self.model.belief.batch >= self._due
        if due:
            self._due = self.model.belief.batch + self._every
        return due


def beginning(path: Path, base: Base) -> str:
    """The message why a log cannot be learned from its beginning, with the remedy."""
    return (
        f"the log {path} begins with the belief of its agent after {counted(base.batch, 'update')}, because "
        "decisions before were removed, which no other agent or model can learn: make one with a folder of its own, "
        "and let it learn what is left, warm_start(seqdec.service.read_log(folder))"
    )


@contextmanager
def _bar(total: int) -> Iterator[Callable[[int], None]]:
    if total < _MANY:
        yield lambda learned: None
        return
    from seqdec.progress import advance, bar, compiling

    with bar(total, "learn the log", "batch") as shown:
        compiling(shown)
        yield lambda learned: advance(shown, learned)
