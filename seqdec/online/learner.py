"""The agent of a service on the device: its state, and programs of fixed shapes that are compiled once."""

from collections.abc import Sequence
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


class Lesson(NamedTuple):
    """A reward to learn."""

    record: np.ndarray
    """() the context"""
    action: Any
    """output of the model, or point of a Box"""
    reward: float


class Learner:
    """State and programs of an agent.

    Args:
        agent: to run.
        seed: of its first state and of all decisions.
        outputs: actions that the agent has; 0 for points of a Box, which have no mask.
        batch_size: rewards that one update learns.
    """

    def __init__(self, agent: Agent, seed: int, outputs: int, batch_size: int) -> None:
        """See the class."""
        self.agent, self.outputs, self._batch_size = agent, outputs, batch_size
        self._seed = word(seed)
        fast, options = compiled(agent, in_place=True), step_options()

        def act(state: PyTree, seed: Any, number: Any, x: PyTree, mask: Any) -> Action:
            key = jax.random.fold_in(jax.random.key(seed), number)
            return agent.act(key, state, Masked(x, mask) if outputs else x)

        self._act = jax.jit(act, compiler_options=options)

        def act_many(state: PyTree, seed: Any, numbers: Any, x: PyTree, masks: Any) -> Action:
            keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.key(seed), number))(numbers)
            act_batch = agent.act_batch or jax.vmap(agent.act, (0, None, 0))
            return act_batch(keys, state, Masked(x, masks) if outputs else x)

        self._act_many = jax.jit(act_many, compiler_options=options)
        self._update, self._update_batch = fast.update, fast.update_batch
        self.state = fast.init(jax.random.fold_in(jax.random.key(self._seed), 0))

    def decide(self, number: int, records: np.ndarray, masks: np.ndarray) -> Action:
        """Actions and propensities (n,) of decisions number, number + 1, ...: contexts (n,), masks (n, outputs)."""
        count = len(records)
        if count == 1:
            x = contexts.tree_of(records[0])
            action = self._act(self.state, self._seed, np.uint32(number), x, masks[0])
            return jax.tree.map(lambda leaf: np.asarray(leaf)[None], action)
        parts = []
        for start in range(0, count, _DECISIONS):
            numbers = np.arange(number + start, number + start + _DECISIONS, dtype=np.uint32)
            x, mask = (_filled(rows[start : start + _DECISIONS]) for rows in (records, masks))
            parts.append(self._act_many(self.state, self._seed, numbers, contexts.tree_of(x), mask))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *jax.device_get(parts))

    def learn(self, lessons: Sequence[Lesson]) -> list[bool]:
        """Update the state; returns for each lesson whether it was accepted.

        Several are learned together, `batch_size` at a time, where the agent can, else one after the other.
        """
        if len(lessons) == 1 or self._update_batch is None:
            return [self._one(*lesson) for lesson in lessons]
        size, accepted = self._batch_size, []
        for start in range(0, len(lessons), size):
            part = lessons[start : start + size]
            rows = [*part, *[part[0]._replace(reward=np.nan)] * (size - len(part))]
            records, actions, rewards = (np.stack(column) for column in zip(*rows, strict=True))
            with jax.debug_nans(False):  # of rows that fill up the batch
                accepted += self._several(records, actions, rewards)[: len(part)].tolist()
        return accepted

    def warm_up(self, record: np.dtype, action: Any) -> None:
        """Compile all programs; the state stays as it is."""
        kept, self.state = self.state, jax.tree.map(jnp.copy, self.state)
        for count in (1, 2):
            records = np.zeros(count, record)
            self.decide(0, records, np.ones((count, self.outputs), bool))
            with jax.debug_nans(False):
                self.learn([Lesson(row, action, np.nan) for row in records])
        self.state = kept

    def _one(self, record: np.ndarray, action: Any, reward: float) -> bool:
        x = contexts.tree_of(record)
        self.state, info = self._update(self.state, x, _typed(action), _typed(reward))
        return not np.any(info.rejected)

    def _several(self, records: np.ndarray, actions: np.ndarray, rewards: np.ndarray) -> np.ndarray:
        """(batch_size,) whether each was accepted."""
        assert self._update_batch is not None
        x = contexts.tree_of(records)
        self.state, info = self._update_batch(self.state, x, _typed(actions), _typed(rewards))
        return ~np.asarray(info.rejected)


def _typed(values: Any) -> Any:
    """Indices as int32, rewards and points as float32."""
    array = np.asarray(values)
    return array.astype(np.int32 if array.dtype.kind in "iu" else np.float32)


def _filled(rows: np.ndarray) -> np.ndarray:
    """Rows, repeated to as many as a program takes."""
    return np.resize(rows, (_DECISIONS, *rows.shape[1:]))
