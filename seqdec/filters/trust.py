"""Where to linearize responses whose mean is an unbounded function of the output, such as exp(f) of counts.

With m = e^f, prior variance v of f and count y, the linearization at the belief's mean makes the

    step of f = v (y - m) / (1 + v m)

up to 99 from m = 1 to y = 100, where log 100 = 4.6 is right. Two rules, for likelihoods that tell their `mode`:

1. A response with |step| > 1/2 whose mode g(y) is further than 2 from f, in the direction of the step, is linearized at
   the mode: a Gaussian observation of f with value g(y) and variance r(y), for counts log(1 + y) and 1 / (1 + y). A
   belief with small v never does this: its limit is unbiased.
2. The step is halved until at the observation's inputs

       max_j |f_j(after) - f_j(before)| <= max(1, max_i |g(y_i) - f_i|)      j all outputs, i the observed ones
       sum_i y_i d_i - m_i (e^{d_i} - 1) >= 0,  up to rounding               d_i = f_i(after) - f_i(before)

   The second line is the change of the log likelihood. The covariance is that of the whole step. After 64 halvings the
   observation is rejected.

Source: step halving: Marschner, "glm2: fitting generalized linear models with convergence problems", R Journal, 2011.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from seqdec.core import Array, Network, PyTree
from seqdec.likelihoods import Likelihood
from seqdec.linalg import Outer, Rows
from seqdec.runtime import alike


class Region(NamedTuple):
    """Outputs at an observation's inputs before the update."""

    outputs: Array
    """(o,) f_i"""
    slopes: Array
    """(o,) derivative of the mean by f_i, also the variance of the response"""
    modes: Array
    """(o,) g(y_i)"""
    variances: Array
    """(o,) r(y_i)"""
    fits: Callable[[PyTree], Array]
    """(params after the update) -> () bool, rule 2"""


def region(
    network: Network, likelihood: Likelihood, params: PyTree, xs: PyTree, ys: Array, rows: Array | None, used: Array
) -> Region | None:
    """The region of responses ys (b, o) at inputs xs (b, ...); None for a likelihood that needs none.

    `rows` (b, o) are their outputs, None for all; `used` (b,) bool marks inputs taken.
    """
    if likelihood.mode is None:
        return None

    def outputs(params):
        every = jax.vmap(network.apply, (None, 0))(params, xs)
        every = jnp.where(used[:, None], every, 0).astype(ys.dtype)
        return every, every if rows is None else jnp.take_along_axis(every, rows, 1)

    every, seen = outputs(params)
    ys = jnp.where(used[:, None], ys, likelihood.mean(seen))
    means, slopes = jax.jvp(likelihood.mean, (seen,), (jnp.ones_like(seen),))
    modes, variances = likelihood.mode(ys)
    reach = jnp.maximum(1, jnp.max(jnp.where(used[:, None], jnp.abs(modes - seen), 0)))
    rounding = 1e-2 + 1e-5 * jnp.sum(jnp.abs(ys) + means)

    def fits(params):
        moved, step = (after - before for after, before in zip(outputs(params), (every, seen), strict=True))
        gained = jnp.sum(ys * step - slopes * jnp.expm1(step))
        return jnp.all(jnp.abs(moved) <= reach) & (gained >= -rounding)

    return Region(seen.ravel(), slopes.ravel(), modes.ravel(), variances.ravel(), fits)


def scales(at: Region, variances: Array, innovation: Array, noise: Array) -> tuple[Array, Array, Array]:
    """Rule 1: factors of the rows of the Jacobian (o,); innovation (o,) and noise (o, o) to them."""
    slopes = jnp.maximum(at.slopes, jnp.finfo(variances.dtype).tiny ** 0.5)
    prior, distance = variances / slopes**2, at.modes - at.outputs
    step = prior * innovation / (1 + prior * slopes)
    elsewhere = (jnp.abs(step) > 0.5) & (jnp.abs(distance) > 2) & (distance * innovation > 0)
    apart = ~(elsewhere[:, None] | elsewhere[None])
    return (
        jnp.where(elsewhere, 1 / slopes, 1),
        jnp.where(elsewhere, distance, innovation),
        jnp.where(apart, noise, jnp.diag(jnp.where(elsewhere, at.variances, jnp.diagonal(noise)))),
    )


def scaled(rows: Rows, factors: Array) -> Rows:
    """Rows (o, ...) times factors (o,)."""

    def one(part):
        if isinstance(part, Outer):
            return Outer(part.inputs, scaled_array(part.deltas, factors))
        return scaled_array(part, factors)

    return tuple(map(one, rows))


def scaled_array(rows: Array, factors: Array) -> Array:
    """`scaled` of one array."""
    return rows * factors.reshape(-1, *(1,) * (rows.ndim - 1))


def halved(step: PyTree, moved: Callable[[PyTree], PyTree], accept: Array, at: Region) -> tuple[PyTree, Array]:
    """Rule 2: the step, halved until `moved(step)` fits if `accept`, and () bool, whether it fits."""

    def times(scale):
        return jax.tree.map(lambda part: scale.astype(part.dtype) * part, step)

    def tried(scale):
        return scale, at.fits(moved(times(scale)))

    def again(state):
        scale, fitting = state
        return accept & ~fitting & (scale > 2.0**-64)

    start = alike(jnp.ones((), at.outputs.dtype), step, accept)
    scale, fitting = jax.lax.while_loop(again, lambda state: tried(state[0] / 2), tried(start))
    return times(scale), fitting
