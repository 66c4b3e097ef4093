"""From a direction to an optimizer: learning rate, weight decay, and Adam for other parameters."""

from collections.abc import Callable, Hashable
from typing import Any

import jax
import optax
from optax import GradientTransformation, GradientTransformationExtraArgs, ScalarOrSchedule

from seqdec.boundary import checks
from seqdec.core import PyTree
from seqdec.optim.common import Mask, mask_tree, promoting, steady, widened, zeros_like_state
from seqdec.optim.groups import Matrices, resolved

Rate = ScalarOrSchedule | None
"""A learning rate or schedule; None leaves out the multiplication by minus the rate."""


def routed(
    direction: GradientTransformation | Callable[[PyTree], GradientTransformation],
    learning_rate: Rate,
    weight_decay: Any = 0.0,
    mask: Mask | None = None,
    adam_ratio: Any = 0.05,
    matrices: Matrices | None = None,
) -> GradientTransformationExtraArgs:
    """A direction for matrices, Adam elsewhere; both with decoupled weight decay.

    Args:
        direction: of the matrices; or a function that makes it from the axes of all parameters, a tree as of
            `seqdec.optim.matrix_axes`.
        learning_rate: a number, a schedule, or None.
        weight_decay: share of the parameters, times the learning rate of their group, that each step subtracts.
        mask: which parameters decay, as in `optax.adamw`: a tree of bools, or a function from the parameters to it;
            None: all, including biases and norms.
        adam_ratio: Adam's learning rate as a multiple of `learning_rate`.
        matrices: `seqdec.optim.groups.Matrices`; None: `seqdec.optim.matrix_axes`.
    """
    checks.number("adam_ratio", adam_ratio)

    def axes(params):
        return resolved(params, matrices)

    def labels(params):
        structure = jax.tree.structure(params)
        return structure.unflatten(
            ["adam" if own is None else "matrix" for own in structure.flatten_up_to(axes(params))]
        )

    def others(params):
        return jax.tree.map(lambda label: label == "adam", labels(params))

    def parted(params):
        own = direction(axes(params)) if callable(direction) else direction
        groups: dict[Hashable, GradientTransformation] = {"matrix": own, "adam": _wide(optax.scale_by_adam())}
        return optax.partition(groups, labels)

    def update(updates, state, params=None, **extra):
        return parted(updates).update(updates, state, params, **extra)

    parts = GradientTransformationExtraArgs(lambda params: parted(params).init(params), update)
    ratio = optax.masked(promoting(optax.scale(adam_ratio)), others)
    return optax.chain(steady(axes), parts, add_decay(weight_decay, mask), scale_by_rate(learning_rate), ratio)


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


def _wide(transform: GradientTransformation) -> GradientTransformationExtraArgs:
    inner = promoting(transform)

    def update(updates, state, params=None, **extra):
        new, state = inner.update(widened(updates), state, params, **extra)
        return jax.tree.map(lambda value, old: value.astype(old.dtype), new, updates), state

    return GradientTransformationExtraArgs(lambda params: inner.init(zeros_like_state(params)), update)
