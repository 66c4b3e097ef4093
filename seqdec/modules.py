"""Modules of flax, linen and nnx, as pure functions of parameters and one input."""

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.errors import InvalidRngError, ScopeParamShapeError

from seqdec.core import Key, Network, PyTree
from seqdec.params import path_names

if TYPE_CHECKING:
    from flax import nnx

    Module = nnx.Module | nn.Module
else:
    Module = nn.Module  # nnx is imported by who uses it, not here: it takes a while
"""A module of flax."""
Model = Module | Network
"""What agents take as `model`."""
Path = tuple[str, ...]


class Pure(NamedTuple):
    """A module as pure functions."""

    name: str
    init: Callable[[Key, PyTree], PyTree]
    """(key, x) -> params"""
    apply: Callable[[PyTree, PyTree], Any]
    """(params, x) -> output"""
    calls: Callable[[PyTree, PyTree], tuple[Any, list[tuple[Path, Any]]]]
    """(params, x) -> output, and (path, output) of each called submodule, from the outside in"""
    others: Callable[[PyTree], list[str]]
    """(x) -> names of variables other than parameters. Raises InvalidRngError for random numbers."""
    misfits: tuple[type[Exception], ...]
    """what `apply` raises for an input of another shape"""


def is_module(value: Any) -> bool:
    """Whether a value is a module of flax."""
    return isinstance(value, nn.Module) or is_nnx(value)


def is_nnx(value: Any) -> bool:
    """Whether a value is a module of flax.nnx."""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(value, nnx.Module)


def pure(module: Any) -> Pure:
    """The functions of a module, or of a function (nnx.Rngs) -> nnx module; TypeError for anything else."""
    if isinstance(module, nn.Module):
        return _linen(module)
    if not is_nnx(module) and not callable(module):
        wanted = "a module of flax.linen or flax.nnx, or a function (nnx.Rngs) -> nnx module"
        raise TypeError(f"module must be {wanted}; got {module!r:.80}")
    return _nnx(module)


def batched(one: Pure) -> Pure:
    """The functions for one input of a module of batches."""

    def rows(x: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], x)

    def apply(params: PyTree, x: PyTree) -> Any:
        out = jnp.asarray(one.apply(params, rows(x)))
        if out.shape[:1] != (1,):
            raise ValueError(f"of a batch of one input it returns {out.shape}, whose first axis is not the batch's")
        return out[0]

    return one._replace(
        init=lambda key, x: one.init(key, rows(x)),
        apply=apply,
        calls=lambda params, x: one.calls(params, rows(x)),
        others=lambda x: one.others(rows(x)),
    )


def check(own: Pure, example: PyTree) -> None:
    """Raise ValueError, with the remedy, unless a module is a function of parameters and one input."""
    name, shape = own.name, jax.tree.map(jnp.shape, example)
    single = (
        f"a network takes one input, here of shape {shape}, without a batch axis, and returns a vector (out,): pass "
        "seqdec.models.network(module, example, batched=True) for a module that takes batches"
    )
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), example)
    try:
        others = own.others(zeros)
        params = jax.eval_shape(own.init, jax.random.key(0), example)
        out: Any = None if others else jax.eval_shape(own.apply, params, example)
    except InvalidRngError as error:
        raise ValueError(
            f"{name} draws random numbers when it is called, and a network is a function of its parameters and input: "
            "leave out the layers that do, such as Dropout, or set deterministic=True in them (module.eval() in nnx)"
        ) from error
    except Exception as error:  # of the user's code, of any kind
        raise ValueError(f"{name} cannot be called: {error}; {single}") from error
    if others:
        raise ValueError(
            f"{name} has the variables {', '.join(others)} besides its parameters, and nothing here updates them: a "
            "belief over the parameters needs responses that follow from them and the input alone. Use layers without "
            "such variables, LayerNorm or GroupNorm in place of BatchNorm"
        )
    if not jax.tree.leaves(params):
        raise ValueError(f"{name} has no parameters, so there is nothing to learn")
    if not hasattr(out, "shape") or len(out.shape) != 1:
        raise ValueError(f"{name} returned {jax.tree.map(jnp.shape, out)}; {single}")


