"""The model: a surrogate of the warped responses, and its predictions.

Responses are values of which larger is better, then warped (`seqdec.bo.output_warp`).
"""

import functools
import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec.bo import output_warp
from seqdec.bo.fidelity import Grid, offsets
from seqdec.bo.output_warp import Warp
from seqdec.bo.space.space import Point
from seqdec.bo.surrogates import evidence
from seqdec.bo.surrogates.contract import History, Surrogate
from seqdec.bo.transfer import Related, is_related
from seqdec.bo.trials import Observations, Outputs
from seqdec.boundary import checks
from seqdec.core import Array
from seqdec.runtime import UNFUSED

_SHORTEST = 4
"""Log2 of the fewest padded rows."""
_STEP = 128
"""Of padded rows above twice as many."""
_NOISY = 1e-3
"""Share of noise in the warped responses' variance below which they count as exact."""
_EQUAL = 1e-6
"""Variance of the warped responses at one point below which they are equal."""
_DEVIATIONS = 1.959964
"""Half-width of a 95% interval, in standard deviations."""
_TAIL = 9.0
"""Standard deviations over which a normal distribution is integrated."""


Responses = Literal["warped", "standardized", "raw"]
program = functools.partial(jax.jit, static_argnums=0, compiler_options=UNFUSED)
"""Compile a function of a static and of other arguments."""


class Prediction(NamedTuple):
    """Belief about the noiseless function: numbers at a point, (n,) at n points, with m > 1 objectives (m,), (n, m)."""

    mean: Any
    """Expected value of the function."""
    low: Any
    """Lower end of the interval in which the function lies with probability 95%."""
    high: Any
    """Upper end of this interval."""


class Model(NamedTuple):
    """Settings of the surrogate and its responses."""

    surrogate: Surrogate
    outputs: Outputs
    signs: np.ndarray
    """(m,) 1 for what is maximized, -1 for other objectives and outcomes"""
    places: np.ndarray
    """(columns,) the parameter of each column of the surrogate: the cube, the fidelity if several, one for each earlier
    study
    """
    seed: int
    responses: Responses
    noise_std: float | None
    """of values told without; None: estimated"""
    earlier: tuple[tuple[Related, ...], ...] = ()
    """of each earlier study and output"""
    fidelity: Grid | None = None

    @property
    def columns(self) -> int:
        """Number of the surrogate's columns."""
        return len(self.places)

    @property
    def earlier_rows(self) -> int:
        """Values of the earlier studies."""
        return sum(len(study[0].z) for study in self.earlier)


class Trials(NamedTuple):
    """All known points in the order answered, pending, failed; padded to N rows."""

    x: Any
    """(N, d)"""
    y: Any
    """(N,) standardized responses of the answered points; with m outputs (N, m)"""
    answered: Any
    """() int32, their number"""
    pending: Any
    """() int32"""
    failed: Any
    """() int32"""
    noise: Any = None
    """(N,) as in `History`"""
    success: Any = None
    """posterior of `acquisition.failures`, if failures depend on the point"""
    optimum: Any = None
    """tables of `acquisition.optimum`; None without a belief"""


class Belief(NamedTuple):
    """The belief that scores candidates."""

    state: Any
    """of the surrogate, pending points included"""
    means: np.ndarray
    """(n,) at the answered and pending points"""


class Start(NamedTuple):
    """Starting point of a fit."""

    state: Any
    """of the surrogate; `fit` may reuse its memory"""
    warps: tuple[Warp, ...]
    """of the outputs"""


class Fitted(NamedTuple):
    """The surrogate fitted to all values."""

    state: Any
    """of the surrogate"""
    warps: tuple[Warp, ...]
    """of the outputs"""
    trials: Trials
    """arguments of the compiled programs"""
    offsets: np.ndarray
    """(levels, m) of the fidelity; of one level without"""

    @property
    def start(self) -> Start:
        """Start of the next fit."""
        return Start(self.state, self.warps)


