"""Dtype of the state, and methods for one matrix applied to trees."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from seqdec.boundary import checks
from seqdec.core import Array, PyTree
from seqdec.linalg import cond_any
from seqdec.optim import linear
from seqdec.optim.groups import Axes, axes_of, is_box
from seqdec.runtime import alike


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


_LARGE = 2**21
"""Bytes of gradient and state."""


def each(function: Callable[..., Any], statics: Sequence[Any], *operands: Sequence[PyTree]) -> list[Any]:
    """`function(static, index, *operands)` of many arrays, which returns the operands' successors, of their shapes.

    Traced once for all with equal statics and shapes. Up to two megabytes each, they are also compiled once: joined,
    they take turns in a loop, where branches stay branches and no factorization has a batch. Of larger arrays the
    copies would cost more than the compilation.
    """
    arguments = list(zip(*operands, strict=True))
    groups: dict[Any, list[int]] = {}
    for index, (static, own) in enumerate(zip(statics, arguments, strict=True)):
        leaves, structure = jax.tree.flatten(own)
        groups.setdefault((static, structure, *map(jax.typeof, leaves)), []).append(index)
    results: dict[int, Any] = {}
    for (static, *_), members in groups.items():
        one, own = functools.partial(function, static), [arguments[index] for index in members]
        leaves = jax.tree.leaves(own[0])
        if len(members) == 1 or not any(isinstance(leaf, Tracer) for leaf in leaves):
            found = [one(index, *own) for index, own in zip(members, own, strict=True)]
        elif sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) > _LARGE:
            found = list(map(jax.jit(one), members, *zip(*own, strict=True)))
        else:
            found = _in_turn(one, members, own)
        results |= dict(zip(members, found, strict=True))
    return [results[index] for index in range(len(arguments))]


def _in_turn(function: Callable[..., Any], members: list[int], arguments: list[Any]) -> list[Any]:
    structure, numbers = jax.tree.structure(arguments[0]), jnp.asarray(members)
    columns = list(zip(*map(jax.tree.leaves, arguments), strict=True))
    shapes = [column[0].shape for column in columns]
    joined = [jnp.concatenate([jnp.atleast_1d(part) for part in column]) for column in columns]
    sizes = [len(whole) // len(members) for whole in joined]

    def turn(place, carry):
        filled, _ = carry
        old = [
            lax.dynamic_slice_in_dim(whole, place * size, size).reshape(shape)
            for whole, size, shape in zip(joined, sizes, shapes, strict=True)
        ]
        new = jax.tree.leaves(function(numbers[place], *structure.unflatten(old)))
        filled = [
            lax.dynamic_update_slice_in_dim(whole, jnp.atleast_1d(part).astype(whole.dtype), place * size, 0)
            for whole, size, part in zip(filled, sizes, new, strict=True)
        ]
        return filled, (place + 1).astype(jnp.int32)

    # Not in place, which would copy what is joined in every turn.
    joined = alike(joined)
    zeros = jax.tree.map(jnp.zeros_like, joined), jnp.int32(0)
    joined, done = lax.fori_loop(0, len(members), turn, zeros)
    # Always these places, but as unknown numbers to the compiler, so that all parts of a size are one kernel.
    places = [jnp.int32(place) for place in range(len(members))]
    places = lax.cond(done == len(members), lambda: places, lambda: places[::-1])

    def part(whole, size, shape, place):
        start = (size * place, *[jnp.int32(0)] * (whole.ndim - 1))
        return lax.dynamic_slice(whole, start, (size, *whole.shape[1:]), allow_negative_indices=False).reshape(shape)

    return [
        structure.unflatten([part(*one, place) for one in zip(joined, sizes, shapes, strict=True)]) for place in places
    ]


_SPIKE, _DECAY, _FIRST = 5, 0.9, 20


def steadied(gradient: Array, usual: Array, steps: Array, axis: tuple[int, ...] | None = None) -> tuple[Array, Array]:
    """A gradient scaled down as by `steady` after so many steps, and the average norm."""
    limit = jnp.where((usual > 0) & (steps >= _FIRST), _SPIKE * usual, jnp.inf)
    scaled, norm = linear.bounded(gradient, limit, axis)
    norm = norm.reshape(usual.shape)
    mixed = jnp.where(usual > 0, _DECAY * usual + (1 - _DECAY) * norm, norm)
    return scaled, jnp.where(norm > 0, mixed, usual)  # NaN > 0 is false


def sized(rms: Any, array: Array, axis: tuple[int, ...] | None = None) -> Array:
    """Scaled to a root mean square; zeros stay."""
    scaled, norm = linear.bounded(array, axis=axis)
    return rms * (array.size / norm.size) ** 0.5 * linear.safe_divide(scaled, norm)


class SteadyState(NamedTuple):
    """State of `steady`."""

    steps: Array
    """() steps taken"""
    norms: PyTree
    """average norm of the gradients that are not zero, 0 before the first; its axes are those of the parameter, of one
    entry if they count no matrices"""


def steady(axes: PyTree = None) -> optax.GradientTransformationExtraArgs:
    """Scale gradients down to five times the average of their norms with decay 0.9, as scaled down.

    Not in the first 20 steps, since gradients of layers before one that starts at zero grow from nothing.
    The norm is that of a parameter, or of each matrix by `axes`, a tree of `seqdec.optim.groups.resolved`.
    """

    def within(tree: PyTree) -> list[tuple[int, ...]]:
        """The axes of one norm, by parameter."""
        if axes is None:
            return [tuple(range(np.ndim(leaf))) for leaf in jax.tree.leaves(tree)]
        return [own.entries() for own in axes_of(tree, axes)]

    def init(params):
        zeros = jax.tree.leaves(zeros_like_state(params))
        norms = (jnp.sum(leaf, own, keepdims=True) for leaf, own in zip(zeros, within(params), strict=True))
        return SteadyState(jnp.zeros((), jnp.int32), jax.tree.structure(unboxed(params)).unflatten(norms))

    def update(updates, state, params=None, **extra):
        del params, extra

        def bound(own, _, leaf, usual):
            gradient, usual = steadied(leaf.astype(usual.dtype), usual, state.steps, own)
            return gradient.astype(leaf.dtype), usual

        leaves, structure = jax.tree.flatten(updates)
        moved = each(bound, within(updates), leaves, jax.tree.leaves(state.norms))
        results, norms = zip(*moved, strict=True) if moved else ((), ())
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
    place: Array | int = 0
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
    """State of a `Matrixwise`."""

    steps: Array
    """() steps taken"""
    norms: PyTree
    """as of `steady`: () for a matrix, or those of a stack"""
    matrices: Any
    """the method's named tuple of trees like the parameters"""


