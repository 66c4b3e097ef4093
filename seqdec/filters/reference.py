"""The filters as their algorithm boxes are printed.

Every box takes the model linearized at the mean, and returns new factors and the step of the mean: o observed
responses with noise R (o x o) and innovation eps (o,); Jacobians L and H (o x D) by the last and the hidden layers'
parameters, with covariances Sigma_l = S_l^T S_l and C^T C, process noise q_l and q_h; gain K.

`lrkf`, `hilofi` and `lolofi` compute the same in O(D d) instead of O(D d^2).

Source: Duran-Martin, Sanchez-Betancourt, Cartea, Murphy, "Martingale Posterior Neural Networks for Fast Sequential
Decision Making", Appendix B and Algorithms 2 to 4, with misprints corrected; `lofi`: Chang et al.
(`seqdec.filters.lofi`).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from seqdec import linalg
from seqdec import params as parameters
from seqdec.boundary.checks import keyed
from seqdec.core import Filter, Key, Network, Predictive, PyTree, UpdateInfo
from seqdec.filters import jacobians
from seqdec.likelihoods import Likelihood


class Primitives(NamedTuple):
    """Linear algebra of the boxes."""

    q_r: Callable[..., Any]
    """Q_R(B_1, ..., B_k): upper triangular R with R^T R = sum_i B_i^T B_i"""
    p_d: Callable[..., Any]
    """P_{d,+a}(d, a, B_1, ..., B_k): J (d x D), the best rank-d root of sum_i B_i^T B_i + a I"""
    root: Callable[[Any], Any]
    """upper triangular R with R^T R = the argument"""
    solve: Callable[[Any, Any], Any]
    """(R, B) -> (R^T R)^{-1} B through two triangular solves"""


def _numpy_projection(rank, inflation, *blocks):
    """diag(sqrt(s^2 + a)) V_d^T of the stacked rows."""
    _, s, vt = np.linalg.svd(np.concatenate(blocks), full_matrices=False)
    return np.sqrt(s[:rank, None] ** 2 + inflation) * vt[:rank]


NUMPY = Primitives(
    q_r=lambda *blocks: np.linalg.qr(np.concatenate(blocks), mode="r"),
    p_d=_numpy_projection,
    root=lambda cov: np.linalg.cholesky(cov).T,
    solve=lambda r, b: np.linalg.solve(r, np.linalg.solve(r.T, b)),
)
JAX = Primitives(
    q_r=linalg.root_of_sum,
    p_d=lambda rank, inflation, *blocks: linalg.low_rank_projection(rank, *blocks, inflation=inflation),
    root=linalg.psd_root,
    solve=linalg.solve_psd,
)


def ekf(sigma, jac, noise, eps, q):
    """Appendix B, dense covariance Sigma (D x D): -> Sigma, step."""
    sigma = sigma + q * np.eye(len(sigma))
    s = jac @ sigma @ jac.T + noise
    gain = sigma @ jac.T @ np.linalg.inv(s)
    left = np.eye(len(sigma)) - gain @ jac
    return left @ sigma @ left.T + gain @ noise @ gain.T, gain @ eps


def lrkf(c, jac, noise, eps, q, using=NUMPY):
    """Algorithm 4, factor C (d x D): -> C, step."""
    r_half = using.root(noise)
    s_half = using.q_r(c @ jac.T, q**0.5 * jac.T, r_half)
    v = using.solve(s_half, jac)
    gain_t = v @ c.T @ c + q * v
    c_new = using.p_d(len(c), q, c - c @ jac.T @ gain_t, r_half @ gain_t)
    return c_new, gain_t.T @ eps


def hilofi(sl_half, c, jac_l, jac_h, noise, eps, q_l, q_h, using=NUMPY):
    """Algorithm 2, S_l (D_l x D_l), C (d x D_h): -> S_l, C, steps of l and h."""
    r_half = using.root(noise)
    s_half = using.q_r(sl_half @ jac_l.T, q_l**0.5 * jac_l.T, c @ jac_h.T, q_h**0.5 * jac_h.T, r_half)
    v_h, v_l = using.solve(s_half, jac_h), using.solve(s_half, jac_l)
    gain_h = v_h @ c.T @ c + q_h * v_h
    gain_l = v_l @ sl_half.T @ sl_half + q_l * v_l
    c_new = using.p_d(len(c), q_h, c - c @ jac_h.T @ gain_h, r_half @ gain_h)
    sl_new = using.q_r(sl_half - sl_half @ jac_l.T @ gain_l, r_half @ gain_l)
    return sl_new, c_new, gain_l.T @ eps, gain_h.T @ eps


def lolofi(c_l, c, jac_l, jac_h, noise, eps, q_l, q_h, using=NUMPY):
    """Algorithm 3, C_l (d_l x D_l), C (d x D_h): -> C_l, C, steps of l and h."""
    r_half = using.root(noise)
    s_half = using.q_r(c_l @ jac_l.T, q_l**0.5 * jac_l.T, c @ jac_h.T, q_h**0.5 * jac_h.T, r_half)
    v_h, v_l = using.solve(s_half, jac_h), using.solve(s_half, jac_l)
    gain_h = v_h @ c.T @ c + q_h * v_h
    gain_l = v_l @ c_l.T @ c_l + q_l * v_l
    c_new = using.p_d(len(c), q_h, c - c @ jac_h.T @ gain_h, r_half @ gain_h)
    cl_new = using.p_d(len(c_l), q_l, c_l - c_l @ jac_l.T @ gain_l, r_half @ gain_l)
    return cl_new, c_new, gain_l.T @ eps, gain_h.T @ eps


def lofi(u, w, jac, noise, eps, q):
    """LoFi, precision diag(u) + W W^T: time step, then observation: -> u, W, step."""
    ratio = 1 / (1 + q * u)
    shrink = np.linalg.inv(np.eye(w.shape[1]) + q * w.T @ (ratio[:, None] * w))
    u, w = ratio * u, ratio[:, None] * w @ np.linalg.cholesky(shrink)
    precise = np.linalg.cholesky(np.linalg.inv(noise)).T
    wide = np.concatenate([w, jac.T @ precise.T], axis=1)
    scaled = wide / u[:, None]
    inner = np.linalg.inv(np.eye(wide.shape[1]) + wide.T @ scaled)
    towards = jac.T @ precise.T @ precise
    gain = towards / u[:, None] - scaled @ inner @ scaled.T @ towards
    left, s, _ = np.linalg.svd(wide, full_matrices=False)
    rank = w.shape[1]
    lost = left[:, rank:] * s[rank:]
    return u + np.sum(lost**2, axis=1), left[:, :rank] * s[:rank], gain @ eps


class Belief(NamedTuple):
    """The mean, and a factor of the covariance for each block."""

    params: PyTree
    factors: tuple[jax.Array, ...]


def make(
    name: str, network: Network, likelihood: Likelihood, *, rank: int, rank_last: int, std, q, dtype: Any = None
) -> Filter:
    """The filter called `name` (lrkf, lolofi or hilofi), with one prior std and process noise q for all blocks.

    `predict` does nothing: the boxes' update adds the process noise.
    """
    layers = name != "lrkf"

    def split(params):
        return parameters.split(params, network.is_last)[::-1] if layers else (jax.tree.leaves(params),)

    def join(like, *leaves):
        if layers:
            return parameters.join(like, network.is_last, *leaves[::-1])
        return jax.tree.structure(like).unflatten(leaves[0])

    @keyed
    def init(key: Key, params):
        params = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), params)
        sizes = [sum(leaf.size for leaf in leaves) for leaves in split(params)]
        algebra = jnp.result_type(*jax.tree.leaves(params))
        keys = jax.random.split(key, len(sizes))[::-1]
        ranks = [rank_last, rank] if layers else [rank]
        factors = [
            std * linalg.random_orthonormal_rows(k, d, size, algebra)
            for k, d, size in zip(keys, ranks, sizes, strict=True)
        ]
        if name == "hilofi":
            factors[0] = std * jnp.eye(sizes[0], dtype=algebra)
        return Belief(params, tuple(factors))

    def linearize(params, x):
        """Mean, noise, and the Jacobian (K, D) by block."""

        def response(params, x):
            output = network.apply(params, x)
            return likelihood.mean(output), output

        mean, output, found = jacobians.rows(response, params, x)
        places = split(jax.tree.structure(params).unflatten(range(len(found))))
        return mean, likelihood.cov(output), [linalg.whole([found[i] for i in own]) for own in places]

    def moments(belief, x):
        mean, noise, rows = linearize(belief.params, x)
        roots = [factor @ jac.T for factor, jac in zip(belief.factors, rows, strict=True)]
        return Predictive(mean, functools.reduce(jnp.add, [root.T @ root for root in roots]), noise)

    def update(belief, x, y, observed=None):
        mean, noise, rows = linearize(belief.params, x)
        at = jnp.arange(len(mean)) if observed is None else jnp.atleast_1d(observed)
        eps, linearized = jnp.atleast_1d(y) - mean[at], (*(jac[at] for jac in rows), noise[at][:, at])
        box = {"lrkf": lrkf, "lolofi": lolofi, "hilofi": hilofi}[name]
        changed = box(*belief.factors, *linearized, eps, *(q for _ in rows), using=JAX)
        factors, steps = changed[: len(rows)], changed[len(rows) :]
        params = move(belief.params, steps)
        return Belief(params, factors), UpdateInfo(eps, jnp.full((), jnp.nan), jnp.bool_(False))

    @keyed
    def sample(key, belief):
        keys = jax.random.split(key, len(belief.factors))
        parts = zip(keys, belief.factors, strict=True)
        return move(belief.params, [jax.random.normal(k, (len(c),), c.dtype) @ c for k, c in parts])

    def move(params, steps):
        leaves = [parameters.unravel(step, own) for step, own in zip(steps, split(params), strict=True)]
        return jax.tree.map(jnp.add, params, join(params, *leaves))

    return Filter(
        init, lambda belief: belief, update, moments, sample, lambda belief: belief.params,
        lambda params, x: likelihood.mean(network.apply(params, x)),
    )  # fmt: skip
