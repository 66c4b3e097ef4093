"""The contract between the recursion (`seqdec.filters.kalman`) and the forms of covariance that make the filters.

The parameters of a network fall into blocks, such as hidden layers and last layer. A `Covariance` is how a filter keeps
Sigma_b, the covariance of one block, and what it does with an observation. Shapes below: D parameters in the block, cut
into pieces D_p; K responses of the network, o of them observed.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from seqdec import linalg
from seqdec import params as parameters
from seqdec.boundary.checks import count, flag, non_negative, number
from seqdec.core import Array, Key, PyTree
from seqdec.linalg import Outer, Pieces, Rows


class Numerics(NamedTuple):
    """How a filter computes; the posterior is the same up to rounding."""

    buffer: int | None = None
    """m, spare columns of a lazy basis and spare rows of a last layer's root; at least the number of outputs observed
    at once. None chooses."""
    dtype: Any = None
    """of the mean and the factors; None takes that of the parameters"""
    basis_dtype: Any = None
    """of the lazy basis alone; jnp.bfloat16 halves the memory, for networks that would not fit otherwise. It rounds
    every direction to 8 bits: moments keep one to two digits, and over 100,000 steps fewer."""
    error_bounds: bool = False
    """report `UpdateInfo.error_bound` (`seqdec.filters.bounds`)"""
    share_linearization: bool = True
    """linearize every output in `update`, as `moments` does, so that a compiled step that does both does it once. False
    linearizes the observed outputs only: cheaper where the policy needs no moments."""


def checked_numerics(numerics: Any) -> Numerics:
    """`numerics` with a Python integer for its buffer; TypeError or ValueError for anything else."""
    if not isinstance(numerics, Numerics):
        raise TypeError(f"numerics must be a seqdec.filters.Numerics; got {numerics!r}")
    if numerics.buffer is not None:
        numerics = numerics._replace(buffer=count("numerics.buffer", numerics.buffer))
    for name in ("dtype", "basis_dtype"):
        value = getattr(numerics, name)
        try:
            floating = value is None or jnp.issubdtype(jnp.dtype(value), jnp.floating)
        except TypeError:
            floating = False
        if not floating:
            raise TypeError(f"numerics.{name} must be a floating dtype, such as jnp.float32, or None; got {value!r}")
    for name in ("error_bounds", "share_linearization"):
        flag(f"numerics.{name}", getattr(numerics, name))
    return numerics


class Belief(NamedTuple):
    """Gaussian belief over a network's parameters."""

    params: PyTree
    """the mean"""
    blocks: tuple[Any, ...]
    """the state of the covariance of each block"""


class Observation(NamedTuple):
    """One block's part of an update with o observed responses, linearized."""

    jacobian: Rows
    """J_b (o, D_p); all other fields are finite even where the observation is rejected"""
    products: Array
    """(o, k) from `Covariance.project`"""
    cache: Any
    """the third value of `Covariance.mean_update`"""
    innovation_root: Array
    """S^{1/2} (o, o)"""
    noise_root: Array
    """R^{1/2} (o, o)"""
    accept: Array
    """() bool; False: leave the covariance unchanged"""
    reads_done: Array
    """() bool, True: depends on every `mean_update`, so that factors are written only after all have been read"""


class CovarianceUpdate(NamedTuple):
    """The state of a covariance after an observation, and its terms of the error bounds."""

    state: Any
    gain_gram: Array
    """K_b^T K_b (o, o)"""
    process_noise: Array
    """() see `seqdec.core.ErrorBound`"""
    truncation: Array
    """() likewise"""
    groups: tuple[Array, Array] | None = None
    """K^T K and J (Sigma + q I) J^T, (g, o, o) each, of g groups of parameters whose correlation the block neglects"""


def pack_whole(rows: Sequence[Array | Outer]) -> Pieces:
    """All parameters as one piece, for blocks whose covariance is one matrix."""
    return (linalg.whole(rows),)


def unpack_whole(parts: Pieces, like: list[Array]) -> list[Array]:
    """A vector in one piece -> leaves."""
    return parameters.unravel(parts[0], like)


