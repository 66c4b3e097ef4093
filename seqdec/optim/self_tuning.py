"""Self-tuning momentum: every step uses the one of several momenta with the largest expected decrease.

All candidates k accumulate the gradients, m_k <- beta_k m_k + g. For a symmetric preconditioner P the expected
decrease of the loss per unit of trust region is

    J_k = sqrt((1 - beta_k^2) / tr P) <g, P m_k>

over all parameters. The first with the largest J_k is used. After five successive steps with all J_k negative, every
m_k is halved. On gradients with autocorrelation rho^lag the best momentum is rho.

    momentum   P = I (tr P counts as 1: the dimension is part of the learning rate)       u = m_k
    Adam       P = diag(1 / (sqrt(v) + eps)), v <- b2 v + (1 - b2) g^2                    u = (1 - beta_k) P m_k
    Muon       matrix by matrix                                                           u = polar(m_k)

`budget_matched` steps have equal length in the metric of the theory, u = sqrt((1 - beta_k^2) / tr P) P m_k; by
default, as in the paper, a candidate of 0.99 makes steps up to a hundred times as long as one of 0.01. No bias
correction: at first the smallest beta wins.

`validation_grads=` of `update`, a tree like the gradients, replaces them in J alone.

Muon scores J_k = <g, polar(m_k)> before g is accumulated, unlike the paper: else the smallest momentum always wins.

Memory: one copy of the parameters per candidate, one for Adam's v. Work: a pass and an inner product per candidate;
for Muon a polar factor per candidate and one more. Gradients of several replicas must be summed before the update.

Source: Lee, Lee, "Optimizing Optimizers for Fast Gradient-Based Learning", 2025, Algorithms 1, 2 and 3, Corollaries 5,
6, 12, 16, 18 and 20, with the factor of Corollary 18 corrected.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax

from seqdec.boundary import checks
from seqdec.core import Array, PyTree
from seqdec.optim import linear
from seqdec.optim.chains import Rate, add_decay, routed, scale_by_rate
from seqdec.optim.common import Mask, placing, steady, unboxed, unboxing, widened, zeros_like_state
from seqdec.optim.groups import Matrices, axes_of

_PATIENCE, _SHRINK = 5, 0.5


class Preconditioner(NamedTuple):
    """A symmetric positive linear map P of trees like the parameters."""

    init: Callable[[PyTree], Any]
    """(params) -> state"""
    observe: Callable[[PyTree, Any], Any]
    """(gradients, state) -> state"""
    apply: Callable[[PyTree, Any], PyTree]
    """(tree, state) -> P tree"""
    trace: Callable[[Any], Array]
    """(state) -> () tr P, up to a factor common to all candidates"""


def identity() -> Preconditioner:
    """Preconditioner P = I, with trace counted as 1: the dimension is part of the learning rate."""
    return Preconditioner(lambda _: (), lambda _, state: state, lambda tree, _: tree, lambda _: jnp.ones(()))


def diagonal_ema(b2: Any = 0.999, eps: Any = 1e-8) -> Preconditioner:
    """Adam's preconditioner P = diag(1 / (sqrt(v) + eps)), v the average of g^2 with decay b2, biased at first."""
    checks.number("b2", b2, 0, 1)
    checks.number("eps", eps)

    def observe(gradients, state):
        return jax.tree.map(lambda v, g: b2 * v + (1 - b2) * jnp.square(g), state, gradients)

    return _diagonal(observe, lambda v: linear.root(v) + eps)


def diagonal_sum(eps: Any = 1e-8) -> Preconditioner:
    """AdaGrad's preconditioner P = diag(1 / sqrt(eps + v)), v the sum of squared gradients."""
    checks.number("eps", eps)

    def observe(gradients, state):
        return jax.tree.map(lambda v, g: v + jnp.square(g), state, gradients)

    return _diagonal(observe, lambda v: linear.root(eps + v))


def _diagonal(observe, cost) -> Preconditioner:
    def apply(tree, state):
        return jax.tree.map(lambda x, v: linear.safe_divide(x, cost(v)), tree, state)

    def trace(state):
        return sum(
            (jnp.sum(linear.safe_divide(jnp.ones_like(v), cost(v))).astype(float) for v in jax.tree.leaves(state)),
            jnp.zeros(()),
        )

    return Preconditioner(zeros_like_state, observe, apply, trace)


