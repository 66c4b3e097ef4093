"""The fits of a search: each goes on from the one before, and predictions leave it where it is."""

from typing import Any

import jax
import numpy as np

from seqdec import checks
from seqdec.bo import checkpoint, model
from seqdec.bo.model import Fitted, Observations, Start
from seqdec.bo.output_warp import Warp
from seqdec.bo.record import Record
from seqdec.bo.settings import Settings, choose
from seqdec.bo.surrogates import contract as surrogates
from seqdec.bo.surrogates.contract import Surrogate


class Fits:
    """The surrogate in use and what its next fit starts from; not for several threads at once."""

    def __init__(self, settings: Settings, capacity: Any) -> None:
        self.settings, self.capacity = settings, checks.count("capacity", capacity)
        self._current: Fitted | None = None
        """to all values, for predictions"""
        self.use(surrogates.choose(0) if settings.is_automatic else settings.surrogate)

    def use(self, surrogate: str | Surrogate) -> None:
        """Fit this surrogate from now on, from its prior."""
        self.surrogate, self.acquisition, self.method = choose(self.settings, surrogate)
        self._start: Start | None = None

    def __getstate__(self) -> dict[str, Any]:
        """All but the functions of a surrogate given by name, which are made anew."""
        made = isinstance(self.surrogate, str)
        return vars(self) | ({"method": None, "_current": None, "_start": self.saved()} if made else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self.method is None:
            saved: Any = self._start
            self.use(self.surrogate)
            self.restore(*saved)

    @property
    def reason(self) -> str:
        """Why it is this surrogate."""
        return surrogates.REASONS[str(self.surrogate)] if self.settings.is_automatic else "as asked for"

    @property
    def has_begun(self) -> bool:
        """Whether a question was asked with the surrogate."""
        return self._start is not None

    def observations(self, record: Record) -> Observations:
        """What is known; where the surrogate is chosen automatically, it is chosen by it."""
        chosen = surrogates.choose(len(record.order) + record.more)
        if self.settings.is_automatic and chosen != self.surrogate:
            self.use(chosen)
        return record.observations(self.method.model.signs)

    def forget(self) -> None:
        """More has become known: predictions need another fit."""
        self._current = None

    def advance(self, record: Record) -> Fitted:
        """The model fitted to all values; the next fit goes on from it."""
        known = self.observations(record)
        if (capacity := self._needed(record)) != self.capacity:
            self.capacity, self._start = capacity, None
        start, self._start = self._start, None  # after an interruption the next fit is anew
        with jax.enable_x64(True):
            rows = model.padded_rows(self.method.model, capacity)
            fitted = model.fit(self.method.model, known, rows, start)
        self._start = fitted.start
        return fitted

    def current(self, record: Record) -> Fitted:
        """The model fitted to all values as `advance` would, from which no fit goes on."""
        if self._current is None:
            known, capacity = self.observations(record), self._needed(record)
            start = self._start if capacity == self.capacity else None
            with jax.enable_x64(True):
                if start is not None:  # `fit` may reuse its memory
                    start = start._replace(state=jax.tree.map(lambda leaf: leaf.copy(), start.state))
                rows = model.padded_rows(self.method.model, capacity)
                self._current = model.fit(self.method.model, known, rows, start)
        return self._current

    def _needed(self, record: Record) -> int:
        """The capacity that holds all trials."""
        count = len(record.entries) + record.more
        return self.capacity << (count // self.capacity).bit_length() if count >= self.capacity else self.capacity

    def saved(self) -> tuple[list[np.ndarray], tuple[Warp, ...]]:
        """What the next fit goes on from, as `checkpoint.arrays` and warps; empty before the first."""
        stored = self.method.model.surrogate.stored
        return ([], ()) if self._start is None else (checkpoint.arrays(stored(self._start.state)), self._start.warps)

    def restore(self, arrays: list[np.ndarray], warps: tuple[Warp, ...]) -> None:
        """Go on from what was `saved`."""
        if arrays:
            with jax.enable_x64(True):
                like = model.prior(self.method.model, model.padded_rows(self.method.model, self.capacity))
                self._start = Start(checkpoint.state_of(arrays, like), warps)
