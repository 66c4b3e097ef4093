"""Factorizations, branches and column writes under `jax.vmap`."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from seqdec.core import Array
from seqdec.runtime import alike

_T = TypeVar("_T")


def sequential_vmap(function: Callable[..., _T]) -> Callable[..., _T]:
    """The same function; on a CPU `jax.vmap` computes the members of a batch in turn.

    For factorizations: in jaxlib 0.10 as many batches at once as CPU threads deadlock.
    """

    @custom_vmap
    def single(*arguments):
        return function(*arguments)

    @single.def_vmap
    def _(axis_size, in_batched, *arguments):
        broadcast = _broadcast(axis_size, in_batched, arguments)
        results = lax.platform_dependent(
            *broadcast, cpu=lambda *batch: lax.map(lambda member: single(*member), batch), default=jax.vmap(function)
        )
        return results, jax.tree.map(lambda _: True, results)

    return _differentiable(single, function)


def _differentiable(batched: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    differentiable = jax.custom_jvp(batched)
    differentiable.defjvp(functools.partial(jax.jvp, plain))
    return differentiable


def _broadcast(axis_size: int, in_batched: Sequence[Any], arguments: Sequence[Any]) -> tuple[Any, ...]:
    return jax.tree.map(
        lambda leaf, batched: leaf if batched else jnp.broadcast_to(leaf, (axis_size, *jnp.shape(leaf))),
        tuple(arguments),
        tuple(in_batched),
    )


cholesky = sequential_vmap(jnp.linalg.cholesky)
lower_cholesky = sequential_vmap(functools.partial(lax.linalg.cholesky, symmetrize_input=False))
"""Reads the lower triangle only."""
eigh = sequential_vmap(jnp.linalg.eigh)
eigvalsh = sequential_vmap(jnp.linalg.eigvalsh)
qr = sequential_vmap(jnp.linalg.qr)
svd = sequential_vmap(functools.partial(jnp.linalg.svd, full_matrices=False))
triangular_factor = sequential_vmap(functools.partial(jnp.linalg.qr, mode="r"))
solve_triangular = sequential_vmap(jax.scipy.linalg.solve_triangular)
solve_transposed = sequential_vmap(functools.partial(jax.scipy.linalg.solve_triangular, trans=1))


def cond_any(condition: Array, function: Any, operand: Any, *constants: Any) -> Any:
    """function(operand, *constants) if condition else operand, a branch also under `jax.vmap`.

    A batch takes the branch where any member's condition holds: `function` must be harmless where it is False. Each
    member has the derivatives of its own side.
    """

    def plain(condition, operand, constants):
        operand, constants = alike((operand, constants), condition)
        return lax.cond(
            condition,
            lambda same, rest: alike(function(same, *rest), operand),
            lambda same, _: same,
            operand,
            constants,
        )

    branch = custom_vmap(plain)

    @branch.def_vmap
    def _(axis_size, in_batched, condition, operand, constants):
        condition_batched, operand_batched, constants_batched = in_batched
        (operand,) = _broadcast(axis_size, [operand_batched], (operand,))
        axes = jax.tree.map(lambda batched: 0 if batched else None, constants_batched)
        anywhere = jnp.any(condition) if condition_batched else condition
        results = cond_any(anywhere, jax.vmap(function, (0, *axes)), operand, *constants)
        return results, jax.tree.map(lambda _: True, results)

    return _differentiable(branch, plain)(condition, operand, constants)


def put_columns(buffer: Array, values: Array, at: Array) -> Array:
    """Buffer (D, n) with values (D, o) in its columns from `at` on; one write if the whole batch writes there."""
    return _differentiable(_put, _put_one)(buffer, values, at)


def _put_one(buffer: Array, values: Array, at: Array) -> Array:
    return lax.dynamic_update_slice_in_dim(buffer, values, at, 1)


_put = custom_vmap(_put_one)


@_put.def_vmap
def _(axis_size, in_batched, buffer, values, at):
    buffer, values, at = alike(_broadcast(axis_size, in_batched, (buffer, values, at)))

    # A loop of zero iterations, where a conditional would copy the buffer.
    def write(member, buffer):
        place = (member, jnp.zeros_like(member), at[member].astype(member.dtype))
        return lax.dynamic_update_slice(buffer, values[member][None], place)

    in_step = at == at[0]
    present = lax.dynamic_slice_in_dim(buffer, at[0], values.shape[2], 2)
    buffer = lax.dynamic_update_slice_in_dim(buffer, jnp.where(in_step[:, None, None], values, present), at[0], 2)
    return lax.fori_loop(0, jnp.where(jnp.all(in_step), 0, axis_size), write, buffer), True


def check_spare_columns(observed: int, spare: int) -> None:
    """Raises ValueError for an observation with more rows than spare columns."""
    if observed > spare:
        raise ValueError(
            f"{observed} outputs observed at once do not fit a buffer of {spare}; "
            f"build the filter with buffer={observed} or more"
        )


def columns_from(first: Array, count: int, width: int) -> Array:
    """(count, width) bool: row i is True in column first + i."""
    places, rows = jnp.arange(width, dtype=first.dtype), jnp.arange(count, dtype=first.dtype)
    return places[None] == first + rows[:, None]


def advance_filled(filled: Array, observed: int, accept: Array) -> Array:
    """Columns in use after an observation."""
    return filled + observed * accept.astype(filled.dtype)
