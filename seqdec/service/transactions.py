"""Calls of several threads, one at a time."""

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from seqdec.runtime import check_process
from seqdec.service.learner import Learner
from seqdec.service.rewards import Rewards
from seqdec.service.store import Store

R = TypeVar("R")
_STEP = 16
"""Batches learned before a call's own work."""
_WAY = 1e-4
"""Seconds in which a waiting thread wakes up."""


class Transactions:
    """Runs functions one at a time; after an exception in one, the next first learns the rest of the log."""

    def __init__(self, store: Store, learner: Learner, rewards: Rewards) -> None:
        self._store, self._learner, self._rewards = store, learner, rewards
        self._process, self._consistent = os.getpid(), True
        self._learns = not store.is_shared  # else a thread does (`seqdec.service.cluster`)
        self._collects = self._learns and rewards.collects
        self.lock, self.is_open = threading.RLock(), True

    def __call__(self, function: Callable[..., R], *arguments: object, urgent: bool = False) -> R:
        """Result of a function, after learning what is due or, if `urgent`, a little of it.

        Raises RuntimeError once closed, in a forked process, and where the log cannot be learned again.
        """
        if os.getpid() != self._process:
            check_process()
        if self._learns and not urgent and self._learner.is_warm.is_set():
            while self._collects and self.patient(self._rewards.is_more_due, urgent=True):
                pass
            if self._learner.is_behind(_STEP):
                self._learner.follow(self.patient)
        # On one line: a tracer or debugger that raises at the start of a line then leaves no lock behind.
        with self.lock: return self._run(function, arguments, urgent)  # fmt: skip  # noqa: E701

    def patient(self, function: Callable[..., R], *arguments: object, urgent: bool = False) -> R:
        """A portion of a long call, after which a thread that waits gets the lock: it is not handed on in order."""
        result = self(function, *arguments, urgent=urgent)
        self.give_way()
        return result

    def give_way(self) -> None:
        time.sleep(_WAY)

    def recover(self) -> None:
        if self._consistent:
            return
        try:
            self._store.recover()
            self._learner.recover()
        except ValueError as error:  # which would blame the arguments of the call
            raise RuntimeError(f"this agent cannot learn again what its log holds: {error}") from error
        self._consistent = True

    def _run(self, function: Callable[..., R], arguments: tuple[object, ...], urgent: bool) -> R:
        if not self.is_open:
            raise RuntimeError("this agent is closed; make another one with the same folder to go on")
        if not self._consistent:
            self.recover()
        self._consistent = False
        if self._collects and self._learner.is_warm.is_set():
            self._rewards.settle(few=urgent)
        result = function(*arguments)
        self._consistent = True
        return result
