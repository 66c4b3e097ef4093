"""Items with ids and features that come and go, as the actions of a service.

The log holds learned rows, the chosen item first, and the items offered. A change is written in portions between other
calls and counts from its last transaction on; the next one overwrites an interrupted one.

Programs have fixed numbers of rows: powers of four, and the catalog's size with at most a quarter to spare.
"""

import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.boundary import checks
from seqdec.boundary.checks import seed_bits
from seqdec.boundary.spaces import check_values, shaped
from seqdec.core import Agent, Masked, PyTree, Schema, Spaces
from seqdec.features import Encoder
from seqdec.introspection import counted
from seqdec.ope.log import Log
from seqdec.runtime import step_options
from seqdec.service import explanation
from seqdec.service.actions import NOTHING, Chosen, Imported, is_label, label
from seqdec.service.contexts import ITEM, USER, WHOLE, Contexts, Rows, sized
from seqdec.service.explanation import Explanation
from seqdec.service.model import Maker, Model, shared
from seqdec.service.store import Store, Transact, portion

Id: TypeAlias = str | int
ROWS = 8
"""Rows learned of a decision: the chosen item and random offered ones."""
_FEWEST = 16


class Catalog(NamedTuple):
    """The spaces of an `OnlineAgent` that chooses among items.

    A candidate is an item with the user of the request; what is learned is shared by all items.
    """

    item: gym_spaces.Box | Encoder
    """(d,) numbers of an item, or an encoder of items as dicts"""
    user: gym_spaces.Box | Encoder | None = None
    """(u,) numbers of a request, or an encoder; None: requests have none"""

    @property
    def encoders(self) -> dict[str, Encoder]:
        """Encoders by part of a row."""
        return {name: part for name, part in ((ITEM, self.item), (USER, self.user)) if isinstance(part, Encoder)}

    def spaces(self, count: int) -> Spaces:
        """Spaces with so many candidates. Raises TypeError if a part is not a vector of floats."""
        parts = {ITEM: _box_of(self.item)} | ({} if self.user is None else {USER: _box_of(self.user)})
        for name, part in parts.items():
            vector = isinstance(part, gym_spaces.Box) and len(part.shape) == 1
            if not vector or not np.issubdtype(part.dtype, np.floating):
                raise TypeError(
                    f"{name} of a Catalog must be a Box of floats with one axis, or an encoder; got {part!r:.200}"
                )
        stacked = gym_spaces.Dict({name: _stacked(part, count) for name, part in parts.items()})
        return Spaces(stacked, gym_spaces.Discrete(count))


