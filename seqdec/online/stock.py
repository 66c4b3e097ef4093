"""Items of a catalog come and go, and logs of other decisions among them are learned.

Each change is in the log as a whole or not at all: its rows are written some at a time, while others go on, and count
once its last transaction says so. What a change leaves that does not come to its end is overwritten or taken back by
the next one.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from seqdec.online import catalog
from seqdec.online.calls import portion
from seqdec.online.catalog import ITEM, ROWS, USER, Id, Shelf
from seqdec.online.contexts import shape_of
from seqdec.online.items import Items
from seqdec.online.turns import exclusive, urgent
from seqdec.ope.log import Log


class Stock(Items):
    """An agent whose items come and go, if its spaces are those of a catalog."""

    def _change_items(self, ids: Sequence[Id], features: np.ndarray, removed: Iterable[Id], clipped: int = 0) -> None:
        """Add items, in the place of those with the same ids, and remove others; for one thread at a time."""
        before, change = self._begun()
        gone = {before.ids[number] for number in before.chosen(removed)} if removed else set()
        gone |= before.numbers.keys() & set(ids)
        after = catalog.changed(before, ids, features, gone)
        if self._choosing:  # else nothing has been compiled, and the first call does it
            self._compile(len(after.live))
        while self._undone():
            pass
        old = [(before.numbers[name], name) for name in gone]
        rows = [(number, json.dumps(name), before.features[number].tobytes(), change) for number, name in old]
        new = zip(ids, features, strict=True)
        rows += [
            (number, json.dumps(name), row.tobytes(), 0) for number, (name, row) in enumerate(new, len(before.ids))
        ]
        step = portion(before.features[:1].nbytes)
        for start in range(0, len(rows), step):
            self._write_some(rows[start : start + step])
        self._show(after, change, clipped)

    @urgent
    def _begun(self) -> tuple[Shelf, int]:
        """The items, and the number of the next change of them, whose rows do not count yet."""
        _, last = self._journal.catalog()
        self._journal.show_items(len(self._shelf.ids), last)
        return self._shelf, last + 1

    @urgent
    def _undone(self) -> int:
        """Take back some of what a change has left that did not come to its end; returns how much."""
        return self._journal.undo_removals(portion(1))

    @urgent
    def _write_some(self, rows: Sequence[tuple[int, str, bytes, int]]) -> None:
        self._journal.write_items(rows)

    @exclusive
    def _show(self, after: Shelf, change: int, clipped: int) -> None:
        self._journal.show_items(len(after.ids), change)
        self._shelf = after
        if clipped:
            self._counts["clipped"] += clipped

    def _also(self, log: Log) -> list[np.ndarray]:
        """As of arms; with a catalog, the names of the actions and their features."""
        if self._catalog is None:
            return super()._also(log)
        names = np.frombuffer(json.dumps(log.action_names).encode(), np.uint8)
        return [names] if log.action_features is None else [names, log.action_features]

    def _history_of(self, records: np.ndarray, log: Log) -> tuple[np.ndarray, list[bytes], list[int]]:
        """As of arms; with a catalog, the items by the names of the log's actions, in records that have the users."""
        if self._catalog is None:
            return super()._history_of(records, log)
        shelf = self._shelf
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
        masks: list[bytes] = []
        for row, (allowed, action) in enumerate(zip(log.mask, log.action, strict=True)):
            offered = np.flatnonzero(allowed)
            others = np.random.default_rng((self._seed, row)).choice(offered, ROWS - 1)
            of_row = features if log.action_features is None else features[row]
            records[ITEM][row] = of_row[[action, *others]]
            masks.append(catalog.packed(np.sort(numbers[offered]), len(shelf.ids)))
        return records, masks, numbers[log.action].tolist()

    def _records_of(self, log: Log) -> np.ndarray:
        """As of arms; with a catalog, records with the users alone."""
        if self._catalog is None:
            return super()._records_of(log)
        parts: Any = self._record.names
        width = shape_of(self._record, USER)[1] if USER in parts else 0
        if log.context.shape[1] != width:
            raise ValueError(
                f"a row of the log has {log.context.shape[1]} numbers of the user; the catalog has {width}"
            )
        if log.action_names is None:
            raise ValueError(
                "the actions of the log are numbers; give them the names of items, by their ids: action_names=[...]"
            )
        item = shape_of(self._record, ITEM)[1]
        if log.action_features is not None and log.action_features.shape[2] != item:
            raise ValueError(f"an action of the log has {log.action_features.shape[2]} features; an item has {item}")
        records = np.zeros(len(log.action), self._record)
        if self._catalog.user is not None:
            records[USER] = catalog.checked_users(self._catalog.user, log.context, len(records))
        return records
