"""Erasing from a log: contexts of decisions by key (`forget`), and whole decisions by age (`compact`).

Both run in short transactions with other calls in between; the next call completes an interrupted one.
"""

import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from seqdec.service.learner import Learner
from seqdec.service.store import Store, Transact

_SOME, _READ = 16, 1024
"""Decisions erased, and looked at, in one step."""
_PART, _PAGES = 2**18, 64
"""Bytes of a base written, and pages taken from the file, in one step."""
_WAY, _PAUSE, _TRIES = 1e-4, 0.2, 10
"""Seconds between steps, and between attempts to empty a WAL that another process reads."""
_MINUTE, _HOUR, _DAY, _SHARE = 60.0, 3600.0, 86_400.0, 100
"""A log is looked at every hour, and as often while decisions grow older by 1 / `_SHARE` of what is allowed."""
_PATIENCE = 10.0
"""Seconds that the end waits for a step."""


def forget(
    store: Store,
    learner: Learner,
    transact: Transact,
    names: Sequence[tuple[str, int, bytes]],
    older_than: float | None,
) -> int:
    """Erase the contexts of decisions; returns of how many. `names`: keys, with number and nonce of a token."""
    numbers = {number for name in names for number in transact(store.numbers, *name, urgent=True)}
    if older_than is not None:
        numbers.update(_older(store, transact, transact(store.before, older_than, urgent=True), whole=True))
    if numbers:
        learner.snapshot(transact)  # which has learned them
    count = _in_steps(transact, store.erase, sorted(numbers))
    _settle(store, transact)
    return count


def compact(store: Store, learner: Learner, transact: Transact, older_than: float) -> int:
    """Make the belief the base of the log, and remove decisions that are older; returns how many."""
    before = transact(store.before, older_than, urgent=True)
    numbers = _older(store, transact, before, whole=False)
    count = 0
    if numbers:
        _rebase(store, learner, transact, numbers, before)
        count = _in_steps(transact, store.remove, numbers, before)
    while transact(store.shrink, _PAGES, urgent=True):
        time.sleep(_WAY)
    _settle(store, transact)
    return count


class Retention(threading.Thread):
    """Calls `compact` a minute after a start, or an hour if the log had waited for it for more than a day, and hourly.

    A clock that is wrong at the start has an hour to be put right; one that jumps later, as `Store.now` says.
    """

    def __init__(self, compact: Callable[[Transact], int], store: Store, transact: Transact, seconds: float) -> None:
        super().__init__(name="seqdec retention", daemon=True)
        self._compact, self._transact = compact, transact
        self._pause, self._ended = min(_HOUR, seconds / _SHARE), threading.Event()
        self._first = _HOUR if store.waited > _DAY else min(_MINUTE, self._pause)
        self.start()

    def run(self) -> None:
        pause = self._first
        while not self._ended.wait(pause):
            pause = self._pause
            try:
                self._compact(self._step)
            except Exception as error:
                if not self._ended.is_set():
                    warnings.warn(f"{error}; nothing of the log was removed by age", RuntimeWarning, stacklevel=2)

    def stop(self) -> None:
        """Begin no other step, and wait for the present one; before one has the lock of calls."""
        self._ended.set()
        if threading.current_thread() is not self:
            self.join(_PATIENCE)

    def _step(self, *call: Any, **options: Any) -> Any:
        if self._ended.is_set():
            raise RuntimeError("the agent is closed")
        return self._transact(*call, **options)


def _older(store: Store, transact: Transact, before: int, *, whole: bool) -> list[int]:
    """Numbers of the decisions before a time, in order."""
    numbers: list[int] = []
    after: int | None = -sys.maxsize
    while after is not None:
        found, after = transact(store.older, before, after, _READ, whole, urgent=True)
        numbers += found
    return numbers


def _rebase(store: Store, learner: Learner, transact: Transact, numbers: Sequence[int], before: int) -> None:
    """Write the belief to the log, as its base."""
    content, leaves, batch, outputs = learner.packed(transact)
    while transact(store.drop_bases, 1, urgent=True):
        pass
    first = 1 + (store.base.places[1] if store.base else 0)
    parts = [content[start : start + _PART] for start in range(0, len(content), _PART)] or [b""]
    for place, part in enumerate(parts, first):
        transact(store.stage_base, place, part, urgent=True)
    known = max(0, numbers[-1]), before, numbers[0] < 0
    transact(store.show_base, batch, *known, outputs, leaves, (first, first + len(parts) - 1), urgent=True)
    while transact(store.drop_bases, 1, urgent=True):
        pass


def _in_steps(transact: Transact, step: Callable[..., int], numbers: Sequence[int], *arguments: Any) -> int:
    count = 0
    for start in range(0, len(numbers), _SOME):
        count += transact(step, numbers[start : start + _SOME], *arguments, urgent=True)
        time.sleep(_WAY)
    return count


def _settle(store: Store, transact: Transact) -> None:
    """Empty the WAL, or say that it holds what was erased."""
    for pause in (*[_PAUSE] * _TRIES, 0):
        if transact(store.settle_erasure, urgent=True):
            return
        time.sleep(pause)
    warnings.warn(
        f"another process reads {store.path}, so that what was erased is in its -wal until the next call of forget or "
        "close",
        RuntimeWarning,
        stacklevel=5,
    )