class Inventory(NamedTuple):
    """All items ever added, by number, and the present ones."""

    ids: tuple[Id, ...]
    """of all; an item added again has another number"""
    features: np.ndarray
    """(all, d)"""
    numbers: Mapping[Id, int]
    """by id, of present items"""
    live: np.ndarray
    """their numbers, increasing"""

    @classmethod
    def of(cls, ids: Sequence[Id], features: np.ndarray, removed: Iterable[bool]) -> "Inventory":
        numbers = {name: number for number, (name, gone) in enumerate(zip(ids, removed, strict=True)) if not gone}
        return cls(tuple(ids), features, numbers, np.fromiter(numbers.values(), np.int64, len(numbers)))

    @classmethod
    def read(cls, rows: Sequence[tuple[int, str, bytes, int]], record: np.dtype) -> "Inventory":
        kind = record[ITEM] if ITEM in (record.names or ()) else np.dtype((np.float32, (1, 0)))
        _, texts, contents, removed = zip(*rows, strict=True) if rows else ((), (), (), ())
        features = np.frombuffer(b"".join(contents), kind.base).reshape(len(rows), *kind.shape[1:])
        return cls.of([json.loads(text) for text in texts], features, map(bool, removed))

    def changed(self, ids: Sequence[Id], features: np.ndarray, gone: Iterable[Id]) -> "Inventory":
        kept = set(self.numbers.values()) - {self.numbers[name] for name in gone}
        removed = [number not in kept for number in range(len(self.ids))]
        known = {str(self.ids[number]): self.ids[number] for number in kept}
        if alike := [name for name in ids if known.setdefault(str(name), name) != name]:
            raise ValueError(f"the catalog has an item {known[str(alike[0])]!r}, which as text is {alike[0]!r} too")
        every = np.concatenate([self.features, features])
        return self.of((*self.ids, *ids), every, [*removed, *[False] * len(ids)])

    def chosen(self, ids: Iterable[Id] | None) -> np.ndarray:
        """Numbers of some items, increasing and distinct; None: all.

        Raises TypeError unless it is a list of ids, ValueError for an unknown item or where no item is left.
        """
        if ids is None:
            found = self.live
        else:
            if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable):
                raise TypeError(f"items must be a list of ids; got {ids!r:.80}")
            given = list(ids)
            if not all(map(is_label, given)):
                raise TypeError(f"ids of items are texts or integers; got {given!r:.80}")
            if unknown := [name for name in given if name not in self.numbers]:
                raise ValueError(
                    f"the catalog has no item {unknown[0]!r} ({len(unknown)} of {len(given)} are unknown or removed): "
                    "add_items first, or leave it out"
                )
            found = np.unique(np.array([self.numbers[name] for name in given], np.int64))
        if not len(found):
            raise ValueError(f"no item to choose: {'the catalog is empty' if ids is None else 'items is empty'}")
        return found

    @property
    def names(self) -> list[str]:
        """Ids of all items, with the number where several are the same."""
        texts = list(map(str, self.ids))
        found = Counter(texts)
        return [text if found[text] == 1 else f"{text}#{number}" for number, text in enumerate(texts)]


class AskedItems(NamedTuple):
    """Arguments of a call for decisions among items."""

    users: Rows | None
    """None without users"""
    items: Sequence[Iterable[Id] | None]
    """ids to choose from, by decision; None: all"""
    different: bool = False
    """whether each is chosen from what those before it leave"""

    @property
    def size(self) -> int:
        """Number of decisions."""
        return len(self.items)


