"""Black-box functions to be minimized, with their bounds and known minima.

An `Objective` is a function for `seqdec.minimize`; in the environment `query`, actions are points and the reward is
minus the value.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from gymnasium.spaces import Box

from seqdec.boundary import checks
from seqdec.boundary.checks import keyed
from seqdec.core import Array, Environment, Key, PyTree, TimeStep


class Objective(NamedTuple):
    """A function on a box, to be minimized."""

    name: str
    """Shown in tables and figures."""
    value: Callable[[PyTree, Array], Array]
    """(params, x (d,)) -> () value without noise; NaN where the evaluation fails."""
    params: PyTree
    """Arrays of the function."""
    bounds: np.ndarray
    """(d, 2) lower and upper bounds."""
    minimum: float | None
    """Smallest value on the box; None if unknown."""
    minimizers: np.ndarray | None
    """(k, d) points of the minimum; None if unknown."""
    noise_std: float = 0.0
    """Standard deviation of the Gaussian noise of a query."""

    def __call__(self, x: Any) -> float:
        """The value at `x` (d,) in double precision, without noise."""
        return float(_evaluate(self.value, self.params, _point(x, len(self.bounds))))

    def black_box(self, seed: int) -> Callable[[Any], float]:
        """The noisy function: every call adds independent noise, generated from `seed`."""
        generator = np.random.default_rng(checks.seed("seed", seed))
        return lambda x: self(x) + self.noise_std * float(generator.standard_normal())

    def regret(self, value: Any) -> Any:
        """`value` - minimum; NaN where unknown."""
        return np.asarray(checks.as_array("value", value)) - (np.nan if self.minimum is None else self.minimum)


def _point(x: Any, dim: int) -> np.ndarray:
    point = np.asarray(checks.as_array("x", x), float)
    if point.shape != (dim,):
        raise ValueError(f"x must have shape ({dim},); got {point.shape}")
    return point


def _evaluate(value: Callable[[PyTree, Array], Array], params: PyTree, x: np.ndarray) -> Array:
    with jax.enable_x64(True):
        return _compiled(value, params, x)


_compiled = jax.jit(lambda value, params, x: value(params, x), static_argnums=0)


def ackley(dim: int = 2) -> Objective:
    r"""Ackley's function on [-4, 5]^d: a deep minimum at 0 among many shallow ones.

    f(x) = 20 + e - 20 exp(-0.2 sqrt(mean x^2)) - exp(mean cos 2 pi x), minimum 0. Raises ValueError for dim < 1.
    """
    dim = checks.count("dim", dim, 1)
    return Objective(f"ackley{dim}", _ackley, (), _box([(-4.0, 5.0)] * dim), 0.0, np.zeros((1, dim)))


def _ackley(params: PyTree, x: Array) -> Array:
    bowl = 20 * jnp.exp(-0.2 * jnp.sqrt(jnp.mean(x**2)))
    return 20 + math.e - bowl - jnp.exp(jnp.mean(jnp.cos(2 * jnp.pi * x)))


def branin() -> Objective:
    """Branin's function on [-5, 10] x [0, 15]: three equal minima of 0.397887."""
    minimizers = [(-math.pi, 12.275), (math.pi, 2.275), (3 * math.pi, 2.475)]
    return Objective("branin", _branin, (), _box([(-5, 10), (0, 15)]), 10 / (8 * math.pi), np.array(minimizers))


def _branin(params: PyTree, x: Array) -> Array:
    bend = x[1] - 5.1 / (4 * math.pi**2) * x[0] ** 2 + 5 / math.pi * x[0] - 6
    return bend**2 + 10 * (1 - 1 / (8 * math.pi)) * jnp.cos(x[0]) + 10


_HARTMANN_WEIGHTS = np.array([1.0, 1.2, 3.0, 3.2])
_HARTMANN_SCALES = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_HARTMANN_CENTERS = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann6() -> Objective:
    """Hartmann's function on [0, 1]^6: a sum of four Gaussian wells, minimum -3.322368."""
    minimizer = [0.20168951, 0.15001069, 0.47687397, 0.27533243, 0.31165162, 0.65730053]
    return Objective("hartmann6", _hartmann6, (), _box([(0, 1)] * 6), -3.32236801141551, np.array([minimizer]))


def _hartmann6(params: PyTree, x: Array) -> Array:
    exponents = jnp.sum(_HARTMANN_SCALES.astype(x.dtype) * (x[None] - _HARTMANN_CENTERS.astype(x.dtype)) ** 2, axis=1)
    return -jnp.sum(_HARTMANN_WEIGHTS.astype(x.dtype) * jnp.exp(-exponents))


def levy(dim: int = 2) -> Objective:
    """Levy's function on [-10, 10]^d: waves on a bowl, minimum 0 at (1, ..., 1). Raises ValueError for dim < 1."""
    dim = checks.count("dim", dim, 1)
    return Objective(f"levy{dim}", _levy, (), _box([(-10, 10)] * dim), 0.0, np.ones((1, dim)))


