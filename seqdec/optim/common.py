"""What the optimizers share: refusal of bad settings, parameters as matrices, and the routing of parameters by kind."""

import math
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import ScalarOrSchedule

from seqdec.core import Array, PyTree

Matrices = Callable[[PyTree], PyTree] | PyTree
"""Which parameters a matrix method takes: a tree of bools like the parameters, or a function from them to it."""

_HEADS = ("classifier", "head", "lm_head", "logits", "output", "readout")


def check_number(name: str, value: Any, low: float = 0.0, high: float = math.inf, *, above: bool = False) -> None:
    """Refuses a number outside [low, high), or (low, high) with `above`; arrays, injected or traced, pass."""
    if not isinstance(value, int | float):
        return
    if not (low < value if above else low <= value) or not value < high:
        bracket = "(" if above else "["
        raise ValueError(f"{name} must lie in {bracket}{low:g}, {high:g}); got {value!r}")


def check_count(name: str, value: Any) -> None:
    """Refuses anything but a Python or numpy integer of at least one: counts decide on shapes."""
    if not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(
            f"{name} must be an integer >= 1; got {value!r}"
            + (f" (name {name!r} among the static_args of optax.inject_hyperparams)" if hasattr(value, "dtype") else "")
        )


def check_choice(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuses a word that is not known."""
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}; got {value!r}")


def accumulator(leaf: Array) -> jnp.dtype:
    """The dtype of state and arithmetic for a parameter: its own, but at least float32."""
    return jnp.promote_types(leaf.dtype, jnp.float32)


class Step(NamedTuple):
    """What every matrix is told of the step."""

    number: Array
    """() t = 1, 2, ..."""
    key: Array
    """of this matrix, the same in every step"""

    def due(self, interval: int) -> Array:
        """() bool: t = 1 or t divisible by the interval."""
        return (self.number == 1) | (self.number % interval == 0)


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
        seed: of the keys of the matrices.
    """

    def flipped(leaf: Array) -> bool:
        return transpose and math.prod(leaf.shape[:-1]) > leaf.shape[-1]

    def to_matrix(leaf: Array) -> Array:
        matrix = leaf.reshape(-1, leaf.shape[-1]).astype(accumulator(leaf))
        return matrix.T if flipped(leaf) else matrix

    def init_fn(params):
        leaves, structure = jax.tree.flatten(params)
        for leaf in leaves:
            if leaf.ndim < 2:
                raise ValueError(
                    f"scale_by_{method} takes matrices, and a parameter has the shape {leaf.shape}; use {method}, "
                    "which sends such parameters to Adam, or optax.partition"
                )
        # Copies: arrays that share a buffer could not be donated.
        states = [jax.tree.map(jnp.copy, init(jnp.zeros_like(to_matrix(jnp.asarray(leaf))))) for leaf in leaves]
        return MatrixwiseState(jnp.zeros((), jnp.int32), gathered(states, structure))

    def update_fn(updates, state, params=None, **extra):
        del params, extra
        leaves, structure = jax.tree.flatten(updates)
        number = jnp.asarray(optax.safe_increment(state.steps))
        key = jax.random.key(seed)
        fields = [structure.flatten_up_to(field) for field in state.matrices]
        directions, states = [], []
        for index, leaf in enumerate(leaves):
            own = kind(*(values[index] for values in fields))
            direction, own = update(to_matrix(leaf), own, Step(number, jax.random.fold_in(key, index)))
            direction = direction.T if flipped(leaf) else direction
            directions.append(direction.reshape(leaf.shape).astype(leaf.dtype))
            states.append(own)
        return structure.unflatten(directions), MatrixwiseState(number, gathered(states, structure))

    def gathered(states, structure):
        return kind(*(structure.unflatten([own[field] for own in states]) for field in range(len(kind._fields))))

    return optax.GradientTransformationExtraArgs(init_fn, update_fn)


def hidden_matrices(params: PyTree, *, head: bool = False) -> PyTree:
    """Tree of bools: True for the weight matrices and convolution kernels of the hidden layers.

    False for scalars, vectors and matrices with a side of one (norms, biases), for parameters with "embed" in their
    path, and, unless `head`, for those in a module called classifier, head, lm_head, logits, output or readout. Modules
    with names that say nothing (flax's Dense_3) count as hidden: name the output layer, or pass a tree of your own.
    """
    flat, structure = jax.tree_util.tree_flatten_with_path(params)
    return structure.unflatten([_is_hidden_matrix(jax.tree_util.keystr(path), leaf, head) for path, leaf in flat])


def _is_hidden_matrix(path: str, leaf: Array, head: bool) -> bool:
    names = [name.lower() for name in "".join(c if c.isalnum() or c in "_-" else " " for c in path).split()]
    if leaf.ndim < 2 or min(math.prod(leaf.shape[:-1]), leaf.shape[-1]) < 2 or any("embed" in name for name in names):
        return False
    return head or not any(name in _HEADS for name in names)


def routed(
    matrix_method: optax.GradientTransformation,
    learning_rate: ScalarOrSchedule,
    *,
    weight_decay: Any,
    adam_ratio: Any,
    matrices: Matrices | None,
    head: bool,
) -> optax.GradientTransformationExtraArgs:
    """A matrix method where `matrices` says, Adam for all else; both with decoupled weight decay.

    Args:
        matrix_method: the direction of the matrices.
        learning_rate: a number or a schedule.
        weight_decay: share of the parameters that is subtracted, times the learning rate of their group.
        adam_ratio: Adam's learning rate as a multiple of `learning_rate`.
        matrices: tree of bools or function; None is `hidden_matrices`.
        head: for `hidden_matrices`.
    """
    check_number("weight_decay", weight_decay)
    check_number("adam_ratio", adam_ratio)

    def labels(params):
        if matrices is None:
            chosen = hidden_matrices(params, head=head)
        else:
            chosen = matrices(params) if callable(matrices) else matrices
        return jax.tree.map(lambda matrix: "matrix" if matrix else "adam", chosen)

    rate = optax.scale_by_learning_rate(learning_rate)
    decay = optax.add_decayed_weights(weight_decay)
    groups: dict[Hashable, optax.GradientTransformation] = {
        "matrix": optax.chain(matrix_method, decay, rate),
        "adam": optax.chain(optax.scale_by_adam(), decay, rate, optax.scale(adam_ratio)),
    }
    return optax.with_extra_args_support(optax.partition(groups, labels))