class Items:
    """Items of a catalog as `seqdec.service.actions.Actions`."""

    inventory: Inventory
    portion = 16

    def __init__(self, contexts: Contexts, known: Catalog, maker: Maker) -> None:
        self._contexts, self._catalog, self._maker = contexts, known, maker
        self._users = None
        if (user := known.user) is not None:
            encoder = user if isinstance(user, Encoder) else None
            self._users = Contexts(_box_of(user), encoder, "the context")
        self._choosing: dict[int, Callable[..., tuple[int, float]]] = {}
        self._explaining: dict[int, Callable[..., Any]] = {}

    def __str__(self) -> str:
        return f"{counted(len(self.inventory.numbers), 'item')} of a catalog"

    def restore(self, store: Store, outputs: int) -> None:
        self.inventory = Inventory.read(store.database.items(), self._contexts.record)

    def ask(self, context: Any, mask: Any, items: Any) -> AskedItems:
        _no_mask(mask)
        if self._users is None and context is not None:
            raise ValueError(f"the catalog has no user features; got {context!r:.80}")
        return AskedItems(None if self._users is None else self._users.one(context), [items])

    def ask_many(self, contexts: Any, masks: Any, items: Any) -> AskedItems:
        _no_mask(masks)
        users = None if self._users is None else self._users.many(contexts)
        count = sized(contexts)[1] if users is None else len(users.packed)
        asked = [None] * count if items is None else list(items)
        if len(asked) != count:
            raise ValueError(f"items must be one list of ids for each of {count} contexts; got {len(asked)}")
        return AskedItems(users, asked)

    def ask_slate(self, count: int, context: Any, items: Any) -> AskedItems:
        count = checks.count("count", count)
        users, _, _ = self.ask(context, None, items)
        if users is not None:
            users = Rows(np.repeat(users.x, count, 0), users.packed * count, users.clipped * count)
        return AskedItems(users, [None if items is None else list(items)] * count, different=True)

    def forbidden(self, asked: AskedItems, actions: Mapping[int, int]) -> int | None:
        for place, action in actions.items():
            ids = asked.items[place]
            if ids is not None and self.inventory.ids[action] not in filter(is_label, ids):
                return place
        return None

    def taken(self, asked: AskedItems) -> AskedItems:
        items = [ids if ids is None else list(ids) for ids in asked.items]
        for ids in items:
            self.inventory.chosen(ids)
        return asked._replace(items=items)

    def some(self, asked: AskedItems, places: Sequence[int]) -> AskedItems:
        if asked.different and len(places) < len(asked.items):
            raise ValueError(
                f"the slate with this key has {len(asked.items) - len(places)} items, not {len(asked.items)}: ask for "
                "as many as before, or give another key"
            )
        users = None if asked.users is None else asked.users.some(places)
        return AskedItems(users, [asked.items[place] for place in places], asked.different)

    def shown(self, action: int) -> Id:
        return self.inventory.ids[action]

    def choose(self, model: Model, number: int, asked: AskedItems) -> Chosen:
        inventory, users = self.inventory, asked.users
        offered = [inventory.chosen(ids) for ids in asked.items]
        if not offered:
            return NOTHING
        if asked.different and len(offered[0]) < len(offered):
            raise ValueError(f"count={len(offered)} different items cannot be chosen from {len(offered[0])}")
        written: list[int] = []
        contexts, masks, propensities = [], [], []
        for place, given in enumerate(offered):
            numbers = np.setdiff1d(given, written) if asked.different else given
            user = None if users is None else users.x[place]
            choose = self._program(model, size_of(len(numbers), len(inventory.live)))
            features = inventory.features[numbers]
            index, propensity = choose(model.belief.state, number + place, features, user)
            others = np.random.default_rng((self._maker.seed, number + place)).integers(len(numbers), size=ROWS - 1)
            contexts += self._contexts.pack(_record(features[[index, *others]], user))
            masks.append(pack_mask(numbers, len(inventory.ids)))
            written.append(int(numbers[index]))
            propensities.append(propensity)
        actions = [inventory.ids[key] for key in written]
        clipped, outside = (0, 0) if users is None else (users.clipped, users.outside)
        none = [None] * len(actions)
        return Chosen(actions, contexts, masks, written, propensities, none, clipped, outside=outside)

    def lesson(self, action: int) -> int:
        return 0  # the first row of a decision is the item that was chosen

    def explain(self, store: Store, model: Model, asked: AskedItems) -> Callable[[Any], Explanation]:
        inventory, numbers, state = self.inventory, self.inventory.chosen(asked.items[0]), model.copied()
        user = None if asked.users is None else asked.users.x[0]
        size = size_of(len(numbers), len(inventory.live))

        def explained(context: Any) -> Explanation:
            if size not in self._explaining:
                self._explaining[size] = explanation.program(self._sized(model, size))
            x = _joined(_padded(inventory.features[numbers], size), user)
            found = self._explaining[size](state, seed_bits(self._maker.seed), x, np.arange(size) < len(numbers), None)
            places = {inventory.ids[number]: place for place, number in enumerate(numbers)}
            return explanation.explain(places, found, x, None, None)

        return explained

    def schema(self, log: Log, learned: Schema) -> Schema:
        users = learned if self._users is None else self._users.schema(learned)
        return users._replace(action_names=log.action_names)

    def compared(self, contexts: Sequence[bytes]) -> np.ndarray:
        records = self._contexts.records(contexts)
        return np.concatenate([records[name][:, 0] for name in records.dtype.names or ()], axis=1)  # without others

    def _users_of(self, log: Log) -> np.ndarray:
        """(n,) records of the users in a log. Raises ValueError where they or the features do not fit."""
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
        return records

    def imported(self, log: Log) -> Imported:
        records, inventory = self._users_of(log), self.inventory
        by_name = {str(name): number for name, number in inventory.numbers.items()}
        names = list(map(str, log.action_names or ()))
        if missing := [name for name in names if name not in by_name]:
            raise ValueError(
                f"the catalog has no item {missing[0]!r}, an action of the log ({len(missing)} of {len(names)} are "
                "unknown or removed): add_items first"
            )
        numbers = np.array([by_name[name] for name in names])
        features = inventory.features[numbers] if log.action_features is None else log.action_features
        masks: list[bytes | None] = []
        for row, (allowed, action) in enumerate(zip(log.mask, log.action, strict=True)):
            offered = np.flatnonzero(allowed)
            others = np.random.default_rng((self._maker.seed, row)).choice(offered, ROWS - 1)
            of_row = features if log.action_features is None else features[row]
            records[ITEM][row] = of_row[[action, *others]]
            masks.append(pack_mask(np.sort(numbers[offered]), len(inventory.ids)))
        return Imported(self._contexts.clipped(records), masks, numbers[log.action].tolist())

    def begin(self, model: Model) -> None:
        self._compile(model, model.copied(), len(self.inventory.live))

    def warm_up(self, model: Model) -> Iterator[bool]:
        self.begin(model)
        yield from model.warm_up(self._contexts.zeros(), np.int32(0), decides=False)

    def add(self, store: Store, model: Model, transact: Transact, items: Any) -> int:
        """Add or replace items, in steps; returns how many were beyond bounds."""
        ids, features, clipped = checked_items(self._catalog.item, items)
        self._change(store, model, transact, ids, features, ())
        return clipped

    def remove(self, store: Store, model: Model, transact: Transact, ids: Iterable[Id]) -> None:
        none = np.empty((0, *self.inventory.features.shape[1:]), self.inventory.features.dtype)
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
        after = before.changed(ids, features, gone)
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

    def _begin(self, store: Store) -> tuple[Inventory, int]:
        _, last = store.database.catalog()
        store.show_items(len(self.inventory.ids), last)
        return self.inventory, last + 1

    def _show(self, store: Store, after: Inventory, change: int) -> None:
        store.show_items(len(after.ids), change)
        self.inventory = after

    def _sized(self, model: Model, size: int) -> Agent:
        """The agent with so many candidates. Raises TypeError where its state depends on them."""
        agent = self._maker.make(self._catalog.spaces(size))
        own, other = (
            [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]
            for tree in (jax.eval_shape(agent.init, jax.random.key(0)), model.belief.state)
        )
        if own != other:
            raise TypeError(
                f"{agent.name} cannot choose from a catalog: its state depends on the number of candidates; {size} are "
                f"not as {ROWS}. Use an agent with one model for all rows, such as auto, linear or hilofi"
            )
        return agent

    def _program(self, model: Model, size: int) -> Callable[..., tuple[int, float]]:
        """(state, number of the decision, features (k, d), user) -> index and propensity, for at most `size` items."""
        if size not in self._choosing:
            self._choosing[size] = self._compiled(model, size)
        return self._choosing[size]

    def _compiled(self, model: Model, size: int) -> Callable[..., tuple[int, float]]:
        program, seed = _choosing(self._sized(model, size), size), seed_bits(self._maker.seed)

        def choose(state: PyTree, number: int, features: np.ndarray, user: Any) -> tuple[int, float]:
            rows, count = _padded(features, size), np.int32(len(features))
            index, chance = program(state, seed, np.uint32(number % 2**32), rows, user, count)
            return int(index), float(chance)

        return choose

    def _compile(self, model: Model, state: PyTree, count: int) -> None:
        item = np.zeros((1, *self.inventory.features.shape[1:]), self.inventory.features.dtype)
        user = None if self._users is None else np.zeros(self._users.shape_of(WHOLE), self._users.record[0].base)
        for size in sizes(count):
            if size not in self._choosing:
                choose = self._compiled(model, size)
                choose(state, 0, item, user)
                self._choosing[size] = choose


