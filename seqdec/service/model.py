"""State and programs of an agent on the device; programs have fixed shapes and compile once."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.boundary.checks import seed_bits
from seqdec.core import Action, Agent, HasSpaces, Masked, PyTree, Spaces
from seqdec.loop._compiled import compiled
from seqdec.ope.log import Label
from seqdec.persistence import as_json
from seqdec.runtime import UNFUSED, UNOPTIMIZED, step_options
from seqdec.service import explanation
from seqdec.service.identity import digest
from seqdec.service.store import split_number

T = TypeVar("T")
_PADS = (1, 4, 16, 64, 256)
"""Decisions of a program, of which the last ones are copies of others."""
_EXPECTED = 64
"""Rows of a program of expected rewards."""
_SHOWN = 256
"""Most outputs whose probabilities a decision has."""
_ROWS, _BYTES = 256, 2**16
"""Most rows of a learning program, and bytes of their contexts."""
_LARGE = 2**18
"""Bytes of a state above which updates write into it; smaller ones are copied, and outlast an exception."""


class Belief(NamedTuple):
    """State of a model, replaced atomically."""

    state: PyTree
    """of the agent"""
    batch: int
    """last batch learned"""


class Lessons(NamedTuple):
    """Rewards to learn, of some batches."""

    x: Any
    """(n, ...) contexts"""
    actions: Any
    """(n,) int32 outputs of the model, or (n, ...) float32 points of a Box; with propensities as the agent uses them"""
    rewards: np.ndarray
    """(n,) float32"""
    sizes: Sequence[int]
    """lessons of each batch, learned together, `batch_size` at a time, where possible"""
    batch: int
    """the last one"""


class Maker(NamedTuple):
    """Makes the models of a service."""

    make: Callable[[HasSpaces], Agent]
    spaces: Spaces
    arms: tuple[Label, ...]
    """their names; none for other actions"""
    seed: int
    """of the first state and all decisions"""
    batch_size: int
    """rewards of one update"""
    row_bytes: int
    """of a context"""

    def agent(self, outputs: int) -> Agent:
        observations, actions = self.spaces
        made = self.make(Spaces(observations, gym_spaces.Discrete(outputs) if self.arms else actions))
        if not isinstance(made, Agent):
            raise TypeError(f"what make returns must be a seqdec.core.Agent; got {type(made).__name__}")
        return made

    def model(self, outputs: int, generation: int, agent: Agent | None = None) -> "Model":
        return Model(self.agent(outputs) if agent is None else agent, self, outputs, generation)


def identity_of(agent: Agent) -> dict[str, Any]:
    """JSON values that differ for agents that would learn the same log differently."""
    return {"agent": agent.name, "settings": as_json(dict(agent.settings)), "digest": digest(agent)}


def shared(make: Callable[[Agent, int], T]) -> Callable[[Agent, int], T]:
    """`make(agent, count)`, once for an agent and a count, as long as somebody uses what it has made."""
    known: WeakValueDictionary[tuple[Agent, int], T] = WeakValueDictionary()

    def made(agent: Agent, count: int) -> T:
        found = known.get((agent, count))
        return known.setdefault((agent, count), make(agent, count)) if found is None else found

    return made


class Programs:
    """Compiled functions of an agent with so many outputs.

    `first` is `act` compiled without optimization, in a third of the time.
    """

    _updates: tuple[Any, Any] | None = None

    def __init__(self, agent: Agent, outputs: int) -> None:
        options = step_options()
        self._agent, self._options = agent, options

        def shown(action: Action) -> Action:
            return action if outputs <= _SHOWN else action._replace(probabilities=None)

        def act(state: PyTree, seed: Any, number: Any, x: PyTree, mask: Any) -> Action:
            key = jax.random.fold_in(jax.random.key(seed), number)
            return shown(agent.act(key, state, Masked(x, mask) if outputs else x))

        def act_many(state: PyTree, seed: Any, numbers: Any, x: PyTree, masks: Any) -> Action:
            keys = jax.vmap(lambda number: jax.random.fold_in(jax.random.key(seed), number))(numbers)
            act_batch = agent.act_batch or jax.vmap(agent.act, (0, None, 0))
            return shown(act_batch(keys, state, Masked(x, masks) if outputs else x))

        self.act, self.act_many = (self._jitted(one, compiler_options=options) for one in (act, act_many))
        self.first = self._jitted(act, compiler_options={**UNOPTIMIZED, **UNFUSED})
        self.explain, self.expect = explanation.program(agent), explanation.expectations(agent)
        self.init = compiled(agent).init

    def _jitted(self, function: Any, **settings: Any) -> Any:
        return _Noted(jax.jit(function, **settings), f"{self._agent.name}: compiling")

    def updates(self, *, in_place: bool) -> tuple[Any, Any]:
        """Updates with one reward and with batches; in place if the agent's state is large."""
        agent, options, donated = self._agent, self._options, 0 if in_place else ()

        def program(update: Any) -> Any:
            return update and self._jitted(_one_by_one(update), compiler_options=options, donate_argnums=donated)

        if self._updates is None:
            self._updates = program(agent.update), program(agent.update_batch)
        return self._updates