def padded_rows(model: Model, capacity: int) -> int:
    """A power of two, or a multiple of 128 and of an eighth of the next power."""
    rows = capacity + model.earlier_rows
    power = 1 << max(_SHORTEST, (rows - 1).bit_length())
    step = min(power, max(_STEP, power >> 3))
    return -(-rows // step) * step


def fit(model: Model, known: Observations, capacity: int, start: Start | None) -> Fitted:
    """Fit the surrogate to all values; from its prior where `start` is None or outdated."""
    surrogate, values, rows = model.surrogate, known.responses, padded_rows(model, capacity)
    if start is None or _is_outdated(model, start.warps, values):
        units = rows_of(model, known.told)
        warps = tuple(fit_warp(model, units, column, j) for j, column in enumerate(values.T))
        start = Start(None, warps)
    kept = inliers(start.warps, values)
    trials, levels = _trials(model, known, start.warps, kept, rows)
    history, state = _history(model, trials), start.state
    if state is None:
        state = surrogate.init(jax.random.key(checks.seed_bits(model.seed)), history)
    return Fitted(surrogate.fit(state, history), start.warps, trials, levels)


def averaged(model: Model, fitted: Fitted, most: int = 64) -> Fitted:
    """The fit whose belief averages over hyperparameters, with at most so many members."""
    return fitted._replace(state=model.surrogate.averaged(fitted.state, _history(model, fitted.trials), most))


def _history(model: Model, trials: Trials) -> History:
    """The answered points."""
    return History(trials.x, trials.y, trials.answered, trials.noise, model.places)


def _is_outdated(model: Model, warps: tuple[Warp, ...], values: np.ndarray) -> bool:
    fitted = warps[0].fitted
    if len(values) >= fitted * model.surrogate.growth or (len(values) > fitted and any(one.outliers for one in warps)):
        return True
    far = (warp.is_far(column) for warp, column in zip(warps, values[fitted:].T, strict=True))
    return model.responses == "warped" and any(far)


def fit_warp(model: Model, units: np.ndarray, values: np.ndarray, output: int) -> Warp:
    """The warp for an output at `units` (n, columns), moderate for one of several objectives."""
    if model.responses == "raw":
        return Warp(fitted=len(values))
    if model.responses == "standardized":
        return output_warp.standardized(values)
    if output >= model.outputs.objectives:
        return output_warp.fit_outcome(units, values)
    warp = output_warp.fit(units, values, model.places[: units.shape[1]])
    return output_warp.moderate(warp, values) if model.outputs.objectives > 1 else warp


def rows_of(model: Model, points: list[Point]) -> np.ndarray:
    """(n, columns) points of this search for the surrogate."""
    units = np.reshape([point.unit for point in points], (len(points), -1))
    if model.fidelity is None:
        return units
    return np.column_stack([units, model.fidelity.columns[[point.level for point in points]]])


def _trials(
    model: Model, known: Observations, warps: tuple[Warp, ...], kept: np.ndarray, rows: int
) -> tuple[Trials, np.ndarray]:
    """(all points, offsets of the levels); values not `kept` (n,) have failed."""
    answered, outliers = ([point for point, k in zip(known.told, kept, strict=True) if k == side] for side in (1, 0))
    groups, dtype = (answered, known.pending, known.failed + outliers), model.surrogate.dtype
    z, own, columns = warped(warps, known.responses[kept]), len(answered), model.columns - len(model.earlier)
    units = rows_of(model, [point for group in groups for point in group])
    levels = np.zeros((1, z.shape[1]))
    if model.fidelity is not None:
        places = np.array([point.level for point in answered], int)
        levels = offsets(len(model.fidelity.levels), places, units[:own, :-1], z)
        z = z - levels[places]
    x, y = np.zeros((rows, model.columns)), np.zeros((rows, len(model.signs)))
    x[:own, :columns], y[:own] = units[:own], z
    count = own
    for place, study in enumerate(model.earlier, columns):
        cube = units[:own, : study[0].units.shape[1]]  # at full fidelity, to which the offsets lead
        if is_related(study, cube, z, model.places[: cube.shape[1]]):
            at = slice(count, count := count + len(study[0].z))
            x[at, : cube.shape[1]], x[at, place] = study[0].units, 1.0
            y[at] = np.stack([one.aligned(cube, column) for one, column in zip(study, z.T, strict=True)], 1)
    x[count : count + len(units) - own, :columns] = units[own:]
    noise = None
    if model.surrogate.noise_variance is not None:
        noise = _noise(model, known, warps, kept, rows).astype(dtype)
    if model.outputs.plain:
        y, noise = y[:, 0], None if noise is None else noise[:, 0]
    counts = (np.int32(number) for number in (count, len(groups[1]), len(groups[2])))
    return Trials(x.astype(dtype), y.astype(dtype), *counts, noise=noise), levels


def _noise(model: Model, known: Observations, warps: tuple[Warp, ...], kept: np.ndarray, rows: int) -> np.ndarray:
    """(rows, m) noise variances of the warped responses, to first order; negative: estimated."""
    stds = [-1.0 if std is None else std for std, k in zip(_noise_stds(model, known), kept, strict=True) if k]
    values = known.responses[kept]
    noise = np.full((rows, values.shape[1]), -1.0)
    for j in range(model.outputs.objectives):
        noise[:, j] = _default_noise(model, warps[j])
        noise[: len(stds), j] = np.array(stds) * warps[j].slope(values[:, j])
    return np.where(noise < 0, -1.0, noise**2)


def _default_noise(model: Model, warp: Warp) -> np.ndarray:
    """(1,) noise deviation of a warped response told without its own; negative: it is estimated."""
    return (-1.0 if model.noise_std is None else model.noise_std) * warp.slope(warp.inverse(np.zeros(1)))


def _noise_stds(model: Model, known: Observations) -> list[float | None]:
    return [model.noise_std if std is None else std for std in known.noise_std]


def inliers(warps: tuple[Warp, ...], values: np.ndarray) -> np.ndarray:
    """(n,) bool: rows of `values` (n, m) without a known outlier."""
    kept = np.ones(len(values), bool)
    kept[[place for warp in warps for place in warp.outliers]] = False
    return kept


def warped(warps: tuple[Warp, ...], values: np.ndarray) -> np.ndarray:
    """The warps of `values` (n, m)."""
    return np.stack([warp.forward(column) for warp, column in zip(warps, values.T, strict=True)], 1)


def marginals(model: Model, fitted: Fitted, units: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(means (n, m), deviations (n, m)) of the warped outputs at `units` (n, columns)."""
    found = _at(marginals_of, model, fitted, units)
    means, stds = np.reshape(found, (2, len(units), len(model.signs)))
    return means, stds


def means(model: Model, fitted: Fitted, units: np.ndarray) -> np.ndarray:
    """(n, m) the means alone, much faster for networks."""
    return np.reshape(_at(means_of, model, fitted, units), (len(units), len(model.signs)))


def _at(program: Callable[..., Any], model: Model, fitted: Fitted, units: np.ndarray) -> np.ndarray:
    rows, outputs, found = len(fitted.trials.x), len(model.signs), []
    with jax.enable_x64(True):
        for block in np.split(units, range(rows, len(units), rows)):
            x = np.zeros((rows, model.columns))
            x[: len(block), : block.shape[1]] = block
            at = np.array(program(model.surrogate, fitted.state, x.astype(model.surrogate.dtype)))
            found.append(np.reshape(at, (-1, rows, outputs))[:, : len(block)])
    return np.concatenate(found, 1).astype(float)


def curve(model: Model, fitted: Fitted, state: Any, unit: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """(means (n,), covariance (n, n), noise variance) of the first response at the levels at `unit`."""
    assert model.fidelity is not None
    levels = model.fidelity.columns
    x = np.zeros((len(levels), model.columns))
    x[:, : len(unit)], x[:, len(unit)] = unit, levels
    with jax.enable_x64(True):
        found = joint_of(model.surrogate, state, x.astype(model.surrogate.dtype))
    means, cov, noise = (np.asarray(part, float) for part in found)
    known = float(_default_noise(model, fitted.warps[0])[0])
    return means + fitted.offsets[:, 0], cov, float(noise) if known < 0 else known**2


def predictions(model: Model, fitted: Fitted, units: np.ndarray) -> np.ndarray:
    """(n, objectives, 3) mean, low and high at `units` (n, columns)."""
    centers, stds = marginals(model, fitted, units)
    found = []
    for j in range(model.outputs.objectives):
        mean, std, sign, warp = centers[:, j], stds[:, j], model.signs[j], fitted.warps[j]
        limits = [sign * warp.inverse(mean + side * _DEVIATIONS * std) for side in (-sign, sign)]
        found.append(np.stack([sign * warp.expected_inverse(mean, std), *limits], 1))
    return np.stack(found, 1)


def prediction(model: Model, fitted: Fitted, units: np.ndarray) -> Prediction:
    """The prediction at `units` (columns,), or the predictions at (n, columns)."""
    found = predictions(model, fitted, np.atleast_2d(units))
    found = found[:, 0] if model.outputs.objectives == 1 else found
    parts = np.moveaxis(found if units.ndim == 2 else found[0], -1, 0)
    return Prediction(*(parts.tolist() if parts.ndim == 1 else parts))


def expected_gains(model: Model, fitted: Fitted, units: np.ndarray, at: np.ndarray) -> Any:
    """E max(y - y*, 0) in the units of the values, for the first output y at a point (columns,) or many (n, columns).

    y* is the value of the largest posterior mean at `units` (m, columns); by the trapezoidal rule. Raises ValueError
    if there are none.
    """
    if not len(units):
        raise ValueError("no value is known inside the bounds: tell one first")
    means, stds = (part[:, 0] for part in marginals(model, fitted, np.vstack([units, at])))
    best, mean, std, warp = means[: len(units)].max(), means[len(units) :], stds[len(units) :], fitted.warps[0]
    first = np.divide(best - mean, std, out=np.full(len(mean), -_TAIL), where=std > 0)
    z = np.linspace(np.maximum(first, -_TAIL), np.maximum(first, 0) + _TAIL, 1000, axis=-1)
    improvements = np.maximum(warp.inverse(mean[:, None] + std[:, None] * z) - warp.inverse(best), 0)
    gains = np.asarray(np.trapezoid(improvements * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi), z))
    return float(gains[0]) if at.ndim == 1 else gains


def is_noisy(model: Model, fitted: Fitted, known: Observations) -> bool:
    """Whether values are noisy, see `seqdec.bo.BayesianOptimizer.recommend`."""
    if (estimate := model.surrogate.noise_variance) is None:
        return False
    stds = _noise_stds(model, known)
    if any(stds) or None not in stds:
        return any(stds)
    shares = np.ravel(estimate(fitted.state))[: model.outputs.objectives]
    return any(_shows_noise(model, fitted.trials, output, share) for output, share in enumerate(shares))


def may_be_noisy(model: Model, fitted: Fitted, known: Observations) -> bool:
    """Whether the values of one output do not exclude noise."""
    stds = _noise_stds(model, known)
    if model.surrogate.noise_variance is None or None not in stds or not model.outputs.plain:
        return any(stds)
    return estimated_noise(model, fitted.state) > 0 or evidence.allows_noise(_history(model, fitted.trials), _NOISY)


def _shows_noise(model: Model, trials: Trials, output: int, share: float) -> bool:
    """Whether repeated points differ, else whether the estimate is large and `evidence.shows_noise`."""
    if not model.outputs.plain:
        trials = trials._replace(y=trials.y[:, output], noise=trials.noise[:, output])
    rows = np.flatnonzero(trials.noise[: trials.answered] < 0)
    repeated = repeated_variance(trials.x[rows], trials.y[rows])
    if repeated is not None:
        return repeated > _EQUAL
    return share > _NOISY and evidence.shows_noise(_history(model, trials))


def estimated_noise(model: Model, state: Any) -> float:
    """Estimated noise variance of the first warped response; 0 if negligible."""
    estimate = model.surrogate.noise_variance
    variance = 0.0 if estimate is None else float(np.ravel(estimate(state))[0])
    return variance if variance > _NOISY else 0.0


def repeated_variance(points: np.ndarray, y: np.ndarray) -> float | None:
    """Pooled variance of responses `y` (n,) at equal points (n, d); or None."""
    _, cells, counts = np.unique(points, axis=0, return_inverse=True, return_counts=True)
    cells, freedom = np.ravel(cells), len(y) - len(counts)
    averages = np.bincount(cells, y) / counts
    return float(np.sum((y - averages[cells]) ** 2) / freedom) if freedom else None


def prior(model: Model, capacity: int) -> Any:
    """The surrogate's state before the first fit."""
    dtype, rows = model.surrogate.dtype, padded_rows(model, capacity)
    y = np.zeros(rows if model.outputs.plain else (rows, len(model.signs)), dtype)
    history = History(np.zeros((rows, model.columns), dtype), y, np.int32(0), places=model.places)
    return model.surrogate.init(jax.random.key(0), history)


def believe(surrogate: Surrogate, state: Any, trials: Trials) -> Belief:
    """The belief, with the pending points at their expected values."""
    expected, count = np.asarray(means_of(surrogate, state, trials.x)), int(trials.answered + trials.pending)
    if not trials.pending:
        return Belief(state, expected[:count])
    y = np.concatenate([trials.y[: trials.answered], expected[trials.answered :]])
    state = surrogate.condition_on(state, History(trials.x, y, np.int32(count), trials.noise))
    return Belief(state, np.asarray(means_of(surrogate, state, trials.x))[:count])


@program
def means_of(surrogate: Surrogate, state: Any, x: Array) -> Array:
    """(n,) warped means at rows `x` (n, d)."""
    return surrogate.posterior(state).mean(x)


@program
def joint_of(surrogate: Surrogate, state: Any, x: Array) -> tuple[Array, Array, Array]:
    """((n,) means, (n, n) covariance, () noise variance) at rows `x` (n, d), in warped units."""
    found = surrogate.posterior(state).joint(x)
    return found.mean, found.cov, found.noise[0, 0]


@program
def marginals_of(surrogate: Surrogate, state: Any, x: Array) -> tuple[Array, Array]:
    """((n,) means, (n,) standard deviations) at rows `x` (n, d), in warped units."""
    posterior = surrogate.posterior(state)
    at = jax.vmap(lambda row: posterior.joint(row[None]))(x)
    return at.mean[:, 0], jnp.sqrt(jnp.maximum(at.cov[:, 0, 0], 0))