@shared
def _choosing(agent: Agent, size: int) -> Any:
    def act(state: PyTree, seed: Any, number: Any, features: Any, user: Any, count: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(seed), number)
        action = agent.act(key, state, Masked(_joined(features, user), jnp.arange(size) < count))
        return action.value, action.propensity

    return jax.jit(act, compiler_options=step_options())


def checked_items(item: gym_spaces.Box | Encoder, items: Any) -> tuple[list[Id], np.ndarray, int]:
    """Ids, clipped features (n, d), and the number of items beyond bounds. Raises TypeError or ValueError."""
    if not isinstance(items, Mapping):
        raise TypeError(f"items must be a dict of features by id; got {items!r:.80}")
    space = _box_of(item)
    ids, contexts = [label("the id of an item", name) for name in items], Contexts(space)
    records = np.empty(len(ids), contexts.record)
    for place, (name, given) in enumerate(zip(ids, items.values(), strict=True)):
        called = f"the features of item {name!r}"
        row = np.asarray(shaped(space, _encoded(item, given, called), called))
        check_values(space, row, called, kept=True)
        records[WHOLE][place] = row
    rows = contexts.clipped(records)
    return ids, rows.x, rows.clipped


def _encoded(item: gym_spaces.Box | Encoder, row: Any, called: str) -> Any:
    if not isinstance(item, Encoder):
        return row
    try:
        return item(row)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{called}: {error}") from None