def _linen(module: nn.Module) -> Pure:
    def others(x: PyTree) -> list[str]:
        return sorted(set(jax.eval_shape(module.init, jax.random.key(0), x)) - {"params"})

    def calls(params: PyTree, x: PyTree) -> tuple[Any, list[tuple[Path, Any]]]:
        out, captured = module.apply({"params": params}, x, capture_intermediates=True, mutable=["intermediates"])
        flat = jax.tree_util.tree_flatten_with_path(captured["intermediates"])[0]
        return out, [(path_names(path)[:-2], value) for path, value in flat]

    return Pure(
        type(module).__name__,
        lambda key, x: module.init(key, x).get("params", {}),
        lambda params, x: module.apply({"params": params}, x),
        calls,
        others,
        (ScopeParamShapeError, ZeroDivisionError),  # the latter for an empty input
    )


def _nnx(given: Any) -> Pure:
    """An nnx module, or a function that makes one; parameters are dicts by attribute and index."""
    from flax import nnx

    make = None if isinstance(given, nnx.Module) else given
    module = given if make is None else make(nnx.Rngs(0))
    if not isinstance(module, nnx.Module):
        raise TypeError(f"{given!r:.80} returned {module!r:.80}: it must be a function (nnx.Rngs) -> nnx module")
    graph, state, streams, rest = nnx.split(module, nnx.Param, nnx.RngState, ...)
    flat, structure = jax.tree_util.tree_flatten_with_path(state)
    paths = [path_names(path[:-1]) for path, _ in flat]  # without the variable's own "value"
    kept, kept_structure = jax.tree.flatten((streams, rest))

    def params_of(leaves: list[Any]) -> PyTree:
        tree: dict[str, Any] = {}
        for path, leaf in zip(paths, leaves, strict=True):
            functools.reduce(lambda inner, name: inner.setdefault(name, {}), path[:-1], tree)[path[-1]] = leaf
        return tree

    def init(key: Key, x: PyTree) -> PyTree:
        if make is None:
            return params_of([jnp.array(leaf) for _, leaf in flat])
        return params_of(jax.tree.leaves(nnx.state(make(nnx.Rngs(key)), nnx.Param)))

    def built(params: PyTree) -> Any:
        leaves = [functools.reduce(lambda inner, name: inner[name], path, params) for path in paths]
        return nnx.merge(graph, jax.tree.unflatten(structure, leaves), *jax.tree.unflatten(kept_structure, kept))

    def others(x: PyTree) -> list[str]:
        found: list[str] = []

        def call(params: PyTree) -> None:
            model = built(params)
            before = jax.tree.leaves(nnx.state(model, nnx.RngState))
            model(x)
            _, _, after, more = nnx.split(model, nnx.Param, nnx.RngState, ...)
            if any(new is not old for new, old in zip(jax.tree.leaves(after), before, strict=True)):
                raise InvalidRngError("the call draws random numbers")
            found.extend(
                f"{'.'.join(map(str, path))} ({type(leaf).__name__})" for path, leaf in nnx.to_flat_state(more)
            )

        jax.eval_shape(call, params_of([leaf for _, leaf in flat]))
        return found

    def calls(params: PyTree, x: PyTree) -> tuple[Any, list[tuple[Path, Any]]]:
        model, made = built(params), []
        for path, part in list(nnx.iter_modules(model)):
            if path and callable(part):
                _record(part, tuple(map(str, path)), made)
        return model(x), made

    return Pure(
        type(module).__name__,
        init,
        lambda params, x: built(params)(x),
        calls,
        others,
        (TypeError, ValueError, ZeroDivisionError),
    )


def _record(part: Any, path: Path, made: list[tuple[Path, Any]]) -> None:
    kind = type(part)

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        made.append((path, kind.__call__(self, *arguments, **keywords)))
        return made[-1][1]

    part.__class__ = type(kind.__name__, (kind,), {"__call__": call})