class Matrixwise(NamedTuple):
    """A method for one matrix."""

    kind: Any
    """its named tuple of arrays; several matrices in an array are their first axis"""
    init: Callable[[Array], Any]
    """(matrix of zeros) -> kind"""
    update: Callable[[Array, Any, Step], tuple[Array, Any]]
    """(gradient matrix, kind, step) -> (direction, kind)"""
    transpose: bool = True
    """hand matrices over with their short side first, m <= n"""
    seed: Any = 0
    """for the keys of the matrices, as by `seeded`"""


def seeded(seed: int | Array) -> Any:
    """The bits of a seed, which may be traced. ValueError for one out of range."""
    return seed if isinstance(seed, Array) else checks.seed_bits(checks.seed("seed", seed))


def lifted(method: Matrixwise, matrices: PyTree, rms: Any | None) -> optax.GradientTransformationExtraArgs:
    """A method for trees of parameters, of gradients as by `steady` and to a root mean square.

    By the axes of the parameters, a tree of `seqdec.optim.groups.resolved`.
    """

    def oriented(axes: Axes, shape: tuple[int, ...]) -> Axes:
        _, rows, columns = axes.sizes(shape)
        return Axes(axes.stack, axes.outputs, axes.inputs) if method.transpose and rows > columns else axes

    def layouts(tree: PyTree) -> list[Axes]:
        shapes = [leaf.shape for leaf in jax.tree.leaves(tree)]
        return [oriented(own, shape) for own, shape in zip(axes_of(tree, matrices), shapes, strict=True)]

    def init(params):
        states, norms, leaves = [], [], jax.tree.leaves(zeros_like_state(params))
        for axes, leaf, box in zip(layouts(params), leaves, _boxes(params), strict=True):
            own = (jax.vmap(method.init) if axes.stack else method.init)(axes.matrix(leaf))
            # Arrays that share a buffer could not be donated.
            own = jax.tree.map(lambda part, leaf=leaf: beside(leaf, jnp.copy(part)), own)
            states.append(_all_boxed(own, box, axes, leaf.shape))
            norms.append(jnp.zeros(axes.sizes(leaf.shape)[:1] if axes.stack else (), leaf.dtype))
        return gathered(jnp.zeros((), jnp.int32), norms, states, jax.tree.structure(unboxed(params)))

    def update(updates, state, params=None, **extra):
        del params, extra
        leaves, structure = jax.tree.flatten(updates)
        number = jnp.asarray(optax.safe_increment(state.steps))
        axes, plain, key = layouts(updates), jax.tree.structure(unboxed(updates)), jax.random.key(method.seed)
        places = np.argsort(np.argsort([-leaf.size for leaf in leaves], kind="stable")).astype(np.int32)

        def move(static, index, matrix, own, usual):
            stack, eps = static
            place = places[index] if isinstance(index, int) else jnp.asarray(places)[index]

            def one(matrix, own, usual, key):
                matrix, usual = steadied(matrix, usual, state.steps)
                direction, own = method.update(matrix, own, Step(number, key, place, len(leaves), eps))
                return direction if rms is None else sized(rms, direction), own, usual

            key_of = jax.random.fold_in(key, index)
            if not stack:
                return one(matrix, own, usual, key_of)
            return jax.vmap(one)(matrix, own, usual, jax.random.split(key_of, len(matrix)))

        statics = [(bool(own.stack), float(jnp.finfo(leaf.dtype).eps)) for own, leaf in zip(axes, leaves, strict=True)]
        wide = [own.matrix(leaf) for own, leaf in zip(axes, jax.tree.leaves(widened(updates)), strict=True)]
        fields = [map(unboxed, plain.flatten_up_to(field)) for field in state.matrices]
        kinds = [method.kind(*own) for own in (zip(*fields, strict=True) if fields else [()] * len(leaves))]
        found = each(move, statics, wide, kinds, jax.tree.leaves(state.norms))
        moved, states, norms = zip(*found, strict=True) if found else ((), (), ())
        shapes = [leaf.shape for leaf in leaves]
        moved = [
            own.array(*one).astype(leaf.dtype) for own, leaf, *one in zip(axes, leaves, moved, shapes, strict=True)
        ]
        states = [_all_boxed(*one) for one in zip(states, _boxes(updates), axes, shapes, strict=True)]
        return structure.unflatten(moved), gathered(number, norms, states, plain)

    def gathered(steps, norms, states, structure):
        fields = (structure.unflatten([own[field] for own in states]) for field in range(len(method.kind._fields)))
        return MatrixwiseState(steps, structure.unflatten(norms), method.kind(*fields))

    return optax.GradientTransformationExtraArgs(init, update)


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


def _all_boxed(kind: Any, box: Any, axes: Axes, shape: tuple[int, ...]) -> Any:
    return jax.tree.map(lambda part: _boxed(part, box, axes, shape), kind)


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
