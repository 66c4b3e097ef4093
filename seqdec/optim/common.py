"""Dtype of the state, and methods for one matrix applied to trees."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from seqdec.boundary import checks
from seqdec.core import Array, PyTree
from seqdec.linalg import cond_any
from seqdec.optim import linear
from seqdec.optim.groups import Axes, axes_of, is_box


def accumulator(leaf: Array) -> jnp.dtype:
    """Dtype of state and arithmetic for a parameter: its own, at least float32. TypeError for complex numbers."""
    dtype = jnp.result_type(leaf)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        raise TypeError(
            f"parameters must be real numbers; got {dtype} of shape {jnp.shape(leaf)}: pass their real and "
            "imaginary parts as separate parameters"
        )
    return jnp.promote_types(jnp.float32, dtype)


Mask = Callable[[PyTree], PyTree] | PyTree
"""Which parameters: a tree of bools like the parameters or their upper part, or a function from them to it."""


def mask_tree(mask: Mask, params: PyTree) -> PyTree:
    """The tree of bools."""
    leaves = jax.tree.leaves(mask)
    is_tree = not callable(mask) or (bool(leaves) and all(isinstance(leaf, bool | np.bool_) for leaf in leaves))
    return mask if is_tree else mask(params)


def zeros_like_state(params: PyTree) -> PyTree:
    """Zeros like the parameters in the state's dtype."""
    return jax.tree.map(lambda leaf: jnp.zeros_like(leaf, accumulator(leaf)), params)


def widened(tree: PyTree) -> PyTree:
    """Gradients or parameters in the state's dtype."""
    return jax.tree.map(lambda leaf: leaf.astype(accumulator(leaf)), tree)


_SPIKE, _DECAY, _FIRST = 5, 0.9, 20


class SteadyState(NamedTuple):
    """State of `steady`."""

    steps: Array
    """() steps taken"""
    norms: PyTree
    """average norm of the gradients that are not zero, 0 before the first; its axes are those of the parameter, of one
    entry if they count no matrices"""


def steady(axes: Callable[[PyTree], PyTree] | None = None) -> optax.GradientTransformationExtraArgs:
    """Scale gradients down to five times the average of their norms with decay 0.9, as scaled down.

    Not in the first 20 steps, since gradients of layers before one that starts at zero grow from nothing.
    The norm is that of a parameter, or of each matrix by `axes`, (params) -> tree of `seqdec.optim.groups.resolved`.
    """

    def within(tree: PyTree) -> list[tuple[int, ...]]:
        """The axes of one norm, by parameter."""
        leaves, structure = jax.tree.flatten(tree)
        known = [None] * len(leaves) if axes is None else structure.flatten_up_to(axes(tree))
        return [
            axes_of(leaf, own)[0].entries() if own else tuple(range(np.ndim(leaf)))
            for leaf, own in zip(leaves, known, strict=True)
        ]

    def init(params):
        zeros = jax.tree.leaves(zeros_like_state(params))
        norms = (jnp.sum(leaf, own, keepdims=True) for leaf, own in zip(zeros, within(params), strict=True))
        return SteadyState(jnp.zeros((), jnp.int32), jax.tree.structure(unboxed(params)).unflatten(norms))

    def update(updates, state, params=None, **extra):
        del params, extra
        leaves, structure = jax.tree.flatten(updates)
        results, norms = [], []
        for leaf, usual, own in zip(leaves, jax.tree.leaves(state.norms), within(updates), strict=True):
            limit = jnp.where((usual > 0) & (state.steps >= _FIRST), _SPIKE * usual, jnp.inf)
            gradient, norm = linear.bounded(leaf.astype(usual.dtype), limit, own)
            results.append(gradient.astype(leaf.dtype))
            mixed = jnp.where(usual > 0, _DECAY * usual + (1 - _DECAY) * norm, norm)
            norms.append(jnp.where(norm > 0, mixed, usual))  # NaN > 0 is false
        steps = jnp.asarray(optax.safe_increment(state.steps))
        return structure.unflatten(results), SteadyState(steps, jax.tree.structure(state.norms).unflatten(norms))

    return optax.GradientTransformationExtraArgs(init, update)


