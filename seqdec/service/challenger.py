"""A second agent that learns beside the first, from the same log, and never plays.

It learns the rewards in the order in which the first has learned them, some batches at a time, and before each batch
computes its probabilities in these decisions. They only depend on earlier rewards, as a comparison by `seqdec.ope`
requires. Nothing of it is stored: it processes the log again after a start, or when an arm gets another output.
"""

import itertools
import threading
import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from seqdec.runtime import short_turns
from seqdec.service.actions import Arms
from seqdec.service.contexts import Contexts
from seqdec.service.model import Belief, Lessons, Maker, Model
from seqdec.service.store import Store, Stored, Transact, own_propensity

_STEP = 16
"""Batches of one step, which alone are read while other calls wait."""
_PAUSE = 0.1
"""Seconds between looks for rewards, once it has learned all."""
_KEPT = 100_000
"""Latest decisions that can be compared."""
_PATIENCE = 10.0
"""Seconds that the end waits for a step."""


class _Step(NamedTuple):
    """What is learned next."""

    numbers: list[int]
    """of the decisions"""
    masks: np.ndarray
    """(n, outputs) bool"""
    lessons: Lessons


class Challenger(threading.Thread):
    """Learns the log of `store` until `stop`; `laws`: probabilities of the arms by id, as float32, by decision."""

    def __init__(
        self,
        maker: Maker,
        store: Store,
        actions: Arms,
        contexts: Contexts,
        worth: Callable[[Stored], float],
        transact: Transact,
    ) -> None:
        super().__init__(name="seqdec challenger", daemon=True)
        self._maker, self._store, self._actions, self._contexts = maker, store, actions, contexts
        self._worth, self._transact, self._ended = worth, transact, threading.Event()
        self._model: Model | None = None
        self._owners: dict[int, int] = {}
        self.laws: dict[int, bytes] = {}
        self.start()

    def run(self) -> None:
        pause = 0.0
        while not self._ended.wait(pause):
            try:
                with short_turns():
                    pause = 0.0 if self._step() else _PAUSE
            except Exception as error:
                if not self._ended.is_set():
                    warnings.warn(f"the challenger stops until the next start: {error}", RuntimeWarning, stacklevel=2)
                return

    def stop(self) -> None:
        """Begin no other step, and wait for the present one; before one has the lock of calls."""
        self._ended.set()
        if threading.current_thread() is not self:
            self.join(_PATIENCE)

    def _step(self) -> bool:
        """Whether there was something to learn."""
        owners, outputs = self._transact(self._present, urgent=True)
        if self._model is None or owners != self._owners or outputs != self._model.outputs:
            self._model, self._owners, self.laws = self._maker.model(outputs, 0), owners, {}
        found: _Step | None = self._transact(self._next, self._model, urgent=True)
        if found is None:
            return False
        if found.numbers:
            values, _, every = self._model.decide(found.numbers[0], found.lessons.x, found.masks)
            if every is None:
                every = np.eye(outputs)[values]
            laws = np.zeros((len(values), 1 + max(owners.values())), np.float32)
            laws[:, list(owners.values())] = every[:, list(owners)]
            self.laws.update(zip(found.numbers, map(bytes, laws), strict=True))
            for number in list(itertools.islice(self.laws, max(0, len(self.laws) - _KEPT))):
                del self.laws[number]
        self._model.learn(found.lessons)
        return True

    def _present(self) -> tuple[dict[int, int], int]:
        """Ids of the arms by output, and the number of outputs."""
        return dict(self._actions.owners), self._actions.outputs

    def _next(self, model: Model) -> _Step | None:
        """The next batches, from the base of the log on; None where all are learned."""
        base = self._store.base
        if base is not None and model.belief.batch < base.batch:
            model.belief = Belief(model.belief.state, base.batch)
        if self._ended.is_set() or self._store.batches <= model.belief.batch:
            return None
        numbers, contexts, allowed, actions, chances, rewards, sizes = [], [], [], [], [], [], []
        last = model.belief.batch
        outputs = {key: output for output, key in self._owners.items()}
        for last, pairs in self._store.pairs_after(model.belief.batch, _STEP):  # noqa: B007
            before = len(numbers)
            for (_, number, _, reward, *_), (_, _, _, context, mask, action, chance, *_) in pairs:
                if context is not None and action in outputs:
                    numbers.append(number)
                    contexts.append(context)
                    allowed.append(np.frombuffer(mask, bool))
                    actions.append(outputs[action])
                    chances.append(own_propensity(number, chance))
                    rewards.append(reward if isinstance(reward, float) else self._worth(reward))
            sizes.append(len(numbers) - before)
        masks = np.zeros((len(numbers), model.outputs), bool)
        for row, free in zip(masks, allowed, strict=True):
            row[[outputs[key] for key in np.flatnonzero(free).tolist() if key in outputs]] = True
        x = self._contexts.unpack(contexts)
        played = model.played(actions, chances)
        return _Step(numbers, masks, Lessons(x, played, np.array(rewards, np.float32), sizes, last))
