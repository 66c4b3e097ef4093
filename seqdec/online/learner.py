"""The agent of a service on the device: its state, and programs of fixed shapes that are compiled once."""

import itertools
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.checks import word
from seqdec.core import Action, Agent, Masked, PyTree
from seqdec.loop._compiled import compiled
from seqdec.online import contexts, explanation
from seqdec.runtime import apart, step_options

_DECISIONS = 256
"""Decisions of one call of the program for many."""

_SHOWN = 256
"""Outputs whose probabilities a decision has, at most."""

_ROWS, _BYTES = 256, 2**16
"""Rows of one call of the program that learns, and bytes of their contexts, at most."""

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

    @apart()
    def __init__(
        self, agent: Agent, identity: Mapping[str, Any], seed: int, outputs: int, batch_size: int, generation: int
    ) -> None:
        """See the class."""
        self.agent, self.identity, self.outputs, self.generation = agent, identity, outputs, generation
        self._batch_size = batch_size
        self._seed = word(seed)
        options = step_options()

        def few(action: Action) -> Action:
            return action if outputs <= _SHOWN else action._replace(probabilities=None)

        def act(state: PyTree, seed: Any, number: Any, x: PyTree, mask: Any) -> Action:
            key = jax.random.fold_in(jax.random.key(seed), number)
            return few(agent.act(key, state, Masked(x, mask) if outputs else x))

        self._act = jax.jit(act, compiler_options=options)

        def act_many(state: PyTree, seed: Any, numbers: Any, x: PyTree, masks: Any) -> Action:
            keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.key(seed), number))(numbers)
            act_batch = agent.act_batch or jax.vmap(agent.act, (0, None, 0))
            return few(act_batch(keys, state, Masked(x, masks) if outputs else x))

        self._act_many = jax.jit(act_many, compiler_options=options)
        self._explain = explanation.program(agent)
        self._init = compiled(agent).init
        self.forget()
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(self.belief.state))
        self._in_place = size > _LARGE

        def program(update: Any) -> Any:
            if update is None:
                return None
            donated = 0 if self._in_place else ()
            return jax.jit(_one_by_one(update), compiler_options=options, donate_argnums=donated)

        self._update, self._update_batch = program(agent.update), program(agent.update_batch)

    def forget(self) -> None:
        """Believe what the agent does before it has learned anything."""
        self.belief = Belief(self._init(jax.random.fold_in(jax.random.key(self._seed), 0)), 0)

    @apart()
    def decide(
        self, number: int, records: np.ndarray, masks: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Of decisions number, number + 1, ..., actions and propensities (n,), and probabilities (n, outputs) if known.

        The contexts are (n,), the masks (n, outputs). Probabilities are known where the agent computes them anyway, and
        has at most 256 outputs.

        Without `jax.tree.map`, which makes errors of its own of exceptions that a signal handler raises in it.
        """
        count = len(records)
        if count == 1:
            x = contexts.tree_of(records[0])
            action = self._act(self.belief.state, self._seed, _words(number), x, masks[0])
            every = None if action.probabilities is None else np.asarray(action.probabilities)[None]
            return np.asarray(action.value)[None], np.asarray(action.propensity)[None], every
        parts = []
        for start in range(0, count, _DECISIONS):
            numbers = _words(np.arange(number + start, number + start + _DECISIONS))
            x, mask = (_filled(rows[start : start + _DECISIONS]) for rows in (records, masks))
            parts.append(self._act_many(self.belief.state, self._seed, numbers, contexts.tree_of(x), mask))
        values, propensities, every = (
            None if leaves[0] is None else np.concatenate(leaves)[:count] for leaves in zip(*parts, strict=True)
        )
        assert values is not None and propensities is not None
        return values, propensities, every

    @apart()
    def explained(self, state: PyTree, record: np.ndarray, mask: np.ndarray, middle: np.ndarray | None) -> Any:
        """What `seqdec.online.explanation.program` returns of a state, a context () and a mask (outputs,)."""
        return jax.device_get(self._explain(state, self._seed, contexts.tree_of(record), mask, middle))

    @apart()
    def copied(self) -> PyTree:
        """The state, out of reach of later updates."""
        state = self.belief.state
        return jax.tree.map(jnp.copy, state) if self._in_place else state

    @apart()
    def learn(self, batches: Sequence[tuple[int, Sequence[Lesson | None]]]) -> list[bool]:
        """Learn batches of the log, by number; returns for each lesson whether there was one and it was accepted.

        The lessons of a batch are learned together, `batch_size` at a time, where the agent can, else one after the
        other. How many batches are given at once changes no bit.
        """
        known = [[lesson for lesson in lessons if lesson is not None] for _, lessons in batches]
        state, accepted = self._learned(self.belief.state, known)
        self.belief = Belief(state, batches[-1][0])
        left = iter(accepted)
        return [lesson is not None and next(left) for _, lessons in batches for lesson in lessons]

    @apart()
    def warm_up(self, record: np.dtype, action: Any, *, decides: bool = True) -> None:
        """Compile all programs, or those that learn alone; the belief stays as it is."""
        for count in (1, 2):
            records = np.zeros(count, record)
            if decides:
                self.decide(0, records, np.ones((count, self.outputs), bool))
            with jax.debug_nans(False):
                lessons = [Lesson(row, action, np.nan) for row in records]
                self._learned(jax.tree.map(jnp.copy, self.belief.state), [lessons])

    def _learned(self, state: PyTree, batches: Sequence[Sequence[Lesson]]) -> tuple[PyTree, list[bool]]:
        """The state after the lessons, written into the one that is given, and whether each was accepted."""
        calls: list[tuple[bool, Sequence[Lesson]]] = []
        for lessons in batches:
            together = self._update_batch is not None and len(lessons) > 1
            size = self._batch_size if together else 1
            calls += [(together, lessons[start : start + size]) for start in range(0, len(lessons), size)]
        accepted: list[bool] = []
        for together, group in itertools.groupby(calls, lambda call: call[0]):
            parts = [part for _, part in group]
            size = self._batch_size if together else 1
            most = max(1, min(_ROWS, _BYTES // max(1, parts[0][0].record.dtype.itemsize)) // size)
            update: Any = self._update_batch if together else self._update
            for start in range(0, len(parts), most):
                given = parts[start : start + most]
                with jax.debug_nans(False) if together else nullcontext():  # of rows that fill up a batch
                    state, rejected = update(state, *_stacked(given, most, size, together), np.int32(len(given)))
                found = np.asarray(rejected).reshape(most, size)
                accepted += [not row for rows, part in zip(found, given, strict=False) for row in rows[: len(part)]]
        return state, accepted


def _one_by_one(update: Any) -> Any:
    """(state, rows, count) -> (state, rejected): `update` with each of the first rows; the same for any count."""

    def updates(state: PyTree, x: PyTree, actions: Any, rewards: Any, count: Any) -> tuple[PyTree, Any]:
        def step(place: Any, carry: Any) -> Any:
            state, rejected = carry
            state, info = update(state, *jax.tree.map(lambda leaf: leaf[place], (x, actions, rewards)))
            found = jnp.any(info.rejected) if rewards.ndim == 1 else info.rejected
            return state, rejected.at[place].set(found)

        return jax.lax.fori_loop(0, count, step, (state, jnp.zeros(rewards.shape, bool)))

    return updates


def _stacked(parts: Sequence[Sequence[Lesson]], most: int, size: int, together: bool) -> tuple[Any, Any, Any]:
    """Contexts, actions and rewards of parts of at most `size` lessons, filled up to as many as a program takes."""
    rows = [row for part in parts for row in (*part, *[part[0]._replace(reward=np.nan)] * (size - len(part)))]
    records = np.fromiter((row.record for row in rows), rows[0].record.dtype, len(rows))
    lead = (most, size) if together else (most,)

    def filled(column: np.ndarray) -> np.ndarray:
        whole = np.zeros((most * size, *column.shape[1:]), column.dtype)
        whole[: len(rows)] = column
        return whole.reshape(*lead, *column.shape[1:])

    actions, rewards = (filled(_typed([getattr(row, name) for row in rows])) for name in ("action", "reward"))
    x = contexts.tree_of(records)
    x = {name: filled(part) for name, part in x.items()} if isinstance(x, dict) else filled(x)
    return x, actions, rewards


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
