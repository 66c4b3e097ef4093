"""Responses at several inputs as one observation, for `Filter.update_batch`.

With b inputs of o observed responses each, linearized at one mean, J_i (o x D) and R_i (o x o) stack to

    J = [J_1; ...; J_b]        R = blockdiag(R_1, ..., R_b)        eps = [y_1 - f(x_1); ...; y_b - f(x_b)]

For a linear model the result is that of b successive updates, which otherwise linearize again after each. Inputs that
are not finite are left out by J_i = 0 and eps_i = 0.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer

from seqdec.boundary.checks import indices, integers, one_array
from seqdec.core import Array, PyTree
from seqdec.linalg import Outer, Rows


class Stacked(NamedTuple):
    """One observation of b o responses."""

    jacobians: tuple[Rows, ...]
    """(b o, D_p) of each block"""
    innovation: Array
    """(b o,), NaN if no input is finite"""
    noise: Array
    """R (b o, b o)"""
    finite: Array
    """(b,) bool, inputs taken"""
    left_out: Array
    """() log density of the other responses"""


def checked(xs: PyTree, ys: Any, observed: Any) -> tuple[Array, Array | None]:
    """Both as (b, o) arrays; TypeError for a symbolic shape, ValueError for shapes that do not fit or no input."""
    ys, rows = jnp.asarray(one_array("ys", ys)), None if observed is None else integers("observed", observed)
    if not all(isinstance(size, int) for size in ys.shape):
        raise TypeError(
            f"update_batch factorizes matrices of the size of the batch, which must be a number; got ys {ys.shape}: "
            "export it for one size, and pad a smaller batch with NaN, which is ignored"
        )
    sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(xs)}
    if ys.ndim not in (1, 2) or not len(ys) or sizes != {ys.shape[:1]} or (rows is not None and rows.shape != ys.shape):
        raise ValueError(
            "ys must be (b, o) or (b,), with b > 0 the length of every leaf of xs, and observed like ys; got ys "
            f"{ys.shape}, xs {sorted(jnp.shape(leaf) for leaf in jax.tree.leaves(xs))} and observed "
            f"{None if rows is None else rows.shape}"
        )
    wide = (len(ys), -1)
    return ys.reshape(wide), None if rows is None else rows.reshape(wide)


def known(ys: Array, rows: Array | None, outputs: int) -> Array:
    """`ys` with NaN where a traced index lies outside [0, outputs); ValueError for other indices."""
    if rows is None:
        return ys
    if not isinstance(rows, Tracer):
        indices("observed", rows, outputs, "outputs")
        return ys
    return jnp.where((rows >= 0) & (rows < outputs), ys, jnp.nan)


def stacked(
    mean: Array, noise: Array, jacobians: tuple[Rows, ...], ys: Array, rows: Array | None
) -> tuple[Array, Stacked]:
    """The innovation of each input (b, o), and all as one observation.

    From expected responses (b, K) and covariances (b, K, K) of all outputs, and Jacobians (b, o, ...) of the observed
    `rows` (b, o), None for all.
    """
    if rows is not None:
        mean = jnp.take_along_axis(mean, rows, 1)
        noise = jax.vmap(lambda cov, own: cov[own][:, own])(noise, rows)
    if ys.shape != mean.shape:
        raise ValueError(
            f"ys has shape {ys.shape}, but the network has {mean.shape[1]} outputs; pass observed= for some of them"
        )
    innovation = ys.astype(mean.dtype) - mean
    count, size = innovation.shape
    tested = jax.tree.leaves((innovation, noise, jacobians))
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf.reshape(count, -1)), axis=1) for leaf in tested]), axis=0)

    def kept(leaf):
        return jnp.where(finite.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0)

    jacobians, eps, noise = jax.tree.map(kept, (jacobians, innovation, noise))
    # The variance of what is left out is of the size of the others, so that their digits are kept.
    largest = jnp.max(jnp.diagonal(noise, axis1=1, axis2=2))
    largest = jnp.where(largest > 0, largest, 1)
    noise += jnp.where(finite, 0, largest)[:, None, None] * jnp.eye(size, dtype=noise.dtype)[None]
    joint = jnp.einsum("bc,bij->bicj", jnp.eye(count, dtype=noise.dtype), noise).reshape(count * size, -1)
    left_out = -0.5 * size * jnp.sum(~finite).astype(largest.dtype) * jnp.log(2 * math.pi * largest)
    eps = jnp.where(jnp.any(finite), eps, jnp.nan).ravel()
    return innovation, Stacked(tuple(map(_stack, jacobians)), eps, joint, finite, left_out)


def _stack(rows: Rows) -> Rows:
    def stack(part):
        if isinstance(part, Outer):
            return Outer(part.inputs, part.deltas.reshape(-1, part.deltas.shape[-1]))
        return part.reshape(-1, *part.shape[2:])

    return tuple(map(stack, rows))
