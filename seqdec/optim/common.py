"""Shared by the optimizers: dtype of the state, and methods for one matrix applied to trees of parameters."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from seqdec import checks
from seqdec.core import Array, PyTree
from seqdec.linalg import cond_any
from seqdec.optim import linear
from seqdec.params import at_least_float32
from seqdec.runtime import permissive


def accumulator(leaf: Array) -> jnp.dtype:
    """The dtype of state and arithmetic for a parameter: its own, but at least float32.

    Raises TypeError for complex numbers, of which the methods would lose a part.
    """
    dtype = jnp.result_type(leaf)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError(
            f"parameters must be real numbers; got {dtype} of shape {jnp.shape(leaf)}: pass their real and "
            "imaginary parts as parameters of their own"
        )
    return at_least_float32(dtype)


Mask = Callable[[PyTree], PyTree] | PyTree
"""Which parameters: a tree of bools like the parameters, or like their upper part, or a function from them to it."""


def mask_tree(mask: Mask, params: PyTree) -> PyTree:
    """The tree of bools, whose class may have `__call__`."""
    leaves = jax.tree.leaves(mask)
    is_tree = not callable(mask) or (bool(leaves) and all(isinstance(leaf, bool | np.bool_) for leaf in leaves))
    return mask if is_tree else mask(params)


def zeros_like_state(params: PyTree) -> PyTree:
    """Zeros like the parameters, in the dtype of the state."""
    return jax.tree.map(lambda leaf: jnp.zeros(jnp.shape(leaf), accumulator(leaf)), params)


def widened(gradients: PyTree) -> PyTree:
    """Gradients in the dtype of the state, none longer than `linear.bounded` allows."""
    return jax.tree.map(lambda leaf: linear.bounded(leaf.astype(accumulator(leaf))), gradients)


def check_matrices(method: str, params: PyTree) -> None:
    """Raises ValueError for a parameter with fewer than two axes."""
    for leaf in jax.tree.leaves(params):
        if jnp.ndim(leaf) < 2:
            raise ValueError(
                f"scale_by_{method} takes matrices, and a parameter has the shape {jnp.shape(leaf)}; use {method}, "
                "which sends such parameters to Adam, or optax.partition"
            )


def promoting(transform: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """A transformation of optax whose updates keep their dtype, also where JAX's promotion of dtypes is strict.

    Settings that are arrays, of float32 say, would widen updates of bfloat16.
    """
    inner = optax.with_extra_args_support(transform)
    widening = permissive(inner.update)

    def update(updates, state, params=None, **extra):
        new, state = widening(updates, state, params, **extra)
        return jax.tree.map(lambda value, old: value.astype(old.dtype), new, updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


class Step(NamedTuple):
    """Number and random key of a step, for one matrix."""

    number: Array
    """() t = 1, 2, ..."""
    key: Array
    """of this matrix; the same in every step"""

    def due(self, interval: int) -> Array:
        """() bool: t = 1 or t divisible by the interval."""
        return (self.number == 1) | (self.number % interval == 0)

    def renewed(self, interval: int, kept: Any, compute: Callable[..., Any], *operands: Any) -> Any:
        """`compute(*operands)` in the steps that are `due`, `kept` in between; trees of equal structure and shapes."""

        def renew(kept, due, *operands):
            return jax.tree.map(lambda new, old: jnp.where(due, new, old), compute(*operands), kept)

        due = self.due(interval)
        return cond_any(due, renew, kept, due, *operands)


class MatrixwiseState(NamedTuple):
    """State of a method that treats every parameter alone, as a matrix."""

    steps: Array
    """() steps taken"""
    matrices: Any
    """the method's own named tuple, each of its fields a tree like the parameters"""


def matrixwise(
    method: str,
    kind: Any,
    init: Callable[[Array], Any],
    update: Callable[[Array, Any, Step], tuple[Array, Any]],
    *,
    transpose: bool = True,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Lift a method for one matrix to trees of parameters with two axes or more.

    A kernel with more axes becomes the matrix (all axes but the last, last axis): a flax convolution (height, width,
    in, out) is the matrix of its patches.

    Args:
        method: name, for messages.
        kind: the method's named tuple.
        init: (matrix of zeros) -> kind of arrays.
        update: (gradient matrix, kind, step) -> (direction, kind).
        transpose: hand matrices over with their short side first, the papers' m <= n.
        seed: of the keys of the matrices; it may be a traced array.
    """
    bits = seed if isinstance(seed, Array) else checks.word(checks.seed("seed", seed))

    def flipped(leaf: Array) -> bool:
        return transpose and math.prod(leaf.shape[:-1]) > leaf.shape[-1]

    def to_matrix(leaf: Array) -> Array:
        matrix = leaf.reshape(-1, leaf.shape[-1])
        return matrix.T if flipped(leaf) else matrix

    def init_fn(params):
        check_matrices(method, params)
        structure = jax.tree.structure(params)
        # Copies: arrays that share a buffer could not be donated.
        states = [jax.tree.map(jnp.copy, init(to_matrix(leaf))) for leaf in jax.tree.leaves(zeros_like_state(params))]
        return MatrixwiseState(jnp.zeros((), jnp.int32), gathered(states, structure))

    def update_fn(updates, state, params=None, **extra):
        del params, extra
        leaves, structure = jax.tree.flatten(updates)
        number = jnp.asarray(optax.safe_increment(state.steps))
        key = jax.random.key(bits)
        fields = [structure.flatten_up_to(field) for field in state.matrices]
        directions, states = [], []
        for index, (leaf, wide) in enumerate(zip(leaves, jax.tree.leaves(widened(updates)), strict=True)):
            own = kind(*(values[index] for values in fields))
            direction, own = update(to_matrix(wide), own, Step(number, jax.random.fold_in(key, index)))
            direction = direction.T if flipped(leaf) else direction
            directions.append(direction.reshape(leaf.shape).astype(leaf.dtype))
            states.append(own)
        return structure.unflatten(directions), MatrixwiseState(number, gathered(states, structure))

    def gathered(states, structure):
        return kind(*(structure.unflatten([own[field] for own in states]) for field in range(len(kind._fields))))

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)
