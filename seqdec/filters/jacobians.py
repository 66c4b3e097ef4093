"""Jacobians of a network's outputs by its parameters, with outer products for dense layers.

A layer z = x W with kernel W (in x out) and one vector x changes an output f_o by df_o = x^T dW delta_o, delta_o =
df_o / dz: row o is x delta_o^T (`seqdec.linalg.Outer`), and all rows multiply a basis at the cost of one.

Such kernels are used once, as the right factor of a product with a vector in the jaxpr. Others, also those inside a
`jax.jit` of the network's `apply`, get full rows.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from seqdec.core import Array, PyTree
from seqdec.linalg import Outer
from seqdec.runtime import alike

_VECTOR_TIMES_KERNEL = (((0,), (0,)), ((), ()))


def rows(
    function: Callable[[PyTree, PyTree], tuple[Array, PyTree]], params: PyTree, x: PyTree, which: Array | None = None
) -> tuple[Array, PyTree, list[Array | Outer]]:
    """Values and rows of the Jacobian by each parameter, in the order of `jax.tree.leaves`.

    Args:
        function: (params, x) -> (values (out,), auxiliary values).
        params: where to differentiate.
        x: the input.
        which: (o,) outputs; None is all.

    Returns:
        (out,) values; auxiliary values; for every leaf an array (o, *shape of the leaf), or an `Outer`.
    """
    params, x = alike((params, x))
    leaves, structure = jax.tree.flatten(params)
    inputs, form = jax.tree.flatten(x)

    def flat(leaves, inputs):
        return function(structure.unflatten(leaves), form.unflatten(inputs))

    closed, shape = jax.make_jaxpr(flat, return_shape=True)(leaves, inputs)
    layers = _dense_layers(closed.jaxpr, len(leaves))
    plain = [index for index in range(len(leaves)) if index not in layers.values()]
    sums = [closed.jaxpr.eqns[place].outvars[0].aval for place in layers]
    offsets = alike([jnp.zeros(aval.shape, aval.dtype) for aval in sums], leaves)

    def response(few, offsets):
        every = dict(zip(plain, few, strict=True))
        arguments = [every.get(index, leaf) for index, leaf in enumerate(leaves)]
        out, inputs_found = _evaluate(closed, [*arguments, *inputs], dict(zip(layers, offsets, strict=True)))
        values, auxiliary = jax.tree.unflatten(jax.tree.structure(shape), out)
        return values, (auxiliary, inputs_found)

    values, pull, (auxiliary, inputs_found) = jax.vjp(
        response, [leaves[index] for index in plain], offsets, has_aux=True
    )
    # A constant, not an operation: XLA would hoist one copy per caller out of a scan, and then not recognize that
    # acting and updating compute the same rows.
    weights = alike(jnp.asarray(np.eye(len(values)), values.dtype), values)
    derivatives, deltas = jax.vmap(pull)(weights if which is None else weights[which])
    found: dict[int, Array | Outer] = dict(zip(plain, derivatives, strict=True))
    found |= {leaf: Outer(x, delta) for leaf, x, delta in zip(layers.values(), inputs_found, deltas, strict=True)}
    return values, auxiliary, [found[index] for index in range(len(leaves))]


def _dense_layers(jaxpr: core.Jaxpr, count: int) -> dict[int, int]:
    """Equation -> parameter, for the first `count` arguments used once, as W in x W."""
    uses = [var for eqn in jaxpr.eqns for var in eqn.invars] + list(jaxpr.outvars)
    layers = {}
    for place, eqn in enumerate(jaxpr.eqns):
        if eqn.primitive.name == "dot_general" and eqn.params["dimension_numbers"] == _VECTOR_TIMES_KERNEL:
            vector, kernel = eqn.invars
            owner = [index for index, var in enumerate(jaxpr.invars[:count]) if var is kernel]
            axes = [len(getattr(var.aval, "shape", ())) for var in (vector, kernel)]
            if owner and axes == [1, 2] and sum(var is kernel for var in uses) == 1:
                layers[place] = owner[0]
    return layers


def _evaluate(
    closed: core.ClosedJaxpr, arguments: list[Array], offsets: dict[int, Array]
) -> tuple[list[Array], list[Array]]:
    """Outputs with `offsets` added to some equations' outputs, and these equations' first inputs."""
    jaxpr, inputs_found = closed.jaxpr, []
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *arguments], strict=True))

    def read(var):
        return var.val if isinstance(var, core.Literal) else values[var]

    for place, eqn in enumerate(jaxpr.eqns):
        operands = [read(var) for var in eqn.invars]
        bound = eqn.primitive.get_bind_params(eqn.params)
        functions, options = ((), bound) if isinstance(bound, dict) else bound  # the latter before JAX 0.10
        out = eqn.primitive.bind(*functions, *operands, **options)
        out = out if eqn.primitive.multiple_results else [out]
        if place in offsets:
            inputs_found.append(operands[0])
            out = [out[0] + offsets[place]]
        values.update(zip(eqn.outvars, out, strict=True))
    return [read(var) for var in jaxpr.outvars], inputs_found
