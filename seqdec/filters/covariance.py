"""The contract between the recursion (`seqdec.filters.kalman`) and forms of covariance.

A `Covariance` keeps Sigma_b of one block of parameters, such as the hidden layers. Shapes: D parameters in the block,
in pieces D_p; K responses of the network, o of them observed.
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
    """Numerical options; the posterior is the same up to rounding."""

    buffer: int | None = None
    """m, spare columns of a lazy basis and spare rows of a last layer's root; at least the outputs observed at once.
    None chooses.
    """
    dtype: Any = None
    """of mean and factors; None: that of the parameters"""
    basis_dtype: Any = None
    """of the lazy basis alone; jnp.bfloat16 halves the memory and rounds directions to 8 bits: moments keep one to two
    digits, over 100,000 steps fewer.
    """
    error_bounds: bool = False
    """report `UpdateInfo.error_bound` (`seqdec.filters.bounds`)"""
    share_linearization: bool = True
    """linearize every output in `update`, as `moments` does, once for both in a compiled step. False: the observed
    outputs only, cheaper without moments.
    """


def checked_numerics(numerics: Any) -> Numerics:
    """`numerics` with an int for its buffer; TypeError or ValueError for anything else."""
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
    """Gaussian belief over parameters."""

    params: PyTree
    """the mean"""
    blocks: tuple[Any, ...]
    """the state of each block's covariance"""


class Observation(NamedTuple):
    """One block's part of an update with o observed responses, linearized."""

    jacobian: Rows
    """J_b (o, D_p); other fields are finite even where rejected"""
    products: Array
    """(o, k) from `Covariance.project`"""
    cache: Any
    """from `Covariance.mean_update`"""
    innovation_root: Array
    """S^{1/2} (o, o)"""
    noise_root: Array
    """R^{1/2} (o, o)"""
    accept: Array
    """() bool; False: keep the covariance"""
    reads_done: Array
    """() bool, True: depends on every `mean_update`; writes follow it"""


class CovarianceUpdate(NamedTuple):
    """A covariance's state after an observation, and its terms of the error bounds."""

    state: Any
    gain_gram: Array
    """K_b^T K_b (o, o)"""
    process_noise: Array
    """() see `seqdec.core.ErrorBound`"""
    truncation: Array
    """() likewise"""
    groups: tuple[Array, Array] | None = None
    """K^T K and J (Sigma + q I) J^T, (g, o, o) each, of g groups whose correlation the block neglects"""


def pack_whole(rows: Sequence[Array | Outer]) -> Pieces:
    """All parameters as one piece."""
    return (linalg.whole(rows),)


def unpack_whole(parts: Pieces, like: list[Array]) -> list[Array]:
    """Inverse of `pack_whole` for a vector."""
    return parameters.unravel(parts[0], like)


class Covariance(NamedTuple):
    """One block's covariance: pure functions of a state. Built by keyword."""

    init: Callable[[Key, list[Array], Any, Rows | None], Any]
    """(key, leaves of the mean, dtype, Jacobians to come or their shapes) -> state"""
    project: Callable[[Any, Rows], Array]
    """(state, J (K, D_p)) -> products (K, k) of the Jacobian with the factor"""
    variance: Callable[[Any, Array], Array]
    """(state, products (o, k)) -> J Sigma J^T (o, o)"""
    mean_update: Callable[[Any, Rows, Array, Array], tuple[Pieces, Array, Any]]
    """(state, J, products, S^{-1} eps) -> K eps (D_p,), |K eps|^2, and a cache for `covariance_update`"""
    covariance_update: Callable[[Any, Observation], CovarianceUpdate]
    """Sigma <- (I - K J) Sigma (I - K J)^T + K R K^T, approximately"""
    draw: Callable[[Key, Any], Pieces]
    """(key, state) -> (D_p,) sample of N(0, Sigma)"""
    pack: Callable[[list[Array | Outer]], Rows] = pack_whole
    """rows of the Jacobian by leaf -> pieces (o, D_p)"""
    unpack: Callable[[Pieces, list[Array]], list[Array]] = unpack_whole
    """a vector in pieces (D_p,), and leaves to look like -> leaves"""
    predict: Callable[[Any], Any] = lambda state: state
    """a time step"""
    accumulated_noise: Callable[[Any], Array | None] = lambda state: None
    """state -> (), variance q since the last update; None: never any"""
    variances: Callable[[Any], Callable[[Rows], Array]] | None = None
    """(state) -> (J (K, D_p) -> the diagonal of J Sigma J^T (K,)); None: from `variance`"""
    columns: Callable[[Any], Pieces | None] = lambda state: None
    """state -> (D_p, k), with which `project` multiplies; None where it does more"""


ProcessNoise = Array | float | Callable[[Array], Array]
"""Variance q that arrives in a time step, or a schedule, (number of steps before) -> q."""


class Annealed(NamedTuple):
    """The schedule q_t = q_0 / (1 + t / T)^2 after t steps.

    The steady gain of about sqrt(q / R) then falls as 1 / t, as that of an average does.
    """

    initial: Array | float
    """q_0"""
    time: Array | float
    """T, steps until q is a quarter of q_0"""

    def __call__(self, steps: Array) -> Array:
        """The variance after `steps` steps."""
        return self.initial / (1 + steps / self.time) ** 2


class CovarianceState(NamedTuple):
    """A factor, and the process noise since the last update."""

    factor: Any
    accumulated_noise: Array
    """() variance"""
    steps: Array | None = None
    """() int32; None where process noise is no schedule"""


def initial_state(factor: Any, dtype: Any, process_noise: ProcessNoise) -> CovarianceState:
    """State before the first step."""
    return CovarianceState(factor, jnp.zeros((), dtype), jnp.int32(0) if callable(process_noise) else None)


def arrival(process_noise: ProcessNoise, state: CovarianceState) -> tuple[Array | float, CovarianceState]:
    """The variance that arrives, and the next state."""
    if not callable(process_noise):
        return process_noise, state
    steps = jnp.asarray(state.steps)
    arrived = jnp.asarray(process_noise(steps), state.accumulated_noise.dtype)
    return arrived, state._replace(steps=steps + (steps < jnp.iinfo(steps.dtype).max).astype(steps.dtype))


def accumulate(process_noise: ProcessNoise) -> Callable[[CovarianceState], CovarianceState]:
    """`predict` that stores process noise until the next update."""

    def predict(state):
        arrived, state = arrival(process_noise, state)
        return state._replace(accumulated_noise=state.accumulated_noise + arrived)

    return predict


def known_zero(process_noise: ProcessNoise) -> bool:
    """Whether process noise is a Python 0."""
    return not isinstance(process_noise, Tracer) and not callable(process_noise) and bool(process_noise == 0)


def check_process_noise(name: str, value: Any) -> None:
    """Raises ValueError unless it is a variance or a schedule of variances."""
    if isinstance(value, Annealed):
        non_negative(f"{name}.initial", value.initial)
        number(f"{name}.time", value.time, exclusive=True)
    elif not callable(value):
        non_negative(name, value)


def zero_where_rejected(observation: Observation, rows: Any) -> Any:
    """Rows of the Jacobian, zero if rejected."""
    return jax.tree.map(lambda part: jnp.where(observation.accept, part, 0), rows)