class SelfTuningState(NamedTuple):
    """Momenta of the candidates, and the preconditioner's state."""

    momenta: PyTree
    """(K, ...) for each parameter: sum of beta^lag g"""
    preconditioner: Any
    scores: Array
    """(K,) J of the last step"""
    chosen: Array
    """() the candidate of the last step"""
    negative_steps: Array
    """() successive steps with all J negative"""


def _stacked_zeros(params: PyTree, count: int) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[None], (count, *leaf.shape)), zeros_like_state(params))


def _accumulated(momenta: PyTree, gradients: PyTree, betas: Array) -> PyTree:
    return jax.tree.map(
        lambda m, g: jnp.reshape(betas, (-1, *(1,) * g.ndim)).astype(m.dtype) * m + g[None], momenta, gradients
    )


def _inner_products(momenta: PyTree, gradients: PyTree, count: int) -> Array:
    """(K,) <g, m_k> over all parameters."""
    return sum(
        (
            (m.reshape(len(m), -1) @ g.ravel()).astype(float)
            for m, g in zip(jax.tree.leaves(momenta), jax.tree.leaves(gradients), strict=True)
        ),
        start=jnp.zeros(count),
    )


def _halved_after_patience(momenta: PyTree, scores: Array, negative_steps: Array) -> tuple[PyTree, Array]:
    negative_steps = jnp.where(jnp.max(scores) < 0, negative_steps + 1, 0)
    reset_due = negative_steps >= _PATIENCE
    momenta = jax.tree.map(lambda m: jnp.where(reset_due, _SHRINK, 1).astype(m.dtype) * m, momenta)
    return momenta, jnp.where(reset_due, 0, negative_steps)


def _bounded(gradients: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: linear.bounded(leaf)[0], widened(gradients))


def _checked_momenta(momenta: Any) -> Any:
    momenta = checks.as_array("momenta", momenta)
    if not momenta.size:
        raise ValueError("momenta must name at least one candidate; got none")
    for value in momenta if isinstance(momenta, jax.Array) else momenta.tolist():
        checks.number("momenta", value, 0, 1)
    return momenta


def scale_by_self_tuning(
    momenta: Sequence[float],
    preconditioner: Preconditioner | None = None,
    *,
    normalized: bool = False,
    budget_matched: bool = False,
) -> optax.GradientTransformationExtraArgs:
    """Momentum chosen in every step, with any preconditioner (`seqdec.optim.self_tuning`); not negated.

    Args:
        momenta: beta_k of the candidates.
        preconditioner: P; None is the identity.
        normalized: steps (1 - beta_k) P m_k, an average as in Adam, instead of P m_k.
        budget_matched: steps of equal length in the metric of the theory; overrides `normalized`.
    """
    momenta = _checked_momenta(momenta)
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
        gradients = _bounded(updates)
        kept = metric.observe(gradients, state.preconditioner)
        accumulated = _accumulated(state.momenta, gradients, betas)
        scored = gradients if validation_grads is None else _bounded(validation_grads)
        factors = jnp.sqrt((1 - betas**2) / metric.trace(kept))
        # P is symmetric: one application serves all candidates.
        scores = factors * _inner_products(accumulated, metric.apply(scored, kept), len(momenta))
        chosen = jnp.argmax(scores).astype(jnp.int32)
        length = factors[chosen] if budget_matched else (1 - betas[chosen] if normalized else 1.0)
        taken = metric.apply(jax.tree.map(lambda m: m[chosen], accumulated), kept)
        steps = jax.tree.map(lambda x, g: (jnp.asarray(length, x.dtype) * x).astype(g.dtype), taken, updates)
        accumulated, negative_steps = _halved_after_patience(accumulated, scores, state.negative_steps)
        return steps, SelfTuningState(accumulated, kept, scores.astype(state.scores.dtype), chosen, negative_steps)

    return unboxing(optax.GradientTransformationExtraArgs(init, update))