def _levy(params: PyTree, x: Array) -> Array:
    w = 1 + (x - 1) / 4
    waves = (w[:-1] - 1) ** 2 * (1 + 10 * jnp.sin(jnp.pi * w[:-1] + 1) ** 2)
    end = (w[-1] - 1) ** 2 * (1 + jnp.sin(2 * jnp.pi * w[-1]) ** 2)
    return jnp.sin(jnp.pi * w[0]) ** 2 + jnp.sum(waves) + end


def rosenbrock(dim: int = 2) -> Objective:
    """Rosenbrock's curved valley on [-5, 10]^d, minimum 0 at (1, ..., 1). Raises ValueError for dim < 2."""
    dim = checks.count("dim", dim, 2)
    return Objective(f"rosenbrock{dim}", _rosenbrock, (), _box([(-5, 10)] * dim), 0.0, np.ones((1, dim)))


def _rosenbrock(params: PyTree, x: Array) -> Array:
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


class _Random(nn.Module):
    @nn.compact
    def __call__(self, x: Array) -> Array:
        normal = nn.initializers.normal(1.0)
        for width in (50, 50):
            x = nn.relu(nn.Dense(width, kernel_init=normal, bias_init=normal)(x))
        return nn.Dense(1, kernel_init=normal, bias_init=normal)(x)[0]


def drawnn(dim: int = 50, *, seed: int = 3141) -> Objective:
    """DrawNN: minus a random ReLU network on [0, 1]^d, two hidden layers of 50, weights and biases N(0, 1).

    The minimum is unknown; the same `seed` gives the same network. Raises ValueError for dim < 1 or a negative seed.
    """
    dim, seed = checks.count("dim", dim, 1), checks.seed("seed", seed)
    params = _Random().init(jax.random.key(checks.seed_bits(seed)), jnp.zeros(dim, jnp.float32))
    return Objective(f"drawnn{dim}", _drawnn, params, _box([(0, 1)] * dim), None, None)


def _drawnn(params: PyTree, x: Array) -> Array:
    return -jnp.asarray(_Random().apply(jax.tree.map(lambda leaf: leaf.astype(x.dtype), params), x))


def noisy_branin(noise_std: float = 1.0) -> Objective:
    """Branin's function with Gaussian noise on every query. Raises ValueError for a negative `noise_std`."""
    return branin()._replace(name="noisy_branin", noise_std=float(checks.array("noise_std", noise_std, 0, 0.0)))


def failing_branin() -> Objective:
    """Branin's function, but a query fails (NaN) where x_1 > 12, where one of the three minima is."""
    minimizers = branin().minimizers
    assert minimizers is not None
    minimizers = minimizers[minimizers[:, 1] <= 12]
    return branin()._replace(name="failing_branin", value=_failing_branin, minimizers=minimizers)


def _failing_branin(params: PyTree, x: Array) -> Array:
    return jnp.where(x[1] > 12, jnp.nan, _branin(params, x))


def _box(bounds: Any) -> np.ndarray:
    return np.array(bounds, float)


class Query(NamedTuple):
    """State of `query`."""

    step: Array
    """() int32 queries made in this episode."""


class QueryParams(NamedTuple):
    """Parameters of `query`."""

    params: PyTree
    low: Array
    """(d,)"""
    high: Array
    """(d,)"""
    minimum: Array
    """() NaN if not known"""
    noise_std: Array
    """()"""


def query(objective: Objective, *, horizon: int = 100) -> Environment:
    """The environment in which each step evaluates `objective` at an action, a point (d,) of its box.

    The reward is minus the noisy value; the regret is the noiseless value minus the minimum. Both are NaN where the
    query fails or the point lies outside the box. The observation is the constant 1. An episode ends after `horizon`
    queries. Raises ValueError for horizon < 1.
    """
    horizon = checks.count("horizon", horizon, 1)
    low, high = objective.bounds.T.astype(np.float32)
    minimum = np.float32(np.nan if objective.minimum is None else objective.minimum)
    numbers = [jnp.asarray(number, jnp.float32) for number in (low, high, minimum, objective.noise_std)]
    params = QueryParams(jax.tree.map(jnp.asarray, objective.params), *numbers)
    nothing = jnp.ones(1, jnp.float32)

    @keyed
    def reset(key: Key, params: QueryParams) -> tuple[Query, Array]:
        return Query(jnp.int32(0)), nothing

    @keyed
    def step(key: Key, state: Query, action: Array, params: QueryParams) -> tuple[Query, TimeStep]:
        point = jnp.asarray(action)
        if point.shape != low.shape or not jnp.issubdtype(point.dtype, jnp.floating):
            raise TypeError(f"an action must be a {low.shape} float array; got {point.dtype} of shape {point.shape}")
        point = point.astype(jnp.float32)
        inside = jnp.all((point >= params.low) & (point <= params.high))
        value = jnp.where(inside, objective.value(params.params, point), jnp.nan)
        noise = params.noise_std * jax.random.normal(key, dtype=jnp.float32)
        done = state.step + 1 >= horizon
        after = Query(jnp.where(done, 0, state.step + 1))
        return after, TimeStep(nothing, -value - noise, value - params.minimum, done)

    box = Box(low, high, dtype=np.float32)
    return Environment(reset, step, params, Box(0.0, 1.0, (1,), np.float32), box, objective.name)
