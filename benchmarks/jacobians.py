"""Time of the product of a network's Jacobian (K x D) with n columns and of one row of it, in three ways.

    python benchmarks/jacobians.py

reverse: K reverse passes, then one matrix product. outer: the same with rows of dense layers as outer products.
forward: n forward passes along the columns, and one reverse pass. The minimum of several measurements, in milliseconds;
filters use forward passes where K >= n.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import linalg
from seqdec import params as parameters
from seqdec.commands import bench
from seqdec.filters import jacobians
from seqdec.filters._lrkf import pack_pieces

TURNS = 5


def reverse(apply: Callable[..., jax.Array], params: Any, x: jax.Array, columns: tuple[jax.Array, ...]) -> Any:
    """Products (K, n) and row 0, from the whole Jacobian."""
    out, pull = jax.vjp(lambda params: apply(params, x), params)
    rows = parameters.pieces(jax.tree.leaves(jax.vmap(pull)(jnp.asarray(np.eye(len(out)), out.dtype))[0]), 1)
    return sum(row @ column for row, column in zip(rows, columns, strict=True)), [row[0] for row in rows]


def outer(apply: Callable[..., jax.Array], params: Any, x: jax.Array, columns: tuple[jax.Array, ...]) -> Any:
    """The same with the rows of dense layers as outer products."""
    rows = pack_pieces(jacobians.rows(lambda params, x: (apply(params, x), ()), params, x)[2])
    products = [linalg.multiply(row, column, column.dtype) for row, column in zip(rows, columns, strict=True)]
    return sum(products), [linalg.dense(linalg.select(row, np.arange(1)))[0] for row in rows]


def forward(apply: Callable[..., jax.Array], params: Any, x: jax.Array, columns: tuple[jax.Array, ...]) -> Any:
    """The same without the Jacobian."""
    leaves, structure = jax.tree.flatten(params)
    out, push = jax.linearize(lambda params: apply(params, x), params)
    products = jax.vmap(lambda *parts: push(structure.unflatten(parameters.unpieces(parts, leaves))), -1, -1)(*columns)
    _, pull = jax.vjp(lambda params: apply(params, x), params)
    return products, parameters.pieces(jax.tree.leaves(pull(jnp.zeros_like(out).at[0].set(1))[0]))


WAYS = (reverse, outer, forward)


def milliseconds(function: Any, apply: Any, params: Any, inputs: jax.Array, columns: Any) -> float:
    """Minimum time of one product over passes through the inputs; all results are returned, so that XLA keeps them."""

    def passes(params, inputs, columns):
        first = function(apply, params, inputs[0], columns)
        return jax.lax.scan(lambda _, x: (function(apply, params, x, columns), None), first, inputs)[0]

    compiled = jax.jit(passes).lower(params, inputs, columns).compile()
    times = []
    for _ in range(TURNS):
        began = time.perf_counter()
        jax.block_until_ready(compiled(params, inputs, columns))
        times.append(time.perf_counter() - began)
    return 1e3 * min(times) / len(inputs)


if __name__ == "__main__":
    for size in (0, 40_000):
        for arms in (10, 32, 100):
            work = bench.workload(size, arms)
            params = work.network.init(jax.random.key(0))
            for width in (26, 75):
                rows = jax.random.normal(jax.random.key(1), (width, work.size))
                leaves = parameters.unravel(rows, jax.tree.leaves(params))
                columns = tuple(piece.T for piece in parameters.pieces(leaves, 1))
                times = {f.__name__: milliseconds(f, work.network.apply, params, work.inputs, columns) for f in WAYS}
                shown = ", ".join(f"{name} {time:6.2f} ms" for name, time in times.items())
                print(
                    f"{'MLP' if size else 'LeNet5':6} D = {work.size:,} K = {arms:3} n = {width:2}: {shown}", flush=True
                )
