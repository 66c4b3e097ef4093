"""The belief of an optimiser: the surrogate fitted to the warped responses, and what it predicts."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from seqdec import checks
from seqdec.bo import output_warp as responses
from seqdec.bo.output_warp import Warp
from seqdec.bo.record import Entry, Record
from seqdec.bo.search import ascent as suggest
from seqdec.bo.search.ascent import Plan, Trials
from seqdec.bo.surrogates import contract as surrogates
from seqdec.bo.surrogates import gaussian_process
from seqdec.bo.surrogates.contract import History, Surrogate

_SHORTEST = 4
"""Binary logarithm of the smallest number of rows of the padded history."""
_NOISY = 1e-3
"""Estimated share of noise in the variance of the warped responses below which they count as exact."""
_EQUAL = 1e-6
"""Variance of the warped responses at one point below which they are equal."""
_DEVIATIONS = 1.959964
"""Half-width of a 95% interval."""


class Prediction(NamedTuple):
    """Belief about the function at a point, without noise, in the units of its values.

    Numbers; with several objectives arrays, one number for each.
    """

    mean: Any
    """Expected value of the function."""
    low: Any
    """The function lies between `low` and `high` with probability 95%."""
    high: Any
    """See `low`."""


class Recommendation(NamedTuple):
    """The evaluated point to be used."""

    x: Any
    """One of the evaluated points."""
    value: Any
    """Of the function there: as told, or the mean of the prediction."""
    low: Any
    """The function lies between `low` and `high` with probability 95%; both are `value` where it was observed."""
    high: Any
    """See `low`."""
    kind: Literal["observed", "predicted"]
    """How `value` is known."""

    @classmethod
    def observed(cls, x: Any, value: Any) -> "Recommendation":
        """A point whose value is known without noise."""
        return cls(x, value, value, value, "observed")


class Fitted(NamedTuple):
    """The surrogate fitted to all values."""

    state: Any
    """of the surrogate"""
    warps: tuple[Warp, ...]
    """of the outputs"""
    trials: Trials


class Front(NamedTuple):
    """Points of which none dominates another."""

    x: list[Any]
    """k points"""
    values: np.ndarray
    """(k, objectives) their values, as told"""


class Belief(Record):
    """A record and the surrogate's belief about the function."""

    seed: int
    capacity: int
    surrogate: str | Surrogate
    standardize: bool
    warp: bool
    noise_std: float | None
    _plan: Plan
    _automatic: bool

    def __init__(self) -> None:
        super().__init__()
        self._state: Any = None
        self._warps = (Warp(),)
        self._fitted: Fitted | None = None

    @property
    def _warp(self) -> Warp:
        """That of the first output."""
        return self._warps[0]

    def _update_choice(self) -> None:
        """Where the surrogate is chosen automatically, choose it by what has been told."""
        if self._automatic and (chosen := surrogates.choose(len(self._order))) != self.surrogate:
            self._use(chosen)

    def _use(self, surrogate: str | Surrogate) -> None:
        raise NotImplementedError

    def _fit(self) -> Trials:
        """Fit the surrogate to all values; returns the arguments of the compiled programs."""
        self._update_choice()
        trials, renewed = self._trials(self._plan.surrogate.dtype)
        state, self._state = None if renewed else self._state, None  # after an interruption the next fit is anew
        self._state = suggest.fit(self._plan.surrogate, jax.random.key(checks.word(self.seed)), state, trials)
        return trials

    def _belief(self) -> Fitted:
        """The surrogate fitted to all values as for the next question, which stays what it is."""
        if self._fitted is None:
            self._update_choice()
            kept = self._state, self._warps, self.capacity
            try:
                self._state = jax.tree.map(lambda leaf: leaf.copy(), self._state)  # `fit` may reuse its memory
                with jax.enable_x64(True):
                    trials = self._fit()
                self._fitted = Fitted(self._state, self._warps, trials)
            finally:
                self._state, self._warps, self.capacity = kept
        return self._fitted

    def _marginals(self, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(means (n, m), deviations (n, m)) of the outputs at `units` (n, columns), warped; larger is better."""
        means, stds = np.reshape(self._at(suggest.marginals, units), (2, len(units), len(self._signs)))
        return means, stds

    def _means(self, units: np.ndarray) -> np.ndarray:
        """(n, m) the means alone, in much less time with the surrogates that are networks."""
        return np.reshape(self._at(suggest.means, units), (len(units), len(self._signs)))

    def _at(self, program: Callable[..., Any], units: np.ndarray) -> np.ndarray:
        """Results of a program (surrogate, state, rows) at `units` (n, columns), as many rows at a time."""
        state, rows, found = self._belief().state, self._length, []
        with jax.enable_x64(True):
            for block in np.split(units, range(rows, len(units), rows)):
                x = np.zeros((rows, self.space.columns))
                x[: len(block)] = block
                at = np.array(program(self._plan.surrogate, state, x.astype(self._plan.surrogate.dtype)))
                found.append(np.reshape(at, (-1, rows, len(self._signs)))[:, : len(block)])
        return np.concatenate(found, 1).astype(float)

    def _predictions(self, units: np.ndarray) -> np.ndarray:
        """(n, objectives, 3) mean, low and high of `Prediction` at `units` (n, columns)."""
        means, stds = self._marginals(units)
        found = []
        for j in range(self.outputs.objectives):
            mean, std, sign, warp = means[:, j], stds[:, j], self._signs[j], self._belief().warps[j]
            limits = [sign * warp.inverse(mean + side * _DEVIATIONS * std) for side in (-sign, sign)]
            found.append(np.stack([sign * warp.expected_inverse(mean, std), *limits], 1))
        return np.stack(found, 1)

    def _prediction(self, unit: np.ndarray) -> Prediction:
        """The prediction at `unit` (columns,)."""
        found = self._predictions(unit[None])[0]
        return Prediction(*(found[0].tolist() if len(found) == 1 else found.T))

    def _is_noisy(self) -> bool:
        """Whether values are known or found to be noisy, see `recommend`."""
        if (estimate := self._plan.surrogate.noise_variance) is None:
            return False
        known = [self._noise_of(self._entries[number]) for number in self._order]
        if any(known) or None not in known:
            return any(known)
        shares = np.ravel(estimate(self._belief().state))[: self.outputs.objectives]
        return any(share > _NOISY and self._shows_noise(output) for output, share in enumerate(shares))

    def _shows_noise(self, output: int) -> bool:
        """Whether points that repeat have different values; where none does, see `gaussian_process.shows_noise`."""
        trials = self._belief().trials
        if not self.outputs.plain:
            trials = trials._replace(y=trials.y[:, output], noise=trials.noise[:, output])
        rows = np.flatnonzero(trials.noise[: trials.answered] < 0)
        repeated = repeated_variance(trials.x[rows], trials.y[rows])
        if repeated is not None:
            return repeated > _EQUAL
        return gaussian_process.shows_noise(History(trials.x, trials.y, trials.answered, trials.noise))

    def _estimated_noise(self, state: Any) -> float:
        """The estimated variance of the first warped response's noise; 0 where it is too small to be told from none."""
        estimate = self._plan.surrogate.noise_variance
        assert estimate is not None
        variance = float(np.ravel(estimate(state))[0])
        return variance if variance > _NOISY else 0.0

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
            self._state, self._warps = None, (Warp(),) * len(self._signs)
        complete, values = [self._entries[number] for number in self._order], self._responses()
        renewed = self._is_renewal_due(values)
        if renewed:
            self._warps = tuple(self._fit_warp(complete, column, j) for j, column in enumerate(values.T))
        kept = self._inliers(values)
        answered, outliers = ([entry for entry, k in zip(complete, kept, strict=True) if k == side] for side in (1, 0))
        pending, failed = ([e for e in self._entries if e.status == status] for status in ("pending", "failed"))
        groups = answered, pending, failed + outliers
        x, y = np.zeros((self._length, self.space.columns)), np.zeros((self._length, len(self._signs)))
        rows = [entry.unit for group in groups for entry in group]
        x[: len(rows)], y[: len(answered)] = rows, self._warped(values[kept])
        noise = None
        if self._plan.surrogate.noise_variance is not None:
            noise = self._noise(answered, values[kept]).astype(dtype)
        if self.outputs.plain:
            y, noise = y[:, 0], None if noise is None else noise[:, 0]
        counts = [np.int32(len(group)) for group in groups]
        return Trials(x.astype(dtype), y.astype(dtype), *counts, noise=noise), renewed

    def _inliers(self, values: np.ndarray) -> np.ndarray:
        """(n,) bool: the rows of `values` (n, m) that are an outlier in no output."""
        return np.all(values >= [warp.fence for warp in self._warps], axis=1)

    def _warped(self, values: np.ndarray) -> np.ndarray:
        """The warps of `values` (n, m)."""
        return np.stack([warp.forward(column) for warp, column in zip(self._warps, values.T, strict=True)], 1)

    def _is_renewal_due(self, values: np.ndarray) -> bool:
        """Whether the warps are to be fitted again, and with them the surrogate from its prior."""
        fitted = self._warp.fitted
        if self._state is None or len(values) >= fitted * self._plan.surrogate.growth:
            return True
        far = (warp.is_far(column) for warp, column in zip(self._warps, values[fitted:].T, strict=True))
        return self.standardize and self.warp and any(far)

    def _fit_warp(self, complete: list[Entry], values: np.ndarray, output: int) -> Warp:
        """The warp for all responses of an output, moderate for one of several objectives."""
        if not self.standardize:
            return Warp(fitted=len(values))
        if not self.warp:
            return responses.standardized(values)
        warp = responses.fit(np.stack([entry.unit for entry in complete]), values)
        return responses.moderate(warp, values) if 1 < self.outputs.objectives > output else warp

    def _noise(self, answered: list[Entry], values: np.ndarray) -> np.ndarray:
        """(N, m) variances of the warped responses' noise, to first order; negative where it is estimated."""
        known = [-1.0 if (std := self._noise_of(entry)) is None else std for entry in answered]
        default = -1.0 if self.noise_std is None else self.noise_std
        noise = np.full((self._length, values.shape[1]), -1.0)
        for j in range(self.outputs.objectives):
            warp = self._warps[j]
            noise[:, j] = default * warp.slope(warp.inverse(np.zeros(1)))
            noise[: len(known), j] = np.array(known) * warp.slope(values[:, j])
        return np.where(noise < 0, -1.0, noise**2)

    @property
    def _length(self) -> int:
        """Rows of the padded history, a power of two, so that studies share programs."""
        return 1 << max(_SHORTEST, (self.capacity - 1).bit_length())

    def _prior(self) -> Any:
        """The surrogate's state before the first fit."""
        dtype, rows = self._plan.surrogate.dtype, self._length
        y = np.zeros(rows if self.outputs.plain else (rows, len(self._signs)), dtype)
        history = History(np.zeros((rows, self.space.columns), dtype), y, np.int32(0))
        return self._plan.surrogate.init(jax.random.key(0), history)


def repeated_variance(points: np.ndarray, y: np.ndarray) -> float | None:
    """The variance of responses `y` (n,) at equal points (n, d), pooled; None where every point has its own."""
    _, cells, counts = np.unique(points, axis=0, return_inverse=True, return_counts=True)
    cells, freedom = np.ravel(cells), len(y) - len(counts)
    means = np.bincount(cells, y) / counts
    return float(np.sum((y - means[cells]) ** 2) / freedom) if freedom else None
