"""KOALA: stochastic optimization as Kalman filtering of the loss.

The parameters theta are a random walk with covariance q I per step; the loss L of a minibatch observes them with noise
variance R and target (1 - eta) L. With the gradient H (a row) and the covariance P,

    theta <- theta - eta L (P + q I) H^T / S,      S = H (P + q I) H^T + R

`koala_v` has a scalar P, `koala_m` a 2 x 2 covariance of position and velocity, `koala_plus_plus` the row v = H P and
the matrix of least norm that gives it.

`update(grads, state, params, value=loss)` raises ValueError without a scalar loss, and also takes its variance over the
minibatch, `value_variance=`. `optax.MultiSteps` passes on the loss of its last minibatch. Settings of all three:

    initial_variance    p_0, variance of every parameter at first
    process_noise       q, variance that every parameter gains per step
    noise               R, observation variance of the loss; None tracks the variance or else the square of the loss
    noise_decay         decay of the moving average that tracks R
    initial_noise       initial value of that average
    weight_decay        w, coupled: H + w theta^T and L + w |theta|^2 / 2 replace gradient and loss, tensor by tensor
    mask                as in `routed`
    per_tensor          scalars of every array from it alone, with the full loss (the authors' experiments); False:
                        the parameters as one vector (their text)

A tensor (without `per_tensor`, all) with a gradient of zero keeps its value and state. Inner products are those of h =
H / |H|.

Sources: Davtyan, Sameni, Cerkezi, Meishvili, Bielski, Favaro, "KOALA: A Kalman Optimization Algorithm with Loss
Adaptivity", 2022; Xia, Davtyan, Favaro, "KOALA++: Efficient Kalman-Based Optimization of Neural Networks with
Gradient-Covariance Products", 2025.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec.boundary import checks
from seqdec.core import Array, PyTree
from seqdec.optim import linear
from seqdec.optim.common import Mask, accumulator, mask_tree
from seqdec.params import at_least_float32


class Observation(NamedTuple):
    rows: list[Array]
    """h = H / |H| of each tensor; 0 where H is"""
    loss: Array
    """(s,); s is the number of tensors, or 1 for one vector"""
    norm: Array
    """(s,) |H|"""
    nonzero: Array
    """(s,) bool: others are not updated"""


class Innovation(NamedTuple):
    """Ratios of the innovation's variance S = p |H|^2 + R; 0 where S is."""

    gain: Array
    """(s,) |H| / S"""
    information: Array
    """(s,) |H|^2 / S"""
    remaining: Array
    """(s,) R / S"""


def innovation(norm: Array, variance: Array, noise: Array) -> Innovation:
    """The ratios from |H| (s,), p = h (P + q I) h^T, () or (s,), and R ()."""
    deviation = linear.root(noise)
    inverse = linear.reciprocal(jnp.maximum(norm, deviation))
    # At most 1, but for rounding; without the minimum XLA would square a constant's factor alone.
    signal, rest = jnp.minimum(inverse * norm, 1), jnp.minimum(inverse * deviation, 1)
    total = variance * jnp.square(signal) + jnp.square(rest)
    gain, information, remaining = (
        linear.safe_divide(share, total) for share in (signal, jnp.square(signal), jnp.square(rest))
    )
    return Innovation(inverse * gain, information, remaining)


def inner_products(per_tensor: bool, left: list[Array], right: list[Array]) -> Array:
    """(s,) by tensor or over all."""
    if not left:
        return jnp.zeros(0)
    dots = jnp.stack([jnp.vdot(a, b) for a, b in zip(left, right, strict=True)])
    return dots if per_tensor else jnp.sum(dots, keepdims=True)


def observe(
    per_tensor: bool, updates: PyTree, params: PyTree | None, value: Any, weight_decay: Any, mask: Mask | None
) -> Observation:
    if value is None:
        raise ValueError(
            "KOALA filters the loss, but did not get it: call update(grads, state, params, value=loss), with "
            "loss, grads = jax.value_and_grad(loss_fn)(params)"
        )
    rows = [leaf.astype(accumulator(leaf)) for leaf in jax.tree.leaves(updates)]
    loss = jnp.asarray(value, at_least_float32(*rows))
    if loss.ndim:
        raise ValueError(f"value must be the scalar loss; got shape {loss.shape}. Take the mean over the minibatch")
    if not isinstance(weight_decay, int | float) or weight_decay:
        if params is None:
            raise ValueError("weight decay needs the parameters: call update(grads, state, params, value=loss)")
        if mask is not None:
            params = jax.tree.map(
                lambda kept, part: part if kept else jax.tree.map(jnp.zeros_like, part), mask_tree(mask, params), params
            )
        weights = [leaf.astype(row.dtype) for leaf, row in zip(jax.tree.leaves(params), rows, strict=True)]
        rows = [row + weight_decay * weight for row, weight in zip(rows, weights, strict=True)]
        loss = loss + 0.5 * weight_decay * inner_products(per_tensor, weights, weights)
    norm = jnp.stack([linear.norm(row) for row in rows]) if rows else jnp.zeros(0)
    norm = norm if per_tensor or not rows else linear.norm(norm)[None]
    rows = scaled(linear.reciprocal(norm), rows)
    # NaN counts as nonzero and reaches the parameters.
    return Observation(rows, jnp.broadcast_to(loss, norm.shape), norm, norm != 0)


def tracked_noise(tracked: Array, noise: float | None, decay: Any, value: Any, value_variance: Any) -> Array:
    """R: fixed, or a moving average of the variance or square of the loss."""
    if noise is not None:
        return jnp.asarray(noise, tracked.dtype)
    if value_variance is None:
        value_variance = jnp.square(linear.bounded(jnp.asarray(value, tracked.dtype))[0])
    return decay * tracked + (1 - decay) * jnp.asarray(value_variance, tracked.dtype)


def unflatten_like(updates: PyTree, rows: list[Array]) -> PyTree:
    leaves, structure = jax.tree.flatten(updates)
    return structure.unflatten([row.astype(leaf.dtype) for row, leaf in zip(rows, leaves, strict=True)])


def per_leaf(scalars: Array, rows: list[Array]) -> list[Array]:
    return [scalars[index if len(scalars) > 1 else 0] for index in range(len(rows))]


def scaled(scalars: Array, rows: list[Array]) -> list[Array]:
    return [scalar * row for scalar, row in zip(per_leaf(scalars, rows), rows, strict=True)]


def check_settings(
    initial_variance: Any, process_noise: Any, noise: Any, noise_decay: Any, initial_noise: Any, weight_decay: Any
) -> None:
    checks.number("initial_variance", initial_variance, exclusive=True)
    checks.number("process_noise", process_noise)
    if noise is not None:
        checks.number("noise", noise)
    checks.number("noise_decay", noise_decay, 0, 1)
    checks.number("initial_noise", initial_noise)
    checks.number("weight_decay", weight_decay)


def state_scalar(value: Any, params: PyTree) -> Array:
    """A number in the widest dtype of the state."""
    return jnp.asarray(value, at_least_float32(*map(accumulator, jax.tree.leaves(params))))
