"""The belief of an optimiser: the surrogate fitted to the warped responses, and what it predicts."""

from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from seqdec import checks
from seqdec.bo import responses, suggest
from seqdec.bo.responses import Warp
from seqdec.bo.suggest import Plan, Trials
from seqdec.bo.surrogates import History, Surrogate
from seqdec.bo.trials import Entry, Record

_SHORTEST = 4
"""Binary logarithm of the smallest number of rows of the padded history."""
_NOISY = 1e-3
"""Estimated share of noise in the variance of the warped responses above which they count as noisy."""
_DEVIATIONS = 1.959964
"""Half-width of a 95% interval."""


class Prediction(NamedTuple):
    """Belief about the function at a point, without noise, in the units of its values."""

    mean: float
    low: float
    """The function lies between `low` and `high` with probability 95%."""
    high: float


class Recommendation(NamedTuple):
    """The evaluated point to be used."""

    x: Any
    value: float
    """Of the function there: as told, or the mean of the prediction."""
    low: float
    """The function lies between `low` and `high` with probability 95%; both are `value` where it was observed."""
    high: float
    kind: Literal["observed", "predicted"]

    @classmethod
    def observed(cls, x: Any, value: float) -> "Recommendation":
        """A point whose value is known without noise."""
        return cls(x, value, value, value, "observed")


