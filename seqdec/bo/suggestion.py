"""The next point.

Randomness depends on the seed and the number of known points only.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from seqdec.bo import fidelity
from seqdec.bo import model as fitting
from seqdec.bo.acquisition import failures, feasibility, optimum, pareto
from seqdec.bo.acquisition.feasibility import Incumbent, Target
from seqdec.bo.acquisition.optimum import Optimum
from seqdec.bo.fidelity import Forecast
from seqdec.bo.model import Belief, Fitted, Model, Trials, believe, means_of
from seqdec.bo.output_warp import Warp
from seqdec.bo.search import ascent, candidates, trust_region
from seqdec.bo.search.ascent import Plan
from seqdec.bo.search.candidates import Box, Region, sobol
from seqdec.bo.space.space import Point, Space, identity
from seqdec.bo.trials import Exhausted, Observations

_ENUMERABLE = 10_000
_FEW = 64
"""Values below which questions about one output average over hyperparameters."""
_MEMBERS = 8
"""Of that average."""
_NOISY = 0.01
"""Share of estimated noise in the warped responses' variance above which questions average."""
_UNEXPLAINED = 0.5
"""The same share above which every second question is of the design."""
_CELL = 0.01
"""Edge of the cells in which points count as repeated."""
_RESTRICTED_DESIGN = 12
"""Log2 of a restricted design's fewest points."""
_TRIED = 1000
"""Random points tried where the maximizer is known."""


class Method(NamedTuple):
    """How points are chosen."""

    model: Model
    space: Space
    plan: Plan
    initial: int
    """points before the surrogate"""
    reference_point: np.ndarray | None
    examples: np.ndarray
    """(k, columns) points of a restricted space, else none"""
    optimum: Optimum | None
    """belief where the optimum lies"""
    bests: np.ndarray
    """(k, columns) best points of earlier studies, asked first"""


def is_early(method: Method, known: Observations) -> bool:
    """Whether the next point is of the initial design."""
    first = min(method.initial, len(method.bests) + 1) if len(method.bests) else method.initial
    few = known.trials < first or not np.any(known.responses != known.responses[:1])
    return few or not any(point.inside for point in known.told)


def design(method: Method, known: Observations, fixed: Mapping[Any, Any], is_noisy: Callable[[], bool]) -> Point:
    """The next new point of a randomly shifted Sobol sequence, with the values `fixed`, by key.

    `is_noisy` is asked where no new point is left. Raises Exhausted where none may be repeated, ValueError where
    `fixed` excludes all points tried.
    """
    search, columns, index = method.plan.search, method.space.parameters, known.trials
    generator = np.random.default_rng([method.model.seed, 0])
    if search.grid:
        grid = sobol(search.raw_samples, columns, scramble=True)
        u = generator.permutation(grid)[index % len(grid) :]
    else:
        shifts, drawn = generator.random((2, columns)), method.optimum is not None and index % 2 == 0
        place = index if method.optimum is None else index // 2  # two sequences take turns
        least = _RESTRICTED_DESIGN if method.space.restricted else 6
        u = (sobol(1 << max(least, index.bit_length() + 1), columns)[place:] + shifts[int(drawn)]) % 1
        if method.optimum is not None and drawn:
            u = optimum.drawn(method.optimum, method.space, u)
    return _first_new(method, known, np.concatenate([method.bests, method.space.uniform(u)]), fixed, is_noisy)


def for_question(model: Model, known: Observations, fitted: Fitted) -> Fitted:
    """The fit for a suggestion: averaged if few values of one output are known, or they are noisy.

    Also with levels and earlier studies, because few values determine the length scales of their columns.
    """
    few = model.outputs.plain and len(known.told) < _FEW
    noisy = model.noise_std or any(known.noise_std) or fitting.estimated_noise(model, fitted.state) > _NOISY
    averages = few or noisy or model.fidelity is not None or model.earlier
    return fitting.averaged(model, fitted, _MEMBERS) if averages else fitted


def compile_ahead(method: Method, capacity: int) -> None:
    """Compile the programs of model-based suggestions, by one for two made-up values."""
    space = replace(method.space, constraints=())
    units = space.uniform(np.array([[0.3], [0.7]]) * np.ones(space.parameters))
    points = [point for unit in units if (point := space.point_at(unit)) is not None]
    values = np.linspace(0, 1, len(points))[:, None] * np.ones(len(method.model.signs))
    known = Observations(points, values, [None] * len(points), [], [], len(points), points)
    with jax.enable_x64(True):
        fitted = for_question(method.model, known, fitting.fit(method.model, known, capacity, None))
        _best_point(method._replace(space=space, examples=method.examples[:0]), known, fitted, {}, repeats=True)


