"""Embedding tables in a filter: one Gaussian per row, without correlations.

For the n rows that an input reads of a table (V x e), with Sigma_r (e x e) kept as a root,

    S = ... + sum_r J_r Sigma_r J_r^T            r over the distinct rows that the input reads
    row_r += Sigma_r J_r^T S^{-1} eps            Sigma_r = (I - K_r J_r) Sigma_r (I - K_r J_r)^T + K_r R K_r^T

A step costs O(n e (n + e)) whatever V; a draw of the parameters passes over whole tables.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from seqdec import linalg
from seqdec.boundary.checks import non_negative
from seqdec.core import Array, Filter, PyTree
from seqdec.filters.covariance import Belief, Covariance, CovarianceUpdate

TableStd = Array | float | Mapping[str, Array | float]
"""Prior standard deviations of tables: one number, one for each column (width,), or these by table."""


class RowRoots(NamedTuple):
    """Roots of the covariances of a table's rows."""

    columns: Array
    """(V, e, e) T^T with T^T T = Sigma_r; (n, e, e) of the rows of an input"""
    which: Array | None
    """(n,) rows of the input, with repetitions; None for the whole table"""


def table(initial_std: Array | float) -> Covariance:
    """The covariance of one table: independent rows, initially diag(initial_std^2) each."""

    def init(key, leaves, dtype, like):
        del key, like
        (leaf,) = leaves
        size, width = leaf.shape
        root = jnp.diag(jnp.broadcast_to(jnp.asarray(initial_std, dtype), (width,)))
        return RowRoots(jnp.broadcast_to(root, (size, width, width)), None)

    def whole(state, values):
        same = (state.which[:, None] == state.which[None]).astype(values.dtype)
        return jnp.einsum("ij,ojk->oik", same, values)

    def project(state, jacobian):
        return jnp.einsum("onk,nkj->onj", jacobian[0], state.columns)

    def variance(state, products):
        count = len(products)
        return products.reshape(count, -1) @ whole(state, products).reshape(count, -1).mT

    def mean_update(state, jacobian, products, weights):
        # Each copy of a row moves by its own part of K eps; the parts add up where the rows are put back.
        moves = jnp.einsum("nkj,nj->nk", state.columns, jnp.einsum("o,onj->nj", weights, products))
        return (moves,), jnp.sum(moves**2), None

    def covariance_update(state, observation):
        roots = observation.innovation_root, observation.noise_root

        def one(columns, products):
            factor = linalg.FullRankFactor(columns, jnp.zeros((), jnp.int32))
            return linalg.symmetric_downdate(factor, products, products @ columns.mT, *roots, observation.accept)

        done = jax.vmap(one, (0, 1))(state.columns, whole(state, observation.products))
        copies = jnp.sum(state.which[:, None] == state.which[None], axis=1)
        gram = jnp.einsum("nok,npk->op", done.gain / copies[:, None, None].astype(done.gain.dtype), done.gain)
        zero = jnp.zeros((), gram.dtype)
        return CovarianceUpdate(state._replace(columns=done.factor.columns), gram, zero, zero)

    def draw(key, state):
        normal = jax.random.normal(key, state.columns.shape[:2], state.columns.dtype)
        return (jnp.einsum("vkj,vj->vk", state.columns, normal),)

    return Covariance(
        init=init,
        project=project,
        variance=variance,
        mean_update=mean_update,
        covariance_update=covariance_update,
        draw=draw,
        pack=tuple,
        unpack=lambda parts, like: [parts[0].astype(like[0].dtype)],
    )


def covariances(tables: tuple[str, ...], initial_std: TableStd, error_bounds: bool) -> tuple[Covariance, ...]:
    """A covariance for each of `tables`.

    Raises ValueError for a negative standard deviation, those of other tables, or error bounds.
    """
    named = initial_std if isinstance(initial_std, Mapping) else dict.fromkeys(tables, initial_std)
    if set(named) != set(tables):
        raise ValueError(f"initial_std_table is for the tables {sorted(named)}, but the network's are {sorted(tables)}")
    for std in named.values() if tables else [initial_std]:
        non_negative("initial_std_table", std, max_ndim=1)
    if tables and error_bounds:
        raise ValueError(f"there are no error bounds for embedding tables; leave out error_bounds or tables={tables}")
    return tuple(table(named[name]) for name in tables)


def split_tables(params: PyTree, tables: tuple[str, ...]) -> tuple[PyTree, list[list[Array]]]:
    """Parameters in no table, and a list of each table's."""
    if not tables:
        return params, []
    return {name: part for name, part in params.items() if name != "tables"}, [[params["tables"][t]] for t in tables]


def nearby(params: PyTree, x: dict[str, Array], tables: tuple[str, ...]) -> tuple[PyTree, dict[str, Array]]:
    """(params, x) with only the table rows that x (n of each) reads, for the same response.

    Repetitions stay. Of b inputs, x[name] (b, n), the b n rows are one after the other.
    """
    rows = {name: params["tables"][name][x[name].ravel()] for name in tables}
    local = {name: jnp.arange(x[name].size).reshape(x[name].shape) for name in tables}
    return {**params, "tables": rows}, {**x, **local}


def sparse(flt: Filter, tables: tuple[str, ...]) -> Filter:
    """`flt`, whose last blocks are those of `tables`, restricted to an input's rows."""
    if not tables:
        return flt

    def cut(belief: Belief, x: Any) -> tuple[Belief, Any]:
        params, near = nearby(belief.params, x, tables)
        split = len(belief.blocks) - len(tables)
        rows = tuple(
            RowRoots(state.columns[x[name].ravel()], x[name].ravel())
            for name, state in zip(tables, belief.blocks[split:], strict=True)
        )
        return Belief(params, (*belief.blocks[:split], *rows)), near

    def put_back(belief: Belief, before: Belief, after: Belief) -> Belief:
        split = len(belief.blocks) - len(tables)
        moved, blocks = {}, list(after.blocks[:split])
        for name, state, fresh in zip(tables, belief.blocks[split:], after.blocks[split:], strict=True):
            step = after.params["tables"][name] - before.params["tables"][name]
            moved[name] = belief.params["tables"][name].at[fresh.which].add(step)
            # All copies of a row have the same covariance.
            blocks.append(RowRoots(state.columns.at[fresh.which].set(fresh.columns), None))
        return Belief({**after.params, "tables": moved}, tuple(blocks))

    def with_few_rows(update):
        def updated(belief, x, y, observed=None):
            before, near = cut(belief, x)
            after, info = update(before, near, y, observed)
            return put_back(belief, before, after), info

        return updated

    return flt._replace(
        update=with_few_rows(flt.update),
        update_batch=with_few_rows(flt.update_batch),
        moments=lambda belief, x: flt.moments(*cut(belief, x)),
        marginals=None,
    )