def self_tuning_sgd(
    learning_rate: Rate,
    *,
    momenta: Sequence[float] = (0.01, 0.99),
    budget_matched: bool = False,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
) -> optax.GradientTransformationExtraArgs:
    """SGD with a momentum chosen in every step (Algorithm 2).

    Args:
        learning_rate: as for SGD with momentum.
        momenta, budget_matched: as in `scale_by_self_tuning`.
        weight_decay: L2 penalty: share of the parameters added to the gradient.
        mask: as in `routed`.
    """
    direction = scale_by_self_tuning(momenta, budget_matched=budget_matched)
    return placing(optax.chain(steady(), add_decay(weight_decay, mask), direction, scale_by_rate(learning_rate)))


def self_tuning_adamw(
    learning_rate: Rate,
    *,
    momenta: Sequence[float] = (0.8, 0.99),
    b2: Any = 0.999,
    eps: Any = 1e-8,
    budget_matched: bool = False,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
) -> optax.GradientTransformationExtraArgs:
    """AdamW without bias correction, with a first moment chosen in every step (Algorithm 3).

    Args:
        learning_rate: as for AdamW.
        momenta, budget_matched: as in `scale_by_self_tuning`.
        b2, eps: as in `diagonal_ema`; b2 is common to the candidates.
        weight_decay: decoupled: share of the parameters, times the learning rate, subtracted in every step.
        mask: as in `routed`.
    """
    metric = diagonal_ema(b2, eps)
    direction = scale_by_self_tuning(momenta, metric, normalized=True, budget_matched=budget_matched)
    return placing(optax.chain(steady(), direction, add_decay(weight_decay, mask), scale_by_rate(learning_rate)))


def self_tuning_muon(
    learning_rate: Rate,
    *,
    momenta: Sequence[float] = (0.8, 0.99),
    polar: linear.Polar = "newton_schulz",
    polar_steps: int = 5,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    rms: Any | None = 0.2,
    rest: optax.GradientTransformation | None = None,
    matrices: Matrices | None = None,
) -> optax.GradientTransformationExtraArgs:
    """Muon with a momentum chosen in every step for hidden matrices, Adam elsewhere.

    With `rms=None` directions are scaled by sqrt(max(1, outputs / inputs)), as Muon's are.

    Args:
        learning_rate: as for AdamW; as for Muon with `rms=None`.
        momenta: beta_k of the candidates; see `seqdec.optim.self_tuning`.
        polar, polar_steps: as in `linear.polar`.
        weight_decay, mask, rms, rest, matrices: as in `routed`.
    """
    momenta = _checked_momenta(momenta)
    checks.choice("polar", polar, get_args(linear.Polar))
    polar_steps = checks.count("polar_steps", polar_steps)

    def init(params):
        counts = (jnp.zeros((), jnp.int32) for _ in range(2))
        return SelfTuningState(_stacked_zeros(params, len(momenta)), (), jnp.zeros(len(momenta)), *counts)

    def orthogonal(leaf, axes):
        matrix, (_, rows, columns) = axes.matrix(leaf), axes.sizes(leaf.shape)
        factor = functools.partial(linear.polar, method=polar, steps=polar_steps)
        factors = (jax.vmap(factor) if axes.stack else factor)(matrix)
        return axes.array(math.sqrt(max(1, columns / rows)) * factors, leaf.shape)

    def update(axes, updates, state, params=None, *, validation_grads=None, **extra):
        del params, extra
        gradients = widened(updates)
        scored = gradients if validation_grads is None else widened(validation_grads)
        axes = jax.tree.structure(updates).unflatten(axes_of(updates, axes))
        directions = jax.tree.map(lambda m, own: jax.vmap(lambda leaf: orthogonal(leaf, own))(m), state.momenta, axes)
        scores = _inner_products(directions, scored, len(momenta))
        chosen = jnp.argmax(scores).astype(jnp.int32)
        accumulated = _accumulated(state.momenta, gradients, jnp.asarray(momenta, state.scores.dtype))
        steps = jax.tree.map(lambda m, g, own: orthogonal(m[chosen], own).astype(g.dtype), accumulated, updates, axes)
        accumulated, negative_steps = _halved_after_patience(accumulated, scores, state.negative_steps)
        return steps, SelfTuningState(accumulated, (), scores.astype(state.scores.dtype), chosen, negative_steps)

    def direction(axes):
        return unboxing(optax.GradientTransformationExtraArgs(init, functools.partial(update, unboxed(axes))))

    return routed(direction, learning_rate, weight_decay, mask, rms, rest, matrices)


scale_by_self_tuning_muon = functools.partial(self_tuning_muon, None)