def suggest(
    method: Method, known: Observations, fitted: Fitted, fixed: Mapping[Any, Any], is_noisy: Callable[[], bool]
) -> Point:
    """The maximizer of the acquisition at full fidelity, or a random new point if that one is known.

    Where a trust region begins anew without earlier studies, and every second time while the belief takes the values
    for noise, the next of `design`, with its errors.
    """
    uses_earlier = int(fitted.trials.answered) > np.sum(fitting.inliers(fitted.warps, known.responses))
    is_blind = known.trials % 2 == 1 and fitting.estimated_noise(method.model, fitted.state) > _UNEXPLAINED
    if is_blind:
        with suppress(Exhausted):  # a finite space may have points that the sequence does not reach
            return design(method, known, fixed, is_noisy)
    if (known.trials < method.initial and not uses_earlier) or _is_new_region(method, known, fitted.warps):
        return design(method, known, fixed, is_noisy)
    if not fixed and (point := to_complete(method.model, known, fitted)) is not None:
        return point
    with jax.enable_x64(True):  # 64-bit arrays only for surrogates that ask for them; see `Surrogate.dtype`
        if (point := _best_point(method, known, fitted, fixed, bool(method.plan.search.repeats))) is not None:
            return point
    generator = np.random.default_rng([method.model.seed, known.trials])
    units = method.space.uniform(generator.random((_TRIED, method.space.parameters)))
    point = _first_new(method, known, units, fixed, is_noisy)
    if all(identity(one.x) != identity(point.x) for one in known.taken):
        return point
    with jax.enable_x64(True):
        return _best_point(method, known, fitted, fixed, repeats=True) or point


def _first_new(
    method: Method,
    known: Observations,
    units: np.ndarray,
    fixed: Mapping[Any, Any],
    is_noisy: Callable[[], bool],
) -> Point:
    """The first new one of `units` (n, columns), else a known one, if allowed."""
    seen, found = {identity(point.x) for point in known.taken}, None
    for point in _points(method, known, units, fixed):
        if identity(point.x) not in seen:
            return point
        found = found or point
    if found is not None and _may_repeat(method, known, is_noisy):
        return found
    if fixed and found is None:
        raise ValueError(f"no point with fixed={dict(fixed)} was found that satisfies all constraints and conditions")
    left = f"with fixed={dict(fixed)} " if fixed else ""
    raise Exhausted(
        f"all {len(seen)} points of the space {left}have been suggested: noise_std above 0 for noisy values, or "
        "search=Search(repeats=True), allows repeats"
    )


def _may_repeat(method: Method, known: Observations, is_noisy: Callable[[], bool]) -> bool:
    if method.plan.search.repeats is not None:
        return method.plan.search.repeats
    return bool(method.model.noise_std) or (len(known.told) > 1 and is_noisy())


def _points(method: Method, known: Observations, units: np.ndarray, fixed: Mapping[Any, Any]) -> Iterable[Point]:
    """The points at `units`, then all of a small space, or of walks in a restricted one."""
    space, search = method.space, method.plan.search
    box = Box(*space.cube(fixed), fixed)
    at = (space.point_at(unit, fixed) for unit in np.clip(units, box.low, box.high))
    yield from (point for point in at if point is not None)
    if space.size <= _ENUMERABLE:
        for point in map(space.point, space.points()):
            if not np.any((point.unit < box.low) | (point.unit > box.high)):
                yield point
    elif len(method.examples):
        generator = np.random.default_rng([method.model.seed, known.trials, 1])
        for near in candidates.walk(space, box, method.examples, search.raw_samples, generator):
            yield from (point for unit in near if (point := space.point_at(unit, fixed)) is not None)