def promoting(transform: optax.GradientTransformation) -> optax.GradientTransformationExtraArgs:
    """Keep the updates' dtype with settings of a wider one."""
    inner = optax.with_extra_args_support(transform)

    def update(updates, state, params=None, **extra):
        new, state = inner.update(updates, state, params, **extra)
        return jax.tree.map(lambda value, old: value.astype(old.dtype), new, updates), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


class Step(NamedTuple):
    """Number, key and place of one matrix in a step."""

    number: Array
    """() t = 1, 2, ..."""
    key: Array
    """the same in every step"""
    place: int = 0
    """0 for the largest matrix"""
    among: int = 1
    """number of the matrices"""
    eps: float = 0.0
    """relative precision of the gradient's dtype"""

    def due(self, interval: int) -> Array:
        """() bool: t = 1, or t + i max(1, K // N) divisible by the interval K, for the i-th of N matrices."""
        phase = self.place * max(1, interval // self.among) % interval
        return (self.number == 1) | ((self.number + phase) % interval == 0)

    def renewed(self, interval: int, kept: Any, compute: Callable[..., Any], *operands: Any) -> Any:
        """`compute(*operands)` in steps that are `due`, else `kept`."""

        def renew(kept, due, *operands):
            return jax.tree.map(lambda new, old: jnp.where(due, new, old), compute(*operands), kept)

        due = self.due(interval)
        return cond_any(due, renew, kept, due, *operands)


class MatrixwiseState(NamedTuple):
    """State of `matrixwise`."""

    steps: Array
    """() steps taken"""
    matrices: Any
    """the method's named tuple of trees like the parameters"""


def matrixwise(
    kind: Any,
    init: Callable[[Array], Any],
    update: Callable[[Array, Any, Step], tuple[Array, Any]],
    *,
    transpose: bool = True,
    seed: int = 0,
) -> Callable[[PyTree], optax.GradientTransformationExtraArgs]:
    """Lift a method for one matrix to trees of parameters, by their axes, a tree of `seqdec.optim.groups.resolved`.

    Args:
        kind: the method's named tuple; several matrices in an array are its first axis.
        init, update: (matrix of zeros) -> kind of arrays, and (gradient matrix, kind, step) -> (direction, kind).
        transpose: hand matrices over with their short side first, m <= n.
        seed: for the keys of the matrices; may be traced.
    """
    bits = seed if isinstance(seed, Array) else checks.seed_bits(checks.seed("seed", seed))

    def oriented(axes: Axes, shape: tuple[int, ...]) -> Axes:
        _, rows, columns = axes.sizes(shape)
        return Axes(axes.stack, axes.outputs, axes.inputs) if transpose and rows > columns else axes

    def layouts(axes: PyTree, tree: PyTree) -> list[Axes]:
        shapes = [leaf.shape for leaf in jax.tree.leaves(tree)]
        return [oriented(own, shape) for own, shape in zip(axes_of(tree, axes), shapes, strict=True)]

    def init_fn(matrices, params):
        states, leaves = [], jax.tree.leaves(zeros_like_state(params))
        for axes, leaf, box in zip(layouts(matrices, params), leaves, _boxes(params), strict=True):
            own = (jax.vmap(init) if axes.stack else init)(axes.matrix(leaf))
            # Arrays that share a buffer could not be donated.
            own = jax.tree.map(lambda part, leaf=leaf: beside(leaf, jnp.copy(part)), own)
            states.append(jax.tree.map(lambda part, own=(box, axes, leaf.shape): _boxed(part, *own), own))
        return MatrixwiseState(jnp.zeros((), jnp.int32), gathered(states, jax.tree.structure(unboxed(params))))

    def update_fn(matrices, updates, state, params=None, **extra):
        del params, extra
        leaves, structure = jax.tree.flatten(updates)
        number = jnp.asarray(optax.safe_increment(state.steps))
        key = jax.random.key(bits)
        plain = jax.tree.structure(unboxed(updates))
        fields = [plain.flatten_up_to(field) for field in state.matrices]
        boxes = _boxes(updates)
        directions, states = [], []
        places = np.argsort(np.argsort([-leaf.size for leaf in leaves], kind="stable")).tolist()

        def move(place, eps, matrix, own, key):
            return update(matrix, own, Step(number, key, place, len(leaves), eps))

        wide = jax.tree.leaves(widened(updates))
        for index, (axes, leaf) in enumerate(zip(layouts(matrices, updates), leaves, strict=True)):
            matrix, own = axes.matrix(wide[index]), kind(*(unboxed(values[index]) for values in fields))
            own_key = jax.random.fold_in(key, index)
            placed = functools.partial(move, places[index], float(jnp.finfo(leaf.dtype).eps))
            if axes.stack:
                direction, own = jax.vmap(placed)(matrix, own, jax.random.split(own_key, len(matrix)))
            else:
                direction, own = placed(matrix, own, own_key)
            directions.append(axes.array(direction, leaf.shape).astype(leaf.dtype))
            states.append(jax.tree.map(lambda part, own=(boxes[index], axes, leaf.shape): _boxed(part, *own), own))
        return structure.unflatten(directions), MatrixwiseState(number, gathered(states, plain))

    def gathered(states, structure):
        return kind(*(structure.unflatten([own[field] for own in states]) for field in range(len(kind._fields))))

    return lambda axes: optax.GradientTransformationExtraArgs(
        functools.partial(init_fn, axes), functools.partial(update_fn, axes)
    )


def placing(transform: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
    """Let `init` copy arrays without a parameter's shape, such as a number of steps, to all devices of parameters."""

    def init(params):
        state = transform.init(params)
        sharded = [leaf for leaf in jax.tree.leaves(params) if _mesh(leaf) is not None]
        return jax.tree.map(lambda part: beside(sharded[0], part), state) if sharded else state

    return optax.GradientTransformationExtraArgs(init, transform.update)


def beside(leaf: Any, part: Any) -> Any:
    """An array on one device, as it lies on those of a sharded parameter.

    Split along its first axis as long as a split axis of the parameter, if any.
    """
    mesh = _mesh(leaf)
    if mesh is None or len(part.sharding.device_set) > 1:
        return part
    split = ((size, names) for size, names in zip(leaf.shape, leaf.sharding.spec, strict=False) if names is not None)
    found = next(((part.shape.index(size), names) for size, names in split if size in part.shape), None)
    spec = () if found is None else (*[None] * found[0], found[1])
    return jax.device_put(part, NamedSharding(mesh, PartitionSpec(*spec)))


def _mesh(leaf: Any) -> Any:
    """The mesh of a sharded array; None of others and within transformations."""
    concrete = isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
    sharding = leaf.sharding if concrete else None
    return sharding.mesh if isinstance(sharding, NamedSharding) and len(sharding.device_set) > 1 else None


def unboxed(tree: PyTree) -> PyTree:
    """The parameters in boxes of flax, without them."""
    return jax.tree.map(lambda node: getattr(node, "value", node) if is_box(node) else node, tree, is_leaf=is_box)


def unboxing(transform: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
    """Hide boxes from a transformation, whose state then has none."""

    def update(updates, state, params=None, **extra):
        plain = {name: unboxed(value) for name, value in extra.items()}
        new, state = transform.update(unboxed(updates), state, unboxed(params), **plain)
        return jax.tree.structure(updates).unflatten(jax.tree.leaves(new)), state

    return optax.GradientTransformationExtraArgs(lambda params: transform.init(unboxed(params)), update)


def _boxes(tree: PyTree) -> list[Any]:
    """The box of each leaf, or None."""
    nodes = jax.tree.leaves(tree, is_leaf=is_box)
    return [node if is_box(node) else None for node in nodes if jax.tree.leaves(node)]


def _boxed(array: Array, box: Any, axes: Axes, shape: tuple[int, ...]) -> Any:
    """An array of a state with the names of the axes that it has from a boxed parameter, in a box without the rest."""
    names = getattr(box, "names", None)
    if names is None:
        return array

    def name(part):
        return names[part[0]] if len(part) == 1 and part[0] < len(names) else None

    stack, rows, columns = ([name(part)] for part in axes)
    stack = stack if axes.stack else []
    whole = array.shape[len(stack) :] == axes.sizes(shape)[1:]
    rest = rows + columns if whole else [None] * (array.ndim - len(stack))
    return box.replace(value=array, names=(*stack, *rest))
