"""Which parameters are matrices, and by which axes: one rule for flax (linen, nnx), haiku and equinox.

The group of a parameter follows from its names and shape, by the first line that holds; names are in lower case,
without a number at the end, and axes are those that stay after the stack:

    vector      fewer than two axes, named bias, scale or offset, or m or n below 2 as a matrix m x n
    embedding   a name of the path contains embed, or has a part emb, pos, vocab, wpe or wte between underscores
    head        a name of the path contains logits or classifier, ends in head, or is output or readout
    head        its outputs are inputs of no other kernel, and their number is that of an embedding's rows; or its
                module is called fc, decoder or proj_out; or it is the last of modules that are numbered, as in
                Dense_12, but not hidden_2
    matrix      otherwise: weight matrices and kernels of the hidden layers

The stack counts matrices: the axis 0 or 1 that has the same size in all parameters of a module, where one of them shows
that it is one axis too many: a bias or scale with two axes, a kernel of a Dense with three, one of a query with four,
or the name that linen gives, such as ScanBlock_0. `nn.scan`, `nn.vmap` and their peers make such modules.

The other axes are inputs and outputs, again by the first line that holds:

    experts: a name of the path contains expert, or that of         (..., in, out)         other axes join the stack
    the module einsum, or is moe
    named weight, or weight_... (equinox, torch)                    (out, in, ...)         the first axis is the outputs
    three axes or more, in a module called query, key, value,
    qkv, kv, q, k or v, with or without _proj                       (in, heads, size)      the first axis is the inputs
    otherwise, so kernels of layers, of convolutions and of the
    output of attention                                             (..., in, out)         the last axis is the outputs

A convolution (height, width, in, out) is the matrix of its patches, flax's attention kernels are matrices of width x
heads * size. `matrices=` is for what no name tells. Boxes of flax, as `nn.with_partitioning` makes them, have no name.
"""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from optax.contrib import MuonDimensionNumbers

from seqdec.core import Array, PyTree

Matrices = Callable[[PyTree], PyTree] | PyTree
"""Which parameters are matrices, and by which axes: a tree like the parameters or their upper part, or a function from
them to it. Leaves are True for a matrix by the rule, False or None for none, or `optax.contrib.MuonDimensionNumbers`,
whose axes that are neither reduction nor output count separate matrices.
"""

_VECTORS = {"bias", "scale", "offset"}
_EMBEDDINGS = {"emb", "pos", "vocab", "wpe", "wte"}
_OUTPUT_LAYERS = {"output", "readout"}
_LAST_LAYERS = {"decoder", "fc", "proj_out"}
_PROJECTIONS = {"query", "key", "value", "qkv", "kv", "q", "k", "v"}
_PACKED = {"qkv", "kv"}


class Axes(NamedTuple):
    """Axes of one or several matrices."""

    stack: tuple[int, ...]
    """that count matrices"""
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def sizes(self, shape: Sequence[int]) -> tuple[int, int, int]:
        """Number of matrices, rows (inputs) and columns (outputs) of a shape."""
        stack, rows, columns = (math.prod(shape[axis] for axis in axes) for axes in self)
        return stack, rows, columns

    def entries(self) -> tuple[int, ...]:
        """Axes of one matrix."""
        return tuple(sorted(self.inputs + self.outputs))

    def matrix(self, array: Array) -> Array:
        """(inputs, outputs), or (stack, inputs, outputs)."""
        sizes = self.sizes(array.shape)
        return jnp.transpose(array, sum(self, ())).reshape(sizes if self.stack else sizes[1:])

    def array(self, matrix: Array, shape: Sequence[int]) -> Array:
        """Inverse of `matrix`."""
        order = sum(self, ())
        return jnp.transpose(matrix.reshape([shape[axis] for axis in order]), np.argsort(order).tolist())


class Reading(NamedTuple):
    """Group and axes of one parameter."""

    group: str
    """vector, embedding, head or matrix"""
    axes: Axes | None
    """None for less than two axes"""