class _Noted:
    """A compiled program whose first call says on standard error what it waits for."""

    def __init__(self, program: Any, title: str) -> None:
        self._program, self._title = program, title

    def __call__(self, *arguments: Any) -> Any:
        if self._title:
            from seqdec.progress import noted

            with noted(self._title):
                found = self._program(*arguments)
            self._title = ""
            return found
        return self._program(*arguments)


_programs = shared(Programs)


class Model:
    """Belief and programs of an agent with so many outputs; 0 for points of a Box, which have no mask.

    `generation` counts relearnings of the log.
    """

    belief: Belief

    def __init__(self, agent: Agent, maker: Maker, outputs: int, generation: int) -> None:
        self.agent, self.outputs, self.generation = agent, outputs, generation
        self.facts = {**identity_of(agent), "outputs": outputs, "generation": generation}
        self._batch_size, self._seed = maker.batch_size, seed_bits(maker.seed)
        self._block, self._own_seed = (0, 0), self._seed
        self._rows = max(1, min(_ROWS, _BYTES // max(1, maker.row_bytes)))
        self._programs = _programs(agent, outputs)
        self._act, self._pads = self._programs.act, _PADS
        self.forget()
        self._in_place = sum(leaf.nbytes for leaf in jax.tree.leaves(self.belief.state)) > _LARGE
        self._update, self._update_batch = self._programs.updates(in_place=self._in_place)

    @property
    def is_lost(self) -> bool:
        """Whether an interrupted update has used up the state."""
        return any(leaf.is_deleted() for leaf in jax.tree.leaves(self.belief.state) if isinstance(leaf, jax.Array))

    def forget(self) -> None:
        self.belief = Belief(self._programs.init(jax.random.fold_in(jax.random.key(self._seed), 0)), 0)

    def decide(self, number: int, x: Any, masks: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Decide on contexts (n, ...) with masks (n, outputs), numbered from `number`.

        The keys depend on the numbers alone, so that n changes actions at most by rounding. Of a number of a log that
        several processes write (`seqdec.service.store`), the block of its process counts with the seed.

        Returns actions (n, ...), propensities (n,), and probabilities (n, outputs) or None.
        """
        state, count, act = self.belief.state, len(masks), self._act
        day, block, place = split_number(number)
        if (day, block) != self._block:
            self._block, words = (day, block), [int(self._seed), day, block]
            self._own_seed = np.random.SeedSequence(words).generate_state(1)[0] if day else self._seed
        seed, number = self._own_seed, place if day else number
        if count == 1:
            return self._decided(act, state, seed, number, 1, x, masks)
        size = next((size for size in self._pads if size >= count), self._pads[-1])
        parts = []
        for start in range(0, count, size):
            some = jax.tree.map(lambda leaf: leaf[start : start + size], (x, masks))  # noqa: B023
            parts.append(self._decided(act, state, seed, number + start, size, *some))
        values, propensities, every = (
            None if leaves[0] is None else np.concatenate(leaves)[:count] for leaves in zip(*parts, strict=True)
        )
        assert values is not None and propensities is not None
        return values, propensities, every

    def _decided(self, act: Any, state: PyTree, seed: Any, number: int, size: int, x: Any, masks: np.ndarray) -> Any:
        """At most `size` decisions, and copies of the last."""
        if size == 1:
            first = x[0] if isinstance(x, np.ndarray) else {name: part[0] for name, part in x.items()}
            value, propensity, every = act(state, seed, np.uint32(number % 2**32), first, masks[0])
            every = None if every is None else np.asarray(every)[None]
            return np.asarray(value)[None], np.asarray(propensity)[None], every
        numbers = np.arange(number, number + size).astype(np.uint32)  # modulo 2^32, as JAX
        some = jax.tree.map(lambda leaf: _filled(leaf, size), (x, masks))
        return self._programs.act_many(state, seed, numbers, *some)

    def explained(self, state: PyTree, x: Any, mask: np.ndarray, middle: np.ndarray | None) -> Any:
        return jax.device_get(self._programs.explain(state, self._seed, x, mask, middle))

    def expected(self, state: PyTree, x: Any, actions: np.ndarray) -> np.ndarray:
        """(n,) expected rewards of actions in contexts (n, ...)."""
        masks, found = np.ones((_EXPECTED, self.outputs), bool), []
        for start in range(0, len(actions), _EXPECTED):
            some = jax.tree.map(lambda leaf: _filled(leaf[start : start + _EXPECTED], _EXPECTED), x)  # noqa: B023
            found.append(np.asarray(self._programs.expect(state, self._seed, some, masks)))
        return np.concatenate(found)[np.arange(len(actions)), actions].astype(float)

    def copied(self) -> PyTree:
        """The state, out of reach of later updates."""
        state = self.belief.state
        return jax.tree.map(jnp.copy, state) if self._in_place else state

    def played(self, actions: Sequence[Any], propensities: Any) -> Any:
        """Actions of lessons."""
        kind = np.float32 if actions and isinstance(actions[0], np.ndarray) else np.int32
        return self.agent.lesson(Action(np.array(actions, kind), np.array(propensities, np.float32)))  # pyright: ignore

    def learn(self, lessons: Lessons) -> list[bool]:
        """Learn; returns whether each lesson was accepted. Their number in a call changes no bit."""
        state, accepted = self._learned(self.belief.state, lessons)
        self.belief = Belief(state, lessons.batch)
        return accepted

    def begin(self, x: Any) -> None:
        """Compile one decision for contexts like this (1, ...), quickly, and decide by it until `warm_up` is done."""
        self._act, self._pads = self._programs.first, _PADS[:1]
        self._decided(self._act, self.belief.state, self._seed, 0, 1, x, np.ones((1, self.outputs), bool))

    def warm_up(self, x: Any, action: Any, *, decides: bool = True) -> Iterator[bool]:
        """Compile all programs, or those that learn, one in each step but the first; the belief stays.

        The first step belongs to the model's thread, the others to any. Each says whether what learns is compiled.
        """
        state = jax.tree.map(jnp.copy, self.belief.state)
        yield False
        try:
            for count in (1, 2):
                some = jax.tree.map(lambda leaf: np.repeat(leaf, count, 0), x)  # noqa: B023
                with jax.debug_nans(False):
                    unknown = np.full(count, np.nan, np.float32)
                    lessons = Lessons(some, self.played([action] * count, unknown), unknown, [count], 0)
                    state, _ = self._learned(state, lessons)
                yield count == 2
            for count in _PADS if decides else ():
                some = jax.tree.map(lambda leaf: np.repeat(leaf, count, 0), x)  # noqa: B023
                self._decided(
                    self._programs.act, state, self._seed, 0, count, some, np.ones((count, self.outputs), bool)
                )
                self._act = self._programs.act
                if count not in self._pads:
                    self._pads = (*self._pads, count)
                yield True
        finally:
            self._act, self._pads = self._programs.act, _PADS

    def _learned(self, state: PyTree, lessons: Lessons) -> tuple[PyTree, list[bool]]:
        """State after the lessons, perhaps in the memory of `state`, and whether each was accepted."""
        updates: list[tuple[bool, int, int]] = []
        start = 0
        for size in lessons.sizes:
            together = self._update_batch is not None and size > 1
            step, end = self._batch_size if together else 1, start + size
            updates += [(together, place, min(place + step, end)) for place in range(start, end, step)]
            start = end
        accepted: list[bool] = []
        for together, group in itertools.groupby(updates, lambda update: update[0]):
            parts = [(first, last) for _, first, last in group]
            size = self._batch_size if together else 1
            most = max(1, self._rows // size)
            for begin in range(0, len(parts), most):
                given = parts[begin : begin + most]
                arrays = _filled_up(lessons, given, most, size, together)
                update: Any = self._update_batch if together else self._update
                with jax.debug_nans(False) if together else nullcontext():  # of rows that fill up a batch
                    state, rejected = update(state, *arrays, np.int32(len(given)))
                found = np.asarray(rejected).reshape(most, size)
                accepted += [not row for rows, (a, b) in zip(found, given, strict=False) for row in rows[: b - a]]
        return state, accepted


def _one_by_one(update: Any) -> Any:
    def updates(state: PyTree, x: PyTree, actions: Any, rewards: Any, count: Any) -> tuple[PyTree, Any]:
        def step(place: Any, carry: Any) -> Any:
            state, rejected = carry
            state, info = update(state, *jax.tree.map(lambda leaf: leaf[place], (x, actions, rewards)))
            found = jnp.any(info.rejected) if rewards.ndim == 1 else info.rejected
            return state, rejected.at[place].set(found)

        return jax.lax.fori_loop(0, count, step, (state, jnp.zeros(rewards.shape, bool)))

    return updates


def _filled_up(
    lessons: Lessons, parts: Sequence[tuple[int, int]], most: int, size: int, together: bool
) -> tuple[Any, Any, Any]:
    """Parts of at most `size` lessons, padded to a program's rows."""
    count, lead = len(parts), (most, size) if together else (most,)
    places: Any = slice(parts[0][0], parts[-1][1])  # parts of one lesson each, one after the other
    if together:
        places = np.array([[*range(a, b), *[a] * (size - (b - a))] for a, b in parts])

    def filled(column: np.ndarray) -> np.ndarray:
        whole = np.zeros((*lead, *column.shape[1:]), column.dtype)
        whole[:count] = column[places]
        return whole

    x, rewards = lessons.x, filled(lessons.rewards)
    if together:
        beyond = np.arange(size) >= np.array([[b - a] for a, b in parts])
        rewards[:count][beyond] = np.nan  # which changes no belief
    x = {name: filled(part) for name, part in x.items()} if isinstance(x, Mapping) else filled(x)
    return x, jax.tree.map(filled, lessons.actions), rewards


def _filled(rows: np.ndarray, size: int) -> np.ndarray:
    return np.resize(rows, (size, *rows.shape[1:]))
