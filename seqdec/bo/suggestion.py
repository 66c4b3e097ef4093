"""The questions of an optimiser: the initial design, then the maximiser of the acquisition among new points."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from seqdec import checks
from seqdec.bo.acquisition import failures, feasibility, pareto
from seqdec.bo.acquisition.feasibility import Incumbent, Target
from seqdec.bo.model import Belief, repeated_variance
from seqdec.bo.record import Exhausted
from seqdec.bo.search import ascent as suggest
from seqdec.bo.search import restricted, trust_region
from seqdec.bo.search.ascent import Ranked, Region, Search, Trials, sobol
from seqdec.bo.search.restricted import Box
from seqdec.bo.space.spaces import Point, identity

_ENUMERABLE = 10_000
_CELL = 0.01
"""Edge of the cells of the cube whose points count as one that is repeated."""
_RESTRICTED_DESIGN = 12
"""Binary logarithm of the number of points from which the design of a restricted space is chosen, at least."""


class Questions(Belief):
    """A belief and the search for the next point."""

    initial: int
    trust_region: bool
    search: Search
    reference_point: np.ndarray | None
    _examples: list[Point]

    def _early(self) -> bool:
        """Whether the next point belongs to the initial design: too few asked, or fewer than two values."""
        return len(self._entries) < self.initial or len(self._order) < 2

    def _design(self, fixed: Mapping[Any, Any]) -> Point:
        """The next new point of a randomly shifted Sobol sequence."""
        generator = np.random.default_rng([self.seed, 0])
        index = len(self._entries)
        if self.search.grid:
            grid = sobol(self.search.raw_samples, self.space.columns, scramble=True)
            return self._first_new(generator.permutation(grid)[index % len(grid) :], fixed)
        shift = generator.random(self.space.columns)
        least = _RESTRICTED_DESIGN if self.space.restricted else 6
        points = (sobol(1 << max(least, index.bit_length() + 1), self.space.columns)[index:] + shift) % 1
        return self._first_new(points, fixed)

    def _first_new(self, units: np.ndarray, fixed: Mapping[Any, Any]) -> Point:
        """The first point of `units` (n, columns) that no trial has, else of the space, else a known one, if allowed.

        Raises Exhausted, and ValueError if `fixed` excludes all that were tried.
        """
        known, found = {identity(entry.x) for entry in self._entries}, None
        for point in self._points(units, fixed):
            if identity(point.x) not in known:
                return point
            found = found or point
        if found is not None and self._may_repeat():
            return found
        if fixed and found is None:
            raise ValueError(
                f"no point with fixed={dict(fixed)} was found that satisfies all constraints and conditions"
            )
        left = f"with fixed={dict(fixed)} " if fixed else ""
        raise Exhausted(
            f"all {len(known)} points of the space {left}have been suggested: noise_std above 0 for noisy values, or "
            "search=Search(repeats=True), allows repeats"
        )

    def _may_repeat(self) -> bool:
        """Whether known points are suggested where no new one is left."""
        if self.search.repeats is not None:
            return self.search.repeats
        return bool(self.noise_std) or (len(self._order) > 1 and self._is_noisy())

    def _points(self, units: np.ndarray, fixed: Mapping[Any, Any]) -> Iterable[Point]:
        """The points of the space at `units`; then all of a small one, or those that walks in a restricted one find."""
        box = Box(*self.space.cube(fixed), fixed)
        at = (self.space.point_at(unit, fixed) for unit in np.clip(units, box.low, box.high))
        yield from (point for point in at if point is not None)
        if self.space.size <= _ENUMERABLE:
            for point in map(self.space.point, self.space.points()):
                if not np.any((point.unit < box.low) | (point.unit > box.high)):
                    yield point
        elif self._examples:
            generator = np.random.default_rng([self.seed, len(self._entries), 1])
            for near in restricted.walk(self.space, box, self._examples, self.search.raw_samples, generator):
                yield from near

    def _suggest(self, fixed: Mapping[Any, Any]) -> Point:
        """The maximiser of the acquisition, or a random new point if that one is known."""
        if (point := self._best_point(fixed, bool(self.search.repeats))) is not None:
            return point
        generator = np.random.default_rng([self.seed, len(self._entries)])
        point = self._first_new(generator.random((1000, self.space.columns)), fixed)
        if all(identity(entry.x) != identity(point.x) for entry in self._entries):
            return point
        return self._best_point(fixed, repeats=True) or point

    def _best_point(self, fixed: Mapping[Any, Any], repeats: bool) -> Point | None:
        """The maximiser of the acquisition, with `repeats` among all points, else among new ones; None without any."""
        found = self._maximise(fixed, repeats)
        return self.space.point_at(found, fixed) if isinstance(found, np.ndarray) else found

    def _maximise(self, fixed: Mapping[Any, Any], repeats: bool) -> Point | np.ndarray | None:
        """That of `_best_point`, as a point of the cube except in restricted spaces."""
        number, surrogate = len(self._entries), self._plan.surrogate
        with jax.enable_x64(True):  # 64-bit arrays only for surrogates that ask for them; see `Surrogate.dtype`
            trials = self._fit()
            belief = suggest.believe(surrogate, self._state, trials)
            trials = trials._replace(success=_success(trials))
            region = Region(*(np.clip(side, *self.space.cube(fixed)) for side in self._region()))
            key = jax.random.fold_in(jax.random.key(checks.word(self.seed)), number)
            generator = np.random.default_rng([self.seed, number, 2])

            target = self._target(belief.means, trials)

            def ranked(points: np.ndarray, free: np.ndarray) -> Ranked:
                return suggest.rank(self._plan, key, belief.state, target, trials, region, points, free)

            known = [] if repeats else [entry.unit for entry in self._entries]
            known = np.reshape(known, (-1, self.space.columns))
            if not self.space.restricted:
                best = trials.x[self._leaders(belief.means, generator)]
                pool = suggest.candidates(self.space, self.search, region, best, generator)
                return suggest.best_new(ranked(pool, np.broadcast_to(self.space.continuous, pool.shape)), known)
            box, leaders = Box(*region, fixed), self._leaders(self._told(), generator)
            best = [self._entries[self._order[i]] for i in leaders]
            starts = [*(Point(entry.x, entry.unit) for entry in best), *self._examples]
            pool = restricted.candidates(self.space, self.search, box, starts, generator)
            return restricted.maximise(ranked, self.space, box, pool, known) if pool else None

    def _region(self) -> tuple[np.ndarray, np.ndarray]:
        """(low, high) of the box to search, each (columns,)."""
        columns = self.space.columns
        if not self.trust_region:
            return np.zeros(columns), np.ones(columns)
        merits = self._merits(self._told())
        best = self._entries[self._order[int(np.argmax(merits))]]
        confined = self.space.continuous & self.space.active(best.x)
        return trust_region.box(best.unit, trust_region.edge(merits, self.initial, columns), confined)

    def _told(self) -> np.ndarray:
        """(n, m), plainly (n,), warps of all that was told, outliers at the fence; in the order of telling."""
        values = self._warped(np.maximum(self._responses(), [warp.fence for warp in self._warps]))
        return values[:, 0] if self.outputs.plain else values

    def _leaders(self, outputs: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """The indices of the best few of `outputs`; with several objectives of some of their front, drawn at random."""
        order = np.arange(len(outputs)) if self.outputs.objectives == 1 else generator.permutation(len(outputs))
        return order[np.argsort(-self._merits(outputs)[order], kind="stable")[: suggest.INCUMBENTS]]

    def _merits(self, outputs: np.ndarray) -> np.ndarray:
        """(n,) by which points with `outputs` (n, m), plainly (n,), are ranked: larger is better."""
        if self.outputs.plain:
            return outputs
        count, thresholds = self.outputs.objectives, self._thresholds()
        objectives, outcomes = outputs[:, :count], outputs[:, count:]
        base = objectives[:, 0]
        if count > 1:
            feasible = np.all(outcomes >= thresholds, axis=1)
            base = -pareto.dominating(objectives, objectives[feasible]).astype(float)
        return feasibility.merits(base, outcomes, thresholds)

    def _thresholds(self) -> np.ndarray:
        """(c,) the warps of 0, which feasible outcomes reach."""
        return np.array([warp.forward(np.zeros(1))[0] for warp in self._warps[self.outputs.objectives :]])

    def _target(self, means: np.ndarray, trials: Trials) -> Any:
        """What the acquisition is to exceed, given the means of the outputs at the answered and pending points."""
        if self.outputs.plain:
            return self._incumbent(means, int(np.argmax(means)), trials)
        values, count, thresholds = self._responses(), self.outputs.objectives, self._thresholds()
        told = values[self._inliers(values), count:] >= 0
        feasible = np.concatenate([told, means[len(told) :, count:] >= thresholds]).all(1)
        best, known = means[feasible, :count], bool(feasible.any())
        if count == 1:
            index = int(np.argmax(np.where(feasible, means[:, 0], -np.inf)))
            noise = None if trials.noise is None else trials.noise[:, 0]
            top: Any = self._incumbent(means[:, 0], index, trials._replace(y=trials.y[:, 0], noise=noise))
        else:
            reference = self._reference(best, means[:, :count]) if known else np.zeros(count)
            least = self._length << 2 * (count - 2)  # three objectives leave several boxes for each point
            boxes = pareto.padded(pareto.decompose(best, reference), least)
            top = pareto.Boxes(*(side.astype(means.dtype) for side in boxes))
        return Target(top, np.array(known), thresholds.astype(means.dtype))

    def _incumbent(self, means: np.ndarray, index: int, trials: Trials) -> Incumbent:
        """The incumbent with that index, with the noise of its value as known.

        Where it is estimated, no more of it counts than repeated points show: the residuals of a rough function without
        noise look alike, but there it is worth while to ask near the best point.
        """
        variance = 0.0 if trials.noise is None else trials.noise[index]
        if variance < 0 and (variance := self._estimated_noise(self._state)):
            variance = min(variance, _repeated_noise(trials))
        return Incumbent(means[index], means.dtype.type(math.sqrt(variance)))

    def _reference(self, front: np.ndarray, objectives: np.ndarray) -> np.ndarray:
        """(k,) the warped reference point of several objectives."""
        if self.reference_point is None:
            return pareto.default_reference(front[pareto.non_dominated(front)], objectives)
        pairs = zip(self._warps, self.reference_point * self._signs[: len(self.reference_point)], strict=False)
        return np.array([warp.forward(np.array([value]))[0] for warp, value in pairs])


def _success(trials: Trials) -> Any:
    """The posterior of a success, by the answered and the failed points, see `seqdec.bo.acquisition.failures`."""
    failed = trials.answered + trials.pending + np.arange(trials.failed)
    rows = np.concatenate([np.arange(trials.answered), failed])
    return failures.fit(trials.x[rows].astype(float), rows < trials.answered, len(trials.x))


def _repeated_noise(trials: Trials) -> float:
    """The variance of an output's noise among the points of one cell, pooled; 0 where every point has its own."""
    rows = np.flatnonzero(trials.noise[: trials.answered] < 0)
    return repeated_variance(trials.x[rows] // _CELL, trials.y[rows]) or 0.0