def partition(params: PyTree) -> PyTree:
    """Group of each parameter, "matrix", "vector", "embedding" or "head", as a tree of labels for `optax.partition`."""
    return jax.tree.structure(params).unflatten([reading.group for reading in _readings(params)])


def hidden_matrices(params: PyTree, *, include_head: bool = False) -> PyTree:
    """Tree of bools, True for parameters in the group "matrix", and in "head" if `include_head`."""
    groups = {"matrix", "head"} if include_head else {"matrix"}
    return jax.tree.map(lambda group: group in groups, partition(params))


def matrix_axes(params: PyTree, *, scanned: Mapping[str, int] | None = None) -> PyTree:
    """Tree of the axes of the hidden matrices, None for other parameters.

    For `matrices`, or, as a tree, `muon_weight_dimension_numbers` of `optax.contrib.muon`.

    Args:
        params: all of them: the parameters of a module tell its stack, and other layers which one is the last.
        scanned: the axis of the stack, by a name in the paths of its parameters, where it is not found.
    """
    found = _readings(params, scanned or {})
    return jax.tree.structure(params).unflatten(
        [_numbers(reading.axes) if reading.group == "matrix" else None for reading in found]
    )


def resolved(params: PyTree, matrices: Matrices | None) -> PyTree:
    """Tree of the axes of the parameters that are matrices, None for others.

    Raises:
        TypeError, ValueError: `matrices` has a leaf that is no choice or does not fit, or none for a parameter.
    """
    if matrices is None:
        return matrix_axes(params)
    flat, structure = jax.tree_util.tree_flatten_with_path(params)
    chosen, result = _choices(matrices, params), []
    for (path, leaf), names, reading in zip(flat, _names(params), _readings(params), strict=True):
        choice, shape = _choice(chosen, path), np.shape(leaf)
        if choice and len(shape) < 2:
            raise ValueError(
                f"matrices names the parameter {'/'.join(names)!r} of shape {shape}, which is not a matrix: leave it "
                "out"
            )
        given = _given(choice, names, shape) if isinstance(choice, MuonDimensionNumbers) else reading.axes
        result.append(_numbers(given) if choice else None)
    return structure.unflatten(result)


def axes_of(params: PyTree, matrices: PyTree) -> list[Axes]:
    """The axes of each leaf, by a tree of `resolved` for these parameters and more."""
    chosen = _choices(matrices, params)
    flat = jax.tree_util.tree_flatten_with_path(params)[0]
    return [
        _given(_choice(chosen, path), names, np.shape(leaf))
        for (path, leaf), names in zip(flat, _names(params), strict=True)
    ]


def leaf_names(params: PyTree) -> list[str]:
    """Paths of the leaves, joined by slashes."""
    return ["/".join(names) for names in _names(params)]


def is_box(value: Any) -> bool:
    """Whether it is a box of flax around a parameter."""
    meta = sys.modules.get("flax.core.meta")  # without it there are none
    return meta is not None and isinstance(value, meta.AxisMetadata)


def _names(params: PyTree) -> list[list[str]]:
    """Names along each leaf's path; haiku's split, those of nnx and of boxes without `value`."""
    nnx = sys.modules.get("flax.nnx")  # without it there are no variables of nnx

    def is_variable(value):
        return is_box(value) or (nnx is not None and isinstance(value, nnx.Variable))

    def flat(**options):
        return jax.tree_util.tree_flatten_with_path(params, **options)[0]

    variables = {path for path, leaf in flat(is_leaf=is_variable) if is_variable(leaf)}
    paths = [path[:-1] if path[:-1] in variables else path for path, _ in flat()]
    return [[name for name in re.split(r"[/.~]+", _text(path)) if name] for path in paths]


