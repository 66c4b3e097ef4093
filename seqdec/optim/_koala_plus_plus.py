"""KOALA++ (see `seqdec.optim._koala`)."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from seqdec.core import Array, PyTree
from seqdec.optim import linear
from seqdec.optim._koala import (
    check_settings,
    inner_products,
    innovation,
    observe,
    per_leaf,
    scaled,
    state_scalar,
    tracked_noise,
    unflatten_like,
)
from seqdec.optim.chains import Rate, scale_by_rate
from seqdec.optim.common import Mask, placing, zeros_like_state


def koala_plus_plus(
    learning_rate: Rate,
    *,
    initial_variance: Any = 0.1,
    process_noise: Any = 0.1,
    noise: Any = None,
    noise_decay: Any = 0.9,
    initial_noise: Any = 1.0,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    symmetric: bool = True,
    per_tensor: bool = True,
    first_twice: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """KOALA++: a Kalman filter of the loss that stores H P. Call `update(grads, state, params, value=loss)`.

    Of the covariance only v_k = H_k P_{k-1} is stored. P_{k-1} = (I - K H_{k-1}) (P_{k-2} + q I), with P_{k-2} the
    matrix of least Frobenius norm for which H_{k-1} P_{k-2} = v_{k-1}, symmetric or not. With H' = H_{k-1}, v' =
    v_{k-1}, S' = S_{k-1}:

        lambda = (H.v' + q H.H') / S'                              alpha = H.H' / |H'|^2
        omega  = (H.v' |H'|^2 - H'.v' H.H') / |H'|^4               (0 for symmetric=False)
        v = (alpha - lambda) v' + q (H - lambda H') + omega H'
        S = H.v + q |H|^2 + R                                      u = L (v + q H) / S

    The first step has v = p_0 H; with `first_twice`, as if the first gradient came once before without a move,

        v = (1 - lambda) (p_0 + q) H = (p_0 + q) R / ((p_0 + q) |H|^2 + R) H

    A tensor restarts with this v where the predicted variance H (P + q I) H^T is not positive (not in the paper).
    Memory: 2 copies of the parameters and 3 numbers per tensor. Work: three inner products and two passes.

    Args:
        learning_rate: the authors' are 1 to 2 for images and 2e-3 for language models. With initial_variance =
            process_noise = 10 and rates from 0.1 to 0.3 the first hundreds of steps learn faster.
        symmetric: the symmetric matrix of least norm; False is the paper's "NS".
        first_twice: filter the first gradient once before, as the authors' code does.
        initial_variance, process_noise, noise, noise_decay, initial_noise, weight_decay, mask, per_tensor: see
            `seqdec.optim._koala`.

    Source: Xia, Davtyan, Favaro 2025 (`seqdec.optim._koala`).
    """
    check_settings(initial_variance, process_noise, noise, noise_decay, initial_noise, weight_decay)

    def init(params):
        count = len(jax.tree.leaves(params))
        initial = state_scalar(initial_noise, params)

        def zeros():
            return jnp.zeros(count if per_tensor else min(count, 1), initial.dtype)

        return ScaleByKoalaPlusPlusState(
            zeros_like_state(params), zeros_like_state(params), zeros(), zeros(), zeros(), initial
        )

    def update(updates, state, params=None, *, value=None, value_variance=None, **extra):
        del extra
        observed = observe(per_tensor, updates, params, value, weight_decay, mask)
        noise_variance = tracked_noise(state.noise, noise, noise_decay, value, value_variance)
        rows_then, products_then = jax.tree.leaves(state.row), jax.tree.leaves(state.product)
        inverse = linear.reciprocal(state.norm)
        crossed = inverse * inner_products(per_tensor, observed.rows, products_then)
        along = inverse * inner_products(per_tensor, observed.rows, rows_then)
        first = initial_variance
        if first_twice:
            prior = initial_variance + process_noise
            first = prior * innovation(observed.norm, prior, noise_variance).remaining
        weights = _weights(crossed, along, state, first, process_noise, symmetric)
        ratios = innovation(observed.norm, weights.variance + process_noise, noise_variance)
        gain = jnp.where(observed.nonzero, observed.loss * ratios.gain, 0)

        terms = zip(
            scaled(inverse * weights.product, products_then),
            scaled(weights.row, observed.rows),
            scaled(inverse * weights.last_row, rows_then),
            strict=True,
        )
        products = [of_product + of_row + of_last_row for of_product, of_row, of_last_row in terms]
        moved = [product + process_noise * row for product, row in zip(products, observed.rows, strict=True)]

        def updated(new, old):
            return [jnp.where(s, a, b) for s, a, b in zip(per_leaf(observed.nonzero, new), new, old, strict=True)]

        structure = jax.tree.structure(state.row)
        fresh = ScaleByKoalaPlusPlusState(
            structure.unflatten(updated(scaled(observed.norm, observed.rows), rows_then)),
            structure.unflatten(updated(scaled(observed.norm, products), products_then)),
            jnp.where(observed.nonzero, observed.norm, state.norm),
            jnp.where(observed.nonzero, weights.variance, state.variance),
            jnp.where(observed.nonzero, ratios.information, state.information),
            noise_variance,
        )
        return unflatten_like(updates, scaled(gain, moved)), fresh

    direction = optax.GradientTransformationExtraArgs(init, update)
    return placing(optax.chain(direction, scale_by_rate(learning_rate)))


scale_by_koala_plus_plus = functools.partial(koala_plus_plus, None)


class ScaleByKoalaPlusPlusState(NamedTuple):
    """State of `scale_by_koala_plus_plus`."""

    row: PyTree
    """H of the last step"""
    product: PyTree
    """v = H P of the last step"""
    norm: Array
    """(s,) |H|; 0 before the first step"""
    variance: Array
    """(s,) H . v / |H|^2"""
    information: Array
    """(s,) |H|^2 / S"""
    noise: Array
    """() R"""


class _Weights(NamedTuple):
    """v / |H| = product v' / |H'| + row H / |H| + last_row H' / |H'|, scalars per tensor (s,)."""

    product: Array
    row: Array
    last_row: Array
    variance: Array
    """(s,) H . v / |H|^2"""


def _weights(
    crossed: Array,
    along: Array,
    state: ScaleByKoalaPlusPlusState,
    first: Any,
    process_noise: Any,
    symmetric: bool,
) -> _Weights:
    """Coefficients from `crossed` H . v' / (|H| |H'|) and `along` H . H' / (|H| |H'|), (s,); `first` H at the start."""
    contraction = (crossed + process_noise * along) * state.information
    correction = crossed - state.variance * along if symmetric else jnp.zeros_like(along)
    product, last_row = along - contraction, correction - process_noise * contraction
    variance = product * crossed + process_noise + last_row * along
    # A comparison with NaN is false, so NaN does not restart the covariance but reaches the parameters.
    restart = (state.norm == 0) | (variance + process_noise <= 0)
    return _Weights(
        jnp.where(restart, 0, product),
        jnp.where(restart, first, process_noise),
        jnp.where(restart, 0, last_row),
        jnp.where(restart, first, variance),
    )