def _best_point(
    method: Method, known: Observations, fitted: Fitted, fixed: Mapping[Any, Any], repeats: bool
) -> Point | None:
    """The maximizer of the acquisition; None without any."""
    space, plan, seed, number = method.space, method.plan, method.model.seed, known.trials
    belief = believe(plan.surrogate, fitted.state, fitted.trials)
    trials = fitted.trials._replace(success=_success(fitted.trials))
    if method.optimum is not None:
        more = method.model.columns - space.columns
        tables = np.pad(optimum.tables(method.optimum, space, number), ((0, more), (0, 0)))
        trials = trials._replace(optimum=tables.astype(trials.x.dtype))
    region = Region(*(np.clip(side, *space.cube(fixed)) for side in _region(method, known, fitted.warps)))
    generator = np.random.default_rng([seed, number, 2])
    target = _target(method, known, fitted, belief.means)
    leaders = _leaders(method, fitted.warps, _means_at_full(method, belief, trials), _inside(known, fitted), generator)
    best, box = trials.x[leaders, : space.columns].astype(float), Box(*region, fixed)
    pool = candidates.candidates(space, plan.search, box, np.concatenate([best, method.examples]), generator)
    if method.model.fidelity is not None:  # a point of a lower level may be the one to go on with
        pool = np.concatenate([pool, best])
    if not len(pool):
        return None
    by = ascent.climber(plan, (seed, number), belief.state, target, trials, region, space.columns)
    units = np.reshape([] if repeats else [point.unit for point in known.taken], (-1, space.columns))
    return ascent.maximize(by, space, plan.search, box, pool, units, generator)


def _means_at_full(method: Method, belief: Belief, trials: Trials) -> np.ndarray:
    if method.model.fidelity is None:
        return belief.means
    x = trials.x.copy()
    x[:, method.space.columns] = 0
    return np.asarray(means_of(method.plan.surrogate, belief.state, x))[: len(belief.means)]


