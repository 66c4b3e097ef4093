r"""Self-tuning momentum: several momenta side by side, and in every step the one that the gradient says learns fastest.

Candidates k with momentum beta_k see the same gradients, m_k <- beta_k m_k + g. For a symmetric preconditioner P the
expected drop of the loss per unit of trust region is

    J_k = sqrt((1 - beta_k^2) / tr P) <g, P m_k>

with the gradient of this very step for the expectation, over all parameters. The candidate with the largest J_k, the
first of equals, makes the step. If all J_k are negative for five steps running, every m_k is halved. On gradients that
are autocorrelated by rho^lag the best momentum is rho itself.

    momentum   P = I (tr P counts as 1: the dimension is part of the learning rate)       u = m_k
    Adam       P = diag(1 / (sqrt(v) + eps)), v <- b2 v + (1 - b2) g^2                    u = (1 - beta_k) P m_k
    Muon       m_k <- beta_k m_k + g, matrix by matrix                                    u = polar(m_k)

`budget_matched` makes all candidates' steps equally long in the metric of the theory instead, u = sqrt((1 - beta_k^2) /
tr P) P m_k, of which J_k is the first-order gain; as printed, a candidate of 0.99 steps up to a hundred times as far as
one of 0.01. There is no bias correction: in the first steps the smallest beta wins.

The extra argument `validation_grads=`, a tree like the gradients, takes their place in J: `update(grads, state, params,
validation_grads=...)`. They enter neither momentum nor step; hand in the sum with the training gradients to weigh both.

Muon's step does not depend on the length of m_k, and for the current gradient the smallest momentum always scores best.
Its candidates are therefore scored by the gradient before it is folded in, J_k = <g, polar(m_k)>, which the paper does
not have.

Memory: one copy of the parameters per candidate, one for Adam's v. Work: a pass and an inner product per candidate; for
Muon a polar factor per candidate and one more. Gradients of several replicas must be summed before they come here.

Source: Lee, Lee, "Optimizing Optimizers for Fast Gradient-Based Learning", 2025, Algorithms 1, 2 and 3, Corollaries 5,
6, 12, 16, 18 and 20. The factor of Corollary 18 is corrected here: as printed it goes with the normalised average.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from optax import ScalarOrSchedule

from seqdec.core import Array, PyTree
from seqdec.optim import linear
from seqdec.optim.common import (
    Matrices,
    accumulator,
    check_choice,
    check_count,
    check_number,
    routed,
)

_PATIENCE, _SHRINK = 5, 0.5


class Preconditioner(NamedTuple):
    """A symmetric positive linear map P of trees like the parameters, made from the gradients so far."""

    init: Callable[[PyTree], Any]
    """(params) -> state"""
    observe: Callable[[PyTree, Any], Any]
    """(gradients, state) -> state"""
    apply: Callable[[PyTree, Any], PyTree]
    """(tree, state) -> P tree"""
    trace: Callable[[Any], Array]
    """(state) -> () tr P, or anything that is the same for all candidates"""


def identity() -> Preconditioner:
    """P = I, with trace 1: the dimension is part of the learning rate."""
    return Preconditioner(lambda _: (), lambda _, state: state, lambda tree, _: tree, lambda _: jnp.ones(()))


def diagonal_ema(b2: Any = 0.999, eps: Any = 1e-8) -> Preconditioner:
    """P = diag(1 / (sqrt(v) + eps)) with an average v of squared gradients: Adam's, without bias correction.

    Raises ValueError for settings out of their range.
    """
    check_number("b2", b2, 0, 1)
    check_number("eps", eps)

    def observe(gradients, state):
        return jax.tree.map(lambda v, g: b2 * v + (1 - b2) * jnp.square(g), state, gradients)

    return _diagonal(observe, lambda v: jnp.sqrt(v) + eps)


def diagonal_sum(eps: Any = 1e-8) -> Preconditioner:
    """P = diag(1 / sqrt(eps + v)) with the sum v of squared gradients: AdaGrad's. Raises ValueError for eps < 0."""
    check_number("eps", eps)

    def observe(gradients, state):
        return jax.tree.map(lambda v, g: v + jnp.square(g), state, gradients)

    return _diagonal(observe, lambda v: jnp.sqrt(eps + v))


def _diagonal(observe, cost) -> Preconditioner:
    def apply(tree, state):
        return jax.tree.map(lambda x, v: linear.safe_divide(x, cost(v)), tree, state)

    def trace(state):
        return sum(
            (jnp.sum(linear.safe_divide(jnp.ones_like(v), cost(v))) for v in jax.tree.leaves(state)), jnp.zeros(())
        )

    return Preconditioner(_zeros, observe, apply, trace)