def pack_mask(numbers: np.ndarray, count: int) -> bytes:
    """Some of so many items as bytes."""
    chosen = np.zeros(count, bool)
    chosen[numbers] = True
    return zlib.compress(np.packbits(chosen).tobytes(), 1)


def unpack_mask(content: bytes, count: int) -> np.ndarray:
    """Inverse of `pack_mask`, (count,) bool; the packed count may be smaller."""
    return np.unpackbits(np.frombuffer(zlib.decompress(content), np.uint8), count=count).astype(bool)


def sizes(count: int) -> list[int]:
    """Row counts of the programs of a catalog."""
    step = max(_FEWEST, 2 ** (max(count - 1, 0).bit_length() - 3))
    whole = -(-max(count, 1) // step) * step
    few = [_FEWEST * 4**power for power in range(whole.bit_length())]
    return [*(size for size in few if size < whole), whole]


def size_of(rows: int, count: int) -> int:
    """Rows of the program for so many of `count` items."""
    return next(size for size in sizes(count) if size >= rows)


def _box_of(part: gym_spaces.Box | Encoder) -> gym_spaces.Box:
    return part.space if isinstance(part, Encoder) else part


def _stacked(space: gym_spaces.Box, count: int) -> gym_spaces.Box:
    low, high = (np.broadcast_to(bound, (count, *space.shape)) for bound in (space.low, space.high))
    return gym_spaces.Box(low, high, dtype=space.dtype.type)  # pyright: ignore[reportArgumentType]


def _no_mask(mask: Any) -> None:
    if mask is not None:
        raise TypeError("with a catalog, say with items=[...] which may be chosen, by their ids; got a mask")


def _padded(features: np.ndarray, size: int) -> np.ndarray:
    rows = np.zeros((size, *features.shape[1:]), features.dtype)
    rows[: len(features)] = features
    return rows


def _joined(features: Any, user: Any) -> dict[str, Any]:
    """Observation: items (k, d), each with the user."""
    rows = (len(features), *np.shape(user))
    return {ITEM: features} | ({} if user is None else {USER: jnp.broadcast_to(user, rows)})


def _record(features: np.ndarray, user: Any) -> dict[str, Any]:
    """Items (k, d) with the user as a logged context (1, ...)."""
    rows = (1, len(features), *np.shape(user))
    return {ITEM: features[None]} | ({} if user is None else {USER: np.broadcast_to(user, rows)})
