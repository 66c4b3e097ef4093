"""What a service chooses among, if its spaces are those of a catalog: items that come and go.

The log has of each decision the rows that the agent learns of, the item that was chosen first, and which items were
offered. So the belief does not depend on what becomes of the catalog.

Each change of the catalog is in the log as a whole or not at all: its rows are written some at a time, while other
calls go on, and count once its last transaction says so. What a change leaves that does not come to its end is
overwritten or taken back by the next one. Programs are compiled beside other calls, before a catalog needs them.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.boundary import checks
from seqdec.boundary.checks import seed_bits
from seqdec.core import Agent, Masked, PyTree
from seqdec.features import Encoder
from seqdec.introspection import counted
from seqdec.ope.log import Log
from seqdec.runtime import step_options
from seqdec.service import catalog, explanation
from seqdec.service.actions import NOTHING, Chosen, Imported
from seqdec.service.catalog import ITEM, ROWS, USER, Catalog, Id, Shelf
from seqdec.service.contexts import WHOLE, Contexts, Rows, sized
from seqdec.service.explanation import Explanation
from seqdec.service.model import Maker, Model
from seqdec.service.store import Store, Transact, portion


class AskedItems(NamedTuple):
    """What a caller gave for decisions among items."""

    users: Rows | None
    """None: the catalog has none"""
    items: Sequence[Iterable[Id] | None]
    """for each decision the ids of the items that it is chosen from; None: all"""
    different: bool = False
    """whether each is chosen from those that are left by the ones before it"""


class Considered(NamedTuple):
    """What an agent knows when it is asked for an explanation."""

    model: Model
    state: PyTree
    shelf: Shelf
    numbers: np.ndarray
    """of the items that are asked for"""
    user: np.ndarray | None


class Items:
    """The items of a catalog; its methods are those of `seqdec.service.actions.Actions`, and what changes items.

    Args:
        contexts: of the log.
        known: the catalog.
        maker: of agents.
    """

    shelf: Shelf

    def __init__(self, contexts: Contexts, known: Catalog, maker: Maker) -> None:
        self._contexts, self._catalog, self._maker = contexts, known, maker
        self._users = None if known.user is None else Contexts(catalog.box_of(known.user), "the context")
        self._choosing: dict[int, Callable[..., tuple[int, float]]] = {}
        self._explaining: dict[int, Callable[..., Any]] = {}

    def __str__(self) -> str:
        return f"{counted(len(self.shelf.numbers), 'item')} of a catalog"

    def restore(self, store: Store, outputs: int) -> None:
        self.shelf = catalog.read_shelf(store.database.items(), self._contexts.record)

    def ask(self, context: Any, mask: Any, items: Any) -> AskedItems:
        _no_mask(mask)
        user = self._catalog.user
        if self._users is None:
            if context is not None:
                raise ValueError(f"the catalog has no user, whose numbers could be told; got {context!r:.80}")
            return AskedItems(None, [items])
        return AskedItems(self._users.one(user(context) if isinstance(user, Encoder) else context), [items])

    def ask_many(self, stacked: Any, masks: Any, items: Any) -> AskedItems:
        _no_mask(masks)
        user = self._catalog.user
        users, (_, count) = None, sized(stacked := user.transform(stacked) if isinstance(user, Encoder) else stacked)
        if self._users is not None:
            users = self._users.many(stacked)
        asked = [None] * count if items is None else list(items)
        if len(asked) != count:
            raise ValueError(f"items must be one list of ids for each of {count} contexts; got {len(asked)}")
        return AskedItems(users, asked)

    def ask_slate(self, count: int, context: Any, items: Any) -> AskedItems:
        """Several different items for one context."""
        count = checks.count("count", count)
        users, _, _ = self.ask(context, None, items)
        if users is not None:
            users = Rows(np.repeat(users.x, count, 0), users.packed * count, users.clipped * count)
        return AskedItems(users, [None if items is None else list(items)] * count, different=True)

    def choose(self, model: Model, number: int, asked: AskedItems) -> Chosen:
        shelf, users = self.shelf, asked.users
        offered = [shelf.chosen(ids) for ids in asked.items]
        if not offered:
            return NOTHING
        if asked.different and len(offered[0]) < len(offered):
            raise ValueError(f"count={len(offered)} different items cannot be chosen from {len(offered[0])}")
        written: list[int] = []
        contexts, masks, propensities = [], [], []
        for place, given in enumerate(offered):
            numbers = np.setdiff1d(given, written) if asked.different else given
            user = None if users is None else users.x[place]
            choose = self._program(model, catalog.size_of(len(numbers), len(shelf.live)))
            features = shelf.features[numbers]
            index, propensity = choose(model.belief.state, number + place, features, user)
            others = np.random.default_rng((self._maker.seed, number + place)).integers(len(numbers), size=ROWS - 1)
            contexts += self._contexts.pack(self._record(features[[index, *others]], user))
            masks.append(catalog.packed(numbers, len(shelf.ids)))
            written.append(int(numbers[index]))
            propensities.append(propensity)
        actions = [shelf.ids[key] for key in written]
        clipped = 0 if users is None else users.clipped
        return Chosen(actions, contexts, masks, written, propensities, [None] * len(actions), clipped)

    def lesson(self, action: int) -> int:
        return 0  # the first row of a decision is the item that was chosen

    def consider(self, store: Store, model: Model, asked: AskedItems) -> Considered:
        user = None if asked.users is None else asked.users.x[0]
        return Considered(model, model.copied(), self.shelf, self.shelf.chosen(asked.items[0]), user)

    def explain(self, considered: Considered, context: Any) -> Explanation:
        model, state, shelf, numbers, user = considered
        size = catalog.size_of(len(numbers), len(shelf.live))
        if size not in self._explaining:
            self._explaining[size] = explanation.program(self._sized(model, size))
        x = _joined(_padded(shelf.features[numbers], size), user)
        found = self._explaining[size](state, seed_bits(self._maker.seed), x, np.arange(size) < len(numbers), None)
        places = {shelf.ids[number]: place for place, number in enumerate(numbers)}
        return explanation.made(places, found, x, None, None)

    def records_of(self, log: Log) -> tuple[np.ndarray, list[np.ndarray]]:
        """Records with the users alone; the names of the actions and their features."""
        parts: Any = self._contexts.record.names
        width = self._contexts.shape_of(USER)[1] if USER in parts else 0
        if log.context.shape[1] != width:
            raise ValueError(
                f"a row of the log has {log.context.shape[1]} numbers of the user; the catalog has {width}"
            )
        if log.action_names is None:
            raise ValueError(
                "the actions of the log are numbers; give them the names of items, by their ids: action_names=[...]"
            )
        item = self._contexts.shape_of(ITEM)[1]
        if log.action_features is not None and log.action_features.shape[2] != item:
            raise ValueError(f"an action of the log has {log.action_features.shape[2]} features; an item has {item}")
        records = np.zeros(len(log.action), self._contexts.record)
        if self._users is not None:
            records[USER] = self._users.checked(log.context, len(records))[WHOLE][:, None]
        names = np.frombuffer(json.dumps(log.action_names).encode(), np.uint8)
        return records, [names] if log.action_features is None else [names, log.action_features]

    def imported(self, log: Log, records: np.ndarray) -> Imported:
        shelf = self.shelf
        in_order = sorted(shelf.numbers, key=lambda name: isinstance(name, str))  # "7" before 7
        by_name = {str(name): shelf.numbers[name] for name in in_order}
        names = log.action_names or ()
        if missing := [name for name in names if name not in by_name]:
            raise ValueError(
                f"the catalog has no item {missing[0]!r}, an action of the log ({len(missing)} of {len(names)} are "
                "unknown or removed): add_items first"
            )
        numbers = np.array([by_name[name] for name in names])
        features = shelf.features[numbers] if log.action_features is None else log.action_features
        masks: list[bytes | None] = []
        for row, (allowed, action) in enumerate(zip(log.mask, log.action, strict=True)):
            offered = np.flatnonzero(allowed)
            others = np.random.default_rng((self._maker.seed, row)).choice(offered, ROWS - 1)
            of_row = features if log.action_features is None else features[row]
            records[ITEM][row] = of_row[[action, *others]]
            masks.append(catalog.packed(np.sort(numbers[offered]), len(shelf.ids)))
        return Imported(self._contexts.clipped(records), masks, numbers[log.action].tolist())

    def warm_up(self, model: Model) -> None:
        model.warm_up(self._contexts.clipped(np.zeros(1, self._contexts.record)).x, np.int32(0), decides=False)
        self._compile(model, model.copied(), len(self.shelf.live))

    def add(self, store: Store, model: Model, transact: Transact, items: Any) -> int:
        """Add items, in the place of those with the same ids, in steps; returns how many were beyond bounds."""
        ids, features, clipped = catalog.checked_items(self._catalog.item, items)
        self._change(store, model, transact, ids, features, ())
        return clipped

    def remove(self, store: Store, model: Model, transact: Transact, ids: Iterable[Id]) -> None:
        """Remove items, in steps."""
        none = np.empty((0, *self.shelf.features.shape[1:]), self.shelf.features.dtype)
        self._change(store, model, transact, (), none, list(ids))

    def _change(
        self,
        store: Store,
        model: Model,
        transact: Transact,
        ids: Sequence[Id],
        features: np.ndarray,
        removed: Sequence[Id],
    ) -> None:
        before, change = transact(self._begin, store, urgent=True)
        gone = {before.ids[number] for number in before.chosen(removed)} if removed else set()
        gone |= before.numbers.keys() & set(ids)
        after = catalog.changed(before, ids, features, gone)
        if self._choosing:  # else nothing has been compiled, and the first call does it
            self._compile(model, transact(model.copied), len(after.live))
        while transact(store.undo_removals, portion(1), urgent=True):
            pass
        old = [(before.numbers[name], name) for name in gone]
        rows = [(number, json.dumps(name), before.features[number].tobytes(), change) for number, name in old]
        new = zip(ids, features, strict=True)
        rows += [
            (number, json.dumps(name), row.tobytes(), 0) for number, (name, row) in enumerate(new, len(before.ids))
        ]
        step = portion(before.features[:1].nbytes)
        for start in range(0, len(rows), step):
            transact(store.write_items, rows[start : start + step], urgent=True)
        transact(self._show, store, after, change)

    def _begin(self, store: Store) -> tuple[Shelf, int]:
        """The items, and the number of the next change of them, whose rows do not count yet."""
        _, last = store.database.catalog()
        store.show_items(len(self.shelf.ids), last)
        return self.shelf, last + 1

    def _show(self, store: Store, after: Shelf, change: int) -> None:
        store.show_items(len(after.ids), change)
        self.shelf = after

    def _record(self, features: np.ndarray, user: Any) -> dict[str, Any]:
        """Rows of an item and others as one context (1, ...)."""
        joined = {ITEM: features[None]}
        if user is not None:
            joined[USER] = np.broadcast_to(user, (1, len(features), *np.shape(user)))
        return joined

    def _sized(self, model: Model, size: int) -> Agent:
        """The agent with so many candidates."""
        agent = self._maker.make(self._catalog.spaces(size))
        _check_state(agent, model.belief.state, size)
        return agent

    def _program(self, model: Model, size: int) -> Callable[..., tuple[int, float]]:
        """(state, number of the decision, features (k, d), user) -> index and propensity, for at most `size` items."""
        if size not in self._choosing:
            self._choosing[size] = self._compiled(model, size)
        return self._choosing[size]

    def _compiled(self, model: Model, size: int) -> Callable[..., tuple[int, float]]:
        agent = self._sized(model, size)

        def act(state: PyTree, seed: Any, number: Any, features: Any, user: Any, count: Any) -> Any:
            key = jax.random.fold_in(jax.random.key(seed), number)
            action = agent.act(key, state, Masked(_joined(features, user), jnp.arange(size) < count))
            return action.value, action.propensity

        program, seed = jax.jit(act, compiler_options=step_options()), seed_bits(self._maker.seed)

        def choose(state: PyTree, number: int, features: np.ndarray, user: Any) -> tuple[int, float]:
            rows, count = _padded(features, size), np.int32(len(features))
            index, chance = program(state, seed, np.uint32(number % 2**32), rows, user, count)
            return int(index), float(chance)

        return choose

    def _compile(self, model: Model, state: PyTree, count: int) -> None:
        """Compile what a catalog of so many items needs, beside what others do."""
        item = np.zeros((1, *self.shelf.features.shape[1:]), self.shelf.features.dtype)
        user = None if self._users is None else np.zeros(self._users.shape_of(WHOLE), self._users.record[0].base)
        for size in catalog.sizes(count):
            if size not in self._choosing:
                choose = self._compiled(model, size)
                choose(state, 0, item, user)
                self._choosing[size] = choose


def _no_mask(mask: Any) -> None:
    if mask is not None:
        raise TypeError("with a catalog, say with items=[...] which may be chosen, by their ids; got a mask")


def _padded(features: np.ndarray, size: int) -> np.ndarray:
    """Rows, and zeros after them."""
    rows = np.zeros((size, *features.shape[1:]), features.dtype)
    rows[: len(features)] = features
    return rows


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