class SelfTuningState(NamedTuple):
    """One copy of the parameters per candidate, and the preconditioner's state."""

    momenta: PyTree
    """(K, ...) for each parameter: sum of beta^lag g"""
    preconditioner: Any
    scores: Array
    """(K,) J of the last step"""
    chosen: Array
    """() the candidate of the last step"""
    discouraged: Array
    """() steps running in which every J was negative"""


def _zeros(params: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, accumulator(leaf)), params)


def _stacked_zeros(params: PyTree, count: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.zeros((count, *leaf.shape), accumulator(leaf)), params)


def _accumulated(momenta: PyTree, gradients: PyTree, betas: Array) -> PyTree:
    """beta_k m_k + g for all k."""
    return jax.tree.map(
        lambda m, g: jnp.reshape(betas, (-1, *(1,) * g.ndim)).astype(m.dtype) * m + g, momenta, gradients
    )


def _inner_products(momenta: PyTree, gradients: PyTree) -> Array:
    """(K,) <g, m_k> over all parameters."""
    return sum(
        (
            m.reshape(len(m), -1) @ g.ravel()
            for m, g in zip(jax.tree.leaves(momenta), jax.tree.leaves(gradients), strict=True)
        ),
        start=jnp.zeros(()),
    )


def _widened(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: leaf.astype(accumulator(leaf)), tree)


def _halved_after_patience(momenta: PyTree, scores: Array, discouraged: Array) -> tuple[PyTree, Array]:
    """Momenta, halved after five steps of negative scores; -> those and the steps running."""
    discouraged = jnp.where(jnp.max(scores) < 0, discouraged + 1, 0)
    weary = discouraged >= _PATIENCE
    momenta = jax.tree.map(lambda m: jnp.where(weary, _SHRINK, 1).astype(m.dtype) * m, momenta)
    return momenta, jnp.where(weary, 0, discouraged)


def _check_momenta(momenta: Sequence[float]) -> None:
    if not len(momenta):
        raise ValueError("momenta must name at least one candidate; got none")
    for value in momenta:
        check_number("momenta", value, 0, 1)


