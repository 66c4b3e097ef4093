"""Decisions among the items of a catalog, and why.

The log has of each decision the rows that the agent learns of, the item that was chosen first, and which items were
offered. So the belief does not depend on what becomes of the catalog. Programs are compiled beside the calls of others,
before a catalog needs them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.checks import word
from seqdec.core import Agent, Masked, PyTree
from seqdec.features import Encoder
from seqdec.online import catalog, contexts, explanation
from seqdec.online.arguments import sized
from seqdec.online.calls import Calls, Decision
from seqdec.online.catalog import ITEM, ROWS, USER, Catalog, Id, Shelf
from seqdec.online.explanation import Explanation
from seqdec.online.tables import Entry
from seqdec.online.turns import urgent
from seqdec.runtime import step_options


class Items(Calls):
    """An agent that chooses among items, if its spaces are those of a catalog."""

    def __init__(self, **others: Any) -> None:
        """See `Calls`."""
        self._choosing: dict[int, Callable[..., Any]] = {}
        self._explaining: dict[int, Callable[..., Any]] = {}
        super().__init__(**others)

    @property
    def items(self) -> tuple[Id, ...]:
        """The ids of the catalog's items that are not removed; empty without a catalog."""
        return tuple(self._shelf.numbers)

    def _known_catalog(self) -> Catalog:
        """Raises TypeError where there is none."""
        if self._catalog is None:
            raise TypeError("items need a catalog: make the agent with a seqdec.online.Catalog as its spaces")
        return self._catalog

    def _users(self, given: Any, mask: Any, *, many: bool = False) -> np.ndarray:
        """Records of users, one or many, whose items are not chosen yet. Raises TypeError or ValueError."""
        user = self._known_catalog().user
        if mask is not None:
            raise TypeError("with a catalog, say with items=[...] which may be chosen, by their ids; got a mask")
        if isinstance(user, Encoder):
            given = user.transform(given) if many else user(given)
        elif user is None and not many and given is not None:
            raise ValueError(f"the catalog has no user, whose numbers could be told; got {given!r:.80}")
        users, rows = sized(given) if many else (given, None)
        records = np.zeros(1 if rows is None else rows, self._record)
        if user is not None and rows != 0:
            records[USER] = catalog.checked_users(user, users, rows)
        return records

    @urgent
    def _chosen(
        self,
        records: np.ndarray,
        asked: Sequence[Iterable[Id] | None],
        nonces: Sequence[bytes],
        *,
        different: bool = False,
    ) -> list[Decision]:
        """Choose items, and write the decisions to the log.

        Args:
            records: (n,) with the users.
            asked: for each the ids of the items that it is chosen from; None: all.
            nonces: of the tokens.
            different: whether each is chosen from those that are left by the ones before it.
        """
        assert self._catalog is not None
        shelf, first = self._shelf, self._journal.decisions + 1
        offered = [shelf.chosen(ids) for ids in asked]
        if different and len(offered[0]) < len(offered):
            raise ValueError(f"count={len(offered)} different items cannot be chosen from {len(offered[0])}")
        records, clipped = self._clipped_users(records)
        entries, actions = [], []
        for place, given in enumerate(offered):
            numbers = np.setdiff1d(given, [entry.action for entry in entries]) if different else given
            user = None if self._catalog.user is None else records[USER][place, 0]
            choose = self._program(catalog.size_of(len(numbers), len(shelf.live)))
            features = shelf.features[numbers]
            index, propensity = choose(self._learner.belief.state, first + place, features, user)
            others = np.random.default_rng((self._seed, first + place)).integers(len(numbers), size=ROWS - 1)
            records[ITEM][place] = features[[index, *others]]
            number, shown = int(numbers[index]), catalog.packed(numbers, len(shelf.ids))
            (known,) = contexts.packed(records[place : place + 1])
            entries.append(Entry(nonces[place], known, shown, number, propensity))
            actions.append(shelf.ids[number])
        number = self._journal.add_decisions(entries) if entries else 0
        if clipped:
            self._counts["clipped"] += clipped
        propensities = [entry.propensity for entry in entries]
        tokens = [f"{number}-{nonce.hex()}" for number, nonce in enumerate(nonces, number)]
        return list(map(Decision, actions, propensities, tokens))

    def _clipped_users(self, records: np.ndarray) -> tuple[np.ndarray, int]:
        parts: Any = self._spaces.observation_space
        return contexts.clipped(gym_spaces.Dict({k: parts[k] for k in parts if k == USER}), records)

    def _explained(self, records: np.ndarray, asked: Iterable[Id] | None) -> Explanation:
        """What the agent believes of each item; programs are compiled while others go on."""
        shelf, state, numbers, records = self._asked(records, asked)
        size = catalog.size_of(len(numbers), len(shelf.live))
        if size not in self._explaining:
            self._explaining[size] = explanation.program(self._sized(size))
        rows = np.zeros((size, *shelf.features.shape[1:]), shelf.features.dtype)
        rows[: len(numbers)] = shelf.features[numbers]
        x = _joined(rows, None if self._known_catalog().user is None else records[USER][0, 0])
        found = self._explaining[size](state, word(self._seed), x, np.arange(size) < len(numbers), None)
        places = {shelf.ids[number]: place for place, number in enumerate(numbers)}
        return explanation.made(places, found, records[0], None, None)

    @urgent
    def _asked(self, records: np.ndarray, asked: Iterable[Id] | None) -> tuple[Shelf, PyTree, np.ndarray, np.ndarray]:
        """The shelf, a copy of the state, the numbers of the items that are asked for, and the user."""
        return self._shelf, self._learner.copied(), self._shelf.chosen(asked), self._clipped_users(records)[0]

    def _sized(self, size: int) -> Agent:
        """The agent with so many candidates."""
        agent = self._make(self._known_catalog().spaces(size))
        _check_state(agent, self._learner.belief.state, size)
        return agent

    def _program(self, size: int) -> Callable[..., tuple[int, float]]:
        """(state, number of the decision, features (k, d), user) -> index and propensity, for at most `size` items."""
        if size not in self._choosing:
            self._choosing[size] = self._compiled(size)
        return self._choosing[size]

    def _compiled(self, size: int) -> Callable[..., tuple[int, float]]:
        agent = self._sized(size)

        def act(state: PyTree, seed: Any, number: Any, features: Any, user: Any, count: Any) -> Any:
            key = jax.random.fold_in(jax.random.key(seed), number)
            action = agent.act(key, state, Masked(_joined(features, user), jnp.arange(size) < count))
            return action.value, action.propensity

        program, seed = jax.jit(act, compiler_options=step_options()), word(self._seed)

        def choose(state: PyTree, number: int, features: np.ndarray, user: Any) -> tuple[int, float]:
            rows = np.zeros((size, *features.shape[1:]), features.dtype)
            rows[: len(features)] = features
            index, chance = program(state, seed, np.uint32(number % 2**32), rows, user, np.int32(len(features)))
            return int(index), float(chance)

        return choose

    def _compile(self, count: int) -> None:
        """Compile what a catalog of so many items needs, beside what others do."""
        parts = {name: self._record[name] for name in self._record.names or ()}
        user = np.zeros(parts[USER].shape[1:], parts[USER].base) if USER in parts else None
        item, state = np.zeros((1, *parts[ITEM].shape[1:]), parts[ITEM].base), self._copied()
        for size in catalog.sizes(count):
            if size not in self._choosing:
                choose = self._compiled(size)
                choose(state, 0, item, user)
                self._choosing[size] = choose


def _joined(features: Any, user: Any) -> dict[str, Any]:
    """What an agent observes: items (k, d), each with the user."""
    rows = (len(features), *np.shape(user))
    return {ITEM: features} | ({} if user is None else {USER: jnp.broadcast_to(user, rows)})


def _check_state(agent: Agent, state: PyTree, size: int) -> None:
    """Refuse an agent that knows something else where it has more candidates."""

    def shapes(tree: PyTree) -> Any:
        return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]

    if shapes(jax.eval_shape(agent.init, jax.random.key(0))) != shapes(state):
        raise TypeError(
            f"{agent.name} cannot choose from a catalog: its state depends on the number of candidates; {size} are not "
            f"as {ROWS}. Use an agent with one model for all rows, such as auto, linear or hilofi"
        )