class Belief(Record):
    """A record and the surrogate's belief about the function."""

    seed: int
    capacity: int
    surrogate: str | Surrogate
    standardize: bool
    warp: bool
    noise_std: float | None
    _plan: Plan

    def __init__(self) -> None:
        super().__init__()
        self._state: Any = None
        self._warp = Warp()
        self._fitted: tuple[Any, Warp] | None = None

    def _fit(self) -> Trials:
        """Fit the surrogate to all values; returns the arguments of the compiled programs."""
        trials, renewed = self._trials(self._plan.surrogate.dtype)
        state, self._state = None if renewed else self._state, None  # after an interruption the next fit is anew
        self._state = suggest.fit(self._plan.surrogate, jax.random.key(self.seed), state, trials)
        return trials

    def _belief(self) -> tuple[Any, Warp]:
        """(surrogate's state, warp), fitted to all values as for the next question, which stays what it is."""
        if self._fitted is None:
            kept = self._state, self._warp, self.capacity
            try:
                self._state = jax.tree.map(lambda leaf: leaf.copy(), self._state)  # `fit` may reuse its memory
                with jax.enable_x64(True):
                    self._fit()
                self._fitted = self._state, self._warp
            finally:
                self._state, self._warp, self.capacity = kept
        return self._fitted

    def _marginals(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(means (n,), standard deviations (n,)) of the function at `units` (n, columns), warped; larger is better."""
        (state, _), rows, found = self._belief(), self._length, []
        with jax.enable_x64(True):
            for block in np.split(units, range(rows, len(units), rows)):
                x = np.zeros((rows, self.space.columns))
                x[: len(block)] = block
                at = suggest.marginals(self._plan.surrogate, state, x.astype(self._plan.surrogate.dtype))
                found.append(np.stack(at)[:, : len(block)])
        means, stds = np.concatenate(found, 1).astype(float)
        return means, stds

    def _predictions(self, units: np.ndarray) -> list[Prediction]:
        """The predictions at `units` (n, columns)."""
        means, stds = self._marginals(units)
        sign, warp = 1 if self.maximize else -1, self._belief()[1]
        limits = [sign * warp.inverse(means + side * _DEVIATIONS * stds) for side in (-sign, sign)]
        columns = [sign * warp.expected_inverse(means, stds), *limits]
        return [Prediction(mean, low, high) for mean, low, high in np.stack(columns, 1).tolist()]

    def _is_noisy(self) -> bool:
        """Whether values are known or estimated to be noisy."""
        estimate = self._plan.surrogate.noise_variance
        if estimate is None:
            return False
        known = [self._noise_of(self._entries[number]) for number in self._order]
        if None not in known:
            return any(known)
        return any(known) or float(estimate(self._belief()[0])) > _NOISY

    def _noise_of(self, entry: Entry) -> float | None:
        """Standard deviation of the noise of a value; None if it is not known."""
        return self.noise_std if entry.noise_std is None else entry.noise_std

    def _checked_noise(self, noise_std: Any) -> float | None:
        """`noise_std` as a float. Raises ValueError or TypeError if it is no deviation or the surrogate uses none."""
        if noise_std is None:
            return None
        noise_std = checks.real("noise_std", noise_std)
        checks.number("noise_std", noise_std)
        if self._plan.surrogate.noise_variance is None:
            raise ValueError(
                f"noise_std is not used by the surrogate {self.surrogate!r}, got {noise_std}: leave it out, or choose "
                'surrogate="gp"'
            )
        return noise_std

    def _trials(self, dtype: Any) -> tuple[Trials, bool]:
        """The arguments of the compiled program, and whether the responses were standardised again."""
        if len(self._entries) >= self.capacity:
            self.capacity <<= (len(self._entries) // self.capacity).bit_length()
            self._state, self._warp = None, Warp()
        complete, values = [self._entries[number] for number in self._order], self._responses()
        renewed = self._is_renewal_due(values)
        if renewed:
            self._warp = self._fit_warp(complete, values)
        kept = values >= self._warp.fence
        answered, outliers = ([entry for entry, k in zip(complete, kept, strict=True) if k == side] for side in (1, 0))
        pending, failed = ([e for e in self._entries if e.status == status] for status in ("pending", "failed"))
        groups = answered, pending, failed + outliers
        x, y = np.zeros((self._length, self.space.columns)), np.zeros(self._length)
        rows = [entry.unit for group in groups for entry in group]
        x[: len(rows)], y[: len(answered)] = rows, self._warp.forward(values[kept])
        noise = None
        if self._plan.surrogate.noise_variance is not None:
            noise = self._noise(answered, values[kept]).astype(dtype)
        counts = [np.int32(len(group)) for group in groups]
        return Trials(x.astype(dtype), y.astype(dtype), *counts, noise=noise), renewed

    def _is_renewal_due(self, values: np.ndarray) -> bool:
        """Whether the warp is to be fitted again, and with it the surrogate from its prior."""
        warp = self._warp
        if self._state is None or len(values) >= warp.fitted * self._plan.surrogate.growth:
            return True
        return self.standardize and self.warp and warp.is_far(values[warp.fitted :])

    def _fit_warp(self, complete: list[Entry], values: np.ndarray) -> Warp:
        """The warp for all responses."""
        if not self.standardize:
            return Warp(fitted=len(values))
        if not self.warp:
            return responses.standardized(values)
        return responses.fit(np.stack([entry.unit for entry in complete]), values)

    def _noise(self, answered: list[Entry], values: np.ndarray) -> np.ndarray:
        """(N,) variances of the warped responses' noise, to first order; negative where it is estimated."""
        known = [-1.0 if (std := self._noise_of(entry)) is None else std for entry in answered]
        default = -1.0 if self.noise_std is None else self.noise_std
        noise = np.full(self._length, default) * self._warp.slope(self._warp.inverse(np.zeros(1)))
        noise[: len(known)] = np.array(known) * self._warp.slope(values)
        return np.where(noise < 0, -1.0, noise**2)

    @property
    def _length(self) -> int:
        """Rows of the padded history, a power of two, so that studies share programs."""
        return 1 << max(_SHORTEST, (self.capacity - 1).bit_length())

    def _prior(self) -> Any:
        """The surrogate's state before the first fit."""
        dtype, shape = self._plan.surrogate.dtype, (self._length, self.space.columns)
        history = History(np.zeros(shape, dtype), np.zeros(self._length, dtype), np.int32(0))
        return self._plan.surrogate.init(jax.random.key(0), history)
