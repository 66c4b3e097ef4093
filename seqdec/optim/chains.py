"""From a direction to an optimizer: its size, learning rate and weight decay, and an optimizer for the rest."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import optax
from optax import GradientTransformation, GradientTransformationExtraArgs, ScalarOrSchedule

from seqdec.boundary import checks
from seqdec.core import PyTree
from seqdec.optim.common import (
    Mask,
    Matrixwise,
    accumulator,
    each,
    lifted,
    mask_tree,
    placing,
    promoting,
    sized,
    steady,
    widened,
)
from seqdec.optim.groups import Matrices, axes_of, resolved

Rate = ScalarOrSchedule | None
"""A learning rate or schedule; None leaves out the multiplication by minus the rate."""


def routed(
    direction: GradientTransformation | Callable[[PyTree], GradientTransformation] | Matrixwise,
    learning_rate: Rate,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    rms: Any | None = 0.2,
    rest: GradientTransformation | None = None,
    matrices: Matrices | None = None,
) -> GradientTransformationExtraArgs:
    """A direction for matrices with decoupled weight decay, Adam or any other optimizer for the rest.

    Args:
        direction: transformation of the matrices' gradients; or a function that makes it from the tree of
            `seqdec.optim.matrix_axes`.
        learning_rate: a number, a schedule, or None.
        weight_decay: share of the parameters, times the learning rate, that each step subtracts.
        mask: which parameters decay, as in `optax.adamw`: a tree of bools, or a function from the parameters to it;
            None: all, including biases and norms.
        rms: root mean square of the entries of every matrix's direction, by which it is scaled: with 0.2, that of
            AdamW, a learning rate tuned for AdamW serves. None: the scale of the direction.
        rest: complete optimizer of the other parameters, with its own rate, weight decay and sign, for which matrices
            are masked; None: Adam with `learning_rate`, `weight_decay` and `mask`.
        matrices: `seqdec.optim.groups.Matrices`; None: `seqdec.optim.matrix_axes`.

    Source of `rms`: Liu et al., "Muon is Scalable for LLM Training", 2025, section 2.2.
    """
    checks.number("weight_decay", weight_decay)
    if rms is not None:
        checks.number("rms", rms, exclusive=True)
    if not (rest is None or isinstance(rest, GradientTransformation)):
        raise TypeError(f"rest must be an optax transformation, such as optax.adamw(1e-3); got {rest!r:.80}")
    rated = scale_by_rate(learning_rate)

    def axes(params):
        return resolved(params, matrices)

    def own(known):
        if isinstance(direction, Matrixwise):
            return [lifted(direction, known, rms)]
        made = direction(known) if callable(direction) else direction
        return [steady(known), made, *([] if rms is None else [_sized(rms, known)])]

    def parted(params):
        known, structure = axes(params), jax.tree.structure(params)
        decay = add_decay(weight_decay, None if mask is None else mask_tree(mask, params))  # by all, not by a group
        other = _wide(optax.chain(optax.scale_by_adam(), decay, rated) if rest is None else rest)
        groups: dict[Hashable, GradientTransformation] = {
            "matrix": optax.chain(*own(known), decay, rated),
            "rest": optax.chain(steady(), other),
        }
        labels = structure.unflatten(["rest" if own is None else "matrix" for own in structure.flatten_up_to(known)])
        return optax.partition(groups, lambda _: labels)  # a tree may be callable

    def update(updates, state, params=None, **extra):
        return parted(updates).update(updates, state, params, **extra)

    parts = GradientTransformationExtraArgs(lambda params: parted(params).init(params), update)
    return placing(parts)


def add_decay(weight_decay: Any, mask: Mask | None) -> GradientTransformationExtraArgs:
    """Add a share of the parameters in the mask; a Python 0 needs no parameters."""
    checks.number("weight_decay", weight_decay)
    if isinstance(weight_decay, int | float) and not weight_decay:
        return optax.with_extra_args_support(optax.identity())
    named = None if mask is None else lambda params: mask_tree(mask, params)
    return promoting(optax.add_decayed_weights(weight_decay, named))


def scale_by_rate(learning_rate: Rate) -> GradientTransformationExtraArgs:
    """Times minus the learning rate."""
    if learning_rate is None:
        return optax.with_extra_args_support(optax.identity())
    checks.rate("learning_rate", learning_rate)
    return promoting(optax.scale_by_learning_rate(learning_rate))


def _sized(rms: Any, axes: PyTree) -> GradientTransformation:
    """Scale every matrix to a root mean square."""

    def one(entries, _, update):
        return (sized(rms, update.astype(accumulator(update)), entries).astype(update.dtype),)

    def update(updates, _):
        leaves, structure = jax.tree.flatten(updates)
        return structure.unflatten(
            [own for (own,) in each(one, [own.entries() for own in axes_of(updates, axes)], leaves)]
        )

    return optax.stateless(update)


def _wide(transform: GradientTransformation) -> GradientTransformationExtraArgs:
    inner = optax.with_extra_args_support(transform)

    def update(updates, state, params=None, **extra):
        new, state = inner.update(widened(updates), state, widened(params), **extra)
        return jax.tree.map(lambda value, old: value.astype(old.dtype), new, updates), state

    return GradientTransformationExtraArgs(lambda params: inner.init(widened(params)), update)
