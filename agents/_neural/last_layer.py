r"""The last layer of a network as a linear model: its parameters in groups, and the features that multiply them.

    f_j(x) = r_j(x) + phi_j(x)^T w_g(j),        phi_j the gradient of f_j by the group, r_j the other parameters' part

In a network with n outputs each output has its own group, phi_j = (hidden units, 1) and g(j) = j; in any other the
layer is one group. A belief N(w_g, C_g C_g^T), independent between groups, is n matrices (F, F) instead of (n F, n F).
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import linalg
from seqdec import params as parameters
from seqdec.core import Array, Key, Network, PyTree
from seqdec.runtime import computed


class LastLayer(NamedTuple):
    """G groups of F parameters, G = n or 1."""

    groups: int
    """G"""
    size: int
    """F"""
    features: Callable[[PyTree, PyTree], tuple[Array, Array]]
    """(params, x) -> expected responses (n,), features (n, F)"""
    get: Callable[[PyTree], Array]
    """(params) -> weights (G, F)"""
    put: Callable[[PyTree, Array], PyTree]
    """(params, weights) -> params with these weights"""


def last_layer(network: Network) -> LastLayer:
    """The last layer of a network; ValueError, with the paths, if its output layer is not known."""
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    leaves = parameters.split(shapes, network.is_last)[1]
    groups = _groups(network, shapes, leaves)
    size = sum(leaf.size for leaf in leaves) // groups

    def get(params):
        _, last = parameters.split(params, network.is_last)
        rows = (
            jnp.concatenate([leaf.reshape(-1, groups) for leaf in last]).T
            if groups > 1
            else parameters.ravel(last)[None]
        )
        return rows.astype(float)

    def put(params, weights):
        hidden, last = parameters.split(params, network.is_last)
        ends = np.cumsum([leaf.size // groups for leaf in last])[:-1]
        parts = jnp.split(weights.T if groups > 1 else weights[0], ends)
        fresh = [part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, last, strict=True)]
        return parameters.join(params, network.is_last, hidden, fresh)

    def features(params, x):
        hidden, last = parameters.split(params, network.is_last)
        response, pull = jax.vjp(
            lambda last: network.apply(parameters.join(params, network.is_last, hidden, last), x), last
        )
        if groups > 1:  # a response moves with its own column only, so that all columns are read at once
            (slopes,) = pull(jnp.ones_like(response))
            phi = jnp.concatenate([slope.reshape(-1, groups) for slope in slopes]).T
        else:
            (slopes,) = jax.vmap(pull)(jnp.eye(len(response), dtype=response.dtype))
            phi = parameters.ravel(slopes, 1)
        return response.astype(float), phi.astype(float)

    return LastLayer(groups, size, features, get, put)


def _groups(network: Network, shapes: PyTree, leaves: list) -> int:
    """Number of groups: n where entry [..., j] of every leaf belongs to output j alone, else 1."""
    if network.example is None:
        return 1
    outputs = jax.eval_shape(network.apply, shapes, network.example).shape[0]
    if outputs == 1 or any(leaf.shape[-1:] != (outputs,) for leaf in leaves):
        return 1
    random = np.random.default_rng(0)
    params, x = jax.tree.map(
        lambda leaf: random.standard_normal(leaf.shape).astype(leaf.dtype), (shapes, network.example)
    )
    slopes = computed(jax.jacobian(network.apply), params, x)
    others = ~np.eye(outputs, dtype=bool)
    crossed = [np.moveaxis(np.asarray(slope), -1, 1)[others] for slope in parameters.split(slopes, network.is_last)[1]]
    return 1 if any(np.any(slope) for slope in crossed) else outputs


def spread(phi: Array, columns: Array) -> Array:
    """Covariance (n, n) of responses with features (n, F), for covariances C_g C_g^T of the weights."""
    if len(columns) == 1:
        products = phi @ columns[0]
        return products @ products.mT
    return jnp.diag(variances(phi, columns))


def variances(phi: Array, columns: Array) -> Array:
    """phi_j^T C_g(j) C_g(j)^T phi_j: features (..., n, F) -> (..., n)."""
    form = "...jf,fk->...jk" if len(columns) == 1 else "...jf,jfk->...jk"
    return jnp.sum(jnp.einsum(form, phi, columns[0] if len(columns) == 1 else columns) ** 2, -1)


def responses(phi: Array, weights: Array) -> Array:
    """phi_j^T w_g(j): features (..., n, F), weights (G, F) -> (..., n)."""
    return jnp.sum(phi * weights.reshape((1,) * (phi.ndim - 2) + weights.shape), -1)


def gram(phi: Array, scale: Array, groups: int) -> Array:
    """Sum of scale_ij phi_ij phi_ij^T over rows and responses of a group: (b, n, F), (b, n) -> (G, F, F)."""
    form = "bj,bjf,bjk->fk" if groups == 1 else "bj,bjf,bjk->jfk"
    return jnp.einsum(form, scale, phi, phi).reshape(groups, *phi.shape[-1:] * 2)


def moment(phi: Array, scale: Array, groups: int) -> Array:
    """Sum of scale_ij phi_ij over rows and responses of a group: (b, n, F), (b, n) -> (G, F)."""
    form = "bj,bjf->f" if groups == 1 else "bj,bjf->jf"
    return jnp.einsum(form, scale, phi).reshape(groups, -1)


class Conditioned(NamedTuple):
    columns: Array
    """(G, F, F)"""
    gain: Array
    """(G, F, o) for the o responses of a group"""
    precision: Array
    """(G, o, o) inverse predictive covariance of these responses"""


def by_group(values: Array, groups: int) -> Array:
    """Values (k, n, ...) of k rows and n responses as (G, o, ...)."""
    return values.reshape(1, -1, *values.shape[2:]) if groups == 1 else jnp.swapaxes(values, 0, 1)


def condition(columns: Array, phi: Array, noise_variance: float, good: Array) -> Conditioned:
    """Kalman update of each covariance C C^T, C = columns (G, F, F), unless `good` () is False.

    Features phi (G, o, F) are zero for responses not observed.
    """

    def one(columns, rows):
        products = rows @ columns
        noise = noise_variance * jnp.eye(len(rows), dtype=rows.dtype)
        innovation_root = linalg.psd_root(products @ products.mT + noise)
        factor, raw_gain = linalg.full_rank_from(columns.mT, 0), products @ columns.mT
        fresh = linalg.symmetric_downdate(factor, products, raw_gain, innovation_root, linalg.psd_root(noise), good)
        precision = linalg.solve_psd(innovation_root, jnp.eye(len(rows), dtype=rows.dtype))
        return Conditioned(fresh.factor.columns, fresh.gain.mT, precision)

    return jax.vmap(one)(columns, phi)


def draw_weights(key: Key, weights: Array, columns: Array) -> Array:
    """Weights (G, F) from N(weights_g, C_g C_g^T)."""
    normal = jax.random.normal(key, weights.shape, weights.dtype)
    return weights + jnp.einsum("gfk,gk->gf", columns, normal)


def displaced(layer: LastLayer, network: Network, params: PyTree, weights: Array) -> Callable[[PyTree], Array]:
    """The function (candidates -> (n,)) of the network with other weights in its last layer."""
    moved = layer.put(params, weights)
    return lambda candidates: network.apply(moved, candidates)
