"""Which parameters are matrices, and by which axes: one rule for flax (linen, nnx), haiku and equinox.

The group of a parameter follows from its names and shape, by the first line that holds; names are in lower case,
without a number at the end:

    vector      fewer than two axes, named bias, scale or offset, or m or n below 2 as a matrix m x n
    embedding   a name of the path contains embed, or is wte or wpe
    head        a name of the path is classifier, head, lm_head, logits, output or readout
    matrix      otherwise: weight matrices and kernels of the hidden layers

A module with an automatic name, such as linen's Dense_2, counts as hidden: name the output layer.

An array with two axes or more is a matrix of inputs x outputs, again by the first line that holds:

    named weight (equinox, torch)                       (out, in, ...)        the first axis is the outputs
    three axes or more, in a module called query, key,
    value, qkv, kv, q, k or v, with or without _proj    (in, heads, size)     the first axis is the inputs
    otherwise, so kernels of layers, of convolutions
    and of the output of attention                      (..., in, out)        the last axis is the outputs

A convolution (height, width, in, out) is the matrix of its patches, flax's attention kernels are matrices of width x
heads * size. `matrices=` is for what no name tells, such as layers stacked along an axis.
"""

import math
import re
import sys
from collections.abc import Callable, Sequence
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
_EMBEDDINGS = {"wte", "wpe"}
_OUTPUT_LAYERS = {"classifier", "head", "lm_head", "logits", "output", "readout"}
_PROJECTIONS = {"query", "key", "value", "qkv", "kv", "q", "k", "v"}


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

    def matrix(self, array: Array) -> Array:
        """(inputs, outputs), or (stack, inputs, outputs)."""
        sizes = self.sizes(array.shape)
        return jnp.transpose(array, sum(self, ())).reshape(sizes if self.stack else sizes[1:])

    def array(self, matrix: Array, shape: Sequence[int]) -> Array:
        """Inverse of `matrix`."""
        order = sum(self, ())
        return jnp.transpose(matrix.reshape([shape[axis] for axis in order]), np.argsort(order).tolist())


def partition(params: PyTree) -> PyTree:
    """Tree of "matrix", "vector", "embedding" or "head"; labels for `optax.partition`."""
    return _mapped(lambda names, leaf: _group(names, np.shape(leaf)), params)


def hidden_matrices(params: PyTree, *, include_head: bool = False) -> PyTree:
    """Tree of bools: True for "matrix", and for "head" if included."""
    groups = {"matrix", "head"} if include_head else {"matrix"}
    return jax.tree.map(lambda group: group in groups, partition(params))


def matrix_axes(params: PyTree) -> PyTree:
    """Tree of the axes of the hidden matrices, None for other parameters.

    For `matrices`, or `muon_weight_dimension_numbers` of `optax.contrib.muon`.
    """

    def of(names, leaf):
        shape = np.shape(leaf)
        return MuonDimensionNumbers(*_rule(names, shape)[1:]) if _group(names, shape) == "matrix" else None

    return _mapped(of, params)


def is_matrix(params: PyTree, matrices: Matrices | None) -> PyTree:
    """Tree of bools: which parameters are matrices.

    Raises:
        TypeError, ValueError: `matrices` has a leaf that is no choice, or none for a parameter.
    """
    if matrices is None:
        return hidden_matrices(params)
    flat, structure = jax.tree_util.tree_flatten_with_path(params)
    chosen = _choices(matrices, params)
    return structure.unflatten([bool(_choice(chosen, path)) for path, _ in flat])


def axes_of(method: str, params: PyTree, matrices: Matrices | None) -> list[Axes]:
    """The axes of each leaf, which must be matrices.

    Raises:
        TypeError: `matrices` has a leaf that is no choice.
        ValueError: a leaf has fewer than two axes, or not those that `matrices` names.
    """
    chosen, result = None if matrices is None else _choices(matrices, params), []
    flat = jax.tree_util.tree_flatten_with_path(params)[0]
    for (path, leaf), names in zip(flat, _names(params), strict=True):
        shape, choice = np.shape(leaf), True if chosen is None else _choice(chosen, path)
        if len(shape) < 2:
            raise ValueError(
                f"{method} takes matrices, but the parameter {'/'.join(names)!r} of shape {shape} is not one: leave it "
                "out of matrices="
            )
        result.append(_given(choice, names, shape) if isinstance(choice, MuonDimensionNumbers) else _rule(names, shape))
    return result


def leaf_names(params: PyTree) -> list[str]:
    """Paths of the leaves, joined by slashes."""
    return ["/".join(names) for names in _names(params)]


def _mapped(function: Callable[[Sequence[str], Any], Any], params: PyTree) -> PyTree:
    leaves, structure = jax.tree.flatten(params)
    return structure.unflatten([function(names, leaf) for names, leaf in zip(_names(params), leaves, strict=True)])


def _names(params: PyTree) -> list[list[str]]:
    """Names along each leaf's path; haiku's split, nnx's without `value`."""
    nnx = sys.modules.get("flax.nnx")  # without it there are no variables of nnx

    def is_variable(value):
        return nnx is not None and isinstance(value, nnx.Variable)

    def flat(**options):
        return jax.tree_util.tree_flatten_with_path(params, **options)[0]

    variables = {path for path, leaf in flat(is_leaf=is_variable) if is_variable(leaf)}
    paths = [path[:-1] if path[:-1] in variables else path for path, _ in flat()]
    return [[name for name in re.split(r"[/.~]+", _text(path)) if name] for path in paths]


def _text(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _plain(name: str) -> str:
    return re.sub(r"(?<=.)_?\d+$", "", name.lower())


def _group(names: Sequence[str], shape: tuple[int, ...]) -> str:
    plain = [_plain(name) for name in names]
    if len(shape) < 2 or (plain[-1:] and plain[-1] in _VECTORS) or min(_rule(names, shape).sizes(shape)[1:]) < 2:
        return "vector"
    if any("embed" in name or name in _EMBEDDINGS for name in plain):
        return "embedding"
    return "matrix" if _OUTPUT_LAYERS.isdisjoint(plain) else "head"


def _rule(names: Sequence[str], shape: tuple[int, ...]) -> Axes:
    every = tuple(range(len(shape)))
    plain = [_plain(name).removesuffix("_proj") for name in names[-2:]]
    if plain[-1:] == ["weight"]:
        return Axes((), every[1:], every[:1])
    if len(shape) > 2 and not _PROJECTIONS.isdisjoint(plain):
        return Axes((), every[:1], every[1:])
    return Axes((), every[:-1], every[-1:])


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