def scale_by_self_tuning(
    momenta: Sequence[float],
    preconditioner: Preconditioner | None = None,
    *,
    normalised: bool = False,
    budget_matched: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """Momentum chosen in every step, with any preconditioner; see the head of this file. The direction is not negated.

    Args:
        momenta: beta_k of the candidates.
        preconditioner: P; None is the identity.
        normalised: steps (1 - beta_k) P m_k, the average, as Adam's, instead of P m_k.
        budget_matched: steps of equal length in the metric of the theory; overrides `normalised`.

    Raises:
        ValueError: no candidate, or one outside [0, 1).
    """
    _check_momenta(momenta)
    metric = identity() if preconditioner is None else preconditioner

    def init(params):
        scores = jnp.zeros(len(momenta))
        return SelfTuningState(
            _stacked_zeros(params, len(momenta)),
            metric.init(params),
            scores,
            jnp.zeros((), jnp.int32),
            jnp.zeros((), jnp.int32),
        )

    def update(updates, state, params=None, *, validation_grads=None, **extra):
        del params, extra
        betas = jnp.asarray(momenta, state.scores.dtype)
        gradients = _widened(updates)
        kept = metric.observe(gradients, state.preconditioner)
        accumulated = _accumulated(state.momenta, gradients, betas)
        judged = gradients if validation_grads is None else _widened(validation_grads)
        factors = jnp.sqrt((1 - betas**2) / metric.trace(kept))
        # P is symmetric: one application serves all candidates.
        scores = factors * _inner_products(accumulated, metric.apply(judged, kept))
        chosen = jnp.argmax(scores).astype(jnp.int32)
        length = factors[chosen] if budget_matched else (1 - betas[chosen] if normalised else 1.0)
        taken = metric.apply(jax.tree.map(lambda m: m[chosen], accumulated), kept)
        steps = jax.tree.map(lambda x, g: (length * x).astype(g.dtype), taken, updates)
        accumulated, discouraged = _halved_after_patience(accumulated, scores, state.discouraged)
        return steps, SelfTuningState(accumulated, kept, scores.astype(state.scores.dtype), chosen, discouraged)

    return optax.GradientTransformationExtraArgs(init, update)


def scale_by_self_tuning_muon(
    momenta: Sequence[float] = (0.8, 0.99), *, polar: linear.Polar = "newton_schulz", polar_steps: int = 5
) -> optax.GradientTransformationExtraArgs:
    """Muon with a momentum chosen in every step; see the head of this file. The direction is not negated.

    Directions are scaled by sqrt(max(1, columns / rows)), as Muon's are. Convolution kernels become matrices (all axes
    but the last, last axis).

    Args:
        momenta: beta_k of the candidates.
        polar: "newton_schulz", "cubic" or "exact"; see `seqdec.optim.linear.polar`.
        polar_steps: of the iteration.

    Raises:
        ValueError: no candidate, or one outside [0, 1); in `init`, a parameter has fewer than two axes.
    """
    _check_momenta(momenta)
    check_choice("polar", polar, linear.POLAR)
    check_count("polar_steps", polar_steps)

    def init(params):
        for leaf in jax.tree.leaves(params):
            if leaf.ndim < 2:
                raise ValueError(
                    f"scale_by_self_tuning_muon takes matrices, and a parameter has the shape {leaf.shape}; use "
                    "self_tuning_muon, which sends such parameters to Adam, or optax.partition"
                )
        counts = (jnp.zeros((), jnp.int32) for _ in range(2))
        return SelfTuningState(_stacked_zeros(params, len(momenta)), (), jnp.zeros(len(momenta)), *counts)

    def orthogonal(leaf):
        matrix = leaf.reshape(-1, leaf.shape[-1])
        factor = math.sqrt(max(1, matrix.shape[1] / matrix.shape[0]))
        return factor * linear.polar(matrix, polar, polar_steps).reshape(leaf.shape)

    def update(updates, state, params=None, *, validation_grads=None, **extra):
        del params, extra
        gradients = _widened(updates)
        judged = gradients if validation_grads is None else _widened(validation_grads)
        scores = _inner_products(jax.tree.map(jax.vmap(orthogonal), state.momenta), judged)
        chosen = jnp.argmax(scores).astype(jnp.int32)
        accumulated = _accumulated(state.momenta, gradients, jnp.asarray(momenta, state.scores.dtype))
        steps = jax.tree.map(lambda m, g: orthogonal(m[chosen]).astype(g.dtype), accumulated, updates)
        accumulated, discouraged = _halved_after_patience(accumulated, scores, state.discouraged)
        return steps, SelfTuningState(accumulated, (), scores.astype(state.scores.dtype), chosen, discouraged)

    return optax.GradientTransformationExtraArgs(init, update)


def self_tuning_sgd(
    learning_rate: ScalarOrSchedule,
    *,
    momenta: Sequence[float] = (0.01, 0.99),
    budget_matched: bool = False,
    weight_decay: Any = 0.0,
) -> optax.GradientTransformationExtraArgs:
    """SGD with a momentum chosen in every step (Algorithm 2); learning rates are those of SGD with momentum.

    Args:
        learning_rate: a number or a schedule.
        momenta, budget_matched: as in `scale_by_self_tuning`.
        weight_decay: added to the gradient, as in SGD with an L2 penalty, and so part of J.

    Raises:
        ValueError: a setting is out of its range.
    """
    check_number("weight_decay", weight_decay)
    return optax.chain(
        optax.add_decayed_weights(weight_decay),
        scale_by_self_tuning(momenta, budget_matched=budget_matched),
        optax.scale_by_learning_rate(learning_rate),
    )


def self_tuning_adamw(
    learning_rate: ScalarOrSchedule,
    *,
    momenta: Sequence[float] = (0.8, 0.99),
    b2: Any = 0.999,
    eps: Any = 1e-8,
    budget_matched: bool = False,
    weight_decay: Any = 0.0,
) -> optax.GradientTransformationExtraArgs:
    """AdamW without bias correction, with a first moment chosen in every step (Algorithm 3).

    The candidates share b2, as in all of the paper's experiments: with different ones their scores would belong to
    different trust regions.

    Args:
        learning_rate: a number or a schedule.
        momenta, budget_matched: as in `scale_by_self_tuning`.
        b2, eps: as in `diagonal_ema`.
        weight_decay: decoupled.

    Raises:
        ValueError: a setting is out of its range.
    """
    check_number("weight_decay", weight_decay)
    return optax.chain(
        scale_by_self_tuning(momenta, diagonal_ema(b2, eps), normalised=True, budget_matched=budget_matched),
        optax.add_decayed_weights(weight_decay),
        optax.scale_by_learning_rate(learning_rate),
    )


def self_tuning_muon(
    learning_rate: ScalarOrSchedule,
    *,
    momenta: Sequence[float] = (0.8, 0.99),
    polar: linear.Polar = "newton_schulz",
    polar_steps: int = 5,
    weight_decay: Any = 0.0,
    adam_ratio: Any = 0.05,
    matrices: Matrices | None = None,
    head: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """Muon with a momentum chosen in every step for hidden matrices, Adam for all else.

    Args:
        learning_rate: a number or a schedule.
        momenta, polar, polar_steps: as in `scale_by_self_tuning_muon`.
        weight_decay, adam_ratio, matrices, head: as in `seqdec.optim.racs`.

    Raises:
        ValueError: a setting is out of its range.
    """
    return routed(
        scale_by_self_tuning_muon(momenta, polar=polar, polar_steps=polar_steps),
        learning_rate,
        weight_decay=weight_decay,
        adam_ratio=adam_ratio,
        matrices=matrices,
        head=head,
    )