def _text(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _plain(name: str) -> str:
    return re.sub(r"(?<=.)_?\d+$", "", name.lower())


def _readings(params: PyTree, scanned: Mapping[str, int] | None = None) -> list[Reading]:
    names, shapes = _names(params), [np.shape(leaf) for leaf in jax.tree.leaves(params)]
    stacks = _stacks(names, shapes, scanned or {})
    axes = [_rule(*one) if len(one[1]) > 1 else None for one in zip(names, shapes, stacks, strict=True)]
    groups = [_group(*one) for one in zip(names, shapes, axes, strict=True)]
    for head in _last_layers(names, shapes, axes, groups):
        groups[head] = "head"
    return [Reading(*one) for one in zip(groups, axes, strict=True)]


def _stacks(names: list[list[str]], shapes: list[tuple[int, ...]], scanned: Mapping[str, int]) -> list[list[int]]:
    """The axes of each parameter that modules are stacked along."""
    stacks: list[list[int]] = [[] for _ in names]
    for place, (path, shape) in enumerate(zip(names, shapes, strict=True)):
        for axis in (axis for name, axis in scanned.items() if name in path):
            if not -len(shape) <= axis < len(shape):
                raise ValueError(f"scanned names axis {axis} of {'/'.join(path)!r}, whose shape is {shape}")
            stacks[place].append(axis % len(shape))

    def visit(members: list[int], depth: int) -> None:
        while True:
            axes = [[axis for axis in range(len(shapes[i])) if axis not in stacks[i]] for i in members]
            rests = [[shapes[i][axis] for axis in own] for i, own in zip(members, axes, strict=True)]
            if any(stacks[i] and not own for i, own in zip(members, axes, strict=True)):
                break
            kinds = [_spare(names[i], rest) for i, rest in zip(members, rests, strict=True)]
            automatic = depth > 0 and re.match("(Scan|Vmap)[A-Z]", names[members[0]][depth - 1])
            first = automatic and not any(stacks[i] for i in members)
            ways = [any(kinds) or first, "vector" in kinds]
            axis = next((a for a in (0, 1) if ways[a] and len({tuple(r[a : a + 1]) for r in rests} - {()}) == 1), None)
            if axis is None or any(len(rest) <= axis for rest in rests):
                break
            for i, own in zip(members, axes, strict=True):
                stacks[i].append(own[axis])
        children: dict[str, list[int]] = {}
        for i in members:
            if len(names[i]) > depth + 1:
                children.setdefault(names[i][depth], []).append(i)
        for own in children.values():
            visit(own, depth + 1)

    if names:
        visit(list(range(len(names))), 0)
    return stacks


def _spare(names: Sequence[str], shape: Sequence[int]) -> str:
    """The kind of a parameter, vector or kernel, that has more axes than its layer; "" for others."""
    last, module = ([""] * 2 + [_plain(name).removesuffix("_proj") for name in names])[:-3:-1]
    size = len(shape)
    if last in _VECTORS:
        while size and shape[size - 1] == 1:  # of biases (out, 1, 1)
            size -= 1
        return "vector" if size > 1 + (module in _PROJECTIONS) + (module in _PACKED) else ""
    if module in ("dense", "linear"):
        return "kernel" if size > 2 else ""
    return "kernel" if module in _PROJECTIONS - _PACKED and size > 3 else ""


def _group(names: Sequence[str], shape: tuple[int, ...], axes: Axes | None) -> str:
    plain = [_plain(name) for name in names]
    if axes is None or (plain[-1:] and plain[-1] in _VECTORS) or min(axes.sizes(shape)[1:]) < 2:
        return "vector"
    if any("embed" in name or not _EMBEDDINGS.isdisjoint(name.split("_")) for name in plain):
        return "embedding"
    named = any(re.search("logits|classifier|(^|_)head$", name) and name != "multi_head" for name in plain)
    return "head" if named or not _OUTPUT_LAYERS.isdisjoint(plain) else "matrix"


def _last_layers(
    names: list[list[str]], shapes: list[tuple[int, ...]], axes: list[Axes | None], groups: list[str]
) -> list[int]:
    """Matrices that are heads by what they are connected to."""
    kernels = {i: (own, own.sizes(shapes[i])) for i, own in enumerate(axes) if own and groups[i] in ("matrix", "head")}
    vocabularies = {shapes[i][0] for i, group in enumerate(groups) if group == "embedding"}
    series: dict[tuple, set[int]] = {}
    numbered = {}
    for i, path in enumerate(names):
        if i in kernels and len(path) > 1:
            stem, number = re.fullmatch(r"(.*?)_?(\d*)", path[-2]).groups()  # pyright: ignore
            numbered[i] = (*path[:-2], stem, path[-1]), int(number or 0)
            series.setdefault(numbered[i][0], set()).add(numbered[i][1])

    def ends(i: int) -> bool:
        outputs = kernels[i][1][2]
        takers = ((own, sizes, shapes[j]) for j, (own, sizes) in kernels.items() if j != i)
        return not any(outputs in (sizes[1], *(shape[axis] for axis in own.inputs)) for own, sizes, shape in takers)

    def is_last(i: int) -> bool:
        own, (_, _, outputs) = kernels[i]
        if own.stack or len(shapes[i]) > 2 or groups[i] != "matrix":
            return False
        key, number = numbered.get(i, ((), 0))
        last = len(series.get(key, ())) > 1 and number == max(series[key]) and "hidden" not in key[-2]
        named = len(names[i]) > 1 and names[i][-2].lower() in _LAST_LAYERS
        return (outputs in vocabularies or last or named) and ends(i)

    return [i for i in kernels if is_last(i)]


def _rule(names: Sequence[str], shape: tuple[int, ...], stack: Sequence[int] = ()) -> Axes:
    """Axes of a parameter with two or more."""
    axes = tuple(axis for axis in range(len(shape)) if axis not in stack)
    plain = [_plain(name).removesuffix("_proj") for name in names]
    module = plain[-2] if len(plain) > 1 else ""
    if len(axes) > 2 and (
        any("expert" in name for name in plain) or "einsum" in "".join(plain[-2:]) or module == "moe"
    ):
        stack, axes = (*stack, *axes[:-2]), axes[-2:]
    counts = tuple(stack)
    if plain and (plain[-1] == "weight" or plain[-1].startswith("weight_")):
        return Axes(counts, axes[1:], axes[:1])
    if len(axes) > 2 and not _PROJECTIONS.isdisjoint(plain[-2:]):
        return Axes(counts, axes[:1], axes[1:])
    return Axes(counts, axes[:-1], axes[-1:])


def _numbers(axes: Axes | None) -> MuonDimensionNumbers | None:
    return None if axes is None else MuonDimensionNumbers(*axes[1:])


def _is_choice(value: Any) -> bool:
    return value is None or isinstance(value, bool | np.bool_ | MuonDimensionNumbers)


def _choices(matrices: Matrices, params: PyTree) -> dict[tuple, Any]:
    """The leaves of `matrices` by path."""
    leaves = jax.tree.leaves(matrices, is_leaf=_is_choice)
    is_tree = not callable(matrices) or (bool(leaves) and all(map(_is_choice, leaves)))
    tree = matrices if is_tree else matrices(params)
    chosen = dict(jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_choice)[0])
    for path, value in chosen.items():
        if not _is_choice(value):
            raise TypeError(
                f"matrices must consist of True, False, None and MuonDimensionNumbers; got {value!r:.80} at "
                f"{_text(path)!r}"
            )
    return chosen


def _choice(chosen: dict[tuple, Any], path: tuple) -> Any:
    for length in range(len(path), -1, -1):
        if path[:length] in chosen:
            value = chosen[path[:length]]
            return value if isinstance(value, MuonDimensionNumbers) else bool(value)
    known = ", ".join(map(_text, chosen))
    raise ValueError(f"matrices does not cover the parameter {_text(path)!r}; it names: {known or 'none'}")


def _given(choice: MuonDimensionNumbers, names: Sequence[str], shape: tuple[int, ...]) -> Axes:
    inputs, outputs = (
        tuple(axis + len(shape) if axis < 0 else axis for axis in np.atleast_1d(axes).tolist()) for axes in choice
    )
    both = [*inputs, *outputs]
    if not inputs or not outputs or len(set(both)) < len(both) or not set(both) <= set(range(len(shape))):
        raise ValueError(
            f"reduction_axis and output_axis must be different axes of the parameter {'/'.join(names)!r} of shape "
            f"{shape}; got {choice}"
        )
    return Axes(tuple(axis for axis in range(len(shape)) if axis not in both), inputs, outputs)