def _region(method: Method, known: Observations, warps: tuple[Warp, ...]) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of the search box, each (columns,)."""
    columns = method.space.columns
    if not method.plan.search.trust_region:
        return np.zeros(columns), np.ones(columns)
    stage, merits = _stage(method, known, warps)
    inside = [point for point in known.told if point.inside]
    best = inside[stage.start + int(np.argmax(merits[stage.start :]))]
    confined = method.space.continuous & method.space.active(best.unit[None])[0, method.space.owners]
    return trust_region.box(best.unit, stage.edge, confined)


def _is_new_region(method: Method, known: Observations, warps: tuple[Warp, ...]) -> bool:
    if not method.plan.search.trust_region:
        return False
    start = _stage(method, known, warps)[0].start
    return start > 0 and known.trials - np.sum(~known.inside) < start + method.initial


def _stage(method: Method, known: Observations, warps: tuple[Warp, ...]) -> tuple[trust_region.Stage, np.ndarray]:
    """Where the trust region is, and the merits of the told points of the space."""
    merits = _merits(method, warps, _told(method, known, warps)[known.inside])
    return trust_region.stage(merits, method.initial, method.space.groups), merits


def _told(method: Method, known: Observations, warps: tuple[Warp, ...]) -> np.ndarray:
    """(n, m), or (n,) of plain outputs: warps of the values in order of telling, outliers at the fence."""
    values = fitting.warped(warps, np.maximum(known.responses, [warp.fence for warp in warps]))
    return values[:, 0] if method.model.outputs.plain else values


def _inside(known: Observations, fitted: Fitted) -> np.ndarray:
    """(n,) bool: which answered and pending points are of this search and inside the space."""
    answered = known.inside[fitting.inliers(fitted.warps, known.responses)]
    earlier = np.zeros(int(fitted.trials.answered) - len(answered), bool)
    return np.concatenate([answered, earlier, np.ones(len(known.pending), bool)])


def _leaders(
    method: Method,
    warps: tuple[Warp, ...],
    outputs: np.ndarray,
    inside: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """Indices of the best of `outputs` (n, m) `inside` (n,), or some of their front."""
    order = np.flatnonzero(inside)
    if method.model.outputs.objectives > 1:
        order = generator.permutation(order)
    return order[np.argsort(-_merits(method, warps, outputs)[order], kind="stable")[: candidates.INCUMBENTS]]


def _merits(method: Method, warps: tuple[Warp, ...], outputs: np.ndarray) -> np.ndarray:
    """(n,) merits of `outputs` (n, m), or (n,) of plain ones; larger is better."""
    if method.model.outputs.plain:
        return outputs
    count, thresholds = method.model.outputs.objectives, _thresholds(method, warps)
    objectives, outcomes = outputs[:, :count], outputs[:, count:]
    base = objectives[:, 0]
    if count > 1:
        feasible = np.all(outcomes >= thresholds, axis=1)
        base = -pareto.dominating(objectives, objectives[feasible]).astype(float)
    return feasibility.merits(base, outcomes, thresholds)


def _thresholds(method: Method, warps: tuple[Warp, ...]) -> np.ndarray:
    """(c,) the warps of 0, the border of feasible outcomes."""
    return np.array([warp.forward(np.zeros(1))[0] for warp in warps[method.model.outputs.objectives :]])


def _target(method: Method, known: Observations, fitted: Fitted, means: np.ndarray) -> Any:
    outputs, trials, inside = method.model.outputs, fitted.trials, _inside(known, fitted)
    if outputs.plain:
        if method.model.fidelity is not None:
            full = inside & (trials.x[: len(inside), method.space.columns] == 0)
            inside = full if full.any() else inside
        return _incumbent(method, fitted, means, int(np.argmax(np.where(inside, means, -np.inf))), trials)
    count, thresholds = outputs.objectives, _thresholds(method, fitted.warps)
    told = known.responses[fitting.inliers(fitted.warps, known.responses), count:] >= 0
    feasible = inside & np.concatenate([told, means[len(told) :, count:] >= thresholds]).all(1)
    best, any_feasible = means[feasible, :count], bool(feasible.any())
    if count == 1:
        index = int(np.argmax(np.where(feasible, means[:, 0], -np.inf)))
        noise = None if trials.noise is None else trials.noise[:, 0]
        top: Any = _incumbent(method, fitted, means[:, 0], index, trials._replace(y=trials.y[:, 0], noise=noise))
    else:
        reference = np.zeros(count)
        if any_feasible:
            reference = _reference(method, fitted.warps, best, means[:, :count])
        least = len(trials.x) << (count - 2)  # three objectives leave two boxes for each point
        boxes = pareto.padded(pareto.decompose(best, reference), least)
        top = pareto.Boxes(*(side.astype(means.dtype) for side in boxes))
    return Target(top, np.array(any_feasible), thresholds.astype(means.dtype))


def _incumbent(method: Method, fitted: Fitted, means: np.ndarray, index: int, trials: Trials) -> Incumbent:
    """The incumbent at `index`, with no more estimated noise than repeated points show."""
    variance = 0.0 if trials.noise is None else trials.noise[index]
    if variance < 0 and (variance := fitting.estimated_noise(method.model, fitted.state)):
        variance = min(variance, _repeated_noise(trials))
    return Incumbent(means[index], means.dtype.type(math.sqrt(variance)))


def _reference(method: Method, warps: tuple[Warp, ...], front: np.ndarray, objectives: np.ndarray) -> np.ndarray:
    if (given := method.reference_point) is None:
        return pareto.default_reference(front[pareto.non_dominated(front)], objectives)
    pairs = zip(warps, given * method.model.signs[: len(given)], strict=False)
    return np.array([warp.forward(np.array([value]))[0] for warp, value in pairs])


def _success(trials: Trials) -> Any:
    failed = trials.answered + trials.pending + np.arange(trials.failed)
    rows = np.concatenate([np.arange(trials.answered), failed])
    return failures.fit(trials.x[rows].astype(float), rows < trials.answered, len(trials.x))


def _repeated_noise(trials: Trials) -> float:
    """Pooled variance of an output within cells, or 0."""
    rows = np.flatnonzero(trials.noise[: trials.answered] < 0)
    return fitting.repeated_variance(trials.x[rows] // _CELL, trials.y[rows]) or 0.0


def at_level(
    model: Model, known: Observations, fitted: Fitted, point: Point, level: int | None, lower: float
) -> tuple[Point, Forecast | None]:
    """(the point at the level to evaluate, the forecast of its learning curve).

    `level` None: see `seqdec.bo.fidelity.level_of`.
    """
    grid = model.fidelity
    assert grid is not None
    with jax.enable_x64(True):
        state = believe(model.surrogate, fitted.state, fitted.trials).state
    means, cov, noise = fitting.curve(model, fitted, state, point.unit)
    values = known.responses[_at_full(known.told) & known.inside, 0]
    if level is None:
        begun = len(values) or any(one.level == 0 for one in known.pending)
        level = fidelity.level_of(grid, cov, noise, lower) if begun else 0
    point = point._replace(level=level)
    if not len(values):
        return point, None
    warp = fitted.warps[0]
    best = float(warp.forward(np.max(values, keepdims=True))[0])
    rows = tuple(map(tuple, cov.tolist()))
    return point, Forecast(grid.levels, tuple(means.tolist()), rows, noise, best, float(model.signs[0]), warp)


def to_complete(model: Model, known: Observations, fitted: Fitted) -> Point | None:
    """The told point with the best mean at full fidelity; None if any is told or pending there."""
    inside = [point for point in known.told if point.inside]
    if model.fidelity is None or _at_full(inside + known.pending).any():
        return None
    means = fitting.means(model, fitted, np.stack([point.unit for point in inside]))[:, 0]
    return inside[int(np.argmax(means))]._replace(level=0)


def _at_full(points: Sequence[Point]) -> np.ndarray:
    return np.array([point.level == 0 for point in points], bool)