class Covariance(NamedTuple):
    """How the covariance of one block of parameters is kept: pure functions of a state. Built by keyword."""

    init: Callable[[Key, list[Array], Any, Rows | None], Any]
    """(key, leaves of the mean, dtype, Jacobians to come or their shapes) -> state"""
    project: Callable[[Any, Rows], Array]
    """(state, J (K, D_p)) -> products (K, k) of the Jacobian with the factor, from which the rest follows"""
    variance: Callable[[Any, Array], Array]
    """(state, products (o, k)) -> J Sigma J^T (o, o), the block's part of S"""
    mean_update: Callable[[Any, Rows, Array, Array], tuple[Pieces, Array, Any]]
    """(state, J, products, S^{-1} eps) -> K eps (D_p,), its square |K eps|^2, and a cache for `covariance_update`"""
    covariance_update: Callable[[Any, Observation], CovarianceUpdate]
    """Sigma <- (I - K J) Sigma (I - K J)^T + K R K^T, or what approximates it"""
    draw: Callable[[Key, Any], Pieces]
    """(key, state) -> (D_p,) sample of N(0, Sigma)"""
    pack: Callable[[list[Array | Outer]], Rows] = pack_whole
    """rows of the Jacobian by each leaf -> the pieces (o, D_p) in which the block works with them"""
    unpack: Callable[[Pieces, list[Array]], list[Array]] = unpack_whole
    """a vector in these pieces, (D_p,), and leaves to look like -> leaves"""
    predict: Callable[[Any], Any] = lambda state: state
    """a time step: process noise arrives"""
    accumulated_noise: Callable[[Any], Array | None] = lambda state: None
    """state -> (), the variance q that has arrived since the last update; None where there is never any"""
    variances: Callable[[Any], Callable[[Rows], Array]] | None = None
    """(state) -> (J (K, D_p) -> the diagonal of J Sigma J^T (K,)), for many J; None: that of `variance`"""
    columns: Callable[[Any], Pieces | None] = lambda state: None
    """state -> (D_p, k), the columns with which `project` multiplies; None where it does more than that"""


ProcessNoise = Array | float | Callable[[Array], Array]
"""Variance q that arrives in a time step: a number, or a schedule, (number of steps before) -> q, as optax has them."""


class Annealed(NamedTuple):
    """The schedule q_t = q_0 / (1 + t / T)^2 after t steps.

    A filter whose parameters walk with variance q settles at a gain of about sqrt(q / R), so this gain falls as 1 / t,
    as that of an average does: early observations train the network, later ones refine it.
    """

    initial: Array | float
    """q_0"""
    time: Array | float
    """T, steps until q is a quarter of q_0"""

    def __call__(self, steps: Array) -> Array:
        """The variance after `steps` steps."""
        return self.initial / (1 + steps / self.time) ** 2


class CovarianceState(NamedTuple):
    """A factor, and the process noise that has arrived since the last update."""

    factor: Any
    accumulated_noise: Array
    """() variance"""
    steps: Array | None = None
    """() int32, time steps so far; None where process noise does not depend on them"""


def initial_state(factor: Any, dtype: Any, process_noise: ProcessNoise) -> CovarianceState:
    """The state before the first step."""
    return CovarianceState(factor, jnp.zeros((), dtype), jnp.int32(0) if callable(process_noise) else None)


def arrival(process_noise: ProcessNoise, state: CovarianceState) -> tuple[Array | float, CovarianceState]:
    """The variance that arrives now, and the state one time step later."""
    if not callable(process_noise):
        return process_noise, state
    steps = jnp.asarray(state.steps)
    arrived = jnp.asarray(process_noise(steps), state.accumulated_noise.dtype)
    return arrived, state._replace(steps=steps + (steps < jnp.iinfo(steps.dtype).max).astype(steps.dtype))


def accumulate(process_noise: ProcessNoise) -> Callable[[CovarianceState], CovarianceState]:
    """The `predict` of a covariance that uses process noise at its next update."""

    def predict(state):
        arrived, state = arrival(process_noise, state)
        return state._replace(accumulated_noise=state.accumulated_noise + arrived)

    return predict


def known_zero(process_noise: ProcessNoise) -> bool:
    """Whether there is no process noise, so that a low-rank covariance keeps its span and a root its size."""
    return not isinstance(process_noise, Tracer) and not callable(process_noise) and bool(process_noise == 0)


def check_process_noise(name: str, value: Any) -> None:
    """Refuse a number that is not a variance, and a schedule of such numbers, with ValueError."""
    if isinstance(value, Annealed):
        non_negative(f"{name}.initial", value.initial)
        number(f"{name}.time", value.time, exclusive=True)
    elif not callable(value):
        non_negative(name, value)


def zero_where_rejected(observation: Observation, rows: Any) -> Any:
    """Rows of the Jacobian, zero where the observation is rejected."""
    return jax.tree.map(lambda part: jnp.where(observation.accept, part, 0), rows)
