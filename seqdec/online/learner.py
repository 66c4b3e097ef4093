"""The agent of a service on the device: its state, and programs of fixed shapes that are compiled once."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.checks import word
from seqdec.core import Action, Agent, Masked, PyTree
from seqdec.loop._compiled import compiled
from seqdec.online import contexts
from seqdec.runtime import step_options

_DECISIONS = 128
"""Decisions of one call of the program for many."""

_LARGE = 2**18
"""Bytes of a state above which updates write into it; a smaller one is copied, and outlasts an exception in between."""


class Lesson(NamedTuple):
    """A reward to learn."""

    record: np.ndarray
    """() the context"""
    action: Any
    """output of the model, or point of a Box"""
    reward: float


class Belief(NamedTuple):
    """What a learner knows, replaced as a whole, so that an exception leaves the one before or the one after."""

    state: PyTree
    """of the agent"""
    batch: int
    """the last batch of the log that it has learned"""

    @property
    def lost(self) -> bool:
        """Whether an update that did not come to its end has used up the state, into which it writes."""
        return any(leaf.is_deleted() for leaf in jax.tree.leaves(self.state) if isinstance(leaf, jax.Array))


class Learner:
    """Belief and programs of an agent.

    Args:
        agent: to run.
        identity: JSON values that tell it from others.
        seed: of its first state and of all decisions.
        outputs: actions that the agent has; 0 for points of a Box, which have no mask.
        batch_size: rewards that one update learns.
        generation: how often the log was learned again from its beginning.
    """

    def __init__(
        self, agent: Agent, identity: Mapping[str, Any], seed: int, outputs: int, batch_size: int, generation: int
    ) -> None:
        """See the class."""
        self.agent, self.identity, self.outputs, self.generation = agent, identity, outputs, generation
        self._batch_size = batch_size
        self._seed = word(seed)
        options = step_options()

        def act(state: PyTree, seed: Any, number: Any, x: PyTree, mask: Any) -> Action:
            key = jax.random.fold_in(jax.random.key(seed), number)
            return agent.act(key, state, Masked(x, mask) if outputs else x)

        self._act = jax.jit(act, compiler_options=options)

        def act_many(state: PyTree, seed: Any, numbers: Any, x: PyTree, masks: Any) -> Action:
            keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.key(seed), number))(numbers)
            act_batch = agent.act_batch or jax.vmap(agent.act, (0, None, 0))
            return act_batch(keys, state, Masked(x, masks) if outputs else x)

        self._act_many = jax.jit(act_many, compiler_options=options)
        self._init = compiled(agent).init
        self.forget()
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(self.belief.state))
        fast = compiled(agent, in_place=size > _LARGE)
        self._update, self._update_batch = fast.update, fast.update_batch

    def forget(self) -> None:
        """Believe what the agent does before it has learned anything."""
        self.belief = Belief(self._init(jax.random.fold_in(jax.random.key(self._seed), 0)), 0)

    def decide(self, number: int, records: np.ndarray, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Actions and propensities (n,) of decisions number, number + 1, ...: contexts (n,), masks (n, outputs).

        Without `jax.tree.map`, which makes errors of its own of exceptions that a signal handler raises in it.
        """
        count = len(records)
        if count == 1:
            x = contexts.tree_of(records[0])
            action = self._act(self.belief.state, self._seed, _words(number), x, masks[0])
            return np.asarray(action.value)[None], np.asarray(action.propensity)[None]
        parts = []
        for start in range(0, count, _DECISIONS):
            numbers = _words(np.arange(number + start, number + start + _DECISIONS))
            x, mask = (_filled(rows[start : start + _DECISIONS]) for rows in (records, masks))
            parts.append(self._act_many(self.belief.state, self._seed, numbers, contexts.tree_of(x), mask))
        values, propensities = (np.concatenate(leaves)[:count] for leaves in zip(*parts, strict=True))
        return values, propensities

    def learn(self, lessons: Sequence[Lesson], batch: int) -> list[bool]:
        """Learn a batch of the log; returns for each lesson whether it was accepted.

        Several are learned together, `batch_size` at a time, where the agent can, else one after the other.
        """
        state, accepted = self._learned(self.belief.state, lessons)
        self.belief = Belief(state, batch)
        return accepted

    def warm_up(self, record: np.dtype, action: Any) -> None:
        """Compile all programs; the belief stays as it is."""
        for count in (1, 2):
            records = np.zeros(count, record)
            self.decide(0, records, np.ones((count, self.outputs), bool))
            with jax.debug_nans(False):
                lessons = [Lesson(row, action, np.nan) for row in records]
                self._learned(jax.tree.map(jnp.copy, self.belief.state), lessons)

    def _learned(self, state: PyTree, lessons: Sequence[Lesson]) -> tuple[PyTree, list[bool]]:
        """The state after the lessons, written into the one that is given, and whether each was accepted."""
        accepted = []
        if len(lessons) == 1 or self._update_batch is None:
            for record, action, reward in lessons:
                x = contexts.tree_of(record)
                state, info = self._update(state, x, _typed(action), _typed(reward))
                accepted.append(not np.any(info.rejected))
            return state, accepted
        size = self._batch_size
        for start in range(0, len(lessons), size):
            part = lessons[start : start + size]
            rows = [*part, *[part[0]._replace(reward=np.nan)] * (size - len(part))]
            records, actions, rewards = (np.stack(column) for column in zip(*rows, strict=True))
            with jax.debug_nans(False):  # of rows that fill up the batch
                x = contexts.tree_of(records)
                state, info = self._update_batch(state, x, _typed(actions), _typed(rewards))
            accepted += (~np.asarray(info.rejected))[: len(part)].tolist()
        return state, accepted


def _words(numbers: Any) -> Any:
    """Numbers of decisions as JAX folds them into a key: modulo 2^32."""
    return np.asarray(numbers).astype(np.uint32)[()]


def _typed(values: Any) -> Any:
    """Indices as int32, rewards and points as float32."""
    array = np.asarray(values)
    return array.astype(np.int32 if array.dtype.kind in "iu" else np.float32)


def _filled(rows: np.ndarray) -> np.ndarray:
    """Rows, repeated to as many as a program takes."""
    return np.resize(rows, (_DECISIONS, *rows.shape[1:]))
