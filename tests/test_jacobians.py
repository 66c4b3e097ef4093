"""Rows of Jacobians, as outer products where a kernel meets one vector, against jax.jacobian."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from seqdec import linalg, models
from seqdec.filters import jacobians
from seqdec.filters._ekf import pack_square

X = jnp.linspace(-1, 1, 6)
KERNELS = {"a": jnp.sin(jnp.arange(30.0)).reshape(6, 5), "b": jnp.cos(jnp.arange(20.0)).reshape(5, 4)}


def plain(params, x):
    return jnp.tanh(x @ params["a"]) @ params["b"]


def twice(params, x):
    return jnp.tanh(x @ params["a"]) @ params["b"] + x[:5] @ params["b"]


def penalized(params, x):
    return plain(params, x) + jnp.sum(params["a"] ** 2)


def from_the_left(params, x):
    return params["b"].T @ jnp.tanh(x @ params["a"])


def many_vectors(params, x):
    return jnp.sum(jnp.tanh(jnp.stack([x, x**2]) @ params["a"]) @ params["b"], 0)


def matrix_first(params, x):
    return jnp.tanh(jnp.stack([x, x**2], 1).T @ params["a"])[0] @ params["b"]


def returned(params, x):
    return jnp.concatenate([plain(params, x), params["b"][0]])


@pytest.mark.parametrize(
    ("function", "outer"),
    [
        (plain, "ab"),
        (twice, "a"),
        (penalized, "b"),
        (from_the_left, "a"),
        (many_vectors, ""),
        (matrix_first, "b"),
        (returned, "a"),
        (jax.jit(plain), ""),
    ],
)
def test_rows_are_those_of_the_jacobian(function, outer):
    values, auxiliary, rows = jacobians.rows(lambda params, x: (function(params, x), 7), KERNELS, X)
    expected = jax.jacobian(function)(KERNELS, X)
    assert auxiliary == 7
    np.testing.assert_allclose(values, function(KERNELS, X), rtol=1e-6)
    assert "".join(name for name, row in zip("ab", rows, strict=True) if isinstance(row, linalg.Outer)) == outer
    for name, row in zip("ab", rows, strict=True):
        np.testing.assert_allclose(linalg.dense(row), linalg.dense(expected[name]), rtol=1e-5, atol=1e-6)


def test_rows_of_some_outputs_of_a_network():
    x = jax.random.normal(jax.random.key(1), (4, 4))
    network = models.network(models.MLP(3, (8, 7)), x)
    params = jax.tree.map(lambda leaf: leaf + 0.1, network.init(jax.random.key(0)))
    which = jnp.array([2, 0])
    _, _, rows = jax.jit(lambda params: jacobians.rows(lambda p, x: (network.apply(p, x), ()), params, x, which))(
        params
    )
    expected = jax.tree.leaves(jax.jacobian(network.apply)(params, x))
    assert sum(isinstance(row, linalg.Outer) for row in rows) == 3
    for row, full in zip(rows, expected, strict=True):
        np.testing.assert_allclose(linalg.dense(row), linalg.dense(full[which]), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_products_with_a_basis(dtype):
    # Only the basis is rounded where it is narrow.
    rows = linalg.Outer(X, jnp.arange(8.0).reshape(2, 4) / 3)
    columns = jax.random.normal(jax.random.key(0), (24, 5)).astype(dtype)
    expected = np.asarray(linalg.dense(rows), np.float64) @ np.asarray(columns.astype(jnp.float32), np.float64)
    tolerance = 1e-5 if dtype == jnp.float32 else 1e-4
    np.testing.assert_allclose(linalg.multiply(rows, columns, jnp.float32), expected, rtol=0, atol=tolerance)
    assert rows.shape == (2, 6, 4)
    np.testing.assert_allclose(linalg.gram_of((rows,)), linalg.dense(rows) @ linalg.dense(rows).T, rtol=1e-5)
    np.testing.assert_allclose(linalg.dense(linalg.select(rows, jnp.array([1]))), linalg.dense(rows)[1:], rtol=1e-6)


def test_products_with_one_matrix():
    # bias, kernel, rest, as an output layer of four units has them
    kernel = linalg.Outer(X, jnp.arange(8.0).reshape(2, 4) / 3)
    around = [jax.random.normal(jax.random.key(place), (2, size)) for place, size in enumerate((4, 8))]
    columns = jax.random.normal(jax.random.key(2), (4 + 24 + 8, 5))
    packed = pack_square([around[0], kernel, around[1]])
    assert [isinstance(piece, linalg.Outer) for piece in packed] == [False, True, False]
    expected = jnp.concatenate([linalg.dense(piece) for piece in packed], 1) @ columns
    np.testing.assert_allclose(linalg.multiply_all(packed, columns), expected, rtol=1e-5, atol=1e-5)
    assert len(pack_square([around[0][:, :3], kernel])) == 1  # three rows are no multiple of four
    assert len(pack_square([jnp.ones((2, 40)), kernel])) == 1  # and here the kernel is the lesser part
