"""Catalogs: items that are known by ids and described by numbers, and how many of them a program chooses among.

A program is compiled for a fixed number of rows. A decision among few items fills up the next power of four, one among
more of them the size of the whole catalog, which is at most a quarter larger than it.
"""

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from gymnasium import spaces as gym_spaces

from seqdec.boundary.spaces import check_values, shaped
from seqdec.core import Spaces
from seqdec.features import Encoder
from seqdec.service.contexts import WHOLE, Contexts

Id: TypeAlias = str | int
ITEM, USER = "item", "user"
"""Names of the parts of a row."""
ROWS = 8
"""Rows of a decision that the log has and the agent learns of: the item that was chosen, then some that were offered,
drawn at random, by which it measures units."""
_FEWEST = 16
"""Rows of the smallest program."""


class Catalog(NamedTuple):
    """The spaces of a service that chooses among items: in the place of an environment, for `OnlineAgent`.

    A row of the agent's candidates is an item with the user of the request. What is learned is shared by all items.
    """

    item: gym_spaces.Box | Encoder
    """(d,) numbers of an item; or an encoder of items that are rows of mixed columns, as dicts"""
    user: gym_spaces.Box | Encoder | None = None
    """(u,) numbers of a request, or an encoder as of items; None: requests have none"""

    @property
    def encoders(self) -> dict[str, Encoder]:
        """Those that it has, by the names of the parts of a row."""
        return {name: part for name, part in ((ITEM, self.item), (USER, self.user)) if isinstance(part, Encoder)}

    def spaces(self, count: int) -> Spaces:
        """Of an agent that chooses among so many candidates. Raises TypeError where a part is no vector of floats."""
        parts = {ITEM: box_of(self.item)} | ({} if self.user is None else {USER: box_of(self.user)})
        for name, part in parts.items():
            vector = isinstance(part, gym_spaces.Box) and len(part.shape) == 1
            if not vector or not np.issubdtype(part.dtype, np.floating):
                raise TypeError(
                    f"{name} of a Catalog must be a Box of floats with one axis, or an encoder; got {part!r:.200}"
                )
        return Spaces(
            gym_spaces.Dict({name: _stacked(part, count) for name, part in parts.items()}), gym_spaces.Discrete(count)
        )


class Shelf(NamedTuple):
    """The items that were ever added, by number, and those that are not removed."""

    ids: tuple[Id, ...]
    """of all; an item that is added again has another number"""
    features: np.ndarray
    """(all, d)"""
    numbers: Mapping[Id, int]
    """of those that are not removed"""
    live: np.ndarray
    """their numbers, increasing"""

    def chosen(self, ids: Iterable[Id] | None) -> np.ndarray:
        """The numbers of some items, increasing, each once; of all for None. Raises TypeError or ValueError."""
        if ids is None:
            found = self.live
        else:
            if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable):
                raise TypeError(f"items must be a list of ids; got {ids!r:.80}")
            given = list(ids)
            try:
                unknown = [name for name in given if name not in self.numbers]
            except TypeError:
                raise TypeError(f"ids of items are texts or integers; got {given!r:.80}") from None
            if unknown:
                raise ValueError(
                    f"the catalog has no item {unknown[0]!r} ({len(unknown)} of {len(given)} are unknown or removed): "
                    "add_items first, or leave it out"
                )
            found = np.unique(np.array([self.numbers[name] for name in given], np.int64))
        if not len(found):
            raise ValueError(f"no item to choose: {'the catalog is empty' if ids is None else 'items is empty'}")
        return found


def shelf(ids: Sequence[Id], features: np.ndarray, removed: Iterable[bool]) -> Shelf:
    """The items by number, (all, d) features, and whether each is removed."""
    numbers = {name: number for number, (name, gone) in enumerate(zip(ids, removed, strict=True)) if not gone}
    return Shelf(tuple(ids), features, numbers, np.fromiter(numbers.values(), np.int64, len(numbers)))


def changed(before: Shelf, ids: Sequence[Id], features: np.ndarray, gone: Iterable[Id]) -> Shelf:
    """Without the items `gone`, and with others in the end."""
    kept = set(before.numbers.values()) - {before.numbers[name] for name in gone}
    removed = [number not in kept for number in range(len(before.ids))]
    return shelf((*before.ids, *ids), np.concatenate([before.features, features]), [*removed, *[False] * len(ids)])


def box_of(part: gym_spaces.Box | Encoder) -> gym_spaces.Box:
    """The space of a part of a row."""
    return part.space if isinstance(part, Encoder) else part


def checked_items(item: gym_spaces.Box | Encoder, items: Any) -> tuple[list[Id], np.ndarray, int]:
    """Ids, features (n, d) within the bounds, and of how many items they were not. Raises TypeError or ValueError."""
    if not isinstance(items, Mapping):
        raise TypeError(f"items must be a dict of features by id; got {items!r:.80}")
    space = box_of(item)
    ids, contexts = [_id(name) for name in items], Contexts(space)
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


def packed(numbers: np.ndarray, count: int) -> bytes:
    """Some of so many items, as the log has them."""
    chosen = np.zeros(count, bool)
    chosen[numbers] = True
    return zlib.compress(np.packbits(chosen).tobytes(), 1)


def unpacked(content: bytes, count: int) -> np.ndarray:
    """(count,) bool of what `packed` packed, perhaps when there were fewer items."""
    return np.unpackbits(np.frombuffer(zlib.decompress(content), np.uint8), count=count).astype(bool)


def sizes(count: int) -> list[int]:
    """Rows of the programs that choose among the items of a catalog of so many, increasing."""
    step = max(_FEWEST, 2 ** (max(count - 1, 0).bit_length() - 3))
    whole = -(-max(count, 1) // step) * step
    few = [_FEWEST * 4**power for power in range(whole.bit_length())]
    return [*(size for size in few if size < whole), whole]


def size_of(rows: int, count: int) -> int:
    """That of the program that chooses among so many items of a catalog of `count`."""
    return next(size for size in sizes(count) if size >= rows)


def read_shelf(rows: Sequence[tuple[int, str, bytes, int]], record: np.dtype) -> Shelf:
    """The items that a log with this record has; none without a catalog."""
    kind = record[ITEM] if ITEM in (record.names or ()) else np.dtype((np.float32, (1, 0)))
    _, texts, contents, removed = zip(*rows, strict=True) if rows else ((), (), (), ())
    features = np.frombuffer(b"".join(contents), kind.base).reshape(len(rows), *kind.shape[1:])
    return shelf([json.loads(text) for text in texts], features, map(bool, removed))


def names(ids: Sequence[Id]) -> list[str]:
    """Of all items that were ever added: their ids, with the number where several have the same."""
    texts = list(map(str, ids))
    found = Counter(texts)
    return [text if found[text] == 1 else f"{text}#{number}" for number, text in enumerate(texts)]


def _id(name: Any) -> Id:
    if isinstance(name, bool | np.bool_) or not isinstance(name, str | int | np.integer):
        raise TypeError(f"the id of an item must be a text or an integer; got {name!r:.80}")
    return str(name) if isinstance(name, str) else int(name)


def _stacked(space: gym_spaces.Box, count: int) -> gym_spaces.Box:
    low, high = (np.broadcast_to(bound, (count, *space.shape)) for bound in (space.low, space.high))
    return gym_spaces.Box(low, high, dtype=space.dtype.type)  # pyright: ignore[reportArgumentType]
