"""The linear algebra against NumPy in float64, at scales from 1e-12 to 1e12, and against dense matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqdec import linalg
from seqdec.filters import reference
from seqdec.linalg import batching, low_rank

MATRICES = settings(max_examples=15, deadline=None)
# Compiled once for each set of shapes, not once for each call.
low_rank_downdate, fixed_span_downdate = jax.jit(linalg.low_rank_downdate), jax.jit(linalg.fixed_span_downdate)
full_rank_downdate, symmetric_downdate = jax.jit(linalg.full_rank_downdate), jax.jit(linalg.symmetric_downdate)
scales = st.integers(-12, 12).map(lambda power: 10.0**power)
seeds = st.integers(0, 2**31)


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    with jax.enable_x64(True):
        yield


def matrix(seed, rows, columns, rank=None):
    generator = np.random.default_rng(seed)
    rank = min(rows, columns) if rank is None else rank
    return generator.normal(size=(rows, rank)) @ generator.normal(size=(rank, columns))


TOLERANCE = 1e3 * float(jnp.finfo(jnp.float32).eps)


@MATRICES
@given(seed=seeds, scale=scales, first=st.integers(0, 6), second=st.integers(1, 6), columns=st.integers(1, 6))
def test_root_of_sum(seed, scale, first, second, columns):
    a, b = ((scale * matrix(seed + i, rows, columns)).astype(np.float32) for i, rows in enumerate((first, second)))
    r = np.asarray(linalg.root_of_sum(a, b), np.float64)
    want = a.astype(np.float64).T @ a + b.astype(np.float64).T @ b
    assert r.shape == (columns, columns)
    assert np.allclose(r, np.triu(r))
    assert np.max(np.abs(r.T @ r - want)) <= TOLERANCE * max(np.max(np.abs(want)), 1e-300)


@MATRICES
@given(seed=seeds, scale=scales, size=st.integers(1, 6), rank=st.integers(0, 6))
def test_psd_root_of_singular_matrices(seed, scale, size, rank):
    half = scale**0.5 * matrix(seed, min(rank, size), size) if rank else np.zeros((1, size))
    cov = (half.T @ half).astype(np.float32)
    r = np.asarray(linalg.psd_root(jnp.asarray(cov)), np.float64)
    assert np.all(np.isfinite(r))
    assert np.max(np.abs(r.T @ r - cov)) <= TOLERANCE * np.max(np.abs(cov)) + np.finfo(np.float32).tiny * 100


@MATRICES
@given(seed=seeds, scale=scales, size=st.integers(1, 6))
def test_solve_psd(seed, scale, size):
    cov = scale * (matrix(seed, size + 3, size).T @ matrix(seed, size + 3, size) + 0.1 * np.eye(size))
    rhs = matrix(seed + 1, size, 3)
    got = linalg.solve_psd(linalg.psd_root(jnp.asarray(cov)), jnp.asarray(rhs))
    np.testing.assert_allclose(got, np.linalg.solve(cov, rhs), rtol=1e-7, atol=1e-7 / scale)


@pytest.mark.parametrize("inflation", [0.0, 0.5])
def test_the_projection_is_the_nearest_matrix_of_its_rank(inflation):
    """Its distance from sum_i W_i^T W_i + a I is the norm of the smallest eigenvalues: no rank d comes nearer."""
    blocks = [matrix(seed, 3, 9) for seed in range(3)]
    total = sum(block.T @ block for block in blocks) + inflation * np.eye(9)
    for rank in (1, 4, 8):
        root = np.asarray(linalg.low_rank_projection(rank, *map(jnp.asarray, blocks), inflation=inflation))
        assert root.shape == (rank, 9)
        least = np.linalg.norm(np.linalg.eigvalsh(total)[: 9 - rank])
        np.testing.assert_allclose(np.linalg.norm(total - root.T @ root), least, rtol=1e-10)
        scaled = linalg.low_rank_projection(rank, *(1e-12 * block for block in blocks), inflation=1e-24 * inflation)
        np.testing.assert_allclose(1e24 * scaled.T @ scaled, root.T @ root, rtol=1e-8, atol=1e-10)
    assert np.all(linalg.low_rank_projection(2, jnp.zeros((4, 5)), inflation=inflation) == 0)


def test_random_rows_are_orthonormal_and_spread():
    rows = np.asarray(linalg.random_orthonormal_rows(jax.random.key(0), 4, 50, jnp.float64))
    np.testing.assert_allclose(rows @ rows.T, np.eye(4), atol=1e-12)
    assert np.count_nonzero(np.abs(rows) > 1e-6) == rows.size


def test_sequential_vmap_is_the_function_under_vmaps_and_derivatives():
    def plain(a, b):
        return jnp.linalg.cholesky(a @ a.mT + b), b

    def gradient(function):
        return jax.vmap(jax.grad(lambda a: jnp.sum(function(a, b)[0] ** 3)))

    def twice(function):
        return jax.jit(jax.vmap(jax.vmap(function, (0, None)), (0, None)))

    single = linalg.sequential_vmap(plain)
    a, b = jax.random.normal(jax.random.key(0), (3, 2, 4, 4)), jnp.eye(4)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6), twice(single)(a, b), twice(plain)(a, b))
    np.testing.assert_allclose(gradient(single)(a[0]), gradient(plain)(a[0]), rtol=1e-5)


def test_cond_any_branches_for_the_whole_batch_or_not_at_all():
    calls = []

    def double(x):
        jax.debug.callback(lambda _: calls.append(1), x[0])
        return 2 * x

    batched = jax.jit(jax.vmap(lambda c, x: linalg.cond_any(c, double, x)))
    x = jnp.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(batched(jnp.array([False, False, False]), x), x)
    jax.effects_barrier()
    assert not calls
    np.testing.assert_array_equal(batched(jnp.array([False, True, False]), x), 2 * x)
    inner = jax.vmap(lambda c, x: linalg.cond_any(c, lambda y: 2 * y, x), in_axes=(None, 0))
    twice = jax.jit(jax.vmap(inner, in_axes=(0, None)))
    np.testing.assert_array_equal(twice(jnp.array([True, False]), x), jnp.stack([2 * x, 2 * x]))


@pytest.mark.parametrize(("observed", "q", "cuts"), [(1, 0.0, ()), (1, 1e-2, (2, 9)), (3, 0.0, (2, 9)), (3, 1e-2, ())])
def test_lazy_basis_equals_dense_joseph_form(observed, q, cuts):
    """Twenty updates with a buffer that overflows several times, against the box on dense matrices."""
    generator = np.random.default_rng(0)
    size, rank = 12, 5
    c = np.asarray(linalg.random_orthonormal_rows(jax.random.key(1), rank, size, jnp.float64))
    factor = linalg.low_rank_from(tuple(jnp.split(jnp.asarray(c), cuts, 1)), jnp.eye(rank), 7 if q else 0)
    for _ in range(20):
        jac, noise = generator.normal(size=(observed, size)), 0.1 * np.eye(observed) + 0.2  # correlated
        total = jac @ c.T @ c @ jac.T + q * jac @ jac.T + noise
        roots = linalg.psd_root(jnp.asarray(total)), linalg.psd_root(jnp.asarray(noise))
        pieces = tuple(jnp.split(jnp.asarray(jac), cuts, 1))
        products = linalg.cross(factor, pieces)
        if q:
            done = low_rank_downdate(factor, pieces, products, *roots, jnp.asarray(q), jnp.asarray(True))
        else:
            done = fixed_span_downdate(factor, products, *roots, jnp.asarray(True))
        gain = np.linalg.solve(total, jac @ (c.T @ c + q * np.eye(size)))
        c, _ = reference.lrkf(c, jac, noise, np.zeros(observed), q)
        factor = done.factor
        rows = np.asarray(factor.root @ factor.coefficients @ np.concatenate(factor.basis).T)
        np.testing.assert_allclose(rows.T @ rows, c.T @ c, atol=1e-10)
        np.testing.assert_allclose(done.gain_gram, gain @ gain.T, atol=1e-10)
        np.testing.assert_allclose(
            np.concatenate(linalg.times(factor, jnp.ones(rank) @ factor.root)), rows.sum(0), atol=1e-12
        )


@pytest.mark.parametrize(
    ("q", "noise", "beyond", "std"),
    [(1e-6, 0.1, 1.0, 1.0), (1e-2, 1.0, 3.0, 0.1), (1.0, 0.0, 1.0, 1.0), (0.0, 0.5, 1.0, 1.0), (0.1, 0.5, 0.0, 1.0)],
    ids=["typical", "much process noise", "exact", "no process noise", "nothing new"],
)
def test_inverse_iteration_finds_the_direction_with_the_least_variance(q, noise, beyond, std):
    """Of the stack of one observation, against an eigendecomposition, for three roots each."""
    for seed in range(3):
        generator = np.random.default_rng(seed)
        root = np.linalg.qr(std * generator.normal(size=(9, 6)), mode="r")
        row = generator.normal(size=6)
        seen = root @ row
        total = seen @ seen + q * (row @ row + beyond**2) + noise
        gain = np.append(root.T @ seen + q * row, q * beyond) / total
        stack = np.vstack([np.pad(root, ((0, 0), (0, 1))) - np.outer(seen, gain), np.sqrt(noise) * gain])
        got = np.asarray(low_rank._least_direction(*map(jnp.asarray, (root, seen, gain, noise))))
        values, vectors = np.linalg.eigh(stack.T @ stack)
        assert values[0] < 0.5 * values[1]
        np.testing.assert_allclose(got * np.sign(got @ vectors[:, 0]), vectors[:, 0], atol=1e-10)
        kept = np.asarray(low_rank._reflect(jnp.asarray(got), jnp.eye(7)))
        np.testing.assert_allclose(kept @ kept.T, np.eye(6), atol=1e-14)
        np.testing.assert_allclose(kept @ got, 0, atol=1e-14)


def test_an_inflated_root_keeps_small_variances_beside_large_ones():
    """In float32: rows that are well apart, nearly the same, the same, and zero; one by one and as a batch."""
    apart = np.random.default_rng(5).normal(size=(3, 4))
    close = apart.copy()
    close[1] = close[0] + 1e-4 * close[2]
    factors, inflation = np.stack([apart, close, apart[[0, 0, 2]], 0 * apart]).astype(np.float32), np.float32(1e-10)
    assert np.linalg.cond(factors[0]) < 30 < 1e4 < np.linalg.cond(factors[1])
    batch = jax.vmap(low_rank._inflated_root, (0, None))(jnp.asarray(factors), jnp.asarray(inflation))
    for factor, together in zip(factors, batch, strict=True):
        exact = np.linalg.qr(np.vstack([factor.T.astype(float), np.sqrt(float(inflation)) * np.eye(3)]), mode="r")
        alone = np.asarray(low_rank._inflated_root(jnp.asarray(factor), jnp.asarray(inflation)))
        assert alone.dtype == np.float32
        for root in (alone, np.asarray(together)):
            assert np.all(np.tril(root, -1) == 0)
            np.testing.assert_allclose(np.abs(np.diag(root)), np.abs(np.diag(exact)), rtol=5e-3)
            np.testing.assert_allclose(root.T @ root, exact.T @ exact, atol=1e-6 * np.max(exact**2))


@pytest.mark.parametrize("observed", [1, 2])
def test_an_update_of_a_covariance_without_variance_or_news_is_finite(observed):
    """All variances zero, and rows of the Jacobian that lie in the span, are zero, or are the same twice."""
    rows = jnp.eye(3, 7)
    zero, one, two = jnp.zeros((1, 7)), jnp.eye(1, 7), jnp.arange(7.0)[None]
    for first in (zero, one, two):
        factor, jacobian = linalg.low_rank_from((rows,), jnp.zeros((3, 3)), 4), jnp.repeat(first, observed, axis=0)
        for q in (0.0, 0.1, 0.1, 0.1):
            products = linalg.cross(factor, (jacobian,))
            root = products @ factor.coefficients.mT @ factor.root.mT
            innovation = linalg.psd_root(root @ root.mT + q * jacobian @ jacobian.mT + jnp.eye(observed))
            done = low_rank_downdate(
                factor, (jacobian,), products, innovation, jnp.eye(observed), jnp.asarray(q), jnp.asarray(True)
            )
            factor = done.factor
            assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(done))
        # Three times process noise arrived in a span of three directions, of which one at most is observed.
        directions = factor.coefficients @ factor.basis[0].T
        np.testing.assert_allclose(directions @ directions.T, np.eye(3), atol=1e-12)
        variances = np.linalg.eigvalsh(factor.root @ factor.root.T)
        np.testing.assert_allclose(variances[1:], 0.3, atol=0.02)
        assert 0.1 <= variances[0] <= 0.3 + 1e-12


@pytest.mark.parametrize(("observed", "basis_dtype"), [(1, jnp.bfloat16), (3, None)])
def test_what_is_appended_as_outer_products_is_what_is_appended_as_columns(observed, basis_dtype):
    """Two dense layers beside a few other parameters, over several rounds of the buffer."""
    shapes, rank, spare = ((6, 4), (5, 3)), 5, 7
    rows = linalg.random_orthonormal_rows(jax.random.key(0), rank, 24 + 15 + 3, jnp.float64)
    rows, one = tuple(jnp.split(rows, [24, 39], axis=1)), jnp.asarray(True)
    keys = iter(jax.random.split(jax.random.key(1), 200))

    def jacobian():
        layers = [
            linalg.Outer(jax.random.normal(next(keys), (size,)), jax.random.normal(next(keys), (observed, out)))
            for size, out in shapes
        ]
        return (*layers, jax.random.normal(next(keys), (observed, 3)))

    like = jacobian()
    written_out = linalg.low_rank_from(rows, jnp.eye(rank), spare, basis_dtype)
    short = linalg.low_rank_from(rows, jnp.eye(rank), spare, basis_dtype, like)
    assert [isinstance(piece, linalg.Extended) for piece in short.basis] == [True, True, False]
    noise = 0.5 * jnp.eye(observed)
    # In bfloat16 the columns of the one are rounded where the vectors of the other are not.
    within = 1e-12 if basis_dtype is None else 0.03
    for _ in range(20):
        told = jacobian()
        products = [linalg.cross(factor, told) for factor in (written_out, short)]
        known = products[0] @ written_out.coefficients.mT @ written_out.root.mT
        roots = linalg.psd_root(known @ known.mT + 1e-2 * linalg.gram_of(told) + noise @ noise), noise
        written_out, short = (
            low_rank_downdate(factor, told, product, *roots, jnp.asarray(1e-2), one).factor
            for factor, product in zip((written_out, short), products, strict=True)
        )
        both = [
            f.root @ f.coefficients @ np.concatenate(list(map(linalg.full_columns, f.basis))).T
            for f in (written_out, short)
        ]
        assert relative(*(root.T @ root for root in both)) < within
        sums = [np.concatenate(linalg.times(f, jnp.ones(rank) @ f.root)) for f in (written_out, short)]
        np.testing.assert_allclose(sums[1], both[1].sum(0), atol=1e-12 if basis_dtype is None else 0.02)
    whole = tuple(jnp.asarray(linalg.dense(rows)) for rows in told)
    with pytest.raises(ValueError, match="build the filter with example=None"):
        linalg.cross(short, whole)


def relative(a, b):
    return np.max(np.abs(np.asarray(a) - b)) / np.max(np.abs(b))


def test_a_refused_update_leaves_the_covariance_and_the_buffer():
    factor = linalg.low_rank_from(
        (linalg.random_orthonormal_rows(jax.random.key(1), 3, 8, jnp.float64),), jnp.eye(3), 2
    )
    one = jnp.eye(1)
    for _ in range(5):
        done = low_rank_downdate(
            factor, (jnp.zeros((1, 8)),), jnp.zeros((1, 5)), one, one, jnp.asarray(0.1), jnp.asarray(False)
        )
        before, after = (f.root @ f.coefficients @ f.basis[0].T for f in (factor, done.factor))
        np.testing.assert_allclose(after, before)
        assert done.factor.filled == factor.filled
        factor = done.factor


def test_full_rank_downdate_is_the_joseph_form_with_the_inflated_gain():
    """Fifteen updates of two outputs with four spare columns, against dense matrices."""
    generator = np.random.default_rng(3)
    root = linalg.full_rank_from(jnp.asarray(generator.normal(size=(6, 6))), 4)
    sigma, noise, q = np.asarray(root.columns @ root.columns.T), np.array([[0.2, 0.1], [0.1, 0.4]]), 0.05
    for _ in range(15):
        jac = generator.normal(size=(2, 6))
        total = 3 * np.eye(2) + jac @ (sigma + q * np.eye(6)) @ jac.T + noise  # as if another block spoke too
        gain = np.linalg.solve(total, jac @ sigma + q * jac)
        left = np.eye(6) - gain.T @ jac
        sigma = left @ sigma @ left.T + gain.T @ noise @ gain
        roots = linalg.psd_root(jnp.asarray(total)), linalg.psd_root(jnp.asarray(noise))
        raw = jnp.asarray(total @ gain)
        jac = jnp.asarray(jac)
        done = full_rank_downdate(root, jac, jac @ root.columns, raw, *roots, jnp.asarray(True))
        root = done.factor
        np.testing.assert_allclose(root.columns @ root.columns.T, sigma, atol=1e-10)
        np.testing.assert_allclose(done.gain, gain, atol=1e-10)


@pytest.mark.parametrize("outputs", [1, 7])
def test_symmetric_downdate_is_the_joseph_form(outputs):
    """Fifteen updates without spare columns, also of more outputs than there are parameters; the last is refused."""
    generator = np.random.default_rng(4)
    root = linalg.full_rank_from(jnp.asarray(generator.normal(size=(6, 6))), 0)
    sigma, noise = np.asarray(root.columns @ root.columns.T), 0.1 * np.eye(outputs) + 0.2  # correlated
    for step in range(16):
        jac = generator.normal(size=(outputs, 6))
        total = 0.5 * np.eye(outputs) + jac @ sigma @ jac.T + noise  # as if another block spoke too
        gain = np.linalg.solve(total, jac @ sigma)
        roots = linalg.psd_root(jnp.asarray(total)), linalg.psd_root(jnp.asarray(noise))
        products = jnp.asarray(jac) @ root.columns
        done = symmetric_downdate(root, products, products @ root.columns.T, *roots, jnp.asarray(step < 15))
        if step < 15:
            left = np.eye(6) - gain.T @ jac
            sigma = left @ sigma @ left.T + gain.T @ noise @ gain
            np.testing.assert_allclose(done.gain, gain, atol=1e-10)
        root = done.factor
        assert root.columns.shape == (6, 6)
        np.testing.assert_allclose(root.columns @ root.columns.T, sigma, atol=1e-10)


def test_more_outputs_at_once_than_the_buffer_holds_is_an_error_with_the_remedy():
    factor = linalg.low_rank_from((jnp.eye(2, 5),), jnp.eye(2), 1)
    with pytest.raises(ValueError, match=r"3 outputs observed at once do not fit a buffer of 1.*buffer=3"):
        low_rank_downdate(
            factor, (jnp.zeros((3, 5)),), jnp.zeros((3, 3)), jnp.eye(3), jnp.eye(3), jnp.asarray(0.1), jnp.asarray(True)
        )


def test_a_batch_whose_members_have_fallen_out_of_step_equals_one_by_one():
    """Of three members the second refuses every other update, so that the buffers fill at different places."""
    generator = np.random.default_rng(6)
    rows = linalg.random_orthonormal_rows(jax.random.key(1), 3, 8, jnp.float64)
    jacobians = jnp.asarray(generator.normal(size=(9, 3, 1, 8)))
    accepts = jnp.asarray([[True, step % 2 == 0, True] for step in range(9)])

    def member(jacobians, accepts):
        def step(factor, seen):
            jac, accept = seen
            products, one = linalg.cross(factor, (jac,)), jnp.eye(1)
            factor = low_rank_downdate(factor, (jac,), products, 2 * one, one, jnp.asarray(0.1), accept).factor
            return factor, factor.filled

        factor, filled = jax.lax.scan(step, linalg.low_rank_from((rows,), jnp.eye(3), 2), (jacobians, accepts))
        return factor.root @ factor.coefficients @ factor.basis[0].T, filled

    together, filled = jax.jit(jax.vmap(member, in_axes=1))(jacobians, accepts)
    assert len({tuple(row) for row in np.asarray(filled).tolist()}) == 2
    for index in range(3):
        alone, _ = jax.jit(member)(jacobians[:, index], accepts[:, index])
        np.testing.assert_allclose(together[index].T @ together[index], alone.T @ alone, atol=1e-12)


def test_cond_any_does_not_repeat_what_the_members_of_a_batch_share():
    def product(condition, x, shared):
        return linalg.cond_any(condition, lambda x, shared: shared @ x, x, shared)

    conditions, xs, shared = jnp.ones(5, bool), jnp.ones((5, 7)), jnp.ones((7, 7))
    program = jax.make_jaxpr(jax.vmap(product, (0, 0, None)))(conditions, xs, shared)
    assert "5,7,7" not in str(program)
    np.testing.assert_array_equal(jax.vmap(product, (0, 0, None))(conditions, xs, shared), np.full((5, 7), 7))


def test_cond_any_has_the_derivatives_of_the_side_that_is_taken():
    def function(condition, x, a):
        return jnp.sum(linalg.cond_any(condition, lambda x, a: a * x**2, x, a))

    gradient = jax.jit(jax.grad(function, (1, 2)))
    x, a, both = jnp.array([1.0, 3.0]), jnp.float32(2), jnp.array([True, False])
    jax.tree.map(np.testing.assert_array_equal, gradient(True, x, a), (4 * x, jnp.float32(10)))
    jax.tree.map(np.testing.assert_array_equal, gradient(False, x, a), (jnp.ones(2), jnp.float32(0)))
    np.testing.assert_array_equal(jax.vmap(gradient, (0, None, None))(both, x, a)[0], [[4, 12], [1, 1]])


def test_what_is_put_into_columns_has_derivatives():
    buffer, weights = jnp.arange(8.0).reshape(2, 4), jnp.linspace(0.5, 2.0, 8).reshape(2, 4)

    def total(values):
        return jnp.sum(weights * batching.put_columns(buffer, values, jnp.int32(1)))

    values = jnp.ones((2, 2))
    derivatives = jax.jit(lambda x: (jax.grad(total)(x), jax.jacfwd(total)(x), jax.vmap(jax.grad(total))(x[None])[0]))
    for found in derivatives(values):
        np.testing.assert_array_equal(found, weights[:, 1:3])
